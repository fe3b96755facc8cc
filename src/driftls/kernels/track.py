"""The one loop of all trackers: a row arrives, is stored, enters the state; then the inner steps are taken.

`advance` is the only way in from Python, for one row and for a block alike, so both run the same machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from driftls.kernels import schedules
from driftls.kernels.compile import bare, kernel, leaf, merged
from driftls.kernels.frames import Integers, Vector, unpack
from driftls.kernels.rows import (
    CLOSE,
    FAR,
    NEAR,
    UNSORTED,
    DenseRows,
    SparseRows,
    index_fault,
    row_fault,
    row_fits,
    row_norm2,
    row_prefetch,
    row_store,
)
from driftls.kernels.schedules import Plan
from driftls.kernels.schemes import coordinate, dot, enter, forget, state_prefetch, step

# plan.knobs
STEPS, DRAWS, GUARD, LOOKAHEAD, PREFETCH_FROM, NORMALISE = 0, 1, 2, 3, 4, 5
KNOBS = 6

# Log.book
KIND, CAPACITY, HELD, SEEN, USED, FAULT_ROW, DONE = 0, 1, 2, 3, 4, 5, 6
BOOK = 7
NOTHING, GROWING, WINDOW, RESERVOIR = 0, 1, 2, 3

# Log.health
MAX_NORM2, ERROR2, MAX_Y2 = 0, 1, 2
HEALTH = 3

# What `advance` returns, after the faults of rows.py
STEP_TOO_LARGE, DIVERGED = 4, 5
# A smoothed squared error a million times the largest y^2 is a thousand times worse than predicting 0.
RUNAWAY = 1e6
# Within the steps of one row: far beyond any outlier, and far below what overflows.
HOPELESS = 1e36


class Log(NamedTuple):
    """Counters, what is known of the rows' sizes, the tape of uniforms and (one entry) where to read it next."""

    book: Integers
    health: Vector
    tape: Vector
    cursor: Integers


@kernel
def place(log: Log) -> int:
    """The slot of the next row, or -1 where it is not kept; a reservoir is uniform over all rows seen"""
    book = log.book
    kind, held, capacity = book[KIND], book[HELD], book[CAPACITY]
    if kind == RESERVOIR:
        u = log.tape[log.cursor[0]]
        log.cursor[0] += 1
        if held == capacity:
            slot = int(u * (book[SEEN] + 1))
            return slot if slot < capacity else -1
    elif kind == WINDOW and held == capacity:
        return int(book[SEEN] % capacity)
    return int(held) if kind != NOTHING else -1


@leaf
def look_ahead(state: Any, log: Log, rows: Any, cursor: int, s: int, steps: int, held: int, stage: int) -> None:
    """Ask for what step s of this round needs, or of a later round: the tape already knows its row"""
    book = log.book
    if s < steps:
        i = int(log.tape[cursor + s] * held)
        row_prefetch(rows, i, stage)
        state_prefetch(state, rows, i, stage)
        return
    position = cursor + s
    while s >= steps:  # a division would cost more than the step
        s -= steps
        held = min(held + 1, book[CAPACITY])
        position += 1 if book[KIND] == RESERVOIR else 0
    if position < log.tape.size:
        i = int(log.tape[position] * held)
        if i < book[HELD]:  # a row that has yet to come lies nowhere
            row_prefetch(rows, i, stage)
            state_prefetch(state, rows, i, stage)


@merged
def track(state: Any, plan: Plan, log: Log, rows: Any, block: Any, first: int, last: int) -> int:
    """Take rows first ... last - 1 of the block"""
    book, health, knobs = log.book, log.health, plan.knobs
    steps = int(knobs[STEPS])
    lookahead = int(knobs[LOOKAHEAD])
    kept = book[KIND] != NOTHING
    guarded = knobs[GUARD] != 0.0
    for k in range(first, last):
        slot = place(log)
        if slot >= 0:
            if slot < book[HELD]:
                forget(state, rows, slot, book[HELD])
            book[USED] = row_store(rows, slot, block, k, book[USED])
            if slot == book[HELD]:  # counted once it is whole: a mapped history may lose its process at any time
                book[HELD] += 1
        book[SEEN] += 1
        n = book[SEEN]
        held = book[HELD] if kept else n
        count = float(held if book[KIND] == WINDOW else n)
        ridge = schedules.total_ridge(plan, count) * (held / count)
        if slot >= 0:
            enter(state, rows, slot, held, ridge)
        elif not kept:
            enter(state, block, k, held, ridge)
        health[MAX_NORM2] = max(health[MAX_NORM2], row_norm2(block, k))
        health[MAX_Y2] = max(health[MAX_Y2], block.y[k] * block.y[k])
        lam = schedules.regularisation(plan, count)
        gamma = schedules.step_size(plan, n, lam, health[MAX_NORM2])
        error = 0.0
        if knobs[DRAWS] == 0.0:
            if knobs[NORMALISE] != 0.0:  # NLMS: the newest row's own squared norm
                norm2 = row_norm2(block, k)
                gamma = gamma / norm2 if norm2 > schedules.SMALLEST_NORM2 else 0.0
                if gamma * lam > 0.5:  # a small row must not make the shrinkage overshoot
                    gamma = 0.5 / lam
            for _ in range(steps):
                error = step(state, block, k, held, gamma, lam)
        else:
            far = held > knobs[PREFETCH_FROM]
            cursor = log.cursor[0]
            for t in range(steps):
                if far:
                    look_ahead(state, log, rows, cursor, t + 2 * lookahead, steps, held, FAR)
                    look_ahead(state, log, rows, cursor, t + lookahead, steps, held, NEAR)
                    look_ahead(state, log, rows, cursor, t + lookahead // 2, steps, held, CLOSE)
                error = step(state, rows, int(log.tape[cursor + t] * held), held, gamma, lam)
                if guarded and not error * error <= HOPELESS * health[MAX_Y2]:
                    break
            log.cursor[0] = cursor + steps
        if guarded:
            health[ERROR2] += 0.01 * (error * error - health[ERROR2])
            if not health[ERROR2] <= RUNAWAY * health[MAX_Y2]:
                book[DONE] = k + 1
                return DIVERGED
    book[DONE] = last
    return 0


@kernel
def step_fault(plan: Plan, log: Log, block: Any, k: int, n: int) -> int:
    """Whether the step of round n would diverge on row k"""
    if plan.knobs[GUARD] == 0.0 or plan.step_size[0] == schedules.NORMALISED:
        return 0
    gamma = schedules.step_size(plan, n, 0.0, 0.0)
    # a scheme without draws (NLMS) divides its step by the norm itself
    return STEP_TOO_LARGE if gamma * (row_norm2(block, k) if plan.knobs[DRAWS] != 0.0 else 1.0) >= 2.0 else 0


@merged
def check(plan: Plan, log: Log, block: Any, dim: int) -> int:
    """Look at every row of the block before the first one is taken, so that a bad one changes nothing"""
    for k in range(block.y.size):
        log.book[FAULT_ROW] = k
        fault = row_fault(block, k, dim)
        if fault == 0:
            fault = step_fault(plan, log, block, k, log.book[SEEN] + k + 1)
        if fault != 0:
            return fault
    return 0


@kernel
def has_room(plan: Plan, log: Log, rows: Any, block: Any, k: int) -> bool:
    """Whether row k of the block can be taken at once: draws, tables and places in the history are ready for it"""
    book = log.book
    draws = (plan.knobs[STEPS] if plan.knobs[DRAWS] != 0.0 else 0.0) + (1.0 if book[KIND] == RESERVOIR else 0.0)
    if log.cursor[0] + draws > log.tape.size:
        return False
    for kind, table in ((plan.step_size[0], plan.step_table), (plan.regularisation[0], plan.regularisation_table)):
        if kind == schedules.TABLE and book[SEEN] >= table.size:
            return False
    if book[KIND] == GROWING and book[HELD] >= book[CAPACITY]:
        return False
    return book[KIND] == NOTHING or row_fits(rows, block, k, book[USED])


@merged
def checked_track(state: Any, plan: Plan, log: Log, rows: Any, block: Any, dim: int, first: int, last: int) -> int:
    """Check the whole block with its first piece, then take the piece"""
    log.book[DONE] = first
    if first == 0:
        fault = check(plan, log, block, dim)
        if fault != 0:
            return fault
    return track(state, plan, log, rows, block, first, last)


class Entries(NamedTuple):
    """The ways in for one class of state."""

    dense: Callable[..., int]
    sparse: Callable[..., int]
    read: Callable[..., None]
    predict_dense: Callable[..., int]
    predict_sparse: Callable[..., int]


@cache
def entries(state_class: type) -> Entries:
    """The compiled entry points of a tracker whose state is of this class.

    A frame holds the words of the state, the plan, the log and the rows, in this order.
    """

    @kernel
    def advance_dense(words: Any, X: Any, y: Any, first: int, last: int) -> int:
        state, plan, log, rows = unpack(bare(words), X, state_class, Plan, Log, DenseRows)
        return checked_track(state, plan, log, rows, DenseRows(bare(X), bare(y)), X.shape[1], first, last)

    @kernel
    def advance_sparse(
        words: Any, start: Any, stop: Any, index: Any, value: Any, y: Any, dim: int, first: int, last: int
    ) -> int:
        state, plan, log, rows = unpack(bare(words), value, state_class, Plan, Log, SparseRows)
        block = SparseRows(bare(start), bare(stop), bare(index), bare(value), bare(y))
        return checked_track(state, plan, log, rows, block, dim, first, last)

    @kernel
    def predict_dense(words: Any, X: Any, out: Any) -> int:
        (state,) = unpack(words, X, state_class)
        return predict_all(state, DenseRows(bare(X), bare(out)), X.shape[1], bare(out))

    @kernel
    def predict_sparse(words: Any, start: Any, stop: Any, index: Any, value: Any, dim: int, out: Any) -> int:
        (state,) = unpack(words, value, state_class)
        rows = SparseRows(bare(start), bare(stop), bare(index), bare(value), bare(out))
        return predict_all(state, rows, dim, bare(out))

    return Entries(advance_dense, advance_sparse, read_all, predict_dense, predict_sparse)


@kernel
def read_all(state: Any, out: Vector) -> None:
    """out = theta"""
    for j in range(out.size):
        out[j] = coordinate(state, j)


@leaf
def predict_all(state: Any, rows: Any, dim: int, out: Vector) -> int:
    """out[i] = theta . x_i; the fault of a row that reaches beyond its arrays, else 0"""
    for i in range(out.size):
        fault = index_fault(rows, i, dim)
        if fault != 0 and fault != UNSORTED:
            return fault
        out[i] = dot(state, rows, i)
    return 0
