"""The models of a policy, one for all arms or one an arm, and what a model thinks of a row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from driftls.kernels.compile import by_type, exactly, kernel, leaf
from driftls.kernels.exact import ExactState
from driftls.kernels.frames import IntegerRows, Integers, Matrix, Vector, unpack
from driftls.kernels.kept import EnsembleState, PhiCDState
from driftls.kernels.phi import PhiState
from driftls.kernels.rows import CrossRows, DenseRows, SparseRows, begin, cross_user, end, index, value
from driftls.kernels.schemes import coordinate
from driftls.kernels.track import HELD, KIND, NOTHING, SEEN, Log
from driftls.kernels.widths import DiagonalWidthState, NoWidth, OwnExactState, SampleState, spread

# How widths come about: as a sum over features, over pairs of features, or in ways of their own.
SUMMED = (NoWidth, DiagonalWidthState)
PAIRED = (ExactState, OwnExactState)
ASKED = (PhiState, PhiCDState, EnsembleState, SampleState)


class Mirror(NamedTuple):
    """At [j, k], theta_j and 1/(ridge + s_j) for the arm at position k of the pool; empty: the models are asked.

    Where widths are exact, a line of `spread` is for a pair of features, and has an entry of the arms' inverses.
    squares: room for the squared widths of a sweep. stamps: how many rewards had been learned when a line was read, or
    -1 if it was not read for this pool. ring: the positions of the arms that learned last, by the number of rewards.
    lone: the last visitor with a single feature: which, of what size, the rewards learned by then, the arm chosen.
    """

    theta: Matrix
    spread: Matrix
    squares: Vector
    stamps: Vector
    ring: Integers
    lone: Vector


class Table(NamedTuple):
    """A line has the words of a model: state, plan, log, rows, width."""

    words: IntegerRows


class Shared(NamedTuple):
    """One model for all arms."""

    state: Any
    plan: Any
    log: Any
    rows: Any
    width: Any
    mirror: Any


class Disjoint(NamedTuple):
    """One model an arm. `kinds` is one of them, for its types."""

    table: Any
    values: Any
    kinds: Any
    mirror: Any


@leaf
def shared_model(models: Any, slot: int) -> Any:
    return models.state, models.plan, models.log, models.rows, models.width


@leaf
def disjoint_model(models: Any, slot: int) -> Any:
    return unpack(models.table.words[slot], models.values, models.kinds)


# state, plan, log, rows and width of an arm's model
model_of = by_type({Shared: shared_model, Disjoint: disjoint_model})


@kernel
def held_by(log: Log) -> int:
    """How many rows the sums are over"""
    return log.book[HELD] if log.book[KIND] != NOTHING else log.book[SEEN]


# A row, as a visitor and an arm: the visitor's features, and what the model thinks of one of them for this arm. Crossed
# arms have the same visitor, whose features stand in a block of the arm, and perhaps in one that all arms share.


@leaf
def row_place(arms: Any, row: int) -> tuple[int, int]:
    return begin(arms, row), end(arms, row)


@leaf
def cross_place(arms: CrossRows, row: int) -> tuple[int, int]:
    return arms.start[cross_user(arms, row)], arms.stop[cross_user(arms, row)]


@leaf
def dense_feature(arms: DenseRows, row: int, p: int) -> int:
    return p


@leaf
def dense_size(arms: DenseRows, row: int, p: int) -> float:
    return value(arms, row, p)


@leaf
def sparse_feature(arms: Any, row: int, p: int) -> int:
    return arms.indices[p]


@leaf
def sparse_size(arms: Any, row: int, p: int) -> float:
    return np.float64(arms.values[p])


# where the features of a row's visitor begin and end, which stands at place p, and its size
place = by_type({DenseRows: row_place, SparseRows: row_place, CrossRows: cross_place})
feature = by_type({DenseRows: dense_feature, SparseRows: sparse_feature, CrossRows: sparse_feature})
size = by_type({DenseRows: dense_size, SparseRows: sparse_size, CrossRows: sparse_size})


@leaf
def no_offset(arms: Any, row: int) -> int:
    return 0


@leaf
def cross_offset(arms: CrossRows, row: int) -> int:
    return arms.shift[row % arms.shift.size]


@exactly
def nothing_common(arms: Any, j: int, state: Any, width: Any) -> tuple[float, float]:
    return 0.0, 0.0


@exactly
def cross_common(arms: CrossRows, j: int, state: Any, width: Any) -> tuple[float, float]:
    return (coordinate(state, j), spread(width, j)) if arms.shared[0] != 0 else (0.0, 0.0)


# where the arm's block begins; theta_j and 1/(ridge + s_j) of feature j in the block that all arms share
offset_of = by_type({DenseRows: no_offset, SparseRows: no_offset, CrossRows: cross_offset})
common = by_type({DenseRows: nothing_common, SparseRows: nothing_common, CrossRows: cross_common}, exact=True)


def opinion(rows: Any, i: int, state: Any, width: Any) -> tuple[float, float]:
    """theta.x and the squared width of row i, in one pass"""
    start, stop = place(rows, i)
    mean, squares, offset = 0.0, 0.0, offset_of(rows, i)
    for p in range(start, stop):
        x, j = size(rows, i, p), feature(rows, i, p)
        theta, room = common(rows, j, state, width)
        mean += x * (theta + coordinate(state, offset + j))
        squares += x * x * (room + spread(width, offset + j))
    return mean, squares


strict_opinion = exactly(opinion)
loose_opinion = leaf(opinion)  # a dense row is worth reordering its sums, and no mirror has to agree with it


@leaf
def dense_opinion(arms: DenseRows, i: int, state: Any, width: Any) -> tuple[float, float]:
    return loose_opinion(arms, i, state, width)


@leaf
def sparse_opinion(arms: Any, i: int, state: Any, width: Any) -> tuple[float, float]:
    return strict_opinion(arms, i, state, width)


arm_opinion = by_type({DenseRows: dense_opinion, SparseRows: sparse_opinion, CrossRows: sparse_opinion})


@exactly
def paired_opinion(users: SparseRows, u: int, state: Any, width: Any) -> tuple[float, float]:
    """theta.x and x' A^-1 x, from the upper half of the inverse"""
    mean, squares = 0.0, 0.0
    for p in range(begin(users, u), end(users, u)):
        x, j = value(users, u, p), index(users, u, p)
        mean += x * coordinate(state, j)
        squares += x * x * width.inverse[j, j]
        for q in range(p + 1, end(users, u)):
            squares += (x + x) * value(users, u, q) * width.inverse[j, index(users, u, q)]
    return mean, squares


@exactly
def bound(mean: float, squares: float, kappa: float) -> float:
    """The upper end of a confidence interval"""
    return mean + kappa * np.sqrt(max(squares, 0.0))
