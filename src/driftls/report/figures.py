"""Figures as SVG: a label beside every line instead of a legend, values where one points, colours of the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from driftls.report.model import Dot, Dots, Figure, Line, Lines, number, plus_minus

WIDTH, HEIGHT, ROW = 400.0, 250.0, 20.0  # on a phone's 390 px the text is still 10 px high
SMALL = (350.0, 155.0)  # width and height of a picture beside a finding
SIZE, LETTER = 11.0, 6.2  # of the font, and the mean width of a letter
LABEL = SIZE * 1.25  # from one label to the next
DASHES = {"solid": "", "dashed": ' stroke-dasharray="6 3"', "dotted": ' stroke-dasharray="1.5 3"'}
HUGE = 1e300  # beyond it differences overflow: not drawn

Point = tuple[float, float]

# A label in any of the series' colours can be read, and colour-blind readers tell them apart; a test computes both.
NAMES = ("ink", "muted", "grid", "c1", "c2", "c3", "c4", "c5", "c6")
SERIES = ("#004a80", "#7d2200", "#157a5a", "#c030ad", "#a5610d", "#4a20d8")
LIGHT = dict(zip(NAMES, ("#1a1a1a", "#5f5f5f", "#dedede", *SERIES)))
SERIES = ("#7cc0f5", "#f0602a", "#2fd08f", "#e57fb4", "#e8d63a", "#9a80f5")
DARK = dict(zip(NAMES, ("#ececec", "#a8a8a8", "#3a3a3a", *SERIES)))
# of a figure, within a page or alone; the colours are variables
STYLE = Path(__file__).with_name("figure.css").read_text(encoding="utf-8")


def variables(look: dict[str, str]) -> str:
    """The colours as variables of a style sheet."""
    return ";".join(f"--{name}:{value}" for name, value in look.items())


def inline(figure: Figure, *, small: bool = False) -> str:
    """An SVG element for a page whose style sheet has `STYLE` and the colours."""
    width, height = SMALL if small else (WIDTH, HEIGHT)
    height, body = _dots(figure, width) if isinstance(figure, Dots) else _lines(figure, width, height)
    label = escape(f"{figure.title}. {figure.caption}")
    return f'<svg viewBox="0 0 {width:g} {height:.4g}" role="group" aria-label="{label}">{"".join(body)}</svg>'


def save(figure: Figure, folder: Path) -> Path:
    """The figure as a file, light or dark as its reader; the same bytes for the same figure."""
    dark = f"@media(prefers-color-scheme:dark){{svg{{{variables(DARK)}}}}}"
    style = f"<style>svg{{{variables(LIGHT)}}}{dark}{STYLE}</style>"
    text = inline(figure).replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    path = folder / f"{figure.name}.svg"
    path.write_text(text.replace(">", f">{style}", 1) + "\n", encoding="utf-8")
    return path


class Axis(NamedTuple):
    """From values to places: low and high are at `begin` and `end`."""

    low: float
    high: float
    log: bool
    begin: float
    end: float

    @classmethod
    def around(cls, values: Iterable[float], log: bool, begin: float, end: float, room: float = 0.06) -> Axis:
        """An axis that holds the values, with some room."""
        usable = [value for value in values if _usable(value, log)] or [1.0]
        low, high = min(usable), max(usable)
        if log:
            part = max((high / low) ** room, 1.0 if high > low else 2.0)
            return cls(low / part, high * part, True, begin, end)
        part = room * (high - low) or 0.5 * abs(high) or 1.0
        return cls(low - part * (low != 0.0), high + part, False, begin, end)

    def __call__(self, value: float) -> float:
        """The place of a value; what is beyond the axis is at its end."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return self.begin + min(max((value - low) / (high - low), 0.0), 1.0) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """A few round numbers: powers of ten, and 2 and 5 between them where the axis is short."""
        if self.log and self.high > 5.0 * self.low:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            each = max(1, (last - first) // 5)
            leads = (1.0, 2.0, 5.0) if self.high < 50.0 * self.low else (1.0,)
            ticks = [lead * 10.0**power for power in range(first, last + 1, each) for lead in leads]
        else:
            span = self.high - self.low
            ten = 10.0 ** math.floor(math.log10(span / 4.0))
            step = next(lead * ten for lead in (1.0, 2.0, 5.0, 10.0) if lead * ten >= span / 5.5)
            ticks = [step * k for k in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        return [tick for tick in ticks if self.low * (1 - 1e-9) <= tick <= self.high * (1 + 1e-9) or tick == 0.0]


def _usable(value: float, log: bool) -> bool:
    return math.isfinite(value) and abs(value) < HUGE and (value > 1.0 / HUGE or not log)


def _lines(figure: Lines, width: float, height: float) -> tuple[float, list[str]]:
    log_x, log_y = "x" in figure.log, "y" in figure.log
    shown = [
        (line, points)
        for line in figure.lines
        if (points := [(x, y) for x, y in zip(line.x, line.y) if _usable(x, log_x) and _usable(y, log_y)])
    ]
    height = max(height, 60.0 + LABEL * len(shown))
    top, bottom, right = 24.0, height - 36.0, width - 14.0 - LETTER * _longest([line.label for line, _ in shown])
    ys = [y for _, points in shown for _, y in points]
    ys += _bands([line for line, _ in shown], ys, log_y)
    down = Axis.around(ys if log_y else [0.0, *ys], log_y, bottom, top)
    left = 10.0 + LETTER * max(len(number(tick)) for tick in down.ticks() or [0.0])
    over = Axis.around([x for _, points in shown for x, _ in points], log_x, left, right, 0.02)
    places = spread([down(points[-1][1]) for _, points in shown], LABEL, top, bottom)
    drawn = [_series(line, points, figure.x, over, down, place) for (line, points), place in zip(shown, places)]
    return height, [_text(0.0, 12.0, figure.y, "c0"), *_grid(over, figure.x, top, bottom, down), *drawn]


def _bands(lines: list[Line], ys: list[float], log: bool) -> list[float]:
    """The ends of bands; what is far from all lines is cut, or it would be all that one sees."""
    low, high = min(ys, default=1.0), max(ys, default=1.0)
    low, high = (low / 2.0, high * 2.0) if log else (low - 0.3 * (high - low), high + 0.3 * (high - low))
    return [min(max(end, low), high) for line in lines for end in (*(line.low or ()), *(line.high or ())) if end == end]


def _series(line: Line, points: list[Point], x_name: str, over: Axis, down: Axis, label: float) -> str:
    """A line with its band and its values; its name is right of the axes, with a thin line to where it ends."""
    places = [(over(x), down(y)) for x, y in points]
    ends = zip(line.x, line.low or (), line.high or ())
    band = {x: (low, high) for x, low, high in ends if math.isfinite(low + high)}
    kept = [(over(x), *band[x]) for x, _ in points if x in band]
    parts = [f'<g class="series {_colour(line)}">']
    if len(kept) > 1:
        around = [(x, down(low)) for x, low, _ in kept] + [(x, down(high)) for x, _, high in reversed(kept)]
        parts.append(f'<path class="band" d="{_path(around)}Z"/>')
    if len(places) == 1:
        parts.append(f'<circle class="dot" cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="4"/>')
    parts.append(f'<path class="line"{DASHES[line.dash]} d="{_path(places)}"/>')
    for (x, y), at in zip(points, places):
        parts.append(_point(at, f"{line.label}, {x_name} {number(x)}: {number(y)}", band.get(x)))
    lead = _straight(*places[-1], over.end + 8.0, label, "thin")
    name = _text(over.end + 10.0, label + 0.36 * SIZE, _short(line.label), "")
    return "".join(parts) + f'<g class="label">{lead}{name}</g></g>'


def _dots(figure: Dots, width: float) -> tuple[float, list[str]]:
    values = [plus_minus(dot.value, dot.half) for dot in figure.dots]
    height = 58.0 + ROW * len(figure.dots)
    left = 8.0 + LETTER * _longest([dot.label for dot in figure.dots])
    right, top, bottom = width - 8.0 - LETTER * _longest(values), 20.0, height - 36.0
    reach = [value for dot in figure.dots for value in (dot.value, *(dot.interval or ()))]
    reach += [mark.at for mark in figure.marks]
    over = Axis.around(reach, "x" in figure.log, left + 6.0, right - 6.0, 0.03)
    body = _grid(over, figure.x, top, bottom)
    for mark in figure.marks:  # labelled above the axis, on the side that has room
        x, late = over(mark.at), over(mark.at) > 0.5 * (left + right)
        body.append(f'<path class="axis thin"{DASHES["dashed"]} d="{_path([(x, top), (x, bottom)])}"/>')
        body.append(_text(x + (3.0 if late else -3.0), top - 4.0, mark.label, "axis", "end" if late else "start"))
    for k, (dot, value) in enumerate(zip(figure.dots, values)):
        y = top + ROW * (k + 0.5)
        body.append(f'<g class="{_colour(dot)}">{_text(left - 4.0, y + 4.0, _short(dot.label), "", "end")}')
        body.append(_text(right + 6.0, y + 4.0, value, ""))
        if _usable(dot.value, over.log):
            x, (low, high) = over(dot.value), dot.interval or (dot.value, dot.value)
            body.append(_straight(over(low), y, over(high), y, "line"))
            body.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.6"/>')
            body.append(_point((x, y), f"{dot.label}: {value}", dot.ends))
        body.append("</g>")
    return height, body


def _grid(over: Axis, name: str, top: float, bottom: float, down: Axis | None = None) -> list[str]:
    """Grid lines with their numbers, the axes, and the name of the one below."""
    left, right, free = over.begin, over.end, -math.inf
    out = [_text(0.5 * (left + right), bottom + 31.0, name, "c0", "middle")]
    for tick in over.ticks():
        x, word = over(tick), number(tick)
        out.append(_straight(x, top, x, bottom, "grid"))
        if x - 0.5 * LETTER * len(word) > free:  # no number upon another
            out.append(_text(x, bottom + 14.0, word, "axis", "middle"))
            free = x + 0.5 * LETTER * len(word) + 4.0
    for y, word in [(down(tick), number(tick)) for tick in down.ticks()] if down else []:
        out += [_straight(left, y, right, y, "grid"), _text(left - 4.0, y + 4.0, word, "axis", "end")]
    ends = (_straight(left, bottom, right, bottom, "axis thin"), _straight(left, top, left, bottom, "axis thin"))
    return [*out, *ends]


def _colour(series: Line | Dot) -> str:
    """A seventh series has the colour of the first."""
    return f"c{series.colour and (series.colour - 1) % 6 + 1}"


def _short(label: str) -> str:
    return label if len(label) <= 30 else label[:29] + "…"


def _longest(labels: Sequence[str]) -> int:
    return max((len(_short(label)) for label in labels), default=0)


def _path(places: Iterable[Point]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _straight(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    return f'<path class="{kind}" d="{_path([(x, y), (to_x, to_y)])}"/>'


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind}{side}>{escape(text)}</text>'


def _point(at: Point, told: str, ends: Sequence[float] | None) -> str:
    """Where one points at to be told a value, and from where to where it may be."""
    told += "" if ends is None else f" ({number(ends[0])} to {number(ends[1])})"
    return f'<circle class="point" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="6"><title>{escape(told)}</title></circle>'


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The nearest places from low to high, in the same order, that are at least `gap` apart, as long as there is room."""
    if not places:
        return []
    order, shift = np.argsort(places, kind="stable"), low + gap * np.arange(len(places))
    out = np.empty(len(places))
    nearest = isotonic_regression(np.asarray(places)[order] - shift).x
    out[order] = np.clip(nearest, 0.0, max(high - shift[-1], 0.0)) + shift
    return list(out)
