"""What is refused, in words: what was expected, what came, what to do."""

from __future__ import annotations

import copy
from contextlib import suppress

import numpy as np
import pytest
import scipy.sparse as sp

from driftls import Normalised
from driftls.errors import DimensionError, DriftlsError, InputError, SettingsError
from driftls.history import Mapped
from driftls.inputs import Rows
from driftls.policies import DisjointLinUCB
from driftls.testing.trackers import same_snapshot, same_tracker
from driftls.trackers import CD, GD, OLS, RAW, RLS, SAG, SAGA, SVRG, Diagonal

GOOD_X, GOOD_Y = np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]), np.array([1.0, 2.0])


def started(stage):
    tracker = SAGA(3, seed=0, **RAW)
    if stage != "new":
        tracker.partial_fit(sp.csr_array(GOOD_X) if stage == "sparse" else GOOD_X, GOOD_Y)
    return tracker


def test_what_is_passed_is_never_written_to():
    X, y = np.random.default_rng(0).normal(size=(50, 3)), np.ones(50)
    kept_X, kept_y = X.copy(), y.copy()
    for make_tracker in (GD, SAG, SAGA, SVRG, CD, Diagonal, RLS, OLS):
        make_tracker(3, **RAW).partial_fit(X, y).update(X[0], y[0])
    np.testing.assert_array_equal(X, kept_X)
    np.testing.assert_array_equal(y, kept_y)


@pytest.mark.parametrize("sparse", [True, False])
def test_one_sparse_row_may_have_any_form(sparse):
    tracker = SAGA(3, seed=0, **RAW)
    expected = SAGA(3, seed=0, **RAW)
    first = np.array([1.0, 0.0, 2.0])
    tracker.update(sp.csr_array(first.reshape(1, -1)) if sparse else first, 1.0)
    expected.update(sp.csr_array(first.reshape(1, -1)) if sparse else first, 1.0)
    row = np.array([0.0, 3.0, 1.0])
    for x in (sp.coo_array(row), sp.csr_array(row), sp.csr_matrix(row), sp.csc_array(row.reshape(1, -1)), [0, 3, 1]):
        tracker.update(x, 2.0)
        expected.update(sp.csr_array(row.reshape(1, -1)), 2.0)
        same_tracker(tracker, expected, "another form of a row")
    assert tracker.predict(sp.coo_array(row)) == tracker.predict(row)


BAD_BLOCKS = [
    (GOOD_X, 1.0, DimensionError, "one entry a row"),
    (GOOD_X, [1.0], DimensionError, "one entry a row"),
    (GOOD_X, [[1.0], [2.0]], DimensionError, "one entry a row"),
    (GOOD_X[0], GOOD_Y[:1], DimensionError, "X must (be a matrix|have 3 features)"),
    (GOOD_X[None], GOOD_Y, DimensionError, "X must (be a matrix|have 3 features)"),
    (5.0, [1.0], DimensionError, "X must (be a matrix|have 3 features)"),
    (GOOD_X[:, :2], GOOD_Y, DimensionError, "X must have 3 features"),
    (np.ones((2, 4)), GOOD_Y, DimensionError, "X must have 3 features"),
    (sp.csr_array(np.ones((2, 4))), GOOD_Y, DimensionError, "X must have 3 features"),
    ([[1.0, 2.0, 3.0], [1.0]], GOOD_Y, InputError, "X must be a matrix of real numbers"),
    ("text", GOOD_Y, InputError, "X must be a matrix of real numbers"),
    (None, GOOD_Y, DriftlsError, "X must (be a matrix|have 3 features)"),
    ({"a": 1}, GOOD_Y, InputError, "X must be a matrix of real numbers"),
    ([["1", "2", "3"]] * 2, GOOD_Y, InputError, "X must be a matrix of real numbers"),
    (GOOD_X.astype(bytes), GOOD_Y, InputError, "X must be a matrix of real numbers"),
    (np.array([[1, "a", 2]] * 2, dtype=object), GOOD_Y, InputError, "X must be a matrix of real numbers"),
    (GOOD_X + 1j, GOOD_Y, InputError, "X must be a matrix of real numbers"),
    (sp.csr_array(GOOD_X + 1j), GOOD_Y, InputError, "X must be a matrix of real numbers"),
    (GOOD_X.astype("datetime64[s]"), GOOD_Y, InputError, "X must be a matrix of real numbers"),
    (GOOD_X, ["1", "2"], InputError, "y must be a vector of real numbers"),
    (GOOD_X, "ab", InputError, "y must be a vector of real numbers"),
    (GOOD_X, GOOD_Y + 1j, InputError, "y must be a vector of real numbers"),
    (GOOD_X, [1.0, [2.0]], InputError, "y must be a vector of real numbers"),
    (GOOD_X, [1.0, None], InputError, "row 1: every number must be finite"),
    (np.array([[1, None, 2]] * 2, dtype=object), GOOD_Y, InputError, "row 0: every number must be finite"),
]


@pytest.mark.parametrize("stage", ["new", "dense", "sparse"])
@pytest.mark.parametrize(("X", "y", "error", "message"), BAD_BLOCKS, ids=range(len(BAD_BLOCKS)))
def test_a_block_that_cannot_be_used_is_refused_by_name(X, y, error, message, stage):
    tracker = started(stage)
    before = tracker.snapshot()
    with pytest.raises(error, match=message):
        tracker.partial_fit(X, y)
    same_snapshot(before, tracker.snapshot(), message)


BAD_ROWS = [
    (GOOD_X, 1.0, DimensionError, "must (be one row of|have) 3 features"),
    (sp.csr_array(GOOD_X), 1.0, DimensionError, "must be one row of 3"),
    (np.ones((3, 1)), 1.0, DimensionError, "must (be one row of|have) 3 features"),
    (np.ones(2), 1.0, DimensionError, "x must have 3 features"),
    (sp.csr_array(np.ones((1, 2))), 1.0, DimensionError, "x must have 3 features"),
    (np.ones((1, 1, 3)), 1.0, DimensionError, "x must have 3 features"),
    (3.0, 1.0, DimensionError, "must (be one row of|have) 3 features"),
    ("text", 1.0, InputError, "real numbers"),
    ({"age": 31}, 1.0, InputError, r"got dict\. Features\(dim=2\*\*18\) makes rows of dicts"),
    (["1", "2", "3"], 1.0, InputError, "real numbers"),
    ([1.0, [2.0], 3.0], 1.0, InputError, "real numbers"),
    (np.ones(3) * 1j, 1.0, InputError, "real numbers"),
    (np.ma.masked_array(np.ones(3), [True, False, False]), 1.0, InputError, "masked array"),
    ((np.arange(3, dtype=np.int32), np.ma.masked_array(np.ones(3), [1, 0, 0])), 1.0, InputError, "masked array"),
    ((np.arange(3, dtype=np.int32), np.ones(2)), 1.0, DimensionError, "two vectors of one length"),
    ((np.array([0.0, 1.0]), np.ones(2)), 1.0, InputError, "indices must be whole numbers"),
    ((np.array([2, 1], dtype=np.int32), np.ones(2)), 1.0, InputError, "must increase"),
    ((np.array([1, 3], dtype=np.int32), np.ones(2)), 1.0, DimensionError, "must lie in"),
    ((np.array([0, 1], dtype=np.int32), np.array([1.0, np.nan])), 1.0, InputError, "must be finite"),
    (np.ones(3), "1.0", InputError, "y must be a"),
    (np.ones(3), b"1.0", InputError, "y must be a"),
    (np.ones(3), 1j, InputError, "y must be a"),
    (np.ones(3), [1.0], InputError, "y"),
    (np.ones(3), np.ones(1), InputError, "y"),
    (np.ones(3), None, InputError, "y must be a number, got None"),
    (np.ones(3), object(), InputError, "y must be a"),
]


@pytest.mark.parametrize("stage", ["new", "dense", "sparse"])
@pytest.mark.parametrize(("x", "y", "error", "message"), BAD_ROWS, ids=range(len(BAD_ROWS)))
def test_a_row_that_cannot_be_used_is_refused_by_name(x, y, error, message, stage):
    tracker = started(stage)
    before = tracker.snapshot()
    with pytest.raises(error, match=message):
        tracker.update(x, y)
    same_snapshot(before, tracker.snapshot(), message)


BAD_QUERIES = [
    (5.0, DimensionError),
    (np.ones(2), DimensionError),
    (np.ones((4, 2)), DimensionError),
    (np.ones((2, 2, 3)), DimensionError),
    (sp.csr_array(np.ones((4, 2))), DimensionError),
    ("text", InputError),
    ([["a", "b", "c"]], InputError),
    ([[1.0, 2.0, 3.0], [1.0]], InputError),
    (np.ones((2, 3)) * 1j, InputError),
    (None, DriftlsError),
]


@pytest.mark.parametrize("stage", ["new", "dense", "sparse"])
@pytest.mark.parametrize(("X", "error"), BAD_QUERIES, ids=range(len(BAD_QUERIES)))
def test_a_query_that_cannot_be_answered_is_refused_by_name(X, error, stage):
    with pytest.raises(error):
        started(stage).predict(X)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SAGA(0, **RAW), "dim must be a whole number of at least 1 and at most 2147483646, got 0"),
        (lambda: SAGA(-3, **RAW), "dim must be"),
        (lambda: SAGA(2.0, **RAW), "dim must be"),
        (lambda: SAGA("3", **RAW), "dim must be"),
        (lambda: SAGA(2**31, **RAW), "dim must be"),
        (lambda: SAGA(2, steps=-1, **RAW), "steps must be a whole number of at least 1 and at most 10000000, got -1"),
        (lambda: SAGA(2, steps=1.5, **RAW), "steps must be"),
        (lambda: SAGA(2, steps=10**8, **RAW), "at most 10000000"),
        (lambda: SAGA(2, steps=0, **RAW), "steps must be a whole number of at least 1"),
        (lambda: CD(2, steps=-1, **RAW), "steps must be"),
        (lambda: SAGA(2, step_size="fast", **RAW), "step_size must be a number, a Power or a function"),
        (lambda: SAGA(2, step_size=-0.1, **RAW), "finite number of at least 0, got -0.1"),
        (lambda: SAGA(2, step_size=float("nan"), **RAW), "finite number of at least 0"),
        (lambda: SAGA(2, regularisation=-1, **RAW), "finite number of at least 0"),
        (lambda: SAGA(2, regularisation=Normalised(0.1), **RAW), "cannot be Normalised"),
        (lambda: GD(2, averaging="mean", **RAW), "averaging must be 'tail', 'polyak' or None, got 'mean'"),
        (lambda: GD(2, newest=True, step_size=Normalised(0.1), **RAW), "pass a number for step_size"),
        (lambda: SVRG(2, anchor="here", **RAW), "anchor must be 'refreshed' or 'average', got 'here'"),
        (lambda: SVRG(2, every=0, **RAW), "at least 1"),
        (lambda: SVRG(2, every=2.5, **RAW), "at least 1"),
        (lambda: SVRG(2, anchor="average", every=3, **RAW), "only with anchor='refreshed'"),
        (
            lambda: RLS(2, method="magic", **RAW),
            "method must be one of auto, sherman-morrison, cholesky, inverse, got 'magic'",
        ),
        (lambda: RLS(2, method="sherman-morrison", regularisation=0.1, **RAW), "needs n lambda_n to be constant"),
        (lambda: RLS(2, method="inverse", regularisation=0.0, **RAW), "cannot be inverted in the first rounds"),
        (lambda: OLS(2, method="inverse", **RAW), "cannot be inverted in the first rounds"),
        *(
            (lambda make=make, value=value: make(value), "must be")
            for value in (np.eye(2), [], 2.5, object())
            for make in (
                lambda value: RLS(2, method=value, **RAW),
                lambda value: OLS(2, method=value, **RAW),
                lambda value: GD(2, averaging=value, **RAW),
                lambda value: GD(2, newest=value, **RAW),
                lambda value: SVRG(2, anchor=value, **RAW),
                lambda value: SAGA(2, guard=value, **RAW),
                lambda value: SAGA(2, history=value, **RAW),
                lambda value: SAGA(2, steps=value, **RAW),
                lambda value: SAGA(value, **RAW),
            )
        ),
        (lambda: RLS(100_000, **RAW), r"Use SAGA or Diagonal"),
        *(
            (lambda cls=cls, value=value: cls(2, discount=value), r"discount must lie in \(0, 1\]")
            for cls in (RLS, OLS, CD, Diagonal)
            for value in (0, 0.0, -0.5, 1.0001, float("nan"), "half", None)
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(build, message):
    with pytest.raises(SettingsError, match=message):
        build()


def test_a_target_without_rows_is_refused_with_advice():
    tracker = Diagonal(2, **RAW).partial_fit(np.eye(2), [1.0, 2.0])
    with pytest.raises(SettingsError, match=r"keeps no rows.*history=Growing\(\)"):
        tracker.tracking_error()


def test_a_tracker_with_rows_on_disk_cannot_be_copied(tmp_path):
    tracker = SAGA(2, history=Mapped(tmp_path / "rows"), seed=0, **RAW).partial_fit(np.eye(2), [1.0, 2.0])
    with pytest.raises(SettingsError, match="in use by another tracker"):
        copy.deepcopy(tracker)


@pytest.mark.parametrize("stage", ["new", "dense", "sparse"])
def test_an_empty_vector_is_no_row(stage):
    tracker = started(stage)
    for call in (lambda: tracker.update(np.zeros(0), 1.0), lambda: tracker.predict(np.zeros(0))):
        with pytest.raises(DimensionError, match="3 features"):
            call()
    with pytest.raises(DimensionError, match="3 features"):
        DisjointLinUCB(3).choose(np.zeros(0), ids=["a", "b"])


def test_arrays_may_lie_anywhere():
    """As `np.frombuffer` gives them: the same numbers at an odd address."""

    def unaligned(array):
        return np.frombuffer(b"\0" + array.tobytes(), array.dtype, offset=1)

    index, values = np.array([0, 2], np.int32), np.array([1.0, 2.0])
    plain, odd = SAGA(3, seed=0), SAGA(3, seed=0)
    for _ in range(2):
        plain.update((index, values), 1.0)
        odd.update((unaligned(index), unaligned(values)), 1.0)
    np.testing.assert_array_equal(plain.theta, odd.theta)


@pytest.mark.parametrize("nth", range(1, 15))
def test_a_tracker_survives_that_memory_ends_while_its_stage_grows(nth, monkeypatch):
    tracker, twin = SAGA(200, seed=0), SAGA(200, seed=0)
    small, rng, count = sp.eye_array(2, 200, format="csr"), np.random.default_rng(0), 0
    large = sp.csr_array(rng.normal(size=(40, 200)))
    for one in (tracker, twin):
        one.partial_fit(small, [1.0, 2.0])
    zeros = np.zeros

    def ends(*arguments, **settings):
        nonlocal count
        count += 1
        if count == nth:
            raise MemoryError
        return zeros(*arguments, **settings)

    with monkeypatch.context() as patch, suppress(MemoryError):
        patch.setattr("driftls.stage.np.zeros", ends)
        tracker.predict(large)
    np.testing.assert_array_equal(tracker.predict(large), twin.predict(large))


@pytest.mark.parametrize("kind", [GD, SVRG, SAG, SAGA, CD, Diagonal, RLS, OLS])
def test_a_tracker_without_dim_is_told_so(kind):
    with pytest.raises(TypeError, match=r"__init__\(\) missing.*'dim'"):
        kind()


@pytest.mark.parametrize("stage", ["new", "dense", "sparse"])
def test_one_sparse_row_has_one_prediction_in_all_its_forms(stage):
    tracker, at, value = started(stage), np.array([0, 2], np.int32), np.array([1.0, -2.0])
    one, two = Rows(at, value, np.array([0, 2]), 3), Rows(at, value, np.array([0, 1, 2]), 3)
    vector = tracker.predict(np.array([1.0, 0.0, -2.0]))
    for row in (one, one._replace(start=[0, 2]), (at, value), ([0, 2], [1.0, -2.0])):
        assert type(tracker.predict(row)) is float
        assert tracker.predict(row) == vector
    assert tracker.predict(two).shape == (2,)
    with pytest.raises(DimensionError, match="3 features"):
        tracker.predict(one._replace(dim=4))
