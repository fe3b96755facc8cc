"""Diagonal: one pass, O(nnz), no history."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import numpy as np
import scipy.sparse as sp

from driftls.compiling.parts import Part
from driftls.errors import SettingsError
from driftls.kernels import diagonal
from driftls.kernels.learn import NOTHING
from driftls.trackers.base import Tracker
from driftls.trackers.exact import of_rows
from driftls.trackers.machine import COMMON
from driftls.trackers.settings import Common
from driftls.trackers.sgd import StochasticTracker
from driftls.trackers.sums import check_discount
from driftls.units import Change


class Diagonal(StochasticTracker):
    """Least squares with A_n replaced by its diagonal: the cheapest tracker, 16 bytes a feature and nothing else.

    Right where features rarely overlap (one-hot and hashed crosses); elsewhere it stays away from the exact solution.

    Parameters
    ----------
    discount : float
        Sums of squares shrink by this factor a row, so that later rows move theta more; for a theta* that moves.
    dim, **settings
        As for every `Tracker`: regularisation, history, scale, intercept. A history is not needed to learn; with
        `Growing()`, `target` and `tracking_error` can be asked for.

    Examples
    --------
    >>> Diagonal(dim=2, scale=False, intercept=False).partial_fit([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0]).theta
    array([0.5, 0.8])
    """

    parts: ClassVar[dict[str, Part]] = {"enter": diagonal.diagonal_enter}
    numbers = ("scale",)
    draws_rows = False
    takes = (*COMMON, "discount")

    def __init__(self, dim: int, *, discount: float = 1.0, **settings: Unpack[Common]) -> None:
        super().__init__(dim, step_size=0.0, steps=1, seed=0, guard=False, **settings)
        history = settings.get("history")
        self.discount = check_discount(discount, self.regularisation, history)
        if history is not None and history.evicts:
            raise SettingsError("Diagonal keeps sums only and cannot take a row back. Use discount= to forget.")

    def _begin(self) -> None:
        self.frame.set(scale=1.0, discount=self.discount)

    def _move_to(self, theta: Any, change: Change) -> None:
        """theta predicts the same; no rows are kept to sum up their squares again."""
        u, squares = self._state["coords"]
        u[change.learned] = theta
        change.squares(squares)

    @property
    def target(self) -> Tracker:
        """RLS over all rows, discounted alike; needs history=Growing()."""
        if self.discount == 1.0 or self.history.kind == NOTHING or not len(self):
            return super().target
        X, y = self.history.matrix()
        weights = self.discount ** (0.5 * np.arange(len(self))[::-1])
        scaled = X.multiply(weights[:, None]).tocsr() if sp.issparse(X) else X * weights[:, None]
        return of_rows(scaled, y * weights, len(self) * self.regularisation(len(self)))  # type: ignore[operator]
