"""Rows of observations, dense or sparse, and the few operations through which every scheme touches them.

Dense and sparse differ in the first two classes and in the leaves below them, and nowhere else. `coords` is a table
(quantity, coordinate); the operations take the number of the quantity.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from driftls.kernels.compile import by_type, kernel, leaf, prefetch
from driftls.kernels.frames import Indices, Integers, Matrix, ValueRows, Values, Vector


class DenseRows(NamedTuple):
    """X (row, coordinate) and y."""

    X: ValueRows
    y: Vector


class SparseRows(NamedTuple):
    """Row i has values[p] at indices[p] for start[i] <= p < stop[i]; indices increase within a row."""

    start: Integers
    stop: Integers
    indices: Indices
    values: Values
    y: Vector


class CrossRows(NamedTuple):
    """Every user (as in SparseRows) with every shift of its indices, user by user; if shared, behind itself.

    shared: whether it is so (0 or 1), and how many features a user has.
    """

    shift: Integers
    start: Integers
    stop: Integers
    indices: Indices
    values: Values
    y: Vector
    shared: Integers


# Where row i begins and ends, and which coordinate and value stand at place p of it.


@leaf
def dense_begin(rows: Any, i: int) -> int:
    return 0


@leaf
def dense_end(rows: Any, i: int) -> int:
    return rows.X.shape[1]


@leaf
def dense_index(rows: Any, i: int, p: int) -> int:
    return p


@leaf
def dense_value(rows: Any, i: int, p: int) -> float:
    return np.float64(rows.X[i, p])  # float() would keep a float32, and square it as one


@leaf
def sparse_begin(rows: Any, i: int) -> int:
    return rows.start[i]


@leaf
def sparse_end(rows: Any, i: int) -> int:
    return rows.stop[i]


@leaf
def sparse_index(rows: Any, i: int, p: int) -> int:
    return rows.indices[p]


@leaf
def sparse_value(rows: Any, i: int, p: int) -> float:
    return np.float64(rows.values[p])


@leaf
def cross_user(rows: Any, i: int) -> int:
    return i // max(rows.shift.size, 1)  # a divisor that may be 0 would keep the division inside of loops


@leaf
def cross_begin(rows: Any, i: int) -> int:
    return rows.start[cross_user(rows, i)]


@leaf
def cross_end(rows: Any, i: int) -> int:
    line = cross_user(rows, i)
    return rows.stop[line] + rows.shared[0] * (rows.stop[line] - rows.start[line])


@leaf
def cross_index(rows: Any, i: int, p: int) -> int:
    line = cross_user(rows, i)
    shift = rows.shift[i - line * rows.shift.size]
    if p < rows.stop[line]:  # the first copy: moved, unless a second one follows
        return rows.indices[p] + (0 if rows.shared[0] != 0 else shift)
    return rows.indices[p - (rows.stop[line] - rows.start[line])] + shift


@leaf
def cross_value(rows: Any, i: int, p: int) -> float:
    line = cross_user(rows, i)
    return np.float64(rows.values[p if p < rows.stop[line] else p - (rows.stop[line] - rows.start[line])])


begin = by_type({DenseRows: dense_begin, SparseRows: sparse_begin, CrossRows: cross_begin})
end = by_type({DenseRows: dense_end, SparseRows: sparse_end, CrossRows: cross_end})
index = by_type({DenseRows: dense_index, SparseRows: sparse_index, CrossRows: cross_index})
value = by_type({DenseRows: dense_value, SparseRows: sparse_value, CrossRows: cross_value})


@leaf
def dense_store(rows: Any, slot: int, block: Any, k: int, used: int) -> int:
    """Copy row k of the block into a slot; dense rows need no arena"""
    for j in range(rows.X.shape[1]):
        rows.X[slot, j] = block.X[k, j]
    rows.y[slot] = block.y[k]
    return used


@leaf
def sparse_store(rows: Any, slot: int, block: Any, k: int, used: int) -> int:
    """Append row k of the block to the arena and point a slot at it; returns the arena's new end"""
    rows.start[slot] = used
    for p in range(begin(block, k), end(block, k)):
        rows.indices[used] = index(block, k, p)
        rows.values[used] = value(block, k, p)
        used += 1
    rows.stop[slot] = used
    rows.y[slot] = block.y[k]
    return used


@leaf
def dense_fits(rows: Any, block: Any, k: int, used: int) -> bool:
    return True


@leaf
def sparse_fits(rows: Any, block: Any, k: int, used: int) -> bool:
    """Whether the arena has room for row k of the block"""
    return used + end(block, k) - begin(block, k) <= rows.indices.size


@leaf
def dense_prefetch(rows: Any, i: int, stage: int) -> None:
    """Ask for row i; nothing has to be looked up first, so the far stage does it all"""
    if stage == FAR:
        dim = rows.X.shape[1]
        for j in range(0, min(dim, MOST_LINES * PER_LINE), PER_LINE):
            prefetch(rows.X, i * dim + j)
        prefetch(rows.y, i)


@leaf
def sparse_prefetch(rows: Any, i: int, stage: int) -> None:
    """Ask for row i: far ahead for where it lies, nearer (once that has come) for the row itself"""
    if stage == FAR:
        prefetch(rows.start, i)
        prefetch(rows.stop, i)
        prefetch(rows.y, i)
    elif stage == NEAR:
        for p in range(rows.start[i], rows.stop[i] + 15, 16):
            prefetch(rows.indices, p)
        for p in range(rows.start[i], rows.stop[i] + PER_LINE - 1, PER_LINE):
            prefetch(rows.values, p)


@leaf
def dense_coords_prefetch(rows: Any, i: int, coords: Any) -> None:
    """All coordinates are used by every row"""


@leaf
def sparse_coords_prefetch(rows: Any, i: int, coords: Any) -> None:
    """Ask for the coordinates of row i, which has come: all that is kept of a coordinate is adjacent"""
    if coords.size > IN_CACHE:
        for p in range(rows.start[i], rows.stop[i]):
            prefetch(coords, rows.indices[p] * coords.shape[0])


NOT_FINITE, BAD_INDEX, UNSORTED, BAD_POINTER = 1, 2, 3, 6
# Sums of fourth powers of anything larger could overflow in the course of a step: treated as not finite.
LARGEST = 1e75


@leaf
def dense_index_fault(rows: Any, i: int, dim: int) -> int:
    """The indices of a dense row cannot be wrong"""
    return 0


@leaf
def sparse_index_fault(rows: Any, i: int, dim: int) -> int:
    """The row must lie within its arrays; indices must increase and lie in 0 ... dim - 1"""
    return indices_fault(rows, rows.start[i], rows.stop[i], dim)


@leaf
def cross_index_fault(rows: Any, i: int, dim: int) -> int:
    """Blocks were looked at when the rows were made; the user's indices must increase"""
    line = cross_user(rows, i)
    return indices_fault(rows, rows.start[line], rows.stop[line], rows.shared[1])


@leaf
def indices_fault(rows: Any, start: int, stop: int, dim: int) -> int:
    """0 if indices increase within 0 ... dim - 1; looking at pairs alone lets the processor take many at once"""
    if not 0 <= start <= stop <= min(rows.indices.size, rows.values.size):
        return BAD_POINTER
    falls = 0
    for p in range(start + 1, stop):
        falls += 1 if rows.indices[p] <= rows.indices[p - 1] else 0
    if start == stop or (falls == 0 and rows.indices[start] >= 0 and rows.indices[stop - 1] < dim):
        return 0
    for p in range(start, stop):
        if rows.indices[p] < 0 or rows.indices[p] >= dim:
            return BAD_INDEX
        if p > start and rows.indices[p] <= rows.indices[p - 1]:
            return UNSORTED
    return 0


@kernel
def narrow(wide: Any, out: Indices) -> bool:
    """out = wide, the indices of a matrix that has 64 bits for each; False if one of them does not fit"""
    wrong = 0
    for p in range(wide.size):
        out[p] = wide[p]
        wrong += 1 if out[p] != wide[p] else 0
    return wrong == 0


FAR, NEAR, CLOSE = 0, 1, 2
PER_LINE = 8  # float64 numbers in a cache line
IN_CACHE = 1 << 15  # numbers: so few coordinates stay in the cache by themselves
MOST_LINES = 20  # of a longer row the processor fetches the rest by itself
index_fault = by_type({DenseRows: dense_index_fault, SparseRows: sparse_index_fault, CrossRows: cross_index_fault})
row_fits = by_type({DenseRows: dense_fits, SparseRows: sparse_fits})
row_store = by_type({DenseRows: dense_store, SparseRows: sparse_store})
row_prefetch = by_type({DenseRows: dense_prefetch, SparseRows: sparse_prefetch})
coords_prefetch = by_type({DenseRows: dense_coords_prefetch, SparseRows: sparse_coords_prefetch})


# From here on there is one copy for both.


@leaf
def row_dot(rows: Any, i: int, coords: Any, k: int) -> float:
    """x_i . coords[k]"""
    total = 0.0
    for p in range(begin(rows, i), end(rows, i)):
        total += value(rows, i, p) * coords[k, index(rows, i, p)]
    return total


@leaf
def row_dot2(rows: Any, i: int, coords: Any) -> tuple[float, float]:
    """x_i . coords[0] and x_i . coords[1], reading the row once"""
    first = 0.0
    second = 0.0
    for p in range(begin(rows, i), end(rows, i)):
        x = value(rows, i, p)
        j = index(rows, i, p)
        first += x * coords[0, j]
        second += x * coords[1, j]
    return first, second


@leaf
def row_axpy(rows: Any, i: int, alpha: float, coords: Any, k: int) -> None:
    """coords[k] += alpha x_i"""
    for p in range(begin(rows, i), end(rows, i)):
        coords[k, index(rows, i, p)] += alpha * value(rows, i, p)


@leaf
def row_axpy2(rows: Any, i: int, alpha: float, beta: float, coords: Any) -> None:
    """coords[0] += alpha x_i and coords[1] += beta x_i"""
    for p in range(begin(rows, i), end(rows, i)):
        x = value(rows, i, p)
        j = index(rows, i, p)
        coords[0, j] += alpha * x
        coords[1, j] += beta * x


@leaf
def row_norm2(rows: Any, i: int) -> float:
    """x_i . x_i"""
    total = 0.0
    for p in range(begin(rows, i), end(rows, i)):
        x = value(rows, i, p)
        total += x * x
    return total


@leaf
def row_rank_one(rows: Any, i: int, weight: float, gram: Matrix) -> None:
    """gram += weight x_i x_i', touching nnz^2 entries"""
    for p in range(begin(rows, i), end(rows, i)):
        alpha = weight * value(rows, i, p)
        if alpha != 0.0:
            line = gram[index(rows, i, p)]
            for q in range(begin(rows, i), end(rows, i)):
                line[index(rows, i, q)] += alpha * value(rows, i, q)


@leaf
def row_fault(rows: Any, i: int, dim: int) -> int:
    """0 if row i can be used, else what is wrong with it"""
    fault: int = index_fault(rows, i, dim)
    if fault == 0 and not (row_norm2(rows, i) < LARGEST * LARGEST and abs(rows.y[i]) < LARGEST):
        return NOT_FINITE
    return fault
