"""Logs of decisions and their rewards."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from driftls.errors import InputError, LogFormatError, MissingFileError, SettingsError
from driftls.logs.events import Block, Event
from driftls.logs.inspect import inspect
from driftls.logs.log import Counts, EventLog, Log
from driftls.logs.parquet import ParquetLog, is_parquet, write_parquet
from driftls.logs.synthetic import SyntheticDay, synthetic_day
from driftls.logs.table import TableLog, read_table
from driftls.logs.yahoo import YahooLog

__all__ = [
    "Block", "Counts", "Event", "EventLog", "Log", "LogFormatError", "ParquetLog", "SyntheticDay", "TableLog",
    "YahooLog", "inspect", "read", "read_table", "synthetic_day", "write_parquet",
]  # fmt: skip

Path = str | os.PathLike[str]


def read(source: Path | Iterable[Path] | Iterable[Event], *, on_error: str = "raise", block: int = 32_768) -> Log:
    r"""Read a log; its format, and whether it is gzipped, are recognised from its content.

    Parameters
    ----------
    source : path, iterable of paths, or iterable of Event
        Yahoo R6A or R6B files (times must not decrease within one), or Parquet files or folders of them; read in the
        order given, and all of one format.
    on_error, block
        Whether a broken line raises `LogFormatError` or is skipped ("skip") and counted; lines a block, which bounds
        the memory and changes no result.

    Returns
    -------
    Log
        Iterate for events, or take `blocks`; both read from the beginning. `counts` says what became of the lines. A
        file that breaks off or is damaged raises whatever `on_error` is, since no line can be named.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from driftls.logs import read, synthetic_day
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "day.gz")
    ...     synthetic_day(lines=500, seed=1).write(path)
    ...     with path.with_name("bad").open("wb") as file:
    ...         _ = file.write(b"1317513291 id-7 0 |user 1 204 |id-7\n1317513291 id-7 1 |user 1 13 |id-7\n")
    ...     log = read([path, path.with_name("bad")], on_error="skip")
    ...     clicks = sum(block.reward.sum() for block in log.blocks())
    >>> log.format, log.counts.lines, log.counts.events, log.counts.skipped
    ('R6B', 502, 501, 1)
    """
    alone = isinstance(source, str | os.PathLike) or not isinstance(source, Iterable) or hasattr(source, "columns")
    given: Any = [source] if alone else source
    entries = iter(given)
    first = next(entries, None)
    if first is None:
        raise SettingsError("read needs at least one file or event, got none.")
    if isinstance(first, Event):
        return EventLog(chain([first], entries) if entries is given else given, block=block)
    paths = []
    for entry in (first, *entries):
        if not isinstance(entry, str | os.PathLike):
            told = f"read takes paths or events, got a {type(entry).__name__}"
            raise InputError(
                f"{told}. Of tables and dicts: read_table(table, shown=..., reward=...), see docs/logs.md."
            )
        path = os.fspath(entry)
        paths.append(path)
        if not os.path.exists(path):
            raise MissingFileError(f"{path}: expected a log, got no such file or folder. Check the path.")
        if os.path.isfile(path) and path.removesuffix(".gz").endswith((".csv", ".json", ".jsonl", ".ndjson")):
            advice = "read_table(path, shown=..., reward=...), or --shown and --reward of `inspect` and `replay`"
            raise InputError(f"{path}: this is a table, of which the columns must be named: {advice}.")
    reader = ParquetLog if os.path.isdir(paths[0]) or is_parquet(paths[0]) else YahooLog
    return reader(paths, on_error=on_error, block=block)


def blocks_of(
    log: Log | SyntheticDay, *, truth: bool = False, limit: int | None = None, arms: int | None = None
) -> Iterator[Block]:
    """The blocks of a log, up to so many lines and of so many arms at a time; of a synthetic day with the truth."""
    left = sys.maxsize if limit is None else limit
    for block in log.blocks(truth=truth) if isinstance(log, SyntheticDay) else log.blocks():
        most = len(block) if arms is None else arms // int(np.diff(block.pool_start).max(initial=1))
        for first in range(0, min(len(block), left), max(1, most)):
            yield block.part(first, min(first + max(1, most), len(block), left))
        left -= len(block)
        if left <= 0:
            return
