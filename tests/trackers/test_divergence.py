"""Steps that are too large, errors that run away, and rows at the limits of what a float can hold."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from cases import rows
from driftls import Power
from driftls.errors import DivergenceError
from driftls.testing.trackers import same_tracker
from driftls.trackers import CD, GD, OLS, RAW, RLS, SAG, SAGA, SVRG, Diagonal

EVERY = [GD, SAG, SAGA, SVRG, CD, Diagonal, RLS, OLS]
each_stochastic = pytest.mark.parametrize("make_tracker", [GD, SAG, SAGA, SVRG])
each_tracker = pytest.mark.parametrize("make_tracker", EVERY)


def stream(count, dim, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(count, dim))
    return X, X @ generator.normal(size=dim) + 0.1 * generator.normal(size=count)


@each_stochastic
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_a_step_times_squared_norm_of_two_is_refused_and_changes_nothing(make_tracker, layout):
    X, y = rows()
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    matrix = sp.csr_array(X) if layout == "sparse" else X
    clean, hurt = (make_tracker(X.shape[1], step_size=0.5, seed=0, **RAW).partial_fit(matrix, y) for _ in range(2))
    spoiled = X.copy()
    spoiled[7] *= 2.0000001  # 0.5 * 4 is 2
    with pytest.raises(DivergenceError, match=r"row 7: step_size times the row's squared norm.*Nothing was changed"):
        hurt.partial_fit(sp.csr_array(spoiled) if layout == "sparse" else spoiled, y)
    with pytest.raises(DivergenceError, match=r"row 0: step_size times"):
        hurt.update(sp.csr_array(spoiled[[7]]) if layout == "sparse" else spoiled[7], y[7])
    spoiled[7] *= 0.99
    clean.partial_fit(spoiled, y)
    hurt.partial_fit(spoiled, y)
    same_tracker(clean, hurt, "after two refusals")


def test_a_step_that_shrinks_in_time_is_judged_when_the_row_comes():
    tracker = GD(1, step_size=Power(4.0, 0, 1), averaging=None, steps=1, seed=0, **RAW)
    with pytest.raises(DivergenceError, match="row 0"):
        tracker.update(np.ones(1), 1.0)
    tracker = GD(1, step_size=Power(4.0, 0, 1), averaging=None, steps=1, seed=0, **RAW)
    tracker.partial_fit(np.full((4, 1), 0.1), np.ones(4)).update(np.ones(1), 1.0)
    assert len(tracker) == 5


def test_a_normalised_newest_step_of_two_is_refused():
    for step in (2.0, 3.0):
        tracker = GD(2, newest=True, step_size=step, **RAW)
        with pytest.raises(DivergenceError, match="with newest=True, step_size itself"):
            tracker.update(np.ones(2), 1.0)
        assert len(tracker) == 0
    assert len(GD(2, newest=True, step_size=1.99, **RAW).partial_fit(np.ones((9, 2)), np.ones(9))) == 9


@each_stochastic
def test_a_residual_that_keeps_growing_is_noticed_while_theta_is_finite(make_tracker):
    # Every row passes the first check when it comes; but the step grows, and the first rows are drawn again.
    X, y = stream(4000, 3)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X[50:] *= 0.01
    tracker = make_tracker(3, step_size=lambda n: 0.1 if n <= 50 else 300.0, seed=0, **RAW)
    with pytest.raises(DivergenceError, match=r"after row \d+: .*theta is still finite"):
        tracker.partial_fit(X, y)
    assert 50 < len(tracker) < 4000
    assert np.isfinite(tracker.theta).all()
    assert np.isfinite(tracker.tracking_error().absolute)


@pytest.mark.parametrize("make_tracker", [SAGA, SVRG], ids=["SAGA", "SVRG"])
def test_a_step_that_one_row_could_bear_but_the_scheme_cannot_is_noticed(make_tracker):
    X, y = stream(2000, 4)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    tracker = make_tracker(4, step_size=1.99, regularisation=0.0, seed=0, **RAW)
    with pytest.raises(DivergenceError, match=r"after row \d+"):
        tracker.partial_fit(X, y)
    assert np.isfinite(tracker.theta).all()


@pytest.mark.parametrize("lam", [10.0, 1e4, 1e12])
@each_stochastic
def test_a_ridge_that_overshoots_is_noticed_within_the_steps_of_one_row(make_tracker, lam):
    settings = {"averaging": None} if make_tracker is GD else {}
    tracker = make_tracker(3, step_size=0.5, regularisation=lam, steps=2000, seed=0, **settings, **RAW)
    with pytest.raises(DivergenceError, match="after row"):
        tracker.partial_fit(np.eye(3), [1.0, 2.0, 3.0])
    assert np.isfinite(tracker.theta).all()


def test_without_the_guard_a_tracker_may_blow_up():
    X, y = stream(2000, 2)
    tracker = GD(2, step_size=5.0, averaging=None, guard=False, seed=0, **RAW).partial_fit(X, y)
    assert len(tracker) == 2000
    assert not np.abs(tracker.theta).max() < 1e100


@each_tracker
def test_rewards_that_are_all_zero_are_no_reason_to_worry(make_tracker):
    X, _ = stream(300, 3)
    assert not make_tracker(3, **RAW).partial_fit(X, np.zeros(300)).theta.any()


@pytest.mark.filterwarnings("ignore::driftls.errors.ConditioningWarning")
@each_tracker
@pytest.mark.parametrize("size", [1e-80, 1e-20, 1e20, 1e74])
def test_rows_of_any_size_that_is_allowed_give_finite_numbers(make_tracker, size):
    X, y = stream(400, 3)
    X = X / np.abs(X).max() * size
    for rewards in (y, y / np.abs(y).max() * 1e74):
        tracker = make_tracker(3, **RAW).partial_fit(X, rewards)
        assert np.isfinite(tracker.theta).all()
        assert np.isfinite(tracker.predict(X)).all()


def test_a_row_that_nlms_can_hardly_divide_by_does_no_harm():
    tracker = GD(2, newest=True, regularisation=0.01, **RAW)
    tracker.partial_fit([[1.0, 0.5], [1e-9, 0.0], [1e-160, 0.0], [0.0, 0.0]], [1.0, 1.0, 1.0, 1.0])
    assert np.isfinite(tracker.theta).all()
    gentle = GD(2, newest=True, regularisation=0.01, **RAW).partial_fit([[1.0, 0.5]], [1.0])
    # mu/||x||^2 would be 5e17, and its shrinkage -5e15: it is held at 1/(2 lam), a half
    assert np.abs(tracker.theta).max() <= np.abs(gentle.theta).max()
