"""Rows of observations, dense or sparse, and the few operations through which every scheme touches them.

A row is (x, at, n): its values, the features they belong to, and how many there are. `stride` says how a vector over
features is laid out: 0 for dense rows, where feature p is at place p; else feature j is at place j stride.
"""

from __future__ import annotations

from typing import Any

from driftls.compiling.parts import MOST, entry, indices, inner, integers, reals

# What can be wrong with a row
NOT_FINITE, BAD_INDEX, UNSORTED, BAD_POINTER = 1, 2, 3, 6
NO_ROOM, OTHER_KIND = 7, 11  # why rows were not taken: there is no room; their arrays are of other types or shapes
FLOAT, WHOLE = (
    8 << 8 | ord("d"),
    tuple(size << 8 | ord(x) for size, x in ((4, "i"), (4, "l"), (8, "l"), (8, "q"))),
)  # kinds
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
def index_fault(rows: Any, i: int) -> int:
    """0 if row i lies within its arrays and its indices increase within those of its features, else what is wrong"""
    if rows.sparse == 0:
        return 0
    start, stop, dim = integers(rows.start)[i], integers(rows.stop)[i], rows.dim if rows.arms == 0 else rows.features
    if not 0 <= start <= stop <= rows.room:
        return BAD_POINTER
    at, n, falls = indices(rows.indices + 4 * start), stop - start, 0
    for p in range(1, n):  # looking at pairs alone lets the processor take many at once
        falls += 1 if at[p] <= at[p - 1] else 0
    if n == 0 or (falls == 0 and at[0] >= 0 and at[n - 1] < dim):
        return 0
    for p in range(n):
        if at[p] < 0 or at[p] >= dim:
            return BAD_INDEX
    return UNSORTED


@inner
def row_fault(rows: Any, i: int) -> int:
    """0 if row i can be used, else what is wrong with it"""
    fault = index_fault(rows, i)
    if fault == 0:
        x, _, n = row(rows, i)
        if not norm2(x, n) < LARGEST * LARGEST:
            return NOT_FINITE
    return fault


@inner
def all_sound(rows: Any, n: int) -> bool:
    """Whether rows 0 ... n - 1, which lie one behind the other, can be used: by one sum over all of them; if not, ask each"""
    if n < 1:
        return True
    first, last = 0, n * rows.dim
    if rows.sparse != 0:
        for k in range(n):
            if index_fault(rows, k) != 0:
                return False
        first, last = integers(rows.start)[0], integers(rows.stop)[n - 1]
    return norm2(reals(rows.values + 8 * first), last - first) < LARGEST * LARGEST


@entry
def first_fault(rows: Any, n: int) -> float:
    """0 if rows 0 ... n - 1 can be used, else 8 times a bad one's number from 1, plus the fault"""
    if all_sound(rows, n):
        return 0.0
    for k in range(n):
        fault = row_fault(rows, k)
        if fault != 0:
            return 8.0 * (k + 1) + fault
    return 0.0


@inner
def whole(address: int, kind: int, k: int) -> int:
    """Element k of an array of whole numbers, of 32 or of 64 bits"""
    return integers(address)[k] if kind >> 8 == 8 else indices(address)[k]


@entry
def copy_in(rows: Any, i: int, n: int, g: Any) -> float:
    """Take rows i ... i + n - 1 of a caller's arrays (i < 0: the arrays are one row): copied, or several dense ones as they lie

    0; or OTHER_KIND, NO_ROOM (for n rows of rows.wanted values in all), or what is wrong with a pointer or an index.
    """
    if rows.dim == 0 or g.values_kind != FLOAT:
        return float(OTHER_KIND)
    rows.values = rows.home
    if g.indices_kind == 0:
        return float(copy_dense(rows, i, n, g))
    return float(copy_sparse(rows, i, n, g))


@inner
def copy_dense(rows: Any, i: int, n: int, g: Any) -> int:
    """Dense rows; where rows are kept sparse, what is not 0 of them"""
    own, one, used = rows.dim, i < 0, 0
    fits = g.values_columns < 0 and g.values_rows == own if one else g.values_columns == own and i + n <= g.values_rows
    if not fits:
        return OTHER_KIND
    in_place = rows.sparse == 0 and n > 1  # one row costs little, and what is learned of it was looked at before
    rows.wanted = 0 if in_place else n * rows.dim
    if n > rows.count or rows.wanted > rows.space:
        return NO_ROOM
    if in_place:
        rows.values = g.values + 8 * own * i
        return 0
    for k in range(n):
        x = reals(g.values + 8 * own * (0 if one else i + k))
        if rows.sparse == 0:
            to = reals(rows.values + 8 * own * k)
            for j in range(own):
                to[j] = x[j]
        else:
            to, features = reals(rows.values), indices(rows.indices)
            integers(rows.start)[k] = used
            for j in range(own):
                if x[j] != 0.0:
                    to[used], features[used] = x[j], j
                    used += 1
            integers(rows.stop)[k] = rows.room = used
    return 0


@inner
def copy_sparse(rows: Any, i: int, n: int, g: Any) -> int:
    """Sparse rows, whose pointers may say anything; and may be changed by another thread, so each is read once"""
    entries, one, first = min(g.values_rows, g.indices_rows), i < 0, 0
    if g.indices_kind not in WHOLE or g.values_columns >= 0 or g.indices_columns >= 0:
        return OTHER_KIND
    if one and (g.values_rows != g.indices_rows or g.starts_kind != 0):
        return OTHER_KIND
    if not one and (g.starts_kind not in WHOLE or g.starts_columns >= 0 or i + n >= g.starts_rows):
        return OTHER_KIND
    rows.wanted = 0 if rows.sparse != 0 else n * rows.dim
    if n > rows.count or rows.wanted > rows.space:
        return NO_ROOM
    if not one:
        first = whole(g.starts, g.starts_kind, i)
        if i == 0 and first != 0:
            return BAD_POINTER
    begin = first
    for k in range(n):
        last = entries if one else whole(g.starts, g.starts_kind, i + k + 1)
        if not 0 <= first <= last <= entries:
            return BAD_POINTER
        if rows.sparse == 0:
            fault = spread(rows, k, first, last, g)
            if fault != 0:
                return fault
        else:
            integers(rows.start)[k], integers(rows.stop)[k] = first - begin, last - begin
        first = last
    if rows.sparse != 0:
        rows.wanted = first - begin
        if rows.wanted > rows.space:
            return NO_ROOM
        rows.room = rows.wanted
        copy_entries(rows, begin, rows.wanted, g)
    return 0


@inner
def copy_entries(rows: Any, begin: int, count: int, g: Any) -> None:
    """Values and features of all rows at once, since they lie one behind the other"""
    x, to, features = reals(g.values + 8 * begin), reals(rows.values), indices(rows.indices)
    for p in range(count):
        to[p] = x[p]
    if g.indices_kind >> 8 == 4:
        at = indices(g.indices + 4 * begin)
        for p in range(count):
            features[p] = at[p]
    else:
        long_at = integers(g.indices + 8 * begin)
        for p in range(count):
            j = long_at[p]
            features[p] = j if 0 <= j <= MOST else -1


@inner
def spread(rows: Any, k: int, first: int, last: int, g: Any) -> int:
    """A sparse row, where rows are kept dense"""
    x, to, before, own = reals(g.values), reals(rows.values + 8 * rows.dim * k), -1, rows.dim
    for j in range(own):
        to[j] = 0.0
    for p in range(first, last):
        j = whole(g.indices, g.indices_kind, p)
        if not 0 <= j < own:
            return BAD_INDEX
        if j <= before:
            return UNSORTED
        to[j], before = x[p], j
    return 0


@inner
def uniform(frame: Any) -> float:
    """The next number of a tape that was drawn ahead"""
    cursor = integers(frame.cursor)
    cursor[0] += 1
    return reals(frame.tape)[cursor[0] - 1]
