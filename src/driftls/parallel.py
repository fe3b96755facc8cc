"""Parallel map over processes or a Dask cluster, by joblib and Dask; and results that are kept in a folder.

A job is small, and reads its data where it runs. Every job has one thread, wherever it runs: sums of BLAS then come out
the same to the bit, and threads do not multiply.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache, partial
from pathlib import Path
from time import sleep
from typing import Any, Literal, TypeVar

import msgspec

import driftls
from driftls.errors import DriftlsError, FileFormatError, SettingsError, missing_extra
from driftls.persistence import atomic, make_folder

__all__ = ["cached_map", "claim_folder", "file_digest", "in_order", "key_of", "parallel_map"]

Job = TypeVar("Job")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]  # jobs done, of how many

DEATHS = 3  # of workers without a result in between, after which it is given up
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
        yield from (_alone(function, number, job) for number, job in enumerate(jobs))


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
    """On this machine. Processes stay a while for the next call; when one is killed, what has no result is done again."""
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    left, deaths = dict(enumerate(jobs)), 0
    while left and deaths < DEATHS:
        with parallel_config("loky", inner_max_num_threads=1, initializer=_end_with, initargs=(os.getpid(),)):
            # no queue, which loky's thread would miss when workers end; the last time one by one, so it is known who kills
            ahead = count if deaths < DEATHS - 1 else 1
            engine = Parallel(count, batch_size=1, pre_dispatch=ahead, return_as="generator_unordered", max_nbytes=None)
            results = engine(delayed(_alone)(function, number, job) for number, job in list(left.items()))
        try:
            for number, result in results:
                del left[number]
                deaths = 0
                yield number, result
        except TerminatedWorkerError:
            deaths += 1
            for number in list(left)[
                : count if deaths == 1 else 1
            ]:  # among which it died: last, so that no job keeps all others waiting
                left[number] = left.pop(number)
        except Exception as error:
            if type(error).__name__ != "PicklingError":  # joblib's words for it say nothing of a user's function
                raise
            told = f"a function or job cannot be sent to another process ({error}). Pass workers=1."
            raise SettingsError(told) from None
        finally:
            with warnings.catch_warnings(action="ignore"):  # left early, nobody wants what is under way
                results.close()
    if left:
        raise _killed(next(iter(left)))


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
        futures = client.map(partial(_alone, function), range(len(jobs)), jobs, pure=False)
        try:
            for future in as_completed(futures, loop=client.loop):
                yield future.result()
                future.release()
        except KilledWorker:
            raise _killed(futures.index(future)) from None
        except (CancelledError, OSError) as error:
            raise DriftlsError(
                f"the scheduler at {address} is gone ({type(error).__name__}). What had finished is kept: "
                "start the cluster again, then the command."
            ) from None
        finally:
            client.cancel(futures)


def _alone(function: Callable[[Job], Result], number: int, job: Job) -> tuple[int, Result]:
    """One job on one thread."""
    from threadpoolctl import threadpool_limits

    with _ONE, threadpool_limits(1):
        return number, function(job)


def _end_with(parent: int) -> None:
    """In a worker: Ctrl-C is for the process that started it, and no worker outlives that one, however it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            sleep(1.0)
        os._exit(1)

    if os.name == "posix":  # elsewhere an orphan is not told: it ends after its job
        threading.Thread(target=watch, daemon=True).start()


def _killed(job: int) -> DriftlsError:
    told = f"job {job} was given up: {DEATHS} workers were killed while they did it, most often for want of memory."
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


def cached_map(
    function: Callable[[Job], Result],
    jobs: Mapping[str, Job],
    folder: Path,
    *,
    workers: int = -1,
    cluster: str | None = None,
    progress: Progress = lambda done, of: None,
    load: Callable[[Path], Result] = _load_json,
    save: Callable[[Result, Path], None] = _save_json,
) -> dict[str, Result]:
    """Results of all jobs by key, a hash of all that a result depends on (see `key_of`).

    Each is kept in the folder under its key, as JSON if `load(path)` and `save(result, path)` are not given. What is
    there is not done again, but what cannot be read is; new ones are kept as they finish.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = cached_map(abs, {"a": -2, "b": 3}, Path(folder), workers=1)
    ...     again = cached_map(print, {"a": -2}, Path(folder), workers=1)  # is there, and not printed
    >>> first, again
    ({'a': 2, 'b': 3}, {'a': 2})
    """
    found: dict[str, Result] = {}
    paths = {key: folder / f"{key}.json" for key in jobs}
    for key, path in paths.items():
        with suppress(FileNotFoundError, FileFormatError):  # which costs a job, not all of them
            found[key] = load(path)
    todo = [key for key in jobs if key not in found]
    progress(len(found), len(jobs))
    make_folder(folder)
    with closing(parallel_map(function, [jobs[key] for key in todo], workers=workers, cluster=cluster)) as results:
        for number, result in results:
            save(result, paths[todo[number]])
            found[todo[number]] = load(paths[todo[number]])  # what it will be when it is read again
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
    """A hash of parts that JSON can hold, and of the library: defaults change, and so do results.

    >>> key_of("a", {"b": 1, "c": 2}) == key_of("a", {"c": 2, "b": 1}) != key_of("a", {"b": 1})
    True
    """
    return hashlib.blake2b(_json([_sources(), *parts], "sorted"), digest_size=16).hexdigest()


@cache
def _sources() -> str:
    """A digest of each file of the library."""
    files = sorted(Path(driftls.__path__[0]).rglob("*.py"))
    return hashlib.blake2b(b"".join(hashlib.blake2b(file.read_bytes()).digest() for file in files)).hexdigest()


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
