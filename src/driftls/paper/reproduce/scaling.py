"""What a round costs against d and K, fast and exact, and from which d on the fast one pays."""

from __future__ import annotations

from collections.abc import Sequence
from time import thread_time
from typing import Any

import numpy as np

from driftls import paper
from driftls.environments import FreshContexts
from driftls.paper.reproduce.baselines import BASELINES
from driftls.paper.reproduce.show import medians, of, ratio, slope, verdict
from driftls.paper.reproduce.work import Job, Options
from driftls.policies import LinUCB
from driftls.report import Claim, Item, Lines, Mark, Section, Table, number
from driftls.trackers import RAW, SAGA
from driftls.widths import DiagonalWidth

FAST, EXACT = "SAGA, diagonal widths", "exact, compiled"
COMPILED: dict[str, Any] = {
    EXACT: lambda dim: paper.linucb(dim, seed=0),
    FAST: lambda dim: LinUCB(tracker=SAGA(dim, seed=0, **RAW), width=DiagonalWidth(), kappa=1.0, seed=0),
}
METHODS = [*BASELINES, *COMPILED]
DASHES = {"inversion": "dotted", "Sherman-Morrison": "dashed"}
ARMS, DIM = 20, 136
MOST = 512  # rounds of a repetition
TEXT = [
    "The paper gives orders only; a constant decides from which d on they pay. Here: new dense arms in every round, "
    "exact LinUCB in three forms (a new inverse a round, Sherman-Morrison, our compiled one) and SAGA with "
    "diagonal widths, 8 steps a round; one core. The first two are NumPy on BLAS: at a small d most of what they cost "
    "is Python. Times are the processor's, medians over repetitions, bands their quartiles.",
    "The claim holds if between the two largest d the exponent of compiled exact LinUCB's time is larger than the fast "
    "method's by more than 0.6, and in part by more than 0.3.",
]


def jobs(options: Options) -> list[Job]:
    """Times for each d with 20 arms, and for each number of arms with d = 136."""
    dims = 2 ** np.arange(3, options.pick(10, 11, 12), options.pick(2, 1, 1))
    arms = options.pick([5, 20, 80], [5, 10, 20, 40, 80, 160], [5, 10, 20, 40, 80, 160])
    todo = dict.fromkeys([(int(dim), ARMS) for dim in dims] + [(DIM, count) for count in arms])
    seconds, repeats = options.pick(0.02, 0.2, 1.0), options.pick(5, 9, 15)
    return [
        Job(cost, {"dim": dim, "arms": count, "seconds": seconds, "repeats": repeats}, timed=True)
        for dim, count in todo
    ]


def cost(dim: int, arms: int, seconds: float, repeats: int) -> dict[str, Any]:
    """Microseconds a round of every method, repetition by repetition; arms are new in every round."""
    environment, times = FreshContexts(dim, arms, seed=0), {}
    for method in METHODS:
        rounds = 4
        while _spent(method, environment, rounds) < seconds and rounds < MOST:
            rounds *= 2
        times[method] = [1e6 * _spent(method, environment, rounds) / rounds for _ in range(repeats)]
    return {"dim": dim, "arms": arms, "times": times}


def _spent(method: str, environment: FreshContexts, rounds: int) -> float:
    """Seconds of choosing and learning."""
    block, spent = environment.block(1, rounds), 0.0
    if method in COMPILED:
        arms, rewards = np.concatenate(block.arms), block.means + block.noise[:, None]
        for count in (1, rounds):  # the first loads what was compiled
            policy = COMPILED[method](environment.dim)
            begin = thread_time()
            policy.play(arms[: count * environment.arms], rewards[:count])
        return thread_time() - begin
    policy = BASELINES[method](environment.dim)
    for arms, means, noise in zip(block.arms, block.means, block.noise):
        begin = thread_time()
        k = policy.choose(arms)
        policy.learn(arms[k], means[k] + noise)
        spent += thread_time() - begin
    return spent


def show(options: Options, data: list[dict[str, Any]]) -> Section:
    """Cost against d with the crossing, against K, and the table."""
    by_dim = sorted((one for one in data if one["arms"] == ARMS and one["dim"] != DIM), key=lambda one: one["dim"])
    by_arms = sorted(of(data, dim=DIM), key=lambda one: one["arms"])
    dims, big = [one["dim"] for one in by_dim], by_dim[-1]
    middle = {method: [float(np.median(one["times"][method])) for one in by_dim] for method in METHODS}
    meets = crossing(dims, middle[EXACT], middle[FAST])
    always = "at every d measured" if middle[EXACT][0] > middle[FAST][0] else "at no d measured"
    order = {method: slope(dims[-2:], middle[method][-2:]) for method in METHODS}
    apart = order[EXACT] - order[FAST]
    claim = Claim(
        "A step costs O(d), where exact solutions cost O(d²) or more.",
        f"The fast method's time grows with an exponent of {order[FAST]:.1f}, compiled exact LinUCB's with "
        f"{order[EXACT]:.1f}. The fast one pays {f'from d ≈ {meets:.0f} on' if meets else always}; at d = {big['dim']} "
        f"the exact one takes {ratio(big['times'][EXACT], big['times'][FAST])} times as long.",
        verdict(apart > 0.6, apart > 0.3),
    )
    marks = [Mark(meets, f"pays from d ≈ {meets:.0f}")] if meets else []
    told = f"Choosing and learning, {ARMS} arms: medians and quartiles. Where lines cross, the fast one begins to pay."
    per_arm = f"The same at d = {DIM}. Widths of K new arms cost the exact methods K d², the fast one K d."
    sets: Any = (("scaling-dim", "Cost against d", told, "dimension d", "dim", by_dim, marks),
                 ("scaling-arms", "Cost against arms", per_arm, "arms K", "arms", by_arms, []))  # fmt: skip
    items: list[Item] = []
    for name, title, caption, axis, key, own, lines in sets:
        times = {method: [one["times"][method] for one in own] for method in METHODS}
        drawn = medians(times, [one[key] for one in own], DASHES)
        items.append(Lines(name, title, caption, axis, "µs a round", drawn, "xy", lines))
    rows = [
        [str(one["dim"]), str(one["arms"]), *(number(np.median(one["times"][method])) for method in METHODS)]
        for one in [*by_dim, *by_arms]
    ]
    items.append(Table("scaling", "µs a round", ["d", "K", *METHODS], rows))
    return Section("scaling", "Scaling: from which d on does it pay?", TEXT, items, claims=[claim])


def crossing(x: Sequence[float], slow: Sequence[float], fast: Sequence[float]) -> float | None:
    """Where two measured costs are equal, on logarithmic axes; None if the fast one is faster everywhere, or nowhere.

    >>> round(crossing([10, 100], [1.0, 100.0], [10.0, 10.0]))
    32
    """
    gap = np.log(slow) - np.log(fast)
    for k in range(len(gap) - 1):
        if gap[k] < 0.0 <= gap[k + 1]:
            part = gap[k] / (gap[k] - gap[k + 1])
            return float(x[k] ** (1.0 - part) * x[k + 1] ** part)
    return None
