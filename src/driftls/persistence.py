"""Files: safetensors with a JSON header; written whole or not at all, checked when read, never pickle."""

from __future__ import annotations

import json
import os
import struct
import zlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save_file

from driftls.errors import CorruptFileError, FileFormatError, NewerFileError, TruncatedFileError

__all__ = ["FORMAT", "VERSION", "Saveable", "read", "write"]

FORMAT = "driftls"
VERSION = 1
Arrays = dict[str, NDArray[Any]]


def write(path: str | os.PathLike[str], header: dict[str, Any], arrays: Arrays) -> None:
    """Save atomically: a reader finds the old file or the new one, whenever this process ends."""
    path = Path(path)
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    sums = {name: checksum(array) for name, array in arrays.items()}
    text = json.dumps({"version": VERSION, "sums": sums, **header})
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        save_file(arrays, temporary, metadata={FORMAT: f"{zlib.crc32(text.encode()):08x} {text}"})
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def checksum(array: NDArray[Any]) -> int:
    """Of the bytes, and of what they are read as."""
    kind = f"{array.dtype.str}{array.shape}".encode()
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, zlib.crc32(kind))


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a file that `write` made, or an error that says what is wrong with it."""
    path = Path(path)
    if path.is_dir():
        raise FileFormatError(f"{path.name}: a folder, not a file of driftls. Pass a file that save() wrote.")
    content = path.read_bytes()  # once: another process may put a new file in its place at any time
    kept = _metadata(path, content).get(FORMAT)
    if not isinstance(kept, str):
        raise FileFormatError(f"{path.name}: a safetensors file, but not driftls'. Pass a file that save() wrote.")
    expected, _, text = kept.partition(" ")
    if expected != f"{zlib.crc32(text.encode(errors='surrogatepass')):08x}":
        raise CorruptFileError(f"{path.name}: the header was changed after it was saved. Restore the file from a copy.")
    header: dict[str, Any] = json.loads(text)
    if header["version"] > VERSION:
        raise NewerFileError(
            f"{path.name}: format version {header['version']}, but this driftls reads up to {VERSION}. "
            "Install the version of driftls that wrote it, or a newer one."
        )
    try:
        arrays: Arrays = load(content)
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise CorruptFileError(f"{path.name}: cannot be read ({error}). Restore the file from a copy.") from error
    for name, sum_of_array in header["sums"].items():
        if name not in arrays or checksum(arrays[name]) != sum_of_array:
            raise CorruptFileError(
                f"{path.name}: the checksum of `{name}` does not match. Restore the file from a copy."
            )
    return header, arrays


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


class Saveable(ABC):
    """What can be written to one file and goes on from it as if it had never stopped."""

    @abstractmethod
    def snapshot(self) -> tuple[dict[str, Any], Arrays]:
        """Header (with the name of the class) and arrays, from which `from_snapshot` makes the same again."""

    @classmethod
    @abstractmethod
    def from_snapshot(cls, header: dict[str, Any], arrays: Arrays, **functions: Any) -> Self:
        """What `snapshot` wrote down."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file, atomically; `load` goes on as if it had never stopped."""
        write(path, *self.snapshot())

    @classmethod
    def load(cls, path: str | os.PathLike[str], **functions: Any) -> Self:
        """Open a saved one. A step size or regularisation that was a function of n is passed again, by name."""
        header, arrays = read(path)
        if header.get("class") != cls.__name__:
            raise FileFormatError(f"{path}: holds a {header.get('class')}, not a {cls.__name__}. Use its own load().")
        return cls.from_snapshot(header, arrays, **functions)
