"""Rows of observations, dense or sparse, and the few operations through which every scheme touches them.

A row is (x, at, n): its values, the features they belong to, and how many there are. `stride` says how a vector over
features is laid out: 0 for dense rows, where feature p is at place p; else feature j is at place j stride.
"""

from __future__ import annotations

from typing import Any

from driftls.kernels.parts import MOST, entry, indices, inner, integers, reals, rows_at

# What can be wrong with a row
NOT_FINITE, BAD_INDEX, UNSORTED, BAD_POINTER = 1, 2, 3, 6
# Sums of fourth powers of anything larger could overflow in the course of a step: treated as not finite.
LARGEST = 1e75


@inner
def row(rows: Any, i: int) -> Any:
    """Values, features and length of row i"""
    if rows.sparse == 0:
        return reals(rows.values + 8 * rows.dim * i), indices(rows.values), rows.dim
    start = integers(rows.start)[i]
    return reals(rows.values + 8 * start), indices(rows.indices + 4 * start), integers(rows.stop)[i] - start


@inner
def dot(x: Any, at: Any, n: int, stride: int, u: Any) -> float:
    """x . u"""
    total = 0.0
    if stride == 0:
        for p in range(n):
            total += x[p] * u[p]
    else:
        for p in range(n):
            total += x[p] * u[at[p] * stride]
    return total


@inner
def dot2(x: Any, at: Any, n: int, stride: int, u: Any, g: Any) -> tuple[float, float]:
    """x . u and x . g, reading the row once"""
    first, second = 0.0, 0.0
    if stride == 0:
        for p in range(n):
            first += x[p] * u[p]
            second += x[p] * g[p]
    else:
        for p in range(n):
            j = at[p] * stride
            first += x[p] * u[j]
            second += x[p] * g[j]
    return first, second


@inner
def axpy(x: Any, at: Any, n: int, stride: int, alpha: float, u: Any) -> None:
    """u += alpha x"""
    if stride == 0:
        for p in range(n):
            u[p] += alpha * x[p]
    else:
        for p in range(n):
            u[at[p] * stride] += alpha * x[p]


@inner
def axpy2(x: Any, at: Any, n: int, stride: int, alpha: float, beta: float, u: Any, g: Any) -> None:
    """u += alpha x and g += beta x"""
    if stride == 0:
        for p in range(n):
            u[p] += alpha * x[p]
            g[p] += beta * x[p]
    else:
        for p in range(n):
            j = at[p] * stride
            u[j] += alpha * x[p]
            g[j] += beta * x[p]


@inner
def norm2(x: Any, n: int) -> float:
    """x . x"""
    total = 0.0
    for p in range(n):
        total += x[p] * x[p]
    return total


@inner
def rank_one(x: Any, at: Any, n: int, sparse: int, weight: float, dim: int, gram: int) -> None:
    """gram += weight x x', touching nnz^2 entries; gram is an address"""
    for p in range(n):
        alpha = weight * x[p]
        if alpha != 0.0:
            line = reals(gram + 8 * dim * (p if sparse == 0 else at[p]))
            axpy(x, at, n, sparse, alpha, line)


@inner
def index_fault(rows: Any, i: int, dim: int) -> int:
    """0 if row i lies within its arrays and its indices increase within 0 ... dim - 1, else what is wrong"""
    if rows.sparse == 0:
        return 0
    start, stop = integers(rows.start)[i], integers(rows.stop)[i]
    if not 0 <= start <= stop <= rows.room:
        return BAD_POINTER
    at, n, falls = indices(rows.indices + 4 * start), stop - start - rows.behind, 0
    for p in range(1, n):  # looking at pairs alone lets the processor take many at once
        falls += 1 if at[p] <= at[p - 1] else 0
    if n == 0 or (falls == 0 and at[0] >= 0 and at[n - 1] < dim):
        return 0
    own = n - (1 if rows.behind == 0 and at[n - 1] == dim - 1 and rows.constant != 0 else 0)
    for p in range(own):  # the index of a model's constant is none that a row may have
        if at[p] < 0 or at[p] >= dim - (n - own):
            return BAD_INDEX
    return UNSORTED


@inner
def row_fault(rows: Any, i: int, dim: int) -> int:
    """0 if row i can be used, else what is wrong with it"""
    fault = index_fault(rows, i, dim)
    if fault == 0:
        x, _, n = row(rows, i)
        if not norm2(x, n) < LARGEST * LARGEST:
            return NOT_FINITE
    return fault


@entry
def first_fault(rows: Any, i: int, n: int) -> float:
    """0 if rows 0 ... n - 1 can be used (with features below i), else 8 times a bad one's number from 1, plus the fault"""
    for k in range(n):
        fault = row_fault(rows, k, i)
        if fault != 0:
            return 8.0 * (k + 1) + fault
    return 0.0


@entry
def copy_in(rows: Any, i: int, n: int) -> float:
    """Copy n sparse rows of the source one behind the other, each with a 1 at feature i behind it (i < 0: without)

    0, or what is wrong with a pointer. The starts are the owner's copy, and there is room for as much as the last says.
    """
    source, used = rows_at(rows.source), 0
    start, x, at, long = integers(source.start), reals(source.values), indices(source.indices), source.long
    long_at = integers(source.long_indices)
    to, features = reals(rows.values), indices(rows.indices)
    for k in range(n):
        first, last = start[k], start[k + 1]
        if not 0 <= first <= last <= source.room:
            return float(BAD_POINTER)
        integers(rows.start)[k] = used
        for p in range(first, last):
            j = long_at[p] if long != 0 else at[p]
            to[used], features[used] = x[p], j if 0 <= j <= MOST else -1
            used += 1
        if i >= 0:
            to[used], features[used] = 1.0, i
            used += 1
        integers(rows.stop)[k] = used
    rows.room = used
    return 0.0


@inner
def uniform(frame: Any) -> float:
    """The next number of a tape that was drawn ahead"""
    cursor = integers(frame.cursor)
    cursor[0] += 1
    return reals(frame.tape)[cursor[0] - 1]
