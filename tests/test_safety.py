"""What a tracker refuses, what it notices, and what it gets right where numbers are at their worst."""

from __future__ import annotations

import copy
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

import naive
from checks import CASES, make, rows
from driftls import Normalised, Power, ridge
from driftls.errors import (
    ConditioningWarning,
    DimensionError,
    DivergenceError,
    DriftlsError,
    InputError,
    SettingsError,
)
from driftls.history import Growing, Mapped, Window
from driftls.kernels.rows import LARGEST
from driftls.trackers import CD, GD, OLS, RLS, SAG, SAGA, SVRG, Diagonal
from test_conformance import assert_same_bits

STOCHASTIC = [GD, SAG, SAGA, SVRG]
EVERY = [GD, SAG, SAGA, SVRG, CD, Diagonal, RLS, OLS]
each_stochastic = pytest.mark.parametrize("make_tracker", STOCHASTIC, ids=lambda cls: cls.__name__)
each_tracker = pytest.mark.parametrize("make_tracker", EVERY, ids=lambda cls: cls.__name__)
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
EPS = float(np.finfo(float).eps)


def stream(count, dim, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(count, dim))
    return X, X @ generator.normal(size=dim) + 0.1 * generator.normal(size=count)


# -- divergence ----------------------------------------------------------------------------------------------------


@each_stochastic
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_a_step_times_squared_norm_of_two_is_refused_and_changes_nothing(make_tracker, layout):
    X, y = rows()
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    matrix = sp.csr_array(X) if layout == "sparse" else X
    clean, hurt = (make_tracker(X.shape[1], step_size=0.5, seed=0).partial_fit(matrix, y) for _ in range(2))
    spoiled = X.copy()
    spoiled[7] *= 2.0000001  # 0.5 * 4 is 2
    with pytest.raises(DivergenceError, match=r"row 7: step_size times the row's squared norm.*Nothing of the block"):
        hurt.partial_fit(sp.csr_array(spoiled) if layout == "sparse" else spoiled, y)
    with pytest.raises(DivergenceError, match=r"row 0: step_size times"):
        hurt.update(sp.csr_array(spoiled[[7]]) if layout == "sparse" else spoiled[7], y[7])
    spoiled[7] *= 0.99
    clean.partial_fit(spoiled, y)
    hurt.partial_fit(spoiled, y)
    assert_same_bits(clean, hurt)


def test_a_step_that_shrinks_in_time_is_judged_when_the_row_comes():
    tracker = GD(1, step_size=Power(4.0, 0, 1), averaging=None, steps=1, seed=0)
    with pytest.raises(DivergenceError, match="row 0"):
        tracker.update(np.ones(1), 1.0)
    tracker = GD(1, step_size=Power(4.0, 0, 1), averaging=None, steps=1, seed=0)
    tracker.partial_fit(np.full((4, 1), 0.1), np.ones(4)).update(np.ones(1), 1.0)
    assert len(tracker) == 5


def test_a_normalised_newest_step_of_two_is_refused():
    for step in (2.0, 3.0):
        tracker = GD(2, newest=True, step_size=step)
        with pytest.raises(DivergenceError, match="with newest=True, step_size itself"):
            tracker.update(np.ones(2), 1.0)
        assert len(tracker) == 0
    assert len(GD(2, newest=True, step_size=1.99).partial_fit(np.ones((9, 2)), np.ones(9))) == 9


@each_stochastic
def test_a_residual_that_keeps_growing_is_noticed_while_theta_is_finite(make_tracker):
    # Every row passes the first check when it comes; but the step grows, and the first rows are drawn again.
    X, y = stream(4000, 3)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X[50:] *= 0.01
    tracker = make_tracker(3, step_size=lambda n: 0.1 if n <= 50 else 300.0, seed=0)
    with pytest.raises(DivergenceError, match=r"after row \d+: .*theta is still finite"):
        tracker.partial_fit(X, y)
    assert 50 < len(tracker) < 4000
    assert np.isfinite(tracker.theta).all()
    assert np.isfinite(tracker.tracking_error().absolute)


@pytest.mark.parametrize("make_tracker", [SAGA, SVRG], ids=["SAGA", "SVRG"])
def test_a_step_that_one_row_could_bear_but_the_scheme_cannot_is_noticed(make_tracker):
    X, y = stream(2000, 4)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    tracker = make_tracker(4, step_size=1.99, regularisation=0.0, seed=0)
    with pytest.raises(DivergenceError, match=r"after row \d+"):
        tracker.partial_fit(X, y)
    assert np.isfinite(tracker.theta).all()


@pytest.mark.parametrize("lam", [10.0, 1e4, 1e12])
@each_stochastic
def test_a_ridge_that_overshoots_is_noticed_within_the_steps_of_one_row(make_tracker, lam):
    settings = {"averaging": None} if make_tracker is GD else {}
    tracker = make_tracker(3, step_size=0.5, regularisation=lam, steps=2000, seed=0, **settings)
    with pytest.raises(DivergenceError, match="after row"):
        tracker.partial_fit(np.eye(3), [1.0, 2.0, 3.0])
    assert np.isfinite(tracker.theta).all()


def test_without_the_guard_a_tracker_may_blow_up():
    X, y = stream(2000, 2)
    tracker = GD(2, step_size=5.0, averaging=None, guard=False, seed=0).partial_fit(X, y)
    assert len(tracker) == 2000
    assert not np.abs(tracker.theta).max() < 1e100


@each_tracker
def test_rewards_that_are_all_zero_are_no_reason_to_worry(make_tracker):
    X, _ = stream(300, 3)
    assert not make_tracker(3).partial_fit(X, np.zeros(300)).theta.any()


@pytest.mark.filterwarnings("ignore::driftls.errors.ConditioningWarning")
@each_tracker
@pytest.mark.parametrize("size", [1e-80, 1e-20, 1e20, 1e74])
def test_rows_of_any_size_that_is_allowed_give_finite_numbers(make_tracker, size):
    X, y = stream(400, 3)
    X = X / np.abs(X).max() * size
    for rewards in (y, y / np.abs(y).max() * 1e74):
        tracker = make_tracker(3).partial_fit(X, rewards)
        assert np.isfinite(tracker.theta).all()
        assert np.isfinite(tracker.predict(X)).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, LARGEST, 1e200])
@each_tracker
def test_anything_larger_is_refused(make_tracker, value):
    X, y = stream(10, 3)
    tracker = make_tracker(3).partial_fit(X, y)
    before = tracker.theta
    spoiled = X.copy()
    spoiled[4, 1] = value
    for attempt in (
        lambda: tracker.partial_fit(spoiled, y),
        lambda: tracker.partial_fit(sp.csr_array(spoiled), y),
        lambda: tracker.partial_fit(X, np.where(np.arange(10) == 4, value, y)),
    ):
        with pytest.raises(InputError, match="row 4: every feature and y must be finite"):
            attempt()
    for x, reward in ((spoiled[4], 1.0), (X[4], value)):
        with pytest.raises(InputError, match="row 0: every feature and y must be finite"):
            tracker.update(x, reward)
    np.testing.assert_array_equal(tracker.theta, before)
    assert len(tracker) == 10


def test_a_row_that_nlms_can_hardly_divide_by_does_no_harm():
    tracker = GD(2, newest=True, regularisation=0.01)
    tracker.partial_fit([[1.0, 0.5], [1e-9, 0.0], [1e-160, 0.0], [0.0, 0.0]], [1.0, 1.0, 1.0, 1.0])
    assert np.isfinite(tracker.theta).all()
    gentle = GD(2, newest=True, regularisation=0.01).partial_fit([[1.0, 0.5]], [1.0])
    # mu/||x||^2 would be 5e17, and its shrinkage -5e15: it is held at 1/(2 lam), a half
    assert np.abs(tracker.theta).max() <= np.abs(gentle.theta).max()


# -- what is passed ------------------------------------------------------------------------------------------------

GOOD_X, GOOD_Y = np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]), np.array([1.0, 2.0])
BLOCKS = {
    "lists": (GOOD_X.tolist(), GOOD_Y.tolist()),
    "tuples": (tuple(map(tuple, GOOD_X)), tuple(GOOD_Y)),
    "integers": (GOOD_X.astype(int), GOOD_Y.astype(np.int8)),
    "unsigned": (GOOD_X.astype(np.uint8), GOOD_Y.astype(np.uint16)),
    "float32": (GOOD_X.astype(np.float32), GOOD_Y.astype(np.float32)),
    "float16": (GOOD_X.astype(np.float16), GOOD_Y),
    "long double": (GOOD_X.astype(np.longdouble), GOOD_Y.astype(np.longdouble)),
    "big endian": (GOOD_X.astype(">f8"), GOOD_Y.astype(">f8")),
    "objects": (GOOD_X.astype(object), GOOD_Y.astype(object)),
    "fortran": (np.asfortranarray(GOOD_X), GOOD_Y),
    "strided": (np.repeat(GOOD_X, 2, axis=1)[:, ::2], np.repeat(GOOD_Y, 2)[::2]),
    "reversed": (GOOD_X[::-1][::-1], GOOD_Y[::-1][::-1]),
    "matrix": (sp.csr_matrix(GOOD_X), GOOD_Y),
    "csr": (sp.csr_array(GOOD_X), GOOD_Y),
    "csc": (sp.csc_array(GOOD_X), GOOD_Y),
    "csc matrix": (sp.csc_matrix(GOOD_X), GOOD_Y),
    "coo": (sp.coo_array(GOOD_X), GOOD_Y),
    "coo matrix": (sp.coo_matrix(GOOD_X), GOOD_Y),
    "lil": (sp.lil_array(GOOD_X), GOOD_Y),
    "dok": (sp.dok_array(GOOD_X), GOOD_Y),
    "sparse integers": (sp.csr_array(GOOD_X.astype(int)), GOOD_Y),
}


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("make_tracker", [SAGA, RLS], ids=["SAGA", "RLS"])
def test_everything_that_holds_real_numbers_is_taken_as_such(make_tracker, name):
    X, y = BLOCKS[name]
    settings = {"seed": 0} if make_tracker is SAGA else {}
    plain = make_tracker(3, **settings).partial_fit(GOOD_X, GOOD_Y)
    block = make_tracker(3, **settings).partial_fit(X, y)
    one = make_tracker(3, **settings)
    matrix = X.tocsr() if sp.issparse(X) else X
    for n in range(2):
        one.update(matrix[[n]] if sp.issparse(X) else matrix[n], y[n])
        one.update(matrix[[n]] if sp.issparse(X) else matrix[n], y[n])
    np.testing.assert_allclose(block.theta, plain.theta, rtol=0, atol=1e-14)
    assert len(one) == 4
    np.testing.assert_allclose(block.predict(X), plain.predict(GOOD_X), rtol=0, atol=1e-13)
    np.testing.assert_allclose(block.predict(X), GOOD_X @ block.theta, rtol=0, atol=1e-13)


def test_arrays_that_must_not_be_written_are_read():
    X, y = GOOD_X.copy(), GOOD_Y.copy()
    X.flags.writeable = y.flags.writeable = False
    tracker, plain = SAGA(3, seed=0).partial_fit(X, y), SAGA(3, seed=0).partial_fit(GOOD_X, GOOD_Y)
    tracker.update(X[0], y[0])
    plain.update(GOOD_X[0], GOOD_Y[0])
    assert_same_bits(tracker, plain)
    np.testing.assert_array_equal(tracker.predict(X), plain.predict(GOOD_X))


def test_what_is_passed_is_never_written_to():
    X, y = stream(50, 3)
    kept_X, kept_y = X.copy(), y.copy()
    for make_tracker in EVERY:
        make_tracker(3).partial_fit(X, y).update(X[0], y[0])
    np.testing.assert_array_equal(X, kept_X)
    np.testing.assert_array_equal(y, kept_y)


@pytest.mark.parametrize("sparse", [True, False])
def test_one_sparse_row_may_have_any_form(sparse):
    tracker = SAGA(3, seed=0)
    expected = SAGA(3, seed=0)
    first = np.array([1.0, 0.0, 2.0])
    tracker.update(sp.csr_array(first.reshape(1, -1)) if sparse else first, 1.0)
    expected.update(sp.csr_array(first.reshape(1, -1)) if sparse else first, 1.0)
    row = np.array([0.0, 3.0, 1.0])
    for x in (sp.coo_array(row), sp.csr_array(row), sp.csr_matrix(row), sp.csc_array(row.reshape(1, -1)), [0, 3, 1]):
        tracker.update(x, 2.0)
        expected.update(sp.csr_array(row.reshape(1, -1)), 2.0)
        assert_same_bits(tracker, expected)
    assert tracker.predict(sp.coo_array(row)) == tracker.predict(row)


BAD_BLOCKS = [
    (GOOD_X, 1.0, DimensionError, "one entry a row"),
    (GOOD_X, [1.0], DimensionError, "one entry a row"),
    (GOOD_X, [[1.0], [2.0]], DimensionError, "one entry a row"),
    (GOOD_X[0], GOOD_Y[:1], DimensionError, "X must be a matrix"),
    (GOOD_X[None], GOOD_Y, DimensionError, "X must be a matrix"),
    (5.0, [1.0], DimensionError, "X must be a matrix"),
    (GOOD_X[:, :2], GOOD_Y, DimensionError, "X has 2 features, but this tracker was built with dim=3"),
    (np.ones((2, 4)), GOOD_Y, DimensionError, "X has 4 features"),
    (sp.csr_array(np.ones((2, 4))), GOOD_Y, DimensionError, "X has 4 features"),
    ([[1.0, 2.0, 3.0], [1.0]], GOOD_Y, InputError, "X must be a matrix of real numbers"),
    ("text", GOOD_Y, InputError, "X must be a matrix of real numbers"),
    (None, GOOD_Y, DriftlsError, "X must be a matrix"),
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
    (GOOD_X, [1.0, None], InputError, "row 1: every feature and y must be finite"),
    (np.array([[1, None, 2]] * 2, dtype=object), GOOD_Y, InputError, "row 0: every feature and y must be finite"),
]


@pytest.mark.parametrize("started", ["fresh", "dense", "sparse"])
@pytest.mark.parametrize(("X", "y", "error", "message"), BAD_BLOCKS, ids=range(len(BAD_BLOCKS)))
def test_a_block_that_cannot_be_used_is_refused_by_name_and_changes_nothing(X, y, error, message, started):
    hurt, clean = SAGA(3, seed=0), SAGA(3, seed=0)
    if started != "fresh":
        for tracker in (hurt, clean):
            tracker.partial_fit(sp.csr_array(GOOD_X) if started == "sparse" else GOOD_X, GOOD_Y)
    with pytest.raises(error, match=message):
        hurt.partial_fit(X, y)
    assert len(hurt) == len(clean)
    for tracker in (hurt, clean):
        tracker.partial_fit(sp.csr_array(GOOD_X), GOOD_Y)
    assert hurt.history.sparse == clean.history.sparse == (started != "dense")
    assert_same_bits(hurt, clean)


BAD_ROWS = [
    (GOOD_X, 1.0, DimensionError, "one row of 3 features"),
    (sp.csr_array(GOOD_X), 1.0, DimensionError, "must be one row"),
    (np.ones((3, 1)), 1.0, DimensionError, "one row of 3 features"),
    (np.ones(2), 1.0, DimensionError, "X has 2 features"),
    (sp.csr_array(np.ones((1, 2))), 1.0, DimensionError, "X has 2 features"),
    (np.ones((1, 1, 3)), 1.0, DimensionError, "X must be a matrix"),
    (3.0, 1.0, DimensionError, "one row of 3 features"),
    ("text", 1.0, InputError, "real numbers"),
    (["1", "2", "3"], 1.0, InputError, "real numbers"),
    ([1.0, [2.0], 3.0], 1.0, InputError, "real numbers"),
    (np.ones(3) * 1j, 1.0, InputError, "real numbers"),
    (np.ones(3), "1.0", InputError, "y must be a"),
    (np.ones(3), b"1.0", InputError, "y must be a"),
    (np.ones(3), 1j, InputError, "y must be a"),
    (np.ones(3), [1.0], InputError, "y"),
    (np.ones(3), np.ones(1), InputError, "y"),
    (np.ones(3), None, InputError, "finite"),
    (np.ones(3), object(), InputError, "y must be a"),
]


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize(("x", "y", "error", "message"), BAD_ROWS, ids=range(len(BAD_ROWS)))
def test_a_row_that_cannot_be_used_is_refused_by_name(x, y, error, message, started):
    tracker = SAGA(3, seed=0)
    if started:
        tracker.partial_fit(GOOD_X, GOOD_Y)
    with pytest.raises(error, match=message):
        tracker.update(x, y)
    assert len(tracker) == (2 if started else 0)


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


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize(("X", "error"), BAD_QUERIES, ids=range(len(BAD_QUERIES)))
def test_a_query_that_cannot_be_answered_is_refused_by_name(X, error, started):
    for make_tracker in (SAGA, RLS):
        tracker = make_tracker(3)
        if started:
            tracker.partial_fit(GOOD_X, GOOD_Y)
        with pytest.raises(error):
            tracker.predict(X)


def test_queries_of_no_rows_have_no_answers():
    for X in (np.empty((0, 3)), sp.csr_array((0, 3))):
        for tracker in (SAGA(3), SAGA(3, seed=0).partial_fit(GOOD_X, GOOD_Y)):
            assert tracker.predict(X).shape == (0,)


def broken(part):
    """A sparse matrix of one row whose arrays contradict each other."""
    matrix = sp.csr_array(np.array([[1.0, 0.0, 2.0]]))
    if part == "index":
        matrix.indices[1] = 2_000_000
    elif part == "negative":
        matrix.indices[0] = -3
    elif part == "wrapped":  # 2^32 + 1 would be 1 in 32 bits
        matrix.indices = matrix.indices.astype(np.int64) + 2**32
    elif part == "pointer":
        matrix.indptr[1] = 2_000_000
    elif part == "backwards":
        matrix.indptr[:] = [2, 0]
    elif part == "data":
        matrix.data = matrix.data[:1]
    return matrix


@pytest.mark.parametrize("started", ["dense", "sparse"])
@pytest.mark.parametrize("part", ["index", "negative", "wrapped", "pointer", "backwards", "data"])
def test_a_sparse_matrix_that_contradicts_itself_is_refused_and_never_followed(part, started):
    X = sp.csr_array(GOOD_X) if started == "sparse" else GOOD_X
    hurt, clean = (SAGA(3, seed=0).partial_fit(X, GOOD_Y) for _ in range(2))
    with pytest.raises(InputError):
        hurt.partial_fit(broken(part), [1.0])
    with pytest.raises(InputError):
        hurt.predict(broken(part))
    hurt.partial_fit(X, GOOD_Y)
    clean.partial_fit(X, GOOD_Y)
    assert_same_bits(hurt, clean)


@each_case
def test_empty_blocks_change_nothing(case):
    X, y = rows()
    tracker, plain = make(case), make(case).partial_fit(X, y)
    tracker.partial_fit(np.empty((0, X.shape[1])), [])
    tracker.partial_fit(sp.csr_array((0, X.shape[1])), np.empty(0))
    tracker.partial_fit(X, y).partial_fit(X[:0], y[:0])
    assert_same_bits(tracker, plain)


@each_case
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_rows_of_zeros_are_rows(case, layout):
    X, y = rows()
    X[::3] = 0.0
    matrix = sp.csr_array(X) if layout == "sparse" else X
    tracker = make(case).partial_fit(matrix, y)
    assert len(tracker) == len(y)
    assert np.isfinite(tracker.theta).all()
    only = make(case).partial_fit(matrix[::3], y[::3])
    assert not only.theta.any()


@each_case
@pytest.mark.parametrize("first", ["dense", "sparse"])
def test_dense_and_sparse_rows_may_be_mixed(case, first):
    X, y = rows(density=0.6)
    whole = sp.csr_array(X) if first == "sparse" else X
    other = X if first == "sparse" else sp.csr_array(X)
    plain, mixed = make(case).partial_fit(whole, y), make(case).partial_fit(whole[:20], y[:20])
    mixed.partial_fit(other[20:50], y[20:50]).partial_fit(whole[50:70], y[50:70])
    for n in range(70, len(y)):
        mixed.update(other[[n]] if first == "dense" else X[n], y[n])
    assert_same_bits(mixed, plain)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SAGA(0), "dim must be a whole number of at least 1, got 0"),
        (lambda: SAGA(-3), "dim must be"),
        (lambda: SAGA(2.0), "dim must be"),
        (lambda: SAGA("3"), "dim must be"),
        (lambda: SAGA(2**31), "dim must be"),
        (lambda: SAGA(2, steps=-1), "steps must be a whole number of at least 0, got -1"),
        (lambda: SAGA(2, steps=1.5), "steps must be"),
        (lambda: SAGA(2, steps=0), "steps must be at least 1"),
        (lambda: CD(2, steps=-1), "steps must be"),
        (lambda: SAGA(2, step_size="fast"), "step_size must be a number, a Power or a function"),
        (lambda: SAGA(2, step_size=-0.1), "finite number of at least 0, got -0.1"),
        (lambda: SAGA(2, step_size=float("nan")), "finite number of at least 0"),
        (lambda: SAGA(2, regularisation=-1), "finite number of at least 0"),
        (lambda: SAGA(2, regularisation=Normalised(0.1)), "cannot be Normalised"),
        (lambda: GD(2, averaging="mean"), "averaging must be 'tail', 'polyak' or None, got 'mean'"),
        (lambda: GD(2, newest=True, step_size=Normalised(0.1)), "pass a number for step_size"),
        (lambda: SVRG(2, anchor="here"), "anchor must be 'refreshed' or 'average', got 'here'"),
        (lambda: SVRG(2, every=0), "at least 1"),
        (lambda: SVRG(2, every=2.5), "at least 1"),
        (lambda: SVRG(2, anchor="average", every=3), "only with anchor='refreshed'"),
        (
            lambda: RLS(2, method="magic"),
            "method must be one of auto, sherman-morrison, cholesky, inverse, got 'magic'",
        ),
        (lambda: RLS(2, method="sherman-morrison", regularisation=0.1), "needs n lambda_n to be constant"),
        (lambda: RLS(2, method="inverse", regularisation=0.0), "cannot be inverted in the first rounds"),
        (lambda: OLS(2, method="inverse"), "cannot be inverted in the first rounds"),
        (lambda: RLS(100_000), r"Use SAGA or Diagonal"),
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
    tracker = Diagonal(2).partial_fit(np.eye(2), [1.0, 2.0])
    with pytest.raises(SettingsError, match=r"keeps no rows.*history=Growing\(\)"):
        tracker.tracking_error()


# -- copies --------------------------------------------------------------------------------------------------------


@each_case
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy], ids=["deep", "shallow"])
def test_a_copy_goes_its_own_way(case, layout, copied):
    X, y = rows(density=0.6)
    matrix = sp.csr_array(X) if layout == "sparse" else X
    straight = make(case).partial_fit(matrix, y)
    original = make(case).partial_fit(matrix[:40], y[:40])
    other = copied(original)
    before = original.theta
    other.partial_fit(matrix[60:], y[60:])
    for n in range(30):
        other.update(matrix[[n]] if layout == "sparse" else X[n], y[n])
    np.testing.assert_array_equal(original.theta, before)
    assert len(original) == 40
    original.partial_fit(matrix[40:], y[40:])
    assert_same_bits(original, straight)


@pytest.mark.parametrize("make_tracker", [SAGA, RLS, Diagonal], ids=lambda cls: cls.__name__)
def test_a_tracker_can_be_sent_to_another_process(make_tracker):
    X, y = stream(200, 3)
    straight, sent = (make_tracker(3, **({"seed": 0} if make_tracker is SAGA else {})) for _ in range(2))
    straight.partial_fit(X, y)
    arrived = pickle.loads(pickle.dumps(sent.partial_fit(X[:90], y[:90])))
    del sent
    assert_same_bits(arrived.partial_fit(X[90:], y[90:]), straight)


def test_a_tracker_with_rows_on_disk_cannot_be_copied(tmp_path):
    tracker = SAGA(2, history=Mapped(tmp_path / "rows"), seed=0).partial_fit(np.eye(2), [1.0, 2.0])
    with pytest.raises(SettingsError, match="its folder has one owner"):
        copy.deepcopy(tracker)


# -- exact trackers at their worst ---------------------------------------------------------------------------------


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
    tracker = RLS(4, regularisation=ridge(1e-12))

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
        tracker = RLS(5, regularisation=ridge(1e-12))
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
        make_tracker(5).partial_fit(X, y)
        make_tracker(5, history=Window(100)).partial_fit(X, y)


@pytest.mark.parametrize("total", [1e-6, 1.0])
def test_an_inversion_of_what_is_singular_to_the_last_digit_raises_nothing(total):
    # 1e18 + 1e-6 is 1e18: LAPACK would meet a pivot of exactly 0 and give up in the middle of a row
    X = np.array([[1e9, 1e9, 0.0], [1e9, 1e9, 0.0], [0.0, 0.0, 2.0]])
    tracker = RLS(3, regularisation=ridge(total), method="inverse")
    for x in X:
        tracker.update(x, 1.0)
    assert len(tracker) == 3
    assert np.isfinite(tracker.theta).all()
    assert tracker.theta[2] == pytest.approx(2.0 / (4.0 + total), rel=1e-12)
    assert (np.diag(tracker._state.inverse) > 0.0).all()


@pytest.mark.parametrize("units", [1e-6, 1e6, 1e9])
@pytest.mark.filterwarnings("ignore::driftls.errors.ConditioningWarning")
def test_the_units_of_a_feature_do_not_matter(units):
    X, y = stream(300, 4)
    scale = np.array([1.0, units, 1.0, 1.0 / units])
    for method in ("auto", "cholesky"):
        exact = OLS(4, method="cholesky").partial_fit(X, y).theta
        tracker = OLS(4, method=method).partial_fit(X * scale, y)
        np.testing.assert_allclose(tracker.theta * scale, exact, rtol=0, atol=1e-11)
    few = X[:2] * scale  # more features than rows: the solution of least norm
    least = np.linalg.pinv(few, rcond=1e-30) @ y[:2] if units < 1e7 else None
    tracker = OLS(4).partial_fit(few, y[:2])
    largest = np.abs(few).max() * np.abs(tracker.theta).max()
    np.testing.assert_allclose(few @ tracker.theta, y[:2], rtol=0, atol=100 * EPS * largest)
    if least is not None:
        assert np.linalg.norm(tracker.theta) <= np.linalg.norm(least) * (1 + 1e-6)


def test_after_many_rows_sherman_morrison_still_equals_the_solution():
    X, y = stream(100_000, 8)
    fast, slow = RLS(8).partial_fit(X, y), RLS(8, method="cholesky").partial_fit(X, y)
    assert fast.route == "sherman-morrison"
    assert fast.refactorisations == 0
    np.testing.assert_allclose(fast.theta, slow.theta, rtol=0, atol=1e-8)
    inverse = np.linalg.inv(slow._sums()[0])
    np.testing.assert_allclose(fast._state.inverse, inverse, rtol=0, atol=1e-8 * np.abs(inverse).max())


def test_ols_goes_over_to_sherman_morrison_once_it_can():
    X, y = stream(60, 6)
    tracker = OLS(6)
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
    tracker = OLS(4).partial_fit(X, y)
    assert tracker.route == "cholesky"
    np.testing.assert_allclose(tracker.theta, np.linalg.lstsq(X, y, rcond=None)[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("capacity", [6, 12, 60])
@pytest.mark.filterwarnings("ignore::driftls.errors.ConditioningWarning")
def test_window_downdates_stay_right_over_many_rows(capacity):
    X, y = stream(20_000, 6)
    for make_tracker in (RLS, OLS):
        tracker = make_tracker(6, history=Window(capacity))
        for first in range(0, 20_000, 1000):
            tracker.partial_fit(X[first : first + 1000], y[first : first + 1000])
            newest = slice(first + 1000 - capacity, first + 1000)
            total = 1.0 if make_tracker is RLS else 0.0
            exact = exactly(X[newest], y[newest], int(total))
            tolerance = 1e3 * EPS * condition(X[newest], total) * np.abs(exact).max()
            np.testing.assert_allclose(tracker.theta, exact, rtol=0, atol=max(tolerance, 1e-11))


# -- forgetting and shrinking for a very long time -----------------------------------------------------------------

LONG = 60_000


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
    for tracker in (RLS(3, discount=0.9), RLS(3, discount=0.9, method="inverse"), CD(3, discount=0.9, steps=40)):
        np.testing.assert_allclose(tracker.partial_fit(X, y).theta, exact, rtol=0, atol=1e-10)
    cd = CD(3, discount=0.9, steps=40).partial_fit(X, y)
    np.testing.assert_allclose(cd.target.theta, exact, rtol=0, atol=1e-10)


def test_classic_forgetting_stays_right_for_a_very_long_time(long_stream):
    X, y = long_stream
    tracker = RLS(3, discount=0.9, method="sherman-morrison").partial_fit(X, y)
    np.testing.assert_allclose(tracker.theta, discounted(X, y, 0.9, 0.0), rtol=0, atol=1e-10)


@pytest.mark.filterwarnings("ignore::driftls.errors.ConditioningWarning")
def test_classic_forgetting_survives_a_feature_that_is_silent_for_long():
    X, y = stream(12_000, 3, seed=5)
    X[500:11_000, 2] = 0.0  # 0.9^-10500 is infinite: the inverse winds up
    y = X @ [1.0, -2.0, 3.0]
    tracker = RLS(3, discount=0.9, method="sherman-morrison")
    tracker.partial_fit(X[:11_000], y[:11_000])
    assert np.isfinite(tracker.theta).all()
    np.testing.assert_allclose(tracker.theta[:2], [1.0, -2.0], rtol=0, atol=1e-9)
    for n in range(11_000, 12_000):
        tracker.update(X[n], y[n])
        assert np.isfinite(tracker.theta).all()
    np.testing.assert_allclose(tracker.theta, [1.0, -2.0, 3.0], rtol=0, atol=1e-9)


def test_a_discounted_diagonal_equals_the_oracle_for_a_very_long_time(long_stream):
    X, y = long_stream
    tracker = Diagonal(3, discount=0.9).partial_fit(X, y)
    np.testing.assert_allclose(tracker.theta, naive.diagonal(X, y, 1.0, discount=0.9)[-1], rtol=0, atol=1e-11)


def test_a_discounted_diagonal_knows_the_target_that_forgets_as_it_does():
    X, y = stream(2000, 3)
    exact = discounted(X, y, 0.95, 1.0)
    for matrix in (X, sp.csr_array(X)):
        tracker = Diagonal(3, discount=0.95, history=Growing()).partial_fit(matrix, y)
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
    tracker = GD(3, **settings).partial_fit(sp.csr_array(X) if layout == "sparse" else X, y)
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
    tracker = GD(3, step_size=scale, regularisation=ridge(1.0), averaging="polyak", steps=6, seed=2)
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
    X, y = stream(400, 3)
    X /= 3 * np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    assert (1 - 0.4) ** (400 * 3) < 1e-240
    expected = oracle(X, y, uniforms(1), lambda *_: 0.8, lambda n: 0.5, steps=3)[-1]
    settings = {"every": 50} if make_tracker is SVRG else {}
    tracker = make_tracker(3, step_size=0.8, regularisation=0.5, steps=3, seed=1, **settings)
    tracker.partial_fit(sp.csr_array(X) if layout == "sparse" else X, y)
    np.testing.assert_allclose(tracker.theta, expected, rtol=0, atol=1e-11)
