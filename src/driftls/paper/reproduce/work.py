"""Jobs that are done once: each result is kept in a file, so an interrupted run goes on where it was."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from driftls import __version__
from driftls.kernels.objects import source_digest
from driftls.parallel import parallel_map

__all__ = ["Job", "Options", "Progress", "do"]

Progress = Callable[[str, int, int], None]  # which experiment; jobs done, of how many


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
    def name(self) -> str:
        """Its file: a digest of all that the result depends on."""
        source = Path(inspect.getfile(self.function)).read_text(encoding="utf-8")
        sizes = [os.stat(value).st_size for value in self.arguments.values() if _is_file(value)]
        parts = [__version__, source_digest(), source, self.function.__name__, self.arguments, sizes]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24] + ".json"


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and os.path.isfile(value)


def do(jobs: dict[str, list[Job]], folder: Path, workers: int, progress: Progress) -> dict[str, list[Any]]:
    """The results of all jobs by experiment, in order; what is in the folder already is read instead."""
    list(parallel_map(_keep, [], workers=workers))  # an extra that is missing is named before anything is made
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: [folder / job.name for job in of] for name, of in jobs.items()}
    todo = [(name, job, file) for name, of in jobs.items() for job, file in zip(of, files[name]) if not file.exists()]

    def tell(name: str) -> None:
        progress(name, sum(file.exists() for file in files[name]), len(files[name]))

    for name in jobs:
        tell(name)
    # the first of each experiment compiles what the others need; they would all wait for it, or do it again
    first = {name: job for name, job, _ in reversed(todo) if not job.timed}
    stages: list[list[Any]] = [[], [], []]
    for one in todo:
        stages[2 if one[1].timed else 0 if first[one[0]] is one[1] else 1].append(one)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs")  # loky replaces one that grew
        for stage, count in zip(stages, (workers, workers, 1)):
            for position, _ in parallel_map(_keep, [(job, file) for _, job, file in stage], workers=count):
                tell(stage[position][0])
    return {name: [json.loads(file.read_text()) for file in of] for name, of in files.items()}


def _keep(work: tuple[Job, Path]) -> None:
    job, file = work
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    part.write_text(json.dumps(_plain(job.function(**job.arguments)), allow_nan=False))
    part.replace(file)


def _plain(value: Any) -> Any:
    """Arrays as lists, and what is not finite as null, which JSON has a word for."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
