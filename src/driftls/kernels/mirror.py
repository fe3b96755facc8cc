"""What the models of a pool think, side by side.

Where the squared width is a sum over features (diagonal, or none), so is a score, and a visitor's few features are
shared by all arms of a pool. Over many rounds with the same pool, what the models think of each feature is therefore
kept in a mirror, and a visitor's features are swept over whole lines of it; exact widths are sums over pairs of
features, and have a line a pair. Sums keep their order, so that a score is the same to the bit whether it comes from
here or from the models themselves.
"""

from __future__ import annotations

from typing import Any

from driftls.kernels.compile import by_type, exactly, leaf, merged
from driftls.kernels.frames import Integers, Matrix, Vector
from driftls.kernels.judge import EPSILON, LEARNED, Judge
from driftls.kernels.models import (
    ASKED,
    PAIRED,
    SUMMED,
    Disjoint,
    Mirror,
    Shared,
    bound,
    common,
    disjoint_model,
    feature,
    place,
    size,
)
from driftls.kernels.rows import CrossRows, DenseRows, SparseRows, begin, end, index, value
from driftls.kernels.schemes import coordinate
from driftls.kernels.widths import D_DISCOUNT, DiagonalWidthState, NoWidth, spread

# -- sweeps ----------------------------------------------------------------------------------------------------------


@exactly
def add_line(out: Vector, table: Matrix, j: int, x: float) -> None:
    """out += x table[j]"""
    line = table[j]
    for k in range(line.size):
        out[k] += x * line[k]


@exactly
def add_four(out: Vector, table: Matrix, j: Any, x: Any) -> None:
    """The same for four lines in turn, so that `out` is read and written once"""
    a, b, c, d = table[j[0]], table[j[1]], table[j[2]], table[j[3]]
    for k in range(a.size):
        out[k] = (((out[k] + x[0] * a[k]) + x[1] * b[k]) + x[2] * c[k]) + x[3] * d[k]


@exactly
def sweep(mirror: Mirror, arms: Any, row: int, kappa: float, scores: Vector) -> None:
    """Scores of all arms at once, feature after feature over a line of arms"""
    squares = mirror.squares
    for k in range(squares.size):
        scores[k] = 0.0
        squares[k] = 0.0
    p, stop = place(arms, row)
    while p + 4 <= stop:
        j = (feature(arms, row, p), feature(arms, row, p + 1), feature(arms, row, p + 2), feature(arms, row, p + 3))
        x = (size(arms, row, p), size(arms, row, p + 1), size(arms, row, p + 2), size(arms, row, p + 3))
        add_four(scores, mirror.theta, j, x)
        add_four(squares, mirror.spread, j, (x[0] * x[0], x[1] * x[1], x[2] * x[2], x[3] * x[3]))
        p += 4
    while p < stop:
        one, at = size(arms, row, p), feature(arms, row, p)
        add_line(scores, mirror.theta, at, one)
        add_line(squares, mirror.spread, at, one * one)
        p += 1
    for k in range(squares.size):
        scores[k] = bound(scores[k], squares[k], kappa)


@exactly
def sweep_pairs(models: Any, users: Any, u: int, kappa: float, judge: Judge, slots: Integers) -> None:
    """The same where a width is a sum over pairs of features"""
    mirror, scores = models.mirror, judge.scores
    squares, learned = mirror.squares, judge.scalars[LEARNED]
    for k in range(squares.size):
        scores[k] = 0.0
        squares[k] = 0.0
    stop = end(users, u)
    for p in range(begin(users, u), stop):
        x, j = value(users, u, p), index(users, u, p)
        add_line(scores, mirror.theta, j, x)
        for q in range(p, stop):
            other = index(users, u, q)
            line = pair_line(mirror.theta.shape[0], j, other)
            if mirror.stamps[line] != learned:
                catch_up(models, line, j, other, learned, slots)
        add_line(squares, mirror.spread, pair_line(mirror.theta.shape[0], j, j), x * x)
        q = p + 1
        first = pair_line(mirror.theta.shape[0], j, 0)
        while q + 4 <= stop:
            lines = (
                first + index(users, u, q),
                first + index(users, u, q + 1),
                first + index(users, u, q + 2),
                first + index(users, u, q + 3),
            )
            weights = (
                (x + x) * value(users, u, q),
                (x + x) * value(users, u, q + 1),
                (x + x) * value(users, u, q + 2),
                (x + x) * value(users, u, q + 3),
            )
            add_four(squares, mirror.spread, lines, weights)
            q += 4
        while q < stop:
            add_line(squares, mirror.spread, first + index(users, u, q), (x + x) * value(users, u, q))
            q += 1
    for k in range(squares.size):
        scores[k] = bound(scores[k], squares[k], kappa)


@leaf
def pair_line(dim: int, i: int, j: int) -> int:
    """Where features i <= j stand among the pairs"""
    return i * dim - i * (i + 1) // 2 + j


@leaf
def catch_up(models: Any, line: int, i: int, j: int, learned: float, slots: Integers) -> None:
    """Read the entries of the arms that have learned since the line was last read; there are few of them"""
    mirror = models.mirror
    since = mirror.stamps[line]
    if since < 0.0 or learned - since > mirror.ring.size:
        for k in range(slots.size):
            _, _, _, _, own = disjoint_model(models, slots[k])
            mirror.spread[line, k] = own.inverse[i, j]
    else:
        for n in range(int(since), int(learned)):
            k = mirror.ring[n % mirror.ring.size]
            _, _, _, _, own = disjoint_model(models, slots[k])
            mirror.spread[line, k] = own.inverse[i, j]
    mirror.stamps[line] = learned


@leaf
def never_swept(arms: Any, models: Any, first: int, judge: Judge, kappa: float, count: int) -> bool:
    return False


@leaf
def cross_swept(arms: CrossRows, models: Any, first: int, judge: Judge, kappa: float, count: int) -> bool:
    """Lines are read again when something was learned since, and not before they are needed"""
    mirror, learned = models.mirror, judge.scalars[LEARNED]
    if mirror.theta.size == 0:
        return False
    start, stop = place(arms, first)
    for p in range(start, stop):
        j = feature(arms, first, p)
        if mirror.stamps[j] != learned:
            theta, room = common(arms, j, models.state, models.width)
            for k in range(count):
                mirror.theta[j, k] = theta + coordinate(models.state, arms.shift[k] + j)
            if mirror.stamps[j] < 0.0 or fades(models.width):
                for k in range(count):
                    mirror.spread[j, k] = room + spread(models.width, arms.shift[k] + j)
            mirror.stamps[j] = learned
    sweep(mirror, arms, first, kappa, judge.scores)
    return True


swept = by_type({DenseRows: never_swept, SparseRows: never_swept, CrossRows: cross_swept})


@leaf
def read_theta(models: Any, k: int, slot: int) -> None:
    state, _, _, _, _ = disjoint_model(models, slot)
    for j in range(models.mirror.theta.shape[0]):
        models.mirror.theta[j, k] = coordinate(state, j)


@leaf
def reflect_summed(width: Any, models: Any, k: int, slot: int) -> None:
    _, _, _, _, own = disjoint_model(models, slot)
    read_theta(models, k, slot)
    for j in range(models.mirror.theta.shape[0]):
        models.mirror.spread[j, k] = spread(own, j)


@leaf
def reflect_paired(width: Any, models: Any, k: int, slot: int) -> None:
    read_theta(models, k, slot)  # the pairs are read when they are needed


@leaf
def reflect_nothing(width: Any, models: Any, k: int, slot: int) -> None:
    pass


reflect_by_width = by_type(
    {
        **dict.fromkeys(SUMMED, reflect_summed),
        **dict.fromkeys(PAIRED, reflect_paired),
        **dict.fromkeys(ASKED, reflect_nothing),
    }
)


@leaf
def shared_reflect(models: Any, k: int, slot: int) -> None:
    """Lines are read when they are needed"""


@leaf
def disjoint_reflect(models: Any, k: int, slot: int) -> None:
    reflect_by_width(models.kinds[4], models, k, slot)


reflect_arm = by_type({Shared: shared_reflect, Disjoint: disjoint_reflect})


@merged
def reflect(models: Any, slots: Integers) -> None:
    """A pool comes before the mirror"""
    mirror = models.mirror
    if mirror.theta.size > 0:
        mirror.lone[0] = -1.0
        for line in range(mirror.stamps.size):
            mirror.stamps[line] = -1.0
        for k in range(slots.size):
            reflect_arm(models, k, slots[k])


@leaf
def never_fades(width: Any) -> bool:
    return False


@leaf
def diagonal_fades(width: DiagonalWidthState) -> bool:
    return width.scalars[D_DISCOUNT] != 1.0


# whether a row changes what is known of features that it does not have
fades = by_type({NoWidth: never_fades, DiagonalWidthState: diagonal_fades})


@leaf
def refresh_summed(width: Any, models: Any, users: Any, row: int, k: int, slot: int, learned: float) -> None:
    _, _, _, _, own = disjoint_model(models, slot)
    read_theta(models, k, slot)
    if fades(own):
        for j in range(models.mirror.theta.shape[0]):
            models.mirror.spread[j, k] = spread(own, j)
        return
    for p in range(begin(users, row), end(users, row)):
        j = index(users, row, p)
        models.mirror.spread[j, k] = spread(own, j)


@leaf
def refresh_paired(width: Any, models: Any, users: Any, row: int, k: int, slot: int, learned: float) -> None:
    read_theta(models, k, slot)
    ring = models.mirror.ring
    ring[int(learned - 1.0) % ring.size] = k


@leaf
def refresh_nothing(width: Any, models: Any, users: Any, row: int, k: int, slot: int, learned: float) -> None:
    pass


refresh_by_width = by_type(
    {
        **dict.fromkeys(SUMMED, refresh_summed),
        **dict.fromkeys(PAIRED, refresh_paired),
        **dict.fromkeys(ASKED, refresh_nothing),
    }
)


@leaf
def refresh_crossed(width: Any, models: Any, arms: CrossRows, row: int) -> None:
    """theta has its stamps; of the spread only that of the row's features was changed, perhaps in all arms"""
    start, stop = place(arms, row)
    for p in range(start, stop):
        models.mirror.stamps[feature(arms, row, p)] = -1.0


@leaf
def no_refresh(width: Any, models: Any, arms: Any, row: int) -> None:
    pass


crossed_by_width = by_type({**dict.fromkeys(SUMMED, refresh_crossed), **dict.fromkeys((*PAIRED, *ASKED), no_refresh)})


@leaf
def cross_refresh(arms: CrossRows, models: Any, row: int) -> None:
    crossed_by_width(models.width, models, arms, row)


@leaf
def rows_refresh(arms: Any, models: Any, row: int) -> None:
    pass


refresh_by_rows = by_type({DenseRows: rows_refresh, SparseRows: rows_refresh, CrossRows: cross_refresh})


@leaf
def shared_refresh(models: Any, arms: Any, row: int, k: int, slot: int, learned: float) -> None:
    refresh_by_rows(arms, models, row)


@leaf
def disjoint_refresh(models: Any, users: Any, row: int, k: int, slot: int, learned: float) -> None:
    refresh_by_width(models.kinds[4], models, users, row, k, slot, learned)


# `row` was learned by the arm at position k
refresh_arm = by_type({Shared: shared_refresh, Disjoint: disjoint_refresh})


@merged
def refresh(models: Any, arms: Any, row: int, k: int, slot: int, learned: float) -> None:
    if models.mirror.theta.size > 0:
        refresh_arm(models, arms, row, k, slot, learned)


# Two in five visitors of a front page are known by the constant alone: while nothing is learned, they are one visitor.


@leaf
def dense_single(arms: DenseRows, row: int) -> tuple[float, float]:
    return -1.0, 0.0


@leaf
def sparse_single(arms: Any, row: int) -> tuple[float, float]:
    first, last = place(arms, row)
    if last - first != 1:
        return -1.0, 0.0
    return float(feature(arms, row, first)), size(arms, row, first)


# the only feature of a visitor and its size, or -1
single = by_type({DenseRows: dense_single, SparseRows: sparse_single, CrossRows: sparse_single})


@merged
def known_choice(models: Any, arms: Any, row: int, judge: Judge) -> int:
    """The arm that was chosen for this very visitor, if nothing was learned since, or -1"""
    lone = models.mirror.lone
    if models.mirror.theta.size == 0 or judge.scalars[EPSILON] != 0.0:
        return -1
    j, x = single(arms, row)
    same = j >= 0.0 and j == lone[0] and x == lone[1] and judge.scalars[LEARNED] == lone[2]
    return int(lone[3]) if same else -1


@merged
def remember_choice(models: Any, arms: Any, row: int, judge: Judge, k: int) -> None:
    if models.mirror.theta.size > 0:
        j, x = single(arms, row)
        if j >= 0.0:
            lone = models.mirror.lone
            lone[0], lone[1], lone[2], lone[3] = j, x, judge.scalars[LEARNED], k
