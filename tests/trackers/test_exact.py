"""Exact trackers where numbers are at their worst, and sums that forget for a very long time."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

import naive
from driftls import ridge
from driftls.errors import ConditioningWarning
from driftls.history import Growing, Window
from driftls.trackers import CD, GD, OLS, RAW, RLS, SAG, SAGA, SVRG, Diagonal

EPS = float(np.finfo(float).eps)


def stream(count, dim, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(count, dim))
    return X, X @ generator.normal(size=dim) + 0.1 * generator.normal(size=count)


def exactly(X, y, total=0):
    """(X'X + total I)^-1 X'y in rational arithmetic: no rounding at all."""
    dim = X.shape[1]
    exact_X = [[Fraction(float(v)) for v in row] for row in X]
    exact_y = [Fraction(float(v)) for v in y]
    system = [
        [sum(row[j] * row[k] for row in exact_X) + (Fraction(total) if j == k else 0) for k in range(dim)]
        + [sum(row[j] * target for row, target in zip(exact_X, exact_y, strict=True))]
        for j in range(dim)
    ]
    for j in range(dim):
        pivot = next(k for k in range(j, dim) if system[k][j] != 0)
        system[j], system[pivot] = system[pivot], system[j]
        for k in range(dim):
            if k != j:
                factor = system[k][j] / system[j][j]
                system[k] = [a - factor * b for a, b in zip(system[k], system[j], strict=True)]
    return np.array([float(system[j][dim] / system[j][j]) for j in range(dim)])


def condition(X, total=0.0):
    return float(np.linalg.cond(X.T @ X + total * np.eye(X.shape[1])))


@pytest.mark.parametrize("how", ["rows", "block"])
@pytest.mark.parametrize("gap", [1e-3, 1e-5])
def test_near_collinear_features_leave_sherman_morrison_with_a_warning_and_stay_right(how, gap):
    X, y = stream(150, 4)
    X[:, 3] = X[:, 2] + gap * X[:, 3]
    tracker = RLS(4, regularisation=ridge(1e-12), **RAW)

    def learn():
        if how == "block":
            tracker.partial_fit(X, y)
        else:
            for n in range(150):
                tracker.update(X[n], y[n])

    with pytest.warns(ConditioningWarning, match=r"within \d+ rows the matrix became too ill-conditioned"):
        learn()
    exact = exactly(X, y, 1e-12)
    tolerance = 20 * EPS * condition(X, 1e-12) * np.abs(exact).max()
    np.testing.assert_allclose(tracker.theta, exact, rtol=0, atol=tolerance)
    assert tracker.route == ("cholesky" if gap < 1e-4 else "sherman-morrison")  # half of the digits of gap^2


def test_a_tiny_ridge_is_right_in_every_row():
    X, y = stream(120, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConditioningWarning)
        tracker = RLS(5, regularisation=ridge(1e-12), **RAW)
        for n in range(120):
            tracker.update(X[n], y[n])
            if n >= 5:
                exact = np.linalg.lstsq(X[: n + 1], y[: n + 1], rcond=None)[0]
                tolerance = 100 * EPS * condition(X[: n + 1]) * np.abs(exact).max()
                np.testing.assert_allclose(tracker.theta, exact, rtol=0, atol=tolerance + 1e-10)
    assert tracker.route == "sherman-morrison"  # it came back


def test_no_warning_comes_where_nothing_is_wrong():
    X, y = stream(3000, 5)
    for make_tracker in (RLS, OLS):
        make_tracker(5, **RAW).partial_fit(X, y)
        make_tracker(5, history=Window(100), **RAW).partial_fit(X, y)


@pytest.mark.parametrize("total", [1e-6, 1.0])
def test_an_inversion_of_what_is_singular_to_the_last_digit_raises_nothing(total):
    # 1e18 + 1e-6 is 1e18: LAPACK would meet a pivot of exactly 0 and give up in the middle of a row
    X = np.array([[1e9, 1e9, 0.0], [1e9, 1e9, 0.0], [0.0, 0.0, 2.0]])
    tracker = RLS(3, regularisation=ridge(total), method="inverse", **RAW)
    for x in X:
        tracker.update(x, 1.0)
    assert len(tracker) == 3
    assert np.isfinite(tracker.theta).all()
    assert tracker.theta[2] == pytest.approx(2.0 / (4.0 + total), rel=1e-12)
    assert (np.diag(tracker.snapshot()[1]["state.inverse"]) > 0.0).all()


@pytest.mark.parametrize("units", [1e-6, 1e6, 1e9])
@pytest.mark.filterwarnings("ignore::driftls.errors.ConditioningWarning")
def test_the_units_of_a_feature_do_not_matter(units):
    X, y = stream(300, 4)
    scale = np.array([1.0, units, 1.0, 1.0 / units])
    for method in ("auto", "cholesky"):
        exact = OLS(4, method="cholesky", intercept=False).partial_fit(X, y).theta
        tracker = OLS(4, method=method, intercept=False).partial_fit(X * scale, y)
        np.testing.assert_allclose(tracker.theta * scale, exact, rtol=0, atol=1e-11)
    few = X[:2] * scale  # more features than rows: the solution of least norm
    least = np.linalg.pinv(few, rcond=1e-30) @ y[:2] if units < 1e7 else None
    tracker = OLS(4, intercept=False).partial_fit(few, y[:2])
    largest = np.abs(few).max() * np.abs(tracker.theta).max()
    np.testing.assert_allclose(few @ tracker.theta, y[:2], rtol=0, atol=100 * EPS * largest)
    if least is not None:
        assert np.linalg.norm(tracker.theta) <= np.linalg.norm(least) * (1 + 1e-6)


def test_after_many_rows_sherman_morrison_still_equals_the_solution():
    X, y = stream(100_000, 8)
    fast, slow = RLS(8, **RAW).partial_fit(X, y), RLS(8, method="cholesky", **RAW).partial_fit(X, y)
    assert fast.route == "sherman-morrison"
    assert fast.refactorisations == 0
    np.testing.assert_allclose(fast.theta, slow.theta, rtol=0, atol=1e-8)
    inverse = np.linalg.inv(slow.sums()[0])
    np.testing.assert_allclose(fast.snapshot()[1]["state.inverse"], inverse, rtol=0, atol=1e-8 * np.abs(inverse).max())


def test_ols_goes_over_to_sherman_morrison_once_it_can():
    X, y = stream(60, 6)
    tracker = OLS(6, intercept=False)
    routes = []
    for n in range(60):
        tracker.update(X[n], y[n])
        routes.append(tracker.route)
        exact = np.linalg.lstsq(X[: n + 1], y[: n + 1], rcond=None)[0]
        tolerance = 100 * EPS * min(condition(X[: n + 1]), 1e12) * np.abs(exact).max()
        np.testing.assert_allclose(tracker.theta, exact, rtol=0, atol=max(tolerance, 1e-12))
    assert set(routes[:5]) == {"cholesky"}
    assert set(routes[12:]) == {"sherman-morrison"}


def test_ols_of_features_that_never_separate_stays_on_the_safe_route():
    X, y = stream(300, 3)
    X = np.hstack([X, X[:, :1]])
    tracker = OLS(4, intercept=False).partial_fit(X, y)
    assert tracker.route == "cholesky"
    np.testing.assert_allclose(tracker.theta, np.linalg.lstsq(X, y, rcond=None)[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("capacity", [6, 12, 60])
@pytest.mark.filterwarnings("ignore::driftls.errors.ConditioningWarning")
def test_window_downdates_stay_right_over_many_rows(capacity):
    X, y = stream(6000, 6)
    for make_tracker in (RLS, OLS):
        tracker = make_tracker(6, history=Window(capacity), **RAW)
        for first in range(0, 6000, 500):
            tracker.partial_fit(X[first : first + 500], y[first : first + 500])
            newest = slice(first + 500 - capacity, first + 500)
            total = 1.0 if make_tracker is RLS else 0.0
            exact = exactly(X[newest], y[newest], int(total))
            tolerance = 1e3 * EPS * condition(X[newest], total) * np.abs(exact).max()
            np.testing.assert_allclose(tracker.theta, exact, rtol=0, atol=max(tolerance, 1e-11))


# -- forgetting and shrinking for a very long time -----------------------------------------------------------------

LONG = 12_000


def discounted(X, y, discount, total):
    """The solution whose rows count discount^age; what is older than 1000 rows counts less than 1e-45."""
    X, y = X[-1000:], y[-1000:]
    weights = discount ** np.arange(len(y) - 1.0, -1.0, -1.0)
    return np.linalg.solve((X.T * weights) @ X + total * np.eye(X.shape[1]), (X.T * weights) @ y)


@pytest.fixture(scope="module")
def long_stream():
    return stream(LONG, 3, seed=3)


def test_discounted_trackers_stay_right_when_the_scale_has_underflowed_many_times(long_stream):
    X, y = long_stream
    assert 0.9**LONG == 0.0
    exact = discounted(X, y, 0.9, 1.0)
    for tracker in (
        RLS(3, discount=0.9, **RAW),
        RLS(3, discount=0.9, method="inverse", **RAW),
        CD(3, discount=0.9, steps=40, **RAW),
    ):
        np.testing.assert_allclose(tracker.partial_fit(X, y).theta, exact, rtol=0, atol=1e-10)
    cd = CD(3, discount=0.9, steps=40, **RAW).partial_fit(X, y)
    np.testing.assert_allclose(cd.target.theta, exact, rtol=0, atol=1e-10)


def test_classic_forgetting_stays_right_for_a_very_long_time(long_stream):
    X, y = long_stream
    tracker = RLS(3, discount=0.9, method="sherman-morrison", **RAW).partial_fit(X, y)
    np.testing.assert_allclose(tracker.theta, discounted(X, y, 0.9, 0.0), rtol=0, atol=1e-10)


@pytest.mark.filterwarnings("ignore::driftls.errors.ConditioningWarning")
def test_classic_forgetting_survives_a_feature_that_is_silent_for_long():
    X, y = stream(12_000, 3, seed=5)
    X[500:11_000, 2] = 0.0  # 0.9^-10500 is infinite: the inverse winds up
    y = X @ [1.0, -2.0, 3.0]
    tracker = RLS(3, discount=0.9, method="sherman-morrison", **RAW)
    tracker.partial_fit(X[:11_000], y[:11_000])
    assert np.isfinite(tracker.theta).all()
    np.testing.assert_allclose(tracker.theta[:2], [1.0, -2.0], rtol=0, atol=1e-9)
    for n in range(11_000, 12_000):
        tracker.update(X[n], y[n])
        assert np.isfinite(tracker.theta).all()
    np.testing.assert_allclose(tracker.theta, [1.0, -2.0, 3.0], rtol=0, atol=1e-9)


def test_a_discounted_diagonal_equals_the_oracle_for_a_very_long_time(long_stream):
    X, y = long_stream
    tracker = Diagonal(3, discount=0.9, **RAW).partial_fit(X, y)
    np.testing.assert_allclose(tracker.theta, naive.diagonal(X, y, 1.0, discount=0.9)[-1], rtol=0, atol=1e-11)


def test_a_discounted_diagonal_knows_the_target_that_forgets_as_it_does():
    X, y = stream(2000, 3)
    exact = discounted(X, y, 0.95, 1.0)
    for matrix in (X, sp.csr_array(X)):
        tracker = Diagonal(3, discount=0.95, history=Growing(), **RAW).partial_fit(matrix, y)
        np.testing.assert_allclose(tracker.target.theta, exact, rtol=0, atol=1e-12)


def uniforms(seed):
    generator = np.random.default_rng(seed)
    while True:
        yield float(generator.random())


@pytest.mark.parametrize("averaging", [None, "polyak", "tail"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_a_product_of_shrinkages_that_underflows_changes_nothing(averaging, layout):
    X, y = stream(10_000, 3)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    assert 0.75**10_000 == 0.0
    iterates = naive.gd(X, y, uniforms(1), lambda *_: 0.5, lambda n: 0.5)
    expected = iterates[-1]
    if averaging == "polyak":
        expected = np.mean(iterates, axis=0)
    elif averaging == "tail":
        for t, theta in enumerate(iterates, start=1):
            expected = theta if t == 1 else expected + 4.0 / (t + 3.0) * (theta - expected)
    settings = {"step_size": 0.5, "regularisation": 0.5, "averaging": averaging, "steps": 1, "seed": 1}
    tracker = GD(3, **settings, **RAW).partial_fit(sp.csr_array(X) if layout == "sparse" else X, y)
    np.testing.assert_allclose(tracker.theta, expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(tracker.predict(X[:5]), X[:5] @ expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("scale", [0.02, 0.5])
def test_an_average_is_right_where_the_ridge_fades(scale):
    # P falls like n^-(steps gamma): the sums behind the average must not cancel
    X, y = stream(4000, 3)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    gamma, lam = (lambda *_: scale), (lambda n: 1.0 / n)
    iterates: list[np.ndarray] = []
    theta, draws = np.zeros(3), uniforms(2)
    for n in range(1, 4001):
        for _ in range(6):
            k = int(next(draws) * n)
            theta = theta + gamma() * ((y[k] - theta @ X[k]) * X[k] - lam(n) * theta)
            iterates.append(theta)
    tracker = GD(3, step_size=scale, regularisation=ridge(1.0), averaging="polyak", steps=6, seed=2, **RAW)
    np.testing.assert_allclose(tracker.partial_fit(X, y).theta, np.mean(iterates, axis=0), rtol=0, atol=1e-10)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("make_tracker", "oracle"),
    [
        (SAG, naive.sag),
        (SAGA, naive.saga),
        (SVRG, lambda *a, **k: naive.svrg(*a, refresh=lambda n, b: n >= b + 50, **k)),
    ],
    ids=["SAG", "SAGA", "SVRG"],
)
def test_lazy_terms_stay_right_when_their_product_underflows(make_tracker, oracle, layout):
    X, y = stream(250, 3)
    X /= 3 * np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    assert (1 - 0.4) ** (250 * 3) < 1e-150
    expected = oracle(X, y, uniforms(1), lambda *_: 0.8, lambda n: 0.5, steps=3)[-1]
    settings = {"every": 50} if make_tracker is SVRG else {}
    tracker = make_tracker(3, step_size=0.8, regularisation=0.5, steps=3, seed=1, **settings, **RAW)
    tracker.partial_fit(sp.csr_array(X) if layout == "sparse" else X, y)
    np.testing.assert_allclose(tracker.theta, expected, rtol=0, atol=1e-11)
