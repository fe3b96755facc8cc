"""What people compare with: greedy, epsilon-greedy, random."""

from __future__ import annotations

from typing import Any

from driftls.draws import Seed
from driftls.policies.arms import as_block
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
    >>> Random(seed=0).probabilities(np.eye(2))  # without a dim, that of the arms
    array([0.5, 0.5])
    """

    def __init__(self, dim: int | None = None, *, seed: Seed = None) -> None:
        super().__init__(Diagonal(1 if dim is None else dim, **RAW), NoWidth(), kappa=0.0, epsilon=1.0, seed=seed)

    @property
    def any_dim(self) -> bool:
        """Whether it is the first arms that say how many features there are."""
        return self.dim == 1 and not len(self._models)

    def _features_of(self, arms: Any) -> int:
        shape: Any = getattr(as_block(arms), "shape", ()) if self.any_dim else ()
        return int(shape[1]) if len(shape) == 2 and shape[1] else self.dim
