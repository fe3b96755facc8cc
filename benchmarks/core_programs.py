"""What `python -m benchmarks core` runs with either tree: `python core_programs.py PART REPETITIONS`.

Imports NumPy, SciPy and the public API of driftls that all trees have, and nothing of benchmarks. Prints one JSON
object: for each program microseconds of processor time (the least of its repetitions) and a digest of what came out.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import zlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp

Program = Callable[[], Callable[[], Any]]  # makes fresh objects, untimed; what it returns is timed

# -- cold: each a process of its own, with an empty cache ------------------------------------------------------------

SPARSE = "x = csr_array((np.ones(300), np.arange(300) * 7, np.arange(21) * 15), shape=(20, 100_000))"
ROUND = "k = policy.choose(x); policy.learn(x, 1.0, arm=k)"
COLD = {
    "import driftls": "import driftls",
    "SAGA(136).update": "from driftls.trackers import SAGA; SAGA(136).update(np.ones(136), 1.0)",
    "LinUCB(136)": f"from driftls.policies import LinUCB; policy = LinUCB(136); x = np.ones((20, 136)); {ROUND}",
    "LinUCB(1000)": f"from driftls.policies import LinUCB; policy = LinUCB(1000); x = np.ones((20, 1000)); {ROUND}",
    "LinUCB(100000), sparse": f"from driftls.policies import LinUCB; policy = LinUCB(100_000); {SPARSE}; {ROUND}",
    "DisjointLinUCB(136), sparse": (
        "from driftls.policies import DisjointLinUCB; policy = DisjointLinUCB(136); ids = list(range(40)); "
        "x = csr_array((np.ones(10), np.arange(10) * 9, [0, 10]), shape=(1, 136)); "
        "k = policy.choose(x, ids=ids); policy.learn(x, 1.0, arm=k, ids=ids)"
    ),
}


def cold(name: str) -> str:
    """The program of this name."""
    start = "import numpy as np\nfrom scipy.sparse import csr_array\n" if name != "import driftls" else ""
    return start + COLD[name]


# -- loops -----------------------------------------------------------------------------------------------------------


def rows(count: int, dim: int, nnz: int | None = None) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    if nnz is None:
        return rng.normal(size=(count, dim)) / np.sqrt(dim), rng.normal(size=count)
    columns = np.arange(nnz) * (dim // nnz) + rng.integers(0, dim // nnz, size=(count, nnz))
    start = np.arange(count + 1) * nnz
    return sp.csr_array((rng.normal(size=columns.size), columns.ravel(), start), (count, dim)), rng.normal(size=count)


def named(*modules: str) -> Any:
    """The function of the last name, in whichever module a tree has it: 0.1 has it in one of its own name."""
    for module in modules:
        try:
            return getattr(importlib.import_module(f"driftls.{module}"), modules[-1])
        except ImportError:
            continue
    raise ImportError(f"driftls has none of {', '.join(modules)}.")


def fitted(make: Callable[[], Any], count: int, dim: int, nnz: int | None = None) -> tuple[Program, int]:
    X, y = rows(count, dim, nnz)

    def program() -> Callable[[], Any]:
        tracker = make()
        return lambda: tracker.partial_fit(X, y).theta

    return program, count


def simulated(make: Callable[[], Any], rounds: int, dim: int, nnz: int | None = None) -> tuple[Program, int]:
    from driftls.environments import FreshContexts

    simulate: Any = named("simulation", "simulate")
    environment: Any = FreshContexts(dim, 20, nnz=nnz, sigma=0.3, seed=0)
    environment.block = cache(environment.block)  # arms are drawn once, in the round that warms up

    def program() -> Callable[[], Any]:
        policy = make()
        return lambda: [simulate(policy, environment, rounds, points=[rounds]).last("reward")]

    return program, rounds


def made(name: str, dim: int, raw: bool) -> Any:
    """A tracker of this name; raw: with 0.1's defaults, where a tree has others: no units, no intercept, all rows kept."""
    module = importlib.import_module("driftls.trackers")
    settings: dict[str, Any] = {} if name in ("RLS", "CD") else {"seed": 0}
    if raw and hasattr(module, "RAW"):
        settings |= module.RAW
        if "seed" in settings:
            settings["history"] = importlib.import_module("driftls.history").Growing()
    return getattr(module, name)(dim, **settings)


def exact(dim: int, raw: bool) -> Any:
    from driftls.policies import LinUCB

    return LinUCB(tracker=made("RLS", dim, raw), seed=0) if raw else LinUCB(dim, seed=0)


def loops(raw: bool = False) -> dict[str, tuple[Program, int]]:
    from driftls.policies import LinUCB
    from driftls.widths import DiagonalWidth

    def fast(dim: int) -> Any:
        return LinUCB(tracker=made("SAGA", dim, raw), width=DiagonalWidth(), seed=0)

    return {
        "SAGA(136).partial_fit": fitted(lambda: made("SAGA", 136, raw), 8000, 136),
        "GD(136).partial_fit": fitted(lambda: made("GD", 136, raw), 8000, 136),
        "RLS(136).partial_fit": fitted(lambda: made("RLS", 136, raw), 1000, 136),
        "CD(136).partial_fit": fitted(lambda: made("CD", 136, raw), 2000, 136),
        "SAGA, sparse 10 of 100,000": fitted(lambda: made("SAGA", 100_000, raw), 8000, 100_000, 10),
        "SAGA, sparse 50 of 100,000": fitted(lambda: made("SAGA", 100_000, raw), 4000, 100_000, 50),
        "simulate LinUCB(136)": simulated(lambda: exact(136, raw), 1024, 136),
        "simulate SAGA + diagonal, 136": simulated(lambda: fast(136), 2048, 136),
        "simulate SAGA + diagonal, 15 of 100,000": simulated(lambda: fast(100_000), 4096, 100_000, 15),
    }


# -- rounds from Python ----------------------------------------------------------------------------------------------


def rounds_of(make: Callable[[], Any], arms: list[Any], **ids: Any) -> tuple[Program, int]:
    K = len(ids["ids"]) if ids else arms[0].shape[0]
    rewards = np.random.default_rng(1).normal(size=(len(arms), K)).tolist()

    def program() -> Callable[[], Any]:
        policy = make()

        def play() -> list[int]:
            chosen = []
            for x, reward in zip(arms, rewards):
                k = policy.choose(x, **ids)
                policy.learn(x, reward[k], arm=k, **ids)
                chosen.append(int(k))
            return chosen

        return play

    return program, len(arms)


def rounds(raw: bool = False) -> dict[str, tuple[Program, int]]:
    from driftls.policies import DisjointLinUCB, LinUCB
    from driftls.widths import DiagonalWidth, ExactWidth

    def split(count: int, dim: int, nnz: int | None = None, K: int = 20) -> list[Any]:
        X, _ = rows(count * K, dim, nnz)
        return [X[first : first + K] for first in range(0, count * K, K)]

    X, y = rows(2000, 136)

    def updates() -> Callable[[], Any]:
        tracker = made("SAGA", 136, raw)

        def run() -> Any:
            for x, target in zip(X, y):
                tracker.update(x, target)
            return tracker.theta

        return run

    def fast(dim: int) -> Callable[[], Any]:
        return lambda: LinUCB(tracker=made("SAGA", dim, raw), width=DiagonalWidth(), seed=0)

    def disjoint() -> Any:
        return DisjointLinUCB(136, seed=0, **({"tracker": made("RLS", 136, raw), "width": ExactWidth()} if raw else {}))

    found = {
        "SAGA(136).update": (updates, 2000),
        "LinUCB(136)": rounds_of(lambda: exact(136, raw), split(500, 136)),
        "SAGA + diagonal, 136": rounds_of(fast(136), split(1000, 136)),
        "SAGA + diagonal, 15 of 136, sparse": rounds_of(fast(136), split(1000, 136, 15)),
        "SAGA + diagonal, 15 of 100,000, sparse": rounds_of(fast(100_000), split(1000, 100_000, 15)),
        "DisjointLinUCB(136), 40 ids": rounds_of(disjoint, split(500, 136, 10, K=1), ids=list(range(40))),
    }
    if not raw:  # whose parts are others in each tree
        found["LinUCB(1000)"] = rounds_of(lambda: LinUCB(1000, seed=0), split(300, 1000))
        found["LinUCB(100000), 15 non-zeros"] = rounds_of(lambda: LinUCB(100_000, seed=0), split(1000, 100_000, 15))
    return found


# -- the day ---------------------------------------------------------------------------------------------------------


def day(raw: bool = False) -> dict[str, tuple[Program, int]]:
    from driftls.logs import synthetic_day
    from driftls.policies import DisjointLinUCB
    from driftls.widths import DiagonalWidth, ExactWidth

    lines = 50_000
    log, drawn_once = synthetic_day(lines=lines, seed=1), dict[Any, Any]()
    drawn = log.blocks

    def blocks(*arguments: Any, **named: Any) -> Any:
        """Drawn once, in the replay that warms up."""
        key = arguments, *sorted(named.items())
        if key not in drawn_once:
            drawn_once[key] = list(drawn(*arguments, **named))
        return iter(drawn_once[key])

    object.__setattr__(log, "blocks", blocks)

    replay: Any = named("log_replay", "replay")

    def replayed(make: Callable[[], Any]) -> tuple[Program, int]:
        def program() -> Callable[[], Any]:
            policy = make()
            return lambda: [replay(policy, log, points=[lines]).settings["estimates"]["replay"]["value"]]

        return program, lines

    def fast() -> Any:
        return DisjointLinUCB(136, tracker=made("SAGA", 136, raw), width=DiagonalWidth(), seed=0)

    def disjoint() -> Any:
        return DisjointLinUCB(136, seed=0, **({"tracker": made("RLS", 136, raw), "width": ExactWidth()} if raw else {}))

    return {
        "replay DisjointLinUCB(136)": replayed(disjoint),
        "replay SAGA + diagonal an article": replayed(fast),
    }


PARTS = {
    **{"loops": loops, "rounds": rounds, "day": day},
    **{"raw-loops": partial(loops, True), "raw-rounds": partial(rounds, True), "raw-day": partial(day, True)},
}


def digest(found: Any) -> int:
    """Of numbers to nine digits."""
    return zlib.crc32(np.array([f"{value:.9g}" for value in np.asarray(found).ravel().tolist()]).tobytes())


def main(part: str, repetitions: int) -> None:
    found: dict[str, Any] = {}
    for name, (program, units) in PARTS[part]().items():
        try:
            result = digest(program()())  # which may compile
            spent = list[float]()
            while len(spent) < repetitions or sum(spent) < 0.1 * repetitions:  # short ones more often
                run = program()
                begin = time.process_time()
                run()
                spent.append(time.process_time() - begin)
        except Exception as error:  # a tree without this API: the others still count
            found[name] = {"error": f"{type(error).__name__}: {error}"}
        else:
            found[name] = {"us": 1e6 * min(spent) / units, "digest": result}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
