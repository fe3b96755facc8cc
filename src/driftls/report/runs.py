"""Runs compared: who leads and by how much, at what cost, and which knobs matter; of a study, or anybody's own."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite, isnan
from typing import NamedTuple

import numpy as np

from driftls.errors import InputError
from driftls.report.model import Dot, Dots, Finding, Item, Line, Lines, Page, Section, Table, number, plus_minus
from driftls.run import Run, interval

__all__ = ["LARGER_IS_BETTER", "Standing", "errors", "leaderboard", "of_runs"]

# what can decide who leads
LARGER_IS_BETTER = {"regret": False, "reward": True, "ctr": True, "relative_tracking_error": False}
NAN = float("nan")

Groups = dict[str, dict[str, list[Run]]]


class Standing(NamedTuple):
    """A policy on a problem: mean and half-width over seeds or days, and the paired difference to the first.

    `p` is of the paired t-test against the first, times the number of tests; NaN where there are too few seeds or days
    to say.
    """

    problem: str
    policy: str
    setting: str
    mean: float
    half: float
    runs: int
    failed: int
    difference: float
    difference_half: float
    p: float
    microseconds: float

    @property
    def told_apart(self) -> bool:
        """Whether it differs from the first by more than chance explains, at 5%."""
        return self.p < 0.05


def leaderboard(runs: Iterable[Run], metric: str) -> list[Standing]:
    """Policies of each problem, the best mean first; runs of a study that tuned knobs do not count."""
    return [one for title, groups in _grouped(runs).items() for one in _ranked(title, groups, metric)]


def _grouped(runs: Iterable[Run], *, tuning: bool = False) -> Groups:
    """Runs by problem and policy; outside of a study, those of another length are on another problem."""
    found: Groups = {}
    for run in sorted(runs, key=lambda run: (run.problem, run.rounds)):
        if (run.settings.get("stage") == "tune") is tuning:
            title = run.problem if "stage" in run.settings else f"{run.problem}, {run.rounds:,} rounds"
            found.setdefault(title, {}).setdefault(run.policy, []).append(run)
    return found


def _ends(runs: Sequence[Run], trace: str) -> dict[str | int, float]:
    """Where a trace ended: the mean for each seed of a bandit, or each day of a log, whose seeds are not independent.

    Of a log's clicks it is the estimate that is valid for the log: the trace has those of the lines that counted.
    """
    found: dict[str | int, list[float]] = {}
    for run in runs:
        if run.traces.get(trace):
            found.setdefault(run.settings.get("day") or run.seed, []).append(run.end(trace))
    return {unit: float(np.mean(values)) for unit, values in found.items()}


def _ranked(title: str, groups: Mapping[str, Sequence[Run]], metric: str) -> list[Standing]:
    ends = {name: _ends(runs, metric) for name, runs in groups.items()}
    means = {name: interval(list(of.values())) if of else (NAN, NAN) for name, of in ends.items()}
    sign = -1.0 if LARGER_IS_BETTER.get(metric) else 1.0
    order = sorted(groups, key=lambda name: (isnan(means[name][0]), sign * means[name][0]))
    found = []
    for name in order:
        done = [run for run in groups[name] if not run.partial]
        cost = float(np.mean([run.microseconds for run in done])) if done else NAN
        knobs = groups[name][0].settings.get("knobs", {}).items()
        setting = ", ".join(f"{knob} = {value:.4g}" for knob, value in knobs)
        gap = (0.0, 0.0, NAN) if name == order[0] else _paired(ends[name], ends[order[0]], len(order) - 1)
        counts = len(groups[name]), len(groups[name]) - len(done)
        found.append(Standing(title, name, setting, *means[name], *counts, *gap, cost))
    return found


def _paired(mine: dict[str | int, float], other: dict[str | int, float], tests: int) -> tuple[float, float, float]:
    """Mean difference over the units of both, half-width, and p of the paired t-test, one of so many."""
    from scipy.stats import ttest_1samp

    differences = [mine[unit] - other[unit] for unit in mine if unit in other]
    if not differences:
        return NAN, NAN, NAN
    with warnings.catch_warnings(action="ignore"):  # one unit alone has no p, and neither have differences of 0
        p = tests * float(ttest_1samp(differences, 0.0).pvalue)
    return *interval(differences), p if isnan(p) else min(p, 1.0)


@np.errstate(all="ignore")  # runs that went wrong overflow
def of_runs(
    runs: Sequence[Run], how: dict[str, str] | None = None, title: str = "Runs compared", lead: str = ""
) -> Page:
    """A section for each problem: a table, every trace against the rounds, and the knobs that were tuned.

    Examples
    --------
    >>> told = {"problem": "coins", "seed": 0, "rounds": 50, "points": [10, 50], "seconds": {}}
    >>> runs = [Run(policy=name, traces={"regret": [1.0, end]}, **told) for name, end in (("a", 4.0), ("b", 3.0))]
    >>> print(of_runs(runs).sections[0].findings[0].text)
    b has the best regret, 3; not told apart from it: a.
    """
    if not runs:
        raise InputError("a report needs at least one run, got none. Pass files that Run.save wrote.")
    tuned = _grouped(runs, tuning=True)
    sections = [
        _section(rank, problem, groups, tuned.get(problem, {}))
        for rank, (problem, groups) in enumerate(_grouped(runs).items(), 1)
    ]
    lead = f"{len(runs)} runs. {lead}Lines are means over seeds or days, bands and ± their 95% intervals."
    return Page(title, lead, sections, how or {})


def errors(runs: Iterable[Run]) -> dict[str, int]:
    """Why runs failed, and how many of them did so; the most frequent first."""
    return dict(Counter(str(run.settings["error"]) for run in runs if run.settings.get("error")).most_common())


def _section(rank: int, title: str, groups: dict[str, list[Run]], tuned: dict[str, list[Run]]) -> Section:
    runs = [run for own in groups.values() for run in own]
    traces = list(dict.fromkeys(trace for run in runs for trace in run.traces))
    traces.sort(key=lambda trace: trace not in LARGER_IS_BETTER)  # what decides comes first
    metric = next((trace for trace in traces if trace in LARGER_IS_BETTER), "")
    board = _ranked(title, groups, metric)
    figures: list[Lines] = []
    for k, trace in enumerate(traces):  # what cannot be an id as it is gets a number, so that no two are alike
        name = f"{rank}-{trace if re.fullmatch(r'[a-z_]{1,40}', trace) else k}"
        figures.append(_over_rounds(name, trace, groups))
        if trace == "ctr" and (by := _led(groups)):
            biased = ", and biased for this log" if any(run.biased for run in runs) else ""
            caption = f"Of the lines that counted{biased}. The tables have the estimate at the end, by {by}."
            figures[-1] = replace(figures[-1], caption=caption)
    told = _estimates(rank, groups)
    items: list[Item] = [_board(rank, board, traces, groups), *told, *figures]
    caption = "Over all tuning runs with this value, whatever the other knobs; settings stopped early have fewer runs."
    for (policy, knob), values in _effects(tuned, metric).items():
        dots = [Dot(number(value), *interval(found)) for value, found in sorted(values.items())]
        items.append(Dots(f"{rank}-{len(items)}", f"{policy}: {knob}", caption, _word(metric), dots))
    unfinished = sum(run.partial for run in runs)
    text = [f"{unfinished} of these runs did not finish."] if unfinished else []
    every = [*runs, *(run for own in tuned.values() for run in own)]
    text += [f"{count} of {len(every)} runs failed: {error}" for error, count in errors(every).items()]
    text += _warned(groups)
    findings = []
    if metric and not isnan(board[0].mean):  # else no run came to an end
        first, *others = board
        level = ", ".join(one.policy for one in others if not (one.told_apart or isnan(one.mean)))
        value, by = plus_minus(first.mean, first.half), _led(groups) if metric == "ctr" else ""
        if by and not isfinite(first.half):  # of one run or day there is the interval of its estimate
            value = _with_interval(groups[first.policy], first.mean)
        found = f"{first.policy} has the best {_word(metric)}{f' by {by}' * bool(by)}, {value}"
        found += f"; not told apart from it: {level}." if level else "."
        findings.append(Finding(title, found, figures[0]))
    return Section(f"problem-{rank}", title, text, items, findings=findings)


def _board(rank: int, board: list[Standing], traces: list[str], groups: dict[str, list[Run]]) -> Table:
    rows = []
    for one in board:
        ends = (list(_ends(groups[one.policy], trace).values()) for trace in traces)
        cells = [plus_minus(*interval(values)) if values else "" for values in ends]
        gap = "" if one is board[0] or isnan(one.difference) else plus_minus(one.difference, one.difference_half)
        test = ["" if isnan(value) else number(value) for value in (one.p, one.microseconds)]
        runs = f"{one.runs - one.failed}/{one.runs}" if one.failed else str(one.runs)
        rows.append([one.policy, one.setting, *cells, gap, *test, runs])
    by = _led(groups)
    words = [_word(trace) + f" ({by})" * (trace == "ctr" and bool(by)) for trace in traces]
    head = ["policy", "knobs", *words, "to the first", "p", "µs a round", "runs"]
    note = (
        "Mean ± half of the 95% interval at the end. Differences and t-tests are paired by seed or day; p is multiplied "
        "by the number of tests. The first is first on these very runs, so differences to it lean towards being too large."
    )
    return Table(f"{rank}-board", "Leaderboard", head, rows, note)


def _led(groups: Mapping[str, Sequence[Run]]) -> str:
    """Which estimate leads in these runs; nothing, if they are not of a log."""
    return " or ".join(sorted({run.leading.name for runs in groups.values() for run in runs if run.leading}))


def _with_interval(runs: Sequence[Run], value: float) -> str:
    """A value with the interval of the estimate, where there is one run of it."""
    lead = runs[0].leading
    if len(runs) > 1 or lead is None or isnan(lead.low):
        return number(value)
    return f"{number(value)} (95%: {number(1e4 * lead.low)} to {number(1e4 * lead.high)})"


def _estimates(rank: int, groups: Mapping[str, Sequence[Run]]) -> list[Table]:
    """Of each run of a log the estimate that leads, with its interval; no table, if there are none."""
    rows = []
    for name, runs in groups.items():
        for run in runs:
            if (lead := run.leading) is not None:
                value, low, high = (number(1e4 * end) for end in lead[1:])
                day, lines = str(run.settings.get("day") or ""), f"{run.settings.get('evaluations', 0):,}"
                rows.append([name, day, str(run.seed), lead.name, value, f"{low} to {high}", lines])
    head = ["policy", "day", "seed", "estimate", "clicks in 10,000", "95% interval", "counted"]
    note = "The estimate of each run that is valid for its log; its interval is over the log's lines."
    return [Table(f"{rank}-estimates", "Estimates", head, rows, note)] if rows else []


def _warned(groups: Mapping[str, Sequence[Run]]) -> list[str]:
    """What the runs warn of, each once, with the policies where not all of them do."""
    found: dict[str, dict[str, None]] = {}
    for name, runs in groups.items():
        for run in runs:
            for text in run.settings.get("warnings", ()):
                found.setdefault(str(text), {})[name] = None
    of = {text: "" if len(names) == len(groups) else f" ({', '.join(names)})" for text, names in found.items()}
    return [f"Warning: {text}{names}." for text, names in of.items()]


def _over_rounds(name: str, trace: str, groups: Mapping[str, Sequence[Run]]) -> Lines:
    """A trace of each policy's runs against the rounds: mean and 95% interval over the points that all of them have."""
    lines = []
    for colour, (label, runs) in enumerate(groups.items(), 1):
        having = [dict(zip(run.points, run.traces[trace])) for run in runs if run.traces.get(trace)]
        if having:
            points = sorted(set.intersection(*map(set, having)))
            seeds = [[run[point] for point in points] for run in having]
            lines.append(Line.over_seeds(label, points, seeds, colour, "solid" if colour <= 6 else "dashed"))
    values = [value for line in lines for value in line.y if isfinite(value)]
    log = "xy" if values and min(values) > 0 and max(values) > 50 * min(values) else "x"
    word = _word(trace)
    return Lines(name, f"{word[:1].upper()}{word[1:]} against rounds", "", "round", word, lines, log)


def _effects(tuned: dict[str, list[Run]], metric: str) -> dict[tuple[str, str], dict[float, list[float]]]:
    """By policy and knob: the metric of all tuning runs at each value, whatever the other knobs."""
    found: dict[tuple[str, str], dict[float, list[float]]] = {}
    for run in (run for runs in tuned.values() for run in runs if not run.partial and run.traces.get(metric)):
        for knob, value in run.settings["knobs"].items():
            found.setdefault((run.policy, knob), {}).setdefault(value, []).append(run.end(metric))
    return {names: values for names, values in found.items() if len(values) > 1}


def _word(trace: str) -> str:
    """A trace as people read it."""
    return "clicks in 10,000" if trace == "ctr" else trace.replace("_", " ")
