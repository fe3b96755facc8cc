"""A study from its plan to its results: tune on one set of seeds, report on the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from driftls.parallel import Workers, claim_folder, file_digest
from driftls.study.plan import LARGER_IS_BETTER, Knobs, Plan, Problem
from driftls.study.results import Row, row_of, write
from driftls.study.search import best, rungs
from driftls.study.tasks import Task, complete

__all__ = ["run_study"]

Progress = Callable[[str, int, int], None]


@dataclass
class _Tuning:
    """The settings of one policy on one problem, and which of them are left, by position."""

    label: str
    policy: str
    problem: Problem
    settings: list[Knobs]
    rungs: list[tuple[int, int]]
    left: list[int]

    def cut(self, rung: int, scores: list[float], larger: bool) -> None:
        """Keep the best for the next rung; after the last one, the best alone."""
        means = np.asarray(scores).reshape(len(self.left), -1).mean(axis=1)
        count = self.rungs[rung + 1][0] if rung + 1 < len(self.rungs) else 1
        self.left = [self.left[place] for place in best(means.tolist(), count, larger=larger)]


def run_study(
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    workers: int = -1,
    cluster: str | None = None,
    extend: bool = False,
    progress: Progress | None = None,
) -> list[Row]:
    """Run what is missing of a study, write `results.parquet`, and return its rows.

    Parameters
    ----------
    plan : Plan
        From `Plan.load`.
    out : path
        A folder. Finished runs are kept there, each under a hash of what it depends on: a second call runs only what
        is missing. The folder of another study is refused.
    workers, cluster
        Processes on this machine (-1: one a core), or the address of a Dask scheduler. Results are the same to the
        bit, but for the times.
    extend : bool
        Take over the folder of another study: its results are replaced, runs that both have are used again.
    progress : function, optional
        Called with the stage, the runs that are there and those that there will be.

    Examples
    --------
    >>> import tempfile
    >>> plan = Plan.parse('''
    ... metrics = ["regret"]
    ... seeds = { report = [1, 2] }
    ... bandits = [{ name = "small", kind = "fixed-arms", dim = 3, arms = 4, rounds = 50 }]
    ... policies = [{ policy = "random" }]
    ... ''')
    >>> with tempfile.TemporaryDirectory() as out:
    ...     [row.seed for row in run_study(plan, out, workers=1)]
    [1, 2]
    """
    metric = plan.metrics[0]
    tunings = _tunings(plan)
    with Workers(workers, cluster=cluster) as pool:
        study = _Study(plan, claim_folder(out, _identity(plan), extend=extend), pool, progress)
        for rung in range(max(len(tuning.rungs) for tuning in tunings)):
            here = [tuning for tuning in tunings if rung < len(tuning.rungs)]
            jobs = [(tuning, study.tasks(tuning, "tune", tuning.rungs[rung][1])) for tuning in here]
            for tuning, rows in zip(here, study.finish(f"tune {rung + 1}", jobs)):
                tuning.cut(rung, [row.values[metric] for row in rows], LARGER_IS_BETTER[metric])
        study.finish("report", [(tuning, study.tasks(tuning, "report")) for tuning in tunings])
    found = list(study.rows.values())
    write(found, study.out / "results.parquet")
    return found


def _identity(plan: Plan) -> dict[str, Any]:
    """What makes it another study; days by name, wherever they lie, and without the budget."""
    plain: dict[str, Any] = msgspec.to_builtins(plan)
    for log in plain["logs"]:
        log |= {stage: ["/".join(Path(day).parts[-2:]) for day in log[stage]] for stage in ("tune", "report")}
    return {name: value for name, value in plain.items() if name != "budget"}


class _Study:
    """What all stages share: where runs are done and kept, and the rows that are there."""

    def __init__(self, plan: Plan, out: Path, pool: Workers, progress: Progress | None) -> None:
        self.plan, self.out, self.pool, self.progress = plan, out, pool, progress
        self.digests = {day: file_digest(day) for log in plan.logs for day in (*log.tune, *log.report)}
        self.rows: dict[tuple[str, str, str], Row] = {}  # two policies may meet in one setting, and share its runs

    def tasks(self, tuning: _Tuning, stage: str, first: int | None = None) -> list[Task]:
        """All runs of what is left on the first units of the stage, setting by setting."""
        return [
            Task(
                problem=tuning.problem,
                policy=tuning.policy,
                knobs=tuning.settings[place],
                seed=seed,
                metrics=list(self.plan.metrics),
                day=day,
                digest=self.digests.get(day, ""),
            )
            for place in tuning.left
            for day, seed in tuning.problem.units(stage, self.plan.seeds)[:first]
        ]

    def finish(self, stage: str, jobs: list[tuple[_Tuning, list[Task]]]) -> list[list[Row]]:
        """The rows of all tasks, tuning by tuning."""
        tell = None if self.progress is None else partial(self.progress, stage)
        tasks = [task for _, of_tuning in jobs for task in of_tuning]
        runs = complete(tasks, self.out / "runs", workers=self.pool, progress=tell)
        found = []
        for tuning, of_tuning in jobs:
            keep = partial(row_of, stage=stage.split()[0], label=tuning.label, metrics=self.plan.metrics)
            rows = {(tuning.label, tuning.problem.name, task.key): keep(task, runs[task.key]) for task in of_tuning}
            self.rows |= rows
            found.append(list(rows.values()))
        return found


def _tunings(plan: Plan) -> list[_Tuning]:
    found = []
    for problem in plan.problems:
        units = len(problem.units("tune", plan.seeds))
        for number, (spec, label) in enumerate(zip(plan.policies, plan.labels)):
            settings = spec.settings(plan.search, number)
            steps = rungs(len(settings), plan.search.keep, units) if len(settings) > 1 else []
            found.append(_Tuning(label, spec.policy, problem, settings, steps, list(range(len(settings)))))
    return found
