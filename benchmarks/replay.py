"""Replay: does the estimate's interval hold, how fast is it, and what memory does it take.

    python -m benchmarks.replay [coverage] [engines] [memory] [--quick] [--logs N]

coverage: N synthetic logs; how often the 95% interval of the replay estimate has the truth in it, the mean truth of
what the policy chose on all lines. engines: the compiled loop against the Python one, with and without the reading
of the log. memory: peak of a fresh process that replays a day from Parquet, over that of one that only imports.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from driftls.features import Crosses
from driftls.logs import read, synthetic_day, write_parquet
from driftls.policies import DisjointLinUCB, LinUCB
from driftls.policies.named import make, one_model_an_article
from driftls.replay import replay
from driftls.trackers import SAGA
from driftls.widths import DiagonalWidth

RESULTS = Path(__file__).parent / "results"
FIRST = 500  # seeds of the logs: not those on which anything was tuned


def coverage(quick: bool, logs: int) -> dict[str, Any]:
    """Two policies: one that learns, and one that does not."""
    lines = 20_000 if quick else 60_000
    policies = {
        "DisjointLinUCB": lambda seed: DisjointLinUCB(136, seed=seed),
        "random": lambda seed: one_model_an_article(make("random", 136, seed=seed), seed),
    }
    hits, errors = {name: [] for name in policies}, {name: [] for name in policies}
    for seed in range(FIRST, FIRST + logs):
        runs = replay(
            {name: one(seed) for name, one in policies.items()},
            synthetic_day(lines=lines, seed=seed),
            metrics=["regret"],
            points=[lines],
        )
        for name, run in runs.items():
            estimate = run.settings["estimates"]["replay"]
            hits[name].append(estimate["low"] <= run.settings["value"] <= estimate["high"])
            errors[name].append(estimate["value"] / run.settings["value"] - 1.0)
    found = {}
    print(f"\n{logs} logs of {lines:,} lines: share of 95% intervals with the truth inside; mean relative error")
    for name in policies:
        share, n = float(np.mean(hits[name])), logs
        half = 1.96 * np.sqrt(0.05 * 0.95 / n)
        bias, spread = float(np.mean(errors[name])), float(1.96 * np.std(errors[name]) / np.sqrt(n))
        print(f"  {name:<16}{share:7.1%} (95% +- {half:.1%} if it holds){bias:+9.2%} +- {spread:.2%}")
        found[name] = {"share": share, "bias": bias, "interval": spread}
    return {"logs": logs, "lines": lines, **found}


def engines(quick: bool, logs: int) -> dict[str, Any]:
    lines, few = (60_000, 3_000) if quick else (1_850_000, 20_000)
    cases = {
        "one model an article": lambda: (DisjointLinUCB(136, tracker=SAGA(136), seed=0), None),
        "shared + crosses": lambda: (
            LinUCB(tracker=SAGA(136 * 301, seed=0), width=DiagonalWidth(), seed=0),
            Crosses(136, articles=300, shared=True),
        ),
    }
    found: dict[str, Any] = {"load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "day.gz")
        synthetic_day(lines=lines, seed=FIRST).write(path)
        for name, case in cases.items():
            best = {}
            for _ in range(2 if quick else 3):
                for engine, limit in (("compiled", lines), ("python", few)):
                    policy, features = case()
                    run = replay(policy, read(path), features=features, engine=engine, limit=limit, points=[limit])
                    spent = run.seconds["choose"] + run.seconds["learn"]
                    before = time.perf_counter()
                    policy, features = case()
                    replay(policy, read(path), features=features, engine=engine, limit=limit, points=[limit])
                    whole = time.perf_counter() - before
                    times = {"loop_us": 1e6 * spent / limit, "all_us": 1e6 * whole / limit}
                    best[engine] = {part: min(value, best.get(engine, times)[part]) for part, value in times.items()}
            compiled, python = best["compiled"], best["python"]
            print(
                f"\n{name}: us a line, compiled {compiled['loop_us']:.2f} (with reading {compiled['all_us']:.2f}), "
                f"Python {python['loop_us']:.0f} ({python['all_us']:.0f}): "
                f"{python['loop_us'] / compiled['loop_us']:.0f}x, {python['all_us'] / compiled['all_us']:.0f}x"
            )
            found[name] = best
    return found


def memory(quick: bool, logs: int) -> dict[str, Any]:
    lines = 100_000 if quick else 1_850_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "day.parquet")
        write_parquet(synthetic_day(lines=lines, seed=FIRST), path)
        code = (
            "import resource\n"
            "from driftls.logs import read\nfrom driftls.policies import DisjointLinUCB\n"
            "from driftls.replay import replay\nimport pyarrow.parquet\n"
            "from driftls.trackers import SAGA\npolicy = DisjointLinUCB(136, tracker=SAGA(136), seed=0)\n"
            f"run = replay(policy, read({str(path)!r}), limit={{}}, points=[1])\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n"
        )
        peak = {}
        for limit in (1000, lines):
            done = subprocess.run(
                [sys.executable, "-c", code.format(limit)], capture_output=True, text=True, check=True
            )
            peak[limit] = float(done.stdout)
    print(f"\nmemory: peak {peak[lines]:.0f} MB for {lines:,} lines from Parquet; {peak[1000]:.0f} MB for 1,000")
    return {"lines": lines, "peak": peak[lines], "start": peak[1000]}


PARTS = {"coverage": coverage, "engines": engines, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--logs", type=int, default=None, help="for coverage; 400 by default, 20 with --quick")
    options = parser.parse_args()
    for name in options.parts or PARTS:
        result = PARTS[name](options.quick, options.logs or (20 if options.quick else 400))
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"replay-{name}{'-quick' if options.quick else ''}.json"
        file.write_text(json.dumps(result, indent=2, default=str))


if __name__ == "__main__":
    main()
