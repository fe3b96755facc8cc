"""What a round costs against d and K, fast and exact, and from which d on the fast one pays."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from driftls import paper
from driftls.environments import FreshContexts
from driftls.paper.reproduce.baselines import BASELINES
from driftls.paper.reproduce.work import Options, Piece
from driftls.policies import LinUCB
from driftls.report import Item, Line, Lines, Mark, Section, Table, number
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
ARMS, DIM, READY = 20, 136, 4
MOST = 512  # rounds of a measurement
TEXT = [
    "The paper gives orders only: O(d) a step against O(d²) or O(d³). A constant decides from which d on that pays.",
    "Here: new dense arms in every round, exact LinUCB in three forms (a new inverse a round, Sherman-Morrison on "
    "BLAS, our compiled one) and SAGA with diagonal widths, 8 steps a round.",
]


def pieces(options: Options) -> list[Piece]:
    """First all kernels, then times: each d with 20 arms, each number of arms with d = 136."""
    dims = 2 ** np.arange(3, options.pick(10, 11, 12), options.pick(2, 1, 1))
    arms = options.pick([5, 20, 80], [5, 10, 20, 40, 80, 160], [5, 10, 20, 40, 80, 160])
    todo = [(int(dim), ARMS) for dim in dims] + [(DIM, count) for count in arms]
    seconds = options.pick(0.05, 0.5, 2.0)
    ready = [
        Piece(LANES[method], cost, {"method": method, "dim": READY, "arms": 3, "seconds": 0.0}) for method in COMPILED
    ]
    return ready + [
        Piece("scaling", cost, {"method": method, "dim": dim, "arms": count, "seconds": seconds}, timed=True)
        for dim, count in todo
        for method in METHODS
    ]


def cost(method: str, dim: int, arms: int, seconds: float) -> dict[str, Any]:
    """Microseconds a round of choosing and of learning; arms are new in every round."""
    environment = FreshContexts(dim, arms, seed=0)
    play = _compiled if method in COMPILED else _python
    rounds = 4
    while sum(play(method, environment, rounds)) < seconds and rounds < MOST:
        rounds *= 2
    spent = min((play(method, environment, rounds) for _ in range(3)), key=sum)  # the least disturbed
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
    timed = [one for one in data if one["dim"] > READY]
    by_dim = {m: _costs(timed, m, "dim", {"arms": ARMS}) for m in METHODS}
    meets = crossing(by_dim[EXACT], by_dim[FAST])
    big, least = by_dim[FAST][-1]
    ratio = {method: number(by_dim[method][-1][1] / least) for method in METHODS}
    always = "at every d measured" if by_dim[EXACT][0][1] > by_dim[FAST][0][1] else "at no d measured"
    pays = f"from d ≈ {meets:.0f} on" if meets else always
    found = (
        f"the fast method pays {pays} against compiled exact LinUCB; at d = {big} it is {ratio[EXACT]} times as fast "
        f"as that, {ratio['Sherman-Morrison on BLAS']} times as fast as Sherman-Morrison on BLAS and "
        f"{ratio['inversion']} times as fast as inversion."
    )
    return Section("scaling", TITLE, TEXT, [*_figures(timed, by_dim, meets), _table(timed)], found)


def _costs(timed: list[dict[str, Any]], method: str, key: str, fixed: dict[str, int]) -> list[tuple[int, float]]:
    own = [one for one in timed if one["method"] == method and fixed.items() <= one.items()]
    return sorted((one[key], one["choose"] + one["learn"]) for one in own)


def _figures(timed: list[dict[str, Any]], by_dim: dict[str, Any], meets: float | None) -> list[Item]:
    by_arms = {m: _costs(timed, m, "arms", {"dim": DIM}) for m in METHODS}
    dims, arms = ([_line(m, costs[m], k) for k, m in enumerate(METHODS, 1)] for costs in (by_dim, by_arms))
    marks = [Mark(meets, f"pays from d ≈ {meets:.0f}")] if meets else []
    titles = f"Cost a round against d, {ARMS} new arms a round", f"Cost a round against the number of arms, d = {DIM}"
    captions = (
        "Choosing and learning together, dense features. The mark: where the fast one crosses the compiled exact one.",
        "Widths of K new arms cost the exact methods K d², the fast one K d.",
    )
    return [
        Lines("scaling-dim", titles[0], captions[0], "dimension d", "µs a round", dims, "xy", marks),
        Lines("scaling-arms", titles[1], captions[1], "arms K", "µs a round", arms),
    ]


def _table(timed: list[dict[str, Any]]) -> Item:
    cases = dict.fromkeys((one["dim"], one["arms"]) for one in timed)
    rows = [[str(dim), str(arms), *(_cell(timed, method, dim, arms) for method in METHODS)] for dim, arms in cases]
    note = "One core. The first two are driven from Python, which is most of what they cost at a small d."
    return Table("scaling", "µs a round, choosing + learning", ["d", "K", *METHODS], rows, note)


def _cell(timed: list[dict[str, Any]], method: str, dim: int, arms: int) -> str:
    [one] = [one for one in timed if (one["method"], one["dim"], one["arms"]) == (method, dim, arms)]
    return f"{number(one['choose'])} + {number(one['learn'])}"


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
