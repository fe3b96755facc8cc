"""Growing, Reservoir and Window: what they keep and what they cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats

from driftls.errors import InputError, SettingsError
from driftls.history import FIRST_BYTES, ROWS_KEPT, Growing, Reservoir, Window
from driftls.trackers import CD, GD, OLS, RAW, RLS, SAG, SAGA, SVRG, Diagonal
from streams import as_layout, held_rows, numbered, stream

LAYOUTS = pytest.mark.parametrize("layout", ["dense", "sparse"])


# -- what is kept --------------------------------------------------------------------------------------------------


@LAYOUTS
def test_a_growing_history_keeps_every_row_across_many_growth_steps(layout):
    dim = 8
    count = 40 * max(16, FIRST_BYTES // (8 * dim))
    X, y = numbered(0, count, dim)
    tracker = Diagonal(dim, history=Growing(), **RAW)
    for first in range(0, count, 997):
        tracker.partial_fit(as_layout(X[first : first + 997], layout), y[first : first + 997])
    kept, targets = held_rows(tracker.history)
    np.testing.assert_array_equal(kept, X)
    np.testing.assert_array_equal(targets, y)
    assert tracker.history.sparse == (layout == "sparse")


@LAYOUTS
def test_a_block_larger_than_everything_before_it_is_kept_whole(layout):
    X, y = numbered(0, 30_000, 3)
    tracker = SAGA(3, history=Growing(), steps=1, seed=0, **RAW)
    tracker.update(as_layout(X[:1], layout) if layout == "sparse" else X[0], y[0])
    tracker.partial_fit(as_layout(X[1:], layout), y[1:])
    kept, targets = held_rows(tracker.history)
    np.testing.assert_array_equal(kept, X)
    np.testing.assert_array_equal(targets, y)


@LAYOUTS
def test_a_reservoir_is_uniform_over_all_rows_seen(layout):
    # 400 seeds, 20 of 100 rows each: how often row i is held is binomial with mean 80. The counts of a seed are
    # negatively correlated (they sum to 20), which the factor (N - 1)/(N (1 - p)) of sampling without replacement
    # turns into a chi-square with N - 1 degrees of freedom. Fixed seeds: the test cannot flicker.
    capacity, count, seeds = 20, 100, 400
    X, y = numbered(0, count, 2)
    matrix = as_layout(X, layout)
    counts = np.zeros(count)
    for seed in range(seeds):
        tracker = GD(2, steps=1, history=Reservoir(capacity), seed=seed, **RAW).partial_fit(matrix, y)
        _, targets = held_rows(tracker.history)
        assert len(set(targets)) == capacity
        counts[targets.astype(int) - 1] += 1
    share = capacity / count
    statistic = ((counts - seeds * share) ** 2).sum() / (seeds * share * (1 - share)) * (count - 1) / count
    assert 0.001 < scipy.stats.chi2.sf(statistic, count - 1) < 0.999


@pytest.mark.parametrize("history", [lambda: Window(50), lambda: Reservoir(50)], ids=["window", "reservoir"])
@pytest.mark.parametrize("block", [1, 100, 2000])
def test_memory_stays_bounded_when_sparse_rows_of_any_length_come_and_go(history, block):
    generator = np.random.default_rng(2)
    count, dim = 2000, 200
    lengths = generator.integers(0, dim, size=count)
    lengths[generator.random(count) < 0.9] = 3
    indices = [np.sort(generator.choice(dim, size=length, replace=False)) for length in lengths]
    start = np.concatenate([[0], np.cumsum(lengths)])
    X = sp.csr_array((np.ones(start[-1]), np.concatenate(indices), start), shape=(count, dim))
    tracker = SAGA(dim, steps=1, history=history(), seed=0, **RAW)
    largest = 0
    for first in range(0, count, block):
        tracker.partial_fit(X[first : first + block], np.ones(min(block, count - first)))
        largest = max(largest, tracker.history.arrays["indices"].size)
    # Twice what 50 rows can hold, and the rows of one piece: never in proportion to the stream.
    piece = max(np.convolve(lengths, np.ones(min(block, 1024)), "valid").max(), 0)
    assert largest <= 2 * 50 * dim + piece
    assert largest < X.nnz
    kept, _ = held_rows(tracker.history)
    wanted = X.toarray()[-50:]
    if isinstance(tracker.history, Window):
        np.testing.assert_array_equal(np.sort(kept, axis=0), np.sort(wanted, axis=0))


@LAYOUTS
@pytest.mark.parametrize("make_tracker", [RLS, OLS, CD], ids=lambda cls: cls.__name__)
def test_a_window_equals_a_tracker_of_the_last_rows_alone(make_tracker, layout):
    X, y = stream(5000, dim=5, density=0.8)
    matrix = as_layout(X, layout)
    settings = {"steps": 60} if make_tracker is CD else {}  # enough to solve the 5 x 5 system in every row
    tracker = make_tracker(5, history=Window(80), **settings, **RAW)
    for first, last in ((0, 50), (50, 500), (500, 501), (501, 5000)):
        tracker.partial_fit(matrix[first:last], y[first:last])
        newest = slice(max(0, last - 80), last)
        exact = make_tracker(5, **({"method": "cholesky"} if make_tracker is not CD else settings), **RAW)
        exact.partial_fit(matrix[newest], y[newest])
        np.testing.assert_allclose(tracker.theta, exact.theta, rtol=0, atol=1e-11)


@pytest.mark.filterwarnings("ignore::driftls.errors.ConditioningWarning")  # the outlier itself is ill-conditioned
@pytest.mark.parametrize("make_tracker", [RLS, CD, SAG, SAGA, SVRG], ids=lambda cls: cls.__name__)
def test_what_an_outlier_did_to_the_last_digits_leaves_the_window_with_it(make_tracker):
    # Entries of 1e14 pass through sums of size 100: errors of 1e14 * 2e-16 = 0.02 and more would stay for good.
    X, y = stream(3000, dim=5, seed=4)
    if make_tracker in (RLS, CD):
        settings: dict[str, Any] = {}
        X[500] *= 1e7
    else:  # a fixed step cannot take such a row: let it be the reward
        settings = {"seed": 0, "step_size": 0.02, "steps": 30, "guard": False}
        y[500] *= 1e14
    tracker = make_tracker(5, history=Window(100), **settings, **RAW).partial_fit(X, y)
    clean = make_tracker(5, history=Window(100), **settings, **RAW).partial_fit(X[1000:], y[1000:])
    exact = RLS(5, method="cholesky", **RAW).partial_fit(X[-100:], y[-100:]).theta
    error = np.abs(tracker.theta - exact).max()
    assert error < 1e-8 or error < 1.5 * np.abs(clean.theta - exact).max()


@pytest.mark.parametrize("history", [lambda: Window(40), lambda: Reservoir(40)], ids=["window", "reservoir"])
@pytest.mark.parametrize("make_tracker", [SAG, SAGA])
def test_the_sum_of_stored_gradients_is_that_of_the_rows_held(make_tracker, history):
    X, y = stream(3000, dim=5)
    tracker = make_tracker(5, history=history(), seed=0, steps=2, **RAW).partial_fit(X, y)
    kept, _ = held_rows(tracker.history)
    state = tracker.snapshot()[1]
    np.testing.assert_allclose(
        state["state.coords"][1], state["state.residual"][: len(kept)] @ kept, rtol=0, atol=1e-11
    )


# -- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [0, -1, 2.5, "ten", None])
@pytest.mark.parametrize("kind", [Window, Reservoir])
def test_a_capacity_that_cannot_be_is_refused(kind, capacity):
    with pytest.raises(SettingsError, match="capacity must be a whole number of rows, at least 1"):
        kind(capacity)


@LAYOUTS
@pytest.mark.parametrize(
    "kind", [Growing, lambda: Window(5), lambda: Reservoir(5)], ids=["growing", "window", "reservoir"]
)
def test_a_refused_block_reserves_no_room(kind, layout):
    tracker = SAGA(3, history=kind(), seed=0, **RAW).partial_fit(as_layout(np.eye(3), layout), np.ones(3))
    before = {name: array.size for name, array in tracker.history.arrays.items()}
    broken = sp.csr_array(np.eye(3))
    broken.indptr, broken.indices = broken.indptr.astype(np.int64), broken.indices.astype(np.int64)
    broken.indptr[-1] = 2**50
    spoiled = np.full((100_000, 3), np.nan)
    for X in (broken, spoiled, sp.csr_array(spoiled)):
        with pytest.raises(InputError):
            tracker.partial_fit(X, np.ones(X.shape[0]))
    assert {name: array.size for name, array in tracker.history.arrays.items()} == before


# -- what is kept by default ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [GD, SAG, SAGA, SVRG])
def test_memory_is_bounded_by_default(make):
    tracker = make(3, steps=1, seed=0)
    assert repr(tracker.history) == f"Window({ROWS_KEPT})"
    X, y = numbered(0, ROWS_KEPT + 500, 3)
    tracker.partial_fit(X / len(y), y / len(y))
    assert (len(tracker), len(tracker.history)) == (ROWS_KEPT + 500, ROWS_KEPT)
    assert sum(array.nbytes for array in tracker.history.arrays.values()) == ROWS_KEPT * 8 * 5  # with the constant
    assert repr(tracker.fresh(1).history) == repr(tracker.history)


@LAYOUTS
def test_until_it_is_full_a_window_is_as_good_as_all_rows(layout):
    X, y = stream(300, density=0.7)
    window, growing = (SAGA(4, history=history, seed=0) for history in (Window(300), Growing()))
    for tracker in (window, growing):
        tracker.partial_fit(as_layout(X, layout), y)
    np.testing.assert_array_equal(window.theta, growing.theta)
    np.testing.assert_array_equal(window.target.coefficients(), growing.target.coefficients())
    assert not window.history.dropped
    window.update(X[0], y[0])
    assert window.history.dropped
