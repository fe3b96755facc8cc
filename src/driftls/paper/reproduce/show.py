"""What the experiments share when they tell what they measured: colours, ratios with intervals, lines over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from driftls.report import Line, plus_minus
from driftls.run import interval

__all__ = ["Ratio", "colour", "lines", "of", "ratio", "share", "slope", "told"]

COLOURS = {"SAGA": 3, "SAG": 4, "SVRG": 5, "GD": 2, "CD": 6, "averaged": 6, "random": 0}  # all else is exact: 1


def colour(method: str) -> int:
    """One colour a method, on the whole page."""
    return next((shade for word, shade in COLOURS.items() if word in method), 1)


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


def lines(runs: dict[str, list[dict[str, Any]]], x: str, y: str, dashes: dict[str, str] | None = None) -> list[Line]:
    """A line over seeds for each name."""
    return [
        Line.over_seeds(name, own[0][x], [one[y] for one in own], colour(name), (dashes or {}).get(name, "solid"))
        for name, own in runs.items()
    ]


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of log y against log x, by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
