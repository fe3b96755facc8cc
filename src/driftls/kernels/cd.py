"""Gauss-Southwell coordinate descent on the normal equations: no step size, no draws, d^2 memory.

u = theta, g = residual b - (A + ridge I) theta, extra = diagonal of gram; A = scale gram, so that forgetting is O(1).
Vectors lie as for dense rows; sparse rows reach into them with stride 1.
"""

from __future__ import annotations

from typing import Any

from driftls.compiling.parts import inner, part, reals
from driftls.kernels.rows import axpy, dot, rank_one, row

SMALLEST_SCALE = 1e-100


@inner
def gram_add(t: Any, rows: Any, i: int, weight: float) -> None:
    """A += weight x_i x_i', and the kept diagonal with it"""
    x, at, n = row(rows, i)
    inside, diagonal = weight / t.scale, reals(t.extra)
    rank_one(x, at, n, t.sparse, inside, t.dim, t.gram)
    for p in range(n):
        diagonal[p if t.sparse == 0 else at[p]] += inside * x[p] * x[p]


@inner
def discount_rows(t: Any) -> None:
    """A <- rho A and b <- rho b; the ridge is not discounted"""
    theta, residual, rho = reals(t.u), reals(t.g), t.discount
    forgotten = (1.0 - rho) * t.ridge_now
    for j in range(t.dim):
        residual[j] = rho * residual[j] - forgotten * theta[j]
    t.scale *= rho
    if t.scale < SMALLEST_SCALE:
        gram, diagonal = reals(t.gram), reals(t.extra)
        for j in range(t.dim):
            diagonal[j] *= t.scale
        for j in range(t.dim * t.dim):
            gram[j] *= t.scale
        t.scale = 1.0


@part
def cd_enter(t: Any, rows: Any, i: int, n: int) -> float:
    """A <- rho A + x x', b <- rho b + y x, the ridge to its new total; the residual stays exact in O(d)"""
    theta, residual = reals(t.u), reals(t.g)
    if t.discount < 1.0:
        discount_rows(t)
    x, at, length = row(rows, i)
    error = reals(rows.y)[i] - dot(x, at, length, t.sparse, theta)
    axpy(x, at, length, t.sparse, error, residual)
    gram_add(t, rows, i, 1.0)
    change = t.ridge - t.ridge_now
    if change != 0.0:
        for j in range(t.dim):
            residual[j] -= change * theta[j]
        t.ridge_now = t.ridge
    return 1.0 if t.forgotten >= max(n, t.dim) else 0.0


@part
def cd_forget(t: Any, rows: Any, i: int) -> float:
    """A -= x x', b -= y x"""
    x, at, length = row(rows, i)
    error = dot(x, at, length, t.sparse, reals(t.u)) - reals(rows.y)[i]
    axpy(x, at, length, t.sparse, error, reals(t.g))
    gram_add(t, rows, i, -1.0)
    t.forgotten += 1
    return 0.0


@inner
def southwell_step(t: Any, solution: Any, residual: Any) -> None:
    """j = argmax r_j^2/A_jj;  delta = r_j/A_jj;  solution_j += delta;  r -= delta A_j, for any right-hand side"""
    scale, ridge, diagonal = t.scale, t.ridge_now, reals(t.extra)
    best, gain = -1, 0.0
    for j in range(t.dim):
        r = residual[j]
        pivot = scale * diagonal[j] + ridge
        if r * r > gain * pivot and pivot > 0.0:  # the first of equals
            best, gain = j, r * r / pivot
    if best >= 0:
        delta = residual[best] / (scale * diagonal[best] + ridge)
        solution[best] += delta
        line = reals(t.gram + 8 * t.dim * best)
        for j in range(t.dim):
            residual[j] -= delta * scale * line[j]
        residual[best] -= delta * ridge


@part
def cd_descend(t: Any) -> float:
    """Gauss-Southwell steps on A theta = b"""
    for _ in range(t.steps):
        southwell_step(t, reals(t.u), reals(t.g))
    return 0.0
