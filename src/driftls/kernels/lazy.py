"""The dense part of a step, applied in O(1).

Between two visits of a coordinate j every scheme moves it by the same rule,

    theta_j <- a theta_j - b G_j,        a = 1 - gamma lambda_n,  b = gamma/m (or 0),

where G changes only on the support of a row. So theta_j + Q G_j grows by the factor P alone, if

    P <- a P,    Q <- a Q + b,

and u_j = (theta_j + Q G_j)/P does not change at all. We keep u and G, and read theta_j = P u_j - Q G_j where it is
needed: a step costs O(nnz), needs no stamp of a last visit, and holds for any schedule. Dense rows use the same
representation, so there is one copy of each scheme.
"""

from __future__ import annotations

from typing import Any

from driftls.kernels.compile import exactly, leaf
from driftls.kernels.frames import Vector
from driftls.kernels.rows import row_axpy, row_axpy2, row_dot, row_dot2

U, G = 0, 1  # the quantities kept for each coordinate
P, Q = 0, 1  # the two scalars

# Below this P the numbers u would soon overflow, and below this a single shrinkage loses digits: then, rarely, theta is
# written out in O(d) and the scalars start afresh.
SMALLEST_PRODUCT = 1e-120
SMALLEST_FACTOR = 1e-3
# In units of one step's b: beyond it P u and Q G would cancel ever more digits. It is a number of steps, so that
# neither the size of rows nor that of the steps decides how often O(d) is paid.
LARGEST_Q = 1e6


@leaf
def settle(coords: Any, scalars: Vector, a: float, b: float) -> None:
    """theta <- a theta - b G written out; P = 1, Q = 0."""
    for j in range(coords.shape[1]):
        theta = scalars[P] * coords[U, j] - scalars[Q] * coords[G, j]
        coords[U, j] = a * theta - b * coords[G, j]
    scalars[P] = 1.0
    scalars[Q] = 0.0


@leaf
def move(coords: Any, scalars: Vector, a: float, b: float) -> None:
    """theta <- a theta - b G"""
    if a > SMALLEST_FACTOR and a * scalars[P] > SMALLEST_PRODUCT and scalars[Q] <= LARGEST_Q * b:
        scalars[P] *= a
        scalars[Q] = a * scalars[Q] + b
    else:
        settle(coords, scalars, a, b)


@leaf
def dot(coords: Any, scalars: Vector, rows: Any, i: int) -> float:
    """theta . x_i"""
    u, g = row_dot2(rows, i, coords)
    return scalars[P] * u - scalars[Q] * g


@leaf
def add(coords: Any, scalars: Vector, rows: Any, i: int, alpha: float, beta: float) -> None:
    """theta += alpha x_i and G += beta x_i"""
    row_axpy2(rows, i, (alpha + scalars[Q] * beta) / scalars[P], beta, coords)


@leaf
def shrink(coords: Any, scalars: Vector, a: float) -> None:
    """theta <- a theta, for a scheme that keeps no G"""
    if a > SMALLEST_FACTOR and a * scalars[P] > SMALLEST_PRODUCT:
        scalars[P] *= a
    else:
        for j in range(coords.shape[1]):
            coords[U, j] *= a * scalars[P]
        scalars[P] = 1.0


@leaf
def shrunk_dot(coords: Any, scalars: Vector, rows: Any, i: int) -> float:
    """theta . x_i, for a scheme that keeps no G"""
    return scalars[P] * row_dot(rows, i, coords, U)


@leaf
def shrunk_add(coords: Any, scalars: Vector, rows: Any, i: int, alpha: float) -> None:
    """theta += alpha x_i, for a scheme that keeps no G"""
    row_axpy(rows, i, alpha / scalars[P], coords, U)


@exactly
def coordinate(state: Any, j: int) -> float:
    """theta_j"""
    return state.scalars[P] * state.coords[U, j] - state.scalars[Q] * state.coords[G, j]


@exactly
def shrunk_coordinate(state: Any, j: int) -> float:
    """theta_j, for a scheme that keeps no G"""
    return state.scalars[P] * state.coords[U, j]
