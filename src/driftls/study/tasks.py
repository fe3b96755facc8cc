"""One task is one run: what it depends on, its name on disk, and how it is carried out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from driftls import __version__, engines
from driftls.errors import CorruptFileError, DriftlsError
from driftls.kernels.compile import DIGEST
from driftls.run import Run
from driftls.simulate import simulate
from driftls.study.plan import Bandit, Knobs, build

__all__ = ["Task", "complete", "execute"]


class Task(Struct, frozen=True, kw_only=True):
    """A policy with its knobs on one problem with one seed."""

    problem: Bandit
    policy: str
    knobs: Knobs
    seed: int
    tracking: bool = False

    @property
    def key(self) -> str:
        """A hash of all that the result depends on: this task, the version and the compiled kernels."""
        text = msgspec.json.encode([__version__, DIGEST, self], order="deterministic")
        return hashlib.blake2b(text, digest_size=16).hexdigest()


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
    for number, run in engines.each(execute, list(todo.values()), workers=workers, cluster=cluster):
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
    return _play(task, task.problem.rounds)


_WARMED: set[tuple[str, str, bool]] = set()


def _warm(task: Task) -> None:
    """Two rounds first in every process, so that no time of a run includes compiling or loading its kernels."""
    shape = (task.policy, task.problem.kind, task.problem.nnz is None)
    if shape not in _WARMED:
        _WARMED.add(shape)
        _play(task, 2)


def _play(task: Task, rounds: int) -> Run:
    try:
        return simulate(
            build(task.policy, task.knobs, task.problem.dim, task.seed),
            task.problem.environment(task.seed),
            rounds,
            name=task.policy,
            seed=task.seed,
            tracking=task.tracking,
        )
    except DriftlsError as error:
        settings = {"error": f"{type(error).__name__}: {error}"}
        return Run(
            policy=task.policy,
            problem=task.problem.name,
            seed=task.seed,
            rounds=rounds,
            points=[],
            traces={},
            seconds={},
            settings=settings,
            partial=True,
        )
