"""Scores of the arms of a round, theta.x + kappa width(x): from a mirror of the pool, or from each model."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls.kernels.chance import Chance
from driftls.kernels.compile import by_type, leaf
from driftls.kernels.frames import Integers
from driftls.kernels.judge import Judge, weight
from driftls.kernels.mirror import sweep, sweep_pairs, swept
from driftls.kernels.models import (
    ASKED,
    PAIRED,
    SUMMED,
    Disjoint,
    Shared,
    arm_opinion,
    bound,
    disjoint_model,
    held_by,
    paired_opinion,
    strict_opinion,
)
from driftls.kernels.rows import CrossRows, DenseRows, SparseRows
from driftls.kernels.schemes import dot
from driftls.kernels.widths import bonus, width_begin


@leaf
def shared_summed(
    width: Any, models: Any, arms: Any, first: int, judge: Judge, chance: Chance, slots: Integers
) -> None:
    kappa = weight(judge)
    if swept(arms, models, first, judge, kappa, slots.size):
        return
    for k in range(slots.size):
        mean, squares = arm_opinion(arms, first + k, models.state, width)
        judge.scores[k] = bound(mean, squares, kappa)


@leaf
def shared_asked(width: Any, models: Any, arms: Any, first: int, judge: Judge, chance: Chance, slots: Integers) -> None:
    held, kappa = held_by(models.log), weight(judge)
    width_begin(width, held, chance)
    for k in range(slots.size):
        judge.scores[k] = dot(models.state, arms, first + k)
        if kappa != 0.0:
            judge.scores[k] += kappa * bonus(width, arms, first + k, slots[k], models.rows, held)


@leaf
def disjoint_summed(width: Any, models: Any, users: Any, u: int, judge: Judge, chance: Chance, slots: Integers) -> None:
    kappa = weight(judge)
    if models.mirror.theta.size > 0:
        sweep(models.mirror, users, u, kappa, judge.scores)
        return
    for k in range(slots.size):
        state, _, _, _, own = disjoint_model(models, slots[k])
        mean, squares = strict_opinion(users, u, state, own)
        judge.scores[k] = bound(mean, squares, kappa)


@leaf
def disjoint_asked(width: Any, models: Any, users: Any, u: int, judge: Judge, chance: Chance, slots: Integers) -> None:
    kappa = weight(judge)
    for k in range(slots.size):
        state, _, log, rows, own = disjoint_model(models, slots[k])
        judge.scores[k] = dot(state, users, u)
        if kappa != 0.0:
            held = held_by(log)
            width_begin(own, held, chance)
            judge.scores[k] += kappa * bonus(own, users, u, -1, rows, held)


@leaf
def sparse_paired(users: SparseRows, models: Any, u: int, judge: Judge, chance: Chance, slots: Integers) -> None:
    kappa = weight(judge)
    if models.mirror.theta.size > 0:
        sweep_pairs(models, users, u, kappa, judge, slots)
        return
    for k in range(slots.size):
        state, _, _, _, own = disjoint_model(models, slots[k])
        mean, squares = paired_opinion(users, u, state, own)
        judge.scores[k] = bound(mean, squares, kappa)


@leaf
def dense_paired(users: DenseRows, models: Any, u: int, judge: Judge, chance: Chance, slots: Integers) -> None:
    """A line of the inverse is long enough by itself"""
    disjoint_asked(models.kinds[4], models, users, u, judge, chance, slots)


paired_by_rows = by_type({DenseRows: dense_paired, SparseRows: sparse_paired})


@leaf
def disjoint_paired(width: Any, models: Any, users: Any, u: int, judge: Judge, chance: Chance, slots: Integers) -> None:
    paired_by_rows(users, models, u, judge, chance, slots)


@leaf
def dense_exact(arms: DenseRows, models: Any, first: int, judge: Judge, chance: Chance, slots: Integers) -> None:
    """x' A^-1 x of all arms by one product of matrices: A^-1 is read once, not once an arm"""
    kappa = weight(judge)
    X = arms.X[first : first + slots.size].astype(np.float64)
    products = np.dot(X, models.width.inverse)
    for k in range(slots.size):
        square = 0.0
        for j in range(X.shape[1]):
            square += products[k, j] * X[k, j]
        judge.scores[k] = bound(dot(models.state, arms, first + k), square, kappa)


@leaf
def sparse_exact(arms: Any, models: Any, first: int, judge: Judge, chance: Chance, slots: Integers) -> None:
    shared_asked(models.width, models, arms, first, judge, chance, slots)


exact_by_rows = by_type({DenseRows: dense_exact, SparseRows: sparse_exact, CrossRows: sparse_exact})


@leaf
def shared_exact(width: Any, models: Any, arms: Any, first: int, judge: Judge, chance: Chance, slots: Integers) -> None:
    exact_by_rows(arms, models, first, judge, chance, slots)


shared_by_width = by_type(
    {
        **dict.fromkeys(SUMMED, shared_summed),
        **dict.fromkeys(PAIRED, shared_exact),
        **dict.fromkeys(ASKED, shared_asked),
    }
)
disjoint_by_width = by_type(
    {
        **dict.fromkeys(SUMMED, disjoint_summed),
        **dict.fromkeys(PAIRED, disjoint_paired),
        **dict.fromkeys(ASKED, disjoint_asked),
    }
)


@leaf
def shared_scores(models: Any, arms: Any, first: int, judge: Judge, chance: Chance, slots: Integers) -> None:
    shared_by_width(models.width, models, arms, first, judge, chance, slots)


@leaf
def disjoint_scores(models: Any, users: Any, u: int, judge: Judge, chance: Chance, slots: Integers) -> None:
    disjoint_by_width(models.kinds[4], models, users, u, judge, chance, slots)


# judge.scores[k] = theta.x_k + kappa width(x_k)      [UCB of alg:LinUCBwithBGD]
score_arms = by_type({Shared: shared_scores, Disjoint: disjoint_scores})
