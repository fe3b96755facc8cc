"""Theorem 2: the regret of PEGE and fPEGE-GD against n and d, and what a phase costs."""

from __future__ import annotations

from time import thread_time
from typing import Any

import numpy as np

from driftls import paper
from driftls.paper import theory
from driftls.paper.actions import LinearBandit, Sphere
from driftls.paper.pege import PEGE, play
from driftls.paper.reproduce.show import colour, lines, of, ratio, told
from driftls.paper.reproduce.work import Job, Options
from driftls.report import Claim, Item, Line, Lines, Section, Table, plus_minus
from driftls.run import interval

TITLE = "Theorem 2: the regret of fPEGE-GD"
FAST, BOX = "fPEGE-GD", "fPEGE-GD, printed step"
EXACT = "PEGE, by its basis"  # O(d^2) a phase, and exact
METHODS: dict[str, Any] = {
    "PEGE": lambda actions, seed: paper.pege(actions),
    FAST: lambda actions, seed: paper.fpege_gd(actions, seed=seed),
    BOX: lambda actions, seed: paper.fpege_gd(actions, step="printed", seed=seed),
    "averaged steps": lambda actions, seed: PEGE.fast(actions),
}
TIMED: dict[str, Any] = {**METHODS, EXACT: lambda actions, seed: PEGE(actions)}
DASHES = {BOX: "dashed", EXACT: "dashed"}
TEXT = [
    "The paper has no experiment on it. Here: the unit sphere, ‖θ*‖ = 1, noise uniform on [-1, 1]. fPEGE-GD has "
    "Theorem 1's step with the c that its condition asks for; the step c/n of the algorithm's box, whose first steps "
    "are larger than any stable one, is drawn as well. PEGE explores one basis again and again, so exact least squares "
    "is the mean reward of each direction: that is timed, too.",
    "The first claim holds if the slope of log regret against log n over the last tenfold of rounds is below 0.65, and "
    "the regret below log⁴ n times PEGE's; in part if one of both. The second holds if the box's step has at most "
    "twice PEGE's regret at the largest d. The third holds if a phase takes less time than in either exact form, in "
    "part if than in one.",
]


def jobs(options: Options) -> list[Job]:
    """Regret for each d and seed; then the time a phase."""
    rounds, dims = options.pick(20_000, 300_000, 1_000_000), options.pick([5, 10, 20], [5, 10, 20, 50], [5, 10, 20, 50])
    played = [
        Job(regret, {"dim": dim, "rounds": rounds, "seed": seed}) for dim in dims for seed in options.seeds(10, 20, 40)
    ]
    sizes = options.pick([10, 30, 100, 200], [10, 30, 100, 300], [10, 30, 100, 300, 1000])
    return played + [Job(phase, {"dim": dim, "phases": options.pick(7, 15, 31)}, timed=True) for dim in sizes]


def regret(dim: int, rounds: int, seed: int) -> dict[str, Any]:
    """Every method on the unit sphere, noise uniform on [-1, 1]."""
    points = np.unique(np.geomspace(100, rounds, 25).astype(int)).tolist()
    found: dict[str, Any] = {"kind": "regret", "dim": dim, "n": points}
    for method, make in METHODS.items():
        environment = LinearBandit(Sphere(dim), reward="bounded", sigma=3**-0.5, seed=seed)
        found[method] = play(make(Sphere(dim), seed), environment, rounds, checkpoints=points).regret
    return found


def phase(dim: int, phases: int) -> dict[str, Any]:
    """Microseconds to learn from the d exploration rounds of a phase and to estimate theta, phase by phase."""
    rewards, found = np.random.default_rng(0).uniform(-1.0, 1.0, (phases + 1, dim)), {}
    for method, make in TIMED.items():
        policy, times = make(Sphere(dim), 0), []
        for m in range(phases + 1):
            begin = thread_time()
            policy.take(rewards[m])
            policy.theta  # noqa: B018  (an estimate that is kept up only when asked for)
            times.append(1e6 * (thread_time() - begin))
            policy.take(np.zeros(m + 1))
        found[method] = times[1:]
    return {"kind": "phase", "dim": dim, **found}


def show(options: Options, data: list[dict[str, Any]]) -> Section:
    """Regret against n and against d, the cost of a phase, and a table."""
    runs, timed = of(data, kind="regret"), of(data, kind="phase")
    dims = sorted({one["dim"] for one in runs})
    at, big, n = dims[len(dims) // 2], timed[-1], runs[0]["n"]
    ends = {(m, d): [one[m][-1] for one in of(runs, dim=d)] for m in METHODS for d in dims}
    slopes = {m: _slopes([one[m] for one in of(runs, dim=at)], n) for m in METHODS}
    over, box = (interval(np.divide(ends[m, d], ends["PEGE", d]).tolist()) for m, d in ((FAST, at), (BOX, dims[-1])))
    cost = {exact: ratio(big[FAST], big[exact]) for exact in ("PEGE", EXACT)}
    grows, costs = np.mean(slopes[FAST]) < 0.65, over[0] < np.log(n[-1]) ** 4
    cheaper = [each.high < 1.0 for each in cost.values()]
    claims = [
        Claim(
            "fPEGE-GD's regret grows like n^(1/2), worse than PEGE's by O(log⁴ n) only.",
            f"At d = {at} its slope is {told(slopes[FAST])}, PEGE's {told(slopes['PEGE'])}; its regret is "
            f"{plus_minus(*over)} times PEGE's.",
            "holds" if grows and costs else "in part" if grows or costs else "fails",
        ),
        Claim(
            "fPEGE-GD works with the step c/n that its algorithm's box prints.",
            f"At d = {dims[-1]} its regret is then {plus_minus(*box)} times PEGE's.",
            "holds" if box[0] <= 2.0 else "fails",
        ),
        Claim(
            "fPEGE-GD takes O(d²) a phase, where PEGE takes O(d³).",
            f"At d = {big['dim']} it takes {cost['PEGE']} of the time of general least squares, and {cost[EXACT]} "
            "times that of exact least squares that knows the basis.",
            "holds" if all(cheaper) else "in part" if any(cheaper) else "fails",
        ),
    ]
    rows = [[m, *(told(ends[m, d]) for d in dims), told(slopes[m])] for m in METHODS]
    head = ["method", *(f"regret, d = {d}" for d in dims), f"slope, d = {at}"]
    note = f"{len(of(runs, dim=at))} seeds; mean ± half of the 95% interval."
    table = Table("theorem-2", f"After {n[-1]:,} rounds", head, rows, note)
    items = [_rounds_figure(of(runs, dim=at), at), _dims_figure(dims, ends, n[-1]), _phase_figure(timed), table]
    return Section("theorem-2", TITLE, TEXT, items, "", claims)


def _rounds_figure(runs: list[dict[str, Any]], dim: int) -> Item:
    drawn = lines({method: [{"n": one["n"], "y": one[method]} for one in runs] for method in METHODS}, "n", "y", DASHES)
    n = np.array(drawn[1].x)
    n = n[n > dim]
    bound = theory.regret_shape(n, dim=dim, lambda_pege=1.0, theta_norm=1.0, delta=0.05)
    drawn.append(Line("bound's shape", n.tolist(), (drawn[1].y[-1] * bound / bound[-1]).tolist(), 0, "dotted"))
    caption = "Mean and 95% interval over seeds. The bound has no constant: its shape is drawn through fPEGE-GD's end."
    return Lines("theorem-2-rounds", f"Regret against n, d = {dim}", caption, "round n", "regret", drawn)


def _dims_figure(dims: list[int], ends: dict[tuple[str, int], list[float]], n: int) -> Item:
    runs = {m: [{"d": dims, "y": values} for values in zip(*(ends[m, d] for d in dims))] for m in METHODS}
    drawn = lines(runs, "d", "y", DASHES)
    drawn.append(Line("∝ d", dims, [drawn[0].y[0] * dim / dims[0] for dim in dims], 0, "dotted"))
    caption = "Mean and 95% interval over seeds. The dotted line grows like d."
    return Lines("theorem-2-dims", f"Regret against d, {n:,} rounds", caption, "dimension d", "regret", drawn)


def _phase_figure(timed: list[dict[str, Any]]) -> Item:
    dims, drawn = [one["dim"] for one in timed], []
    for method in ("PEGE", FAST, "averaged steps", EXACT):
        low, middle, high = np.quantile([one[method] for one in timed], [0.25, 0.5, 0.75], axis=1).tolist()
        drawn.append(Line(method, dims, middle, colour(method), DASHES.get(method, "solid"), low, high))
    caption = "To learn the d exploration rounds of a phase and estimate θ: medians and quartiles of phases."
    return Lines("theorem-2-phase", "Time a phase", caption, "dimension d", "µs a phase", drawn)


def _slopes(runs: list[list[float]], n: list[int]) -> list[float]:
    """Of log regret over the last tenfold of rounds, run by run."""
    before = int(np.argmin(np.abs(np.array(n) - n[-1] / 10)))
    return [float(np.log(run[-1] / run[before]) / np.log(n[-1] / n[before])) for run in runs]
