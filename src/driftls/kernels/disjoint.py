"""One model an arm: a user comes, and every arm's own model says what it thinks.

Where the width is a sum over features (diagonal, or none), so is a score, and a user's few features are shared by all
arms. Over many rounds with the same pool, what the models think of each feature is therefore kept side by side, and a
user's features are swept over whole lines of it. Sums here keep their order, so that a score is the same to the bit
whether it comes from there or from the models themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from driftls.kernels import policy, track
from driftls.kernels.chance import Chance
from driftls.kernels.compile import by_type, cycles, exactly, kernel, merged
from driftls.kernels.exact import ExactState
from driftls.kernels.frames import Integers, Matrix, Vector, unpack
from driftls.kernels.kept import EnsembleState, PhiCDState
from driftls.kernels.phi import PhiState
from driftls.kernels.policy import (
    CHOOSE,
    DRAWS,
    LEARN,
    LEARNING,
    PLAY,
    STATUS,
    WAITING,
    Judge,
    Rounds,
    first_fault,
    pick,
    ready,
    told,
    weight,
)
from driftls.kernels.rows import DenseRows, SparseRows, begin, end, index, value
from driftls.kernels.schedules import Plan
from driftls.kernels.schemes import coordinate, dot
from driftls.kernels.track import HELD, KIND, NOTHING, SEEN, Log
from driftls.kernels.widths import (
    D_RIDGE,
    D_SCALE,
    DiagonalWidthState,
    NoWidth,
    OwnExactState,
    SampleState,
    bonus,
    width_begin,
)


class Mirror(NamedTuple):
    """At [j, k], theta_j and 1/(ridge + s_j) of the arm at position k of the pool; empty: the models are asked."""

    theta: Matrix
    spread: Matrix
    squares: Vector


@exactly
def no_spread(width: NoWidth, j: int) -> float:
    return 0.0


@exactly
def diagonal_spread(width: DiagonalWidthState, j: int) -> float:
    """1/(ridge + s_j)"""
    return 1.0 / (width.scalars[D_RIDGE] + width.scalars[D_SCALE] * width.coords[0, j])


spread = by_type({NoWidth: no_spread, DiagonalWidthState: diagonal_spread}, exact=True)


@exactly
def model_score(state: Any, width: Any, users: Any, u: int, kappa: float) -> float:
    """theta.x + kappa sqrt(sum x_j^2/(ridge + s_j)) from the model itself"""
    total, squares = 0.0, 0.0
    for p in range(begin(users, u), end(users, u)):
        x, j = value(users, u, p), index(users, u, p)
        total += x * coordinate(state, j)
        squares += x * x * spread(width, j)
    return total + kappa * np.sqrt(squares)


@exactly
def add_line(out: Vector, table: Matrix, j: int, x: float, count: int) -> None:
    """out += x table[j]"""
    line = table[j]
    for k in range(count):
        out[k] += x * line[k]


@exactly
def add_four(out: Vector, table: Matrix, j: Any, x: Any, count: int) -> None:
    """The same for four lines in turn, so that `out` is read and written once"""
    a, b, c, d = table[j[0]], table[j[1]], table[j[2]], table[j[3]]
    for k in range(count):
        out[k] = (((out[k] + x[0] * a[k]) + x[1] * b[k]) + x[2] * c[k]) + x[3] * d[k]


@exactly
def sweep(mirror: Mirror, users: Any, u: int, kappa: float, scores: Vector, count: int) -> None:
    """The same for all arms of the pool at once: feature after feature, over a line of arms"""
    squares = mirror.squares
    for k in range(count):
        scores[k] = 0.0
        squares[k] = 0.0
    p, stop = begin(users, u), end(users, u)
    while p + 4 <= stop:
        j = (index(users, u, p), index(users, u, p + 1), index(users, u, p + 2), index(users, u, p + 3))
        x = (value(users, u, p), value(users, u, p + 1), value(users, u, p + 2), value(users, u, p + 3))
        add_four(scores, mirror.theta, j, x, count)
        add_four(squares, mirror.spread, j, (x[0] * x[0], x[1] * x[1], x[2] * x[2], x[3] * x[3]), count)
        p += 4
    while p < stop:
        one, at = value(users, u, p), index(users, u, p)
        add_line(scores, mirror.theta, at, one, count)
        add_line(squares, mirror.spread, at, one * one, count)
        p += 1
    for k in range(count):
        scores[k] = scores[k] + kappa * np.sqrt(squares[k])


@kernel
def summed_scores(
    width: Any,
    kinds: Any,
    table: Any,
    values: Any,
    judge: Any,
    chance: Any,
    mirror: Any,
    users: Any,
    u: int,
    slots: Any,
) -> None:
    """Scores where a width is a sum over features"""
    kappa = weight(judge)
    if mirror.theta.size > 0:
        sweep(mirror, users, u, kappa, judge.scores, slots.size)
        return
    for k in range(slots.size):
        state, _, _, _, own = unpack(table[slots[k]], values, kinds)
        judge.scores[k] = model_score(state, own, users, u, kappa)


@kernel
def asked_scores(
    width: Any,
    kinds: Any,
    table: Any,
    values: Any,
    judge: Any,
    chance: Any,
    mirror: Any,
    users: Any,
    u: int,
    slots: Any,
) -> None:
    """Scores where each model has to be asked"""
    kappa = weight(judge)
    for k in range(slots.size):
        state, _, log, rows, own = unpack(table[slots[k]], values, kinds)
        held = log.book[HELD] if log.book[KIND] != NOTHING else log.book[SEEN]
        judge.scores[k] = dot(state, users, u)
        if kappa != 0.0:
            width_begin(own, held, chance)
            judge.scores[k] += kappa * bonus(own, users, u, -1, rows, held)


@kernel
def refresh_column(width: Any, state: Any, mirror: Mirror, k: int) -> None:
    """The arm at position k has learned"""
    for j in range(mirror.theta.shape[0]):
        mirror.theta[j, k] = coordinate(state, j)
        mirror.spread[j, k] = spread(width, j)


@kernel
def refresh_nothing(width: Any, state: Any, mirror: Mirror, k: int) -> None:
    pass


summed = (NoWidth, DiagonalWidthState)
asked = (ExactState, OwnExactState, PhiState, PhiCDState, EnsembleState, SampleState)
score_arms = by_type({**dict.fromkeys(summed, summed_scores), **dict.fromkeys(asked, asked_scores)})
refresh = by_type({**dict.fromkeys(summed, refresh_column), **dict.fromkeys(asked, refresh_nothing)})


@merged
def each(
    kinds: Any,
    table: Any,
    values: Any,
    judge: Judge,
    chance: Chance,
    mirror: Mirror,
    users: Any,
    dim: int,
    slots: Integers,
    job: Rounds,
    task: int,
    first: int,
    last: int,
) -> int:
    """As `policy.act`, for users: row job.first_arm[r] is the user of round r, slots are the models of the pool"""
    if task == CHOOSE:
        fault = first_fault(users, dim)
        if fault != 0:
            return -fault
    elif task == PLAY and mirror.theta.size > 0:
        for k in range(slots.size):
            state, _, _, _, width = unpack(table[slots[k]], values, kinds)
            refresh(width, state, mirror, k)
    r, status, u, k = first, 0, 0, 0
    while r < last:
        if task != LEARN:
            if task == PLAY and chance.cursor[0] + (slots.size + 1) * judge.scalars[DRAWS] > chance.tape.size:
                return r
            u = job.first_arm[r]
            score_arms(kinds[4], kinds, table, values, judge, chance, mirror, users, u, slots)
            k = pick(judge, chance, slots.size)
            if task == CHOOSE:
                return k
            job.chosen[r] = k
            column = told(job, r, k)
            if column < 0:
                r += 1
                continue
            users.y[u] = job.rewards[r, column]
        state, plan, log, rows, width = unpack(table[slots[k]], values, kinds)
        if task == LEARN:
            status = track.check(plan, log, users, dim)
        else:
            if not track.has_room(plan, log, rows, users, u):
                job.clock[WAITING] = 1
                return r
            status = track.step_fault(plan, log, users, u, log.book[SEEN] + 1)
        before = cycles()
        if status == 0:
            status = policy.learn(state, plan, log, rows, width, judge, chance, users, u, -1)
        able = ready(state)
        if task == LEARN:
            return status
        if mirror.theta.size > 0:
            refresh(width, state, mirror, k)
        job.clock[LEARNING] += cycles() - before
        r += 1
        if status != 0 or not able:
            job.clock[STATUS] = status
            return r
    return last


class DisjointEntries(NamedTuple):
    """The ways in for one class of tracker state and one class of width state."""

    dense: Callable[..., int]
    sparse: Callable[..., int]


@cache
def disjoint_entries(state_class: Any, width_class: Any) -> DisjointEntries:
    """The compiled entry points. `table` has the words of a model (state, plan, log, rows, width) a line."""

    @kernel
    def each_dense(
        table: Any, words: Any, X: Any, y: Any, dim: int, slots: Any, job: Any, task: int, first: int, last: int
    ) -> int:
        judge, chance, mirror = unpack(words, X, Judge, Chance, Mirror)
        (rounds,) = unpack(job, X, Rounds)
        kinds = unpack(table[slots[0]], X, state_class, Plan, Log, DenseRows, width_class)
        users = DenseRows(X, y)
        return each(kinds, table, X, judge, chance, mirror, users, dim, slots, rounds, task, first, last)

    @kernel
    def each_sparse(
        table: Any,
        words: Any,
        start: Any,
        stop: Any,
        index: Any,
        values: Any,
        y: Any,
        dim: int,
        slots: Any,
        job: Any,
        task: int,
        first: int,
        last: int,
    ) -> int:
        judge, chance, mirror = unpack(words, values, Judge, Chance, Mirror)
        (rounds,) = unpack(job, values, Rounds)
        kinds = unpack(table[slots[0]], values, state_class, Plan, Log, SparseRows, width_class)
        users = SparseRows(start, stop, index, values, y)
        return each(kinds, table, values, judge, chance, mirror, users, dim, slots, rounds, task, first, last)

    return DisjointEntries(each_dense, each_sparse)
