"""How sure are we about x: squared widths x' (A + ridge I)^-1 x, exact and cheaper, and directions for sampling.

A width is what it does when a row was learned (`width_enter`), and the squared width that it gives an arm
(`width2`). Arms that recur have a slot; an arm without one has slot -1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from driftls.kernels import cd
from driftls.kernels.chance import Chance, normal
from driftls.kernels.compile import by_type, exactly, kernel
from driftls.kernels.exact import INVERT, LEFT, ROUTE, WAITING, ExactState, exact_enter, invert
from driftls.kernels.exact import RIDGE as EXACT_RIDGE
from driftls.kernels.frames import Coordinates, Matrix, Vector
from driftls.kernels.kept import (
    EnsembleState,
    PhiCDState,
    ensemble_begin,
    ensemble_enter,
    ensemble_width2,
    phi_cd_enter,
    phi_cd_open,
    phi_cd_width2,
)
from driftls.kernels.phi import PhiState, phi_begin, phi_enter, phi_open, phi_width2, same_arm
from driftls.kernels.rows import begin, end, index, row_axpy, row_dot, value

# -- none: greedy ----------------------------------------------------------------------------------------------------


class NoWidth(NamedTuple):
    """Nothing is known, and nothing kept."""

    scalars: Vector


@kernel
def no_enter(
    width: Any, block: Any, k: int, slot: int, rows: Any, held: int, max_norm2: float, gamma: float, chance: Any
) -> None:
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
    width: OwnExactState,
    block: Any,
    k: int,
    slot: int,
    rows: Any,
    held: int,
    max_norm2: float,
    gamma: float,
    chance: Any,
) -> None:
    state = ExactState(width.coords, width.scalars, width.gram, width.inverse)
    exact_enter(state, block, k, held, width.scalars[EXACT_RIDGE])
    keep_inverse(state)


# -- diagonal --------------------------------------------------------------------------------------------------------

D_SCALE, D_DISCOUNT, D_RIDGE = 0, 1, 2
DIAGONAL_SCALARS = 3


class DiagonalWidthState(NamedTuple):
    """coords: the sums of squares, s_j = scale coords[0, j]; spread: 1/(ridge + s_j), unless rows are discounted."""

    coords: Coordinates
    spread: Coordinates
    scalars: Vector


@kernel
def diagonal_width_enter(
    width: DiagonalWidthState,
    block: Any,
    k: int,
    slot: int,
    rows: Any,
    held: int,
    max_norm2: float,
    gamma: float,
    chance: Any,
) -> None:
    """s_j <- rho s_j + x_j^2"""
    scalars = width.scalars
    scalars[D_SCALE] *= scalars[D_DISCOUNT]
    if scalars[D_SCALE] < cd.SMALLEST_SCALE:
        for j in range(width.coords.shape[1]):
            width.coords[0, j] *= scalars[D_SCALE]
        scalars[D_SCALE] = 1.0
    for p in range(begin(block, k), end(block, k)):
        x, j = value(block, k, p), index(block, k, p)
        width.coords[0, j] += x * x / scalars[D_SCALE]
        width.spread[0, j] = 1.0 / (scalars[D_RIDGE] + width.coords[0, j])


@exactly
def no_spread(width: NoWidth, j: int) -> float:
    return 0.0


@exactly
def diagonal_spread(width: DiagonalWidthState, j: int) -> float:
    """1/(ridge + s_j): a round asks for it once an arm and learns once, so the division is done in learning"""
    scalars = width.scalars
    if scalars[D_DISCOUNT] == 1.0:
        return width.spread[0, j]
    return 1.0 / (scalars[D_RIDGE] + scalars[D_SCALE] * width.coords[0, j])


# what a feature of size 1 adds to the squared width, where that is a sum over features
spread = by_type({NoWidth: no_spread, DiagonalWidthState: diagonal_spread}, exact=True)


@kernel
def diagonal_width2(width: DiagonalWidthState, arms: Any, i: int, slot: int, rows: Any, held: int) -> float:
    """Sum of x_j^2/(ridge + s_j)"""
    total = 0.0
    for p in range(begin(arms, i), end(arms, i)):
        x = value(arms, i, p)
        total += x * x * spread(width, index(arms, i, p))
    return total


# -- exact sampling --------------------------------------------------------------------------------------------------


class SampleState(NamedTuple):
    """factor: lower Cholesky factor of A + ridge I, kept by rank-one updates; direction: the present sample."""

    factor: Matrix
    direction: Matrix


@kernel
def sample_enter(
    width: SampleState, block: Any, k: int, slot: int, rows: Any, held: int, max_norm2: float, gamma: float, chance: Any
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
