"""Conjugate gradients on the rows that a tracker holds: theta close to its target, and a table of residuals that is exact.

At a look every row is read anyway. The few sweeps here cost little beside the steps of all rows in between, since looks come
when n has grown in proportion, and they find the directions in which stochastic steps are slow. Vectors have an entry for each
feature that the rows have, of which there may be far more: everything else is 0, and stays so.
"""

from __future__ import annotations

from typing import Any

from driftls.compiling.parts import entry, indices, inner, integers, reals
from driftls.kernels.learn import coefficient
from driftls.kernels.records import rows_at
from driftls.kernels.rows import axpy, dot, norm2, row

SMALLEST = 1e-250  # of a squared residual: what is smaller could vanish in a product
ENOUGH = 1e-8  # of the squared residual of the normal equations, relative to that at the start


@entry
def pack(t: Any, i: int, n: int) -> float:
    """Number the features of n rows as they come, and (i != 0: rows have left) others of which something is left; how many"""
    rows, packed, every = rows_at(t.history), indices(rows_at(t.packed).indices), max(t.stride, 1)
    places, features, at, count = indices(t.places), indices(t.features), indices(rows.indices), 0
    for k in range(n):
        for p in range(integers(rows.start)[k], integers(rows.stop)[k]):
            j = at[p]
            if places[j] == 0:
                features[count] = j
                count += 1
                places[j] = count
            packed[p] = places[j] - 1
    if i != 0:
        for j in range(t.dim):
            if places[j] == 0 and (reals(t.u)[j * every] != 0.0 or reals(t.g)[j * every] != 0.0):
                features[count] = j
                count += 1
    return float(count)


@inner
def feature(t: Any, j: int) -> int:
    """Which coordinate is the j-th of a packed vector"""
    return j if t.features == 0 else indices(t.features)[j]


@inner
def times_gram(t: Any, rows: Any, n: int, v: Any, out: Any) -> None:
    """out = (sum_i x_i x_i' + ridge I) v"""
    for j in range(rows.dim):
        out[j] = t.ridge * v[j]
    for i in range(n):
        x, at, length = row(rows, i)
        axpy(x, at, length, rows.sparse, dot(x, at, length, rows.sparse, v), out)


@inner
def descend(t: Any, rows: Any, n: int, most: int) -> None:
    """Conjugate gradient steps on solution, left = right - (A + ridge I) solution; lines of scratch, as `line` has them"""
    solution, left, direction, product = line(t, 0), line(t, 1), line(t, 2), line(t, 3)
    size = norm2(left, rows.dim)
    first = size
    for j in range(rows.dim):
        direction[j] = left[j]
    for _ in range(most):
        if not (size > ENOUGH * first and size > SMALLEST):
            break
        times_gram(t, rows, n, direction, product)
        curvature = 0.0
        for j in range(rows.dim):
            curvature += direction[j] * product[j]
        if not curvature > 0.0:
            break
        step = size / curvature
        for j in range(rows.dim):
            solution[j] += step * direction[j]
            left[j] -= step * product[j]
        before, size = size, norm2(left, rows.dim)
        for j in range(rows.dim):
            direction[j] = left[j] + size / before * direction[j]


@inner
def line(t: Any, k: int) -> Any:
    """Line k of scratch: the solution, what is left of the right-hand side, the direction, its product with A"""
    return reals(t.scratch + 8 * rows_at(t.packed).dim * k)


@entry
def polish(t: Any, i: int, n: int) -> float:
    """At most i steps from theta towards the solution over n rows; then r_k = x_k.theta - y_k and G = sum r_k x_k

    Returns b.theta, how much of the rewards' sum of squares the model accounts for.
    """
    rows = rows_at(t.packed)
    u, g, residual, y = reals(t.u), reals(t.g), reals(t.residual), reals(rows.y)
    theta, left = line(t, 0), line(t, 1)
    for j in range(rows.dim):
        theta[j] = coefficient(t, feature(t, j))
        left[j] = -t.ridge * theta[j]
    for k in range(n):
        x, at, length = row(rows, k)
        axpy(x, at, length, rows.sparse, y[k] - dot(x, at, length, rows.sparse, theta), left)
    descend(t, rows, n, i)
    for j in range(rows.dim):
        left[j] = 0.0
    explained, t.max_norm2, t.max_y2 = 0.0, 0.0, 0.0
    for k in range(n):
        x, at, length = row(rows, k)
        mean = dot(x, at, length, rows.sparse, theta)
        explained += y[k] * mean
        residual[k] = mean - y[k]
        axpy(x, at, length, rows.sparse, residual[k], left)
        t.max_norm2, t.max_y2 = max(t.max_norm2, norm2(x, length)), max(t.max_y2, y[k] * y[k])
    for j in range(rows.dim):
        place = feature(t, j) * max(t.stride, 1)
        u[place], g[place] = theta[j], left[j]
    t.p, t.q, t.a, t.b, t.forgotten = 1.0, 0.0, 1.0, 0.0, 0
    return explained


@entry
def trace(t: Any, i: int, n: int) -> float:
    """z'(A + ridge I)^-1 z over n rows, where line 1 of scratch holds z, after at most i steps"""
    rows, solution, z, kept, total = rows_at(t.packed), line(t, 0), line(t, 1), line(t, 4), 0.0
    for j in range(rows.dim):
        solution[j], kept[j] = 0.0, z[j]
    descend(t, rows, n, i)
    for j in range(rows.dim):
        total += kept[j] * solution[j]
    return total
