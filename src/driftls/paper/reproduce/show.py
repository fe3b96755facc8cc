"""What the experiments share when they tell what they measured: colours, verdicts, ratios, lines over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from driftls.report import Dot, Line, Verdict, plus_minus
from driftls.run import interval

__all__ = ["Ratio", "colour", "lines", "medians", "of", "ratio", "share", "slope", "spread", "told", "verdict"]

COLOURS = {"SAGA": 3, "SAG": 4, "SVRG": 5, "GD": 2, "averaged": 2, "CD": 6, "random": 0}  # all else is exact: 1


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
        half = 0.5 * (self.high - self.low)
        places = -math.floor(math.log10(half)) if half > 0.0 else 2
        small = 1 - math.floor(math.log10(abs(self.value))) if 0.0 < abs(self.value) < 1.0 else 0
        places = min(max(0, places, small), 4)
        value, low, high = (f"{each:,.{places}f}" for each in self)
        return f"{value} ({low} to {high})"


def ratio(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """The ratio of the medians of repeated times, with a 95% interval by bootstrap.

    >>> print(ratio([4.0, 4.2, 4.1], [2.0, 2.1, 2.0]))
    2.05 (1.90 to 2.10)
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


def of(data: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """The results that have these values."""
    return [one for one in data if wanted.items() <= one.items()]


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of log y against log x, by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def lines(
    runs: Mapping[str, Sequence[Sequence[float]]], x: Sequence[float], dashes: Mapping[str, str] | None = None
) -> list[Line]:
    """A line over seeds for each name, whose runs are given."""
    dash = dashes or {}
    return [Line.over_seeds(name, x, own, colour(name), dash.get(name, "solid")) for name, own in runs.items()]


def medians(
    times: Mapping[str, Sequence[Sequence[float]]], x: Sequence[float], dashes: Mapping[str, str]
) -> list[Line]:
    """A line of medians for each name, whose times at every x are given, with the quartiles as its band."""
    drawn = []
    for name, own in times.items():
        low, middle, high = np.quantile(own, [0.25, 0.5, 0.75], axis=1).tolist()
        drawn.append(Line(name, x, middle, colour(name), dashes.get(name, "solid"), low, high))
    return drawn


def spread(name: str, times: Sequence[float]) -> Dot:
    """The median of repeated times, and their quartiles."""
    low, middle, high = np.quantile(times, [0.25, 0.5, 0.75]).tolist()
    return Dot(name, middle, None, colour(name), (low, high))
