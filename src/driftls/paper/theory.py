"""The bounds of the paper: Theorem 1, its two propositions and Theorem 2; and the error of a run in three terms.

A diagnostic of what the theory says, never a confidence width: `docs/math/theory.md` tells which printed forms differ,
what each one needs, and how loose they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from driftls.errors import InputError, SettingsError
from driftls.schedules import admissible_c, check_admissible

__all__ = ["Bound", "Bounds", "ErrorTerms", "admissible_c", "check_admissible", "decompose"]

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


@dataclass(frozen=True)
class Bounds:
    """Bounds on the error of fOLS-GD with the step size gamma_n = c/(4(c + n)), symbol by symbol.

    Every n is a round, from 1: a number or an array, and the answer has its shape.

    Parameters
    ----------
    mu, n0 : float, int
        Strong convexity: ``lambda_min(A-bar_n) >= mu`` from round n0 on, which is d if not given.
    c : float
        Of the step size. Theorem 1 needs 2/3 < mu c/4 < 1 (`check_admissible`); the propositions take any.
    delta : float
        The probability with which a bound may fail. The printed bounds on the *mean* depend on it too, through beta.
    theta0_error : float
        ``||theta_0 - theta*||``; bounded features and noise then bound the errors at n0.

    Examples
    --------
    >>> bounds = Bounds(mu=0.5, c=6.0, dim=2)
    >>> print(bounds.theorem(10000).expectation.round(2), bounds.appendix(10000).expectation.round(2))
    3.41 6.64
    """

    mu: float
    c: float
    dim: int
    delta: float = 0.05
    theta0_error: float = 1.0
    n0: int = 0

    def __post_init__(self) -> None:
        for name in ("mu", "c", "dim", "theta0_error"):
            value = getattr(self, name)
            if not (value > 0.0 and math.isfinite(value)):
                raise SettingsError(f"{name} must be positive and finite, got {value}.")
        if not 0.0 < self.delta < 1.0:
            raise SettingsError(f"delta must lie strictly between 0 and 1, got {self.delta}.")
        object.__setattr__(self, "n0", self.n0 or self.dim)

    @classmethod
    def of_pege(cls, dim: int, lambda_pege: float, **others: Any) -> Self:
        """fPEGE-GD's mu = lambda_PEGE/(2d), which exploring guarantees, and c = 6d/lambda_PEGE.   [Theorem 2]

        mu c/4 is then 3/4; the algorithm's box prints c = 4d/(3 lambda_PEGE), which Theorem 1 excludes.
        """
        if not (lambda_pege > 0.0 and math.isfinite(lambda_pege)):
            raise SettingsError(f"lambda_pege must be positive and finite, got {lambda_pege}.")
        return cls(lambda_pege / (2.0 * dim), 6.0 * dim / lambda_pege, dim, **others)

    def gamma(self, n: Like) -> Array:
        """The step size c/(4(c + n)) of Theorem 1."""
        return np.asarray(self.c / (4.0 * (self.c + np.asarray(n, dtype=float))))

    def Gamma(self, n: Like) -> Array:
        """Gamma_n = gamma_1 + ... + gamma_n, with Gamma_0 = 0.   [Proposition 2]"""
        at = _rounds(n, above=-1)
        return np.append(0.0, np.cumsum(self.gamma(np.arange(1, at.max() + 1))))[at]

    @property
    def K_mu_c(self) -> float:
        """c^2/(16(1 - 2(1 - 3 mu c/16))): the sum of the L_i^2 is at most K_{mu,c}/(n + c).   [Theorem 1]"""
        check_admissible(self.mu, self.c)
        return self.c**2 / (16.0 * (1.0 - 2.0 * (1.0 - 3.0 * self.mu * self.c / 16.0)))

    def beta(self, n: Like) -> Array:
        """max(128 d log n log(n^2/delta), (2 log(n^2/delta))^2), for real n >= 1.   [Theorem 1]"""
        _rounds(np.floor(n))
        log_n = np.log(np.asarray(n, dtype=float))
        log = 2.0 * log_n - math.log(self.delta)
        return np.asarray(np.maximum(128.0 * self.dim * log_n * log, (2.0 * log) ** 2))

    def ols_error(self, n: Like) -> Array:
        """sqrt(beta_n/(n mu)), the bound on ``||theta-hat_n - theta*||`` with probability 1 - delta.   [Lemma]"""
        return np.asarray(np.sqrt(self.beta(n) / (self.mu * np.asarray(n, dtype=float))))

    def h(self, n: Like, *, grown: Like | None = None) -> Array:
        """2[1 + 2(||theta_0 - theta*|| + log n)^2]; the argument gives `grown` = Gamma_n for log n.   [Theorem 1]"""
        growth = np.log(_rounds(n)) if grown is None else np.asarray(grown)
        return np.asarray(2.0 * (1.0 + 2.0 * (self.theta0_error + growth) ** 2))

    def K1(self, n: Like) -> Array:
        """K_1(n) as the theorem prints it, with log(n0).   [Theorem 1]

        ``||theta_n0 - theta*|| log(n0) (n+c)^(-mu c/4) + sqrt(h(n)) + (sqrt 2 + sqrt(mu beta_{n+c}))/mu``
        """
        check_admissible(self.mu, self.c)
        at = _rounds(n, above=self.n0)
        initial = (self.theta0_error + self.Gamma(self.n0)) * math.log(self.n0)
        drifting = (math.sqrt(2.0) + np.sqrt(self.mu * self.beta(at + self.c))) / self.mu
        return np.asarray(initial * (at + self.c) ** (-self.mu * self.c / 4.0) + np.sqrt(self.h(at)) + drifting)

    def K2(self, n: Like) -> Array:
        """K_2(n) = sqrt(2 K_{mu,c} log(1/delta)) + K_1(n).   [Theorem 1]"""
        return math.sqrt(-2.0 * self.K_mu_c * math.log(self.delta)) + self.K1(n)

    def theorem(self, n: Like) -> Bound:
        """K_1(n)/sqrt(n+c) and K_2(n)/sqrt(n+c), as the theorem prints it.   [eq:l2-prob-bound]"""
        root = np.sqrt(_rounds(n) + self.c)
        return Bound(self.K1(n) / root, self.K2(n) / root)

    def appendix(self, n: Like) -> Bound:
        """The bound as the appendix derives it, term by term.   [Appendix, Step 3]

        ``||z_n0|| ((n0+c)/(n+c))^(mu c/4) + [sqrt(h(n)) + (sqrt 2 + sqrt(beta_{n+c}/mu))/mu] / sqrt(n+c)``, with
        Proposition 2's h. The last display has log(n0) for (n0+c)^(mu c/4), and one h for all in brackets.
        """
        at, mu, c = _rounds(n, above=self.n0), self.mu, self.c
        initial = self._z_n0 * ((self.n0 + c) / (at + c)) ** (mu * c / 4.0)
        drifting = (math.sqrt(2.0) + np.sqrt(self.beta(at + c) / mu)) / mu
        mean = initial + (np.sqrt(self.h(at, grown=self.Gamma(at))) + drifting) / np.sqrt(at + c)
        return Bound(mean, mean + np.sqrt(-2.0 * self.K_mu_c * math.log(self.delta) / (at + c)))

    def proposition_1(self, n: Like) -> Array:
        """The epsilon that ``||z_n|| - E||z_n||`` reaches with probability at most delta.   [Proposition 1]

        ``sqrt(2 log(1/delta) sum_i L_i^2)`` with ``L_i^2 = gamma_i^2 prod_{j=i+1}^n (1 - 2 mu gamma_j (1 - gamma_j))``;
        the proof prints + for the first -. It fails when theta_0 is far from theta*: it does not count the draws of i_n.
        """
        at = _rounds(n)
        step = self.gamma(np.arange(1, at.max() + 1))
        total = _running(step**2, 1.0 - 2.0 * self.mu * step * (1.0 - step))
        return np.sqrt(-2.0 * math.log(self.delta) * total)[at - 1]

    def proposition_2(self, n: Like, ols_error: Callable[[Array], Array] | None = None) -> ErrorTerms:
        """The bound on ``E||z_n||``, its sums evaluated, term by term.   [Proposition 2]

        ``ols_error(k)`` bounds ``||theta-hat_k - theta*||`` for an array of rounds k: the Lemma's if not given, or
        better where more is known. Features that do not depend on the noise allow sqrt(d/(mu k)).
        """
        at, first = _rounds(n, above=self.n0), self.n0
        k = np.arange(first + 1.0, at.max() + 1.0)
        step, wanted = self.gamma(k), at - first - 1
        keep, jump = np.exp(-self.mu * step), 1.0 / (self.mu * (k - 1.0))
        noise = self.h(k, grown=self.Gamma(k)) * step**2
        moved = (ols_error or self.ols_error)(k) * jump
        return ErrorTerms(
            initial=np.asarray(self._z_n0 * np.cumprod(keep)[wanted]),
            sampling=np.sqrt(_running(noise, keep**2))[wanted],
            drift=(np.sqrt(_running(jump**2, keep**2)) + _running(moved, keep))[wanted],
        )

    def regret_shape(self, n: Like) -> Array:
        """fPEGE-GD's regret bound without its constant C, for `of_pege` and theta_0 = 0.   [Theorem 2]

        ``K_1(n)^2/d (||theta*|| + 1/||theta*||) sqrt(n)``. C is not given: shapes can be compared, not levels.
        """
        size = self.theta0_error + 1.0 / self.theta0_error
        return np.asarray(self.K1(n) ** 2 / self.dim * size * np.sqrt(_rounds(n)))

    @property
    def _z_n0(self) -> float:
        """||theta_n0 - theta*|| <= theta0_error + Gamma_n0, and ||theta-hat_n0 - theta*|| <= 1/sqrt(mu)."""
        return self.theta0_error + float(self.Gamma(self.n0)) + 1.0 / math.sqrt(self.mu)


def decompose(
    X: Like, y: Like, thetas: Like, step_sizes: Like, *, regularisation: Like = 0.0, n0: int | None = None
) -> ErrorTerms:
    """The error of a recorded fOLS-GD or fRLS-GD run in three terms, for k = n0 ... n.   [eq:reg-decomp]

    X (n, d) and y (n,) are the rows in order, ``thetas`` (n + 1, d) the iterates from theta_0 on, the
    schedules arrays (n,) or numbers. The terms add up to ``theta_k - theta-tilde_k``: for that the start is
    measured from theta-tilde_n0 (printed: theta*), and round k's drift shrinks in round k (printed: later).
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
    return ErrorTerms(*map(np.array, zip(*parts)))


def _running(terms: Array, keep: Array) -> Array:
    """s_k = keep_k s_{k-1} + terms_k, for all k; unlike a cumulative sum, this cannot overflow."""
    sums = accumulate(zip(keep, terms), lambda s, kt: kt[0] * s + kt[1], initial=0.0)
    return np.fromiter(sums, dtype=float, count=len(terms) + 1)[1:]


def _rounds(n: Like, above: int = 0) -> npt.NDArray[np.int64]:
    at = np.asarray(n)
    if at.size == 0 or not np.all((at == np.floor(at)) & (at > above)):
        raise InputError(f"n must be whole rounds, each above {above}, got {n!r}.")
    return at.astype(np.int64)
