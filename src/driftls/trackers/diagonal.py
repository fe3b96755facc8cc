"""Diagonal: one pass, O(nnz), no history."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from driftls.errors import SettingsError
from driftls.history import History
from driftls.kernels import diagonal
from driftls.kernels.learn import NOTHING
from driftls.kernels.parts import Part
from driftls.trackers.base import Tracker
from driftls.trackers.exact import RLS, check_discount, drop
from driftls.trackers.sgd import StochasticTracker
from driftls.units import Change


class Diagonal(StochasticTracker):
    """Least squares with A_n replaced by its diagonal: the cheapest tracker, 16 bytes a feature and nothing else.

    Right where features rarely overlap (one-hot and hashed crosses); elsewhere it stays away from the exact solution.

    Parameters
    ----------
    dim : int
        Number of features.
    regularisation : schedule
        lambda_n per row; `ridge(total)` keeps n lambda_n constant, and ridge(1) is the default.
    discount : float
        Sums of squares shrink by this factor a row, so that later rows move theta more; for a theta* that moves.
    history : History, optional
        Not needed to learn. With `Growing()`, `target` and `tracking_error` can be asked for.

    Examples
    --------
    >>> Diagonal(dim=2, scale=False, intercept=False).partial_fit([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0]).theta
    array([0.5, 0.8])
    """

    parts: ClassVar[dict[str, Part]] = {"enter": diagonal.diagonal_enter}
    numbers = ("scale",)
    draws_rows = False

    def __init__(
        self,
        dim: int,
        *,
        regularisation: Any = None,
        discount: float = 1.0,
        history: History | None = None,
        scale: bool = True,
        intercept: bool = True,
    ) -> None:
        super().__init__(
            dim,
            step_size=0.0,
            regularisation=regularisation,
            steps=1,
            history=history,
            seed=0,
            guard=False,
            scale=scale,
            intercept=intercept,
        )
        self.discount = check_discount(discount, self.regularisation, history)
        if history is not None and history.evicts:
            raise SettingsError("Diagonal keeps sums only and cannot take a row back. Use discount= to forget.")

    def _begin(self) -> None:
        self.frame.set(scale=1.0, discount=self.discount)

    def change_units(self, change: Change) -> None:
        """theta predicts the same; sums of squares follow the scale, since no rows are kept to sum them up again."""
        theta, squares = self._state["coords"]
        factor = np.append(change.scale, change.after / change.before)[: self.inner]
        theta[:] = change.theta(theta.copy())
        squares *= factor**2
        self.history.change_units(change)

    @property
    def target(self) -> Tracker:
        """RLS over all rows, discounted alike; needs history=Growing()."""
        if self.discount == 1.0 or self.history.kind == NOTHING or not len(self):
            return super().target
        X, y = self.history.matrix()
        weights = self.discount ** (0.5 * np.arange(len(self))[::-1])
        scaled = X.multiply(weights[:, None]).tocsr() if sp.issparse(X) else X * weights[:, None]
        return RLS.of_rows(scaled, y * weights, len(self) * self.regularisation(len(self)))  # type: ignore[operator]

    def _extra_settings(self) -> dict[str, Any]:
        return {"discount": self.discount}

    def _saved_settings(self) -> dict[str, Any]:
        return drop(super()._saved_settings(), "steps", "guard", "step_size")
