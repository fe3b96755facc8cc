"""The one loop of all trackers: a row arrives, is stored, enters the state; then the inner steps are taken.

`learn` is the only way in from Python, for one row and for a block alike, so both run the same machine code. What a
kernel cannot do itself it asks Python for: room (NO_ROOM, before the row) or attention (ATTEND, after it).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls.compiling.parts import call, entry, indices, inner, integers, part, prefetch, reals
from driftls.kernels.records import counts, rows_at, units
from driftls.kernels.rows import NO_ROOM, NOT_FINITE, dot, dot2, norm2, row, row_fault
from driftls.kernels.units import note, note_reward, scaled

NOTHING, GROWING, WINDOW, RESERVOIR = 0, 1, 2, 3  # kinds of history
POWER, TABLE, NORMALISED = 0, 1, 2  # kinds of schedule
# What `learn` returns, after the faults of rows.py
STEP_TOO_LARGE, DIVERGED, ATTEND, LOOK = 4, 5, 8, 10
# A smoothed squared error a million times the largest y^2 is a thousand times worse than predicting 0.
RUNAWAY = 1e6
# Within the steps of one row: far beyond any outlier, and far below what overflows.
HOPELESS = 1e36
SMALLEST_NORM2 = 1e-150  # of a row that a step is divided by: for anything smaller the step could overflow
LARGEST_Y = 1e75
PER_LINE = 8  # float64 numbers in a cache line
MOST_LINES = 20  # of a longer row the processor fetches the rest by itself
WATCH_EVERY = 8  # rows: so few predictions cost nothing beside the steps
RECENT = 256.0  # of those
MOST_ERROR = 1e150  # a number that a file can hold
IN_CACHE = 1 << 15  # features: so few coordinates stay in the cache by themselves

# -- schedules --------------------------------------------------------------------------------------------------------


@inner
def power(scale: float, offset: float, exponent: float, n: float) -> float:
    """scale / (offset + n)^exponent; the common exponents cost no call of pow"""
    if exponent == 0.0:
        return scale
    if exponent == 1.0:
        return scale / (offset + n)
    return scale / (offset + n) ** exponent


@inner
def step_size(t: Any, n: int, lam: float, max_norm2: float) -> float:
    """gamma_n; a normalised one is scale / max ||x||^2, held at 1/(2 lam) so that shrinking never overshoots"""
    if t.step_kind == TABLE:
        return reals(t.step_table)[n - 1]
    gamma = power(t.step_scale, t.step_offset, t.step_exponent, float(n))
    if t.step_kind == NORMALISED:
        gamma = gamma / max_norm2 if max_norm2 > SMALLEST_NORM2 else 0.0
        if gamma * lam > 0.5:
            gamma = 0.5 / lam
    return gamma


@inner
def regularisation(t: Any, count: float) -> float:
    """lambda_n, per row"""
    if t.ridge_kind == TABLE:
        return reals(t.ridge_table)[int(count) - 1]
    return power(t.ridge_scale, t.ridge_offset, t.ridge_exponent, count)


@inner
def total_ridge(t: Any, count: float, lam: float) -> float:
    """n lambda_n; free of rounding where lambda_n = lambda/n makes it constant"""
    if t.ridge_kind == POWER and t.ridge_offset == 0.0 and t.ridge_exponent == 1.0:
        return t.ridge_scale
    return count * lam


# -- rows -------------------------------------------------------------------------------------------------------------


@inner
def next_slot(t: Any, c: Any) -> int:
    """The slot of the next row, or -1 where it is not kept; a reservoir is uniform over all rows seen"""
    if c.kind == RESERVOIR:
        cursor = integers(t.cursor)
        u = reals(t.tape)[cursor[0]]
        cursor[0] += 1
        if c.held == c.capacity:
            slot = int(u * (c.seen + 1))
            return slot if slot < c.capacity else -1
    elif c.kind == WINDOW and c.held == c.capacity:
        return c.seen % c.capacity
    return c.held if c.kind != NOTHING else -1


@inner
def store(history: Any, c: Any, slot: int, rows: Any, i: int) -> None:
    """Copy row i of a block to its slot; a sparse row is appended to the arena"""
    x, at, n = row(rows, i)
    if history.sparse == 0:
        to = reals(history.values + 8 * n * slot)
    else:
        used = c.used
        to, features = reals(history.values + 8 * used), indices(history.indices + 4 * used)
        for p in range(n):
            features[p] = at[p]
        integers(history.start)[slot], integers(history.stop)[slot] = used, used + n
        c.used = used + n
    for p in range(n):
        to[p] = x[p]
    reals(history.y)[slot] = reals(rows.y)[i]


@inner
def has_room(t: Any, rows: Any, i: int, behind: int) -> bool:
    """Whether row i of the block, with so many constants behind it, can be taken at once: draws, tables and a place in the
    history are ready for it
    """
    c = counts(t.counts)
    draws = (t.steps if t.draws != 0 else 0) + (1 if c.kind == RESERVOIR else 0)
    if integers(t.cursor)[0] + draws > t.tape_size:
        return False
    if t.step_kind == TABLE and c.seen >= t.step_length:
        return False
    if t.ridge_kind == TABLE and c.seen >= t.ridge_length:
        return False
    if c.kind == NOTHING:
        return True
    history = rows_at(t.history)
    if c.held >= history.count and (c.kind == GROWING or c.held < c.capacity):
        return False
    _, _, n = row(rows, i)
    return rows.sparse == 0 or c.used + n + behind <= history.room


@inner
def all_fit(t: Any, rows: Any, i: int, n: int) -> bool:
    """Whether rows i ... n - 1 of the block have a place each: what can fail must fail before the first one is taken"""
    c, count = counts(t.counts), n - i
    if t.step_kind == TABLE and c.seen + count > t.step_length:
        return False
    if t.ridge_kind == TABLE and c.seen + count > t.ridge_length:
        return False
    if c.kind != GROWING:  # a bounded history asks for no more than it may have, piece by piece
        return True
    history = rows_at(t.history)
    nnz = integers(rows.stop)[n - 1] - integers(rows.start)[i] + count if rows.sparse != 0 else 0
    return c.held + count <= history.count and (rows.sparse == 0 or c.used + nnz <= history.room)


@inner
def step_fault(t: Any, rows: Any, i: int, n: int) -> int:
    """Whether the step of round n would diverge on row i"""
    if t.guard == 0 or t.step_kind == NORMALISED or (t.step_kind == TABLE and n > t.step_length):
        return 0
    gamma = step_size(t, n, 0.0, 0.0)
    x, _, length = row(rows, i)
    # a scheme without draws (NLMS) divides its step by the norm itself
    return STEP_TOO_LARGE if gamma * (norm2(x, length) if t.draws != 0 else 1.0) >= 2.0 else 0


@inner
def check(t: Any, rows: Any, i: int, n: int) -> int:
    """Look at rows i ... n - 1 of the block before the first one is taken, so that a bad one changes nothing"""
    seen, y = counts(t.counts).seen, reals(rows.y)
    for k in range(i, n):
        t.fault_row = k
        fault = row_fault(rows, k)
        if fault == 0 and not abs(y[k]) < LARGEST_Y:
            return NOT_FINITE
        if fault == 0 and rows.units == 0:  # else the row is yet to be standardised
            fault = step_fault(t, rows, k, seen + k - i + 1)
        if fault != 0:
            return fault
    return 0


# -- does it learn? ---------------------------------------------------------------------------------------------------


@inner
def watch(t: Any, rows: Any, i: int) -> None:
    """Squared errors of theta.x and of the mean of y on a row that is yet to be learned: means over recent rows"""
    x, at, n = row(rows, i)
    y = reals(rows.y)[i]
    largest = np.sqrt(t.max_y2)  # so far: a guess beyond it is as wrong as that
    error, around = y - max(-largest, min(largest, mean_of(t, x, at, n))), y - t.mean_y
    t.watched += 1.0
    share = 1.0 / min(t.watched, RECENT)
    t.progressive += share * (min(error * error, MOST_ERROR) - t.progressive)
    t.baseline += share * (around * around - t.baseline)
    t.mean_y += share * around


# -- the loop ---------------------------------------------------------------------------------------------------------


@inner
def take(t: Any, rows: Any, i: int) -> float:
    """Row i of the block: into the history, into the state, then the steps of its round"""
    history, c = rows_at(t.history), counts(t.counts)
    slot, kept, asked = next_slot(t, c), c.kind != NOTHING, 0.0
    if t.watch != 0 and c.seen % WATCH_EVERY == 0:
        watch(t, rows, i)
    if slot >= 0:
        if slot < c.held and t.forget != 0:
            asked += call(t.forget, t.address, 0, t.history, slot, c.held, 0, 0.0)
        store(history, c, slot, rows, i)
        if slot == c.held:  # counted once it is whole: a mapped history may lose its process at any time
            c.held += 1
    c.seen += 1
    held = c.held if kept else c.seen
    count = float(held if c.kind == WINDOW else c.seen)
    t.lam = regularisation(t, count)
    t.ridge = total_ridge(t, count, t.lam) * (held / count)
    if t.enter != 0:
        if slot >= 0:
            asked += call(t.enter, t.address, 0, t.history, slot, held, 0, 0.0)
        elif not kept:
            asked += call(t.enter, t.address, 0, rows.address, i, held, 0, 0.0)
    x, _, length = row(rows, i)
    size, y = norm2(x, length), reals(rows.y)[i]
    t.max_norm2, t.max_y2 = max(t.max_norm2, size), max(t.max_y2, y * y)
    t.gamma = step_size(t, c.seen, t.lam, t.max_norm2)
    error = 0.0
    if t.descend != 0:
        if t.draws != 0:
            error = call(t.descend, t.address, 0, t.history, -1, held, 0, 0.0)
            integers(t.cursor)[0] += t.steps
        else:
            if t.normalise != 0:  # NLMS: the newest row's own squared norm
                t.gamma = t.gamma / size if size > SMALLEST_NORM2 else 0.0
                if t.gamma * t.lam > 0.5:  # a small row must not make the shrinkage overshoot
                    t.gamma = 0.5 / t.lam
            error = call(t.descend, t.address, 0, rows.address, i, held, 0, 0.0)
    if t.guard != 0:
        t.error2 += 0.01 * (error * error - t.error2)
        if not t.error2 <= RUNAWAY * t.max_y2:
            t.error2 = min(t.error2, 1e300) if t.error2 == t.error2 else 1e300  # a number that a file can hold
            return float(DIVERGED)
    return float(ATTEND) if asked != 0.0 else 0.0


@entry
def learn(t: Any, i: int, n: int) -> float:
    """Take rows i ... n - 1 of the block, all of which are looked at first; 0, or why it stopped after `done` rows"""
    rows = rows_at(t.block)
    t.done = i
    if t.checked < n:
        fault = check(t, rows, i, n)
        if fault != 0:
            t.checked = 0
            return float(fault)
        t.checked = n
        if n - i > 1 and not all_fit(t, rows, i, n):
            return float(NO_ROOM)
    for k in range(i, n):
        t.done = k
        if not has_room(t, rows, k, 1 if rows.units != 0 else 0):
            return float(NO_ROOM)
        if rows.units != 0:
            u = units(rows.units)
            if t.noted == 0:
                note(u, rows, k)
                if u.asked != 0:
                    t.noted = 1
                    return float(LOOK)
            t.noted = 0
            note_reward(u, reals(rows.y)[k])
            status = take(t, scaled(rows, k, 1), 0)
        else:
            status = take(t, rows, k)
        t.done = k + 1
        if status != 0.0:
            return status
    t.checked = 0
    return 0.0


@inner
def limit(t: Any) -> float:
    """The largest squared error of a step that can still be mended"""
    return HOPELESS * t.max_y2 if t.guard != 0 else 1e300


@inner
def drawn(t: Any, i: int, k: int, m: int) -> int:
    """The row of step k: drawn from m rows, or row i itself"""
    if i >= 0:
        return i
    if t.ahead != 0:  # the history does not fit the cache: later rows are asked for in time
        call(t.ahead, t.address, 0, t.history, k, m, 0, 0.0)
    return int(reals(t.tape)[integers(t.cursor)[0] + k] * m)


@inner
def descend(t: Any, rows: Any, i: int, m: int, step: Any) -> float:
    """The steps of a round over m rows, until one is beyond mending; the last error"""
    error, most = 0.0, limit(t)
    for k in range(t.steps):
        error = step(t, rows, drawn(t, i, k, m), m)
        if not error * error <= most:
            break
    return error


@part
def look_ahead(t: Any, rows: Any, i: int, n: int) -> float:
    """Ask for what the steps after step i need, in three stages: where a row lies, the row, what it touches

    A dense row lies where its number says, and touches everything.
    """
    far = 2 * t.lookahead
    for stage in range(3 if rows.sparse != 0 else 1):
        ask(t, rows, i + far, n, stage)
        far //= 2
    return 0.0


@inner
def ask(t: Any, rows: Any, k: int, m: int, stage: int) -> None:
    """Ask for what step k of this round needs, or of a later round: the tape already knows its row"""
    c, position = counts(t.counts), integers(t.cursor)[0] + k
    while k >= t.steps:  # a division would cost more than the step
        k -= t.steps
        m = min(m + 1, c.capacity)
        position += 1 if c.kind == RESERVOIR else 0
    if position >= t.tape_size:
        return
    i = int(reals(t.tape)[position] * m)
    if i >= c.held:  # a row that has yet to come lies nowhere
        return
    if stage == 0:
        prefetch(rows.y + 8 * i)
        if t.residual != 0:  # to ask for what lies nowhere takes longer than to ask for what does
            prefetch(t.residual + 8 * i)
        if rows.sparse != 0:
            prefetch(rows.start + 8 * i)
            prefetch(rows.stop + 8 * i)
        else:
            first = rows.values + 8 * rows.dim * i
            for j in range(0, min(rows.dim, MOST_LINES * PER_LINE), PER_LINE):
                prefetch(first + 8 * j)
    elif rows.sparse != 0:
        start, stop = integers(rows.start)[i], integers(rows.stop)[i]
        if stage == 1:
            for p in range(start, stop + 15, 16):
                prefetch(rows.indices + 4 * p)
            for p in range(start, stop + PER_LINE - 1, PER_LINE):
                prefetch(rows.values + 8 * p)
        elif t.dim > IN_CACHE:
            features = indices(rows.indices)
            for p in range(start, stop):
                prefetch(t.u + 8 * t.stride * features[p])


# -- reading ----------------------------------------------------------------------------------------------------------


@inner
def coefficient(t: Any, j: int) -> float:
    """theta_j = a u_j + b g_j, whatever the scheme"""
    place = j * max(t.stride, 1)
    theta = t.a * reals(t.u)[place]
    return theta if t.b == 0.0 else theta + t.b * reals(t.g)[place]


@inner
def mean_of(t: Any, x: Any, at: Any, n: int) -> float:
    """theta . x"""
    if t.b == 0.0:
        return t.a * dot(x, at, n, t.stride, reals(t.u))
    u, g = dot2(x, at, n, t.stride, reals(t.u), reals(t.g))
    return t.a * u + t.b * g


@entry
def predict(t: Any, i: int, n: int) -> float:
    """y_k = theta . x_k for rows i ... n - 1 of the block; 0, or the fault of a row"""
    rows = rows_at(t.block)
    y = reals(rows.y)
    for k in range(i, n):
        t.fault_row = k
        fault = row_fault(rows, k)
        if fault != 0:
            return float(fault)
        if rows.units != 0:
            x, at, length = row(scaled(rows, k, 1), 0)
            y[k] = mean_of(t, x, at, length) + units(rows.units).offset
        else:
            x, at, length = row(rows, k)
            y[k] = mean_of(t, x, at, length)
    return 0.0
