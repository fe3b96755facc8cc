"""Every width of ours passes the checks that a user's own must pass."""

from __future__ import annotations

import pytest

from driftls.policies import SharedPolicy
from driftls.testing import WIDTH_CHECKS
from driftls.trackers import CD, RAW, RLS, SAGA
from driftls.widths import KINDS, CentredWidth, DiagonalWidth, ExactWidth, NoWidth, PhiWidth, SampleWidth

DIM = 6
PAIRS = {
    "none": lambda: (CD(DIM, **RAW), NoWidth()),
    "exact of RLS": lambda: (RLS(DIM, **RAW), ExactWidth()),
    "exact of its own": lambda: (SAGA(DIM, seed=0, **RAW), ExactWidth()),
    "exact, discounted": lambda: (CD(DIM, discount=0.99, **RAW), ExactWidth()),
    "diagonal": lambda: (SAGA(DIM, seed=0, **RAW), DiagonalWidth()),
    "diagonal, discounted": lambda: (CD(DIM, discount=0.99, **RAW), DiagonalWidth()),
    "centred": lambda: (SAGA(DIM, seed=0, scale=False), CentredWidth()),
    "centred, of RLS": lambda: (RLS(DIM, scale=False), CentredWidth()),
    "centred, discounted": lambda: (CD(DIM, discount=0.99, scale=False), CentredWidth()),
    "phi": lambda: (SAGA(DIM, seed=0, **RAW), PhiWidth(4)),
    "sample": lambda: (RLS(DIM, **RAW), SampleWidth()),
}


@pytest.mark.parametrize("check", WIDTH_CHECKS)
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_every_width(pair, check):
    check(lambda: SharedPolicy(*pair(), kappa=1.0, seed=0))


def test_the_list_names_every_width_that_is_offered():
    ours = {kind for kind in KINDS.values() if kind.__module__ == "driftls.widths"}  # the guide adds one of its own
    assert {type(pair()[1]) for pair in PAIRS.values()} == ours


class Wrong(DiagonalWidth):
    """A width of a user that keeps a setting to itself."""

    def __init__(self, extra=1.0):
        self.extra = extra

    def __repr__(self):
        return f"Wrong({self.extra})"


def test_the_checks_notice():
    with pytest.raises(AssertionError):
        WIDTH_CHECKS[0](lambda: SharedPolicy(CD(DIM, **RAW), Wrong(2.0), kappa=1.0, seed=0))
