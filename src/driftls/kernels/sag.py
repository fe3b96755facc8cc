"""SAG and SAGA with a table that grows: for least squares a row's stored gradient is a scalar, its residual.

g = sum_i residual_i x_i; residual_i = x_i.theta - y_i when row i was last visited.
"""

from __future__ import annotations

from typing import Any

from driftls.compiling.parts import inner, part, reals
from driftls.kernels.lazy import add, move, predict, show
from driftls.kernels.learn import descend


@part
def table_enter(t: Any, rows: Any, i: int, n: int) -> float:
    """A new row enters with its present residual: r_i = x_i.theta - y_i, G += r_i x_i"""
    residual = predict(t, rows, i) - reals(rows.y)[i]
    reals(t.residual)[i] = residual
    add(t, rows, i, 0.0, residual)
    # what a large row that has left did to the last digits leaves with it: G is summed up afresh now and then
    return 1.0 if t.forgotten >= max(n, t.dim) else 0.0


@part
def table_forget(t: Any, rows: Any, i: int) -> float:
    """A row leaves and takes its stored gradient along: G -= r_i x_i"""
    add(t, rows, i, 0.0, -reals(t.residual)[i])
    t.forgotten += 1
    return 0.0


@inner
def sag_step(t: Any, rows: Any, i: int, m: int) -> float:
    """r_i <- x_i.theta - y_i;  theta <- theta - gamma ((1/m) sum_k r_k x_k + lam theta)      [eq:SAG]"""
    residual = predict(t, rows, i) - reals(rows.y)[i]
    add(t, rows, i, 0.0, residual - reals(t.residual)[i])
    reals(t.residual)[i] = residual
    move(t, 1.0 - t.gamma * t.lam, t.gamma / m)
    return residual


@inner
def saga_step(t: Any, rows: Any, i: int, m: int) -> float:
    """theta <- theta - gamma (e x_i + G/m + lam theta), then G += e x_i;  e = (x_i.theta - y_i) - r_i"""
    residual = predict(t, rows, i) - reals(rows.y)[i]
    change = residual - reals(t.residual)[i]
    reals(t.residual)[i] = residual
    move(t, 1.0 - t.gamma * t.lam, t.gamma / m)
    add(t, rows, i, -t.gamma * change, change)
    return residual


@part
def sag_descend(t: Any, rows: Any, i: int, n: int) -> float:
    """The steps of a round"""
    error = descend(t, rows, i, n, sag_step)
    show(t)
    return error


@part
def saga_descend(t: Any, rows: Any, i: int, n: int) -> float:
    """The steps of a round"""
    error = descend(t, rows, i, n, saga_step)
    show(t)
    return error
