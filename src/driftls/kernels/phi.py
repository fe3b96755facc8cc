"""phi by gradient descent: each recurring arm's (A + ridge I)^-1 x, followed as theta is, without any matrix."""

from __future__ import annotations

from typing import Any, NamedTuple

from driftls.kernels.chance import Chance, uniform
from driftls.kernels.compile import kernel
from driftls.kernels.frames import Coordinates, Integers, Vector
from driftls.kernels.rows import begin, end, index, row_axpy, row_dot, value

P, Q, RIDGE, SCALE, STEPS, PRINTED, CLAMPED, LAST_STEP, WINDOWED, ENTERED, N = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
SCALARS = 11


class PhiState(NamedTuple):
    """phi_k = P U_k + Q X_k for the arm of slot k: all arms shrink and drift alike, so P and Q are shared.

    `live` tells which slots are in use, `sizes` how many non-zeros their arms have. An arm without a slot starts from
    the diagonal's guess (`squares` are the sums x_j^2) and takes its steps in `cold`, on rows that were picked once for
    all arms of the round.
    """

    U: Coordinates
    X: Coordinates
    live: Integers
    sizes: Integers
    dots: Vector
    squares: Coordinates
    cold: Coordinates
    picks: Integers
    scalars: Vector


@kernel
def same_arm(width: Any, arms: Any, i: int, slot: int) -> bool:
    """Whether the slot was opened for exactly these features"""
    count = 0
    for p in range(begin(arms, i), end(arms, i)):
        x = value(arms, i, p)
        if x != width.X[slot, index(arms, i, p)]:
            return False
        if x != 0.0:
            count += 1
    return count == width.sizes[slot]


@kernel
def row_size(arms: Any, i: int) -> int:
    """How many features are not 0"""
    count = 0
    for p in range(begin(arms, i), end(arms, i)):
        if value(arms, i, p) != 0.0:
            count += 1
    return count


@kernel
def phi_open(width: PhiState, arms: Any, i: int, slot: int) -> None:
    """A new arm: phi = x/ridge (0 as printed)      [eq:roarlsa-update-variation, start]"""
    scalars = width.scalars
    start = 0.0 if scalars[PRINTED] != 0.0 else 1.0 / scalars[RIDGE]
    for j in range(width.X.shape[1]):
        width.X[slot, j] = 0.0
        width.U[slot, j] = 0.0
    row_axpy(arms, i, 1.0, width.X, slot)
    row_axpy(arms, i, (start - scalars[Q]) / scalars[P], width.U, slot)
    width.sizes[slot] = row_size(arms, i)
    width.live[slot] = 1


@kernel
def phi_enter(
    width: PhiState, block: Any, k: int, slot: int, rows: Any, held: int, max_norm2: float, gamma: float, chance: Chance
) -> None:
    """T times, one draw for all arms: phi += g (x/n - (phi.x_i) x_i - ridge phi/n)      [eq:roarlsa-update-variation]

    As printed there is no ridge term, and g is gamma_n. n counts the rows that are held in a window, else all.
    """
    scalars = width.scalars
    for p in range(begin(block, k), end(block, k)):
        x = value(block, k, p)
        width.squares[0, index(block, k, p)] += x * x
    printed = scalars[PRINTED] != 0.0
    step = gamma if printed else (scalars[SCALE] / max_norm2 if max_norm2 > 0.0 else 0.0)
    scalars[ENTERED] += 1.0
    n = float(held) if scalars[WINDOWED] != 0.0 else scalars[ENTERED]
    scalars[N] = n
    lam = 0.0 if printed else scalars[RIDGE] / n
    if step * lam > 0.5:
        step = 0.5 / lam
    scalars[LAST_STEP] = step
    for _ in range(int(scalars[STEPS])):
        i = int(uniform(chance) * held)
        # phi_k . x_i for every arm first: the shared scalars move once for all of them
        for m in range(width.live.size):
            if width.live[m] != 0:
                phi = scalars[P] * row_dot(rows, i, width.U, m) + scalars[Q] * row_dot(rows, i, width.X, m)
                width.dots[m] = phi
        if (1.0 - step * lam) * scalars[P] < 1e-120:
            for m in range(width.live.size):
                for j in range(width.U.shape[1]):
                    width.U[m, j] = scalars[P] * width.U[m, j] + scalars[Q] * width.X[m, j]
            scalars[P] = 1.0
            scalars[Q] = 0.0
        scalars[P] *= 1.0 - step * lam
        scalars[Q] = (1.0 - step * lam) * scalars[Q] + step / n
        for m in range(width.live.size):
            if width.live[m] != 0:
                row_axpy(rows, i, -step * width.dots[m] / scalars[P], width.U, m)


@kernel
def phi_begin(width: PhiState, held: int, chance: Chance) -> None:
    """Pick the rows on which arms without a slot take their steps this round"""
    for t in range(width.picks.size):
        width.picks[t] = int(uniform(chance) * held)


@kernel
def phi_width2(width: PhiState, arms: Any, i: int, slot: int, rows: Any, held: int) -> float:
    """x . phi, at least 0; clamps are counted"""
    scalars = width.scalars
    if slot < 0:
        total = cold_width2(width, arms, i, rows, held)
    else:
        total = scalars[P] * row_dot(arms, i, width.U, slot) + scalars[Q] * row_dot(arms, i, width.X, slot)
    if total < 0.0:
        scalars[CLAMPED] += 1.0
        return 0.0
    return total


@kernel
def cold_width2(width: PhiState, arms: Any, i: int, rows: Any, held: int) -> float:
    """T steps from phi_j = x_j/(ridge + s_j), O(d T); as printed from 0"""
    scalars, cold = width.scalars, width.cold
    printed = scalars[PRINTED] != 0.0
    for j in range(cold.shape[1]):
        cold[0, j] = 0.0
    if not printed:
        for p in range(begin(arms, i), end(arms, i)):
            j = index(arms, i, p)
            cold[0, j] = value(arms, i, p) / (scalars[RIDGE] + width.squares[0, j])
    n = scalars[N]
    if n > 0.0:
        shrink = 0.0 if printed else scalars[LAST_STEP] * scalars[RIDGE] / n
        for t in range(width.picks.size):
            dot = row_dot(rows, width.picks[t], cold, 0)
            for j in range(cold.shape[1]):
                cold[0, j] *= 1.0 - shrink
            row_axpy(arms, i, scalars[LAST_STEP] / n, cold, 0)
            row_axpy(rows, width.picks[t], -scalars[LAST_STEP] * dot, cold, 0)
    return row_dot(arms, i, cold, 0)
