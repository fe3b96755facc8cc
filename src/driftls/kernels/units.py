"""Features in units of their own spread: rows are noted as they come, and standardised before anything is learned of them.

A dense feature is measured from its mean, x' = (x - m) w. So is a sparse one that every row has had, or, where rows lack what
is missing, half of them; and a cross with a category that all rows of this category have had. Other sparse ones are measured
from 0, m = 0. The intercept of a model is a last feature, which is always `constant`. m and
w are frozen between two looks, which Python takes; a feature that was never seen gets its unit from its first value, which
changes nothing that was learned. Crosses have the units of the user's features, the same in the block of every arm; they are
centred where the last of these is 1 in every block: what a mean takes away, that constant gives back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls.compiling.parts import entry, indices, inner, integers, reals
from driftls.kernels.records import rows_at, units
from driftls.kernels.rows import row

SMALLEST = 1e-140  # the squares of anything smaller could vanish: taken for 0
JUMP = 9.01  # a square that is so much larger than the mean square at the last look may ask for another
FURTHER = 2.0  # while a feature was seen a few times, the next one that asks must be so much larger again
# it does so if the feature's unit would be about twice as large, this being the square; no ratio of small whole numbers
# lies on it, so that rounding does not decide
GROWN = 4.0127
PATIENCE = 1.5  # of n: how much longer a look waits that is asked for by a rare feature, of which there may be many
CONSTANT = 1e-11  # of the mean square: less spread is what rounding leaves of sums of squares
AT_ONCE = 2  # of `asked`: a look, before this row is learned
LEAP = 3.0  # of a unit at a look, up to which coefficients are taken along
SHARE = (
    0.5  # of the rows that could have a feature: so many have it, or it is measured from 0, though the others miss it
)
FEW = 10.0  # rows with a feature, until when nothing is foretold beyond the sizes that it had


@inner
def ask_soon(u: Any, count: float) -> None:
    """A feature has become much larger: look now, or once n has grown a little since the last look, which reads all rows"""
    soonest = u.soonest if count >= FEW else PATIENCE * u.soonest
    if u.n >= soonest:
        u.asked = 1
    else:
        u.next_look = min(u.next_look, soonest)


@inner
def known_share(n: float) -> float:
    """How far the mean of n rows is believed: 1 - 2^-n. After one row half of its size is taken for spread, soon none"""
    return 1.0 - 0.5 ** min(n, 64.0)


@inner
def blocks_seen(u: Any) -> float:
    """How often users came with a constant behind their features; 0 where they have none"""
    return reals(u.count)[(u.period - 1) * u.every] if u.period != 0 and u.centred != 0 else 0.0


@inner
def always_one(u: Any, j: int) -> bool:
    """Whether the feature at place j was 1 wherever it was there, as a category is"""
    return reals(u.sums)[j] == reals(u.count)[j] and reals(u.squares)[j] == reals(u.count)[j]


@inner
def origin(u: Any, j: int, n: float) -> float:
    """From where the feature at place j would be measured by a look after n rows: its mean, or 0"""
    if u.centred == 0:
        return 0.0
    if u.every == 1:  # dense rows
        return reals(u.sums)[j] / n
    count, mean = reals(u.count)[j], reals(u.sums)[j] / reals(u.count)[j]
    square = reals(u.squares)[j] / count
    if u.period != 0:  # a constant of the user's own is 0 beside that of the block
        return mean if count >= blocks_seen(u) and j != (u.period - 1) * u.every else 0.0
    other = integers(u.partner)[j // u.every] - 1 if u.partner != 0 else -1
    if other >= 0:
        other *= u.every
        if other == j or not always_one(u, other):
            return 0.0
        n = reals(u.count)[other]
    least = SHARE * n if u.gaps != 0 else n
    return mean if count >= least and square - mean * mean > CONSTANT * square else 0.0


@inner
def around(u: Any, j: int, mean: float) -> float:
    """The sum of squares of what was seen of the feature at place j, from there"""
    rows, squares = u.n if u.every == 1 else reals(u.count)[j], reals(u.squares)[j]
    return max(squares - 2.0 * mean * reals(u.sums)[j] + rows * mean * mean, CONSTANT * squares)


@inner
def has_grown(u: Any, j: int, count: float, n: float) -> bool:
    """Whether the feature at place j would get a larger unit at a look after n rows"""
    square, mean = reals(u.squares)[j] / count, origin(u, j, n)
    spread = square - mean * mean * known_share(n)
    return spread * reals(u.unit)[j] ** 2 > GROWN * reals(u.weight)[j] ** 2


@inner
def first_seen(u: Any, j: int, x: float) -> None:
    """The feature at place j has its first value, which is its first unit"""
    reals(u.unit)[j] = 1.0 / abs(x)
    reals(u.limit)[j] = JUMP * x * x


@inner
def beyond(u: Any, j: int, square: float, n: float) -> None:
    """The feature at place j, whose sums are those of n rows, has a value beyond its limit, of this square"""
    count, limit = reals(u.count)[j], reals(u.limit)
    if count == 0.0:  # so small that it counts as 0
        return
    if count < FEW:
        limit[j] = max(limit[j], FURTHER * square)
    if has_grown(u, j, count, n):
        ask_soon(u, count)


@inner
def note_one(u: Any, j: int, x: float) -> None:
    """Feature j has this value in a sparse row"""
    count, k = reals(u.count), j * u.every
    if not abs(x) > SMALLEST:
        if u.gaps != 0 and count[k] > 0.0:  # a 0 that a row has is not missing
            count[k] += 1.0
        return
    if count[k] == 0.0:
        first_seen(u, k, x)
        if u.known != 0:  # a look goes by what was seen
            integers(u.known)[u.known_count] = j
            u.known_count += 1
    count[k] += 1.0
    reals(u.squares)[k] += x * x
    reals(u.sums)[k] += x
    if x * x > reals(u.limit)[k]:
        beyond(u, k, x * x, u.n + 1.0)


@inner
def any_beyond(u: Any, x: Any, few: float) -> bool:
    """Whether a feature of a dense row that was seen less than `few` times is beyond its limit, or new"""
    count, limit, found = reals(u.count), reals(u.limit), 0
    for j in range(u.dim):  # without a branch, so that the processor takes many at once
        found += 1 if count[j] < few and x[j] * x[j] > limit[j] else 0
    return found != 0


@inner
def add_row(x: Any, n: int, count: Any, squares: Any, sums: Any) -> None:
    """Add a dense row to these sums"""
    for j in range(n):  # three loops: each has few arrays, which the compiler can tell apart
        count[j] += 1.0 if abs(x[j]) > SMALLEST else 0.0
    for j in range(n):
        squares[j] += x[j] * x[j]
    for j in range(n):
        sums[j] += x[j] if abs(x[j]) > SMALLEST else 0.0


@inner
def add_sums(n: int, sums: Any, to: Any) -> None:
    """to += sums"""
    for j in range(n):
        to[j] += sums[j]


@inner
def new_features(u: Any, x: Any) -> None:
    """Those that were not 0 before this dense row"""
    for j in range(u.dim):
        if reals(u.count)[j] == 0.0 and reals(u.limit)[j] == 0.0 and abs(x[j]) > SMALLEST:
            first_seen(u, j, x[j])


@inner
def note_sparse(u: Any, x: Any, at: Any, n: int) -> int:
    """Count the features of a sparse row, and how many of them are centred

    What the record has is read once, since to the compiler any write could change it.
    """
    count, squares, sums, limit = reals(u.count), reals(u.squares), reals(u.sums), reals(u.limit)
    period, every, seen, mean, centred = u.period, u.every, u.n + 1.0, reals(u.means), 0
    for p in range(n):
        j, square = at[p] if period == 0 else at[p] % period, x[p] * x[p]
        k = j * every
        if count[k] == 0.0 or not abs(x[p]) > SMALLEST:
            note_one(u, j, x[p])
            continue
        count[k] += 1.0
        squares[k] += square
        sums[k] += x[p]
        centred += 1 if mean[k] != 0.0 else 0
        if square > limit[k]:
            beyond(u, k, square, seen)
    return centred


@inner
def note(u: Any, rows: Any, i: int) -> None:
    """Count row i among those that were seen"""
    x, at, n = row(rows, i)
    lacking = False
    if rows.sparse != 0:
        before = blocks_seen(u)
        centred = note_sparse(u, x, at, n)
        # a shared block has the features once more
        lacking = u.gaps == 0 and centred < u.centres * max(blocks_seen(u) - before, 1.0)
    else:
        odd = any_beyond(u, x, np.inf)
        if odd:
            new_features(u, x)
        add_row(x, u.dim, reals(u.count), reals(u.squares), reals(u.sums))
        if odd:
            for j in range(u.dim):
                if x[j] * x[j] > reals(u.limit)[j]:
                    beyond(u, j, x[j] * x[j], u.n + 1.0)
    u.n += 1.0
    if u.n >= u.next_look:
        u.asked = 1
    if lacking:  # a 0 where all had a number: measured from 0 from now on, this row already
        u.asked = AT_ONCE


@inner
def note_new(u: Any, rows: Any, i: int) -> None:
    """A row that was never offered is learned: its features that were never seen get their units, as a look goes by those"""
    x, at, n = row(rows, i)
    for p in range(n):
        j = at[p] if u.period == 0 else at[p] % u.period
        if reals(u.count)[j * u.every] == 0.0:
            note_one(u, j, x[p])


@inner
def note_pool(u: Any, rows: Any, i: int, n: int, still: bool) -> None:
    """Count dense rows i ... i + n - 1 by their sums, which are at hand if they are still those of the last call"""
    pool_count, pool_squares, pool_sums, jumped = (
        reals(u.pool_count),
        reals(u.pool_squares),
        reals(u.pool_sums),
        reals(u.pool_jumped),
    )
    if not still:
        for j in range(u.dim):
            pool_count[j], pool_squares[j], pool_sums[j], jumped[j] = 0.0, 0.0, 0.0, 0.0
        for k in range(n):
            x, _, _ = row(rows, i + k)
            if any_beyond(u, x, np.inf):
                new_features(u, x)
                for j in range(u.dim):
                    if x[j] * x[j] > reals(u.limit)[j] and abs(x[j]) > SMALLEST:
                        jumped[j] = max(jumped[j], x[j] * x[j])
            add_row(x, u.dim, pool_count, pool_squares, pool_sums)
    add_sums(u.dim, pool_count, reals(u.count))
    add_sums(u.dim, pool_squares, reals(u.squares))
    add_sums(u.dim, pool_sums, reals(u.sums))
    for j in range(u.dim):
        if jumped[j] > 0.0:
            beyond(u, j, jumped[j], u.n + n)
    u.n += float(n)
    if u.n >= u.next_look:
        u.asked = 1


@entry
def next_units(u: Any, i: int, n: int) -> float:
    """New units of the features that were seen, of which there are n, by all that was noted; how far any of them moves

    fresh: lines of n numbers, the unit, the mean, x'_new = scale x'_old + shift, the least scale for coefficients, and how
    sums of squares change
    """
    unit, mean, scales, shift, least, grown = (
        reals(u.fresh),
        reals(u.fresh + 8 * n),
        reals(u.fresh + 16 * n),
        reals(u.fresh + 24 * n),
        reals(u.fresh + 32 * n),
        reals(u.fresh + 40 * n),
    )
    moved, share = 0.0, known_share(u.n)
    for p in range(n):
        k = (p if u.known == 0 else integers(u.known)[p]) * u.every
        count, old, old_mean = reals(u.count)[k], reals(u.unit)[k], reals(u.means)[k]
        unit[p], mean[p], least[p] = old, old_mean, 1.0 / LEAP if count < FEW else 0.0
        if u.scales != 0 and count > 0.0:
            square, mean[p] = reals(u.squares)[k] / count, origin(u, k, u.n)
            spread = square - mean[p] * mean[p] * share
            if u.every != 1 and square - mean[p] * mean[p] <= CONSTANT * square:  # no spread that will show soon
                spread = 0.0
            unit[p] = reals(u.weight)[k] / np.sqrt(spread if spread > CONSTANT * square else square)
            reals(u.limit)[k] = max(reals(u.limit)[k], JUMP * square)
        scales[p], shift[p] = unit[p] / old, (old_mean - mean[p]) * unit[p]
        grown[p] = scales[p] ** 2
        if mean[p] != old_mean:
            grown[p] *= around(u, k, mean[p]) / around(u, k, old_mean)
        moved = max(moved, max(abs(scales[p] - 1.0), abs(shift[p])))
    return moved


@entry
def move_sums(u: Any, g: Any) -> float:
    """A <- T A T' and b <- T (b - offset a), in place, where a is A's last column: sums over rows that have moved

    g: A, b, and lines of as many numbers: scale and shift (T = diag(scale) + shift e', e the constant's unit vector), room to
    work in, and the offset first of the last.
    """
    n, b, centred = g.values_rows, reals(g.indices), False
    scales, shift, mixed = reals(g.starts), reals(g.starts + 8 * n), reals(g.starts + 16 * n)
    offset, half = reals(g.starts + 24 * n)[0], 0.5 * reals(g.values + 8 * (n * n - 1))[0]
    for j in range(n):
        last = reals(g.values + 8 * (n * j + n - 1))[0]
        b[j] -= offset * last
        mixed[j] = scales[j] * last + half * shift[j]
        centred = centred or shift[j] != 0.0
    for i in range(n):
        line, factor, along, across = reals(g.values + 8 * n * i), scales[i], shift[i], mixed[i]
        for j in range(n):
            line[j] *= factor * scales[j]
        if centred:
            for j in range(n):
                line[j] += along * mixed[j] + across * shift[j]
    moment = b[n - 1]
    for j in range(n):
        b[j] = scales[j] * b[j] + shift[j] * moment
    return 0.0


@inner
def note_reward(u: Any, y: float) -> None:
    """Rewards are measured from their mean; the first one is the first guess of it"""
    if u.rewards == 0.0 and u.intercept != 0:
        u.offset = y
    u.rewards += 1.0
    u.reward_sum += y
    u.reward_squares += y * y


@inner
def measured(u: Any, j: int, x: float) -> float:
    """A value of the feature at place j in its unit"""
    count, limit = reals(u.count)[j], reals(u.limit)[j]
    if count == 0.0:  # never seen: its first value will be its unit
        return 0.0 if not abs(x) > SMALLEST else (1.0 if x > 0.0 else -1.0)
    if count < FEW and x * x > limit > 0.0:
        # not noted yet, and beyond all that was: its unit may be a chance value near 0, and this one a thousand of them
        x = np.sqrt(limit) if x > 0.0 else -np.sqrt(limit)
    return (x - reals(u.means)[j]) * reals(u.unit)[j]


@inner
def scale(u: Any, x: Any, at: Any, n: int, to: Any) -> None:
    """Standardise a sparse row, in place or to another; what it lacks stays 0"""
    count, unit, mean, period, every = reals(u.count), reals(u.unit), reals(u.means), u.period, u.every
    for p in range(n):
        k = (at[p] if period == 0 else at[p] % period) * every
        to[p] = (x[p] - mean[k]) * unit[k] if count[k] >= FEW else measured(u, k, x[p])


@inner
def scaled_dense(u: Any, x: Any, to: Any) -> None:
    """Standardise a dense row"""
    unit, mean = reals(u.unit), reals(u.means)
    if any_beyond(u, x, FEW):
        for j in range(u.dim):
            to[j] = measured(u, j, x[j])
    else:
        for j in range(u.dim):
            to[j] = (x[j] - mean[j]) * unit[j]


@inner
def scaled(rows: Any, i: int, n: int) -> Any:
    """Rows i ... i + n - 1 in a place of their own, standardised, with the constant behind; the caller's stay as they are"""
    out, u, used = rows_at(rows.scratch), units(rows.units), 0
    for k in range(n):
        x, at, length = row(rows, i + k)
        to, features = reals(out.values + 8 * used), indices(out.indices + 4 * used)
        if rows.sparse == 0:
            scaled_dense(u, x, to)
        else:
            for p in range(length):
                features[p] = at[p]
            scale(u, x, at, length, to)
        if u.intercept != 0:
            to[length] = u.constant
            if rows.sparse != 0:
                features[length] = u.dim
            length += 1
        integers(out.start)[k], integers(out.stop)[k] = used, used + length
        reals(out.y)[k] = reals(rows.y)[i + k] - u.offset
        used += length
    return out
