"""The day itself: visitors, articles and clicks that agree with the aggregates in ``r6b_aggregates.json``.

- The number k of common features of a visitor is drawn from their histogram, then the k features by `users`.
- Articles come as a Poisson process, live a Gamma-distributed while, and have an average click rate each, drawn
  from the known quantiles.
- The log odds of a click are ``level[article, band of k] + weight[article] . x - fade * (age / life - 1/2) + drift``.
  The levels are solved for, so that whatever the interaction is, an article keeps its average click rate and a
  band of visitors its own.

Line i uses row i of one stream of uniforms: how the day is cut into blocks cannot matter.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from gzip import GzipFile
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from driftls.errors import SettingsError
from driftls.inputs import as_whole
from driftls.logs.columns import Floats, Ints, as_starts
from driftls.logs.events import Block, Event
from driftls.logs.parquet import ROW_GROUP, write_parquet
from driftls.logs.synthetic.users import CLICK, DIM, ITEM, SHOWN, TIME, Users, aggregates, draw_users, user_kinds
from driftls.persistence import atomic

__all__ = ["SyntheticDay", "synthetic_day"]

HOUR, DAY = 3600.0, 86_400.0
START = 1_317_513_291  # Unix time of the first line, as in the log
RHYTHM, PEAK = 0.5, 20 * HOUR  # of the traffic: amplitude of its daily wave, and when it is highest, after midnight UTC
LIFE = 20 * HOUR  # that an article stays on average
DRIFT_PERIODS = np.array([36.0, 17.0, 9.0]) * HOUR
RARE = 1.5  # rare features of an average visitor with a profile
LIFE_SHAPE = 4.0  # of the Gamma distribution of lives: a standard deviation of half the mean
FIRST_ID, ID_GAP = 550_000, 40
REFERENCE = 8192  # visitors on whom an article's levels are solved for


class Articles(NamedTuple):
    """Every article of the day, in the order of its birth."""

    id: Ints
    birth: Floats  # seconds after the first line
    end: Floats
    rate: Floats  # average click rate over its life
    level: Floats  # (article, band): log odds at second 0
    fading: Floats  # loss of log odds a second
    weight: Floats  # (article, feature)


def _setting(default: Any, low: float, high: float) -> Any:
    return field(default=default, metadata={"limits": (low, high)})


@dataclass(frozen=True, kw_only=True)
class SyntheticDay:
    """A synthetic day of a news front page, made from a seed as it is read.

    Parameters
    ----------
    lines, seed
        Fewer lines make the same day thinner. For a piece of a day at full traffic set `span` as well.
    interaction, fade, drift
        Of log odds: the standard deviation, over visitors with a profile of like activity, of what depends on who the
        visitor is (those without a profile like what is liked on average); what an article loses between its birth and
        its end; the standard deviation of slow waves in all of them.
    anonymous
        The share of visitors with nothing but the constant.
    churn, pool_min, pool_max
        New articles a day, and the sizes of the pool.
    ctr, span
        The average click rate, around which a single day lies by about 7%; seconds.

    Examples
    --------
    >>> from driftls.logs import synthetic_day  # iterate for events, or take blocks, or write it as a file
    >>> day = synthetic_day(lines=1000, seed=7)
    >>> block = next(day.blocks(truth=True))
    >>> len(block), block.pool_start[1].item() == len(block[0].arms)
    (1000, True)
    """

    lines: int = _setting(1_850_000, 1, 2**40)
    seed: int = _setting(0, 0, 2**64)
    interaction: float = _setting(0.8, 0, 3)
    churn: float = _setting(43.0, 0, 1000)
    fade: float = _setting(1.5, 0, 5)
    drift: float = _setting(0.1, 0, 1)
    ctr: float = _setting(0.037, 1e-6, 0.2)
    anonymous: float = _setting(0.3823, 0, 1)
    pool_min: int = _setting(26, 1, 1000)
    pool_max: int = _setting(45, 1, 1000)
    span: float = _setting(DAY, 1, 31 * DAY)

    def __post_init__(self) -> None:
        for entry in fields(self):
            value, (low, high) = getattr(self, entry.name), entry.metadata["limits"]
            low = self.pool_min if entry.name == "pool_max" else low
            fits = isinstance(value, int | float | np.number) and low <= value <= high
            if not fits or (entry.type == "int" and value != int(value)):
                kind = "a whole number" if entry.type == "int" else "a number"
                raise SettingsError(f"{entry.name} must be {kind} from {low:g} to {high:g}, got {value!r}.")

    def __repr__(self) -> str:
        own = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        changed = [entry.name for entry in fields(self) if entry.default != own[entry.name]]
        return f"SyntheticDay({', '.join(f'{name}={own[name]!r}' for name in own if name in ('seed', *changed))})"

    @cached_property
    def articles(self) -> Articles:
        """Every article that is in the pool at some time of the day."""
        rng = self._rng(0)
        birth, end, life = _lives(self, rng)
        rate = _average_rates(self.ctr, len(birth), rng)
        level, weight = _solve(self, rate, rng)
        fading = self.fade / life
        # exp(-fade (x - 1/2)) averages to sinh(fade / 2) / (fade / 2) over a life, x from 0 to 1.
        average = np.log(np.sinh(self.fade / 2) / (self.fade / 2)) if self.fade else 0.0
        at_start = self.fade / 2 + fading * birth - average
        ids = FIRST_ID + np.cumsum(rng.integers(1, ID_GAP, len(birth), endpoint=True))
        return Articles(ids, birth, end, rate, level + at_start[:, None], fading, weight)

    @cached_property
    def _pools(self) -> tuple[Floats, Ints, Ints]:
        """When each pool begins, and the pools' articles (rows of `articles`) in CSR form."""
        articles = self.articles
        times = np.unique(np.concatenate((articles.birth, articles.end)))
        begins = np.concatenate(([0.0], times[(times > 0) & (times < self.span)]))
        alive = (articles.birth <= begins[:, None]) & (begins[:, None] < articles.end)
        return begins, as_starts(alive.sum(1)), np.nonzero(alive)[1]

    def blocks(self, size: int = 32_768, *, truth: bool = False) -> Iterator[Block]:
        """The day in blocks of at most `size` lines, with the click probability of every candidate on request."""
        size = as_whole(size, "the lines of a block")
        kinds = user_kinds(self.anonymous, RARE)
        rng = self._rng(1)
        for first in range(0, self.lines, size):
            tape = rng.random((min(size, self.lines - first), ITEM + len(kinds.items)))
            yield self._block(kinds, tape, first, truth)

    def __iter__(self) -> Iterator[Event]:
        for block in self.blocks():
            yield from block

    def write(self, path: str | os.PathLike[str], *, progress: Callable[[int], None] = lambda lines: None) -> None:
        """Write the day, as Parquet with the truth of every candidate if the name ends in .parquet, else as R6B's text.

        Text is gzipped if the name ends in .gz, and the same day gives the same bytes. The file appears under its name
        when it is complete. `progress` hears how many lines are written.
        """
        if os.fspath(path).endswith(".parquet"):
            write_parquet(self.blocks(ROW_GROUP, truth=True), path, progress=progress)
            return
        zipped, lines = os.fspath(path).endswith(".gz"), 0
        with (
            atomic(path) as part,
            open(part, "wb") as file,
            # Level 3 takes a third of the default's time for a file that is a third larger.
            GzipFile("", "wb", 3, file, mtime=0) if zipped else file as out,
        ):
            for block in self.blocks():
                out.write(r6b_text(block))
                lines += len(block)
                progress(lines)

    def _block(self, kinds: Users, tape: Floats, first: int, truth: bool) -> Block:
        n = len(tape)
        seconds = self._seconds((first + np.arange(n) + tape[:, TIME]) / self.lines)
        begins, pool_start, members = self._pools
        pool = np.searchsorted(begins, seconds, side="right") - 1
        start, index, band = draw_users(kinds, tape)
        users = sp.csr_array((np.ones(len(index)), index, start), shape=(n, DIM))
        when, sizes = np.stack((seconds, self._drift(seconds))), np.diff(pool_start)[pool]
        shown = (tape[:, SHOWN] * sizes).astype(np.int32)
        rate = self._rates(users, band, when, np.arange(n), members[pool_start[pool] + shown])
        told: dict[str, Any] = {"shown": shown, "reward": (tape[:, CLICK] < rate).astype(np.float64), "truth": None}
        if truth:
            line = np.repeat(np.arange(n), sizes)
            position = np.arange(len(line)) - as_starts(sizes)[line]
            told["truth"] = self._rates(users, band, when, line, members[pool_start[pool][line] + position])
        visitors = {"user_start": start, "user_index": index, "user_value": users.data}
        time = START + np.floor(seconds).astype(np.int64)
        return Block.packed(pool, pool_start, self.articles.id[members], None, time=time, **visitors, **told)

    def _rates(self, users: Any, band: Any, when: Floats, line: Ints, article: Ints) -> Floats:
        """The probability that the user of each of these lines clicks on this article"""
        articles, (seconds, drift) = self.articles, when[:, line]
        present = np.flatnonzero(np.bincount(article, minlength=len(articles.id)))
        place = np.zeros(len(articles.id), np.int64)
        place[present] = np.arange(len(present))
        taste = (users @ articles.weight[present].T)[line, place[article]]
        odds = articles.level[article, band[line]] - articles.fading[article] * seconds + drift + taste
        return np.asarray(1.0 / (1.0 + np.exp(-odds)))

    def _seconds(self, share: Floats) -> Floats:
        """The time by which this share of the day's lines has come: rate 1 + RHYTHM cos(time of day - PEAK)"""
        grid = np.linspace(0.0, self.span, 4097)
        turn = 2 * np.pi * (START % DAY - PEAK + grid) / DAY
        come = grid + RHYTHM * DAY / (2 * np.pi) * (np.sin(turn) - np.sin(turn[0]))
        return np.minimum(np.interp(share, come / come[-1], grid), np.nextafter(self.span, 0))

    @cached_property
    def _phases(self) -> Floats:
        return self._rng(2).uniform(0, 2 * np.pi, len(DRIFT_PERIODS))

    def _drift(self, seconds: Floats) -> Floats:
        """Log odds that all articles gain: waves of unit variance together, times `drift`; the odds average to 1"""
        waves = np.cos(2 * np.pi * seconds[:, None] / DRIFT_PERIODS + self._phases)
        return np.asarray(self.drift * np.sqrt(2 / len(DRIFT_PERIODS)) * waves.sum(1) - self.drift**2 / 2)

    def _rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(stream,)))


def _lives(day: SyntheticDay, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Birth, end and planned life of all articles in seconds; the pool stays within its bounds.

    An article that would leave the smallest pool stays until a new one comes; one that comes into the largest pool
    takes the place of the article that is nearest to its end.
    """
    old = int(np.clip(round(day.churn * LIFE / DAY), day.pool_min, day.pool_max))
    # An article met at a given moment is met in proportion to its life, at a uniform point of it.
    old_life = rng.gamma(LIFE_SHAPE + 1, LIFE / LIFE_SHAPE, old)
    age = rng.random(old) * old_life
    oldest_first = np.argsort(-age)
    new = rng.poisson(day.churn * day.span / DAY)
    birth = np.concatenate((-age[oldest_first], np.sort(rng.random(new)) * day.span))
    life = np.concatenate((old_life[oldest_first], rng.gamma(LIFE_SHAPE, LIFE / LIFE_SHAPE, new)))
    end = birth + life
    alive = [(end[a], a) for a in range(old)]
    heapq.heapify(alive)
    for a in range(old, old + new):
        while len(alive) > day.pool_min and alive[0][0] <= birth[a]:
            heapq.heappop(alive)
        if alive[0][0] <= birth[a] or len(alive) == day.pool_max:
            _, leaving = heapq.heappop(alive)
            end[leaving] = birth[a]
        heapq.heappush(alive, (end[a], a))
    while alive:
        _, a = heapq.heappop(alive)
        if len(alive) < day.pool_min:
            end[a] = np.inf
    return birth, end, life


def _average_rates(ctr: float, n: int, rng: np.random.Generator) -> Floats:
    """Average click rates of n articles, by the known quantiles, scaled to the mean that is asked for"""
    quantiles = aggregates()["article_ctr_quantiles"]
    u, rate = np.array([float(q) for q in quantiles]), np.array(list(quantiles.values()))
    mean = np.diff(u) @ (rate[1:] + rate[:-1]) / 2
    return np.asarray(np.interp(rng.random(n), u, rate * (ctr / mean)), np.float64)


def _solve(day: SyntheticDay, rate: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Weights of random direction and the asked-for strength, and the levels that keep every average in place."""
    kinds = user_kinds(0.0, 0.0)
    start, index, small_band = draw_users(kinds, rng.random((REFERENCE, ITEM + len(kinds.items))))
    band = small_band.astype(np.int64)
    common = np.unique(index)[1:]  # the constant has no weight, nor have rare features, which this crowd lacks
    weight = np.zeros((len(rate), DIM))
    weight[:, common] = rng.standard_normal((len(rate), len(common)))
    target = rate[:, None] * _band_ratios(day)
    odds = target / (1 - target)
    ratio = np.ones(target.shape[1])  # band 0, the constant alone, is exact as it is
    crowd = np.bincount(band)[1:]
    for a in range(len(rate)):
        z = np.add.reduceat(weight[a, index], start[:-1])
        own_band = np.bincount(band, z)[1:] / crowd
        strength = day.interaction / np.std(z - own_band[band - 1])
        weight[a] *= strength
        own = np.exp(strength * z)
        for _ in range(8):  # each step shrinks the error by about the click rate
            clicks = odds[a, band] * own
            ratio[1:] = target[a, 1:] * crowd / np.bincount(band, clicks / (1 + clicks))[1:]
            odds[a] *= ratio
    return np.log(odds), weight


def _band_ratios(day: SyntheticDay) -> Floats:
    """Click rate of each band of visitors over that of all"""
    rates = np.array(list(aggregates()["ctr_by_common_ids"].values()))
    kinds = user_kinds(day.anonymous, 0.0)
    shares = np.bincount(kinds.band, np.diff(kinds.count_cdf, prepend=0.0))
    return np.asarray(rates / (shares @ rates))


def r6b_text(block: Block) -> bytes:
    """The lines of a day's block as R6B writes them: features in its own order, the constant first."""
    order = aggregates()["emission_order"]
    names = np.array(order + [i for i in range(1, DIM + 1) if i not in order])
    row = np.repeat(np.arange(len(block)), np.diff(block.user_start)) * DIM
    ranks = np.sort(row + np.argsort(names - 1)[block.user_index]) - row
    words = np.array([b" %d" % name for name in names.tolist()], object)[ranks].tolist()
    pools = [block.pool_ids[a:b].tolist() for a, b in zip(block.pool_start, block.pool_start[1:])]
    tails = [b"".join(b" |id-%d" % i for i in ids) for ids in pools]
    shown = block.pool_ids[block.pool_start[block.pool] + block.shown]
    columns = (block.time, shown, block.reward, block.user_start, block.user_start[1:], block.pool)
    return b"".join(
        b"%d id-%d %d |user%s%s\n" % (time, arm, reward, b"".join(words[a:b]), tails[pool])
        for time, arm, reward, a, b, pool in zip(*(column.tolist() for column in columns))
    )


synthetic_day = SyntheticDay
"""Make a synthetic day: `SyntheticDay`, by a name that says what comes of it."""
