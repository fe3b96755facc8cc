"""Which settings are given up early.

Successive halving over tuning units (seeds, or days of a log): a rung gives all settings that are left the same first
units; the best `keep` of them, by the mean of the first metric, go on. A setting that fails counts as the worst, and of
equals the one that was listed first is better. A rung is cut when all of its runs are there, so the order in which they
finish does not matter; runs of earlier rungs are used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

__all__ = ["best", "most_runs", "rungs"]

ROUNDING = 1e-9  # 0.1**-2 is a little more than 100


def rungs(settings: int, keep: float, units: int) -> list[tuple[int, int]]:
    """How many settings meet the first how many units, rung after rung: at least two, and in the last one all units.

    >>> rungs(8, 0.5, 4)
    [(8, 1), (4, 2), (2, 4)]
    >>> rungs(8, 1.0, 4)
    [(8, 4)]
    """
    left = [settings]
    while 2 <= (after := ceil(left[-1] * keep - ROUNDING)) < left[-1] and units * keep ** len(left) >= 1.0 - ROUNDING:
        left.append(after)
    return [(count, ceil(units * keep**cuts - ROUNDING)) for cuts, count in zip(reversed(range(len(left))), left)]


def most_runs(settings: int, keep: float, *, tune: int, report: int) -> int:
    """Runs of a policy on one problem: tuning where there is a choice, then reporting the setting that was found."""
    if settings == 1:
        return report
    plan = rungs(settings, keep, tune)
    before = [0, *(units for _, units in plan)]
    return report + sum(left * (units - done) for (left, units), done in zip(plan, before))


def best(scores: Sequence[float], count: int, *, larger: bool) -> list[int]:
    """Positions of the best `count`, in their order of listing; a NaN is worse than anything.

    >>> best([3.0, 1.0, float("nan"), 1.0], 2, larger=False)
    [1, 3]
    """
    worth = np.asarray(scores) if larger else -np.asarray(scores)
    order = np.argsort(-np.where(np.isnan(worth), -np.inf, worth), kind="stable")
    return sorted(int(place) for place in order[:count])
