"""What became slower: ratios of ours to something of NumPy's or the machine's in the same run, against stored ones.

    python -m benchmarks.guard              # compare with benchmarks/ratios.json; exit 1 if slower, or not comparable
    python -m benchmarks.guard --store      # write what is measured now

Never seconds: they are those of a machine and an hour. A ratio is the least of many repetitions over the least of its
reference, in turn. Where `perf` can count instructions (many virtual machines cannot), those of a fixed number of
rounds are compared as well, and hardly vary.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from driftls.bench.day import reading
from driftls.bench.steps import across, steps
from driftls.policies import DisjointLinUCB, FixedPool, LinUCB
from driftls.trackers import CD, RLS, SAGA
from driftls.widths import DiagonalWidth

STORED = Path(__file__).parent / "ratios.json"
SLOWER = 1.3  # ratios of two runs on a busy machine differ by up to this factor
ROUNDS = 200
SCORED = np.ones((136, 40))  # as many arms as a day of a front page has
INSTRUCTIONS_OF = "import benchmarks.guard as guard; guard.counted()"


def least(work: Callable[[], Any], reference: Callable[[], Any], repetitions: int = 15) -> float:
    """The least time of one over the least of the other, which take turns."""
    times = [np.inf, np.inf]
    for _ in range(repetitions):
        for k, one in enumerate((work, reference)):
            begin = time.perf_counter()
            one()
            times[k] = min(times[k], time.perf_counter() - begin)
    return times[0] / times[1]


def dense_arms(dim: int, rng: np.random.Generator) -> list[Any]:
    return list(rng.normal(size=(ROUNDS, 20, dim)) / np.sqrt(dim))


def sparse_arms(dim: int, nnz: int, rng: np.random.Generator) -> list[Any]:
    start, edges = np.arange(21, dtype=np.int32) * nnz, np.arange(nnz) * (dim // nnz)
    columns = (edges + rng.integers(0, dim // nnz, size=(ROUNDS, 20, nnz))).astype(np.int32)
    value = np.full(20 * nnz, nnz**-0.5)
    return [sp.csr_array((value, each.ravel(), start), shape=(20, dim)) for each in columns]


def rounds(policy: Any, given: list[Any]) -> Callable[[], None]:
    def play() -> None:
        for arms in given:
            policy.learn(arms, 1.0, arm=policy.choose(arms))

    play()
    return play


def products(given: list[Any]) -> Callable[[], None]:
    """One product of all arms with a vector, of NumPy or SciPy: about what scoring cannot do without."""
    theta = np.ones(given[0].shape[1])

    def multiply() -> None:
        for arms in given:
            arms @ theta

    return multiply


def from_python() -> dict[str, float]:
    """Calls from Python, each over products of the same arms."""
    rng = np.random.default_rng(0)
    found = {}
    for dim in (136, 1000):
        given = dense_arms(dim, rng)
        policy = LinUCB(tracker=SAGA(dim, seed=0), width=DiagonalWidth(), seed=0)
        found[f"round, SAGA, dense d = {dim}"] = least(rounds(policy, given), products(given))
    given = dense_arms(136, rng)
    found["round, exact, dense d = 136"] = least(rounds(LinUCB(tracker=RLS(136), seed=0), given), products(given))
    for dim, nnz in ((136, 15), (100_000, 50)):
        given = sparse_arms(dim, nnz, rng)
        policy = LinUCB(tracker=SAGA(dim, seed=0), width=DiagonalWidth(), seed=0)
        found[f"round, SAGA, sparse {nnz} of {dim}"] = least(rounds(policy, given), products(given))
    given = [arms[[0]] for arms in sparse_arms(136, 15, rng)]
    each, ids = DisjointLinUCB(136, seed=0), list(range(35))

    def articles() -> None:
        for user in given:
            each.learn(user, 1.0, arm=each.choose(user, ids=ids), ids=ids)

    articles()
    found["round, one model each of 35 arms"] = least(articles, products(given))
    pool, arms = FixedPool(dense_arms(50, rng)[0]), dense_arms(50, rng)
    found["round, fixed pool"] = least(
        lambda: [pool.learn(1.0, arm=pool.choose()) for _ in range(ROUNDS)], products(arms)
    )
    rows = rng.normal(size=(ROUNDS, 136))
    for tracker in (SAGA(136, seed=0), CD(136)):

        def updates(tracker: Any = tracker) -> None:
            for x in rows:
                tracker.update(x, 1.0)

        updates()
        found[f"update, {type(tracker).__name__}"] = least(updates, lambda: [row @ row for row in rows])
    return found


def from_kernels() -> dict[str, float]:
    """Inside of compiled loops, and of reading."""
    found = {}
    for row in steps(60, 5)["rows"][:3]:
        found[f"SAGA step over reading its row ahead, d = {row['dim']}"] = row["step ahead"] / row["read ahead"]
    users = sparse_arms(136, 10, np.random.default_rng(0))
    unit = np.inf
    for _ in range(15):
        begin = time.perf_counter()
        for each in users:
            each @ SCORED
        unit = min(unit, 1e6 * (time.perf_counter() - begin) / (20 * ROUNDS))  # us a user
    for row in across(10_000, 3)["rows"]:
        found[f"across 40 arms over a product of SciPy's, {row['widths']}"] = row["across"] / unit
    log = reading(100_000, 3)
    for row in log["rows"][1:]:
        found[f"{row['step']} over gunzip, with {log['inflate'].split()[0]}"] = row["ratio"]
    return found


def from_start() -> dict[str, float]:
    """Importing the package over importing NumPy."""

    def process(code: str) -> Callable[[], Any]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    return {"import driftls over numpy": least(process("import driftls"), process("import numpy"), 5)}


def counted() -> None:
    """A fixed number of rounds, to be counted from outside."""
    rng = np.random.default_rng(0)
    for given in (dense_arms(136, rng), sparse_arms(100_000, 50, rng)):
        dim = given[0].shape[1]
        play = rounds(LinUCB(tracker=SAGA(dim, seed=0), width=DiagonalWidth(), seed=0), given)
        for _ in range(20):
            play()


def instructions() -> dict[str, float] | str:
    """How many the rounds of `counted` take, beyond those of the imports; or why they are not counted."""
    if shutil.which("perf") is None:
        return "perf is not installed"

    def count(code: str) -> float | None:
        command = ["perf", "stat", "-x", ",", "-e", "instructions:u", sys.executable, "-c", code]
        told = subprocess.run(command, capture_output=True, text=True).stderr
        number = re.search(r"^(\d+),", told, re.MULTILINE)
        return float(number[1]) if number else None

    count(INSTRUCTIONS_OF)  # which may compile
    whole, empty = count(INSTRUCTIONS_OF), count("import benchmarks.guard")
    if whole is None or empty is None:
        return "perf cannot count instructions on this machine"
    return {"instructions of 8,400 rounds, in millions": (whole - empty) / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", action="store_true", help="write benchmarks/ratios.json")
    options = parser.parse_args()
    found = {**from_python(), **from_kernels(), **from_start()}
    counts = instructions()
    if isinstance(counts, dict):
        found |= counts
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    width = max(map(len, found))
    slower = []
    print(f"{'ours over its reference':<{width}}{'now':>10}{'stored':>10}{'change':>10}")
    for name, ratio in found.items():
        before = stored.get(name)
        change = "" if before is None else f"{ratio / before:.2f}x"
        if before is not None and ratio > SLOWER * before:
            slower.append(name)
            change += " !"
        print(f"{name:<{width}}{ratio:10.2f}{'' if before is None else f'{before:10.2f}':>10}{change:>10}")
    if isinstance(counts, str):
        print(f"Instructions are not compared: {counts}.")
    if options.store:
        STORED.write_text(json.dumps({name: round(ratio, 3) for name, ratio in found.items()}, indent=1) + "\n")
        print(f"Stored in {STORED.name}.")
        return
    unknown = sorted(set(found) ^ set(stored) - {name for name in stored if name.startswith("instructions")})
    if slower:
        print(f"Slower than before, by more than {SLOWER - 1:.0%}: {'; '.join(slower)}.")
    if unknown:
        print(f"Measured or stored, and not both: {'; '.join(unknown)}. Run with --store.")
    if slower or unknown:
        sys.exit(1)
    print("Nothing became slower.")


if __name__ == "__main__":
    main()
