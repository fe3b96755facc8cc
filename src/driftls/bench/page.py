"""The report of a benchmark: one part a kind of problem, each with its table and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from driftls.bench.more import sections
from driftls.bench.players import PLAYERS, baseline, reference
from driftls.bench.problems import PROBLEMS, Problem
from driftls.bench.run import Options, Result
from driftls.report import Figure, Item, Line, Lines, Mark, Page, Section, Table, how, number, plus_minus

__all__ = ["PARTS", "page", "table"]

TITLE = "Ours and theirs"
LEAD = (
    "Time, memory and regret of every method on the same problems, in one run, on one thread: time without reward "
    "means nothing. In short:"
)
HEAD = ["method", "choose", "learn", "both", "spread", "ratio", "MB", "rounds", "regret", "ours"]
COLOURS = {"ours": 1, "exact": 2}  # the rest, the peers, have the third
DASHES = ("solid", "dashed", "dotted")
KINDS = {
    "dense": (
        "Dense arms that change",
        "20 new arms of d dense features every round. Nothing has to be explored here, since chance brings good arms: "
        "greedy is as good as any.",
    ),
    "sparse": (
        "Sparse arms that change",
        "20 new arms every round, each with one feature of each of 15 or 50 fields; a few features of a field are "
        "popular and most are rare. Exact methods cannot be had at d = 100,000.",
    ),
    "fixed": (
        "Arms that stay",
        "The same 100 arms of d = 50 in every round. Here who does not explore settles on a wrong arm.",
    ),
    "articles": (
        "A day of a news front page",
        "A synthetic day like R6B, thinned so that every line is a round: a user of 136 sparse features, some 35 "
        "articles that come and go, and clicks. One model an article, or one over user × article pairs.",
    ),
    "regression": (
        "One row at a time",
        "Predict a row of d = 136, then take it. Regret is the squared error of the prediction against the true mean, "
        "over that of predicting 0.",
    ),
}
Rows = list[dict[str, Any]]
Part = Callable[[Result], Sequence[Section]]


def page(result: Result, options: Options) -> Page:
    """All that was measured."""
    sections = [section for part in PARTS for section in part(result)]
    limits = (
        f"{options.repetitions} repetitions, seeds from 0 on, {options.seconds:g} s each, {options.rounds:,} rounds"
    )
    load = ", ".join(f"{value:.1f}" for value in result.load)
    return Page(TITLE, LEAD, sections, how(limits=limits, load=load, **result.versions))


def _rules(result: Result) -> list[Section]:
    text = [
        "Each repetition is a process of its own, and all players take turns. Times are those of a round as Python "
        "sees it, choosing and learning apart: the mean over the later half of the rounds, and of that the least over "
        "repetitions. Spread is how much more the slowest repetition took.",
        "Everybody gets arms in the format of its own, made outside the timed part: dictionaries for river, text for "
        "Vowpal Wabbit (which is parsed in the timed part), CSR or arrays for others. This favours the peers.",
        "Regret is a share: what was lost against the best arm, over what a player loses that chooses at random. A "
        "player stops when its time is used up, and is judged by the rounds that it got to; the last column has what "
        "ours, without a setting, lost over the same rounds.",
        "Settings of exact methods and peers are the best of four, found on other seeds by `driftls bench --tune`.",
        "Own memory is what a process took after its imports; ours and compiled methods have their machine code in it.",
    ]
    return [Section("rules", "How it is measured", text)]


def _kind(kind: str) -> Part:
    def part(result: Result) -> list[Section]:
        rows = [row for row in result.rows if PROBLEMS[row["problem"]].kind == kind]
        if not rows:
            return []
        names = list(dict.fromkeys(row["problem"] for row in rows))
        items: list[Item] = _against_dimension(rows, kind) if len(names) > 2 else []
        for name in names:
            of = [row for row in rows if row["problem"] == name]
            items += [_against_reward(of, name), table(of, PROBLEMS[name])]
        title, text = KINDS[kind]
        return [Section(kind, title, [text], items, _found(rows, names[-1]))]

    return part


def _skipped(result: Result) -> list[Section]:
    if not result.skipped:
        return []
    rows = [[one["player"], one["problem"], one["reason"]] for one in result.skipped]
    title = "Who did not play, and why"
    return [Section("skipped", title, [], [Table("skipped", "Skipped", ["method", "problem", "reason"], rows)])]


# in the order of the page; a part makes its sections of what it finds in the result, and none if there is nothing
PARTS: list[Part] = [_rules, *map(_kind, KINDS), sections, _skipped]


def table(rows: Rows, problem: Problem) -> Table:
    """One problem, the fastest first."""
    base, ours = PLAYERS[baseline(problem)].label, PLAYERS[reference(problem)].label
    cells = [_cells(row) for row in sorted(rows, key=lambda row: float(row["time"]))]
    note = (
        f"µs a round; ratio to {base}; own memory; regret over that of choosing at random, ± its 95% interval over "
        f"seeds, in the rounds that were got to; and that of {ours} in the same rounds."
    )
    return Table(problem.name, problem.name, HEAD, cells, note)


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["label"],
        number(row["choose"]),
        number(row["learn"]),
        number(row["time"]),
        "" if row["spread"] is None else f"{row['spread']:.0%}",
        "" if row["ratio"] is None else number(row["ratio"]),
        number(row["own"] / 1e6),
        f"{row['rounds']:,}",
        number(row["share"]) if row["half"] is None else plus_minus(row["share"], row["half"]),
        "" if row["ours"] is None else number(row["ours"]),
    ]


def _against_dimension(rows: Rows, kind: str) -> list[Item]:
    """Time a round against d, a figure each for ours, exact and peers, with the baseline in all of them."""
    base = baseline(PROBLEMS[rows[0]["problem"]])
    figures: list[Item] = []
    for group, title in (("ours", "Ours"), ("exact", "Exact methods"), ("peers", "Peers")):
        labels = dict.fromkeys(row["label"] for row in rows if _group(row) == group and row["player"] != base)
        lines = [_line(rows, PLAYERS[base].label, 0, "solid")]
        lines += [_line(rows, label, k % 6 + 1, DASHES[k // 6]) for k, label in enumerate(labels)]
        caption = "Choosing and learning together; the baseline is black."
        if labels:
            name = f"time-{kind}-{group}"
            figures.append(Lines(name, f"{title}: time a round against d", caption, "d", "µs a round", lines))
    return figures


def _group(row: dict[str, Any]) -> str:
    return str(row["group"]) if row["group"] in COLOURS else "peers"


def _line(rows: Rows, label: str, colour: int, dash: str) -> Line:
    points = sorted((PROBLEMS[row["problem"]].dim, row["time"]) for row in rows if row["label"] == label)
    return Line(label, [d for d, _ in points] or [1.0], [t for _, t in points] or [float("nan")], colour, dash)


def _against_reward(rows: Rows, name: str) -> Figure:
    """Time against regret: the lower left is where one wants to be.

    A slow method got to fewer rounds, of which everybody loses more: so it is held against ours in the same rounds.
    """
    paired = all(row["ours"] for row in rows)
    regret = [row["share"] / row["ours"] if paired else row["share"] for row in rows]
    lines = [
        Line(row["label"].removeprefix("driftls "), [row["time"]], [each], COLOURS.get(row["group"], 3))
        for row, each in zip(rows, regret)
    ]
    caption = "Low and left is better. Blue: ours; brown: exact; green: peers. Who got to few rounds is near 1 anyhow."
    y, mark = ("regret over ours, same rounds", "as ours") if paired else ("regret", "at random")
    title, marks = f"{name}: time against regret", [Mark(1.0, mark, "y")]
    return Lines(f"reward-{name}", title, caption, "µs a round", y, lines, "xy", marks)


def _found(rows: Rows, name: str) -> str:
    """Ours, as a user gets it, against the fastest exact method and the fastest peer."""
    of = [row for row in rows if row["problem"] == name]
    ours = next((row for row in of if row["player"] == reference(PROBLEMS[name])), None)
    if ours is None:
        return ""
    told = [f"on {name}, {ours['label']} takes {number(ours['time'])} µs a round"]
    for group, word in (("exact", "exact method"), ("peers", "peer")):
        rivals = [row for row in of if _group(row) == group]
        if rivals:
            rival = min(rivals, key=lambda row: float(row["time"]))
            lost = f"{number(rival['share'] / rival['ours'])} times its regret" if rival["ours"] else "more rounds"
            told.append(f"the fastest {word}, {rival['label']}, {number(rival['time'])} µs, and has {lost}")
    return "; ".join(told) + "."
