"""Logs of decisions and their rewards."""

from __future__ import annotations

import os
from collections.abc import Iterable

from driftls.errors import LogFormatError
from driftls.logs.events import Block, Event
from driftls.logs.synthetic import SyntheticDay, synthetic_day
from driftls.logs.yahoo import Counts, YahooLog

__all__ = ["Block", "Counts", "Event", "LogFormatError", "SyntheticDay", "YahooLog", "read", "synthetic_day"]

Path = str | os.PathLike[str]


def read(paths: Path | Iterable[Path], *, on_error: str = "raise", block: int = 32_768) -> YahooLog:
    r"""Read a log; its format, and whether it is gzipped, are recognised from its content.

    Parameters
    ----------
    paths : path or iterable of paths
        Yahoo R6A or R6B files, read in the order given. Times must not decrease within a file.
    on_error : {"raise", "skip"}
        Whether a broken line raises `LogFormatError` or is skipped and counted.
    block : int
        Lines a block. It bounds the memory and changes no result.

    Returns
    -------
    YahooLog
        Iterate for events, or take `blocks`; both read the files from the beginning. `counts` says what became of
        the lines.

    Raises
    ------
    LogFormatError
        At once if a file is in neither format; while reading, at a broken line.
    TruncatedFileError, CorruptFileError
        If a gzip stream breaks off or is damaged; whatever `on_error` is, since no line can be named.

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
    many = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    return YahooLog([os.fspath(path) for path in many], on_error=on_error, block=block)
