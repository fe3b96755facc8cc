"""What `driftls demo` shows: every scheme on one drifting stream, and how far each is from its exact solution."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from driftls import paper
from driftls.errors import missing_extra
from driftls.history import Growing
from driftls.logs import synthetic_day
from driftls.trackers import CD, GD, SAG, SAGA, SVRG, Diagonal, Tracker

__all__ = ["Result", "Trace", "check_extra", "table", "track", "write"]

DIM = 136
FIRST, POINTS = 100, 30
TENS = (1_000, 10_000, 100_000, 1_000_000)
GREY = "#555555"
LOOK = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "driftls"}
Floats = NDArray[np.float64]
Report = Callable[[str, int, float | None], None]


class Scheme(NamedTuple):
    """A line of the figure. Colours are those of Okabe and Ito, one a family; the paper's settings are dashed."""

    label: str
    colour: str
    paper: bool
    make: Callable[[int, float], Tracker]  # from a seed, and mu for the one that needs it


SCHEMES = (
    Scheme("fOLS-GD", "#000000", True, lambda seed, mu: paper.fols_gd(DIM, mu=mu, seed=seed)),
    Scheme("fRLS-GD", "#0072B2", True, lambda seed, mu: paper.frls_gd(DIM, seed=seed)),
    Scheme("fRLS-SVRG", "#E69F00", True, lambda seed, mu: paper.frls_svrg(DIM, seed=seed)),
    Scheme("fRLS-SAG", "#CC79A7", True, lambda seed, mu: paper.frls_sag(DIM, seed=seed)),
    Scheme("GD, averaged", "#0072B2", False, lambda seed, mu: GD(DIM, seed=seed)),
    Scheme("SVRG, refreshed", "#E69F00", False, lambda seed, mu: SVRG(DIM, seed=seed)),
    Scheme("SAG", "#CC79A7", False, lambda seed, mu: SAG(DIM, seed=seed)),
    Scheme("SAGA", "#D55E00", False, lambda seed, mu: SAGA(DIM, seed=seed)),
    Scheme("Diagonal", "#56B4E9", False, lambda seed, mu: Diagonal(DIM, history=Growing())),
    Scheme("CD", "#009E73", False, lambda seed, mu: CD(DIM)),
)


@dataclass(frozen=True)
class Trace:
    """One scheme's errors at the marks, and its time a row."""

    label: str
    colour: str
    paper: bool
    absolute: list[float]
    relative: list[float]
    seconds_a_row: float


@dataclass(frozen=True)
class Result:
    """All traces over the same marks, and what the stream was like."""

    marks: list[int]
    traces: list[Trace]
    rank: int


def check_extra() -> None:
    """Notice that the figure cannot be drawn before the work is done, not after."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise missing_extra("matplotlib", "report", "driftls demo") from None


def stream(rows: int, seed: int) -> tuple[Any, Floats]:
    """Visitors as sparse rows of norm 1, as the paper assumes, and their clicks."""
    blocks = list(synthetic_day(lines=rows, seed=seed).blocks())
    X = sp.vstack(
        [sp.csr_array((b.user_value, b.user_index, b.user_start), shape=(len(b), DIM)) for b in blocks], format="csr"
    )
    X.data /= np.repeat(np.sqrt(X.multiply(X).sum(axis=1)), np.diff(X.indptr))
    return X, np.concatenate([b.reward for b in blocks])


def marks(rows: int) -> list[int]:
    """Some 30 points that are even on a log axis, and the powers of ten."""
    even = np.geomspace(FIRST, rows, POINTS).round().astype(int)
    return sorted({*even.tolist(), *(n for n in TENS if n < rows)})


def track(rows: int, seed: int, report: Report = lambda scheme, n, error: None) -> Result:
    """Run every scheme over the stream; `report` hears when one starts (error None) and at every mark."""
    X, y = stream(rows, seed)
    eigenvalues = np.linalg.eigvalsh((X.T @ X).toarray() / rows)
    # Two pairs of features are always equal, so the smallest eigenvalue is 0. From theta = 0 on every iterate lies in
    # the span of the rows, where Theorem 1's mu is the smallest eigenvalue that is not.
    mu = float(eigenvalues[eigenvalues > 1e-9].min())
    points, traces = marks(rows), []
    for scheme in SCHEMES:
        report(scheme.label, 0, None)
        tracker, errors, seconds = scheme.make(seed, mu), [], 0.0
        for first, last in zip([0, *points], points):
            begin = perf_counter()
            tracker.partial_fit(X[first:last], y[first:last])
            seconds += (perf_counter() - begin) if first else 0.0  # the first piece may have had to be compiled
            errors.append(tracker.tracking_error())
            report(scheme.label, last, errors[-1].relative)
        absolute, relative = [e.absolute for e in errors], [e.relative for e in errors]
        traces.append(
            Trace(scheme.label, scheme.colour, scheme.paper, absolute, relative, seconds / (rows - points[0]))
        )
    return Result(points, traces, int((eigenvalues > 1e-9).sum()))


def table(result: Result) -> str:
    """Relative errors as text, the closest scheme first."""
    columns = [n for n in TENS if n in result.marks[:-1]] + result.marks[-1:]
    lines = [f"{'relative error at n =':<24}" + "".join(f"{n:>10,}" for n in columns) + f"{'us a row':>10}"]
    for trace in sorted(result.traces, key=lambda trace: trace.relative[-1]):
        name = trace.label + (" (paper)" if trace.paper else "")
        errors = "".join(f"{trace.relative[result.marks.index(n)]:>10.4f}" for n in columns)
        lines.append(f"{name:<24}{errors}{1e6 * trace.seconds_a_row:>10.1f}")
    return "\n".join([*lines, f"{'theta = 0':<24}" + f"{1.0:>10.4f}" * len(columns)])


def write(result: Result, out: Path) -> tuple[Path, Path, Path]:
    """tracking.svg, tracking.png and tracking.csv in the folder `out`, the same bytes for the same result."""
    import matplotlib as mpl

    svg, png, data = (out / f"tracking.{kind}" for kind in ("svg", "png", "csv"))
    with open(data, "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["scheme", "settings", "n", "relative_error", "absolute_error"])
        for trace in result.traces:
            settings = "paper" if trace.paper else "driftls"
            for n, relative, absolute in zip(result.marks, trace.relative, trace.absolute):
                lines.writerow([trace.label, settings, n, relative, absolute])
    with mpl.rc_context(LOOK):
        figure = draw(result)
        figure.savefig(svg, metadata={"Date": None})
        figure.savefig(png, dpi=160)
    return svg, png, data


def draw(result: Result) -> Any:
    """Relative error against n on log axes, a label at the end of each line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 5.4))
    axes = figure.add_axes((0.085, 0.095, 0.715, 0.785))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.axhline(1.0, color=GREY, linewidth=1.0)
    for trace in result.traces:
        style, width = ((0, (4, 2)), 1.3) if trace.paper else ("-", 1.8)
        axes.plot(result.marks, trace.relative, color=trace.colour, linestyle=style, linewidth=width)
    first, last = result.marks[0], result.marks[-1]
    low, high = np.log10(axes.get_ylim())
    high += 0.05 * (high - low)  # room for the labels of the lines that end near 1
    axes.set_xlim(first, last)
    axes.set_ylim(10**low, 10**high)
    ticks = [first, *(n for n in TENS if first < n < last / 2), last]
    axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("rows seen, n")
    axes.set_ylabel("relative tracking error  ‖θ − exact‖ / ‖exact‖")
    figure.text(0.02, 0.955, "Who keeps up with the least-squares solution?", fontsize=12, fontweight="bold")
    figure.text(
        0.02,
        0.915,
        f"A synthetic day of a news front page, d = {DIM}, rank {result.rank}. "
        "Dashed: the paper's settings. Solid: driftls' defaults.",
        color="#444444",
    )
    ends = [("θ = 0", GREY, 1.0), *((trace.label, trace.colour, trace.relative[-1]) for trace in result.traces)]
    ends = [end for end in ends if end[2] > 0.0]
    places = spread([(np.log10(value) - low) / (high - low) for *_, value in ends], gap=0.04)
    for (label, colour, value), place in zip(ends, places):
        axes.annotate(
            label,
            xy=(last, value),
            xytext=(1.05, place),
            textcoords="axes fraction",
            color=colour,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "relpos": (0, 0.5), "shrinkB": 0},
        )
    return figure


def spread(places: list[float], gap: float) -> Floats:
    """The nearest places, in the same order, that are at least `gap` apart."""
    order = np.argsort(places)
    shift = gap * np.arange(len(places))
    out = np.empty(len(places))
    out[order] = isotonic_regression(np.asarray(places)[order] - shift).x + shift
    return out
