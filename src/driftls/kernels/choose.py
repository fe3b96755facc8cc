"""Choose an arm, learn its reward, play many rounds: over any tracker and any width, one model or one an arm."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls.compiling.parts import call, entry, indices, inner, integers, reals
from driftls.kernels.learn import ATTEND, LOOK, has_room, mean_of, step_fault, take
from driftls.kernels.records import counts, rows_at, tracker, units, width
from driftls.kernels.rows import LARGEST, NO_ROOM, NOT_FINITE, all_sound, index_fault, row, row_fault, uniform
from driftls.kernels.score import tied
from driftls.kernels.units import AT_ONCE, note, note_new, note_pool, note_reward, scale, scaled

# Why a call came back, after the faults of rows and the statuses of learn.py
NO_DRAWS = 9


@inner
def weight(p: Any) -> float:
    """kappa; from the data: sigmas sqrt((1/n) sum e_t^2/(1 + w_t)), and sigmas itself while there was no error yet"""
    if p.sigmas == 0.0:
        return p.kappa
    if p.errors == 0.0:
        return p.sigmas
    return p.sigmas * np.sqrt(p.errors / p.learned)


@inner
def score(p: Any, rows: Any, first: int, count: int, every: int, still: bool) -> float:
    """scores[k] = theta.x_k + kappa width(x_k)      [UCB of alg:LinUCBwithBGD]; returns kappa

    every: also of arms that cannot be the best; still: the arms are those of the last call
    """
    kappa = weight(p)
    if p.table != 0:
        call(p.table_score, p.address, 0, rows.address, first, count, 0, kappa)
        return kappa
    slots = integers(p.slots)
    for k in range(count if p.disjoint != 0 else 1):
        slot = slots[k] if p.disjoint != 0 else 0
        t, w = integers(p.trackers)[slot], width(integers(p.widths)[slot])
        if w.begin != 0:
            call(w.begin, t, w.address, 0, 0, 0, 0, 0.0)
        w.every, w.still, w.allowed = every, 1 if still else 0, p.allowed
        part = p.crossed_score if rows.arms != 0 else w.score
        call(part, t, w.address, rows.address, first, 1 if p.disjoint != 0 else count, p.scores + 8 * k, kappa)
    return kappa


@inner
def best_of(p: Any, count: int, kappa: float) -> tuple[int, int]:
    """The arm with the highest score, the first of those that tie with it, among those allowed; how many these are"""
    scores, allowed = reals(p.scores), integers(p.allowed)
    best, arms = -np.inf, 0
    if p.allowed == 0:  # two loops: this one has no branch, so that the processor takes many scores at once
        arms = count
        for k in range(count):
            best = max(best, scores[k])
    else:
        for k in range(count):
            if allowed[k] != 0:
                arms += 1
                best = max(best, scores[k])
    least, first = tied(best, kappa), 0
    while scores[first] < least or (p.allowed != 0 and allowed[first] == 0):
        first += 1
    return first, arms


@inner
def pick(p: Any, count: int, kappa: float) -> int:
    """The best arm; with probability epsilon any of those allowed"""
    best, arms = best_of(p, count, kappa)
    chosen, allowed = best, integers(p.allowed)
    if p.epsilon > 0.0:
        u = uniform(p)
        if u < p.epsilon:
            left = min(int(u / p.epsilon * arms), arms - 1)
            for k in range(count):
                if p.allowed == 0 or allowed[k] != 0:
                    if left == 0:
                        chosen = k
                    left -= 1
    p.probability = p.epsilon / arms + (1.0 - p.epsilon if chosen == best else 0.0)
    return chosen


@inner
def fault_of(p: Any, rows: Any, count: int, whole: bool) -> int:
    """0 if the rows of a choice can be used: their indices lead nowhere else, and (whole) their numbers are finite"""
    if whole and all_sound(rows, lines_of(p, rows, count)):
        return 0
    for k in range(lines_of(p, rows, count)):
        p.fault_row = k
        fault = row_fault(rows, k) if whole else index_fault(rows, k)
        if fault != 0:
            return fault
    return 0


@inner
def line_of(rows: Any, i: int) -> int:
    """Where arm i stands among the rows: crossed ones are those of their user"""
    return i if rows.arms == 0 else i // rows.arms


@inner
def lines_of(p: Any, rows: Any, count: int) -> int:
    """How many rows a round has: one user, or an arm each"""
    return 1 if p.disjoint != 0 or rows.arms != 0 else count


@inner
def offered(p: Any, rows: Any, first: int, count: int) -> Any:
    """The rows of a round, standardised"""
    out = scaled(rows, line_of(rows, first), lines_of(p, rows, count))
    out.shifts, out.arms, out.shared, out.behind = rows.shifts, rows.arms, rows.shared, units(rows.units).intercept
    return out


@inner
def note_round(p: Any, rows: Any, first: int, count: int, still: bool) -> None:
    """Note the rows that were offered in a round, after they were scored; still: they are those of the last one"""
    u = units(rows.units)
    if p.disjoint == 0 and rows.sparse == 0:
        note_pool(u, rows, first, count, still)
        return
    one = u.period != 0 and u.centred != 0  # crosses of one user, written out or not
    for k in range(1 if one else lines_of(p, rows, count)):
        note(u, rows, line_of(rows, first) + k)


@entry
def choose(p: Any, i: int, n: int) -> float:
    """The position of the arm to show among n, or minus what is wrong

    i = 1: only the scores are asked for, and which arm is the best
    """
    rows, scores = rows_at(p.arms), reals(p.scores)
    w = width(integers(p.widths)[0 if p.disjoint == 0 else integers(p.slots)[0]])
    # before anything is drawn; in units, a number of a rare feature that is not finite would be cut, and not be noticed
    fault = fault_of(p, rows, n, p.disjoint != 0 or w.begin != 0 or rows.units != 0)
    if fault == 0 and integers(p.cursor)[0] + p.draws > p.tape_size:
        fault = NO_DRAWS
    if fault != 0:
        return -float(fault)
    kappa = score(p, offered(p, rows, 0, n) if rows.units != 0 else rows, 0, n, i, False)
    for k in range(n):
        if not abs(scores[k]) < LARGEST:  # whatever is not finite shows in the scores
            fault = fault_of(p, rows, n, True)
            if fault != 0:
                return -float(fault)
            break
    if i == 1:
        return float(best_of(p, n, kappa)[0])
    if rows.units != 0 and p.frozen == 0:
        note_round(p, rows, 0, n, False)
    return float(pick(p, n, kappa))


@inner
def expand(p: Any, rows: Any, i: int) -> Any:
    """Row i as one that a tracker can keep: that of a crossed arm is written out"""
    if rows.arms == 0:
        return rows
    out, line = rows_at(p.single), i // rows.arms
    shift = integers(rows.shifts)[i - line * rows.arms]
    x, at, n = row(rows, line)
    values, features, length = reals(out.values), indices(out.indices), 0
    for block in range(1 + rows.shared):
        for q in range(n):
            values[length], features[length] = x[q], at[q] + (shift if block == rows.shared else 0)
            length += 1
    integers(out.start)[0], integers(out.stop)[0] = 0, length
    reals(out.y)[0] = reals(rows.y)[i]
    return out


@inner
def standardised(rows: Any, i: int, single: Any) -> Any:
    """Row i in its units, as row 0 of what is returned; that of a crossed arm was written out, and is so in place"""
    if rows.arms == 0:
        return scaled(rows, i, 1)
    u, (x, at, n) = units(rows.units), row(single, 0)
    scale(u, x, at, n, x)
    if u.intercept != 0:
        x[n], at[n] = u.constant, u.dim
        integers(single.stop)[0] = n + 1
    reals(single.y)[0] -= u.offset
    return single


@inner
def learn(p: Any, rows: Any, i: int, slot: int) -> float:
    """Row i is what was chosen, with its reward: noise estimate, tracker, width, in this order; 0, or a status"""
    model = slot if p.disjoint != 0 else 0
    t, w = tracker(integers(p.trackers)[model]), width(integers(p.widths)[model])
    slot = -1 if p.disjoint != 0 else slot
    p.model = model
    fault = step_fault(t, rows, i, counts(t.counts).seen + 1)
    if fault != 0:
        return float(fault)
    if not has_room(t, rows, i, 0):
        return float(NO_ROOM)
    if p.sigmas != 0.0:
        x, at, n = row(rows, i)
        error = reals(rows.y)[i] - mean_of(t, x, at, n)
        square = call(w.width2, t.address, w.address, rows.address, i, slot, 0, 0.0) if w.width2 != 0 else 0.0
        reduced = error * error / (1.0 + square)
        if reduced < LARGEST:  # one that overflows says nothing of the noise
            p.errors += reduced
    p.learned += 1.0
    status = take(t, rows, i)
    p.asked = 1 if status == ATTEND else 0
    if w.enter != 0 and call(w.enter, t.address, w.address, rows.address, i, slot, 0, 0.0) != 0.0:
        p.asked += 2  # the width has a tracker of its own that asks
        if status == 0.0:
            status = float(ATTEND)
    return status


@entry
def learn_row(p: Any, i: int, n: int) -> float:
    """Row i of the arms with its reward, which stands for slot n (or n < 0, for none); 0, or a status"""
    rows = rows_at(p.arms)
    p.fault_row = i
    fault = row_fault(rows, line_of(rows, i))
    if fault == 0 and not abs(reals(rows.y)[i]) < LARGEST:
        fault = NOT_FINITE
    if fault == 0 and rows.arms == 0:  # whatever is refused is refused before draws are made
        t = tracker(integers(p.trackers)[0 if p.disjoint == 0 else n])
        fault = step_fault(t, rows, i, counts(t.counts).seen + 1)
    if fault == 0 and integers(p.cursor)[0] + p.draws > p.tape_size:
        fault = NO_DRAWS
    if fault != 0:
        return float(fault)
    single, line = expand(p, rows, i), 0 if rows.arms != 0 else i
    if rows.units != 0:
        u = units(rows.units)
        if not has_room(tracker(integers(p.trackers)[0 if p.disjoint == 0 else n]), single, line, 1):
            p.model = 0 if p.disjoint == 0 else n
            return float(NO_ROOM)
        if u.n <= u.rewards:  # a reward of what was never offered here
            note(u, rows, line_of(rows, i))
            if u.asked == AT_ONCE:
                return float(LOOK)
        elif rows.sparse != 0:
            note_new(u, rows, line_of(rows, i))
        note_reward(u, reals(rows.y)[i])
        single, line = standardised(rows, i, single), 0
    status = learn(p, single, line, n)
    if p.table != 0 and (status == 0.0 or status == ATTEND) and p.position >= 0:
        call(p.table_learned, p.address, 0, rows.address, i, p.position, 0, 0.0)
    return status


@entry
def play(p: Any, i: int, n: int) -> float:
    """Rounds i ... n - 1; how far it came, with the reason in p.status if that is not the end

    shown[r] < 0: the reward of every arm of round r is known, in rewards[r, arm]; else that of the arm shown alone, and
    other choices teach nothing. rewards 0: choose only.
    """
    rows, count = rows_at(p.arms), p.count
    first, shown, chosen, slots = integers(p.first_arm), integers(p.shown), integers(p.chosen), integers(p.slots)
    y, rewards = reals(rows.y), reals(p.rewards)
    still, ready = False, False  # whether the arms are those of the last round; whether they stand there in their units
    for r in range(i, n):
        p.status = 0
        if integers(p.cursor)[0] + p.draws > p.tape_size:
            p.status = NO_DRAWS
            return float(r)
        if p.resumed == 0:
            still = r > i and first[r] == first[r - 1]
            if rows.units != 0:
                same = still and ready
                if not same:  # the first round may have given units to features: only from the second on they stand
                    ready = still
                    offered(p, rows, first[r], count)
                kappa = score(p, rows_at(rows.scratch), 0, count, 0, same)
                chosen[r] = pick(p, count, kappa)
                if p.frozen == 0:
                    note_round(p, rows, first[r], count, still)
                if units(rows.units).asked != 0:  # the choice stands; other units come before it is learned
                    p.status, p.resumed = LOOK, 1
                    return float(r)
            else:
                kappa = score(p, rows, first[r], count, 0, still)
                chosen[r] = pick(p, count, kappa)
        p.resumed = 0
        k = chosen[r]
        if p.rewards == 0 or (p.shown != 0 and shown[r] != k):
            continue
        line = first[r] if p.disjoint != 0 else first[r] + k
        y[line] = rewards[r * p.columns + (k if p.columns > 1 else 0)]
        single, place = expand(p, rows, line), 0 if rows.arms != 0 else line
        status = 0.0
        if rows.units != 0:
            p.model = slots[k] if p.disjoint != 0 else 0
            if has_room(tracker(integers(p.trackers)[p.model]), single, place, 1):
                note_reward(units(rows.units), y[line])
                if still and ready and p.disjoint == 0 and rows.arms == 0:
                    single, place = rows_at(rows.scratch), k
                    reals(single.y)[k] = y[line] - units(rows.units).offset
                else:
                    single, place, ready = standardised(rows, line, single), 0, ready and rows.arms != 0
            else:
                status = float(NO_ROOM)
        if status == 0.0:
            status = learn(p, single, place, slots[k])
        if status == NO_ROOM:  # the choice stands, and is learned when the call is taken up again
            p.status, p.resumed, p.line = NO_ROOM, 1, line
            return float(r)
        if status != 0.0 and status != ATTEND:
            p.status = int(status)
            return float(r)
        if p.table != 0:
            call(p.table_learned, p.address, 0, rows.address, line, k, 0, 0.0)
        if status == ATTEND:
            p.status = ATTEND
            return float(r + 1)
    p.status = 0
    return float(n)


@entry
def open_arms(p: Any, i: int, n: int) -> float:
    """Have the slots of n arms ready: one that is new, or that was another arm's, begins with the arm's features

    i = 1: nothing begins, and such an arm has no slot
    """
    rows, slots = rows_at(p.arms), integers(p.slots)
    t, w = integers(p.trackers)[0], width(integers(p.widths)[0])
    if w.open == 0:  # nothing is kept that would have to begin
        return 0.0
    for k in range(n):
        fault = row_fault(rows, k)
        if fault != 0:
            p.fault_row = k
            return -float(fault)
    live = scaled(rows, 0, n) if rows.units != 0 else rows
    for k in range(n):
        slot = slots[k]
        if slot < 0 or (
            integers(w.live)[slot] != 0 and call(w.same, t, w.address, live.address, k, slot, 0, 0.0) != 0.0
        ):
            continue
        if i == 0:
            call(w.open, t, w.address, live.address, k, slot, 0, 0.0)
        else:
            slots[k] = -1
    return 0.0


@entry
def widths(p: Any, i: int, n: int) -> float:
    """scores[k] = squared width of arm k"""
    rows, slots, out = rows_at(p.arms), integers(p.slots), reals(p.scores)
    fault = fault_of(p, rows, n, True)
    if fault != 0:
        return -float(fault)
    live = offered(p, rows, 0, n) if rows.units != 0 else rows
    for k in range(n):
        slot = slots[k]
        model = slot if p.disjoint != 0 else 0
        t, w = integers(p.trackers)[model], width(integers(p.widths)[model])
        line, arm = (0, -1) if p.disjoint != 0 else (k, slot)
        out[k] = call(w.width2, t, w.address, live.address, line, arm, 0, 0.0) if w.width2 != 0 else 0.0
    return 0.0
