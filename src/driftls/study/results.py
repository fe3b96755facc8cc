"""Results of a study: one Parquet file, and what can be said from it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from driftls.errors import CorruptFileError, missing_extra
from driftls.run import Run, interval
from driftls.study.tasks import Task

__all__ = ["Effect", "Row", "Standing", "curves", "leaderboard", "pareto", "read", "row_of", "sensitivity", "write"]

NAN = float("nan")


class Row(Struct, frozen=True, kw_only=True):
    """One run of a study. All but `microseconds` (choosing and learning, a round) is the same to the bit anywhere."""

    stage: str
    problem: str
    policy: str
    knobs: dict[str, float]
    seed: int
    rounds: int
    values: dict[str, float]
    points: list[int]
    traces: dict[str, list[float]]
    microseconds: float
    key: str
    day: str = ""
    error: str = ""

    @property
    def unit(self) -> str | int:
        """What a mean is taken over: seeds of a bandit are independent, those on one day of a log are not."""
        return self.day or self.seed

    @property
    def setting(self) -> str:
        """The knobs, in words."""
        return ", ".join(f"{name} = {value:.4g}" for name, value in self.knobs.items())


def row_of(task: Task, run: Run, *, stage: str, label: str, metrics: Sequence[str]) -> Row:
    """What a study keeps of a run."""
    return Row(
        stage=stage,
        problem=task.problem.name,
        policy=label,
        knobs=task.knobs,
        seed=task.seed,
        rounds=run.rounds,
        values={metric: NAN if run.partial else run.last(metric) for metric in metrics},
        points=run.points,
        traces={metric: run.traces.get(metric, []) for metric in metrics},
        microseconds=NAN if run.partial else 1e6 * (run.seconds["choose"] + run.seconds["learn"]) / run.rounds,
        key=task.key,
        day="/".join(Path(task.day).parts[-2:]),
        error=run.settings.get("error", ""),
    )


def write(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """One Parquet file, whole or not at all; knobs, and values and traces by metric, have columns of their own."""
    pa, pq = _pyarrow()
    records = []
    for row in rows:
        record = msgspec.to_builtins(row)
        values, traces = record.pop("values"), record.pop("traces")
        traces = {f"{name}_trace": trace for name, trace in traces.items()}
        records.append({**record, "knobs": json.dumps(record["knobs"]), **values, **traces})
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        pq.write_table(pa.Table.from_pylist(records), part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read(path: str | os.PathLike[str]) -> list[Row]:
    """The rows of a file that `write` made."""
    pa, pq = _pyarrow()
    try:
        records = pq.read_table(path).to_pylist()
        for record in records:
            traces = {name.removesuffix("_trace"): record.pop(name) for name in list(record) if name.endswith("_trace")}
            record |= {"knobs": json.loads(record["knobs"]), "traces": traces}
            record["values"] = {name: record.pop(name) for name in traces}
        return [msgspec.convert(record, Row) for record in records]
    except (pa.ArrowInvalid, KeyError, ValueError) as error:
        raise CorruptFileError(f"{path}: not the results of a study ({error}). Pass a results.parquet.") from error


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing_extra("pyarrow", "study", "the results of a study") from error
    return pyarrow, pyarrow.parquet


class Standing(NamedTuple):
    """A policy on a problem: mean and half-width over seeds or days, and the paired difference to the leader.

    `p` is of the paired t-test against the leader, by Holm's rule over all policies of the problem.
    """

    problem: str
    policy: str
    setting: str
    mean: float
    half: float
    runs: int
    failed: int
    behind: float
    behind_half: float
    p: float
    microseconds: float


def leaderboard(rows: Iterable[Row], metric: str, *, larger: bool) -> list[Standing]:
    """Policies of each problem, the best first, on the seeds of the report."""
    found = []
    reported = sorted((row for row in rows if row.stage == "report"), key=lambda row: row.problem)
    for problem, group in groupby(reported, key=lambda row: row.problem):
        policies: dict[str, list[Row]] = {}
        for row in group:
            policies.setdefault(row.policy, []).append(row)
        found += _standings(problem, policies, metric, larger)
    return found


def _standings(problem: str, policies: dict[str, list[Row]], metric: str, larger: bool) -> list[Standing]:
    values = {name: _by_unit(rows, metric) for name, rows in policies.items()}
    sign = -1.0 if larger else 1.0
    order = sorted(policies, key=lambda name: sign * _mean(values[name]) if values[name] else np.inf)
    leader = values[order[0]]
    tests = {name: _paired(values[name], leader) for name in order[1:]}
    adjusted = dict(zip(tests, holm([p for *_, p in tests.values()])))
    found = []
    for name in order:
        mean, half = interval(list(values[name].values())) if values[name] else (NAN, NAN)
        behind, behind_half, _ = tests.get(name, (0.0, 0.0, NAN))
        rows = policies[name]
        cost = float(np.mean([row.microseconds for row in rows]))
        failed = sum(bool(row.error) for row in rows)
        shown = Standing(problem, name, rows[0].setting, mean, half, len(rows), failed, behind, behind_half, NAN, cost)
        found.append(shown._replace(p=adjusted.get(name, NAN)))
    return found


def _by_unit(rows: Iterable[Row], metric: str) -> dict[str | int, float]:
    """The mean of each unit's runs that did not fail."""
    found: dict[str | int, list[float]] = {}
    for row in rows:
        if not row.error:
            found.setdefault(row.unit, []).append(row.values[metric])
    return {unit: float(np.mean(values)) for unit, values in found.items()}


def _mean(values: dict[str | int, float]) -> float:
    return float(np.mean(list(values.values())))


def _paired(mine: dict[str | int, float], other: dict[str | int, float]) -> tuple[float, float, float]:
    """Mean difference over the units of both, half-width, and p of the paired t-test."""
    from scipy.stats import t

    differences = [mine[unit] - other[unit] for unit in mine if unit in other]
    if not differences:
        return NAN, NAN, NAN
    mean, half = interval(differences)
    if len(differences) < 2:
        return mean, half, NAN
    error = float(np.std(differences, ddof=1)) / len(differences) ** 0.5
    if error == 0.0:
        return mean, half, 1.0 if mean == 0.0 else 0.0
    return mean, half, float(2.0 * t.sf(abs(mean) / error, len(differences) - 1))


def holm(values: Sequence[float]) -> list[float]:
    """P-values by Holm's rule: the chance of even one mistake among them stays below the level; a NaN is no test.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    known = sorted((value, place) for place, value in enumerate(values) if value == value)
    adjusted, largest = [NAN] * len(values), 0.0
    for rank, (value, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * value))
        adjusted[place] = largest
    return adjusted


def pareto(standings: Sequence[Standing], *, larger: bool) -> list[Standing]:
    """Those that no other beats in the metric at the same cost or less, the cheapest first; of one problem."""
    front: list[Standing] = []
    for one in sorted(standings, key=lambda one: (one.microseconds, -one.mean if larger else one.mean)):
        if not front or (one.mean > front[-1].mean if larger else one.mean < front[-1].mean):
            front.append(one)
    return front


class Effect(NamedTuple):
    """A knob at one value: the metric over all tuning runs that had it, whatever the other knobs were."""

    problem: str
    policy: str
    knob: str
    value: float
    mean: float
    half: float
    runs: int


def sensitivity(rows: Iterable[Row], metric: str) -> list[Effect]:
    """The effect of every knob that was tuned. Settings that were stopped early have fewer seeds."""
    cells: dict[tuple[str, str, str], dict[float, list[float]]] = {}
    for row in rows:
        if row.stage == "tune" and not row.error:
            for knob, value in row.knobs.items():
                cells.setdefault((row.problem, row.policy, knob), {}).setdefault(value, []).append(row.values[metric])
    return [
        Effect(*names, value, *interval(found), len(found))
        for names, values in cells.items()
        if len(values) > 1
        for value, found in sorted(values.items())
    ]


def curves(rows: Iterable[Row], metric: str) -> dict[tuple[str, str], tuple[list[int], list[float], list[float]]]:
    """Points, means and half-widths of the metric over the runs of the report, by problem and policy."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.stage == "report" and not row.error:
            groups.setdefault((row.problem, row.policy), []).append(row)
    found = {}
    for names, runs in groups.items():
        points = sorted(set.intersection(*(set(run.points) for run in runs)))  # days differ in length
        values = [dict(zip(run.points, run.traces[metric])) for run in runs]
        pairs = [interval([of_run[point] for of_run in values]) for point in points]
        found[names] = (points, [mean for mean, _ in pairs], [half for _, half in pairs])
    return found
