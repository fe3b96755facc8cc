"""What a round costs against d, fast and exact, and from which d on the fast one pays."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls import paper
from driftls.environments import FreshContexts
from driftls.paper.reproduce.common import Job, Options, medians, ratio, slope, verdict
from driftls.paper.reproduce.replays import BASELINES, seconds
from driftls.policies import LinUCB
from driftls.report.model import Claim, Lines, Section
from driftls.trackers import RAW, SAGA
from driftls.widths import DiagonalWidth

FAST, EXACT = "SAGA, diagonal widths", "exact, compiled"
METHODS: dict[str, Any] = {
    **BASELINES,
    EXACT: lambda dim: paper.linucb(dim, seed=0),
    FAST: lambda dim: LinUCB(tracker=SAGA(dim, seed=0, **RAW), width=DiagonalWidth(), kappa=1.0, seed=0),
}
DASHES = {"inversion": "dotted", "Sherman-Morrison": "dashed"}
ARMS = 20
MOST = 512  # rounds of a repetition
TEXT = [
    f"The paper gives orders only; a constant decides from which d on they pay. Here: {ARMS} new dense arms in every "
    "round, exact LinUCB in three forms (a new inverse a round, Sherman-Morrison, our compiled one) and SAGA with "
    "diagonal widths, 8 steps a round; one core. The first two are NumPy on BLAS: at a small d most of what they cost "
    "is Python. Times are the processor's.",
    "The claim holds if between the two largest d the exponent of compiled exact LinUCB's time is larger than the fast "
    "method's by more than 0.6, and in part by more than 0.3.",
]


def jobs(options: Options) -> list[Job]:
    """Times for each d."""
    dims = 2 ** np.arange(3, options.pick(10, 11, 12), options.pick(2, 1, 1))
    given = {"least": options.pick(0.02, 0.2, 0.4), "repeats": options.pick(5, 9, 15)}
    return [Job(cost, {"dim": int(dim), **given}, timed=True) for dim in dims]


def cost(dim: int, least: float, repeats: int) -> dict[str, Any]:
    """Microseconds a round of every method, repetition by repetition; arms are new in every round."""
    environment, times = FreshContexts(dim, ARMS, seed=0), {}
    for method in METHODS:
        rounds = 4
        while _spent(method, environment, rounds) < least and rounds < MOST:
            rounds *= 2
        times[method] = [1e6 * _spent(method, environment, rounds) / rounds for _ in range(repeats)]
    return {"dim": dim, "times": times}


def _spent(method: str, environment: FreshContexts, rounds: int) -> float:
    """Seconds of choosing and learning, once what was compiled is loaded."""
    block = environment.block(1, rounds)
    arms = np.concatenate(block.arms)
    seconds(METHODS[method](environment.dim), arms[:ARMS], block.rewards[:1])
    return seconds(METHODS[method](environment.dim), arms, block.rewards)


def show(options: Options, data: list[dict[str, Any]]) -> Section:
    """Cost against d, and from which d on the fast method pays."""
    dims, big = [one["dim"] for one in data], data[-1]
    times = {method: [one["times"][method] for one in data] for method in METHODS}
    over = [ratio(*both) for both in zip(times[EXACT], times[FAST])]
    orders = {method: slope(dims[-2:], np.median(own[-2:], axis=1).tolist()) for method, own in times.items()}
    pays = next((f"from d = {dim} on" for dim, each in zip(dims, over) if each.low > 1.0), "at no d measured")
    apart = orders[EXACT] - orders[FAST]
    claim = Claim(
        "A step costs O(d), where exact solutions cost O(d²) or more.",
        f"The fast method's time grows with an exponent of {orders[FAST]:.1f}, compiled exact LinUCB's with "
        f"{orders[EXACT]:.1f}. The fast one pays {pays}; at d = {big['dim']} the exact one takes {over[-1]} times as "
        "long.",
        verdict(apart > 0.6, apart > 0.3),
    )
    caption = f"Choosing and learning, {ARMS} arms: medians and quartiles of {len(times[FAST][0])} repetitions."
    drawn = medians(times, dims, DASHES)
    figure = Lines("scaling-dim", "Cost against d", caption, "dimension d", "µs a round", drawn)
    return Section("scaling", "Scaling: from which d on does it pay?", TEXT, [figure], claims=[claim])
