"""CD: coordinate descent on the normal equations."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from driftls.errors import SettingsError
from driftls.history import History, Reservoir
from driftls.kernels import cd
from driftls.kernels import track as track_kernels
from driftls.kernels.cd import CDState
from driftls.schedules import ridge
from driftls.trackers.base import Tracker
from driftls.trackers.exact import RLS, check_discount


class CD(Tracker):
    """Gauss-Southwell coordinate descent on A theta = b: closest to the exact solution, without a step size.

    It keeps A, so memory is d^2, and a row costs O(nnz^2 + steps d). With a `discount` it follows a theta* that moves.

    Parameters
    ----------
    dim : int
        Number of features.
    regularisation : schedule
        lambda_n per row; `ridge(total)` keeps n lambda_n constant, and ridge(1) is the default.
    steps : int
        Coordinates moved a row.
    discount : float
        Each row counts `discount` times as much when the next one comes; the ridge is not discounted.
    history : History, optional
        `Window(capacity)` forgets rows exactly as they leave it. None keeps no rows: sums are enough.

    Examples
    --------
    >>> CD(dim=2).partial_fit([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0]).theta
    array([0.5, 0.8])
    """

    _state_class: ClassVar[type[NamedTuple]] = CDState
    _draws_rows = False

    def __init__(
        self,
        dim: int,
        *,
        regularisation: Any = None,
        steps: int = 4,
        discount: float = 1.0,
        history: History | None = None,
    ) -> None:
        regularisation = ridge(1.0) if regularisation is None else regularisation
        super().__init__(dim, regularisation=regularisation, steps=steps, history=history, seed=0, guard=False)
        self.discount = check_discount(discount, self.regularisation, history)
        if isinstance(history, Reservoir):
            raise SettingsError("CD sums over all rows and needs no reservoir. Drop history=.")

    def _allocate(self, sparse: bool) -> CDState:
        scalars = np.zeros(cd.SCALARS)
        scalars[cd.SCALE] = 1.0
        scalars[cd.DISCOUNT] = self.discount
        scalars[cd.RIDGE] = self.regularisation(1)  # type: ignore[operator]
        return CDState(np.zeros((3, self.dim)), scalars, np.zeros((self.dim, self.dim)))

    @property
    def target(self) -> Tracker:
        """RLS from the sums that CD keeps anyway."""
        target = RLS(self.dim, regularisation=self.regularisation, method="cholesky")
        if self._state is not None:
            (theta, residual, _), scalars, gram = self._state
            A = scalars[cd.SCALE] * gram
            b = residual + A @ theta + scalars[cd.RIDGE] * theta
            target._set_sums(A, b, float(scalars[cd.RIDGE]), int(self._book[track_kernels.SEEN]))
        return target

    def _set_sums(self, A: NDArray[np.float64], b: NDArray[np.float64], total_ridge: float, n: int) -> None:
        """Stand at the exact solution of somebody else's sums."""
        if self._state is None:
            self._start(False)
        coords, scalars, gram = self._state
        gram[...], scalars[cd.RIDGE], scalars[cd.SCALE] = A, total_ridge, 1.0
        target = RLS(self.dim, regularisation=self.regularisation, method="cholesky")
        target._set_sums(A, b, total_ridge, n)
        theta = target.theta
        coords[cd.THETA], coords[cd.RESIDUAL], coords[cd.DIAGONAL] = (
            theta,
            b - A @ theta - total_ridge * theta,
            np.diag(A),
        )
        self._book[track_kernels.SEEN] = n

    def _extra_settings(self) -> dict[str, Any]:
        return {"discount": self.discount}

    @classmethod
    def _from_settings(cls, settings: dict[str, Any], history: History | None) -> Self:
        for name in ("guard", "step_size"):
            settings.pop(name)
        return cls(**settings, history=history)
