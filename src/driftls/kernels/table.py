"""Scores across the arms of a pool, from a table with a line for each feature and a column for each arm.

Where a score is a sum over features (no width, or a diagonal one), a user's few features are shared by all arms of a
pool: the table keeps theta_j and 1/(ridge + s_j) of every arm side by side, and a user's features are added up line by
line. Exact widths are sums over pairs of features, and have a line a pair. Lines have room for a multiple of 8 arms.
"""

from __future__ import annotations

from typing import Any

from driftls.compiling.parts import entry, inner, integers, part, reals
from driftls.kernels.centred import at_zero, mean_of_rows, precision
from driftls.kernels.learn import coefficient
from driftls.kernels.records import counts, tracker, width
from driftls.kernels.rows import row
from driftls.kernels.score import spread_of, ucb

FEATURES, PAIRS, CROSSED, CENTRED = 1, 2, 3, 4  # kinds of table


@inner
def add_lines(out: int, table: int, lanes: int, at: Any, weights: Any, n: int) -> None:
    """out += sum_p weights[p] table[at[p]], four lines at a time, so that `out` is read and written less often"""
    total, p = reals(out), 0
    while p + 4 <= n:
        a, b = reals(table + 8 * lanes * at[p]), reals(table + 8 * lanes * at[p + 1])
        c, d = reals(table + 8 * lanes * at[p + 2]), reals(table + 8 * lanes * at[p + 3])
        wa, wb, wc, wd = weights[p], weights[p + 1], weights[p + 2], weights[p + 3]
        for k in range(lanes):
            total[k] += wa * a[k] + wb * b[k] + wc * c[k] + wd * d[k]
        p += 4
    while p < n:
        a, wa = reals(table + 8 * lanes * at[p]), weights[p]
        for k in range(lanes):
            total[k] += wa * a[k]
        p += 1


@inner
def finish(p: Any, kappa: float) -> None:
    """Scores from means and squared widths"""
    scores, width2 = reals(p.scores), reals(p.table_width2)
    for k in range(p.table_lanes):
        scores[k] = ucb(scores[k], width2[k], kappa)


@inner
def clear(p: Any, mean: float, square: float) -> None:
    """What all arms begin with"""
    scores, width2 = reals(p.scores), reals(p.table_width2)
    for k in range(p.table_lanes):
        scores[k] = mean
        width2[k] = square


@part
def features_score(p: Any, rows: Any, i: int, x: float) -> float:
    """Scores of all arms for user i, where widths are sums over features"""
    values, at, n = row(rows, i)
    work, places = reals(p.table_work), integers(p.table_places)
    clear(p, 0.0, 0.0)
    for q in range(n):
        work[q] = values[q] * values[q]
        places[q] = q if rows.sparse == 0 else at[q]
    add_lines(p.scores, p.table_theta, p.table_lanes, places, values, n)
    add_lines(p.table_width2, p.table_square, p.table_lanes, places, work, n)
    finish(p, x)
    return 0.0


@part
def centred_table_score(p: Any, rows: Any, i: int, x: float) -> float:
    """Scores of all arms for user i, where widths are centred: a line each for x_j^2 and for x_j"""
    values, at, n = row(rows, i)
    work, places = reals(p.table_work), integers(p.table_places)
    scores, width2, rest = reals(p.scores), reals(p.table_width2), reals(p.table_rest)
    for k in range(p.table_lanes):
        scores[k] = 0.0
        width2[k] = rest[k]
    for q in range(n):
        work[q] = values[q] * values[q]
        places[q] = q if rows.sparse == 0 else at[q]
    add_lines(p.scores, p.table_theta, p.table_lanes, places, values, n)
    add_lines(p.table_width2, p.table_square, p.table_lanes, places, work, n)
    add_lines(p.table_width2, p.table_cross, p.table_lanes, places, values, n)
    finish(p, x)
    return 0.0


@inner
def fill_centred(p: Any, k: int, w: Any) -> None:
    """What x_j^2 and x_j add to the squared width of arm k, and what it is without any feature"""
    square, cross, lanes = reals(p.table_square + 8 * k), reals(p.table_cross + 8 * k), p.table_lanes
    for j in range(w.dim - 1):
        spread = 1.0 / precision(w, j)
        square[lanes * j] = spread
        cross[lanes * j] = -2.0 * spread * mean_of_rows(w, j)
    reals(p.table_rest)[k] = at_zero(w)


@inner
def fill_column(p: Any, k: int, slot: int, all_lines: bool) -> None:
    """theta of the model of arm k, and (all lines) what a feature of size 1 adds to its squared width"""
    t, w = tracker(integers(p.trackers)[slot]), width(integers(p.widths)[slot])
    theta, square, lanes = reals(p.table_theta + 8 * k), reals(p.table_square + 8 * k), p.table_lanes
    for j in range(t.dim):
        theta[lanes * j] = coefficient(t, j)
    if all_lines and p.table == FEATURES and w.spread != 0:
        for j in range(t.dim):
            square[lanes * j] = spread_of(w, j)
    elif p.table == CENTRED:
        fill_centred(p, k, w)


@entry
def fill(p: Any, n: int) -> float:
    """A new pool of n arms: every column afresh; lines of pairs and of crosses are read when they are needed"""
    slots, stamps = integers(p.slots), reals(p.table_stamps)
    for line in range(p.table_lines):
        stamps[line] = -1.0
    if p.table != CROSSED:
        for k in range(n):
            fill_column(p, k, slots[k], True)
    return 0.0


@part
def learned(p: Any, rows: Any, i: int, n: int) -> float:
    """Arm n of the pool has learned row i"""
    if p.table == CROSSED:  # theta has its stamps; the widths of the row's features alone have changed
        _, at, length = row(rows, i // max(rows.arms, 1))
        stamps = reals(p.table_stamps)
        for q in range(length):
            stamps[at[q]] = -1.0
        return 0.0
    slot = integers(p.slots)[n]
    w = width(integers(p.widths)[slot])
    if p.table == PAIRS:
        fill_column(p, n, slot, False)
        integers(p.table_ring)[int(p.learned - 1.0) % p.table_lanes] = n
        return 0.0
    if p.table == CENTRED:
        fill_column(p, n, slot, True)
        return 0.0
    fading = w.discount != 1.0
    fill_column(p, n, slot, fading)
    if not fading and w.spread != 0:
        _, at, length = row(rows, i)
        square = reals(p.table_square + 8 * n)
        for q in range(length):
            j = q if rows.sparse == 0 else at[q]
            square[p.table_lanes * j] = spread_of(w, j)
        square[p.table_lanes * (w.dim - 1)] = spread_of(w, w.dim - 1)  # the constant, which every row has
    return 0.0


@inner
def catch_up(p: Any, line: int, j: int, other: int, n: int) -> None:
    """Read the entries of the arms that have learned since the line was last read; there are few of them"""
    stamps, ring, slots, trackers = (
        reals(p.table_stamps),
        integers(p.table_ring),
        integers(p.slots),
        integers(p.trackers),
    )
    since, entries = stamps[line], reals(p.table_square + 8 * p.table_lanes * line)
    whole = since < 0.0 or p.learned - since > p.table_lanes
    first = 0 if whole else int(since)
    last = n if whole else int(p.learned)
    for step in range(first, last):
        k = step if whole else ring[step % p.table_lanes]
        t = tracker(trackers[slots[k]])
        entries[k] = reals(t.inverse + 8 * (t.dim * j + other))[0]
    stamps[line] = p.learned


@part
def pairs_score(p: Any, rows: Any, i: int, n: int, x: float) -> float:
    """Scores of all n arms for user i, where widths are sums over pairs of features"""
    values, at, length = row(rows, i)
    work, places, stamps = reals(p.table_work), integers(p.table_places), reals(p.table_stamps)
    clear(p, 0.0, 0.0)
    for q in range(length):
        places[q] = at[q]
    add_lines(p.scores, p.table_theta, p.table_lanes, places, values, length)
    for q in range(length):
        j = at[q]
        first = j * p.table_features - j * (j + 1) // 2  # where the pairs (j, j), (j, j + 1) ... stand
        for r in range(q, length):
            line = first + at[r]
            places[r - q] = line
            work[r - q] = values[q] * values[r] * (1.0 if r == q else 2.0)
            if stamps[line] != p.learned:
                catch_up(p, line, j, at[r], n)
        add_lines(p.table_width2, p.table_square, p.table_lanes, places, work, length - q)
    finish(p, x)
    return 0.0


@part
def crossed_table_score(p: Any, rows: Any, i: int, n: int, x: float) -> float:
    """Scores of the arms of one user, whose features stand in a block of each arm; lines are read when needed"""
    t, w = tracker(integers(p.trackers)[0]), width(integers(p.widths)[0])
    shifts, stamps = integers(rows.shifts), reals(p.table_stamps)
    values, at, length = row(rows, i // rows.arms)
    length -= rows.behind
    work, places, lanes = reals(p.table_work), integers(p.table_places), p.table_lanes
    seen = float(counts(t.counts).seen)  # also of rows that the tracker learned by itself
    for q in range(length):
        j = at[q]
        places[q], work[q] = j, values[q] * values[q]
        if stamps[j] != seen:
            theta, square = reals(p.table_theta + 8 * lanes * j), reals(p.table_square + 8 * lanes * j)
            mean, room = 0.0, 0.0
            if rows.shared != 0:
                mean = coefficient(t, j)
                room = spread_of(w, j) if w.spread != 0 else 0.0
            widths_too = w.spread != 0 and (stamps[j] < 0.0 or w.discount != 1.0)
            for k in range(n):
                place = j + shifts[k]
                theta[k] = mean + coefficient(t, place)
                if widths_too:
                    square[k] = room + spread_of(w, place)
            stamps[j] = seen
    mean, room = 0.0, 0.0
    if rows.behind != 0:  # the constant, which all arms have alike
        j, value = at[length], values[length]
        mean = value * coefficient(t, j)
        room = value * value * spread_of(w, j) if w.spread != 0 else 0.0
    clear(p, mean, room)
    add_lines(p.scores, p.table_theta, lanes, places, values, length)
    add_lines(p.table_width2, p.table_square, lanes, places, work, length)
    finish(p, x)
    return 0.0
