"""What a report is made of: a page of sections, each with claims, figures and tables. Nothing here draws."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

import numpy as np

from driftls.run import interval

Floats = Sequence[float]
Verdict = Literal["holds", "in part", "fails", "open"]
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
FORMULA = tuple("=+-@＝＋－＠")  # what a spreadsheet may take for the begin of a formula


def number(value: float) -> str:
    """As short as it can be read: 1,000, 0.01, 10⁻⁵."""
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    if 1e-4 <= float(f"{abs(value):.2e}") < 1e6:
        return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
    lead, _, exponent = f"{value:.1e}".partition("e")
    power = "10" + str(int(exponent)).translate(SUPERSCRIPT)
    return power if lead == "1.0" else f"{lead.removesuffix('.0')}·{power}"


def plus_minus(mean: float, half: float) -> str:
    """A mean with half of its interval, where it has one, to as many places as the interval warrants.

    >>> plus_minus(76.214, 3.618), plus_minus(0.5, float("inf"))
    ('76.2 ± 3.6', '0.5')
    """
    if not math.isfinite(half) or not math.isfinite(mean):
        return number(mean)
    places = 1 - math.floor(math.log10(half)) if half > 0.0 else 9
    if 0 <= places <= 4 and abs(mean) < 1e6:
        return f"{mean:,.{places}f} ± {half:,.{places}f}"
    return f"{number(mean)} ± {number(float(f'{half:.2g}'))}"


@dataclass(frozen=True)
class _Shown:
    """A figure or a table. Its name is an id of the page and a file's name."""

    name: str
    title: str

    def cells(self) -> list[Sequence[Any]]:
        """All that is shown, for machines: the head of a table, then its rows."""
        raise NotImplementedError

    def csv(self) -> str:
        """All that is shown, for spreadsheets."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(map(_cell, row) for row in self.cells())
        return text.getvalue()


def _cell(cell: Any) -> Any:
    """One line of text that no spreadsheet takes for a formula: what looks like one begins with an apostrophe."""
    if not isinstance(cell, str):
        return cell
    cell = re.sub(r"\s+", " ", cell)
    safe = not cell.lstrip().startswith(FORMULA) or re.fullmatch(r"[-+]?[\d,]*\.?\d+(e[-+]?\d+)?", cell)
    return cell if safe else f"'{cell}"


class Mark(NamedTuple):
    """A dashed line across a figure of dots, with its label."""

    at: float
    label: str


@dataclass(frozen=True)
class Line:
    """A series; `colour` counts in the palette, 0 is the colour of text. `low` and `high` bound its band."""

    label: str
    x: Floats
    y: Floats
    colour: int = 0
    dash: str = "solid"
    low: Floats | None = None
    high: Floats | None = None

    @classmethod
    def over_seeds(cls, label: str, x: Floats, runs: Sequence[Floats], colour: int = 0, dash: str = "solid") -> Line:
        """The mean of several runs with its 95% interval; of one run, the run.

        Where all runs are positive the interval is that of the logarithm (to first order): it never reaches 0.

        >>> line = Line.over_seeds("wide", [1], [[1.0], [3.0]])
        >>> line.y, line.low[0] > 0.0
        ([2.0], True)
        """
        with np.errstate(all="ignore"):
            mean, half = np.transpose([interval(values) for values in zip(*runs)] or np.empty((0, 2)))
            band = []
            if len(runs) > 1:
                grows = np.min(runs, initial=np.inf) > 0.0
                band = [mean * np.exp(s * half / mean) if grows else mean + s * half for s in (-1.0, 1.0)]
        return cls(label, x, mean.tolist(), colour, dash, *(end.tolist() for end in band))


@dataclass(frozen=True)
class Lines(_Shown):
    """A figure of series over one pair of axes; `log` says which of the axes are logarithmic."""

    caption: str
    x: str
    y: str
    lines: Sequence[Line]
    log: str = "xy"

    def cells(self) -> list[Sequence[Any]]:
        """Every point that is drawn."""
        points = ((line, zip_longest(line.x, line.y, line.low or [], line.high or [])) for line in self.lines)
        return [["series", self.x, self.y, "low", "high"], *((line.label, *one) for line, own in points for one in own)]


@dataclass(frozen=True)
class Dot:
    """One value with half of its interval, or with an interval that need not be even, if it has one."""

    label: str
    value: float
    half: float = math.inf
    colour: int = 1
    ends: tuple[float, float] | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """From where to where."""
        return (self.value - self.half, self.value + self.half) if math.isfinite(self.half) else self.ends


@dataclass(frozen=True)
class Dots(_Shown):
    """A figure of single values, one a row."""

    caption: str
    x: str
    dots: Sequence[Dot]
    log: str = ""
    marks: Sequence[Mark] = ()

    def cells(self) -> list[Sequence[Any]]:
        """Every value that is drawn."""
        rows = [(dot.label, dot.value, *(dot.interval or (None, None))) for dot in self.dots]
        return [["name", self.x, "low", "high"], *rows]


@dataclass(frozen=True)
class Table(_Shown):
    """Rows of cells that are text already: what is shown is what is copied."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def cells(self) -> list[Sequence[Any]]:
        """The table as shown."""
        return [self.head, *self.rows]


Figure = Lines | Dots
Item = Figure | Table


class Claim(NamedTuple):
    """What was claimed, what was measured, and whether the one bears out the other."""

    claim: str
    measured: str
    verdict: Verdict


class Finding(NamedTuple):
    """A question, its answer in one plain sentence with a number, and a small picture."""

    question: str
    text: str
    picture: Figure


@dataclass(frozen=True)
class Section:
    """A heading, then figures, tables and text; its findings open the page.

    Where there are claims, they come first, and tables and text are folded away.
    """

    name: str
    title: str
    text: Sequence[str]
    items: Sequence[Item] = ()
    claims: Sequence[Claim] = ()
    findings: Sequence[Finding] = ()


@dataclass(frozen=True)
class Page:
    """A whole report; `how` tells how it was run."""

    title: str
    lead: str
    sections: Sequence[Section]
    how: dict[str, str] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """All that the page shows, for machines."""
        found = {}
        for section in self.sections:
            cells = {item.name: item.cells() for item in section.items}
            found[section.name] = {
                "findings": [finding.text for finding in section.findings],
                "claims": [[claim.verdict, claim.claim, claim.measured] for claim in section.claims],
                **{name: {"head": head, "rows": rows} for name, (head, *rows) in cells.items()},
            }
        return found

    @property
    def figures(self) -> list[Figure]:
        """The figures of all sections, in order."""
        return [item for section in self.sections for item in section.items if not isinstance(item, Table)]
