"""Rows for the tests of histories."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from driftls.history import History


def stream(count: int, dim: int = 4, seed: int = 0, density: float = 1.0) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(count, dim)) * (generator.random((count, dim)) < density)
    return X, X @ generator.normal(size=dim) + 0.1 * generator.normal(size=count)


def numbered(first: int, last: int, dim: int = 8) -> tuple[Any, Any]:
    """Rows that tell which they are: row i holds i + 1 in every entry, and so does y."""
    number = np.arange(first, last) + 1.0
    return np.repeat(number[:, None], dim, axis=1), number


def as_layout(X: Any, layout: str) -> Any:
    return sp.csr_array(X) if layout == "sparse" else X


def held_rows(history: History) -> tuple[Any, Any]:
    X, y = history.matrix()
    return (X.toarray() if sp.issparse(X) else np.array(X)), np.array(y)
