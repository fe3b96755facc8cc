"""A study from its plan to its results: tune on one set of seeds, report on the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
    left: list[int]


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
    metric = plan.metrics[0]
    study = _Study(plan, Path(out), partial(complete, workers=workers, cluster=cluster), progress)
    contests = _contests(plan)
    for rung in range(max(len(contest.rungs) for contest in contests)):
        left = {i: contest.rungs[rung][1] for i, contest in enumerate(contests) if rung < len(contest.rungs)}
        jobs = [(contests[i], study.tasks(contests[i], "tune", units)) for i, units in left.items()]
        for (contest, _), found in zip(jobs, study.finish(f"tune {rung + 1}", jobs)):
            _cut(contest, rung, [row.values[metric] for row in found], LARGER_IS_BETTER[metric])
    study.finish("report", [(contest, study.tasks(contest, "report")) for contest in contests])
    rows = list(study.rows.values())
    write(rows, study.out / "results.parquet")
    return rows


class _Study:
    """What all stages share: where runs are done and kept, and the rows that are there."""

    def __init__(
        self, plan: Plan, out: Path, do: Callable[..., dict[str, Run]], progress: Callable[[str, int, int], None] | None
    ) -> None:
        self.plan, self.out, self.do, self.progress = plan, out, do, progress
        self.digests = {day: digest_of(day) for log in plan.logs for day in (*log.tune, *log.report)}
        self.rows: dict[tuple[str, str, str], Row] = {}  # two policies may meet in one setting, and share its runs

    def tasks(self, contest: _Contest, stage: str, first: int | None = None) -> list[Task]:
        """All runs of what is left on the first units of the stage, setting by setting."""
        return [
            Task(
                problem=contest.problem,
                policy=contest.policy,
                knobs=contest.settings[place],
                seed=seed,
                metrics=list(self.plan.metrics),
                day=day,
                digest=self.digests.get(day, ""),
            )
            for place in contest.left
            for day, seed in contest.problem.units(stage, self.plan.seeds)[:first]
        ]

    def finish(self, stage: str, jobs: list[tuple[_Contest, list[Task]]]) -> list[list[Row]]:
        """The rows of all tasks, contest by contest."""
        tell = None if self.progress is None else partial(self.progress, stage)
        runs = self.do([task for _, tasks in jobs for task in tasks], self.out / "runs", progress=tell)
        found = []
        for contest, tasks in jobs:
            keep = partial(row_of, stage=stage.split()[0], label=contest.label, metrics=self.plan.metrics)
            rows = {(contest.label, contest.problem.name, task.key): keep(task, runs[task.key]) for task in tasks}
            self.rows |= rows
            found.append(list(rows.values()))
        return found


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
