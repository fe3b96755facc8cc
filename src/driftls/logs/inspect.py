"""What a log holds, in one pass and bounded memory, and how its candidates were shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import chain
from numbers import Number
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from driftls.errors import InputError
from driftls.logs.columns import Ints
from driftls.logs.events import Block, Numbers
from driftls.logs.log import Counts, Log

__all__ = ["Column", "Logging", "Showing", "Summary", "Uniformity", "inspect"]

LEAST_EXPECTED = 5.0  # counts below are too small for the chi-square approximation
LEAST_SHOWN = 30  # times that an arm was shown, below which 1/p is not summed up to a normal variable
DOUBT = 1e-3  # p-values below speak against what is claimed
MOST_SHOWN = 10  # arms that are listed
MOST_VALUES = 10_000  # of a column that are told apart
ABSENT = ("NAType", "NaTType")  # what pandas has beside None and NaN


class Uniformity(msgspec.Struct, frozen=True):
    """A test; a small `p` speaks against it."""

    statistic: float
    degrees: float
    p: float


class Logging(msgspec.Struct, frozen=True):
    """How the log's policy showed candidates, as far as the log tells.

    `kind` is "uniform"; "propensities", not uniform but known; "skewed", not uniform and not known; or "unknown", for
    too few lines. `reason` says why in words, `doubt` (or nothing) what speaks against the log's own propensities.
    `propensity_fit` compares the largest standardised sum of 1/p - 1 of an arm with that of so many normal variables.
    A test is None where too little was seen.
    """

    kind: str
    reason: str
    doubt: str
    uniform_positions: Uniformity | None
    uniform_arms: Uniformity | None
    propensity_fit: Uniformity | None
    smallest_propensity: float | None


class Column(msgspec.Struct, frozen=True):
    """A column of a table's visitors: "number", "text", both or others; how many distinct values, of at most 10,000."""

    kind: str
    distinct: int
    missing: int


class _Columns:
    """The columns of visitors, block by block; what is no text and no number is told apart by its text."""

    def __init__(self) -> None:
        self.kinds, self.values = dict[Any, set[str]](), dict[Any, set[Any]]()
        self.present, self.lines = Counter[Any](), 0

    def add(self, visitors: Any) -> None:
        """Count the visitors of a block."""
        self.lines += len(visitors)
        for name in dict.fromkeys(chain.from_iterable(visitors)):
            kinds, seen = self.kinds.setdefault(name, set()), self.values.setdefault(name, set())
            for value in (visitor.get(name) for visitor in visitors):
                if value is None or (isinstance(value, Number) and value != value) or type(value).__name__ in ABSENT:
                    continue
                kind = (
                    "text" if isinstance(value, str) else "number" if isinstance(value, Number | np.bool_) else "other"
                )
                kinds.add(kind)
                self.present[name] += 1
                if len(seen) < MOST_VALUES:
                    seen.add(str(value) if kind == "other" else value)

    def told(self) -> dict[str, Column]:
        """What was found of each column, by its name."""
        return {
            str(name): Column(
                " and ".join(sorted(kinds)) or "empty", len(self.values[name]), self.lines - self.present[name]
            )
            for name, kinds in self.kinds.items()
        }


class Showing:
    """What was shown, counted block by block."""

    def __init__(self) -> None:
        self.numbers, self.positions, self.arms = Numbers(), _Cells(), _Cells()
        self.lines = self.with_propensity = 0
        self.smallest, self.off = np.inf, 0.0  # the smallest propensity; the largest |p K - 1|

    def add(self, block: Block) -> None:
        """Count the lines of a block."""
        if not len(block):
            return
        size, p = np.diff(block.pool_start), block.propensity
        self.lines += len(block)
        lines = np.bincount(block.pool, minlength=len(size))
        pool = np.repeat(np.arange(len(size)), size)
        self.positions.add(np.arange(len(pool)) - block.pool_start[pool], lines[pool], size[pool], block.shown, p)
        arm = self.numbers(block.pool_ids)
        self.arms.add(arm, lines[pool], size[pool], arm[block.pool_start[block.pool] + block.shown], p)
        if p is not None:
            self.with_propensity += len(block)
            self.smallest = min(self.smallest, float(p.min()))
            self.off = max(self.off, float(np.abs(p * size[block.pool] - 1.0).max()))

    def shown_arms(self) -> Ints:
        """The ids of the arms that were shown at least once."""
        return np.array([*self.numbers.of], np.int64)[np.flatnonzero(self.arms.table[0])]

    def most_shown(self, items: Any) -> dict[str, int]:
        """How often the arms that were shown most often were, by their ids (of a table, as it has them)."""
        ids, times = [*self.numbers.of], self.arms.table[0]
        names = {
            k: ids[k] if items is None else items[ids[k]]["id"] for k in np.argsort(-times, kind="stable")[:MOST_SHOWN]
        }
        return {str(name): int(times[k]) for k, name in names.items()}

    @property
    def by_chance(self) -> float:
        """How many lines would show what is chosen uniformly at random: the sum of 1/K."""
        return float(self.arms.table[3].sum())

    def logging(self) -> Logging:
        """What can be said of it."""
        positions, arms = self.positions.uniform(), self.arms.uniform()
        known = self.with_propensity == self.lines > 0
        p = min((test.p for test in (positions, arms) if test), default=None)
        if known and self.off < 1e-6:
            kind, reason = "uniform", "its propensities are 1/K"
        elif known:
            kind, reason = "propensities", f"its propensities differ from 1/K, and go down to {self.smallest:.3g}"
        elif p is None:
            kind, reason = "unknown", "it has no propensities, and too few lines to test whether it showed uniformly"
        elif p < DOUBT:
            kind, reason = "skewed", f"it has no propensities, and did not show uniformly (p = {p:.2g})"
        else:
            kind, reason = "uniform", f"nothing speaks against uniform showing (p = {p:.2g})"
        fit, doubt = self.arms.fit() if known else None, ""
        if fit and fit.p < DOUBT:
            doubt = f"the log's propensities do not fit how often arms were shown (p = {fit.p:.2g})"
        return Logging(kind, reason, doubt, positions, arms, fit, self.smallest if known else None)


class _Cells:
    """A table with a column for each cell: how often it was shown and offered; the sums of 1/K and 1/K^2 over the lines
    that offered it; and those of 1/p and 1/p^2 - 1/p over the lines that showed it
    """

    def __init__(self) -> None:
        self.table = np.zeros((6, 0))

    def add(self, cell: Ints, lines: Ints, size: Ints, shown: NDArray[Any], p: NDArray[Any] | None) -> None:
        """`lines` lines offered `cell` in a pool of `size`, entry by entry; then the cells shown, with probability `p`"""
        room, share = max(self.table.shape[1], 1 + int(cell.max(initial=-1))), 1.0 / size
        rare = np.zeros(len(shown)) if p is None else 1.0 / p
        sums = [(shown, None), (cell, lines), (cell, lines * share), (cell, lines * share**2)]
        sums += [(shown, rare), (shown, rare**2 - rare)]
        self.table = np.pad(self.table, ((0, 0), (0, room - self.table.shape[1])))
        self.table += [np.bincount(which, weight, room) for which, weight in sums]

    def uniform(self) -> Uniformity | None:
        """A chi-square test of uniform showing"""
        from scipy.special import chdtrc

        shown, _, expected, squares, *_ = self.table[:, self.table[2] >= LEAST_EXPECTED]
        # A cell's count has variance sum (1/K)(1 - 1/K): these are the means of the statistic's terms.
        degrees = float(np.sum(1.0 - squares / expected))
        if degrees <= 0:
            return None
        statistic = float(np.sum((shown - expected) ** 2 / expected))
        return Uniformity(statistic, degrees, float(chdtrc(degrees, statistic)))

    def fit(self) -> Uniformity | None:
        """Whether 1/p, summed over the lines that show a cell, is about the number of lines that offer it.

        Each line that offers a cell adds 1/p if it shows it, else 0: 1 on average, with variance 1/p - 1, of which the
        sum of 1/p^2 - 1/p is an unbiased estimate.
        """
        from scipy.special import ndtr

        enough = (self.table[0] >= LEAST_SHOWN) & (self.table[5] > 0.0)
        if not enough.any():
            return None
        _, offered, _, _, inverse, spread = self.table[:, enough]
        largest, cells = float(np.abs((inverse - offered) / np.sqrt(spread)).max()), int(enough.sum())
        return Uniformity(largest, float(cells), float(min(1.0, 2.0 * cells * ndtr(-largest))))


@dataclass(kw_only=True)
class Summary(Counts):
    """What `inspect` found beside the counts of lines.

    `clicks` is the sum of rewards and `ctr` their mean, also where they are money; `binary` says whether all are 0 or 1.
    `most_shown` says how often an arm was shown, of the ten most frequent; `visitor` has the columns of a table's visitors.
    """

    format: str
    clicks: float
    ctr: float
    binary: bool
    arms: int
    most_shown: dict[str, int]
    first_time: int
    last_time: int
    pool_min: int
    pool_mean: float
    pool_max: int
    pool_harmonic_mean: float
    user_dim: int
    user_nonzeros: float
    visitor: dict[str, Column]
    arm_features: int
    truth: bool
    logging: Logging


def inspect(log: Log, *, progress: Callable[[int], None] = lambda lines: None) -> Summary:
    """Read a log once and say what it holds.

    Under uniform logging each of K candidates is shown with probability 1/K. For every position, and for every arm, the
    times that it was shown are compared with what its exposures let expect, the sum of 1/K over the lines that had it.
    The degrees of freedom are the statistic's exact mean, which for one pool is K - 1. Where the log has propensities,
    the sum of 1/p over the lines that show an arm is compared with the number of lines that offer it.

    Read the log with ``on_error="skip"`` to have broken lines counted; `progress` is told the lines read.

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
    showing, totals, ends, last = Showing(), np.zeros(4), [[0, 0, 0, 0, -1]], None
    columns, binary = _Columns(), True
    for last in log.blocks():
        sizes = np.diff(last.pool_start)[last.pool]
        totals += (last.reward.sum(), sizes.sum(), (1.0 / sizes).sum(), len(last.user_index))
        ends.append([last.time.min(), sizes.min(), last.time.max(), sizes.max(), last.user_index.max(initial=-1)])
        showing.add(last)
        binary = binary and bool(np.isin(last.reward, (0.0, 1.0)).all())
        if last.visitor is not None:
            columns.add(last.visitor)
        progress(showing.lines)
    table = np.array(ends if last is None else ends[1:], np.int64)
    lowest, highest = table.min(axis=0).tolist(), table.max(axis=0).tolist()
    clicks, candidates, inverse, nonzeros = totals.tolist()
    n, features = max(showing.lines, 1), None if last is None else last.arm_features
    return Summary(
        **asdict(log.counts),
        format=log.format,
        clicks=clicks,
        ctr=clicks / n,
        binary=binary,
        arms=len(showing.numbers.of),
        most_shown=showing.most_shown(None if last is None else last.items),
        first_time=lowest[0],
        last_time=highest[2],
        pool_min=lowest[1],
        pool_mean=candidates / n,
        pool_max=highest[3],
        pool_harmonic_mean=n / inverse if inverse else 0.0,
        user_dim=1 + highest[4],
        user_nonzeros=nonzeros / n,
        visitor=columns.told(),
        arm_features=0 if features is None else features.shape[1],
        truth=last is not None and last.truth is not None,
        logging=showing.logging(),
    )
