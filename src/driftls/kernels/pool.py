"""Exact LinUCB for a fixed pool: no matrix of size d^2 is needed, since only K arms can ever be played."""

from __future__ import annotations

import numpy as np

from driftls.kernels.chance import Chance
from driftls.kernels.compile import kernel
from driftls.kernels.frames import Integers, Matrix, Vector
from driftls.kernels.judge import ERRORS, LEARNED, Judge, pick, weight


@kernel
def gram_choose(spread: Matrix, means: Vector, scalars: Vector, scores: Vector, tape: Vector, cursor: Integers) -> int:
    """The arm of the highest mean + kappa width, from S = X A^-1 X'"""
    judge, chance = Judge(scalars, scores), Chance(tape, cursor)
    kappa = weight(judge)
    for k in range(means.size):
        scores[k] = means[k] + kappa * np.sqrt(max(spread[k, k], 0.0))
    return pick(judge, chance, means.size)


@kernel
def kept_choose(widths2: Vector, means: Vector, scalars: Vector, scores: Vector, tape: Vector, cursor: Integers) -> int:
    """The same from squared widths"""
    judge, chance = Judge(scalars, scores), Chance(tape, cursor)
    kappa = weight(judge)
    for k in range(means.size):
        scores[k] = means[k] + kappa * np.sqrt(max(widths2[k], 0.0))
    return pick(judge, chance, means.size)


@kernel
def notice(scalars: Vector, error: float, width2: float) -> None:
    """What a reward tells of the noise"""
    scalars[ERRORS] += error * error / (1.0 + width2)
    scalars[LEARNED] += 1.0


@kernel
def gram_learn(spread: Matrix, means: Vector, scalars: Vector, chosen: int, reward: float) -> None:
    """O(K^2): means += s e/(1 + s_c), S -= s s'/(1 + s_c), with S = X A^-1 X', s its column of the chosen arm"""
    gain = 1.0 / (1.0 + spread[chosen, chosen])
    error = reward - means[chosen]
    notice(scalars, error, spread[chosen, chosen])
    for k in range(means.size):
        means[k] += spread[k, chosen] * error * gain
    for k in range(means.size):
        if k != chosen:
            alpha = spread[k, chosen] * gain
            for j in range(means.size):
                spread[k, j] -= alpha * spread[chosen, j]
    for j in range(means.size):  # last: the others needed this line
        spread[chosen, j] *= gain


@kernel
def kept_learn(
    X: Matrix,
    products: Matrix,
    theta: Vector,
    means: Vector,
    widths2: Vector,
    scalars: Vector,
    chosen: int,
    reward: float,
    g: Vector,
) -> None:
    """O(K d): A^-1 x_k is kept for each arm, so Sherman-Morrison needs no matrix"""
    dim = g.size
    for j in range(dim):
        g[j] = products[chosen, j]
    gain = 1.0 / (1.0 + widths2[chosen])
    error = reward - means[chosen]
    notice(scalars, error, widths2[chosen])
    for j in range(dim):
        theta[j] += g[j] * error * gain
    for k in range(means.size):
        along = 0.0
        for j in range(dim):
            along += X[k, j] * g[j]
        means[k] += along * error * gain
        widths2[k] -= along * along * gain
        for j in range(dim):
            products[k, j] -= along * gain * g[j]
