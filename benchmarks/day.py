"""A day of a news front page: replayed in compiled loops by ours and by exact methods; read; and its estimates."""

from __future__ import annotations

import gzip
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Mean, Options, Table, mean, tell, timed
from benchmarks.peers.exact import compiled
from driftls import ridge
from driftls.features import UserArmCrosses
from driftls.log_replay import replay
from driftls.logs import Log, read, synthetic_day, write_parquet
from driftls.logs.events import Block
from driftls.policies import DisjointLinUCB, LinUCB
from driftls.trackers import SAGA
from driftls.widths import DiagonalWidth

LINES, DIM, ARTICLES, RIDGE, KAPPA = 1_850_000, 136, 400, 60.0, 0.6
SAGA_EACH = "SAGA, one model an article"
# exact methods outside of driftls, with the share of the day that they are given
PLAIN = {"Sherman-Morrison, compiled, arm by arm": 4, "inversion at each match, compiled": 10}


class Held(Log):
    """Blocks that are in memory already."""

    format = "held"

    def __init__(self, blocks: list[Block]) -> None:
        super().__init__()
        self.held = blocks

    def _blocks(self, size: int) -> Iterator[Block]:
        yield from self.held


def _ours(name: str) -> tuple[Any, Any]:
    """A policy, and the features that it needs."""
    if name == "DisjointLinUCB, default":
        return DisjointLinUCB(DIM, seed=0), None
    if name == SAGA_EACH:
        return DisjointLinUCB(DIM, tracker=SAGA(DIM, regularisation=ridge(RIDGE)), seed=0), None
    tracker = SAGA(DIM * (ARTICLES + 1), regularisation=ridge(RIDGE), seed=0)
    return LinUCB(tracker=tracker, width=DiagonalWidth(), sigmas=3.0, seed=0), UserArmCrosses(
        DIM, articles=ARTICLES, shared=True
    )


OURS = (SAGA_EACH, "SAGA, shared features and crosses", "DisjointLinUCB, default")


def _play(name: str, blocks: list[Block]) -> dict[str, float]:
    """Seconds from arrays to decisions, and the click rate where the log shows what was chosen."""
    if name in PLAIN:
        return _plain(name, blocks)
    policy, features = _ours(name)
    begin = time.perf_counter()
    run = replay(policy, Held(blocks), features=features, points=[1])
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "rate": run.settings["estimates"]["replay"]["value"]}


def _plain(name: str, blocks: list[Block]) -> dict[str, float]:
    eye, number, matches, won = np.eye(DIM), dict[int, int](), 0, 0.0
    inverse, theta = np.repeat((eye / RIDGE)[None], ARTICLES, axis=0), np.zeros((ARTICLES, DIM))
    inverts = name.startswith("inversion")
    sums, b = np.repeat((eye * RIDGE)[None], ARTICLES if inverts else 0, axis=0), np.zeros_like(theta)
    begin = time.perf_counter()
    for block in blocks:
        slots = np.array([number.setdefault(name, len(number)) for name in block.pool_ids.tolist()])
        log = block.pool_start, block.pool, block.shown, block.reward
        users = block.user_start, block.user_index, block.user_value
        some, clicks = compiled()[2](inverse, theta, slots, log, users, KAPPA, sums, b)
        matches, won = matches + some, won + clicks
    return {"seconds": time.perf_counter() - begin, "rate": won / max(matches, 1)}


def _first(blocks: list[Block], lines: int) -> list[Block]:
    """The first lines of the day."""
    taken: list[Block] = []
    for block in blocks:
        left = lines - sum(map(len, taken))
        if left <= 0:
            break
        taken.append(block if len(block) <= left else block.part(0, left))
    return taken


def day(options: Options) -> Table:
    """Slow methods get the first lines of the day, and are held against ours on the same lines."""
    blocks, lines = [], LINES // (20 if options.quick else 1)  # of a whole day: pools last as long as they do there
    for block in synthetic_day(lines=LINES, seed=500).blocks():
        blocks.append(block)
        if sum(map(len, blocks)) >= lines:
            break
    todo = dict.fromkeys(OURS, lines) | {name: lines // share for name, share in PLAIN.items()}
    for name in todo:
        tell(f"warming up: {name}")
        _play(name, _first(blocks, 2000))
    parts = set(todo.items()) | {(SAGA_EACH, part) for part in todo.values()}
    runs: dict[tuple[str, int], list[dict[str, float]]] = {key: [] for key in sorted(parts)}
    for _ in range(options.count(3, 2)):
        for name, part in runs:
            tell(f"{name}, {part:,} lines")
            runs[name, part].append(_play(name, _first(blocks, part)))

    def least(name: str, part: int) -> float:
        return min(one["seconds"] for one in runs[name, part])

    rows = []
    for name, part in todo.items():
        slowest = max(one["seconds"] for one in runs[name, part])
        over = least(name, part) / least(SAGA_EACH, part)
        spread = f"{slowest / least(name, part) - 1.0:.0%}"
        rate = f"{runs[name, part][0]['rate']:.2%}"
        rows.append([name, part, 1e6 * least(name, part) / part, spread, f"{over:.3g}x", rate])
    return Table(rows, "From arrays to decisions, with all that a replay counts; over SAGA on the same lines.")


def reading(options: Options) -> Table:
    """The log of a day as gzipped text: inflated by zlib, to arrays, to decisions; as text; as Parquet."""
    lines = LINES // (20 if options.quick else 1)
    with tempfile.TemporaryDirectory(prefix="driftls-day-") as folder:
        zipped, plain, parquet = (Path(folder, name) for name in ("day.gz", "day", "day.parquet"))
        tell("writing a day")
        for path in (zipped, plain):
            synthetic_day(lines=lines, seed=500).write(path)

        def gunzip() -> None:
            with gzip.open(zipped) as file:
                while file.read(1 << 20):
                    pass

        def arrays(path: Path) -> None:
            for _ in read(path).blocks():
                pass

        def decisions() -> None:
            policy, features = _ours(SAGA_EACH)
            replay(policy, read(zipped), features=features, points=[1])

        work = {
            "inflating, zlib": gunzip,
            "gzipped text to arrays": lambda: arrays(zipped),
            "gzipped text to decisions": decisions,
            "text to arrays": lambda: arrays(plain),
            "gzipped text to Parquet": lambda: write_parquet(read(zipped), parquet),
            "Parquet to arrays": lambda: arrays(parquet),
        }
        decisions()  # which may compile
        found = timed(work, options.count(3, 2))
        megabytes = [path.stat().st_size / 1e6 for path in (zipped, plain, parquet)]
    floor = found["inflating, zlib"].least
    sizes = "{:.0f} MB gzipped, {:.0f} MB of text, {:.0f} MB as Parquet".format(*megabytes)
    rows = [[name, times.least, times.least / floor] for name, times in found.items()]
    return Table(rows, f"{lines:,} lines, {sizes}; our reader inflates with {_inflate()}.")


def _inflate() -> str:
    try:
        import isal
    except ImportError:
        return "the standard library"
    return f"isal {isal.__version__}"


def coverage(options: Options) -> Table:
    """Synthetic logs: is the mean truth of what a policy chose on all lines in the interval of its estimate?"""
    from driftls.policies.registry import as_disjoint, make

    lines, logs = 20_000 if options.quick else 60_000, options.count(400, 10)
    policies = {
        "DisjointLinUCB, default": lambda seed: DisjointLinUCB(DIM, seed=seed),
        "random": lambda seed: as_disjoint(make("random", DIM, seed=seed), seed),
    }
    hits: dict[str, list[bool]] = {name: [] for name in policies}
    errors: dict[str, list[float]] = {name: [] for name in policies}
    for seed in range(500, 500 + logs):
        tell(f"log {seed - 499} of {logs}")
        day = synthetic_day(lines=lines, seed=seed)
        runs = replay({name: one(seed) for name, one in policies.items()}, day, metrics=["regret"], points=[lines])
        for name, run in runs.items():
            estimate, truth = run.settings["estimates"]["replay"], run.settings["value"]
            hits[name].append(estimate["low"] <= truth <= estimate["high"])
            errors[name].append(100.0 * (estimate["value"] / truth - 1.0))
    share = {name: 100.0 * float(np.mean(each)) for name, each in hits.items()}
    rows = [[name, logs, f"{share[name]:.1f}%", Mean(*mean(errors[name]))] for name in policies]
    half = 196.0 * np.sqrt(0.05 * 0.95 / logs)
    return Table(rows, f"Logs of {lines:,} lines. If intervals are right, {95:.0f} ± {half:.1f}% of them hold.")
