"""One task is one run: what it depends on, its name on disk, and how it is carried out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from driftls import __version__, parallel
from driftls.errors import CorruptFileError, DriftlsError
from driftls.kernels.compile import DIGEST
from driftls.replay import METRICS, replay
from driftls.run import Run
from driftls.simulate import simulate
from driftls.study.plan import Bandit, Knobs, Problem, build

__all__ = ["Task", "complete", "digest_of", "execute"]


PIECES, PIECE = 64, 1 << 16


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
        """A hash of all that the result depends on: this task, the version and the compiled kernels."""
        shadow = sorted(set(self.metrics) & {"regret", "relative_tracking_error"})  # which have to be asked for
        parts = [self.problem.identity(), self.policy, self.knobs, self.seed, shadow, self.digest]
        text = msgspec.json.encode([__version__, DIGEST, parts], order="deterministic")
        return hashlib.blake2b(text, digest_size=16).hexdigest()


def digest_of(day: str) -> str:
    """The identity of a log: its files' sizes, and their content at 64 places spread over each, wherever it lies."""
    digest = hashlib.blake2b(digest_size=16)
    path = Path(day)
    for file in sorted(path.rglob("*.parquet")) if path.is_dir() else [path]:
        size = file.stat().st_size
        digest.update(size.to_bytes(8))
        with file.open("rb") as content:
            for place in range(PIECES):
                content.seek(max(0, size - PIECE) * place // (PIECES - 1))
                digest.update(content.read(PIECE))
    return digest.hexdigest()


def complete(
    tasks: Iterable[Task],
    folder: Path,
    *,
    workers: int = -1,
    cluster: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Run]:
    """Runs of all tasks by key: those in the folder are not run again, and a new one is kept there at once."""
    folder.mkdir(parents=True, exist_ok=True)
    todo = {task.key: task for task in tasks}
    total = len(todo)
    runs = {}
    for key in list(todo):
        if (run := _kept(folder / f"{key}.json")) is not None:
            runs[key] = run
            del todo[key]
    if progress is not None:
        progress(len(runs), total)
    if cluster is None:  # compiled once here, kept on disk for all workers
        for task in todo.values():
            _warm(task)
    keys = list(todo)
    for number, run in parallel.parallel_map(execute, list(todo.values()), workers=workers, cluster=cluster):
        run.save(folder / f"{keys[number]}.json")
        runs[keys[number]] = run
        if progress is not None:
            progress(len(runs), total)
    return runs


def _kept(path: Path) -> Run | None:
    try:
        return Run.load(path) if path.exists() else None
    except CorruptFileError:  # which costs a run, not the study
        return None


def execute(task: Task) -> Run:
    """Carry out a task; a setting that fails gives a partial run that says why."""
    _warm(task)
    return _play(task, None)


_WARMED: set[tuple[Any, ...]] = set()


def _warm(task: Task) -> None:
    """Two rounds first in every process, so that no time of a run includes compiling or loading its kernels."""
    problem = task.problem
    sparse = problem.nnz is not None if isinstance(problem, Bandit) else problem.features["kind"]
    shape = (task.policy, getattr(problem, "kind", None), sparse)
    if shape not in _WARMED:
        _WARMED.add(shape)
        _play(task, 2)


def _play(task: Task, rounds: int | None) -> Run:
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
        settings = {"error": f"{type(error).__name__}: {error}"}
        return Run(
            policy=task.policy,
            problem=task.problem.name,
            seed=task.seed,
            rounds=0,
            points=[],
            traces={},
            seconds={},
            settings=settings,
            partial=True,
        )
