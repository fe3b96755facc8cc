"""Histories in memory: all rows, the newest, or a sample of all."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.compiling.parts import Frame
from driftls.errors import CorruptFileError, SettingsError
from driftls.kernels.learn import GROWING, NOTHING, RESERVOIR, WINDOW
from driftls.kernels.records import COUNTS, ROWS
from driftls.persistence import expect, whole
from driftls.state import Shape, State, product
from driftls.units import Change

Array = NDArray[Any]
DENSE: dict[str, Shape] = {"y": ("rows",), "values": ("rows", "dim")}
SPARSE: dict[str, Shape] = {
    **{"y": ("rows",), "start": ("rows", np.int64), "stop": ("rows", np.int64)},
    **{"indices": ("entries", np.int32), "values": ("entries",)},
}
FIRST_BYTES, FIRST_ENTRIES = 1 << 16, 16  # of the first rows, and of a sparse one
ROWS_KEPT = 100_000  # a model, by default: docs/math/history.md has why so many, and why the newest
CLOSED = "this history was closed. Load the tracker again to go on with its rows."


class History:
    """The base, which keeps nothing: arrays that are filled by the kernels and grow when asked to.

    A history owns two records: `frame`, where its rows lie, and `counts`, how many there are.
    """

    kind: ClassVar[int] = NOTHING
    evicts: ClassVar[bool] = False

    def __init__(self) -> None:
        self.capacity: int | None = None
        self.arrays: dict[str, Array] = {}
        self._kept: State  # from the first rows on
        self._sized: Any = None  # makes arrays elsewhere than in memory
        self.frame, self.counts = Frame(ROWS), Frame(COUNTS)
        self.dim, self.sparse, self.closed = 0, False, False

    def __len__(self) -> int:
        """Rows held now."""
        return int(self.counts["held"])

    def __repr__(self) -> str:
        return "None" if self.kind == NOTHING else f"{type(self).__name__}({self.capacity or ''})"

    @property
    def seen(self) -> int:
        """Rows that ever came."""
        return int(self.counts["seen"])

    @property
    def dropped(self) -> bool:
        """Whether some rows are no longer held."""
        return self.evicts and self.seen > len(self)

    def mean_square(self) -> float:
        """Of the rewards held, in the tracker's units."""
        y = self.arrays["y"][: len(self)] if len(self) else np.zeros(1)
        return product(y, y) / y.size

    # -- room ------------------------------------------------------------------------------------------------------

    def open(self, dim: int, sparse: bool) -> None:
        """Make room for rows of this dimension and kind; once, by the tracker that owns the history."""
        if self.dim:
            raise SettingsError("a history serves one tracker. Give each tracker a history of its own.")
        self.dim, self.sparse = dim, sparse
        if self.kind != NOTHING:
            first = self._most(max(16, FIRST_BYTES // (24 + 12 * FIRST_ENTRIES if sparse else 8 * dim)))
            self._resize(first, FIRST_ENTRIES * first if sparse else 0)

    def unopen(self) -> None:
        """Nothing was stored yet: the first rows were refused, and the next ones decide again."""
        self.arrays, self.dim = {}, 0
        self.counts.memory[:] = 0

    def _most(self, rows: int) -> int:
        return rows if self.capacity is None else min(rows, self.capacity)

    def _resize(self, length: int, arena: int) -> None:
        """Have room for so many rows and, if they are sparse, for so many entries; what is there stays."""
        if self.arrays:
            self._kept.lengthen(rows=length, entries=arena)
        else:
            shapes, sizes = SPARSE if self.sparse else DENSE, {"dim": self.dim, "rows": length, "entries": arena}
            self._kept = State(self.frame, shapes, sizes, make=self._sized)
            self.arrays = self._kept.arrays
        self.frame.set(sparse=self.sparse, dim=self.dim, count=length, room=arena)
        self.counts.set(kind=self.kind, capacity=length if self.capacity is None else self.capacity)

    def reserve(self, count: int, nnz: int) -> None:
        """Make room for `count` more rows with `nnz` entries in all."""
        if self.closed:
            raise SettingsError(CLOSED)
        if self.kind == NOTHING:
            return
        length, wanted = len(self.arrays["y"]), self._most(len(self) + count)
        if wanted > length:
            length = self._most(max(wanted, 2 * length))
        used, arena = int(self.counts["used"]), self.arrays["values"].shape[0] if self.sparse else 0
        if self.sparse and used + nnz > arena:
            if self.dropped:
                used = self._clear_gaps()
            arena = max(used + nnz, 2 * used, 16)
        elif length == len(self.arrays["y"]):  # as most often: draws alone were asked for
            return
        self._resize(length, arena)

    def _clear_gaps(self) -> int:
        """Move sparse rows together, where others were overwritten; returns how many entries they have."""
        held = len(self)
        start, index, value = self._packed()
        self.arrays["start"][:held], self.arrays["stop"][:held] = start[:-1], start[1:]
        self.arrays |= {"indices": index, "values": value}
        self.counts["used"] = index.size
        return int(index.size)

    # -- reading ---------------------------------------------------------------------------------------------------

    def _packed(self, first: int = 0) -> tuple[NDArray[np.int64], Array, Array]:
        """Starts, indices and values of the held rows from slot `first` on, slot after slot, without gaps."""
        held, arrays = slice(first, len(self)), self.arrays
        lengths = arrays["stop"][held] - arrays["start"][held]
        start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        where = np.repeat(arrays["start"][held] - start[:-1], lengths) + np.arange(start[-1])
        return start, arrays["indices"][where], arrays["values"][where]

    def matrix(self, first: int = 0, *, copy: bool = True) -> tuple[Any, NDArray[np.float64]]:
        """X (an array, or CSR) and y of the held rows from slot `first` on, copied; or dense rows as they lie there."""
        held = len(self)
        if self.closed and held:
            raise SettingsError(CLOSED)
        if not self.arrays:
            return np.empty((0, self.dim)), np.empty(0)
        y = np.array(self.arrays["y"][first:held])
        if not self.sparse:
            return np.array(self.arrays["values"][first:held], copy=copy), y
        start, index, value = self._packed(first)
        return sp.csr_array((value, index, start), shape=(len(y), self.dim)), y

    def change_units(self, change: Change) -> None:
        """Rewrite the held rows in new units."""
        held = len(self)
        if not self.arrays or not held:
            return
        y, values = self.arrays["y"], self.arrays["values"]
        y[:held] -= change.offset
        if not self.sparse:
            change.rows(values[:held])
            return
        used = int(self.counts["used"])
        change.entries(values[:used], self.arrays["indices"][:used])

    def grow(self, before: int, after: int) -> None:
        """Rows of `after` features instead of `before`, and the constant behind them, if there is one."""
        dim = self.dim + after - before
        if self.arrays and self.sparse:
            index = self.arrays["indices"]
            index[index == before] = after
        elif self.arrays:
            self._kept.constant = self.dim > before
            self._kept.widen(dim)
        self.dim = dim
        self.frame["dim"] = dim

    # -- files -----------------------------------------------------------------------------------------------------

    def header(self) -> dict[str, Any]:
        """Settings and counters, for a file."""
        counts = {"open": bool(self.dim), "seen": self.seen, "held": len(self)}
        return {"kind": type(self).__name__, "capacity": self.capacity, **counts}

    def saved_arrays(self) -> dict[str, Array]:
        """The rows, for a file."""
        if not self.arrays:
            return {}
        if self.sparse:
            start, index, value = self._packed()
            packed = {"start": start[:-1], "stop": start[1:], "indices": index, "values": value}
        return {name: array[: len(self)] for name, array in self.arrays.items()} | (packed if self.sparse else {})

    def restore(self, dim: int, sparse: bool, header: dict[str, Any], arrays: dict[str, Array]) -> None:
        """Fill a new history with what was saved; shapes and indices are looked at before anything is allocated."""
        seen, held = whole(header, "seen"), whole(header, "held")
        self.open(dim, sparse)
        if self.kind == NOTHING:
            self.counts["seen"] = seen
            return
        if held > seen or held > self._most(held):
            raise CorruptFileError(f"the history says that it holds {held} of {seen} rows, more than it can.")
        expect(arrays, "y", (held,), np.float64)
        used = len(arrays.get("indices", ())) if sparse else 0
        expect(arrays, "values", (used,) if sparse else (held, dim), np.float64)
        self.reserve(held, used)
        _, rows = self._kept.read({}, arrays, rows=held, entries=used)
        if sparse and not within(rows["start"], rows["stop"], rows["indices"], dim):
            raise CorruptFileError(f"the history's rows do not lie within its entries, or within 0 ... {dim - 1}.")
        self._kept.fill({}, rows)
        self.counts.set(seen=seen, held=held, used=used)


def within(start: Array, stop: Array, index: Array, dim: int) -> bool:
    """Whether rows from `start` to `stop` fill all entries, one behind the other, and their indices increase within `dim`."""
    edges = np.append(0, stop)
    if edges[-1] != index.size or (start != edges[:-1]).any() or (start > stop).any():
        return False
    falls = np.append(np.diff(index) <= 0, False)
    falls[stop[stop > start] - 1] = False
    return not index.size or bool(index.min() >= 0 and index.max() < dim and not falls.any())


class Growing(History):
    """All rows, in memory: 8 d + 8 bytes a dense row, 12 nnz + 24 a sparse one, and up to twice that set aside."""

    kind = GROWING


class Bounded(History):
    """The base of those that drop rows."""

    evicts = True

    def __init__(self, capacity: int) -> None:
        super().__init__()
        if isinstance(capacity, bool) or not (isinstance(capacity, int | np.integer) and 1 <= capacity < 2**40):
            raise SettingsError(f"capacity must be a whole number of rows, at least 1, got {capacity!r}.")
        self.capacity = int(capacity)


class Reservoir(Bounded):
    """At most `capacity` rows, a uniform sample of all that were seen."""

    kind = RESERVOIR


class Window(Bounded):
    """The newest `capacity` rows: what is older is forgotten."""

    kind = WINDOW
