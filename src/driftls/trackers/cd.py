"""CD: coordinate descent on the normal equations."""

from __future__ import annotations

from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from driftls.compiling.parts import Part
from driftls.kernels import cd
from driftls.state import Shape, times
from driftls.trackers.base import Tracker
from driftls.trackers.exact import plain
from driftls.trackers.machine import COMMON
from driftls.trackers.settings import Common
from driftls.trackers.sums import SummingTracker, solve
from driftls.units import Change


class CD(SummingTracker):
    """Gauss-Southwell coordinate descent on A theta = b: closest to the exact solution, without a step size.

    It keeps A, so memory is d^2, and a row costs O(nnz^2 + steps d). With a `discount` it follows a theta* that moves.

    Parameters
    ----------
    steps : int
        Coordinates moved a row.
    discount : float
        Each row counts `discount` times as much when the next one comes; the ridge is not discounted.
    dim, **settings
        As for every `Tracker`: regularisation, history, scale, intercept. A `Window(capacity)` forgets rows exactly as they
        leave it; without a history no rows are kept: sums are enough.

    Examples
    --------
    >>> CD(dim=2, scale=False, intercept=False).partial_fit([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0]).theta
    array([0.5, 0.8])
    """

    parts: ClassVar[dict[str, Part]] = {"enter": cd.cd_enter, "forget": cd.cd_forget, "descend": cd.cd_descend}
    quantities = 3
    shapes: ClassVar[dict[str, Shape]] = {"gram": ("dim", "dim")}
    numbers = ("scale", "ridge_now", "forgotten")
    takes = (*COMMON, "steps", "discount")

    def __init__(self, dim: int, *, steps: int = 4, discount: float = 1.0, **settings: Unpack[Common]) -> None:
        super().__init__(dim, steps, discount, **settings)

    def _begin(self) -> None:
        self.frame.set(scale=1.0, discount=self.discount, ridge_now=self.regularisation(1))  # type: ignore[operator]

    def sums(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """A (without the ridge) and b."""
        with self.lock:
            theta, residual, _ = self._state["coords"]
            A = self.frame["scale"] * self._state["gram"]
            return A, residual + times(A, theta) + self.frame["ridge_now"] * theta

    @property
    def target(self) -> Tracker:
        """RLS from the sums that CD keeps anyway."""
        target = plain(self.inner, self.regularisation)
        if self.sparse is not None:
            target.set_sums(*self.sums(), self.frame["ridge_now"], len(self))
        return target

    def set_sums(self, A: NDArray[np.float64], b: NDArray[np.float64], total_ridge: float, n: int) -> None:
        """Stand at the exact solution of these sums over n rows: A = sum x x' and b = sum y x."""
        with self.lock:
            self._stand_after(n, total_ridge)
            self._stand(solve(A + total_ridge * np.eye(self.inner), b), A, b, total_ridge)

    def change_units(self, change: Change) -> None:
        with self.lock:
            theta = self._state["coords"][0].copy()
            theta[change.learned] = change.theta(theta[change.learned])
            A, b = self.sums()
            change.sums(A, b)
            self._stand(theta, A, b, self.frame["ridge_now"])
            self.frame.set(scale=1.0, mean_y=self.frame["mean_y"] - change.offset)
            self.history.change_units(change)

    def attend(self) -> None:
        self._stand(self._state["coords"][0].copy(), *self._held_sums(), self.frame["ridge_now"])

    def _stand(self, theta: NDArray[np.float64], A: NDArray[np.float64], b: NDArray[np.float64], total: float) -> None:
        """theta, with the residual that it has for these sums and this total ridge."""
        self._state["gram"][...] = A
        self._state["coords"][...] = theta, b - times(A, theta) - total * theta, np.diag(A)
