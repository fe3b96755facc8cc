"""Upper confidence bounds of arms, theta.x + kappa width(x): without a width, with diagonal and with exact ones.

A score reads theta as a u_j + b g_j, whatever the tracker is: it depends on the width alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls.compiling.parts import call, gemm, inner, integers, part, reals
from driftls.kernels.learn import coefficient, mean_of
from driftls.kernels.records import tracker
from driftls.kernels.rows import dot, row

SMALLEST_SCALE = 1e-100
TIE = 1e-9  # of the best score, or of kappa


@inner
def ucb(mean: float, width2: float, kappa: float) -> float:
    """The upper end of a confidence interval"""
    return mean + kappa * np.sqrt(max(width2, 0.0))


@inner
def tied(best: float, kappa: float) -> float:
    """The lowest score that counts as equal to this one: what is nearer may be rounding, which depends on units

    A score is a sum of terms, of which kappa tells the size where they cancel
    """
    return best - TIE * max(abs(best), kappa)


# -- none: greedy -----------------------------------------------------------------------------------------------------


@part
def none_score(t: Any, rows: Any, i: int, n: int, out: int) -> float:
    """theta.x"""
    scores = reals(out)
    for k in range(n):
        x, at, length = row(rows, i + k)
        scores[k] = mean_of(t, x, at, length)
    return 0.0


# -- diagonal ---------------------------------------------------------------------------------------------------------


@part
def diagonal_enter(w: Any, rows: Any, i: int) -> float:
    """s_j <- rho s_j + x_j^2; ridge/(ridge + s_j) is kept too: a round asks for it once an arm, and learns once"""
    squares, spread = reals(w.squares), reals(w.spread)
    if w.discount != 1.0:
        w.scale *= w.discount
        if w.scale < SMALLEST_SCALE:
            for j in range(w.dim):
                squares[j] *= w.scale
            w.scale = 1.0
    (x, at, n), scale, ridge = row(rows, i), w.scale, w.ridge  # read once: to the compiler any write could change them
    sparse = rows.sparse
    for p in range(n):
        j = p if sparse == 0 else at[p]
        squares[j] += x[p] * x[p] / scale
        spread[j] = ridge / (ridge + squares[j])
    return 0.0


@inner
def spread_of(w: Any, j: int) -> float:
    """1/(ridge + s_j); discounted sums change with every row, so theirs is found when it is asked for"""
    if w.discount == 1.0:
        return reals(w.spread)[j] / w.ridge
    return 1.0 / (w.ridge + w.scale * reals(w.squares)[j])


@inner
def diagonal_square(w: Any, x: Any, at: Any, n: int, sparse: int) -> float:
    """Sum of x_j^2/(ridge + s_j)"""
    total, spread = 0.0, reals(w.spread)
    if w.discount != 1.0:
        for p in range(n):
            total += x[p] * x[p] * spread_of(w, p if sparse == 0 else at[p])
        return total
    if sparse == 0:
        for p in range(n):
            total += x[p] * x[p] * spread[p]
    else:
        for p in range(n):
            total += x[p] * x[p] * spread[at[p]]
    return total / w.ridge


@inner
def mean_and_square(t: Any, w: Any, x: Any, at: Any, n: int, sparse: int) -> tuple[float, float]:
    """theta.x and the sum of x_j^2/(ridge + s_j), reading the row once where theta is a sum"""
    if t.b == 0.0 or w.discount != 1.0:
        return mean_of(t, x, at, n), diagonal_square(w, x, at, n, sparse)
    u, g, spread, stride = reals(t.u), reals(t.g), reals(w.spread), t.stride
    first, second, square = 0.0, 0.0, 0.0
    if sparse == 0:
        for p in range(n):
            first += x[p] * u[p]
            second += x[p] * g[p]
            square += x[p] * x[p] * spread[p]
    else:
        for p in range(n):
            j = at[p]
            first += x[p] * u[j * stride]
            second += x[p] * g[j * stride]
            square += x[p] * x[p] * spread[j]
    return t.a * first + t.b * second, square / w.ridge


@part
def diagonal_width2(w: Any, rows: Any, i: int) -> float:
    """The squared width of row i"""
    x, at, n = row(rows, i)
    return diagonal_square(w, x, at, n, rows.sparse)


@part
def diagonal_score(t: Any, w: Any, rows: Any, i: int, n: int, out: int, x: float) -> float:
    """theta.x + kappa width(x), arm by arm"""
    scores = reals(out)
    for k in range(n):
        values, at, length = row(rows, i + k)
        mean, square = mean_and_square(t, w, values, at, length, rows.sparse)
        scores[k] = ucb(mean, square, x)
    return 0.0


# -- crossed arms: a user's features in a block of the arm's own, and perhaps in one that all share -----------------------


@part
def crossed_score(t: Any, w: Any, rows: Any, i: int, n: int, out: int, x: float) -> float:
    """Scores of the arms of one user, without a row for each; w.spread 0: no width"""
    scores, shifts = reals(out), integers(rows.shifts)
    values, at, length = row(rows, i // rows.arms)
    own = length - rows.behind
    for k in range(n):
        mean, square = 0.0, 0.0
        for block in range(1 + rows.shared):
            shift = shifts[k] if block == rows.shared else 0
            for p in range(own if block < rows.shared else length):
                j = at[p] + (shift if p < own else 0)
                mean += values[p] * coefficient(t, j)
                if w.spread != 0:
                    square += values[p] * values[p] * spread_of(w, j)
        scores[k] = ucb(mean, square, x)
    return 0.0


# -- exact ------------------------------------------------------------------------------------------------------------


@inner
def exact_square(inverse: int, dim: int, x: Any, at: Any, n: int, sparse: int) -> float:
    """x' A^-1 x from the kept inverse: d^2, or nnz^2 for a sparse arm"""
    total = 0.0
    for p in range(n):
        if x[p] != 0.0:
            total += x[p] * dot(x, at, n, sparse, reals(inverse + 8 * dim * (p if sparse == 0 else at[p])))
    return total


@inner
def inverse_of(t: Any, w: Any) -> int:
    """Where the inverse lies: the tracker's own, or that of a tracker of the width's"""
    return t.inverse if w.own == 0 else tracker(w.own).inverse


@inner
def product(t: Any, w: Any, rows: Any, i: int, n: int) -> bool:
    """Arms times A^-1 by one product of matrices, where there is room for it: A^-1 is read once, not once an arm"""
    if rows.sparse != 0 or w.blas == 0 or not 1 < n <= w.room:
        return False
    gemm(w.blas, inverse_of(t, w), rows.values + 8 * t.dim * i, w.products, t.dim, n)
    return True


@inner
def square_from(w: Any, inverse: int, rows: Any, i: int, k: int, ready: bool) -> float:
    """The squared width of arm k of a round, from the product if that is ready"""
    x, at, n = row(rows, i + k)
    if ready:
        return dot(x, at, n, rows.sparse, reals(w.products + 8 * w.dim * k))
    return exact_square(inverse, w.dim, x, at, n, rows.sparse)


@inner
def exact_score_all(t: Any, w: Any, rows: Any, i: int, n: int, out: int, x: float) -> float:
    """theta.x + kappa width(x), all of them"""
    scores, inverse, ready = reals(out), inverse_of(t, w), product(t, w, rows, i, n)
    for k in range(n):
        values, at, length = row(rows, i + k)
        scores[k] = ucb(mean_of(t, values, at, length), square_from(w, inverse, rows, i, k, ready), x)
    return 0.0


@part
def exact_own_enter(w: Any, rows: Any, i: int) -> float:
    """A width whose tracker keeps no inverse has an exact tracker of its own"""
    own = tracker(w.own)
    own.ridge = w.ridge
    return call(own.enter, own.address, 0, rows.address, i, 1, 0, 0.0)
