"""Many calls of one function: joblib's processes on this machine, Dask's on a cluster.

A function gets its own small arguments and reads its data where it runs. Every call has one thread, whatever the
engine: sums of BLAS then come out the same to the bit, and threads do not multiply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import Lock
from typing import Any

from driftls.errors import DriftlsError, SettingsError, missing_extra

__all__ = ["each", "in_order"]

PATIENCE = 10.0  # seconds, for a scheduler to answer
_ONE = Lock()  # a worker of Dask may have several threads, but a limit of threads holds for its process


def each(
    function: Callable[[Any], Any], items: Sequence[Any], *, workers: int = -1, cluster: str | None = None
) -> Iterator[tuple[int, Any]]:
    """Position and result of every item, as they finish.

    Parameters
    ----------
    function, items
        Both can be pickled.
    workers : int
        Processes on this machine; -1 for one a core. 1 stays in this process.
    cluster : str, optional
        The address of a Dask scheduler, such as tcp://127.0.0.1:8786; a worker that dies is replaced by the others.

    Examples
    --------
    >>> sorted(each(abs, [-2, 3], workers=1))
    [(0, 2), (1, 3)]
    """
    try:
        import joblib  # noqa: F401
        import threadpoolctl  # noqa: F401
    except ImportError as error:
        raise missing_extra(error.name or "joblib", "study", "a study") from error
    if not items:
        return iter(())
    return _dask(function, items, cluster) if cluster else _loky(function, items, workers)


def in_order(numbered: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    """The results in the order of their items; those that are early wait.

    >>> list(in_order(iter([(1, "b"), (0, "a")])))
    ['a', 'b']
    """
    waiting: dict[int, Any] = {}
    turn = 0
    for number, result in numbered:
        waiting[number] = result
        while turn in waiting:
            yield waiting.pop(turn)
            turn += 1


def _call(function: Callable[[Any], Any], number: int, item: Any) -> tuple[int, Any]:
    from threadpoolctl import threadpool_limits

    with _ONE, threadpool_limits(1):
        return number, function(item)


def _loky(function: Callable[[Any], Any], items: Sequence[Any], workers: int) -> Iterator[tuple[int, Any]]:
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import BrokenProcessPool

    with parallel_config(backend="loky", n_jobs=workers, inner_max_num_threads=1):
        # one task at a time: what a killed run loses is what was under way, not a batch of finished tasks
        parallel = Parallel(return_as="generator_unordered", batch_size=1)
        try:
            yield from parallel(delayed(_call)(function, number, item) for number, item in enumerate(items))
        except BrokenProcessPool as error:
            raise DriftlsError(
                "a worker was killed, perhaps for want of memory. What had finished is kept: run it again, with fewer "
                "workers if memory was short."
            ) from error


def _dask(function: Callable[[Any], Any], items: Sequence[Any], address: str) -> Iterator[tuple[int, Any]]:
    try:
        from distributed import Client, as_completed
        from distributed.comm import connect
    except ImportError as error:
        raise missing_extra("distributed", "cluster", "a cluster") from error

    async def ring() -> None:
        await (await connect(address, timeout=PATIENCE)).close()

    try:
        asyncio.run(ring())  # a client that finds nobody would say so at length, and again when it is thrown away
    except (OSError, ValueError) as error:
        raise SettingsError(f"no scheduler answers at {address}. Start one with: dask scheduler") from error
    with Client(address, set_as_default=False) as client:
        futures = client.map(partial(_call, function), range(len(items)), items, pure=False)
        for future in as_completed(futures, loop=client.loop):
            yield future.result()
            future.release()
