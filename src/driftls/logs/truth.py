"""A log beside the side file that says what was to be expected of every candidate."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from driftls.errors import InputError, LogFormatError, missing_extra
from driftls.logs.events import Block
from driftls.logs.log import Log

__all__ = ["WithTruth"]


class WithTruth(Log):
    """The lines of a log with the truth of `driftls synth --truth`, held together by their order and their times.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from driftls.logs import read, synthetic_day
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log, side = pathlib.Path(folder, "day.gz"), pathlib.Path(folder, "truth.parquet")
    ...     synthetic_day(lines=300, seed=1).write(log, truth=side)
    ...     block = next(WithTruth(read(log), side).blocks())
    >>> bool(len(block.truth) == block.truth_start[-1])
    True
    """

    def __init__(self, log: Log, path: str | os.PathLike[str]) -> None:
        super().__init__(on_error=log.on_error, block=log.block)
        self.log, self.path, self.format = log, Path(path), log.format
        self.paths = getattr(log, "paths", None)

    def _blocks(self, size: int) -> Iterator[Block]:
        try:
            from pyarrow.parquet import ParquetFile
        except ImportError:
            raise missing_extra("pyarrow", "logs", "a truth side file") from None
        side = ParquetFile(self.path)
        if not {"time", "truth"} <= set(side.schema_arrow.names):
            raise LogFormatError(f"{self.path.name}: expected columns time and truth, got {side.schema_arrow.names}.")
        batches, held, line = side.iter_batches(columns=["time", "truth"]), _Rows(), 0
        for block in self.log.blocks(size):
            while len(held.time) < len(block):
                batch = next(batches, None)
                if batch is None:
                    raise LogFormatError(f"{self.path.name}: ends at line {line + len(held.time) + 1} of the log.")
                held.add(batch)
            time, truth, sizes = held.take(len(block))
            wrong = np.flatnonzero((time != block.time) | (sizes != np.diff(block.truth_start)))
            if wrong.size:
                raise InputError(
                    f"{self.path.name}: line {line + wrong[0] + 1} is of another log (its time or its number of "
                    "candidates differs). Pass the file that was written together with this log, and skip no line."
                )
            self.counts, self.share, line = self.log.counts, self.log.share, line + len(block)
            yield replace(block, truth=truth)


class _Rows:
    """Rows of the side file that no line has asked for yet."""

    def __init__(self) -> None:
        self.time, self.sizes = np.empty(0, np.int64), np.empty(0, np.int64)
        self.truth = np.empty(0)

    def add(self, batch: Any) -> None:
        lists = batch.column("truth")
        self.time = np.concatenate([self.time, batch.column("time").to_numpy(zero_copy_only=False)])
        self.sizes = np.concatenate([self.sizes, np.diff(lists.offsets.to_numpy())])
        self.truth = np.concatenate([self.truth, lists.flatten().to_numpy()])

    def take(self, count: int) -> tuple[Any, Any, Any]:
        """Times, truths and numbers of candidates of the next lines."""
        values = int(self.sizes[:count].sum())
        taken = self.time[:count], self.truth[:values], self.sizes[:count]
        self.time, self.truth, self.sizes = self.time[count:], self.truth[values:], self.sizes[count:]
        return taken
