"""Exact widths of arms that recur, found only where they can change the choice.

A row makes A larger, so a width that was found before bounds today's: w_now^2 <= w_then^2/rho^k after k rows with discount
rho. Arms are taken from the highest bound down, until an exact score beats all bounds that are left: the same choice as
with all widths, for one or two of them a round.

A bound belongs to the features for which it was found, and to a `version` of the inverse, which changes with whatever
changes the inverse but for a row that comes: another ridge, other units, a row that leaves, a repair.
"""

from __future__ import annotations

from typing import Any

from driftls.compiling.parts import inner, integers, part, reals
from driftls.kernels.learn import mean_of
from driftls.kernels.records import tracker
from driftls.kernels.rows import axpy, row
from driftls.kernels.score import exact_score_all, exact_square, inverse_of, product, square_from, tied, ucb

SLACK = 1.0 + 1e-6  # of a bound, for what is lost to rounding in between
SCANS = 16  # for the highest bound of all; then the rest in order


@inner
def keeper(t: Any, w: Any) -> Any:
    """The record of whoever keeps the inverse"""
    return tracker(w.own if w.own != 0 else t.address)


@inner
def belongs(w: Any, slot: int, rows: Any, i: int) -> bool:
    """Whether the bound of the slot was found for the features of row i"""
    x, at, n = row(rows, i)
    arm, unlike, count = reals(w.arms + 8 * w.line * slot), 0, 0
    if rows.sparse == 0:
        for p in range(n):  # all of them, which the processor does many at a time
            unlike += 1 if x[p] != arm[p] else 0
        return unlike == 0
    for p in range(n):
        unlike += 1 if x[p] != arm[at[p]] else 0
        count += 1 if x[p] != 0.0 else 0
    return unlike == 0 and count == integers(w.sizes)[slot]


@inner
def bound(w: Any, o: Any, slot: int, rows: Any, i: int) -> float:
    """The largest that the squared width of row i can be; -1 where that is not known"""
    if slot < 0 or reals(w.stamps)[slot] == 0.0 or not (w.still != 0 or belongs(w, slot, rows, i)):
        return -1.0
    square, rows_since = reals(w.bounds)[slot], o.entered + 1.0 - reals(w.stamps)[slot]
    if rows_since == 0.0:
        return square
    return SLACK * (square if o.discount == 1.0 else square / o.discount**rows_since)


@inner
def keep(w: Any, o: Any, slot: int, rows: Any, i: int, square: float) -> None:
    """The squared width of row i, the arm of the slot, is this one now"""
    if slot < 0:
        return
    if not belongs(w, slot, rows, i):
        x, at, n = row(rows, i)
        arm, count = reals(w.arms + 8 * w.line * slot), 0
        for j in range(w.dim):
            arm[j] = 0.0
        axpy(x, at, n, rows.sparse, 1.0, arm)
        for p in range(n):
            count += 1 if x[p] != 0.0 else 0
        integers(w.sizes)[slot] = count
    reals(w.bounds)[slot] = max(square, 0.0)
    reals(w.stamps)[slot] = o.entered + 1.0


@inner
def of_today(w: Any, o: Any, slot: int) -> bool:
    """Whether nothing was learned since the slot's width was found"""
    return slot < 0 or reals(w.stamps)[slot] == o.entered + 1.0


@inner
def leads(scores: Any, k: int, best: int, kappa: float) -> bool:
    """Whether arm k may come before the best so far: by its score, and among those that tie by its place"""
    return best < 0 or scores[k] > scores[best] or (k < best and scores[k] >= tied(scores[best], kappa))


@part
def bounded_score(t: Any, w: Any, rows: Any, i: int, n: int, out: int, x: float) -> float:
    """theta.x + kappa width(x) of every arm that could be the best, and for any other arm more than it can have"""
    if rows.slots == 0 or w.slots == 0 or w.every != 0:
        return exact_score_all(t, w, rows, i, n, out, x)
    o, scores, slots, allowed = keeper(t, w), reals(out), integers(rows.slots), integers(w.allowed)
    if w.version != o.version:
        for slot in range(w.slots):
            reals(w.stamps)[slot] = 0.0
        w.version = o.version
    unknown = 0
    for k in range(n):
        scores[k] = bound(w, o, slots[k], rows, i + k)
        unknown += 1 if scores[k] < 0.0 else 0
    inverse, many, best = inverse_of(t, w), 2 * unknown > n and product(t, w, rows, i, n), -1
    for k in range(n):
        values, at, length = row(rows, i + k)
        square = scores[k]
        if square < 0.0 or many:
            square = square_from(w, inverse, rows, i, k, many)
            keep(w, o, slots[k], rows, i + k, square)
        scores[k] = ucb(mean_of(t, values, at, length), square, x)
        if (w.allowed == 0 or allowed[k] != 0) and of_today(w, o, slots[k]) and leads(scores, k, best, x):
            best = k
    for scan in range(SCANS + 1):
        top = -1
        for k in range(n):
            if (w.allowed != 0 and allowed[k] == 0) or of_today(w, o, slots[k]) or not leads(scores, k, best, x):
                continue
            if scan == SCANS:  # enough of going for the highest
                best = settle(t, w, o, rows, i, k, out, x, best)
            elif leads(scores, k, top, x):
                top = k
        if top < 0:
            break
        best = settle(t, w, o, rows, i, top, out, x, best)
    return 0.0


@inner
def settle(t: Any, w: Any, o: Any, rows: Any, i: int, k: int, out: int, x: float, best: int) -> int:
    """Find the exact score of arm k; the best arm is then this one"""
    scores = reals(out)
    values, at, length = row(rows, i + k)
    square = exact_square(inverse_of(t, w), t.dim, values, at, length, rows.sparse)
    keep(w, o, integers(rows.slots)[k], rows, i + k, square)
    scores[k] = ucb(mean_of(t, values, at, length), square, x)
    return k if leads(scores, k, best, x) else best


@part
def bounded_width2(t: Any, w: Any, rows: Any, i: int, n: int) -> float:
    """The squared width of row i, which the choice has just found if the arm has slot n"""
    o = keeper(t, w)
    if n >= 0 and w.version == o.version and of_today(w, o, n) and belongs(w, n, rows, i):
        return reals(w.bounds)[n]
    x, at, length = row(rows, i)
    return max(exact_square(inverse_of(t, w), t.dim, x, at, length, rows.sparse), 0.0)
