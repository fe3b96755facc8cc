"""What the experiments share: how much is asked for, jobs that are done once, colours, verdicts, ratios, lines."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from driftls.errors import LearningWarning
from driftls.parallel import cached_map, file_digest, key_of
from driftls.report.model import Line, Verdict, number, plus_minus
from driftls.run import interval

COLOURS = {"SAGA": 3, "SAG": 4, "SVRG": 5, "GD": 2, "averaged": 2, "CD": 6, "random": 0}  # all else is exact: 1

Runs = Mapping[str, Sequence[Sequence[float]]]


@dataclass(frozen=True)
class Options:
    """What was asked for: how much (0 quick, 1 as usual, 2 full), the first seed, logs instead of synthetic days."""

    size: int = 1
    seed: int = 0
    logs: tuple[str, ...] = ()

    def pick(self, *of_sizes: Any) -> Any:
        """The one for this size, of three."""
        return of_sizes[self.size]

    def seeds(self, *counts: int) -> range:
        """So many seeds from the first one on."""
        return range(self.seed, self.seed + counts[self.size])


class Job(NamedTuple):
    """A function of plain numbers and text, whose result is JSON. One that is timed runs alone."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    timed: bool = False

    @property
    def key(self) -> str:
        """A digest of all that the result depends on."""
        log = self.arguments.get("log")
        name = f"{self.function.__module__}.{self.function.__qualname__}"
        return key_of(name, self.arguments, file_digest(log) if log else "")


def do(jobs: Sequence[Job], folder: Path, workers: int, progress: Callable[[int, int], None]) -> list[Any]:
    """The results of all jobs, in order. Each is kept in the folder, so an interrupted run goes on where it was."""
    keys = [job.key for job in jobs]
    todo, found = dict(zip(keys, jobs)), dict[str, Any]()
    for timed, count in ((False, workers), (True, 1)):  # a clock wants the machine for itself
        stage, before = {key: job for key, job in todo.items() if job.timed == timed}, len(found)

        def tell(done: int, _: int, before: int = before) -> None:
            progress(before + done, len(todo))

        found |= cached_map(_result, stage, folder, workers=count, progress=tell)
    return [found[key] for key in keys]


def _result(job: Job) -> Any:
    with warnings.catch_warnings():  # that the paper's own settings learn slowly is what the page is about
        warnings.simplefilter("ignore", LearningWarning)
        return job.function(**job.arguments)


def of(data: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """The results that have these values."""
    return [one for one in data if wanted.items() <= one.items()]


def colour(method: str) -> int:
    """One colour a method, on the whole page."""
    return next((shade for word, shade in COLOURS.items() if word in method), 1)


def verdict(*checks: bool) -> Verdict:
    """A claim holds if all checks do, in part if some do.

    >>> verdict(True, False)
    'in part'
    """
    return "holds" if all(checks) else "in part" if any(checks) else "fails"


class Ratio(NamedTuple):
    """How many times as much, with its 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number(self.value)} ({number(self.low)} to {number(self.high)})"


def ratio(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """The ratio of the medians of repeated times, with a 95% interval by bootstrap.

    >>> print(ratio([4.0, 4.2, 4.1], [2.0, 2.1, 2.0]))
    2.05 (1.9 to 2.1)
    """
    rng = np.random.default_rng(0)
    draws = [np.median(rng.choice(np.asarray(each), (4000, len(each))), axis=1) for each in (above, below)]
    low, high = np.quantile(draws[0] / draws[1], [0.025, 0.975])
    return Ratio(float(np.median(above) / np.median(below)), float(low), float(high))


def share(values: Sequence[float], base: Sequence[float]) -> tuple[float, float]:
    """Mean over mean in per cent, and half of its 95% interval, paired by seed (delta method)."""
    a, b = np.asarray(values), np.asarray(base)
    middle = a.mean() / b.mean()
    return 100.0 * middle, 100.0 * interval(((a - middle * b) / b.mean()).tolist())[1]


def told(values: Sequence[float]) -> str:
    """Mean and 95% interval."""
    return plus_minus(*interval(values))


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of log y against log x, by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def lines(runs: Runs, x: Sequence[float], dashes: Mapping[str, str]) -> list[Line]:
    """A line over seeds for each name, whose runs are given."""
    return [Line.over_seeds(name, x, own, colour(name), dashes.get(name, "solid")) for name, own in runs.items()]


def medians(times: Runs, x: Sequence[float], dashes: Mapping[str, str]) -> list[Line]:
    """A line of medians for each name, whose times at every x are given, with the quartiles as its band."""
    drawn = []
    for name, own in times.items():
        low, middle, high = np.quantile(own, [0.25, 0.5, 0.75], axis=1).tolist()
        drawn.append(Line(name, x, middle, colour(name), dashes.get(name, "solid"), low, high))
    return drawn
