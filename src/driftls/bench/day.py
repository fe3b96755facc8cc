"""A whole day of a news front page in compiled loops: ours against exact methods at their best, and the reading of it.

Every method chooses for every line, and learns where it chose what the log shows. Slow methods get the first lines of
the day, and are held against ours on the same lines.
"""

from __future__ import annotations

import gzip
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from driftls.features import Crosses
from driftls.kernels.compile import kernel
from driftls.logs import Log, read, synthetic_day
from driftls.logs.events import Block
from driftls.policies import DisjointLinUCB, LinUCB
from driftls.replay import replay
from driftls.schedules import ridge
from driftls.trackers import SAGA
from driftls.widths import DiagonalWidth

__all__ = ["Held", "day", "reading"]

DIM, ARTICLES, RIDGE, KAPPA = 136, 400, 60.0, 0.6
SHERMAN_MORRISON, INVERT, INVERT_DENSE = 0, 1, 2
OURS = "driftls: SAGA, one model an article"
CROSSES = "driftls: SAGA, shared + crosses"
ACROSS = "driftls: exact, scored across arms"
# which share of the day an exact method of the plainer kind is given, and what it does
PLAINER = {
    "Sherman-Morrison, arm by arm": (SHERMAN_MORRISON, 4),
    "inversion, sparse scoring": (INVERT, 10),
    "inversion, dense scoring": (INVERT_DENSE, 100),
}


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
    if name == ACROSS:
        return DisjointLinUCB(DIM, seed=0), None
    if name == OURS:
        return DisjointLinUCB(DIM, tracker=SAGA(DIM, regularisation=ridge(RIDGE)), seed=0), None
    tracker = SAGA(DIM * (ARTICLES + 1), regularisation=ridge(RIDGE), seed=0)
    return LinUCB(tracker=tracker, width=DiagonalWidth(), sigmas=3.0, seed=0), Crosses(
        DIM, articles=ARTICLES, shared=True
    )


@kernel
def exact_day(
    rows: Any,
    start: Any,
    pool: Any,
    shown: Any,
    reward: Any,
    user_start: Any,
    index: Any,
    value: Any,
    theta: Any,
    inverse: Any,
    sums: Any,
    moments: Any,
    x: Any,
    v: Any,
    kappa: float,
    mode: int,
) -> tuple[int, float]:
    """LinUCB with one model an article, each arm by itself; returns matches and their rewards"""
    matches, won = 0, 0.0
    for i in range(pool.size):
        first, last = user_start[i], user_start[i + 1]
        if mode == INVERT_DENSE:
            x[:] = 0.0
            for p in range(first, last):
                x[index[p]] = value[p]
        best, highest = 0, -np.inf
        for k in range(start[pool[i]], start[pool[i] + 1]):
            a = rows[k]
            mean, width2 = 0.0, 0.0
            if mode == INVERT_DENSE:
                mean, width2 = np.dot(theta[a], x), np.dot(np.dot(inverse[a], x), x)
            else:
                for p in range(first, last):
                    line, part = inverse[a, index[p]], 0.0
                    mean += value[p] * theta[a, index[p]]
                    for q in range(p + 1, last):  # symmetric
                        part += value[q] * line[index[q]]
                    width2 += value[p] * (2.0 * part + value[p] * line[index[p]])
            score = mean + kappa * np.sqrt(max(width2, 0.0))
            if score > highest:
                best, highest = k - start[pool[i]], score
        if best != shown[i]:
            continue
        matches += 1
        won += reward[i]
        a = rows[start[pool[i]] + best]
        if mode == SHERMAN_MORRISON:
            v[:] = 0.0
            error, width2 = reward[i], 0.0
            for p in range(first, last):
                error -= value[p] * theta[a, index[p]]
                line = inverse[a, index[p]]
                for j in range(v.size):
                    v[j] += value[p] * line[j]
            for p in range(first, last):
                width2 += value[p] * v[index[p]]
            for j in range(v.size):
                theta[a, j] += error / (1.0 + width2) * v[j]
                factor, line = v[j] / (1.0 + width2), inverse[a, j]
                for k in range(v.size):
                    line[k] -= factor * v[k]
        else:
            for p in range(first, last):
                moments[a, index[p]] += reward[i] * value[p]
                for q in range(first, last):
                    sums[a, index[p], index[q]] += value[p] * value[q]
            inverse[a] = np.linalg.inv(sums[a])
            theta[a] = np.dot(inverse[a], moments[a])
    return matches, won


class _Plain:
    """The arrays of `exact_day`, for some hundred articles."""

    def __init__(self) -> None:
        eye = np.eye(DIM)
        self.number: dict[int, int] = {}
        self.theta, self.moments = np.zeros((2, ARTICLES, DIM))
        self.inverse = np.repeat((eye / RIDGE)[None], ARTICLES, axis=0)
        self.sums = np.repeat((eye * RIDGE)[None], ARTICLES, axis=0)

    def play(self, block: Block, mode: int) -> tuple[int, float]:
        for name in block.pool_ids.tolist():
            self.number.setdefault(name, len(self.number))
        rows = np.array([self.number[name] for name in block.pool_ids.tolist()])
        log = block.pool_start, block.pool, block.shown, block.reward
        users = block.user_start, block.user_index, block.user_value
        state = self.theta, self.inverse, self.sums, self.moments, np.zeros(DIM), np.zeros(DIM)
        return exact_day(rows, *log, *users, *state, KAPPA, mode)


def _first(blocks: list[Block], lines: int) -> list[Block]:
    """The first lines of the day."""
    taken: list[Block] = []
    for block in blocks:
        left = lines - sum(map(len, taken))
        if left <= 0:
            break
        taken.append(block if len(block) <= left else block.part(0, left))
    return taken


def _timed_ours(name: str, blocks: list[Block]) -> dict[str, float]:
    policy, features = _ours(name)
    begin = time.perf_counter()
    run = replay(policy, Held(blocks), features=features, points=[1])
    seconds = time.perf_counter() - begin
    evaluations = run.settings["evaluations"]
    return {"seconds": seconds, "matches": evaluations, "rate": run.settings["estimates"]["replay"]["value"]}


def _timed_plain(mode: int, blocks: list[Block]) -> dict[str, float]:
    state, matches, won = _Plain(), 0, 0.0
    begin = time.perf_counter()
    for block in blocks:
        more, reward = state.play(block, mode)
        matches, won = matches + more, won + reward
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "matches": matches, "rate": won / max(matches, 1)}


def day(lines: int, repetitions: int, quick: int = 0) -> dict[str, Any]:
    """Microseconds a line from arrays to decisions: the least of some repetitions, in turn; slow methods have one.

    `quick`: only a twentieth of the lines. A day of fewer lines would not do: its pools would change more often.
    """
    blocks, whole = [], lines // (20 if quick else 1)
    for block in synthetic_day(lines=lines, seed=500).blocks():
        blocks.append(block)
        if sum(map(len, blocks)) >= whole:
            break
    lines = min(lines, whole)
    warm = _first(blocks, 2000)
    for name in (OURS, CROSSES, ACROSS):
        _timed_ours(name, warm)
    for mode, _ in PLAINER.values():
        _timed_plain(mode, warm)
    cases: dict[tuple[str, int], list[dict[str, float]]] = {}
    todo = [(name, lines) for name in (OURS, CROSSES, ACROSS)] * repetitions
    parts = {name: max(2000, lines // share) for name, (_, share) in PLAINER.items()}
    for name, part in parts.items():
        todo += [(OURS, part), (CROSSES, part), (name, part)] * (repetitions if part * 20 < lines else 1)
    for name, part in todo:
        some = _first(blocks, part)
        one = _timed_plain(PLAINER[name][0], some) if name in PLAINER else _timed_ours(name, some)
        cases.setdefault((name, part), []).append(one)

    def least(name: str, part: int) -> float:
        return 1e6 * min(one["seconds"] for one in cases[name, part]) / part

    rows = []
    for name, part in [(OURS, lines), (CROSSES, lines), (ACROSS, lines), *parts.items()]:
        times = [one["seconds"] for one in cases[name, part]]
        row = {"method": name, "lines": part, "us": least(name, part), "rate": cases[name, part][0]["rate"]}
        row |= {"spread": max(times) / min(times) - 1.0 if len(times) > 1 else None}
        row |= {"ours": least(name, part) / least(OURS, part), "crosses": least(name, part) / least(CROSSES, part)}
        rows.append(row | {"matches": cases[name, part][0]["matches"]})
    return {"lines": lines, "rows": rows}


def reading(lines: int, repetitions: int) -> dict[str, Any]:
    """Seconds from the gzipped text of a day: to nothing (zlib's gunzip), to arrays, to decisions."""
    with tempfile.TemporaryDirectory(prefix="driftls-bench-") as folder:
        path = Path(folder, "day.gz")
        synthetic_day(lines=lines, seed=500).write(path)

        def gunzip() -> None:
            with gzip.open(path) as file:
                while file.read(1 << 20):
                    pass

        def arrays() -> None:
            for _ in read(path).blocks():
                pass

        def decisions() -> None:
            policy, features = _ours(OURS)
            replay(policy, read(path), features=features, points=[1])

        work = {"gunzip, zlib": gunzip, "gz to arrays": arrays, "gz to decisions": decisions}
        least = dict.fromkeys(work, np.inf)
        decisions()  # which may compile
        for _ in range(repetitions):
            for name, one in work.items():
                begin = time.perf_counter()
                one()
                least[name] = min(least[name], time.perf_counter() - begin)
        megabytes = path.stat().st_size / 1e6
    floor = least["gunzip, zlib"]
    return {"lines": lines, "megabytes": megabytes, "inflate": _inflate(), "rows": [
        {"step": name, "seconds": seconds, "ratio": seconds / floor} for name, seconds in least.items()
    ]}  # fmt: skip


def _inflate() -> str:
    """What our reader inflates with."""
    try:
        import isal
    except ImportError:
        return "the standard library"
    return f"isal {isal.__version__}"
