"""The report of a user's own runs: any number of policies, problems and seeds, compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from driftls.errors import InputError
from driftls.report.model import Item, Line, Lines, Page, Section, Table, number, plus_minus
from driftls.run import Run, interval


@np.errstate(all="ignore")  # runs that went wrong overflow
def of_runs(runs: Sequence[Run], how: dict[str, str] | None = None) -> Page:
    """A section for each problem: every trace against the rounds, mean and 95% interval over seeds, and a table.

    Examples
    --------
    >>> told = {"problem": "coins", "seed": 0, "rounds": 50, "points": [10, 50], "seconds": {}}
    >>> runs = [Run(policy=name, traces={"regret": [1.0, end]}, **told) for name, end in (("a", 4.0), ("b", 3.0))]
    >>> page = of_runs(runs)
    >>> page.sections[0].title, page.sections[0].found
    ('coins, 50 rounds', 'b has the lowest regret, 3 on average.')
    """
    if not runs:
        raise InputError("a report needs at least one run, got none. Pass files that Run.save wrote.")

    problems: dict[tuple[str, int], dict[str, list[Run]]] = {}
    for run in sorted(runs, key=lambda run: (run.problem, run.rounds)):
        problems.setdefault((run.problem, run.rounds), {}).setdefault(run.policy, []).append(run)
    sections = [_section(rank, *problem, groups) for rank, (problem, groups) in enumerate(problems.items(), 1)]
    lead = f"{len(runs)} runs. Lines are means over seeds, bands their 95% intervals."
    return Page("Runs compared", lead, sections, how or {})


def _section(rank: int, problem: str, rounds: int, groups: dict[str, list[Run]]) -> Section:
    runs = [run for own in groups.values() for run in own]
    traces = list(dict.fromkeys(trace for run in runs for trace in run.traces))
    items: list[Item] = [_table(rank, traces, groups)]
    for k, trace in enumerate(traces):  # what cannot be an id as it is gets a number, so that no two are alike
        name = f"{rank}-{trace if re.fullmatch(r'[a-z_]{1,40}', trace) else k}"
        items.append(over_rounds(name, trace, trace.replace("_", " "), groups))
    unfinished = sum(run.partial for run in runs)
    text = [f"{unfinished} of these runs did not finish."] if unfinished else []
    return Section(f"problem-{rank}", f"{problem}, {rounds:,} rounds", text, items, _found(groups))


def over_rounds(name: str, trace: str, word: str, groups: Mapping[str, Sequence[Any]]) -> Lines:
    """A trace of each group's runs against the rounds: mean and 95% interval over the points that all of them have."""
    lines = []
    for colour, (label, runs) in enumerate(groups.items(), 1):
        having = [dict(zip(run.points, run.traces[trace])) for run in runs if run.traces.get(trace)]
        if having:
            points = sorted(set.intersection(*map(set, having)))
            seeds = [[run[point] for point in points] for run in having]
            lines.append(Line.over_seeds(label, points, seeds, colour, "solid" if colour <= 6 else "dashed"))
    values = [value for line in lines for value in line.y if isfinite(value)]
    log = "xy" if values and min(values) > 0 and max(values) > 50 * min(values) else "x"
    return Lines(name, f"{word.capitalize()} against rounds", "", "round", word, lines, log)


def _table(rank: int, traces: list[str], groups: dict[str, list[Run]]) -> Table:
    rows = []
    for policy, runs in groups.items():
        cost = np.mean([run.microseconds for run in runs])  # of one problem: all have as many rounds
        ends = ([run.last(trace) for run in runs if run.traces.get(trace)] for trace in traces)
        cells = (plus_minus(*interval(values)) if values else "" for values in ends)
        rows.append([policy, str(len(runs)), *cells, number(float(cost)) if runs[0].rounds else ""])
    head = ["policy", "seeds", *(trace.replace("_", " ") for trace in traces), "µs a round"]
    return Table(f"{rank}-final", "At the end", head, rows, "Mean ± half of the 95% interval over seeds.")


def _found(groups: dict[str, list[Run]]) -> str:
    """Who came first, by the trace that says most."""
    for trace, best, word in (("regret", min, "lowest"), ("ctr", max, "highest"), ("reward", max, "highest")):
        if all(run.traces.get(trace) for runs in groups.values() for run in runs):
            means = {policy: interval([run.last(trace) for run in runs])[0] for policy, runs in groups.items()}
            first = best(means, key=lambda policy: means[policy])
            return f"{first} has the {word} {trace}, {number(means[first])} on average."
    return ""
