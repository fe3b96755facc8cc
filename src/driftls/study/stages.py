"""A study from its plan to its results: single runs; tune on one set of seeds, report on the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from msgspec import Struct

from driftls.errors import DriftlsError
from driftls.log_replay import METRICS, replay
from driftls.parallel import cached_map, claim_folder, file_digest, key_of
from driftls.report.runs import LARGER_IS_BETTER
from driftls.run import Run
from driftls.simulation import simulate
from driftls.study.plan import Bandit, Knobs, Plan, Problem, build, units
from driftls.study.results import labelled, write

__all__ = ["Task", "execute", "run_study"]

_WARMED: set[tuple[str, str]] = set()  # policies and problems that this process has met


class Task(Struct, frozen=True, kw_only=True):
    """A policy with its knobs on one problem with one seed; on a log, also one day of it, known by its digest."""

    problem: Problem
    policy: str
    knobs: Knobs
    seed: int
    metrics: list[str]
    day: str = ""
    digest: str = ""

    @property
    def key(self) -> str:
        """A hash of all that the result depends on; not of names, nor of where a day lies."""
        problem = msgspec.to_builtins(self.problem)
        problem = {name: value for name, value in problem.items() if name not in ("name", "tune", "report")}
        measured = sorted(set(self.metrics) & {"regret", "relative_tracking_error"})  # which have to be asked for
        return key_of(problem, self.policy, self.knobs, self.seed, measured, self.digest)


def execute(task: Task) -> Run:
    """Carry out a task; a setting that fails gives a partial run that says why."""
    if (task.policy, task.problem.name) not in _WARMED:  # two rounds first: no time of a run includes compiling
        _WARMED.add((task.policy, task.problem.name))
        _played(task, 2)
    return _played(task, None)


def _played(task: Task, rounds: int | None) -> Run:
    problem = task.problem
    try:
        policy = build(task.policy, task.knobs, problem, task.seed)
        if isinstance(problem, Bandit):
            tracking = "relative_tracking_error" in task.metrics and task.policy != "random"  # which follows no theta
            told: dict[str, Any] = {"name": task.policy, "seed": task.seed, "tracking": tracking}
            return simulate(policy, problem.environment(task.seed), rounds or problem.rounds, **told)
        asked = [name for name in METRICS if name in task.metrics or f"relative_{name}" in task.metrics]
        lines, policies = rounds or problem.lines, {task.policy: policy}
        runs = replay(policies, task.day, features=problem.made(), metrics=asked, limit=lines, seed=task.seed)
    except DriftlsError as error:
        nothing: dict[str, Any] = {"rounds": 0, "points": [], "traces": {}, "seconds": {}, "partial": True}
        why = {"error": f"{type(error).__name__}: {error}"}
        return Run(policy=task.policy, problem=problem.name, seed=task.seed, settings=why, **nothing)
    if runs[task.policy].partial:  # a replay ends early and in order at Ctrl-C, which is meant for the study
        raise KeyboardInterrupt
    return cast(Run, runs[task.policy])


def best(scores: Any, count: int, *, larger: bool) -> list[int]:
    """Positions of the best `count`, in their order of listing, which also decides between equals; a NaN is the worst.

    >>> best([3.0, 1.0, float("nan"), 1.0], 2, larger=False)
    [1, 3]
    """
    worth = -np.asarray(scores) if larger else np.asarray(scores)
    return sorted(np.argsort(worth, kind="stable")[:count].tolist())  # a NaN sorts last


@dataclass
class _Tuning:
    """The settings of one policy on one problem that are left; `rungs` has how many meet how many units."""

    label: str
    policy: str
    problem: Problem
    left: list[Knobs]
    rungs: list[tuple[int, int]]


def run_study(
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    workers: int = -1,
    cluster: str | None = None,
    extend: bool = False,
    progress: Callable[[str, int, int], None] = lambda stage, done, of: None,
) -> list[Run]:
    """Run what is missing of a study, write `results.parquet`, and return its runs.

    Parameters
    ----------
    plan, out
        From `Plan.load`; a folder, where finished runs are kept, so that a second call runs only what is missing.
    workers, cluster
        As in `driftls.parallel.parallel_map`. Results are the same to the bit, but for the times.
    extend : bool
        Take over the folder of another study, which else is refused; runs that both have are used again.
    progress : function, optional
        Called with the stage, the runs that are there and those that there will be.

    Examples
    --------
    >>> import tempfile
    >>> plan = Plan.parse('''
    ... metrics = ["regret"]
    ... seeds = { report = 2 }
    ... bandits = [{ name = "small", kind = "fixed-arms", dim = 3, arms = 4, rounds = 50 }]
    ... policies = [{ policy = "random" }]
    ... ''')
    >>> with tempfile.TemporaryDirectory() as out:
    ...     [run.seed for run in run_study(plan, out, workers=1)]
    [0, 1]
    """
    metric, out = plan.metrics[0], claim_folder(out, _identity(plan), extend=extend)
    digests = {day: file_digest(day) for log in plan.logs for day in (*log.tune, *log.report)}
    kept: dict[str, Any] = {"workers": workers, "cluster": cluster, "load": Run.load, "save": Run.save}
    found: dict[tuple[str, str, str], Run] = {}  # two policies may meet in one setting, and share its runs

    def finish(stage: str, label: str, tunings: list[_Tuning], rung: int | None = None) -> list[list[Run]]:
        """The runs of all settings that are left on the first units of the stage, tuning by tuning."""
        jobs = []
        for tuning in tunings:
            first = units(tuning.problem, stage, plan.seeds)[: rung and tuning.rungs[rung - 1][1]]
            fixed: dict[str, Any] = {"problem": tuning.problem, "policy": tuning.policy, "metrics": list(plan.metrics)}
            given = ((knobs, day, seed) for knobs in tuning.left for day, seed in first)
            jobs.append([Task(**fixed, knobs=k, day=d, digest=digests.get(d, ""), seed=s) for k, d, s in given])
        todo = {task.key: task for of_tuning in jobs for task in of_tuning}
        done = cached_map(execute, todo, out / "runs", progress=partial(progress, label), **kept)
        return [[tell(stage, tuning, task, done[task.key]) for task in own] for tuning, own in zip(tunings, jobs)]

    def tell(stage: str, tuning: _Tuning, task: Task, run: Run) -> Run:
        what = {"stage": stage, "knobs": task.knobs, "day": _day(task.day), "key": task.key}
        told = labelled(run, tuning.label, tuning.problem.name, plan.metrics, **what)
        return found.setdefault((told.policy, told.problem, task.key), told)

    tunings = _tunings(plan)
    for rung in range(1, 1 + max(len(tuning.rungs) for tuning in tunings)):
        here = [tuning for tuning in tunings if rung <= len(tuning.rungs)]
        for tuning, runs in zip(here, finish("tune", f"tune {rung}", here, rung)):
            ends = [run.last(metric) if run.traces[metric] else np.nan for run in runs]
            means = np.reshape(ends, (len(tuning.left), -1)).mean(axis=1)
            count = tuning.rungs[rung][0] if rung < len(tuning.rungs) else 1  # after the last, the best alone
            tuning.left = [tuning.left[place] for place in best(means, count, larger=LARGER_IS_BETTER[metric])]
    finish("report", "report", tunings)
    write(list(found.values()), out / "results.parquet")
    return list(found.values())


def _identity(plan: Plan) -> dict[str, Any]:
    """What makes it another study; days by name, wherever they lie, and without the budget."""
    plain: dict[str, Any] = msgspec.to_builtins(plan)
    for log in plain["logs"]:
        log |= {stage: [_day(day) for day in log[stage]] for stage in ("tune", "report")}
    return {name: value for name, value in plain.items() if name != "budget"}


def _day(path: str) -> str:
    """A day by its name, wherever it lies."""
    return "/".join(Path(path).parts[-2:])


def _tunings(plan: Plan) -> list[_Tuning]:
    found = []
    for problem in plan.problems:
        many = len(units(problem, "tune", plan.seeds))
        for number, spec in enumerate(plan.policies):
            settings = spec.settings(plan.search, number)
            steps = plan.search.rungs(len(settings), many) if len(settings) > 1 else []
            found.append(_Tuning(spec.label, spec.policy, problem, settings, steps))
    return found
