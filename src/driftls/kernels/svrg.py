"""SVRG: the printed scheme, whose anchor is the running average, and one whose anchor is refreshed now and then."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from driftls.kernels import lazy
from driftls.kernels.compile import kernel
from driftls.kernels.frames import Coordinates, Matrix, Vector
from driftls.kernels.rows import row_axpy, row_dot, row_rank_one

ANCHOR = 2  # after u and G
# after P and Q: steps since the last refresh, when it is due, the rule, T, rows that left since G was summed up
SINCE, DUE, EVERY, PER_ROW, FORGOTTEN = 2, 3, 4, 5, 6
SCALARS = 7
GROWTH = 0.25  # EVERY = 0: refresh after a quarter as many rows as are held; growing, that is five visits a row in all

THETA, MEAN, GRADIENT, MOMENT = 0, 1, 2, 3
STEPS, LEFT = 0, 1  # inner steps so far, rows that left since the sums were last made afresh
AVERAGE_SCALARS = 2


class SVRGState(NamedTuple):
    """coords: u, G = sum_i (x_i.anchor - y_i) x_i, and the anchor."""

    coords: Coordinates
    scalars: Vector


class SVRGAverageState(NamedTuple):
    """coords: theta, the mean of the iterates (the anchor), F'(anchor), sum y_i x_i; gram = sum x_i x_i'."""

    coords: Coordinates
    scalars: Vector
    gram: Matrix


@kernel
def svrg_enter(state: SVRGState, rows: Any, i: int, m: int, ridge: float) -> None:
    """A new row joins the anchor's full gradient in O(nnz)"""
    coords, scalars = state.coords, state.scalars
    lazy.add(coords, scalars, rows, i, 0.0, row_dot(rows, i, coords, ANCHOR) - rows.y[i])
    if scalars[FORGOTTEN] >= max(m, coords.shape[1]):
        sum_up(state, rows, m)


@kernel
def refresh(state: SVRGState, rows: Any, m: int) -> None:
    """anchor = theta, and its full gradient over all m rows"""
    coords, scalars = state.coords, state.scalars
    scalars[SINCE] = 0.0
    scalars[DUE] = scalars[PER_ROW] * (np.ceil(GROWTH * m) if scalars[EVERY] == 0.0 else scalars[EVERY])
    for j in range(coords.shape[1]):
        coords[ANCHOR, j] = scalars[lazy.P] * coords[lazy.U, j] - scalars[lazy.Q] * coords[lazy.G, j]
    sum_up(state, rows, m)


@kernel
def sum_up(state: SVRGState, rows: Any, m: int) -> None:
    """G = sum_i (x_i.anchor - y_i) x_i afresh"""
    coords, scalars = state.coords, state.scalars
    lazy.settle(coords, scalars, 1.0, 0.0)
    for j in range(coords.shape[1]):
        coords[lazy.G, j] = 0.0
    for i in range(m):
        row_axpy(rows, i, row_dot(rows, i, coords, ANCHOR) - rows.y[i], coords, lazy.G)
    scalars[FORGOTTEN] = 0.0


@kernel
def svrg_forget(state: SVRGState, rows: Any, i: int, m: int) -> None:
    """A row leaves the anchor's full gradient"""
    coords, scalars = state.coords, state.scalars
    lazy.add(coords, scalars, rows, i, 0.0, rows.y[i] - row_dot(rows, i, coords, ANCHOR))
    scalars[FORGOTTEN] += 1.0


@kernel
def svrg_step(state: SVRGState, rows: Any, i: int, m: int, gamma: float, lam: float) -> float:
    """theta <- theta - gamma (x_i.(theta - anchor) x_i + G/m + lam theta)      [eq:svrg-update]

    The paper's f'_i(theta) - f'_i(anchor) + F'(anchor), with lam (theta - anchor) + lam anchor added up. When it is
    due, the anchor moves to theta first.
    """
    coords, scalars = state.coords, state.scalars
    if scalars[SINCE] >= scalars[DUE]:
        refresh(state, rows, m)
    scalars[SINCE] += 1.0
    prediction = lazy.dot(coords, scalars, rows, i)
    change = prediction - row_dot(rows, i, coords, ANCHOR)
    lazy.move(coords, scalars, 1.0 - gamma * lam, gamma / m)
    lazy.add(coords, scalars, rows, i, -gamma * change, 0.0)
    return prediction - rows.y[i]


@kernel
def svrg_average_enter(state: SVRGAverageState, rows: Any, i: int, m: int, ridge: float) -> None:
    """gram += x_i x_i', moment += y_i x_i; summed up afresh once all rows have been replaced"""
    coords, gram = state.coords, state.gram
    row_rank_one(rows, i, 1.0, gram)
    row_axpy(rows, i, rows.y[i], coords, MOMENT)
    if state.scalars[LEFT] >= max(m, coords.shape[1]):
        for j in range(coords.shape[1]):
            coords[MOMENT, j] = 0.0
            for k in range(coords.shape[1]):
                gram[j, k] = 0.0
        for r in range(m):
            row_rank_one(rows, r, 1.0, gram)
            row_axpy(rows, r, rows.y[r], coords, MOMENT)
        state.scalars[LEFT] = 0.0


@kernel
def svrg_average_forget(state: SVRGAverageState, rows: Any, i: int, m: int) -> None:
    """gram -= x_i x_i', moment -= y_i x_i"""
    row_rank_one(rows, i, -1.0, state.gram)
    row_axpy(rows, i, -rows.y[i], state.coords, MOMENT)
    state.scalars[LEFT] += 1.0


@kernel
def svrg_average_step(state: SVRGAverageState, rows: Any, i: int, m: int, gamma: float, lam: float) -> float:
    """theta <- theta - gamma (f'_i(theta) - f'_i(mean) + F'_n(mean))      [eq:svrg-update], O(d^2)

    The anchor moves every round, so its full gradient is a product with the Gram matrix: not an O(d) scheme.
    """
    coords, gram = state.coords, state.gram
    dim = coords.shape[1]
    for j in range(dim):
        line, total = gram[j], 0.0
        for k in range(dim):
            total += line[k] * coords[MEAN, k]
        coords[GRADIENT, j] = (total - coords[MOMENT, j]) / m + lam * coords[MEAN, j]
    prediction = row_dot(rows, i, coords, THETA)
    change = prediction - row_dot(rows, i, coords, MEAN)
    for j in range(dim):
        direction = lam * (coords[THETA, j] - coords[MEAN, j]) + coords[GRADIENT, j]
        coords[THETA, j] -= gamma * direction
    row_axpy(rows, i, -gamma * change, coords, THETA)
    state.scalars[STEPS] += 1.0
    for j in range(dim):
        coords[MEAN, j] += (coords[THETA, j] - coords[MEAN, j]) / state.scalars[STEPS]
    return prediction - rows.y[i]
