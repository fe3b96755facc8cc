"""Gauss-Southwell coordinate descent on the normal equations: no step size, no draws, d^2 memory."""

from __future__ import annotations

from typing import Any, NamedTuple

from driftls.kernels.compile import kernel
from driftls.kernels.frames import Matrix, Vector
from driftls.kernels.rows import begin, end, index, row_axpy, row_dot, row_rank_one, value

THETA, RESIDUAL, DIAGONAL = 0, 1, 2
SCALE, RIDGE, DISCOUNT, FORGOTTEN = 0, 1, 2, 3  # the last: rows that left since the sums were last made afresh
SCALARS = 4
SMALLEST_SCALE = 1e-100


class CDState(NamedTuple):
    """coords: theta, residual b - (A + ridge I) theta, diagonal of gram; A = scale gram, so that forgetting is O(1)."""

    coords: Matrix
    scalars: Vector
    gram: Matrix


@kernel
def gram_add(state: CDState, rows: Any, i: int, weight: float) -> None:
    """A += weight x_i x_i', and the kept diagonal with it"""
    inside = weight / state.scalars[SCALE]
    row_rank_one(rows, i, inside, state.gram)
    for p in range(begin(rows, i), end(rows, i)):
        x = value(rows, i, p)
        state.coords[DIAGONAL, index(rows, i, p)] += inside * x * x


@kernel
def cd_enter(state: CDState, rows: Any, i: int, m: int, ridge: float) -> None:
    """A <- rho A + x x', b <- rho b + y x, the ridge to its new total; the residual stays exact in O(d)"""
    coords, scalars = state.coords, state.scalars
    rho = scalars[DISCOUNT]
    if rho < 1.0:
        forgotten = (1.0 - rho) * scalars[RIDGE]  # the ridge is not discounted
        for j in range(coords.shape[1]):
            coords[RESIDUAL, j] = rho * coords[RESIDUAL, j] - forgotten * coords[THETA, j]
        scalars[SCALE] *= rho
        if scalars[SCALE] < SMALLEST_SCALE:
            for j in range(coords.shape[1]):
                coords[DIAGONAL, j] *= scalars[SCALE]
                for k in range(coords.shape[1]):
                    state.gram[j, k] *= scalars[SCALE]
            scalars[SCALE] = 1.0
    row_axpy(rows, i, rows.y[i] - row_dot(rows, i, coords, THETA), coords, RESIDUAL)
    gram_add(state, rows, i, 1.0)
    change = ridge - scalars[RIDGE]
    if change != 0.0:
        for j in range(coords.shape[1]):
            coords[RESIDUAL, j] -= change * coords[THETA, j]
        scalars[RIDGE] = ridge
    if scalars[FORGOTTEN] >= max(m, coords.shape[1]):
        sum_up(state, rows, m)


@kernel
def sum_up(state: CDState, rows: Any, m: int) -> None:
    """A and the residual afresh: what a large row that has left did to the last digits leaves with it"""
    coords, scalars = state.coords, state.scalars
    for j in range(coords.shape[1]):
        coords[RESIDUAL, j] = -scalars[RIDGE] * coords[THETA, j]
        coords[DIAGONAL, j] = 0.0
        for k in range(coords.shape[1]):
            state.gram[j, k] = 0.0
    for i in range(m):
        row_axpy(rows, i, rows.y[i] - row_dot(rows, i, coords, THETA), coords, RESIDUAL)
        gram_add(state, rows, i, 1.0)
    scalars[FORGOTTEN] = 0.0


@kernel
def cd_forget(state: CDState, rows: Any, i: int, m: int) -> None:
    """A -= x x', b -= y x"""
    coords = state.coords
    row_axpy(rows, i, row_dot(rows, i, coords, THETA) - rows.y[i], coords, RESIDUAL)
    gram_add(state, rows, i, -1.0)
    state.scalars[FORGOTTEN] += 1.0


@kernel
def descend(solution: Vector, residual: Vector, state: CDState) -> None:
    """j = argmax r_j^2/A_jj;  delta = r_j/A_jj;  solution_j += delta;  r -= delta A_j, for any right-hand side"""
    scale, ridge, diagonals = state.scalars[SCALE], state.scalars[RIDGE], state.coords[DIAGONAL]
    best, gain = -1, 0.0
    for j in range(residual.size):
        r = residual[j]
        diagonal = scale * diagonals[j] + ridge
        if r * r > gain * diagonal and diagonal > 0.0:  # the first of equals
            best, gain = j, r * r / diagonal
    if best >= 0:
        delta = residual[best] / (scale * diagonals[best] + ridge)
        solution[best] += delta
        line = state.gram[best]
        for j in range(residual.size):
            residual[j] -= delta * scale * line[j]
        residual[best] -= delta * ridge


@kernel
def cd_step(state: CDState, rows: Any, i: int, m: int, gamma: float, lam: float) -> float:
    """One Gauss-Southwell step on A theta = b"""
    descend(state.coords[THETA], state.coords[RESIDUAL], state)
    return 0.0
