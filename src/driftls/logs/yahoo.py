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
from driftls.logs.columns import as_starts
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
WHOLE, VALUE = rb"(0|[1-9]\d{0,15})(?!\d)", rb"(0\.\d{6}|1\.000000)"
ID = re.compile(WHOLE), re.compile(b"id-" + WHOLE)
SIX = b"".join(b"(?: %d:%s)?" % (name, VALUE) for name in range(2, 7)) + rb"(?: 1:(1\.000000))?"
FEATURES = re.compile(SIX), re.compile(b"")  # of an article; R6B has none
CANDIDATE, TWICE = "a candidate", "a candidate id that is not in the line already"
ORDER = "a candidate id above the one before it"
LINE_START = re.compile(rb"^\d+ (id-)?\d+ [01] \|user ", re.MULTILINE)


class _Filling:
    """A block in the making: columns that the parser fills, and how far it is."""

    def __init__(self, kind: int, size: int) -> None:
        self.kind, self.size = kind, size
        self.frame, most = Frame(LINES), size * DIM[kind] + 1  # one that is refused is sorted in before it shows
        self.index, self.value = np.empty(most, np.int32), np.empty(most if kind == R6A else 0)
        self.frame.set(kind=kind, block=size, user_index=self.index, user_value=self.value)
        self._begin()

    def _begin(self) -> None:
        """New arrays, never the old ones: whoever got a block may keep it."""
        types: Any = {"time": np.int64, "reward": np.float64, "pool": np.int32, "shown": np.int32}
        self.columns: dict[str, Any] = {name: np.empty(self.size, dtype) for name, dtype in types.items()}
        self.columns["user_start"] = np.zeros(self.size + 1, np.int64)
        self.sizes, self.ids, self.features = list[int](), list[int](), list[Any]()  # of the pools and their candidates
        self.frame.set(**self.columns, events=0, pools=0, length=0)

    def parse(self, letters: Any, at: int, end: int) -> int:
        """Take the lines of letters[at:end]; why it stopped, at frame["at"] and in that line at frame["where"]."""
        self.frame["letters"] = np.frombuffer(letters, np.uint8)
        while (status := int(kernels.parse(self.frame, at, end))) == kernels.NEW:
            at, where = self.frame["at"], self.frame["where"]
            self.expected, place = self._meet(bytes(letters[where : letters.index(b"\n", where)]))
            if self.expected:
                self.frame["where"] = where + place
                return status
        self.expected = kernels.EXPECTED.get(status, "")  # of a line that is broken
        return status

    def _meet(self, text: bytes) -> tuple[str, int]:
        """Take up a pool of candidates; or what was expected instead, and where in their text."""
        at, ids, features, lost = 0, list[int](), list[Any](), list[int]()
        met = set[int]()
        while at < len(text):
            if text[at : at + 1] != b" ":
                return kernels.EXPECTED[kernels.ONE_BLANK], at
            if text[at + 1 : at + 2] != b"|":
                return kernels.EXPECTED[kernels.SIX] if text[at + 1 : at + 2].isdigit() else CANDIDATE, at + 1
            found = ID[self.kind].match(text, at + 2)
            number = -1 if found is None else int(found[1])
            if found is None or number > kernels.LARGEST:
                return kernels.EXPECTED[kernels.ARTICLE], at + 2
            if number in met or (self.kind == R6B and ids and number < ids[-1]):
                return (ORDER if self.kind == R6B else TWICE), at + 2
            met.add(number)
            own = FEATURES[self.kind].match(text, found.end())
            at, values = own.end(), own.groups()  # type: ignore[union-attr]  # it matches nothing, too
            if None in values:
                lost.append(number)
            else:
                ids.append(number)
                features.append([float(value) for value in (*values[5:], *values[:5])])  # the constant first
        if not met:
            return CANDIDATE, at
        self.sizes.append(len(ids))
        self.ids += ids
        self.features += features
        known = {"text": np.frombuffer(text, np.uint8), "ids": np.array([*ids, *lost], np.int64)}
        self.frame.set(**known, length=len(text), complete=len(ids), known=len(met), pools=len(self.sizes))
        return "", at

    def take(self) -> Block:
        """The block, trimmed; pools that only dropped lines had are left out. A new one begins."""
        n, own = self.frame["events"], self.kind == R6A
        columns = {name: column[:n] for name, column in self.columns.items()}
        columns["user_start"] = start = self.columns["user_start"][: n + 1]
        columns["user_index"] = self.index[: start[-1]].copy()
        columns["user_value"] = self.value[: start[-1]] / kernels.MILLION if own else np.ones(start[-1])
        features = np.array(self.features, np.float64).reshape(-1, DIM[R6A]) if own else None
        sizes, ids = as_starts(self.sizes), np.array(self.ids, np.int64)
        block = Block.packed(columns.pop("pool"), sizes, ids, features, **columns)
        self._begin()
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
        filling, letters = _Filling(self._kind, size), bytearray(CHUNK)
        sizes = np.array([os.path.getsize(path) for path in self.paths])
        for number, path in enumerate(self.paths):
            with _opened(path) as stream:
                for block in self._read(path, stream, filling, letters):
                    self.share = (sizes[:number].sum() + getattr(stream, "fileobj", stream).tell()) / sizes.sum()
                    yield block
        if filling.frame["events"]:
            yield filling.take()

    def _read(self, path: str, stream: Any, filling: _Filling, letters: bytearray) -> Iterator[Block]:
        frame, left, came = filling.frame, 0, 1
        frame.set(last=-1, lines=0, dropped_lines=0, dropped_candidates=0)
        while came:
            came = _fill(path, stream, memoryview(letters)[left:], frame["lines"])
            at, end = 0, letters.rfind(b"\n", 0, left + came) + 1
            while at < end:
                before = frame["events"]
                status = filling.parse(letters, at, end)
                at, where = frame["at"], frame["where"]
                self.counts.events += frame["events"] - before
                if status == kernels.FULL:
                    yield filling.take()
                elif status != kernels.DONE:
                    line_end = letters.find(b"\n", at)
                    self._broken_line(path, frame, where - at, filling.expected, bytes(letters[where:line_end]))
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
