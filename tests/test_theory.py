"""The bounds: printed values by hand, sums by naive loops, and whether they hold in simulation."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from driftls.errors import InputError, SettingsError
from driftls.paper import theory

SEEDS, ROUNDS, DELTA = 400, 2000, 0.1
AT = (60, 120, 250, 500, 1000, 2000)


# --- the printed values ---------------------------------------------------------------------------------------------


def test_step_sizes_and_their_sums():
    assert theory.gamma(2, c=6.0) == 6 / 32
    assert theory.Gamma(3, c=6.0) == pytest.approx(6 / 28 + 6 / 32 + 6 / 36)
    np.testing.assert_allclose(theory.Gamma([3, 0, 1], c=6.0), [6 / 28 + 6 / 32 + 6 / 36, 0.0, 6 / 28])


def test_lipschitz_constants_by_hand():
    g1, g2, g3 = 6 / 28, 6 / 32, 6 / 36
    two, three = 1 - 2 * 0.5 * g2 * (1 - g2), 1 - 2 * 0.5 * g3 * (1 - g3)
    np.testing.assert_allclose(theory.L(3, mu=0.5, c=6.0), [g1 * math.sqrt(two * three), g2 * math.sqrt(three), g3])


def test_constants_by_hand():
    assert theory.K_mu_c(mu=0.5, c=6.0) == pytest.approx(36 / (16 * 0.125))
    assert theory.beta(1, dim=3, delta=math.exp(-1)) == pytest.approx(4.0)  # log n = 0: the second branch
    assert theory.beta(math.e, dim=3, delta=math.exp(-1)) == pytest.approx(128 * 3 * 3)
    assert theory.ols_error(1, mu=0.25, dim=3, delta=math.exp(-1)) == pytest.approx(4.0)
    assert theory.h(1, theta0_error=2.0) == 2 * (1 + 2 * 4)
    assert theory.h(1, theta0_error=2.0, c=6.0) == pytest.approx(2 * (1 + 2 * (2 + 6 / 28) ** 2))


def test_theorem_by_hand():
    # mu = 1/4, c = 12: mu c/4 = 3/4; n = 1, n0 = 4 is too late, so n = 5; theta_0 is 2 away
    settings = {"mu": 0.25, "c": 12.0, "dim": 4, "delta": 0.05, "theta0_error": 2.0}
    start = 2.0 + 3 * (1 / 13 + 1 / 14 + 1 / 15 + 1 / 16)
    beta = 128 * 4 * math.log(17) * math.log(17**2 / 0.05)
    h = 2 * (1 + 2 * (2 + math.log(5)) ** 2)
    k1 = start * math.log(4) / 17**0.75 + math.sqrt(h) + (math.sqrt(2) + math.sqrt(0.25 * beta)) / 0.25
    deviation = math.sqrt(2 * (144 / 16 / 0.125) * math.log(20))
    assert theory.K1(5, **settings) == pytest.approx(k1)
    assert theory.K2(5, **settings) == pytest.approx(k1 + deviation)
    bound = theory.bound_theorem(5, **settings)
    assert bound.expectation == pytest.approx(k1 / math.sqrt(17))
    assert bound.high_probability == pytest.approx((k1 + deviation) / math.sqrt(17))

    grown = 3 * (1 / 13 + 1 / 14 + 1 / 15 + 1 / 16 + 1 / 17)
    h = 2 * (1 + 2 * (2 + grown) ** 2)
    initial = (start + 2.0) * (16 / 17) ** 0.75  # 1/sqrt(mu) = 2 for the distance of theta-hat_n0
    drifting = (math.sqrt(2) + math.sqrt(beta / 0.25)) / 0.25
    bound = theory.bound_appendix(5, **settings)
    assert bound.expectation == pytest.approx(initial + (math.sqrt(h) + drifting) / math.sqrt(17))
    assert bound.high_probability - bound.expectation == pytest.approx(deviation / math.sqrt(17))


def test_regret_shape_by_hand():
    k1 = theory.K1(100, mu=0.05, c=60.0, dim=10, delta=0.05, theta0_error=2.0)
    shape = theory.regret_shape(100, dim=10, lambda_pege=1.0, theta_norm=2.0, delta=0.05)
    assert shape == pytest.approx(k1**2 / 10 * 2.5 * 10)


def test_propositions_are_the_printed_sums():
    mu, c, n0, n = 0.3, 9.0, 3, 40
    gamma = {k: c / (4 * (c + k)) for k in range(1, n + 1)}
    Gamma = {k: sum(gamma[i] for i in range(1, k + 1)) for k in range(n + 1)}
    total = sum(
        gamma[i] ** 2 * math.prod(1 - 2 * mu * gamma[j] * (1 - gamma[j]) for j in range(i + 1, n + 1))
        for i in range(n0 + 1, n + 1)
    )
    assert theory.proposition_1(n, mu=mu, c=c, delta=0.2, n0=n0) == pytest.approx(math.sqrt(2 * total * math.log(5)))
    assert np.sum(theory.L(n, mu=mu, c=c)[n0:] ** 2) == pytest.approx(total)

    decay = {k: math.exp(-mu * (Gamma[n] - Gamma[k])) for k in range(n + 1)}
    later = range(n0 + 1, n + 1)
    terms = theory.proposition_2(n, mu=mu, c=c, n0=n0, ols_error=lambda k: 1 / k, theta0_error=2.0)
    assert terms.initial == pytest.approx(decay[n0] * (2.0 + Gamma[n0] + mu**-0.5))
    sampling = sum(2 * (1 + 2 * (2.0 + Gamma[k]) ** 2) * gamma[k] ** 2 * decay[k] ** 2 for k in later)
    assert terms.sampling == pytest.approx(math.sqrt(sampling))
    noise = math.sqrt(sum((decay[k] / (mu * (k - 1))) ** 2 for k in later))
    assert terms.drift == pytest.approx(noise + sum(decay[k] / k / (mu * (k - 1)) for k in later))
    assert terms.total == pytest.approx(terms.initial + terms.sampling + terms.drift)


@pytest.mark.parametrize("bound", [theory.bound_theorem, theory.bound_appendix])
def test_an_array_of_rounds_gives_what_its_rounds_give(bound):
    settings = {"mu": 0.1, "c": 30.0, "dim": 5, "delta": 0.1}
    together = bound([[50, 7], [9, 800]], **settings).high_probability
    assert together.shape == (2, 2)
    assert together[1, 1] == bound(800, **settings).high_probability

    terms = theory.proposition_2([90, 30], mu=0.1, c=30.0, n0=5, ols_error=np.reciprocal)
    assert terms.total[1] == theory.proposition_2(30, mu=0.1, c=30.0, n0=5, ols_error=np.reciprocal).total


# --- which c, and how fast ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [1.0, 16 / 3, 8.0, 30.0, -1.0, math.nan])
def test_a_c_that_the_theorem_excludes_is_refused_with_the_interval(c):
    with pytest.raises(SettingsError, match=re.escape("strictly between 5.333 and 8.")):
        theory.check_admissible(0.5, c)
    with pytest.raises(SettingsError, match="Theorem 1"):
        theory.bound_theorem(100, mu=0.5, c=c, dim=2, delta=0.1)


@pytest.mark.parametrize("dim", [1, 3, 10])
@pytest.mark.parametrize("scale", [0.2, 1.0])
def test_exploring_a_basis_guarantees_pege_s_mu(dim, scale):
    rng = np.random.default_rng(dim)
    basis = scale * np.linalg.qr(rng.standard_normal((dim, dim)))[0] * rng.uniform(0.5, 1.0, dim)
    lambda_pege = float(np.linalg.eigvalsh(basis.T @ basis)[0])
    mu, c = theory.pege_mu_c(dim, lambda_pege)
    theory.check_admissible(mu, c)
    A = np.zeros((dim, dim))
    for n in range(1, 12 * dim):
        A += np.outer(basis[(n - 1) % dim], basis[(n - 1) % dim])
        assert n < dim or np.linalg.eigvalsh(A / n)[0] >= mu * (1 - 1e-12)
    # the box's c = 4d/(3 lambda_PEGE) is outside
    with pytest.raises(SettingsError, match=r"mu\*c/4 is 0.1667"):
        theory.check_admissible(mu, 4 * dim / (3 * lambda_pege))


@pytest.mark.parametrize(("c", "regime", "slope"), [(2.0, "i", -0.5), (16 / 3, "ii", -1.0), (7.9, "iii", -1.0)])
def test_the_sum_of_squares_falls_at_least_as_its_regime_says(c, regime, slope):
    assert theory.rate_regime(mu=0.5, c=c) == regime
    n = np.array([10**4, 10**5])
    total = theory.proposition_1(n, mu=0.5, c=c, delta=math.exp(-0.5)) ** 2
    constant = total / theory.rate(n, mu=0.5, c=c)
    assert constant[1] <= constant[0] * 1.01
    # 1 - gamma_j goes to 1, where Step 3 puts 3/4: in truth the exponent is -mu c/2 as long as that is above -1, and
    # the boundary between the regimes is mu c/4 = 1/2. What is still missing is of order (c/n)^|mu c/2 - 1|.
    assert math.log10(total[1] / total[0]) == pytest.approx(slope, abs=0.03)


def test_the_orders_of_the_three_regimes():
    np.testing.assert_allclose(theory.rate([98, 998], mu=0.5, c=2.0), [100**-0.375, 1000**-0.375])
    assert theory.rate(1000, mu=0.75, c=32 / 9) == pytest.approx(math.log(1000 + 32 / 9) / (1000 + 32 / 9))
    assert theory.rate(94, mu=0.5, c=6.0) == 0.01


@pytest.mark.parametrize("mu", [1.0, 0.5, 0.05, 0.01])
@pytest.mark.parametrize("product", [0.67, 0.75, 0.99])
def test_K_mu_c_bounds_the_sum_of_squares(mu, product):
    c, n = 4 * product / mu, np.arange(1, 5001)
    total = theory.proposition_1(n, mu=mu, c=c, delta=math.exp(-0.5)) ** 2
    assert (total <= theory.K_mu_c(mu=mu, c=c) / (n + c)).all()


# --- do they hold? --------------------------------------------------------------------------------------------------


def tracked(X, y, c, rng, theta0=0.0):
    """||theta_n - theta-hat_n|| of fOLS-GD at the rounds AT, one run for every row of y, all on the features X."""
    runs, d = len(y), X.shape[1]
    theta, A, b, errors = np.full((runs, d), theta0), np.zeros((d, d)), np.zeros((runs, d)), {}
    for n, x in enumerate(X, 1):
        A, b = A + np.outer(x, x), b + y[:, n - 1, None] * x
        i = (rng.random(runs) * n).astype(int)
        residual = y[np.arange(runs), i] - np.einsum("rd,rd->r", theta, X[i])
        theta = theta + c / (4 * (c + n)) * residual[:, None] * X[i]
        if n in AT:
            errors[n] = np.linalg.norm(theta - np.linalg.solve(A, b.T).T, axis=1)
    return errors


@pytest.fixture(scope="module", params=["basis-2", "basis-10", "sphere-10"])
def problem(request):
    """Features that do not depend on the noise, ||x|| <= 1, noise +-1, strong convexity from n0 on."""
    kind, d = request.param.split("-")
    d, rng = int(d), np.random.default_rng(5)
    if kind == "basis":
        X, n0 = np.eye(d)[np.arange(ROUNDS) % d], d
        mu, c = theory.pege_mu_c(d, 1.0)
    else:
        X, n0 = rng.standard_normal((ROUNDS, d)), 5 * d
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        averages = np.cumsum(X[:, :, None] * X[:, None, :], axis=0) / np.arange(1, ROUNDS + 1)[:, None, None]
        mu = float(np.linalg.eigvalsh(averages[n0 - 1 :])[:, 0].min())
        c = 3 / mu
    y = X @ np.full(d, d**-0.5) + rng.choice([-1.0, 1.0], (SEEDS, ROUNDS))
    return {"mu": mu, "c": c, "n0": n0}, d, tracked(X, y, c, rng)


def test_both_printed_bounds_hold_for_mean_and_quantile_and_are_loose(problem):
    settings, d, errors = problem
    for n in AT:
        for bound in (theory.bound_theorem, theory.bound_appendix):
            value = bound(n, dim=d, delta=DELTA, **settings)
            assert errors[n].mean() <= value.expectation / 30  # docs/math/theory.md: a diagnostic, never a width
            assert np.quantile(errors[n], 1 - DELTA) <= value.high_probability / 30


def test_the_propositions_hold(problem):
    settings, d, errors = problem
    mu, c, n0 = settings["mu"], settings["c"], settings["n0"]
    for n in AT:
        # features that do not depend on the noise: E||theta-hat_k - theta*||^2 = tr(A_k^-1) <= d/(mu k)
        terms = theory.proposition_2(n, mu=mu, c=c, n0=n0, ols_error=lambda k: np.sqrt(d / (mu * k)))
        assert errors[n].mean() <= terms.total
        deviation = theory.proposition_1(n, mu=mu, c=c, delta=DELTA)
        assert np.quantile(errors[n], 1 - DELTA) - errors[n].mean() <= deviation


def test_the_error_falls_like_one_over_root_n(problem):
    settings, _, errors = problem
    late = np.array([n for n in AT if n >= 250])
    means = [errors[n].mean() for n in late]
    # 400 runs put about 0.02 of standard error on the slope
    slope = np.polyfit(np.log(late + settings["c"]), np.log(means), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.08)


def test_proposition_1_fails_as_printed_far_from_theta_star():
    """Its proof leaves out the draws of i_n; without any noise they are all there is, and they scale with the start."""
    rng, runs, n = np.random.default_rng(2), 1000, 60
    mu, c = theory.pege_mu_c(2, 1.0)
    X = np.eye(2)[np.arange(n) % 2]
    exceeds = {}
    for distance in (1.0, 100.0):
        error = tracked(X, np.tile(X @ [distance, 0.0], (runs, 1)), c, rng)[n]
        exceeds[distance] = np.mean(error - error.mean() >= theory.proposition_1(n, mu=mu, c=c, delta=0.05))
        # the theorem's bound knows the start, and holds
        bound = theory.bound_theorem(n, mu=mu, c=c, dim=2, delta=0.05, theta0_error=distance)
        assert np.quantile(error, 0.95) <= bound.high_probability
    assert exceeds[1.0] == 0.0
    assert exceeds[100.0] > 0.15  # 0.05 was promised


@pytest.mark.parametrize("dim", [10, 50])
def test_neither_printed_form_follows_from_proposition_2(dim):
    """Evaluated, its sums are larger: Step 3 loses a factor of order 1/mu of the sampling error, some of the drift."""
    n = np.array([500, 2000])
    mu, c = theory.pege_mu_c(dim, 1.0)
    exact = theory.proposition_2(
        n, mu=mu, c=c, n0=dim, ols_error=lambda k: theory.ols_error(k, mu=mu, dim=dim, delta=DELTA)
    )
    for bound in (theory.bound_theorem, theory.bound_appendix):
        assert (exact.total > 2 * bound(n, mu=mu, c=c, dim=dim, delta=DELTA).expectation).all()
    assert (exact.sampling > 5 * np.sqrt(theory.h(n, c=c) / (n + c))).all()


def test_log_n_is_too_small_for_Gamma_n():
    assert theory.Gamma(1000, c=6.0) > math.log(1000)
    assert theory.Gamma(1000, c=300.0) > 10 * math.log(1000)


# --- what happened in a run -----------------------------------------------------------------------------------------


def run(lam, n=60, d=3, seed=0):
    """A run of fRLS-GD with everything recorded, and its exact solutions."""
    rng = np.random.default_rng(seed)
    X, theta_star = rng.standard_normal((n, d)) / d, rng.standard_normal(d)
    xi = rng.uniform(-1, 1, n)
    y, k = X @ theta_star + xi, np.arange(1, n + 1)
    gammas, lambdas = 2 / (8 + k), lam * k**-0.4
    thetas, solutions = [rng.standard_normal(d)], {}
    for m in range(1, n + 1):
        i = rng.integers(m)
        step = (y[i] - thetas[-1] @ X[i]) * X[i] - lambdas[m - 1] * thetas[-1]
        thetas.append(thetas[-1] + gammas[m - 1] * step)
        if m >= d:
            M = X[:m].T @ X[:m] / m + lambdas[m - 1] * np.eye(d)
            solutions[m] = np.linalg.solve(M, X[:m].T @ y[:m] / m)
    return X, y, xi, theta_star, np.array(thetas), gammas, lambdas, solutions


@pytest.mark.parametrize("lam", [0.0, 0.3])
def test_the_drift_expression_is_the_difference_of_the_solutions(lam):
    X, _, xi, theta_star, _, _, lambdas, solutions = run(lam)
    for n in range(4, 61):
        A = X[: n - 1].T @ X[: n - 1]
        penalty = ((n - 1) * lambdas[n - 2], n * lambdas[n - 1])
        moved = theory.drift(A, X[n - 1], xi[n - 1], solutions[n], theta_star, penalty=penalty)
        np.testing.assert_allclose(moved, solutions[n - 1] - solutions[n], atol=1e-9)


@pytest.mark.parametrize("lam", [0.0, 0.3])
@pytest.mark.parametrize("n0", [None, 20])
def test_the_three_terms_add_up_to_the_error(lam, n0):
    X, y, _, _, thetas, gammas, lambdas, solutions = run(lam)
    terms = theory.decompose(X, y, thetas, gammas, regularisation=lambdas, n0=n0)
    first = n0 or 3
    errors = np.array([thetas[k] - solutions[k] for k in range(first, 61)])
    np.testing.assert_allclose(terms.total, errors, atol=1e-9)
    assert not terms.sampling[0].any()
    assert not terms.drift[0].any()


def test_full_gradients_have_no_sampling_error():
    X, y, _, _, _, gammas, _, _ = run(0.0)
    thetas = [np.ones(3)]
    for n in range(1, 61):
        thetas.append(thetas[-1] + gammas[n - 1] * (y[:n] - X[:n] @ thetas[-1]) @ X[:n] / n)
    np.testing.assert_allclose(theory.decompose(X, y, thetas, gammas).sampling, 0.0, atol=1e-12)


def test_decompose_refuses_what_does_not_fit():
    X, y, _, _, thetas, gammas, _, _ = run(0.0)
    with pytest.raises(InputError, match=re.escape("thetas (60, 3)")):
        theory.decompose(X, y, thetas[1:], gammas)
    with pytest.raises(InputError, match="larger n0"):
        theory.decompose(X, y, thetas, gammas, n0=2)


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, -3, 1.5, math.nan, []])
def test_rounds_are_whole_and_count_from_one(n):
    with pytest.raises(InputError, match="whole rounds"):
        theory.h(n)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_delta_is_a_probability(delta):
    with pytest.raises(SettingsError, match="delta"):
        theory.beta(10, dim=2, delta=delta)


def test_bounds_start_after_n0():
    settings = {"mu": 0.1, "c": 30.0, "dim": 10, "delta": 0.1}
    with pytest.raises(InputError, match="above 10"):
        theory.bound_theorem(10, **settings)
    with pytest.raises(InputError, match="above 3"):
        theory.bound_appendix([3, 9], n0=3, **settings)
    with pytest.raises(SettingsError, match="mu must be positive"):
        theory.proposition_1(10, mu=0.0, c=1.0, delta=0.1)
