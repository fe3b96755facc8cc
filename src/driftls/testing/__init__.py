"""Checks for trackers of your own: name it once, and it is tested as ours are.

Each list holds functions that take a maker, a function without arguments that builds a new object, and raise
`AssertionError` where it does not do what every other one does.

>>> from driftls.testing import TRACKER_CHECKS
>>> from driftls.trackers import RLS
>>> for check in TRACKER_CHECKS:
...     check(lambda: RLS(dim=4))

With pytest: ``@pytest.mark.parametrize("check", TRACKER_CHECKS)``.
"""

from driftls.testing.trackers import TRACKER_CHECKS

__all__ = ["TRACKER_CHECKS"]
