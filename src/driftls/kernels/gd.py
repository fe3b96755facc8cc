"""fOLS-GD and fRLS-GD, as they are and with an average of the iterates."""

from __future__ import annotations

from typing import Any, NamedTuple

from driftls.kernels import lazy
from driftls.kernels.compile import exactly, leaf
from driftls.kernels.frames import Coordinates, Vector
from driftls.kernels.lazy import P, U
from driftls.kernels.rows import row_axpy2, row_dot

SCALARS = 2  # P, and a Q that a scheme without G never moves

# The average: its sum of weighted iterates is Z + R u; then its total weight, steps so far, and the rule
R, WEIGHT, STEPS, RULE = 2, 3, 4, 5
AVERAGE_SCALARS = 6
Z = 1
POLYAK, TAIL = 1, 2
# Z and R u cancel; as P falls they outgrow their sum, and beyond this factor too many digits would be lost.
MOST_SPREAD = 1e3


class GDState(NamedTuple):
    """coords: u."""

    coords: Coordinates
    scalars: Vector


class AveragedGDState(NamedTuple):
    """coords: u and Z."""

    coords: Coordinates
    scalars: Vector


@leaf
def gd_step(state: GDState, rows: Any, i: int, m: int, gamma: float, lam: float) -> float:
    """theta += gamma ((y_i - theta'x_i) x_i - lam theta)      [eq:fOLS-GD-update, eq:fRLS-GD-update]"""
    coords, scalars = state.coords, state.scalars
    error = rows.y[i] - lazy.shrunk_dot(coords, scalars, rows, i)
    lazy.shrink(coords, scalars, 1.0 - gamma * lam)
    lazy.shrunk_add(coords, scalars, rows, i, gamma * error)
    return error


@leaf
def averaged_gd_step(state: AveragedGDState, rows: Any, i: int, m: int, gamma: float, lam: float) -> float:
    """The same step; then the sum of iterates += w theta, with w = 1 (Polyak) or t(t+1)(t+2) (tail)

    The sum is kept as Z + R u, so that adding an iterate is R += w P; Z pays for the part of u that came later.
    The weights of the tail average make its newest iterate count 4/(t+3) of the whole.
    """
    coords, scalars = state.coords, state.scalars
    error = rows.y[i] - lazy.shrunk_dot(coords, scalars, rows, i)
    a = 1.0 - gamma * lam
    left = a * scalars[P]
    if a <= lazy.SMALLEST_FACTOR or left <= lazy.SMALLEST_PRODUCT or scalars[R] > MOST_SPREAD * left * scalars[WEIGHT]:
        for j in range(coords.shape[1]):  # write the sum out before u changes its scale
            coords[Z, j] += scalars[R] * coords[U, j]
            coords[U, j] *= left
        scalars[R] = 0.0
        scalars[P] = 1.0
    else:
        scalars[P] = left
    alpha = gamma * error / scalars[P]
    row_axpy2(rows, i, alpha, -scalars[R] * alpha, coords)
    scalars[STEPS] += 1.0
    t = scalars[STEPS]
    weight = 1.0 if scalars[RULE] == POLYAK else t * (t + 1.0) * (t + 2.0)
    scalars[R] += weight * scalars[P]
    scalars[WEIGHT] += weight
    return error


@leaf
def gd_dot(state: GDState, rows: Any, i: int) -> float:
    """theta . x_i"""
    return lazy.shrunk_dot(state.coords, state.scalars, rows, i)


@leaf
def averaged_gd_dot(state: AveragedGDState, rows: Any, i: int) -> float:
    """The average's prediction for row i"""
    scalars = state.scalars
    if scalars[WEIGHT] == 0.0:
        return 0.0
    return (row_dot(rows, i, state.coords, Z) + scalars[R] * row_dot(rows, i, state.coords, U)) / scalars[WEIGHT]


@exactly
def averaged_gd_coordinate(state: AveragedGDState, j: int) -> float:
    """Coordinate j of the average"""
    coords, scalars = state.coords, state.scalars
    weight = scalars[WEIGHT] if scalars[WEIGHT] > 0.0 else 1.0
    return (coords[Z, j] + scalars[R] * coords[U, j]) / weight
