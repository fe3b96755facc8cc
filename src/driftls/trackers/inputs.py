"""What a user passes, turned into a block of rows that a kernel can take; and what is said when it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.errors import DimensionError, DivergenceError, DriftlsError, InputError
from driftls.kernels import rows as row_kernels
from driftls.kernels import track
from driftls.kernels.rows import CrossRows, DenseRows, SparseRows

Block = DenseRows | SparseRows | CrossRows


def checked(X: Any, y: Any, dim: int) -> tuple[Any, NDArray[np.float64]]:
    """X as an array or sparse matrix and y as a vector, or the error that needs no look at the numbers."""
    targets = plain(as_numbers(y, "y must be a vector"), np.dtype(np.float64))
    X = as_features(X)
    if X.ndim != 2 or targets.ndim != 1 or X.shape[0] != targets.size:
        raise DimensionError(
            f"X must be a matrix and y a vector with one entry a row, got shapes {X.shape} and {targets.shape}."
        )
    if X.shape[1] != dim:
        raise DimensionError(
            f"X has {X.shape[1]} features, but this tracker was built with dim={dim}. "
            f"Build it with dim={X.shape[1]}, or check the feature columns."
        )
    return X, targets


def as_features(X: Any) -> Any:
    """X as an array or sparse matrix of real numbers."""
    if not sp.issparse(X):
        return as_numbers(X, "X must be a matrix")
    if X.dtype.kind not in "fiub":
        raise InputError(f"X must be a matrix of real numbers, got a sparse matrix of {X.dtype}.")
    return X


def as_numbers(values: Any, expected: str) -> NDArray[Any]:
    """An array of real numbers; text, complex numbers and dates are not read as if they were some."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":
            array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{expected} of real numbers, got {_called(values)}.") from None
    if array.dtype.kind not in "fiub":
        raise InputError(f"{expected} of real numbers, got {_called(values)} of {array.dtype}.")
    return array


def _called(values: Any) -> str:
    return repr(values) if values is None or isinstance(values, str | bytes) else type(values).__name__


def plain(array: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """C-contiguous, aligned and writable, copied only if it is not: kernels are compiled for such arrays alone."""
    if dtype.itemsize < 8:
        with np.errstate(over="ignore"):  # too large for a float32: found as not finite, and said so
            out = np.ascontiguousarray(array, dtype=dtype)
    else:
        out = np.ascontiguousarray(array, dtype=dtype)
    return out if out.flags.carray else out.copy()


def as_block(X: Any, y: NDArray[np.float64], sparse: bool, dtype: np.dtype[Any]) -> Block:
    """X and y as rows of the kind and precision that a tracker keeps."""
    if not sparse:
        dense = X
        if sp.issparse(X):
            X = X.tocsr()
            try:
                X.check_format(full_check=True)  # toarray() would write wherever a wrong index says
            except ValueError as error:
                raise InputError(f"X is not a valid sparse matrix: {error}. Nothing was learned.") from None
            dense = X.toarray()
        return DenseRows(plain(dense, dtype), y)
    X = X.tocsr() if sp.issparse(X) else sp.csr_array(X)
    start = plain(X.indptr, np.dtype(np.int64))
    if start.size != X.shape[0] + 1:
        raise InputError(f"indptr of a matrix with {X.shape[0]} rows must have one entry more, got {start.size}.")
    indices = X.indices
    if indices.dtype.itemsize > 4:  # what does not fit must not come out as another index
        indices = np.clip(indices, -1, np.iinfo(np.int32).max)
    return SparseRows(start[:-1], start[1:], plain(indices, np.dtype(np.int32)), plain(X.data, dtype), y)


def fault(status: int, row: int, n: int, dim: int) -> DriftlsError:
    """The error behind a kernel's status; `row` counts from the start of the block."""
    if status == row_kernels.NOT_FINITE:
        return InputError(
            f"row {row}: every feature and y must be finite (and below 1e75). Nothing of the block was learned; "
            "clean it, for example with np.nan_to_num, and pass it again."
        )
    if status == row_kernels.BAD_INDEX:
        return DimensionError(
            f"row {row}: a sparse index lies outside 0 ... {dim - 1}. Nothing of the block was learned; "
            "check the hashing, or build the tracker with a larger dim."
        )
    if status == row_kernels.UNSORTED:
        return InputError(
            f"row {row}: sparse indices must increase, without repeats. Nothing of the block was learned; "
            "call X.sum_duplicates(), which sorts and merges, and pass it again."
        )
    if status == row_kernels.BAD_POINTER:
        return InputError(
            f"row {row}: indptr must increase and stay within the matrix's indices and data. Nothing of the block "
            "was learned; build the matrix anew, for example from its COO form."
        )
    if status == track.STEP_TOO_LARGE:
        return DivergenceError(
            f"row {row}: step_size times the row's squared norm (with newest=True, step_size itself) is 2 or more, "
            "which diverges. Nothing of the block was learned. Scale the rows to norm 1, lower step_size, or use "
            "Normalised(1/3), which adapts to the rows. guard=False switches this check off."
        )
    return DivergenceError(
        f"after row {n}: the squared error is a million times the largest y squared and growing; theta is still "
        "finite. Lower step_size, raise regularisation, or use a tracker without a step size (CD, RLS). "
        "guard=False switches this check off."
    )
