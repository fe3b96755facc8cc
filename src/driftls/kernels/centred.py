"""Centred diagonal widths: a model's intercept is known exactly, and every feature by itself, measured from its mean.

The last feature of a row is the model's constant, whose ridge stands for `prior` imaginary rows (lambda0). Over n rows with
sums f_j and sums of squares s_j of the other features,

    mean_j = f_j/(n + prior)      c_j = 1/(ridge + s_j - f_j mean_j)
    width^2 = 1/(n + prior) + sum_j c_j (x_j - mean_j)^2

which is x' A^-1 x where the Schur complement of the constant is replaced by its diagonal. A row touches only its features:

    width^2 = Q + sum_{j in x} c_j x_j (x_j - 2 mean_j),      Q = 1/(n + prior) + sum_j c_j mean_j^2

where the sum of share_j = c_j f_j^2 (`rest`) is brought up to date for a row's features, and for all at each look.
"""

from __future__ import annotations

from typing import Any

from driftls.compiling.parts import inner, part, reals
from driftls.kernels.learn import mean_of
from driftls.kernels.rows import row
from driftls.kernels.score import SMALLEST_SCALE, ucb


@inner
def precision(w: Any, j: int) -> float:
    """1/c_j"""
    sums = w.scale * reals(w.sums)[j]
    return w.ridge + max(w.scale * reals(w.squares)[j] - sums * sums / (w.n + w.prior), 0.0)


@inner
def mean_of_rows(w: Any, j: int) -> float:
    """mean_j"""
    return w.scale * reals(w.sums)[j] / (w.n + w.prior)


@inner
def at_zero(w: Any) -> float:
    """Q, the squared width where all features are 0"""
    return (1.0 + w.scale * w.scale * w.rest / (w.n + w.prior)) / (w.n + w.prior)


@inner
def centred_square(w: Any, x: Any, at: Any, n: int, sparse: int) -> float:
    """The squared width of a row, at least that of the intercept alone"""
    total = at_zero(w)
    for p in range(n):
        j = p if sparse == 0 else at[p]
        if j < w.dim - 1:
            total += x[p] * (x[p] - 2.0 * mean_of_rows(w, j)) / precision(w, j)
    return max(total, 1.0 / (w.n + w.prior))


@part
def centred_enter(w: Any, rows: Any, i: int) -> float:
    """A row was learned: n, f_j, s_j and the shares of its features"""
    squares, sums, share = reals(w.squares), reals(w.sums), reals(w.share)
    if w.discount != 1.0:
        w.scale *= w.discount
        if w.scale < SMALLEST_SCALE:
            for j in range(w.dim):
                squares[j] *= w.scale
                sums[j] *= w.scale
                share[j] *= w.scale * w.scale
            w.rest *= w.scale * w.scale
            w.scale = 1.0
    w.n = w.discount * w.n + 1.0
    x, at, n = row(rows, i)
    for p in range(n):
        j = p if rows.sparse == 0 else at[p]
        if j < w.dim - 1:
            squares[j] += x[p] * x[p] / w.scale
            sums[j] += x[p] / w.scale
            new = sums[j] * sums[j] / precision(w, j)
            w.rest += new - share[j]
            share[j] = new
    return 0.0


@part
def centred_width2(w: Any, rows: Any, i: int) -> float:
    """The squared width of row i"""
    x, at, n = row(rows, i)
    return centred_square(w, x, at, n, rows.sparse)


@part
def centred_score(t: Any, w: Any, rows: Any, i: int, n: int, out: int, x: float) -> float:
    """theta.x + kappa width(x), arm by arm"""
    scores = reals(out)
    for k in range(n):
        values, at, length = row(rows, i + k)
        scores[k] = ucb(mean_of(t, values, at, length), centred_square(w, values, at, length, rows.sparse), x)
    return 0.0
