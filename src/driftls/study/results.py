"""Results of a study: one Parquet file, and the leaderboard, costs and effects of knobs that follow from it."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from driftls.errors import missing_extra
from driftls.persistence import atomic
from driftls.run import interval

__all__ = ["LeaderboardRow", "Row", "effects", "leaderboard", "write"]

NAN = float("nan")


class Row(Struct, frozen=True, kw_only=True):
    """One run of a study. All but `microseconds` (choosing and learning, a round) is the same to the bit anywhere."""

    stage: str
    problem: str
    policy: str
    knobs: dict[str, float]
    seed: int
    rounds: int
    points: list[int]
    traces: dict[str, list[float]]
    microseconds: float
    key: str
    day: str = ""
    error: str = ""

    @property
    def values(self) -> dict[str, float]:
        """Each metric at the end; NaN where the run failed."""
        return {name: trace[-1] if trace else NAN for name, trace in self.traces.items()}

    @property
    def unit(self) -> str | int:
        """What a mean is taken over: seeds of a bandit are independent, those on one day of a log are not."""
        return self.day or self.seed

    @property
    def setting(self) -> str:
        """The knobs, in words."""
        return ", ".join(f"{name} = {value:.4g}" for name, value in self.knobs.items())


def write(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """One Parquet file, whole or not at all; knobs, and values and traces by metric, have columns of their own."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise missing_extra("pyarrow", "study", "the results of a study") from error
    records = []
    for row in rows:
        record = msgspec.to_builtins(row)
        traces = {f"{name}_trace": trace for name, trace in record.pop("traces").items()}
        records.append({**record, "knobs": json.dumps(record["knobs"]), **row.values, **traces})
    with atomic(path) as part:
        pq.write_table(pa.Table.from_pylist(records), part)


class LeaderboardRow(NamedTuple):
    """A policy on a problem: mean and half-width over seeds or days, and the paired difference to the first.

    `p` is of the paired t-test against the first, by Holm's rule over all policies of the problem; NaN where there are
    too few seeds or days to say.
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


def leaderboard(rows: Iterable[Row], metric: str, *, larger: bool) -> list[LeaderboardRow]:
    """Policies of each problem, the best mean first, on the seeds and days of the report."""
    groups: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if row.stage == "report":
            groups.setdefault(row.problem, {}).setdefault(row.policy, []).append(row)
    return [one for problem in sorted(groups) for one in _ranked(problem, groups[problem], metric, larger)]


def _ranked(problem: str, policies: dict[str, list[Row]], metric: str, larger: bool) -> list[LeaderboardRow]:
    units: dict[str, dict[str | int, float]] = {}
    for name, rows in policies.items():  # the mean of each seed's or day's runs that did not fail
        own = {
            row.unit: [each.values[metric] for each in rows if each.unit == row.unit and not each.error] for row in rows
        }
        units[name] = {unit: float(np.mean(values)) for unit, values in own.items() if values}
    means = {name: interval(list(of.values())) if of else (NAN, NAN) for name, of in units.items()}
    order = sorted(policies, key=lambda name: (np.isnan(means[name][0]), -means[name][0] if larger else means[name][0]))
    tests = {name: _paired(units[name], units[order[0]]) for name in order[1:]}
    adjusted = dict(zip(tests, holm([p for *_, p in tests.values()])))
    found = []
    for name in order:
        rows, (difference, half, _) = policies[name], tests.get(name, (0.0, 0.0, NAN))
        counts = len(rows), sum(bool(row.error) for row in rows)
        gap = difference, half, adjusted.get(name, NAN), float(np.mean([row.microseconds for row in rows]))
        found.append(LeaderboardRow(problem, name, rows[0].setting, *means[name], *counts, *gap))
    return found


def _paired(mine: dict[str | int, float], other: dict[str | int, float]) -> tuple[float, float, float]:
    """Mean difference over the units of both, half-width, and p of the paired t-test."""
    from scipy.stats import ttest_1samp

    differences = [mine[unit] - other[unit] for unit in mine if unit in other]
    if not differences:
        return NAN, NAN, NAN
    if len(set(differences)) == 1 < len(differences):  # no test where nothing varies
        return differences[0], 0.0, float(differences[0] == 0.0)
    with warnings.catch_warnings(action="ignore"):  # one unit alone has no p, which is NaN
        p = float(ttest_1samp(differences, 0.0).pvalue)
    return *interval(differences), p


def holm(values: Sequence[float]) -> list[float]:
    """P-values by Holm's rule: the chance of even one mistake among them stays below the level; a NaN is no test.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(values)[: np.sum(~np.isnan(values))]  # a NaN sorts last
    adjusted = np.full(len(values), NAN)
    steps = np.asarray(values)[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(p) for p in adjusted]


def effects(rows: Iterable[Row], metric: str) -> dict[tuple[str, str, str], dict[float, list[float]]]:
    """By problem, policy and knob that was tuned: the metric of all tuning runs at each value, whatever the other knobs."""
    found: dict[tuple[str, str, str], dict[float, list[float]]] = {}
    for row in rows:
        if row.stage == "tune" and not row.error:
            for knob, value in row.knobs.items():
                found.setdefault((row.problem, row.policy, knob), {}).setdefault(value, []).append(row.values[metric])
    return {names: dict(sorted(values.items())) for names, values in found.items() if len(values) > 1}
