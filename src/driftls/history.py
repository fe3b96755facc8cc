"""What was observed: the rows that a tracker draws from.

`Growing` keeps all of them in memory, `Mapped` on disk; `Reservoir` keeps a bounded sample that is uniform over all
rows seen, `Window` the newest ones. A history is dense or sparse as the first rows are, and serves one tracker.
"""

from __future__ import annotations

import contextlib
import json
import os
import weakref
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from driftls.errors import CorruptFileError, FileFormatError, NewerFileError, SettingsError
from driftls.kernels.learn import GROWING, NOTHING, RESERVOIR, WINDOW
from driftls.kernels.parts import Frame
from driftls.kernels.records import COUNTS, ROWS
from driftls.persistence import expect, whole
from driftls.units import Change, widened

__all__ = ["Growing", "History", "Mapped", "Reservoir", "Window"]

Array = NDArray[Any]
FIRST_BYTES = 1 << 16
CLOSED = "this history was closed. Load the tracker again to go on with its rows."


class History:
    """The base: arrays that are filled by the kernels and grow when asked to.

    A history owns two records: `frame`, where its rows lie, and `counts`, how many there are.
    """

    kind: ClassVar[int] = NOTHING
    evicts: ClassVar[bool] = False

    def __init__(self) -> None:
        self.capacity: int | None = None
        self.arrays: dict[str, Array] = {}
        self.frame, self.counts = Frame(ROWS), Frame(COUNTS)
        self.dim, self.sparse, self.closed = 0, False, False

    def __len__(self) -> int:
        """Rows held now."""
        return int(self.counts["held"])

    @property
    def seen(self) -> int:
        """Rows that ever came."""
        return int(self.counts["seen"])

    def open(self, dim: int, sparse: bool) -> None:
        """Make room for rows of this dimension and kind; once, by the tracker that owns the history."""
        if self.arrays or self.dim:
            raise SettingsError("a history serves one tracker. Give each tracker a history of its own.")
        self.dim, self.sparse = dim, sparse
        self.counts["kind"] = self.kind
        self.frame.set(sparse=sparse, dim=dim)
        if self.kind != NOTHING:
            first = max(16, FIRST_BYTES // (8 if sparse else 8 * dim))
            first = first if self.capacity is None else min(first, self.capacity)
            self._allocate(first, 16 * first if sparse else 0)

    def unopen(self) -> None:
        """Nothing was stored yet: the first rows were refused, and the next ones decide again."""
        self.arrays, self.dim = {}, 0
        self.counts.memory[:] = 0

    def _new(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return np.zeros(shape, dtype=dtype)

    def _grown(self, name: str, old: Array, length: int) -> Array:
        new = self._new(name, (length, *old.shape[1:]), old.dtype)
        new[: len(old)] = old[:length]
        return new

    def _allocate(self, length: int, arena: int) -> None:
        new = self._new
        self.arrays = {"y": new("y", (length,), np.float64)}
        if self.sparse:
            self.arrays |= {name: new(name, (length,), np.int64) for name in ("start", "stop")}
            self.arrays["indices"] = new("indices", (arena,), np.int32)
            self.arrays["values"] = new("values", (arena,), np.float64)
        else:
            self.arrays["values"] = new("values", (length, self.dim), np.float64)
        self._write_addresses(length)

    def _write_addresses(self, length: int) -> None:
        self.frame.set(**self.arrays, count=length, room=len(self.arrays["values"]) if self.sparse else 0)
        self.counts["capacity"] = length if self.capacity is None else self.capacity

    def reserve(self, count: int, nnz: int) -> None:
        """Make room for `count` more rows with `nnz` entries in all."""
        if self.closed:
            raise SettingsError(CLOSED)
        if self.kind == NOTHING:
            return
        held, used, length = len(self), int(self.counts["used"]), len(self.arrays["y"])
        wanted = held + count if self.capacity is None else min(held + count, self.capacity)
        if wanted > length:
            length = max(wanted, 2 * length)
            length = length if self.capacity is None else min(length, self.capacity)
            per_row = [name for name in self.arrays if not (self.sparse and name in ("indices", "values"))]
            grown = {name: self._grown(name, self.arrays[name], length) for name in per_row}
            self.arrays |= grown
        if self.sparse and used + nnz > len(self.arrays["indices"]):
            self._make_arena(nnz)
        self._write_addresses(length)

    def _make_arena(self, nnz: int) -> None:
        """More room for sparse entries; where rows are overwritten, what they left behind is cleared out first."""
        used, arrays = int(self.counts["used"]), self.arrays
        if self.evicts:
            held = len(self)
            start, index, value = self._packed()
            arrays["start"][:held], arrays["stop"][:held] = start[:-1], start[1:]
            used = self.counts["used"] = index.size
            arrays |= {"indices": index, "values": value}
        length = max(used + nnz, 2 * used, 16)
        self.arrays = arrays | {name: self._grown(name, arrays[name][:used], length) for name in ("indices", "values")}

    def _packed(self) -> tuple[NDArray[np.int64], Array, Array]:
        """Starts, indices and values of the held rows, slot after slot, without gaps."""
        held, arrays = len(self), self.arrays
        lengths = arrays["stop"][:held] - arrays["start"][:held]
        start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        where = np.repeat(arrays["start"][:held] - start[:-1], lengths) + np.arange(start[-1])
        return start, arrays["indices"][where], arrays["values"][where]

    def matrix(self, first: int = 0) -> tuple[Any, NDArray[np.float64]]:
        """X (an array, or CSR) and y of the held rows from slot `first` on, copied."""
        held = len(self)
        if self.closed and held:
            raise SettingsError(CLOSED)
        if not self.arrays:
            return np.empty((0, self.dim)), np.empty(0)
        y = self.arrays["y"][first:held].copy()
        if not self.sparse:
            return self.arrays["values"][first:held].copy(), y
        start, index, value = self._packed()
        return sp.csr_array((value, index, start), shape=(held, self.dim))[first:], y

    def change_units(self, change: Change) -> None:
        """Rewrite the held rows in new units."""
        held = len(self)
        if not self.arrays or not held:
            return
        y, values = self.arrays["y"], self.arrays["values"]
        y[:held] -= change.offset
        if not self.sparse:
            values[:held] = change.rows(values[:held])
            return
        used = int(self.counts["used"])
        scale = np.append(change.scale, change.after / change.before)
        values[:used] *= scale[self.arrays["indices"][:used]]

    def grow(self, before: int, after: int) -> None:
        """Rows of `after` features instead of `before`, and the constant behind them, if there is one."""
        self.dim += after - before
        self.frame["dim"] = self.dim
        if self.arrays and self.sparse:
            index = self.arrays["indices"]
            index[index == before] = after
        elif self.arrays:
            values = self._new("values", (len(self.arrays["values"]), self.dim), np.float64)
            self.frame["values"] = self.arrays["values"] = widened(self.arrays["values"], values, before, after)

    def header(self) -> dict[str, Any]:
        """Settings and counters, for a file."""
        return {
            "kind": type(self).__name__,
            "capacity": self.capacity,
            "open": bool(self.dim),
            "seen": self.seen,
            "held": len(self),
        }

    def saved_arrays(self) -> dict[str, Array]:
        """The rows, for a file."""
        held = len(self)
        if not self.arrays:
            return {}
        if not self.sparse:
            return {"values": self.arrays["values"][:held], "y": self.arrays["y"][:held]}
        start, index, value = self._packed()
        return {"start": start, "indices": index, "values": value, "y": self.arrays["y"][:held]}

    def restore(self, dim: int, sparse: bool, header: dict[str, Any], arrays: dict[str, Array]) -> None:
        """Fill a new history with what was saved; shapes and indices are looked at before anything is allocated."""
        seen, held = whole(header, "seen"), whole(header, "held")
        self.open(dim, sparse)
        if self.kind == NOTHING:
            self.counts["seen"] = seen
            return
        if held > seen or (self.capacity is not None and held > self.capacity):
            raise CorruptFileError(f"the history says that it holds {held} of {seen} rows, more than it can.")
        y = expect(arrays, "y", (held,), np.float64)
        if sparse:
            start = expect(arrays, "start", (held + 1,), np.int64)
            used = arrays["indices"].size if "indices" in arrays else 0
            index = expect(arrays, "indices", (used,), np.int32)
            values = expect(arrays, "values", (used,), np.float64)
            if start[0] != 0 or start[-1] != used or (np.diff(start) < 0).any():
                raise CorruptFileError("the history's rows do not lie within its entries.")
            falls = np.diff(index) <= 0
            falls[np.setdiff1d(start[1:-1], [0, used]) - 1] = False
            if used and (index.min() < 0 or index.max() >= dim or falls.any()):
                raise CorruptFileError(f"the history's indices do not increase within 0 ... {dim - 1}.")
            self.reserve(held, used)
            self.arrays["start"][:held], self.arrays["stop"][:held] = start[:-1], start[1:]
            self.arrays["indices"][:used], self.arrays["values"][:used] = index, values
            self.counts["used"] = used
        else:
            values = expect(arrays, "values", (held, dim), np.float64)
            self.reserve(held, 0)
            self.arrays["values"][:held] = values
        if not (np.isfinite(values).all() and np.isfinite(y).all()):
            raise CorruptFileError("the history's rows are not finite.")
        self.arrays["y"][:held] = y
        self.counts.set(seen=seen, held=held)


class Growing(History):
    """All rows, in memory: 8 d + 8 bytes a dense row, 12 nnz + 24 a sparse one.

    Room grows by doubling, so that up to twice as much may be set aside.
    """

    kind = GROWING


class _Bounded(History):
    evicts = True

    def __init__(self, capacity: int) -> None:
        super().__init__()
        if isinstance(capacity, bool) or not (isinstance(capacity, int | np.integer) and 1 <= capacity < 2**40):
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
    VERSION: ClassVar[int] = 2

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = Path(path)
        self._release: weakref.finalize[..., Any] | None = None  # calling it lets go of the folder

    def open(self, dim: int, sparse: bool) -> None:
        if self.dim:
            super().open(dim, sparse)  # says that it serves one tracker
        self.path.mkdir(parents=True, exist_ok=True)
        self._take()
        try:
            if self._settings() is not None and self._held() > 0:
                raise SettingsError(
                    f"{self.path} already holds rows. Load the tracker that was saved with them, choose another "
                    "folder, or learn them anew: X, y = Mapped.read(path); tracker.partial_fit(X, y)."
                )
            (self.path / "history.json").unlink(missing_ok=True)
            self._map_counts()
            self.counts.memory[:] = 0
            super().open(dim, sparse)
            side = self.path / ".history.json.driftls-part"
            side.write_text(json.dumps({"version": self.VERSION, "dim": dim, "sparse": sparse}))
            side.replace(self.path / "history.json")
        except BaseException:
            self.unopen()
            raise

    def grow(self, before: int, after: int) -> None:
        raise SettingsError(
            "the files of a Mapped history keep their number of features. Hash them: Features(dim=...)."
        )

    def _map_counts(self) -> None:
        """The counters lie in a file: a process that is killed leaves those of its last whole row."""
        memory = self._new("counts", (len(COUNTS.names or ()),), np.int64)
        self.counts = Frame(COUNTS, memory.view(COUNTS))

    def unopen(self) -> None:
        self.counts = Frame(COUNTS)
        super().unopen()
        if self._release is not None:
            self._release()

    def _take(self) -> None:
        """One owner at a time: the lock ends with the process, however it ends."""
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # no such locks on this system
            pass
        except OSError:
            os.close(lock)
            raise SettingsError(f"{self.path} is in use by another tracker. Close that one first.") from None
        self._release = weakref.finalize(self, os.close, lock)

    def close(self) -> None:
        """Write everything to disk and let go of the folder; the tracker can still predict, but no longer learn."""
        self.flush()
        held, seen = len(self), self.seen
        self.frame.set(count=held, room=0)  # where the tracker still looks: no room, so it asks, and is told
        counts = Frame(COUNTS)
        counts.set(kind=self.kind, held=held, seen=seen)
        self._mapped, self.counts, self.closed = (self.arrays, self.counts), counts, True
        if self._release is not None:
            self._release()

    def flush(self) -> None:
        """Have the operating system write everything to disk now: rows first, then their count."""
        array: Any
        for array in (*self.arrays.values(), self.counts.memory):
            while array is not None and not isinstance(array, np.memmap):
                array = array.base
            if array is not None:
                array.flush()

    def _settings(self) -> dict[str, Any] | None:
        file = self.path / "history.json"
        if not file.exists():
            return None
        try:
            settings: dict[str, Any] = json.loads(file.read_text())
            version = int(settings["version"])
            whole(settings, "dim")
            settings["sparse"] = bool(settings["sparse"])
        except (ValueError, KeyError, TypeError, CorruptFileError) as error:
            raise CorruptFileError(f"{file}: cannot be read ({error!r}). Restore the folder from a copy.") from error
        if version != self.VERSION:
            kind = NewerFileError if version > self.VERSION else FileFormatError
            raise kind(
                f"{file}: version {version}, but this driftls reads version {self.VERSION}. "
                "Install the version of driftls that wrote it."
            )
        return settings

    def _new(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        file = self.path / name
        size = max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 8)
        with open(file, "a+b") as handle:
            before = os.fstat(handle.fileno()).st_size
            try:  # blocks are taken now: a disk that is full must not be noticed by writing to memory
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(handle.fileno(), 0, size)
                else:
                    handle.write(b"\0" * max(size - before, 0))
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(handle.fileno(), before)
                raise SettingsError(
                    f"{file}: no room for {size} bytes ({error.strerror}). Nothing was learned; make room on the disk."
                ) from error
        return np.memmap(file, dtype=dtype, mode="r+", shape=shape)

    def _grown(self, name: str, old: Array, length: int) -> Array:
        return self._new(name, (length, *old.shape[1:]), old.dtype)  # the file keeps what it had

    def _held(self) -> int:
        kept = np.fromfile(self.path / "counts", dtype=np.int64)
        return max(int(kept[2]), 0) if kept.size == len(COUNTS.names or ()) else 0

    def header(self) -> dict[str, Any]:
        if self.closed and len(self):
            raise SettingsError(CLOSED)
        self.flush()
        return {**super().header(), "path": str(self.path.resolve())}

    def saved_arrays(self) -> dict[str, Array]:
        return {}

    def restore(self, dim: int, sparse: bool, header: dict[str, Any], arrays: dict[str, Array]) -> None:
        kept, held = self._kept(), whole(header, "held")
        self._take()
        try:
            if (kept["dim"], kept["sparse"]) != (dim, sparse):
                raise FileFormatError(f"{self.path} holds rows of another tracker: {kept}. Check the folder's name.")
            there = self._held()
            if there < held:
                raise FileFormatError(
                    f"{self.path} holds {there} rows, but the tracker was saved with {held}. "
                    "Restore the folder from a copy."
                )
            for name in ("y", "start", "stop") if sparse else ("y",):
                self._must_have(name, 8 * held)
            self._must_have("values", 0 if sparse else 8 * held * dim)
            self._map_counts()
            self.dim, self.sparse = dim, sparse
            self.frame.set(sparse=sparse, dim=dim)
            self.counts["kind"] = self.kind
            # a process that ended while files grew may have left some of them shorter, beyond what is held
            self._allocate(max(self._size("y") // 8, held), self._size("indices") // 4 if sparse else 0)
            used = 0
            if sparse and held:
                start, stop = self.arrays["start"][:held], self.arrays["stop"][:held]
                used = int(stop.max())
                self._must_have("values", 8 * used)
                index = self.arrays["indices"][:used]
                good = start.min() >= 0 and (start <= stop).all() and used <= len(self.arrays["indices"])
                if not good or (used and (index.min() < 0 or index.max() >= dim)):
                    raise CorruptFileError(f"{self.path}: rows do not lie within its files. Restore it from a copy.")
            self.counts.set(held=held, seen=max(whole(header, "seen"), held), used=used)
        except BaseException:
            self.unopen()
            raise

    def _kept(self) -> dict[str, Any]:
        """The settings of a folder that must have some, with all of its files."""
        settings = self._settings()
        if settings is None:
            raise FileFormatError(f"{self.path} holds no rows: history.json is missing. Check the folder's name.")
        names = ["counts", "y", "values", *(("start", "stop", "indices") if settings["sparse"] else ())]
        missing = [name for name in names if not (self.path / name).is_file()]
        if missing:
            raise FileFormatError(f"{self.path}: {', '.join(missing)} is missing. Restore the folder from a copy.")
        return settings

    def _must_have(self, name: str, size: int) -> None:
        if self._size(name) < size:
            raise CorruptFileError(
                f"{self.path / name}: has {self._size(name)} of at least {size} bytes. Restore the folder from a copy."
            )

    def _size(self, name: str) -> int:
        return (self.path / name).stat().st_size

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> tuple[Any, NDArray[np.float64]]:
        """X and y of a folder's rows, copied into memory; its tracker may be learning meanwhile."""
        folder = cls(path)
        kept = folder._kept()
        held, dim = folder._held(), int(kept["dim"])  # counted first, and read then: files only grow
        if not held:
            return np.empty((0, dim)), np.empty(0)

        def column(name: str, dtype: DTypeLike, count: int) -> Array:
            folder._must_have(name, count * np.dtype(dtype).itemsize)
            return np.fromfile(folder.path / name, dtype=dtype, count=count)

        y = column("y", np.float64, held)
        if not kept["sparse"]:
            return column("values", np.float64, held * dim).reshape(held, dim), y
        start = np.concatenate([[0], column("stop", np.int64, held)])
        used = max(int(start[-1]), 0)
        index, values = column("indices", np.int32, used), column("values", np.float64, used)
        if (np.diff(start) < 0).any() or (used and not 0 <= index.min() <= index.max() < dim):
            raise CorruptFileError(f"{folder.path}: rows do not lie within its files. Restore it from a copy.")
        return sp.csr_array((values, index, start), shape=(held, dim)), y


def describe(history: History | None) -> str:
    """A history, as a person would type it."""
    if history is None or history.kind == NOTHING:
        return "None"
    inside = str(history.capacity or "")
    return f"{type(history).__name__}({repr(str(history.path)) if isinstance(history, Mapped) else inside})"


KINDS: dict[str, type[History]] = {kind.__name__: kind for kind in (History, Growing, Reservoir, Window, Mapped)}


def from_header(header: dict[str, Any]) -> History:
    """An empty history with the settings that `header` wrote down."""
    kind = KINDS.get(str(header.get("kind")))
    if kind is None:
        raise CorruptFileError(f"the file names an unknown history: {header.get('kind')!r}.")
    if kind is Mapped:
        return Mapped(str(header["path"]))
    return kind(whole(header, "capacity")) if issubclass(kind, _Bounded) else kind()
