"""The report of a user's own runs: any number of policies, problems and seeds, compared."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import isfinite

from driftls.errors import InputError
from driftls.report.model import Item, Line, Lines, Page, Section, Table, number, plus_minus
from driftls.run import Run, interval

__all__ = ["of_runs"]

Groups = dict[str, list[Run]]  # runs of one problem, by policy


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
    ordered = sorted(runs, key=lambda run: (run.problem, run.rounds))
    problems = [list(group) for _, group in groupby(ordered, key=lambda run: (run.problem, run.rounds))]
    sections = [_section(rank, group) for rank, group in enumerate(problems, 1)]
    lead = f"{len(runs)} runs. Lines are means over seeds, bands their 95% intervals."
    return Page("Runs compared", lead, sections, how or {})


def _section(rank: int, runs: list[Run]) -> Section:
    groups: Groups = {}
    for run in runs:
        groups.setdefault(run.policy, []).append(run)
    traces = list(dict.fromkeys(trace for run in runs for trace in run.traces))
    figures: list[Item] = [_figure(f"{rank}-{trace}", trace, groups) for trace in traces]
    title = f"{runs[0].problem}, {runs[0].rounds:,} rounds"
    unfinished = sum(run.partial for run in runs)
    text = [f"{unfinished} of these runs were interrupted."] if unfinished else []
    return Section(f"problem-{rank}", title, text, [_table(rank, traces, groups), *figures], _found(groups))


def _figure(name: str, trace: str, groups: Groups) -> Lines:
    lines = []
    for colour, (policy, runs) in enumerate(groups.items(), 1):
        having = [run for run in runs if trace in run.traces]
        if having:
            lines.append(_line(policy, trace, having, colour))
    values = [value for line in lines for value in line.y if isfinite(value)]
    log = "xy" if values and min(values) > 0 and max(values) > 50 * min(values) else "x"
    word = trace.replace("_", " ")
    return Lines(name, f"{word.capitalize()} against rounds", "", "round", word, lines, log)


def _line(policy: str, trace: str, runs: list[Run], colour: int) -> Line:
    points = sorted(set.intersection(*(set(run.points) for run in runs)))
    values = [[run.traces[trace][run.points.index(point)] for point in points] for run in runs]
    return Line.over_seeds(policy, points, values, colour, "solid" if colour <= 6 else "dashed")


def _table(rank: int, traces: list[str], groups: Groups) -> Table:
    rows = []
    for policy, runs in groups.items():
        cells = [_cell([run.last(trace) for run in runs if trace in run.traces]) for trace in traces]
        rounds = sum(run.rounds for run in runs)
        spent = [1e6 * sum(run.seconds.get(part, 0.0) for run in runs) / rounds for part in ("choose", "learn")]
        rows.append([policy, str(len(runs)), *cells, *map(number, spent)])
    head = ["policy", "seeds", *(trace.replace("_", " ") for trace in traces), "choose, µs", "learn, µs"]
    return Table(f"{rank}-final", "At the end", head, rows, "Mean ± half of the 95% interval over seeds.")


def _cell(values: list[float]) -> str:
    return plus_minus(*interval(values)) if values else ""


def _found(groups: Groups) -> str:
    """Who came first, by the trace that says most."""
    for trace, best in (("regret", min), ("ctr", max), ("reward", max)):
        ends = {
            policy: interval([run.last(trace) for run in runs])[0]
            for policy, runs in groups.items()
            if all(trace in run.traces for run in runs)
        }
        if ends:
            first = best(ends, key=lambda policy: ends[policy])
            word = "lowest" if best is min else "highest"
            return f"{first} has the {word} {trace}, {number(ends[first])} on average."
    return ""
