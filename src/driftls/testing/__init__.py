"""Checks for trackers, widths and policies of your own: name it once, and what is its own is tested.

Each list holds functions that take a maker, a function without arguments that builds a new object, and raise
`AssertionError` where it does not do what every other one does. What is made twice must be alike: give it a seed.
A width is tested in a policy that has it.

>>> from driftls.policies import LinUCB
>>> from driftls.testing import POLICY_CHECKS, TRACKER_CHECKS
>>> from driftls.trackers import RLS
>>> for check in TRACKER_CHECKS:
...     check(lambda: RLS(dim=4))
>>> for check in POLICY_CHECKS:
...     check(lambda: LinUCB(dim=4, seed=0))

With pytest: ``@pytest.mark.parametrize("check", TRACKER_CHECKS)``.
"""

from driftls.testing.policies import POLICY_CHECKS, WIDTH_CHECKS
from driftls.testing.trackers import TRACKER_CHECKS

__all__ = ["POLICY_CHECKS", "TRACKER_CHECKS", "WIDTH_CHECKS"]
