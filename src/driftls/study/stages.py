"""A study from its plan to its results: single runs; tune on one set of seeds, report on the other; one Parquet file."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from driftls.errors import DriftlsError, LearningWarning, missing_extra
from driftls.log_replay import METRICS, replay
from driftls.parallel import cached_map, claim_folder, file_digest, key_of
from driftls.persistence import atomic
from driftls.report.runs import LARGER_IS_BETTER
from driftls.run import Run
from driftls.simulation import simulate
from driftls.study.plan import Bandit, Knobs, Plan, PolicySpec, Problem, build, units

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
    stage: str = ""
    label: str = ""

    @property
    def key(self) -> str:
        """A hash of all that the result depends on; not of names, nor of where a day lies."""
        problem = msgspec.to_builtins(self.problem)
        problem = {name: value for name, value in problem.items() if name not in ("name", "tune", "report")}
        measured = sorted(set(self.metrics) & {"regret", "relative_tracking_error"})  # which have to be asked for
        return key_of(problem, self.policy, self.knobs, self.seed, measured, self.digest)

    def told(self, run: Run) -> Run:
        """The run under the names of its study, with the study's metrics; settings say what it was for."""
        what = {"stage": self.stage, "knobs": self.knobs, "day": _day(self.day), "key": self.key}
        traces = {metric: run.traces.get(metric, []) for metric in self.metrics}
        named = {"policy": self.label, "problem": self.problem.name, "traces": traces}
        return replace(run, **named, settings={**run.settings, **what})


def execute(task: Task) -> Run:
    """Carry out a task; a setting that fails gives a partial run that says why.

    That a tracker learns slowly is not said: policies are compared, and what that costs one of them is in its result.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LearningWarning)
        if (task.policy, task.problem.name) not in _WARMED:  # two rounds first: no time of a run includes compiling
            _WARMED.add((task.policy, task.problem.name))
            _played(task, 2)
        return _played(task, None)


def _played(task: Task, rounds: int | None) -> Run:
    problem = task.problem
    try:
        policy = build(task.policy, task.knobs, problem, task.seed)
        tracking = task.policy != "random"  # which follows no theta
        if isinstance(problem, Bandit):
            told: dict[str, Any] = {"name": task.policy, "seed": task.seed}
            told["tracking"] = tracking and "relative_tracking_error" in task.metrics
            return simulate(policy, problem.environment(task.seed), rounds or problem.rounds, **told)
        asked = [name for name in METRICS if name in task.metrics or (tracking and f"relative_{name}" in task.metrics)]
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
    out = claim_folder(out, _identity(plan), extend=extend)
    digests = {day: file_digest(day) for log in plan.logs for day in (*log.tune, *log.report)}
    kept: dict[str, Any] = {"workers": workers, "cluster": cluster, "load": Run.load, "save": Run.save}
    found: dict[tuple[str, str, str], Run] = {}  # two policies may meet in one setting, and share its runs

    def tasks(stage: str, problem: Problem, spec: PolicySpec, left: list[Knobs], many: int | None = None) -> list[Task]:
        """All settings that are left on the first units of a stage."""
        given: dict[str, Any] = {"stage": stage, "problem": problem, "policy": spec.policy, "label": spec.label}
        return [
            Task(**given, knobs=knobs, seed=seed, metrics=list(plan.metrics), day=day, digest=digests.get(day, ""))
            for knobs in left
            for day, seed in units(problem, stage, plan.seeds)[:many]
        ]

    def finish(label: str, todo: list[Task]) -> list[Run]:
        jobs = {task.key: task for task in todo}
        done = cached_map(execute, jobs, out / "runs", progress=partial(progress, label), **kept)
        runs = [task.told(done[task.key]) for task in todo]
        found.update({(task.label, task.problem.name, task.key): run for task, run in zip(todo, runs)})
        return runs

    reported = []
    for problem, (number, spec) in product(plan.problems, enumerate(plan.policies)):
        left = spec.settings(plan.search, number)
        rungs = plan.search.rungs(len(left), len(units(problem, "tune", plan.seeds))) if len(left) > 1 else []
        for rung, (_, many) in enumerate(rungs, 1):
            runs = finish(f"tune {spec.label}", tasks("tune", problem, spec, left, many))
            metric = plan.metrics[0]
            ends = [run.end(metric) if run.traces.get(metric) and not run.partial else np.nan for run in runs]
            means = np.reshape(ends, (len(left), -1)).mean(axis=1)
            count = rungs[rung][0] if rung < len(rungs) else 1  # after the last, the best alone
            left = [left[place] for place in best(means, count, larger=LARGER_IS_BETTER[plan.metrics[0]])]
        reported += tasks("report", problem, spec, left)
    finish("report", reported)
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


def write(runs: Sequence[Run], path: str | os.PathLike[str]) -> None:
    """One Parquet file, whole or not at all; knobs, and values and traces by metric, have columns of their own."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise missing_extra("pyarrow", "study", "the results of a study") from error
    records = []
    for run in runs:
        told = {name: run.settings[name] for name in ("stage", "day", "key")}
        told |= {name: getattr(run, name) for name in ("problem", "policy", "seed", "rounds", "points", "microseconds")}
        told |= {"knobs": json.dumps(run.settings["knobs"]), "error": run.settings.get("error", "")}
        told |= {f"{metric}_trace": trace for metric, trace in run.traces.items()}
        records.append(told | {metric: trace[-1] if trace else None for metric, trace in run.traces.items()})
    with atomic(path) as part:
        pq.write_table(pa.Table.from_pylist(records), part)
