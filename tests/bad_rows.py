"""Rows in every form that is read, and every kind of row that must be refused."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.testing.common import good_rows

Array = NDArray[Any]
NOT_FINITE = (np.nan, np.inf, -np.inf)
NO_VALUES = (*NOT_FINITE, 1e75, 1e200)  # of a row that is learned: the large ones have no square


def forms(X: Array) -> Iterator[tuple[str, Any]]:
    """The same rows, whose entries are 0 and 1, in every form that holds real numbers."""
    yield from {"lists": X.tolist(), "tuples": tuple(map(tuple, X.tolist())), "Fortran order": X.copy("F")}.items()
    yield from {"every other column": np.repeat(X, 2, axis=1)[:, ::2], "backwards": X[::-1].copy()[::-1]}.items()
    for kind in ("f4", "f2", "g", ">f8", ">f4", "i8", "i1", ">i2", "u1", "?", "O"):
        yield kind, X.astype(kind)
    odd = np.zeros(X.nbytes + 1, np.uint8)[1:].view(np.float64).reshape(X.shape)
    odd[...] = X
    yield "unaligned", odd
    frozen, frozen_rows = X.copy(), sp.csr_array(X)
    for array in (frozen, frozen_rows.data, frozen_rows.indices, frozen_rows.indptr):
        array.flags.writeable = False
    yield from {"read-only": frozen, "read-only csr": frozen_rows}.items()
    for name in ("csr", "csc", "bsr", "coo", "lil", "dok", "dia"):
        yield f"{name}_matrix", getattr(sp, f"{name}_matrix")(X)
        for kind in ("f8", "f2", ">f8", "i4"):
            matrix = getattr(sp, f"{name}_array")(X)
            if name in ("csr", "csc", "bsr", "coo"):
                matrix.data = matrix.data.astype(kind)
                for part in ("indices", "indptr", "row", "col"):
                    if hasattr(matrix, part) and kind != "f8":
                        setattr(matrix, part, getattr(matrix, part).astype(np.int64))
            yield f"{name} of {kind}", matrix


def bad_matrices(dim: int, count: int, values: tuple[float, ...] = NO_VALUES) -> Iterator[tuple[str, Any]]:
    """So many rows that must be refused, and what is wrong with them."""
    X = good_rows(dim, count)[0]
    for value in values:
        spoiled = X.copy()
        spoiled[-1, -1] = value
        yield from {f"{value}": spoiled, f"{value}, sparse": sp.csr_array(spoiled)}.items()
    for width in (dim - 1, dim + 1):
        yield f"{width} features", np.ones((count, width))
        yield f"{width} sparse features", sp.csr_array(np.ones((count, width)))
    yield from {"None": None, "text": "text", "a number": 5.0, "a set": {1.0}, "a dictionary": {"a": 1}}.items()
    yield from {"a cube": X[None], "ragged": [[1.0] * dim, [1.0]], "masked": np.ma.masked_array(X, X == X)}.items()
    for kind in (str, bytes, complex, "datetime64[s]"):
        yield f"of {kind}", X.astype(kind)
    yield from {"texts": X.astype(str).tolist(), "texts in objects": X.astype(str).astype(object)}.items()
    yield from {"Nones": np.full_like(X, None, dtype=object), "complex, sparse": sp.csr_array(X + 1j)}.items()
    yield "too long for 64 bits", np.full_like(X, np.finfo(np.longdouble).max, dtype=np.longdouble)
    yield from malformed(dim, count)


def bad_blocks(dim: int) -> Iterator[tuple[str, Any, Any]]:
    """Blocks that must be refused: what is wrong with it, X and y."""
    X, y = good_rows(dim, 4)
    for name, matrix in bad_matrices(dim, 4):
        yield name, matrix, y
    yield "a vector", X[0], y[:1]
    wrongs: list[Any] = [y[:3], 1.0, y[:, None], ["1"] * 4, "abcd", y + 1j, [1.0, [2.0], 3.0, 4.0], [None] * 4, None]
    wrongs += [[10**400] * 4, *(np.append(y[:3], bad) for bad in NO_VALUES)]
    for wrong in wrongs:
        yield f"y = {wrong!r:.50}", X, wrong


def bad_rows(dim: int) -> Iterator[tuple[str, Any, Any]]:
    """Single rows that must be refused: what is wrong with it, x and y."""
    for name, matrix in bad_matrices(dim, 1):
        yield name, matrix[0] if isinstance(matrix, np.ndarray) and matrix.ndim == 2 else matrix, 1.0
    yield from (("two rows", np.ones((2, dim)), 1.0), ("two sparse rows", sp.csr_array(np.ones((2, dim))), 1.0))
    for name, pair in bad_pairs(dim):
        yield f"({name})", pair, 1.0
    for value in (*NO_VALUES, "1.0", b"1.0", 1j, [1.0], np.ones(1), None, object(), 10**400):
        yield f"y = {value!r:.20}", np.ones(dim) / dim, value


def bad_pairs(dim: int) -> Iterator[tuple[str, Any]]:
    """(indices, values) that must be refused."""
    for at in ([dim - 1, 0], [0, 0], [0, dim], [-1, 0], [0, 2**31], [0, 2**32 + 1], [0, 2**63], [-(2**40), 0]):
        yield f"indices {at}", (at, [1.0, 1.0])
        if max(at) < 2**31 and min(at) >= -(2**31):
            yield f"indices {at} of 32 bits", (np.array(at, np.int32), np.ones(2))
    for indices, values in (
        *(([0, 1], wrong) for wrong in ([1.0], ["1", "1"], [1.0, np.nan])),
        *((wrong, [1.0, 1.0]) for wrong in ([0.0, 1.0], ["0", "1"])),
        (np.array([0, 1], np.int32), np.array([1.0, np.nan])),
        ([[0, 1]], [[1.0, 1.0]]),
    ):
        yield f"{indices!r}, {values!r}", (indices, values)


def malformed(dim: int, count: int = 6) -> Iterator[tuple[str, Any]]:
    """Sparse matrices whose arrays contradict each other: read through them unchecked, and the process may end."""
    dense = np.ones((count, dim)) / dim

    def put(array: Array, *places: tuple[int, int]) -> Array:
        for place, value in places:
            array[place] = value
        return array

    for width, far in ((np.int32, 2**30), (np.int64, 2**50)):
        changes: tuple[tuple[str, str, Any], ...] = (
            ("indptr", "far out", lambda a, far=far: put(a, (-1, far))),
            ("indptr", "out and back", lambda a, far=far: put(a, (0, far), (-1, 0))),
            ("indptr", "out between 0 and 0", lambda a, far=far: put(a, (1, far), (-1, 0))),
            ("indptr", "negative", lambda a: put(a, (0, -5))),
            ("indptr", "falls", lambda a: a[::-1].copy()),
            ("indptr", "too short", lambda a: a[:-1]),
            ("indptr", "of reals", lambda a: a.astype(float)),
            ("indices", "far out", lambda a, far=far: put(a, (0, far))),
            ("indices", "negative", lambda a: put(a, (0, -1))),
            ("indices", "too short", lambda a: a[:-1]),
            ("data", "too short", lambda a: a[:-1]),
        )
        for kind in (sp.csr_array, sp.csr_matrix, sp.csc_array, sp.csc_matrix, sp.bsr_array):
            for part, what, change in changes:
                matrix = kind(dense)
                matrix.indptr, matrix.indices = matrix.indptr.astype(width), matrix.indices.astype(width)
                setattr(matrix, part, change(getattr(matrix, part).copy()))
                if "between" in what and len(matrix.indptr) < 3:  # there is nothing between
                    continue
                yield f"{kind.__name__} of {np.dtype(width).name}: {part} {what}", matrix
        for axis, value in ((0, far), (0, -1), (1, far), (1, -1)):
            matrix = sp.coo_array(dense)
            at = [index.astype(width) for index in (matrix.row, matrix.col)]
            at[axis][0] = value
            matrix.coords = tuple(at)
            yield f"coo of {np.dtype(width).name}: {value} on axis {axis}", matrix
    wrapped, repeated, unsorted, short = (*(sp.csr_array(dense) for _ in range(3)), sp.coo_array(dense))
    wrapped.indices = wrapped.indices.astype(np.int64) + 2**32  # in 32 bits all is well
    repeated.indices = np.zeros_like(repeated.indices)
    unsorted.indices = unsorted.indices[::-1].copy()
    short.data = short.data[:-1]
    yield from {"csr whose indices would wrap": wrapped, "csr: indices repeated": repeated}.items()
    yield from {"csr: indices unsorted": unsorted, "coo: data too short": short}.items()
    ragged, outside = sp.lil_array(dense), sp.lil_array(dense)
    ragged.data[0], outside.rows[0] = [1.0] * (dim + 3), [dim + 10**6] * dim
    yield from {"lil: more values than indices": ragged, "lil: index far out": outside}.items()
    for start, indices in (([0, 2**40] + [0] * (count - 1), range(dim)), ([0] + [2] * count, (0, 10**9))):
        bare = {"start": np.array(start), "indices": np.array(indices), "values": np.ones(len(indices))}
        yield f"an object with pointers {start}", SimpleNamespace(**bare, dim=dim, shape=(count, dim))
