"""The exact solution by Sherman-Morrison; Python re-factorises where rounding errors have grown.

u = theta; moment and gram are sums over rows: A = scale gram + ridge I, b = scale moment. The inverse is probed now and
then against the Gram matrix that it is the inverse of. A probe that fails, or a row that costs half of all digits, asks
Python to re-factorise; a matrix that is too ill-conditioned for that leaves the fast route, and theta is solved for from
the Gram matrix when it is asked for. Vectors lie as for dense rows; sparse rows reach into them with stride 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls.compiling.parts import entry, inner, part, reals
from driftls.kernels.rows import axpy, dot, rank_one, row

# How theta is found: solve from the Gram matrix when asked; the same, but go over to Sherman-Morrison once the matrix can
# be inverted; Sherman-Morrison; invert after every row, as the paper's baseline does.
SOLVE, WAITING, SHERMAN_MORRISON, INVERT = 0, 1, 2, 3
# What Python is asked for: sums afresh from the history; the inverse afresh.
SUM_UP, REPAIR, TRY, INVERSE = 1, 2, 4, 8

PROBE_EVERY = 64
LARGEST_PROBE = 1e-8
LARGEST_LOSS = 1e8  # by one row on the fast route: the inverse changes by this factor along it
SMALLEST_ENTRY = 1e-150  # of A's diagonal: under forgetting, a feature that stays away would let the inverse overflow
SMALLEST_SCALE = 1e-100
LAST_DIGIT = 1e-15  # added to a diagonal of 1, so that no pivot is exactly 0


@inner
def gain(t: Any, rows: Any, i: int) -> float:
    """gain = A^-1 x_i; returns x_i' A^-1 x_i"""
    x, at, n = row(rows, i)
    g = reals(t.gain)
    for k in range(t.dim):
        g[k] = 0.0
    for p in range(n):
        if x[p] != 0.0:
            line = reals(t.inverse + 8 * t.dim * (p if t.sparse == 0 else at[p]))  # symmetric: a row of it is a column
            for k in range(t.dim):
                g[k] += x[p] * line[k]
    return dot(x, at, n, t.sparse, g)


@inner
def sherman_morrison(t: Any, rows: Any, i: int, weight: float, rho: float) -> bool:
    """The inverse of rho A + weight x x':  (A^-1 - weight g g'/(rho + weight x.g))/rho,  g = A^-1 x;  theta with it"""
    denominator = rho + weight * gain(t, rows, i)
    if not rho < denominator * LARGEST_LOSS < rho * LARGEST_LOSS * LARGEST_LOSS:
        return False
    theta, g = reals(t.u), reals(t.gain)
    x, at, n = row(rows, i)
    error = reals(rows.y)[i] - dot(x, at, n, t.sparse, theta)
    step, largest = weight / denominator, 0.0
    for j in range(t.dim):
        theta[j] += step * error * g[j]
        alpha, line = step * g[j], reals(t.inverse + 8 * t.dim * j)
        if rho == 1.0:
            for k in range(t.dim):
                line[k] -= alpha * g[k]
        else:
            for k in range(t.dim):
                line[k] = (line[k] - alpha * g[k]) / rho
        largest = max(largest, line[j])
    return largest * SMALLEST_ENTRY < 1.0


@inner
def probe(t: Any, rows: Any, i: int) -> bool:
    """Whether A (A^-1 x) still gives x back"""
    gain(t, rows, i)
    x, at, n = row(rows, i)
    g, back, worst, largest = reals(t.gain), reals(t.scratch), 0.0, 0.0
    for k in range(t.dim):
        back[k] = 0.0
    axpy(x, at, n, t.sparse, 1.0, back)
    for j in range(t.dim):
        line, total = reals(t.gram + 8 * t.dim * j), 0.0
        for k in range(t.dim):
            total += line[k] * g[k]
        worst = max(worst, abs(t.scale * total + t.ridge_now * g[j] - back[j]))
        largest = max(largest, abs(back[j]))
    return worst <= LARGEST_PROBE * largest


@part
def exact_enter(t: Any, rows: Any, i: int, n: int) -> float:
    """A <- rho A + x x' and b <- rho b + y x, with the ridge at its new total      [eq:ols, eq:reg-ls]"""
    rho = t.discount
    t.entered += 1.0
    t.scale *= rho
    if t.fading == 0:
        t.ridge_now = t.ridge
    else:  # classic forgetting: the ridge fades with the rows
        t.ridge_now = rho * (t.ridge if t.entered == 1.0 else t.ridge_now)
    if t.scale < SMALLEST_SCALE:
        gram, moment = reals(t.gram), reals(t.moment)
        for j in range(t.dim * t.dim):
            gram[j] *= t.scale
        for j in range(t.dim):
            moment[j] *= t.scale
        t.scale = 1.0
    x, at, length = row(rows, i)
    rank_one(x, at, length, t.sparse, 1.0 / t.scale, t.dim, t.gram)
    axpy(x, at, length, t.sparse, reals(rows.y)[i] / t.scale, reals(t.moment))
    renewed = t.forgotten >= max(n, t.dim)
    asked = SUM_UP if renewed else 0
    if t.route == SHERMAN_MORRISON:
        fine = not renewed and t.entered < t.next_try and sherman_morrison(t, rows, i, 1.0, rho)
        if fine and t.entered % PROBE_EVERY == 0.0:
            fine = probe(t, rows, i)
        asked += 0 if fine else REPAIR
    elif t.route == WAITING and t.entered >= t.next_try:
        asked += TRY
    elif t.route == INVERT:
        asked += INVERSE
    t.asked += asked
    unsolved = t.eager != 0 and (t.route == SOLVE or t.route == WAITING)
    return 1.0 if t.asked != 0 or unsolved else 0.0


@part
def exact_forget(t: Any, rows: Any, i: int) -> float:
    """A -= x x' and b -= y x"""
    x, at, length = row(rows, i)
    rank_one(x, at, length, t.sparse, -1.0 / t.scale, t.dim, t.gram)
    axpy(x, at, length, t.sparse, -reals(rows.y)[i] / t.scale, reals(t.moment))
    t.forgotten += 1
    t.version += 1
    if t.route == SHERMAN_MORRISON and not sherman_morrison(t, rows, i, -1.0, 1.0):
        t.route, t.asked = WAITING, REPAIR  # nothing more on the fast route until it is repaired
        t.next_try = t.entered + 2.0
    return 0.0


@inner
def sweep(t: Any, k: int, v: Any) -> bool:
    """One step of Gauss and Jordan on a symmetric matrix, of which only what is left of the diagonal is kept:

    m_ij <- m_ij - m_ik m_kj/m_kk,  m_ik <- m_ik/m_kk,  m_kk <- -1/m_kk;  after all k it is minus its own inverse
    """
    pivots = reals(t.inverse + 8 * t.dim * k)
    pivot = pivots[k]
    if not pivot > 0.0:
        return False
    for j in range(k):
        v[j] = pivots[j]
        pivots[j] /= pivot
    v[k], pivots[k] = 0.0, -1.0 / pivot
    for i in range(k + 1, t.dim):
        v[i] = reals(t.inverse + 8 * (t.dim * i + k))[0]
    for i in range(t.dim):
        if v[i] != 0.0:
            line, alpha = reals(t.inverse + 8 * t.dim * i), v[i] / pivot
            for j in range(i + 1):
                line[j] -= alpha * v[j]
            if i > k:
                line[k] = alpha
    return True


@entry
def invert(t: Any, i: int) -> float:
    """inverse = (A + ridge I)^-1 and theta = inverse b, with the diagonal scaled to 1 and 10^i last digits added to it

    Returns how much larger the inverse's diagonal is than that of a matrix without anything beside the diagonal; 0 if there
    was no pivot. A feature that was never seen has the ridge alone, and costs nothing.
    """
    units, v, theta, moment, worst = reals(t.gain), reals(t.scratch), reals(t.u), reals(t.moment), 0.0
    digit = LAST_DIGIT * 10.0**i
    for k in range(t.dim):
        total = t.scale * reals(t.gram + 8 * (t.dim + 1) * k)[0] + t.ridge_now
        units[k] = 1.0 / np.sqrt(total) if total > 0.0 else 1.0
    for k in range(t.dim):
        line, gram = reals(t.inverse + 8 * t.dim * k), reals(t.gram + 8 * t.dim * k)
        for j in range(k):
            line[j] = t.scale * gram[j] * units[j] * units[k]
        line[k] = (t.scale * gram[k] + t.ridge_now) * units[k] * units[k] + digit
    for k in range(t.dim):
        if reals(t.gram + 8 * (t.dim + 1) * k)[0] == 0.0:
            reals(t.inverse + 8 * (t.dim + 1) * k)[0] = -1.0
        elif not sweep(t, k, v):
            return 0.0
    for k in range(t.dim):
        line = reals(t.inverse + 8 * t.dim * k)
        worst = max(worst, -line[k])
        for j in range(k + 1):
            line[j] *= -units[j] * units[k]
            reals(t.inverse + 8 * t.dim * j)[k] = line[j]
    for k in range(t.dim):
        line, total = reals(t.inverse + 8 * t.dim * k), 0.0
        for j in range(t.dim):
            total += line[j] * moment[j]
        theta[k] = t.scale * total
    return worst
