"""Thompson sampling, exactly."""

from __future__ import annotations

from typing import Any

from driftls.draws import Seed
from driftls.policies.shared import SharedPolicy
from driftls.trackers import RAW, RLS
from driftls.widths import SampleWidth


class LinTS(SharedPolicy):
    """Thompson sampling, exactly: scores with one sample of N(theta, kappa^2 (A + ridge I)^-1) a round, O(d^2).

    Examples
    --------
    >>> import numpy as np
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
        tracker = RLS(dim, regularisation=regularisation, **RAW)
        super().__init__(tracker, SampleWidth(), kappa=kappa, sigmas=sigmas, epsilon=epsilon, seed=seed)
