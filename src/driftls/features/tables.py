"""Tables of pandas, polars and Arrow as codes of names, column by column; pyarrow does it if it is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from driftls.errors import InputError
from driftls.features.columns import LARGEST, Column, Space, scalar
from driftls.features.rows import Coded, Floats, Ints

Cells = tuple[Ints, Ints, Floats]  # how many entries each row has; their codes; their values


def is_table(x: Any) -> bool:
    """Whether `x` is a table: of pandas, polars, pyarrow, or whatever else has named columns."""
    named = getattr(x, "columns", None) is not None or hasattr(x, "column_names")
    return hasattr(x, "__arrow_c_stream__") or (named and hasattr(x, "__getitem__"))


def is_records(x: Any) -> bool:
    """Whether `x` is what `Features` takes: a dict, a list of dicts, or a table."""
    if isinstance(x, list | tuple):
        return len(x) > 0 and isinstance(x[0], Mapping)
    return isinstance(x, Mapping) or is_table(x)


def coded_table(space: Space, table: Any) -> Coded:
    """The rows of a table; what pyarrow cannot read (columns of many types) goes record by record."""
    arrow = as_arrow(table)
    if arrow is None:
        names = list(table) if isinstance(table, Mapping) else list(getattr(table, "columns", ()))
        return space.coded(dict(zip(names, row)) for row in zip(*(list(table[name]) for name in names), strict=True))
    cells = []
    for name, array in zip(arrow.column_names, arrow.columns):
        column = space.column(name)
        lengths, code, value, missing = _cells(space, column, array)
        column.present += len(array) - missing
        cells.append((lengths, code, value))
    space.records += arrow.num_rows
    return _side_by_side(cells, arrow.num_rows)


def as_arrow(table: Any) -> Any:
    """The table as pyarrow's, or None if there is no pyarrow or no one type for each of its columns."""
    try:
        import pyarrow as pa
    except ImportError:
        return None
    try:
        if type(table).__module__.startswith("pandas"):
            return pa.Table.from_pandas(table, preserve_index=False)  # by the other way the index becomes a column
        return table if isinstance(table, pa.Table) else pa.table(table)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return None


def _cells(space: Space, column: Column, array: Any) -> tuple[Ints, Ints, Floats, int]:
    """The entries of a column of Arrow, and how many of its cells are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = pa.types
    if kind.is_list(array.type) or kind.is_large_list(array.type) or kind.is_fixed_size_list(array.type):
        lengths = pc.list_value_length(array).fill_null(0).to_numpy().astype(np.int64)
        place = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        inside, code, value, _ = _flat(space, column, pc.list_flatten(array), place)
        row = np.repeat(np.arange(len(lengths)), lengths)
        return np.bincount(row[inside], minlength=len(lengths)), code, value, array.null_count
    present, code, value, missing = _flat(space, column, array, None)
    return present.astype(np.int64), code, value, missing


def _flat(space: Space, column: Column, array: Any, place: Ints | None) -> tuple[Any, Ints, Floats, int]:
    """Which cells there are, their codes and values; `place`: where numbers stand in their lists."""
    import pyarrow as pa

    kind = pa.types
    if kind.is_dictionary(array.type) and not _is_text(array.type.value_type):
        array = array.cast(array.type.value_type)
    if _is_number(array.type) and not column.category:
        value = array.cast(pa.uint8() if kind.is_boolean(array.type) else array.type)
        value = value.cast(pa.float64(), safe=False).to_numpy()  # nulls become NaN
        present = value == value
        value = value[present]
        if len(value) and not np.abs(value).max() < LARGEST:
            scalar(value[np.argmax(np.abs(value))], column)  # which says what is wrong
        keys = [None] if place is None else range(int(place[present].max(initial=-1)) + 1)
        codes = np.array([space.code(column, key) for key in keys] if len(value) else [], np.int64)
        which = np.zeros(len(value), np.int64) if place is None else place[present]
        return present, codes[which], value, int(len(present) - present.sum())
    if kind.is_null(array.type):
        return np.zeros(len(array), bool), np.empty(0, np.int64), np.empty(0), len(array)
    if not (_is_text(array.type) or _is_number(array.type) or kind.is_dictionary(array.type)):
        first = array.drop_null()[:1].to_pylist()
        scalar(first[0] if first else None, column)
        raise InputError(f"column {column.name!r}: expected numbers, text or lists of them, got {array.type}.")
    return _categories(space, column, array)


def _categories(space: Space, column: Column, array: Any) -> tuple[Any, Ints, Floats, int]:
    import pyarrow as pa

    if not pa.types.is_dictionary(array.type):
        if str(array.type) == "string_view":
            array = array.cast(pa.large_string())
        array = array.dictionary_encode()
    array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    place = array.indices.fill_null(-1).to_numpy().astype(np.int64)
    used = np.bincount(place + 1, minlength=len(array.dictionary) + 1)[1:] > 0  # a dictionary may hold what no row has
    plain = [scalar(entry, column) if use else None for entry, use in zip(array.dictionary.to_pylist(), used)]
    codes = np.array([-1 if entry is None else space.code(column, entry[0]) for entry in plain] + [-1], np.int64)[place]
    present = codes >= 0
    return present, codes[present], np.ones(int(present.sum())), int(len(present) - present.sum())


def _is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _side_by_side(cells: list[Cells], rows: int) -> Coded:
    """Columns to rows: a record has the entries of its columns one after the other."""
    start = np.zeros(rows + 1, np.int64)
    for lengths, _, _ in cells:
        start[1:] += lengths
    np.cumsum(start, out=start)
    code, value, cursor = np.empty(start[-1], np.int64), np.empty(start[-1]), start[:-1].copy()
    for lengths, codes, values in cells:
        at = np.repeat(cursor - (np.cumsum(lengths) - lengths), lengths) + np.arange(len(codes))
        code[at], value[at] = codes, values
        cursor += lengths
    return Coded(start, code, value)
