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
from driftls.kernels.chance import Chance
from driftls.kernels.compile import bare, by_type, cycles, kernel, leaf, merged
from driftls.kernels.exact import INVERT, ROUTE, SHERMAN_MORRISON, ExactState
from driftls.kernels.frames import Integers, Matrix, Vector, unpack
from driftls.kernels.judge import DRAWS, ERRORS, LEARNED, LOOK, SIGMAS, Judge, pick
from driftls.kernels.mirror import known_choice, reflect, refresh, remember_choice
from driftls.kernels.models import ASKED, PAIRED, SUMMED, Disjoint, Mirror, Shared, Table, held_by, model_of
from driftls.kernels.rows import LARGEST, CrossRows, DenseRows, SparseRows, index_fault, row_fault
from driftls.kernels.schedules import Plan
from driftls.kernels.schemes import ENTER, dot
from driftls.kernels.scores import score_arms
from driftls.kernels.track import MAX_NORM2, SEEN, Log
from driftls.kernels.widths import keep_inverse, width2, width_enter, width_open, width_same

CHOOSE, LEARN, PLAY = 0, 1, 2  # what `act` is asked for
LEARNING, WAITING, STATUS = 0, 1, 2  # Rounds.clock
CLOCK = 3
NO_ROOM = 7  # after the faults of rows and trackers: room or draws are used up; make some, and ask again


class Rounds(NamedTuple):
    """Rounds to be played, and what is filled in.

    The arms of round r begin at row first_arm[r]. Where shown[r] is -1 the reward of any arm is known: rewards is
    (round, arm). Else it is known for the arm shown alone, rewards is (round, 0), and other choices teach nothing.
    clock: cycles spent in learning; whether a choice waits to be learned, because room has to be made; a fault.
    slots: of the arms of the pool. y: the rewards of the rows, as they become known.
    """

    first_arm: Integers
    shown: Integers
    rewards: Matrix
    chosen: Integers
    clock: Integers
    slots: Integers
    y: Vector


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
    if judge.scalars[SIGMAS] != 0.0:
        error = block.y[k] - dot(state, block, k)
        judge.scalars[ERRORS] += error * error / (1.0 + width2(width, block, k, slot, rows, held_by(log)))
    judge.scalars[LEARNED] += 1.0
    status = track.track(state, plan, log, rows, block, k, k + 1)
    n = log.book[SEEN]
    gamma = schedules.step_size(plan, n, schedules.regularisation(plan, float(n)), log.health[MAX_NORM2])
    width_enter(width, block, k, slot, rows, held_by(log), log.health[MAX_NORM2], gamma, chance)
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
def first_fault(arms: Any, dim: int, count: int) -> int:
    """0 if the first `count` arms can be used, else 8 times a bad one's number from 1, plus what is wrong with it"""
    for k in range(count):
        fault = row_fault(arms, k, dim)
        if fault != 0:
            return 8 * (k + 1) + fault
    return 0


# A choice looks at its arms before anything else. Where scores are sums over features, a number that is not finite
# shows in the score, and the indices alone are looked at first: they could lead out of an array.


@leaf
def arms_index_fault(arms: Any, dim: int, count: int) -> int:
    for k in range(count):
        fault = index_fault(arms, k, dim)
        if fault != 0:
            return 8 * (k + 1) + fault
    return 0


@leaf
def cross_arms_fault(arms: CrossRows, dim: int, count: int) -> int:
    """One user, so one look"""
    return arms_index_fault(arms, dim, 1)


indices_first = by_type({DenseRows: arms_index_fault, SparseRows: arms_index_fault, CrossRows: cross_arms_fault})


@leaf
def summed_fault(width: Any, arms: Any, dim: int, count: int) -> int:
    return indices_first(arms, dim, count)


@leaf
def other_fault(width: Any, arms: Any, dim: int, count: int) -> int:
    return first_fault(arms, dim, count)


fault_first = by_type({**dict.fromkeys(SUMMED, summed_fault), **dict.fromkeys((*PAIRED, *ASKED), other_fault)})


@leaf
def shared_arms_fault(models: Any, arms: Any, dim: int, slots: Integers) -> int:
    fault: int = fault_first(models.width, arms, dim, slots.size)
    if fault == 0:
        open_slots(models.width, arms, slots)
    return fault


@leaf
def disjoint_arms_fault(models: Any, users: Any, dim: int, slots: Integers) -> int:
    return first_fault(users, dim, 1)


arms_fault = by_type({Shared: shared_arms_fault, Disjoint: disjoint_arms_fault})


@leaf
def shared_scores_fault(models: Any, arms: Any, dim: int, judge: Judge, slots: Integers) -> int:
    for k in range(slots.size):
        if not abs(judge.scores[k]) < LARGEST:
            return first_fault(arms, dim, slots.size)
    return 0


@leaf
def disjoint_scores_fault(models: Any, users: Any, dim: int, judge: Judge, slots: Integers) -> int:
    return 0


scores_fault = by_type({Shared: shared_scores_fault, Disjoint: disjoint_scores_fault})


@leaf
def shared_row(models: Any, job: Rounds, r: int, k: int) -> int:
    return job.first_arm[r] + k


@leaf
def disjoint_row(models: Any, job: Rounds, r: int, k: int) -> int:
    return job.first_arm[r]


# the row that is learned if arm k is chosen in round r
row_of = by_type({Shared: shared_row, Disjoint: disjoint_row})


@leaf
def shared_slot(models: Any, slot: int) -> int:
    return slot


@leaf
def no_slot(models: Any, slot: int) -> int:
    """The slot names a model; the width of a model keeps no arms"""
    return -1


width_slot = by_type({Shared: shared_slot, Disjoint: no_slot})


@leaf
def shared_draws(models: Any, count: int) -> int:
    return 2


@leaf
def disjoint_draws(models: Any, count: int) -> int:
    return count + 1


# how many times a round may draw from the policy's tape
draws_of = by_type({Shared: shared_draws, Disjoint: disjoint_draws})


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
    models: Any, judge: Judge, chance: Chance, arms: Any, dim: int, job: Rounds, task: int, first: int, last: int
) -> int:
    """CHOOSE among `last` arms: which, or minus (8 times the number from 1 of a bad one, plus what is wrong with it).

    LEARN: row `first` of `arms` with its reward; 0, or what is wrong. PLAY rounds first ... last - 1; returns how far.
    """
    slots = job.slots if task == PLAY else job.slots[:last]
    draws = draws_of(models, slots.size) * judge.scalars[DRAWS]
    if task == CHOOSE:
        fault = arms_fault(models, arms, dim, slots)
        if fault != 0:
            return -fault
    elif task == PLAY:
        reflect(models, slots)
    r, status, row, k = (0 if task == CHOOSE else first), 0, first, first
    while r < last:  # each half of a round has one place in this loop, so that it is compiled once
        if chance.cursor[0] + draws > chance.tape.size:
            return r if task == PLAY else (-NO_ROOM if task == CHOOSE else NO_ROOM)
        if task != LEARN:
            row = 0 if task == CHOOSE else job.first_arm[r]
            k = known_choice(models, arms, row, judge) if task == PLAY else -1
            if k < 0:
                score_arms(models, arms, row, judge, chance, slots)
                if task == CHOOSE:
                    fault = scores_fault(models, arms, dim, judge, slots)
                    if fault != 0:
                        return -fault
                k = pick(judge, chance, slots.size)
                if task == CHOOSE:
                    return k
                remember_choice(models, arms, row, judge, k)
            job.chosen[r] = k
            column = told(job, r, k)
            if column < 0:
                r += 1
                continue
            row = row_of(models, job, r, k)
            arms.y[row] = job.rewards[r, column]
        state, plan, log, rows, width = model_of(models, slots[k])
        if task == LEARN:
            status = row_fault(arms, row, dim)
            if status != 0:
                return status
        if not track.has_room(plan, log, rows, arms, row):
            if task == LEARN:
                return NO_ROOM
            job.clock[WAITING] = 1
            return r
        status = track.step_fault(plan, log, arms, row, log.book[SEEN] + 1)
        before = cycles()
        if status == 0:
            slot = width_slot(models, slots[k])
            status = learn(state, plan, log, rows, width, judge, chance, arms, row, slot)
        able = ready(state)
        if task == LEARN:
            return status
        refresh(models, arms, row, k, slots[k], judge.scalars[LEARNED])
        job.clock[LEARNING] += cycles() - before
        r += 1
        if status != 0:
            job.clock[STATUS] = status
            return r
        if not able or judge.scalars[LEARNED] == judge.scalars[LOOK]:
            return r
    return last


class Entries(NamedTuple):
    """The ways in for one class of tracker state and one class of width state."""

    dense: Callable[..., int]
    sparse: Callable[..., int]
    crossed: Callable[..., int] | None = None


@cache
def shared_entries(state_class: Any, width_class: Any) -> Entries:
    """The compiled entry points of a policy with one model: state, plan, log, rows, width, judge, chance, mirror."""

    @kernel
    def act_dense(words: Any, job: Any, X: Any, task: int, first: int, last: int) -> int:
        arms = bare(X)
        state, plan, log, rows, width, judge, chance, mirror = unpack(
            bare(words), arms, state_class, Plan, Log, DenseRows, width_class, Judge, Chance, Mirror
        )
        (rounds,) = unpack(bare(job), arms, Rounds)
        models = Shared(state, plan, log, rows, width, mirror)
        return act(models, judge, chance, DenseRows(arms, rounds.y), X.shape[1], rounds, task, first, last)

    @kernel
    def act_sparse(
        words: Any, job: Any, start: Any, stop: Any, index: Any, values: Any, dim: int, task: int, first: int, last: int
    ) -> int:
        values = bare(values)
        state, plan, log, rows, width, judge, chance, mirror = unpack(
            bare(words), values, state_class, Plan, Log, SparseRows, width_class, Judge, Chance, Mirror
        )
        (rounds,) = unpack(bare(job), values, Rounds)
        arms = SparseRows(bare(start), bare(stop), bare(index), values, rounds.y)
        models = Shared(state, plan, log, rows, width, mirror)
        return act(models, judge, chance, arms, dim, rounds, task, first, last)

    @kernel
    def act_crossed(
        words: Any, job: Any, arm_words: Any, values: Any, dim: int, task: int, first: int, last: int
    ) -> int:
        values = bare(values)
        state, plan, log, rows, width, judge, chance, mirror = unpack(
            bare(words), values, state_class, Plan, Log, SparseRows, width_class, Judge, Chance, Mirror
        )
        (rounds,) = unpack(bare(job), values, Rounds)
        (arms,) = unpack(bare(arm_words), values, CrossRows)
        models = Shared(state, plan, log, rows, width, mirror)
        return act(models, judge, chance, arms, dim, rounds, task, first, last)

    return Entries(act_dense, act_sparse, act_crossed)


@cache
def disjoint_entries(state_class: Any, width_class: Any) -> Entries:
    """The compiled entry points of a policy with one model an arm: table, judge, chance, mirror."""

    @kernel
    def each_dense(words: Any, job: Any, X: Any, task: int, first: int, last: int) -> int:
        users = bare(X)
        table, judge, chance, mirror = unpack(bare(words), users, Table, Judge, Chance, Mirror)
        (rounds,) = unpack(bare(job), users, Rounds)
        kinds = unpack(table.words[rounds.slots[0]], users, state_class, Plan, Log, DenseRows, width_class)
        models = Disjoint(table, users, kinds, mirror)
        return act(models, judge, chance, DenseRows(users, rounds.y), X.shape[1], rounds, task, first, last)

    @kernel
    def each_sparse(
        words: Any, job: Any, start: Any, stop: Any, index: Any, values: Any, dim: int, task: int, first: int, last: int
    ) -> int:
        values = bare(values)
        table, judge, chance, mirror = unpack(bare(words), values, Table, Judge, Chance, Mirror)
        (rounds,) = unpack(bare(job), values, Rounds)
        kinds = unpack(table.words[rounds.slots[0]], values, state_class, Plan, Log, SparseRows, width_class)
        users = SparseRows(bare(start), bare(stop), bare(index), values, rounds.y)
        models = Disjoint(table, values, kinds, mirror)
        return act(models, judge, chance, users, dim, rounds, task, first, last)

    return Entries(each_dense, each_sparse)


@kernel
def widths_of(width: Any, arms: Any, slots: Integers, rows: Any, held: int, out: Vector) -> None:
    """out[k] = width of arm k"""
    open_slots(width, arms, slots)
    for k in range(out.size):
        out[k] = np.sqrt(width2(width, arms, k, slots[k], rows, held))
