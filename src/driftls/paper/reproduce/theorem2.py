"""Theorem 2: the regret of PEGE and fPEGE-GD against n and d, and what a phase costs."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from driftls import paper
from driftls.paper import theory
from driftls.paper.actions import LinearBandit, Sphere
from driftls.paper.pege import PEGE, play
from driftls.paper.reproduce.work import Options, Piece
from driftls.report import Item, Line, Lines, Section, Table, number, plus_minus
from driftls.run import interval

TITLE = "Theorem 2: the regret of fPEGE-GD"
DELTA = 0.05
TEXT = [
    "The paper promises fPEGE-GD a regret of order n^(1/2), as PEGE has, up to logarithms, at O(d²) instead of O(d³) a "
    "phase. It has no experiment on it.",
    "Here: the unit sphere, ‖θ*‖ = 1, noise uniform on [-1, 1]. fPEGE-GD has Theorem 1's step with the c that its "
    "condition asks for; the step c/n of the algorithm's box, whose first steps are larger than any stable one, is "
    "drawn as well. PEGE explores one basis again and again, so exact least squares is the mean reward of each "
    "direction: that is timed, too.",
]
METHODS: dict[str, Any] = {
    "PEGE": lambda actions, seed: paper.pege(actions),
    "fPEGE-GD": lambda actions, seed: paper.fpege_gd(actions, seed=seed),
    "fPEGE-GD, printed step": lambda actions, seed: paper.fpege_gd(actions, step="printed", seed=seed),
    "averaged steps": lambda actions, seed: PEGE.fast(actions),
}
LANES = {"PEGE": "OLS, dense", "averaged steps": "averaged GD, dense"}
EXACT = "PEGE, by its basis"  # O(d^2) a phase, and exact
TIMED: dict[str, Any] = {**METHODS, EXACT: lambda actions, seed: PEGE(actions)}


def pieces(options: Options) -> list[Piece]:
    """Regret for each method, d and seed; then the time a phase."""
    rounds, dims = options.pick(50_000, 300_000, 1_000_000), options.pick([5, 10, 20], [5, 10, 20, 50], [5, 10, 20, 50])
    played = [
        Piece(LANES.get(method, "GD, dense"), regret, {"method": method, "dim": dim, "rounds": rounds, "seed": seed})
        for method in METHODS
        for dim in dims
        for seed in options.seeds(5, 10, 20)
    ]
    sizes = options.pick([10, 30, 100, 200], [10, 30, 100, 300], [10, 30, 100, 300, 1000])
    timed = [
        Piece("phases", phase, {"method": method, "dim": dim, "phases": 5}, timed=True)
        for method in TIMED
        for dim in sizes
        if method != "fPEGE-GD, printed step"
    ]
    return played + timed


def regret(method: str, dim: int, rounds: int, seed: int) -> dict[str, Any]:
    """One run on the unit sphere, noise uniform on [-1, 1]."""
    actions = Sphere(dim)
    environment = LinearBandit(actions, reward="bounded", sigma=3**-0.5, seed=seed)
    points = np.unique(np.geomspace(100, rounds, 25).astype(int)).tolist()
    run = play(METHODS[method](actions, seed), environment, rounds, checkpoints=points)
    return {"kind": "regret", "method": method, "dim": dim, "n": points, "regret": run.regret}


def phase(method: str, dim: int, phases: int) -> dict[str, Any]:
    """Seconds to learn from the d exploration rounds of a phase and to estimate theta, the median over phases."""
    policy, rewards = TIMED[method](Sphere(dim), 0), np.random.default_rng(0).uniform(-1.0, 1.0, (phases + 1, dim))
    seconds = []
    for m in range(phases + 1):
        begin = perf_counter()
        policy._take(rewards[m])
        policy.theta  # noqa: B018  (an estimate that is kept up only when asked for)
        seconds.append(perf_counter() - begin)
        policy._take(np.zeros(m + 1))
    return {"kind": "phase", "method": method, "dim": dim, "seconds": float(np.median(seconds[1:]))}


def show(options: Options, data: list[dict[str, Any]]) -> Section:
    """Regret against n and against d, the cost of a phase, and a table."""
    runs, timed = ([one for one in data if one["kind"] == kind] for kind in ("regret", "phase"))
    dims = sorted({one["dim"] for one in runs})
    at, big = dims[len(dims) // 2], max(one["dim"] for one in timed)
    ends = {(m, d): [one["regret"][-1] for one in _of(runs, m, d)] for m in METHODS for d in dims}
    slope = {m: _slope(_of(runs, m, at)) for m in METHODS}
    cost = {one["method"]: one["seconds"] for one in timed if one["dim"] == big}
    ratio = interval(np.divide(ends["fPEGE-GD", at], ends["PEGE", at]).tolist())
    found = (
        f"regret grows with a slope of {np.mean(slope['fPEGE-GD']):.2f} for fPEGE-GD and {np.mean(slope['PEGE']):.2f} "
        f"for PEGE, where 0.5 is promised up to logs; at d = {at} fPEGE-GD has {plus_minus(*ratio)} times PEGE's. A "
        f"phase at d = {big} takes it {number(cost['fPEGE-GD'] / cost['PEGE'])} of the time of general least squares, "
        f"and {number(cost['fPEGE-GD'] / cost[EXACT])} times that of exact least squares that knows the basis."
    )
    rows = [[m, *(plus_minus(*interval(ends[m, d])) for d in dims), plus_minus(*interval(slope[m]))] for m in METHODS]
    head = ["method", *(f"regret, d = {d}" for d in dims), f"slope, d = {at}"]
    note = "Slope: of log regret against log n over the last tenfold of rounds. Mean ± half of the 95% interval."
    table = Table("theorem-2", f"After {runs[0]['n'][-1]:,} rounds", head, rows, note)
    items = [_rounds_figure(runs, at), _dims_figure(runs, dims, ends), _phase_figure(timed), table]
    return Section("theorem-2", TITLE, TEXT, items, found)


def _of(runs: list[dict[str, Any]], method: str, dim: int) -> list[dict[str, Any]]:
    return [one for one in runs if (one["method"], one["dim"]) == (method, dim)]


def _rounds_figure(runs: list[dict[str, Any]], dim: int) -> Item:
    n = runs[0]["n"]
    lines = [
        Line.over_seeds(method, n, [one["regret"] for one in _of(runs, method, dim)], colour)
        for colour, method in enumerate(METHODS, 1)
    ]
    caption = "Mean and 95% interval over seeds. The bound has no constant: its shape is drawn through fPEGE-GD's end."
    title = f"Regret against n, d = {dim}"
    return Lines("theorem-2-rounds", title, caption, "round n", "regret", [*lines, *_shapes(lines[1], dim)])


def _dims_figure(runs: list[dict[str, Any]], dims: list[int], ends: dict[tuple[str, int], list[float]]) -> Item:
    lines = [
        Line.over_seeds(method, dims, np.transpose([ends[method, dim] for dim in dims]).tolist(), colour)
        for colour, method in enumerate(METHODS, 1)
    ]
    lines.append(Line("∝ d", dims, [lines[0].y[0] * dim / dims[0] for dim in dims], 0, "dotted"))
    title = f"Regret against d, after {runs[0]['n'][-1]:,} rounds"
    return Lines("theorem-2-dims", title, "The dotted line grows like d.", "dimension d", "regret", lines)


def _shapes(line: Line, dim: int) -> list[Line]:
    n = np.array(line.x)
    n = n[n > dim]
    bound = theory.regret_shape(n, dim=dim, lambda_pege=1.0, theta_norm=1.0, delta=DELTA)
    shapes = {"bound's shape": bound, "n^(1/2)": np.sqrt(n)}
    dashes = {"bound's shape": "dashed", "n^(1/2)": "dotted"}
    return [
        Line(name, n.tolist(), (line.y[-1] * values / values[-1]).tolist(), 0, dashes[name])
        for name, values in shapes.items()
    ]


def _slope(runs: list[dict[str, Any]]) -> list[float]:
    n = np.array(runs[0]["n"])
    before = int(np.argmin(np.abs(n - n[-1] / 10)))
    return [float(np.log(r["regret"][-1] / r["regret"][before]) / np.log(n[-1] / n[before])) for r in runs]


def _phase_figure(timed: list[dict[str, Any]]) -> Item:
    lines = []
    for colour, method in ((1, "PEGE"), (2, "fPEGE-GD"), (4, "averaged steps"), (5, EXACT)):
        own = [one for one in timed if one["method"] == method]
        lines.append(Line(method, [one["dim"] for one in own], [1e6 * one["seconds"] for one in own], colour))
    caption = "Learning the d exploration rounds of a phase and estimating θ; the median of 5 phases, from Python."
    return Lines("theorem-2-phase", "Time a phase", caption, "dimension d", "µs a phase", lines)
