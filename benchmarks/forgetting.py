"""How fast to forget: streams whose theta* stays, wanders or jumps, and real ones in the order of time.

Each row is predicted, then learned. Squared errors, the first rows aside, over those of least squares that forget nothing.
The best of a grid of discounts is picked afterwards, by the errors that are reported: nobody can have it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from benchmarks.measure import Mean, Options, Table, across, mean, ratio, tell
from benchmarks.tables import _file as packaged
from driftls.trackers import CD, RLS, AutoDiscount

Data = tuple[Any, Any]
DIM, ROWS = 20, 4_000
MEMORIES = (2, 4, 8, 16, 32, 64)  # rows that are remembered for each coefficient
STRETCHES = 10  # of a real stream, over which its interval is taken
STEPS = 8  # as AutoDiscount takes them


# -- streams ---------------------------------------------------------------------------------------------------------


def _simulated(name: str, seed: int, count: int) -> Data:
    """Noise 1 (or Student's t with 2.5 degrees: outliers); what can be explained of y has about four times its variance."""
    rng = np.random.default_rng([0xF0, seed])
    X = rng.normal(size=(count, DIM))
    theta = np.tile(rng.normal(size=DIM), (count, 1))
    if name in WANDERS:
        theta = theta + np.cumsum(WANDERS[name] * rng.normal(size=theta.shape), axis=0)
    elif name == "jumps every 1,000":
        theta = np.repeat(rng.normal(size=(-(-count // 1000), DIM)), 1000, axis=0)[:count]
    elif name == "jumps once":
        theta[count // 2 :] = rng.normal(size=DIM)
    noise = rng.standard_t(2.5, size=count) if "outliers" in name else rng.normal(size=count)
    y = 2.0 * DIM**-0.5 * (X * theta).sum(axis=1) + noise
    return X * np.exp(rng.normal(size=DIM)), y + (
        np.cumsum(0.05 * rng.normal(size=count)) if name == "its mean wanders" else 0.0
    )


WANDERS = {"wanders slowly": 0.003, "wanders": 0.01, "wanders fast": 0.03}
SIMULATED = ("stays", "stays, outliers", *WANDERS, "jumps once", "jumps every 1,000", "its mean wanders")


def _columns(path: str, *names: str) -> Any:
    """Numbers of a table, in its order."""
    head, *rows = csv.reader(io.StringIO(packaged(path)))
    return np.array([[row[head.index(name)] for name in names] for row in rows], dtype=float)


def _next(table: Any, *lags: int) -> Data:
    """The first column to come, from the whole row now, or from the first column so many rows ago."""
    if not lags:
        return table[:-1], table[1:, 0]
    first, series = max(lags), table[:, 0]
    return np.stack([series[first - lag : len(series) - lag] for lag in lags], axis=1), series[first:]


def _approval() -> Data:
    names = ("five_thirty_eight", "ordinal_date", "gallup", "ipsos", "morning_consult", "rasmussen", "you_gov")
    table = _columns("river/datasets/trump_approval.csv.gz", *names)
    return table[:, 1:], table[:, 0]


REAL: dict[str, Callable[[], Data]] = {
    "approval, from polls": _approval,
    "water flow, next hour": lambda: _next(_columns("river/datasets/water-flow.csv", "Water flow [l/s]"), 1, 2, 24),
    "carbon dioxide in a room": lambda: _next(_columns("river/drift/datasets/occupancy.csv", "V4", "V1", "V2", "V3")),
    "temperature, next hour": lambda: _next(_columns("vega_datasets/_data/seattle-temps.csv", "temp"), 1, 2, 24),
    "temperature, next day": lambda: _next(
        _columns("vega_datasets/_data/seattle-weather.csv", "temp_max", "temp_min", "precipitation", "wind")
    ),
    "inflation, next quarter": lambda: _next(
        _columns("statsmodels/datasets/macrodata/macrodata.csv", "infl", "tbilrate", "unemp", "m1", "realgdp")
    ),
}


# -- errors ----------------------------------------------------------------------------------------------------------


def _errors(X: Any, y: Any) -> Any:
    """Squared errors of RLS, AutoDiscount, and of each discount of the grid: one line each."""
    coefficients = X.shape[1] + 1
    trackers = [RLS(X.shape[1]), AutoDiscount(X.shape[1])]
    trackers += [CD(X.shape[1], steps=STEPS, discount=1.0 - 1.0 / (rows * coefficients)) for rows in MEMORIES]
    told = np.zeros((len(trackers), len(y)))
    for n, (x, reward) in enumerate(zip(np.ascontiguousarray(X), y.tolist())):
        for k, tracker in enumerate(trackers):
            told[k, n] = tracker.predict(x)
            tracker.update(x, reward)
    return ((told - y) ** 2)[:, 2 * coefficients :]


def _means(name: str, seed: int, count: int) -> Any:
    return _errors(*_simulated(name, seed, count)).mean(axis=1)


def forgetting(options: Options) -> Table:
    count, seeds = (500 if options.quick else ROWS), range(options.count(20, 3))
    names = options.wanted((*SIMULATED, *REAL) if not options.quick or options.only else SIMULATED)
    jobs = list(product([name for name in names if name in SIMULATED], seeds))
    tell(f"{len(jobs)} streams of {count:,} rows")
    found = across(_means, *zip(*jobs), [count] * len(jobs)) if jobs else []
    rows = []
    for name in names:
        if name in SIMULATED:
            errors = np.array([each for (one, _), each in zip(jobs, found) if one == name]).T
            rows.append(_row(f"θ* {name}" if "mean" not in name else name, count, errors))
        else:
            tell(name)
            X, y = REAL[name]()
            pieces = np.array_split(_errors(X, y), STRETCHES, axis=1)
            rows.append(_row(name, len(y), np.array([piece.mean(axis=1) for piece in pieces]).T))
    real = f"Real ones: one pass in the order of time, intervals over {STRETCHES} stretches."
    return Table(rows, f"Simulated: d = {DIM}, {len(seeds)} seeds. {real}")


def _row(name: str, count: int, errors: Any) -> list[Any]:
    base, auto, *grid = errors
    best = int(np.argmin([each.mean() for each in grid]))
    over: list[Mean] = [ratio(each, base) for each in (grid[best], auto)]
    return [name, count, mean(base), over[0], MEMORIES[best], over[1]]
