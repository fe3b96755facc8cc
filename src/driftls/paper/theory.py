"""The bounds of the paper as functions: Theorem 1, its two propositions and Theorem 2.

A diagnostic of what the theory says, never a confidence width: `docs/math/theory.md` tells which printed
forms differ, what each one needs, and how loose they are. The symbols mean the same in every function:

- ``n``: the round, from 1; a number or an array, and the answer has its shape.
- ``mu``: strong convexity, ``lambda_min(A-bar_n) >= mu`` from round ``n0`` (dim if not given) on. Features
  with ``||x|| <= 1`` allow no mu above 1/dim.
- ``c``: of the step size ``gamma_n = c/(4(c + n))``. ``dim``: d.
- ``delta``: the probability with which a bound may fail. The printed bounds *in expectation* depend on it
  too, through beta.
- ``theta0_error``: ``||theta_0 - theta*||``. The errors at n0 follow: bounded features and noise give
  ``||theta_n0 - theta*|| <= theta0_error + Gamma_n0`` and ``||theta-hat_n0 - theta*|| <= 1/sqrt(mu)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from driftls.errors import InputError, SettingsError
from driftls.schedules import admissible_c, check_admissible

__all__ = [
    "K1", "K2", "Bound", "ErrorTerms", "Gamma", "K_mu_c", "L", "admissible_c", "beta", "bound_appendix",
    "bound_theorem", "check_admissible", "decompose", "drift", "gamma", "h", "ols_error", "pege_mu_c", "proposition_1",
    "proposition_2", "rate", "rate_regime", "regret_shape",
]  # fmt: skip

Array = npt.NDArray[np.float64]
Like = npt.ArrayLike


class Bound(NamedTuple):
    """A bound on ``||theta_n - theta-hat_n||``: on its mean, and on its 1 - delta quantile."""

    expectation: Array
    high_probability: Array


class ErrorTerms(NamedTuple):
    """Initial, sampling and drift error, as the paper splits ``theta_n - theta-hat_n``."""

    initial: Array
    sampling: Array
    drift: Array

    @property
    def total(self) -> Array:
        """The three together."""
        return self.initial + self.sampling + self.drift


def pege_mu_c(dim: int, lambda_pege: float) -> tuple[float, float]:
    """fPEGE-GD's mu = lambda_PEGE/(2d), which exploring guarantees, and c = 6d/lambda_PEGE.   [Theorem 2]

    mu c/4 is then 3/4; the algorithm's box prints c = 4d/(3 lambda_PEGE), which Theorem 1 excludes.

    >>> pege_mu_c(dim=10, lambda_pege=1.0)
    (0.05, 60.0)
    """
    _positive(dim=dim, lambda_pege=lambda_pege)
    return lambda_pege / (2.0 * dim), 6.0 * dim / lambda_pege


def gamma(n: Like, *, c: float) -> Array:
    """The step size c/(4(c + n)) of Theorem 1.

    >>> print(gamma([2, 6, 18], c=6.0))
    [0.1875 0.125  0.0625]
    """
    _positive(c=c)
    return np.asarray(c / (4.0 * (c + np.asarray(n, dtype=float))))


def Gamma(n: Like, *, c: float) -> Array:
    """Gamma_n = gamma_1 + ... + gamma_n, with Gamma_0 = 0.   [Proposition 2]

    >>> print(Gamma([0, 1, 1000], c=6.0).round(4))
    [0.     0.2143 7.5622]
    """
    at = _rounds(n, above=-1)
    return np.append(0.0, np.cumsum(gamma(np.arange(1, at.max() + 1), c=c)))[at]


def L(n: int, *, mu: float, c: float) -> Array:
    """L_1 ... L_n: by how much the error at n can change with the noise of each step.   [Proposition 1]

    ``L_i^2 = gamma_i^2 prod_{j=i+1}^n (1 - 2 mu gamma_j (1 - gamma_j))``; the proof prints + for the first -.

    >>> print(L(3, mu=0.5, c=6.0).round(4))
    [0.1831 0.174  0.1667]
    """
    _positive(mu=mu)
    step = gamma(np.arange(1, int(_rounds(n)) + 1), c=c)
    shrink = np.append((1.0 - 2.0 * mu * step * (1.0 - step))[1:], 1.0)
    return np.asarray(step * np.sqrt(np.cumprod(shrink[::-1])[::-1]))


def K_mu_c(*, mu: float, c: float) -> float:
    """c^2/(16(1 - 2(1 - 3 mu c/16))): the sum of the L_i^2 is at most K_{mu,c}/(n + c).   [Theorem 1]

    >>> round(K_mu_c(mu=0.5, c=6.0), 6)
    18.0
    """
    check_admissible(mu, c)
    return c**2 / (16.0 * (1.0 - 2.0 * (1.0 - 3.0 * mu * c / 16.0)))


def beta(n: Like, *, dim: int, delta: float) -> Array:
    """max(128 d log n log(n^2/delta), (2 log(n^2/delta))^2), for real n >= 1.   [Theorem 1]

    >>> print(beta([1, 1000], dim=2, delta=0.05).round(1))
    [   35.9 29728.8]
    """
    _positive(dim=dim)
    _rounds(np.floor(n))
    log_n = np.log(np.asarray(n, dtype=float))
    log = 2.0 * log_n + _log_inverse(delta)
    return np.asarray(np.maximum(128.0 * dim * log_n * log, (2.0 * log) ** 2))


def ols_error(n: Like, *, mu: float, dim: int, delta: float) -> Array:
    """sqrt(beta_n/(n mu)), the bound on ``||theta-hat_n - theta*||`` with probability 1 - delta.   [Lemma]

    Bounded noise alone gives 1/sqrt(mu), which says more until n exceeds beta_n.

    >>> print(ols_error([10**3, 10**6], mu=0.5, dim=2, delta=0.05).round(3))
    [7.711 0.465]
    """
    _positive(mu=mu)
    return np.asarray(np.sqrt(beta(n, dim=dim, delta=delta) / (mu * np.asarray(n, dtype=float))))


def h(n: Like, *, theta0_error: float = 1.0, c: float | None = None) -> Array:
    """2[1 + 2(||theta_0 - theta*|| + log n)^2]; given c, with Gamma_n for log n.   [Theorem 1; Proposition 2]

    The argument gives Gamma_n, than which log n is smaller once c > 4 and n is large. The proposition prints
    ``||z_0||``, but there is no theta-hat_0.

    >>> print(h(1000).round(2), h(1000, c=6.0).round(2))
    252.13 295.24
    """
    grown = np.log(_rounds(n)) if c is None else Gamma(_rounds(n), c=c)
    return np.asarray(2.0 * (1.0 + 2.0 * (theta0_error + grown) ** 2))


def rate_regime(*, mu: float, c: float) -> str:
    """How the sum of the L_i^2 falls: regime "i", "ii" or "iii".   [Appendix, Step 3]

    3 mu c/16 below, at or above 1/2 tells them apart; the c of Theorem 1 are in the last. They are upper bounds, from
    1 - gamma_j >= 3/4; as gamma_j goes to 0, the sum really goes from "i" to "iii" where mu c/4 = 1/2.

    >>> [rate_regime(mu=0.5, c=c) for c in (3.0, 16 / 3, 6.0)]
    ['i', 'ii', 'iii']
    """
    _positive(mu=mu, c=c)
    product = 3.0 * mu * c / 16.0
    return "ii" if math.isclose(product, 0.5) else "i" if product < 0.5 else "iii"


def rate(n: Like, *, mu: float, c: float) -> Array:
    """The order of the sum of the L_i^2, without its constant.   [Appendix, Step 3]

    (i) ``(n+c)^(-3 mu c/8)``, (ii) ``log(n+c)/(n+c)``, (iii) ``1/(n+c)``.

    >>> print(rate([94, 994], mu=0.5, c=6.0))
    [0.01  0.001]
    """
    regime, at = rate_regime(mu=mu, c=c), _rounds(n) + c
    if regime == "i":
        return np.asarray(at ** (-3.0 * mu * c / 8.0))
    return np.asarray((np.log(at) if regime == "ii" else 1.0) / at)


def K1(
    n: Like, *, mu: float, c: float, dim: int, delta: float, theta0_error: float = 1.0, n0: int | None = None
) -> Array:
    """K_1(n) as the theorem prints it, with log(n0).   [Theorem 1]

    ``||theta_n0 - theta*|| log(n0) (n+c)^(-mu c/4) + sqrt(h(n)) + (sqrt 2 + sqrt(mu beta_{n+c}))/mu``

    >>> print(K1([1000, 10000], mu=0.5, c=6.0, dim=2, delta=0.05).round(1))
    [262.7 341.1]
    """
    check_admissible(mu, c)
    n0 = dim if n0 is None else n0
    at = _rounds(n, above=n0)
    initial = (theta0_error + Gamma(n0, c=c)) * math.log(n0) * (at + c) ** (-mu * c / 4.0)
    drifting = (math.sqrt(2.0) + np.sqrt(mu * beta(at + c, dim=dim, delta=delta))) / mu
    return np.asarray(initial + np.sqrt(h(at, theta0_error=theta0_error)) + drifting)


def K2(n: Like, *, mu: float, c: float, delta: float, **others: Any) -> Array:
    """K_2(n) = sqrt(2 K_{mu,c} log(1/delta)) + K_1(n), with the keywords of `K1`.   [Theorem 1]

    >>> print(K2([1000, 10000], mu=0.5, c=6.0, dim=2, delta=0.05).round(1))
    [273.1 351.5]
    """
    deviation = math.sqrt(2.0 * K_mu_c(mu=mu, c=c) * _log_inverse(delta))
    return deviation + K1(n, mu=mu, c=c, delta=delta, **others)


def bound_theorem(n: Like, *, c: float, **others: Any) -> Bound:
    """K_1(n)/sqrt(n+c) and K_2(n)/sqrt(n+c), as the theorem prints it, with the keywords of `K1`.   [eq:l2-prob-bound]

    >>> print(bound_theorem(10000, mu=0.5, c=6.0, dim=2, delta=0.05).expectation.round(2))
    3.41
    """
    root = np.sqrt(_rounds(n) + c)
    return Bound(K1(n, c=c, **others) / root, K2(n, c=c, **others) / root)


def bound_appendix(
    n: Like, *, mu: float, c: float, dim: int, delta: float, theta0_error: float = 1.0, n0: int | None = None
) -> Bound:
    """The bound as the appendix derives it, term by term.   [Appendix, Step 3]

    ``||z_n0|| ((n0+c)/(n+c))^(mu c/4) + [sqrt(h(n)) + (sqrt 2 + sqrt(beta_{n+c}/mu))/mu] / sqrt(n+c)``, with
    Proposition 2's h. The last display has log(n0) for (n0+c)^(mu c/4), and one h for all in brackets.

    >>> print(bound_appendix(10000, mu=0.5, c=6.0, dim=2, delta=0.05).expectation.round(2))
    6.64
    """
    check_admissible(mu, c)
    n0 = dim if n0 is None else n0
    at = _rounds(n, above=n0)
    z_n0 = theta0_error + Gamma(n0, c=c) + 1.0 / math.sqrt(mu)
    initial = z_n0 * ((n0 + c) / (at + c)) ** (mu * c / 4.0)
    drifting = (math.sqrt(2.0) + np.sqrt(beta(at + c, dim=dim, delta=delta) / mu)) / mu
    mean = initial + (np.sqrt(h(at, theta0_error=theta0_error, c=c)) + drifting) / np.sqrt(at + c)
    return Bound(mean, mean + np.sqrt(2.0 * K_mu_c(mu=mu, c=c) * _log_inverse(delta) / (at + c)))


def proposition_1(n: Like, *, mu: float, c: float, delta: float, n0: int = 0) -> Array:
    """The epsilon that ``||z_n|| - E||z_n||`` reaches with probability at most delta.   [Proposition 1]

    ``sqrt(2 log(1/delta) sum_i L_i^2)``, i from n0 + 1 to n. The proof counts the noise, not the draws of
    i_n: as printed it fails when theta_0 is far from theta*.

    >>> print(proposition_1([100, 10000], mu=0.5, c=6.0, delta=0.05).round(4))
    [0.4507 0.0514]
    """
    _positive(mu=mu)
    at = _rounds(n, above=n0)
    step = gamma(np.arange(n0 + 1, at.max() + 1), c=c)
    total = _running(step**2, 1.0 - 2.0 * mu * step * (1.0 - step))
    return np.sqrt(2.0 * _log_inverse(delta) * total)[at - n0 - 1]


def proposition_2(
    n: Like, *, mu: float, c: float, n0: int, ols_error: Callable[[Array], Array], theta0_error: float = 1.0
) -> ErrorTerms:
    """The bound on ``E||z_n||``, its sums evaluated, term by term; for any c.   [Proposition 2]

    ``ols_error(k)`` bounds ``||theta-hat_k - theta*||`` for an array of rounds k: by the Lemma (`ols_error`),
    or better where more is known. Features that do not depend on the noise allow sqrt(d/(mu k)):

    >>> terms = proposition_2(10000, mu=0.5, c=6.0, n0=2, ols_error=lambda k: np.sqrt(2 / (0.5 * k)))
    >>> print(terms.initial.round(3), terms.sampling.round(3), terms.drift.round(3))
    0.014 0.403 0.187
    """
    _positive(mu=mu, n0=n0)
    at = _rounds(n, above=n0)
    k = np.arange(n0 + 1.0, at.max() + 1.0)
    step = gamma(k, c=c)
    z_n0 = theta0_error + Gamma(n0, c=c) + 1.0 / math.sqrt(mu)
    keep, jump, wanted = np.exp(-mu * step), 1.0 / (mu * (k - 1.0)), at - n0 - 1
    return ErrorTerms(
        initial=np.asarray(z_n0 * np.cumprod(keep)[wanted]),
        sampling=np.sqrt(_running(h(k, theta0_error=theta0_error, c=c) * step**2, keep**2))[wanted],
        drift=(np.sqrt(_running(jump**2, keep**2)) + _running(ols_error(k) * jump, keep))[wanted],
    )


def regret_shape(n: Like, *, dim: int, lambda_pege: float, theta_norm: float, delta: float) -> Array:
    """fPEGE-GD's regret bound without its constant C.   [Theorem 2]

    ``K_1(n)^2/d (||theta*|| + 1/||theta*||) sqrt(n)`` with PEGE's mu and c, and theta_0 = 0. C is not
    given, so shapes can be compared, not levels.

    >>> growth = regret_shape([10**4, 10**6], dim=10, lambda_pege=1.0, theta_norm=1.0, delta=0.05)
    >>> print((growth[1] / growth[0]).round(1))
    21.3
    """
    _positive(theta_norm=theta_norm)
    mu, c = pege_mu_c(dim, lambda_pege)
    k1 = K1(n, mu=mu, c=c, dim=dim, delta=delta, theta0_error=theta_norm)
    return np.asarray(k1**2 / dim * (theta_norm + 1.0 / theta_norm) * np.sqrt(_rounds(n)))


def drift(
    A: Like, x: Like, noise: float, theta: Like, theta_star: Like, *, penalty: tuple[float, float] = (0.0, 0.0)
) -> Array:
    """theta-tilde_{n-1} - theta-tilde_n, from what arrived in round n.   [after eq:reg-decomp]

    ``(A + p I)^-1 [(x'(theta - theta*) - xi) x + (q - p) theta]``: A = A_{n-1}, theta the solution *after*
    the row, ``penalty`` (p, q) = ((n-1) lambda_{n-1}, n lambda_n), zeros for OLS. Printed with opposite sign.

    >>> drift([[1.0]], [1.0], 2.0, [1.5], [1.0])  # y = 0, then y = 3: the mean moves from 0 to 1.5
    array([-1.5])
    """
    x, theta = np.asarray(x, dtype=float), np.asarray(theta, dtype=float)
    before, after = penalty
    change = (x @ (theta - np.asarray(theta_star)) - noise) * x + (after - before) * theta
    return np.asarray(np.linalg.solve(np.asarray(A) + before * np.eye(len(x)), change))


def decompose(
    X: Like, y: Like, thetas: Like, step_sizes: Like, *, regularisation: Like = 0.0, n0: int | None = None
) -> ErrorTerms:
    """The error of a recorded fOLS-GD or fRLS-GD run in three terms, for k = n0 ... n.   [eq:reg-decomp]

    X (n, d) and y (n,) are the rows in order, ``thetas`` (n + 1, d) the iterates from theta_0 on, the
    schedules arrays (n,) or numbers. The terms add up to ``theta_k - theta-tilde_k``: for that the start is
    measured from theta-tilde_n0 (printed: theta*), and round k's drift shrinks in round k (printed: later).

    >>> terms = decompose([[1.0], [1.0]], [0.0, 3.0], [[0.5], [0.5], [1.75]], 0.5)
    >>> print(terms.initial[-1], terms.sampling[-1], terms.drift[-1])
    [0.25] [0.75] [-0.75]
    """
    X, y, thetas = (np.asarray(a, dtype=float) for a in (X, y, thetas))
    count, dim = X.shape
    n0 = dim if n0 is None else n0
    if thetas.shape != (count + 1, dim) or y.shape != (count,) or not 1 <= n0 <= count:
        shapes = f"X {X.shape}, y {y.shape}, thetas {thetas.shape} and n0 = {n0}"
        raise InputError(f"Expected X (n, d), y (n,), thetas (n + 1, d) and 1 <= n0 <= n, got {shapes}.")
    steps, lam = (np.broadcast_to(np.asarray(s, dtype=float), count) for s in (step_sizes, regularisation))
    rounds, eye = np.arange(1.0, count + 1.0)[:, None], np.eye(dim)
    M = np.cumsum(X[:, :, None] * X[:, None, :], axis=0) / rounds[:, :, None] + lam[:, None, None] * eye
    b = np.cumsum(y[:, None] * X, axis=0) / rounds
    if np.linalg.matrix_rank(M[n0 - 1]) < dim:
        raise InputError(f"The first {n0} rows do not determine theta. Pass a larger n0.")
    solution = np.linalg.solve(M[n0 - 1 :], b[n0 - 1 :, :, None])[:, :, 0]
    parts = [(thetas[n0] - solution[0], np.zeros(dim), np.zeros(dim))]
    for k in range(n0, count):
        shrink, (initial, sampling, drifting) = eye - steps[k] * M[k], parts[-1]
        martingale = thetas[k + 1] - shrink @ thetas[k] - steps[k] * b[k]  # gamma Delta M: actual minus mean step
        moved = solution[k - n0] - solution[k - n0 + 1]
        parts.append((shrink @ initial, shrink @ sampling + martingale, shrink @ (drifting + moved)))
    return ErrorTerms(*(np.array(part) for part in zip(*parts)))


def _running(terms: Array, keep: Array) -> Array:
    """s_k = keep_k s_{k-1} + terms_k, for all k; unlike a cumulative sum, this cannot overflow."""
    sums = accumulate(zip(keep, terms), lambda s, kt: kt[0] * s + kt[1], initial=0.0)
    return np.fromiter(sums, dtype=float, count=len(terms) + 1)[1:]


def _rounds(n: Like, above: int = 0) -> npt.NDArray[np.int64]:
    at = np.asarray(n)
    if at.size == 0 or not np.all((at == np.floor(at)) & (at > above)):
        raise InputError(f"n must be whole rounds, each above {above}, got {n!r}.")
    return at.astype(np.int64)


def _positive(**settings: float) -> None:
    for name, value in settings.items():
        if not (value > 0.0 and math.isfinite(value)):
            raise SettingsError(f"{name} must be positive and finite, got {value}.")


def _log_inverse(delta: float) -> float:
    if not 0.0 < delta < 1.0:
        raise SettingsError(f"delta must lie strictly between 0 and 1, got {delta}.")
    return math.log(1.0 / delta)
