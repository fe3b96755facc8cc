"""Saved files: safetensors with a JSON header; written whole or not at all, checked when read, never pickle."""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import stat
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Self, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import DTypeLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save_file

from driftls.errors import (
    CorruptFileError,
    DriftlsError,
    FileFormatError,
    NewerFileError,
    OlderFileError,
    TruncatedFileError,
)

__all__ = ["FORMAT", "VERSION", "Saveable", "atomic", "checked", "expect", "read", "reading", "write"]

FORMAT = "driftls"
VERSION = 2
OLDEST = 2  # that is still read
Path_ = str | os.PathLike[str]
Arrays = dict[str, NDArray[Any]]
Kind = TypeVar("Kind")


# -- writing -----------------------------------------------------------------------------------------------------------


def write(path: Path_, header: dict[str, Any], arrays: Arrays) -> None:
    """Save atomically: a reader finds the old file or the new one, whenever this process ends."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    sums = {name: checksum(array) for name, array in arrays.items()}
    text = json.dumps({"version": VERSION, "sums": sums, **header})
    with atomic(path) as part:
        save_file(arrays, part, metadata={FORMAT: f"{zlib.crc32(text.encode()):08x} {text}"})


@contextmanager
def atomic(path: Path_) -> Iterator[Path]:
    """A file to write, which takes the place of `path` when the block ends well, and is removed when it does not.

    A link is followed: the file that it leads to is replaced. A new file has the mode that the umask gives, an old one
    keeps its own. What a process that was killed has left beside `path` is removed.
    """
    target = Path(os.path.realpath(path))
    mode = _mode(target, path)
    _remove_orphans(target.parent)
    part = target.with_name(f".driftls-{_here()}-{os.getpid()}-{os.urandom(4).hex()}.part")
    try:
        with part.open("xb") as file:
            mode = os.fstat(file.fileno()).st_mode if mode is None else mode
    except OSError as error:  # of the name that was given, not of one that nobody knows
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from None
    try:
        yield part
        os.chmod(part, stat.S_IMODE(mode))  # safetensors writes a file that is the owner's alone
        with part.open("r+b") as file:
            os.fsync(file.fileno())
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    _sync(target.parent)


def _mode(target: Path, path: Path_) -> int | None:
    """The mode of the file that is replaced, if there is one; what is no file is refused."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(target.parent)) from None
        return None
    if not stat.S_ISREG(mode):
        raise FileFormatError(
            f"{path}: expected a file or a new name, got {_what(mode)}. Pass another name to save to."
        )
    return mode


def _what(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _sync(folder: Path) -> None:
    """Make a new name in the folder outlast a power cut, where a folder can be opened; the file itself is there."""
    if os.name == "posix":
        with suppress(OSError):
            number = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)


ORPHAN = re.compile(r"\.driftls-([0-9a-f]{8})-([0-9]{1,10})-[0-9a-f]{8}\.part")
_next_look: dict[Path, float] = {}


def _here() -> str:
    """Where a process id means a process: this machine, and on Linux this container."""
    place = platform.node()
    with suppress(OSError):
        place += os.readlink("/proc/self/ns/pid")
    return f"{zlib.crc32(place.encode()):08x}"


def _remove_orphans(folder: Path) -> None:
    """Remove what processes of this machine that are gone have left in the folder; at a cost of 1% of the time."""
    begin = monotonic()
    if os.name != "posix" or begin < _next_look.get(folder, 0.0):  # elsewhere a process cannot be asked for so simply
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found = ORPHAN.fullmatch(entry.name)
            if found and found[1] == _here() and not _alive(int(found[2])) and entry.is_file(follow_symlinks=False):
                Path(entry.path).unlink(missing_ok=True)
    _next_look[folder] = monotonic() + 100.0 * (monotonic() - begin)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def checksum(array: NDArray[Any]) -> int:
    """Of the bytes, and of what they are read as."""
    kind = f"{array.dtype.str}{array.shape}".encode()
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, zlib.crc32(kind))


# -- reading -----------------------------------------------------------------------------------------------------------


class _Seal(Struct):
    """What the header of every file has."""

    version: Annotated[int, Meta(ge=1)]
    sums: dict[str, Annotated[int, Meta(ge=0, lt=1 << 32)]]


def read(path: Path_) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a file that `write` made, or an error that says what is wrong with it."""
    path = Path(path)
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):  # a pipe would not answer, and a device not end
        raise FileFormatError(f"{path.name}: {_what(mode)}, not a file of driftls. Pass a file that save() wrote.")
    content = path.read_bytes()  # once: another process may put a new file in its place at any time
    kept = _metadata(path, content).get(FORMAT)
    if not isinstance(kept, str):
        raise FileFormatError(f"{path.name}: a safetensors file, but not driftls'. Pass a file that save() wrote.")
    with reading(path):
        header, sums = _header(kept)
        try:
            arrays: Arrays = load(content)
        except (SafetensorError, ValueError, TypeError, KeyError) as error:
            raise CorruptFileError(f"cannot be read ({error}). Restore the file from a copy.") from error
        if arrays.keys() != sums.keys():
            name = min(arrays.keys() ^ sums.keys())
            raise CorruptFileError(f"`{name}` has no checksum, or no array. Restore the file from a copy.")
        for name, array in arrays.items():
            if checksum(array) != sums[name]:
                raise CorruptFileError(f"the checksum of `{name}` does not match. Restore the file from a copy.")
    return header, arrays


def _header(kept: str) -> tuple[dict[str, Any], dict[str, int]]:
    """The JSON of the header, and the checksums of the arrays."""
    expected, _, text = kept.partition(" ")
    if expected != f"{zlib.crc32(text.encode(errors='surrogatepass')):08x}":
        raise CorruptFileError("the header was changed after it was saved. Restore the file from a copy.")
    header = json.loads(text)
    seal = checked(header, _Seal)
    if seal.version > VERSION:
        raise NewerFileError(
            f"format version {seal.version}, but this driftls reads up to {VERSION}. "
            "Install the version of driftls that wrote it, or a newer one."
        )
    if seal.version < OLDEST:
        raise OlderFileError(
            f"format version {seal.version}, from driftls 0.1, but this driftls reads version {VERSION}. "
            "Learn it again with this version, or go on with the old one: pip install 'driftls<0.2'"
        )
    return header, seal.sums


def _metadata(path: Path, content: bytes) -> dict[str, Any]:
    """The header of a safetensors file, told apart from a truncated one and from something else altogether."""
    size = len(content)
    length = struct.unpack("<Q", content[:8])[0] if size >= 8 else 0
    text = content[8 : 8 + length] if length < size else b""
    if size < 8 or (len(text) < length and length < 1 << 32):
        raise TruncatedFileError(f"{path.name}: ends after {size} bytes, within its header. Restore it from a copy.")
    try:
        entries = json.loads(text)
        needed = 8 + length + max(entry["data_offsets"][1] for key, entry in entries.items() if key != "__metadata__")
        metadata: dict[str, Any] = dict(entries.get("__metadata__", {}))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"{path.name}: not a file of driftls. Pass a file that save() wrote.") from error
    if size < needed:
        raise TruncatedFileError(f"{path.name}: has {size} of {needed} bytes. Restore it from a copy.")
    return metadata


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
        want, have = (f"{kind} ({', '.join(map(str, of))})" for kind, of in _pair(shape, dtype, array))
        raise CorruptFileError(
            f"`{name}` must be {want.replace('None', 'any')}, got {have}. Restore the file from a copy."
        )
    return array


def _pair(shape: tuple[int | None, ...], dtype: DTypeLike, array: NDArray[Any]) -> Iterator[tuple[str, Any]]:
    yield np.dtype(dtype).name, shape
    yield array.dtype.name, array.shape


class Saveable(ABC):
    """What can be written to one file and goes on from it as if it had never stopped."""

    @abstractmethod
    def snapshot(self) -> tuple[dict[str, Any], Arrays]:
        """Header (with the name of the class) and arrays, from which `from_snapshot` makes the same again."""

    @classmethod
    @abstractmethod
    def from_snapshot(cls, header: dict[str, Any], arrays: Arrays, **functions: Any) -> Self:
        """What `snapshot` wrote down."""

    def save(self, path: Path_) -> None:
        """Write everything to one file, atomically; `load` goes on as if it had never stopped."""
        write(path, *self.snapshot())

    @classmethod
    def load(cls, path: Path_, **functions: Any) -> Self:
        """Open a saved one. A step size or regularisation that was a function of n is passed again, by name."""
        header, arrays = read(path)
        if header.get("class") != cls.__name__:
            raise FileFormatError(f"{path}: holds a {header.get('class')}, not a {cls.__name__}. Use its own load().")
        with reading(path):
            return cls.from_snapshot(header, arrays, **functions)
