"""What SAGA and SAG do at a look: conjugate gradients over the rows held, and a table of residuals that is exact."""

from __future__ import annotations

import signal
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from driftls.history import Growing, Window
from driftls.policies import LinUCB
from driftls.trackers import CD, GD, RLS, SAG, SAGA, SVRG, Diagonal
from driftls.widths import CentredWidth, DiagonalWidth

LAYOUTS = pytest.mark.parametrize("kind", [np.array, sp.csr_array], ids=["dense", "sparse"])


def correlated(rows=400, dim=12, seed=0):
    """Features that come together: stochastic steps alone are slow on them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, dim)) @ (np.eye(dim) + 3.0 * rng.normal(size=(dim, dim)) / dim**0.5)
    return X, X @ rng.normal(size=dim) + 0.5 * rng.normal(size=rows)


@LAYOUTS
@pytest.mark.parametrize("tracker", [SAGA, SAG])
def test_a_look_brings_theta_to_its_target(kind, tracker):
    X, y = correlated(rows=480)  # the last look was at 303
    one = tracker(12, seed=0).partial_fit(kind(X), y)
    before = one.tracking_error().relative
    assert one.settle()
    assert one.tracking_error().relative < min(0.02, before)
    assert not one.settle()  # there is nothing new


@LAYOUTS
def test_after_a_look_the_table_holds_the_residuals_of_theta(kind):
    X, y = correlated(rows=480)  # the last look was at 303
    one = SAGA(12, seed=0, history=Window(150)).partial_fit(kind(X), y)
    one.settle()
    rows, targets = one.history.matrix()
    residual = rows @ one.coefficients() - targets
    kept = one.snapshot()[1]
    np.testing.assert_allclose(kept["state.residual"], residual, atol=1e-9)
    np.testing.assert_allclose(kept["state.coords"][1], rows.T @ residual, atol=1e-7)


@LAYOUTS
def test_degrees_of_freedom_are_probed_without_bias(kind):
    X, y = correlated()
    one = SAGA(12, seed=0, history=Window(300))
    found, exact = [], []
    for n in range(0, 400, 2):
        one.partial_fit(kind(X[n : n + 2]), y[n : n + 2])
        if n >= 100:
            rows = one.history.matrix()[0]
            A = rows.T @ rows if isinstance(rows, np.ndarray) else (rows.T @ rows).toarray()
            found.append(one.freedoms().sum())
            exact.append(12 - np.trace(np.linalg.inv(A + np.eye(13))[:12, :12]))
    assert np.mean(found) == pytest.approx(np.mean(exact), rel=0.02)


# -- many features, of which few are ever seen -------------------------------------------------------------------------


def scattered(X, apart):
    """The same rows, their features so far apart: those in between are never seen."""
    X = sp.csr_array(X)
    return sp.csr_array((X.data, X.indices * apart, X.indptr), shape=(X.shape[0], X.shape[1] * apart))


def few(rows=300, dim=40, seed=0):
    """Rows of a few of the features, of sizes that differ and grow, so that units change on the way."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, dim)) * 10.0 ** rng.uniform(-2, 2, dim) * np.linspace(1.0, 4.0, rows)[:, None]
    X[rng.random(X.shape) < 0.85] = 0.0
    return X, X @ (rng.normal(size=dim) / np.abs(X).max(axis=0)) + 0.1 * rng.normal(size=rows)


@pytest.mark.parametrize("history", [Growing, lambda: Window(60)], ids=["all", "newest"])
@pytest.mark.parametrize("tracker", [GD, SVRG, SAG, SAGA, Diagonal])
def test_features_that_are_never_seen_change_nothing(tracker, history):
    if tracker is Diagonal and history is not Growing:
        pytest.skip("Diagonal cannot take a row back")
    X, y = few()
    made = [
        tracker(40 * apart, history=history(), **({} if tracker is Diagonal else {"seed": 0})) for apart in (1, 500)
    ]
    for one, apart in zip(made, (1, 500)):
        one.partial_fit(scattered(X, apart), y)
        one.look()
    small, large = made
    np.testing.assert_allclose(large.theta[::500], small.theta, rtol=1e-7, atol=1e-9)
    assert np.count_nonzero(large.theta) == np.count_nonzero(small.theta)
    assert large.predict(scattered(X[:5], 500)) == pytest.approx(small.predict(scattered(X[:5], 1)), rel=1e-7)


@pytest.mark.parametrize("width", [DiagonalWidth, CentredWidth])
def test_a_policy_decides_the_same_however_many_features_are_never_seen(width):
    X, y = few(rows=600)
    runs = []
    for apart in (500, 3000):
        policy = LinUCB(tracker=SAGA(40 * apart, seed=0), width=width(), sigmas=2.0, seed=0)
        chosen = policy.play(scattered(X, apart), y.reshape(-1, 4))
        runs.append((chosen.tolist(), policy.strength, policy.scores(scattered(X[:4], apart)).tolist()))
    assert runs[0] == runs[1]


def test_looks_take_no_room_in_proportion_to_features_that_were_never_seen():
    X, y = few(rows=500)
    policy, rows = LinUCB(10**6, seed=0), scattered(X, 25_000)
    policy.play(rows[:4], y[:4].reshape(-1, 4))
    tracemalloc.start()
    try:
        policy.play(rows[4:], y[4:].reshape(-1, 4))
        assert tracemalloc.get_traced_memory()[1] < 2 * 8 * 10**6  # two vectors over all features
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("history", [Growing, lambda: Window(100)], ids=["all", "newest"])
def test_degrees_of_freedom_are_those_of_the_features_that_rows_have(history):
    X, y = few(rows=200)
    one, found, exact = SAGA(40 * 500, seed=0, history=history()), [], []
    for n in range(200):
        one.partial_fit(scattered(X[n : n + 1], 500), y[n : n + 1])
        if n >= 50:
            rows = one.history.matrix()[0].tocsc()[:, np.append(500 * np.arange(40), 40 * 500)].toarray()
            found.append(one.freedoms().sum())
            exact.append(40 - np.trace(np.linalg.inv(rows.T @ rows + np.eye(41))[:40, :40]))
    assert np.mean(found) == pytest.approx(np.mean(exact), rel=0.02)


@pytest.mark.parametrize("tracker", [SAGA, RLS])
def test_a_look_keeps_what_was_learned_of_a_feature_that_was_never_offered(tracker):
    def row(j, value):
        return np.array([j], np.int32), np.array([value])

    policy = LinUCB(tracker=tracker(4), width=DiagonalWidth() if tracker is SAGA else None, seed=0)
    for _ in range(30):  # offered, while rewards are still out
        policy.choose([row(0, 1.0), row(1, 2.0)])
    for _ in range(10):
        policy.learn(row(2, 5.0), 3.0)
        policy.learn(row(0, 1.0), 0.0)
    before, width = policy.tracker.predict(row(2, 5.0)), policy.widths([row(2, 5.0)])
    for _ in range(60):  # feature 0 is larger now: its unit changes
        policy.choose([row(0, 3.0), row(1, 2.0)])
    assert abs(policy.tracker.predict(row(2, 5.0)) - before) < 0.25
    assert abs(policy.widths([row(2, 5.0)]) - width) < 0.05


@pytest.mark.parametrize("kind", [SAGA, SAG, SVRG, GD])
@pytest.mark.parametrize("late", ["equal", "small"])
def test_rewards_that_become_equal_or_small_are_no_divergence(kind, late):
    rng = np.random.default_rng(0)
    tracker = kind(3, seed=0, history=Window(8))
    for n in range(200):
        early = n < 20
        y = (2.0 * (n % 2) if early else 1.0) if late == "equal" else rng.normal() * (1e6 if early else 1e-3)
        tracker.update(rng.normal(size=3), y)
    assert abs(tracker.predict(np.zeros(3)) - (1.0 if late == "equal" else 0.0)) < (0.5 if late == "equal" else 3e5)


def test_ctrl_c_in_the_middle_of_a_look_comes_after_it(monkeypatch):
    X, y = correlated(rows=500)
    whole, broken = SAGA(12, seed=0).partial_fit(X, y), SAGA(12, seed=0)
    broken.partial_fit(X[:200], y[:200])
    settle = SAGA.settle

    def stopped(self):
        signal.raise_signal(signal.SIGINT)
        return settle(self)

    def learn():
        for x, target in zip(X[200:], y[200:]):
            broken.update(x, target)

    monkeypatch.setattr(SAGA, "settle", stopped)
    with pytest.raises(KeyboardInterrupt):
        learn()
    assert 200 <= len(broken) < 499
    monkeypatch.undo()
    broken.partial_fit(X[len(broken) :], y[len(broken) :])
    np.testing.assert_array_equal(broken.theta, whole.theta)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("kind", [RLS, SAGA, CD])
@pytest.mark.parametrize("offset", [30.0, 3000.0, 1e5])
def test_features_far_from_0_are_measured_by_how_much_they_vary(kind, offset):
    rng = np.random.default_rng(0)
    X, theta = rng.normal(size=(600, 8)), rng.normal(size=8)
    y = X @ theta + 0.1 * rng.normal(size=600)
    errors = []
    for rows in (X, X + offset):
        tracker = kind(8, **({"seed": 0} if kind is SAGA else {}))
        guesses = []
        for x, target in zip(rows, y):
            guesses.append(tracker.predict(x))
            tracker.update(x, target)
        errors.append(np.sqrt(np.mean((np.array(guesses) - y)[100:] ** 2)))
    assert errors[1] < 1.1 * errors[0]
