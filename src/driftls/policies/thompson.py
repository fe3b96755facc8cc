"""Thompson sampling: exactly, and by an ensemble."""

from __future__ import annotations

from typing import Any

from driftls.draws import Seed
from driftls.errors import SettingsError
from driftls.policies.shared import SharedPolicy
from driftls.trackers import CD, RLS, Tracker
from driftls.widths import EnsembleWidth, SampleWidth


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
        tracker = RLS(dim, regularisation=regularisation, scale=False, intercept=False)
        super().__init__(tracker, SampleWidth(), kappa=kappa, sigmas=sigmas, epsilon=epsilon, seed=seed)


class EnsembleTS(SharedPolicy):
    """Thompson sampling by an ensemble: one of M copies that learned noise is drawn a round; O(M d) instead of O(d^2).

    Parameters
    ----------
    dim : int
        Number of features, for a `CD` tracker; or pass `tracker`.
    members : int
        M.
    steps : int
        Coordinates that each copy moves a row.
    sigmas : float
        Fewer than for exact samples: each copy keeps its errors for many rounds, and is tried out in all of them.
    regularisation, kappa, epsilon, seed
        As for `LinUCB`.

    Examples
    --------
    >>> import numpy as np
    >>> policy = EnsembleTS(dim=2, members=5, seed=0)
    >>> policy.learn(np.eye(2), 1.0, arm=policy.choose(np.eye(2)))
    """

    def __init__(
        self,
        dim: int | None = None,
        *,
        tracker: Tracker | None = None,
        members: int = 100,
        steps: int = 1,
        regularisation: Any = None,
        kappa: float | None = None,
        sigmas: float = 0.7,
        epsilon: float = 0.0,
        seed: Seed = None,
    ) -> None:
        if (dim is None) == (tracker is None):
            raise SettingsError("EnsembleTS needs either dim, for a CD tracker, or a tracker.")
        if tracker is not None and regularisation is not None:
            raise SettingsError("regularisation is a setting of the tracker: give it to the tracker.")
        if tracker is None:
            tracker = CD(dim, regularisation=regularisation, scale=False, intercept=False)  # type: ignore[arg-type]
        width = EnsembleWidth(members, steps=steps)
        super().__init__(tracker, width, kappa=kappa, sigmas=sigmas, epsilon=epsilon, seed=seed)
