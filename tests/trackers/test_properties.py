"""What must hold for any data: symmetries, limits, and the solution that a tracker is on its way to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases import CASES, HISTORIES, combinations, make, name
from driftls import Normalised, Power, ridge
from driftls.history import Growing, Reservoir, Window
from driftls.kernels.learn import NOTHING
from driftls.trackers import CD, GD, OLS, RAW, RLS, SAG, SAGA, SVRG, Diagonal

# The same examples in every run: a tracker that fails today fails tomorrow.
few = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=5,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)
seeds = st.integers(0, 2**32 - 1)
DIM = 6
every = pytest.mark.parametrize(("case", "history"), combinations(), ids=[name(*both) for both in combinations()])
each_layout = pytest.mark.parametrize("layout", ["dense", "sparse"])


def stream(seed: int, count: int = 60, dim: int = DIM, density: float = 1.0) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(count, dim)) * (generator.random((count, dim)) < density)
    X *= np.minimum(1.0, 2.0 / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9))
    return X, X @ generator.normal(size=dim) + 0.1 * generator.normal(size=count)


# -- symmetries ----------------------------------------------------------------------------------------------------


@few
@given(seed=seeds, scales=st.lists(st.floats(1e-3, 1e3), min_size=DIM, max_size=DIM), count=st.integers(20, 80))
def test_ols_is_equivariant_under_scaling_of_each_feature(seed, scales, count):
    X, y = stream(seed, count)
    scale = np.array(scales)
    one, two = (
        OLS(DIM, **RAW).partial_fit(X, y).theta,
        OLS(DIM, **RAW).partial_fit(X * scale, y).theta,
    )
    np.testing.assert_allclose(two * scale, one, rtol=0, atol=1e-9 * np.abs(one).max())


@few
@given(seed=seeds, scale=st.floats(1e-3, 1e3))
def test_rls_is_equivariant_when_rows_and_ridge_scale_together(seed, scale):
    X, y = stream(seed)
    one = RLS(DIM, regularisation=ridge(2.0), **RAW).partial_fit(X, y).theta
    two = RLS(DIM, regularisation=ridge(2.0 * scale**2), **RAW).partial_fit(scale * X, y).theta
    np.testing.assert_allclose(two * scale, one, rtol=0, atol=1e-12 * max(1.0, np.abs(one).max()))


@few
@given(seed=seeds, scale=st.floats(1e-3, 1e3))
@pytest.mark.parametrize("make_tracker", [GD, SAG, SAGA, SVRG])
def test_a_normalised_step_does_not_see_the_size_of_rows(make_tracker, seed, scale):
    X, y = stream(seed)
    one = make_tracker(DIM, regularisation=ridge(2.0), seed=1, **RAW).partial_fit(X, y).theta
    two = make_tracker(DIM, regularisation=ridge(2.0 * scale**2), seed=1, **RAW).partial_fit(scale * X, y).theta
    np.testing.assert_allclose(two * scale, one, rtol=0, atol=1e-10 * max(1.0, np.abs(one).max()))


@pytest.mark.parametrize("power", [-30, -12, 12, 30])
@each_layout
@pytest.mark.parametrize("make_tracker", [GD, SAG, SAGA, SVRG])
def test_units_that_are_a_power_of_two_change_no_bit(make_tracker, layout, power):
    # Nor, then, when O(d) work is done: no threshold within may have a unit.
    X, y = stream(1, 400)
    kind = sp.csr_array if layout == "sparse" else np.array
    scale = 2.0**power
    one = make_tracker(DIM, regularisation=ridge(2.0), seed=1, **RAW).partial_fit(kind(X), y).theta
    two = make_tracker(DIM, regularisation=ridge(2.0 * scale**2), seed=1, **RAW).partial_fit(kind(scale * X), y).theta
    np.testing.assert_array_equal(two * scale, one)


@pytest.mark.parametrize("make_tracker", [SAG, SAGA, SVRG])
def test_lazy_sums_lose_no_digits_in_a_window_without_a_ridge(make_tracker):
    # Q grows without end here; theta must still settle on the noiseless solution, to rounding
    X, _ = stream(2, 60_000)
    truth = np.arange(1.0, DIM + 1.0)
    tracker = make_tracker(DIM, regularisation=0.0, history=Window(40), seed=0, **RAW).partial_fit(X, X @ truth)
    np.testing.assert_allclose(tracker.theta, truth, rtol=0, atol=1e-11)


@few
@given(seed=seeds, order=st.permutations(range(DIM)))
@each_layout
@every
def test_permuting_the_coordinates_permutes_theta(case, history, layout, seed, order):
    X, y = stream(seed, density=0.7)
    kind = sp.csr_array if layout == "sparse" else np.array
    one = make(case, history).partial_fit(kind(X), y).theta
    two = make(case, history).partial_fit(kind(X[:, order]), y).theta
    np.testing.assert_allclose(two, one[order], rtol=0, atol=10 * case.exact_to * max(1.0, np.abs(one).max()))


@few
@given(seed=seeds, factor=st.one_of(st.sampled_from([2.0, -1.0, 0.5]), st.floats(-50.0, 50.0)))
@every
def test_theta_is_linear_in_the_rewards(case, history, seed, factor):
    X, y = stream(seed)
    one, two = make(case, history).partial_fit(X, y).theta, make(case, history).partial_fit(X, factor * y).theta
    size = max(1.0, np.abs(one).max()) * max(1.0, abs(factor))
    np.testing.assert_allclose(two, factor * one, rtol=0, atol=10 * case.exact_to * size)
    if abs(factor) in (0.5, 1.0, 2.0):  # a power of two rounds nothing
        np.testing.assert_array_equal(two, factor * one)


@few
@given(seed=seeds)
@pytest.mark.parametrize("case", [case for case in CASES if not case.name.startswith(("CD", "Auto"))], ids=name)
def test_rewards_add_up(case, seed):
    # Not CD: which coordinate is worst depends on the rewards. Nor AutoDiscount, whose weights do.
    X, y = stream(seed)
    other = X @ np.ones(DIM)
    theta = {name: make(case).partial_fit(X, v).theta for name, v in {"y": y, "z": other, "sum": y + other}.items()}
    size = max(1.0, *(np.abs(value).max() for value in theta.values()))
    np.testing.assert_allclose(theta["sum"], theta["y"] + theta["z"], rtol=0, atol=10 * case.exact_to * size)


# -- limits --------------------------------------------------------------------------------------------------------


@few
@given(seed=seeds, power=st.integers(4, 20))
@pytest.mark.parametrize("make_tracker", [GD, SAG, SAGA, SVRG, CD, Diagonal, RLS])
def test_a_ridge_without_bounds_sends_theta_to_zero(make_tracker, seed, power):
    X, y = stream(seed)
    total = 10.0**power
    seeded = {} if make_tracker in (CD, Diagonal, RLS) else {"seed": 0}
    theta = make_tracker(DIM, regularisation=ridge(total), **seeded, **RAW).partial_fit(X, y).theta
    # ||(A + total)^-1 b|| <= ||b||/total; a step of at most 1/(2 lam) = n/(2 total) sees no more than n rewards.
    bound = np.linalg.norm(X, axis=1).max() * np.abs(y).max() * len(y) / total
    assert np.linalg.norm(theta) <= 2 * bound


@few
@given(seed=seeds)
def test_rls_tends_to_ols_as_the_ridge_goes(seed):
    X, y = stream(seed)
    exact = OLS(DIM, **RAW).partial_fit(X, y).theta
    for total in (1e-3, 1e-6):
        close = RLS(DIM, regularisation=ridge(total), method="cholesky", **RAW).partial_fit(X, y).theta
        smallest = np.linalg.eigvalsh(X.T @ X)[0]
        assert np.linalg.norm(close - exact) <= total / smallest * np.linalg.norm(exact) + 1e-10


class Places(np.random.Generator):
    """A generator that leaves out every uniform that a reservoir would have drawn for a place."""

    def __init__(self, seed, steps):
        super().__init__(np.random.PCG64(seed))
        self.steps = steps

    def random(self, out):
        size = (self.steps + 1) * (-(-out.size // self.steps))
        out[:] = super().random(size).reshape(-1, self.steps + 1)[:, 1:].ravel()[: out.size]


@few
@given(seed=seeds, steps=st.integers(1, 4), count=st.integers(5, 80), layout=st.sampled_from(["dense", "sparse"]))
@pytest.mark.parametrize("make_tracker", [GD, SAG, SAGA, SVRG])
def test_a_reservoir_that_never_fills_is_a_growing_history_up_to_its_own_draws(
    make_tracker, seed, steps, count, layout
):
    X, y = stream(seed, count)
    matrix = sp.csr_array(X) if layout == "sparse" else X
    reservoir = make_tracker(DIM, steps=steps, seed=seed, history=Reservoir(count), **RAW).partial_fit(matrix, y)
    growing = make_tracker(DIM, steps=steps, seed=Places(seed, steps), **RAW).partial_fit(matrix, y)
    np.testing.assert_array_equal(growing.theta, reservoir.theta)


# -- the solution --------------------------------------------------------------------------------------------------


@few
@given(seed=seeds)
@each_layout
@every
def test_the_target_is_the_minimiser_of_the_trackers_own_objective(case, history, layout, seed):
    if case.name in ("NLMS", "OLS") or (case.name == "Diagonal discount" and history is None):
        return  # no history, or no ridge: below
    X, y = stream(seed, density=0.8)
    kind = sp.csr_array if layout == "sparse" else np.array
    tracker = make(case, history)
    keeps = tracker.history.kind != NOTHING
    if not keeps and not isinstance(tracker, CD | RLS):
        return
    theta = tracker.partial_fit(kind(X), y).target.theta
    n = len(y)
    discount = getattr(tracker, "discount", 1.0)
    held_X, held_y = tracker.history.matrix() if keeps else (X, y)
    held_X = held_X.toarray() if sp.issparse(held_X) else held_X
    m = len(held_y)
    lam = tracker.regularisation(m if isinstance(tracker.history, Window) else n)
    weights = discount ** np.arange(m - 1.0, -1.0, -1.0)
    fading = discount**n if case.name == "RLS fading" else 1.0
    gradient = held_X.T @ (weights * (held_X @ theta - held_y)) + fading * m * lam * theta
    size = np.abs(held_X.T @ held_y).max() + m * np.abs(theta).max()
    np.testing.assert_allclose(gradient, 0.0, atol=1e-11 * size)


# What is left after hundreds of passes: rounding for SAG and SAGA; for SVRG what one row changed since its anchor; for
# GD the noise of its last steps, averaged or shrunk.
SOLVERS = {
    "SAGA": (lambda **k: SAGA(DIM, **k, **RAW), 1e-12),
    "SAG": (lambda **k: SAG(DIM, **k, **RAW), 1e-12),
    "SVRG": (lambda **k: SVRG(DIM, every=1, **k, **RAW), 0.03),
    "SVRG average": (lambda **k: SVRG(DIM, anchor="average", step_size=Normalised(0.05), **k, **RAW), 0.1),
    "GD tail": (lambda **k: GD(DIM, step_size=Normalised(0.1), **k, **RAW), 0.1),
    "GD, a step that shrinks": (lambda **k: GD(DIM, step_size=Power(0.5, 40.0, 1.0), averaging=None, **k, **RAW), 0.03),
}


@settings(few, max_examples=2)
@given(seed=seeds)
@pytest.mark.parametrize("history", list(HISTORIES))
@pytest.mark.parametrize("solver", SOLVERS)
def test_many_passes_lead_every_stochastic_tracker_to_its_target(solver, history, seed):
    X, y = stream(seed, 40)
    build, tolerance = SOLVERS[solver]
    many, single = (
        build(steps=steps, seed=seed, history=HISTORIES[history][0](), regularisation=ridge(1.0)).partial_fit(X, y)
        for steps in (8000, 1)
    )
    assert many.tracking_error().relative < tolerance
    assert many.tracking_error().relative < single.tracking_error().relative


@few
@given(seed=seeds)
def test_coordinate_descent_comes_to_its_target(seed):
    X, y = stream(seed)
    for tracker in (
        CD(DIM, steps=200, **RAW),
        CD(DIM, steps=200, discount=0.9, **RAW),
        CD(DIM, steps=200, history=Window(25), **RAW),
    ):
        assert tracker.partial_fit(X, y).tracking_error().relative < 1e-8


@few
@given(seed=seeds)
def test_diagonal_is_exact_where_features_never_overlap(seed):
    generator = np.random.default_rng(seed)
    X = np.eye(DIM)[generator.integers(0, DIM, size=80)] * generator.normal(size=(80, 1))
    y = X @ generator.normal(size=DIM) + generator.normal(size=80)
    tracker = Diagonal(DIM, history=Growing(), **RAW).partial_fit(X, y)
    assert tracker.tracking_error().relative < 1e-12


@few
@given(seed=seeds, count=st.integers(1, 5))
def test_ols_of_too_few_rows_is_the_solution_of_least_norm(seed, count):
    X, y = stream(seed, count)
    theta = OLS(DIM, **RAW).partial_fit(X, y).theta
    singular = np.linalg.svd(X, compute_uv=False)
    tolerance = 1e3 * 2.3e-16 * (singular[0] / singular[-1]) ** 2 * max(1.0, np.abs(theta).max())
    np.testing.assert_allclose(X @ theta, y, rtol=0, atol=tolerance)
    np.testing.assert_allclose(theta, np.linalg.pinv(X) @ y, rtol=0, atol=tolerance)
