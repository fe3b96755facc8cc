"""Long lives and threads: what a round, a key and the memory of a process cost after many of them.

    python -m benchmarks lives [--quick] [--long] [--only ids keys memory]

`ids`: arms that come and go, for policies that keep something for each; the cost of a round in each quarter of the run.
`keys`: choices that wait for their rewards, saved and loaded. `memory`: default policies over many rounds; the process's
memory, and the time of a round, after a tenth of them, at half and at the end. What is constant has a last column near 1.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Options, Table, tell, timed
from driftls.inputs import Rows
from driftls.policies import DisjointLinUCB, LinUCB
from driftls.trackers import SAGA
from driftls.widths import DiagonalWidth

ARMS, DIM = 10, 8
MOST = 10_000  # models of one policy


def lives(options: Options) -> Table:
    parts: dict[str, Callable[[Options], Iterator[list[Any]]]] = {
        "ids": _ids,
        "keys": _keys,
        "memory": _memory,
    }
    rows = [row for name in options.wanted(parts) for row in parts[name](options)]
    return Table(rows, "Processor time. The last column: the last quarter over the second, or memory over the first.")


def _size(options: Options, whole: int) -> int:
    return whole // 50 if options.quick else 10 * whole if options.long else whole


def _ids(options: Options) -> Iterator[list[Any]]:
    """One arm of ten is new in every round."""
    most = min(MOST, _size(options, 100_000) // 4)
    makers: dict[str, tuple[int, Callable[[], Any]]] = {
        f"DisjointLinUCB, most_arms={most}": (
            _size(options, 100_000),
            lambda: DisjointLinUCB(DIM, tracker=SAGA(DIM, steps=1), width=DiagonalWidth(), most_arms=most, seed=0),
        ),
        "LinUCB": (_size(options, 1_000_000), lambda: LinUCB(DIM, forget_after=50, seed=0)),
    }
    arms = np.random.default_rng(0).normal(size=(ARMS, DIM)) / DIM
    for name, (count, make) in makers.items():
        policy, seconds = make(), []
        for quarter in range(4):
            tell(f"{name}: quarter {quarter + 1} of {count} ids")
            first = quarter * (count // 4)
            begin = time.process_time()
            for n in range(first, first + count // 4):
                ids = list(range(n, n + ARMS))
                rows = arms[n % ARMS] if policy.disjoint else arms
                policy.learn(rows, 1.0, arm=policy.choose(rows, ids=ids), ids=ids)
            seconds.append((time.process_time() - begin) / (count // 4) * 1e6)
        yield [f"{count:,} ids that come and go, {name}: µs a round by quarters", *seconds, seconds[3] / seconds[1]]


def _keys(options: Options) -> Iterator[list[Any]]:
    """All wait; then they are saved, loaded, and half of them learned."""
    count = 4_000 if options.quick else 200_000
    policy = LinUCB(tracker=SAGA(20, steps=1, seed=0), width=DiagonalWidth(), seed=0)
    arms = np.random.default_rng(0).normal(size=(5, 20))
    stamps = [time.process_time()]
    tell(f"{count} keys")
    for n in range(count):
        policy.choose(arms, key=n)
    stamps.append(time.process_time())
    with tempfile.TemporaryDirectory() as folder:
        policy.save(Path(folder) / "policy")
        stamps.append(time.process_time())
        policy = LinUCB.load(Path(folder) / "policy")
        stamps.append(time.process_time())
    for n in range(0, count, 2):
        policy.learn(reward=1.0, key=n)
    stamps.append(time.process_time())
    yield [f"{count:,} keys that wait: s to choose, save, load, learn half", *np.diff(stamps).tolist(), None]


def _memory(options: Options) -> Iterator[list[Any]]:
    """Default policies, by `play`, each in a process of its own: what others have freed would hide what it takes."""
    rounds = 20_000 if options.quick else 10_000_000
    for name in PLAYS:
        tell(f"{name}: {rounds:,} rounds")
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            resident, spent = alone.submit(_lived, name, rounds).result()
        yield [f"{rounds:,} rounds, {name}: MB", *resident, None, resident[-1] / resident[0]]
        yield [f"{rounds:,} rounds, {name}: µs a round", *spent, None, spent[-1] / spent[1]]


PLAYS: dict[str, Callable[[], Any]] = {
    "LinUCB, dense d = 20": lambda: LinUCB(20, seed=0),
    "LinUCB, sparse d = 100,000": lambda: LinUCB(100_000, seed=0),
    "DisjointLinUCB, d = 20": lambda: DisjointLinUCB(20, seed=0),
}


def _lived(name: str, rounds: int) -> tuple[list[float], list[float]]:
    """Memory of the process and time of a round, after a tenth of the rounds, at half and at the end."""
    policy, block, rng = PLAYS[name](), 2_000, np.random.default_rng(0)
    arms: Any = rng.normal(size=(block * (1 if policy.disjoint else ARMS), 20)) / 20
    if "sparse" in name:
        index = np.sort(rng.integers(0, 10_000, (block * ARMS, 10)) * 10 + np.arange(10), axis=1).astype(np.int32)
        arms = Rows(index.ravel(), rng.normal(size=index.size) / 10, np.arange(block * ARMS + 1) * 10, 100_000)
    rewards, ids = rng.normal(size=(block, ARMS)), list(range(ARMS)) if policy.disjoint else None
    resident, spent, begin, before = [], [], time.process_time(), 0
    for n in range(1, rounds // block + 1):
        policy.play(arms, rewards, ids=ids)
        if n in (rounds // block // 10, rounds // block // 2, rounds // block):
            resident.append(_resident())
            spent.append((time.process_time() - begin) / (n - before) / block * 1e6)
            begin, before = time.process_time(), n
    return resident, spent


def _resident() -> float:
    """MB of this process that are in memory now; where the system does not tell, the most that ever were."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


# -- threads ---------------------------------------------------------------------------------------------------------


def threads(options: Options) -> Table:
    """Blocks of rounds of policies of their own, and of one that two threads share."""
    dim, rng = 1_000, np.random.default_rng(0)
    arms, rewards = rng.normal(size=(200 * ARMS, dim)) / dim, rng.normal(size=(200, ARMS))
    policies = [LinUCB(tracker=SAGA(dim, seed=0), width=DiagonalWidth(), seed=0) for _ in range(2)]
    blocks = 2 if options.quick else 20

    def play(policy: LinUCB) -> None:
        for _ in range(blocks):
            policy.play(arms, rewards)

    def each(*turns: LinUCB) -> None:
        with ThreadPoolExecutor(len(turns)) as pool:
            list(pool.map(play, turns))

    each(*policies)  # which may compile
    work = {
        "one policy, one thread": lambda: each(policies[0]),
        "two policies, two threads": lambda: each(*policies),
        "one policy, two threads": lambda: each(policies[0], policies[0]),
    }
    found = timed(work, options.count(5, 2))
    alone, rows = 200 * blocks / found["one policy, one thread"].least, []
    for turns, (name, times) in zip((1, 2, 2), found.items()):
        speed = turns * 200 * blocks / times.least
        rows.append([name, speed, speed / alone])
    return Table(rows, f"SAGA with diagonal widths, d = {dim:,}, {ARMS} dense arms, by `play`.")
