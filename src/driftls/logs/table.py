"""A log of one's own: a table, or a list of dicts, with a row for each decision."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from driftls.errors import InputError, LogFormatError, MissingFileError, missing_extra
from driftls.logs.columns import as_objects, shortened
from driftls.logs.events import Block
from driftls.logs.log import Log

BOM = b"\xef\xbb\xbf"

__all__ = ["TableLog", "read_table"]


class TableLog(Log):
    """The decisions of a table, or of a list of dicts, one a row.

    Parameters
    ----------
    source : table of pandas, polars or Arrow, list of dicts, or path
        A path is that of a CSV file, or of one with a JSON object a line (`.json`, `.jsonl`); with `.gz`, compressed.
    shown, reward : str
        The columns of what was shown (its id, text or a number), and of what it brought.
    propensity : str, optional
        The column of the probability with which it was shown.
    arms : list of ids, or str, optional
        What could be shown: the same in every row, or a column with a list of ids; by default whatever was ever shown.
    items : dict, optional
        Of an id, the item's columns: ``{"a": {"colour": "red"}}``, for one model that items share.
    visitor : list of str, optional
        The visitor's columns; by default all others.
    on_error, block
        As for `read`.
    """

    format = "table"

    def __init__(
        self,
        source: Any,
        *,
        shown: str,
        reward: str,
        propensity: str | None = None,
        arms: str | Sequence[Hashable] | None = None,
        items: Mapping[Any, Mapping[str, Any]] | None = None,
        visitor: Sequence[str] | None = None,
        on_error: str = "raise",
        block: int = 32_768,
    ) -> None:
        super().__init__(on_error=on_error, block=block)
        self.path, self._table = _opened(source)
        own = [
            shown,
            reward,
            *([propensity] if propensity is not None else []),
            *([arms] if isinstance(arms, str) else []),
        ]
        names, listed = _names(self._table), visitor is None or isinstance(visitor, list | tuple)
        if not listed or not all(isinstance(name, str | int) for name in [*own, *(visitor or ())]):
            raise InputError(f"expected names of columns, got {[*own, visitor]!r}. visitor= is a list of them.")
        if len(set(names)) < len(names):
            raise InputError(f"{self.path or 'the table'}: expected columns of different names, got {names!r}.")
        if unknown := [name for name in [*own, *(visitor or ())] if name not in names]:
            told = f"expected columns {', '.join(map(repr, unknown))}, got {', '.join(map(repr, names))}"
            raise InputError(f"{self.path or 'the table'}: {told}. Say which column is which: shown=, reward=, ...")
        items = {} if items is None else items
        if not isinstance(items, Mapping) or not all(isinstance(item, Mapping) for item in items.values()):
            raise InputError(f"items: expected a dict of an item's columns for each id, got {items!r}.")
        self.visitor = [name for name in (names if visitor is None else visitor) if name not in own]
        self.shown, self.reward, self.propensity, self.arms = shown, reward, propensity, arms
        self._items, self.items = items, list[dict[str, Any]]()
        self._number: dict[Hashable, int] = {}
        self._pool = None if isinstance(arms, str) else self._all_of(arms)

    def _all_of(self, arms: Any) -> list[int]:
        """The candidates of every row: these, or whatever was ever shown."""
        if arms is None:
            shown = [_plain(id) for id in _column(self._table, self.shown)]
            arms = list(dict.fromkeys(id for id in shown if _is_id(id)))  # a row with another is broken
            return [self._number_of(id) for id in arms]
        if not isinstance(arms, list | tuple | np.ndarray) or not all(_is_id(_plain(id)) for id in arms):
            raise InputError(f"arms: expected a list of ids, or the name of a column with such lists, got {arms!r}.")
        pool = [self._number_of(_plain(id)) for id in arms]
        if not 0 < len(pool) == len(set(pool)):
            raise InputError(f"arms: expected at least one id, and none twice, got {arms!r}.")
        return pool

    def _number_of(self, id: Hashable) -> int:
        """A number for an id of the table; the number's item has it as its "id"."""
        found = self._number.get(id)
        if found is None:
            found = self._number[id] = len(self.items)
            self.items.append({"id": id, **self._items.get(id, {})})
        return found

    def _blocks(self, size: int) -> Iterator[Block]:
        count = len(self._table)
        for first in range(0, count, size):
            rows = _rows(self._table, first, min(first + size, count))
            lines = [line for k, row in enumerate(rows) if (line := self._line(first + k, row)) is not None]
            self.counts.lines += len(rows)
            self.counts.events += len(lines)
            self.share = (first + len(rows)) / count
            if lines:
                number, pool, shown, reward, propensity, visitor = zip(*lines)
                nothing = {"user_start": np.zeros(len(lines) + 1, np.int64), "user_value": np.empty(0)}
                yield Block.from_lines(
                    np.array([len(ids) for ids in pool]),
                    np.concatenate([np.array(ids, np.int64) for ids in pool]),
                    None,
                    time=np.array(number, np.int64),
                    shown=np.array(shown, np.int32),
                    reward=np.array(reward, np.float64),
                    propensity=np.array(propensity, np.float64) if self.propensity is not None else None,
                    user_index=np.empty(0, np.int32),
                    visitor=as_objects(visitor),
                    items=self.items,
                    **nothing,
                )

    def _line(self, number: int, row: Mapping[Any, Any]) -> Any:
        """Number, candidates, position shown, reward, propensity and visitor of a row; None if it is broken and skipped."""
        try:
            pool = self._pool
            if pool is None:
                listed = _plain(row[self.arms])
                if not isinstance(listed, list | tuple):
                    raise ValueError(f"{self.arms!r} to be a list of ids, got {shortened(listed)}")
                listed = [_plain(id) for id in listed]
                if not listed or not all(map(_is_id, listed)) or len(set(listed)) < len(listed):
                    raise ValueError(f"{self.arms!r} to be a list of ids, none of them twice, got {listed!r}")
                pool = [self._number_of(id) for id in listed]
            shown = _plain(row[self.shown])
            chosen = self._number.get(shown, -1) if _is_id(shown) else -1
            if chosen not in pool:
                raise ValueError(f"{self.shown!r} to be one of the arms, got {shown!r}")
            reward = _number(row[self.reward], self.reward)
            likely = _number(row[self.propensity], self.propensity) if self.propensity is not None else 1.0
            if not 0.0 < likely <= 1.0:
                raise ValueError(f"{self.propensity!r} to be a probability above 0, got {likely}")
        except (ValueError, TypeError, KeyError) as error:
            told = f"a column {error}" if isinstance(error, KeyError) else str(error)
            self._broken(f"{f'{self.path}, ' if self.path else ''}row {number}: expected {told}.")
            return None
        return number, pool, pool.index(chosen), reward, likely, {name: row.get(name) for name in self.visitor}


def read_table(source: Any, **columns: Any) -> TableLog:
    """Read a log of one's own: a table, or a list of dicts, with a row for each decision.

    Its visitors are dicts, as `policy.choose(user, ids=...)` takes them: replay it with policies that have
    `features=Features(...)`. Settings are those of `TableLog`.

    Examples
    --------
    >>> from driftls import DisjointLinUCB, Features
    >>> from driftls.log_replay import replay
    >>> rows = [{"city": "Oslo", "offer": "a", "click": 1}, {"city": "Rome", "offer": "b", "click": 0}] * 50
    >>> log = read_table(rows, shown="offer", reward="click")
    >>> policy = DisjointLinUCB(features=Features(), seed=0)
    >>> run = replay(policy, log)
    >>> policy.choose({"city": "Oslo"}, ids=["a", "b"])
    0
    """
    return TableLog(source, **columns)


# -- tables of any kind ------------------------------------------------------------------------------------------------


def _opened(source: Any) -> tuple[str, Any]:
    """Where a table comes from, and the table: a list of dicts, or one with columns."""
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        if not os.path.isfile(path):
            raise MissingFileError(f"{path}: expected a table, got no such file. Check the path.")
        return path, _file(path)
    if hasattr(source, "columns") or hasattr(source, "column_names"):
        return "", source.collect() if hasattr(source, "collect") else source  # a lazy one of polars
    rows = list(source) if hasattr(source, "__iter__") else [source]
    for row in rows:
        if not isinstance(row, Mapping):
            raise InputError(f"expected a table, or a list of dicts, got {type(row).__name__}. See docs/logs.md.")
    return "", rows


def _file(path: str) -> Any:
    name = path.removesuffix(".gz")
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        try:
            if name.endswith((".json", ".jsonl", ".ndjson")):
                import msgspec

                decode = msgspec.json.Decoder(dict[str, Any]).decode
                lines = (line.removeprefix(BOM) for line in file)
                return [decode(line) for line in lines if line.strip()]
            try:
                from pyarrow import csv
            except ImportError:
                raise missing_extra("pyarrow", "logs", "CSV files") from None
            return csv.read_csv(file)
        except (
            OSError,
            EOFError,
            ValueError,
            RecursionError,
            zlib.error,
        ) as error:  # pyarrow's and msgspec's are such, too
            raise LogFormatError(
                f"{path}: expected CSV, or a JSON object a line, got {error}. Check the file."
            ) from None


def _names(table: Any) -> list[Any]:
    if isinstance(table, list):
        return list(dict.fromkeys(name for row in table for name in row))
    return list(getattr(table, "column_names", None) or table.columns)


def _column(table: Any, name: str) -> list[Any]:
    if isinstance(table, list):
        return [row.get(name) for row in table]
    column = table[name]
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column.to_list())


def _rows(table: Any, first: int, last: int) -> list[dict[Any, Any]]:
    if isinstance(table, list):
        return table[first:last]
    if hasattr(table, "iloc"):
        return list(table.iloc[first:last].to_dict("records"))
    part = table.slice(first, last - first)
    return list(part.to_pylist() if hasattr(part, "to_pylist") else part.to_dicts())


def _plain(value: Any) -> Any:
    """A value of NumPy's as Python's; a whole number in a column of floats, where some are missing, as a whole one."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int | float) and value == value


def _number(value: Any, name: Any) -> float:
    try:
        number = float(value)  # also of text: one cell that is no number makes a column of CSV text
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not abs(number) < 1e75:
        raise ValueError(f"{name!r} to be a finite number, got {shortened(value)}")
    return number
