"""What a log holds, in one pass and bounded memory, and how its candidates were shown."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from driftls.logs.events import Block
from driftls.logs.log import Log
from driftls.logs.shown import Logging, Showing

__all__ = ["Summary", "inspect"]


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
    logging: Logging


def inspect(log: Log, *, progress: Callable[[int], None] | None = None) -> Summary:
    """Read a log once and say what it holds.

    Under uniform logging each of K candidates is shown with probability 1/K. For every position, and for every arm, the
    times that it was shown are compared with what its exposures let expect, the sum of 1/K over the lines that had it.
    The degrees of freedom are the statistic's exact mean, which for one pool is K - 1. Where the log has propensities,
    the sum of 1/p over the lines that show an arm is compared with the number of lines that offer it.

    Parameters
    ----------
    log : Log
        Read it with ``on_error="skip"`` to have broken lines counted.
    progress : function of the number of lines read, optional

    Examples
    --------
    >>> from driftls.logs import inspect, read, synthetic_day
    >>> summary = inspect(read(synthetic_day(lines=2000, seed=1)))
    >>> summary.lines, summary.user_dim, summary.logging.kind
    (2000, 136, 'uniform')
    >>> 26 <= summary.pool_min <= summary.pool_harmonic_mean <= summary.pool_mean <= summary.pool_max <= 45
    True
    """
    seen, showing = _Seen(), Showing()
    for block in log.blocks():
        seen.add(block)
        showing.add(block)
        if progress is not None:
            progress(showing.lines)
    counts, n = log.counts, max(showing.lines, 1)
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
        arms=len(showing.numbers.of),
        first_time=min(seen.times, default=0),
        last_time=max(seen.times, default=0),
        pool_min=min(seen.sizes, default=0),
        pool_mean=seen.candidates / n,
        pool_max=max(seen.sizes, default=0),
        pool_harmonic_mean=n / seen.inverse if seen.inverse else 0.0,
        user_dim=seen.user_dim,
        user_nonzeros=seen.nonzeros / n,
        constant_only=seen.constant_only / n,
        arm_features=seen.arm_features,
        propensity=seen.propensity,
        truth=seen.truth,
        logging=showing.logging(),
    )


class _Seen:
    """Running totals; of times and sizes of pools, the least and the largest"""

    def __init__(self) -> None:
        self.candidates = self.nonzeros = self.constant_only = self.user_dim = self.arm_features = 0
        self.clicks = self.inverse = 0.0
        self.propensity = self.truth = False
        self.times: list[int] = []
        self.sizes: list[int] = []

    def add(self, block: Block) -> None:
        sizes, users = np.diff(block.pool_start)[block.pool], np.diff(block.user_start)
        first = block.user_index[block.user_start[:-1][users > 0]]
        for ends, values in ((self.times, block.time), (self.sizes, sizes)):
            ends[:] = min([*ends, int(values.min())]), max([*ends, int(values.max())])
        self.clicks += float(block.reward.sum())
        self.candidates += int(sizes.sum())
        self.inverse += float(np.sum(1.0 / sizes))
        self.nonzeros += len(block.user_index)
        self.user_dim = max(self.user_dim, 1 + int(block.user_index.max(initial=-1)))
        self.constant_only += int(np.sum(first[users[users > 0] == 1] == 0))
        self.arm_features = 0 if block.arm_features is None else block.arm_features.shape[1]
        self.propensity, self.truth = block.propensity is not None, block.truth is not None
