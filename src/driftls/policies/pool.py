"""Exact LinUCB for a pool that never changes: faster than any approximation."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from driftls import persistence
from driftls.draws import Draws, Seed
from driftls.errors import DimensionError, FileFormatError, InputError, SettingsError
from driftls.kernels import pool as kernels
from driftls.kernels.judge import EPSILON, KAPPA, PROBABILITY, SCALARS, SIGMAS, Judge, weight
from driftls.policies.inputs import check_weights, checked_reward, part
from driftls.trackers.inputs import as_numbers

# The arrays that change, by method.
STATE = {"gram": ("means", "spread"), "kept": ("means", "products", "widths2", "theta")}


class FixedPool:
    """Exact LinUCB over K arms that are known in advance: O(K^2) a round in Gram space, whatever the dimension.

    Parameters
    ----------
    arms : (K, d) array
        The pool.
    total_ridge : float
        lambda.
    kappa, sigmas, epsilon, seed
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
        epsilon: float = 0.0,
        method: str = "gram",
        seed: Seed = None,
    ) -> None:
        self.arms: NDArray[np.float64] = np.array(
            as_numbers(arms, "arms must be a matrix"), dtype=np.float64, order="C"
        )
        if self.arms.ndim != 2 or not self.arms.shape[0]:
            raise DimensionError(f"arms must be a (K, d) matrix with at least one row, got shape {self.arms.shape}.")
        if not np.isfinite(self.arms).all():
            raise InputError("every feature of every arm must be finite.")
        if method not in STATE or not 0.0 < total_ridge < np.inf:
            raise SettingsError(
                f"method must be 'gram' or 'kept' and total_ridge positive, got {method!r}, {total_ridge}."
            )
        check_weights(kappa, sigmas, epsilon)
        self.method = method
        self.means: NDArray[np.float64] = np.zeros(len(self.arms))
        self._draws = Draws(seed)
        self._scores = np.zeros(len(self.arms))
        self._scalars = np.zeros(SCALARS)
        self._scalars[KAPPA], self._scalars[SIGMAS] = kappa or 0.0, 0.0 if kappa is not None else sigmas
        self._scalars[EPSILON] = epsilon
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
        return float(weight(Judge(self._scalars, self._scores)))

    @property
    def epsilon(self) -> float:
        """The exploration floor."""
        return float(self._scalars[EPSILON])

    @property
    def scores(self) -> NDArray[np.float64]:
        """Mean plus kappa widths, of every arm."""
        return np.asarray(self.means + self.kappa * self.widths)

    @property
    def probability(self) -> float:
        """How likely the last choice was."""
        return float(self._scalars[PROBABILITY])

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """How likely each arm is to be chosen now."""
        out = np.full(len(self.arms), self.epsilon / len(self.arms))
        out[int(np.argmax(self.scores))] += 1.0 - self.epsilon
        return out

    def choose(self) -> int:
        """The number of the arm to play."""
        draws = self._draws
        draws.ready(1)
        rest = self.means, self._scalars, self._scores, draws.tape, draws.cursor
        if self.method == "gram":
            return kernels.gram_choose(self._spread, *rest)
        return kernels.kept_choose(self._widths2, *rest)

    def learn(self, reward: float, *, arm: int) -> None:
        """Learn a reward of one of the arms; it may come late and in any order."""
        if not isinstance(arm, int | np.integer) or not 0 <= arm < len(self.arms):
            raise InputError(f"arm {arm} is not among the {len(self.arms)} arms.")
        value = checked_reward(reward)
        if self.method == "gram":
            kernels.gram_learn(self._spread, self.means, self._scalars, int(arm), value)
        else:
            state = self.arms, self._products, self.theta, self.means, self._widths2, self._scalars
            kernels.kept_learn(*state, int(arm), value, self._scratch)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole policy to one file, atomically; `load` goes on as if it had never stopped."""
        header = {"class": type(self).__name__, "method": self.method, "draws": self._draws.header()}
        arrays = {"arms": self.arms, "scalars": self._scalars, "unread": self._draws.unread()}
        arrays |= {f"state.{name}": self._array(name) for name in STATE[self.method]}
        persistence.write(path, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Open a saved policy."""
        header, arrays = persistence.read(path)
        if header.get("class") != cls.__name__:
            raise FileFormatError(f"{path}: holds a {header.get('class')}, not a {cls.__name__}. Use its own load().")
        policy = cls(arrays["arms"], method=header["method"])
        policy._scalars[:] = arrays["scalars"]
        for name, array in part(arrays, "state.").items():
            policy._array(name)[...] = array
        policy._draws.restore(header["draws"], arrays["unread"])
        return policy

    def _array(self, name: str) -> Any:
        return getattr(self, name if name in ("means", "theta") else f"_{name}")
