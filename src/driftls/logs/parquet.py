"""Logs as Parquet, read and written: one row an event, in columns that anyone can write; see `docs/logs.md`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from driftls.errors import CorruptFileError, InputError, LogFormatError, SettingsError, missing_extra
from driftls.logs.columns import COLUMNS, OPTIONAL, Check, Column, Ints, Part, faults, having, line_checks, shortened
from driftls.logs.events import Block
from driftls.logs.log import Log
from driftls.persistence import atomic

__all__ = ["ParquetLog", "is_parquet", "write_parquet"]

MAGIC = b"PAR1"
ROW_GROUP = 16_384  # lines; a writer holds the candidates of so many, line by line
DAY = 86_400  # seconds


class ParquetLog(Log):
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
                batches, first = file.iter_batches(size, columns=names), 0
                while True:
                    with _damage_named(f"{path}: what follows row {first}"):
                        batch = next(batches, None)
                    if batch is None:
                        break
                    block = self._block(batch, path, first)
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
            columns = [group.column(place) for group in groups for place in range(group.num_columns)]
            kept = [c.statistics for c in columns if c.path_in_schema.startswith("user_index.") and c.num_values]
            if any(one is None or not one.has_min_max for one in kept):
                return 0
            largest = max([largest, *(int(one.max) for one in kept)])
        return largest + 1

    def _block(self, batch: Any, path: str, first: int) -> Block:
        """The sound lines of a batch, whose first row in the file is this one."""
        parts, checks = _parts(batch, path)
        bad = np.zeros(len(batch), np.bool_)
        for row, expected, name in faults(checks + line_checks(parts)):
            got = shortened(batch[name][row].as_py())
            self._broken(f"{path}: row {first + row}: expected {expected}, got {name} = {got}.")
            bad[row] = True
        if bad.any():
            parts, _ = _parts(batch.filter(_arrow().array(~bad)), path)
        return Block.from_columns(parts)


def is_parquet(path: str) -> bool:
    """Whether a file begins as Parquet does."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise missing_extra("pyarrow", "logs", "a Parquet log") from None
    return pyarrow


def _files(path: str) -> list[str]:
    """The Parquet files of a folder; not those of one that is still being written."""
    if not os.path.isdir(path):
        return [path]
    below = [file for file in Path(path).rglob("*.parquet") if file.is_file()]
    whole = [f for f in below if not any(part.startswith(".driftls-") for part in f.relative_to(path).parts)]
    if not whole:
        raise LogFormatError(f"{path}: expected a folder with .parquet files in it, got none.")
    return sorted(map(str, whole))


@contextmanager
def _damage_named(where: str) -> Iterator[None]:
    """What pyarrow raises at bytes that it cannot read, as our error."""
    try:
        yield
    except (_arrow().ArrowException, OSError, ValueError) as error:
        text = str(error).rstrip(".")
        raise CorruptFileError(f"{where} is damaged: {text}. Write or fetch the file again.") from None


def _opened(path: str) -> Any:
    _arrow()
    from pyarrow.parquet import ParquetFile

    if not is_parquet(path):
        raise LogFormatError(f"{path}: expected a Parquet file, as the others are.")
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


def _parts(batch: Any, path: str) -> tuple[dict[str, Part], list[Check]]:
    """The columns of a batch, with 0 or nothing in place of nulls; and the lines that are null or hold one."""
    from pyarrow import compute

    parts, checks = {}, list[Check]()
    for name, array in zip(batch.schema.names, batch.columns):
        kind, lengths, nulls = COLUMNS[name], list[Ints](), [np.array(array.is_null())]
        for _ in range(kind.depth):
            length = compute.fill_null(compute.list_value_length(array), 0)
            lengths.append(np.where(nulls[-1], 0, np.array(length, np.int64)))
            array = compute.list_flatten(array)
            nulls.append(np.array(array.is_null()))
        try:
            values = compute.fill_null(array.cast(kind.dtype), 0)
        except _arrow().ArrowInvalid as error:
            raise LogFormatError(f"{path}: `{name}` does not fit {kind.dtype}: {error}.") from None
        wrong = nulls.pop()
        for length in reversed(lengths):
            wrong = nulls.pop() | having(wrong, length)
        checks.append((wrong, "no null", name))
        parts[name] = Part(np.array(values), lengths)  # a copy: a block owns its arrays
    return parts, checks


# -- writing -----------------------------------------------------------------------------------------------------------


def write_parquet(log: Any, path: str | os.PathLike[str], *, progress: Callable[[int], None] | None = None) -> None:
    """Write a log as Parquet: one file if the name ends in .parquet, else a new folder with one file a day (UTC).

    `log` is a log, a synthetic day, or an iterable of blocks (of events: ``read(events)``); `progress` is told the
    lines written. It appears under its name when it is complete. A file is replaced, a folder that holds something is
    not.

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
    pa, by_day = _arrow(), not os.fspath(path).endswith(".parquet")
    from pyarrow.parquet import ParquetWriter

    if by_day and os.path.isdir(path) and os.listdir(path):
        raise SettingsError(f"{os.fspath(path)}: expected a new or an empty folder. Choose another, or remove it.")
    with atomic(path, folder=by_day) as part, ExitStack() as files:
        writers, lines = dict[str, Any](), 0
        blocks = log.blocks(ROW_GROUP) if hasattr(log, "blocks") else log
        for block in blocks if isinstance(blocks, Iterable) else [blocks]:
            if not isinstance(block, Block):
                raise InputError(f"expected a log or blocks, got {type(block).__name__}. Of events, pass read(events).")
            table, day = _table(block), block.time // DAY if by_day else np.zeros(len(block))
            for number in np.unique(day):
                name = f"day={np.datetime64(int(number), 'D')}/part-0.parquet" if by_day else ""
                if name not in writers:
                    (part / name).parent.mkdir(exist_ok=True)
                    made = ParquetWriter(part / name, table.schema, compression="zstd", write_page_checksum=True)
                    writers[name] = files.enter_context(made)
                if table.schema != writers[name].schema:
                    names = writers[name].schema.names, table.schema.names
                    raise InputError(f"expected columns {names[0]} throughout, got {names[1]}.")
                own = table.filter(pa.array(day == number)) if by_day else table
                writers[name].write_table(own, row_group_size=ROW_GROUP)
            lines += len(block)
            if progress is not None:
                progress(lines)
        if not writers:
            raise InputError("the log has no events: there is nothing to write.")


def _table(block: Block) -> Any:
    if block.visitor is not None:
        raise InputError("visitors of a table are dicts, which this format has no room for. Keep the table.")
    pa, arms, places = _arrow(), block.truth_start, block.candidates

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
