"""Parallel map over processes or a Dask cluster, and a folder of cached results.

A job is small, and reads its data where it runs. Every job has one thread, wherever it runs: sums of BLAS then come out
the same to the bit, and threads do not multiply.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from queue import Empty
from time import sleep
from typing import Any, Generic, Literal, TypeVar

import msgspec

from driftls import __version__
from driftls.errors import DriftlsError, FileFormatError, SettingsError, missing_extra
from driftls.persistence import atomic, make_folder

__all__ = ["Cached", "claim_folder", "file_digest", "in_order", "key_of", "parallel_map"]

Job = TypeVar("Job")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]  # jobs done, of how many

PULSE = 1.0  # seconds after which it is asked whether the workers still live
DEATHS = 3  # of workers under one job, after which it is given up
PATIENCE = 10.0  # seconds, for a scheduler to answer
PIECES, PIECE = 64, 1 << 16  # of a file, that make its digest
_ONE = threading.Lock()  # a worker of Dask may have several threads, but a limit of threads holds for its process


def parallel_map(
    function: Callable[[Job], Result], jobs: Sequence[Job], *, workers: int = -1, cluster: str | None = None
) -> Generator[tuple[int, Result], None, None]:
    """Position and result of every job, as they finish.

    Parameters
    ----------
    function, jobs
        Both can be pickled; a function of `__main__` or a notebook can, too.
    workers : int
        Processes on this machine; -1 for one a core. 1 stays in this process. A process that is killed is replaced,
        and its job done again.
    cluster : str, optional
        The address of a Dask scheduler, such as tcp://127.0.0.1:8786.

    Examples
    --------
    >>> sorted(parallel_map(abs, [-2, 3], workers=1))
    [(0, 2), (1, 3)]
    """
    if isinstance(workers, bool) or not isinstance(workers, int) or workers == 0 or workers < -1:
        raise SettingsError(f"workers must be a number of processes, or -1 for one a core; got {workers!r}.")
    try:
        import joblib  # noqa: F401
        import threadpoolctl  # noqa: F401
    except ImportError as error:
        raise missing_extra(error.name or "joblib", "study", "work on several cores") from error
    count = workers if workers > 0 else os.cpu_count() or 1
    if cluster is not None and jobs:
        yield from _on_cluster(function, jobs, cluster)
    elif count > 1:
        yield from _in_processes(function, jobs, count)
    else:
        yield from ((number, _alone(function, job)) for number, job in enumerate(jobs))


def in_order(numbered: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """The results in the order of their jobs; those that are early wait.

    >>> list(in_order([(1, "b"), (0, "a")]))
    ['a', 'b']
    """
    waiting: dict[int, Result] = {}
    turn = 0
    for number, result in numbered:
        waiting[number] = result
        while turn in waiting:
            yield waiting.pop(turn)
            turn += 1


def _in_processes(function: Callable[[Job], Result], jobs: Sequence[Job], count: int) -> Iterator[tuple[int, Result]]:
    """On this machine. Processes stay a while for the next call; those that are killed are replaced, and jobs repeated."""
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import BrokenProcessPool

    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    todo, deaths = deque(range(len(jobs))), [0] * len(jobs)
    running: dict[Future[Result], int] = {}
    pool = None
    try:
        while todo or running:
            pool = get_reusable_executor(count, timeout=60, initializer=_end_with, initargs=(os.getpid(),), env=one)
            with suppress(BrokenProcessPool):  # just now: those under way say so, too
                # under whom a worker died waits for all others, then runs alone: so it is known who kills
                while todo and len(running) < (1 if deaths[todo[0]] else count):
                    running[pool.submit(_alone, function, jobs[todo[0]])] = todo[0]
                    todo.popleft()
            done = wait(running, timeout=PULSE, return_when=FIRST_COMPLETED).done
            if not done and any(not process.is_alive() for process in list(pool._processes.values())):
                # what is handed over just when a worker dies can be lost without a word: all of it is done again
                _end(pool)
                done = set(running)
            for future in done:
                number, error = running.pop(future), future.exception() if future.done() else BrokenProcessPool()
                if isinstance(error, BrokenProcessPool):
                    deaths[number] += 1
                    if deaths[number] == DEATHS:
                        raise _killed(number)
                    todo.append(number)
                    continue
                if type(error).__name__ == "PicklingError":  # loky's words for it say nothing of a user's function
                    raise SettingsError(
                        f"a function or job cannot be sent to another process ({error}). Pass workers=1."
                    )
                yield number, future.result()
    finally:
        if running and pool is not None:  # left early, for an error or Ctrl-C: nobody wants what is under way
            _end(pool, wait=True)


def _end(pool: Any, wait: bool = False) -> None:
    """Kill the workers. What was not handed out yet goes first: loky's thread would look for it in vain, and say so."""
    with suppress(Empty):
        while True:
            pool._work_ids.get_nowait()
    pool.shutdown(wait=wait, kill_workers=True)


def _on_cluster(function: Callable[[Job], Result], jobs: Sequence[Job], address: str) -> Iterator[tuple[int, Result]]:
    """On the workers of a Dask scheduler."""
    try:
        from distributed import CancelledError, Client, KilledWorker, as_completed
        from distributed.comm import connect
    except ImportError as error:
        raise missing_extra("distributed", "cluster", "a cluster") from error

    async def ring() -> None:
        await (await connect(address, timeout=PATIENCE)).close()

    try:
        asyncio.run(ring())  # a client that finds nobody would say so at length, and again when thrown away
    except (OSError, ValueError) as error:
        raise SettingsError(f"no scheduler answers at {address}. Start one with: dask scheduler") from error
    with Client(address, set_as_default=False) as client:
        futures = client.map(partial(_alone, function), jobs, pure=False)
        numbers = {future: number for number, future in enumerate(futures)}
        try:
            for future in as_completed(futures, loop=client.loop):
                yield numbers[future], future.result()
                del numbers[future]
                future.release()
        except KilledWorker:
            raise _killed(numbers[future]) from None
        except (CancelledError, OSError) as error:
            raise DriftlsError(
                f"the scheduler at {address} is gone ({type(error).__name__}). What had finished is kept: "
                "start the cluster again, then the command."
            ) from None
        finally:
            client.cancel(list(numbers))


def _alone(function: Callable[[Job], Result], job: Job) -> Result:
    """One job on one thread."""
    from threadpoolctl import threadpool_limits

    with _ONE, threadpool_limits(1):
        return function(job)


def _end_with(parent: int) -> None:
    """In a worker: Ctrl-C is for the process that started it, and no worker outlives that one, however it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            sleep(1.0)
        os._exit(1)

    if os.name == "posix":  # elsewhere an orphan is not told: it ends after its job
        threading.Thread(target=watch, daemon=True).start()


def _killed(number: int) -> DriftlsError:
    told = f"job {number} was given up: {DEATHS} workers were killed while they did it, most often for want of memory."
    return DriftlsError(f"{told} What had finished is kept: run it again, with fewer workers or smaller jobs.")


# -- results that are kept -------------------------------------------------------------------------------------------


def _load_json(path: Path) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path}: not JSON ({error}). Remove it, or pass another folder.") from None


def _save_json(result: Any, path: Path) -> None:
    with atomic(path) as part:
        part.write_bytes(_json(result))


def _json(value: Any, order: Literal["sorted"] | None = None) -> bytes:
    """Arrays are lists, and what is not finite is null."""

    def hook(value: Any) -> Any:
        return value.tolist() if hasattr(value, "tolist") else msgspec.to_builtins(value)

    return msgspec.json.encode(value, enc_hook=hook, order=order)


class Cached(Generic[Result]):
    """A folder of results, each under the hash of all that it depends on (see `key_of`).

    `load(path)` and `save(result, path)` are JSON's if not given. What cannot be read is done again.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cached = Cached(folder)
    ...     first = cached.map(abs, {"a": -2, "b": 3}, workers=1)
    ...     again = cached.map(print, {"a": -2}, workers=1)  # is there, and not printed
    >>> first, again
    ({'a': 2, 'b': 3}, {'a': 2})
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        load: Callable[[Path], Result] = _load_json,
        save: Callable[[Result, Path], None] = _save_json,
    ) -> None:
        self.folder, self._load, self._save = Path(folder), load, save

    def path(self, key: str) -> Path:
        """Where a result is kept."""
        return self.folder / f"{key}.json"

    def map(
        self,
        function: Callable[[Job], Result],
        jobs: Mapping[str, Job],
        *,
        workers: int = -1,
        cluster: str | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Result]:
        """Results of all jobs by key: those that are there are not done again, new ones are kept as they finish."""
        found: dict[str, Result] = {}
        for key in jobs:
            with suppress(FileNotFoundError, FileFormatError):  # which costs a job, not all of them
                found[key] = self._load(self.path(key))
        todo = [key for key in jobs if key not in found]
        tell = progress or (lambda done, of: None)
        tell(len(found), len(jobs))
        make_folder(self.folder)
        with closing(parallel_map(function, [jobs[key] for key in todo], workers=workers, cluster=cluster)) as results:
            for number, result in results:
                path = self.path(todo[number])
                self._save(result, path)
                found[todo[number]] = self._load(path)  # what it will be when it is read again
                tell(len(found), len(jobs))
        return {key: found[key] for key in jobs}


def claim_folder(folder: str | os.PathLike[str], settings: Mapping[str, Any], *, extend: bool = False) -> Path:
    """Make a folder the one of these settings; refuse it if it is that of others, so that results never mix.

    What it belongs to is kept in it as `.settings`. With `extend`, a folder of other settings becomes one of these.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = claim_folder(folder, {"dim": 3}) / "result"
    ...     _ = result.write_text("of three features")
    ...     _ = claim_folder(folder, {"dim": 4})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    driftls.errors.SettingsError: ...: holds results of other settings (dim was 3, is 4). Pass another folder.
    """
    kept = make_folder(folder) / ".settings"
    if not extend and any(path != kept for path in Path(folder).iterdir()):
        if not kept.exists():
            raise SettingsError(f"{folder}: expected a new folder or one of ours, got one with files. Pass another.")
        was, now = dict(_leaves(_load_json(kept))), dict(_leaves(msgspec.json.decode(_json(settings))))
        other = [name for name in sorted(was.keys() | now.keys()) if was.get(name) != now.get(name)]
        if other:
            told = [f"{name} was {was.get(name, 'not set')}, is {now.get(name, 'not set')}" for name in other[:3]]
            raise SettingsError(f"{folder}: holds results of other settings ({'; '.join(told)}). Pass another folder.")
    _save_json(settings, kept)
    return Path(folder)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting under its full name, such as bandits.0.dim."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(each, f"{name}.{key}".lstrip("."))
    elif value is not None:
        yield name, value


def key_of(*parts: Any) -> str:
    """A hash of parts that JSON can hold, the version and the kernels.

    >>> key_of("a", {"b": 1, "c": 2}) == key_of("a", {"c": 2, "b": 1}) != key_of("a", {"b": 1})
    True
    """
    from driftls.compiling.objects import source_digest

    return hashlib.blake2b(_json([__version__, source_digest(), *parts], "sorted"), digest_size=16).hexdigest()


def file_digest(path: str | os.PathLike[str]) -> str:
    """The identity of a log, wherever it lies: the sizes of its files, and their content at 64 places of each."""
    digest = hashlib.blake2b(digest_size=16)
    path = Path(path)
    for file in sorted(path.rglob("*.parquet")) if path.is_dir() else [path]:
        size = file.stat().st_size
        digest.update(size.to_bytes(8, "big"))
        with file.open("rb") as content:
            for place in range(PIECES):
                content.seek(max(0, size - PIECE) * place // (PIECES - 1))
                digest.update(content.read(PIECE))
    return digest.hexdigest()
