"""A test behind every row of docs/readings.md that can have one; the number in a name is the row's."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import naive
from driftls import Power, paper, ridge
from driftls.environments import FixedArms
from driftls.errors import DivergenceError, SettingsError
from driftls.history import Growing, Mapped, Reservoir, Window
from driftls.paper import theory
from driftls.paper.actions import Ball, Ellipsoid, LinearBandit, Sphere
from driftls.paper.pege import PEGE
from driftls.paper.theory import Bounds
from driftls.policies import LinUCB
from driftls.trackers import GD, OLS, RAW, RLS, SAG, SAGA, SVRG
from driftls.widths import ExactWidth, PhiWidth

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "driftls"
PAGE = ROOT / "docs" / "readings.md"


def unit_rows(rng, rows, dim):
    X = rng.normal(size=(rows, dim))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


# --- the page itself ------------------------------------------------------------------------------------------------


def test_the_page_has_every_row_once():
    numbers = [int(number) for number in re.findall(r"^## (\d+)\. ", PAGE.read_text(), flags=re.M)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 20


def test_the_tests_that_the_page_names_exist():
    named = re.findall(r"`tests/(\w+\.py)::(\w+)`", PAGE.read_text())
    assert len(named) >= 20
    for file, test in named:
        assert re.search(rf"^def {test}\(", (ROOT / "tests" / file).read_text(), flags=re.M), f"{file}::{test}"


def test_every_test_here_is_named_on_the_page():
    mine = re.findall(r"^def (test_row_\w+)\(", Path(__file__).read_text(), flags=re.M)
    missing = [test for test in mine if f"tests/test_readings.py::{test}" not in PAGE.read_text()]
    assert not missing


# --- 1 to 5: the estimates ------------------------------------------------------------------------------------------


def test_row_01_bounded_features_and_noise_are_told_by_name():
    assert LinearBandit(Sphere(3), reward="bounded").bounded
    assert not LinearBandit(Sphere(3), reward="gaussian").bounded  # the noise has no bound
    assert not LinearBandit(Ball(3, radius=2.0), reward="bounded").bounded  # the features are too long


CONSTANT = {"step_size": 0.2, "regularisation": 0.5, "steps": 8, "seed": 0}


@pytest.mark.parametrize(
    "make",
    [
        lambda: GD(1, averaging=None, **CONSTANT, **RAW),
        lambda: SVRG(1, anchor="average", **CONSTANT, **RAW),
        lambda: SVRG(1, **CONSTANT, **RAW),
        lambda: SAG(1, **CONSTANT, **RAW),
        lambda: SAGA(1, **CONSTANT, **RAW),
    ],
    ids=["GD", "SVRG average", "SVRG", "SAG", "SAGA"],
)
def test_row_02_every_scheme_comes_to_rest_at_lambda_and_not_at_two_lambda(make):
    """All rows equal: no sampling noise, no drift, so the fixed point is seen to the last digits."""
    tracker = make().partial_fit(np.ones((2000, 1)), np.ones(2000))
    assert tracker.theta[0] == pytest.approx(1 / (1 + 0.5), abs=1e-9)
    assert abs(tracker.theta[0] - 1 / (1 + 2 * 0.5)) > 0.1
    assert tracker.target.theta[0] == pytest.approx(1 / (1 + 0.5), abs=1e-12)


def test_row_02_frls_gd_follows_lambda_on_noisy_rows():
    rng, lam = np.random.default_rng(3), 0.2
    X = unit_rows(rng, 20_000, 3)
    y = X @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=len(X))
    tracker = GD(3, step_size=Power(2.0, 20.0, 1.0), regularisation=lam, averaging=None, steps=1, seed=0, **RAW)
    theta = tracker.partial_fit(X, y).theta
    A, b = X.T @ X / len(X), X.T @ y / len(X)
    near, far = (np.linalg.norm(theta - np.linalg.solve(A + k * lam * np.eye(3), b)) for k in (1, 2))
    assert near < 0.05
    assert far > 5 * near


def test_row_03_a_row_is_learned_first_and_can_be_drawn_at_once():
    """Row n is e_n: the support of theta tells which rows were drawn."""
    dim, seed = 40, 5
    tracker = GD(dim, step_size=0.5, regularisation=0.0, averaging=None, steps=1, seed=seed, **RAW)
    drawn = [
        int(u * n) for n, u in enumerate(np.random.default_rng(seed).random(dim), 1)
    ]  # among n rows, the present one included
    assert any(i == n - 1 for n, i in enumerate(drawn[1:], 2))
    for n in range(1, dim + 1):
        assert tracker.predict(np.eye(dim)[n - 1]) == 0.0  # an arm is chosen before its reward is known
        tracker.update(np.eye(dim)[n - 1], 1.0)
        assert set(np.flatnonzero(tracker.theta)) == set(drawn[:n])


def test_row_04_theorem_and_appendix_are_two_forms_with_names():
    bounds = Bounds(mu=0.1, c=30.0, dim=10)
    theorem, appendix = bounds.theorem(10**4), bounds.appendix(10**4)
    assert theorem.expectation < appendix.expectation  # sqrt(mu beta)/mu against sqrt(beta/mu)/mu
    # "in expectation", and yet it depends on the probability of failing
    assert Bounds(mu=0.1, c=30.0, dim=10, delta=1e-6).theorem(10**4).expectation > theorem.expectation
    # a product of factors below 1: minus, not plus
    squares = np.cumsum(bounds.gamma(np.arange(1, 51)) ** 2)
    assert (bounds.proposition_1(np.arange(1, 51)) ** 2 <= -2 * np.log(0.05) * squares * (1 + 1e-12)).all()


@pytest.mark.parametrize("mu", [1.0, 0.5, 0.02])
def test_row_05_one_interval_for_c(mu):
    low, high = theory.admissible_c(mu)
    for share in (0.5, 2 / 3 - 1e-6, 2 / 3 + 1e-6, 0.75, 1 - 1e-6, 1 + 1e-6, 3.0):
        c = 4 * share / mu
        fine = 2 / 3 < share < 1
        assert (low < c < high) == fine
        for check in (lambda c: Power.theorem_one(mu, c), lambda c: theory.check_admissible(mu, c)):
            if fine:
                check(c)
            else:
                with pytest.raises(SettingsError, match=r"mu\*c/4 .*Theorem 1 .*hoose c"):
                    check(c)
    assert Power.theorem_one(mu).offset == pytest.approx(3 / mu)


# --- 6 to 10: PEGE --------------------------------------------------------------------------------------------------


def explore(step, dim, seed, guard):
    """The largest norm of theta while exploring a basis in turn."""
    rng = np.random.default_rng(seed)
    theta_star = unit_rows(rng, 1, dim)[0]
    tracker = GD(dim, step_size=step, regularisation=0.0, averaging=None, steps=1, seed=seed, guard=guard, **RAW)
    largest = 0.0
    for n in range(6 * dim):
        tracker.update(np.eye(dim)[n % dim], float(theta_star[n % dim] + rng.uniform(-0.5, 0.5)))
        largest = max(largest, float(np.linalg.norm(tracker.theta)))
    return largest


@pytest.mark.parametrize(("dim", "times"), [(10, 5.0), (50, 500.0)])
def test_row_06_the_printed_step_blows_up_early_and_the_theorem_s_does_not(dim, times):
    printed = Power(4 * dim / 3, 0.0, 1.0)  # c/n, c = 4d/(3 lambda_min), and lambda_min = 1 here
    ours = Power.theorem_one(mu=1 / (2 * dim))
    assert ours == Power(6 * dim / 4, 6 * dim, 1.0)  # c/(4(c+n)), c = 6d/lambda_min
    with pytest.raises(DivergenceError, match="step_size times the row's squared norm"):
        explore(printed, dim, 0, guard=True)
    seeds = range(15)
    blown = np.median([explore(printed, dim, seed, guard=False) for seed in seeds])
    calm = [explore(ours, dim, seed, guard=True) for seed in seeds]
    assert max(calm) < 2.0  # ||theta*|| = 1
    assert blown > times * max(calm)


def test_row_06_both_steps_have_a_name():
    theorem, printed = (paper.fpege_gd(Sphere(10), step=step).tracker.step_size for step in ("theorem", "printed"))
    assert theorem == Power.theorem_one(1 / 20)  # mu = lambda_PEGE/(2d)
    assert printed == Power(40 / 3, 0.0, 1.0)
    assert printed(1) > 2.0 > theorem(1)  # a step of 2 or more does not come to rest on actions of length 1


@pytest.mark.parametrize(("dim", "smallest"), [(2, 1.0), (10, 0.3), (50, 4.0)])
def test_row_07_the_condition_on_c_is_c_lambda_over_8d(dim, smallest):
    bounds = Bounds.of_pege(dim, smallest)
    mu, c = bounds.mu, bounds.c
    assert mu * c / 4 == pytest.approx(c * smallest / (8 * dim))
    assert mu * c / 4 == pytest.approx(0.75)
    box = 4 * dim / (3 * smallest)
    for excluded, share in ((box, 1 / 6), (4 * box, 2 / 3)):  # as the theorem's c; c/n is its c/(4(c+n)) with 4c
        assert mu * excluded / 4 == pytest.approx(share)
        with pytest.raises(SettingsError, match="Theorem 1"):
            theory.check_admissible(mu, excluded * (1 - 1e-12))


def test_row_08_the_printed_index_leaves_the_basis_in_the_second_phase():
    dim = 4
    basis = Sphere(dim).basis()
    for m in range(1, 6):
        phase = range((m - 1) * dim, m * dim)
        printed = [n % (m * dim) for n in phase]
        assert (max(printed) < dim) == (m == 1)
        ours = [(n - 1) % dim for n in range((m - 1) * dim + 1, m * dim + 1)]  # rounds count from 1
        assert np.linalg.matrix_rank(basis[ours]) == dim


def test_row_08_every_phase_explores_the_whole_basis():
    env, policy = LinearBandit(Sphere(3), seed=0), PEGE(Sphere(3))
    explored: dict[int, list] = {}
    for n in range(1, 31):
        x = policy.choose()
        if policy.exploring:
            explored.setdefault(policy.phase, []).append(x)
        policy.learn(x, env.reward(n, x))
    assert len(explored) >= 5
    for actions in list(explored.values())[:4]:
        np.testing.assert_array_equal(actions, Sphere(3).basis())


@pytest.mark.parametrize("actions", [Sphere(4), Ball(4, radius=0.7), Ellipsoid(np.diag([1.0, 0.5, 0.3, 0.2]))])
def test_row_09_rewards_are_maximised_and_regret_is_never_negative(actions):
    env, rng = LinearBandit(actions, sigma=0.0, seed=2), np.random.default_rng(0)
    assert env.best(1) > 0.0
    for direction in unit_rows(rng, 200, 4):
        x = actions.best(direction)
        assert env.best(1) - env.mean(1, x) >= -1e-12
        assert direction @ x >= direction @ -x
    worst = env.mean(1, actions.best(-env.theta(1)))  # what an argmin would pick
    assert worst == pytest.approx(-env.best(1))


def test_row_10_with_a_basis_exact_least_squares_is_one_solve_with_the_means():
    rng, dim, phases = np.random.default_rng(1), 5, 7
    half = rng.normal(size=(dim, dim))
    B = Ellipsoid(half @ half.T + np.eye(dim)).basis()
    y = rng.normal(size=(phases, dim))
    exact = OLS(dim, **RAW).partial_fit(np.tile(B, (phases, 1)), y.ravel())
    np.testing.assert_allclose(exact.theta, np.linalg.solve(B, y.mean(axis=0)), atol=1e-10)


def test_row_10_both_routes_of_pege_give_one_estimate():
    actions = Ellipsoid(np.array([[1.0, 0.3, 0.0], [0.3, 0.8, 0.1], [0.0, 0.1, 0.5]]))
    env, routes = LinearBandit(actions, seed=0), (PEGE(actions), paper.pege(actions))
    for n in range(1, 41):
        actions_now = [policy.choose() for policy in routes]
        np.testing.assert_allclose(*actions_now, atol=1e-9)
        for policy, x in zip(routes, actions_now):
            policy.learn(x, env.reward(n, x))
    np.testing.assert_allclose(routes[0].theta, routes[1].theta, atol=1e-9)


# --- 11 and 12: SVRG and SAG ----------------------------------------------------------------------------------------


def printed_svrg(X, y, *, average, gamma=0.05, seed=1):
    """The printed SVRG with lambda_n = 1/n; the anchor is the sum of the iterates, or their average."""
    rng, dim = np.random.default_rng(seed), X.shape[1]
    theta, total, A, b, norms = np.zeros(dim), np.zeros(dim), np.zeros((dim, dim)), np.zeros(dim), []
    for n in range(1, len(y) + 1):
        A, b = A + np.outer(X[n - 1], X[n - 1]), b + y[n - 1] * X[n - 1]
        anchor = total / max(1, n - 1) if average else total
        x = X[int(rng.random() * n)]
        here_and_there = x @ (theta - anchor) * x + (theta - anchor) / n
        theta = theta - gamma * (here_and_there + (A @ anchor - b) / n + anchor / n)
        total = total + theta
        norms.append(np.linalg.norm(theta))
    return theta, norms


def test_row_11_a_sum_as_anchor_diverges_and_an_average_does_not():
    rng = np.random.default_rng(0)
    X = unit_rows(rng, 600, 4)
    y = X @ np.ones(4) + 0.1 * rng.normal(size=600)
    _, summed = printed_svrg(X, y, average=False)
    theta, averaged = printed_svrg(X, y, average=True)
    assert summed[-1] > 1e6
    assert max(averaged) < 3.0  # ||theta*|| = 2
    ours = SVRG(4, anchor="average", step_size=0.05, regularisation=ridge(1.0), steps=1, seed=1, **RAW).partial_fit(
        X, y
    )
    np.testing.assert_allclose(ours.theta, theta, atol=1e-10)


@pytest.mark.parametrize("history", [Growing, lambda: Window(30)], ids=["growing", "window"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_row_11_the_refreshed_anchor_s_gradient_stays_exact(history, layout):
    rng = np.random.default_rng(4)
    X = unit_rows(rng, 100, 6) * (rng.random((100, 6)) < 0.6)
    y = X @ np.arange(6.0) + 0.1 * rng.normal(size=100)
    tracker = SVRG(6, every=17, steps=3, history=history(), seed=0, **RAW)
    for n in range(100):
        tracker.partial_fit(sp.csr_array(X[n : n + 1]) if layout == "sparse" else X[n : n + 1], y[n : n + 1])
        rows, targets = tracker.history.matrix()
        _, gradient, anchor = tracker.snapshot()[1]["state.coords"]
        np.testing.assert_allclose(gradient, rows.T @ (rows @ anchor - targets), atol=1e-11)
    assert anchor.any()


def test_row_12_a_new_row_enters_with_its_present_residual():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4, 4)), rng.normal(size=4)
    # a step of 0 leaves theta where it was, so that only the entering is seen
    frozen = SAGA(4, step_size=lambda n: 0.1 if n <= 3 else 0.0, steps=2, regularisation=0.0, seed=0, **RAW)
    frozen.partial_fit(X[:3], y[:3])
    theta = frozen.theta
    frozen.partial_fit(X[3:], y[3:])
    residual = frozen.snapshot()[1]["state.residual"][:4]
    assert residual[3] == pytest.approx(X[3] @ theta - y[3], abs=1e-12)
    np.testing.assert_allclose(frozen.theta, theta, atol=1e-14)  # entering moves nothing
    gradient = frozen.snapshot()[1]["state.coords"][1]
    np.testing.assert_allclose(gradient, residual @ X, atol=1e-12)


@pytest.mark.parametrize(("scheme", "oracle"), [(SAG, naive.sag), (SAGA, naive.saga)], ids=["SAG", "SAGA"])
def test_row_12_a_table_of_scalars_equals_a_table_of_gradients(scheme, oracle):
    rng = np.random.default_rng(2)
    X = unit_rows(rng, 80, 5)
    y = X @ np.arange(5.0)
    tracker = scheme(5, step_size=0.1, regularisation=ridge(2.0), steps=3, seed=9, **RAW).partial_fit(X, y)
    uniforms = iter(np.random.default_rng(9).random(80 * 3))
    vectors = oracle(X, y, uniforms, lambda n, largest, lam: 0.1, lambda n: 2.0 / n, steps=3)
    np.testing.assert_allclose(tracker.theta, vectors[-1], atol=1e-12)
    table = tracker.snapshot()[1]["state.residual"][:80]
    np.testing.assert_allclose(tracker.snapshot()[1]["state.coords"][1], table @ X, atol=1e-12)


# --- 13 to 20 -------------------------------------------------------------------------------------------------------


def test_row_13_printed_widths_stick_where_an_arm_is_never_pulled():
    """All rows are e_1; by the oracle."""
    rows, pulled, never = np.tile([1.0, 0.0], (4000, 1)), np.array([1.0, 0.0]), np.array([0.0, 1.0])
    M = naive.gram(rows, 1.0)
    gamma = naive.schedule(1.0, 100.0, 1.0)

    def printed(x):
        return naive.phi_width2(x, naive.phi_printed(x, rows, iter(np.zeros(4000)), gamma)[-1])

    def ours(x):
        return naive.phi_width2(x, naive.phi_regularised(x, rows, iter(np.zeros(4000)), 0.3, 1.0)[-1])

    harmonic = np.sum(1 / np.arange(1, 4001) / (100 + np.arange(1, 4001)))
    assert printed(never) == pytest.approx(harmonic)  # sum gamma_n/n, whatever the arm's width is
    assert printed(never) < 0.06 * naive.exact_width2(never, M)
    assert printed(pulled) > 5 * naive.exact_width2(pulled, M)
    assert ours(never) == pytest.approx(naive.exact_width2(never, M), rel=1e-12)
    assert ours(pulled) == pytest.approx(naive.exact_width2(pulled, M), rel=0.02)


def test_row_13_the_policies_show_the_same():
    """Arms e_1 and e_2, of which only e_1 is pulled: squared widths 1/(n + 1) and 1."""
    arms, n = np.eye(2), 4000
    printed = paper.flinucb_gd(2, seed=0)
    regularised = LinUCB(tracker=SAGA(2, seed=0, **RAW), width=PhiWidth(), kappa=1.0, seed=0)
    for policy in (printed, regularised):
        policy.choose(arms, ids=[0, 1])
        for _ in range(n):
            policy.learn(arms, 0.0, arm=0, ids=[0, 1])
    steps = np.arange(1, n + 1)
    pulled, never = printed.widths(arms, ids=[0, 1]) ** 2
    assert never == pytest.approx(np.sum(1 / steps / (100 + steps)))  # sum gamma_n/n, in the place of 1
    assert pulled > 5 / (n + 1)
    pulled, never = regularised.widths(arms, ids=[0, 1]) ** 2
    assert never == pytest.approx(1.0, rel=1e-9)
    assert pulled == pytest.approx(1 / (n + 1), rel=0.02)


def test_row_14_phi_belongs_to_an_id_and_works_only_where_arms_recur():
    env, rng = FixedArms(10, 30, seed=0), np.random.default_rng(0)
    arms, ids = env.round(1)
    policy = LinUCB(tracker=SAGA(10, seed=0, **RAW), width=PhiWidth(steps=8), kappa=0.6, seed=0)
    exact = LinUCB(tracker=RLS(10, **RAW), width=ExactWidth(), kappa=0.6)
    policy.choose(arms, ids=ids)
    for k in rng.integers(0, 3, size=1000):
        for each in (policy, exact):
            each.learn(arms, 0.0, arm=int(k), ids=ids)
    truth = exact.widths(arms)
    kept = np.abs(policy.widths(arms, ids=ids) / truth - 1).mean()
    cold = np.abs(policy.widths(arms) / truth - 1).mean()  # the same arms, as if they were new
    assert kept < 0.05
    assert cold > 0.4


def clicks(seed, rows=5000, dim=40):
    """Rare rewards and zero-one features of length one: the exact solution is small."""
    rng = np.random.default_rng(seed)
    X = (rng.random((rows, dim)) < 0.2).astype(float)
    X[:, 0] = 1.0
    rate = (X / X.sum(axis=1, keepdims=True)) @ (0.02 + 0.06 * rng.random(dim))
    return X / np.linalg.norm(X, axis=1, keepdims=True), (rng.random(rows) < rate).astype(float)


def test_row_15_theta_zero_has_relative_error_one_however_small_the_absolute_one():
    X, y = clicks(0)
    idle = GD(40, step_size=0.0, averaging=None, seed=0, **RAW).partial_fit(X, y)
    assert not idle.theta.any()
    assert idle.tracking_error().relative == 1.0
    assert idle.tracking_error().absolute < 0.25


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_row_15_the_paper_s_settings_look_good_in_absolute_terms_alone(seed):
    X, y = clicks(seed)
    for make in (paper.frls_gd, paper.frls_svrg, paper.frls_sag):
        error = make(40, seed=seed).partial_fit(X, y).tracking_error()
        assert error.absolute < 0.2
        assert error.relative > 0.4
    assert SAGA(40, seed=seed, **RAW).partial_fit(X, y).tracking_error().relative < 0.25


def test_row_16_the_start_is_never_forgotten_with_the_paper_s_settings():
    n = np.arange(1, 100_001)

    def left(tracker):
        """What regularisation alone leaves of theta_0: the product of 1 - gamma lambda."""
        gamma = np.array([tracker.step_size(k) for k in n])
        lam = np.array([tracker.regularisation(k) for k in n])
        return np.cumprod(1.0 - gamma * lam)

    shares = left(paper.frls_gd(2))
    rest = n[-1] ** -0.4 / 0.4  # bounds the sum of 1/((100+k) k^0.4) over all later k
    assert shares[-1] * np.exp(-1.01 * rest) > 0.5
    # gamma lambda of order 1/n instead: as a power of n, to zero
    forgets = left(GD(2, step_size=Power(0.5), regularisation=Power(1.0, 1.0, 1.0), **RAW))
    assert forgets[-1] < 0.01
    assert forgets[-1] / forgets[999] == pytest.approx(0.1, rel=0.01)


def test_row_16_constant_steps_are_not_square_summable():
    for tracker in (paper.frls_svrg(2), paper.frls_sag(2)):
        assert tracker.step_size.exponent == 0.0
        assert tracker.step_size(10**9) == tracker.step_size(1) > 0.0
    assert paper.frls_gd(2).step_size == Power(1.0, 100.0, 1.0)
    assert paper.frls_gd(2).regularisation == Power(1.0, 0.0, 0.4)
    assert paper.frls_sag(2).regularisation == paper.frls_svrg(2).regularisation == Power(1.0, 0.0, 1.0)


@pytest.mark.parametrize(
    "make", [paper.frls_gd, paper.frls_svrg, paper.frls_sag, lambda dim: paper.fols_gd(dim, mu=0.2)]
)
def test_row_17_every_scheme_of_the_paper_keeps_every_row(make):
    X = np.random.default_rng(0).normal(size=(500, 4)) / 4
    tracker = make(4).partial_fit(X, X[:, 0])
    rows, targets = tracker.history.matrix()
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(targets, X[:, 0])


def test_row_17_memory_is_bounded_on_request(tmp_path):
    rng = np.random.default_rng(0)
    X = unit_rows(rng, 3000, 4)
    for history in (Reservoir(100), Window(100)):
        tracker = SAGA(4, history=history, seed=0, **RAW).partial_fit(X, X[:, 0])
        assert len(tracker) == 3000
        assert len(history) == len(history.matrix()[1]) == 100
    mapped = Mapped(tmp_path / "rows")
    SAGA(4, history=mapped, seed=0, **RAW).partial_fit(X, X[:, 0])
    assert isinstance(mapped.arrays["values"], np.memmap)
    mapped.close()
    sparse = SAGA(100_000, history=Window(100), seed=0, **RAW)
    sparse.partial_fit(sp.random_array((300, 100_000), density=2e-5, rng=rng, format="csr"), np.ones(300))
    kept = sparse.history.arrays
    assert (
        kept["values"].nbytes + kept["indices"].nbytes < 100 * 8 * 100
    )  # dense rows would need a thousand times as much


def test_row_18_with_user_features_alone_a_shared_theta_scores_every_arm_alike():
    rng = np.random.default_rng(0)
    users = (rng.random((400, 6)) < 0.4).astype(float)
    tracker = SAGA(6, seed=0, **RAW).partial_fit(users, rng.random(400))
    pool = np.tile(users[0], (20, 1))  # twenty articles that bring no features of their own
    assert np.ptp(tracker.predict(pool)) == 0.0


def test_row_19_the_three_exact_routes_give_one_answer():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 6)), rng.normal(size=200)
    routes = [
        RLS(6, method=method, **RAW).partial_fit(X, y).theta for method in ("inverse", "sherman-morrison", "cholesky")
    ]
    for theta in routes[1:]:
        np.testing.assert_allclose(theta, routes[0], atol=1e-10)


def test_row_20_kappa_is_never_a_factor_of_the_step_size():
    """Below the widths and policies the word does not occur at all."""
    files = [
        SOURCE / f"{name}.py"
        for name in ("schedules", "draws", "history/rows", "paper/theory", "paper/actions", "environments")
    ]
    files += [*(SOURCE / "trackers").glob("*.py")]
    schemes = (
        "gd",
        "svrg",
        "sag",
        "cg",
        "cd",
        "diagonal",
        "exact",
        "lazy",
        "rows",
        "learn",
        "units",
    )
    files += [SOURCE / "kernels" / f"{name}.py" for name in schemes]
    assert len(files) > 20
    for file in files:
        assert not re.search(r"\bkappa\b", file.read_text()), file


# --- found on the way -----------------------------------------------------------------------------------------------


def test_row_23_K1_grows_like_log_n():
    """Theorem 2 prints log^2 n; the terms of K_1 give one logarithm, and d once mu is of order 1/d."""
    n = np.array([10**4, 10**8, 10**12])
    bounds = Bounds.of_pege(10, 1.0)
    # every term by itself, so that n need not be summed over
    beta = np.sqrt(bounds.beta(n.astype(float)) / bounds.mu)
    terms = np.sqrt(bounds.h(n)) + (np.sqrt(2) / bounds.mu + beta)
    ratio = terms / np.log(n)
    assert ratio[2] < ratio[0] * 1.05
    assert bounds.c * bounds.mu / 4 == pytest.approx(0.75)
