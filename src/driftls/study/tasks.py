"""One run of a study: what it depends on, and how it is carried out."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import Struct

from driftls.errors import DriftlsError
from driftls.log_replay import METRICS, replay
from driftls.parallel import key_of
from driftls.run import Run
from driftls.simulation import simulate
from driftls.study.plan import Bandit, Knobs, Problem, build

__all__ = ["Task", "execute"]

_WARMED: set[tuple[Any, ...]] = set()


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
