"""Logs written as Parquet, in the layout that `driftls.logs.parquet` reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from driftls.errors import InputError, SettingsError
from driftls.logs.events import Block, Ints
from driftls.logs.log import whole
from driftls.logs.parquet import arrow

__all__ = ["write_parquet"]

ROW_GROUP = 16_384  # lines; a reader holds one group at a time, with its candidates line by line
DAY = 86_400  # seconds


def write_parquet(log: Any, path: str | os.PathLike[str], *, progress: Callable[[int], None] | None = None) -> None:
    """Write a log as Parquet: one file if the name ends in .parquet, else a new folder with one file a day (UTC).

    Parameters
    ----------
    log : Log, SyntheticDay or iterable of Block
    path : path
        It appears under this name when it is complete. A file is replaced, a folder that holds
        something is not.
    progress : function of the number of lines written, optional

    Raises
    ------
    SettingsError
        If the folder is not empty.
    InputError
        If there are no events, or if some have a propensity, arm features or a truth and others have not.

    Examples
    --------
    >>> import tempfile
    >>> from driftls.logs import Block, read, synthetic_day, write_parquet
    >>> day = synthetic_day(lines=500, seed=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_parquet(day.blocks(truth=True), f"{folder}/days")
    ...     log = read(f"{folder}/days")
    ...     again = Block.join(log.blocks())
    >>> again == Block.join(day.blocks(truth=True)), log.format, len(log.paths)
    (True, 'Parquet', 2)
    """
    by_day = not os.fspath(path).endswith(".parquet")
    if by_day and os.path.isdir(path) and os.listdir(path):
        raise SettingsError(f"{os.fspath(path)}: expected a new or an empty folder. Choose another, or remove it.")
    with whole(path) as part, ExitStack() as files:
        writers: dict[str, _Writer] = {}
        lines = 0
        for block in log.blocks(ROW_GROUP) if hasattr(log, "blocks") else log:
            for day, table in _days(block) if by_day else [("", _table(block))]:
                if day not in writers:
                    writers[day] = files.enter_context(_Writer(part / day / "part-0.parquet" if by_day else part))
                writers[day].add(table)
            lines += len(block)
            if progress is not None:
                progress(lines)
        if not writers:
            raise InputError("the log has no events: there is nothing to write.")


class _Writer:
    """One file in the making; what comes is gathered into row groups."""

    def __init__(self, path: Path) -> None:
        self._path, self._pending, self._file = path, [], None  # type: tuple[Path, list[Any], Any]

    def add(self, table: Any) -> None:
        if self._file is None:
            from pyarrow.parquet import ParquetWriter

            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._schema = table.schema
            self._file = ParquetWriter(self._path, table.schema, compression="zstd", write_page_checksum=True)
        elif table.schema != self._schema:
            raise InputError(f"expected columns {self._schema.names} throughout, got {table.schema.names}.")
        self._pending.append(table)
        lines = sum(map(len, self._pending))
        if lines >= ROW_GROUP:
            self._write(lines - lines % ROW_GROUP)

    def _write(self, lines: int) -> None:
        table = arrow().concat_tables(self._pending)
        if lines:  # no empty row group at the end
            self._file.write_table(table.slice(0, lines), row_group_size=ROW_GROUP)
        self._pending = [table.slice(lines)]

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:  # else nothing was added
            self._write(sum(map(len, self._pending)))
            self._file.close()


def _days(block: Block) -> Iterator[tuple[str, Any]]:
    """The rows of each day, by the name of its folder"""
    table, day = _table(block), block.time // DAY
    for number in np.unique(day):
        name = f"day={np.datetime64(int(number), 'D')}"
        yield name, table.filter(arrow().array(day == number))


def _table(block: Block) -> Any:
    pa = arrow()
    arms, places = block.truth_start, block.candidates

    def lists(starts: Ints, values: Any) -> Any:
        return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), values)

    columns = {
        "time": pa.array(block.time),
        "arms": lists(arms, pa.array(block.pool_ids[places])),
        "shown": pa.array(block.shown),
        "reward": pa.array(block.reward),
        "user_index": lists(block.user_start, pa.array(block.user_index)),
        "user_value": lists(block.user_start, pa.array(block.user_value)),
    }
    if block.propensity is not None:
        columns["propensity"] = pa.array(block.propensity)
    if block.arm_features is not None:
        rows, width = block.arm_features[places], block.arm_features.shape[1]
        each = lists(width * np.arange(len(rows) + 1), pa.array(rows.ravel()))
        columns["arm_features"] = lists(arms, each)
    if block.truth is not None:
        columns["truth"] = lists(arms, pa.array(block.truth))
    return pa.table(columns)
