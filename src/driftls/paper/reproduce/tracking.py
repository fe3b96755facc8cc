"""Figures of the tracking error: how far fRLS-GD, SVRG and SAG are from the exact solution; then SAGA and CD."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from driftls import paper
from driftls.features import UserOnly
from driftls.paper.reproduce.common import Job, Options, lines, told, verdict
from driftls.paper.reproduce.replays import USER, pieces
from driftls.report.model import Claim, Finding, Line, Lines, Section, Table, plus_minus
from driftls.run import interval
from driftls.trackers import CD, RAW, SAGA

ROWS = 50_000
SCHEMES: dict[str, Any] = {
    "fRLS-GD": paper.frls_gd,
    "fRLS-SVRG": paper.frls_svrg,
    "fRLS-SAG": paper.frls_sag,
    "SAGA": lambda dim, *, seed: SAGA(dim, seed=seed, **RAW),
    "CD": lambda dim, *, seed: CD(dim, **RAW),
}
PAPER = list(SCHEMES)[:3]
GOOD = 0.2
TEXT = [
    "The paper plots the distance of each iterate from its exact solution, without numbers. Here: users of a day as "
    "rows of norm 1, d = 136, each scheme against the exact solution of its own objective. The paper's rows are those "
    "that its bandit chose, so levels differ. Its steps, 1/(100 + n), 0.0005 and 0.005, are too small for either.",
    f"The claim holds if all three end below {GOOD} of the solution's length, in part if one does.",
]


def jobs(options: Options) -> list[Job]:
    """All schemes on each seed's stream; a log has one stream, and the seed is that of the draws."""
    log = options.logs[0] if options.logs else ""
    return [Job(follow, {"rows": ROWS, "seed": seed, "log": log}) for seed in options.seeds(10, 20, 40)]


def follow(rows: int, seed: int, log: str) -> dict[str, Any]:
    """Both errors of every scheme at some points of one stream: users as sparse rows of norm 1, and their clicks."""
    parts = list(pieces(rows, seed, 0, log))
    X: Any = sp.vstack([UserOnly(USER).users(piece) for piece in parts], format="csr")
    X.data /= np.repeat(np.sqrt(X.multiply(X).sum(axis=1)), np.diff(X.indptr))
    y = np.concatenate([piece.reward for piece in parts])
    points = np.unique(np.geomspace(100, X.shape[0], 25).round().astype(int)).tolist()
    found: dict[str, Any] = {"n": points}
    for scheme, make in SCHEMES.items():
        tracker, errors = make(USER, seed=seed), []
        for first, last in zip([0, *points], points):
            tracker.partial_fit(X[first:last], y[first:last])
            errors.append(tracker.tracking_error())
        found[scheme] = {kind: [getattr(error, kind) for error in errors] for kind in ("absolute", "relative")}
    return found


def show(options: Options, data: list[dict[str, Any]]) -> Section:
    """Three figures and a table."""
    points = data[0]["n"]
    runs = {kind: {scheme: [one[scheme][kind] for one in data] for scheme in SCHEMES} for kind in data[0]["CD"]}
    ends = {kind: {scheme: [run[-1] for run in own] for scheme, own in runs[kind].items()} for kind in runs}
    last, where = ends["relative"], f"After {points[-1]:,} rows"
    absolute, relative = (
        lines(runs[kind], points, dict.fromkeys(PAPER, "dashed")) for kind in ("absolute", "relative")
    )
    axis, zero = "‖θₙ − exact‖ / ‖exact‖", Line("θ = 0", [points[0], points[-1]], [1.0, 1.0], 0, "dotted")
    bands = f"Bands are 95% intervals over {len(data)} streams."
    figures = [
        Lines("tracking-absolute", "As the paper plots it", "The distance to the exact solution, on the paper's axes. "
              f"It looks small; so is the solution. {bands}", "iteration n", "‖θₙ − exact‖", absolute[:3], ""),
        Lines("tracking-relative", "Relative to the solution", "The same, over the solution's length: an estimate that "
              f"never leaves 0 is at 1. {bands}", "iteration n", axis, [*relative[:3], zero], ""),
        Lines("tracking-ours", "With what we recommend", "The paper's settings dashed, ours solid; both axes "
              f"logarithmic. {bands}", "iteration n", axis, [*relative, zero]),
    ]  # fmt: skip
    rows = [
        [scheme, "the paper's" if scheme in PAPER else "ours", told(ends["absolute"][scheme]), told(last[scheme])]
        for scheme in SCHEMES
    ]
    table = Table("tracking", where, ["scheme", "settings", "absolute", "relative"], rows)
    each = ", ".join(f"{scheme} {told(last[scheme])}" for scheme in PAPER)
    claim = Claim(
        "All the SGD schemes track the RLS solutions consistently, with a low tracking error.",
        f"{where}, over the solution's length: {each}. An estimate that never leaves 0 is at 1.",
        verdict(*(np.mean(last[scheme]) < GOOD for scheme in PAPER)),
    )
    best = min(PAPER, key=lambda scheme: np.mean(last[scheme]))
    far = plus_minus(*(100.0 * each for each in interval(last[best])))
    text = (
        f"{where} {best}, the closest of the paper's schemes, still has {far}% of the way to the exact solution to go."
    )
    finding = Finding("Does it follow the exact solution?", text, figures[2])
    return Section("tracking", "Tracking error", TEXT, [*figures, table], claims=[claim], findings=[finding])
