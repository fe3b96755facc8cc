"""What a user passes, turned into a block of rows that a kernel can take; and what is said when it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.errors import DimensionError, DivergenceError, DriftlsError, InputError
from driftls.kernels import rows as row_kernels
from driftls.kernels import track
from driftls.kernels.rows import DenseRows, SparseRows

Block = DenseRows | SparseRows


def checked(X: Any, y: Any, dim: int) -> tuple[Any, NDArray[np.float64]]:
    """X as an array or sparse matrix and y as a vector, or the error that needs no look at the numbers."""
    try:
        targets = np.ascontiguousarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"y must be a vector of numbers, got {type(y).__name__}.") from None
    if not sp.issparse(X):
        try:
            X = np.asarray(X)
            if X.dtype.kind not in "fiub":
                X = X.astype(np.float64)
        except (TypeError, ValueError):
            raise InputError(f"X must be a matrix of numbers, got {type(X).__name__}.") from None
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


def as_block(X: Any, y: NDArray[np.float64], sparse: bool, dtype: np.dtype[Any]) -> Block:
    """X and y as rows of the kind and precision that a tracker keeps."""
    y = np.require(y, requirements=["C", "A", "W"])
    if not sparse:
        return DenseRows(plain(X.toarray() if sp.issparse(X) else X, dtype), y)
    X = X.tocsr() if sp.issparse(X) else sp.csr_array(X)
    start = plain(X.indptr, np.int64)
    return SparseRows(start[:-1], start[1:], plain(X.indices, np.int32), plain(X.data, dtype), y)


def plain(array: Any, dtype: Any) -> NDArray[Any]:
    """The array as kernels know it: contiguous and writeable, since each other kind would be compiled for again."""
    return np.require(array, dtype=dtype, requirements=["C", "A", "W"])


def fault(status: int, row: int, n: int, dim: int) -> DriftlsError:
    """The error behind a kernel's status; `row` counts from the start of the block."""
    if status == row_kernels.NOT_FINITE:
        return InputError(
            f"row {row}: every feature and y must be finite (and below 1e150). Nothing of the block was learned; "
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
    if status == track.STEP_TOO_LARGE:
        return DivergenceError(
            f"row {row}: step_size times the row's squared norm is 2 or more, which diverges. Nothing of the block "
            "was learned. Scale the rows to norm 1, lower step_size, or use Normalised(1/3), which adapts to the "
            "rows. guard=False switches this check off."
        )
    return DivergenceError(
        f"after row {n}: the squared error is a million times the largest y squared and growing; theta is still "
        "finite. Lower step_size, raise regularisation, or use a tracker without a step size (CD, RLS). "
        "guard=False switches this check off."
    )
