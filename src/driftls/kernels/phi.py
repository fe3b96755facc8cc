"""phi by gradient descent: each recurring arm's (A + ridge I)^-1 x, followed as theta is, without any matrix."""

from __future__ import annotations

from typing import Any, NamedTuple

from driftls.kernels.chance import Chance, uniform
from driftls.kernels.compile import kernel
from driftls.kernels.frames import Coordinates, Integers, Matrix, Vector
from driftls.kernels.rows import begin, end, index, row_axpy, row_dot, value

RIDGE, SCALE, STEPS, PRINTED, CLAMPED, LAST_STEP, WINDOWED, ENTERED, N, CARRIED, LOOSE = range(11)
SCALARS = 11
C, DIRECTION, SLOPE = 0, 1, 2  # columns of `work`
PATIENCE = 50.0  # rows after which the steps of an arm that nothing disturbs are half as long
SMALL = 1e-14


class PhiState(NamedTuple):
    """phi_k = P_k U_k + Q_k X_k for the arm of slot k: the dense part of a step is two scalars.

    `sizes` are the numbers of non-zeros of the arms. An arm that the policy has dropped (`live` 0) is followed until
    its slot is needed: it helps to start others. `doubts` are the lengths of the arms' steps, from 1 down to 0 for a
    phi that is known to be exact. LOOSE: some row is of no arm that is kept.

    An arm without a slot starts from the diagonal's guess (`squares` are the sums x_j^2) and takes its steps in
    `spare`, on rows that were picked once for all arms of the round.
    """

    U: Coordinates
    X: Coordinates
    P: Vector
    Q: Vector
    live: Integers
    sizes: Integers
    doubts: Vector
    work: Matrix
    squares: Coordinates
    spare: Coordinates
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
    """A new arm: phi = x/ridge, or what other arms lend it (0 as printed)      [eq:roarlsa-update-variation, start]"""
    scalars = width.scalars
    changed = width.live[slot] != 0  # other features for the same id may come in every round: too often to borrow
    if width.sizes[slot] != 0 and scalars[ENTERED] > 0.0:
        scalars[LOOSE] = 1.0  # its rows stay, the arm does not
    for j in range(width.X.shape[1]):
        width.X[slot, j] = 0.0
        width.U[slot, j] = 0.0
    row_axpy(arms, i, 1.0, width.X, slot)
    width.P[slot], width.Q[slot] = 1.0, 0.0
    width.sizes[slot] = 0
    if scalars[CARRIED] != 0.0 and scalars[ENTERED] > 0.0 and not changed:
        width.doubts[slot] = borrow(width, slot)
    else:
        width.doubts[slot] = 0.0 if scalars[CARRIED] != 0.0 and scalars[ENTERED] == 0.0 else 1.0
        row_axpy(arms, i, 0.0 if scalars[PRINTED] != 0.0 else 1.0 / scalars[RIDGE], width.U, slot)
    width.sizes[slot] = row_size(arms, i)
    width.live[slot] = 1


@kernel
def borrow(width: PhiState, slot: int) -> float:
    """x = sum_k c_k x_k + r, r at right angles to the x_k: phi = sum_k c_k phi_k + r/ridge; returns the doubt

    This is exact where the phi_k are, and every row is one of the arms: then A r = 0. Conjugate gradients find c.
    """
    work, r, q = width.work, width.spare[0], width.spare[1]
    for j in range(r.size):
        r[j] = width.X[slot, j]
    gamma, doubt = slopes(width), 0.0
    first = gamma
    for m in range(width.sizes.size):
        work[m, C], work[m, DIRECTION] = 0.0, work[m, SLOPE]
        if width.sizes[m] != 0:
            doubt = max(doubt, width.doubts[m])
    for _ in range(2 * min(r.size, width.sizes.size)):
        if gamma <= SMALL * first:
            break
        alpha = gamma / mix(width, DIRECTION, 0.0, 1.0)
        for j in range(r.size):
            r[j] -= alpha * q[j]
        before, gamma = gamma, slopes(width)
        for m in range(width.sizes.size):
            work[m, C] += alpha * work[m, DIRECTION]
            work[m, DIRECTION] = work[m, SLOPE] + gamma / before * work[m, DIRECTION]
    mix(width, C, 1.0, 0.0)
    left = size = 0.0
    for j in range(r.size):
        width.U[slot, j] = q[j] + r[j] / width.scalars[RIDGE]
        left += r[j] * r[j]
        size += width.X[slot, j] * width.X[slot, j]
    if gamma > SMALL * first or (width.scalars[LOOSE] != 0.0 and left > 1e-6 * size):
        return 1.0
    return doubt


@kernel
def slopes(width: PhiState) -> float:
    """x_k . r for every arm, and the sum of their squares"""
    total = 0.0
    for m in range(width.sizes.size):
        slope = 0.0
        if width.sizes[m] != 0:
            for j in range(width.X.shape[1]):
                slope += width.X[m, j] * width.spare[0, j]
        width.work[m, SLOPE] = slope
        total += slope * slope
    return total


@kernel
def mix(width: PhiState, column: int, phis: float, arms: float) -> float:
    """q = sum_k w_k (phis phi_k + arms x_k), w a column of `work`; returns q.q"""
    q = width.spare[1]
    for j in range(q.size):
        q[j] = 0.0
    for m in range(width.sizes.size):
        w = width.work[m, column]
        if w != 0.0:
            for j in range(q.size):
                q[j] += w * (phis * width.P[m] * width.U[m, j] + (phis * width.Q[m] + arms) * width.X[m, j])
    size = 0.0
    for j in range(q.size):
        size += q[j] * q[j]
    return size


@kernel
def phi_dot(width: PhiState, m: int, rows: Any, i: int) -> float:
    """phi_m . x_i"""
    return width.P[m] * row_dot(rows, i, width.U, m) + width.Q[m] * row_dot(rows, i, width.X, m)


@kernel
def carry(width: PhiState, block: Any, k: int, slot: int) -> None:
    """A <- A + x x', x the arm of the slot: phi_m -= (x.phi_m)/(1 + x.phi_slot) phi_slot (Sherman and Morrison)"""
    phi = width.spare[0]
    for j in range(phi.size):
        phi[j] = width.P[slot] * width.U[slot, j] + width.Q[slot] * width.X[slot, j]
    gain = 1.0 / (1.0 + max(0.0, row_dot(block, k, width.spare, 0)))
    for m in range(width.sizes.size):
        if width.sizes[m] != 0:
            share = gain * phi_dot(width, m, block, k) / width.P[m]
            for j in range(phi.size):
                width.U[m, j] -= share * phi[j]


@kernel
def phi_enter(
    width: PhiState, block: Any, k: int, slot: int, rows: Any, held: int, max_norm2: float, gamma: float, chance: Chance
) -> None:
    """Carry every phi over; then T times, one draw for all arms that are in doubt,

    phi += g (x/n - (phi.x_i) x_i - ridge phi/n)      [eq:roarlsa-update-variation]

    As printed there is no ridge term, and g is gamma_n. n counts the rows that are held in a window, else all.
    """
    scalars = width.scalars
    for p in range(begin(block, k), end(block, k)):
        x = value(block, k, p)
        width.squares[0, index(block, k, p)] += x * x
    if scalars[CARRIED] != 0.0:
        if slot >= 0 and same_arm(width, block, k, slot):
            carry(width, block, k, slot)
        else:
            scalars[LOOSE] = 1.0
            for m in range(width.sizes.size):
                if width.sizes[m] != 0:
                    width.doubts[m] = 1.0
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
        for m in range(width.sizes.size):
            if width.doubts[m] > 0.0 and (width.live[m] != 0 or scalars[CARRIED] != 0.0):
                phi_step(width, m, rows, i, step * width.doubts[m], lam, n)
    if scalars[CARRIED] != 0.0:
        for m in range(width.sizes.size):
            width.doubts[m] /= 1.0 + width.doubts[m] / PATIENCE


@kernel
def phi_step(width: PhiState, m: int, rows: Any, i: int, step: float, lam: float, n: float) -> None:
    """P <- (1 - g ridge/n) P, Q <- (1 - g ridge/n) Q + g/n, u -= (g/P)(phi.x_i) x_i"""
    dot, shrink = phi_dot(width, m, rows, i), 1.0 - step * lam
    if shrink * width.P[m] < 1e-120:
        for j in range(width.U.shape[1]):
            width.U[m, j] = width.P[m] * width.U[m, j] + width.Q[m] * width.X[m, j]
        width.P[m], width.Q[m] = 1.0, 0.0
    width.P[m] *= shrink
    width.Q[m] = shrink * width.Q[m] + step / n
    row_axpy(rows, i, -step * dot / width.P[m], width.U, m)


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
        total = phi_dot(width, slot, arms, i)
    if total < 0.0:
        scalars[CLAMPED] += 1.0
        return 0.0
    return total


@kernel
def cold_width2(width: PhiState, arms: Any, i: int, rows: Any, held: int) -> float:
    """T steps from phi_j = x_j/(ridge + s_j), O(d T); as printed from 0"""
    scalars, cold = width.scalars, width.spare
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
