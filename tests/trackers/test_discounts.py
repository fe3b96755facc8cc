"""AutoDiscount: what it loses where nothing moves, what it gains where something does, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from driftls.errors import CorruptFileError, SettingsError
from driftls.history import Growing
from driftls.policies import DisjointLinUCB, Greedy, LinUCB
from driftls.trackers import CD, AutoDiscount

DIM, ROWS = 4, 2000


def squared_error(tracker, thetas, seed):
    """Of predictions before each row was learned, the first ones aside; noise 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(len(thetas), DIM))
    y, told = (X * thetas).sum(axis=1) + 3.0 + rng.normal(size=len(X)), []
    for x, reward in zip(X, y):
        told.append(tracker.predict(x))
        tracker.update(x, float(reward))
    return float(np.mean((y - told)[50:] ** 2))


def over_plain(thetas):
    """Squared error over that of the same tracker without a discount: the mean of five seeds."""
    return np.mean([squared_error(AutoDiscount(DIM), thetas, s) / squared_error(CD(DIM), thetas, s) for s in range(5)])


def test_where_nothing_moves_it_loses_less_than_a_hundredth():
    assert over_plain(np.ones((ROWS, DIM))) < 1.01


def test_where_theta_drifts_or_jumps_it_gains():
    walk = np.cumsum(0.05 * np.random.default_rng(7).normal(size=(ROWS, DIM)), axis=0)
    jumps = np.repeat(np.random.default_rng(8).normal(size=(4, DIM)), ROWS // 4, axis=0)
    assert over_plain(walk) < 0.8
    assert over_plain(jumps) < 0.8


def test_the_discount_follows_the_stream():
    tracker, still = AutoDiscount(DIM), np.ones((ROWS, DIM))
    squared_error(tracker, still, 0)
    assert tracker.discount == 1.0
    squared_error(tracker, -still, 1)
    assert tracker.discount < 1.0
    assert np.abs(tracker.theta + 1.0).max() < 0.3


def test_discounts_can_be_given():
    assert [each.discount for each in AutoDiscount(3, discounts=[1.0, 0.9]).trackers] == [1.0, 0.9]
    assert repr(AutoDiscount(3, discounts=[1.0, 0.9])) == "AutoDiscount(3, discounts=[1.0, 0.9]), n=0"


@pytest.mark.parametrize(
    "settings", [{"discounts": 0.9}, {"discounts": [0.9]}, {"discounts": [1.0, 2.0]}, {"history": Growing()}]
)
def test_what_makes_no_sense_is_refused(settings):
    with pytest.raises(SettingsError):
        AutoDiscount(3, **settings)


def test_a_policy_says_what_to_give_it_instead():
    for make in (lambda t: LinUCB(tracker=t), lambda t: Greedy(t), lambda t: DisjointLinUCB(3, tracker=t)):
        with pytest.raises(SettingsError, match="give the discount that it finds to RLS"):
            make(AutoDiscount(3))


@pytest.mark.parametrize(
    "change",
    [{"weights": [1.0]}, {"weights": [0.0] * 4}, {"weights": [-1.0, 1.0, 1.0, 1.0]}, {"noise": -1.0}, {"trackers": []}],
)
def test_a_file_that_says_something_else_is_refused(change):
    header, arrays = AutoDiscount(DIM).partial_fit(np.eye(DIM), np.ones(DIM)).snapshot()
    with pytest.raises(CorruptFileError):
        AutoDiscount.from_snapshot(header | change, arrays)


def test_health_is_that_of_the_tracker_with_most_weight():
    tracker = AutoDiscount(DIM)
    squared_error(tracker, np.ones((ROWS, DIM)), 0)
    assert tracker.health == tracker.trackers[0].health
    assert tracker.tracking_error().relative < 0.05
