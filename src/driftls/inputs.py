"""Whatever a user passes as rows or arms, checked and copied to where a kernel can read it.

Kernels never read a caller's sparse arrays: another thread could change an index between the look at it and its use.
Only large dense blocks are read in place, where no number can lead out of an array.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.errors import DimensionError, DivergenceError, DriftlsError, InputError, SettingsError
from driftls.kernels import learn as learn_kernels
from driftls.kernels import rows as row_kernels
from driftls.kernels.parts import Frame
from driftls.kernels.records import ROWS

FLOAT, INDEX, POINTER = np.dtype(np.float64), np.dtype(np.int32), np.dtype(np.int64)
MOST_INDEX = np.iinfo(np.int32).max
IN_PLACE_FROM = 1 << 14  # numbers: below it a copy costs less than finding out where an array lies


class Rows(NamedTuple):
    """Sparse rows as plain arrays, without the cost of a SciPy object: row k from start[k] to start[k + 1].

    The indices of a row increase, and none comes twice.
    """

    indices: Any
    values: Any
    start: Any
    dim: int

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows, and their length."""
        return len(self.start) - 1, self.dim

    def plain(self) -> bool:
        """Whether nothing has to be converted; that no pointer leads out of the arrays is for the kernels to check."""
        indices, values, start, _ = self
        return (
            type(indices) is type(values) is type(start) is np.ndarray
            and indices.dtype == INDEX
            and values.dtype == FLOAT
            and (start.dtype == POINTER or start.dtype == INDEX)
            and indices.ndim == values.ndim == start.ndim == 1
            and start.size > 0
            and start[0] == 0
            and start[-1] <= min(indices.size, values.size)
        )

    def tocsr(self) -> sp.csr_array:
        """The same as a SciPy matrix."""
        return sp.csr_array((self.values, self.indices, self.start), shape=self.shape)


def as_numbers(values: Any, expected: str) -> NDArray[Any]:
    """An array of real numbers; text, complex numbers, dates and masked entries are not read as if they were some."""
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{expected} of real numbers, got a masked array. Fill it, for example with .filled(0.0).")
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":
            if values is None or any(isinstance(entry, str | bytes) for entry in array.flat):
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
        if type(value) is not float and (isinstance(value, str | bytes | bytearray) or np.ndim(value)):
            raise TypeError  # which float would read
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{called} must be a number, got {value!r}.") from None
    if not abs(number) < row_kernels.LARGEST:
        raise InputError(f"{called} must be finite (and below 1e75), got {value!r}. Nothing was learned.")
    return number


def as_whole(value: Any, called: str, least: int = 1) -> int:
    """A setting that counts something."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise SettingsError(f"{called} must be a whole number of at least {least}, got {value!r}.")
    return int(value)


def as_rows(X: Any, dim: int, called: str = "X") -> NDArray[Any] | Rows:
    """A matrix of rows with `dim` features: an array, or the arrays of a sparse matrix of any format, checked."""
    if type(X) is Rows and X.dim == dim and X.plain():
        return X
    if type(X) is np.ndarray and X.dtype == FLOAT:
        rows: Any = X
    elif is_sparse(X):
        rows = sparse_rows(X, called)
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


def is_sparse(X: Any) -> bool:
    """Whether this is a sparse matrix, or has the arrays of one as `Rows` does."""
    return type(X) is Rows or sp.issparse(X) or all(hasattr(X, name) for name in Rows._fields)


def is_pair(x: Any) -> bool:
    """Whether this is one sparse row, as (indices, values)."""
    return (
        type(x) is tuple and len(x) == 2 and all(hasattr(part, "__len__") and not isinstance(part, str) for part in x)
    )


def pair_rows(x: Any, dim: int) -> Rows:
    """One row from (indices, values)."""
    indices, values = as_numbers(x[0], "indices must be a vector"), as_numbers(x[1], "values must be a vector")
    if indices.ndim != 1 or values.shape != indices.shape:
        raise DimensionError(
            f"(indices, values) must be two vectors of one length, got {indices.shape}, {values.shape}."
        )
    if indices.size and indices.dtype.kind not in "iu":
        raise InputError(f"indices must be whole numbers, got {indices.dtype}.")
    return Rows(indices, values, np.array([0, indices.size]), dim)


def sparse_rows(X: Any, called: str) -> Rows:
    """The arrays of a sparse matrix of any format; nothing is converted through pointers that were not looked at."""
    try:
        if not sp.issparse(X):
            return _pointed(X.start, X.indices, X.values, (len(X.start) - 1, int(X.dim)))
        if X.dtype.kind not in "fiub":
            raise InputError(f"{called} must be a matrix of real numbers, got a sparse matrix of {X.dtype}.")
        if X.format == "csr":
            shape = (1, *X.shape)[-2:]
            rows = Rows(X.indices, X.data, X.indptr, shape[1])
            return (
                rows if rows.plain() and X.indptr.size == shape[0] + 1 else _pointed(X.indptr, X.indices, X.data, shape)
            )
        X = _converted(X)
        return Rows(X.indices, X.data, X.indptr, X.shape[1])
    except DriftlsError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{called} is not a valid sparse matrix: {error}. Build it anew. Nothing was changed."
        ) from None


def _pointed(start: Any, indices: Any, values: Any, shape: tuple[int, int]) -> Rows:
    """Rows whose pointers (a copy of them) lie within their arrays; what indices say is for the kernels to check."""
    start, indices, values = np.array(start), np.asarray(indices), as_numbers(values, "data must be an array")
    good = start.ndim == indices.ndim == 1 and start.dtype.kind in "iu" and indices.dtype.kind in "iu"
    good = good and start.size == shape[0] + 1 and int(start[0]) == 0 and bool((start[1:] >= start[:-1]).all())
    if not good or int(start[-1]) > min(indices.size, len(values)):
        raise ValueError("indptr must increase from 0 and stay within indices and data")
    used = int(start[-1])
    return Rows(indices[:used], values[:used], start.astype(np.int64), shape[1])


def _converted(X: Any) -> Any:
    """CSR from another format, by way of arrays that were copied and then looked at."""
    if X.format in ("csc", "bsr"):
        block = X.data.shape[1:] if X.format == "bsr" else (1, 1)
        lines, columns = (X.shape[0] // block[0], X.shape[1] // block[1])[:: -1 if X.format == "csc" else 1]
        indices, values, start, _ = _pointed(X.indptr, X.indices, X.data, (lines, columns))
        indices = indices.astype(np.int64)
        _within(indices, columns)
        kind = sp.csc_array if X.format == "csc" else sp.bsr_array
        return kind((_as_float(values), indices, start), shape=X.shape).tocsr()
    if X.format == "lil" and [len(line) for line in X.rows] != [len(line) for line in X.data]:
        raise ValueError("a row must have as many values as indices")
    if X.format == "dia" and X.offsets.shape != X.data.shape[:1]:
        raise ValueError("offsets and data must have one length")
    X = X.tocoo()
    at = [np.array(index, dtype=np.int64) for index in ((X.row, X.col) if X.ndim == 2 else (0 * X.col, X.col))]
    for index, size in zip(at, (1, *X.shape)[-2:]):
        if index.shape != X.data.shape:
            raise ValueError("row, col and data must have one length")
        _within(index, size)
    return sp.coo_array((_as_float(X.data), tuple(at)), shape=(1, *X.shape)[-2:]).tocsr()


def _within(indices: NDArray[Any], size: int) -> None:
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < size:
        raise ValueError(f"an index must lie in 0 ... {size - 1}")


def _as_float(values: Any) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # infinity is refused by the kernels, with the row's number
        return np.array(values, dtype=np.float64)


class Stage:
    """Rows on their way to a kernel: the arrays of a record of rows, filled anew by every call.

    `constant` puts a feature that is always 1 behind the others: the intercept of a model.
    """

    def __init__(self, dim: int, *, constant: bool = False) -> None:
        self.dim, self.inner, self.constant = dim, dim + constant, constant
        self.frame, self.scratch = Frame(ROWS), Frame(ROWS)
        self.units: Frame | None = None
        self.sparse: bool | None = None
        self._used = self.frame.fields["room"]  # entries of sparse rows: kernels follow no pointer beyond them
        self.y = self.values = np.zeros(0)
        self._in_place = False

    def start(self, sparse: bool) -> None:
        """From now on rows are kept dense, or sparse."""
        self.sparse = sparse
        self.frame.set(sparse=sparse, dim=self.inner)
        self.y, self.begin, self.end = np.zeros(1), np.zeros(1, np.int64), np.zeros(1, np.int64)
        self.frame.set(y=self.y, start=self.begin, stop=self.end, count=1)
        self._starts = np.zeros(2, np.int64)
        if sparse:
            self._source = Frame(ROWS)  # rows as they came, before the constant is put behind each
            self._source["start"], self._raw_used = self._starts, self._source.fields["room"]
            self.frame["source"] = self._source
        self._room(64 if sparse else self.inner)

    def measure(self, units: Frame) -> None:
        """Rows will be standardised by these units, in a place beside."""
        self.units = units
        self.scratch.set(sparse=bool(self.sparse), dim=self.inner)
        self.frame.set(units=units, scratch=self.scratch)
        self._scratch_room()

    def _scratch_room(self) -> None:
        size, lines = self.values.size, self.y.size
        self.scratch.set(values=np.zeros(size), y=np.zeros(lines), count=lines, room=size)
        self.scratch.set(start=np.zeros(lines, np.int64), stop=np.zeros(lines, np.int64))
        self.scratch["indices"] = np.zeros(size if self.sparse else 1, np.int32)

    def _room(self, size: int) -> None:
        """Have room for so many values."""
        if self._in_place or self.values.size < size:
            if self.values.size < size:
                self.values = np.zeros(size)
                if self.sparse:
                    self.indices = np.zeros(size, np.int32)
                    self.frame["indices"] = self.indices
                    self._raw_indices, self._raw_values = np.zeros(size, np.int32), np.zeros(size)
                    self._source.set(indices=self._raw_indices, values=self._raw_values)
            self.frame["values"] = self.values
            self._in_place = False
            if self.units is not None:
                self._scratch_room()

    def lines(self, count: int) -> None:
        """Have room for so many rows."""
        if self.y.size < count:
            self.y, self.begin, self.end = np.zeros(count), np.zeros(count, np.int64), np.zeros(count, np.int64)
            self.frame.set(y=self.y, start=self.begin, stop=self.end, count=count)
            if self.sparse:
                self._starts = self._source["start"] = np.zeros(count + 1, np.int64)
            if self.units is not None:
                self._scratch_room()

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
            if type(indices) is type(values) is np.ndarray and indices.dtype == INDEX and values.dtype == FLOAT:
                n = values.size
                if indices.shape == (n,) == values.shape:
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
        self.begin[0] = 0
        self.end[0] = self._used[0] = n

    def take(self, rows: NDArray[Any] | Rows) -> int:
        """A block of rows that `as_rows` has looked at; returns how many there are."""
        count = int(rows.shape[0])
        self.lines(count)
        if self.sparse:
            self._take_sparse(rows if isinstance(rows, Rows) else _nonzeros(rows), count)
        elif isinstance(rows, Rows):
            self._take_scattered(rows, count)
        elif (
            rows.dtype == FLOAT
            and rows.size >= IN_PLACE_FROM
            and rows.flags.carray
            and not (self.constant or self.units)
        ):
            self.frame["values"], self._in_place = rows, True
        else:
            self._room(count * self.inner)
            out = self.values[: count * self.inner].reshape(count, self.inner)
            out[:, : self.dim] = rows if rows.dtype == FLOAT else _as_float(rows)
            if self.constant:
                out[:, self.dim] = 1.0
        return count

    def take_one(self, rows: NDArray[Any] | Rows, k: int) -> None:
        """Row k of a block that `as_rows` has looked at, as row 0."""
        if isinstance(rows, np.ndarray):
            if not self.take_row(rows[k]):
                self.take(rows[k : k + 1])
            return
        indices, values, start, _ = rows
        first, last = int(start[k]), int(start[k + 1])
        if not 0 <= first <= last <= min(indices.size, values.size):
            raise fault(row_kernels.BAD_POINTER, "X", self.dim)
        if not self.take_row((indices[first:last], values[first:last])):
            self.take(Rows(indices[first:last], values[first:last], np.array([0, last - first]), self.dim))

    def _take_sparse(self, rows: Rows, count: int) -> None:
        indices, values, start, _ = rows
        if indices.dtype != INDEX:  # what does not fit must not become another index
            indices = np.clip(indices, -1 if indices.dtype.kind == "i" else 0, MOST_INDEX).astype(INDEX)
        if values.dtype != FLOAT:
            values = _as_float(values)
        self._starts[: count + 1] = start
        used = self._starts.item(count)
        if not 0 <= used <= min(indices.size, values.size):
            raise fault(row_kernels.BAD_POINTER, "X", self.dim)
        if self._in_place or self.values.size < used + count:
            self._room(2 * (used + count))
        self._raw_indices[:used], self._raw_values[:used], self._raw_used[0] = indices[:used], values[:used], used
        if status := row_kernels.copy_in(self.frame.address, self.dim if self.constant else -1, count):
            raise fault(int(status), "X", self.dim)

    def _pointed(self, rows: Rows) -> Rows:
        try:
            return _pointed(rows.start, rows.indices, rows.values, rows.shape)
        except ValueError:
            raise fault(row_kernels.BAD_POINTER, "X", self.dim) from None

    def _take_scattered(self, rows: Rows, count: int) -> None:
        """Sparse rows, kept dense."""
        rows = self._pointed(rows)
        column, line = np.array(rows.indices, dtype=np.int64), np.repeat(np.arange(count), np.diff(rows.start))
        if column.size and not 0 <= int(column.min()) <= int(column.max()) < self.dim:
            raise fault(row_kernels.BAD_INDEX, "X", self.dim)
        if ((np.diff(column) <= 0) & (np.diff(line) == 0)).any():
            raise fault(row_kernels.UNSORTED, "X", self.dim)
        self._room(count * self.inner)
        out = self.values[: count * self.inner].reshape(count, self.inner)
        out[:, : self.dim] = 0.0
        out[line, column] = _as_float(rows.values)
        if self.constant:
            out[:, self.dim] = 1.0


def _nonzeros(rows: NDArray[Any]) -> Rows:
    rows = _as_float(rows)
    line, column = np.nonzero(rows)
    start = np.concatenate([[0], np.cumsum(np.bincount(line, minlength=rows.shape[0]))])
    return Rows(column, rows[line, column], start, rows.shape[1])


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
