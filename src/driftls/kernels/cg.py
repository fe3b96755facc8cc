"""Conjugate gradients on the rows that a tracker holds: theta close to its target, and a table of residuals that is exact.

At a look every row is read anyway. The few sweeps here cost little beside the steps of all rows in between, since looks come
when n has grown in proportion, and they find the directions in which stochastic steps are slow.
"""

from __future__ import annotations

from typing import Any

from driftls.kernels.parts import entry, inner, reals, rows_at
from driftls.kernels.rows import axpy, dot, norm2, row

SMALLEST = 1e-250  # of a squared residual: what is smaller could vanish in a product
ENOUGH = 1e-8  # of the squared residual of the normal equations, relative to that at the start


@inner
def times_gram(t: Any, rows: Any, n: int, v: Any, out: Any) -> None:
    """out = (sum_i x_i x_i' + ridge I) v"""
    for j in range(t.dim):
        out[j] = t.ridge * v[j]
    for i in range(n):
        x, at, length = row(rows, i)
        axpy(x, at, length, rows.sparse, dot(x, at, length, rows.sparse, v), out)


@inner
def descend(t: Any, rows: Any, n: int, most: int) -> None:
    """Conjugate gradient steps on solution, left = right - (A + ridge I) solution; lines of scratch, as `line` has them"""
    solution, left, direction, product = line(t, 0), line(t, 1), line(t, 2), line(t, 3)
    size = norm2(left, t.dim)
    first = size
    for j in range(t.dim):
        direction[j] = left[j]
    for _ in range(most):
        if not (size > ENOUGH * first and size > SMALLEST):
            break
        times_gram(t, rows, n, direction, product)
        curvature = 0.0
        for j in range(t.dim):
            curvature += direction[j] * product[j]
        if not curvature > 0.0:
            break
        step = size / curvature
        for j in range(t.dim):
            solution[j] += step * direction[j]
            left[j] -= step * product[j]
        before, size = size, norm2(left, t.dim)
        for j in range(t.dim):
            direction[j] = left[j] + size / before * direction[j]


@inner
def line(t: Any, k: int) -> Any:
    """Line k of scratch, (4, dim): the solution, what is left of the right-hand side, the direction, its product with A"""
    return reals(t.scratch + 8 * t.dim * k)


@entry
def polish(t: Any, i: int, n: int) -> float:
    """At most i steps towards the solution over n rows from theta = u; then r_k = x_k.theta - y_k and G = sum r_k x_k

    Returns b.theta, how much of the rewards' sum of squares the model accounts for.
    """
    rows, every = rows_at(t.history), max(t.stride, 1)
    u, g, residual, y = reals(t.u), reals(t.g), reals(t.residual), reals(rows.y)
    theta, left = line(t, 0), line(t, 1)
    for j in range(t.dim):
        theta[j] = u[j * every]
        left[j] = -t.ridge * theta[j]
    for k in range(n):
        x, at, length = row(rows, k)
        axpy(x, at, length, rows.sparse, y[k] - dot(x, at, length, rows.sparse, theta), left)
    descend(t, rows, n, i)
    for j in range(t.dim):
        left[j] = 0.0
    explained, t.max_norm2, t.max_y2 = 0.0, 0.0, 0.0
    for k in range(n):
        x, at, length = row(rows, k)
        mean = dot(x, at, length, rows.sparse, theta)
        explained += y[k] * mean
        residual[k] = mean - y[k]
        axpy(x, at, length, rows.sparse, residual[k], left)
        t.max_norm2, t.max_y2 = max(t.max_norm2, norm2(x, length)), max(t.max_y2, y[k] * y[k])
    for j in range(t.dim):
        u[j * every], g[j * every] = theta[j], left[j]
    t.p, t.q, t.a, t.b, t.forgotten = 1.0, 0.0, 1.0, 0.0, 0
    return explained


@entry
def trace(t: Any, i: int, n: int) -> float:
    """z'(A + ridge I)^-1 z over n rows, where line 1 of scratch holds z, after at most i steps"""
    solution, z, kept, total = line(t, 0), line(t, 1), line(t, 4), 0.0
    for j in range(t.dim):
        solution[j], kept[j] = 0.0, z[j]
    descend(t, rows_at(t.history), n, i)
    for j in range(t.dim):
        total += kept[j] * solution[j]
    return total
