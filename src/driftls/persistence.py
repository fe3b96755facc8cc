"""Saved files: safetensors with a JSON header; written whole or not at all, checked when read, never pickle."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import stat
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import DTypeLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from driftls.errors import (
    CorruptFileError,
    DriftlsError,
    FileFormatError,
    MissingFileError,
    NewerFileError,
    OlderFileError,
    StorageError,
    TruncatedFileError,
    storage_error,
)

FORMAT = "driftls"
VERSION = 2  # the only one that is read; 0.1 wrote 1
LONGEST = 100_000_000  # bytes of a header, which is safetensors' own limit
FOREIGN = "not a file of driftls. Pass a file that save() wrote."
Path_ = str | os.PathLike[str]
Arrays = dict[str, NDArray[Any]]
Kind = TypeVar("Kind")


# -- writing -----------------------------------------------------------------------------------------------------------


def write(path: Path_, header: dict[str, Any], arrays: Arrays) -> None:
    """Save atomically: a reader finds the old file or the new one, whenever this process ends."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps({"version": VERSION, **header})
    content = save(arrays, metadata={FORMAT: f"{checksum(text, arrays)} {text}"})
    with atomic(path) as part:  # save_file has a temporary file of its own, which nobody would remove after a kill
        part.write_bytes(content)


@contextmanager
def atomic(path: Path_, *, folder: bool = False) -> Iterator[Path]:
    """A file (or a new folder) to write, which takes the place of `path` when the block ends well, else is removed.

    A link is followed: the file that it leads to is replaced. A new file has the mode that the umask gives, an old one
    keeps its own. What a process that was killed has left beside `path` is removed.
    """
    try:
        target = Path(os.path.realpath(path))
        mode = _mode(target, path, folder)
        _remove_orphans(target.parent)
        part = target.with_name(f".driftls-{_here()}-{os.getpid()}-{os.urandom(4).hex()}.part")
        try:
            part.mkdir() if folder else part.touch(exist_ok=False)
            mode = mode or os.stat(part).st_mode
            yield part
            os.chmod(part, stat.S_IMODE(mode))
            for written in (file for file in (part, *part.rglob("*")) if file.is_file()):
                with written.open("r+b") as file:
                    os.fsync(file.fileno())
            os.replace(part, target)
            _sync(target.parent)
        finally:
            _remove(part)
    except StorageError:
        raise
    except OSError as error:  # of the name that was given, not of one that nobody knows
        raise storage_error(error, os.fspath(path)) from error


def _sync(folder: Path) -> None:
    """Have a new name on disk, too: a file without one is lost with the power."""
    with suppress(OSError):  # where folders cannot be opened or synced: the file is there already
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def make_folder(path: Path_) -> Path:
    """A folder of that name, with all above it; one that is there is fine."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, os.fspath(path)) from error
    return Path(path)


def _mode(target: Path, path: Path_, folder: bool) -> int | None:
    """The mode of what is replaced, if there is something; what is no file (or folder) is refused."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise MissingFileError(
                f"{path}: there is no folder to save to. Make it first, or pass another path."
            ) from None
        return None
    if stat.S_IFMT(mode) != (stat.S_IFDIR if folder else stat.S_IFREG):
        expected = "a folder" if folder else "a file"
        raise StorageError(
            f"{path}: expected {expected} or a new name, got {_what(mode)}. Pass another name to save to."
        )
    return mode


def _what(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFREG: "a file", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _remove(path: str | Path) -> None:
    with suppress(NotADirectoryError, FileNotFoundError):
        shutil.rmtree(path)
    Path(path).unlink(missing_ok=True)


ORPHAN = re.compile(r"\.driftls-([0-9a-f]{8})-([0-9]{1,10})-[0-9a-f]{8}\.part")


def _here() -> str:
    """Where a process id means a process: this machine, and on Linux this container."""
    place = platform.node()
    with suppress(OSError):
        place += os.readlink("/proc/self/ns/pid")
    return f"{zlib.crc32(place.encode()):08x}"


@lru_cache(1000)
def _remove_orphans(folder: Path) -> None:
    """Remove what processes of this machine that are gone have left in the folder; a process looks there once."""
    if os.name != "posix":  # elsewhere a process cannot be asked for so simply
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found = ORPHAN.fullmatch(entry.name)
            if found and found[1] == _here() and not _alive(int(found[2])) and not entry.is_symlink():
                _remove(entry.path)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (PermissionError, OverflowError):
        return True
    except ProcessLookupError:
        return False
    return True


def checksum(text: str, arrays: Arrays) -> str:
    """Of a header, and of the name, kind and bytes of each array."""
    total = zlib.crc32(text.encode(errors="surrogatepass"))
    for name, array in sorted(arrays.items()):
        total = zlib.crc32(f"{name} {array.dtype.str}{array.shape}".encode(errors="surrogatepass"), total)
        total = zlib.crc32(array.reshape(-1).view(np.uint8).data, total)
    return f"{total:08x}"


# -- reading -----------------------------------------------------------------------------------------------------------


def read(path: Path_) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a file that `write` made, or an error that says what is wrong with it."""
    with reading(path):
        content = _content(path)
        try:
            arrays: Arrays = load(content)
        except (SafetensorError, ValueError, TypeError, KeyError) as error:
            if _is_cut(content):
                other = ", or is no file that save() wrote" if len(content) < 9 else ""
                told = f"ends after {len(content)} bytes: it was cut{other}. Restore it from a copy."
                raise TruncatedFileError(told) from None
            raise FileFormatError(FOREIGN) from error
        return _header(content[8 : 8 + int.from_bytes(content[:8], "little")], arrays), arrays


def _content(path: Path_) -> bytes:
    """All bytes of a file that begins as one of ours does; a foreign one may be larger than memory."""
    try:
        if not stat.S_ISREG(mode := os.stat(path).st_mode):  # a pipe would not answer, and a device not end
            raise FileFormatError(f"{_what(mode)}, {FOREIGN}")
        with open(path, "rb") as file:  # one file throughout: another process may put a new one in its place
            start = file.read(9)
            if len(start) == 9 and (int.from_bytes(start[:8], "little") > LONGEST or start[8:] != b"{"):
                raise FileFormatError(FOREIGN)
            return start + file.read()
    except OSError as error:
        raise storage_error(error, os.fspath(path)) from error


def _is_cut(content: bytes) -> bool:
    """Whether bytes are missing at the end, by what the beginning says."""
    end = 8 + int.from_bytes(content[:8], "little")
    with suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
        entries = json.loads(content[8:end])
        end += max(entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__")
    return len(content) < end


def _header(metadata: bytes, arrays: Arrays) -> dict[str, Any]:
    """Our JSON within the header of a safetensors file, which with these arrays has the sum that was written."""
    kept = json.loads(metadata).get("__metadata__", {}).get(FORMAT)
    if kept is None:
        raise FileFormatError("a safetensors file, but not driftls'. Pass a file that save() wrote.")
    expected, _, text = kept.partition(" ")
    header: dict[str, Any] = json.loads(text)
    version = whole(header, "version")
    if version > VERSION:
        raise NewerFileError(
            f"format version {version}, but this driftls reads up to {VERSION}. "
            "Install the version of driftls that wrote it, or a newer one."
        )
    if version < VERSION:  # of other sums
        raise OlderFileError(
            f"format version {version}, from driftls 0.1, but this driftls reads version {VERSION}. "
            "Learn it again with this version, or go on with the old one: pip install 'driftls<0.2'"
        )
    if expected != checksum(text, arrays):
        raise CorruptFileError(
            "the checksum does not match: it was changed after it was saved. Restore it from a copy."
        )
    return header


@contextmanager
def reading(path: Path_) -> Iterator[None]:
    """Errors of a file's content name the file; whatever else a strange content raises is a `CorruptFileError`."""
    name = Path(path).name
    try:
        yield
    except FileFormatError as error:
        raise error if str(error).startswith(f"{name}: ") else type(error)(f"{name}: {error}") from error.__cause__
    except DriftlsError:  # such as a function that has to be passed again
        raise
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise CorruptFileError(
            f"{name}: does not hold what it should ({what}). Restore the file from a copy."
        ) from error


def checked(value: Any, kind: type[Kind]) -> Kind:
    """A part of a header as `kind`, a type that msgspec knows, such as ``Annotated[int, Meta(ge=1)]`` or a Struct.

    >>> checked(3, Annotated[int, Meta(ge=1)])
    3
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise CorruptFileError(f"its header is not as it should be: {error}. Restore the file from a copy.") from None


def whole(header: Mapping[str, Any], name: str) -> int:
    """A whole number of at least 0 that a header has under this name.

    >>> whole({"rows": 3}, "rows")
    3
    """
    kind: Any = Annotated[int, Meta(ge=0, le=2**53)]
    return int(checked(header.get(name), kind))


def expect(arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int | None, ...], dtype: DTypeLike) -> Any:
    """The array of that name, of exactly this shape (None: any length) and dtype; a file may say anything.

    >>> expect({"theta": np.zeros(3)}, "theta", (3,), np.float64)
    array([0., 0., 0.])
    >>> expect({"theta": np.zeros(3)}, "theta", (2,), np.float64)
    Traceback (most recent call last):
    driftls.errors.CorruptFileError: `theta` must be float64 (2), got float64 (3). Restore the file from a copy.
    """
    array = arrays.get(name)
    if array is None:
        raise CorruptFileError(f"`{name}` is missing. Restore the file from a copy.")
    fits = len(shape) == array.ndim and all(want in (None, have) for want, have in zip(shape, array.shape))
    if not fits or array.dtype != np.dtype(dtype):
        want = ", ".join("any" if length is None else str(length) for length in shape)
        have = f"{array.dtype.name} ({', '.join(map(str, array.shape))})"
        raise CorruptFileError(
            f"`{name}` must be {np.dtype(dtype).name} ({want}), got {have}. Restore the file from a copy."
        )
    return array


class Saveable(ABC):
    """What can be written to one file and goes on from it as if it had never stopped."""

    @abstractmethod
    def snapshot(self) -> tuple[dict[str, Any], Arrays]:
        """Header (with the name of the class) and arrays, from which `from_snapshot` makes the same again."""

    @classmethod
    @abstractmethod
    def from_snapshot(cls, header: dict[str, Any], arrays: Arrays, **functions: Any) -> Self:
        """What `snapshot` wrote down."""

    @abstractmethod
    def functions(self) -> dict[str, Any]:
        """Schedules that are functions of n, which `load` has to be given again."""

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or a pickle for another process, is made of what a file would hold: never of addresses."""
        return partial(self.from_snapshot, **self.functions()), self.snapshot()

    def save(self, path: Path_) -> None:
        """Write everything to one file, atomically; `load` goes on as if it had never stopped."""
        write(path, *self.snapshot())

    @classmethod
    def load(cls, path: Path_, **functions: Any) -> Self:
        """Open a saved one. A step size or regularisation that was a function of n is passed again, by name."""
        header, arrays = read(path)
        with reading(path):
            if header.get("class") != cls.__name__:
                raise FileFormatError(f"holds a {header.get('class')}, not a {cls.__name__}. Use its own load().")
            return cls.from_snapshot(header, arrays, **functions)


def group(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names begin so, by the rest of their names."""
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
