"""SAG and SAGA with a table that grows: for least squares a row's stored gradient is a scalar, its residual."""

from __future__ import annotations

from typing import Any, NamedTuple

from driftls.kernels import lazy
from driftls.kernels.compile import kernel, leaf, prefetch
from driftls.kernels.frames import Coordinates, Vector
from driftls.kernels.rows import CLOSE, FAR, coords_prefetch, row_axpy

FORGOTTEN = 2  # after P and Q: rows that left since G was last summed up afresh
SCALARS = 3


class SAGState(NamedTuple):
    """coords: u and G = sum_i residual_i x_i; residual_i = x_i.theta - y_i when row i was last visited."""

    coords: Coordinates
    scalars: Vector
    residual: Vector


class SAGAState(NamedTuple):
    """As SAGState."""

    coords: Coordinates
    scalars: Vector
    residual: Vector


@leaf
def table_enter(state: SAGAState, rows: Any, i: int, m: int, ridge: float) -> None:
    """A new row enters with its present residual: r_i = x_i.theta - y_i, G += r_i x_i"""
    residual = lazy.dot(state.coords, state.scalars, rows, i) - rows.y[i]
    state.residual[i] = residual
    lazy.add(state.coords, state.scalars, rows, i, 0.0, residual)
    if state.scalars[FORGOTTEN] >= max(m, state.coords.shape[1]):
        sum_up(state, rows, m)


@kernel
def sum_up(state: SAGAState, rows: Any, m: int) -> None:
    """G = sum_i r_i x_i afresh: what a large row that has left did to the last digits leaves with it"""
    coords, scalars = state.coords, state.scalars
    lazy.settle(coords, scalars, 1.0, 0.0)
    for j in range(coords.shape[1]):
        coords[lazy.G, j] = 0.0
    for i in range(m):
        row_axpy(rows, i, state.residual[i], coords, lazy.G)
    scalars[FORGOTTEN] = 0.0


@leaf
def table_forget(state: SAGAState, rows: Any, i: int, m: int) -> None:
    """A row leaves and takes its stored gradient along: G -= r_i x_i"""
    lazy.add(state.coords, state.scalars, rows, i, 0.0, -state.residual[i])
    state.scalars[FORGOTTEN] += 1.0


@leaf
def sag_step(state: SAGState, rows: Any, i: int, m: int, gamma: float, lam: float) -> float:
    """r_i <- x_i.theta - y_i;  theta <- theta - gamma ((1/m) sum_k r_k x_k + lam theta)      [eq:SAG]"""
    coords, scalars = state.coords, state.scalars
    residual = lazy.dot(coords, scalars, rows, i) - rows.y[i]
    lazy.add(coords, scalars, rows, i, 0.0, residual - state.residual[i])
    state.residual[i] = residual
    lazy.move(coords, scalars, 1.0 - gamma * lam, gamma / m)
    return residual


@leaf
def saga_step(state: SAGAState, rows: Any, i: int, m: int, gamma: float, lam: float) -> float:
    """theta <- theta - gamma (e x_i + G/m + lam theta), then G += e x_i;  e = (x_i.theta - y_i) - r_i"""
    coords, scalars = state.coords, state.scalars
    residual = lazy.dot(coords, scalars, rows, i) - rows.y[i]
    change = residual - state.residual[i]
    state.residual[i] = residual
    lazy.move(coords, scalars, 1.0 - gamma * lam, gamma / m)
    lazy.add(coords, scalars, rows, i, -gamma * change, change)
    return residual


@leaf
def table_prefetch(state: SAGAState, rows: Any, i: int, stage: int) -> None:
    """Ask for the residual of row i together with where the row lies"""
    if stage == FAR:
        prefetch(state.residual, i)
    elif stage == CLOSE:
        coords_prefetch(rows, i, state.coords)


@leaf
def lazy_dot(state: SAGAState, rows: Any, i: int) -> float:
    """theta . x_i"""
    return lazy.dot(state.coords, state.scalars, rows, i)
