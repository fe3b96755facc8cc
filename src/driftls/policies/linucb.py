"""LinUCB over any tracker and width, and the same with one model an arm id."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from driftls.draws import Seed
from driftls.errors import SettingsError
from driftls.policies.base import Policy
from driftls.schedules import ridge
from driftls.trackers import CD, RLS, SAGA, Tracker
from driftls.widths import DiagonalWidth, ExactWidth, PhiWidth, Width

# Up to this dimension the exact method costs no more than the fast ones with 20 arms: benchmarks/rounds.py.
EXACT_UP_TO = 200
GRAM_UP_TO = 5_000


class LinUCB(Policy):
    """Chooses argmax theta.x + kappa width(x).

    Parameters
    ----------
    dim : int, optional
        Number of features, where tracker and width are chosen for you: `reason` says what and why. The choice is
        made at the first arms: from their number of features, whether they are sparse, and whether they have ids.
    tracker, width : optional
        Any of `driftls.trackers` and `driftls.widths`.
    regularisation : schedule
        Of a tracker that is chosen for you; `ridge(1)` by default.
    kappa : float, optional
        Weight of the width. By default estimated: `sigmas` standard deviations of the noise.
    sigmas : float, optional
        1, or 2 where arms have ids and come again and again.
    epsilon, forget_after, seed
        As for `Policy`.

    Examples
    --------
    >>> policy = LinUCB(dim=3, seed=0)
    >>> k = policy.choose(np.eye(3))
    >>> policy.learn(np.eye(3), 1.0, arm=k)
    >>> policy.reason
    'exact: with 3 dense features the exact method is as fast as any'
    """

    def __init__(
        self,
        dim: int | None = None,
        *,
        tracker: Tracker | None = None,
        width: Width | None = None,
        regularisation: Any = None,
        kappa: float | None = None,
        sigmas: float | None = None,
        epsilon: float = 0.0,
        forget_after: int = 1000,
        seed: Seed = None,
    ) -> None:
        if (dim is None) == (tracker is None):
            raise SettingsError("LinUCB needs either dim, and chooses its parts itself, or a tracker.")
        if tracker is not None and regularisation is not None:
            raise SettingsError("regularisation is a setting of the tracker: give it to the tracker.")
        self._auto = tracker is None
        self._regularisation = ridge(1.0) if regularisation is None else regularisation
        self._seeds = np.random.default_rng(seed).spawn(2)
        self._sigmas, self.reason = sigmas, "given: tracker and width were chosen by the caller"
        common = {"kappa": kappa, "epsilon": epsilon, "forget_after": forget_after, "seed": self._seeds[0]}
        self._common = common
        if tracker is None:
            assert dim is not None
            tracker, width = self._decide(dim, sparse=False, recurring=False)
        elif width is None:
            width = ExactWidth() if isinstance(tracker, RLS) else DiagonalWidth()
        super().__init__(tracker, width, sigmas=1.0 if sigmas is None else sigmas, **common)  # type: ignore[arg-type]

    def _decide(self, dim: int, *, sparse: bool, recurring: bool) -> tuple[Tracker, Width]:
        lam, seed = self._regularisation, self._seeds[1]
        if dim <= EXACT_UP_TO and not sparse:
            self.reason = f"exact: with {dim} dense features the exact method is as fast as any"
            return RLS(dim, regularisation=lam), ExactWidth()
        if recurring and not sparse and dim <= GRAM_UP_TO:
            self.reason = f"fast: {dim} dense features and arms that recur: CD, with one phi kept for each arm"
            return CD(dim, regularisation=lam), PhiWidth(method="cd")
        if recurring and not sparse:
            self.reason = f"fast: {dim} features, too many for a {dim} x {dim} matrix: SAGA, with one phi for each arm"
            return SAGA(dim, regularisation=lam, seed=seed), PhiWidth()
        kind = "sparse" if sparse else "dense"
        self.reason = f"fast: {dim} {kind} features and arms that change: SAGA, with diagonal widths"
        return SAGA(dim, regularisation=lam, seed=seed), DiagonalWidth()

    def choose(self, arms: Any, *, ids: Any = None, key: Any = None) -> int:
        if self._auto:
            self._settle(arms, ids)
        return super().choose(arms, ids=ids, key=key)

    def _first_look(self, arms: Any, ids: Any) -> None:
        if self._auto:
            self._settle(arms, ids)
        super()._first_look(arms, ids)

    def _learn(self, x: Any, reward: float, slot: int) -> None:
        if self._auto:
            self._settle(x, None)
        super()._learn(x, reward, slot)

    def _settle(self, arms: Any, ids: Any) -> None:
        """The first arms are here: the parts are chosen for good."""
        recurring = ids is not None
        tracker, width = self._decide(self.dim, sparse=bool(sp.issparse(arms)), recurring=recurring)
        sigmas = (2.0 if recurring else 1.0) if self._sigmas is None else self._sigmas
        Policy.__init__(self, tracker, width, sigmas=sigmas, **self._common)  # type: ignore[arg-type]
        self._auto = False

    @classmethod
    def load(cls, path: Any) -> LinUCB:
        policy = super().load(path)
        policy._auto, policy.reason = False, "given: loaded from a file"
        return policy
