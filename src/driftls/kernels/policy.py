"""Choose an arm, learn its reward: the two halves of a round, over any tracker and any width."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from driftls.kernels import schedules, track
from driftls.kernels.chance import Chance, uniform
from driftls.kernels.compile import by_type, cycles, kernel
from driftls.kernels.exact import ExactState
from driftls.kernels.frames import Integers, Matrix, Vector, unpack
from driftls.kernels.rows import DenseRows, SparseRows, row_fault
from driftls.kernels.schedules import Plan
from driftls.kernels.schemes import ENTER, dot
from driftls.kernels.track import HELD, KIND, MAX_NORM2, NOTHING, SEEN, Log
from driftls.kernels.widths import (
    bonus,
    keep_inverse,
    width2,
    width_begin,
    width_enter,
    width_open,
    width_same,
)

# Settings.scalars: kappa is fixed, or (SIGMAS > 0) that many standard deviations of the noise, estimated as we go
KAPPA, SIGMAS, EPSILON, ERRORS, LEARNED, PROBABILITY = 0, 1, 2, 3, 4, 5
SCALARS = 6


class Judge(NamedTuple):
    """How a policy weighs what it knows; the scores of its last round."""

    scalars: Vector
    scores: Vector


@kernel
def weight(judge: Judge) -> float:
    """kappa; from the data: SIGMAS sqrt((1/n) sum e_t^2/(1 + w_t)), and SIGMAS itself while there was no error yet"""
    scalars = judge.scalars
    if scalars[SIGMAS] == 0.0:
        return scalars[KAPPA]
    if scalars[ERRORS] == 0.0:
        return scalars[SIGMAS]
    return scalars[SIGMAS] * np.sqrt(scalars[ERRORS] / scalars[LEARNED])


@kernel
def choose(
    state: Any, log: Log, rows: Any, width: Any, judge: Judge, chance: Chance, arms: Any, first: int, slots: Integers
) -> int:
    """argmax_k theta.x_k + kappa width(x_k)      [UCB of alg:LinUCBwithBGD]"""
    held = log.book[HELD] if log.book[KIND] != NOTHING else log.book[SEEN]
    kappa = weight(judge)
    width_begin(width, held, chance)
    for k in range(slots.size):
        judge.scores[k] = dot(state, arms, first + k)
        if kappa != 0.0:
            judge.scores[k] += kappa * bonus(width, arms, first + k, slots[k], rows, held)
    return pick(judge, chance, slots.size)


@kernel
def opinion(state: Any, log: Log, rows: Any, width: Any, chance: Chance, user: Any, kappa: float) -> float:
    """The score that one arm's own model gives a user"""
    held = log.book[HELD] if log.book[KIND] != NOTHING else log.book[SEEN]
    score = dot(state, user, 0)
    if kappa != 0.0:
        width_begin(width, held, chance)
        score += kappa * bonus(width, user, 0, -1, rows, held)
    return score


@kernel
def pick(judge: Judge, chance: Chance, count: int) -> int:
    """The arm with the highest score, the first of equals; with probability epsilon any arm"""
    best = 0
    for k in range(1, count):
        if judge.scores[k] > judge.scores[best]:
            best = k
    epsilon = judge.scalars[EPSILON]
    chosen = best
    if epsilon > 0.0:
        u = uniform(chance)
        if u < epsilon:
            chosen = min(int(u / epsilon * count), count - 1)
    judge.scalars[PROBABILITY] = epsilon / count + (1.0 - epsilon if chosen == best else 0.0)
    return chosen


@kernel
def keep_nothing(state: Any) -> None:
    pass


# a row was taken: what has to be ready again before the next choice
keep_ready = by_type({**dict.fromkeys(ENTER, keep_nothing), ExactState: keep_inverse})


@kernel
def learn(
    state: Any,
    plan: Plan,
    log: Log,
    rows: Any,
    width: Any,
    judge: Judge,
    chance: Chance,
    block: Any,
    k: int,
    slot: int,
) -> int:
    """Row k of the block is what was chosen, with its reward: noise estimate, tracker, width, in this order"""
    held = log.book[HELD] if log.book[KIND] != NOTHING else log.book[SEEN]
    if judge.scalars[SIGMAS] != 0.0:
        error = block.y[k] - dot(state, block, k)
        judge.scalars[ERRORS] += error * error / (1.0 + width2(width, block, k, slot, rows, held))
    judge.scalars[LEARNED] += 1.0
    status = track.track(state, plan, log, rows, block, k, k + 1)
    keep_ready(state)
    held = log.book[HELD] if log.book[KIND] != NOTHING else log.book[SEEN]
    n = log.book[SEEN]
    gamma = schedules.step_size(plan, n, schedules.regularisation(plan, float(n)), log.health[MAX_NORM2])
    width_enter(width, block, k, slot, rows, held, log.health[MAX_NORM2], gamma, chance)
    return status


@kernel
def open_slots(width: Any, arms: Any, slots: Integers) -> None:
    """Arms whose slot is below -1 are new: -2 - slot is theirs; one that came with other features starts afresh"""
    for k in range(slots.size):
        if slots[k] < -1:
            slots[k] = -2 - slots[k]
            width_open(width, arms, k, slots[k])
        elif slots[k] >= 0 and not width_same(width, arms, k, slots[k]):
            width_open(width, arms, k, slots[k])


@kernel
def first_fault(arms: Any, dim: int) -> int:
    """0 if every arm can be used, else 8 times the first bad one's number from 1, plus what is wrong with it"""
    for k in range(arms.y.size):
        fault = row_fault(arms, k, dim)
        if fault != 0:
            return 8 * (k + 1) + fault
    return 0


@kernel
def checked_choose(
    state: Any, log: Log, rows: Any, width: Any, judge: Judge, chance: Chance, arms: Any, dim: int, slots: Integers
) -> int:
    """The arm, or minus (8 times its number from 1, plus what is wrong with it); a slot below -1 is new"""
    fault = first_fault(arms, dim)
    if fault != 0:
        return -fault
    open_slots(width, arms, slots)
    return choose(state, log, rows, width, judge, chance, arms, 0, slots)


@kernel
def checked_learn(
    state: Any,
    plan: Plan,
    log: Log,
    rows: Any,
    width: Any,
    judge: Judge,
    chance: Chance,
    block: Any,
    dim: int,
    slot: int,
) -> int:
    """Learn the one row of the block, or say what is wrong with it"""
    fault = track.check(plan, log, block, dim)
    if fault != 0:
        return fault
    return learn(state, plan, log, rows, width, judge, chance, block, 0, slot)


class Rounds(NamedTuple):
    """Rounds of a simulated bandit: means (round, arm), noise, and what is to be filled in.

    `still` 1: every round has the same arms. `clock`: cycles spent in choosing and in learning.
    """

    means: Matrix
    noise: Vector
    chosen: Integers
    rewards: Vector
    clock: Integers
    still: int
    bernoulli: int


@kernel
def play(
    state: Any,
    plan: Plan,
    log: Log,
    rows: Any,
    width: Any,
    judge: Judge,
    chance: Chance,
    arms: Any,
    slots: Integers,
    rounds: Rounds,
    first: int,
    last: int,
) -> int:
    """Rounds first ... last - 1: choose, be rewarded, learn"""
    count = slots.size
    for r in range(first, last):
        start = 0 if rounds.still != 0 else r * count
        before = cycles()
        k = choose(state, log, rows, width, judge, chance, arms, start, slots)
        after = cycles()
        mean, noise = rounds.means[r, k], rounds.noise[r]
        reward = mean + noise if rounds.bernoulli == 0 else (1.0 if noise < mean else 0.0)
        arms.y[start + k] = reward
        status = learn(state, plan, log, rows, width, judge, chance, arms, start + k, slots[k])
        rounds.chosen[r] = k
        rounds.rewards[r] = reward
        rounds.clock[0] += after - before
        rounds.clock[1] += cycles() - after
        if status != 0:
            return status
    return 0


class PolicyEntries(NamedTuple):
    """The ways in for one class of tracker state and one class of width state."""

    choose_dense: Callable[..., int]
    choose_sparse: Callable[..., int]
    learn_dense: Callable[..., int]
    learn_sparse: Callable[..., int]
    each_dense: Callable[..., int]
    each_sparse: Callable[..., int]
    play_dense: Callable[..., int]
    play_sparse: Callable[..., int]


@cache
def policy_entries(state_class: Any, width_class: Any) -> PolicyEntries:
    """The compiled entry points of a policy. Its frame: state, plan, log, rows, width, judge, chance."""

    @kernel
    def choose_dense(words: Any, X: Any, y: Any, slots: Any) -> int:
        state, _, log, rows, width, judge, chance = unpack(
            words, X, state_class, Plan, Log, DenseRows, width_class, Judge, Chance
        )
        return checked_choose(state, log, rows, width, judge, chance, DenseRows(X, y), X.shape[1], slots)

    @kernel
    def choose_sparse(words: Any, start: Any, stop: Any, index: Any, values: Any, y: Any, slots: Any, dim: int) -> int:
        state, _, log, rows, width, judge, chance = unpack(
            words, values, state_class, Plan, Log, SparseRows, width_class, Judge, Chance
        )
        arms = SparseRows(start, stop, index, values, y)
        return checked_choose(state, log, rows, width, judge, chance, arms, dim, slots)

    @kernel
    def learn_dense(words: Any, X: Any, y: Any, slot: int) -> int:
        state, plan, log, rows, width, judge, chance = unpack(
            words, X, state_class, Plan, Log, DenseRows, width_class, Judge, Chance
        )
        return checked_learn(state, plan, log, rows, width, judge, chance, DenseRows(X, y), X.shape[1], slot)

    @kernel
    def learn_sparse(words: Any, start: Any, stop: Any, index: Any, values: Any, y: Any, slot: int, dim: int) -> int:
        state, plan, log, rows, width, judge, chance = unpack(
            words, values, state_class, Plan, Log, SparseRows, width_class, Judge, Chance
        )
        block = SparseRows(start, stop, index, values, y)
        return checked_learn(state, plan, log, rows, width, judge, chance, block, dim, slot)

    @kernel
    def each_dense(table: Any, words: Any, X: Any, y: Any, slots: Any) -> int:
        """One user, one model an arm: the frames of the models are the rows of the table"""
        judge, chance = unpack(words, X, Judge, Chance)
        user = DenseRows(X, y)
        fault = row_fault(user, 0, X.shape[1])
        if fault != 0:
            return -(8 + fault)
        kappa = weight(judge)
        for k in range(slots.size):
            state, _, log, rows, width = unpack(table[slots[k]], X, state_class, Plan, Log, DenseRows, width_class)
            judge.scores[k] = opinion(state, log, rows, width, chance, user, kappa)
        return pick(judge, chance, slots.size)

    @kernel
    def each_sparse(
        table: Any, words: Any, start: Any, stop: Any, index: Any, values: Any, y: Any, slots: Any, dim: int
    ) -> int:
        """As each_dense"""
        judge, chance = unpack(words, values, Judge, Chance)
        user = SparseRows(start, stop, index, values, y)
        fault = row_fault(user, 0, dim)
        if fault != 0:
            return -(8 + fault)
        kappa = weight(judge)
        for k in range(slots.size):
            state, _, log, rows, width = unpack(
                table[slots[k]], values, state_class, Plan, Log, SparseRows, width_class
            )
            judge.scores[k] = opinion(state, log, rows, width, chance, user, kappa)
        return pick(judge, chance, slots.size)

    @kernel
    def play_dense(words: Any, X: Any, y: Any, slots: Any, rounds: Any, first: int, last: int) -> int:
        state, plan, log, rows, width, judge, chance = unpack(
            words, X, state_class, Plan, Log, DenseRows, width_class, Judge, Chance
        )
        arms = DenseRows(X, y)
        return play(state, plan, log, rows, width, judge, chance, arms, slots, rounds, first, last)

    @kernel
    def play_sparse(
        words: Any,
        start: Any,
        stop: Any,
        index: Any,
        values: Any,
        y: Any,
        slots: Any,
        rounds: Any,
        first: int,
        last: int,
    ) -> int:
        state, plan, log, rows, width, judge, chance = unpack(
            words, values, state_class, Plan, Log, SparseRows, width_class, Judge, Chance
        )
        arms = SparseRows(start, stop, index, values, y)
        return play(state, plan, log, rows, width, judge, chance, arms, slots, rounds, first, last)

    return PolicyEntries(
        choose_dense, choose_sparse, learn_dense, learn_sparse, each_dense, each_sparse, play_dense, play_sparse
    )


@kernel
def widths_of(width: Any, arms: Any, slots: Integers, rows: Any, held: int, out: Vector) -> None:
    """out[k] = width of arm k"""
    open_slots(width, arms, slots)
    for k in range(out.size):
        out[k] = np.sqrt(width2(width, arms, k, slots[k], rows, held))
