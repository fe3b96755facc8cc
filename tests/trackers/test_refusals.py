"""What is refused, in words: what was expected, what came, what to do."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from driftls import Normalised
from driftls.errors import DimensionError, DriftlsError, InputError, SettingsError
from driftls.history import Growing, Mapped, Reservoir, Window
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


REFUSED: list[Any] = [
    ("partial_fit", (GOOD_X, 1.0), DimensionError, "one entry a row"),
    ("partial_fit", (GOOD_X, [1.0]), DimensionError, "one entry a row"),
    ("partial_fit", (GOOD_X, [[1.0], [2.0]]), DimensionError, "one entry a row"),
    ("partial_fit", (GOOD_X[0], GOOD_Y[:1]), DimensionError, "X must (be a matrix|have 3 features)"),
    ("partial_fit", (GOOD_X[None], GOOD_Y), DimensionError, "X must (be a matrix|have 3 features)"),
    ("partial_fit", (5.0, [1.0]), DimensionError, "X must (be a matrix|have 3 features)"),
    ("partial_fit", (GOOD_X[:, :2], GOOD_Y), DimensionError, "X must have 3 features"),
    ("partial_fit", (np.ones((2, 4)), GOOD_Y), DimensionError, "X must have 3 features"),
    ("partial_fit", (sp.csr_array(np.ones((2, 4))), GOOD_Y), DimensionError, "X must have 3 features"),
    ("partial_fit", ([[1.0, 2.0, 3.0], [1.0]], GOOD_Y), InputError, "X must be a matrix of real numbers"),
    ("partial_fit", ("text", GOOD_Y), InputError, "X must be a matrix of real numbers"),
    ("partial_fit", (None, GOOD_Y), DriftlsError, "X must (be a matrix|have 3 features)"),
    ("partial_fit", ({"a": 1}, GOOD_Y), InputError, "X must be a matrix of real numbers"),
    ("partial_fit", ([["1", "2", "3"]] * 2, GOOD_Y), InputError, "X must be a matrix of real numbers"),
    ("partial_fit", (GOOD_X.astype(bytes), GOOD_Y), InputError, "X must be a matrix of real numbers"),
    (
        "partial_fit",
        (np.array([[1, "a", 2]] * 2, dtype=object), GOOD_Y),
        InputError,
        "X must be a matrix of real numbers",
    ),
    ("partial_fit", (GOOD_X + 1j, GOOD_Y), InputError, "X must be a matrix of real numbers"),
    ("partial_fit", (sp.csr_array(GOOD_X + 1j), GOOD_Y), InputError, "X must be a matrix of real numbers"),
    ("partial_fit", (GOOD_X.astype("datetime64[s]"), GOOD_Y), InputError, "X must be a matrix of real numbers"),
    ("partial_fit", (GOOD_X, ["1", "2"]), InputError, "y must be a vector of real numbers"),
    ("partial_fit", (GOOD_X, "ab"), InputError, "y must be a vector of real numbers"),
    ("partial_fit", (GOOD_X, GOOD_Y + 1j), InputError, "y must be a vector of real numbers"),
    ("partial_fit", (GOOD_X, [1.0, [2.0]]), InputError, "y must be a vector of real numbers"),
    ("partial_fit", (GOOD_X, [1.0, None]), InputError, "row 1: every number must be finite"),
    (
        "partial_fit",
        (np.array([[1, None, 2]] * 2, dtype=object), GOOD_Y),
        InputError,
        "row 0: every number must be finite",
    ),
    ("update", (GOOD_X, 1.0), DimensionError, "must (be one row of|have) 3 features"),
    ("update", (sp.csr_array(GOOD_X), 1.0), DimensionError, "must be one row of 3"),
    ("update", (np.ones((3, 1)), 1.0), DimensionError, "must (be one row of|have) 3 features"),
    ("update", (np.ones(2), 1.0), DimensionError, "x must have 3 features"),
    ("update", (sp.csr_array(np.ones((1, 2))), 1.0), DimensionError, "x must have 3 features"),
    ("update", (np.ones((1, 1, 3)), 1.0), DimensionError, "x must have 3 features"),
    ("update", (3.0, 1.0), DimensionError, "must (be one row of|have) 3 features"),
    ("update", ("text", 1.0), InputError, "real numbers"),
    ("update", ({"age": 31}, 1.0), InputError, r"got dict\. Features\(dim=2\*\*18\) makes rows of dicts"),
    ("update", (["1", "2", "3"], 1.0), InputError, "real numbers"),
    ("update", ([1.0, [2.0], 3.0], 1.0), InputError, "real numbers"),
    ("update", (np.ones(3) * 1j, 1.0), InputError, "real numbers"),
    ("update", (np.ma.masked_array(np.ones(3), [True, False, False]), 1.0), InputError, "masked array"),
    (
        "update",
        ((np.arange(3, dtype=np.int32), np.ma.masked_array(np.ones(3), [1, 0, 0])), 1.0),
        InputError,
        "masked array",
    ),
    ("update", ((np.arange(3, dtype=np.int32), np.ones(2)), 1.0), DimensionError, "two vectors of one length"),
    ("update", ((np.array([0.0, 1.0]), np.ones(2)), 1.0), InputError, "indices must be whole numbers"),
    ("update", ((np.array([2, 1], dtype=np.int32), np.ones(2)), 1.0), InputError, "must increase"),
    ("update", ((np.array([1, 3], dtype=np.int32), np.ones(2)), 1.0), DimensionError, "must lie in"),
    ("update", ((np.array([0, 1], dtype=np.int32), np.array([1.0, np.nan])), 1.0), InputError, "must be finite"),
    ("update", (np.ones(3), "1.0"), InputError, "y must be a"),
    ("update", (np.ones(3), b"1.0"), InputError, "y must be a"),
    ("update", (np.ones(3), 1j), InputError, "y must be a"),
    ("update", (np.ones(3), [1.0]), InputError, "y"),
    ("update", (np.ones(3), np.ones(1)), InputError, "y"),
    ("update", (np.ones(3), None), InputError, "y must be a number, got None"),
    ("update", (np.ones(3), object()), InputError, "y must be a"),
    ("predict", (5.0,), DimensionError, "3 features"),
    ("predict", (np.ones(2),), DimensionError, "3 features"),
    ("predict", (np.ones((4, 2)),), DimensionError, "3 features"),
    ("predict", (np.ones((2, 2, 3)),), DimensionError, "3 features"),
    ("predict", (sp.csr_array(np.ones((4, 2))),), DimensionError, "3 features"),
    ("predict", ("text",), InputError, "real numbers"),
    ("predict", ([["a", "b", "c"]],), InputError, "real numbers"),
    ("predict", ([[1.0, 2.0, 3.0], [1.0]],), InputError, "real numbers"),
    ("predict", (np.ones((2, 3)) * 1j,), InputError, "real numbers"),
    ("predict", (None,), DriftlsError, "real numbers|3 features"),
    ("update", (np.zeros(0), 1.0), DimensionError, "3 features"),
    ("predict", (np.zeros(0),), DimensionError, "3 features"),
    ("predict", (Rows([0], [1.0], [0, 1], "three"),), InputError, "x is not a valid sparse matrix"),
    ("predict", (Rows([0], [1.0], [0, 2], 3),), InputError, "indptr must increase from 0 and stay within"),
]


@pytest.mark.parametrize("stage", ["new", "dense", "sparse"])
@pytest.mark.parametrize(("call", "given", "error", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_used_is_refused_by_name(call, given, error, message, stage):
    tracker = started(stage)
    before = tracker.snapshot()
    with pytest.raises(error, match=message):
        getattr(tracker, call)(*given)
    same_snapshot(before, tracker.snapshot(), message)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SAGA(0, **RAW), "dim must be a whole number of at least 1, got 0"),
        (lambda: SAGA(-3, **RAW), "dim must be"),
        (lambda: SAGA(2.0, **RAW), "dim must be"),
        (lambda: SAGA("3", **RAW), "dim must be"),
        (lambda: SAGA(2**31, **RAW), "dim must be"),
        (lambda: SAGA(2, steps=-1, **RAW), "steps must be a whole number of at least 1, got -1"),
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
            (lambda value=value: SAGA(2, history=value, **RAW), "history must be a Growing")
            for value in (Growing, "all", 9)
        ),
        (lambda: RLS(2, history=Reservoir(5), **RAW), "needs no reservoir"),
        (lambda: CD(2, history=Reservoir(5), **RAW), "needs no reservoir"),
        (lambda: Diagonal(2, history=Reservoir(5), **RAW), "cannot take a row back"),
        (lambda: Diagonal(2, history=Window(5), **RAW), "cannot take a row back"),
        (lambda: RLS(2, discount=0.9, history=Window(5), **RAW), "both forget"),
        (lambda: CD(2, discount=0.9, history=Window(5), **RAW), "both forget"),
        (lambda: RLS(2, discount=0.9, regularisation=0.1, **RAW), "total ridge is constant"),
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


def test_an_empty_user_is_none():
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
