"""A log of one's own: a table, or a list of dicts, with a row for each decision."""

from __future__ import annotations

import codecs
import gzip
import os
import zlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from driftls.errors import InputError, LogFormatError, MissingFileError, missing_extra
from driftls.logs.columns import Check, Part, as_objects, shortened
from driftls.logs.events import Block
from driftls.logs.log import Log

BOM = b"\xef\xbb\xbf"

__all__ = ["TableLog", "read_table"]


class TableLog(Log):
    """The decisions of a table, or of a list of dicts, one a row; made by `driftls.logs.read_table`.

    Its visitors are dicts, as `policy.choose(user, ids=...)` takes them: replay it with policies that have
    `features=Features(...)`.

    Parameters
    ----------
    source : table of pandas, polars or Arrow, list of dicts, or path
        A path is that of a CSV file, of one with a JSON object a line (`.json`, `.jsonl`), both with `.gz` if they are
        compressed, or of a Parquet file (`.parquet`).
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
    **settings
        `on_error` and `block`, as for `read`.

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
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self._malformed = list[str]()  # lines of a file that are no rows
        is_path = isinstance(source, str | os.PathLike)
        self.path = os.fspath(source) if is_path else ""
        self._table = _file(self.path, self._malformed) if is_path else _table(source)
        if self.on_error == "raise" and self._malformed:
            self._broken(self._malformed[0])
        self._own: dict[str, Any] = {"shown": shown, "reward": reward}
        self._own |= {"propensity": propensity} if propensity is not None else {}
        self._own |= {"arms": arms} if isinstance(arms, str) else {}
        own, names, where = [*self._own.values()], _names(self._table), self.path or "the table"
        if len(set(names)) < len(names):
            raise InputError(f"{where}: expected columns of different names, got {names!r}.")
        named = names if visitor is None else visitor if isinstance(visitor, list | tuple) else [visitor]
        if unknown := [name for name in [*own, *named] if not isinstance(name, str | int) or name not in names]:
            told = f"expected columns {', '.join(map(repr, unknown))}, got {', '.join(map(repr, names))}"
            advice = "Say which column is which: shown=, reward=, ..."
            for mark, called in ((";", "semicolons"), ("\t", "tabs")):
                if is_path and len(names) == 1 and mark in names[0]:
                    advice = f"The file seems to be separated by {called}: write it with commas."
            raise InputError(f"{where}: {told}. {advice}")
        items = {} if items is None else items
        if not isinstance(items, Mapping) or not all(isinstance(item, Mapping) for item in items.values()):
            raise InputError(f"items: expected a dict of an item's columns for each id, got {items!r}.")
        self.visitor = [name for name in named if name not in own]
        self._items, self.items = items, list[dict[str, Any]]()
        self._number: dict[Hashable, int] = {}
        self._pool: list[int] | None = None
        if arms is None:  # a row with what is no id is broken
            seen = (_plain(row.get(shown)) for row in chain.from_iterable(self._pieces(1 << 15)))
            # in an order that does not tell which is shown next: where scores tie, the first arm is chosen
            self._pool = self._numbers(sorted(set(filter(_is_id, seen)), key=lambda id: (isinstance(id, str), id)))
        elif not isinstance(arms, str):
            self._pool = self._numbers(arms)
            if not 0 < len(self._pool) == len(set(self._pool)):
                raise InputError(f"arms: expected a column, or a list of ids, none of them twice, got {arms!r}.")

    def _pieces(self, size: int) -> Iterator[list[dict[Any, Any]]]:
        """The rows, as many as that at a time."""
        return (_records(self._table[first : first + size]) for first in range(0, len(self._table), size))

    def _numbers(self, ids: Any) -> list[int]:
        """A number for each id of a list, else none; the number's item has the id as its "id"."""
        ids = _plain(ids)
        ids = [_plain(id) for id in ids] if isinstance(ids, list | tuple) else []
        if not all(map(_is_id, ids)):
            return []
        for id in ids:
            if id not in self._number:
                self._number[id] = len(self.items)
                self.items.append({"id": id, **self._items.get(id, {})})
        return [self._number[id] for id in ids]

    def _blocks(self, size: int) -> Iterator[Block]:
        for told in self._malformed:
            self.counts.lines += 1
            self._broken(told)
        first = 0
        for rows in self._pieces(size):
            parts, checks = self._parts(rows, first)
            parts, kept = self._sound(parts, checks, partial(self._told, rows, first))
            visitors = as_objects([{name: row.get(name) for name in self.visitor} for row in rows])[kept]
            first += len(rows)
            self.share = first / len(self._table)
            if len(visitors):
                yield Block.from_columns(parts, visitor=visitors, items=self.items)

    def _told(self, rows: list[dict[Any, Any]], first: int, row: int, expected: str, name: str) -> str:
        place, got = f"{self.path}, " if self.path else "", shortened(rows[row].get(self._own[name]))
        return f"{place}row {first + row}: expected {expected}, got {self._own[name]!r} = {got}."

    def _parts(self, rows: list[dict[Any, Any]], first: int) -> tuple[dict[str, Part], list[Check]]:
        """The columns of these rows, whose numbers stand in for a time; and the rows without what was shown."""
        told = {what: [row.get(name) for row in rows] for what, name in self._own.items()}
        pools = [self._pool] * len(rows) if self._pool is not None else [self._numbers(ids) for ids in told["arms"]]
        shown = [self._number.get(id, -1) if _is_id(id) else -1 for id in map(_plain, told["shown"])]
        place = np.array([pool.index(id) if id in pool else -1 for id, pool in zip(shown, pools)], np.int32)
        sizes = np.array(list(map(len, pools)), np.int64)
        parts = {
            "time": Part(np.arange(first, first + len(rows)), []),
            "arms": Part(np.fromiter(chain.from_iterable(pools), np.int64), [sizes]),
            "shown": Part(place, []),
            "user_index": Part(np.empty(0, np.int32), [np.zeros(len(rows), np.int64)]),
        }
        for name in ("reward", "propensity"):
            if name in told:
                parts[name] = Part(np.array([_number(value) for value in told[name]], np.float64), [])
        missing: list[Check] = [(sizes == 0, "a list of ids", "arms")] if self._pool is None else []
        return parts, [*missing, (place < 0, "one of the arms", "shown")]


read_table = TableLog
"""Read a log of one's own: `TableLog`, by a name beside `read`."""


# -- tables of any kind ------------------------------------------------------------------------------------------------


def _table(source: Any) -> Any:
    """A list of dicts, or a table with columns."""
    if hasattr(source, "columns") or hasattr(source, "column_names"):
        return source.collect() if hasattr(source, "collect") else source  # a lazy one of polars
    rows = list(source) if hasattr(source, "__iter__") else [source]
    for row in rows:
        if not isinstance(row, Mapping):
            raise InputError(f"expected a table, or a list of dicts, got {type(row).__name__}. See docs/logs.md.")
    return rows


def _file(path: str, malformed: list[str]) -> Any:
    """The rows of a file; what is wrong with lines that are none is appended, by their numbers."""
    name = path.removesuffix(".gz")
    if not os.path.isfile(path):
        raise MissingFileError(f"{path}: expected a table, got no such file. Check the path.")
    if name.endswith(".parquet"):
        return _parquet(path)
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        try:
            if name.endswith((".json", ".jsonl", ".ndjson")):
                import msgspec

                decode, rows = msgspec.json.Decoder(dict[str, Any]).decode, list[dict[str, Any]]()
                for number, line in enumerate(file, 1):
                    try:
                        if text := line.removeprefix(BOM).strip():
                            rows.append(decode(text))
                    except (ValueError, RecursionError) as error:
                        malformed.append(f"{path}:{number}: expected a JSON object, got {error}.")
                return rows
            try:
                from pyarrow import csv, types
            except ImportError:
                raise missing_extra("pyarrow", "logs", "CSV files") from None

            def note(row: Any) -> str:
                told = f"expected {row.expected_columns} columns, as the first line has, got {row.actual_columns}"
                malformed.append(f"{path}:{row.number}: {told}: {shortened(row.text)}.")
                return "skip"

            # pyarrow cannot tell us of what is no text
            codecs.getincrementaldecoder("utf-8")().decode(file.read(1 << 16))
            options = csv.ReadOptions(use_threads=False)  # with which it counts lines
            parsing = csv.ParseOptions(invalid_row_handler=note)

            def table(**columns: str) -> Any:
                file.seek(0)
                malformed.clear()
                converting = csv.ConvertOptions(strings_can_be_null=True, column_types=columns)
                return csv.read_csv(file, options, parsing, converting)

            # features take text and numbers: dates and times are read once more, as they are written
            found = table()
            dated = {field.name: "string" for field in found.schema if types.is_temporal(field.type)}
            return table(**dated) if dated else found
        except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:  # pyarrow's and msgspec's, too
            told = f"expected CSV, or a JSON object a line, got {error}. Check the file."
            raise LogFormatError(f"{path}: {told}") from None


def _parquet(path: str) -> Any:
    """The table of a Parquet file; its dates and times are text, as those of CSV."""
    try:
        import pyarrow.parquet as pq
        from pyarrow import types
    except ImportError:
        raise missing_extra("pyarrow", "logs", "Parquet files") from None
    try:
        table = pq.read_table(path)
        for place, field in enumerate(table.schema):
            if types.is_temporal(field.type):
                table = table.set_column(place, field.name, table.column(place).cast("string"))
    except (OSError, ValueError) as error:
        told = f"expected a Parquet file, got {error}. Write it anew, or name a CSV file .csv."
        raise LogFormatError(f"{path}: {told}") from None
    return table


def _names(table: Any) -> list[Any]:
    if isinstance(table, list):
        return list(dict.fromkeys(name for row in table for name in row))
    return list(getattr(table, "column_names", None) or table.columns)


def _records(table: Any) -> list[dict[Any, Any]]:
    if isinstance(table, list):
        return table
    if hasattr(table, "iloc"):
        return list(table.to_dict("records"))
    return list(table.to_pylist() if hasattr(table, "to_pylist") else table.to_dicts())


def _plain(value: Any) -> Any:
    """A value of NumPy's as Python's; a whole number in a column of floats, where some are missing, as a whole one."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int | float) and value == value


def _number(value: Any) -> float:
    try:
        return float(value)  # also of text: one cell that is no number makes a column of CSV text
    except (TypeError, ValueError, OverflowError):
        return float("nan")
