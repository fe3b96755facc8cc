"""SVRG: the printed scheme, whose anchor is the running average, and one whose anchor is refreshed now and then.

Refreshed: g = sum_i (x_i.anchor - y_i) x_i, extra = anchor. Average: u = theta, g = mean of the iterates (the anchor),
extra = F'(anchor), moment = sum y_i x_i, gram = sum x_i x_i'; its coordinates are never interleaved.
"""

from __future__ import annotations

from typing import Any

from driftls.compiling.parts import inner, part, reals
from driftls.kernels.lazy import add, move, predict, show
from driftls.kernels.learn import descend
from driftls.kernels.rows import axpy, dot, rank_one, row


@inner
def anchor_residual(t: Any, rows: Any, i: int) -> float:
    """x_i.anchor - y_i"""
    x, at, n = row(rows, i)
    return dot(x, at, n, t.stride, reals(t.extra)) - reals(rows.y)[i]


@part
def svrg_enter(t: Any, rows: Any, i: int, n: int) -> float:
    """A new row joins the anchor's full gradient in O(nnz)"""
    add(t, rows, i, 0.0, anchor_residual(t, rows, i))
    return 1.0 if t.forgotten >= max(n, t.dim) else 0.0


@part
def svrg_forget(t: Any, rows: Any, i: int) -> float:
    """A row leaves the anchor's full gradient"""
    add(t, rows, i, 0.0, -anchor_residual(t, rows, i))
    t.forgotten += 1
    return 0.0


@inner
def refresh(t: Any, rows: Any, m: int) -> None:
    """anchor = theta, and its full gradient over all m rows"""
    u, g, anchor, every = reals(t.u), reals(t.g), reals(t.extra), max(t.stride, 1)
    for j in range(t.dim):
        u[j * every] = t.p * u[j * every] - t.q * g[j * every]
        anchor[j * every] = u[j * every]
        g[j * every] = 0.0
    t.p, t.q, t.forgotten = 1.0, 0.0, 0
    for i in range(m):
        x, at, n = row(rows, i)
        axpy(x, at, n, t.stride, anchor_residual(t, rows, i), g)


@inner
def svrg_step(t: Any, rows: Any, i: int, m: int) -> float:
    """theta <- theta - gamma (x_i.(theta - anchor) x_i + G/m + lam theta)      [eq:svrg-update]

    The paper's f'_i(theta) - f'_i(anchor) + F'(anchor), with lam (theta - anchor) + lam anchor added up. When it is due,
    the anchor moves to theta first.
    """
    if t.since >= t.due:  # every 0: after a quarter as many rows as are held; growing, five visits a row in all
        t.since, t.due = 0.0, t.steps * (float((m + 3) // 4) if t.every == 0.0 else t.every)
        refresh(t, rows, m)
    t.since += 1.0
    prediction, y = predict(t, rows, i), reals(rows.y)[i]
    change = prediction - y - anchor_residual(t, rows, i)
    move(t, 1.0 - t.gamma * t.lam, t.gamma / m)
    add(t, rows, i, -t.gamma * change, 0.0)
    return prediction - y


@part
def svrg_descend(t: Any, rows: Any, i: int, n: int) -> float:
    """The steps of a round"""
    error = descend(t, rows, i, n, svrg_step)
    show(t)
    return error


@part
def svrg_average_enter(t: Any, rows: Any, i: int, n: int) -> float:
    """gram += x_i x_i', moment += y_i x_i"""
    x, at, length = row(rows, i)
    rank_one(x, at, length, t.sparse, 1.0, t.dim, t.gram)
    axpy(x, at, length, t.sparse, reals(rows.y)[i], reals(t.moment))
    return 1.0 if t.forgotten >= max(n, t.dim) else 0.0


@part
def svrg_average_forget(t: Any, rows: Any, i: int) -> float:
    """gram -= x_i x_i', moment -= y_i x_i"""
    x, at, length = row(rows, i)
    rank_one(x, at, length, t.sparse, -1.0, t.dim, t.gram)
    axpy(x, at, length, t.sparse, -reals(rows.y)[i], reals(t.moment))
    t.forgotten += 1
    return 0.0


@inner
def svrg_average_step(t: Any, rows: Any, i: int, m: int) -> float:
    """theta <- theta - gamma (f'_i(theta) - f'_i(mean) + F'_n(mean))      [eq:svrg-update], O(d^2)

    The anchor moves every round, so its full gradient is a product with the Gram matrix: not an O(d) scheme.
    """
    gamma, lam = t.gamma, t.lam
    theta, mean, gradient, moment = reals(t.u), reals(t.g), reals(t.extra), reals(t.moment)
    x, at, n = row(rows, i)
    for j in range(t.dim):
        line, total = reals(t.gram + 8 * t.dim * j), 0.0
        for k in range(t.dim):
            total += line[k] * mean[k]
        gradient[j] = (total - moment[j]) / m + lam * mean[j]
    prediction = dot(x, at, n, t.sparse, theta)
    change = prediction - dot(x, at, n, t.sparse, mean)
    for j in range(t.dim):
        theta[j] -= gamma * (lam * (theta[j] - mean[j]) + gradient[j])
    axpy(x, at, n, t.sparse, -gamma * change, theta)
    t.taken += 1.0
    for j in range(t.dim):
        mean[j] += (theta[j] - mean[j]) / t.taken
    return prediction - reals(rows.y)[i]


@part
def svrg_average_descend(t: Any, rows: Any, i: int, n: int) -> float:
    """The steps of a round"""
    return descend(t, rows, i, n, svrg_average_step)
