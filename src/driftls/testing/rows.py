"""Rows for the checks: good ones in every form, and every kind of bad one."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[Any]


def good_rows(dim: int, count: int = 60, *, density: float = 0.6, seed: int = 5) -> tuple[Array, Array]:
    """Rows of norm 1 at most, some entries of which are 0, and rewards of a noisy linear model."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(count, dim)) * (generator.random((count, dim)) < density)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    X += 0.0  # no zero has a sign
    return X, X @ generator.normal(size=dim) + 0.1 * generator.normal(size=count)


def forms(X: Array) -> Iterator[tuple[str, Any]]:
    """The same rows, whose entries are 0 and 1, in every form that holds real numbers."""
    yield "lists", X.tolist()
    yield "tuples", tuple(map(tuple, X.tolist()))
    for kind in ("f4", "f2", "g", ">f8", ">f4", "i8", "i1", ">i2", "u1", "?", "O"):
        yield kind, X.astype(kind)
    yield "Fortran order", np.asfortranarray(X)
    yield "every other column", np.repeat(X, 2, axis=1)[:, ::2]
    yield "backwards", X[::-1].copy()[::-1]
    frozen = X.copy()
    frozen.flags.writeable = False
    yield "read-only", frozen
    odd = np.zeros(X.nbytes + 1, np.uint8)[1:].view(np.float64).reshape(X.shape)
    odd[...] = X
    yield "unaligned", odd
    for name in ("csr", "csc", "coo", "bsr", "lil", "dok", "dia"):
        yield f"{name}_array", getattr(sp, f"{name}_array")(X)
        yield f"{name}_matrix", getattr(sp, f"{name}_matrix")(X)
    for name in ("csr", "csc", "bsr", "coo"):
        wide = getattr(sp, f"{name}_array")(X)
        for part in ("indices", "indptr", "row", "col"):
            if hasattr(wide, part):
                setattr(wide, part, getattr(wide, part).astype(np.int64))
        yield f"{name} of wide indices", wide
        for kind in ("f2", ">f8", "i4"):
            other = getattr(sp, f"{name}_array")(X)
            other.data = other.data.astype(kind)
            yield f"{name} of {kind}", other
    frozen_rows = sp.csr_array(X)
    for array in (frozen_rows.data, frozen_rows.indices, frozen_rows.indptr):
        array.flags.writeable = False
    yield "read-only csr", frozen_rows


def bad_blocks(dim: int) -> Iterator[tuple[str, Any, Any]]:
    """Blocks that must be refused: what is wrong with it, X and y."""
    X, y = good_rows(dim, 4)
    for value in (np.nan, np.inf, -np.inf, 1e75, 1e200):
        spoiled, reward = X.copy(), y.copy()
        spoiled[2, dim - 1] = reward[2] = value
        yield f"{value} in a row", spoiled, y
        yield f"{value} in a sparse row", sp.csr_array(spoiled), y
        yield f"{value} in y", X, reward
    for count in (dim - 1, dim + 1):
        yield f"{count} features", np.ones((4, count)), y
        yield f"{count} sparse features", sp.csr_array(np.ones((4, count))), y
    yield "a vector", X[0], y[:1]
    yield "a cube", X[None], y
    yield "a number", 5.0, y
    yield "y of another length", X, y[:3]
    yield "y a number", X, 1.0
    yield "y a column", X, y[:, None]
    yield "ragged rows", [[1.0] * dim, [1.0]], y[:2]
    yield "text", "text", y
    yield "text in lists", [["1"] * dim] * 4, y
    yield "text in objects", np.array([["1"] * dim] * 4, dtype=object), y
    yield "bytes", X.astype(bytes), y
    yield "nothing", None, y
    yield "a dictionary", {"a": 1}, y
    yield "complex numbers", X + 1j, y
    yield "complex sparse numbers", sp.csr_array(X + 1j), y
    yield "dates", X.astype("datetime64[s]"), y
    yield "masked entries", np.ma.masked_array(X, mask=X > 0), y
    yield "None in objects", np.array([[None] * dim] * 4, dtype=object), y
    yield "y of text", X, ["1"] * 4
    yield "y a text", X, "abcd"
    yield "y of complex numbers", X, y + 1j
    yield "y ragged", X, [1.0, [2.0], 3.0, 4.0]
    yield "y of None", X, [None] * 4
    yield "y beyond any float", X, [10**400] * 4
    yield "y None", X, None
    yield "a float too long for 64 bits", np.full((4, dim), np.finfo(np.longdouble).max), y
    for name, matrix in malformed(dim):
        yield name, matrix, np.ones(matrix.shape[0] if hasattr(matrix, "shape") else 4)


def bad_rows(dim: int) -> Iterator[tuple[str, Any, Any]]:
    """Single rows that must be refused: what is wrong with it, x and y."""
    x = np.ones(dim) / dim
    for value in (np.nan, np.inf, 1e75, "1.0", b"1.0", 1j, [1.0], np.ones(1), None, object(), 10**400):
        yield f"y = {value!r:.20}", x, value
    for value in (np.nan, np.inf, 1e75):
        yield f"{value} in it", np.where(np.arange(dim) == dim - 1, value, x), 1.0
    yield "too long", np.ones(dim + 1), 1.0
    yield "two rows", np.ones((2, dim)), 1.0
    yield "two sparse rows", sp.csr_array(np.ones((2, dim))), 1.0
    yield "a cube", np.ones((1, 1, dim)), 1.0
    yield "text", "text", 1.0
    yield "texts", ["1"] * dim, 1.0
    yield "complex numbers", x * 1j, 1.0
    for name, pair in bad_pairs(dim):
        yield f"({name})", pair, 1.0
    for name, matrix in malformed(dim, 1):
        yield name, matrix, 1.0


def bad_pairs(dim: int) -> Iterator[tuple[str, Any]]:
    """(indices, values) that must be refused."""
    for at in ([dim - 1, 0], [0, 0], [0, dim], [-1, 0], [0, 2**31], [0, 2**32 + 1], [0, 2**63], [-(2**40), 0]):
        yield f"indices {at}", (at, [1.0, 1.0])
        if max(at) < 2**31 and min(at) >= -(2**31):
            yield f"indices {at} of 32 bits", (np.array(at, np.int32), np.ones(2))
    yield "lengths differ", ([0, 1], [1.0])
    yield "indices of reals", ([0.0, 1.0], [1.0, 1.0])
    yield "indices of text", (["0", "1"], [1.0, 1.0])
    yield "values of text", ([0, 1], ["1", "1"])
    yield "values of NaN", ([0, 1], [1.0, np.nan])
    yield "values of NaN, in arrays", (np.array([0, 1], np.int32), np.array([1.0, np.nan]))
    yield "a matrix of indices", ([[0, 1]], [[1.0, 1.0]])


def malformed(dim: int, count: int = 6) -> Iterator[tuple[str, Any]]:
    """Sparse matrices whose arrays contradict each other: read through them unchecked, and the process may end."""
    dense = np.ones((count, dim)) / dim
    for width in (np.int32, np.int64):
        far = 2**30 if width is np.int32 else 2**50
        for kind in (sp.csr_array, sp.csr_matrix, sp.csc_array, sp.csc_matrix, sp.bsr_array):

            def made(part: str, change: Any, kind: Any = kind, width: Any = width) -> Any:
                matrix = kind(dense)
                matrix.indptr, matrix.indices = matrix.indptr.astype(width), matrix.indices.astype(width)
                setattr(matrix, part, change(getattr(matrix, part).copy()))
                return matrix

            name = f"{kind.__name__} of {np.dtype(width).name}"
            yield f"{name}: indptr far out", made("indptr", lambda a, v=far: _with(a, -1, v))
            yield f"{name}: indptr out and back", made("indptr", lambda a, v=far: _with(_with(a, 0, v), -1, 0))
            yield f"{name}: indptr negative", made("indptr", lambda a: _with(a, 0, -5))
            yield f"{name}: indptr falls", made("indptr", lambda a: a[::-1].copy())
            yield f"{name}: indptr too short", made("indptr", lambda a: a[:-1])
            yield f"{name}: indptr of reals", made("indptr", lambda a: a.astype(float))
            yield f"{name}: index far out", made("indices", lambda a, v=far: _with(a, 0, v))
            yield f"{name}: index negative", made("indices", lambda a: _with(a, 0, -1))
            yield f"{name}: indices too short", made("indices", lambda a: a[:-1])
            yield f"{name}: data too short", made("data", lambda a: a[:-1])
        wrapped = sp.csr_array(dense)
        wrapped.indices = wrapped.indices.astype(np.int64) + 2**32  # in 32 bits all is well
        yield "csr whose indices would wrap", wrapped
        for axis, value in ((0, far), (0, -1), (1, far), (1, -1)):
            matrix = sp.coo_array(dense)
            at = [index.astype(width) for index in (matrix.row, matrix.col)]
            at[axis][0] = value
            matrix.coords = tuple(at)
            yield f"coo of {np.dtype(width).name}: {value} on axis {axis}", matrix
    short = sp.coo_array(dense)
    short.data = short.data[:-1]
    yield "coo: data too short", short
    repeated = sp.csr_array(dense)
    repeated.indices = np.zeros_like(repeated.indices)
    yield "csr: indices repeated", repeated
    unsorted = sp.csr_array(dense)
    unsorted.indices = unsorted.indices[::-1].copy()
    yield "csr: indices unsorted", unsorted
    ragged = sp.lil_array(dense)
    ragged.data[0] = [1.0] * (dim + 3)
    yield "lil: more values than indices", ragged
    outside = sp.lil_array(dense)
    outside.rows[0] = [dim + 10**6] * dim
    yield "lil: index far out", outside
    bare = {"start": np.array([0, 2**40] + [0] * (count - 1)), "indices": np.arange(dim), "values": np.ones(dim)}
    yield "an object with wrong pointers", SimpleNamespace(**bare, dim=dim, shape=(count, dim))
    bare = {"start": np.array([0] + [2] * count), "indices": np.array([0, 10**9]), "values": np.ones(2)}
    yield "an object with wrong indices", SimpleNamespace(**bare, dim=dim, shape=(count, dim))


def _with(array: Array, place: int, value: int) -> Array:
    array[place] = value
    return array
