"""From dicts and tables to arms: rows a second, beside scikit-learn's FeatureHasher and VW's parsing.

    python -m benchmarks.features [--quick]

table: a million rows (100,000 with --quick) of 10 categorical columns, with 2 to 100,000 categories. Ours takes an
Arrow table (and a pandas one, a polars one, and dicts); FeatureHasher dicts or lists of "column=value", made before; VW
reads a file of lines that was written before. decision: one user of 5 columns with 10 items of 3, with all crosses.
Processor seconds, the least of several repetitions, in turn. Peers that are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from driftls.features import Features

RESULTS = Path(__file__).parent / "results"
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
        print(f"  ({package} is not installed)")
        return None


def table(rows: int, repetitions: int) -> dict[str, Any]:
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
    print(f"\n{rows:,} rows of {len(CATEGORIES)} categorical columns: rows/s, and time over ours from Arrow")
    for name, one in seconds.items():
        print(f"  {name:<36}{rows / one:12,.0f}{one / ours:8.2f}")
    features = Features(2**BITS)
    features.table(arrow)
    names, measured, expected = features.collisions
    print(f"  collisions: {measured:.1%} of {names:,} names, {expected:.1%} expected")
    return {"rows": rows, "seconds": seconds, "collisions": measured, "expected": expected}


def decision(repetitions: int) -> dict[str, Any]:
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
    print("\none user of 5 columns with 10 items of 3: us, and over ours, hashed with crosses")
    for name, one in seconds.items():
        print(f"  {name:<56}{1e6 * one:8.1f}{one / ours:8.2f}")
    return {"us": {name: 1e6 * one for name, one in seconds.items()}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    found = {"table": table(100_000 if quick else 1_000_000, 3), "decision": decision(10 if quick else 40)}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "features.json").write_text(json.dumps(found, indent=1))
