"""Jobs that are done once: each result is kept in a file, so an interrupted run goes on where it was."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import driftls
from driftls.errors import LearningWarning
from driftls.parallel import Cached, file_digest, key_of

__all__ = ["Job", "Options", "Progress", "do"]

Progress = Callable[[int, int], None]  # jobs done, of how many


@dataclass(frozen=True)
class Options:
    """What was asked for: how much (0 quick, 1 as usual, 2 full), the first seed, logs instead of synthetic days."""

    size: int = 1
    seed: int = 0
    logs: tuple[str, ...] = ()

    def pick(self, quick: Any, usual: Any, full: Any) -> Any:
        """The one for this size."""
        return (quick, usual, full)[self.size]

    def seeds(self, quick: int, usual: int, full: int) -> range:
        """So many seeds from the first one on."""
        return range(self.seed, self.seed + int(self.pick(quick, usual, full)))


class Job(NamedTuple):
    """A function of plain numbers and text, whose result is JSON. One that is timed runs alone."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    timed: bool = False

    @property
    def key(self) -> str:
        """A digest of all that the result depends on."""
        log = self.arguments.get("log")
        name = f"{self.function.__module__}.{self.function.__qualname__}"
        return key_of(name, self.arguments, _sources(), file_digest(log) if log else "")


@cache
def _sources() -> list[str]:
    """A digest of each file of the library: defaults change, and results of others must not be taken for theirs."""
    return [sha256(path.read_bytes()).hexdigest() for path in sorted(Path(driftls.__path__[0]).rglob("*.py"))]


def do(
    jobs: dict[str, list[Job]], folder: Path, workers: int = -1, progress: Progress = lambda done, of: None
) -> dict[str, list[Any]]:
    """The results of all jobs by experiment, in order; what is in the folder already is read instead."""
    keys = {name: [job.key for job in own] for name, own in jobs.items()}
    todo = {key: job for name, own in jobs.items() for key, job in zip(keys[name], own)}
    found: dict[str, Any] = {}
    for timed, count in ((False, workers), (True, 1)):  # a clock wants the machine for itself
        stage = {key: job for key, job in todo.items() if job.timed == timed}
        before = len(found)
        found |= Cached[Any](folder).map(
            _result,
            stage,
            workers=count,
            progress=lambda done, _: progress(before + done, len(todo)),  # noqa: B023
        )
    return {name: [found[key] for key in own] for name, own in keys.items()}


def _result(job: Job) -> Any:
    with warnings.catch_warnings():  # that the paper's own settings learn slowly is what the page is about
        warnings.simplefilter("ignore", LearningWarning)
        return job.function(**job.arguments)
