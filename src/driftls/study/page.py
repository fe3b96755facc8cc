"""The report of a study: who leads and by how much, at what cost, which knobs matter, and what was tuned where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from driftls.report import over_rounds
from driftls.report.model import Dot, Dots, Item, Page, Section, Table, number, plus_minus
from driftls.run import interval
from driftls.study.plan import LARGER_IS_BETTER, Plan
from driftls.study.results import LeaderboardRow, Row, effects, leaderboard

__all__ = ["metric_name", "page_of"]


def page_of(plan: Plan, rows: Sequence[Row], how: dict[str, str] | None = None) -> Page:
    """One section a problem."""
    metric = plan.metrics[0]
    board = leaderboard(rows, metric, larger=LARGER_IS_BETTER[metric])
    sections = [
        _problem(rank, list(group), [row for row in rows if row.problem == problem], plan)
        for rank, (problem, group) in enumerate(groupby(board, key=lambda one: one.problem), 1)
    ]
    search = (
        f"Settings by {plan.search.method} search; after each rung the best {plan.search.keep:.0%} by "
        f"{metric_name(metric)} went on to more seeds or days."
    )
    lead = (
        f"{len(rows)} runs. {plan.split} {search} Intervals are 95%, over what was reported: seeds, or days of a log."
    )
    return Page("A study", lead, sections, how or {})


def _problem(rank: int, board: list[LeaderboardRow], rows: list[Row], plan: Plan) -> Section:
    word = metric_name(plan.metrics[0])
    reported: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.policy):
        if row.stage == "report" and not row.error:
            reported.setdefault(row.policy, []).append(row)
    items: list[Item] = [_board(rank, board, word)]
    items += [over_rounds(f"{rank}-{name}", name, metric_name(name), reported) for name in plan.metrics]
    caption = "Over all tuning runs with this value, whatever the other knobs; settings stopped early have fewer runs."
    for (_, policy, knob), values in effects(rows, plan.metrics[0]).items():
        dots = [Dot(number(value), *interval(found)) for value, found in values.items()]
        items.append(Dots(f"{rank}-{len(items)}", f"{policy}: {knob}", caption, word, dots))
    first, *others = board
    level = ", ".join(one.policy for one in others if not one.told_apart)
    found = f"{first.policy} has the best {word}, {plus_minus(first.mean, first.half)}"
    found += f"; not told apart from it: {level}." if level else "."
    return Section(f"problem-{rank}", first.problem, [], items, found)


def _board(rank: int, board: list[LeaderboardRow], word: str) -> Table:
    cells = []
    for one in board:
        difference = "" if one is board[0] else plus_minus(one.difference, one.difference_half)
        test = ["" if math.isnan(one.p) else number(one.p), number(one.microseconds)]
        mean, runs = plus_minus(one.mean, one.half), f"{one.runs - one.failed}/{one.runs}"
        cells.append([one.policy, one.setting, mean, difference, *test, runs])
    head = ["policy", "knobs", word, "to the first", "p", "µs a round", "runs"]
    note = (
        "Differences and t-tests are paired by seed or day; p by Holm's rule over the table. The first is first on "
        "these very runs, so differences to it lean towards being too large."
    )
    return Table(f"{rank}-board", "Leaderboard", head, cells, note)


def metric_name(metric: str) -> str:
    """A metric as people read it."""
    return "clicks in 10,000" if metric == "ctr" else metric.replace("_", " ")
