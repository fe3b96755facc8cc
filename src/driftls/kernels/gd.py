"""fOLS-GD and fRLS-GD, with or without averaging; on a drawn row, or normalised on the newest one (NLMS)."""

from __future__ import annotations

from typing import Any, NamedTuple

from driftls.kernels import lazy
from driftls.kernels.compile import kernel
from driftls.kernels.frames import Coordinates, Vector
from driftls.kernels.lazy import P, U
from driftls.kernels.rows import row_axpy, row_dot, row_norm2

# scalars: P, (Q unused), then the sum of weighted iterates as Z + R u, its total weight, steps so far, the rule of
# averaging, and whether gamma is divided by the row's own squared norm (NLMS)
R, WEIGHT, STEPS, RULE, NORMALISE = 2, 3, 4, 5, 6
SCALARS = 7
Z = 1
NO_AVERAGE, POLYAK, TAIL = 0, 1, 2


class GDState(NamedTuple):
    """coords: u, and Z where iterates are averaged."""

    coords: Coordinates
    scalars: Vector


@kernel
def gd_step(state: GDState, rows: Any, i: int, m: int, gamma: float, lam: float) -> float:
    """theta += gamma ((y_i - theta'x_i) x_i - lam theta)      [eq:fOLS-GD-update, eq:fRLS-GD-update]"""
    coords, scalars = state.coords, state.scalars
    if scalars[NORMALISE] != 0.0:
        norm2 = row_norm2(rows, i)
        gamma = gamma / norm2 if norm2 > 0.0 else 0.0
    error = rows.y[i] - lazy.shrunk_dot(coords, scalars, rows, i)
    if scalars[RULE] == NO_AVERAGE:
        lazy.shrink(coords, scalars, 1.0 - gamma * lam)
        lazy.shrunk_add(coords, scalars, rows, i, gamma * error)
    else:
        averaged_step(state, rows, i, 1.0 - gamma * lam, gamma * error)
    return error


@kernel
def averaged_step(state: GDState, rows: Any, i: int, a: float, alpha: float) -> None:
    """theta <- a theta + alpha x_i joins the sum of iterates: sum += w theta, with w = 1 or t(t+1)(t+2)

    The sum is kept as Z + R u, so that adding an iterate is R += w P; Z pays for the part of u that came later.
    The weights of the tail average make its newest iterate count 4/(t+3) of the whole.
    """
    coords, scalars = state.coords, state.scalars
    if a <= lazy.SMALLEST_FACTOR or a * scalars[P] <= lazy.SMALLEST_PRODUCT:
        for j in range(coords.shape[1]):  # write the sum out before u changes its scale
            coords[Z, j] += scalars[R] * coords[U, j]
            coords[U, j] *= scalars[P] * a
        scalars[R] = 0.0
        scalars[P] = 1.0
    else:
        scalars[P] *= a
    row_axpy(rows, i, alpha / scalars[P], coords, U)
    row_axpy(rows, i, -scalars[R] * alpha / scalars[P], coords, Z)
    scalars[STEPS] += 1.0
    t = scalars[STEPS]
    weight = 1.0 if scalars[RULE] == POLYAK else t * (t + 1.0) * (t + 2.0)
    scalars[R] += weight * scalars[P]
    scalars[WEIGHT] += weight


@kernel
def gd_dot(state: GDState, rows: Any, i: int) -> float:
    """The estimate's prediction for row i: the average where there is one, else the last iterate"""
    scalars = state.scalars
    if scalars[RULE] == NO_AVERAGE or scalars[WEIGHT] == 0.0:
        return lazy.shrunk_dot(state.coords, scalars, rows, i)
    total = row_dot(rows, i, state.coords, Z) + scalars[R] * row_dot(rows, i, state.coords, U)
    return total / scalars[WEIGHT]


@kernel
def gd_read(state: GDState, out: Vector) -> None:
    """out = the estimate"""
    coords, scalars = state.coords, state.scalars
    for j in range(out.size):
        if scalars[RULE] == NO_AVERAGE or scalars[WEIGHT] == 0.0:
            out[j] = scalars[P] * coords[U, j]
        else:
            out[j] = (coords[Z, j] + scalars[R] * coords[U, j]) / scalars[WEIGHT]
