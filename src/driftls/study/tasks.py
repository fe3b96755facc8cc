"""One run of a study: what it depends on, and how it is carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from driftls.errors import DriftlsError
from driftls.log_replay import METRICS, replay
from driftls.parallel import Cached, Workers, key_of
from driftls.run import Run
from driftls.simulation import simulate
from driftls.study.plan import Bandit, Knobs, Problem, build

__all__ = ["Task", "complete", "execute"]


class Task(Struct, frozen=True, kw_only=True):
    """A policy with its knobs on one problem with one seed; on a log, also one day of it."""

    problem: Problem
    policy: str
    knobs: Knobs
    seed: int
    metrics: list[str]
    day: str = ""
    digest: str = ""

    @property
    def key(self) -> str:
        """A hash of all that the result depends on."""
        measured = sorted(set(self.metrics) & {"regret", "relative_tracking_error"})  # which have to be asked for
        return key_of(self.problem.identity(), self.policy, self.knobs, self.seed, measured, self.digest)


def complete(
    tasks: Iterable[Task],
    folder: Path,
    *,
    workers: int | Workers = -1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Run]:
    """Runs of all tasks by key: those in the folder are not run again, and a new one is kept there at once."""
    cached = Cached(folder, load=Run.load, save=Run.save)
    return cached.map(execute, {task.key: task for task in tasks}, workers=workers, progress=progress)


_WARMED: set[tuple[Any, ...]] = set()


def execute(task: Task) -> Run:
    """Carry out a task; a setting that fails gives a partial run that says why."""
    problem = task.problem
    sparse = problem.nnz is not None if isinstance(problem, Bandit) else problem.features["kind"]
    shape = (task.policy, getattr(problem, "kind", None), sparse)
    if shape not in _WARMED:  # two rounds first in every process: no time of a run includes compiling its kernels
        _WARMED.add(shape)
        _played(task, 2)
    return _played(task, None)


def _played(task: Task, rounds: int | None) -> Run:
    problem = task.problem
    try:
        policy = build(task.policy, task.knobs, problem, task.seed)
        if isinstance(problem, Bandit):
            tracking, rounds = "relative_tracking_error" in task.metrics, rounds or problem.rounds
            bandit = problem.environment(task.seed)
            return simulate(policy, bandit, rounds, name=task.policy, seed=task.seed, tracking=tracking)
        asked = [name for name in METRICS if name in task.metrics or f"relative_{name}" in task.metrics]
        lines, policies = rounds or problem.lines, {task.policy: policy}
        runs = replay(policies, task.day, features=problem.made(), metrics=asked, limit=lines, seed=task.seed)
        return cast(Run, runs[task.policy])
    except DriftlsError as error:
        nothing: dict[str, Any] = {"rounds": 0, "points": [], "traces": {}, "seconds": {}, "partial": True}
        why = {"error": f"{type(error).__name__}: {error}"}
        return Run(policy=task.policy, problem=problem.name, seed=task.seed, settings=why, **nothing)
