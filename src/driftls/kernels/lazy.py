"""The dense part of a step, applied in O(1).

Between two visits of a coordinate j every scheme moves it by the same rule,

    theta_j <- a theta_j - b G_j,        a = 1 - gamma lambda_n,  b = gamma/m (or 0),

where G changes only on the support of a row. So theta_j + q G_j grows by the factor p alone, if

    p <- a p,    q <- a q + b,

and u_j = (theta_j + q G_j)/p does not change at all. We keep u and g = G, and read theta_j = p u_j - q g_j where it is
needed: a step costs O(nnz), needs no stamp of a last visit, and holds for any schedule. Dense rows use the same
representation, so there is one copy of each scheme.
"""

from __future__ import annotations

from typing import Any

from driftls.compiling.parts import inner, reals
from driftls.kernels.rows import axpy, axpy2, dot, dot2, row

# Below this p the numbers u would soon overflow, and below this a single shrinkage loses digits: then, rarely, theta is
# written out in O(d) and the scalars start afresh.
SMALLEST_PRODUCT = 1e-120
SMALLEST_FACTOR = 1e-3
# In units of one step's b: beyond it p u and q g would cancel ever more digits. It is a number of steps, so that
# neither the size of rows nor that of the steps decides how often O(d) is paid.
LARGEST_Q = 1e6


@inner
def predict(t: Any, rows: Any, i: int) -> float:
    """theta . x_i"""
    x, at, n = row(rows, i)
    if t.q == 0.0:
        return t.p * dot(x, at, n, t.stride, reals(t.u))
    u, g = dot2(x, at, n, t.stride, reals(t.u), reals(t.g))
    return t.p * u - t.q * g


@inner
def move(t: Any, a: float, b: float) -> None:
    """theta <- a theta - b G"""
    if a > SMALLEST_FACTOR and a * t.p > SMALLEST_PRODUCT and t.q <= LARGEST_Q * b:
        t.p *= a
        t.q = a * t.q + b
    else:
        u, g, every = reals(t.u), reals(t.g), max(t.stride, 1)
        p, q = a * t.p, a * t.q + b
        for j in range(t.dim):
            u[j * every] = p * u[j * every] - q * g[j * every]
        t.p, t.q = 1.0, 0.0


@inner
def add(t: Any, rows: Any, i: int, alpha: float, beta: float) -> None:
    """theta += alpha x_i and G += beta x_i"""
    x, at, n = row(rows, i)
    axpy2(x, at, n, t.stride, (alpha + t.q * beta) / t.p, beta, reals(t.u), reals(t.g))


@inner
def shrink(t: Any, a: float) -> None:
    """theta <- a theta, for a scheme that keeps no G"""
    if a > SMALLEST_FACTOR and a * t.p > SMALLEST_PRODUCT:
        t.p *= a
    else:
        u, every = reals(t.u), max(t.stride, 1)
        for j in range(t.dim):
            u[j * every] *= a * t.p
        t.p = 1.0


@inner
def shrunk_add(t: Any, rows: Any, i: int, alpha: float) -> None:
    """theta += alpha x_i, for a scheme that keeps no G"""
    x, at, n = row(rows, i)
    axpy(x, at, n, t.stride, alpha / t.p, reals(t.u))


@inner
def show(t: Any) -> None:
    """Have theta read as a u + b g"""
    t.a, t.b = t.p, -t.q
