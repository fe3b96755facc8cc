"""Logs as Parquet, read and written: one row an event, in columns that anyone can write; see `docs/logs.md`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import (
    CorruptFileError,
    InputError,
    LogFormatError,
    SettingsError,
    TruncatedFileError,
    missing_extra,
)
from driftls.logs.columns import COLUMNS, OPTIONAL, Check, Column, Ints, Part, having, line_checks, shortened
from driftls.logs.events import Block
from driftls.logs.log import Log
from driftls.persistence import atomic

__all__ = ["ArrowLog", "ParquetLog", "arrow", "is_parquet", "write_parquet"]

MAGIC = b"PAR1"
ROW_GROUP = 16_384  # lines; a reader holds one group at a time, with its candidates line by line
DAY = 86_400  # seconds


class ArrowLog(Log):
    """What comes in Arrow's batches."""

    def _good(self, batch: Any, place: Callable[[int], str], rows: Ints, checks: list[Check]) -> tuple[Any, Ints]:
        """The batch without the rows that fail a check, and their numbers; `place` names a row by its number."""
        bad = np.any([wrong for wrong, _, _ in checks], axis=0)
        if not bad.any():
            return batch, rows
        for i in np.flatnonzero(bad).tolist():
            expected, name = next((expected, name) for wrong, expected, name in checks if wrong[i])
            self._broken(f"{place(rows[i])}: expected {expected}, got {name} = {shortened(batch[name][i].as_py())}.")
        return batch.filter(arrow().array(~bad)), rows[~bad]


class ParquetLog(ArrowLog):
    """Parquet files, or folders of them, each read in the order of its names; see `driftls.logs.read`."""

    format = "Parquet"

    def __init__(self, paths: list[str], *, on_error: str = "raise", block: int = 32_768) -> None:
        super().__init__(on_error=on_error, block=block)
        self.paths = [file for path in paths for file in _files(path)]
        self._described = [_describe(path) for path in self.paths]

    def _blocks(self, size: int) -> Iterator[Block]:
        lines = sum(lines for lines, _ in self._described)
        for path, (_, names) in zip(self.paths, self._described):
            with _opened(path) as file:
                for group in range(file.num_row_groups):
                    batches, first = file.iter_batches(size, row_groups=[group], columns=names), 0
                    where = f"{path}: row group {group}"
                    while (batch := _next(batches, where)) is not None:
                        block = self._block(batch, where, np.arange(first, first + len(batch)))
                        first += len(batch)
                        self.counts.lines += len(batch)
                        self.counts.events += len(block)
                        self.share = self.counts.lines / lines
                        if len(block):
                            yield block

    @property
    def user_dim(self) -> int:
        """How many features visitors have, by the statistics that files keep of their columns."""
        largest = -1
        for path in self.paths:
            with _opened(path) as file:
                groups = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
                for column in (group.column(place) for group in groups for place in range(group.num_columns)):
                    if column.path_in_schema.split(".")[0] == "user_index" and column.num_values:
                        kept = column.statistics
                        if kept is None or not kept.has_min_max:
                            return 0
                        largest = max(largest, int(kept.max))
        return largest + 1

    def _block(self, batch: Any, where: str, rows: Ints) -> Block:
        def place(row: int) -> str:
            return f"{where}, row {row}"

        nulls: list[Check] = [(_nulls(c), "no null", name) for name, c in zip(batch.schema.names, batch.columns)]
        batch, rows = self._good(batch, place, rows, nulls)
        parts = _parts(batch, where)
        sound, rows = self._good(batch, place, rows, line_checks(parts))
        block = Block.from_columns(parts if sound is batch else _parts(sound, where))
        good, _ = self._good(sound, place, rows, [(_repeated(block), "arms that differ", "arms")])
        return block if good is sound else Block.from_columns(_parts(good, where))


def is_parquet(path: str) -> bool:
    """Whether a file begins as Parquet does."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def arrow() -> Any:
    """The module pyarrow, or what to install."""
    try:
        import pyarrow
    except ImportError:
        raise missing_extra("pyarrow", "logs", "a Parquet log") from None
    return pyarrow


def _files(path: str) -> list[str]:
    """The Parquet files of a folder; not those of one that is still being written."""
    if not os.path.isdir(path):
        return [path]
    below = (file for file in Path(path).rglob("*.parquet") if file.is_file())
    files = sorted(
        str(file)
        for file in below
        if not any(p.startswith(".driftls-") or p.endswith(".driftls-part") for p in file.relative_to(path).parts)
    )
    if not files:
        raise LogFormatError(f"{path}: expected a folder with .parquet files in it, got none.")
    return files


@contextmanager
def _damage_named(where: str) -> Iterator[None]:
    """What pyarrow raises at bytes that it cannot read, as our error."""
    try:
        yield
    except (arrow().ArrowException, OSError, ValueError) as error:
        text = str(error).rstrip(".")
        raise CorruptFileError(f"{where} is damaged: {text}. Write or fetch the file again.") from None


def _next(batches: Iterator[Any], where: str) -> Any:
    with _damage_named(where):
        return next(batches, None)


def _opened(path: str) -> Any:
    arrow()
    from pyarrow.parquet import ParquetFile

    if not is_parquet(path):
        raise LogFormatError(f"{path}: expected a Parquet file, as the others are.")
    with open(path, "rb") as file:
        file.seek(-min(len(MAGIC), os.path.getsize(path)), os.SEEK_END)
        if file.read() != MAGIC or os.path.getsize(path) < 3 * len(MAGIC):
            raise TruncatedFileError(f"{path}: the file breaks off before its footer. Write or fetch it again.")
    with _damage_named(f"{path}: the footer"):
        return ParquetFile(path, page_checksum_verification=True)


def _describe(path: str) -> tuple[int, list[str]]:
    """Lines, and the names of our columns, after a look at their types."""
    with _opened(path) as file, _damage_named(f"{path}: the footer"):
        schema, lines = file.schema_arrow, file.metadata.num_rows
        names = schema.names  # decodes them
    for name, column in COLUMNS.items():
        if name in names:
            if not _is(column, schema.field(name).type):
                raise LogFormatError(f"{path}: expected `{name}` to be {column}, got {schema.field(name).type}.")
        elif name not in (*OPTIONAL, "user_value"):
            raise LogFormatError(f"{path}: expected a column `{name}` of {column}, got {', '.join(names)}.")
    return lines, [name for name in COLUMNS if name in names]


def _is(column: Column, kind: Any) -> bool:
    from pyarrow import types

    for _ in range(column.depth):
        if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
            return False
        kind = kind.value_type
    return types.is_integer(kind) or (types.is_floating(kind) and column.dtype == "double")


def _nulls(array: Any) -> NDArray[np.bool_]:
    """Rows that are null or hold one."""
    from pyarrow import compute, types

    nulls = np.array(array.is_null()) if array.null_count else np.zeros(len(array), np.bool_)
    if not types.is_primitive(array.type):
        within = _nulls(compute.list_flatten(array))
        if within.any():
            nulls |= having(within, np.array(compute.fill_null(compute.list_value_length(array), 0), np.int64))
    return nulls


def _parts(batch: Any, where: str) -> dict[str, Part]:
    from pyarrow import compute

    parts = {}
    for name, array in zip(batch.schema.names, batch.columns):
        lengths = []
        for _ in range(COLUMNS[name].depth):
            lengths.append(np.array(compute.list_value_length(array), np.int64))
            array = compute.list_flatten(array)
        try:
            values = array.cast(COLUMNS[name].dtype)
        except arrow().ArrowInvalid as error:
            raise LogFormatError(f"{where}: `{name}` does not fit {COLUMNS[name].dtype}: {error}.") from None
        parts[name] = Part(np.array(values), lengths)  # a copy: a block owns its arrays
    return parts


def _repeated(block: Block) -> NDArray[np.bool_]:
    """Lines whose pool has an arm twice."""
    of = np.repeat(np.arange(len(block.pool_start) - 1), np.diff(block.pool_start))
    order = np.lexsort((block.pool_ids, of))
    twice = (np.diff(block.pool_ids[order]) == 0) & (np.diff(of[order]) == 0)
    return np.isin(block.pool, of[order][1:][twice])


# -- writing -----------------------------------------------------------------------------------------------------------


def write_parquet(log: Any, path: str | os.PathLike[str], *, progress: Callable[[int], None] | None = None) -> None:
    """Write a log as Parquet: one file if the name ends in .parquet, else a new folder with one file a day (UTC).

    `log` is a log, a synthetic day, or an iterable of blocks or events; `progress` is told the lines written. It appears
    under its name when it is complete. A file is replaced, a folder that holds something is not.

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
    with atomic(path, folder=by_day) as part, ExitStack() as files:
        writers: dict[str, _Writer] = {}
        lines = 0
        for block in log.blocks(ROW_GROUP) if hasattr(log, "blocks") else _as_blocks(log):
            if block.visitor is not None:
                raise InputError("visitors of a table are dicts, which this format has no room for. Keep the table.")
            table, day = _table(block), block.time // DAY if by_day else np.zeros(len(block))
            for number in np.unique(day):
                name = f"day={np.datetime64(int(number), 'D')}/part-0.parquet" if by_day else ""
                if name not in writers:
                    writers[name] = _Writer(part / name, table.schema)
                    files.callback(writers[name].close)
                own = day == number
                writers[name].add(table if own.all() else table.filter(arrow().array(own)))
            lines += len(block)
            if progress is not None:
                progress(lines)
        if not writers:
            raise InputError("the log has no events: there is nothing to write.")


def _as_blocks(log: Any) -> Iterator[Block]:
    """Blocks as they come, and events in blocks."""
    if not isinstance(log, Iterable):
        raise InputError(f"expected a log, blocks or events, got {type(log).__name__}. Pass read(path), for example.")
    items = iter(log)
    for first in items:
        if isinstance(first, Block):
            yield first
        else:
            yield Block.from_events([first, *islice(items, ROW_GROUP - 1)])


class _Writer:
    """One file in the making; what comes is gathered into row groups."""

    def __init__(self, path: Path, schema: Any) -> None:
        from pyarrow.parquet import ParquetWriter

        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = ParquetWriter(path, schema, compression="zstd", write_page_checksum=True)
        self._schema, self._pending = schema, schema.empty_table()

    def add(self, table: Any) -> None:
        if table.schema != self._schema:
            raise InputError(f"expected columns {self._schema.names} throughout, got {table.schema.names}.")
        self._pending = arrow().concat_tables([self._pending, table])
        if len(self._pending) >= ROW_GROUP:
            self._write(len(self._pending) - len(self._pending) % ROW_GROUP)

    def _write(self, lines: int) -> None:
        self._file.write_table(self._pending.slice(0, lines), row_group_size=ROW_GROUP)
        self._pending = self._pending.slice(lines)

    def close(self) -> None:
        if len(self._pending):  # no empty row group at the end
            self._write(len(self._pending))
        self._file.close()


def _table(block: Block) -> Any:
    pa = arrow()
    arms, places = block.truth_start, block.candidates

    def lists(starts: Ints, values: Any) -> Any:
        return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(values))

    columns = {
        "time": pa.array(block.time),
        "arms": lists(arms, block.pool_ids[places]),
        "shown": pa.array(block.shown),
        "reward": pa.array(block.reward),
        "user_index": lists(block.user_start, block.user_index),
        "user_value": lists(block.user_start, block.user_value),
    }
    if block.propensity is not None:
        columns["propensity"] = pa.array(block.propensity)
    if block.arm_features is not None:
        rows, width = block.arm_features[places], block.arm_features.shape[1]
        columns["arm_features"] = lists(arms, lists(width * np.arange(len(rows) + 1), rows.ravel()))
    if block.truth is not None:
        columns["truth"] = lists(arms, block.truth)
    return pa.table(columns)
