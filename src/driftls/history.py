"""What was observed: the rows that a tracker draws from.

`Growing` keeps all of them in memory, `Mapped` on disk; `Reservoir` keeps a bounded sample that is uniform over all
rows seen, `Window` the newest ones. A history is dense or sparse as the first rows are, and serves one tracker.
"""

from __future__ import annotations

import fcntl
import json
import os
import weakref
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from driftls.errors import CorruptFileError, FileFormatError, NewerFileError, SettingsError
from driftls.kernels.frames import Array
from driftls.kernels.rows import DenseRows, SparseRows
from driftls.kernels.track import BOOK, CAPACITY, GROWING, HELD, KIND, NOTHING, RESERVOIR, SEEN, USED, WINDOW

__all__ = ["Growing", "History", "Mapped", "Reservoir", "Window"]

FIRST_BYTES = 1 << 16
CLOSED = "this history was closed. Load the tracker again to go on with its rows."


class History:
    """The base: arrays that are filled by the kernels and grow when asked to."""

    kind: ClassVar[int] = NOTHING
    evicts: ClassVar[bool] = False

    def __init__(self, *, dtype: DTypeLike = np.float64) -> None:
        try:
            self.dtype = np.dtype(dtype)
        except TypeError:
            raise SettingsError(f"dtype must be float64 or float32, got {dtype!r}.") from None
        if self.dtype not in (np.dtype(np.float64), np.dtype(np.float32)):
            raise SettingsError(f"dtype must be float64 or float32, got {self.dtype}.")
        self.capacity: int | None = None
        self.rows: DenseRows | SparseRows | None = None
        self.book: NDArray[np.int64] = np.zeros(BOOK, dtype=np.int64)
        self.owner: Any = None  # a weak reference to the tracker

    def __len__(self) -> int:
        """Rows held now."""
        return int(self.book[HELD])

    @property
    def seen(self) -> int:
        """Rows that ever came."""
        return int(self.book[SEEN])

    @property
    def sparse(self) -> bool:
        """Whether rows are kept sparse; decided by the first rows."""
        return isinstance(self.rows, SparseRows)

    def open(self, dim: int, sparse: bool) -> None:
        """Make room for rows of this dimension and kind; once, by the tracker that owns the history."""
        if self.rows is not None:
            raise SettingsError("a history serves one tracker. Give each tracker a history of its own.")
        self.dim = dim
        self.book[KIND] = self.kind
        first = self.capacity or max(16, FIRST_BYTES // (self.dtype.itemsize * (1 if sparse else dim)))
        self._allocate(first, 16 * first if sparse else 0, sparse)

    def unopen(self) -> None:
        """Nothing was stored yet: the first rows were refused, and the next ones decide again."""
        self.rows, self.owner = None, None
        self.book = np.zeros(BOOK, dtype=np.int64)

    def _new(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return np.empty(shape, dtype=dtype)

    def _grown(self, name: str, old: Array, length: int) -> Array:
        new = self._new(name, (length, *old.shape[1:]), old.dtype)
        new[: len(old)] = old
        return new

    def _allocate(self, length: int, arena: int, sparse: bool) -> None:
        y = self._new("y", (length,), np.float64)
        if sparse:
            self.rows = SparseRows(
                self._new("start", (length,), np.int64),
                self._new("stop", (length,), np.int64),
                self._new("indices", (arena,), np.int32),
                self._new("values", (arena,), self.dtype),
                y,
            )
        else:
            self.rows = DenseRows(self._new("X", (length, self.dim), self.dtype), y)
        self.book[CAPACITY] = length

    def reserve(self, count: int, nnz: int) -> bool:
        """Make room for `count` more rows with `nnz` entries in all; True if arrays moved."""
        moved, rows = False, self.rows
        if rows is None:
            raise SettingsError(CLOSED)
        if self.capacity is None and self.book[HELD] + count > self.book[CAPACITY]:
            length = max(int(self.book[HELD]) + count, 2 * int(self.book[CAPACITY]))
            per_row = {"X", "y", "start", "stop"} & set(rows._fields)
            rows = rows._replace(**{name: self._grown(name, getattr(rows, name), length) for name in per_row})
            self.book[CAPACITY] = length
            moved = True
        if isinstance(rows, SparseRows) and self.book[USED] + nnz > rows.indices.size:
            rows = self._arena(rows, nnz)
            moved = True
        self.rows = rows
        return moved

    def _arena(self, rows: SparseRows, nnz: int) -> SparseRows:
        """More room for sparse entries; where rows are overwritten, what they left behind is cleared out first."""
        if self.evicts:
            held = len(self)
            start, index, value = self._packed(rows)
            rows.start[:held], rows.stop[:held] = start[:-1], start[1:]
            rows = rows._replace(indices=index, values=value)
            self.book[USED] = index.size
        length = max(int(self.book[USED]) + nnz, 2 * int(self.book[USED]))
        return rows._replace(
            indices=self._grown("indices", rows.indices, length), values=self._grown("values", rows.values, length)
        )

    def _packed(self, rows: SparseRows) -> tuple[NDArray[np.int64], Array, Array]:
        """Starts, indices and values of the held rows, slot after slot, without gaps."""
        held = len(self)
        lengths = rows.stop[:held] - rows.start[:held]
        start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        where = np.repeat(rows.start[:held] - start[:-1], lengths) + np.arange(start[-1])
        return start, rows.indices[where], rows.values[where]

    def matrix(self, first: int = 0) -> tuple[Any, NDArray[np.float64]]:
        """X (an array, or CSR) and y of the held rows from slot `first` on."""
        rows, held = self.rows, len(self)
        if rows is None:
            if held:
                raise SettingsError(CLOSED)
            return np.empty((0, 0)), np.empty(0)
        if isinstance(rows, DenseRows):
            return rows.X[first:held], rows.y[first:held]
        start, index, value = self._packed(rows)
        X = sp.csr_array((value, index, start), shape=(held, self.dim))
        return X[first:], rows.y[first:held]

    def header(self) -> dict[str, Any]:
        """Settings and counters, for a file."""
        return {
            "kind": type(self).__name__,
            "capacity": self.capacity,
            "dtype": self.dtype.name,
            "sparse": self.sparse,
            "open": self.rows is not None,
            "book": [int(entry) for entry in self.book],
        }

    def arrays(self) -> dict[str, Array]:
        """The rows, for a file."""
        rows, held = self.rows, len(self)
        if rows is None:
            return {}
        if isinstance(rows, DenseRows):
            return {"X": rows.X[:held], "y": rows.y[:held]}
        start, index, value = self._packed(rows)
        return {"start": start, "indices": index, "values": value, "y": rows.y[:held]}

    def restore(self, dim: int, header: dict[str, Any], arrays: dict[str, Array]) -> None:
        """Fill a new history with what was saved."""
        if not header["open"]:
            return
        self.open(dim, header["sparse"])
        held = header["book"][HELD]
        self.reserve(held, arrays["indices"].size if header["sparse"] else 0)
        self.book[SEEN : USED + 1] = header["book"][SEEN : USED + 1]
        self.book[HELD] = held
        rows = self.rows
        if isinstance(rows, DenseRows):
            rows.X[:held] = arrays["X"]
        elif rows is not None:
            rows.start[:held], rows.stop[:held] = arrays["start"][:-1], arrays["start"][1:]
            used = arrays["indices"].size
            rows.indices[:used], rows.values[:used] = arrays["indices"], arrays["values"]
            self.book[USED] = used
        if rows is not None:
            rows.y[:held] = arrays["y"]


class Growing(History):
    """All rows, in memory: 8 d + 8 bytes a dense row (4 d + 8 as float32), 12 nnz + 24 a sparse one.

    Room grows by doubling, so that up to twice as much may be set aside.
    """

    kind = GROWING


class _Bounded(History):
    evicts = True

    def __init__(self, capacity: int, *, dtype: DTypeLike = np.float64) -> None:
        super().__init__(dtype=dtype)
        if not (isinstance(capacity, int | np.integer) and capacity >= 1):
            raise SettingsError(f"capacity must be a whole number of rows, at least 1, got {capacity!r}.")
        self.capacity = int(capacity)


class Reservoir(_Bounded):
    """At most `capacity` rows, a uniform sample of all that were seen."""

    kind = RESERVOIR


class Window(_Bounded):
    """The newest `capacity` rows: what is older is forgotten."""

    kind = WINDOW


class Mapped(History):
    """All rows, in files below the folder `path`: larger than memory, and still there after a restart.

    The folder belongs to one tracker at a time. `Tracker.save` keeps its name, not its rows; `Tracker.load` opens it
    again and drops rows that came after the save. `Mapped.read(path)` gives the rows to anyone.
    """

    kind = GROWING
    VERSION: ClassVar[int] = 1

    def __init__(self, path: str | os.PathLike[str], *, dtype: DTypeLike = np.float64) -> None:
        super().__init__(dtype=dtype)
        self.path = Path(path)
        self._release: weakref.finalize[..., Any] | None = None  # calling it lets go of the folder

    def open(self, dim: int, sparse: bool) -> None:
        if self.rows is not None:
            super().open(dim, sparse)  # says that it serves one tracker
        self.path.mkdir(parents=True, exist_ok=True)
        self._take()
        try:
            if self._settings() is not None and np.fromfile(self.path / "book", dtype=np.int64)[HELD] > 0:
                raise SettingsError(
                    f"{self.path} already holds rows. Load the tracker that was saved with them, choose another "
                    "folder, or learn them anew: X, y = Mapped.read(path); tracker.partial_fit(X, y)."
                )
            (self.path / "history.json").unlink(missing_ok=True)
            self.book = self._new("book", (BOOK,), np.int64)
            self.book[:] = 0
            super().open(dim, sparse)
            settings = {"version": self.VERSION, "dim": dim, "sparse": sparse, "dtype": self.dtype.name}
            part = self.path / ".history.json.part"
            part.write_text(json.dumps(settings))
            part.replace(self.path / "history.json")
        except BaseException:
            self.unopen()
            raise

    def unopen(self) -> None:
        super().unopen()
        if self._release is not None:
            self._release()

    def _take(self) -> None:
        """One owner at a time: the lock ends with the process, however it ends."""
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise SettingsError(f"{self.path} is in use by another tracker. Close that one first.") from None
        self._release = weakref.finalize(self, os.close, lock)

    def close(self) -> None:
        """Write everything to disk and let go of the folder; the tracker can still predict, but no longer learn."""
        self.flush()
        self.rows = None
        self.book = self.book.copy()
        tracker = None if self.owner is None else self.owner()
        if tracker is not None:
            tracker._let_go()
        if self._release is not None:
            self._release()

    def flush(self) -> None:
        """Have the operating system write everything to disk now: rows first, then their count."""
        for array in (*(self.rows or ()), self.book):
            if isinstance(array, np.memmap):
                array.flush()

    def _settings(self) -> dict[str, Any] | None:
        file = self.path / "history.json"
        if not file.exists():
            return None
        try:
            settings: dict[str, Any] = json.loads(file.read_text())
            version = int(settings["version"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(f"{file}: cannot be read ({error!r}). Restore the folder from a copy.") from error
        if version > self.VERSION:
            raise NewerFileError(
                f"{file}: version {version}, but this driftls reads up to {self.VERSION}. "
                "Install the version of driftls that wrote it, or a newer one."
            )
        return settings

    def _new(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        file = self.path / name
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        with open(file, "a+b") as handle:
            handle.truncate(max(size, 8))
        return np.memmap(file, dtype=dtype, mode="r+", shape=shape)

    def _grown(self, name: str, old: Array, length: int) -> Array:
        return self._new(name, (length, *old.shape[1:]), old.dtype)  # the file keeps what it had

    def header(self) -> dict[str, Any]:
        if self.rows is None and len(self):
            raise SettingsError(CLOSED)
        self.flush()
        return {**super().header(), "path": str(self.path.resolve())}

    def arrays(self) -> dict[str, Array]:
        return {}

    def restore(self, dim: int, header: dict[str, Any], arrays: dict[str, Array]) -> None:
        if not header["open"]:
            return
        kept = self._kept()
        self._take()
        try:
            if (kept["dim"], kept["sparse"], kept["dtype"]) != (dim, header["sparse"], header["dtype"]):
                raise FileFormatError(f"{self.path} holds rows of another tracker: {kept}. Check the folder's name.")
            self.dim = dim
            self.book = self._new("book", (BOOK,), np.int64)
            if self.book[HELD] < header["book"][HELD]:
                raise FileFormatError(
                    f"{self.path} holds {self.book[HELD]} rows, but the tracker was saved with "
                    f"{header['book'][HELD]}. Restore the folder from a copy."
                )
            # a process that ended while files grew may have left some of them shorter, beyond what is held
            length = self._size("y") // 8
            self._allocate(length, self._size("indices") // 4 if kept["sparse"] else 0, kept["sparse"])
            self.book[HELD : USED + 1] = header["book"][HELD : USED + 1]
        except BaseException:
            self.unopen()
            raise

    def _kept(self) -> dict[str, Any]:
        """The settings of a folder that must have some, with all of its files."""
        settings = self._settings()
        if settings is None:
            raise FileFormatError(f"{self.path} holds no rows: history.json is missing. Check the folder's name.")
        names = ["book", "y", *(("start", "stop", "indices", "values") if settings["sparse"] else ("X",))]
        missing = [name for name in names if not (self.path / name).is_file()]
        if missing:
            raise FileFormatError(f"{self.path}: {', '.join(missing)} is missing. Restore the folder from a copy.")
        return settings

    def _size(self, name: str) -> int:
        return (self.path / name).stat().st_size

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> tuple[Any, NDArray[np.float64]]:
        """X and y of a folder's rows, mapped (dense) or in memory (CSR); its tracker may be learning meanwhile.

        What is written to the arrays stays in this process.
        """
        folder = Path(path)
        kept = cls(folder)._kept()
        history = History(dtype=kept["dtype"])
        history.dim = kept["dim"]
        # counted first, and mapped then: files only grow
        history.book = np.fromfile(folder / "book", dtype=np.int64, count=BOOK)
        held, dtype = len(history), history.dtype

        def mapped(name: str, dtype: DTypeLike, shape: tuple[int, ...] | None = None) -> Array:
            return np.memmap(folder / name, dtype=dtype, mode="c", shape=shape)

        y = mapped("y", np.float64)
        if kept["sparse"]:
            start, stop = mapped("start", np.int64), mapped("stop", np.int64)
            history.rows = SparseRows(start, stop, mapped("indices", np.int32), mapped("values", dtype), y)
        else:
            shape = (held, kept["dim"])
            history.rows = DenseRows(mapped("X", dtype, shape) if held else np.empty(shape, dtype), y)
        return history.matrix()


def describe(history: History | None) -> str:
    """A history, as a person would type it."""
    if history is None:
        return "None"
    inside = (
        str(history.capacity) if history.capacity else repr(str(history.path)) if isinstance(history, Mapped) else ""
    )
    return f"{type(history).__name__}({inside})"


KINDS: dict[str, type[History]] = {kind.__name__: kind for kind in (Growing, Reservoir, Window, Mapped)}


def from_header(header: dict[str, Any]) -> History:
    """An empty history with the settings that `header` wrote down."""
    kind, dtype = KINDS[header["kind"]], header["dtype"]
    if kind is Mapped:
        return Mapped(header["path"], dtype=dtype)
    if issubclass(kind, _Bounded):
        return kind(header["capacity"], dtype=dtype)
    return kind(dtype=dtype)
