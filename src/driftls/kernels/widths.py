"""How sure are we about x: squared widths x' (A + ridge I)^-1 x, exact and cheaper, and directions for sampling.

A width is what it does when a row was learned (`width_enter`), and the squared width that it gives an arm
(`width2`). Arms that recur have a slot; an arm without one has slot -1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from driftls.kernels import cd
from driftls.kernels.cd import CDState, descend
from driftls.kernels.compile import by_type, kernel
from driftls.kernels.exact import INVERT, LEFT, ROUTE, WAITING, ExactState, exact_enter, invert
from driftls.kernels.exact import RIDGE as EXACT_RIDGE
from driftls.kernels.frames import Coordinates, Integers, Matrix, Vector
from driftls.kernels.rows import begin, end, index, row_axpy, row_dot, row_norm2, value


class Chance(NamedTuple):
    """The policy's own tape of uniforms and (one entry) where to read it next."""

    tape: Vector
    cursor: Integers


@kernel
def uniform(chance: Chance) -> float:
    """The next number of the tape"""
    chance.cursor[0] += 1
    return chance.tape[chance.cursor[0] - 1]


@kernel
def normal(chance: Chance) -> float:
    """A standard normal number from two uniforms (Box and Muller)"""
    u = uniform(chance)
    return np.sqrt(-2.0 * np.log(1.0 - u)) * np.cos(2.0 * np.pi * uniform(chance))


# -- none: greedy ----------------------------------------------------------------------------------------------------


class NoWidth(NamedTuple):
    """Nothing is known, and nothing kept."""

    scalars: Vector


@kernel
def no_enter(width: Any, block: Any, k: int, rows: Any, held: int, max_norm2: float, gamma: float, chance: Any) -> None:
    pass


@kernel
def no_width2(width: Any, arms: Any, i: int, slot: int, rows: Any, held: int) -> float:
    return 0.0


# -- exact -----------------------------------------------------------------------------------------------------------


@kernel
def exact_width2(width: ExactState, arms: Any, i: int, slot: int, rows: Any, held: int) -> float:
    """x' A^-1 x from the kept inverse: d^2, or nnz^2 for a sparse arm"""
    total = 0.0
    for p in range(begin(arms, i), end(arms, i)):
        x = value(arms, i, p)
        if x != 0.0:
            line, part = width.inverse[index(arms, i, p)], 0.0
            for q in range(begin(arms, i), end(arms, i)):
                part += value(arms, i, q) * line[index(arms, i, q)]
            total += x * part
    return max(total, 0.0)


@kernel
def keep_inverse(state: ExactState) -> None:
    """Every round needs an inverse: where Sherman-Morrison had to be given up, invert after every row"""
    scalars = state.scalars
    if scalars[ROUTE] == WAITING and scalars[LEFT] > 0.0 and scalars[EXACT_RIDGE] > 0.0:
        scalars[ROUTE] = INVERT
        invert(state)


class OwnExactState(NamedTuple):
    """ExactState of a width whose tracker keeps no inverse itself."""

    coords: Matrix
    scalars: Vector
    gram: Matrix
    inverse: Matrix


@kernel
def own_exact_enter(
    width: OwnExactState, block: Any, k: int, rows: Any, held: int, max_norm2: float, gamma: float, chance: Any
) -> None:
    state = ExactState(width.coords, width.scalars, width.gram, width.inverse)
    exact_enter(state, block, k, held, width.scalars[EXACT_RIDGE])
    keep_inverse(state)


# -- diagonal --------------------------------------------------------------------------------------------------------

D_SCALE, D_DISCOUNT, D_RIDGE = 0, 1, 2
DIAGONAL_SCALARS = 3


class DiagonalWidthState(NamedTuple):
    """coords: the sums of squares, s_j = scale coords[0, j]."""

    coords: Coordinates
    scalars: Vector


@kernel
def diagonal_width_enter(
    width: DiagonalWidthState, block: Any, k: int, rows: Any, held: int, max_norm2: float, gamma: float, chance: Any
) -> None:
    """s_j <- rho s_j + x_j^2"""
    scalars = width.scalars
    scalars[D_SCALE] *= scalars[D_DISCOUNT]
    if scalars[D_SCALE] < cd.SMALLEST_SCALE:
        for j in range(width.coords.shape[1]):
            width.coords[0, j] *= scalars[D_SCALE]
        scalars[D_SCALE] = 1.0
    for p in range(begin(block, k), end(block, k)):
        x = value(block, k, p)
        width.coords[0, index(block, k, p)] += x * x / scalars[D_SCALE]


@kernel
def diagonal_width2(width: DiagonalWidthState, arms: Any, i: int, slot: int, rows: Any, held: int) -> float:
    """Sum of x_j^2/(ridge + s_j)"""
    total = 0.0
    for p in range(begin(arms, i), end(arms, i)):
        x = value(arms, i, p)
        total += x * x / (width.scalars[D_RIDGE] + width.scalars[D_SCALE] * width.coords[0, index(arms, i, p)])
    return total


# -- phi by gradient descent -----------------------------------------------------------------------------------------

P, Q, RIDGE, SCALE, STEPS, PRINTED, CLAMPED, LAST_STEP, WINDOWED, ENTERED, N = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
PHI_SCALARS = 11


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
    width: PhiState, block: Any, k: int, rows: Any, held: int, max_norm2: float, gamma: float, chance: Chance
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
        for slot in range(width.live.size):
            if width.live[slot] != 0:
                phi = scalars[P] * row_dot(rows, i, width.U, slot) + scalars[Q] * row_dot(rows, i, width.X, slot)
                width.dots[slot] = phi
        if (1.0 - step * lam) * scalars[P] < 1e-120:
            for slot in range(width.live.size):
                for j in range(width.U.shape[1]):
                    width.U[slot, j] = scalars[P] * width.U[slot, j] + scalars[Q] * width.X[slot, j]
            scalars[P] = 1.0
            scalars[Q] = 0.0
        scalars[P] *= 1.0 - step * lam
        scalars[Q] = (1.0 - step * lam) * scalars[Q] + step / n
        for slot in range(width.live.size):
            if width.live[slot] != 0:
                row_axpy(rows, i, -step * width.dots[slot] / scalars[P], width.U, slot)


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


# -- phi by coordinate descent, and ensembles: both solve with the A that CD keeps ---------------------------------


class PhiCDState(NamedTuple):
    """phi and residual x - (A + ridge I) phi of each slot; then the fields of a CDState that holds A."""

    phi: Matrix
    residual: Matrix
    X: Matrix
    live: Integers
    sizes: Integers
    own: Integers
    steps: Integers
    coords: Matrix
    scalars: Vector
    gram: Matrix


@kernel
def gram_of(width: Any) -> CDState:
    """The CDState inside: the tracker's own, or one that the width keeps up itself"""
    return CDState(width.coords, width.scalars, width.gram)


@kernel
def phi_cd_open(width: PhiCDState, arms: Any, i: int, slot: int) -> None:
    """A new arm: phi = x_j/(ridge + A_jj), residual exact, then steps until the residual is small"""
    state = gram_of(width)
    scale, ridge = state.scalars[cd.SCALE], state.scalars[cd.RIDGE]
    phi, residual, X = width.phi[slot], width.residual[slot], width.X[slot]
    for j in range(phi.size):
        X[j] = 0.0
        phi[j] = 0.0
    row_axpy(arms, i, 1.0, width.X, slot)
    for j in range(phi.size):
        residual[j] = X[j]
        if X[j] != 0.0:
            phi[j] = X[j] / (ridge + scale * state.coords[cd.DIAGONAL, j])
    for j in range(phi.size):
        if phi[j] != 0.0:
            line = state.gram[j]
            for q in range(phi.size):
                residual[q] -= scale * line[q] * phi[j]
            residual[j] -= ridge * phi[j]
    size = row_norm2(arms, i)
    for _ in range(8 * phi.size):
        left = 0.0
        for j in range(phi.size):
            left += residual[j] * residual[j]
        if left <= 1e-8 * size:
            break
        descend(phi, residual, state)
    width.sizes[slot] = row_size(arms, i)
    width.live[slot] = 1


@kernel
def phi_cd_enter(
    width: PhiCDState, block: Any, k: int, rows: Any, held: int, max_norm2: float, gamma: float, chance: Any
) -> None:
    """R_k <- rho R_k + (1 - rho)(x_k - ridge phi_k) - (x.phi_k) x, then Gauss-Southwell steps"""
    state = gram_of(width)
    rho, ridge = state.scalars[cd.DISCOUNT], state.scalars[cd.RIDGE]
    if width.own[0] != 0:
        cd.cd_enter(state, block, k, held, ridge)
    for slot in range(width.live.size):
        if width.live[slot] != 0:
            phi, residual, X = width.phi[slot], width.residual[slot], width.X[slot]
            if rho < 1.0:
                for j in range(phi.size):
                    residual[j] = rho * residual[j] + (1.0 - rho) * (X[j] - ridge * phi[j])
            row_axpy(block, k, -row_dot(block, k, width.phi, slot), width.residual, slot)
            for _ in range(width.steps[0]):
                descend(phi, residual, state)


@kernel
def phi_cd_width2(width: PhiCDState, arms: Any, i: int, slot: int, rows: Any, held: int) -> float:
    """x.phi + phi.R, which is off by the square of phi's own error; no slot: the diagonal's guess"""
    total = 0.0
    if slot < 0:
        for p in range(begin(arms, i), end(arms, i)):
            x, j = value(arms, i, p), index(arms, i, p)
            total += x * x / (width.scalars[cd.RIDGE] + width.scalars[cd.SCALE] * width.coords[cd.DIAGONAL, j])
        return total
    phi, residual = width.phi[slot], width.residual[slot]
    total = row_dot(arms, i, width.phi, slot)
    for j in range(phi.size):
        total += phi[j] * residual[j]
    return max(total, 0.0)


class EnsembleState(NamedTuple):
    """theta, residual and start of each member, who tracks pure noise; then the fields of a CDState that holds A."""

    theta: Matrix
    residual: Matrix
    start: Matrix
    member: Integers
    own: Integers
    steps: Integers
    coords: Matrix
    scalars: Vector
    gram: Matrix


@kernel
def ensemble_enter(
    width: EnsembleState, block: Any, k: int, rows: Any, held: int, max_norm2: float, gamma: float, chance: Chance
) -> None:
    """Each member learns the row with a reward drawn from N(0, 1): its spread is A^-1; its start is not discounted"""
    state = gram_of(width)
    rho, ridge = state.scalars[cd.DISCOUNT], state.scalars[cd.RIDGE]
    if width.own[0] != 0:
        cd.cd_enter(state, block, k, held, ridge)
    for m in range(width.theta.shape[0]):
        theta, residual = width.theta[m], width.residual[m]
        if rho < 1.0:
            for j in range(theta.size):
                residual[j] = rho * residual[j] + (1.0 - rho) * ridge * (width.start[m, j] - theta[j])
        row_axpy(block, k, normal(chance) - row_dot(block, k, width.theta, m), width.residual, m)
        for _ in range(width.steps[0]):
            descend(theta, residual, state)


@kernel
def ensemble_width2(width: EnsembleState, arms: Any, i: int, slot: int, rows: Any, held: int) -> float:
    """The mean of (member . x)^2"""
    total = 0.0
    for m in range(width.theta.shape[0]):
        part = row_dot(arms, i, width.theta, m)
        total += part * part
    return total / width.theta.shape[0]


# -- exact sampling --------------------------------------------------------------------------------------------------


class SampleState(NamedTuple):
    """factor: lower Cholesky factor of A + ridge I, kept by rank-one updates; direction: the present sample."""

    factor: Matrix
    direction: Matrix


@kernel
def sample_enter(
    width: SampleState, block: Any, k: int, rows: Any, held: int, max_norm2: float, gamma: float, chance: Any
) -> None:
    """L L' <- L L' + x x', O(d^2)"""
    factor, x = width.factor, width.direction[1]
    for j in range(x.size):
        x[j] = 0.0
    row_axpy(block, k, 1.0, width.direction, 1)
    for j in range(x.size):
        if x[j] != 0.0:
            radius = np.sqrt(factor[j, j] * factor[j, j] + x[j] * x[j])
            c, s = radius / factor[j, j], x[j] / factor[j, j]
            factor[j, j] = radius
            for i in range(j + 1, x.size):
                factor[i, j] = (factor[i, j] + s * x[i]) / c
                x[i] = c * x[i] - s * factor[i, j]


@kernel
def sample(width: SampleState, chance: Chance) -> None:
    """direction = L'^-1 z, whose covariance is (A + ridge I)^-1"""
    factor, out = width.factor, width.direction[0]
    for j in range(out.size):
        out[j] = normal(chance)
    for j in range(out.size - 1, -1, -1):
        out[j] /= factor[j, j]
        for i in range(j):
            out[i] -= factor[j, i] * out[j]


@kernel
def sample_width2(width: SampleState, arms: Any, i: int, slot: int, rows: Any, held: int) -> float:
    """|L^-1 x|^2"""
    v = width.direction[1]
    for j in range(v.size):
        v[j] = 0.0
    row_axpy(arms, i, 1.0, width.direction, 1)
    total = 0.0
    for j in range(v.size):
        left = v[j]
        for q in range(j):
            left -= width.factor[j, q] * v[q]
        v[j] = left / width.factor[j, j]
        total += v[j] * v[j]
    return total


@kernel
def begin_nothing(width: Any, held: int, chance: Any) -> None:
    pass


@kernel
def ensemble_begin(width: EnsembleState, held: int, chance: Chance) -> None:
    """Draw the member that is asked this round, where one is"""
    if width.member[0] >= 0:
        width.member[0] = int(uniform(chance) * width.theta.shape[0])


@kernel
def sample_begin(width: SampleState, held: int, chance: Chance) -> None:
    sample(width, chance)


@kernel
def ucb_bonus(width: Any, arms: Any, i: int, slot: int, rows: Any, held: int) -> float:
    """The width itself: optimism"""
    return np.sqrt(width2(width, arms, i, slot, rows, held))


@kernel
def ensemble_bonus(width: EnsembleState, arms: Any, i: int, slot: int, rows: Any, held: int) -> float:
    """What the drawn member says; without one (member -1) the width"""
    if width.member[0] < 0:
        return ucb_bonus(width, arms, i, slot, rows, held)
    return row_dot(arms, i, width.theta, width.member[0])


@kernel
def sample_bonus(width: SampleState, arms: Any, i: int, slot: int, rows: Any, held: int) -> float:
    """What the sampled direction says"""
    return row_dot(arms, i, width.direction, 0)


@kernel
def always_same(width: Any, arms: Any, i: int, slot: int) -> bool:
    return True


@kernel
def open_nothing(width: Any, arms: Any, i: int, slot: int) -> None:
    pass


width_enter = by_type(
    {
        NoWidth: no_enter,
        ExactState: no_enter,  # the tracker's own state, entered by the tracker
        OwnExactState: own_exact_enter,
        DiagonalWidthState: diagonal_width_enter,
        PhiState: phi_enter,
        PhiCDState: phi_cd_enter,
        EnsembleState: ensemble_enter,
        SampleState: sample_enter,
    }
)
width2 = by_type(
    {
        NoWidth: no_width2,
        ExactState: exact_width2,
        OwnExactState: exact_width2,
        DiagonalWidthState: diagonal_width2,
        PhiState: phi_width2,
        PhiCDState: phi_cd_width2,
        EnsembleState: ensemble_width2,
        SampleState: sample_width2,
    }
)
ucb_widths = (NoWidth, ExactState, OwnExactState, DiagonalWidthState, PhiState, PhiCDState)
bonus = by_type({**dict.fromkeys(ucb_widths, ucb_bonus), EnsembleState: ensemble_bonus, SampleState: sample_bonus})
# before the arms of a round are scored
width_begin = by_type(
    {
        **dict.fromkeys(ucb_widths, begin_nothing),
        PhiState: phi_begin,
        EnsembleState: ensemble_begin,
        SampleState: sample_begin,
    }
)
# an arm is given a slot
width_open = by_type(
    {
        **dict.fromkeys((*ucb_widths, EnsembleState, SampleState), open_nothing),
        PhiState: phi_open,
        PhiCDState: phi_cd_open,
    }
)
# whether an arm still has the features for which its slot was opened
width_same = by_type(
    {
        **dict.fromkeys((*ucb_widths, EnsembleState, SampleState), always_same),
        PhiState: same_arm,
        PhiCDState: same_arm,
    }
)
