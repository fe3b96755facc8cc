"""From dicts and tables to arms, and single rows from Python, beside river, scikit-learn's FeatureHasher and VW's parsing.

    python -m benchmarks inputs|features|far [--quick]

`inputs`: sparse rows of 15 non-zeros, one call after the other: predict and update; a round (choose, learn) with 20 arms;
one model an arm over 40 ids; 40 crossed arms. river's SGD takes dicts and asks each arm by itself; exact by hand is
Sherman-Morrison in NumPy. `features`: a million rows (100,000 with --quick) of 10 categorical columns, with 2 to 100,000
categories, and one user of 5 columns with 10 items of 3, with all crosses. Processor time, the least of several
repetitions, in turn. Peers that are not installed are left out. `far`: 1,500 users of six numbers, moved by some of their
spreads, and two categories; the best of five arms has reward 1. With gaps, 3% of the numbers are missing.
"""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Options, Table, mean, tell
from driftls import SAGA, DisjointLinUCB, LinUCB
from driftls.features import CrossedArms, Features, Rows

CATEGORIES = (2, 5, 10, 20, 50, 100, 1000, 5000, 20_000, 100_000)
BITS = 18
USER = {"age": 31.0, "city": "Oslo", "device": "phone", "hour": 12, "plan": "free"}
ITEMS = [{"colour": f"c{k}", "price": float(k), "brand": f"b{k // 2}"} for k in range(10)]


def least(works: dict[str, Callable[[], Any]], repetitions: int, each: int = 1) -> dict[str, float]:
    """Processor seconds of each work, which take turns."""
    best = dict.fromkeys(works, np.inf)
    for _ in range(repetitions):
        for name, work in works.items():
            begin = time.process_time()
            for _ in range(each):
                work()
            best[name] = min(best[name], (time.process_time() - begin) / each)
    return best


def installed(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        return None


NNZ, ARMS, IDS, SMALL, LARGE = 15, 20, 40, 136, 1000
REWARDS = np.random.default_rng(1).random(1000).tolist()
WHO = ("driftls", "river SGD", "exact by hand")
Round = Callable[[int], Any]


class ByHand:
    """Exact least squares as one writes it: an inverse, by Sherman-Morrison."""

    def __init__(self, dim: int) -> None:
        self.inverse, self.b, self.theta = np.eye(dim), np.zeros(dim), np.zeros(dim)

    def predict(self, row: Any) -> float:
        indices, values = row
        return float(self.theta[indices] @ values)

    def ucb(self, row: Any) -> float:
        indices, values = row
        width2 = values @ self.inverse[np.ix_(indices, indices)] @ values
        return float(self.theta[indices] @ values + np.sqrt(width2))

    def update(self, row: Any, y: float) -> None:
        indices, values = row
        gain = self.inverse[:, indices] @ values
        self.inverse -= np.outer(gain, gain) / (1.0 + gain[indices] @ values)
        self.b[indices] += y * values
        self.theta = self.inverse @ self.b


def rows_of(count: int, dim: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    index = np.sort(rng.random((count, dim)).argpartition(NNZ, axis=1)[:, :NNZ], axis=1).astype(np.int32)
    return list(zip(index, rng.choice([-1.0, 1.0], (count, NNZ)) * rng.uniform(0.5, 1.5, (count, NNZ))))


def river_rounds(rows: list[Any], arms: int, models: int) -> Round | None:
    river = installed("river.linear_model")
    if river is None:
        return None
    dicts = [dict(zip(index.tolist(), value.tolist())) for index, value in rows]
    all_models = [river.LinearRegression() for _ in range(models)]

    def one(n: int) -> None:
        each = [dicts[n]] * models if models > 1 else dicts[n : n + arms]
        scores = [model.predict_one(x) for model, x in zip(all_models if models > 1 else all_models * arms, each)]
        k = max(range(len(scores)), key=scores.__getitem__)
        all_models[k if models > 1 else 0].learn_one(each[k], REWARDS[n])

    return one


def single_rows() -> dict[str, Round | None]:
    rows, tracker, hand = rows_of(1000, LARGE), SAGA(LARGE, seed=0), ByHand(LARGE)
    return {
        "driftls": lambda n: (tracker.predict(rows[n]), tracker.update(rows[n], REWARDS[n])),
        "river SGD": river_rounds(rows, 1, 1),
        "exact by hand": lambda n: (hand.predict(rows[n]), hand.update(rows[n], REWARDS[n])),
    }


def sparse_arms() -> dict[str, Round | None]:
    rows, policy, hand = rows_of(1000 + ARMS, LARGE), LinUCB(LARGE, seed=0), ByHand(LARGE)
    start = np.arange(0, NNZ * ARMS + 1, NNZ)
    index, value = (np.array(part) for part in zip(*rows))
    pools = [Rows(index[n : n + ARMS].ravel(), value[n : n + ARMS].ravel(), start, LARGE) for n in range(1000)]

    def by_hand(n: int) -> None:
        k = int(np.argmax([hand.ucb(row) for row in rows[n : n + ARMS]]))
        hand.update(rows[n + k], REWARDS[n])

    return {
        "driftls": lambda n: policy.learn(pools[n], REWARDS[n], arm=policy.choose(pools[n])),
        "river SGD": river_rounds(rows, ARMS, 1),
        "exact by hand": by_hand,
    }


def many_models() -> dict[str, Round | None]:
    rows, ids = rows_of(1000, SMALL), [f"id{k}" for k in range(IDS)]
    policy, hands = DisjointLinUCB(SMALL, tracker=SAGA(SMALL), seed=0), [ByHand(SMALL) for _ in range(IDS)]

    def by_hand(n: int) -> None:
        k = int(np.argmax([hand.ucb(rows[n]) for hand in hands]))
        hands[k].update(rows[n], REWARDS[n])

    return {
        "driftls": lambda n: policy.learn(rows[n], REWARDS[n], arm=policy.choose(rows[n], ids=ids), ids=ids),
        "river SGD": river_rounds(rows, 1, IDS),
        "exact by hand": by_hand,
    }


def crossed_arms() -> dict[str, Round | None]:
    rows, blocks, start = rows_of(1000, SMALL), np.arange(IDS), np.array([0, NNZ])
    policy = LinUCB(SMALL * (IDS + 1), seed=0)

    def ours(n: int) -> None:
        arms = CrossedArms(Rows(*rows[n], start, SMALL), blocks, IDS, shared=True)
        policy.learn(arms, REWARDS[n], arm=policy.choose(arms))

    return {"driftls": ours, "river SGD": river_rounds(rows, 1, IDS)}


def played(work: Round, rounds: int) -> None:
    for n in range(rounds):
        work(n)


def inputs(options: Options) -> Table:
    table = []
    cases = {
        f"predict and update, {NNZ} of {LARGE}": single_rows,
        f"a round with {ARMS} sparse arms": sparse_arms,
        f"one model an arm, {IDS} ids, {NNZ} of {SMALL}": many_models,
        f"{IDS} crossed arms": crossed_arms,
    }
    each = {"driftls": 300, "river SGD": 300, "exact by hand": 5} if options.quick else dict.fromkeys(WHO, 1000)
    for name, make in cases.items():
        works = {who: work for who, work in make().items() if work is not None}
        runs = {who: partial(played, work, each[who]) for who, work in works.items()}
        seconds = least(runs, options.count(5, 3))
        table.append([name, *(1e6 * seconds[who] / each[who] if who in seconds else None for who in WHO)])
    return Table(table, "Processor microseconds, the least of some repetitions in turn.")


def features(options: Options) -> Table:
    rows = 100_000 if options.quick else 1_000_000
    return Table(table(rows, options.count(3, 1)) + decision(options.count(40, 3)), "Processor time.")


def table(rows: int, repetitions: int) -> list[list[Any]]:
    import pyarrow as pa

    rng = np.random.default_rng(0)
    values = [np.array([f"v{k}" for k in range(size)]) for size in CATEGORIES]
    arrow = pa.table({f"c{j}": pa.array(v[rng.integers(0, len(v), rows)]) for j, v in enumerate(values)})
    records = arrow.to_pylist()
    Features(2**BITS).table(arrow.slice(0, 10))  # compiles, before the clock runs
    works: dict[str, Callable[[], Any]] = {
        "driftls, Arrow": lambda: Features(2**BITS).table(arrow),
        "driftls, Arrow, vocabulary": lambda: Features().table(arrow),
        "driftls, dicts": lambda: Features(2**BITS).table(records),
    }
    if pandas := installed("pandas"):
        frame = pandas.DataFrame(records)
        works["driftls, pandas"] = lambda: Features(2**BITS).table(frame)
    if polars := installed("polars"):
        other = polars.from_arrow(arrow)
        works["driftls, polars"] = lambda: Features(2**BITS).table(other)
    if sklearn := installed("sklearn.feature_extraction"):
        hasher = sklearn.FeatureHasher(2**BITS, input_type="dict")
        works["FeatureHasher, dicts"] = lambda: hasher.transform(records)
        strings = sklearn.FeatureHasher(2**BITS, input_type="string")
        lists = [[f"{name}={value}" for name, value in record.items()] for record in records]
        works["FeatureHasher, strings ready made"] = lambda: strings.transform(lists)
    with tempfile.TemporaryDirectory() as folder:
        if vw := installed("vowpalwabbit"):
            path = Path(folder, "rows.vw")
            lines = ("1 |u " + " ".join(f"{name}={value}" for name, value in record.items()) for record in records)
            path.write_text("\n".join(lines) + "\n")
            works["VW, a file of lines"] = lambda: vw.Workspace(f"-d {path} -b {BITS} --noop --quiet").finish()
        seconds = least(works, repetitions)
    ours = seconds["driftls, Arrow"]
    what = f"{rows:,} rows of {len(CATEGORIES)} categorical columns"
    return [[f"{what}: {name}", 1e6 * one / rows, rows / one, one / ours] for name, one in seconds.items()]


def decision(repetitions: int) -> list[list[Any]]:
    works: dict[str, Callable[[], Any]] = {}
    for kind, dim in (("hashed", 2**BITS), ("vocabulary", None)):
        for crossed, cross in ((" with crosses", "all"), ("", ())):
            features = Features(dim, cross=cross)
            features.arms(USER, ITEMS)
            works[f"driftls, {kind}{crossed}"] = lambda f=features: f.arms(USER, ITEMS)
            pools = [features.pool(ITEMS), features.pool(ITEMS)]
            works[f"driftls, {kind}{crossed}, a pool made before"] = lambda f=features, p=pools[0]: f.arms(USER, p)
            turns = [ITEMS, ITEMS[::-1]] * 2
            works[f"driftls, {kind}{crossed}, another pool each time"] = lambda f=features, t=turns: (
                t.append(t.pop(0)),
                f.arms(USER, t[0]),
            )
    if sklearn := installed("sklearn.feature_extraction"):
        hasher = sklearn.FeatureHasher(2**BITS, input_type="dict")
        works["FeatureHasher, no crosses"] = lambda: hasher.transform([USER | item for item in ITEMS])
    if vw := installed("vowpalwabbit"):
        workspace = vw.Workspace(f"--cb_explore_adf -q :: -b {BITS} --quiet")

        def text(space: str, record: dict[str, Any]) -> str:
            cells = (f"{k}={v}" if isinstance(v, str) else f"{k}:{v}" for k, v in record.items())
            return f"|{space} " + " ".join(cells)

        def parse() -> None:
            lines = ["shared " + text("u", USER), *(text("i", item) for item in ITEMS)]
            workspace.finish_example(workspace.parse("\n".join(lines)))

        works["VW, text made and parsed"] = parse
    seconds = least(works, repetitions, each=300)
    ours = seconds["driftls, hashed with crosses"]
    what = "one user of 5 columns, 10 items of 3"
    return [[f"{what}: {name}", 1e6 * one, None, one / ours] for name, one in seconds.items()]


# -- numbers far from 0 ----------------------------------------------------------------------------------------------

FAR = (0.0, 1.0, 3.0, 10.0, 100.0, 1e4)
# whether columns are crossed with arms, and the share of numbers that is missing
FAR_CASES = (
    ("one model an arm", False, 0.0),
    ("3% missing", False, 0.03),
    ("30% missing", False, 0.3),
    ("crosses", True, 0.0),
    ("crosses, 3% missing", True, 0.03),
)


def far(options: Options) -> Table:
    """The share of right arms in percent, by how far the numbers of dicts lie from 0."""
    rows, seeds, count = [], range(options.count(10, 2)), 300 if options.quick else 1500
    for name, crosses, gaps in FAR_CASES:
        cells = []
        for distance in FAR:
            tell(f"{name}: {distance:g} from 0")
            cells.append(mean([100.0 * _right(seed, distance, gaps, count, crosses) for seed in seeds]))
        rows.append([name, *cells])
    return Table(rows, f"{len(seeds)} seeds, {count:,} rounds. Crosses are of all columns with the arm.")


def _right(seed: int, distance: float, gaps: float, count: int, crosses: bool) -> float:
    rng, names = np.random.default_rng([seed, 5]), [f"a{k}" for k in range(5)]
    Z, sizes, words = rng.normal(size=(count, 6)), 10.0 ** rng.uniform(-2.0, 2.0, 6), rng.integers(0, 4, (count, 2))
    wants, tastes = rng.normal(size=(5, 6)), 0.7 * rng.normal(size=(5, 2, 4))
    scores = Z @ wants.T + tastes[:, 0, words[:, 0]].T + tastes[:, 1, words[:, 1]].T + 0.5 * rng.normal(size=(count, 5))
    X, there, right = (Z + distance) * sizes, rng.random((count, 6)) >= gaps, 0
    policy: Any = (LinUCB if crosses else DisjointLinUCB)(features=Features(cross="all" if crosses else ()), seed=seed)
    given = {"items": [{"id": name} for name in names]} if crosses else {"ids": names}
    for n, best in enumerate(scores.argmax(axis=1)):
        user = {"city": f"c{words[n, 0]}", "plan": f"p{words[n, 1]}"}
        user |= {f"n{j}": float(X[n, j]) for j in range(6) if there[n, j]}
        arm = policy.choose(user, **given)
        policy.learn(user, float(arm == best), arm=arm, **given)
        right += arm == best
    return right / count
