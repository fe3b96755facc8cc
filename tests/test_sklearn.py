"""driftls.sklearn: scikit-learn's own checks for every solver, and what they do not look at."""

from __future__ import annotations

import copy
import pickle
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from driftls import ridge
from driftls.errors import MissingExtraError, SettingsError
from driftls.sklearn import SOLVERS, DriftingLeastSquares
from driftls.trackers import RAW, SAGA

each_solver = pytest.mark.parametrize("solver", SOLVERS)


@parametrize_with_checks(
    [DriftingLeastSquares(solver) for solver in SOLVERS] + [DriftingLeastSquares("rls", fit_intercept=False)]
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def rows(n=400, dim=6, density=1.0):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, dim)) * (rng.random((n, dim)) < density)
    return X, X @ rng.normal(size=dim) + 0.5 + 0.1 * rng.normal(size=n)


def exact(X, y, total):
    """The minimiser of ||y - X theta||^2 + total ||theta||^2 with a constant feature appended."""
    X = np.column_stack([X, np.ones(len(y))])
    return np.linalg.solve(X.T @ X + total * np.eye(X.shape[1]), X.T @ y)


@pytest.mark.parametrize(("solver", "total"), [("rls", 2.5), ("rls", 0.0)])
def test_an_exact_solver_gives_the_ridge_solution(solver, total):
    X, y = rows()
    model = DriftingLeastSquares(solver, ridge=total).fit(X, y)
    np.testing.assert_allclose([*model.coef_, model.intercept_], exact(X, y, total), atol=1e-10)


def test_without_an_intercept_the_ridge_is_scikit_learns():
    X, y = rows()
    model = DriftingLeastSquares("rls", ridge=3.0, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(model.coef_, Ridge(3.0, fit_intercept=False).fit(X, y).coef_, atol=1e-10)
    assert model.intercept_ == 0.0
    assert model.tracker_.dim == model.n_features_in_ == 6


@pytest.mark.parametrize("solver", ["saga", "sag", "svrg", "gd", "cd"])
def test_fit_comes_closer_to_the_ridge_solution_than_noise_lets_that_come_to_the_truth(solver):
    X, y = rows()
    theta = exact(X, y, 1.0)
    constant = np.column_stack([X, np.ones(len(y))])
    noise = 0.1 * np.sqrt(np.trace(np.linalg.inv(constant.T @ constant))) / np.linalg.norm(theta)  # 0.39%
    for seed in range(5):
        model = DriftingLeastSquares(solver, random_state=seed).fit(X, y)
        distance = np.linalg.norm([*model.coef_, model.intercept_] - theta) / np.linalg.norm(theta)
        assert distance < noise  # over 40 seeds at most 0.18%, by gd
        assert distance == pytest.approx(model.tracker_.tracking_error().relative, rel=1e-6)


def test_more_passes_come_closer():
    X, y = rows(n=300, dim=60)
    error = [
        np.mean([DriftingLeastSquares(passes=passes, random_state=s).fit(X, y).tracker_.tracking_error().relative
                 for s in range(5)])
        for passes in (1, 4, 16)
    ]  # fmt: skip
    # over 40 seeds 0.042, 0.0013 and 0.0005, with standard deviations below a tenth of each
    assert error[0] > 20 * error[1] > 40 * error[2]


@each_solver
def test_sparse_rows_equal_dense_rows(solver):
    X, y = rows(density=0.3)
    dense, sparse = (DriftingLeastSquares(solver, random_state=0).fit(M, y) for M in (X, sp.csr_array(X)))
    np.testing.assert_allclose(sparse.predict(sp.csc_array(X)), dense.predict(X), rtol=0, atol=1e-10)
    sparse.partial_fit(X, y)  # dense rows after sparse ones
    assert len(sparse.tracker_) == 2 * len(y)


def test_unsorted_sparse_rows_are_taken_and_left_as_they_are():
    data, indices, start = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2, 0, 1, 1]), np.array([0, 2, 4])
    messy = sp.csr_array((data, indices, start), shape=(2, 3))
    model = DriftingLeastSquares("rls").fit(messy, [1.0, 2.0])
    np.testing.assert_array_equal(messy.indices, [2, 0, 1, 1])
    tidy = DriftingLeastSquares("rls").fit([[2.0, 0.0, 1.0], [0.0, 7.0, 0.0]], [1.0, 2.0])
    np.testing.assert_allclose(model.coef_, tidy.coef_, atol=1e-12)


def test_partial_fit_is_the_tracker_itself():
    X, y = rows()
    model = DriftingLeastSquares(ridge=2.0, random_state=7)
    for first in range(0, 400, 130):
        model.partial_fit(X[first : first + 130], y[first : first + 130])
    seed = np.random.RandomState(7).randint(2**31 - 1)
    tracker = SAGA(7, regularisation=ridge(2.0), seed=int(seed), **RAW)
    tracker.partial_fit(np.column_stack([X, np.ones(400)]), y)
    np.testing.assert_array_equal([*model.coef_, model.intercept_], tracker.theta)


@each_solver
def test_fit_starts_anew_and_writes_no_parameter(solver):
    X, y = rows()
    model = DriftingLeastSquares(solver, random_state=1)
    before = model.get_params()
    coefficients = model.fit(X, y).coef_
    np.testing.assert_array_equal(model.partial_fit(X, -y).fit(X, y).coef_, coefficients)
    assert model.get_params() == before
    assert not hasattr(clone(model), "tracker_")


@each_solver
def test_a_pickle_goes_on_and_a_copy_goes_its_own_way(solver):
    X, y = rows(n=120)
    model = DriftingLeastSquares(solver, random_state=1).partial_fit(X[:70], y[:70])
    before = model.coef_
    twins = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
    for twin in twins:
        twin.partial_fit(X[70:], y[70:])
        np.testing.assert_array_equal(model.coef_, before)
    model.partial_fit(X[70:], y[70:])
    for twin in twins:
        np.testing.assert_array_equal(twin.coef_, model.coef_)


def test_a_grid_search_over_a_pipeline():
    X, y = rows()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), DriftingLeastSquares(random_state=0)),
        {"driftingleastsquares__ridge": [0.1, 1000.0], "driftingleastsquares__solver": ["saga", "cd"]},
        cv=3,
    ).fit(X, y)
    assert search.best_params_["driftingleastsquares__ridge"] == 0.1
    assert search.best_score_ > 0.9


def test_dense_rows_are_copied_once():
    X, y = rows(n=2000, dim=100)
    model = DriftingLeastSquares("rls")
    model._validated(X, y, first=True)
    tracemalloc.start()
    model._validated(X, y, first=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert X.nbytes < peak < 1.2 * X.nbytes


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"solver": "lasso"}, "solver must be one of saga, .*, got 'lasso'"),
        ({"ridge": -1.0}, "ridge must be a number of at least 0, got -1.0"),
        ({"passes": 0}, "passes must be a whole number of at least 1, got 0"),
    ],
)
def test_a_setting_that_cannot_work_is_named(settings, complaint):
    X, y = rows(n=5)
    with pytest.raises(SettingsError, match=complaint):
        DriftingLeastSquares(**settings).fit(X, y)


def test_without_scikit_learn_the_import_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "driftls.sklearn")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(MissingExtraError, match=r"needs scikit-learn.*pip install 'driftls\[sklearn\]'"):
        import driftls.sklearn  # noqa: F401
