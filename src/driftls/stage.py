"""The stage: rows on their way to a kernel, copied to where it can read them.

Kernels never read a caller's sparse arrays: another thread could change an index between the look at it and its use.
Only blocks of dense rows are read where they lie, where no number can lead out of an array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.compiling.parts import Frame
from driftls.errors import InputError
from driftls.inputs import FLOAT, Rows, as_float, as_rows, fault
from driftls.kernels.records import ROWS
from driftls.kernels.rows import BAD_POINTER, NO_ROOM, OTHER_KIND, copy_in

MOST_LINES = np.iinfo(np.int32).max  # rows in one call
view: Any = memoryview
ARRAY = np.ndarray


class Stage:
    """Rows on their way to a kernel: the arrays of a record of rows, filled anew by every call.

    Rows in arrays of the common types are copied by a kernel (`copy_in`), which sees the arrays as they are; any others are
    converted first.
    """

    def __init__(self, dim: int, together: int = 1) -> None:
        self.dim, self._together = dim, together
        self.frame, self.scratch = Frame(ROWS), Frame(ROWS)
        self._address = self.frame.address
        self.units: Frame | None = None
        self.sparse: bool | None = None
        self.y = self.values = np.zeros(0)
        self._read: Any = None  # what is read where it lies

    def start(self, sparse: bool) -> None:
        """From now on rows are kept dense, or sparse."""
        self.sparse = sparse
        self.frame.set(sparse=sparse, dim=self.dim)
        self.lines(1)
        self._room(64 if sparse else self.dim)

    def measure(self, units: Frame) -> None:
        """Rows will be standardised by these units, in a place beside."""
        self.units = units
        self.scratch.set(sparse=bool(self.sparse), dim=units["dim"] + units["intercept"])
        self.frame.set(units=units, scratch=self.scratch)
        self.scratch.set(**self._beside(self.values.size, self.y.size))

    def give_slots(self, slots: NDArray[np.int64]) -> None:
        """Where the slots of the rows' arms are."""
        self.frame["slots"] = self.scratch["slots"] = slots

    def together(self, rows: int) -> None:
        """Have room to standardise so many dense rows at a time."""
        if rows > self._together:
            self._together = rows
            self.scratch.set(**self._beside(self.values.size, self.y.size))

    def _beside(self, values: int, lines: int) -> dict[str, Any]:
        """The place of standardised rows, where there are units: of all that are sparse, and of so many dense ones."""
        if self.units is None:
            return {}
        lines = lines if self.sparse else self._together
        size = values + lines if self.sparse else lines * self.scratch["dim"]
        start, stop = np.zeros((2, lines), np.int64)
        arrays = {"values": np.zeros(size), "indices": np.zeros(size if self.sparse else 1, np.int32)}
        return {**arrays, "y": np.zeros(lines), "start": start, "stop": stop, "count": lines, "room": size}

    # What grows makes all of its arrays first: where memory ends, or Ctrl-C comes, what was there stays as it was.

    def _room(self, size: int) -> None:
        """Have room for so many values."""
        if self.values.size < size:
            values, beside = np.zeros(size), self._beside(size, self.y.size)
            if self.sparse:
                self.frame["indices"] = np.zeros(size, np.int32)
            self.scratch.set(**beside)
            self.frame.set(values=values, home=values, space=size)
            self.values = values

    def lines(self, count: int) -> None:
        """Have room for so many rows."""
        if self.y.size < count:
            if count > MOST_LINES:
                raise InputError(f"one call takes at most {MOST_LINES:,} rows, got {count:,}. Pass them in pieces.")
            y, (start, stop) = np.zeros(count), np.zeros((2, count), np.int64)
            self.scratch.set(**self._beside(self.values.size, count))
            self.frame.set(y=y, start=start, stop=stop, count=count)
            self.reward, self.y = view(y), y

    def take_row(self, x: Any) -> bool:
        """One row in one of the common forms, a vector or (indices, values), at once; False if it needs `take`."""
        if type(x) is tuple and len(x) == 2:
            indices, values = x
            return type(indices) is type(values) is ARRAY and not copy_in.run(self._address, -1, 1, values, indices)
        return type(x) is ARRAY and not copy_in.run(self._address, -1, 1, x)

    def take(self, rows: NDArray[Any] | Rows, first: int = 0, count: int | None = None) -> int:
        """So many rows of a block with as many features, or all; returns how many they are."""
        count = rows.shape[0] if count is None else count
        if type(rows) is not Rows:
            dense: Any = rows
            if type(dense) is not ARRAY or copy_in.run(self._address, first, count, dense):
                dense = dense if dense.dtype == FLOAT and dense.flags.carray else as_float(dense)
                self._copy(first, count, dense)
            self._read = dense
            return count
        indices, values, start, dim = rows
        # a masked array, for one, would be read as if nothing were masked
        plain = type(indices) is type(values) is type(start) is ARRAY
        if not plain or (status := copy_in.run(self._address, first, count, values, indices, start)):
            if not plain or status == OTHER_KIND:
                indices, values, start, _ = as_rows(rows, dim)  # crossed arms are staged as users, which are shorter
                indices, values, start = indices.astype(np.int64), as_float(values), start.astype(np.int64)
            self._copy(first, count, values, indices, start)
        return count

    def _copy(self, first: int, count: int, *arrays: Any) -> None:
        """Copy rows of arrays that kernels can read, when there is room for them."""
        while status := copy_in.run(self._address, first, count, *arrays):
            if status != NO_ROOM:
                raise fault(BAD_POINTER if status == OTHER_KIND else int(status), "X", self.dim)
            self.lines(count)
            self._room(self.frame["wanted"] * (1 + bool(self.sparse)))
