"""Logs as Parquet: one row an event, in columns that anyone can write; `docs/logs.md` describes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftls.errors import (
    CorruptFileError,
    LogFormatError,
    TruncatedFileError,
    missing_extra,
)
from driftls.logs.events import Block, Ints, as_starts, distinct_pools, having, runs_of_pools
from driftls.logs.log import PART, Log

__all__ = ["ArrowLog", "ParquetLog", "arrow", "is_parquet"]

MAGIC = b"PAR1"
Mask = NDArray[np.bool_]
Check = tuple[Mask, str, str]  # lines that are wrong, what was expected, the column to blame


class Column(NamedTuple):
    """What a column holds: numbers (depth 0), lists of them, or lists of lists."""

    dtype: str
    depth: int = 0
    required: bool = True

    def __str__(self) -> str:
        return "lists of " * self.depth + ("whole numbers" if self.dtype.startswith("int") else "numbers")


COLUMNS = {
    "time": Column("int64"),
    "arms": Column("int64", 1),
    "shown": Column("int32"),
    "reward": Column("double"),
    "user_index": Column("int32", 1),
    "user_value": Column("double", 1, required=False),
    "propensity": Column("double", required=False),
    "arm_features": Column("double", 2, required=False),
    "truth": Column("double", 1, required=False),
}


class Part(NamedTuple):
    """A column without its lists: the numbers, and the lengths of the lists, outermost first."""

    values: NDArray[Any]
    lengths: list[Ints]


class ArrowLog(Log):
    """What comes in Arrow's batches."""

    def _good(self, batch: Any, place: Callable[[int], str], rows: Ints, checks: list[Check]) -> tuple[Any, Ints]:
        """The batch without the rows that fail a check, and their numbers; `place` names a row by its number"""
        bad = np.any([wrong for wrong, _, _ in checks], axis=0)
        for i in np.flatnonzero(bad):
            expected, name = next((expected, name) for wrong, expected, name in checks if wrong[i])
            got = repr(batch[name][int(i)].as_py())
            got = got if len(got) <= 60 else f"{got[:60]} ..."
            self._broken(f"{place(rows[i])}: expected {expected}, got {name} = {got}.")
        return (batch.filter(arrow().array(~bad)), rows[~bad]) if np.any(bad) else (batch, rows)


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
                    for block in self._group(file, f"{path}: row group {group}", group, names, size):
                        self.share = self.counts.lines / lines
                        yield block

    def _group(self, file: Any, where: str, group: int, names: list[str], size: int) -> Iterator[Block]:
        batches = file.iter_batches(size, row_groups=[group], columns=names)
        first = 0
        while (batch := _next(batches, where)) is not None:
            rows = np.arange(first, first + len(batch))
            first += len(batch)
            self.counts.lines += len(batch)
            block = self._block(batch, where, rows)
            self.counts.events += len(block)
            if len(block):
                yield block

    def _block(self, batch: Any, where: str, rows: Ints) -> Block:
        def place(row: int) -> str:
            return f"{where}, row {row}"

        batch, rows = self._good(batch, place, rows, _null_checks(batch))
        parts = _parts(batch, where)
        sound, rows = self._good(batch, place, rows, _value_checks(parts))
        block = _packed(parts if sound is batch else _parts(sound, where))
        good, _ = self._good(sound, place, rows, _arm_checks(block))
        return block if good is sound else _packed(_parts(good, where))


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
    """The Parquet files of a folder; not those of one that is still being written"""
    if not os.path.isdir(path):
        return [path]
    below = (file for file in Path(path).rglob("*.parquet") if file.is_file())
    files = sorted(str(file) for file in below if not any(p.endswith(PART) for p in file.relative_to(path).parts))
    if not files:
        raise LogFormatError(f"{path}: expected a folder with .parquet files in it, got none.")
    return files


def _opened(path: str) -> Any:
    pa = arrow()
    from pyarrow.parquet import ParquetFile

    if not is_parquet(path):
        raise LogFormatError(f"{path}: expected a Parquet file, as the others are.")
    with open(path, "rb") as file:
        file.seek(-min(len(MAGIC), os.path.getsize(path)), os.SEEK_END)
        if file.read() != MAGIC or os.path.getsize(path) < 3 * len(MAGIC):
            raise TruncatedFileError(f"{path}: the file breaks off before its footer. Write or fetch it again.")
    try:
        return ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(f"{path}: the footer", error) from None


def _describe(path: str) -> tuple[int, list[str]]:
    """Lines, and the names of our columns, after a look at their types"""
    with _opened(path) as file:
        try:
            schema, lines = file.schema_arrow, file.metadata.num_rows
            names = schema.names  # decodes them
        except (arrow().ArrowException, OSError, ValueError) as error:
            raise _damaged(f"{path}: the footer", error) from None
    for name, column in COLUMNS.items():
        if name in names:
            if not _is(column, schema.field(name).type):
                raise LogFormatError(f"{path}: expected `{name}` to be {column}, got {schema.field(name).type}.")
        elif column.required:
            raise LogFormatError(f"{path}: expected a column `{name}` of {column}, got {', '.join(names)}.")
    return lines, [name for name in COLUMNS if name in names]


def _is(column: Column, kind: Any) -> bool:
    from pyarrow import types

    for _ in range(column.depth):
        if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
            return False
        kind = kind.value_type
    return types.is_integer(kind) or (types.is_floating(kind) and column.dtype == "double")


def _next(batches: Iterator[Any], where: str) -> Any:
    try:
        return next(batches, None)
    except (arrow().ArrowException, OSError, ValueError) as error:
        raise _damaged(where, error) from None


def _damaged(where: str, error: Exception) -> CorruptFileError:
    return CorruptFileError(f"{where} is damaged: {str(error).rstrip('.')}. Write or fetch the file again.")


def _null_checks(batch: Any) -> list[Check]:
    return [(_nulls(column), "no null", name) for name, column in zip(batch.schema.names, batch.columns)]


def _nulls(array: Any) -> Mask:
    """Rows that are null or hold one"""
    from pyarrow import compute, types

    nulls = np.array(array.is_null()) if array.null_count else np.zeros(len(array), np.bool_)
    if not types.is_primitive(array.type):
        within = _nulls(compute.list_flatten(array))
        if np.any(within):
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


def _value_checks(parts: dict[str, Part]) -> list[Check]:
    arms, users = parts["arms"].lengths[0], parts["user_index"].lengths[0]
    shown, index = parts["shown"].values, parts["user_index"].values
    step = np.diff(index, prepend=-1)
    first = as_starts(users)[:-1][users > 0]
    step[first] = index[first] + 1
    checks: list[Check] = [
        ((shown < 0) | (shown >= arms), "`shown` to be a position among the arms, from 0", "shown"),
        (having(step <= 0, users), "user indices of at least 0 that increase", "user_index"),
    ]
    for name, other in (("user_value", "user_index"), ("truth", "arms"), ("arm_features", "arms")):
        if name in parts:
            wrong = parts[name].lengths[0] != parts[other].lengths[0]
            checks.append((wrong, f"as many entries as there are {other}", name))
    if "arm_features" in parts:
        of, each = parts["arm_features"].lengths
        usual = np.bincount(each, minlength=1).argmax()
        checks.append((having(each != usual, of), "as many features of every arm", "arm_features"))
    for name, part in parts.items():
        if part.values.dtype.kind == "f":
            wrong = ~np.isfinite(part.values)
            for lengths in reversed(part.lengths):
                wrong = having(wrong, lengths)
            checks.append((wrong, "finite numbers", name))
    if "propensity" in parts:
        chance = parts["propensity"].values
        checks.append(((chance <= 0) | (chance > 1), "a probability above 0", "propensity"))
    return checks


def _arm_checks(block: Block) -> list[Check]:
    of = np.repeat(np.arange(len(block.pool_start) - 1), np.diff(block.pool_start))
    order = np.lexsort((block.pool_ids, of))
    twice = (np.diff(block.pool_ids[order]) == 0) & (np.diff(of[order]) == 0)
    return [(np.isin(block.pool, of[order][1:][twice]), "arms that differ", "arms")]


def _packed(parts: dict[str, Part]) -> Block:
    (ids, [sizes]), (index, [users]) = parts["arms"], parts["user_index"]
    features = None
    if "arm_features" in parts:
        features = parts["arm_features"].values.reshape(len(ids), -1) if len(ids) else np.empty((0, 0))
    pool, pool_start, pool_ids, arm_features = distinct_pools(*runs_of_pools(sizes, ids, features))
    return Block(
        time=parts["time"].values,
        pool=pool,
        shown=parts["shown"].values,
        reward=parts["reward"].values,
        pool_start=pool_start,
        pool_ids=pool_ids,
        user_start=as_starts(users),
        user_index=index,
        user_value=parts["user_value"].values if "user_value" in parts else np.ones(len(index)),
        propensity=parts["propensity"].values if "propensity" in parts else None,
        arm_features=arm_features,
        truth=parts["truth"].values if "truth" in parts else None,
    )
