"""Widths that solve with an A that is kept, as CD keeps it: phi by coordinate descent, and ensembles."""

from __future__ import annotations

from typing import Any, NamedTuple

from driftls.kernels import cd
from driftls.kernels.cd import CDState, descend
from driftls.kernels.chance import Chance, normal, uniform
from driftls.kernels.compile import kernel
from driftls.kernels.frames import Integers, Matrix, Vector
from driftls.kernels.phi import row_size
from driftls.kernels.rows import begin, end, index, row_axpy, row_dot, row_norm2, value


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
def row_comes(width: Any, block: Any, k: int, held: int) -> CDState:
    """The A of this row, once it has come"""
    state = gram_of(width)
    if width.own[0] != 0:
        cd.cd_enter(state, block, k, held, state.scalars[cd.RIDGE])
    return state


@kernel
def follow(
    width: Any, solutions: Matrix, m: int, start: Vector, weight: float, state: CDState, block: Any, k: int, y: float
) -> None:
    """R <- rho R + (1 - rho)(weight start - ridge s) + (y - x.s) x for solution s, then Gauss-Southwell steps on it"""
    solution, residual = solutions[m], width.residual[m]
    rho, ridge = state.scalars[cd.DISCOUNT], state.scalars[cd.RIDGE]
    if rho < 1.0:
        for j in range(solution.size):
            residual[j] = rho * residual[j] + (1.0 - rho) * (weight * start[j] - ridge * solution[j])
    row_axpy(block, k, y - row_dot(block, k, solutions, m), width.residual, m)
    for _ in range(width.steps[0]):
        descend(solution, residual, state)


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
    width: PhiCDState, block: Any, k: int, slot: int, rows: Any, held: int, max_norm2: float, gamma: float, chance: Any
) -> None:
    """Every phi_k follows (A + ridge I) phi_k = x_k, which no reward changes"""
    state = row_comes(width, block, k, held)
    for m in range(width.live.size):
        if width.live[m] != 0:
            follow(width, width.phi, m, width.X[m], 1.0, state, block, k, 0.0)


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
    width: EnsembleState,
    block: Any,
    k: int,
    slot: int,
    rows: Any,
    held: int,
    max_norm2: float,
    gamma: float,
    chance: Chance,
) -> None:
    """Each member learns the row with a reward drawn from N(0, 1): its spread is A^-1; its start is not discounted"""
    state = row_comes(width, block, k, held)
    for m in range(width.theta.shape[0]):
        follow(width, width.theta, m, width.start[m], state.scalars[cd.RIDGE], state, block, k, normal(chance))


@kernel
def ensemble_width2(width: EnsembleState, arms: Any, i: int, slot: int, rows: Any, held: int) -> float:
    """The mean of (member . x)^2"""
    total = 0.0
    for m in range(width.theta.shape[0]):
        part = row_dot(arms, i, width.theta, m)
        total += part * part
    return total / width.theta.shape[0]


@kernel
def ensemble_begin(width: EnsembleState, held: int, chance: Chance) -> None:
    """Draw the member that is asked this round, where one is"""
    if width.member[0] >= 0:
        width.member[0] = int(uniform(chance) * width.theta.shape[0])
