"""What people compare with: greedy, epsilon-greedy, random."""

from __future__ import annotations

from driftls.draws import Seed
from driftls.policies.shared import SharedPolicy
from driftls.trackers import RAW, Diagonal, Tracker
from driftls.widths import NoWidth


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
    >>> Random(dim=2, seed=0).probabilities(np.eye(2))
    array([0.5, 0.5])
    """

    def __init__(self, dim: int, *, seed: Seed = None) -> None:
        super().__init__(Diagonal(dim, **RAW), NoWidth(), kappa=0.0, epsilon=1.0, seed=seed)
