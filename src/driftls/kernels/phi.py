"""phi by gradient descent: each recurring arm's (A + ridge I)^-1 x, followed as theta is, without any matrix.

phi_m = P_m u_m + Q_m x_m for the arm of slot m: the dense part of a step is two scalars.
"""

from __future__ import annotations

import math
from typing import Any

from driftls.compiling.parts import call, inner, integers, part, reals
from driftls.kernels.learn import mean_of
from driftls.kernels.records import counts, rows_at
from driftls.kernels.rows import axpy, dot, dot2, row, uniform

SMALLEST_PRODUCT = 1e-120

# -- arms that recur, for all widths that keep them -------------------------------------------------------------------


@part
def same(w: Any, rows: Any, i: int, n: int) -> float:
    """1 if slot n was opened for exactly the features of row i"""
    x, at, length = row(rows, i)
    arm, count = reals(w.arms + 8 * w.line * n), 0
    for p in range(length):
        if x[p] != arm[p if w.stride == 0 else at[p] * w.stride]:
            return 0.0
        count += 1 if x[p] != 0.0 else 0
    return 1.0 if count == integers(w.sizes)[n] else 0.0


@inner
def put_arm(t: Any, w: Any, rows: Any, i: int, slot: int) -> None:
    """The slot is that of row i from now on, with phi = 0"""
    x, at, n = row(rows, i)
    arm, phi = reals(w.arms + 8 * w.line * slot), reals(w.phi + 8 * w.line * slot)
    every, count = max(w.stride, 1), 0
    for j in range(t.dim):
        arm[j * every] = 0.0
        phi[j * every] = 0.0
    axpy(x, at, n, w.stride, 1.0, arm)
    for p in range(n):
        count += 1 if x[p] != 0.0 else 0
    integers(w.sizes)[slot] = count
    integers(w.live)[slot] = 1


@part
def ucb_score(t: Any, w: Any, rows: Any, i: int, n: int, out: int, x: float) -> float:
    """theta . arm + x width for arms i ... i + n - 1, whatever the width"""
    scores = reals(out)
    for k in range(n):
        slot = integers(rows.slots)[k] if rows.slots != 0 else -1
        width2 = call(w.width2, t.address, w.address, rows.address, i + k, slot, 0, 0.0)
        arm, at, length = row(rows, i + k)
        scores[k] = mean_of(t, arm, at, length) + x * math.sqrt(width2)
    return 0.0


# -- phi --------------------------------------------------------------------------------------------------------------


@part
def phi_open(t: Any, w: Any, rows: Any, i: int, n: int) -> float:
    """A new arm: phi = x/ridge, which is exact before the first row (0 as printed)    [eq:roarlsa-update-variation]"""
    put_arm(t, w, rows, i, n)
    reals(w.P)[n] = 1.0
    reals(w.Q)[n] = 0.0
    if w.printed == 0:
        x, at, length = row(rows, i)
        axpy(x, at, length, w.stride, 1.0 / w.ridge, reals(w.phi + 8 * w.line * n))
    return 0.0


@inner
def phi_dot(w: Any, m: int, x: Any, at: Any, n: int) -> float:
    """phi_m . x"""
    u, arm = dot2(x, at, n, w.stride, reals(w.phi + 8 * w.line * m), reals(w.arms + 8 * w.line * m))
    return reals(w.P)[m] * u + reals(w.Q)[m] * arm


@inner
def phi_step(t: Any, w: Any, m: int, rows: Any, i: int, step: float, lam: float) -> None:
    """P <- (1 - g ridge/n) P, Q <- (1 - g ridge/n) Q + g/n, u -= (g/P)(phi.x_i) x_i"""
    x, at, n = row(rows, i)
    P, Q, u = reals(w.P), reals(w.Q), reals(w.phi + 8 * w.line * m)
    product, shrink = phi_dot(w, m, x, at, n), 1.0 - step * lam
    if shrink * P[m] < SMALLEST_PRODUCT:
        arm, every = reals(w.arms + 8 * w.line * m), max(w.stride, 1)
        for j in range(t.dim):
            u[j * every] = P[m] * u[j * every] + Q[m] * arm[j * every]
        P[m] = 1.0
        Q[m] = 0.0
    P[m] *= shrink
    Q[m] = shrink * Q[m] + step / w.n
    axpy(x, at, n, w.stride, -step * product / P[m], u)


@part
def phi_enter(t: Any, w: Any, rows: Any, i: int) -> float:
    """T times, with one draw for all arms,

    phi += g (x/n - (phi.x_i) x_i - ridge phi/n)      [eq:roarlsa-update-variation]

    As printed there is no ridge term, and g is gamma_n. n counts the rows that are held in a window, else all.
    """
    x, at, length = row(rows, i)
    squares, live = reals(w.squares), integers(w.live)
    for p in range(length):
        squares[p if t.sparse == 0 else at[p]] += x[p] * x[p]
    c = counts(t.counts)
    w.entered += 1.0
    w.n = float(c.held) if w.windowed != 0 else w.entered
    step, lam = t.gamma, 0.0
    if w.printed == 0:
        step = w.step_scale / t.max_norm2 if t.max_norm2 > 0.0 else 0.0
        lam = w.ridge / w.n
        if step * lam > 0.5:
            step = 0.5 / lam
    w.last_step = step
    for _ in range(w.steps):
        drawn = int(uniform(w) * c.held)
        for m in range(w.slots):
            if live[m] != 0:
                phi_step(t, w, m, rows_at(t.history), drawn, step, lam)
    return 0.0


@part
def phi_begin(t: Any, w: Any) -> float:
    """Draw the rows on which arms without a slot take their steps this round"""
    held, drawn = counts(t.counts).held, integers(w.drawn)
    for k in range(w.steps):
        drawn[k] = int(uniform(w) * held)
    return 0.0


@inner
def cold_width2(t: Any, w: Any, rows: Any, i: int) -> float:
    """T steps from phi_j = x_j/(ridge + s_j), or from 0 as printed; scratch is 0 before and after"""
    x, at, n = row(rows, i)
    history, u, squares, p = rows_at(t.history), reals(w.scratch), reals(w.squares), 1.0
    if w.printed == 0:
        for k in range(n):
            j = k if t.sparse == 0 else at[k]
            u[j] = x[k] / (w.ridge + squares[j])
    steps = w.steps if w.n > 0.0 else 0
    shrink = 1.0 - w.last_step * w.ridge / w.n if steps > 0 and w.printed == 0 else 1.0
    for k in range(steps):
        past, place, length = row(history, integers(w.drawn)[k])
        product = p * dot(past, place, length, t.sparse, u)
        if shrink * p < SMALLEST_PRODUCT:
            for j in range(t.dim):
                u[j] *= p
            p = 1.0
        p *= shrink
        axpy(x, at, n, t.sparse, w.last_step / (w.n * p), u)
        axpy(past, place, length, t.sparse, -w.last_step * product / p, u)
    total = p * dot(x, at, n, t.sparse, u)
    for k in range(n):
        u[k if t.sparse == 0 else at[k]] = 0.0
    for k in range(steps):
        _, place, length = row(history, integers(w.drawn)[k])
        for q in range(length):
            u[q if t.sparse == 0 else place[q]] = 0.0
    return total


@part
def phi_width2(t: Any, w: Any, rows: Any, i: int, n: int) -> float:
    """x . phi, at least 0; clamps are counted"""
    if n < 0:
        total = cold_width2(t, w, rows, i)
    else:
        x, at, length = row(rows, i)
        total = phi_dot(w, n, x, at, length)
    if total < 0.0:
        w.clamped += 1
        return 0.0
    return total
