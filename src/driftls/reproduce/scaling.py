"""What a round costs against d and K, fast and exact, and from which d on the fast one pays."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from driftls import paper
from driftls.environments import FreshContexts
from driftls.policies import LinUCB
from driftls.report import Line, Lines, Mark, Section, Table, number
from driftls.reproduce.baselines import BASELINES
from driftls.reproduce.work import Options, Piece
from driftls.simulate import simulate
from driftls.trackers import SAGA
from driftls.widths import DiagonalWidth

TITLE = "Scaling: from which d on does it pay?"
FAST, EXACT = "SAGA, diagonal widths", "exact, compiled"
COMPILED: dict[str, Any] = {
    FAST: lambda dim: LinUCB(tracker=SAGA(dim, seed=0), width=DiagonalWidth(), kappa=1.0, seed=0),
    EXACT: lambda dim: paper.linucb(dim, seed=0),
}
LANES = {FAST: "SAGA and diagonal widths, dense", EXACT: "exact policy, dense"}
METHODS = [*BASELINES, EXACT, FAST]
ARMS, DIM = 20, 136


def pieces(options: Options) -> list[Piece]:
    """First all kernels, then times: each d with 20 arms, each number of arms with d = 136."""
    dims = options.pick([8, 32, 128, 512], [8, 16, 32, 64, 128, 256, 512, 1024], [8, 16, 32, 64, 128, 256, 512, 1024, 2048])
    arms = options.pick([5, 20, 80], [5, 10, 20, 40, 80, 160], [5, 10, 20, 40, 80, 160])
    todo = [(dim, ARMS) for dim in dims] + [(DIM, count) for count in arms]
    seconds = options.pick(0.15, 0.5, 2.0)
    ready = [Piece(LANES[method], cost, {"method": method, "dim": 4, "arms": 3, "seconds": 0.0}) for method in COMPILED]
    return ready + [
        Piece("scaling", cost, {"method": method, "dim": dim, "arms": count, "seconds": seconds}, timed=True)
        for dim, count in todo
        for method in METHODS
    ]  # fmt: skip


def cost(method: str, dim: int, arms: int, seconds: float) -> dict[str, Any]:
    """Microseconds a round of choosing and of learning, after a first round; arms are new in every round."""
    environment = FreshContexts(dim, arms, seed=0)
    rounds = 4
    while True:  # twice as many until they take long enough to be timed
        spent = _compiled(method, environment, rounds) if method in COMPILED else _python(method, environment, rounds)
        if sum(spent) >= seconds or rounds >= 4096:
            break
        rounds *= 2
    choose, learn = (1e6 * part / rounds for part in spent)
    return {"method": method, "dim": dim, "arms": arms, "rounds": rounds, "choose": choose, "learn": learn}


def _compiled(method: str, environment: FreshContexts, rounds: int) -> tuple[float, float]:
    policy = COMPILED[method](environment.dim)
    simulate(policy, environment, 1)
    run = simulate(policy, environment, rounds)
    return run.seconds["choose"], run.seconds["learn"]


def _python(method: str, environment: FreshContexts, rounds: int) -> tuple[float, float]:
    policy, block = BASELINES[method](environment.dim), environment.block(1, rounds)
    choose = learn = 0.0
    for arms, means, noise in zip(block.arms, block.means, block.noise):
        begin = perf_counter()
        k = policy.choose(arms)
        between = perf_counter()
        policy.learn(arms[k], means[k] + noise)
        choose, learn = choose + between - begin, learn + perf_counter() - between
    return choose, learn


def show(options: Options, data: list[dict[str, Any]]) -> Section:
    """Cost against d with the crossing, against K, and the table."""
    timed = [one for one in data if one["dim"] > 4]
    by_dim = {m: sorted((o["dim"], o["choose"] + o["learn"]) for o in timed if o["method"] == m and o["arms"] == ARMS) for m in METHODS}
    by_arms = {m: sorted((o["arms"], o["choose"] + o["learn"]) for o in timed if o["method"] == m and o["dim"] == DIM) for m in METHODS}
    by_dim = {m: [pair for pair in pairs if pair[0] != DIM] for m, pairs in by_dim.items()}
    meets = {m: crossing(by_dim[m], by_dim[FAST]) for m in METHODS[:-1]}
    last = by_dim[FAST][-1]
    ratios = {m: by_dim[m][-1][1] / last[1] for m in METHODS[:-1]}
    marks = [Mark(meets[EXACT], f"pays from d ≈ {meets[EXACT]:.0f}")] if meets[EXACT] else []
    items = [
        Lines(
            "scaling-dim",
            f"Cost a round against d, {ARMS} new arms a round",
            "Choosing and learning together, dense features. The mark is where the fast one crosses the compiled exact one.",
            "dimension d",
            "µs a round",
            [_line(m, by_dim[m], colour) for colour, m in enumerate(METHODS, 1)],
            "xy",
            marks,
        ),
        Lines(
            "scaling-arms",
            f"Cost a round against the number of arms, d = {DIM}",
            "Widths of K new arms cost the exact methods K d², the fast one K d.",
            "arms K",
            "µs a round",
            [_line(m, by_arms[m], colour) for colour, m in enumerate(METHODS, 1)],
        ),
        Table(
            "scaling",
            "µs a round",
            ["method", "d", "K", "choose", "learn"],
            [[o["method"], str(o["dim"]), str(o["arms"]), number(o["choose"]), number(o["learn"])] for o in timed],
            "One core. Baselines are driven from Python, which costs them some 5 µs a round.",
        ),
    ]  # fmt: skip
    pays = f"from d ≈ {meets[EXACT]:.0f} on" if meets[EXACT] else "at every d measured"
    return Section(
        "scaling",
        TITLE,
        [
            "The paper gives orders only: O(d) a step against O(d²) or O(d³). A constant decides from which d on that "
            "pays. Here: new dense arms in every round, exact LinUCB in three forms (a new inverse a round, "
            "Sherman-Morrison on BLAS, and our compiled one) and SAGA with diagonal widths, 8 steps a round.",
        ],
        items,
        f"the fast method pays {pays} against compiled exact LinUCB; at d = {last[0]} it is {number(ratios[EXACT])} times "
        f"as fast as that, {number(ratios['Sherman-Morrison on BLAS'])} times as fast as Sherman-Morrison on BLAS and "
        f"{number(ratios['inversion'])} times as fast as inversion.",
    )


def _line(method: str, pairs: list[tuple[int, float]], colour: int) -> Line:
    return Line(method, [at for at, _ in pairs], [cost for _, cost in pairs], colour)


def crossing(slow: list[tuple[int, float]], fast: list[tuple[int, float]]) -> float | None:
    """Where two measured costs are equal, on logarithmic axes; None if the fast one is faster everywhere, or nowhere.

    >>> round(crossing([(10, 1.0), (100, 100.0)], [(10, 10.0), (100, 10.0)]))
    32
    """
    gap = np.log([a / b for (_, a), (_, b) in zip(slow, fast)])
    for k in range(len(gap) - 1):
        if gap[k] < 0.0 <= gap[k + 1]:
            share = gap[k] / (gap[k] - gap[k + 1])
            return float(np.exp(np.log(slow[k][0]) * (1.0 - share) + np.log(slow[k + 1][0]) * share))
    return None
