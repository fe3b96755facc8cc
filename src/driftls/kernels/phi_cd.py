"""phi by coordinate descent, with an A that is kept: the CD tracker's, or that of a CD of the width's own.

phi and residual x - (A + ridge I) phi of each slot are dense lines; sparse rows reach into them with stride 1.
"""

from __future__ import annotations

from typing import Any

from driftls.kernels.cd import southwell_step
from driftls.kernels.parts import call, inner, integers, part, reals, tracker
from driftls.kernels.phi import put_arm
from driftls.kernels.rows import axpy, dot, norm2, row

SMALL = 1e-8  # of a new arm's squared residual, relative to the arm's: its width is then off by as little


@inner
def sums(t: Any, w: Any) -> Any:
    """The record of whoever keeps A"""
    return tracker(w.own if w.own != 0 else t.address)


@inner
def row_came(t: Any, w: Any, rows: Any, i: int) -> Any:
    """The record of whoever keeps A, once row i is in it: the tracker has taken it, an own CD takes it now"""
    o = sums(t, w)
    if w.own != 0:
        o.ridge = w.ridge
        call(o.enter, o.address, 0, rows.address, i, 0, 0, 0.0)
    return o


@inner
def follow(o: Any, w: Any, m: int, start: Any, weight: float, rows: Any, i: int, y: float) -> None:
    """R <- rho R + (1 - rho)(weight start - ridge s) + (y - x.s) x for solution s, then Gauss-Southwell steps on it"""
    solution, residual = reals(w.phi + 8 * w.line * m), reals(w.residual + 8 * w.line * m)
    rho, ridge = o.discount, o.ridge_now
    if rho < 1.0:
        for j in range(o.dim):
            residual[j] = rho * residual[j] + (1.0 - rho) * (weight * start[j] - ridge * solution[j])
    x, at, n = row(rows, i)
    axpy(x, at, n, w.stride, y - dot(x, at, n, w.stride, solution), residual)
    for _ in range(w.steps):
        southwell_step(o, solution, residual)


@part
def phi_cd_open(t: Any, w: Any, rows: Any, i: int, n: int) -> float:
    """A new arm: phi = x_j/(ridge + A_jj), residual exact, then steps until the residual is small"""
    put_arm(t, w, rows, i, n)
    o = sums(t, w)
    scale, ridge, diagonal = o.scale, o.ridge_now, reals(o.extra)
    offset = 8 * w.line * n
    phi, residual, arm = reals(w.phi + offset), reals(w.residual + offset), reals(w.arms + offset)
    for j in range(o.dim):
        residual[j] = arm[j]
    for j in range(o.dim):
        if arm[j] != 0.0:
            phi[j] = arm[j] / (ridge + scale * diagonal[j])
            line = reals(o.gram + 8 * o.dim * j)
            for k in range(o.dim):
                residual[k] -= scale * line[k] * phi[j]
            residual[j] -= ridge * phi[j]
    x, _, length = row(rows, i)
    for _ in range(8 * o.dim):
        if norm2(residual, o.dim) <= SMALL * norm2(x, length):
            break
        southwell_step(o, phi, residual)
    return 0.0


@part
def phi_cd_enter(t: Any, w: Any, rows: Any, i: int) -> float:
    """Every phi_m follows (A + ridge I) phi_m = x_m, which no reward changes"""
    o = row_came(t, w, rows, i)
    for m in range(w.slots):
        if integers(w.live)[m] != 0:
            follow(o, w, m, reals(w.arms + 8 * w.line * m), 1.0, rows, i, 0.0)
    return 0.0


@part
def phi_cd_width2(t: Any, w: Any, rows: Any, i: int, n: int) -> float:
    """x.phi + phi.R, which is off by the square of phi's own error; no slot: the diagonal's guess"""
    x, at, length = row(rows, i)
    o, total = sums(t, w), 0.0
    if n < 0:
        for p in range(length):
            total += x[p] * x[p] / (o.ridge_now + o.scale * reals(o.extra)[p if w.stride == 0 else at[p]])
        return total
    phi, residual = reals(w.phi + 8 * w.line * n), reals(w.residual + 8 * w.line * n)
    total = dot(x, at, length, w.stride, phi)
    for j in range(o.dim):
        total += phi[j] * residual[j]
    return max(total, 0.0)
