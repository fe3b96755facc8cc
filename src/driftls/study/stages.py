"""A study from its plan to its results: tune on one set of seeds, report on the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from driftls.run import Run
from driftls.study.plan import LARGER_IS_BETTER, Knobs, Plan, Problem
from driftls.study.results import Row, row_of, write
from driftls.study.search import best, rungs
from driftls.study.tasks import Task, complete, digest_of

__all__ = ["run_study"]


@dataclass
class _Contest:
    """The settings of one policy on one problem: those that are left, by position."""

    label: str
    policy: str
    problem: Problem
    settings: list[Knobs]
    rungs: list[tuple[int, int]]
    left: list[int] = field(default_factory=list)


def run_study(
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    workers: int = -1,
    cluster: str | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Row]:
    """Run what is missing of a study, write `results.parquet`, and return its rows.

    Parameters
    ----------
    plan : Plan
        From `Plan.load`.
    out : path
        A folder. Finished runs are kept there, each under a hash of what it depends on: a second call runs only what
        is missing.
    workers, cluster
        Processes on this machine (-1: one a core), or the address of a Dask scheduler. Results are the same to the
        bit, but for the times.
    progress : function, optional
        Called with the stage, the runs that are there and those that there will be.

    Examples
    --------
    >>> plan = Plan.parse('''
    ... metrics = ["regret"]
    ... seeds = { report = [1, 2] }
    ... bandits = [{ name = "small", kind = "fixed-arms", dim = 3, arms = 4, rounds = 50 }]
    ... policies = [{ policy = "random" }]
    ... ''')
    >>> [row.seed for row in run_study(plan, "study", workers=1)]
    [1, 2]
    """
    out, metric = Path(out), plan.metrics[0]
    contests = _contests(plan)
    digests = {day: digest_of(day) for log in plan.logs for day in (*log.tune, *log.report)}
    rows: dict[str, Row] = {}

    def tasks(contest: _Contest, stage: str, first: int | None = None) -> list[Task]:
        """All runs of what is left on the first units of the stage, setting by setting."""
        return [
            Task(
                problem=contest.problem,
                policy=contest.policy,
                knobs=contest.settings[place],
                seed=seed,
                metrics=list(plan.metrics),
                day=day,
                digest=digests.get(day, ""),
            )
            for place in contest.left
            for day, seed in contest.problem.units(stage, plan.seeds)[:first]
        ]

    def finish(stage: str, jobs: list[tuple[_Contest, list[Task]]]) -> dict[str, Run]:
        tell = None if progress is None else lambda done, total: progress(stage, done, total)
        every = [task for _, todo in jobs for task in todo]
        runs = complete(every, out / "runs", workers=workers, cluster=cluster, progress=tell)
        for contest, todo in jobs:
            for task in todo:
                kind = "report" if stage == "report" else "tune"
                rows[task.key] = row_of(task, runs[task.key], stage=kind, label=contest.label, metrics=plan.metrics)
        return runs

    for rung in range(max(len(contest.rungs) for contest in contests)):
        open_ = [contest for contest in contests if rung < len(contest.rungs)]
        jobs = [(contest, tasks(contest, "tune", contest.rungs[rung][1])) for contest in open_]
        finish(f"tune {rung + 1}", jobs)
        for contest, done in jobs:
            _cut(contest, rung, [rows[task.key].values[metric] for task in done], LARGER_IS_BETTER[metric])
    finish("report", [(contest, tasks(contest, "report")) for contest in contests])
    write(list(rows.values()), out / "results.parquet")
    return list(rows.values())


def _contests(plan: Plan) -> list[_Contest]:
    found = []
    for problem in plan.problems:
        units = len(problem.units("tune", plan.seeds))
        for number, (contender, label) in enumerate(zip(plan.policies, plan.labels)):
            settings = contender.settings(plan.search, number)
            steps = rungs(len(settings), plan.search.keep, units) if len(settings) > 1 else []
            places = list(range(len(settings)))
            found.append(_Contest(label, contender.policy, problem, settings, steps, places))
    return found


def _cut(contest: _Contest, rung: int, scores: list[float], larger: bool) -> None:
    """Keep the best for the next rung; after the last one, the best alone."""
    means = np.asarray(scores).reshape(len(contest.left), -1).mean(axis=1)
    count = contest.rungs[rung + 1][0] if rung + 1 < len(contest.rungs) else 1
    contest.left = [contest.left[place] for place in best(means.tolist(), count, larger=larger)]
