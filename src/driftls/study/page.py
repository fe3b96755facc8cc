"""The report of a study: who leads and by how much, at what cost, which knobs matter, and what was tuned where."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from driftls.report import Dot, Dots, Item, Line, Lines, Page, Section, Table, number, plus_minus
from driftls.study.plan import LARGER_IS_BETTER, Plan
from driftls.study.results import Effect, LeaderboardRow, Row, curves, leaderboard, sensitivity

__all__ = ["metric_name", "page_of"]


def page_of(plan: Plan, rows: Sequence[Row], how: dict[str, str] | None = None) -> Page:
    """One section a problem, and one on the plan."""
    metric = plan.metrics[0]
    board = leaderboard(rows, metric, larger=LARGER_IS_BETTER[metric])
    effects = sensitivity(rows, metric)
    sections = [
        _problem(rank, list(group), [row for row in rows if row.problem == problem], plan, effects)
        for rank, (problem, group) in enumerate(groupby(board, key=lambda one: one.problem), 1)
    ]
    lead = f"{len(rows)} runs. {plan.split} Intervals are 95%, over what was reported: seeds, or days of a log."
    return Page("A study", lead, [*sections, _split(plan, rows)], how or {})


def _problem(rank: int, board: list[LeaderboardRow], rows: list[Row], plan: Plan, effects: Sequence[Effect]) -> Section:
    metric, problem = plan.metrics[0], board[0].problem
    mine = [effect for effect in effects if effect.problem == problem]
    items: list[Item] = [_board(rank, board, metric), _costs(rank, board, metric)]
    items += [_learning(rank, rows, name) for name in plan.metrics]
    for (policy, knob), group in groupby(mine, key=lambda effect: (effect.policy, effect.knob)):
        items.append(_knob(f"{rank}-{len(items)}", policy, knob, list(group), metric))
    return Section(f"problem-{rank}", problem, [], items, _found(board, metric))


def _board(rank: int, board: list[LeaderboardRow], metric: str) -> Table:
    cells = [
        [
            one.policy,
            one.setting,
            plus_minus(one.mean, one.half),
            "" if one is board[0] else plus_minus(one.difference, one.difference_half),
            "" if math.isnan(one.p) else number(one.p),
            number(one.microseconds),
            f"{one.runs - one.failed}/{one.runs}",
        ]
        for one in board
    ]
    head = ["policy", "knobs", metric_name(metric), "to the first", "p", "µs", "runs"]
    note = (
        "Differences and t-tests are paired by seed or day; p by Holm's rule over the table. The first is first on "
        "these very runs, so differences to it lean towards being too large. µs are those of a round."
    )
    return Table(f"{rank}-board", "Leaderboard", head, cells, note)


def _costs(rank: int, board: list[LeaderboardRow], metric: str) -> Lines:
    """Each policy is an interval above its cost."""
    lines = []
    for colour, one in enumerate((one for one in board if math.isfinite(one.mean)), 1):
        half = one.half if math.isfinite(one.half) else 0.0
        lines.append(Line(one.policy, [one.microseconds] * 2, [one.mean - half, one.mean + half], colour))
    caption = "Choosing and learning together; times are of workers that share a machine."
    word = metric_name(metric)
    return Lines(f"{rank}-cost", f"{word.capitalize()} against cost", caption, "µs a round", word, lines, "x")


def _learning(rank: int, rows: list[Row], metric: str) -> Lines:
    lines = []
    for colour, ((_, policy), (points, means, halves)) in enumerate(curves(rows, metric).items(), 1):
        dash = "solid" if colour <= 6 else "dashed"
        low, high = ([mean + sign * half for mean, half in zip(means, halves)] for sign in (-1, 1))
        band = (low, high) if all(map(math.isfinite, halves)) else (None, None)
        lines.append(Line(policy, points, means, colour, dash, *band))
    word = metric_name(metric)
    return Lines(f"{rank}-{metric}", f"{word.capitalize()} against rounds", "", "round", word, lines, "x")


def _knob(name: str, policy: str, knob: str, effects: list[Effect], metric: str) -> Dots:
    dots = [Dot(number(one.value), one.mean, one.half if math.isfinite(one.half) else None) for one in effects]
    caption = "Over all tuning runs with this value, whatever the other knobs; settings stopped early have fewer runs."
    return Dots(name, f"{policy}: {knob}", caption, metric_name(metric), dots)


def _found(board: list[LeaderboardRow], metric: str) -> str:
    first, *others = board
    lead = f"{first.policy} has the best {metric_name(metric)}, {plus_minus(first.mean, first.half)}"
    level = [one.policy for one in others if not one.told_apart]
    return f"{lead}; not told apart from it: {', '.join(level)}." if level else f"{lead}."


def _split(plan: Plan, rows: Sequence[Row]) -> Section:
    """What was tuned, where, and how many settings got how far."""
    cells = []
    for (problem, policy), group in groupby(
        sorted(rows, key=lambda row: (row.problem, row.policy)), key=lambda row: (row.problem, row.policy)
    ):
        tuned = Counter(row.setting for row in group if row.stage == "tune")
        reach = ", ".join(f"{many} on {runs}" for runs, many in sorted(Counter(tuned.values()).items(), reverse=True))
        cells.append([problem, policy, str(len(tuned)) if tuned else "fixed", reach])
    text = [
        f"{plan.split} Settings by {plan.search.method} search; after each rung the best {plan.search.keep:.0%} by "
        f"{metric_name(plan.metrics[0])} went on to more seeds or days."
    ]
    head = ["problem", "policy", "settings", "settings on runs"]
    return Section("split", "What was tuned where", text, [Table("split", "Tuning", head, cells)])


def metric_name(metric: str) -> str:
    """A metric as people read it."""
    return "clicks in 10,000" if metric == "ctr" else metric.replace("_", " ")
