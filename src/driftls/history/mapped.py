"""A history on disk: files that are mapped into memory, and outlive the process."""

from __future__ import annotations

import contextlib
import math
import os
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from driftls.compiling.parts import Frame
from driftls.errors import CorruptFileError, FileFormatError, SettingsError
from driftls.history.rows import CLOSED, Array, History
from driftls.kernels.learn import GROWING
from driftls.kernels.records import COUNTS
from driftls.persistence import whole
from driftls.units import Change

VERSION = 2  # of a folder
HEAD = ("version", "dim", "sparse", "changes", *(COUNTS.names or ()))  # of its settings, whole numbers of 64 bits
CHANGES = HEAD.index("changes")  # how often rows were rewritten in other units
RESTORE = "Restore the folder from a copy."


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
        self._sized = partial(sized, self.path)
        self._release: weakref.finalize[..., Any] | None = None  # calling it lets go of the folder

    def __repr__(self) -> str:
        return f"Mapped({str(self.path)!r})"

    def open(self, dim: int, sparse: bool) -> None:
        if self.dim:
            super().open(dim, sparse)  # says that it serves one tracker
        with self._taken():
            if (self.path / "settings").exists() and self._told()["held"]:
                raise SettingsError(
                    f"{self.path} already holds rows. Load the tracker that was saved with them, choose another "
                    "folder, or learn them anew: X, y = Mapped.read(path); tracker.partial_fit(X, y)."
                )
            self._map_head()
            self._head[:] = VERSION, dim, sparse, *[0] * (len(HEAD) - 3)
            super().open(dim, sparse)

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

    def grow(self, before: int, after: int) -> None:
        raise SettingsError(
            "the files of a Mapped history keep their number of features. Hash them: Features(dim=...)."
        )

    def _map_head(self) -> None:
        """Counters lie in a file: a process that is killed leaves those of its last whole row."""
        self._head = self._sized("settings", (len(HEAD),), np.int64)
        self.counts = Frame(COUNTS, self._head[-len(COUNTS.names or ()) :].view(COUNTS))

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
        self.counts, self.closed = counts, True
        if self._release is not None:
            self._release()

    def flush(self) -> None:
        """Have the operating system write everything to disk now: rows first, then their count."""
        array: Any
        for array in (*self.arrays.values(), *([self._head] if self.dim else [])):
            array.flush()

    def change_units(self, change: Change) -> None:
        if len(self):
            self._head[CHANGES] += 1  # first: a process that ends meanwhile leaves rows that fit no tracker
        super().change_units(change)

    def header(self) -> dict[str, Any]:
        if self.closed and len(self):
            raise SettingsError(CLOSED)
        self.flush()
        changes = int(self._head[CHANGES]) if self.dim else 0
        return {**super().header(), "path": str(self.path.resolve()), "changes": changes}

    def saved_arrays(self) -> dict[str, Array]:
        return {}

    def restore(self, dim: int, sparse: bool, header: dict[str, Any], arrays: dict[str, Array]) -> None:
        found, held = self._told(), whole(header, "held")
        with self._taken():
            wrong = ""
            if (found["dim"], found["sparse"]) != (dim, sparse):
                wrong = f"holds rows of another tracker, of {found['dim']} features. Check the folder's name."
            elif found["held"] < held:
                wrong = f"holds {found['held']} rows, but the tracker was saved with {held}. {RESTORE}"
            elif self._told()["changes"] != header.get("changes", 0):
                wrong = (
                    "has rows that were rewritten in other units after the tracker was saved. Load a later save, or "
                    "learn them anew; with scale=False, intercept=False they stay as they are."
                )
            if wrong:
                raise FileFormatError(f"{self.path} {wrong}")
            self.dim, self.sparse = dim, sparse
            rows = self._rows(held)
            self._map_head()
            # a process that ended while files grew may have left some of them shorter, beyond what is held
            self._resize(max(self._size("y") // 8, held), self._size("indices") // 4)
            used = rows["indices"].size if sparse else 0
            self.counts.set(held=held, seen=max(whole(header, "seen"), held), used=used)

    def _told(self) -> dict[str, int]:
        """What the folder says of itself."""
        if not (self.path / "settings").exists():
            raise FileFormatError(f"{self.path} holds no rows: settings is missing. Check the folder's name.")
        found = np.fromfile(self.path / "settings", np.int64)
        if found.size != len(HEAD) or found[0] != VERSION or found.min() < 0:
            raise FileFormatError(f"{self.path}: settings is damaged, or of another version of driftls. {RESTORE}")
        return dict(zip(HEAD, found.tolist()))

    def _size(self, name: str) -> int:
        file = self.path / name
        return file.stat().st_size if file.exists() else 0

    def _rows(self, held: int) -> dict[str, Array]:
        """The files as far as `held` rows use them; what is too short or leads astray is refused."""

        def column(name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
            found, size = self._size(name), math.prod(shape) * np.dtype(dtype).itemsize
            if found < size:
                raise CorruptFileError(f"{self.path / name}: has {found} of at least {size} bytes. {RESTORE}")
            return np.memmap(self.path / name, dtype, "r", shape=shape) if size else np.empty(shape, dtype)

        rows = {"y": column("y", (held,), np.float64)}
        if not self.sparse:
            return rows | {"values": column("values", (held, self.dim), np.float64)}
        start, stop = (column(name, (held,), np.int64) for name in ("start", "stop"))
        good, used = bool((start >= 0).all() and (start <= stop).all()), int(stop.max(initial=0))
        index = column("indices", (used if good else 0,), np.int32)
        if not good or (used and not 0 <= index.min() <= index.max() < self.dim):
            raise CorruptFileError(f"{self.path}: rows do not lie within its files. {RESTORE}")
        return rows | {"start": start, "stop": stop, "indices": index, "values": column("values", (used,), np.float64)}

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> tuple[Any, NDArray[np.float64]]:
        """X and y of a folder's rows, copied into memory; its tracker may be learning meanwhile."""
        folder = cls(path)
        found = folder._told()  # counted first, and read then: files only grow
        folder.dim, folder.sparse, folder.counts["held"] = found["dim"], bool(found["sparse"]), found["held"]
        folder.arrays = folder._rows(found["held"])
        return folder.matrix()


def sized(folder: Path, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """The array that a file of the folder holds, in which there is room for this shape from now on."""
    file, size = folder / name, max(math.prod(shape) * np.dtype(dtype).itemsize, 8)
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
