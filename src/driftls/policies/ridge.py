"""lambda from the data: the ridge under which the rewards seen so far are most likely.

If theta's coordinates were drawn from N(0, sigma^2/lambda), the likeliest lambda would be gamma sigma^2/|theta|^2, with
gamma = sum_j a_j/(lambda + a_j) the number of directions that the data have settled (a_j the eigenvalues of A). The
estimate moves half-way there, on a logarithmic scale, each time that n has grown by a tenth.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from driftls.kernels import exact
from driftls.kernels.exact import ExactState
from driftls.kernels.widths import D_RIDGE, D_SCALE, DiagonalWidthState
from driftls.schedules import Power
from driftls.trackers import RLS, SAGA, Tracker
from driftls.widths import keep_spread

FIRST_LOOK = 64
GROWTH = 1.1
SMALLEST, LARGEST = 0.01, 1000.0


def can_adapt(tracker: Tracker, width: Any) -> bool:
    """Whether the rule is known to be safe: one model, all rows kept alike, gamma at hand."""
    if isinstance(tracker, RLS):
        return isinstance(width, ExactState) and tracker.discount == 1.0 and tracker.route != "cholesky"
    return isinstance(tracker, SAGA) and isinstance(width, DiagonalWidthState)


def next_look(n: float) -> float:
    """At how many rewards lambda is looked at again."""
    return float(max(FIRST_LOOK, math.ceil(GROWTH * n)))


def settled(tracker: Tracker, width: Any, lam: float) -> float:
    """gamma: exactly from the inverse, or as if A were diagonal."""
    if isinstance(width, ExactState):
        return float(tracker.dim - lam * np.trace(width.inverse))
    squares = width.scalars[D_SCALE] * width.coords[0]
    return float((squares / (lam + squares)).sum())


def better_ridge(tracker: Tracker, width: Any, sigma2: float) -> float:
    """The next lambda: half-way to the likeliest one."""
    lam = ridge_of(tracker)
    gamma, theta = max(settled(tracker, width, lam), 0.0), tracker.theta
    likeliest = (gamma + 1.0) / (float(theta @ theta) / sigma2 + 1.0)
    return math.sqrt(lam * min(max(likeliest, SMALLEST), LARGEST))


def ridge_of(tracker: Tracker) -> float:
    """n lambda_n."""
    assert isinstance(tracker.regularisation, Power)
    return float(tracker.regularisation.scale)


def set_ridge(tracker: Tracker, width: Any, lam: float) -> None:
    """From now on the total ridge is `lam`, in the tracker and in the width."""
    tracker._set_ridge(lam)
    if isinstance(width, DiagonalWidthState):
        width.scalars[D_RIDGE] = lam
        keep_spread(width)
    else:
        width.scalars[exact.RIDGE] = lam
        exact.invert(width)
