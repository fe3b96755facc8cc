"""The ridge from the data: the strength of the prior under which the rewards seen so far are most likely.

If coefficients were drawn from N(0, sigma^2/lambda) and intercepts from N(mean reward, sigma^2/lambda0), the likeliest
strengths would be those that solve (MacKay's evidence rule, pooled over models)

    lambda = (gamma + 1)/(sum theta_j^2/sigma^2 + 1/first),    gamma = sum_j (1 - lambda M_jj)

with M = (A + prior)^-1, gamma the effective degrees of freedom, and the "+ 1" an anchor: one imaginary observation of
the first guess, without which lambda0 runs away on clicks and exploration stops. lambda0 likewise, for the intercepts.

With one model an arm, features that matter are told from those that do not: feature j has lambda/w_j^2 for a ridge,

    w_j^2 = (lambda sum w_j^2 theta_j^2/sigma^2 + a)/(sum (1 - lambda M_jj) + a),

the same rule feature by feature over K models, where a = K/2 is an anchor at the ridge of all: half an imaginary observation
an arm. w_j goes into the feature's unit, so that in what is learned all features still have the ridge lambda.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftls.state import product
from driftls.trackers import RLS, Tracker
from driftls.units import Units
from driftls.width_base import Width

Models = Sequence[tuple[Tracker, Width]]

FASTEST = 8.0  # a look changes a strength by this factor at most
ENOUGH = 0.4  # of the logarithm: a smaller change is not worth rewriting what was learned
SMALL = 0.1  # the same of a squared weight: units that move by 5% are rewritten
ANCHOR = 0.5  # imaginary observations an arm of the ridge of all: fewer cost clicks, where no feature stands out


class Strength(NamedTuple):
    """lambda and lambda0: of the coefficients, and of the intercept."""

    ridge: float
    intercept: float = 1.0

    @property
    def constant(self) -> float:
        """The value of the intercept's feature that gives it its own ridge, where all features have the other one."""
        return float(np.sqrt(self.ridge / self.intercept))


def can_adapt(tracker: Tracker, width: Width) -> bool:
    """Whether the effective degrees of freedom are at hand, and the ridge stays: with a discount, that of RLS fades."""
    if not (tracker.scale and isinstance(tracker, width.adapts_over)):
        return False
    if not isinstance(tracker, RLS):
        return True
    return tracker.discount == 1.0 and tracker.method != "inverse" and "dim" in tracker.shapes["inverse"]


def freedoms_of(models: Models) -> list[NDArray[np.float64]]:
    """1 - ridge M_jj of each model, by the features that were seen."""
    return [tracker.freedoms() for tracker, _ in models]  # type: ignore[attr-defined]


def likeliest(
    models: Models, freedoms: list[NDArray[np.float64]], now: Strength, first: Strength, sigma2: float, *, both: bool
) -> Strength:
    """The next strengths; `both`: the intercept's too."""
    gamma = gamma0 = size = size0 = 0.0
    for (tracker, width), free in zip(models, freedoms):
        assert tracker.units is not None
        theta, features = tracker.coefficients(tracker.units.learned), slice(0, -1 if tracker.intercept else None)
        gamma += float(np.clip(free.sum(), 0.0, free.size))
        size += product(theta[features], theta[features])
        if both and tracker.intercept:
            exact = isinstance(tracker, RLS)
            variance = tracker.inverse_entry(tracker.dim) if exact else width.variances()[-1]  # type: ignore[attr-defined]
            gamma0 += float(np.clip(1.0 - now.ridge * variance, 0.0, 1.0))
            size0 += float((now.constant * theta[-1]) ** 2)
    ridge = (gamma + 1.0) / (size / sigma2 + 1.0 / first.ridge)
    intercept = (gamma0 + 1.0) / (size0 / sigma2 + 1.0 / first.intercept) if both else now.intercept
    return Strength(
        float(np.clip(ridge, now.ridge / FASTEST, now.ridge * FASTEST)),
        float(np.clip(intercept, now.intercept / FASTEST, now.intercept * FASTEST)),
    )


def next_strength(
    models: Models, freedoms: list[NDArray[np.float64]], now: Strength, first: Strength, sigma2: float, *, both: bool
) -> Strength:
    """The likeliest strengths, or the present ones where the difference does not matter."""
    new = likeliest(models, freedoms, now, first, sigma2, both=both)
    return new if any(abs(np.log(x / y)) > ENOUGH for x, y in zip(new, now)) else now


def next_weights(
    models: Models, freedoms: list[NDArray[np.float64]], arms: int, units: Units, ridge: float, sigma2: float
) -> NDArray[np.float64] | None:
    """The likeliest weights of the features that were seen, from those models of so many that have learned something; None
    where it makes no difference.
    """
    known = units.known
    anchor, now = ANCHOR * arms, np.square(units.arrays["weight"][known])
    free = np.clip(np.sum(freedoms, axis=0), 0.0, len(models))  # probed ones may be off
    size = sum(np.square(tracker.coefficients(units.learned)[: free.size]) for tracker, _ in models)
    new = (now * ridge * size / sigma2 + anchor) / (free + anchor)
    new = np.clip(new, now / FASTEST, now * FASTEST)
    if not (abs(np.log(new / now)) > SMALL).any():
        return None
    return np.asarray(np.sqrt(new).astype(np.float32), np.float64)  # what rounding has left of sums decides nothing
