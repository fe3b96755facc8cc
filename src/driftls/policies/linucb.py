"""LinUCB over any tracker and width."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls.draws import Draws, Seed
from driftls.errors import SettingsError
from driftls.kernels.judge import LOOK
from driftls.policies.base import Policy
from driftls.policies.ridge import FIRST_LOOK, can_adapt
from driftls.schedules import Power, as_schedule, from_header, ridge, to_header
from driftls.trackers import CD, RLS, SAGA, Tracker
from driftls.widths import DiagonalWidth, ExactWidth, PhiWidth, Width

# Up to this dimension d^2 is affordable, though the fast parts are faster: python -m benchmarks.bandits cost.
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
        Of a tracker that is chosen for you. By default `ridge(1)`, which is estimated from the data as they come where
        that is known to be safe: arms that are dense and do not recur, and kappa estimated too.
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
    'exact: with 3 dense features the exact method is affordable, and nothing is lost'
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
        if tracker is None and width is not None:
            raise SettingsError("width needs a tracker: LinUCB chooses both itself, or neither.")
        self._auto = tracker is None
        self._adaptive = tracker is None and regularisation is None and kappa is None
        self._regularisation = ridge(1.0) if regularisation is None else as_schedule(regularisation, "regularisation")
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
            self.reason = f"exact: with {dim} dense features the exact method is affordable, and nothing is lost"
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

    def _start(self, sparse: bool, recurring: bool) -> None:
        if self._auto:  # the first arms are here: the parts are chosen for good
            tracker, width = self._decide(self.dim, sparse=sparse, recurring=recurring)
            sigmas = (2.0 if recurring else 1.0) if self._sigmas is None else self._sigmas
            features, pending = self.features, self._pending
            Policy.__init__(self, tracker, width, sigmas=sigmas, **self._common)  # type: ignore[arg-type]
            self.features, self._pending, self._auto = features, pending, False
        super()._start(sparse, recurring)
        if self._adaptive and not sparse and not recurring and can_adapt(self.tracker, self._width):
            self._scalars[LOOK], self._watched = FIRST_LOOK, True

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        header, arrays = super().snapshot()
        header["reason"], header["auto"] = self.reason, None
        if self._auto:
            if not isinstance(self._regularisation, Power):
                raise SettingsError("regularisation is a function of n, which no file can hold before the first arms.")
            kept = {**self._common, "seed": self._seed_states()}
            header["auto"] = {"regularisation": to_header(self._regularisation), "sigmas": self._sigmas, "common": kept}
            header["auto"]["adaptive"] = self._adaptive
        return header, arrays

    def _seed_states(self) -> list[dict[str, Any]]:
        return [Draws(seed).header() for seed in self._seeds]

    def _restore(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        super()._restore(header, arrays)
        self.reason, self._auto, self._adaptive = header["reason"], header["auto"] is not None, False
        if self._auto:
            auto = header["auto"]
            self._adaptive = auto["adaptive"]
            self._regularisation, self._sigmas = from_header(auto["regularisation"]), auto["sigmas"]
            self._seeds = [_generator(state) for state in auto["common"]["seed"]]
            self._common = {**auto["common"], "seed": self._seeds[0]}


def _generator(state: dict[str, Any]) -> np.random.Generator:
    draws = Draws(0)
    draws.restore(state, np.empty(0))
    return draws.generator
