"""Readers of Yahoo's front page logs R6A and R6B.

R6B: ``<time> id-<shown> <0|1> |user <id> <id> ... |id-<article> |id-<article> ...``. The user's features are the ids
of the ones out of 1 .. 136, the constant 1 first; candidates ascend.

R6A: ``<time> <shown> <0|1> |user 2:<v> ... 6:<v> 1:1.000000 |<article> 2:<v> ... 6:<v> 1:1.000000 |<article> ...``.
A candidate with too few features is dropped; if it is the one shown, so is the line. Both are counted.

The parser works on bytes. Each complete line ends with a newline that no step but the last accepts, so a step that
looks at one byte at a time cannot leave the line. Candidates' text is compared with that of the line before, and
parsed only where it differs.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftls.errors import CorruptFileError, LogFormatError, SettingsError, TruncatedFileError
from driftls.kernels.compile import kernel
from driftls.logs.events import Block, Event, distinct_pools

GZIP: Any = gzip
GZIP_ERRORS: tuple[type[Exception], ...] = (gzip.BadGzipFile, zlib.error)
try:  # the same interface, nearly three times as fast
    GZIP = import_module("isal.igzip")
    GZIP_ERRORS += (import_module("isal.isal_zlib").error,)
except ImportError:
    pass

__all__ = ["Counts", "YahooLog"]

R6A, R6B = 0, 1
NAME = ("R6A", "R6B")
DIM = (6, 136)
MOST_EXAMPLES = 10
BITS = 46  # of a set of features; three sets hold 136
BIT_NUMBER = np.zeros(67, np.int32)  # k at 2^k mod 67: the powers of two differ modulo 67
BIT_NUMBER[[2**k % 67 for k in range(BITS)]] = np.arange(BITS)
CHUNK = 1 << 20  # bytes read at a time
MILLION = 10**6
LARGEST = 10**15  # of times and ids: far from the end of an int64
NEWLINE, BLANK, POINT, ZERO, NINE, COLON, BAR = b"\n .09:|"
LINE_START = (re.compile(rb"\d+ \d+ [01] \|user "), re.compile(rb"\d+ id-\d+ [01] \|user "))

# Why the parser stopped: at the end, at a full block, for lack of room, or because a line is broken.
DONE, FULL, GROW = 0, 1, 2
TIME, BACKWARDS, ONE_BLANK, ARTICLE, REWARD, USER, FEATURE, CONSTANT, REPEATED = range(3, 12)
SIX, CANDIDATE, ORDER, TWICE, AMONG = range(12, 17)
EXPECTED = {
    TIME: "a time in whole seconds",
    BACKWARDS: "a time not before that of the line before",
    ONE_BLANK: "one blank",
    ARTICLE: "an article's id",
    REWARD: "a reward, 0 or 1",
    USER: "` |user`",
    FEATURE: "a feature id between 1 and 136",
    CONSTANT: "the constant, feature 1, first",
    REPEATED: "a feature id that is not in the line already",
    SIX: "the features 2 3 4 5 6 1, each as <id>:<value from 0 to 1, six decimals>",
    CANDIDATE: "a candidate",
    ORDER: "a candidate id above the one before it",
    TWICE: "a candidate id that is not in the line already",
    AMONG: "the article shown to be among the candidates",
}


class Columns(NamedTuple):
    """A block that is being filled, and scratch. Values are in millionths: a kernel need not divide exactly."""

    time: NDArray[np.int64]
    pool: NDArray[np.int32]
    shown: NDArray[np.int32]
    reward: NDArray[np.float64]
    pool_start: NDArray[np.int64]
    pool_ids: NDArray[np.int64]
    user_start: NDArray[np.int64]
    user_index: NDArray[np.int32]
    user_value: NDArray[np.float64]
    arm_features: NDArray[np.float64]
    text: NDArray[np.uint8]  # candidates of the line before ...
    dropped: NDArray[np.int64]  # ... and those of them that have too few features


# Places in the parser's clock: events and pools in the block, the length of the last candidates' text, how many of
# them were dropped, the time of the last line, and, since the start, lines read, lines and candidates dropped.
EVENTS, POOLS, LENGTH, DROPPED, LAST, LINES, DROPPED_LINES, DROPPED_CANDIDATES = range(8)


@kernel
def number(buf: Any, at: int, most: int) -> tuple[int, int]:
    """The whole number here and where it ends; -1 if there is none, it has a leading zero or is over `most`"""
    value = int(buf[at]) - ZERO
    if not 0 <= value <= 9:
        return -1, at
    end = at + 1
    while ZERO <= buf[end] <= NINE:
        if value == 0 or value > most:
            return -1, at
        value = 10 * value + (int(buf[end]) - ZERO)
        end += 1
    if value > most:
        return -1, at
    return value, end


@kernel
def millionths(buf: Any, at: int) -> tuple[int, int]:
    """The number from 0 to 1 here, written with six decimals, in millionths, and where it ends; -1 if there is none"""
    value, end = number(buf, at, 1)
    if value < 0 or buf[end] != POINT:
        return -1, at
    for p in range(end + 1, end + 7):
        if not ZERO <= buf[p] <= NINE:
            return -1, at
        value = 10 * value + (int(buf[p]) - ZERO)
    if value > MILLION:
        return -1, at
    return value, end + 7


@kernel
def article(kind: int, buf: Any, at: int) -> tuple[int, int]:
    """The article's id here, after `id-` in R6B, and where it ends; -1 if there is none"""
    if kind == R6B:
        if buf[at] != 105 or buf[at + 1] != 100 or buf[at + 2] != 45:
            return -1, at
        at += 3
    return number(buf, at, LARGEST)


@kernel
def six_features(buf: Any, at: int, out: Any) -> tuple[int, int, int]:
    """The features 2 3 4 5 6 1, some of which may be missing, in millionths: status, how many, where they end"""
    have = 0
    last = 1
    while buf[at] == BLANK and ZERO <= buf[at + 1] <= NINE:
        name, end = number(buf, at + 1, 6)
        value, after = -1, at
        if name > 0 and buf[end] == COLON:
            value, after = millionths(buf, end + 1)
        rank = 7 if name == 1 else name
        if value < 0 or rank <= last or (name == 1 and value != MILLION):
            return SIX, have, at + 1
        out[name - 1] = value
        have += 1
        last = rank
        at = after
    return DONE, have, at


@kernel
def user_r6b(buf: Any, at: int, index: Any, used: int) -> tuple[int, int, int]:
    """The ids of a user's features, stored from 0 in ascending order: status, where they end, in buf and in index"""
    # Sets of bits find repeats and sort at once, in half the time of an insertion sort.
    low = middle = high = 0
    while buf[at] == BLANK and buf[at + 1] != BAR:
        name, end = number(buf, at + 1, DIM[R6B])
        if name < 1:
            return FEATURE, at + 1, used
        if low == 0 and name != 1:
            return CONSTANT, at + 1, used
        j = name - 1
        if j < BITS:
            seen = (low >> j) & 1
            low |= 1 << j
        elif j < 2 * BITS:
            seen = (middle >> (j - BITS)) & 1
            middle |= 1 << (j - BITS)
        else:
            seen = (high >> (j - 2 * BITS)) & 1
            high |= 1 << (j - 2 * BITS)
        if seen != 0:
            return REPEATED, at + 1, used
        at = end
    if low == 0:
        return CONSTANT, at, used
    base = 0
    for bits in (low, middle, high):
        while bits != 0:
            rest = bits & (bits - 1)
            index[used] = base + BIT_NUMBER[(bits ^ rest) % 67]
            used += 1
            bits = rest
        base += BITS
    return DONE, at, used


@kernel
def find(ids: Any, wanted: int) -> tuple[bool, int]:
    """Whether and where the id is among ids without repeats; no early exit, so that it vectorises"""
    found = place = 0
    for k in range(len(ids)):
        hit = 1 if ids[k] == wanted else 0
        found += hit
        place += k * hit
    return found > 0, place


@kernel
def same_text(buf: Any, at: int, end: int, text: Any, length: int) -> bool:
    """Whether this text, and then a newline, stands here; no early exit, so that it vectorises"""
    if length == 0 or at + length >= end or buf[at + length] != NEWLINE:
        return False
    here, there = buf[at : at + length], text[:length]
    differs = np.uint8(0)
    for k in range(length):
        differs = np.uint8(differs | (here[k] ^ there[k]))
    return bool(differs == 0)


@kernel
def candidates(kind: int, buf: Any, at: int, columns: Any, used: int) -> tuple[int, int, int, int]:
    """All candidates of a line: status, where they end in buf, in pool_ids and in dropped"""
    pool_ids, features, dropped = columns.pool_ids, columns.arm_features, columns.dropped
    first, lost, last = used, 0, -1
    while buf[at] != NEWLINE:
        if buf[at] != BLANK:
            return ONE_BLANK, at, used, lost
        if buf[at + 1] != BAR:
            return CANDIDATE, at + 1, used, lost
        name, end = article(kind, buf, at + 2)
        if name < 0:
            return ARTICLE, at + 2, used, lost
        if used == len(pool_ids) or lost == len(dropped):
            return GROW, at, used, lost
        complete = True
        if kind == R6B:
            if name <= last:
                return ORDER, at + 2, used, lost
            last = name
        else:
            if find(pool_ids[first:used], name)[0] or find(dropped[:lost], name)[0]:
                return TWICE, at + 2, used, lost
            status, have, end = six_features(buf, end, features[used])
            if status != DONE:
                return status, end, used, lost
            complete = have == 6
        if complete:
            pool_ids[used] = name
            used += 1
        else:
            dropped[lost] = name
            lost += 1
        at = end
    if used == first and lost == 0:
        return CANDIDATE, at, used, lost
    return DONE, at, used, lost


@kernel
def parse(kind: int, buf: Any, at: int, end: int, columns: Any, clock: Any) -> tuple[int, int, int]:
    """Parse the lines of buf[at:end]: why it stopped, the line at which it stopped, and where in that line"""
    user_start, user_index, user_value = columns.user_start, columns.user_index, columns.user_value
    pool_start, pool_ids, text, dropped = columns.pool_start, columns.pool_ids, columns.text, columns.dropped
    while at < end:
        i = clock[EVENTS]
        used = user_start[i]
        if i == len(columns.time):
            return FULL, at, at
        if used + DIM[R6B] >= len(user_index) or clock[POOLS] + 2 > len(pool_start):
            return GROW, at, at
        time, p = number(buf, at, LARGEST)
        if time < 0:
            return TIME, at, at
        if time < clock[LAST]:
            return BACKWARDS, at, at
        if buf[p] != BLANK:
            return ONE_BLANK, at, p
        shown_at = p + 1
        shown, p = article(kind, buf, shown_at)
        if shown < 0:
            return ARTICLE, at, p
        if buf[p] != BLANK:
            return ONE_BLANK, at, p
        reward = int(buf[p + 1]) - ZERO
        if reward != 0 and reward != 1:
            return REWARD, at, p + 1
        p += 2
        for letter in b" |user":
            if buf[p] != letter:
                return USER, at, p
            p += 1
        if kind == R6B:
            status, p, user_end = user_r6b(buf, p, user_index, used)
        else:
            status, have, p = six_features(buf, p, user_value[used : used + 6])
            if status == DONE and have < 6:
                status = SIX
            user_end = used + 6
            for k in range(6):
                user_index[used + k] = k
        if status != DONE:
            return status, at, p

        if not same_text(buf, p, end, text, clock[LENGTH]):
            ids_end = pool_start[clock[POOLS]]
            status, text_end, ids_end, lost = candidates(kind, buf, p, columns, ids_end)
            if status == DONE and text_end - p > len(text):
                status = GROW
            if status != DONE:
                return status, at, text_end
            clock[LENGTH] = text_end - p
            text[: text_end - p] = buf[p:text_end]
            clock[DROPPED] = lost
            clock[POOLS] += 1
            pool_start[clock[POOLS]] = ids_end
        pool = clock[POOLS] - 1
        found, place = find(pool_ids[pool_start[pool] : pool_start[pool + 1]], shown)
        if not found:
            if not find(dropped[: clock[DROPPED]], shown)[0]:
                return AMONG, at, shown_at
            clock[DROPPED_LINES] += 1
        else:
            columns.time[i] = time
            columns.pool[i] = pool
            columns.shown[i] = place
            columns.reward[i] = reward
            user_start[i + 1] = user_end
            clock[EVENTS] += 1
        clock[DROPPED_CANDIDATES] += clock[DROPPED]
        clock[LAST] = time
        clock[LINES] += 1
        at = p + clock[LENGTH] + 1
    return DONE, at, at


class _Filling:
    """A block in the making."""

    def __init__(self, kind: int, size: int) -> None:
        self.kind = kind
        self.size = size
        self.clock = np.zeros(8, np.int64)
        self.rows = [16 * size + 2 * DIM[R6B], 4096, 64, 1 << 14]
        self._allocate()

    def _allocate(self) -> None:
        """New arrays, never the old ones: whoever got a block may keep it"""
        users, ids, pools, text = self.rows
        self.columns = Columns(
            time=np.empty(self.size, np.int64),
            pool=np.empty(self.size, np.int32),
            shown=np.empty(self.size, np.int32),
            reward=np.empty(self.size),
            pool_start=np.zeros(pools + 1, np.int64),
            pool_ids=np.empty(ids, np.int64),
            user_start=np.zeros(self.size + 1, np.int64),
            user_index=np.empty(users, np.int32),
            user_value=np.empty(users if self.kind == R6A else 0),
            arm_features=np.empty((ids if self.kind == R6A else 0, DIM[R6A])),
            text=np.empty(text, np.uint8),
            dropped=np.empty(ids, np.int64),
        )
        self.clock[[EVENTS, POOLS, LENGTH, DROPPED]] = 0

    def grow(self) -> None:
        """Twice the room for all that has no fixed length, keeping what is there"""
        old = self.columns
        clock = self.clock.copy()
        self.rows = [2 * rows for rows in self.rows]
        self._allocate()
        self.clock[:] = clock
        for name, array in old._asdict().items():
            getattr(self.columns, name)[: len(array)] = array

    def take(self) -> Block:
        """The block, trimmed; pools that only dropped lines had are left out. A new one begins."""
        c, n = self.columns, int(self.clock[EVENTS])
        nnz = int(c.user_start[n])
        pool, pool_start, pool_ids, arm_features = distinct_pools(
            c.pool[:n],
            c.pool_start[: self.clock[POOLS] + 1],
            c.pool_ids,
            c.arm_features if self.kind == R6A else None,
        )
        block = Block(
            time=c.time[:n],
            pool=pool,
            shown=c.shown[:n],
            reward=c.reward[:n],
            pool_start=pool_start,
            pool_ids=pool_ids,
            user_start=c.user_start[: n + 1],
            user_index=c.user_index[:nnz],
            user_value=c.user_value[:nnz] / MILLION if self.kind == R6A else np.ones(nnz),
            arm_features=None if arm_features is None else arm_features / MILLION,
        )
        self._allocate()
        return block


@dataclass
class Counts:
    """What became of the lines: `lines` = `events` + `skipped` + `dropped_lines`."""

    lines: int = 0
    events: int = 0
    skipped: int = 0  # broken lines
    dropped_lines: int = 0  # R6A: the article shown has too few features
    dropped_candidates: int = 0  # R6A: candidates with too few features, line by line
    examples: list[str] = field(default_factory=list)  # messages of the first broken lines


class YahooLog:
    """An R6A or R6B log: iterate for events, or take `blocks`; see `driftls.logs.read`."""

    def __init__(self, paths: list[str], *, on_error: str = "raise", block: int = 32_768) -> None:
        if on_error not in ("raise", "skip"):
            raise SettingsError(f"on_error must be 'raise' or 'skip', got {on_error!r}.")
        self.paths, self.on_error, self.block = paths, on_error, block
        self.counts = Counts()
        if not paths:
            raise SettingsError("read needs at least one file, got none.")
        kinds = [_kind(path) for path in paths]
        for path, kind in zip(paths, kinds):
            if kind != kinds[0]:
                raise LogFormatError(f"{path}: expected {NAME[kinds[0]]} as in {paths[0]}, got {NAME[kind]}.")
        self._kind = kinds[0]

    @property
    def format(self) -> str:
        """R6A or R6B."""
        return NAME[self._kind]

    def __iter__(self) -> Iterator[Event]:
        for block in self.blocks():
            yield from block

    def blocks(self, size: int | None = None) -> Iterator[Block]:
        """Read the files from the beginning; `counts` grows on the way and is complete at the end."""
        size = self.block if size is None else size
        if size < 1:
            raise SettingsError(f"a block must have at least 1 line, got {size}.")
        self.counts = Counts()
        filling = _Filling(self._kind, size)
        for path in self.paths:
            with _opened(path) as stream:
                yield from self._read(path, stream, filling)
        if filling.clock[EVENTS]:
            yield filling.take()

    def _read(self, path: str, stream: Any, filling: _Filling) -> Iterator[Block]:
        clock = filling.clock
        clock[[LAST, LINES, DROPPED_LINES, DROPPED_CANDIDATES]] = -1, 0, 0, 0
        buffer = bytearray(CHUNK)
        view = np.frombuffer(buffer, np.uint8)
        left = 0
        while True:
            came = _fill(path, stream, memoryview(buffer)[left:], clock)
            at, end = 0, buffer.rfind(b"\n", 0, left + came) + 1
            while at < end:
                before = clock[EVENTS]
                status, at, where = parse(self._kind, view, at, end, filling.columns, clock)
                self.counts.events += int(clock[EVENTS] - before)
                if status == FULL:
                    yield filling.take()
                elif status == GROW:
                    filling.grow()
                elif status != DONE:
                    line_end = buffer.find(b"\n", at)
                    self._broken(path, clock, where - at, EXPECTED[status], bytes(buffer[where:line_end]))
                    at = line_end + 1
            left += came - end
            buffer[:left] = buffer[end : end + left]
            if left == CHUNK:
                raise LogFormatError(f"{path}:{clock[LINES] + 1}:1: expected a newline within {CHUNK} bytes.")
            if came == 0:
                break
        if left:
            self._broken(path, clock, left, "a newline at the end of the last line", b"")
        self.counts.lines += int(clock[LINES])
        self.counts.dropped_lines += int(clock[DROPPED_LINES])
        self.counts.dropped_candidates += int(clock[DROPPED_CANDIDATES])

    def _broken(self, path: str, clock: NDArray[np.int64], column: int, expected: str, rest: bytes) -> None:
        """Raise, or count the line and go on"""
        clock[LINES] += 1
        token = _printable(rest.split(b" ")[0][:24])
        got = f"`{token}`" if token else "a blank" if rest else "the end of the line"
        message = f"{path}:{clock[LINES]}:{column + 1}: expected {expected}, got {got}."
        if self.on_error == "raise":
            raise LogFormatError(f'{message} Pass on_error="skip" to skip and count bad lines.')
        self.counts.skipped += 1
        if len(self.counts.examples) < MOST_EXAMPLES:
            self.counts.examples.append(message)


def _printable(text: bytes) -> str:
    return text.decode("latin-1").encode("unicode_escape").decode()


def _opened(path: str) -> Any:
    """The bytes of a file, inflated if they are a gzip stream (whatever the file is called)"""
    with open(path, "rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return GZIP.open(path, "rb") if zipped else open(path, "rb")


def _fill(path: str, stream: Any, into: memoryview, clock: NDArray[np.int64]) -> int:
    try:
        return int(stream.readinto(into))
    except EOFError:
        raise TruncatedFileError(
            f"{path}: the gzip stream breaks off after line {clock[LINES]}. Fetch the file again."
        ) from None
    except GZIP_ERRORS as error:
        raise CorruptFileError(f"{path}: the gzip stream is damaged after line {clock[LINES]}: {error}.") from None


def _kind(path: str) -> int:
    """R6A or R6B, by the first line that begins like one of either"""
    with _opened(path) as stream:
        head = bytearray(1 << 16)
        lines = bytes(head[: _fill(path, stream, memoryview(head), np.zeros(8, np.int64))]).split(b"\n")
    for line in lines:
        for kind, start in enumerate(LINE_START):
            if start.match(line):
                return kind
    first = _printable(lines[0][:40])
    raise LogFormatError(
        f"{path}:1:1: expected a line of R6B (`<time> id-<article> <0|1> |user ...`) or of R6A "
        f"(`<time> <article> <0|1> |user ...`), got {f'`{first}`' if lines != [b''] else 'an empty file'}."
    )
