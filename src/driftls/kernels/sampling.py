"""Exact samples of N(0, (A + ridge I)^-1): the direction of a round is drawn before its arms are scored.

The score of an arm is theta.x + kappa direction.x. factor: the upper R with R'R = A + ridge I, kept by rank-one updates.
"""

from __future__ import annotations

import math
from typing import Any

from driftls.compiling.parts import inner, part, reals
from driftls.kernels.learn import mean_of
from driftls.kernels.rows import axpy, dot, row, uniform


@inner
def normal(w: Any) -> float:
    """A standard normal number from two uniforms (Box and Muller)"""
    u = uniform(w)
    return math.sqrt(-2.0 * math.log(1.0 - u)) * math.cos(2.0 * math.pi * uniform(w))


@part
def sampled_score(t: Any, w: Any, rows: Any, i: int, n: int, out: int, x: float) -> float:
    """(theta + x direction) . arm for arms i ... i + n - 1"""
    scores, direction = reals(out), reals(w.direction)
    for k in range(n):
        arm, at, length = row(rows, i + k)
        scores[k] = mean_of(t, arm, at, length) + x * dot(arm, at, length, t.sparse, direction)
    return 0.0


@inner
def spread_out(t: Any, w: Any, rows: Any, i: int) -> Any:
    """Row i as a dense vector"""
    x, at, n = row(rows, i)
    v = reals(w.scratch)
    for j in range(t.dim):
        v[j] = 0.0
    axpy(x, at, n, t.sparse, 1.0, v)
    return v


@part
def sample_enter(t: Any, w: Any, rows: Any, i: int) -> float:
    """R'R <- R'R + x x', O(d^2)"""
    v = spread_out(t, w, rows, i)
    for j in range(t.dim):
        if v[j] != 0.0:
            line = reals(w.factor + 8 * t.dim * j)
            radius = math.sqrt(line[j] * line[j] + v[j] * v[j])
            c, s = radius / line[j], v[j] / line[j]
            line[j] = radius
            for k in range(j + 1, t.dim):
                line[k] = (line[k] + s * v[k]) / c
                v[k] = c * v[k] - s * line[k]
    return 0.0


@part
def sample_begin(t: Any, w: Any) -> float:
    """direction = R^-1 z, whose covariance is (A + ridge I)^-1"""
    direction = reals(w.direction)
    for j in range(t.dim):
        direction[j] = normal(w)
    for back in range(t.dim):
        j = t.dim - 1 - back
        line, left = reals(w.factor + 8 * t.dim * j), direction[j]
        for k in range(j + 1, t.dim):
            left -= line[k] * direction[k]
        direction[j] = left / line[j]
    return 0.0


@part
def sample_width2(t: Any, w: Any, rows: Any, i: int) -> float:
    """|R'^-1 x|^2"""
    v, total = spread_out(t, w, rows, i), 0.0
    for j in range(t.dim):
        line = reals(w.factor + 8 * t.dim * j)
        v[j] /= line[j]
        total += v[j] * v[j]
        for k in range(j + 1, t.dim):
            v[k] -= line[k] * v[j]
    return total
