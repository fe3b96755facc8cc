"""The stage: rows on their way to a kernel, copied to where it can read them.

Kernels never read a caller's sparse arrays: another thread could change an index between the look at it and its use.
Only large dense blocks are read in place, where no number can lead out of an array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import InputError
from driftls.inputs import FLOAT, INDEX, POINTER, Rows, as_float, as_rows, fault, pointed
from driftls.kernels.parts import Frame
from driftls.kernels.records import ROWS
from driftls.kernels.rows import BAD_INDEX, BAD_POINTER, UNSORTED, copy_in

MOST_LINES = np.iinfo(np.int32).max  # rows in one call
IN_PLACE_FROM = 1 << 14  # numbers: below it a copy costs less than finding out where an array lies
view: Any = memoryview
OTHER = (TypeError, ValueError, IndexError)  # what a view says of an array of another type or shape than its own


class Stage:
    """Rows on their way to a kernel: the arrays of a record of rows, filled anew by every call.

    `constant` puts a feature that is always 1 behind the others: the intercept of a model. Single rows and small blocks
    are copied through views of the arrays, which take nothing but arrays of their own type and of the right length.
    """

    def __init__(self, dim: int, *, constant: bool = False) -> None:
        self.dim, self.inner, self.constant = dim, dim + constant, constant
        self.frame, self.scratch = Frame(ROWS), Frame(ROWS)
        self.units: Frame | None = None
        self.sparse: bool | None = None
        self._used = view(self.frame.fields["room"])  # entries of sparse rows: no pointer leads beyond them
        self.y = self.values = np.zeros(0)
        self._row = view(self.values)
        self._in_place = False
        self._block: tuple[int, Any] = (-1, None)  # how many dense rows there last was room for, and these

    def start(self, sparse: bool) -> None:
        """From now on rows are kept dense, or sparse."""
        self.sparse = sparse
        self.frame.set(sparse=sparse, dim=self.inner, constant=self.constant)
        if sparse:
            self._source = Frame(ROWS)  # rows as they came, before the constant is put behind each
            self._source_used, self._long = (view(self._source.fields[name]) for name in ("room", "long"))
            self.frame["source"] = self._source
        self.lines(1)
        self._room(64 if sparse else self.inner)

    def measure(self, units: Frame) -> None:
        """Rows will be standardised by these units, in a place beside."""
        self.units = units
        self.scratch.set(sparse=bool(self.sparse), dim=self.inner)
        self.frame.set(units=units, scratch=self.scratch)
        self.scratch.set(**self._beside(self.values.size, self.y.size))

    def give_slots(self, slots: NDArray[np.int64]) -> None:
        """Where the slots of the rows' arms are."""
        self.frame["slots"] = self.scratch["slots"] = slots

    def _beside(self, size: int, lines: int) -> dict[str, Any]:
        """The place of standardised rows, where there are units: so many values, so many lines."""
        if self.units is None:
            return {}
        start, stop = np.zeros((2, lines), np.int64)
        arrays = {"values": np.zeros(size), "indices": np.zeros(size if self.sparse else 1, np.int32)}
        return {**arrays, "y": np.zeros(lines), "start": start, "stop": stop, "count": lines, "room": size}

    # What grows makes all of its arrays first: where memory ends, or Ctrl-C comes, what was there stays as it was.

    def _room(self, size: int) -> None:
        """Have room for so many values."""
        if self.values.size < size:
            values, beside = np.zeros(size), self._beside(size, self.y.size)
            if self.sparse:
                raw, indices = np.zeros(size), np.zeros(size, np.int32)
                short, long = np.zeros(size, np.int32), np.zeros(size, np.int64)
                self._source.set(indices=short, long_indices=long, values=raw)
                self._raw_indices, self._raw_values = {INDEX: view(short), POINTER: view(long)}, view(raw)
                self.frame["indices"], self._indices = indices, view(indices)
            elif self.constant:
                values[self.dim] = 1.0
            self.scratch.set(**beside)
            self.frame["values"] = values
            self._values, self._row = view(values), view(values)[: self.dim]
            self.values, self._in_place, self._block = values, False, (-1, None)
        elif self._in_place:
            self.frame["values"], self._in_place = self.values, False

    def lines(self, count: int) -> None:
        """Have room for so many rows."""
        if self.y.size < count:
            if count > MOST_LINES:
                raise InputError(f"one call takes at most {MOST_LINES:,} rows, got {count:,}. Pass them in pieces.")
            y, (start, stop), beside = (
                np.zeros(count),
                np.zeros((2, count), np.int64),
                self._beside(self.values.size, count),
            )
            if self.sparse:
                starts = np.zeros(count + 1, np.int64)
                self._source["start"], self._starts = starts, view(starts)
            self.scratch.set(**beside)
            self.frame.set(y=y, start=start, stop=stop, count=count)
            self.reward, self._stop, self.y = view(y), view(stop), y

    def take_row(self, x: Any) -> bool:
        """One row in one of the common forms, a vector or (indices, values), at once; False if it needs `take`."""
        if self.sparse is None:
            return False
        try:
            if not self.sparse:
                if self._in_place:
                    self._room(self.inner)
                if type(x) is not np.ndarray:  # a masked array, for one, would be read as if nothing were masked
                    return False
                self._row[:] = x
                return True
            return type(x) is tuple and self._take_pair(*x)
        except OTHER:
            return False

    def _take_pair(self, indices: Any, values: Any) -> bool:
        if not type(indices) is type(values) is np.ndarray:
            return False
        n = len(values)
        if indices.dtype is POINTER:
            self._starts[0], self._starts[1] = 0, n
            return self._take_raw(indices, values, n, 1)
        self._indices[:n], self._values[:n] = indices, values
        if self.constant:
            self._indices[n], self._values[n] = self.dim, 1.0
            n += 1
        self._stop[0] = self._used[0] = n
        return True

    def take_block(self, rows: Rows) -> bool:
        """Sparse rows in arrays of the common types, at once; False if they need `take`."""
        if not self.sparse:
            return False
        indices, values, start, _ = rows
        try:
            if not type(indices) is type(values) is type(start) is np.ndarray or start.dtype.kind not in "iu":
                return False
            count, used = len(start) - 1, len(values)
            if count == 1:  # a user, most often
                return start.item(0) == 0 and start.item(1) == used and self._take_pair(indices, values)
            if count < 1 or count > len(self._stop):
                return False
            self._starts[: count + 1] = start
            fits = self._starts[0] == 0 and self._starts[count] == used
            return fits and self._take_raw(indices, values, used, count)
        except OTHER:
            return False

    def _take_raw(self, indices: Any, values: Any, used: int, count: int) -> bool:
        """Rows whose starts are there, if there is room for them."""
        if used + count > len(self._values):
            return False
        try:
            self._raw_indices[indices.dtype][:used], self._raw_values[:used] = indices, values
        except KeyError:  # another type of indices
            return False
        self._copy_in(used, count, indices.dtype == POINTER)  # which may be another object, after a pickle
        return True

    def _copy_in(self, used: int, count: int, long: bool) -> None:
        self._source_used[0], self._long[0] = used, long
        if status := copy_in.run(self.frame.pointer, self.dim if self.constant else -1, count):
            raise fault(int(status), "X", self.dim)

    def take(self, rows: NDArray[Any] | Rows) -> int:
        """A block of rows with as many features; returns how many there are."""
        if type(rows) is Rows:
            if self.take_block(rows):
                return len(rows.start) - 1
            rows = as_rows(rows, rows.dim)  # crossed arms are staged as users, which are shorter
        count = int(rows.shape[0])
        self.lines(count)
        if self.sparse:
            self._take_sparse(rows if isinstance(rows, Rows) else _nonzeros(rows), count)
        elif isinstance(rows, Rows):
            self._take_scattered(rows, count)
        elif (
            rows.dtype == FLOAT
            and rows.size >= IN_PLACE_FROM
            and rows.flags.carray
            and not (self.constant or self.units)
        ):
            self.frame["values"], self._in_place = rows, True
        else:
            np.copyto(self._dense(count), rows if rows.dtype == FLOAT else as_float(rows))
        return count

    def take_one(self, rows: NDArray[Any] | Rows, k: int) -> None:
        """Row k of such a block, as row 0."""
        if not isinstance(rows, Rows):
            if not self.take_row(rows[k]):
                self.take(rows[k : k + 1])
            return
        indices, values, start, _ = rows
        try:
            first, last = start.item(k), start.item(k + 1)
            if 0 <= first <= last <= len(values) and self.take_row((indices[first:last], values[first:last])):
                return
        except OTHER:
            pass
        indices, values, start, _ = as_rows(rows, rows.dim)
        first, last = int(start[k]), int(start[k + 1])
        if not 0 <= first <= last <= min(indices.size, values.size):
            raise fault(BAD_POINTER, "X", self.dim)
        self.take(Rows(indices[first:last], values[first:last], np.array([0, last - first]), self.dim))

    def _dense(self, count: int) -> NDArray[np.float64]:
        """Room for dense rows, behind each of which stands its constant, if there is one."""
        if self._block[0] != count or self._in_place:
            self._room(count * self.inner)
            out = self.values[: count * self.inner].reshape(count, self.inner)
            out[:, self.dim :] = 1.0
            self._block = count, out[:, : self.dim]
        return self._block[1]  # type: ignore[no-any-return]

    def _take_sparse(self, rows: Rows, count: int) -> None:
        indices, values, start, _ = rows
        if values.dtype != FLOAT:
            values = as_float(values)
        self._source.arrays["start"][: count + 1] = start
        used = self._starts[count]
        if not 0 <= used <= min(indices.size, values.size):
            raise fault(BAD_POINTER, "X", self.dim)
        if self.values.size < used + count:
            self._room(2 * (used + count))
        source = self._source.arrays  # not the views, which mind how an array is aligned
        long = indices.dtype != INDEX  # or of another type: what does not fit must not become another index
        source["long_indices" if long else "indices"][:used], source["values"][:used] = indices[:used], values[:used]
        self._copy_in(used, count, long)

    def _take_scattered(self, rows: Rows, count: int) -> None:
        """Sparse rows, kept dense."""
        try:
            rows = pointed(rows.start, rows.indices, rows.values, rows.shape)
        except ValueError:
            raise fault(BAD_POINTER, "X", self.dim) from None
        column, line = np.array(rows.indices, dtype=np.int64), np.repeat(np.arange(count), np.diff(rows.start))
        if column.size and not 0 <= int(column.min()) <= int(column.max()) < self.dim:
            raise fault(BAD_INDEX, "X", self.dim)
        if ((np.diff(column) <= 0) & (np.diff(line) == 0)).any():
            raise fault(UNSORTED, "X", self.dim)
        out = self._dense(count)
        out[...] = 0.0
        out[line, column] = as_float(rows.values)


def _nonzeros(rows: NDArray[Any]) -> Rows:
    rows = as_float(rows)
    line, column = np.nonzero(rows)
    start = np.concatenate([[0], np.cumsum(np.bincount(line, minlength=rows.shape[0]))])
    return Rows(column, rows[line, column], start, rows.shape[1])
