"""Pieces of work that are done once: each result is kept in a file, so an interrupted run goes on where it was."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from driftls import __version__
from driftls.kernels.objects import source_digest

__all__ = ["Options", "Piece", "Progress", "do"]

Progress = Callable[[str, int, int], None]  # which experiment; pieces done, of how many


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


class Piece(NamedTuple):
    """A function of plain numbers and text, whose result is JSON.

    Pieces of one lane share kernels: while the first of them compiles, the others wait. A timed piece runs alone.
    """

    lane: str
    function: Callable[..., Any]
    arguments: dict[str, Any]
    timed: bool = False

    @property
    def name(self) -> str:
        """Its file: a digest of all that the result depends on."""
        source = Path(inspect.getfile(self.function)).read_text()
        files = [os.stat(value).st_size for value in self.arguments.values() if _is_file(value)]
        parts = [__version__, source_digest(), source, self.function.__name__, self.arguments, files]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24] + ".json"


class Task(NamedTuple):
    """A piece that is still to be done."""

    experiment: str
    piece: Piece
    file: Path


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and os.path.isfile(value)


def do(pieces: dict[str, list[Piece]], folder: Path, jobs: int, progress: Progress) -> dict[str, list[Any]]:
    """The results of all pieces by experiment, in order; what is in the folder already is read instead."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: [folder / piece.name for piece in of] for name, of in pieces.items()}
    missing = [
        Task(name, piece, file)
        for name, of in pieces.items()
        for piece, file in zip(of, files[name])
        if not file.exists()
    ]

    def tell(name: str) -> None:
        progress(name, sum(file.exists() for file in files[name]), len(files[name]))

    for name in pieces:
        tell(name)
    for timed in (False, True):
        todo = [task for task in missing if task.piece.timed is timed]
        if jobs > 1:
            _spread(todo, 1 if timed else jobs, tell)
            continue
        for task in todo:
            _keep(task.piece, task.file)
            tell(task.experiment)
    return {name: [json.loads(file.read_text()) for file in of] for name, of in files.items()}


def _keep(piece: Piece, file: Path) -> None:
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    part.write_text(json.dumps(_plain(piece.function(**piece.arguments)), allow_nan=False))
    part.replace(file)


def _plain(value: Any) -> Any:
    """Arrays as lists, and what is not finite as null, which JSON has a word for."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _spread(todo: list[Task], jobs: int, tell: Callable[[str], None]) -> None:
    """Over processes: first the first piece of each lane, then the others as their lane is ready."""
    lanes: dict[str, list[Task]] = {}
    for task in todo:
        lanes.setdefault(task.piece.lane, []).append(task)
    with _pool(jobs) as pool:
        running: dict[Future[None], Task] = {}

        def submit(tasks: list[Task]) -> None:
            running.update({pool.submit(_keep, task.piece, task.file): task for task in tasks})

        for lane in lanes.values():
            submit([lane.pop(0)])
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task = running.pop(future)
                future.result()
                tell(task.experiment)
                submit(lanes.pop(task.piece.lane, []))


def _end_with_parent() -> None:
    """Ctrl-C ends a worker without a word, and no worker outlives who started it, however that one ended."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    # One process a core is enough: BLAS must not start threads of its own. A new process reads this when it starts.
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_end_with_parent)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        os.environ.pop("OPENBLAS_NUM_THREADS")
        if before is not None:
            os.environ["OPENBLAS_NUM_THREADS"] = before
