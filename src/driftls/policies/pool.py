"""Exact LinUCB for a pool that never changes: faster than any approximation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import DimensionError, InputError, SettingsError
from driftls.kernels import pool as kernels
from driftls.kernels.policy import ERRORS, KAPPA, LEARNED, SCALARS, SIGMAS, Judge, weight


class FixedPool:
    """Exact LinUCB over K arms that are known in advance: O(K^2) a round in Gram space, whatever the dimension.

    Parameters
    ----------
    arms : (K, d) array
        The pool.
    total_ridge : float
        lambda.
    kappa, sigmas
        As for `LinUCB`; two standard deviations by default, since arms recur.
    method : {"gram", "kept"}
        "gram" keeps X A^-1 X', O(K^2) a round; "kept" keeps A^-1 x_k for each arm, O(K d) a round, and theta.

    Examples
    --------
    >>> policy = FixedPool(np.eye(2), kappa=1.0)
    >>> k = policy.choose()
    >>> policy.learn(1.0, arm=k)
    >>> policy.means.round(2), policy.widths.round(2)
    (array([0.5, 0. ]), array([0.71, 1.  ]))
    """

    def __init__(
        self,
        arms: Any,
        *,
        total_ridge: float = 1.0,
        kappa: float | None = None,
        sigmas: float = 2.0,
        method: str = "gram",
    ) -> None:
        self.arms: NDArray[np.float64] = np.array(arms, dtype=np.float64, order="C")
        if self.arms.ndim != 2 or not self.arms.shape[0]:
            raise DimensionError(f"arms must be a (K, d) matrix with at least one row, got shape {self.arms.shape}.")
        if not np.isfinite(self.arms).all():
            raise InputError("every feature of every arm must be finite.")
        if method not in ("gram", "kept") or not total_ridge > 0.0:
            raise SettingsError(
                f"method must be 'gram' or 'kept' and total_ridge positive, got {method!r}, {total_ridge}."
            )
        self.method = method
        self.means: NDArray[np.float64] = np.zeros(len(self.arms))
        self._scalars = np.zeros(SCALARS)
        self._scalars[KAPPA], self._scalars[SIGMAS] = kappa or 0.0, 0.0 if kappa is not None else sigmas
        if method == "gram":
            self._spread = self.arms @ self.arms.T / total_ridge
        else:
            self._products = self.arms / total_ridge
            self._widths2 = np.einsum("kd,kd->k", self.arms, self._products)
            self.theta: NDArray[np.float64] = np.zeros(self.arms.shape[1])
            self._scratch = np.zeros(self.arms.shape[1])

    @property
    def widths(self) -> NDArray[np.float64]:
        """The width of every arm."""
        squares = np.diag(self._spread) if self.method == "gram" else self._widths2
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))

    @property
    def kappa(self) -> float:
        """The present weight of the width."""
        return float(weight(Judge(self._scalars, self.means)))

    def choose(self) -> int:
        """The number of the arm to play."""
        return int(np.argmax(self.means + self.kappa * self.widths))

    def learn(self, reward: float, *, arm: int) -> None:
        """Learn a reward of one of the arms; it may come late and in any order."""
        if not 0 <= arm < len(self.arms):
            raise InputError(f"arm {arm} is not among the {len(self.arms)} arms.")
        if not np.isfinite(reward):
            raise InputError(f"a reward must be a finite number, got {reward!r}.")
        width2 = self._spread[arm, arm] if self.method == "gram" else self._widths2[arm]
        self._scalars[ERRORS] += (reward - self.means[arm]) ** 2 / (1.0 + width2)
        self._scalars[LEARNED] += 1.0
        if self.method == "gram":
            kernels.gram_learn(self._spread, self.means, arm, float(reward))
        else:
            kernels.kept_learn(
                self.arms, self._products, self.theta, self.means, self._widths2, arm, float(reward), self._scratch
            )
