"""Parallel map over processes or a Dask cluster, and a folder of cached results.

A job is small, and reads its data where it runs. Every job has one thread, wherever it runs: sums of BLAS then come out
the same to the bit, and threads do not multiply.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import math
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, Generic, Self, TypeVar

from driftls import __version__
from driftls.errors import DriftlsError, FileFormatError, SettingsError, missing_extra
from driftls.persistence import atomic

__all__ = ["Cached", "Workers", "claim_folder", "file_digest", "in_order", "key_of", "parallel_map", "plain"]

Job = TypeVar("Job")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]  # jobs done, of how many

DEATHS = 3  # of workers under one job, after which the job is given up
PATIENCE = 10.0  # seconds, for a scheduler to answer
PIECES, PIECE = 64, 1 << 16  # of a file, that make its digest
_ONE = threading.Lock()  # a worker of Dask may have several threads, but a limit of threads holds for its process


def parallel_map(
    function: Callable[[Job], Result],
    jobs: Sequence[Job],
    *,
    workers: int = -1,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[int, Result]]:
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
    progress : function, optional
        Called with the number of jobs done, and of all.

    Examples
    --------
    >>> sorted(parallel_map(abs, [-2, 3], workers=1))
    [(0, 2), (1, 3)]
    """
    with Workers(workers, cluster=cluster) as pool, closing(pool.map(function, jobs)) as results:
        for done, numbered in enumerate(results, 1):
            yield numbered
            if progress is not None:
                progress(done, len(jobs))


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


class Workers:
    """Processes that stay for several maps: `with Workers(2) as pool: pool.map(f, jobs)`.

    Parameters are those of `parallel_map`. Each process is an executor of its own, so that it is known which job one
    died of, and the other jobs go on.
    """

    def __init__(self, workers: int = -1, *, cluster: str | None = None) -> None:
        if isinstance(workers, bool) or not isinstance(workers, int) or workers == 0 or workers < -1:
            raise SettingsError(f"workers must be a number of processes, or -1 for one a core; got {workers!r}.")
        try:
            import joblib  # noqa: F401
            import threadpoolctl  # noqa: F401
        except ImportError as error:
            raise missing_extra(error.name or "joblib", "study", "work on several cores") from error
        self.count = workers if workers > 0 else os.cpu_count() or 1
        self.cluster = cluster
        self._idle: list[Any] = []
        self._open = ExitStack()
        self._client: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for executor in self._idle:
            executor.shutdown(wait=True, kill_workers=True)
        self._idle.clear()
        self._open.close()
        self._client = None

    def map(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> Generator[tuple[int, Result], None, None]:
        """Position and result of every job, as they finish."""
        if not jobs:
            return
        if self.cluster is not None:
            yield from self._on_cluster(function, jobs)
        elif self.count == 1:
            for number, job in enumerate(jobs):
                yield number, _alone(function, job)
        else:
            yield from self._here(function, jobs)

    def _here(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        from joblib.externals.loky.process_executor import BrokenProcessPool

        todo = list(reversed(range(len(jobs))))
        deaths = [0] * len(jobs)
        running: dict[Future[Result], tuple[Any, int]] = {}
        try:
            while todo or running:
                while todo and len(running) < self.count:
                    executor, number = self._idle.pop() if self._idle else _executor(), todo.pop()
                    running[executor.submit(_alone, function, jobs[number])] = (executor, number)
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    executor, number = running.pop(future)
                    try:
                        result = future.result()
                    except BrokenProcessPool:
                        executor.shutdown(wait=True, kill_workers=True)
                        deaths[number] += 1
                        if deaths[number] == DEATHS:
                            raise _killed(number) from None
                        todo.append(number)
                        continue
                    except BaseException as error:
                        self._idle.append(executor)
                        raise _explained(error) from error.__cause__
                    self._idle.append(executor)
                    yield number, result
        finally:  # left early, for an error or Ctrl-C: nobody wants what is under way
            for executor, _ in running.values():
                executor.shutdown(wait=True, kill_workers=True)

    def _on_cluster(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        client = self._connected()
        from distributed import CancelledError, KilledWorker, as_completed

        futures = client.map(partial(_alone, function), jobs, pure=False)
        numbers = {future: number for number, future in enumerate(futures)}
        try:
            for future in as_completed(futures, loop=client.loop):
                yield numbers.pop(future), future.result()
                future.release()
        except KilledWorker:
            raise _killed(numbers[future]) from None
        except (CancelledError, OSError) as error:
            raise DriftlsError(
                f"the scheduler at {self.cluster} is gone ({type(error).__name__}). What had finished is kept: "
                "start the cluster again, then the command."
            ) from None
        finally:
            client.cancel(list(numbers))

    def _connected(self) -> Any:
        try:
            from distributed import Client
            from distributed.comm import connect
        except ImportError as error:
            raise missing_extra("distributed", "cluster", "a cluster") from error

        async def ring() -> None:
            await (await connect(self.cluster, timeout=PATIENCE)).close()

        if self._client is None:
            try:
                asyncio.run(ring())  # a client that finds nobody would say so at length, and again when thrown away
            except (OSError, ValueError) as error:
                raise SettingsError(
                    f"no scheduler answers at {self.cluster}. Start one with: dask scheduler"
                ) from error
            self._client = self._open.enter_context(Client(self.cluster, set_as_default=False))
        return self._client


def _alone(function: Callable[[Job], Result], job: Job) -> Result:
    """One job on one thread."""
    from threadpoolctl import threadpool_limits

    with _ONE, threadpool_limits(1):
        return function(job)


def _executor() -> Any:
    """One process that runs one job at a time, and any function, also of a notebook."""
    from joblib.externals.loky import ProcessPoolExecutor

    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return ProcessPoolExecutor(1, initializer=_end_with, initargs=(os.getpid(),), env=dict.fromkeys(names, "1"))


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
    return DriftlsError(
        f"job {number} was given up: {DEATHS} workers were killed while they did it, most often for want of memory. "
        "What had finished is kept: run it again, with fewer workers or smaller jobs."
    )


def _explained(error: BaseException) -> BaseException:
    if type(error).__name__ == "PicklingError":  # loky's own words for it say nothing of a user's function
        return SettingsError(f"a function or job cannot be sent to another process ({error}). Pass workers=1.")
    return error


# -- results that are kept -------------------------------------------------------------------------------------------


class Cached(Generic[Result]):
    """A folder of results, each under the hash of all that it depends on (see `key_of`).

    Parameters
    ----------
    folder : path
        Made when the first result is kept.
    load, save : functions, optional
        `load(path)` and `save(result, path)`; JSON if not given (see `plain`). What cannot be read is done again.

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
        load: Callable[[Path], Result] | None = None,
        save: Callable[[Result, Path], None] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._load: Callable[[Path], Any] = load or _load_json
        self._save: Callable[[Any, Path], None] = save or _save_json

    def path(self, key: str) -> Path:
        """Where a result is kept."""
        return self.folder / f"{key}.json"

    def get(self, key: str) -> Result | None:
        """A result that is there, and whole."""
        try:
            return self._load(self.path(key))  # type: ignore[no-any-return]
        except (FileNotFoundError, FileFormatError):  # which costs a job, not all of them
            return None

    def put(self, key: str, result: Result) -> Result:
        """Keep a result, and return it as it will be read again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._save(result, self.path(key))
        return self._load(self.path(key))  # type: ignore[no-any-return]

    def map(
        self,
        function: Callable[[Job], Result],
        jobs: Mapping[str, Job],
        *,
        workers: int | Workers = -1,
        cluster: str | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Result]:
        """Results of all jobs by key: those that are there are not done again, new ones are kept as they finish.

        `workers` may be `Workers`, which then stay for the next map.
        """
        kept = {key: self.get(key) for key in jobs}
        found: dict[str, Result] = {key: result for key, result in kept.items() if result is not None}
        todo = [key for key in jobs if key not in found]
        if progress is not None:
            progress(len(found), len(jobs))
        with ExitStack() as stack:
            pool = workers if isinstance(workers, Workers) else stack.enter_context(Workers(workers, cluster=cluster))
            results = stack.enter_context(closing(pool.map(function, [jobs[key] for key in todo])))
            for number, result in results:
                found[todo[number]] = self.put(todo[number], result)
                if progress is not None:
                    progress(len(found), len(jobs))
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
    folder = Path(folder)
    kept, mine = folder / ".settings", plain(settings)
    if not extend and folder.is_dir() and any(path != kept for path in folder.iterdir()):
        try:
            other = list(_differences(_load_json(kept), mine))
        except FileNotFoundError:
            other = []
        if other:
            raise SettingsError(
                f"{folder}: holds results of other settings ({'; '.join(other[:3])}). Pass another folder."
            )
    folder.mkdir(parents=True, exist_ok=True)
    _save_json(mine, kept)
    return folder


def _differences(old: Any, new: Any, name: str = "") -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(old.get(key), new.get(key), f"{name}.{key}" if name else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (before, after) in enumerate(zip(old, new)):
            yield from _differences(before, after, f"{name}[{place}]")
    elif old != new:
        yield f"{name} was {_short(old)}, is {_short(new)}"


def _short(value: Any) -> str:
    text = "not set" if value is None else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def key_of(*parts: Any) -> str:
    """A hash of parts that JSON can hold, the version and the kernels; of a function, its name and its file's text.

    >>> key_of("a", {"b": 1, "c": 2}) == key_of("a", {"c": 2, "b": 1}) != key_of("a", {"b": 1})
    True
    """
    from driftls.kernels.objects import source_digest

    text = json.dumps([__version__, source_digest(), *parts], sort_keys=True, default=_named)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _named(part: Any) -> Any:
    if callable(part):
        return [part.__module__, part.__qualname__, Path(inspect.getfile(part)).read_text()]
    return plain(part)


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


def plain(value: Any) -> Any:
    """What JSON can hold: arrays as lists, and what is not finite as null.

    >>> plain({"a": (1.0, float("nan"))})
    {'a': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _load_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise FileFormatError(f"{path}: not JSON ({error}).") from None


def _save_json(result: Any, path: Path) -> None:
    with atomic(path) as part:
        part.write_text(json.dumps(plain(result), allow_nan=False))
