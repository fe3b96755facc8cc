"""The byte parser of Yahoo's logs: lines into columns.

Each complete line ends with a newline that no step but the last accepts, so a step that looks at one byte at a time
cannot leave the line. Candidates' text is compared with that of the line before; where it differs, Python reads it. Values are
in millionths: a kernel need not divide exactly.
"""

from __future__ import annotations

from typing import Any

from driftls.compiling.parts import bytes_at, entry, indices, inner, integers, reals, record, record_at

# A Yahoo log on its way to the columns of a block: the bytes; the candidates' text of the line before (of `length` bytes) and
# their ids, first those that are `complete`, then those with too few features (`known` in all); then events and pools in the
# block, the time of the last line, and, since the start, lines read, lines and candidates dropped.
LINES = record(
    """
    address kind letters text ids
    time pool shown reward user_start user_index user_value
    block events pools length complete known last lines dropped_lines dropped_candidates
    at where
    """
)
lines_at = record_at(LINES, "log")

R6A, R6B = 0, 1
MOST = 136  # features of a user
SIX_FEATURES = 6  # of R6A's users and articles
MILLION = 10**6
LARGEST = 10**15  # of times and ids: far from the end of an int64
NEWLINE, BLANK, POINT, ZERO, NINE, COLON, BAR = 10, 32, 46, 48, 57, 58, 124
ID = (105, 100, 45)  # id-
BEFORE_USER = (32, 124, 117, 115, 101, 114)  # |user

# Why the parser stopped: at the end, at a full block, at candidates that it does not know, or because a line is broken.
DONE, FULL, NEW = 0, 1, 2
TIME, BACKWARDS, ONE_BLANK, ARTICLE, REWARD, USER, FEATURE, CONSTANT, REPEATED, SIX, AMONG = range(3, 14)
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
    AMONG: "the article shown to be among the candidates",
}


@inner
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


@inner
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


@inner
def article(kind: int, buf: Any, at: int) -> tuple[int, int]:
    """The article's id here, after `id-` in R6B, and where it ends; -1 if there is none"""
    if kind == R6B:
        for letter in ID:
            if buf[at] != letter:
                return -1, at
            at += 1
    return number(buf, at, LARGEST)


@inner
def user_r6a(log: Any, buf: Any, at: int, used: int) -> tuple[int, int, int]:
    """A user's features 2 3 4 5 6 1 in millionths, stored as 1 to 6: status, where they end, in buf and in index"""
    for k in range(SIX_FEATURES):
        place, value, end = (k + 1) % SIX_FEATURES, -1, at
        if buf[at] == BLANK and buf[at + 1] == ZERO + place + 1 and buf[at + 2] == COLON:
            value, end = millionths(buf, at + 3)
        if value < 0 or (place == 0 and value != MILLION):
            return SIX, at, used
        indices(log.user_index)[used + k] = k
        reals(log.user_value)[used + place] = value
        at = end
    return DONE, at, used + SIX_FEATURES


@inner
def user_r6b(log: Any, buf: Any, at: int, used: int) -> tuple[int, int, int]:
    """The ids of a user's features, stored from 0 in ascending order: status, where they end, in buf and in index"""
    index, first = indices(log.user_index), used
    while buf[at] == BLANK and buf[at + 1] != BAR:
        name, end = number(buf, at + 1, MOST)
        if name < 1:
            return FEATURE, at + 1, used
        if used == first and name != 1:
            return CONSTANT, at + 1, used
        place = used
        while place > first and index[place - 1] > name - 1:  # an insertion sort: there are few
            index[place] = index[place - 1]
            place -= 1
        if place > first and index[place - 1] == name - 1:
            return REPEATED, at + 1, used
        index[place] = name - 1
        used += 1
        at = end
    if used == first:
        return CONSTANT, at, used
    return DONE, at, used


@inner
def find(ids: Any, n: int, wanted: int) -> tuple[bool, int]:
    """Whether and where the id is among n ids without repeats; no early exit, so that it vectorises"""
    found, place = 0, 0
    for k in range(n):
        hit = 1 if ids[k] == wanted else 0
        found += hit
        place += k * hit
    return found > 0, place


@inner
def same_text(buf: Any, at: int, end: int, text: Any, length: int) -> bool:
    """Whether this text, and then a newline, stands here; no early exit, so that it vectorises"""
    if length == 0 or at + length >= end or buf[at + length] != NEWLINE:
        return False
    differs = 0
    for k in range(length):
        differs |= buf[at + k] ^ text[k]
    return differs == 0


@inner
def stopped(log: Any, status: int, at: int, where: int) -> int:
    """The parser stops at the line that begins at `at`, in it at `where`"""
    log.at, log.where = at, where
    return status


@inner
def line(log: Any, buf: Any, at: int, end: int) -> int:
    """The line at `at`, which becomes an event of the block; why it is not one, or where the next begins, in log.at"""
    user_start, i = integers(log.user_start), log.events
    used = user_start[i]
    if i == log.block:
        return stopped(log, FULL, at, at)
    time, p = number(buf, at, LARGEST)
    if time < 0:
        return stopped(log, TIME, at, at)
    if time < log.last:
        return stopped(log, BACKWARDS, at, at)
    if buf[p] != BLANK:
        return stopped(log, ONE_BLANK, at, p)
    shown_at = p + 1
    shown, p = article(log.kind, buf, shown_at)
    if shown < 0:
        return stopped(log, ARTICLE, at, p)
    if buf[p] != BLANK:
        return stopped(log, ONE_BLANK, at, p)
    reward = int(buf[p + 1]) - ZERO
    if reward != 0 and reward != 1:
        return stopped(log, REWARD, at, p + 1)
    p += 2
    for letter in BEFORE_USER:
        if buf[p] != letter:
            return stopped(log, USER, at, p)
        p += 1
    if log.kind == R6B:
        status, p, user_end = user_r6b(log, buf, p, used)
    else:
        status, p, user_end = user_r6a(log, buf, p, used)
    if status != DONE:
        return stopped(log, status, at, p)

    if not same_text(buf, p, end, bytes_at(log.text), log.length):
        return stopped(log, NEW, at, p)
    found, place = find(integers(log.ids), log.known, shown)
    if not found:
        return stopped(log, AMONG, at, shown_at)
    if place < log.complete:
        integers(log.time)[i], indices(log.pool)[i], indices(log.shown)[i] = time, log.pools - 1, place
        reals(log.reward)[i] = reward
        user_start[i + 1] = user_end
        log.events += 1
    else:
        log.dropped_lines += 1
    log.dropped_candidates += log.known - log.complete
    log.last = time
    log.lines += 1
    return stopped(log, DONE, p + log.length + 1, p)


@entry
def parse(log: Any, i: int, n: int) -> float:
    """Parse the lines of letters[i:n]: why it stopped; log.at is the line at which it did, log.where the place in that line"""
    buf, status = bytes_at(log.letters), DONE
    log.at, log.where = i, i
    while log.at < n and status == DONE:
        status = line(log, buf, log.at, n)
    return float(status)
