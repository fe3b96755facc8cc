"""Theorem 2: the regret of PEGE and fPEGE-GD against n and d, and what a phase costs."""

from __future__ import annotations

from time import thread_time
from typing import Any

import numpy as np

from driftls import paper
from driftls.paper.actions import LinearBandit, Sphere
from driftls.paper.pege import PEGE, play
from driftls.paper.reproduce.common import Job, Options, lines, medians, of, ratio, told, verdict
from driftls.paper.theory import Bounds
from driftls.report.model import Claim, Line, Lines, Section, plus_minus
from driftls.run import interval

FAST, BOX = "fPEGE-GD", "fPEGE-GD, printed step"
EXACT = "PEGE, by its basis"  # O(d^2) a phase, and exact
METHODS: dict[str, Any] = {
    "PEGE": lambda actions, seed: paper.pege(actions),
    FAST: lambda actions, seed: paper.fpege_gd(actions, seed=seed),
    BOX: lambda actions, seed: paper.fpege_gd(actions, step="printed", seed=seed),
    "averaged steps": lambda actions, seed: paper.fpege_gd(actions, step="averaged"),
}
TIMED: dict[str, Any] = {**METHODS, EXACT: lambda actions, seed: PEGE(actions)}
DASHES = {BOX: "dashed", EXACT: "dashed", "averaged steps": "dotted"}
TEXT = [
    "The paper has no experiment on it. Here: the unit sphere, ‖θ*‖ = 1, noise uniform on [-1, 1]. fPEGE-GD has "
    "Theorem 1's step; the step c/n of the algorithm's box, whose first steps are larger than any stable one, is drawn "
    "as well. PEGE explores one basis again and again, so exact least squares is the mean reward of each direction: "
    "that is timed, too.",
    "The first claim holds if the slope of log regret against log n over the last tenfold of rounds is below 0.65, and "
    "the regret below log⁴ n times PEGE's; in part if one of both. The second holds if the box's step has at most "
    "twice PEGE's regret at the largest d, of 50 at least. The third holds if a phase takes less time than in either "
    "exact form, in part if than in one.",
]


def jobs(options: Options) -> list[Job]:
    """Regret for each d and seed; then the time a phase."""
    rounds, phases = options.pick(20_000, 300_000, 1_000_000), options.pick(9, 15, 31)
    dims = [5, 10, 20] if options.size == 0 else [5, 10, 20, 50]
    sizes = options.pick([10, 30, 100, 200], [10, 30, 100, 300], [10, 30, 100, 300, 1000])
    played = [{"dim": dim, "rounds": rounds, "seed": seed} for dim in dims for seed in options.seeds(10, 20, 40)]
    timed = [Job(phase, {"dim": dim, "phases": phases}, timed=True) for dim in sizes]
    return [*(Job(regret, each) for each in played), *timed]


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
    """Regret against n and against d, and the cost of a phase."""
    runs, timed = of(data, kind="regret"), of(data, kind="phase")
    dims, n, big = sorted({one["dim"] for one in runs}), runs[0]["n"], timed[-1]
    at = dims[len(dims) // 2]
    middle = {method: [one[method] for one in of(runs, dim=at)] for method in METHODS}
    ends = {(m, d): [one[m][-1] for one in of(runs, dim=d)] for m in METHODS for d in dims}
    tenth = int(np.argmin(np.abs(np.array(n) - n[-1] / 10)))
    slopes = {m: [np.log(run[-1] / run[tenth]) / np.log(n[-1] / n[tenth]) for run in middle[m]] for m in METHODS}
    over, box = (interval(np.divide(ends[m, d], ends["PEGE", d]).tolist()) for m, d in ((FAST, at), (BOX, dims[-1])))
    cost = {exact: ratio(big[FAST], big[exact]) for exact in ("PEGE", EXACT)}
    claims = [
        Claim(
            "fPEGE-GD's regret grows like √n, worse than PEGE's by O(log⁴ n) only.",
            f"At d = {at} its slope is {told(slopes[FAST])}, PEGE's {told(slopes['PEGE'])}; √n has 0.5. Its regret is "
            f"{plus_minus(*over)} times PEGE's.",
            verdict(bool(np.mean(slopes[FAST]) < 0.65), over[0] < np.log(n[-1]) ** 4),
        ),
        Claim(
            "fPEGE-GD works with the step c/n that its algorithm's box prints.",
            f"At d = {dims[-1]} its regret is then {plus_minus(*box)} times PEGE's."
            + " Its steps are too large where d is: `driftls reproduce` goes to d = 50." * (options.size == 0),
            "open" if options.size == 0 and box[0] <= 2.0 else verdict(box[0] <= 2.0),
        ),
        Claim(
            "fPEGE-GD takes O(d²) a phase, where PEGE takes O(d³).",
            f"At d = {big['dim']} it takes {cost['PEGE']} of the time of general least squares, but {cost[EXACT]} times "
            "that of exact least squares that knows the basis.",
            verdict(*(each.high < 1.0 for each in cost.values())),
        ),
    ]
    drawn = lines(middle, n, DASHES)
    later = np.array([each for each in n if each > at])
    bound = Bounds.of_pege(at, 1.0).regret_shape(later)
    drawn.append(Line("bound's shape", later.tolist(), (drawn[1].y[-1] * bound / bound[-1]).tolist(), 0, "dotted"))
    caption = (
        f"Mean and 95% interval over {len(middle[FAST])} seeds. The bound has no constant: its shape is drawn through "
        "fPEGE-GD's end."
    )
    figures = [Lines("theorem-2-rounds", f"Regret against n, d = {at}", caption, "round n", "regret", drawn)]
    drawn = lines({m: list(zip(*(ends[m, d] for d in dims))) for m in METHODS}, dims, DASHES)
    drawn.append(Line("∝ d", dims, [drawn[0].y[0] * dim / dims[0] for dim in dims], 0, "dotted"))
    caption = f"After {n[-1]:,} rounds: mean and 95% interval over seeds. The dotted line grows like d."
    figures.append(Lines("theorem-2-dims", "Regret against d", caption, "dimension d", "regret", drawn))
    drawn = medians({m: [one[m] for one in timed] for m in TIMED if m != BOX}, [one["dim"] for one in timed], DASHES)
    caption = "To learn the d exploration rounds of a phase and estimate θ: medians and quartiles of phases."
    figures.append(Lines("theorem-2-phase", "Time a phase", caption, "dimension d", "µs a phase", drawn))
    return Section("theorem-2", "Theorem 2: the regret of fPEGE-GD", TEXT, figures, claims=claims)
