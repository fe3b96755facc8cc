"""The exact solution: Sherman-Morrison while rounding errors stay small, re-factorisation when they do not.

gram, moment and (on the fast route) the inverse are kept; the inverse is probed now and then against the Gram matrix
it is the inverse of. A probe that fails, or a row that costs half of all digits, re-factorises; a matrix that is too
ill-conditioned for that leaves the fast route, and theta is solved for from the Gram matrix when it is asked for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from driftls.kernels.compile import kernel, merged
from driftls.kernels.frames import Matrix, Vector
from driftls.kernels.rows import begin, end, index, row_axpy, row_dot, row_rank_one, value

THETA, MOMENT, GAIN, ROW = 0, 1, 2, 3
ROUTE, SCALE, RIDGE, DISCOUNT, FADING, SEEN, NEXT_TRY, REFACTORISED, FORGOTTEN, LEFT = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
SCALARS = 10
# Solve from the Gram matrix when asked; the same, but go over to Sherman-Morrison once the matrix can be inverted;
# Sherman-Morrison; invert after every row, as the paper's baseline does.
SOLVE, WAITING, SHERMAN_MORRISON, INVERT = 0, 1, 2, 3

PROBE_EVERY = 64
LARGEST_PROBE = 1e-8
SMALLEST_PIVOT = 1e-8  # relative to the diagonal entry: below it, half of all digits are gone
LARGEST_LOSS = 1e8  # the same for one row on the fast route: the inverse changes by this factor along it
LAST_DIGIT = 1e-15  # added to the diagonal, relative to it, so that LAPACK never meets a pivot of exactly 0
SMALLEST_ENTRY = 1e-150  # of A's diagonal: under forgetting, a feature that stays away would let the inverse overflow
SMALLEST_SCALE = 1e-100


class ExactState(NamedTuple):
    """coords: theta, moment, and two scratch lines; A = scale gram + ridge I, b = scale moment."""

    coords: Matrix
    scalars: Vector
    gram: Matrix
    inverse: Matrix


@kernel
def invertible(gram: Matrix, scale: float, ridge: float, scratch: Matrix) -> bool:
    """Whether a Cholesky factorisation of scale gram + ridge I (written to scratch) keeps enough digits"""
    for i in range(gram.shape[0]):
        for j in range(i + 1):
            entry = scale * gram[i, j] + (ridge if i == j else 0.0)
            left = entry
            for k in range(j):
                left -= scratch[i, k] * scratch[j, k]
            if i > j:
                scratch[i, j] = left / scratch[j, j]
            elif left > SMALLEST_PIVOT * entry and entry > SMALLEST_ENTRY:
                scratch[i, i] = np.sqrt(left)
            else:
                return False
    return True


@kernel
def refactorise(state: ExactState) -> bool:
    """inverse = A^-1 and theta = A^-1 b afresh, if A can be inverted"""
    scalars = state.scalars
    if not invertible(state.gram, scalars[SCALE], scalars[RIDGE], state.inverse):
        return False
    invert(state)
    scalars[NEXT_TRY] = 2.0 * scalars[SEEN]  # and again when A is better: what it lost now would otherwise stay
    return True


@kernel
def invert(state: ExactState) -> None:
    """inverse = A^-1 by LAPACK, theta = A^-1 b"""
    coords, scalars, inverse = state.coords, state.scalars, state.inverse
    dim = state.gram.shape[0]
    for j in range(dim):
        for k in range(dim):
            inverse[j, k] = scalars[SCALE] * state.gram[j, k]
        inverse[j, j] = (inverse[j, j] + scalars[RIDGE]) * (1.0 + LAST_DIGIT)
    found = np.linalg.inv(inverse)
    for j in range(dim):
        total = 0.0
        for k in range(dim):
            inverse[j, k] = found[j, k]
            total += found[j, k] * coords[MOMENT, k]
        coords[THETA, j] = scalars[SCALE] * total


@kernel
def gain(state: ExactState, rows: Any, i: int) -> float:
    """GAIN = A^-1 x_i; returns x_i' A^-1 x_i"""
    coords, inverse = state.coords, state.inverse
    for k in range(coords.shape[1]):
        coords[GAIN, k] = 0.0
    for p in range(begin(rows, i), end(rows, i)):
        x = value(rows, i, p)
        if x != 0.0:
            line = inverse[index(rows, i, p)]  # symmetric: a row of it is a column
            for k in range(line.size):
                coords[GAIN, k] += x * line[k]
    return row_dot(rows, i, coords, GAIN)


@merged
def sherman_morrison(state: ExactState, rows: Any, i: int, weight: float, rho: float) -> bool:
    """The inverse of rho A + weight x x':  (A^-1 - weight g g'/(rho + weight x.g))/rho,  g = A^-1 x;  theta with it"""
    coords, inverse = state.coords, state.inverse
    denominator = rho + weight * gain(state, rows, i)
    if not rho < denominator * LARGEST_LOSS < rho * LARGEST_LOSS * LARGEST_LOSS:
        return False
    error = rows.y[i] - row_dot(rows, i, coords, THETA)
    step = weight / denominator
    largest = 0.0
    for j in range(coords.shape[1]):
        coords[THETA, j] += step * error * coords[GAIN, j]
        alpha = step * coords[GAIN, j]
        line = inverse[j]
        for k in range(coords.shape[1]):
            line[k] = (line[k] - alpha * coords[GAIN, k]) / rho
        largest = max(largest, line[j])
    return largest * SMALLEST_ENTRY < 1.0


@merged
def probe(state: ExactState, rows: Any, i: int) -> bool:
    """Whether A (A^-1 x) still gives x back"""
    coords, scalars = state.coords, state.scalars
    gain(state, rows, i)
    for k in range(coords.shape[1]):
        coords[ROW, k] = 0.0
    row_axpy(rows, i, 1.0, coords, ROW)
    worst = 0.0
    largest = 0.0
    for j in range(coords.shape[1]):
        line, total = state.gram[j], 0.0
        for k in range(coords.shape[1]):
            total += line[k] * coords[GAIN, k]
        worst = max(worst, abs(scalars[SCALE] * total + scalars[RIDGE] * coords[GAIN, j] - coords[ROW, j]))
        largest = max(largest, abs(coords[ROW, j]))
    return worst <= LARGEST_PROBE * largest


@kernel
def exact_enter(state: ExactState, rows: Any, i: int, m: int, ridge: float) -> None:
    """A <- rho A + x x' and b <- rho b + y x, with the ridge at its new total      [eq:ols, eq:reg-ls]"""
    scalars = state.scalars
    rho = scalars[DISCOUNT]
    scalars[SEEN] += 1.0
    scalars[SCALE] *= rho
    if scalars[FADING] == 0.0:
        scalars[RIDGE] = ridge
    else:  # classic forgetting: the ridge fades with the rows
        scalars[RIDGE] = rho * (ridge if scalars[SEEN] == 1.0 else scalars[RIDGE])
    if scalars[SCALE] < SMALLEST_SCALE:
        for j in range(state.gram.shape[0]):
            for k in range(state.gram.shape[0]):
                state.gram[j, k] *= scalars[SCALE]
            state.coords[MOMENT, j] *= scalars[SCALE]
        scalars[SCALE] = 1.0
    row_rank_one(rows, i, 1.0 / scalars[SCALE], state.gram)
    row_axpy(rows, i, rows.y[i] / scalars[SCALE], state.coords, MOMENT)
    renewed = scalars[FORGOTTEN] >= max(m, state.gram.shape[0])
    if renewed:
        sum_up(state, rows, m)
    if scalars[ROUTE] == SHERMAN_MORRISON:
        fine = not renewed and scalars[SEEN] < scalars[NEXT_TRY] and sherman_morrison(state, rows, i, 1.0, rho)
        if fine and scalars[SEEN] % PROBE_EVERY == 0.0:
            fine = probe(state, rows, i)
        if not fine:
            mend(state)
    elif scalars[ROUTE] == WAITING and scalars[SEEN] >= scalars[NEXT_TRY]:
        scalars[NEXT_TRY] = scalars[SEEN] + state.gram.shape[0]  # O(d^3) every d rows is O(d^2) a row
        if refactorise(state):
            scalars[ROUTE] = SHERMAN_MORRISON
    elif scalars[ROUTE] == INVERT:
        invert(state)


@kernel
def sum_up(state: ExactState, rows: Any, m: int) -> None:
    """A and b afresh: what a large row that has left did to the last digits leaves with it"""
    for j in range(state.gram.shape[0]):
        state.coords[MOMENT, j] = 0.0
        for k in range(state.gram.shape[0]):
            state.gram[j, k] = 0.0
    for i in range(m):
        row_rank_one(rows, i, 1.0, state.gram)
        row_axpy(rows, i, rows.y[i], state.coords, MOMENT)
    state.scalars[FORGOTTEN] = 0.0


@kernel
def exact_forget(state: ExactState, rows: Any, i: int, m: int) -> None:
    """A -= x x' and b -= y x"""
    scalars = state.scalars
    row_rank_one(rows, i, -1.0 / scalars[SCALE], state.gram)
    row_axpy(rows, i, -rows.y[i] / scalars[SCALE], state.coords, MOMENT)
    scalars[FORGOTTEN] += 1.0
    if scalars[ROUTE] == SHERMAN_MORRISON and not sherman_morrison(state, rows, i, -1.0, 1.0):
        mend(state)


@merged
def mend(state: ExactState) -> None:
    """Re-factorise, or leave the fast route until the matrix can be inverted"""
    scalars = state.scalars
    scalars[REFACTORISED] += 1.0
    if not refactorise(state):
        scalars[ROUTE] = WAITING
        scalars[LEFT] += 1.0
        scalars[NEXT_TRY] = scalars[SEEN] + state.gram.shape[0]
