"""LinUCB over any tracker and width."""

from __future__ import annotations

from typing import Any

from driftls.draws import Seed, generator_of
from driftls.errors import SettingsError
from driftls.features import FeatureMap
from driftls.policies.arms import OPEN_END, first_dim
from driftls.policies.files import seeds_header, seeds_of
from driftls.policies.shared import SharedPolicy
from driftls.schedules import Power, as_schedule, from_header, ridge, to_header
from driftls.trackers import RAW, RLS, SAGA, Tracker
from driftls.trackers.settings import whole_number
from driftls.widths import DiagonalWidth, ExactWidth, PhiWidth, Width

# Up to so many features the exact method is affordable: for any arms; for arms that recur, most of whose widths need not
# be found anew; for these in raw units, since a look costs d^3.
EXACT_UP_TO, RECURRING_UP_TO, RAW_UP_TO = 200, 1_000, 5_000


class LinUCB(SharedPolicy):
    """Chooses argmax theta.x + kappa width(x).

    Parameters
    ----------
    dim : int, optional
        Number of features, where tracker and width are chosen for you: `reason` says what and why. The choice is
        made at the first arms: from their number of features, whether they are sparse, and whether they have ids.
        Not needed where `features` tell. The constant that each block of `CrossedArms` gets does not count.
    tracker, width : optional
        Any of `driftls.trackers` and `driftls.widths`. One that is chosen for you keeps 100,000 rows at most.
    regularisation : schedule
        Of a tracker that is chosen for you. By default `ridge(1)` at first, and then found from the data, as kappa is:
        over `RLS`, and over `SAGA` with diagonal widths.
    kappa : float, optional
        Weight of the width. By default estimated: `sigmas` standard deviations of the noise.
    sigmas : float, optional
        2 with parts that are chosen for you, else 1.
    epsilon, forget_after, seed, features
        As for `SharedPolicy`: with `features=Features()`, users and items are dicts.

    Examples
    --------
    >>> import numpy as np
    >>> policy = LinUCB(dim=3, seed=0)
    >>> k = policy.choose(np.eye(3))
    >>> policy.learn(np.eye(3), 1.0, arm=k)
    >>> policy.reason
    'exact: with 3 dense features the exact method is affordable, and nothing is lost; from 1 rewards: ridge 1, noise 0'

    >>> from driftls.features import Features
    >>> policy = LinUCB(features=Features(cross="all"), seed=0)
    >>> user, items = {"age": 31, "city": "Oslo"}, [{"colour": "red"}, {"colour": "blue"}]
    >>> k = policy.choose(user, items)
    >>> policy.learn(user, 1.0, items=items, arm=k)
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
        features: FeatureMap | None = None,
    ) -> None:
        if dim is None and tracker is None and features is not None:
            dim = first_dim(features)
        if (dim is None) == (tracker is None):
            raise SettingsError("LinUCB needs dim or features, and chooses its parts itself, or a tracker.")
        if tracker is not None and regularisation is not None:
            raise SettingsError("regularisation is a setting of the tracker: give it to the tracker.")
        if tracker is None and width is not None:
            raise SettingsError("width needs a tracker: LinUCB chooses both itself, or neither.")
        self._auto = tracker is None
        self._adaptive = tracker is None and regularisation is None and kappa is None
        self._regularisation = ridge(1.0) if regularisation is None else as_schedule(regularisation, "regularisation")
        own, self._seed = generator_of(seed).spawn(2)
        if tracker is None:
            tracker, width = self._parts(whole_number(dim, "dim", 1), sparse=False, recurring=False)
            if features is not None and features.grows:
                self._reason = f"for {OPEN_END}: the first arms will tell which method suits them"
        elif width is None:
            width = ExactWidth() if isinstance(tracker, RLS) else DiagonalWidth()
        sigmas = (2.0 if self._auto else 1.0) if sigmas is None else sigmas
        weights: dict[str, Any] = {"kappa": kappa, "sigmas": sigmas, "epsilon": epsilon}
        super().__init__(tracker, width, forget_after=forget_after, seed=own, features=features, **weights)

    def _parts(self, dim: int, *, sparse: bool, recurring: bool, grows: bool = False) -> tuple[Tracker, Width]:
        lam, seed = self._regularisation, self._seed
        if dim <= EXACT_UP_TO and not sparse:
            self._reason = f"exact: with {dim} dense features the exact method is affordable, and nothing is lost"
            return RLS(dim, regularisation=lam), ExactWidth()
        if recurring and not sparse and dim <= RAW_UP_TO:
            units = "" if dim <= RECURRING_UP_TO else ", in raw units"
            self._reason = f"exact: {dim} dense features and arms that recur{units}: few widths have to be found anew"
            return RLS(dim, regularisation=lam, **(RAW if units else {})), ExactWidth()
        if recurring and not sparse:
            self._reason = f"fast: {dim} features, too many for a {dim} x {dim} matrix: SAGA, with one phi for each arm"
            return SAGA(dim, regularisation=lam, seed=seed, **RAW), PhiWidth()
        what = OPEN_END if grows else f"{dim} {'sparse' if sparse else 'dense'} features"
        self._reason = f"fast: {what}, and arms that change: SAGA, with diagonal widths"
        return SAGA(dim, regularisation=lam, seed=seed), DiagonalWidth()

    def _decide(self, sparse: bool, recurring: bool, crossed: bool) -> bool:
        if not self._auto:
            return sparse
        exact = crossed and self.dim <= EXACT_UP_TO
        grows = self.features is not None and self.features.grows
        tracker, width = self._parts(self.dim, sparse=sparse and not exact, recurring=recurring, grows=grows)
        self._gives_constants = True
        tracker.lock = self.lock  # which other threads may be waiting for
        self.tracker, self._auto = tracker, False
        self._models.grow(self.dim, width)
        if self._adaptive:
            self._models.adapt(tracker, float(self._regularisation(1)))  # type: ignore[operator]
        return sparse

    # -- files ---------------------------------------------------------------------------------------------------

    def _snapshot_models(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        super()._snapshot_models(header, arrays)
        header["reason"], header["auto"] = self._reason, None
        if self._auto:
            if not isinstance(self._regularisation, Power):
                raise SettingsError("regularisation is a function of n, which no file can hold before the first arms.")
            header["auto"] = {
                "regularisation": to_header(self._regularisation),
                "adaptive": self._adaptive,
                "seed": seeds_header(self._seed),
            }

    def _restore(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        self._reason, auto = str(header["reason"]), header["auto"]
        self._auto = auto is not None
        if auto is not None:
            self._adaptive, self._seed = bool(auto["adaptive"]), seeds_of(auto["seed"])
            self._regularisation = from_header(auto["regularisation"])
        super()._restore(header, arrays)
