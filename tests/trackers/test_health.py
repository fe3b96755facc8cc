"""A tracker says when it does not learn what its rows allow, why, and what to do."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from driftls.errors import CorruptFileError, LearningWarning
from driftls.policies import LinUCB
from driftls.schedules import Normalised
from driftls.trackers import CD, GD, RAW, RLS, SAG, SAGA, Diagonal
from driftls.widths import DiagonalWidth

DIM, ROWS = 12, 1200


def problem(*, size=1.0, mean=0.0, noise=0.3, rows=ROWS):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, DIM))
    y = X @ rng.normal(size=DIM) + mean + noise * rng.normal(size=rows)
    X[:, 3] *= size
    return X, y


SICK = {
    "feature 3 has a size of .*e\\+0.*scale=True": (lambda: SAGA(DIM, seed=0, **RAW), {"size": 1e5}),
    "feature 3 has a size": (lambda: SAG(DIM, seed=0, **RAW), {"size": 1e5}),
    "step of 1e-06 is too small": (lambda: GD(DIM, step_size=1e-6, seed=0, **RAW), {}),
    "too large": (lambda: GD(DIM, step_size=0.1, averaging=None, guard=False, seed=0, **RAW), {"noise": 3.0}),
    "1 steps a row are too few": (lambda: SAG(DIM, step_size=Normalised(0.001), steps=1, seed=0, **RAW), {}),
    "without an intercept": (lambda: SAGA(DIM, seed=0, **RAW), {"mean": 100.0}),
    "worse than predicting the mean": (lambda: GD(DIM, newest=True, **RAW), {"size": 1e5}),
}


@pytest.mark.parametrize("cause", SICK)
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_it_warns_once_with_the_cause(cause, kind):
    make, settings = SICK[cause]
    X, y = problem(**settings, rows=10_100)
    tracker = make()
    tracker.partial_fit(kind(X[:900]), y[:900])
    with pytest.warns(LearningWarning, match=cause):
        tracker.partial_fit(kind(X[900:1100]), y[900:1100])
    tracker.partial_fit(kind(X[1100:]), y[1100:])  # looked at again, and not told again
    assert tracker.health.error > 0.5 * tracker.health.baseline


@pytest.mark.parametrize(
    ("make", "settings", "verdict"),
    [
        (lambda: SAGA(DIM, seed=0), {"size": 1e5}, "it learns"),
        (lambda: CD(DIM), {"mean": 1e3}, "it learns"),
        (lambda: Diagonal(DIM), {}, "it learns"),
        (lambda: SAGA(DIM, seed=0), {"noise": 100.0}, "it learns what its rows allow"),
        (lambda: SAGA(DIM, seed=0, **RAW), {"noise": 100.0}, "it learns what its rows allow"),
        (lambda: Diagonal(DIM), {"noise": 100.0}, "of 0 rows held nobody knows"),
        (lambda: RLS(DIM), {}, "it is the exact solution"),
    ],
)
def test_it_is_quiet_where_there_is_nothing_to_tell(make, settings, verdict):
    X, y = problem(**settings)
    tracker = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tracker.partial_fit(X[:900], y[:900])
        if tracker.watched:
            assert tracker.health.verdict == "too early to tell: 900 rows, of 1000"
        tracker.partial_fit(X[900:], y[900:])
    assert verdict in tracker.health.verdict


def test_errors_are_those_before_learning_on_every_eighth_row():
    X, y = problem()
    tracker = SAGA(DIM, seed=0, **RAW)
    errors, around, mean, count = 0.0, 0.0, 0.0, 0
    for n in range(900):
        if n % 8 == 0:
            count += 1
            errors += ((y[n] - tracker.predict(X[n])) ** 2 - errors) / count
            around += ((y[n] - mean) ** 2 - around) / count
            mean += (y[n] - mean) / count
        tracker.update(X[n], y[n])
    error, baseline, _ = tracker.health
    assert error == pytest.approx(np.sqrt(errors), rel=1e-9)
    assert baseline == pytest.approx(np.sqrt(around), rel=1e-9)


def test_looks_at_units_do_not_move_the_errors():
    X, y = problem(mean=1e4)
    tracker = SAGA(DIM, seed=0).partial_fit(X, y)
    assert tracker.health.baseline == pytest.approx(y[800:].std(), rel=0.2)
    assert tracker.health.error < 0.2 * tracker.health.baseline


def test_health_survives_a_file(tmp_path):
    X, y = problem(size=1e5, rows=10_100)
    tracker = SAGA(DIM, seed=0, **RAW)
    with pytest.warns(LearningWarning):
        tracker.partial_fit(X[:1000], y[:1000])
    tracker.save(tmp_path / "tracker")
    again = SAGA.load(tmp_path / "tracker")
    assert again.health == tracker.health
    again.partial_fit(X[1000:], y[1000:])  # was told before
    assert "feature 3" in again.health.verdict
    header, arrays = tracker.snapshot()
    with pytest.raises(CorruptFileError):
        SAGA.from_snapshot({**header, "next_check": "soon"}, arrays)


def test_a_tracker_of_a_policy_is_looked_at_too():
    X, y = problem(size=1e5, rows=4000)
    policy = LinUCB(tracker=SAGA(DIM, seed=0, **RAW), width=DiagonalWidth(), kappa=0.1, seed=0)
    with pytest.warns(LearningWarning, match="feature 3"):
        policy.play(X, y[:, None], rounds=4000)


@pytest.mark.parametrize("value", [0.0, 3.0])
@pytest.mark.parametrize("make", [lambda: SAGA(DIM, seed=0), lambda: SAGA(DIM, seed=0, **RAW), lambda: GD(DIM, seed=0)])
def test_rewards_that_are_all_alike_are_no_trouble(make, value):
    X, _ = problem()
    tracker = make().partial_fit(X, np.full(len(X), value))
    assert len(tracker) == len(X) >= 1000
    assert tracker.health.verdict


@pytest.mark.parametrize("large", [1e3, 1e6])
def test_rare_outliers_among_the_rewards_are_no_fault_of_the_tracker(large):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4)) * [1.0, 1000.0, 0.01, 7.0] + [0.0, 5e4, 0.0, 2012.0]
    y = 2.0 * X[:, 0] + rng.normal(size=3000)
    y[3::100] = large
    with warnings.catch_warnings():
        warnings.simplefilter("error", LearningWarning)
        assert "outliers" in SAGA(4, seed=0).partial_fit(X, y).health.verdict
