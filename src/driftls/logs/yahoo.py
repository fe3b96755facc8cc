"""Readers of Yahoo's front page logs R6A and R6B.

R6B: ``<time> id-<shown> <0|1> |user <id> <id> ... |id-<article> |id-<article> ...``. The user's features are the ids
of the ones out of 1 .. 136, the constant 1 first; candidates ascend.

R6A: ``<time> <shown> <0|1> |user 2:<v> ... 6:<v> 1:1.000000 |<article> 2:<v> ... 6:<v> 1:1.000000 |<article> ...``.
A candidate with too few features is dropped; if it is the one shown, so is the line. Both are counted.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from driftls.compiling.parts import Frame
from driftls.errors import CorruptFileError, LogFormatError, TruncatedFileError
from driftls.logs import parser as kernels
from driftls.logs.events import Block
from driftls.logs.log import Log
from driftls.logs.parser import LINES, R6A, R6B

GZIP: Any = gzip
GZIP_ERRORS: tuple[type[Exception], ...] = (gzip.BadGzipFile, zlib.error)
try:  # the same interface, nearly three times as fast
    GZIP = import_module("isal.igzip")
    GZIP_ERRORS += (import_module("isal.isal_zlib").error,)
except ImportError:
    pass

__all__ = ["YahooLog"]

NAME = ("R6A", "R6B")
DIM = (kernels.SIX_FEATURES, kernels.MOST)
CHUNK = 1 << 20  # bytes read at a time
LINE_START = re.compile(rb"^\d+ (id-)?\d+ [01] \|user ", re.MULTILINE)


class _Filling:
    """A block in the making: columns that the parser fills, and how far it is."""

    def __init__(self, kind: int, size: int) -> None:
        self.kind, self.size = kind, size
        self.frame = Frame(LINES)
        self.frame.set(kind=kind, block=size)
        self.room = {"users": 16 * size + 2 * DIM[R6B], "ids": 4096, "most_pools": 65, "most_text": 1 << 14}
        self._allocate()

    def _allocate(self) -> None:
        """New arrays, never the old ones: whoever got a block may keep it."""
        users, ids, pools, text = self.room.values()
        own = self.kind == R6A  # only R6A has values, and features of articles
        lengths: dict[Any, dict[str, int]] = {
            np.int64: {
                "time": self.size,
                "user_start": self.size + 1,
                "pool_start": pools,
                "pool_ids": ids,
                "dropped": ids,
            },
            np.int32: {"pool": self.size, "shown": self.size, "user_index": users},
            np.float64: {"reward": self.size, "user_value": users * own, "arm_features": ids * own * DIM[R6A]},
            np.uint8: {"text": text},
        }
        self.columns = {name: np.empty(n, kind) for kind, arrays in lengths.items() for name, n in arrays.items()}
        self.columns["user_start"][0] = self.columns["pool_start"][0] = 0
        self.frame.set(**self.columns, **self.room)

    def grow(self) -> None:
        """Twice the room for all that has no fixed length, keeping what is there."""
        old, self.room = self.columns, {name: 2 * room for name, room in self.room.items()}
        self._allocate()
        for name, array in old.items():
            self.columns[name][: len(array)] = array

    def take(self) -> Block:
        """The block, trimmed; pools that only dropped lines had are left out. A new one begins."""
        c, n, own = self.columns, self.frame["events"], self.kind == R6A
        nnz, pool_start = int(c["user_start"][n]), c["pool_start"][: self.frame["pools"] + 1]
        users = {"user_start": c["user_start"][: n + 1], "user_index": c["user_index"][:nnz]}
        users["user_value"] = c["user_value"][:nnz] / kernels.MILLION if own else np.ones(nnz)
        features = c["arm_features"].reshape(-1, DIM[R6A])[: pool_start[-1]] / kernels.MILLION if own else None
        told = {name: c[name][:n] for name in ("time", "shown", "reward")}
        block = Block.packed(c["pool"][:n], pool_start, c["pool_ids"], features, **told, **users)
        self._allocate()
        self.frame.set(events=0, pools=0, length=0, lost=0)
        return block


class YahooLog(Log):
    """An R6A or R6B log: iterate for events, or take `blocks`; see `driftls.logs.read`."""

    def __init__(self, paths: list[str], *, on_error: str = "raise", block: int = 32_768) -> None:
        super().__init__(on_error=on_error, block=block)
        self.paths = paths
        kinds = [_kind(path) for path in paths]
        for path, kind in zip(paths, kinds):
            if kind != kinds[0]:
                raise LogFormatError(f"{path}: expected {NAME[kinds[0]]} as in {paths[0]}, got {NAME[kind]}.")
        self._kind = kinds[0]
        self.format = NAME[self._kind]

    def _blocks(self, size: int) -> Iterator[Block]:
        filling = _Filling(self._kind, size)
        sizes = np.array([os.path.getsize(path) for path in self.paths])
        for number, path in enumerate(self.paths):
            with _opened(path) as stream:
                for block in self._read(path, stream, filling):
                    self.share = (sizes[:number].sum() + getattr(stream, "fileobj", stream).tell()) / sizes.sum()
                    yield block
        if filling.frame["events"]:
            yield filling.take()

    def _read(self, path: str, stream: Any, filling: _Filling) -> Iterator[Block]:
        frame, letters, left, came = filling.frame, bytearray(CHUNK), 0, 1
        frame.set(last=-1, lines=0, dropped_lines=0, dropped_candidates=0)
        frame["letters"] = np.frombuffer(letters, np.uint8)
        while came:
            came = _fill(path, stream, memoryview(letters)[left:], frame["lines"])
            at, end = 0, letters.rfind(b"\n", 0, left + came) + 1
            while at < end:
                before = frame["events"]
                status = int(kernels.parse(frame, at, end))  # why it stopped, in the line that begins at frame["at"]
                at, where = frame["at"], frame["where"]
                self.counts.events += frame["events"] - before
                if status == kernels.FULL:
                    yield filling.take()
                elif status == kernels.GROW:
                    filling.grow()
                elif status != kernels.DONE:
                    line_end = letters.find(b"\n", at)
                    self._broken_line(path, frame, where - at, kernels.EXPECTED[status], bytes(letters[where:line_end]))
                    at = line_end + 1
            left += came - end
            letters[:left] = letters[end : end + left]
            if left == CHUNK:
                raise LogFormatError(f"{path}:{frame['lines'] + 1}:1: expected a newline within {CHUNK} bytes.")
        if left:
            self._broken_line(path, frame, left, "a newline at the end of the last line", b"")
        self.counts.lines += frame["lines"]
        self.counts.dropped_lines += frame["dropped_lines"]
        self.counts.dropped_candidates += frame["dropped_candidates"]

    def _broken_line(self, path: str, frame: Frame, column: int, expected: str, rest: bytes) -> None:
        frame["lines"] += 1
        token = _printable(rest.split(b" ")[0][:24])
        got = f"`{token}`" if token else "a blank" if rest else "the end of the line"
        self._broken(f"{path}:{frame['lines']}:{column + 1}: expected {expected}, got {got}.")


def _printable(text: bytes) -> str:
    return text.decode("latin-1").encode("unicode_escape").decode()


def _opened(path: str) -> Any:
    """The bytes of a file, inflated if they are a gzip stream (whatever the file is called)"""
    with open(path, "rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return GZIP.open(path, "rb") if zipped else open(path, "rb")


def _fill(path: str, stream: Any, into: memoryview, lines: int) -> int:
    try:
        return int(stream.readinto(into))
    except EOFError:
        raise TruncatedFileError(
            f"{path}: the gzip stream breaks off after line {lines}. Fetch the file again."
        ) from None
    except GZIP_ERRORS as error:
        raise CorruptFileError(f"{path}: the gzip stream is damaged after line {lines}: {error}.") from None


def _kind(path: str) -> int:
    """R6A or R6B, by the first line that begins like one of either"""
    with _opened(path) as stream:
        head = bytearray(1 << 16)
        head = head[: _fill(path, stream, memoryview(head), 0)]
    if found := LINE_START.search(head):
        return R6B if found[1] else R6A
    first = _printable(bytes(head.split(b"\n")[0][:40]))
    raise LogFormatError(
        f"{path}:1:1: expected a line of R6B (`<time> id-<article> <0|1> |user ...`) or of R6A "
        f"(`<time> <article> <0|1> |user ...`), got {f'`{first}`' if head else 'an empty file'}. A log of your "
        "own (CSV, JSON lines, a DataFrame) is read by `read_table`: see docs/logs.md."
    )
