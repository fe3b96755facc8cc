"""Features in units of their own spread: rows are noted as they come, and standardised before anything is learned of them.

A dense feature is measured from its mean, x' = (x - m) w; a sparse one from 0, x' = x w, so that rows stay sparse. The
intercept of a model is a last feature, which is always `constant`. m and w are frozen between two looks, which Python
takes; a feature that was never seen gets its unit from its first value, which changes nothing that was learned. Crosses
have the units of the user's features, the same in the block of every arm.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls.kernels.parts import indices, inner, integers, reals, rows_at, units
from driftls.kernels.rows import row

SMALLEST = 1e-140  # the squares of anything smaller could vanish: taken for 0
JUMP = 9.01  # a square that is so much larger than the mean square at the last look may ask for another
FURTHER = 2.0  # while a feature was seen a few times, the next one that asks must be so much larger again
GROWN = (
    1.5127  # it does so if the feature's unit, squared, would be so much larger; no ratio of small whole numbers lies
)
# on these, so that rounding does not decide
FEW = 10.0  # rows with a feature, until when nothing is foretold beyond the sizes that it had


@inner
def ask_soon(u: Any) -> None:
    """A feature has become much larger: look now, or once n has grown a little since the last look, which reads all rows"""
    if u.n >= u.soonest:
        u.asked = 1
    else:
        u.next_look = min(u.next_look, u.soonest)


@inner
def has_grown(u: Any, j: int, count: float, squares: float, sums: float, n: float) -> bool:
    """Whether the feature at place j would get a larger unit at a look after n rows, by its count and sums"""
    square, mean = squares / count, sums / n if u.centred != 0 else 0.0
    return (square - mean * mean * (n / (n + 1.0))) * reals(u.unit)[j] ** 2 > GROWN


@inner
def note_one(u: Any, j: int, x: float) -> None:
    """Feature j has this value in a row"""
    if not abs(x) > SMALLEST:
        return
    count, squares, sums, unit = reals(u.count), reals(u.squares), reals(u.sums), reals(u.unit)
    k = j * u.every
    if count[k] == 0.0:
        unit[k] = 1.0 / abs(x)
        reals(u.limit)[k] = JUMP * x * x
        if u.known != 0:  # rows are sparse: a look goes by what was seen
            integers(u.known)[u.known_count] = j
            u.known_count += 1
    count[k] += 1.0
    squares[k] += x * x
    if u.centred != 0:
        sums[k] += x
    if x * x > reals(u.limit)[k]:
        if count[k] < FEW:
            reals(u.limit)[k] = FURTHER * x * x
        if has_grown(u, k, count[k], squares[k], sums[k] if u.centred != 0 else 0.0, u.n + 1.0):
            ask_soon(u)


@inner
def kind(u: Any, j: int) -> int:
    """The feature whose unit feature j has"""
    return j if u.period == 0 else j % u.period


@inner
def note(u: Any, rows: Any, i: int) -> None:
    """Count row i among those that were seen"""
    x, at, n = row(rows, i)
    for p in range(n):
        j = p if rows.sparse == 0 else at[p]
        if j != u.dim:
            note_one(u, kind(u, j), x[p])
    u.n += 1.0
    if u.n >= u.next_look:
        u.asked = 1


@inner
def note_new(u: Any, rows: Any, i: int) -> None:
    """A row that was never offered is learned: its features that were never seen get their units, as a look goes by those"""
    x, at, n = row(rows, i)
    for p in range(n):
        j = at[p]
        if j != u.dim and reals(u.count)[kind(u, j) * u.every] == 0.0:
            note_one(u, kind(u, j), x[p])


@inner
def note_pool(u: Any, rows: Any, i: int, n: int, still: bool) -> None:
    """Count dense rows i ... i + n - 1 by their sums, which are at hand if they are still those of the last call"""
    count, squares, sums, unit = reals(u.count), reals(u.squares), reals(u.sums), reals(u.unit)
    pool_count, pool_squares, pool_sums = reals(u.pool_count), reals(u.pool_squares), reals(u.pool_sums)
    limit, jumped = reals(u.limit), reals(u.pool_jumped)
    if not still:
        for j in range(u.dim):
            pool_count[j], pool_squares[j], pool_sums[j], jumped[j] = 0.0, 0.0, 0.0, 0.0
        for k in range(n):
            x, _, _ = row(rows, i + k)
            for j in range(u.dim):
                value = x[j]
                if abs(value) > SMALLEST:
                    if count[j] == 0.0 and pool_count[j] == 0.0:
                        unit[j] = 1.0 / abs(value)
                        limit[j] = JUMP * value * value
                    pool_count[j] += 1.0
                    if value * value > limit[j]:
                        jumped[j] = max(jumped[j], value * value)
                    pool_squares[j] += value * value
                    pool_sums[j] += value
    for j in range(u.dim):
        count[j] += pool_count[j]
        squares[j] += pool_squares[j]
        sums[j] += pool_sums[j]
        if jumped[j] > 0.0:
            if count[j] < FEW:
                limit[j] = max(limit[j], FURTHER * jumped[j])
            if has_grown(u, j, count[j], squares[j], sums[j], u.n + n):
                ask_soon(u)
    u.n += float(n)
    if u.n >= u.next_look:
        u.asked = 1


@inner
def note_reward(u: Any, y: float) -> None:
    """Rewards are measured from their mean; the first one is the first guess of it"""
    if u.rewards == 0.0 and u.intercept != 0:
        u.offset = y
    u.rewards += 1.0
    u.reward_sum += y
    u.reward_squares += y * y


@inner
def scale(u: Any, rows: Any, i: int) -> None:
    """Standardise row i, in place"""
    x, at, n = row(rows, i)
    unit, mean, count, limit = reals(u.unit), reals(u.means), reals(u.count), reals(u.limit)
    sparse, dim, every, centred = rows.sparse, u.dim, u.every, u.centred
    for p in range(n):
        j = p if sparse == 0 else at[p]
        if j == dim:
            x[p] = u.constant
            continue
        j = kind(u, j) * every
        if count[j] < FEW and x[p] * x[p] > limit[j] > 0.0:
            # not noted yet, and beyond all that was: its unit may be a chance value near 0, and this one a thousand of them
            x[p] = np.sqrt(limit[j]) if x[p] > 0.0 else -np.sqrt(limit[j])
        if count[j] == 0.0:  # never seen: its first value will be its unit
            x[p] = 0.0 if not abs(x[p]) > SMALLEST else (1.0 if x[p] > 0.0 else -1.0)
        else:
            x[p] = (x[p] - (mean[j] if centred != 0 else 0.0)) * unit[j]


@inner
def scaled(rows: Any, i: int, n: int) -> Any:
    """Rows i ... i + n - 1 in a place of their own, standardised; the caller's stay as they are"""
    out, u = rows_at(rows.scratch), units(rows.units)
    to, used = reals(out.values), 0
    for k in range(n):
        x, at, length = row(rows, i + k)
        for p in range(length):
            to[used + p] = x[p]
        if rows.sparse != 0:
            features = indices(out.indices)
            for p in range(length):
                features[used + p] = at[p]
            integers(out.start)[k], integers(out.stop)[k] = used, used + length
        reals(out.y)[k] = reals(rows.y)[i + k] - u.offset
        used += length
        scale(u, out, k)
    return out
