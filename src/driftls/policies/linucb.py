"""LinUCB over any tracker and width."""

from __future__ import annotations

from typing import Any

from driftls.draws import Seed, generator_of
from driftls.errors import SettingsError
from driftls.features import FeatureMap
from driftls.inputs import as_whole
from driftls.policies.arms import OPEN, OPEN_END, first_dim
from driftls.policies.shared import SharedPolicy
from driftls.trackers import RAW, RLS, SAGA, Tracker
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
        own, self._seeds = generator_of(seed).spawn(2)
        if tracker is None:
            dim = as_whole(dim, "dim", 1)
            self._reason, asked = OPEN, {"regularisation": regularisation}
            # until the first arms; its seed is never used, but the same seed has to make the same policy
            tracker = RLS(dim, **asked) if dim <= EXACT_UP_TO else SAGA(dim, **asked, seed=0)
        if width is None:
            width = ExactWidth() if isinstance(tracker, RLS) else DiagonalWidth()
        sigmas = (2.0 if self._auto else 1.0) if sigmas is None else sigmas
        weights: dict[str, Any] = {"kappa": kappa, "sigmas": sigmas, "epsilon": epsilon}
        super().__init__(tracker, width, forget_after=forget_after, seed=own, features=features, **weights)
        if self._auto and regularisation is None and kappa is None:
            self._models.adapt(tracker, 1.0)

    def _parts(self, sparse: bool, arms: int, recurring: bool, user: int) -> tuple[Tracker, Width, str]:
        dim, lam, seed = self.dim, self.tracker.regularisation, self._seeds
        self._gives_constants = True
        if dim <= EXACT_UP_TO and (user or not sparse):
            reason = f"exact: with {dim} dense features the exact method is affordable, and nothing is lost"
            return RLS(dim, regularisation=lam), ExactWidth(), reason
        if recurring and not sparse and dim <= RAW_UP_TO:
            units = "" if dim <= RECURRING_UP_TO else ", in raw units"
            reason = f"exact: {dim} dense features and arms that recur{units}: few widths have to be found anew"
            return RLS(dim, regularisation=lam, **(RAW if units else {})), ExactWidth(), reason
        if recurring and not sparse:
            reason = f"fast: {dim} features, too many for a {dim} x {dim} matrix: SAGA, with one phi for each arm"
            return SAGA(dim, regularisation=lam, seed=seed, **RAW), PhiWidth(), reason
        grows = self.features is not None and self.features.grows
        what = OPEN_END if grows else f"{dim} {'sparse' if sparse else 'dense'} features"
        reason = f"fast: {what}, and arms that change: SAGA, with diagonal widths"
        return SAGA(dim, regularisation=lam, seed=seed), DiagonalWidth(), reason
