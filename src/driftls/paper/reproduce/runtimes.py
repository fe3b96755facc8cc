"""Run times of LinUCB and its variants, against four exact baselines."""

from __future__ import annotations

from time import thread_time
from typing import Any

import numpy as np

from driftls.paper.reproduce.common import Job, Options, colour, ratio, verdict
from driftls.paper.reproduce.replays import BASELINES, DEFAULT, DIM, LINUCB, POLICIES, VARIANTS, Arms, pieces, seconds
from driftls.report.model import Claim, Dot, Dots, Finding, Mark, Section, Table

PRINTED = {  # ms on days 2 and 4
    LINUCB: (1_367_018, 1_717_997),
    "fLinUCB-GD": (4_933, 6_474),
    "fLinUCB-SVRG": (81_818, 107_386),
    "fLinUCB-SAG": (44_504, 55_630),
}
GD, BEST = "fLinUCB-GD", "LinUCB, one model an article"
SLOW = {  # every exact LinUCB, and what it is
    "inversion": "a new inverse a round",
    "Sherman-Morrison": "Sherman-Morrison",
    LINUCB: "compiled, for sparse pairs",
    BEST: "compiled, a model an article",
}
METHODS = [*SLOW, *VARIANTS, "SAGA, diagonal widths", "SAGA, one model an article", DEFAULT]
DAY = 1_850_000  # lines, so that pools last as long as they do on a front page
TEXT = [
    f"Lines of a day with some 35 articles each; pairs of user and article, hashed to d = {DIM}; one core. Every line "
    "is chosen for, and one in 35 is learned from, as in a replay. Exact LinUCB comes in four forms. Two are dense "
    "NumPy on BLAS, timed over two lines an article, since each costs the same. Two are compiled: one uses that pairs "
    "are sparse; the other has one model an article, d = 136, and is made for this case.",
    "Times are the processor's: medians of repetitions, each with new lines and new policies. Intervals of ratios are "
    "95%, by bootstrap over them. The claim holds if fLinUCB-GD is at least ten times as fast as every exact form, in "
    "part if as some.",
]


def jobs(options: Options) -> list[Job]:
    """Repetitions on the first lines of days, each with all methods."""
    lines, days = options.pick(4_000, 10_000, 30_000), options.logs or ("",)
    return [
        Job(spent, {"lines": lines, "seed": seed, "day": day, "log": log}, timed=True)
        for day, log in enumerate(days, 2)
        for seed in options.seeds(5, 9, 15)
    ]


def spent(lines: int, seed: int, day: int, log: str) -> dict[str, Any]:
    """Microseconds a line of every method."""
    parts = [(piece, Arms(piece)) for piece in pieces(lines, seed, day, log, of=DAY)]
    piece, arms = parts[0]
    few = min(2 * len(arms.ids), len(piece))
    rows = arms.pairs[: few * len(arms.ids)].toarray()
    spent = {name: seconds(make(DIM), rows, piece.reward[:few], True) / few for name, make in BASELINES.items()}
    for method in METHODS[len(BASELINES) :]:
        policy = POLICIES[method](seed)
        for k, (piece, arms) in enumerate(parts):
            if k <= 1:  # the first piece loads what was compiled, and opens models
                begin = thread_time()
            arms.play(policy, piece.reward, piece.shown)
        spent[method] = (thread_time() - begin) / sum(len(piece) for piece, _ in parts[1:] or parts)
    return {method: 1e6 * each for method, each in spent.items()}


def show(options: Options, data: list[dict[str, float]]) -> Section:
    """Times in a figure, ratios in a table: the paper's, and ours."""
    times = {method: [one[method] for one in data] for method in METHODS}
    over = {slow: ratio(times[slow], times[GD]) for slow in SLOW}
    claim = Claim(
        "LinUCB takes 277 times as long as fLinUCB-GD: a significant gain over classic solvers.",
        f"With a new inverse a round it takes {over['inversion']} times as long, by Sherman-Morrison "
        f"{over['Sherman-Morrison']}. Compiled for sparse pairs it takes {over[LINUCB]} times as long, with one model "
        f"an article {over[BEST]}.",
        verdict(*(each.low > 10.0 for each in over.values())),
    )
    best = min(over.values(), key=lambda each: each.value)
    against = "slower than" if best.high < 1.0 else "faster than" if best.low > 1.0 else "no faster than"
    name = "LinUCB's time over fLinUCB-GD's"
    dots = [Dot(SLOW[slow], each.value, ends=each[1:]) for slow, each in over.items()]
    finding = Finding(
        "How much faster is it?",
        f"fLinUCB-GD is {over['inversion']} times as fast as LinUCB that inverts a matrix every round, and {against} "
        "the best exact one.",
        Dots("speed-up", name, "", name, dots, "x", [Mark(277.0, "paper: 277"), Mark(1.0, "equal")]),
    )
    printed = [Dot(method, ms[0] / 1000, colour=colour(method)) for method, ms in PRINTED.items()]
    quartiles = {method: np.quantile(own, [0.25, 0.5, 0.75]).tolist() for method, own in times.items()}
    ours = [
        Dot(method, middle, colour=colour(method), ends=(low, high))
        for method, (low, middle, high) in quartiles.items()
    ]
    here = f"Choosing and learning, one core: medians and quartiles of {len(data)} repetitions. Exact methods first."
    figures = [
        Dots("run-times-printed", "As the paper reports it", "Its day 2, on its machine.", "seconds", printed, "x"),
        Dots("run-times", "Here", here, "µs a line", ours, "x"),
    ]
    rows = [[f"paper: ms, day {day}", *(f"{ms[k]:,}" for ms in PRINTED.values())] for k, day in enumerate((2, 4))]
    rows += [[f"here: {slow} over it", *(str(ratio(times[slow], times[each])) for each in PRINTED)] for slow in SLOW]
    note = (
        "What the paper prints; then how many times as long each exact method takes here. Times of a machine that does "
        "other work are too long: compare ratios."
    )
    table = Table("run-times-paper", "How many times as long LinUCB takes", ["", *PRINTED], rows, note)
    return Section("run-times", "Run times", TEXT, [*figures, table], claims=[claim], findings=[finding])
