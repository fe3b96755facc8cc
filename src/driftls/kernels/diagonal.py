"""One pass, O(nnz), no history: least squares with the Gram matrix replaced by its diagonal."""

from __future__ import annotations

from typing import Any, NamedTuple

from driftls.kernels.compile import kernel
from driftls.kernels.frames import Coordinates, Vector
from driftls.kernels.rows import begin, end, index, row_dot, value

THETA, SQUARES = 0, 1
SCALE, DISCOUNT = 0, 1
SCALARS = 2
SMALLEST_SCALE = 1e-100


class DiagonalState(NamedTuple):
    """coords: theta and the sums of squares s_j = scale SQUARES_j, so that forgetting is O(1)."""

    coords: Coordinates
    scalars: Vector


@kernel
def diagonal_enter(state: DiagonalState, rows: Any, i: int, m: int, ridge: float) -> None:
    """s_j <- rho s_j + x_j^2;  w = sum x_j^2/(ridge + s_j);  theta_j += (y - theta.x)/max(1, w) x_j/(ridge + s_j)"""
    coords, scalars = state.coords, state.scalars
    scalars[SCALE] *= scalars[DISCOUNT]
    if scalars[SCALE] < SMALLEST_SCALE:
        for j in range(coords.shape[1]):
            coords[SQUARES, j] *= scalars[SCALE]
        scalars[SCALE] = 1.0
    scale = scalars[SCALE]
    width2 = 0.0
    for p in range(begin(rows, i), end(rows, i)):
        x = value(rows, i, p)
        j = index(rows, i, p)
        coords[SQUARES, j] += x * x / scale
        if x * x != 0.0:
            width2 += x * x / (ridge + scale * coords[SQUARES, j])
    step = (rows.y[i] - row_dot(rows, i, coords, THETA)) / max(1.0, width2)
    for p in range(begin(rows, i), end(rows, i)):
        x = value(rows, i, p)
        j = index(rows, i, p)
        if x * x != 0.0:  # of an x below 1e-154 nothing is left to divide by
            coords[THETA, j] += step * x / (ridge + scale * coords[SQUARES, j])
