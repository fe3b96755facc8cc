"""What was observed: the rows that a tracker draws from.

`Window` keeps the newest rows (the default, so that memory is bounded), `Reservoir` a uniform sample of all, `Growing`
all of them in memory, `Mapped` all of them on disk. A history is dense or sparse as the first rows are, and serves one
tracker.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from driftls import persistence
from driftls.errors import CorruptFileError, FileFormatError, SettingsError
from driftls.kernels.learn import GROWING, NOTHING, RESERVOIR, WINDOW
from driftls.kernels.parts import Frame
from driftls.kernels.records import COUNTS, ROWS
from driftls.persistence import expect, whole
from driftls.units import Change

__all__ = ["ROWS_KEPT", "Growing", "History", "Mapped", "Reservoir", "Window"]

Array = NDArray[Any]
FIRST_BYTES = 1 << 16
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

    # -- room ------------------------------------------------------------------------------------------------------

    def open(self, dim: int, sparse: bool) -> None:
        """Make room for rows of this dimension and kind; once, by the tracker that owns the history."""
        if self.dim:
            raise SettingsError("a history serves one tracker. Give each tracker a history of its own.")
        self.dim, self.sparse = dim, sparse
        if self.kind != NOTHING:
            first = self._most(max(16, FIRST_BYTES // (8 if sparse else 8 * dim)))
            self._resize(first, 16 * first if sparse else 0)

    def unopen(self) -> None:
        """Nothing was stored yet: the first rows were refused, and the next ones decide again."""
        self.arrays, self.dim = {}, 0
        self.counts.memory[:] = 0

    def _most(self, rows: int) -> int:
        return rows if self.capacity is None else min(rows, self.capacity)

    def _resize(self, length: int, arena: int) -> None:
        """Have room for so many rows and, if they are sparse, for so many entries; what is there stays."""
        shapes: dict[str, tuple[tuple[int, ...], DTypeLike]] = {"y": ((length,), np.float64)}
        if self.sparse:
            shapes |= {"start": ((length,), np.int64), "stop": ((length,), np.int64)}
            shapes |= {"indices": ((arena,), np.int32), "values": ((arena,), np.float64)}
        else:
            shapes["values"] = ((length, self.dim), np.float64)
        self.arrays = {name: self._sized(name, *shape) for name, shape in shapes.items()}
        self.frame.set(**self.arrays, sparse=self.sparse, dim=self.dim, count=length, room=arena)
        self.counts.set(kind=self.kind, capacity=length if self.capacity is None else self.capacity)

    def _sized(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """An array of this shape, with what the present one of that name has."""
        old = self.arrays.get(name)
        if old is not None and old.shape == shape:
            return old
        new = np.zeros(shape, dtype=dtype)
        if old is not None:
            new[: len(old)] = old
        return new

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
            if self.evicts:
                used = self._clear_gaps()
            arena = max(used + nnz, 2 * used, 16)
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
        y = np.array(self.arrays["y"][first:held])
        if not self.sparse:
            return np.array(self.arrays["values"][first:held]), y
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

    # -- files -----------------------------------------------------------------------------------------------------

    def header(self) -> dict[str, Any]:
        """Settings and counters, for a file."""
        counts = {"open": bool(self.dim), "seen": self.seen, "held": len(self)}
        return {"kind": type(self).__name__, "capacity": self.capacity, **counts}

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
        if held > seen or held > self._most(held):
            raise CorruptFileError(f"the history says that it holds {held} of {seen} rows, more than it can.")
        y, used = expect(arrays, "y", (held,), np.float64), 0
        if sparse:
            start = expect(arrays, "start", (held + 1,), np.int64)
            used = arrays["indices"].size if "indices" in arrays else 0
            index = expect(arrays, "indices", (used,), np.int32)
            if start[0] != 0 or start[-1] != used or (np.diff(start) < 0).any():
                raise CorruptFileError("the history's rows do not lie within its entries.")
            falls = np.diff(index) <= 0
            falls[np.setdiff1d(start[1:-1], [0, used]) - 1] = False
            if used and (index.min() < 0 or index.max() >= dim or falls.any()):
                raise CorruptFileError(f"the history's indices do not increase within 0 ... {dim - 1}.")
        values = expect(arrays, "values", (used,) if sparse else (held, dim), np.float64)
        if not (np.isfinite(values).all() and np.isfinite(y).all()):
            raise CorruptFileError("the history's rows are not finite.")
        self.reserve(held, used)
        self.arrays["y"][:held], self.arrays["values"][: len(values)] = y, values
        if sparse:
            self.arrays["start"][:held], self.arrays["stop"][:held] = start[:-1], start[1:]
            self.arrays["indices"][:used] = index
        self.counts.set(seen=seen, held=held, used=used)


class Growing(History):
    """All rows, in memory: 8 d + 8 bytes a dense row, 12 nnz + 24 a sparse one, and up to twice that set aside."""

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
    again and drops rows that came after the save. `Mapped.read(path)` gives the rows to anyone, in the units of the
    tracker: as they came, where it has `scale=False, intercept=False`.
    """

    kind = GROWING

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        try:
            self.path = Path(path)
        except TypeError:
            raise SettingsError(f"path must be the name of a folder, got {path!r}.") from None
        self._release: weakref.finalize[..., Any] | None = None  # calling it lets go of the folder

    def __repr__(self) -> str:
        return f"Mapped({str(self.path)!r})"

    def open(self, dim: int, sparse: bool) -> None:
        if self.dim:
            super().open(dim, sparse)  # says that it serves one tracker
        with self._taken():
            if (self.path / "settings").exists() and self._kept()[2] > 0:
                raise SettingsError(
                    f"{self.path} already holds rows. Load the tracker that was saved with them, choose another "
                    "folder, or learn them anew: X, y = Mapped.read(path); tracker.partial_fit(X, y)."
                )
            (self.path / "settings").unlink(missing_ok=True)
            self._map_counts()
            self.counts.memory[:], self._changes[0] = 0, 0
            super().open(dim, sparse)
            persistence.write(self.path / "settings", {}, {"shape": np.array([dim, sparse])})

    @contextlib.contextmanager
    def _taken(self) -> Iterator[None]:
        """Own the folder, unless what follows fails; the lock ends with the process, however it ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        except OSError as error:
            raise SettingsError(f"{self.path} cannot be written ({error.strerror}). Choose another folder.") from error
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # no such locks on this system
            pass
        except OSError:
            os.close(lock)
            raise SettingsError(f"{self.path} is in use by another tracker. Close that one first.") from None
        self._release = weakref.finalize(self, os.close, lock)
        try:
            yield
        except BaseException:
            self.unopen()
            raise

    def _map_counts(self) -> None:
        """Counters lie in files: a process that is killed leaves those of its last whole row."""
        memory = self._sized("counts", (len(COUNTS.names or ()),), np.int64)
        self.counts, self._changes = Frame(COUNTS, memory.view(COUNTS)), self._sized("changes", (1,), np.int64)

    def unopen(self) -> None:
        self.counts = Frame(COUNTS)
        super().unopen()
        if self._release is not None:
            self._release()

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

    def _sized(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        file, size = self.path / name, max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 8)
        with open(file, "a+b") as handle:
            before = os.fstat(handle.fileno()).st_size
            try:  # blocks are taken now: a disk that is full must not be noticed by writing to memory
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(handle.fileno(), 0, size)
                else:
                    handle.write(b"\0" * max(size - before, 0))
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.truncate(file, before)
                raise SettingsError(
                    f"{file}: no room for {size} bytes ({error.strerror}). Nothing was learned; make room on the disk."
                ) from error
        return np.memmap(file, dtype=dtype, mode="r+", shape=shape)

    def change_units(self, change: Change) -> None:
        if len(self):
            self._changes[0] += 1  # first: a process that ends meanwhile leaves rows that fit no tracker
        super().change_units(change)

    def header(self) -> dict[str, Any]:
        if self.closed and len(self):
            raise SettingsError(CLOSED)
        self.flush()
        changes = int(self._changes[0]) if self.dim else 0
        return {**super().header(), "path": str(self.path.resolve()), "changes": changes}

    def saved_arrays(self) -> dict[str, Array]:
        return {}

    def restore(self, dim: int, sparse: bool, header: dict[str, Any], arrays: dict[str, Array]) -> None:
        found, held = self._kept(), whole(header, "held")
        with self._taken():
            wrong = ""
            if found[:2] != (dim, sparse):
                wrong = f"holds rows of another tracker, of {found[0]} features. Check the folder's name."
            elif found[2] < held:
                wrong = f"holds {found[2]} rows, but the tracker was saved with {held}. Restore the folder from a copy."
            if wrong:
                raise FileFormatError(f"{self.path} {wrong}")
            self.dim, self.sparse = dim, sparse
            rows = self._rows(held)
            self._map_counts()
            if int(self._changes[0]) != header.get("changes", 0):
                raise FileFormatError(
                    f"the rows of {self.path} were rewritten in other units after the tracker was saved. Load a later "
                    "save, or learn them anew; with scale=False, intercept=False they stay as they are."
                )
            # a process that ended while files grew may have left some of them shorter, beyond what is held
            size = {name: (self.path / name).stat().st_size for name in rows}
            self._resize(max(size["y"] // 8, held), size.get("indices", 0) // 4)
            used = rows["indices"].size if sparse else 0
            self.counts.set(held=held, seen=max(whole(header, "seen"), held), used=used)

    def _kept(self) -> tuple[int, bool, int]:
        """Dimension and kind of the folder's rows, and how many it says that it holds."""
        if not (self.path / "settings").exists():
            raise FileFormatError(f"{self.path} holds no rows: settings is missing. Check the folder's name.")
        _, settings = persistence.read(self.path / "settings")
        dim, sparse = expect(settings, "shape", (2,), np.int64).tolist()
        names = ["counts", "y", "values", *(("start", "stop", "indices") if sparse else ())]
        missing = [name for name in names if not (self.path / name).is_file()]
        if missing:
            raise FileFormatError(f"{self.path}: {', '.join(missing)} is missing. Restore the folder from a copy.")
        counts = np.fromfile(self.path / "counts", dtype=np.int64)
        return dim, bool(sparse), max(int(counts[2]), 0) if counts.size == len(COUNTS.names or ()) else 0

    def _rows(self, held: int) -> dict[str, Array]:
        """The files as far as `held` rows use them; what is too short or leads astray is refused."""

        def column(name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
            file, size = self.path / name, int(np.prod(shape)) * np.dtype(dtype).itemsize
            found = file.stat().st_size
            if found < size:
                raise CorruptFileError(f"{file}: has {found} of at least {size} bytes. Restore the folder from a copy.")
            return np.memmap(file, dtype=dtype, mode="r", shape=shape) if size else np.empty(shape, dtype)

        rows = {"y": column("y", (held,), np.float64)}
        if not self.sparse:
            return rows | {"values": column("values", (held, self.dim), np.float64)}
        start, stop = (column(name, (held,), np.int64) for name in ("start", "stop"))
        good, used = bool((start >= 0).all() and (start <= stop).all()), int(stop.max(initial=0))
        index = column("indices", (used if good else 0,), np.int32)
        if not good or (used and not 0 <= index.min() <= index.max() < self.dim):
            raise CorruptFileError(f"{self.path}: rows do not lie within its files. Restore it from a copy.")
        return rows | {"start": start, "stop": stop, "indices": index, "values": column("values", (used,), np.float64)}

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> tuple[Any, NDArray[np.float64]]:
        """X and y of a folder's rows, copied into memory; its tracker may be learning meanwhile."""
        folder = cls(path)
        folder.dim, folder.sparse, held = folder._kept()  # counted first, and read then: files only grow
        folder.counts["held"] = held
        folder.arrays = folder._rows(held)
        return folder.matrix()


KINDS: dict[str, type[History]] = {kind.__name__: kind for kind in (History, Growing, Reservoir, Window, Mapped)}


def from_header(header: dict[str, Any]) -> History:
    """An empty history with the settings that `header` wrote down."""
    kind = KINDS.get(str(header.get("kind")))
    if kind is None:
        raise CorruptFileError(f"the file names an unknown history: {header.get('kind')!r}.")
    if kind is Mapped:
        return Mapped(str(header["path"]))
    return kind(whole(header, "capacity")) if issubclass(kind, _Bounded) else kind()
