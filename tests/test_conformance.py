"""What every tracker must do. A new one gets these tests by being named in tests/checks.py."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from checks import CASES, HISTORIES, combinations, make, rows

every = pytest.mark.parametrize(("case", "history"), combinations())
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def state(tracker):
    """Everything that decides what the tracker does next."""
    theta = tracker.theta  # first: an exact tracker may solve for it only now
    arrays = [np.array(array) for array in tracker._state]
    if tracker.history is not None:  # beyond the rows held, a table with an entry a row means nothing
        held = len(tracker.history)
        arrays = [array[:held] if name == "residual" else array for name, array in zip(tracker._state._fields, arrays)]
    tracker._draws.ready(5)
    return [*arrays, tracker._draws.unread()[:5], theta]


def assert_same_bits(one, two):
    for a, b in zip(state(one), state(two), strict=True):
        np.testing.assert_array_equal(a, b)


def naive_history(history):
    return None if history is None else HISTORIES[history][1]


@every
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_kernels_equal_the_oracle(case, history, layout):
    X, y = rows(density=1.0 if layout == "dense" else 0.4)
    expected = case.oracle(X, y, naive_history(history) or ("growing",) if case.draws else naive_history(history))
    tracker = make(case, history)
    matrix = sp.csr_array(X) if layout == "sparse" else X
    for n in range(len(y)):
        tracker.partial_fit(matrix[n : n + 1], y[n : n + 1])
        scale = max(1.0, float(np.abs(expected[n]).max()))
        np.testing.assert_allclose(tracker.theta, expected[n], atol=case.exact_to * scale, err_msg=f"row {n + 1}")


@every
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_rows_a_block_and_ragged_blocks_agree_to_the_bit(case, history, layout):
    X, y = rows(density=0.5)
    matrix = sp.csr_array(X) if layout == "sparse" else X
    one, block, ragged = (make(case, history) for _ in range(3))
    for n in range(len(y)):
        one.update(matrix[[n]] if layout == "sparse" else X[n], y[n])
    block.partial_fit(matrix, y)
    for first, last in [(0, 1), (1, 8), (8, 9), (9, 60), (60, 60), (60, len(y))]:
        ragged.partial_fit(matrix[first:last], y[first:last])
    assert_same_bits(one, block)
    assert_same_bits(one, ragged)


@every
def test_sparse_rows_equal_dense_rows(case, history):
    X, y = rows(density=0.5)
    dense, sparse = make(case, history).partial_fit(X, y), make(case, history).partial_fit(sp.csr_array(X), y)
    np.testing.assert_allclose(sparse.theta, dense.theta, rtol=0, atol=case.exact_to)
    np.testing.assert_allclose(sparse.predict(sp.csr_array(X)), dense.predict(X), atol=10 * case.exact_to)


@every
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_resuming_equals_never_having_stopped(case, history, layout, tmp_path):
    X, y = rows(density=0.5)
    matrix = sp.csr_array(X) if layout == "sparse" else X
    straight = make(case, history).partial_fit(matrix, y)
    stopped = make(case, history).partial_fit(matrix[:37], y[:37])
    stopped.save(tmp_path / "t.safetensors")
    functions = {"step_size": stopped.step_size, "regularisation": stopped.regularisation}
    again = type(stopped).load(tmp_path / "t.safetensors", **(functions if "function" in case.name else {}))
    assert repr(again) == repr(stopped) or "function" in case.name
    assert_same_bits_without_moving(again, stopped)
    again.partial_fit(matrix[37:], y[37:])
    assert_same_bits(again, straight)


def assert_same_bits_without_moving(one, two):
    np.testing.assert_array_equal(one.theta, two.theta)
    assert len(one) == len(two)


@each_case
def test_the_tracker_starts_at_zero_and_counts_rows(case):
    tracker = make(case)
    X, y = rows()
    assert len(tracker) == 0
    assert not tracker.theta.any()
    assert tracker.predict(X[0]) == 0.0
    assert len(tracker.partial_fit(X, y)) == len(y)
    assert tracker.predict(X).shape == y.shape


@each_case
def test_a_row_that_is_refused_changes_nothing(case):
    X, y = rows()
    clean, hurt = make(case).partial_fit(X, y), make(case).partial_fit(X[:50], y[:50])
    spoiled = X[50:].copy()
    spoiled[3, 1] = np.nan
    with pytest.raises(ValueError, match="row 3: every feature and y must be finite"):
        hurt.partial_fit(spoiled, y[50:])
    with pytest.raises(ValueError, match="finite"):
        hurt.update(X[50], np.inf)
    with pytest.raises(ValueError, match="5 features"):
        hurt.partial_fit(X[50:, :5], y[50:])
    hurt.partial_fit(X[50:], y[50:])
    assert_same_bits(clean, hurt)


@each_case
@pytest.mark.parametrize(
    ("indices", "complaint"),
    [([3, 1], "increase"), ([2, 2], "increase"), ([1, 6], "outside 0 ... 5"), ([-1, 2], "outside")],
)
def test_a_sparse_row_with_bad_indices_changes_nothing(case, indices, complaint):
    X, y = rows(density=0.5)
    matrix = sp.csr_array(X)
    clean, hurt = make(case).partial_fit(matrix, y), make(case).partial_fit(matrix[:50], y[:50])
    bad = sp.csr_array((np.ones(2), np.array([0, 1]), np.array([0, 2])), shape=(1, 6))
    bad.indices[:] = indices
    with pytest.raises(ValueError, match=complaint):
        hurt.partial_fit(bad, [1.0])
    hurt.partial_fit(matrix[50:], y[50:])
    assert_same_bits(clean, hurt)
