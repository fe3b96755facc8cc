"""The byte parser of Yahoo's logs: lines into columns.

Each complete line ends with a newline that no step but the last accepts, so a step that looks at one byte at a time
cannot leave the line. Candidates' text is compared with that of the line before, and parsed only where it differs. Values are
in millionths: a kernel need not divide exactly.
"""

from __future__ import annotations

from typing import Any

from driftls.compiling.parts import bytes_at, entry, indices, inner, integers, reals, record, record_at

# A Yahoo log on its way to the columns of a block: the bytes, the candidates' text of the line before (of `length`
# bytes) and those of its candidates that have too few features (`lost` of them), with how much room there is; then events
# and pools in the block, the time of the last line, and, since the start, lines read, lines and candidates dropped.
LINES = record(
    """
    address kind letters text dropped
    time pool shown reward pool_start pool_ids user_start user_index user_value arm_features
    block users ids most_pools most_text
    events pools length lost last lines dropped_lines dropped_candidates
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
def candidates(log: Any, buf: Any, at: int, used: int) -> tuple[int, int, int, int]:
    """All candidates of a line: status, where they end in buf, in pool_ids and in dropped"""
    pool_ids, dropped = integers(log.pool_ids), integers(log.dropped)
    first, lost, last = used, 0, -1
    while buf[at] != NEWLINE:
        if buf[at] != BLANK:
            return ONE_BLANK, at, used, lost
        if buf[at + 1] != BAR:
            return CANDIDATE, at + 1, used, lost
        name, end = article(log.kind, buf, at + 2)
        if name < 0:
            return ARTICLE, at + 2, used, lost
        if used == log.ids or lost == log.ids:
            return GROW, at, used, lost
        complete = True
        if log.kind == R6B:
            if name <= last:
                return ORDER, at + 2, used, lost
            last = name
        else:
            if find(integers(log.pool_ids + 8 * first), used - first, name)[0] or find(dropped, lost, name)[0]:
                return TWICE, at + 2, used, lost
            status, have, end = six_features(buf, end, reals(log.arm_features + 8 * SIX_FEATURES * used))
            if status != DONE:
                return status, end, used, lost
            complete = have == SIX_FEATURES
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


@inner
def stopped(log: Any, status: int, at: int, where: int) -> int:
    """The parser stops at the line that begins at `at`, in it at `where`"""
    log.at, log.where = at, where
    return status


@inner
def line(log: Any, buf: Any, at: int, end: int) -> int:
    """The line at `at`, which becomes an event of the block; why it is not one, or where the next begins, in log.at"""
    user_start, pool_start, i = integers(log.user_start), integers(log.pool_start), log.events
    used = user_start[i]
    if i == log.block:
        return stopped(log, FULL, at, at)
    if used + MOST >= log.users or log.pools + 2 > log.most_pools:
        return stopped(log, GROW, at, at)
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
        status, have, p = six_features(buf, p, reals(log.user_value + 8 * used))
        if status == DONE and have < SIX_FEATURES:
            status = SIX
        user_end = used + SIX_FEATURES
        for k in range(SIX_FEATURES):
            indices(log.user_index)[used + k] = k
    if status != DONE:
        return stopped(log, status, at, p)

    text = bytes_at(log.text)
    if not same_text(buf, p, end, text, log.length):
        status, text_end, ids_end, lost = candidates(log, buf, p, pool_start[log.pools])
        if status == DONE and text_end - p > log.most_text:
            status = GROW
        if status != DONE:
            log.length = 0  # the candidates that were dropped may be this line's by now
            return stopped(log, status, at, text_end)
        log.length = text_end - p
        for k in range(log.length):
            text[k] = buf[p + k]
        log.lost = lost
        log.pools += 1
        pool_start[log.pools] = ids_end
    pool = log.pools - 1
    first = pool_start[pool]
    found, place = find(integers(log.pool_ids + 8 * first), pool_start[pool + 1] - first, shown)
    if found:
        integers(log.time)[i], indices(log.pool)[i], indices(log.shown)[i] = time, pool, place
        reals(log.reward)[i] = reward
        user_start[i + 1] = user_end
        log.events += 1
    elif find(integers(log.dropped), log.lost, shown)[0]:
        log.dropped_lines += 1
    else:
        return stopped(log, AMONG, at, shown_at)
    log.dropped_candidates += log.lost
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
