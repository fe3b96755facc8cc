"""What a report is made of: a page of sections, each with text, figures and tables. Nothing here draws."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from driftls.run import interval

__all__ = ["Dot", "Dots", "Figure", "Item", "Line", "Lines", "Mark", "Page", "Section", "Table", "number", "plus_minus"]

Floats = Sequence[float]


SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float) -> str:
    """As short as it can be read: 1,000, 0.01, 10⁻⁵."""
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    if -4 <= exponent < 6:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    lead = f"{value / 10.0**exponent:.2g}"
    power = "10" + str(exponent).translate(SUPERSCRIPT)
    return power if lead == "1" else f"{lead}·{power}"


def plus_minus(mean: float, half: float) -> str:
    """A mean with half of its interval, where it has one."""
    return f"{number(mean)} ± {number(half)}" if math.isfinite(half) else number(mean)


def _csv(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


@dataclass(frozen=True)
class Mark:
    """A straight line across a figure, with its label: at a value of x, or of y."""

    at: float
    label: str
    axis: str = "x"


@dataclass(frozen=True)
class Line:
    """A series; `colour` counts in the palette, 0 is the colour of text. `low` and `high` bound its band.

    A series of one point is drawn as a dot.
    """

    label: str
    x: Floats
    y: Floats
    colour: int = 0
    dash: str = "solid"
    low: Floats | None = None
    high: Floats | None = None

    @classmethod
    def over_seeds(cls, label: str, x: Floats, runs: Sequence[Floats], colour: int = 0, dash: str = "solid") -> Line:
        """The mean of several runs with its 95% interval; of one run, the run."""
        pairs = [interval(values) for values in zip(*runs)]
        mean = [middle for middle, _ in pairs]
        if len(runs) == 1:
            return cls(label, x, mean, colour, dash)
        low, high = ([middle + sign * half for middle, half in pairs] for sign in (-1, 1))
        return cls(label, x, mean, colour, dash, low, high)


@dataclass(frozen=True)
class Lines:
    """A figure of series over one pair of axes; `log` says which of the axes are logarithmic."""

    name: str
    title: str
    caption: str
    x: str
    y: str
    lines: Sequence[Line]
    log: str = "xy"
    marks: Sequence[Mark] = ()

    def data(self) -> dict[str, Any]:
        """Every point that is drawn, for machines."""
        return {line.label: {"x": list(line.x), "y": list(line.y)} for line in self.lines}

    def csv(self) -> str:
        """Every point that is drawn."""
        rows = [
            (line.label, *point)
            for line in self.lines
            for point in zip_longest(line.x, line.y, line.low or [], line.high or [])
        ]
        return _csv(["series", self.x, self.y, "low", "high"], rows)


@dataclass(frozen=True)
class Dot:
    """One value with half of its interval, if it has one."""

    label: str
    value: float
    half: float | None = None
    colour: int = 1


@dataclass(frozen=True)
class Dots:
    """A figure of single values, one a row."""

    name: str
    title: str
    caption: str
    x: str
    dots: Sequence[Dot]
    log: str = ""
    marks: Sequence[Mark] = ()

    def data(self) -> dict[str, Any]:
        """Every value that is drawn, for machines."""
        return {dot.label: {"value": dot.value, "half": dot.half} for dot in self.dots}

    def csv(self) -> str:
        """Every value that is drawn."""
        return _csv(["name", self.x, "half interval"], [(dot.label, dot.value, dot.half) for dot in self.dots])


@dataclass(frozen=True)
class Table:
    """Rows of cells that are text already: what is shown is what is copied."""

    name: str
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def data(self) -> dict[str, Any]:
        """The table as shown, for machines."""
        return {"head": list(self.head), "rows": [list(row) for row in self.rows]}

    def csv(self) -> str:
        """The table as shown."""
        return _csv(self.head, self.rows)


Figure = Lines | Dots
Item = Figure | Table


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, then figures and tables. `found` is its one line in the summary."""

    name: str
    title: str
    text: Sequence[str]
    items: Sequence[Item] = ()
    found: str = ""


@dataclass(frozen=True)
class Page:
    """A whole report; `how` tells how it was run."""

    title: str
    lead: str
    sections: Sequence[Section]
    how: dict[str, str] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """All that the page shows, for machines."""
        return {
            section.name: {"found": section.found, **{item.name: item.data() for item in section.items}}
            for section in self.sections
        }

    @property
    def figures(self) -> list[Figure]:
        """The figures of all sections, in order."""
        return [item for section in self.sections for item in section.items if not isinstance(item, Table)]
