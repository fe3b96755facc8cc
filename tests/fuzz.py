"""Random calls, good and bad, in processes of their own: no crash, no raw error, nothing changed by what was refused.

    python tests/fuzz.py --minutes 10 --seed 1                       # `make fuzz`
    python tests/fuzz.py --room trackers --seed 417 --sequences 1     # one sequence of calls again, in this process

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
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bad_rows import bad_blocks, bad_rows, forms, malformed
from driftls import Normalised, Power, ridge
from driftls.errors import DivergenceError, DriftlsError
from driftls.features import Features
from driftls.history import Growing, Mapped, Reservoir, Window
from driftls.log_replay import replay
from driftls.logs import Block, Event, inspect, read_table, synthetic_day
from driftls.offpolicy import estimate
from driftls.policies import DisjointLinUCB, Greedy, LinTS, LinUCB, Random
from driftls.sklearn import DriftingLeastSquares
from driftls.testing.common import good_rows, same_snapshot
from driftls.trackers import CD, GD, OLS, RAW, RLS, SAG, SAGA, SVRG, Diagonal
from driftls.widths import DiagonalWidth, ExactWidth, NoWidth, PhiWidth, SampleWidth

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


# -- policies ------------------------------------------------------------------------------------------------------

JUNK = (
    None, True, -1, 0, 1, 2.5, "x", "", b"x", np.nan, np.inf, -np.inf, 10**30, -(2**63), 1e300, 1j, [], {}, (), {1}, object(),
    np.eye(2), np.empty((0, 3)), np.array(["a"]), np.array([None]), [[1.0], [1.0, 2.0]], ["a", ["b"]], [np.nan], {"a": 1},
    len, range(3), np.datetime64("2020-01-01"), np.ma.masked_all(3), "\ud800", np.bool_(True), np.int8(3),
)  # fmt: skip


def spoiled(rng: np.random.Generator, given: dict[str, Any], often: float = 0.15) -> dict[str, Any]:
    """The same arguments, of which now and then one is something else."""
    return {name: pick(rng, *JUNK) if rng.random() < often else value for name, value in given.items()}


def random_width(rng: np.random.Generator) -> Any:
    return pick(
        rng, DiagonalWidth, ExactWidth, NoWidth, SampleWidth, PhiWidth, lambda: PhiWidth(2, method="printed"),
        lambda: PhiWidth(**spoiled(rng, {"steps": 1, "method": "regularised", "scale": 0.3})),
    )()  # fmt: skip


def random_policy(rng: np.random.Generator, folder: str) -> Any:
    dim, common = pick(rng, 1, 3, 6), {"seed": 0, "epsilon": pick(rng, 0.0, 0.1, 1.0)}
    tracker = pick(
        rng, RLS(dim), SAGA(dim, seed=0), RLS(dim, **RAW), SAGA(dim, seed=0, **RAW), CD(dim, **RAW), Diagonal(dim)
    )
    if rng.random() < 0.1:
        tracker = random_tracker(rng, folder)
    kappa = pick(rng, None, None, 0.5, 0.0)
    return pick(
        rng,
        lambda: LinUCB(**spoiled(rng, {"dim": dim, "kappa": kappa, "sigmas": 1.0, "forget_after": 3, **common}, 0.03)),
        lambda: LinUCB(tracker=tracker, width=random_width(rng), **spoiled(rng, {"kappa": kappa, **common}, 0.03)),
        lambda: DisjointLinUCB(**spoiled(rng, {"dim": dim, "most_arms": pick(rng, 7, 100), **common}, 0.03)),
        lambda: DisjointLinUCB(dim, tracker=tracker, width=random_width(rng), most_arms=9, **common),
        lambda: LinTS(**spoiled(rng, {"dim": dim, "seed": 0}, 0.05)),
        lambda: Greedy(pick(rng, tracker, tracker, *JUNK), seed=0),
        lambda: Random(dim, seed=0),
    )()


def random_arms(rng: np.random.Generator, policy: Any, count: int) -> Any:
    X, _ = good_rows(policy.dim, count, seed=int(rng.integers(2**31)))
    X *= pick(rng, 1.0, 1.0, 1e-80, 1e30, 1e80, 0.0)
    kind = rng.random()
    if kind < 0.75:
        return pick(rng, np.array, sp.csr_array)(X)
    if kind < 0.85:
        return pick(rng, X.tolist(), X.astype(np.float32), sp.csc_array(X), (np.arange(policy.dim), X[0]), X[0])
    return pick(rng, *(matrix for _, matrix in all_malformed(policy.dim, count)), np.nan * X, X[:, :-1])


@cache
def all_malformed(dim: int, count: int) -> list[Any]:
    return list(malformed(dim, count))


def policy_calls(rng: np.random.Generator, folder: str) -> Iterator[Any]:
    """A policy, and then calls of it without end."""
    box = [random_policy(rng, folder)]
    yield box
    path, known = Path(folder) / "file", list("abcdefghijkl")

    def replaced(way: Callable[[Any], Any]) -> None:
        before = box[0].snapshot()
        box[0] = way(box[0])
        same_snapshot(before, box[0].snapshot(), "a copy")

    def loaded(policy: Any) -> Any:
        policy.save(path)
        return type(policy).load(path, **policy.functions())

    while True:
        policy, count, rounds = box[0], int(pick(rng, 1, 2, 5)), int(pick(rng, 1, 3))
        lines = 1 if policy.disjoint else count
        arms, ids = random_arms(rng, policy, lines), [str(name) for name in rng.permutation(known)[:count]]
        given = {"ids": ids if policy.disjoint or rng.random() < 0.5 else None}
        key, arm, reward = pick(rng, None, 1, "k", ("t", 2)), int(rng.integers(count)), float(rng.normal())
        name = pick(rng, "choose", "choose", "choose", "learn", "learn", "learn", "key", "scores", "widths", "probabilities",
                    "play", "play", "many", "remember", "say", "copy", "file")  # fmt: skip
        if name == "choose":
            allowed = pick(rng, None, None, [0], np.ones(count, bool))
            more = spoiled(rng, {**given, "key": key, "allowed": allowed}, 0.1)
            yield Call(name, lambda p=policy, a=arms, m=more: p.choose(a, **m))
        elif name == "learn":
            more = spoiled(rng, {**given, "reward": reward, "arm": arm}, 0.1)
            yield Call(name, lambda p=policy, a=arms, m=more: p.learn(a, **m))
        elif name == "key":
            more = spoiled(rng, {"key": pick(rng, 1, "k", ("t", 2)), "reward": reward}, 0.1)
            yield Call(name, lambda p=policy, m=more: p.learn(**m))
        elif name in ("scores", "widths", "probabilities"):
            more = spoiled(rng, given, 0.1)
            yield Call(name, lambda p=policy, a=arms, m=more, n=name: getattr(p, n)(a, **m), True)
        elif name in ("play", "many"):
            several = random_arms(rng, policy, lines * rounds)
            table = spoiled(rng, {**given, "rewards": rng.normal(size=(rounds, count))}, 0.1)
            if rng.random() < 0.3:
                table |= spoiled(
                    rng, {"rewards": rng.normal(size=rounds), "shown": rng.integers(-1, count, rounds)}, 0.1
                )
            if name == "many":
                yield Call(name, lambda p=policy, a=several, m=table: p.choose_many(a, ids=m["ids"]))
            else:
                yield Call(name, lambda p=policy, a=several, m=table: p.play(a, **m))
        elif name == "remember":
            more = spoiled(rng, {"key": pick(rng, 1, "k", 3), "x": random_arms(rng, policy, 1), "name": ids[0]}, 0.1)
            yield Call(name, lambda p=policy, m=more: p.remember(**m))
        elif name == "say":
            yield Call(name, lambda p=policy: (repr(p), p.kappa, p.epsilon, p.sigmas, p.probability), True)
        elif name == "copy":
            yield Call(
                name, lambda: replaced(pick(rng, copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))))
            )
        else:
            yield Call(name, lambda: replaced(loaded))


# -- features, events, the scikit-learn estimator, settings ------------------------------------------------------------


class Box:
    """Something without a snapshot of its own."""

    def __init__(self, thing: Any, state: Callable[[Any], Any]) -> None:
        self.thing, self._state = thing, state

    def snapshot(self) -> tuple[Any, dict[str, Any]]:
        return self._state(self.thing), {}

    def __repr__(self) -> str:
        return repr(self.thing)


def random_record(rng: np.random.Generator) -> Any:
    good = {
        "age": int(rng.integers(90)),
        "city": pick(rng, "Oslo", "Rome"),
        "tags": ["a", "b"],
        "rate": float(rng.normal()),
    }
    return pick(rng, *JUNK) if rng.random() < 0.05 else spoiled(rng, good, 0.05)


def feature_calls(rng: np.random.Generator, folder: str) -> Iterator[Any]:
    settings = {
        "dim": pick(rng, None, None, 8, 1024),
        "cross": pick(rng, (), "all", [("city", "city")]),
        "constant": True,
    }
    made = Features(**spoiled(rng, settings, 0.04))
    yield [Box(made, lambda f: json.dumps([f.to_header(), str(f), f.collisions], default=str))]
    while True:
        user, items = random_record(rng), [random_record(rng) for _ in range(pick(rng, 0, 1, 3))]
        if rng.random() < 0.05:
            items = pick(rng, *JUNK)
        yield pick(
            rng,
            Call("arms", lambda u=user, i=items: made.arms(u, i)),
            Call("arms", lambda u=user, i=items: made.arms(u, i)),
            Call("user", lambda u=user: made.user(u)),
            Call("table", lambda i=items, u=user: made.table([u] * 2, i)),
            Call("rounds", lambda i=items, u=user: made.rounds([u], [i])),
            Call("names", lambda: (made.names, made.missing, made.dim, repr(made)), True),
            Call("collisions", lambda: made.collisions, True),
            Call("copy", lambda: copy.deepcopy(made), True),
        )


def event_calls(rng: np.random.Generator, folder: str) -> Iterator[Any]:
    """Events and blocks, which nothing changes."""
    kept: list[Any] = [next(synthetic_day(lines=40, seed=int(rng.integers(99))).blocks()).part(0, 7)]
    box = Box(kept, lambda _: None)
    yield [box]
    while True:
        events = []
        for event in list(kept[0])[: int(rng.integers(1, 4))]:
            fields = {name: getattr(event, name) for name in event.__dataclass_fields__}
            events.append(Event(**spoiled(rng, fields, 0.04)))
        i, j = sorted(int(n) for n in rng.integers(0, len(kept[0]), 2))
        yield pick(
            rng,
            Call("from_events", lambda e=events: Block.from_events(e)),
            Call("event", lambda i=i: kept[0][i]),
            Call("part", lambda i=i, j=j: kept[0].part(i, j)),
            Call("join", lambda e=events: Block.join([kept[0], Block.from_events(e)])),
            Call("iterate", lambda: (list(kept[0]), len(kept[0]), kept[0] == kept[0])),
        )


def table_calls(rng: np.random.Generator, folder: str) -> Iterator[Any]:
    """Logs of dicts, replayed with a policy that takes them; a replay that stops has learned what came before."""
    columns = {"shown": "city", "reward": "age", "propensity": "rate", "arms": None, "items": None, "visitor": None}
    yield [Box(columns, lambda _: None)]
    while True:
        rows = [
            {**record, "rate": 0.5, "city": record.get("city", "Oslo")} if isinstance(record, dict) else record
            for record in (random_record(rng) for _ in range(pick(rng, 0, 2, 6)))
        ]
        given = spoiled(rng, columns, 0.06) | {"on_error": pick(rng, "raise", "skip")}
        source = rows if rng.random() > 0.05 else pick(rng, *(junk for junk in JUNK if not isinstance(junk, str)))
        policy: Any = pick(rng, DisjointLinUCB, LinUCB)(features=Features(pick(rng, None, 32)), seed=0)
        yield pick(
            rng,
            Call("read_table", lambda s=source, g=given: list(read_table(s, **g))),
            Call("inspect", lambda s=source, g=given: inspect(read_table(s, **g))),
            Call("replay", lambda s=source, g=given, p=policy: replay(p, read_table(s, **g))),
            Call("estimate", lambda s=source, g=given, p=policy: estimate(p, read_table(s, **g))),
        )


def sklearn_calls(rng: np.random.Generator, folder: str) -> Iterator[Any]:
    settings = {
        "solver": pick(rng, "saga", "sag", "svrg", "gd", "cd", "diagonal", "rls"), "ridge": pick(rng, 0.0, 1.0, 0.1),
        "passes": pick(rng, 1, 3), "fit_intercept": True, "random_state": 0,
    }  # fmt: skip
    made = DriftingLeastSquares(**spoiled(rng, settings, 0.05))

    def state(model: Any) -> Any:
        found = getattr(model, "tracker_", None)
        return None if found is None else [np.asarray(found.theta).tobytes(), len(found)]

    yield [Box(made, state)]
    dim = int(pick(rng, 1, 4))
    while True:
        X, y = random_rows(rng, dim)
        yield pick(
            rng,
            Call("partial_fit", lambda X=X, y=y: made.partial_fit(X, y)),
            Call("partial_fit", lambda X=X, y=y: made.partial_fit(X, y)),
            Call("fit", lambda X=X, y=y: made.fit(X, y)),
            Call("predict", lambda X=X: made.predict(X), True),
            Call("score", lambda X=X, y=y: made.score(X, y), True),
            Call("repr", lambda: (repr(made), made.get_params(), pickle.dumps(made)), True),
        )


def settings_calls(rng: np.random.Generator, folder: str) -> Iterator[Any]:
    """Constructors of whatever is only settings."""
    yield [Box(None, lambda _: None)]
    kinds: list[Any] = [
        Power,
        Normalised,
        ridge,
        Power.theorem_one,
        Window,
        Reservoir,
        Mapped,
        Mapped.read,
        PhiWidth,
        Features,
    ]
    while True:
        kind, values = pick(rng, *kinds), [pick(rng, *JUNK) for _ in range(pick(rng, 1, 1, 2))]
        if isinstance(values[0], str | bytes) and kind in (Mapped, Mapped.read):
            values[0] = f"{folder}/{len(values[0])}"
        count = 2 if kind in (Power, Power.theorem_one) else 1
        yield Call(getattr(kind, "__name__", "?"), lambda k=kind, v=values[:count]: k(*v))


ROOMS: dict[str, Callable[[np.random.Generator, str], Iterator[Any]]] = {
    "trackers": tracker_calls,
    "policies": policy_calls,
    "features": feature_calls,
    "events": event_calls,
    "tables": table_calls,
    "sklearn": sklearn_calls,
    "settings": settings_calls,
}
THEIRS = (os.sep + "sklearn" + os.sep,)  # whose own checks have their own errors


def raw(error: Exception) -> bool:
    """Whether an error is not one of ours, nor of the library on whose behalf we are called."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    files = [file for file in files if not file.endswith(".pyx")][-3:]  # NumPy's own, which they call
    theirs = any(name in file for name in THEIRS for file in files)
    return not (theirs and isinstance(error, ValueError | TypeError | OverflowError))


# -- running -------------------------------------------------------------------------------------------------------


def changed(before: Any, thing: Any) -> str | None:
    try:
        same_snapshot(before, thing.snapshot(), "snapshot")
    except (AssertionError, DriftlsError) as error:
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
            return [f"{room}, seed {seed}: constructor: raw {type(error).__name__}: {error}"]
        for number in range(CALLS):
            call = next(calls)
            try:
                before = box[0].snapshot()
            except DriftlsError:  # an id that no file can hold
                break
            what = f"{room}, seed {seed}: call {number}, {call.name} of {box[0]!r:.60}"
            refused = False
            try:
                call.run()
                count["taken"] += 1
            except DivergenceError as error:
                count["diverged"] += 1
                if "squared error" in str(error):  # it was learned, and said; whoever is told so begins anew
                    break
                refused = True
            except DriftlsError:
                count["refused"] += 1
                refused = True
            except Exception as error:
                refused = True
                if raw(error):
                    found.append(f"{what}: raw {type(error).__name__}: {error}")
            if refused or call.question:
                difference = changed(before, box[0])
                if difference:
                    found.append(f"{what}: {difference}")
        if hasattr(getattr(box[0], "history", None), "close"):
            box[0].history.close()
    return found


def batch(rooms: list[str], first: int, sequences: int) -> None:
    """Some sequences of each room in this process; the last line of stdout is what was found."""
    warnings.simplefilter("ignore")
    count: Counter[str] = Counter()
    found: list[str] = []
    for room, seed in product(rooms, range(first, first + sequences)):
        print(f"{room}, seed {seed}", flush=True)
        found += sequence(room, seed, count)
    print(json.dumps({"count": count, "found": found}))


def run(rooms: list[str], first: int, sequences: int = BATCH) -> tuple[Counter[str], list[str]]:
    """A batch in a process of its own; a crash is found by its last line."""
    command = [sys.executable, __file__, "--seed", str(first), "--sequences", str(sequences), "--room", *rooms]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode != 0:
        last = lines[-1] if lines else "?"
        return Counter(), [f"{last}: the process ended with {done.returncode}: {done.stderr[-2000:]}"]
    result = json.loads(lines[-1])
    return Counter(result["count"]), result["found"]


def threads(seconds: float, seed: int) -> int:
    """Four threads, any mix of calls, on every tracker and policy in turn, against the order in which they had the lock."""
    import cases
    import policy_cases
    from turns import POLICY, TRACKER, threads_take_turns

    warnings.simplefilter("ignore")
    jobs = [(TRACKER, cases.name(case), partial(cases.make, case)) for case in cases.CASES]
    jobs += [(POLICY, name, make) for name, make in policy_cases.CASES.items()]
    end, calls, found = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        for turns, name, make in jobs:
            try:
                threads_take_turns(turns, make, workers=4, calls=25, seed=seed)
            except Exception as error:
                found += 1
                print(f"{name}, seed {seed}: {type(error).__name__}: {error}", flush=True)
            calls += 4 * 4 * 25  # two layouts, mixed and alike
            if time.monotonic() >= end:
                break
        seed += 1
    print(f"{calls:,} calls from four threads in {seconds:g} s, {found} differences from an order of calls")
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", nargs="+", choices=list(ROOMS), default=list(ROOMS))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calls", type=int, default=10**9, help="end after so many, if that is earlier")
    parser.add_argument(
        "--sequences", type=int, default=0, help="run so many here, instead of batches for some minutes"
    )
    parser.add_argument("--threads", type=float, default=0.0, help="so many seconds of calls from four threads instead")
    chosen = parser.parse_args()
    if chosen.threads:
        return threads(chosen.threads, chosen.seed)
    if chosen.sequences:
        batch(chosen.room, chosen.seed, chosen.sequences)
        return 0
    total: Counter[str] = Counter()
    found: list[str] = []
    seed, end = chosen.seed, time.monotonic() + 60.0 * chosen.minutes
    while time.monotonic() < end and sum(total.values()) < chosen.calls:
        for room in chosen.room:
            count, more = run([room], seed)
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
