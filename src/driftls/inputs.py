"""Whatever a user passes as rows, arms or numbers, as arrays that were looked at; and what is said of those that cannot be."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.errors import DimensionError, DivergenceError, DriftlsError, InputError, SettingsError
from driftls.kernels import learn as learn_kernels
from driftls.kernels import rows as row_kernels

LARGEST = row_kernels.LARGEST
FLOAT, INDEX, POINTER = np.dtype(np.float64), np.dtype(np.int32), np.dtype(np.int64)
CSR = (sp.csr_array, sp.csr_matrix)


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
            and indices.dtype in (INDEX, POINTER)
            and values.dtype is FLOAT
            and start.dtype in (INDEX, POINTER)
            and indices.ndim == values.ndim == start.ndim == 1
            and start.size > 0
            and start.item(0) == 0
            and start.item(-1) <= values.size <= indices.size
        )

    def tocsr(self) -> sp.csr_array:
        """The same as a SciPy matrix."""
        indices, values, start, _ = sparse_rows(self, "what was given as rows")
        start = start.astype(INDEX) if start[-1] <= np.iinfo(INDEX).max else start  # or SciPy makes indices longer, too
        return sp.csr_array((values, indices, start), shape=self.shape)


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
        raise InputError(f"{expected} of real numbers, got {_called(values)}.{_advice(values)}") from None
    if array.dtype.kind not in "fiub":
        raise InputError(f"{expected} of real numbers, got {_called(values)} of {array.dtype}.{_advice(values)}")
    return array


def _advice(values: Any) -> str:
    named = isinstance(values[0] if isinstance(values, list) and values else values, dict) or hasattr(values, "columns")
    if hasattr(values, "to_dict") and not named:
        return " A row of pandas with text is a dict by row.to_dict(), for features to take."
    return " Features(dim=2**18) makes rows of dicts and of text: user(x) of one, table(X) of many." if named else ""


def _called(values: Any) -> str:
    return repr(values) if values is None or isinstance(values, str | bytes) else type(values).__name__


def as_number(value: Any, called: str) -> float:
    """One real number."""
    if type(value) is float and abs(value) < LARGEST:
        return value
    try:
        if not isinstance(value, float) and (isinstance(value, str | bytes | bytearray) or np.ndim(value)):
            raise TypeError  # which float would read
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{called} must be a number, got {value!r}.") from None
    if not abs(number) < LARGEST:
        raise InputError(f"{called} must be finite (and below 1e75), got {value!r}. Nothing was learned.")
    return number


def as_whole(value: Any, called: str, least: int = 1, most: int = 2**31 - 2) -> int:
    """A setting that counts something."""
    good = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (good and least <= value <= most):
        limit = f"at most {most}" if good and value > most else f"at least {least}"
        raise SettingsError(f"{called} must be a whole number of {limit}, got {value!r}.")
    return int(value)


def as_rows(X: Any, dim: int, called: str = "X") -> NDArray[Any] | Rows:
    """Rows with `dim` features: a matrix, dense or sparse, of any format, or a list of (indices, values); checked."""
    rows: Any
    if type(X) is Rows and X.dim == dim and X.plain():
        return X
    if (rows := csr_rows(X, dim)) is not None and rows.plain():
        return rows
    if type(X) is np.ndarray and X.dtype == FLOAT:
        rows = X
    elif is_sparse(X):
        rows = sparse_rows(X, called)
    elif is_pair(X):
        rows = pair_rows([X], dim)
    elif type(X) is list and X and all(map(is_pair, X)):
        rows = pair_rows(X, dim)
    else:
        rows = as_numbers(X, f"{called} must be a matrix")
    if len(rows.shape) != 2 or rows.shape[1] != dim:
        told = f"{called} must have {dim} features (a matrix with {dim} columns), got shape {tuple(rows.shape)}."
        found = rows.shape[-1] if len(rows.shape) else 1
        advice = "A row for each is needed: pass a list of them."
        advice = advice if rows.shape == (dim,) else f"Check the feature columns, or build with dim={found}."
        raise DimensionError(f"{told} {advice}")
    return rows  # type: ignore[no-any-return]


def is_sparse(X: Any) -> bool:
    """Whether these are sparse rows, of SciPy or as plain arrays."""
    return type(X) is Rows or sp.issparse(X)


def is_pair(x: Any) -> bool:
    """Whether this is one sparse row, as (indices, values)."""
    return (
        type(x) is tuple and len(x) == 2 and all(hasattr(part, "__len__") and not isinstance(part, str) for part in x)
    )


def pair_rows(pairs: list[Any], dim: int) -> Rows:
    """Rows from (indices, values) of each."""
    each = [(as_numbers(at, "indices must be a vector"), as_numbers(x, "values must be a vector")) for at, x in pairs]
    for indices, values in each:
        if indices.ndim != 1 or values.shape != indices.shape:
            raise DimensionError(
                f"(indices, values) must be two vectors of one length, got {indices.shape}, {values.shape}."
            )
        if indices.size and indices.dtype.kind not in "iu":
            raise InputError(f"indices must be whole numbers, got {indices.dtype}.")
    start = np.cumsum([0, *(indices.size for indices, _ in each)])
    indices, values = (np.concatenate(part) for part in zip(*((at.astype(np.int64), x) for at, x in each)))
    return Rows(indices, values, start, dim)


def sparse_rows(X: Any, called: str) -> Rows:
    """The arrays of sparse rows of any format; nothing is converted through pointers that were not looked at.

    Pointers lie within their arrays, and are a copy; what indices say is for the kernels to check.
    """
    try:
        if type(X) is Rows:
            indices, values, start, dim = X
        elif X.dtype.kind not in "fiub":
            raise InputError(f"{called} must be a matrix of real numbers, got a sparse matrix of {X.dtype}.")
        else:
            X = X if X.format == "csr" else _converted(X)
            indices, values, start, dim = X.indices, X.data, X.indptr, X.shape[-1]
        start, indices, dim = np.array(start), np.asarray(indices), int(dim)
        values = as_numbers(values, "data must be an array")
        good = (
            start.ndim == indices.ndim == values.ndim == 1 and start.dtype.kind in "iu" and indices.dtype.kind in "iu"
        )
        good = good and (type(X) is Rows or start.size == (1, *X.shape)[-2] + 1)
        good = good and start.size > 0 and int(start[0]) == 0 and bool((start[1:] >= start[:-1]).all())
        if not good or (used := int(start[-1])) > min(indices.size, values.size):
            raise ValueError("indptr must increase from 0 and stay within indices and data")
    except DriftlsError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{called} is not a valid sparse matrix: {error}. Build it anew. Nothing was changed."
        ) from None
    return Rows(indices[:used], values[:used], start.astype(np.int64), dim)


def csr_rows(X: Any, dim: int) -> Rows | None:
    """The arrays of a CSR matrix of so many columns, as they are; whether they fit together is for the stage to see."""
    if type(X) not in CSR or type(X.indptr) is not np.ndarray or X.shape != (X.indptr.size - 1, dim):
        return None
    return Rows(X.indices, X.data, X.indptr, dim)


def _converted(X: Any) -> Any:
    """CSR from another format; SciPy looks at a copy of its arrays, which it does not when they were changed later."""
    if X.format in ("csc", "bsr"):
        if X.indptr.dtype.kind not in "iu":
            raise ValueError("indptr must be whole numbers")
        kind = sp.csc_array if X.format == "csc" else sp.bsr_array
        X = kind((as_float(X.data), X.indices, X.indptr), shape=X.shape, copy=True)
        if (X.indptr[1:] < X.indptr[:-1]).any():  # which SciPy looks at only if the last is not 0
            raise ValueError("indptr must increase")
        X.check_format(full_check=True)
        return X.tocsr()
    if X.format == "lil":
        lengths = [[len(line) for line in lines] for lines in (X.rows, X.data)]
        if lengths[0] != lengths[1] or len(lengths[0]) != X.shape[0]:
            raise ValueError("a row must have as many values as indices, and a place in the shape")
    if X.format == "dia" and X.offsets.shape != X.data.shape[:1]:
        raise ValueError("offsets and data must have one length")
    X = X.tocoo()
    at = (X.row, X.col) if X.ndim == 2 else (0 * X.col, X.col)
    return sp.coo_array((as_float(X.data), at), shape=(1, *X.shape)[-2:], copy=True).tocsr()


def checked_csr(X: Any, called: str = "X") -> Any:
    """A sparse matrix as CSR whose arrays fit together, for who reads through them unseen; anything else as it is."""
    if not sp.issparse(X) or X.ndim != 2:
        return X
    rows = sparse_rows(X, called)
    if rows.indices.size and not 0 <= int(rows.indices.min()) <= int(rows.indices.max()) < X.shape[1]:
        raise InputError(f"{called} is not a valid sparse matrix: its arrays lead out of it. Build it anew.")
    return rows.tocsr()


def as_float(values: Any) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # infinity is refused by the kernels, with the row's number
        return np.array(values, dtype=np.float64, order="C")


def fault(status: int, called: str, dim: int) -> DriftlsError:
    """The error behind a kernel's status: what is wrong with a row, and what to do."""
    kept = "Nothing was changed;"
    text = {
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
    diverges = status in (learn_kernels.STEP_TOO_LARGE, learn_kernels.DIVERGED)
    kind = DivergenceError if diverges else DimensionError if status == row_kernels.BAD_INDEX else InputError
    return kind(text)
