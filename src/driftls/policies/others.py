"""What people compare with: Thompson sampling, greedy, epsilon-greedy, random."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.draws import Seed
from driftls.policies.base import Policy
from driftls.schedules import ridge
from driftls.trackers import CD, RLS, Diagonal, Tracker
from driftls.widths import EnsembleWidth, NoWidth, SampleWidth

SAMPLES = 2000


class LinTS(Policy):
    """Thompson sampling, exactly: scores with one sample of N(theta, kappa^2 (A + ridge I)^-1) a round, O(d^2).

    Examples
    --------
    >>> policy = LinTS(dim=2, seed=0)
    >>> policy.learn(np.eye(2), 1.0, arm=policy.choose(np.eye(2)))
    """

    def __init__(
        self,
        dim: int,
        *,
        regularisation: Any = None,
        kappa: float | None = None,
        sigmas: float = 1.0,
        epsilon: float = 0.0,
        seed: Seed = None,
    ) -> None:
        tracker = RLS(dim, regularisation=ridge(1.0) if regularisation is None else regularisation)
        super().__init__(tracker, SampleWidth(), kappa=kappa, sigmas=sigmas, epsilon=epsilon, seed=seed)

    def probabilities(self, arms: Any, *, ids: Any = None) -> NDArray[np.float64]:
        """Estimated from 2,000 samples of a fixed seed: there is no closed form."""
        arms = np.asarray(arms)
        self._arms(arms)
        mean, factor = arms @ self.theta, self._width.factor
        z = np.random.default_rng(0).standard_normal((self.dim, SAMPLES))
        samples = arms @ np.linalg.solve(np.tril(factor).T, z)
        winners = np.argmax(mean[:, None] + self.kappa * samples, axis=0)
        share = np.bincount(winners, minlength=len(arms)) / SAMPLES
        return np.asarray(self.epsilon / len(arms) + (1.0 - self.epsilon) * share)


class EnsembleTS(Policy):
    """Thompson sampling by an ensemble: one of M copies that learned noise is drawn a round; O(M d) instead of O(d^2).

    Parameters
    ----------
    dim : int
        Number of features, for a `CD` tracker; or pass `tracker`.
    members : int
        M.
    steps : int
        Coordinates that each copy moves a row.
    regularisation, kappa, sigmas, epsilon, seed
        As for `LinUCB`.

    Examples
    --------
    >>> policy = EnsembleTS(dim=2, members=5, seed=0)
    >>> policy.learn(np.eye(2), 1.0, arm=policy.choose(np.eye(2)))
    """

    def __init__(
        self,
        dim: int | None = None,
        *,
        tracker: Tracker | None = None,
        members: int = 20,
        steps: int = 4,
        regularisation: Any = None,
        kappa: float | None = None,
        sigmas: float = 1.0,
        epsilon: float = 0.0,
        seed: Seed = None,
    ) -> None:
        if tracker is None:
            tracker = CD(dim or 0, regularisation=ridge(1.0) if regularisation is None else regularisation)
        width = EnsembleWidth(members, steps=steps, sample=True)
        super().__init__(tracker, width, kappa=kappa, sigmas=sigmas, epsilon=epsilon, seed=seed)

    def probabilities(self, arms: Any, *, ids: Any = None) -> NDArray[np.float64]:
        """Exactly: the share of members that would choose each arm."""
        self._arms(arms)
        mean, members = arms @ self.theta, arms @ self._width.theta.T
        winners = np.argmax(np.asarray(mean)[:, None] + self.kappa * np.asarray(members), axis=0)
        share = np.bincount(winners, minlength=arms.shape[0]) / self._width.theta.shape[0]
        return np.asarray(self.epsilon / arms.shape[0] + (1.0 - self.epsilon) * share)


class Greedy(Policy):
    """Always the arm with the largest theta.x; with `epsilon`, epsilon-greedy.

    Examples
    --------
    >>> Greedy(RLS(2), epsilon=0.1).epsilon
    0.1
    """

    def __init__(self, tracker: Tracker, *, epsilon: float = 0.0, seed: Seed = None) -> None:
        super().__init__(tracker, NoWidth(), kappa=0.0, epsilon=epsilon, seed=seed)


class Random(Policy):
    """Any arm, with the same probability.

    Examples
    --------
    >>> Random(dim=2, seed=0).probabilities(np.eye(2))
    array([0.5, 0.5])
    """

    def __init__(self, dim: int, *, seed: Seed = None) -> None:
        super().__init__(Diagonal(dim), NoWidth(), kappa=0.0, epsilon=1.0, seed=seed)
