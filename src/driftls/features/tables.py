"""Tables of pandas, polars and Arrow as codes of names, column by column; pyarrow does it if it is installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftls.errors import InputError
from driftls.features.columns import LARGEST, Column, Space, as_record, scalar
from driftls.features.names import Coded, Floats, Ints
from driftls.kernels.features import take_cells
from driftls.kernels.parts import Frame
from driftls.kernels.records import CELLS

NONE, NOTHING = np.empty(0, np.int64), np.empty(0)
PIECE = 4096  # rows that are written at once, so that they stay in the processor's cache


class Cells(NamedTuple):
    """A column. Entry p has the code ``codes[place[p]]``, or codes[0] without places; the last code, -1, is of nulls.

    start: where the entries of each row begin, or empty if each has one. value: NaN is missing; without, all are 1.
    """

    start: Ints
    place: NDArray[np.int32]
    codes: Ints
    value: Floats


def is_table(x: Any) -> bool:
    """Whether `x` is a table: of pandas, polars, pyarrow, or whatever else has named columns."""
    return hasattr(x, "__getitem__") and (hasattr(x, "columns") or hasattr(x, "column_names"))


def is_records(x: Any) -> bool:
    """Whether `x` is what `Features` takes: a dict, a list of dicts, or a table."""
    if isinstance(x, list | tuple):
        return len(x) > 0 and as_record(x[0]) is not None
    return isinstance(x, Mapping) or is_table(x)


def coded(space: Space, records: Any) -> Coded:
    """The rows of a table, or of a list of dicts."""
    if is_table(records) or isinstance(records, Mapping):
        return coded_table(space, records)
    if isinstance(records, str | bytes) or not isinstance(records, Iterable):
        raise InputError(f"expected a table or a list of dicts, got {records!r}.")
    return space.coded(records)


def coded_table(space: Space, table: Any) -> Coded:
    """The rows of a table; what pyarrow cannot read (columns of many types) goes record by record."""
    if isinstance(table, Mapping):
        lengths = {
            -1 if isinstance(cells, str) or not hasattr(cells, "__len__") else len(cells) for cells in table.values()
        }
        if len(lengths) > 1 or -1 in lengths:
            raise InputError("expected columns of one length, got others. A single record goes to user() or arms().")
    arrow = as_arrow(table)
    if arrow is None:
        names = list(table if isinstance(table, Mapping) else table.columns)
        columns = [table[name].to_list() if hasattr(table[name], "to_list") else table[name] for name in names]
        return space.coded(dict(zip(names, row)) for row in zip(*columns))
    columns = [(space[name], array) for name, array in zip(arrow.column_names, arrow.columns)]
    cells = [_cells(space, column, array) for column, array in columns]
    start = np.zeros(arrow.num_rows + 1, np.int64)
    for (column, array), one in zip(columns, cells):
        if len(one.start) or len(one.value) or array.null_count or (one.codes[:-1] < 0).any():
            absent = take_cells(_frame(one, start[1:]), 0, arrow.num_rows)  # counts the entries of each row
        else:
            absent = 0
            start[1:] += 1
        space.call.tally(column, int(len(array) - (array.null_count if len(one.start) else absent)))
    np.cumsum(start, out=start)
    code, value, cursor = np.empty(start[-1], np.int64), np.empty(start[-1]), start[:-1].copy()
    frames = [_frame(one, cursor, code_out=code, value_out=value) for one in cells]
    for first in range(0, arrow.num_rows, PIECE):
        for frame in frames:
            take_cells(frame, first, min(PIECE, arrow.num_rows - first))
    space.call.tally(space, arrow.num_rows)
    return Coded(start, code, value)


def _frame(cells: Cells, cursor: Ints, **out: Any) -> Frame:
    """What a kernel needs of a column: an array that is not there has no address."""
    frame = Frame(CELLS)
    arrays = {name: np.ascontiguousarray(array) for name, array in cells._asdict().items() if len(array)}
    frame.set(**arrays, cursor=cursor, **out)
    return frame


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
    except (pa.ArrowException, TypeError, ValueError):
        return None


def _cells(space: Space, column: Column, array: Any) -> Cells:
    """A column of Arrow."""
    import pyarrow.compute as pc
    from pyarrow import types

    if not (types.is_list(array.type) or types.is_large_list(array.type) or types.is_fixed_size_list(array.type)):
        return _flat(space, column, array, None)
    start = np.zeros(len(array) + 1, np.int64)
    np.cumsum(pc.list_value_length(array).fill_null(0).to_numpy(), out=start[1:])
    place = np.arange(start[-1]) - np.repeat(start[:-1], np.diff(start))
    return _flat(space, column, pc.list_flatten(array), place.astype(np.int32))._replace(start=start)


def _flat(space: Space, column: Column, array: Any, place: Any) -> Cells:
    """Cells, or the entries of lists; `place`: where in its list a number stands."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_dictionary(kind) and not _is_text(kind.value_type):
        array, kind = array.cast(kind.value_type), kind.value_type
    if _is_number(kind) and not column.category:
        value = array.cast(pa.uint8()) if pa.types.is_boolean(kind) else array
        value = value.cast(pa.float64(), safe=False).to_numpy()  # nulls become NaN
        there = value == value
        if place is None and not there.all():
            column.meet_blank()
        largest = np.nanmax(np.abs(value)) if there.any() else -1.0
        if not largest < LARGEST:
            scalar(largest, column)  # which says what is wrong
        keys = [None] if place is None else range(int(place.max(initial=-1)) + 1)
        known = [column[key] if largest >= 0 else -1 for key in keys]
        return Cells(NONE, NONE.astype(np.int32) if place is None else place, np.array([*known, -1]), value)
    if not (_is_text(kind) or _is_number(kind) or pa.types.is_dictionary(kind) or pa.types.is_null(kind)):
        first = array.drop_null()[:1].to_pylist()
        scalar(first[0] if first else None, column)
        raise InputError(f"column {column.name!r}: expected numbers, text or lists of them, got {kind}.")
    array = array.cast(pa.large_string()) if pa.types.is_null(kind) or str(kind) == "string_view" else array
    chunked = pa.chunked_array([array]) if isinstance(array, pa.Array) else array
    chunks = chunked.dictionary_encode().unify_dictionaries().chunks
    array = pa.concat_arrays(chunks) if chunks else pa.nulls(0, pa.string()).dictionary_encode()
    size = len(array.dictionary)
    place = array.indices.fill_null(size).to_numpy().astype(np.int32, copy=False)
    used = np.arange(size)
    if pa.types.is_dictionary(kind):  # which may hold what no row has
        used = np.flatnonzero(np.bincount(place, minlength=size + 1)[:size])
    names = array.dictionary.take(pa.array(used)).to_pylist()
    if not _is_text(array.dictionary.type):
        names = [(scalar(number, column) or (None,))[0] for number in names]
    codes, there = np.full(size + 1, -1, np.int64), np.array([name is not None for name in names], bool)
    codes[used[there]] = column.categories([name for name in names if name is not None])
    return Cells(NONE, place, codes, NOTHING)


def _is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))
