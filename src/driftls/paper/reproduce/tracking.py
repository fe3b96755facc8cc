"""Figures of the tracking error: how far fRLS-GD, SVRG and SAG are from the exact solution; then SAGA and CD."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls import paper
from driftls.logs import read, synthetic_day
from driftls.paper.reproduce.work import Options, Piece
from driftls.report import Item, Line, Lines, Mark, Section, Table, number, plus_minus
from driftls.run import interval
from driftls.trackers import CD, SAGA

TITLE = "Tracking error"
DIM = 136
ROWS = 50_000
POINTS = 25
SCHEMES: dict[str, Any] = {
    "fRLS-GD": paper.frls_gd,
    "fRLS-SVRG": paper.frls_svrg,
    "fRLS-SAG": paper.frls_sag,
    "SAGA": SAGA,
    "CD": lambda dim, *, seed: CD(dim),
}
CAPTIONS = (
    "The distance to the exact solution, on the paper's axes. It looks small; so is the solution itself.",
    "The same, over the solution's length. An estimate that never leaves 0 scores 1.",
    "The paper's settings dashed; SAGA and CD with their defaults. Bands are 95% intervals over seeds.",
)
TEXT = [
    "The paper shows the distance of each iterate from its exact solution over 50,000 iterations, and reads it as "
    "consistent tracking. It prints no numbers; its plots end at 1.",
    "Here: visitors of a day, rows of norm 1, d = 136, each scheme against the exact solution of its own objective. "
    "The paper's rows are those that its bandit chose, ours are all visitors, so levels differ. The steps 1/(100 + n), "
    "0.0005 and 0.005 are too small to reach the solution in this time on either.",
]
PAPER = ("fRLS-GD", "fRLS-SVRG", "fRLS-SAG")


def pieces(options: Options) -> list[Piece]:
    """Each scheme on each seed's stream; a log has one stream, and the seed is that of the draws."""
    return [
        Piece(scheme, follow, {"scheme": scheme, "rows": ROWS, "seed": seed, "log": log})
        for scheme in SCHEMES
        for log in options.logs[:1] or [""]
        for seed in options.seeds(3, 8, 20)
    ]


def stream(rows: int, seed: int, log: str) -> tuple[Any, NDArray[np.float64]]:
    """Visitors as sparse rows of norm 1, as the paper assumes, and their clicks."""
    X, y, count = [], [], 0
    for block in (read(log) if log else synthetic_day(lines=rows, seed=seed)).blocks():
        X.append(sp.csr_array((block.user_value, block.user_index, block.user_start), shape=(len(block), DIM)))
        y.append(block.reward)
        count += len(block)
        if count >= rows:
            break
    both: Any = sp.vstack(X, format="csr")[:rows]
    both.data /= np.repeat(np.sqrt(both.multiply(both).sum(axis=1)), np.diff(both.indptr))
    return both, np.concatenate(y)[:rows]


def follow(scheme: str, rows: int, seed: int, log: str) -> dict[str, Any]:
    """One scheme over one stream: both errors at the points."""
    X, y = stream(rows, seed, log)
    points = np.unique(np.geomspace(100, X.shape[0], POINTS).round().astype(int)).tolist()
    tracker, errors = SCHEMES[scheme](DIM, seed=seed), []
    for first, last in zip([0, *points], points):
        tracker.partial_fit(X[first:last], y[first:last])
        errors.append(tracker.tracking_error())
    return {
        "scheme": scheme,
        "n": points,
        "absolute": [error.absolute for error in errors],
        "relative": [error.relative for error in errors],
    }


def show(options: Options, data: list[dict[str, Any]]) -> Section:
    """Three figures and a table."""
    n = data[0]["n"][-1]
    ends = {scheme: [_ends(data, scheme, kind) for kind in ("absolute", "relative")] for scheme in SCHEMES}
    rows = [
        [scheme, "the paper's" if scheme in PAPER else "ours", *(plus_minus(*interval(end)) for end in ends[scheme])]
        for scheme in SCHEMES
    ]
    table = Table("tracking", f"After {n:,} rows", ["scheme", "settings", "absolute", "relative"], rows)
    relative = {scheme: float(np.mean(end[1])) for scheme, end in ends.items()}
    printed = sorted(relative[scheme] for scheme in PAPER)
    found = (
        f"after {n:,} rows the paper's settings are {number(printed[0])} to {number(printed[-1])} of the solution's "
        f"length away from it, where θ = 0 is at 1; SAGA is at {number(relative['SAGA'])}, "
        f"CD at {number(relative['CD'])}."
    )
    return Section("tracking", TITLE, TEXT, [*_figures(data), table], found)


def _figures(data: list[dict[str, Any]]) -> list[Item]:
    absolute, relative = ([_line(data, scheme, kind) for scheme in SCHEMES] for kind in ("absolute", "relative"))
    axis, zero = "relative error  ‖θₙ − exact‖ / ‖exact‖", [Mark(1.0, "θ = 0", "y")]
    first, second, third = CAPTIONS
    return [
        Lines("tracking-absolute", "As the paper plots it", first, "iteration n", "‖θₙ − exact‖", absolute[:3], ""),
        Lines("tracking-relative", "Relative to the solution", second, "iteration n", axis, relative[:3], "", zero),
        Lines("tracking-ours", "With what we recommend", third, "iteration n", axis, relative, "xy", zero),
    ]


def _ends(data: list[dict[str, Any]], scheme: str, kind: str) -> list[float]:
    return [one[kind][-1] for one in data if one["scheme"] == scheme]


def _line(data: list[dict[str, Any]], scheme: str, kind: str) -> Line:
    values = [one for one in data if one["scheme"] == scheme]
    dash, colour = "dashed" if scheme in PAPER else "solid", list(SCHEMES).index(scheme) + 1
    return Line.over_seeds(scheme, values[0]["n"], [one[kind] for one in values], colour, dash)
