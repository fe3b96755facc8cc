"""lambda from the data: the ridge under which the rewards seen so far are most likely (empirical Bayes).

If theta's coordinates were drawn from N(0, sigma^2/lambda), the likeliest lambda would be gamma sigma^2/|theta|^2, with
gamma = sum_j a_j/(lambda + a_j) the effective degrees of freedom (a_j the eigenvalues of A). The estimate moves
half-way there, on a logarithmic scale, each time that n has grown by a tenth.
"""

from __future__ import annotations

import math

import numpy as np

from driftls.policies.policy import Model
from driftls.schedules import Power, ridge
from driftls.trackers import RLS, SAGA, Tracker
from driftls.widths import DiagonalWidth, ExactWidth, Width

FIRST_LOOK = 64
GROWTH = 1.1
SMALLEST, LARGEST = 0.01, 1000.0


def can_adapt(tracker: Tracker, width: Width) -> bool:
    """Whether the rule is known to be safe: one model, all rows kept alike, gamma at hand."""
    if isinstance(tracker, RLS):
        return isinstance(width, ExactWidth) and tracker.discount == 1.0 and tracker.route != "cholesky"
    return isinstance(tracker, SAGA) and isinstance(width, DiagonalWidth)


def next_look(n: float) -> float:
    """At how many rewards lambda is looked at again."""
    return float(max(FIRST_LOOK, math.ceil(GROWTH * n)))


def degrees_of_freedom(model: Model, lam: float) -> float:
    """gamma: exactly from the inverse, or as if A were diagonal."""
    if isinstance(model.tracker, RLS):
        return float(model.tracker.dim - lam * np.trace(model.tracker.inverse()))
    squares = model.width.frame["scale"] * model.width.arrays["squares"]
    return float((squares / (lam + squares)).sum())


def look(model: Model, sigma2: float) -> None:
    """Move lambda half-way to the likeliest one, in the tracker and in the width."""
    schedule = model.tracker.regularisation
    assert isinstance(schedule, Power)
    lam, theta = float(schedule.scale), model.tracker.theta
    gamma = max(degrees_of_freedom(model, lam), 0.0)
    likeliest = (gamma + 1.0) / (float(theta @ theta) / sigma2 + 1.0)
    new = math.sqrt(lam * min(max(likeliest, SMALLEST), LARGEST))
    model.tracker.set_ridge(ridge(new))
    model.width.set_ridge(new)
