"""One pass, O(nnz), no history: least squares with the Gram matrix replaced by its diagonal.

u = theta, g = sums of squares: s_j = scale g_j, so that forgetting is O(1).
"""

from __future__ import annotations

from typing import Any

from driftls.compiling.parts import part, reals
from driftls.kernels.rows import dot, row

SMALLEST_SCALE = 1e-100


@part
def diagonal_enter(t: Any, rows: Any, i: int) -> float:
    """s_j <- rho s_j + x_j^2;  w = sum x_j^2/(ridge + s_j);  theta_j += (y - theta.x)/max(1, w) x_j/(ridge + s_j)"""
    theta, squares, every = reals(t.u), reals(t.g), max(t.stride, 1)
    t.scale *= t.discount
    if t.scale < SMALLEST_SCALE:
        for j in range(t.dim):
            squares[j * every] *= t.scale
        t.scale = 1.0
    x, at, n = row(rows, i)
    scale, ridge, width2 = t.scale, t.ridge, 0.0
    for p in range(n):
        j = p if t.stride == 0 else at[p] * every
        squares[j] += x[p] * x[p] / scale
        if x[p] * x[p] != 0.0:
            width2 += x[p] * x[p] / (ridge + scale * squares[j])
    step = (reals(rows.y)[i] - dot(x, at, n, t.stride, theta)) / max(1.0, width2)
    for p in range(n):
        j = p if t.stride == 0 else at[p] * every
        if x[p] * x[p] != 0.0:  # of an x below 1e-154 nothing is left to divide by
            theta[j] += step * x[p] / (ridge + scale * squares[j])
    return 0.0
