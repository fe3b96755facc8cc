"""Gradient descent on a row that was drawn from the past (or on the newest one): fOLS-GD, fRLS-GD, and averages."""

from __future__ import annotations

from typing import Any

from driftls.compiling.parts import inner, part, reals
from driftls.kernels.lazy import SMALLEST_FACTOR, SMALLEST_PRODUCT, show, shrink, shrunk_add
from driftls.kernels.learn import descend
from driftls.kernels.rows import axpy2, dot, row

LAST, POLYAK, TAIL = 0, 1, 2  # which average is reported
# The two halves of the sum of iterates cancel as p falls; beyond this factor too many digits would be lost.
MOST_SPREAD = 1e3


@inner
def gd_step(t: Any, rows: Any, i: int, m: int) -> float:
    """theta += gamma ((y_i - theta'x_i) x_i - lam theta)      [eq:fOLS-GD-update, eq:fRLS-GD-update]"""
    x, at, n = row(rows, i)
    error = reals(rows.y)[i] - t.p * dot(x, at, n, t.stride, reals(t.u))
    shrink(t, 1.0 - t.gamma * t.lam)
    shrunk_add(t, rows, i, t.gamma * error)
    return error


@part
def gd_descend(t: Any, rows: Any, i: int, n: int) -> float:
    """The steps of a round"""
    error = descend(t, rows, i, n, gd_step)
    show(t)
    return error


@inner
def averaged_gd_step(t: Any, rows: Any, i: int, m: int) -> float:
    """The same step; then the sum of iterates += w theta, with w = 1 (Polyak) or t(t+1)(t+2) (tail)

    The sum is kept as g + r u, so that adding an iterate is r += w p; g pays for the part of u that came later.
    The weights of the tail average make its newest iterate count 4/(t+3) of the whole.
    """
    x, at, n = row(rows, i)
    u, g, every = reals(t.u), reals(t.g), max(t.stride, 1)
    error = reals(rows.y)[i] - t.p * dot(x, at, n, t.stride, u)
    a = 1.0 - t.gamma * t.lam
    left = a * t.p
    if a <= SMALLEST_FACTOR or left <= SMALLEST_PRODUCT or t.r > MOST_SPREAD * left * t.weight:
        for j in range(t.dim):  # write the sum out before u changes its scale
            g[j * every] += t.r * u[j * every]
            u[j * every] *= left
        t.r, t.p = 0.0, 1.0
    else:
        t.p = left
    alpha = t.gamma * error / t.p
    axpy2(x, at, n, t.stride, alpha, -t.r * alpha, u, g)
    t.taken += 1.0
    weight = 1.0 if t.averaging == POLYAK else t.taken * (t.taken + 1.0) * (t.taken + 2.0)
    t.r += weight * t.p
    t.weight += weight
    return error


@part
def averaged_gd_descend(t: Any, rows: Any, i: int, n: int) -> float:
    """The steps of a round; theta is the average"""
    error = descend(t, rows, i, n, averaged_gd_step)
    t.a, t.b = t.r / t.weight, 1.0 / t.weight
    return error
