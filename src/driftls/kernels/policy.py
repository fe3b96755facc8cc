"""Choose an arm, learn its reward: the two halves of a round, over any tracker and any width.

`act` is the only way in: one choice, one reward or many rounds run through the same machine code, so a loop in Python
and a compiled one decide alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from driftls.kernels import schedules, track
from driftls.kernels.chance import Chance, uniform
from driftls.kernels.compile import by_type, cycles, kernel, merged
from driftls.kernels.exact import INVERT, ROUTE, SHERMAN_MORRISON, ExactState
from driftls.kernels.frames import Integers, Matrix, Vector, unpack
from driftls.kernels.rows import CrossRows, DenseRows, SparseRows, row_fault
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

# Judge.scalars: kappa is fixed, or (SIGMAS > 0) that many standard deviations of the noise, estimated as we go; DRAWS
# is the most that a round reads of the policy's tape; at LOOK learned rewards the caller wants to look at the ridge.
KAPPA, SIGMAS, EPSILON, ERRORS, LEARNED, PROBABILITY, DRAWS, LOOK = 0, 1, 2, 3, 4, 5, 6, 7
SCALARS = 8

CHOOSE, LEARN, PLAY = 0, 1, 2  # what `act` is asked for
LEARNING, WAITING, STATUS = 0, 1, 2  # Rounds.clock
CLOCK = 3


class Judge(NamedTuple):
    """How a policy weighs what it knows; the scores of its last round."""

    scalars: Vector
    scores: Vector


class Rounds(NamedTuple):
    """Rounds to be played, and what is filled in.

    The arms of round r begin at row first_arm[r]. Where shown[r] is -1 the reward of any arm is known: rewards is
    (round, arm). Else it is known for the arm shown alone, rewards is (round, 0), and other choices teach nothing.
    clock: cycles spent in learning; whether a choice waits to be learned, because room has to be made; a fault.
    """

    first_arm: Integers
    shown: Integers
    rewards: Matrix
    chosen: Integers
    clock: Integers


@kernel
def weight(judge: Judge) -> float:
    """kappa; from the data: SIGMAS sqrt((1/n) sum e_t^2/(1 + w_t)), and SIGMAS itself while there was no error yet"""
    scalars = judge.scalars
    if scalars[SIGMAS] == 0.0:
        return scalars[KAPPA]
    if scalars[ERRORS] == 0.0:
        return scalars[SIGMAS]
    return scalars[SIGMAS] * np.sqrt(scalars[ERRORS] / scalars[LEARNED])


@merged
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
def always_ready(state: Any) -> bool:
    return True


@kernel
def exact_ready(state: ExactState) -> bool:
    """Whether theta and the inverse are those of all rows, or have to be solved for first"""
    keep_inverse(state)
    return state.scalars[ROUTE] == SHERMAN_MORRISON or state.scalars[ROUTE] == INVERT


# a row was taken: can the next choice be made at once?
ready = by_type({**dict.fromkeys(ENTER, always_ready), ExactState: exact_ready})


@merged
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
    held = log.book[HELD] if log.book[KIND] != NOTHING else log.book[SEEN]
    n = log.book[SEEN]
    gamma = schedules.step_size(plan, n, schedules.regularisation(plan, float(n)), log.health[MAX_NORM2])
    width_enter(width, block, k, slot, rows, held, log.health[MAX_NORM2], gamma, chance)
    return status


@merged
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
def now() -> int:
    """The clock on which `Rounds.clock` counts"""
    return cycles()


@kernel
def told(job: Rounds, r: int, arm: int) -> int:
    """Whether the log of round r knows the reward of this choice: its column in rewards, or -1"""
    if job.shown[r] < 0:
        return arm
    return 0 if job.shown[r] == arm else -1


@merged
def act(
    state: Any,
    plan: Plan,
    log: Log,
    rows: Any,
    width: Any,
    judge: Judge,
    chance: Chance,
    arms: Any,
    dim: int,
    slots: Integers,
    job: Rounds,
    task: int,
    first: int,
    last: int,
) -> int:
    """CHOOSE: the arm, or minus (8 times the number from 1 of a bad one, plus what is wrong with it).

    LEARN: row 0 of `arms` with its reward; 0, or what is wrong. PLAY rounds first ... last - 1; returns how far.
    """
    if task == CHOOSE:
        fault = first_fault(arms, dim)
        if fault != 0:
            return -fault
        open_slots(width, arms, slots)
    elif task == LEARN:
        fault = track.check(plan, log, arms, dim)
        if fault != 0:
            return fault
    r, status, row, k = first, 0, 0, 0
    while r < last:  # each half of a round has one place in this loop, so that it is compiled once
        if task != LEARN:
            if task == PLAY and chance.cursor[0] + 2 * judge.scalars[DRAWS] > chance.tape.size:
                return r
            row = job.first_arm[r]
            k = choose(state, log, rows, width, judge, chance, arms, row, slots)
            if task == CHOOSE:
                return k
            job.chosen[r] = k
            column = told(job, r, k)
            if column < 0:
                r += 1
                continue
            row += k
            arms.y[row] = job.rewards[r, column]
            if not track.has_room(plan, log, rows, arms, row):
                job.clock[WAITING] = 1
                return r
            status = track.step_fault(plan, log, arms, row, log.book[SEEN] + 1)
        before = cycles()
        if status == 0:
            status = learn(state, plan, log, rows, width, judge, chance, arms, row, slots[k])
        able = ready(state)
        if task == LEARN:
            return status
        job.clock[LEARNING] += cycles() - before
        r += 1
        if status != 0:
            job.clock[STATUS] = status
            return r
        if not able or judge.scalars[LEARNED] == judge.scalars[LOOK]:
            return r
    return last


class PolicyEntries(NamedTuple):
    """The ways in for one class of tracker state and one class of width state."""

    dense: Callable[..., int]
    sparse: Callable[..., int]
    crossed: Callable[..., int]


@cache
def policy_entries(state_class: Any, width_class: Any) -> PolicyEntries:
    """The compiled entry points of a policy. Its frame: state, plan, log, rows, width, judge, chance."""

    @kernel
    def act_dense(words: Any, X: Any, y: Any, dim: int, slots: Any, job: Any, task: int, first: int, last: int) -> int:
        state, plan, log, rows, width, judge, chance = unpack(
            words, X, state_class, Plan, Log, DenseRows, width_class, Judge, Chance
        )
        (rounds,) = unpack(job, X, Rounds)
        arms = DenseRows(X, y)
        return act(state, plan, log, rows, width, judge, chance, arms, X.shape[1], slots, rounds, task, first, last)

    @kernel
    def act_sparse(
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
        state, plan, log, rows, width, judge, chance = unpack(
            words, values, state_class, Plan, Log, SparseRows, width_class, Judge, Chance
        )
        (rounds,) = unpack(job, values, Rounds)
        arms = SparseRows(start, stop, index, values, y)
        return act(state, plan, log, rows, width, judge, chance, arms, dim, slots, rounds, task, first, last)

    @kernel
    def act_crossed(
        words: Any, arm_words: Any, values: Any, dim: int, slots: Any, job: Any, task: int, first: int, last: int
    ) -> int:
        """The arms come as words too: eight arrays as arguments would be counted up and down at every entry"""
        state, plan, log, rows, width, judge, chance = unpack(
            words, values, state_class, Plan, Log, SparseRows, width_class, Judge, Chance
        )
        (rounds,) = unpack(job, values, Rounds)
        (arms,) = unpack(arm_words, values, CrossRows)
        return act(state, plan, log, rows, width, judge, chance, arms, dim, slots, rounds, task, first, last)

    return PolicyEntries(act_dense, act_sparse, act_crossed)


@kernel
def widths_of(width: Any, arms: Any, slots: Integers, rows: Any, held: int, out: Vector) -> None:
    """out[k] = width of arm k"""
    open_slots(width, arms, slots)
    for k in range(out.size):
        out[k] = np.sqrt(width2(width, arms, k, slots[k], rows, held))
