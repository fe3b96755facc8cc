"""Whatever a user passes as rows or arms, checked and copied to where a kernel can read it.

Kernels never read a caller's sparse arrays: another thread could change an index between the look at it and its use.
Only large dense blocks are read in place, where no number can lead out of an array.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.errors import DimensionError, DivergenceError, DriftlsError, InputError
from driftls.kernels import learn as learn_kernels
from driftls.kernels import rows as row_kernels
from driftls.kernels.parts import Frame
from driftls.kernels.records import ROWS

FLOAT = np.dtype(np.float64)
MOST_INDEX = np.iinfo(np.int32).max
IN_PLACE_FROM = 1 << 14  # numbers: below it a copy costs less than finding out where an array lies


class SparseRows(NamedTuple):
    """Rows as a sparse matrix has them: row i has values[p] at indices[p] for start[i] <= p < start[i + 1]."""

    start: Any
    indices: Any
    values: Any
    dim: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return len(self.start) - 1, self.dim


def as_numbers(values: Any, expected: str) -> NDArray[Any]:
    """An array of real numbers; text, complex numbers, dates and masked entries are not read as if they were some."""
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{expected} of real numbers, got a masked array. Fill it, for example with .filled(0.0).")
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":
            if any(isinstance(entry, str | bytes) for entry in array.flat):
                raise TypeError
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{expected} of real numbers, got {_called(values)}.") from None
    if array.dtype.kind not in "fiub":
        raise InputError(f"{expected} of real numbers, got {_called(values)} of {array.dtype}.")
    return array


def _called(values: Any) -> str:
    return repr(values) if values is None or isinstance(values, str | bytes) else type(values).__name__


def as_number(value: Any, called: str) -> float:
    """One real number."""
    try:
        if isinstance(value, str | bytes | bytearray):  # which float would read
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{called} must be a number, got {value!r}.") from None
    if not abs(number) < row_kernels.LARGEST:
        raise InputError(f"{called} must be finite (and below 1e75), got {value!r}. Nothing was learned.")
    return number


def as_rows(X: Any, dim: int, called: str = "X") -> NDArray[Any] | SparseRows:
    """A matrix of rows with `dim` features: an array, or the arrays of a sparse matrix of any format, checked."""
    if sp.issparse(X):
        if X.dtype.kind not in "fiub":
            raise InputError(f"{called} must be a matrix of real numbers, got a sparse matrix of {X.dtype}.")
        rows: Any = sparse_rows(X, called)
    elif isinstance(X, SparseRows):
        rows = X
    elif hasattr(X, "start") and hasattr(X, "indices") and hasattr(X, "values") and hasattr(X, "dim"):
        rows = SparseRows(np.asarray(X.start), np.asarray(X.indices), np.asarray(X.values), int(X.dim))
    elif is_pair(X):
        rows = pair_rows(X, dim)
    else:
        rows = as_numbers(X, f"{called} must be a matrix")
    if len(rows.shape) != 2 or rows.shape[1] != dim:
        raise DimensionError(
            f"{called} must have {dim} features (a matrix with {dim} columns), got shape {tuple(rows.shape)}. "
            f"Check the feature columns, or build with dim={rows.shape[-1] if len(rows.shape) else 1}."
        )
    return rows  # type: ignore[no-any-return]


def is_pair(x: Any) -> bool:
    """Whether this is one sparse row, as (indices, values)."""
    return type(x) is tuple and len(x) == 2 and all(hasattr(part, "__len__") and not isinstance(part, str) for part in x)


def pair_rows(x: Any, dim: int) -> SparseRows:
    """One row from (indices, values)."""
    indices, values = as_numbers(x[0], "indices must be a vector"), as_numbers(x[1], "values must be a vector")
    if indices.ndim != 1 or values.shape != indices.shape:
        raise DimensionError(f"(indices, values) must be two vectors of one length, got {indices.shape}, {values.shape}.")
    if indices.size and indices.dtype.kind not in "iu":
        raise InputError(f"indices must be whole numbers, got {indices.dtype}.")
    return SparseRows(np.array([0, indices.size]), indices, values, dim)


def sparse_rows(X: Any, called: str) -> SparseRows:
    """The arrays of a sparse matrix of any format; nothing is converted through pointers that were not looked at."""
    if X.ndim == 1:
        X = X.tocoo().reshape(1, -1)
    kind = X.format
    try:
        if kind in ("csr", "csc", "bsr"):
            start, indices = np.asarray(X.indptr), np.asarray(X.indices)
            block = X.blocksize if kind == "bsr" else (1, 1)
            lines, columns = (X.shape[0] // block[0], X.shape[1] // block[1])[:: -1 if kind == "csc" else 1]
            good = start.dtype.kind in "iu" and indices.dtype.kind in "iu" and start.ndim == indices.ndim == 1
            good = good and start.size == lines + 1 and int(start[0]) == 0 and (start[1:] >= start[:-1]).all()
            good = good and int(start[-1]) <= min(indices.size, len(X.data))
            if kind != "csr" and good:
                used = indices[: int(start[-1])]
                good = not used.size or (int(used.min()) >= 0 and int(used.max()) < columns)
            if not good:
                raise ValueError("indptr must increase from 0 and stay within indices and data")
            X = X if kind == "csr" else X.tocsr()
        elif kind == "coo":
            for index, size in zip(X.coords, X.shape):
                if index.shape != X.data.shape or (index.size and not 0 <= int(index.min()) <= int(index.max()) < size):
                    raise ValueError("an index lies outside of the matrix")
            X = X.tocsr()
        else:
            X = X.tocsr()
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise InputError(f"{called} is not a valid sparse matrix: {error}. Build it anew. Nothing was changed.") from None
    return SparseRows(X.indptr, X.indices, X.data, X.shape[1])


class Stage:
    """Rows on their way to a kernel: the arrays of a record of rows, filled anew by every call.

    `constant` puts a feature that is always 1 behind the others: the intercept of a model.
    """

    def __init__(self, dim: int, *, constant: bool = False) -> None:
        self.dim, self.inner, self.constant = dim, dim + constant, constant
        self.frame = Frame(ROWS)
        self.sparse: bool | None = None
        self.y = self.values = np.zeros(0)
        self._in_place = False

    def start(self, sparse: bool) -> None:
        """From now on rows are kept dense, or sparse."""
        self.sparse = sparse
        self.frame.set(sparse=sparse, dim=self.inner)
        self.y, self.begin, self.end = np.zeros(1), np.zeros(1, np.int64), np.zeros(1, np.int64)
        self.frame.set(y=self.y, start=self.begin, stop=self.end, count=1)
        self._room(64 if sparse else self.inner)

    def _room(self, size: int) -> None:
        """Have room for so many values."""
        if self._in_place or self.values.size < size:
            if self.values.size < size:
                self.values = np.zeros(size)
                if self.sparse:
                    self.indices = np.zeros(size, np.int32)
                    self.frame["indices"] = self.indices
            self.frame.set(values=self.values, room=self.values.size)
            self._in_place = False
            if self.constant and not self.sparse:
                self.values[self.dim] = 1.0

    def lines(self, count: int) -> None:
        """Have room for so many rows."""
        if self.y.size < count:
            self.y, self.begin, self.end = np.zeros(count), np.zeros(count, np.int64), np.zeros(count, np.int64)
            self.frame.set(y=self.y, start=self.begin, stop=self.end, count=count)

    def take_row(self, x: Any) -> bool:
        """One row in one of the common forms, at once; False if it needs `take`."""
        if type(x) is np.ndarray and not self.sparse and x.dtype == FLOAT and x.shape == (self.dim,):
            if self._in_place:
                self._room(self.inner)
            self.values[: self.dim] = x
            if self.constant:
                self.values[self.dim] = 1.0
            return True
        if type(x) is tuple and self.sparse and len(x) == 2:
            indices, values = x
            if type(indices) is np.ndarray and type(values) is np.ndarray and indices.dtype == np.int32:
                n = values.size
                if values.dtype == FLOAT and indices.shape == values.shape == (n,):
                    self._sparse_row(indices, values, n)
                    return True
        return False

    def _sparse_row(self, indices: Any, values: Any, n: int) -> None:
        if self._in_place or self.values.size < n + 1:
            self._room(2 * n + 1)
        self.indices[:n], self.values[:n] = indices, values
        if self.constant:
            self.indices[n], self.values[n] = self.dim, 1.0
            n += 1
        self.begin[0], self.end[0] = 0, n

    def take(self, rows: NDArray[Any] | SparseRows) -> int:
        """A block of rows that `as_rows` has looked at; returns how many there are."""
        count = rows.shape[0]
        self.lines(count)
        if self.sparse:
            self._take_sparse(rows if isinstance(rows, SparseRows) else _nonzeros(rows), count)
        elif isinstance(rows, SparseRows):
            self._take_scattered(rows, count)
        elif rows.dtype == FLOAT and rows.size >= IN_PLACE_FROM and rows.flags.carray and not self.constant:
            self.frame["values"], self._in_place = rows, True
        else:
            self._room(count * self.inner)
            out = self.values[: count * self.inner].reshape(count, self.inner)
            with np.errstate(over="ignore"):
                out[:, : self.dim] = rows
            if self.constant:
                out[:, self.dim] = 1.0
        return count

    def _take_sparse(self, rows: SparseRows, count: int) -> None:
        start = np.asarray(rows.start).astype(np.int64)
        used = int(start[-1]) if count else 0
        if start.size != count + 1 or not 0 <= used <= min(len(rows.indices), len(rows.values)):
            raise InputError("start (indptr) must have one entry more than there are rows, and stay within the arrays.")
        indices = np.asarray(rows.indices)[:used]
        if indices.dtype.itemsize > 4 or indices.dtype.kind == "u":  # what does not fit must not become another index
            indices = np.clip(indices, -1 if indices.dtype.kind == "i" else 0, MOST_INDEX)
        if self.constant:
            self._room(used + count)
            where = np.arange(used) + np.repeat(np.arange(count), np.clip(np.diff(start), 0, used))[:used]
            last = start[1:] + np.arange(count)
            self.indices[where], self.values[where] = indices, rows.values[:used]
            self.indices[last], self.values[last] = self.dim, 1.0
            self.begin[:count], self.end[:count] = start[:-1] + np.arange(count), last + 1
        else:
            self._room(used)
            self.indices[:used], self.values[:used] = indices, rows.values[:used]
            self.begin[:count], self.end[:count] = start[:-1], start[1:]

    def _take_scattered(self, rows: SparseRows, count: int) -> None:
        """Sparse rows, kept dense."""
        matrix = sp.csr_array((np.asarray(rows.values, np.float64), rows.indices, rows.start), shape=rows.shape)
        try:
            matrix.check_format(full_check=True)
        except ValueError as error:
            raise InputError(f"X is not a valid sparse matrix: {error}. Nothing was changed.") from None
        if not matrix.has_canonical_format:
            raise InputError(fault_text(row_kernels.UNSORTED, "X", self.dim))
        self._room(count * self.inner)
        out = self.values[: count * self.inner].reshape(count, self.inner)
        out[:, : self.dim] = matrix.toarray()
        if self.constant:
            out[:, self.dim] = 1.0


def _nonzeros(rows: NDArray[Any]) -> SparseRows:
    rows = np.asarray(rows, dtype=np.float64)
    line, column = np.nonzero(rows)
    start = np.concatenate([[0], np.cumsum(np.bincount(line, minlength=rows.shape[0]))])
    return SparseRows(start, column, rows[line, column], rows.shape[1])


def fault_text(status: int, called: str, dim: int) -> str:
    """What is wrong with a row, and what to do."""
    kept = "Nothing was changed;"
    return {
        row_kernels.NOT_FINITE: f"{called}: every number must be finite (and below 1e75), got one that is not. {kept} "
        "clean the data, for example with np.nan_to_num, and pass them again.",
        row_kernels.BAD_INDEX: f"{called}: a sparse index must lie in 0 ... {dim - 1}, got one outside. {kept} "
        "check the hashing, or build with a larger dim.",
        row_kernels.UNSORTED: f"{called}: sparse indices must increase, without repeats, got some that do not. {kept} "
        "call X.sum_duplicates(), which sorts and merges, and pass it again.",
        row_kernels.BAD_POINTER: f"{called}: indptr must increase and stay within the matrix's indices and data. {kept} "
        "build the matrix anew, for example from its COO form.",
        learn_kernels.STEP_TOO_LARGE: f"{called}: step_size times the row's squared norm (with newest=True, step_size "
        f"itself) must be below 2, or it diverges. {kept} scale the rows to norm 1, lower step_size, or use "
        "Normalised(1/3), which adapts to the rows. guard=False switches this check off.",
        learn_kernels.DIVERGED: f"{called}: the squared error is a million times the largest y squared and growing; "
        "theta is still finite. Lower step_size, raise regularisation, or use a tracker without a step size (CD, RLS). "
        "guard=False switches this check off.",
    }[status]


def fault(status: int, called: str, dim: int) -> DriftlsError:
    """The error behind a kernel's status."""
    kinds = {row_kernels.BAD_INDEX: DimensionError}
    diverges = (learn_kernels.STEP_TOO_LARGE, learn_kernels.DIVERGED)
    kind = DivergenceError if status in diverges else kinds.get(status, InputError)
    return kind(fault_text(status, called, dim))
