"""Tables of pandas, polars and Arrow as codes of names, column by column, by pyarrow if it is installed; and lines of logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftls.compiling.parts import Frame
from driftls.errors import InputError
from driftls.features.columns import LARGEST, Column, Space, as_record, scalar
from driftls.features.kernel import CELLS, take_cells
from driftls.features.names import Coded, Floats, Ints

if TYPE_CHECKING:
    from driftls.logs.events import Block

NONE, NOTHING = np.empty(0, np.int64), np.empty(0)
PIECE = 4096  # rows that are written at once, so that they stay in the processor's cache


class Cells(NamedTuple):
    """A column. Entry p has the code ``codes[place[p]]``, or codes[0] without places; the last code, -1, is of nulls.

    start: where the entries of each row begin, or empty if each has one; nulls: rows that have no list, not even an
    empty one. value: NaN is missing; without, all are 1.
    """

    start: Ints
    place: NDArray[np.int32]
    codes: Ints
    value: Floats
    nulls: int = 0


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
    names = list(table if isinstance(table, Mapping) else getattr(table, "column_names", None) or table.columns)
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"expected columns of different names, got {twice[0]!r} twice. Rename or drop one of them.")
    found = _columns(space, table)
    if found is None:
        return space.coded(dict(zip(names, row)) for row in zip(*(_listed(table[name]) for name in names)))
    rows, cells = found
    start = np.zeros(rows + 1, np.int64)
    for column, one in cells:
        absent = take_cells(_frame(one, start[1:]), 0, rows)  # counts the entries of each row
        space.call.tally(column, rows - (one.nulls if len(one.start) else int(absent)))
    np.cumsum(start, out=start)
    code, value, cursor = np.empty(start[-1], np.int64), np.empty(start[-1]), start[:-1].copy()
    frames = [_frame(one, cursor, code_out=code, value_out=value) for _, one in cells]
    for first in range(0, rows, PIECE):
        for frame in frames:
            take_cells(frame, first, min(PIECE, rows - first))
    space.call.tally(space, rows)
    return Coded(start, code, value)


def _listed(cells: Any) -> Any:
    """The cells of a column as Python has them."""
    made = getattr(cells, "to_pylist", None) or getattr(cells, "to_list", None)
    return made() if made else cells


def _frame(cells: Cells, cursor: Ints, **out: Any) -> Frame:
    """What a kernel needs of a column: an array that is not there has no address."""
    frame = Frame(CELLS)
    frame.set(cursor=cursor, **out)
    for name, array in zip(Cells._fields, cells):
        if isinstance(array, np.ndarray) and len(array):
            frame[name] = np.ascontiguousarray(array)
    return frame


def _columns(space: Space, table: Any) -> tuple[int, list[tuple[Column, Cells]]] | None:
    """The rows and columns of a table by pyarrow; None if there is none, or it cannot read one of them."""
    try:
        import pyarrow as pa
    except ImportError:
        return None
    pandas = type(table).__module__.startswith("pandas")
    try:
        if pandas:
            arrow = pa.Table.from_pandas(table, preserve_index=False)  # by the other way the index becomes a column
        else:
            arrow = table if isinstance(table, pa.Table) else pa.table(table)
        for name, kind in zip(arrow.column_names, arrow.schema.types):
            if (pandas or isinstance(table, Mapping)) and _is_list(kind) and any(map(_is_set, table[name])):
                return None
        return arrow.num_rows, [(space[name], _cells(space[name], arrow[name])) for name in arrow.column_names]
    except InputError:
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _is_set(cell: Any) -> bool:
    return isinstance(cell, set | frozenset)


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _cells(column: Column, array: Any) -> Cells:
    """A column of Arrow."""
    import pyarrow.compute as pc

    if not _is_list(array.type):
        return _flat(column, array, None)
    start = np.zeros(len(array) + 1, np.int64)
    np.cumsum(pc.list_value_length(array).fill_null(0).to_numpy(), out=start[1:])
    place = np.arange(start[-1]) - np.repeat(start[:-1], np.diff(start))
    flat = _flat(column, pc.list_flatten(array), place.astype(np.int32))
    return flat._replace(start=start, nulls=array.null_count)


def _flat(column: Column, array: Any, place: Any) -> Cells:
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
        raise TypeError  # dates and the like: read, or refused, cell by cell
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


def visitors(space: Space, block: Block) -> Coded:
    """The visitor of each line: a dict of a table, or features that are named by their numbers."""
    if block.visitor is not None:
        return space.coded(block.visitor.tolist())
    used, first, place = np.unique(block.user_index, return_index=True, return_inverse=True)
    code, names = np.empty(len(used), np.int64), used.tolist()
    for k in np.argsort(first).tolist():  # in the order in which lines name them
        code[k] = space[str(names[k])][None]
    return Coded(block.user_start, code[place], block.user_value)


def candidates(space: Space, block: Block) -> Coded:
    """The items of `pool_ids`: their ids, and their features where they have any."""
    if block.items is not None:
        return space.coded([block.items[k] for k in block.pool_ids.tolist()])
    items: list[Any] = [{"id": str(name)} for name in block.pool_ids.tolist()]
    if block.arm_features is not None:
        items = [one | dict(enumerate(cells)) for one, cells in zip(items, block.arm_features.tolist())]
    return space.coded(items)
