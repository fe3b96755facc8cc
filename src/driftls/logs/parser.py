"""The byte parser of Yahoo's logs: lines into columns.

Each complete line ends with a newline that no step but the last accepts, so a step that looks at one byte at a time
cannot leave the line. Candidates' text is compared with that of the line before, and parsed only where it differs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftls.kernels.arrays import kernel, leaf

R6A, R6B = 0, 1
DIM = (6, 136)
BITS = 46  # of a set of features; three sets hold 136
BIT_NUMBER = np.zeros(67, np.int32)  # k at 2^k mod 67: the powers of two differ modulo 67
BIT_NUMBER[[2**k % 67 for k in range(BITS)]] = np.arange(BITS)
MILLION = 10**6
LARGEST = 10**15  # of times and ids: far from the end of an int64
NEWLINE, BLANK, POINT, ZERO, NINE, COLON, BAR = b"\n .09:|"

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
IN_BLOCK = slice(EVENTS, LAST)  # those that begin anew with a block


@leaf
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


@leaf
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


@leaf
def article(kind: int, buf: Any, at: int) -> tuple[int, int]:
    """The article's id here, after `id-` in R6B, and where it ends; -1 if there is none"""
    if kind == R6B:
        if buf[at] != 105 or buf[at + 1] != 100 or buf[at + 2] != 45:
            return -1, at
        at += 3
    return number(buf, at, LARGEST)


@leaf
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


@leaf
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


@leaf
def find(ids: Any, wanted: int) -> tuple[bool, int]:
    """Whether and where the id is among ids without repeats; no early exit, so that it vectorises"""
    found = place = 0
    for k in range(len(ids)):
        hit = 1 if ids[k] == wanted else 0
        found += hit
        place += k * hit
    return found > 0, place


@leaf
def same_text(buf: Any, at: int, end: int, text: Any, length: int) -> bool:
    """Whether this text, and then a newline, stands here; no early exit, so that it vectorises"""
    if length == 0 or at + length >= end or buf[at + length] != NEWLINE:
        return False
    here, there = buf[at : at + length], text[:length]
    differs = np.uint8(0)
    for k in range(length):
        differs = np.uint8(differs | (here[k] ^ there[k]))
    return bool(differs == 0)


@leaf
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
