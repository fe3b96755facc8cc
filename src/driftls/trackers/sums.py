"""Sums over rows: what trackers that keep A and b share, and how A theta = b is solved."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from driftls.errors import DivergenceError, SettingsError
from driftls.history import History, Reservoir
from driftls.schedules import Power
from driftls.trackers.base import Tracker
from driftls.trackers.settings import Common

SINGULAR = 1e-12  # of a matrix with a diagonal of 1: rounding errors alone could have made it


class SummingTracker(Tracker):
    """A tracker that sums over all rows, whose weights a discount shrinks: no steps on drawn rows, no step size."""

    interleaved = False
    draws_rows = False

    def __init__(self, dim: int, steps: int, discount: float, **settings: Unpack[Common]) -> None:
        super().__init__(dim, step_size=0.0, steps=steps, seed=0, guard=False, **settings)
        history = settings.get("history")
        self.discount = check_discount(discount, self.regularisation, history)
        if isinstance(history, Reservoir):
            raise SettingsError(f"{type(self).__name__} sums over all rows and needs no reservoir. Drop history=.")

    def _held_sums(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """A and b afresh: what a large row that has left did to the last digits leaves with it."""
        X, y = self.history.matrix()
        self.frame["forgotten"] = 0
        return gram_of(X), X.T @ y

    def _stand_after(self, n: int, total_ridge: float) -> None:
        """Sums over n rows will be given."""
        if self.sparse is None:
            self.start(False)
        self.frame.set(scale=1.0, ridge_now=total_ridge)
        self.history.counts["seen"] = n


def gram_of(X: Any) -> NDArray[np.float64]:
    """X'X, dense."""
    product = X.T @ X
    return product if isinstance(product, np.ndarray) else np.asarray(product.toarray())


def solve(matrix: NDArray[np.float64], moment: NDArray[np.float64]) -> NDArray[np.float64]:
    """matrix^-1 moment; the least-norm solution where the (positive semi-definite) matrix is singular.

    The diagonal is scaled to 1 first, so that the units of a feature do not decide whether it counts.
    """
    import scipy.linalg  # which takes as long to import as NumPy, and few need it

    diagonal = np.diag(matrix)
    units = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    scaled, moment = units[:, None] * matrix * units, units * moment
    if not (np.isfinite(scaled).all() and np.isfinite(moment).all()):
        raise DivergenceError("sums over rows must be finite, and are not. Learn the rows anew; a file may be damaged.")
    try:
        factor = scipy.linalg.cho_factor(scaled, lower=True)
        if np.diag(factor[0]).min() ** 2 > SINGULAR:
            return np.asarray(units * scipy.linalg.cho_solve(factor, moment))
    except np.linalg.LinAlgError:
        pass
    values, vectors = np.linalg.eigh(scaled)
    rank = int(np.searchsorted(values, SINGULAR * values[-1], side="right"))  # values ascend: the first are null
    found = units * (vectors[:, rank:] @ ((vectors[:, rank:].T @ moment) / values[rank:]))
    null = scipy.linalg.qr(units[:, None] * vectors[:, :rank], mode="economic")[0]
    return np.asarray(found - null @ (null.T @ found))


def total_is_constant(regularisation: Any) -> bool:
    """Whether n lambda_n is the same for all n."""
    if not isinstance(regularisation, Power):
        return False
    return regularisation.scale == 0.0 or (regularisation.offset, regularisation.exponent) == (0.0, 1.0)


def check_discount(discount: float, regularisation: Any, history: History | None) -> float:
    """A discount in (0, 1], together with what it can be combined with."""
    if not (isinstance(discount, int | float | np.number) and 0.0 < discount <= 1.0):
        raise SettingsError(f"discount must lie in (0, 1], got {discount!r}. 1 forgets nothing.")
    if discount < 1.0:
        if not total_is_constant(regularisation):
            raise SettingsError("with a discount the total ridge is constant: pass regularisation=ridge(total).")
        if history is not None and history.evicts:
            raise SettingsError("a discount and a history that drops rows both forget. Choose one of them.")
    return float(discount)
