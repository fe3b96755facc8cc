"""Random calls, good and bad, in processes of their own: no crash, no raw error, nothing changed by what was refused.

    python tests/fuzz.py --minutes 10 --seed 1        # `make fuzz`
    python tests/fuzz.py --seed 417 --sequences 1     # one sequence of calls again, in this process

A room says how to build something at random and which calls it has; another room is one more function in ROOMS.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from driftls import Normalised, Power, ridge
from driftls.errors import DivergenceError, DriftlsError
from driftls.history import Growing, Mapped, Reservoir, Window
from driftls.testing.rows import bad_blocks, bad_rows, forms, good_rows
from driftls.testing.trackers import same_snapshot
from driftls.trackers import CD, GD, OLS, RLS, SAG, SAGA, SVRG, Diagonal

BATCH = 60  # sequences in a process
CALLS = 25  # in a sequence


class Call(NamedTuple):
    """A call at random; a question must change nothing, and neither may anything that is refused."""

    name: str
    run: Callable[[], Any]
    question: bool = False


# -- trackers ------------------------------------------------------------------------------------------------------


def pick(rng: np.random.Generator, *choices: Any) -> Any:
    return choices[rng.integers(len(choices))]


@cache
def all_bad_blocks(dim: int) -> list[Any]:
    return list(bad_blocks(dim))


@cache
def all_bad_rows(dim: int) -> list[Any]:
    return list(bad_rows(dim))


def random_tracker(rng: np.random.Generator, folder: str) -> Any:
    """A tracker with settings that are right, or now and then wrong."""
    kind = pick(rng, CD, GD, OLS, RLS, SAG, SAGA, SAGA, SVRG, Diagonal)
    schedules = (0.0, 0.1, 1e-12, 1e12, Power(1, 2, 0.5), ridge(2.0), Normalised(0.3), lambda n: 1.0 / n)
    right: dict[str, tuple[Any, ...]] = {
        "dim": (1, 2, 3, 6, 17),
        "history": (
            None,
            Growing(),
            Window(int(rng.integers(1, 30))),
            Reservoir(int(rng.integers(1, 30))),
            Mapped(f"{folder}/rows"),
        ),
        "regularisation": schedules,
        "step_size": schedules,
        "steps": (1, 2, 5),
        "seed": (0, 7, None),
        "discount": (1.0, 0.9, 1e-3),
        "method": ("auto", "cholesky", "inverse", "sherman-morrison"),
        "averaging": (None, "tail", "polyak"),
        "newest": (True, False),
        "anchor": ("refreshed", "average"),
        "every": (1, 7),
        "guard": (False, True),
        "scale": (False, True),
        "intercept": (False, True),
    }
    wrong = (-1, 0, 2.5, "x", None, np.nan, np.inf, 10**30, [], object(), True, np.eye(2))
    code = kind.__init__.__code__
    settings = {"dim": pick(rng, *right["dim"])}
    for name in code.co_varnames[2 : 2 + code.co_kwonlyargcount]:
        if rng.random() < 0.3:
            settings[name] = pick(rng, *right[name])
    if rng.random() < 0.1:
        settings[pick(rng, *settings)] = pick(rng, *wrong)
    return kind(**settings)


def random_rows(rng: np.random.Generator, dim: int) -> tuple[Any, Any]:
    """A block: good, at the limits, or with something wrong."""
    count = int(pick(rng, 0, 1, 1, 2, 7, 40))
    X, y = good_rows(dim, max(count, 1), seed=int(rng.integers(2**31)))
    X, y = X[:count] * pick(rng, 1.0, 1.0, 1e-80, 1e30, 3.0), y[:count] * pick(rng, 1.0, 1.0, 0.0, 1e70)
    kind = rng.random()
    if kind < 0.5:
        return pick(rng, np.array, sp.csr_array)(X), y
    if kind < 0.6:
        return pick(rng, *(form for _, form in forms((X > 0).astype(float)))) if count else X, y
    if kind < 0.8:
        _, X, y = pick(rng, *all_bad_blocks(dim))
        return X, y
    matrix = pick(rng, sp.csr_array, sp.csc_array, sp.bsr_array)(good_rows(dim, 5)[0])
    part = pick(rng, "indptr", "indices", "data")
    array = getattr(matrix, part).astype(pick(rng, np.int8, np.int32, np.int64, np.uint64, float)).copy()
    if array.size:
        with np.errstate(all="ignore"):
            array.flat[rng.integers(array.size)] = pick(rng, 0, 1, 5, 100)
    setattr(matrix, part, array[: array.size - rng.integers(2)])
    return matrix, np.ones(5)


def tracker_calls(rng: np.random.Generator, folder: str) -> Iterator[Any]:
    """A tracker, and then calls of it without end."""
    box = [random_tracker(rng, folder)]
    yield box
    path = Path(folder) / "file"

    def replaced(way: Callable[[Any], Any]) -> None:
        if not isinstance(box[0].history, Mapped):
            before = box[0].snapshot()
            box[0] = way(box[0])
            same_snapshot(before, box[0].snapshot(), "a copy")

    def loaded(tracker: Any) -> Any:
        tracker.save(path)
        return type(tracker).load(path, **tracker.functions())

    while True:
        tracker = box[0]
        X, y = random_rows(rng, tracker.dim)
        _, x, reward = pick(rng, *all_bad_rows(tracker.dim))
        row, value = good_rows(tracker.dim, 1, seed=int(rng.integers(2**31)))
        at = np.flatnonzero(row[0])
        yield pick(
            rng,
            Call("partial_fit", lambda t=tracker, X=X, y=y: t.partial_fit(X, y)),
            Call("partial_fit", lambda t=tracker, X=X, y=y: t.partial_fit(X, y)),
            Call("update", lambda t=tracker, x=x, y=reward: t.update(x, y)),
            Call("update", lambda t=tracker, x=row[0], y=value[0]: t.update(x, float(y))),
            Call("update", lambda t=tracker, x=(at, row[0][at]): t.update(x, 1.0)),
            Call("predict", lambda t=tracker, X=X: t.predict(X), True),
            Call("predict", lambda t=tracker, x=x: t.predict(x), True),
            Call("theta", lambda t=tracker: t.theta, True),
            Call("tracking_error", lambda t=tracker: t.tracking_error(), True),
            Call("repr", lambda t=tracker: (repr(t), len(t), t.sparse), True),
            Call("fresh", lambda t=tracker: t.fresh(3), True),
            Call("copy", lambda: replaced(copy.copy)),
            Call("pickle", lambda: replaced(lambda t: t if t.functions() else pickle.loads(pickle.dumps(t)))),
            Call("save and load", lambda: replaced(loaded)),
        )


ROOMS: dict[str, Callable[[np.random.Generator, str], Iterator[Any]]] = {"trackers": tracker_calls}

# -- running -------------------------------------------------------------------------------------------------------


def changed(before: Any, thing: Any) -> str | None:
    try:
        same_snapshot(before, thing.snapshot(), "snapshot")
    except AssertionError as error:
        return str(error)[:300]
    return None


def sequence(room: str, seed: int, count: Counter[str]) -> list[str]:
    """One thing and some calls of it; what was found wrong."""
    rng, found = np.random.default_rng(seed), []
    with tempfile.TemporaryDirectory() as folder:
        calls = ROOMS[room](rng, folder)
        try:
            box = next(calls)
        except DriftlsError:
            count["settings refused"] += 1
            return []
        except Exception as error:
            return [f"seed {seed}: constructor: raw {type(error).__name__}: {error}"]
        for number in range(CALLS):
            call = next(calls)
            before, what = box[0].snapshot(), f"seed {seed}: call {number}, {call.name} of {box[0]!r:.60}"
            refused = False
            try:
                call.run()
                count["taken"] += 1
            except DivergenceError as error:
                count["diverged"] += 1
                refused = "after row" not in str(error)
            except DriftlsError:
                count["refused"] += 1
                refused = True
            except Exception as error:
                found.append(f"{what}: raw {type(error).__name__}: {error}")
            if refused or call.question:
                difference = changed(before, box[0])
                if difference:
                    found.append(f"{what}: {difference}")
        if hasattr(getattr(box[0], "history", None), "close"):
            box[0].history.close()
    return found


def batch(room: str, first: int, sequences: int) -> None:
    """Some sequences in this process; the last line of stdout is what was found."""
    warnings.simplefilter("ignore")
    count: Counter[str] = Counter()
    found: list[str] = []
    for seed in range(first, first + sequences):
        print(seed, flush=True)
        found += sequence(room, seed, count)
    print(json.dumps({"count": count, "found": found}))


def run(room: str, first: int, sequences: int = BATCH) -> tuple[Counter[str], list[str]]:
    """A batch in a process of its own; a crash is found by its last line."""
    command = [sys.executable, __file__, "--room", room, "--seed", str(first), "--sequences", str(sequences)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode != 0:
        last = lines[-1] if lines else "?"
        return Counter(), [f"seed {last}: the process ended with {done.returncode}: {done.stderr[-2000:]}"]
    result = json.loads(lines[-1])
    return Counter(result["count"]), result["found"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", choices=list(ROOMS), default=None)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--sequences", type=int, default=0, help="run so many here, instead of batches for some minutes"
    )
    chosen = parser.parse_args()
    rooms = [chosen.room] if chosen.room else list(ROOMS)
    if chosen.sequences:
        batch(rooms[0], chosen.seed, chosen.sequences)
        return 0
    total: Counter[str] = Counter()
    found: list[str] = []
    seed, end = chosen.seed, time.monotonic() + 60.0 * chosen.minutes
    while time.monotonic() < end:
        for room in rooms:
            count, more = run(room, seed)
            total += count
            found += more
            for line in more:
                print(line, flush=True)
        seed += BATCH
        if sys.stderr.isatty():
            print(f"\r{sum(total.values()):,} calls, {len(found)} findings", end="", file=sys.stderr, flush=True)
    print(f"{sum(total.values()):,} calls ({dict(total)}), {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
