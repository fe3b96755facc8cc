"""What a log holds, in one pass and bounded memory, and whether its logging looks uniform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from driftls.logs.events import Block, Floats, Ints, Numbers
from driftls.logs.log import Log

__all__ = ["Summary", "Uniformity", "inspect"]

LEAST_EXPECTED = 5.0  # counts below are too small for the chi-square approximation


class Uniformity(msgspec.Struct, frozen=True):
    """A chi-square test of uniform logging; a small `p` speaks against it. None where too little was seen."""

    statistic: float | None
    degrees: float
    p: float | None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What `inspect` found. `clicks` is the sum of rewards; `constant_only` the share of users with index 0 alone."""

    format: str
    lines: int
    events: int
    broken: int
    dropped_lines: int
    dropped_candidates: int
    examples: list[str]
    clicks: float
    ctr: float
    arms: int
    first_time: int
    last_time: int
    pool_min: int
    pool_mean: float
    pool_max: int
    pool_harmonic_mean: float
    user_dim: int
    user_nonzeros: float
    constant_only: float
    arm_features: int
    propensity: bool
    truth: bool
    uniform_positions: Uniformity
    uniform_arms: Uniformity


def inspect(log: Log, *, progress: Callable[[int], None] | None = None) -> Summary:
    """Read a log once and say what it holds.

    Under uniform logging each of K candidates is shown with probability 1/K. For every position, and for every arm, the
    times that it was shown are compared with what its exposures let expect, the sum of 1/K over the lines that had it.
    The degrees of freedom are the statistic's exact mean, which for one pool is K - 1.

    Parameters
    ----------
    log : Log
        Read it with ``on_error="skip"`` to have broken lines counted.
    progress : function of the number of lines read, optional

    Examples
    --------
    >>> from driftls.logs import inspect, read, synthetic_day
    >>> summary = inspect(read(synthetic_day(lines=2000, seed=1)))
    >>> summary.lines, summary.user_dim, summary.propensity
    (2000, 136, False)
    >>> 26 <= summary.pool_min <= summary.pool_harmonic_mean <= summary.pool_mean <= summary.pool_max <= 45
    True
    """
    seen = _Seen()
    for block in log.blocks():
        seen.add(block)
        if progress is not None:
            progress(seen.events)
    counts, n = log.counts, max(seen.events, 1)
    return Summary(
        format=log.format,
        lines=counts.lines,
        events=counts.events,
        broken=counts.skipped,
        dropped_lines=counts.dropped_lines,
        dropped_candidates=counts.dropped_candidates,
        examples=counts.examples,
        clicks=seen.clicks,
        ctr=seen.clicks / n,
        arms=len(seen.numbers.of),
        first_time=seen.first,
        last_time=seen.last,
        pool_min=seen.pool_min,
        pool_mean=seen.candidates / n,
        pool_max=seen.pool_max,
        pool_harmonic_mean=n / seen.inverse if seen.inverse else 0.0,
        user_dim=seen.user_dim,
        user_nonzeros=seen.nonzeros / n,
        constant_only=seen.constant_only / n,
        arm_features=seen.arm_features,
        propensity=seen.propensity,
        truth=seen.truth,
        uniform_positions=seen.positions.test(),
        uniform_arms=seen.arms.test(),
    )


class _Cells:
    """How often each of some cells was shown, and the sums of 1/K and 1/K^2 over the lines that offered it"""

    def __init__(self) -> None:
        self.shown, self.expected, self.squares = np.zeros(0), np.zeros(0), np.zeros(0)

    def add(self, offered: Ints, lines: Ints, size: Ints, shown: NDArray[Any]) -> None:
        """`lines` lines offered the cell `offered` in a pool of `size`, entry by entry; then the cells shown"""
        room = max(len(self.shown), 1 + int(offered.max(initial=-1)))
        share = 1.0 / size
        self.shown = _padded(self.shown, room) + np.bincount(shown, minlength=room)
        self.expected = _padded(self.expected, room) + np.bincount(offered, lines * share, room)
        self.squares = _padded(self.squares, room) + np.bincount(offered, lines * share**2, room)

    def test(self) -> Uniformity:
        from scipy.stats import chi2

        enough = self.expected >= LEAST_EXPECTED
        shown, expected, squares = self.shown[enough], self.expected[enough], self.squares[enough]
        # A cell's count has variance sum (1/K)(1 - 1/K): these are the means of the statistic's terms.
        degrees = float(np.sum(1.0 - squares / expected))
        if degrees <= 0:
            return Uniformity(None, 0.0, None)
        statistic = float(np.sum((shown - expected) ** 2 / expected))
        return Uniformity(statistic, degrees, float(chi2.sf(statistic, degrees)))


class _Seen:
    """Running totals"""

    def __init__(self) -> None:
        self.events = self.candidates = self.nonzeros = self.constant_only = 0
        self.user_dim = self.arm_features = self.pool_min = self.pool_max = 0
        self.first = self.last = 0
        self.clicks = self.inverse = 0.0
        self.propensity = self.truth = False
        self.numbers, self.positions, self.arms = Numbers(), _Cells(), _Cells()

    def add(self, block: Block) -> None:
        size = np.diff(block.pool_start)
        of_line, users = size[block.pool], np.diff(block.user_start)
        first = block.user_index[block.user_start[:-1][users > 0]]
        earlier = self.events > 0
        self.first = min(self.first, int(block.time.min())) if earlier else int(block.time.min())
        self.last = max(self.last, int(block.time.max())) if earlier else int(block.time.max())
        self.pool_min = min(self.pool_min, int(of_line.min())) if earlier else int(of_line.min())
        self.pool_max = max(self.pool_max, int(of_line.max()))
        self.events += len(block)
        self.clicks += float(block.reward.sum())
        self.candidates += int(of_line.sum())
        self.inverse += float(np.sum(1.0 / of_line))
        self.nonzeros += len(block.user_index)
        self.user_dim = max(self.user_dim, 1 + int(block.user_index.max(initial=-1)))
        self.constant_only += int(np.sum(first[users[users > 0] == 1] == 0))
        self.arm_features = 0 if block.arm_features is None else block.arm_features.shape[1]
        self.propensity, self.truth = block.propensity is not None, block.truth is not None

        lines = np.bincount(block.pool, minlength=len(size))
        pool = np.repeat(np.arange(len(size)), size)
        position = np.arange(len(pool)) - block.pool_start[pool]
        self.positions.add(position, lines[pool], size[pool], block.shown)
        arm = self.numbers(block.pool_ids)
        self.arms.add(arm, lines[pool], size[pool], arm[block.pool_start[block.pool] + block.shown])


def _padded(values: Floats, length: int) -> Floats:
    return np.concatenate([values, np.zeros(length - len(values))])
