"""What people compare with: greedy, epsilon-greedy, random, Thompson sampling."""

from __future__ import annotations

from typing import Any

from driftls.draws import Seed
from driftls.policies.shared import SharedPolicy
from driftls.trackers import RAW, RLS, Diagonal, Tracker
from driftls.widths import NoWidth, SampleWidth


class Greedy(SharedPolicy):
    """Always the arm with the largest theta.x; with `epsilon`, epsilon-greedy.

    Examples
    --------
    >>> from driftls.trackers import RLS
    >>> Greedy(RLS(2), epsilon=0.1).epsilon
    0.1
    """

    def __init__(self, tracker: Tracker, *, epsilon: float = 0.0, seed: Seed = None) -> None:
        super().__init__(tracker, NoWidth(), kappa=0.0, epsilon=epsilon, seed=seed)


class Random(SharedPolicy):
    """Any arm, with the same probability.

    Examples
    --------
    >>> import numpy as np
    >>> Random(2, seed=0).probabilities(np.eye(2))
    array([0.5, 0.5])
    """

    def __init__(self, dim: int, *, seed: Seed = None) -> None:
        super().__init__(Diagonal(dim, **RAW), NoWidth(), kappa=0.0, epsilon=1.0, seed=seed)


class LinTS(SharedPolicy):
    """Thompson sampling, exactly: scores with one sample of N(theta, kappa^2 (A + ridge I)^-1) a round, O(d^2).

    Parameters
    ----------
    dim : int
        Number of features.
    regularisation : schedule
        By default `ridge(1)` at first, and then found from the data, unless kappa is given.
    kappa : float, optional
        Scale of the samples. By default estimated: `sigmas` standard deviations of the noise.
    scale, intercept : bool
        As for every `Tracker`: measure features in units of their spread; learn an intercept. `**RAW` is neither.
    sigmas, epsilon, seed
        As for `SharedPolicy`.

    Examples
    --------
    >>> import numpy as np
    >>> policy = LinTS(dim=2, seed=0)
    >>> policy.learn(np.eye(2), 1.0, arm=policy.choose(np.eye(2)))
    """

    _gives_constants = True
    _reason = "exact: one sample of what is believed about theta a round"

    def __init__(
        self,
        dim: int,
        *,
        regularisation: Any = None,
        kappa: float | None = None,
        sigmas: float = 1.0,
        epsilon: float = 0.0,
        seed: Seed = None,
        scale: bool = True,
        intercept: bool = True,
    ) -> None:
        tracker = RLS(dim, regularisation=regularisation, scale=scale, intercept=intercept)
        super().__init__(tracker, SampleWidth(), kappa=kappa, sigmas=sigmas, epsilon=epsilon, seed=seed)
        if regularisation is None and kappa is None:
            self._models.adapt(tracker, tracker.total_ridge(1))
