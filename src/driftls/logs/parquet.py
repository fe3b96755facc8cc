"""Logs as Parquet, read and written: one row an event, in columns that anyone can write; see `docs/logs.md`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import CorruptFileError, InputError, LogFormatError, SettingsError, missing_extra
from driftls.logs.columns import COLUMNS, OPTIONAL, Ints, Part, as_starts, having, shortened
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

    def __init__(self, paths: list[str], **settings: Any) -> None:
        super().__init__(**settings)
        self.paths = [file for path in paths for file in _files(path)]
        self._lines = 0
        for path in self.paths:
            with _opened(path) as file:
                self._lines += file.metadata.num_rows

    def _blocks(self, size: int) -> Iterator[Block]:
        for path in self.paths:
            with _opened(path) as file:
                names = [name for name in COLUMNS if name in file.schema_arrow.names]
                batches, first = file.iter_batches(size, columns=names), 0
                while True:
                    with _damage_named(f"{path}: what follows row {first}"):
                        batch = next(batches, None)
                    if batch is None:
                        break
                    parts = self._parts(batch, path, first)
                    first += len(batch)
                    self.share = self.counts.lines / self._lines
                    if len(parts["time"].values):
                        yield Block.from_columns(parts)

    def _parts(self, batch: Any, path: str, first: int) -> dict[str, Part]:
        """The columns of the sound lines of a batch, whose first row in the file is this one."""
        found = {name: _part(batch[name], name, path) for name in batch.schema.names}

        def told(row: int, expected: str, name: str) -> str:
            got = shortened(batch[name][row].as_py())
            return f"{path}: row {first + row}: expected {expected}, got {name} = {got}."

        nulls = [(wrong, "no null", name) for name, (_, wrong) in found.items()]
        return self._sound({name: part for name, (part, _) in found.items()}, nulls, told)[0]


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
    """A file that has our columns; of which types is seen when they are read."""
    _arrow()
    from pyarrow.parquet import ParquetFile

    if not is_parquet(path):
        raise LogFormatError(f"{path}: expected a Parquet file, as the others are.")
    with _damage_named(f"{path}: the footer"):
        file = ParquetFile(path, page_checksum_verification=True)
        names = file.schema_arrow.names  # decodes them
    for name, column in COLUMNS.items():
        if name not in (*OPTIONAL, "user_value", *names):
            advice = "Of a table of your own, name its columns: --shown and --reward, or read_table (docs/logs.md)."
            raise LogFormatError(f"{path}: expected a column `{name}` of {column}, got {', '.join(names)}. {advice}")
    return file


def _part(array: Any, name: str, path: str) -> tuple[Part, NDArray[np.bool_]]:
    """A column, with 0 or nothing in place of nulls; and the lines that are null or hold one."""
    from pyarrow import compute, types

    kind, given = COLUMNS[name], array.type
    lengths, nulls = list[Ints](), [np.array(array.is_null())]
    try:
        for _ in range(kind.depth):
            length = np.array(compute.fill_null(compute.list_value_length(array), 0), np.int64)
            lengths.append(np.where(nulls[-1], 0, length))
            array = compute.list_flatten(array)
            nulls.append(np.array(array.is_null()))
        if not (types.is_integer(array.type) or types.is_floating(array.type) or types.is_null(array.type)):
            raise _arrow().ArrowInvalid("no numbers")
        values = np.array(compute.fill_null(array.cast(kind.dtype), 0))  # a copy: a block owns its arrays
    except (_arrow().ArrowException, NotImplementedError) as error:
        told = f"expected `{name}` to be {kind} that fit {kind.dtype}, got {given}"
        raise LogFormatError(f"{path}: {told} ({error}).") from None
    wrong = nulls.pop()
    for length in reversed(lengths):
        wrong = nulls.pop() | having(wrong, length)
    return Part(values, lengths), wrong


# -- writing -----------------------------------------------------------------------------------------------------------


def write_parquet(
    log: Any, path: str | os.PathLike[str], *, progress: Callable[[int], None] = lambda lines: None
) -> None:
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
            progress(lines)
        if not writers:
            raise InputError("the log has no events: there is nothing to write.")


def _table(block: Block) -> Any:
    if block.visitor is not None:
        raise InputError("visitors of a table are dicts, which this format has no room for. Keep the table.")
    pa, columns = _arrow(), {}
    for name, (values, lengths) in block.parts().items():
        columns[name] = pa.array(values)
        for length in reversed(lengths):
            columns[name] = pa.ListArray.from_arrays(pa.array(as_starts(length), pa.int32()), columns[name])
    return pa.table(columns)
