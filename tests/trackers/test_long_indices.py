"""Indices of 64 bits, as SciPy slices and people have them, are staged as those of 32 are."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from driftls.errors import DimensionError, DriftlsError
from driftls.history import Window
from driftls.trackers import SAGA

KINDS = [np.int32, np.int64]


def matrix(at, kind):
    start = np.arange(len(at) + 1, dtype=kind)
    X = sp.csr_array(sp.csr_array((np.ones(len(at)), np.array(at, kind), start), shape=(len(at), 50)))
    X.indices, X.indptr = X.indices.astype(kind), X.indptr.astype(kind)
    return X


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "way", [lambda X: X, lambda X: pickle.loads(pickle.dumps(X)), lambda X: X[:]], ids=["made", "unpickled", "sliced"]
)
def test_rows_are_learned_with_their_own_indices(kind, way):
    tracker = SAGA(50, seed=0)
    tracker.partial_fit(matrix([0, 1], np.int32), [1.0, 2.0])
    tracker.partial_fit(way(matrix([30, 40], kind)), [1.0, 2.0])
    tracker.update((np.array([7, 9], kind), np.ones(2)), 1.0)
    tracker.update(pickle.loads(pickle.dumps((np.array([8], kind), np.ones(1)))), 1.0)
    assert tracker.history.matrix()[0].indices.tolist() == [0, 50, 1, 50, 30, 50, 40, 50, 7, 9, 50, 8, 50]


@pytest.mark.parametrize("kind", KINDS)
def test_pointers_that_do_not_begin_at_0_are_refused_and_leave_nothing_behind(kind):
    tracker = SAGA(50, seed=0).partial_fit(matrix([0, 1], kind), [1.0, 2.0])
    X = matrix([3, 4, 5, 6], kind)[:2]
    X.indices, X.data = np.arange(4, dtype=kind), np.ones(4)
    X.indptr = np.array([1, 2, 4], kind)
    with pytest.raises(DriftlsError, match="indptr"):
        tracker.partial_fit(X, [1.0, 1.0])
    tracker.update((np.array([10, 20], kind), np.ones(2)), 1.0)
    assert tracker.history.matrix()[0].indices.tolist() == [0, 50, 1, 50, 10, 20, 50]


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_of_one_too_many_is_told_as_such(kind):
    tracker = SAGA(50, seed=0)
    for _ in range(2):
        with pytest.raises(DimensionError, match=r"must lie in 0 \.\.\. 49"):
            tracker.update((np.array([3, 50], kind), np.ones(2)), 1.0)
        tracker.update((np.array([3], kind), np.ones(1)), 1.0)


def test_a_list_of_pairs_is_a_block_for_predict_as_it_is_for_partial_fit():
    pairs = [(np.array([1, 2]), np.ones(2)), (np.array([3]), np.ones(1))]
    tracker = SAGA(50, seed=0).partial_fit(pairs, [1.0, 2.0])
    np.testing.assert_array_equal(tracker.predict(pairs), [tracker.predict(pair) for pair in pairs])


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_handful_of_rows_that_are_kept_allows_no_verdict(rows):
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tracker = SAGA(3, seed=0, history=Window(rows))
        tracker.partial_fit(rng.normal(size=(1200, 3)), rng.normal(size=1200))
    assert "nobody knows" in tracker.health.verdict
