"""Figures as SVG and PDF: one small fixed style, a label beside every line instead of a legend."""

from __future__ import annotations

import io
import math
import re
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from driftls.errors import missing_extra
from driftls.report.model import Dots, Figure, Line, Lines, number

__all__ = ["DARK", "LIGHT", "Look", "check_extra", "draw", "inline", "save", "spread"]

WIDTH, HEIGHT = 5.4, 3.7  # inches: on a phone's 390 px the text is still 9 px high
LEFT, TOP, BOTTOM = 0.74, 0.34, 0.52
SIZE = 10.0
CHARACTER = 0.079  # inches, the mean at that size
LABEL = SIZE * 1.25 / 72  # inches from one label to the next
DASHES: dict[str, Any] = {"solid": "-", "dashed": (0, (4, 2)), "dotted": (0, (1, 1.6))}


class Look(NamedTuple):
    """Colours: of text, of what is secondary, of grid lines, and of the series.

    A label in any of the series' colours can be read, and colour-blind readers tell them apart; tests/test_report.py
    computes both.
    """

    ink: str
    muted: str
    grid: str
    series: tuple[str, ...]

    def colour(self, number: int) -> str:
        """The colour of a series; 0 is ink, and a seventh series has the colour of the first."""
        return self.ink if number == 0 else self.series[(number - 1) % len(self.series)]


LIGHT = Look("#1a1a1a", "#5f5f5f", "#dedede", ("#004a80", "#7d2200", "#157a5a", "#c030ad", "#a5610d", "#4a20d8"))
DARK = Look("#ececec", "#a8a8a8", "#3a3a3a", ("#7cc0f5", "#f0602a", "#2fd08f", "#e57fb4", "#e8d63a", "#9a80f5"))
# no colour at all, but names that the page's style sheet gives a colour to, light or dark
NAMES = ("ink", "muted", "grid", "c1", "c2", "c3", "c4", "c5", "c6")
PLACEHOLDERS = tuple(f"#0a0b{number:02x}" for number in range(len(NAMES)))
NAMED = Look(PLACEHOLDERS[0], PLACEHOLDERS[1], PLACEHOLDERS[2], PLACEHOLDERS[3:])


def check_extra(purpose: str) -> None:
    """Notice that nothing can be drawn before the work is done, not after."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise missing_extra("matplotlib", "report", purpose) from None


def inline(figure: Figure) -> str:
    """An SVG element for a page whose style sheet defines --ink, --c1 and so on; ids are the figure's own."""
    text = _svg(figure, NAMED)
    text = text[text.index("<svg") :]
    for placeholder, name in zip(PLACEHOLDERS, NAMES):
        text = text.replace(placeholder, f"var(--{name})")
    text = re.sub(r'\b(id="|url\(#|href="#)', rf"\g<1>{figure.name}-", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(figure.title)}"', 1).strip()


def save(figure: Figure, folder: Path) -> list[Path]:
    """The figure as SVG and PDF, in light colours, for a paper; the same bytes for the same figure."""
    svg, pdf = folder / f"{figure.name}.svg", folder / f"{figure.name}.pdf"
    svg.write_text(_svg(figure, LIGHT))
    with _style(LIGHT):
        draw(figure, LIGHT).savefig(pdf, metadata={"CreationDate": None})
    return [svg, pdf]


def _svg(figure: Figure, look: Look) -> str:
    text = io.StringIO()
    with _style(look):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        draw(figure, look).savefig(text, format="svg", metadata=nothing)
    return text.getvalue()


def _style(look: Look) -> Any:
    import matplotlib as mpl

    ink = dict.fromkeys(("text.color", "xtick.labelcolor", "ytick.labelcolor", "axes.labelcolor"), look.ink)
    return mpl.rc_context(
        {
            **ink,
            "font.size": SIZE,
            "font.family": "DejaVu Sans",
            "axes.edgecolor": look.muted,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": look.grid,
            "grid.linewidth": 0.7,
            "xtick.color": look.muted,
            "ytick.color": look.muted,
            "xtick.minor.bottom": False,
            "ytick.minor.left": False,
            "figure.facecolor": "none",
            "axes.facecolor": "none",
            "savefig.facecolor": "none",
            "svg.fonttype": "none",
            "svg.hashsalt": "driftls",
            "pdf.fonttype": 42,
        }
    )


def draw(figure: Figure, look: Look) -> Any:
    """The figure for matplotlib."""
    return _dots(figure, look) if isinstance(figure, Dots) else _lines(figure, look)


def _canvas(height: float, left: float, right: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(WIDTH, height))
    box = (left / WIDTH, BOTTOM / height, (WIDTH - left - right) / WIDTH, (height - TOP - BOTTOM) / height)
    return canvas, canvas.add_axes(box)


def _lines(figure: Lines, look: Look) -> Any:
    shown = [line for line in figure.lines if np.isfinite(line.y).any()]
    across = [mark for mark in figure.marks if mark.axis == "y"]
    longest = max(map(len, [*(line.label for line in shown), *(mark.label for mark in across)]), default=0)
    height = max(HEIGHT, TOP + BOTTOM + LABEL * (len(shown) + len(across)))
    canvas, axes = _canvas(height, LEFT, 0.3 + CHARACTER * longest)
    _scales(axes, figure.log)
    for mark in across:
        axes.axhline(mark.at, color=look.muted, linewidth=1.0)
    for line in shown:
        colour = look.colour(line.colour)
        marker = "o" if len(line.x) == 1 else ""
        axes.plot(line.x, line.y, color=colour, linestyle=DASHES[line.dash], linewidth=1.7, marker=marker)
        if line.low is not None and line.high is not None:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
    axes.set_xlabel(figure.x)
    axes.text(-LEFT / (WIDTH * axes.get_position().width), 1.045, figure.y, transform=axes.transAxes, va="bottom")
    _upright(axes, figure, look)
    axes.set_xlim(*axes.get_xlim())
    axes.set_ylim(*_limits(figure))
    _ticks(axes, figure.log)
    ends = [_end(line, look) for line in shown]
    ends += [(mark.label, look.muted, (axes.get_xlim()[1], mark.at)) for mark in across]
    _labels(axes, ends)
    return canvas


def _limits(figure: Lines) -> tuple[float, float]:
    """By the lines; a band that is much wider is cut, or it would be all that one sees."""
    values = [value for line in figure.lines for value in line.y if math.isfinite(value)]
    values += [mark.at for mark in figure.marks if mark.axis == "y"]
    if "y" in figure.log:
        positive = [value for value in values if value > 0.0] or [1.0]
        return min(positive) / 1.6, max(positive) * 1.6
    room = 0.08 * (max(values) - min(min(values), 0.0) or 1.0)
    return min(min(values), 0.0) - (room if min(values) < 0.0 else 0.0), max(values) + room


def _end(line: Line, look: Look) -> tuple[str, str, tuple[float, float]]:
    last = int(np.flatnonzero(np.isfinite(line.y))[-1])
    return line.label, look.colour(line.colour), (line.x[last], line.y[last])


def _labels(axes: Any, ends: list[tuple[str, str, tuple[float, float]]]) -> None:
    """A label right of the axes for the end of each line, moved apart where lines end close together."""
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = [float(np.clip(to_axes.transform(end)[1], 0.0, 1.0)) for _, _, end in ends]
    gap = LABEL / (axes.figure.get_figheight() - TOP - BOTTOM)
    for (label, colour, end), place in zip(ends, spread(heights, gap)):
        axes.annotate(
            label,
            xy=end,
            xytext=(1.045, place),
            textcoords="axes fraction",
            color=colour,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "relpos": (0, 0.5), "shrinkB": 0},
        )


def _dots(figure: Dots, look: Look) -> Any:
    height = TOP + BOTTOM + 0.27 * len(figure.dots)
    longest = max(len(dot.label) for dot in figure.dots)
    canvas, axes = _canvas(height, 0.2 + CHARACTER * longest, 1.15)
    _scales(axes, figure.log)
    for place, dot in enumerate(figure.dots):
        colour = look.colour(dot.colour)
        axes.plot([dot.value], [place], "o", color=colour, markersize=6)
        if dot.half is not None and math.isfinite(dot.half):
            axes.plot([dot.value - dot.half, dot.value + dot.half], [place, place], color=colour, linewidth=1.7)
        half = "" if dot.half is None else f" ± {number(dot.half)}"
        axes.annotate(
            f"{number(dot.value)}{half}",
            xy=(1.02, place),
            xycoords=("axes fraction", "data"),
            va="center",
            color=colour,
            annotation_clip=False,
        )
    axes.set_yticks(range(len(figure.dots)), [dot.label for dot in figure.dots])
    axes.set_ylim(len(figure.dots) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(figure.x)
    _upright(axes, figure, look)
    names = axes.yaxis.get_major_locator(), axes.yaxis.get_major_formatter()
    _ticks(axes, figure.log)
    axes.yaxis.set_major_locator(names[0])
    axes.yaxis.set_major_formatter(names[1])
    return canvas


def _upright(axes: Any, figure: Figure, look: Look) -> None:
    """The marks at values of x, labelled inside the axes on the side that has room."""
    marks = [mark for mark in figure.marks if mark.axis == "x"]
    for mark in marks:
        axes.axvline(mark.at, color=look.muted, linewidth=1.0, linestyle=DASHES["dashed"])
    low, high = axes.get_xlim()
    for mark in marks:
        share = (axes.transData + axes.transAxes.inverted()).transform((mark.at, 1.0))[0]
        late = share > 0.5
        axes.annotate(
            mark.label,
            xy=(mark.at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if late else 4, 2),
            textcoords="offset points",
            ha="right" if late else "left",
            va="bottom",
            color=look.muted,
            annotation_clip=False,
        )
    axes.set_xlim(low, high)


def _scales(axes: Any, log: str) -> None:
    for name, scale in (("x", axes.set_xscale), ("y", axes.set_yscale)):
        if name in log:
            scale("log")


def _ticks(axes: Any, log: str) -> None:
    """A few round numbers: powers of ten, and 2 and 5 between them where the axis is short."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        low, high = axis.get_view_interval()
        if name in log and high > 5.0 * low:
            subs = (1.0, 2.0, 5.0) if high < 50.0 * low else (1.0,)
            axis.set_major_locator(LogLocator(subs=subs, numticks=7))
        else:
            axis.set_major_locator(MaxNLocator(4 if name in log else 5))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def spread(places: list[float], gap: float) -> NDArray[np.float64]:
    """The nearest places from 0 to 1, in the same order, that are at least `gap` apart, as long as there is room."""
    order = np.argsort(places, kind="stable")
    shift = gap * np.arange(len(places))
    out = np.empty(len(places))
    if places:
        nearest = isotonic_regression(np.asarray(places)[order] - shift).x
        out[order] = np.clip(nearest, 0.0, max(1.0 - shift[-1], 0.0)) + shift
    return out
