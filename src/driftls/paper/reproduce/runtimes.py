"""Run times of LinUCB and its variants, against three exact baselines; choosing and learning apart."""

from __future__ import annotations

from itertools import islice
from time import perf_counter
from typing import Any

from driftls.paper.reproduce.baselines import BASELINES
from driftls.paper.reproduce.replays import DIM, KAPPA, LINUCB, day_of, features, played
from driftls.paper.reproduce.work import Options, Piece
from driftls.report import Dot, Dots, Item, Section, Table, number

TITLE = "Run times"
PRINTED = {  # ms on days 2 and 4
    LINUCB: (1_367_018, 1_717_997),
    "fLinUCB-GD": (4_933, 6_474),
    "fLinUCB-SVRG": (81_818, 107_386),
    "fLinUCB-SAG": (44_504, 55_630),
}
EXACT = [*BASELINES, "LinUCB, one model an article"]
SLOW = [*EXACT, LINUCB]
FAST = [*list(PRINTED)[1:], "SAGA, diagonal widths", "SAGA, one model an article"]
METHODS = [*SLOW, *FAST]
TEXT = [
    "The paper's LinUCB takes 277 times as long as fLinUCB-GD on day 2, and 265 times on day 4. It is not said how "
    "that LinUCB finds its inverse; its times suggest a new one in every round.",
    f"Here: lines of a day, some 35 articles each, pairs hashed to d = {DIM}. Exact LinUCB in four forms: a new "
    "inverse a round and Sherman-Morrison, both dense on BLAS and from Python; our compiled one, which uses that pairs "
    "are sparse; and one exact model an article, d = 136, which is the method made for this case. Every ratio names "
    "its baseline.",
]


def pieces(options: Options) -> list[Piece]:
    """Time each method on the first lines of each day: slow ones on fewer."""
    lines = options.pick(20_000, 50_000, 200_000)
    days = [(int(k), log) for k, log in enumerate(options.logs)] or [(2, ""), (4, "")][: options.pick(1, 2, 2)]
    return [
        Piece(
            "run times", spent, {"method": method, "lines": lines, "seed": options.seed, "day": day, "log": log}, True
        )
        for method in METHODS
        for day, log in days
    ]


def spent(method: str, lines: int, seed: int, day: int, log: str) -> dict[str, Any]:
    """Microseconds a line of choosing and of learning."""
    if method in BASELINES:
        return {"method": method, "day": day, **_dense(method, day_of(lines, seed, day, log), lines // 50)}
    played(method, day_of(lines, seed, day, log), seed, limit=200)  # what has to be compiled or loaded is then
    run = played(method, day_of(lines, seed, day, log), seed, limit=lines)
    return {
        "method": method,
        "day": day,
        **{part: 1e6 * run.seconds[part] / run.rounds for part in ("choose", "learn")},
    }


def _dense(method: str, log: Any, lines: int) -> dict[str, float]:
    policy, pairs = BASELINES[method](DIM, kappa=KAPPA), features()
    choose = learn = 0.0
    for event in islice(log, lines):
        arms = pairs.arms(event).toarray()
        begin = perf_counter()
        k = policy.choose(arms)
        between = perf_counter()
        if k == event.shown:
            policy.learn(arms[k], event.reward)
        choose, learn = choose + between - begin, learn + perf_counter() - between
    return {"choose": 1e6 * choose / lines, "learn": 1e6 * learn / lines}


def show(options: Options, data: list[dict[str, Any]]) -> Section:
    """Times in a figure, ratios in two tables: the paper's, and ours."""
    total = {one["method"]: one["choose"] + one["learn"] for one in reversed(data)}  # of the first day
    over = {slow: number(total[slow] / total["fLinUCB-GD"]) for slow in SLOW}
    ours = number(total[EXACT[-1]] / total["SAGA, one model an article"])
    found = (
        f"the paper's 277 is {over['inversion']} here against inversion, {over['Sherman-Morrison on BLAS']} against "
        f"Sherman-Morrison on BLAS, {over[LINUCB]} against compiled sparse LinUCB, and {over[EXACT[-1]]} against the "
        f"exact method made for the case, than which SAGA with one model an article is {ours} times as fast."
    )
    return Section("run-times", TITLE, TEXT, [_figure(total), _printed(total), _table(data)], found)


def _figure(total: dict[str, float]) -> Item:
    dots = [Dot(m, total[m], None, 1 if m in SLOW else 2 if m in PRINTED else 3) for m in METHODS]
    caption = "Choosing and learning together, one core. Exact methods first, then the paper's variants, then ours."
    return Dots("run-times", "Time a line", caption, "µs a line", dots, "x")


def _printed(total: dict[str, float]) -> Item:
    rows = [[f"paper: ms, day {day}", *(f"{ms[k]:,}" for ms in PRINTED.values())] for k, day in enumerate((2, 4))]
    for k, day in enumerate((2, 4)):
        ratios = (number(PRINTED[LINUCB][k] / ms[k]) for ms in PRINTED.values())
        rows.append([f"paper: LinUCB over it, day {day}", *ratios])
    rows += [[f"here: {slow} over it", *(number(total[slow] / total[method]) for method in PRINTED)] for slow in SLOW]
    note = "What the paper prints; then how many times as long each exact method takes here, on the first day."
    return Table("run-times-paper", "How many times as long LinUCB takes", ["", *PRINTED], rows, note)


def _table(data: list[dict[str, Any]]) -> Item:
    rows = [[one["method"], str(one["day"]), number(one["choose"]), number(one["learn"])] for one in data]
    note = "One line in some 35 is learned from: learning is cheap a line, even where it is not a round."
    return Table("run-times-parts", "µs a line", ["method", "day", "choosing", "learning"], rows, note)
