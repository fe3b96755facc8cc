"""What a log holds, in one pass and bounded memory, and how its candidates were shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from driftls.errors import InputError
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
    if not isinstance(log, Log):
        raise InputError(f"expected a log, got {type(log).__name__}. Pass read(path), or read(events).")
    showing, last = Showing(), None
    seen: dict[str, Any] = {"format": log.format, "clicks": 0.0, "user_dim": 0, "first_time": 0, "last_time": 0}
    seen |= {"pool_min": 0, "pool_max": 0}
    candidates = inverse = nonzeros = constants = 0.0
    for block in log.blocks():
        sizes, users = np.diff(block.pool_start)[block.pool], np.diff(block.user_start)
        first = block.user_index[block.user_start[:-1][users > 0]]
        for low, high, values in (("first_time", "last_time", block.time), ("pool_min", "pool_max", sizes)):
            seen[low] = int(values.min()) if last is None else min(seen[low], int(values.min()))
            seen[high] = int(values.max()) if last is None else max(seen[high], int(values.max()))
        seen["clicks"] += float(block.reward.sum())
        seen["user_dim"] = max(seen["user_dim"], 1 + int(block.user_index.max(initial=-1)))
        candidates += int(sizes.sum())
        inverse += float(np.sum(1.0 / sizes))
        nonzeros += len(block.user_index)
        constants += int(np.sum(first[users[users > 0] == 1] == 0))
        showing.add(block)
        last = block
        if progress is not None:
            progress(showing.lines)
    counts, n = log.counts, max(showing.lines, 1)
    return Summary(
        **seen,
        lines=counts.lines,
        events=counts.events,
        broken=counts.skipped,
        dropped_lines=counts.dropped_lines,
        dropped_candidates=counts.dropped_candidates,
        examples=counts.examples,
        ctr=seen["clicks"] / n,
        arms=len(showing.numbers.of),
        pool_mean=candidates / n,
        pool_harmonic_mean=n / inverse if inverse else 0.0,
        user_nonzeros=nonzeros / n,
        constant_only=constants / n,
        arm_features=0 if last is None or last.arm_features is None else last.arm_features.shape[1],
        propensity=last is not None and last.propensity is not None,
        truth=last is not None and last.truth is not None,
        logging=showing.logging(),
    )
