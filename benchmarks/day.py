"""A day of a news front page: what policies earn and cost on it, what reading its log takes, and whether intervals hold."""

from __future__ import annotations

import gzip
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import TUNING, Mean, Options, Table, across, mean, ratio, tell, timed
from driftls import ridge
from driftls.features import UserOnly
from driftls.log_replay import replay
from driftls.logs import Log, read, synthetic_day, write_parquet
from driftls.logs.events import Block
from driftls.policies import DisjointLinUCB
from driftls.policies.registry import as_disjoint, make
from driftls.trackers import RAW, RLS, SAGA
from driftls.widths import CentredWidth, ExactWidth

DAY, DIM = 1_850_000, 136  # lines of a whole day, and features of a visitor
LINES = 20_000  # of a day that is thinned, each of them a round
LAMBDAS, KAPPAS = (10.0, 30.0, 100.0, 300.0), (0.5, 1.0, 2.0)
TUNED = (100.0, 1.0)  # the best of them on other seeds: python -m benchmarks day --tune


def _exact(seed: int, ridge_: float, kappa: float) -> DisjointLinUCB:
    tracker = RLS(DIM, regularisation=ridge(ridge_), **RAW)
    return DisjointLinUCB(DIM, tracker=tracker, width=ExactWidth(), kappa=kappa, seed=seed)


EXACT = "exact, tuned"
POLICIES: dict[str, Callable[[int], Any]] = {
    EXACT: lambda seed: _exact(seed, *TUNED),
    "DisjointLinUCB, default": lambda seed: DisjointLinUCB(DIM, seed=seed),
    "SAGA, centred widths": lambda seed: DisjointLinUCB(
        DIM, tracker=SAGA(DIM, seed=seed), width=CentredWidth(), seed=seed
    ),
    "random": lambda seed: as_disjoint(make("random", DIM, seed=seed), seed),
}


# -- clicks and time -------------------------------------------------------------------------------------------------


def clicks(policy: Any, seed: int, lines: int) -> float:
    """The sum of the true rates of what was chosen on a day thinned to so many lines."""
    luck, features, total = np.random.default_rng([seed, 77]), UserOnly(DIM), 0.0
    block: Any
    for block in synthetic_day(lines=lines, seed=seed).blocks(truth=True):
        users, at = features.users(block), block.truth_start
        uniforms = luck.random(len(block))
        borders = [0, *(np.flatnonzero(np.diff(block.pool)) + 1).tolist(), len(block)]
        for first, last in pairwise(borders):
            ids = block[first].arms.tolist()
            truth = block.truth[at[first] : at[last]].reshape(last - first, len(ids))
            rewards = (uniforms[first:last, None] < truth).astype(float)
            chosen = policy.play(users[first:last], rewards, ids=ids)
            total += float(truth[np.arange(last - first), chosen].sum())
    return total


def _clicks_of(name: str, seed: int, lines: int) -> float:
    return clicks(POLICIES[name](seed), seed, lines)


def _clicks_with(setting: tuple[float, float], seed: int, lines: int) -> float:
    return clicks(_exact(seed, *setting), seed, lines)


class Held(Log):
    """Blocks that are in memory already."""

    format = "held"

    def __init__(self, blocks: list[Block]) -> None:
        super().__init__()
        self.held = blocks

    def _blocks(self, size: int) -> Iterator[Block]:
        yield from self.held


def _first(lines: int) -> list[Block]:
    """The first lines of a whole day, on which pools last as long as they do there."""
    blocks = list[Block]()
    for block in synthetic_day(lines=DAY, seed=500).blocks():
        left = lines - sum(map(len, blocks))
        if left <= 0:
            break
        blocks.append(block if len(block) <= left else block.part(0, left))
    return blocks


def _replayed(make: Callable[[int], Any], blocks: list[Block]) -> float:
    """Seconds from arrays to decisions."""
    policy = make(0)
    begin = time.perf_counter()
    replay(policy, Held(blocks), points=[1])
    return time.perf_counter() - begin


def day(options: Options) -> Table:
    """Clicks on thinned days where every choice has its reward, and the time of a replay."""
    lines, seeds = (1000 if options.quick else LINES), range(options.count(100, 4))
    if options.tune:
        return _tuned(lines)
    blocks, names = _first(20_000 if options.quick else DAY), list(POLICIES)
    us: dict[str, float] = dict.fromkeys(names, np.inf)
    for _ in range(1 + 2):  # one more: which may compile
        for name in names:
            tell(f"timing {name}")
            us[name] = min(us[name], 1e6 * _replayed(POLICIES[name], blocks) / sum(map(len, blocks)))
    tell(f"clicks of {len(names)} policies on {len(seeds)} days")
    jobs = list(product(names, seeds))
    found = across(partial(_clicks_of, lines=lines), *zip(*jobs))
    earned = {name: [won for (one, _), won in zip(jobs, found) if one == name] for name in names}
    rows = []
    for name in names:
        change = ratio(earned[name], earned[EXACT])
        percent = None if name == EXACT else Mean(100.0 * (change.value - 1.0), 100.0 * change.half)
        rows.append([name, mean(np.array(earned[name]) * 1000 / lines), percent, us[name], us[name] / us[EXACT]])
    settings = "ridge {:g}, κ = {:g}".format(*TUNED)
    return Table(
        rows,
        f"Clicks: {len(seeds)} days of {lines:,} rounds, paired; exact tuned on others ({settings}). Time: replay of the "
        f"first {sum(map(len, blocks)):,} lines of a whole day, from arrays to decisions.",
    )


def _tuned(lines: int) -> Table:
    jobs = list(product(product(LAMBDAS, KAPPAS), range(TUNING, TUNING + 8)))
    found = across(partial(_clicks_with, lines=lines), *zip(*jobs))
    rows = []
    for setting in product(LAMBDAS, KAPPAS):
        won = mean(1000 / lines * one for (other, _), one in zip(jobs, found) if other == setting)
        rows.append(["ridge {:g}, κ = {:g}".format(*setting), won, None, None, None])
    return Table(rows, "Settings of the exact method on other seeds than those reported.")


# -- reading ---------------------------------------------------------------------------------------------------------


def reading(options: Options) -> Table:
    """The log of a day as gzipped text: inflated by zlib, to arrays, to decisions; as text; as Parquet."""
    lines = 30_000 if options.quick else 400_000
    with tempfile.TemporaryDirectory(prefix="driftls-day-") as folder:
        zipped, plain, parquet = (Path(folder, name) for name in ("day.gz", "day", "day.parquet"))
        tell("writing a day")
        for path in (zipped, plain):
            synthetic_day(lines=lines, seed=500).write(path)
        write_parquet(read(zipped), parquet)

        def gunzip() -> None:
            with gzip.open(zipped) as file:
                while file.read(1 << 20):
                    pass

        def arrays(path: Path) -> None:
            for _ in read(path).blocks():
                pass

        work = {
            "gzipped text, inflated by zlib alone": gunzip,
            "gzipped text to arrays": partial(arrays, zipped),
            "text to arrays": partial(arrays, plain),
            "Parquet to arrays": partial(arrays, parquet),
        }
        arrays(zipped)  # which may compile
        found = timed(work, options.count(3, 2))
        sizes = [path.stat().st_size / lines for path in (zipped, zipped, plain, parquet)]
    rows = [[name, 1e6 * times.least / lines, size] for (name, times), size in zip(found.items(), sizes)]
    return Table(rows, f"{lines:,} lines; our reader inflates with {_inflate()}.")


def _inflate() -> str:
    try:
        import isal
    except ImportError:
        return "the standard library"
    return f"isal {isal.__version__}"


# -- intervals -------------------------------------------------------------------------------------------------------


def _held(name: str, seed: int, lines: int) -> tuple[bool, float]:
    """Is the mean truth of what a policy chose on all lines in the interval of its estimate? And the relative error."""
    run = replay(POLICIES[name](seed), synthetic_day(lines=lines, seed=seed), metrics=["regret"], points=[lines])
    estimate, truth = run.settings["estimates"]["replay"], run.settings["value"]
    return estimate["low"] <= truth <= estimate["high"], 100.0 * (estimate["value"] / truth - 1.0)


def coverage(options: Options) -> Table:
    """Replays of policies that learn, over synthetic logs."""
    lines, logs = (5000 if options.quick else 30_000), options.count(200, 10)
    names, half = ("DisjointLinUCB, default", "random"), 196.0 * np.sqrt(0.05 * 0.95 / logs)
    tell(f"{logs} logs")
    found = across(partial(_held, lines=lines), *zip(*product(names, range(500, 500 + logs))))
    rows = []
    for name, one in zip(names, np.reshape(found, (len(names), logs, 2))):
        rows.append([name, logs, Mean(100.0 * float(one[:, 0].mean()), half), mean(one[:, 1])])
    return Table(rows, f"Logs of {lines:,} lines, shown uniformly. An interval that is right holds in 95% of them.")
