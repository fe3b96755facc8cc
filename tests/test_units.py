"""Rescaling a feature, or the rewards by a positive affine map, changes no decision and every prediction alike."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from driftls.features import CrossedArms, Features
from driftls.history import Window
from driftls.policies import DisjointLinUCB, LinTS, LinUCB
from driftls.trackers import CD, GD, OLS, RLS, SAG, SAGA, SVRG, AutoDiscount, Diagonal
from driftls.widths import CentredWidth, DiagonalWidth

DIM, ROWS = 5, 120
TRACKERS = {
    "RLS": lambda: RLS(DIM),
    "OLS": lambda: OLS(DIM),
    "CD": lambda: CD(DIM),
    "CD, discounted": lambda: CD(DIM, discount=0.95),
    "SAGA": lambda: SAGA(DIM, seed=0),
    "SAG": lambda: SAG(DIM, seed=0),
    "SVRG": lambda: SVRG(DIM, seed=0),
    "GD": lambda: GD(DIM, seed=0),
    "GD, last iterate": lambda: GD(DIM, averaging=None, seed=0),
    "NLMS": lambda: GD(DIM, newest=True),
    "Diagonal": lambda: Diagonal(DIM),
    "AutoDiscount": lambda: AutoDiscount(DIM),
}
POLICIES = {
    "LinUCB": lambda: LinUCB(DIM, seed=1),
    "LinTS": lambda: LinTS(DIM, seed=1),
    "DisjointLinUCB": lambda: DisjointLinUCB(DIM, seed=1),
}
LAYOUTS = {"dense": np.array, "sparse": sp.csr_array}


def table(seed: int, sparse: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rows with features of several sizes and means, one of them rare, and rewards that depend on them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS, DIM)) * [1.0, 20.0, 0.1, 1.0, 1.0] + ([0.0, 5.0, 0.0, 1.0, 0.0] if not sparse else 0.0)
    X[:, 4] *= rng.random(ROWS) < 0.3
    if sparse:
        X *= rng.random((ROWS, DIM)) < 0.6
    return X, X @ [1.0, 0.05, 8.0, -1.0, 0.5] + 3.0 + 0.1 * rng.normal(size=ROWS)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [name for name in TRACKERS if name != "OLS"])  # which has no ridge to be measured
@given(
    powers=st.lists(st.integers(-30, 30), min_size=DIM, max_size=DIM),
    reward=st.integers(-20, 20),
    seed=st.integers(0, 9),
)
@settings(max_examples=5, deadline=None)
def test_powers_of_two_change_predictions_to_the_bit(name, layout, powers, reward, seed):
    X, y = table(seed, layout == "sparse")
    kind, factor, of_y = LAYOUTS[layout], 2.0 ** np.array(powers), 2.0**reward
    plain = TRACKERS[name]().partial_fit(kind(X), y)
    scaled = TRACKERS[name]().partial_fit(kind(X * factor), y * of_y)
    np.testing.assert_array_equal(scaled.predict(kind(X * factor)), of_y * plain.predict(kind(X)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["RLS", "OLS", "CD", "SAGA", "GD", "Diagonal", "AutoDiscount"])
def test_any_factor_and_shift_of_rewards_change_predictions_alike(name, layout):
    X, y = table(1, layout == "sparse")
    kind, factor = LAYOUTS[layout], 10.0 ** np.random.default_rng(2).uniform(-3, 3, DIM)
    plain = TRACKERS[name]().partial_fit(kind(X), y)
    scaled = TRACKERS[name]().partial_fit(kind(X * factor), 7.0 * y + 13.0)
    np.testing.assert_allclose(scaled.predict(kind(X * factor)), 7.0 * plain.predict(kind(X)) + 13.0, rtol=1e-7)


def decisions(policy, X, y, kind):
    """Of one model: rows as arms, four a round; of one an arm: rows as users."""
    chosen = []
    for n in range(0, ROWS, 1 if policy.disjoint else 4):
        if not policy.disjoint:
            arms = kind(X[n : n + 4])
            k = policy.choose(arms)
            policy.learn(arms, float(y[n + k]), arm=k)
        else:
            k = policy.choose(kind(X[n : n + 1]), ids=["a", "b", "c"])
            policy.learn(kind(X[n : n + 1]), float(y[n] * (k == n % 3)), arm=k, ids=["a", "b", "c"])
        chosen.append(k)
    return chosen


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", POLICIES)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=5, deadline=None)
def test_no_decision_of_a_default_policy_depends_on_units(name, layout, seed):
    rng = np.random.default_rng(seed)
    X, y = table(seed, layout == "sparse")
    plain = decisions(POLICIES[name](), X, y, LAYOUTS[layout])
    for factor, of_y in ((2.0 ** rng.integers(-20, 20, DIM), 4.0), (10.0 ** rng.uniform(-3, 3, DIM), 3.7)):
        assert decisions(POLICIES[name](), X * factor, y * of_y, LAYOUTS[layout]) == plain


def over_crosses(X, y, blocks, shared):
    """Choices and scores of a default LinUCB over crosses of the rows with three of so many arms."""
    policy, chosen, seen = LinUCB((blocks + shared) * DIM, seed=0), [], []
    for n in range(ROWS):
        arms = CrossedArms(X[n], [0, blocks // 2, 2] if n < 60 else [2, 0, 1], blocks, shared)
        scores, k = policy.scores(arms), policy.choose(arms)
        seen += [scores] if n > 3 else []  # kappa is in units of the rewards once there was an error
        chosen.append(k)
        policy.learn(arms, float(y[n] * (k == n % 3)), arm=k)
    return chosen, np.array(seen)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("blocks", [3, 50])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=5, deadline=None)
def test_no_decision_over_crosses_depends_on_units(blocks, shared, seed):
    """A few, for the exact method, and so many that they are scored without a row for each; no user has a constant."""
    rng = np.random.default_rng(seed)
    X, y = table(seed, False)
    plain, before = over_crosses(X, y, blocks, shared)
    chosen, after = over_crosses(X * 2.0 ** rng.integers(-20, 20, DIM), 4.0 * y, blocks, shared)
    assert chosen == plain
    np.testing.assert_array_equal(after, 4.0 * before)
    assert over_crosses(X * 10.0 ** rng.uniform(-3, 3, DIM), 3.7 * y, blocks, shared)[0] == plain


def over_alike(kind, layout, X, factor, of_y, seed):
    """Choices over 300 rounds where many arms are alike at first: entries are 0 or 1, and so are rewards."""
    wants, luck = np.random.default_rng(seed).random((12, DIM)), np.random.default_rng(seed + 1).random((300, 12))
    pool = np.vstack([np.eye(DIM), np.eye(DIM) + np.roll(np.eye(DIM), 1, axis=0)])
    policy = (
        DisjointLinUCB(DIM, seed=1) if kind == "disjoint" else LinUCB(DIM * 4 if kind == "crosses" else DIM, seed=1)
    )
    ids, chosen = list("abcdefgh") if kind in ("disjoint", "recurring") else None, []
    for n in range(300):
        user = X[n] * factor
        arms = CrossedArms(user, [0, 1, 2], 3, shared=True) if kind == "crosses" else LAYOUTS[layout]([user])
        if kind in ("pool", "recurring"):
            arms = LAYOUTS[layout](pool[:8] * factor)
        k = policy.choose(arms, ids=ids)
        wanted = pool[k] @ wants[0] if kind in ("pool", "recurring") else 0.3 * X[n] @ wants[k]
        policy.learn(arms, of_y * float(luck[n, k] < wanted / 2.0), arm=k, ids=ids)
        chosen.append(k)
    return chosen


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["pool", "recurring", "disjoint", "crosses"])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=3, deadline=None)
def test_rounding_does_not_decide_between_arms_that_tie(kind, layout, seed):
    """Scores within 1e-9 are equal: whatever units features and rewards have, all decisions are the same."""
    X = (np.random.default_rng(seed).random((300, DIM)) < 0.4) * 1.0
    plain = over_alike(kind, layout, X, 1.0, 1.0, seed)
    for factor, of_y in ((3.0, 1.0), (0.7, 0.7), (1e5, 1.0), (np.array([3.0, 0.7, 1e5, 1.0, 1e-3]), 3.0)):
        assert over_alike(kind, layout, X, factor, of_y, seed) == plain


def test_a_shift_of_the_rewards_changes_no_decision():
    X, y = table(3, False)
    for make in (POLICIES["LinUCB"], POLICIES["LinTS"]):
        assert decisions(make(), X, y + 1000.0, np.array) == decisions(make(), X, y, np.array)


def test_rls_is_ridge_regression_on_standardised_rows():
    X, y = table(4, False)
    tracker = RLS(DIM).partial_fit(X, y)
    unit, mean = tracker.units.arrays["unit"], tracker.units.arrays["means"]
    Z = np.column_stack([(X - mean) * unit, np.full(ROWS, tracker.units.frame["constant"])])
    theta = np.linalg.solve(Z.T @ Z + np.eye(DIM + 1), Z.T @ (y - tracker.units.frame["offset"]))
    np.testing.assert_allclose(tracker.coefficients(), theta, atol=1e-9)
    np.testing.assert_allclose(tracker.predict(X), Z @ theta + tracker.units.frame["offset"], atol=1e-9)
    np.testing.assert_allclose(X @ tracker.theta + tracker.intercept_, tracker.predict(X), atol=1e-9)


def test_units_are_the_spread_of_dense_features_and_the_size_of_sparse_ones():
    X, y = table(5, False)
    dense, sparse = RLS(DIM).partial_fit(X, y), RLS(DIM).partial_fit(sp.csr_array(X), y)
    for tracker in (dense, sparse):
        tracker.look()
    n = float(ROWS)
    square = (X**2).sum(0) / (X != 0).sum(0)
    spread = square - X.mean(0) ** 2 * (1.0 - 0.5**n)
    np.testing.assert_allclose(dense.units.arrays["unit"], 1 / np.sqrt(spread), rtol=0.03)  # small changes wait
    rare = np.arange(DIM) == 4  # which few rows have
    np.testing.assert_allclose(sparse.units.arrays["unit"], 1 / np.sqrt(np.where(rare, square, spread)), rtol=0.03)
    np.testing.assert_array_equal(sparse.units.arrays["means"], np.where(rare, 0.0, dense.units.arrays["means"]))


def with_gaps(seed=8, far=0.0, lacking=0.05):
    """Rows of three numbers, the first of which some rows lack (from the fortieth on), and a category of two; and rewards."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(ROWS, 3)) + far, np.eye(2)[rng.integers(0, 2, ROWS)]])
    y = X @ [1.0, -2.0, 0.5, 1.0, -1.0] + 0.1 * rng.normal(size=ROWS)
    X[40:, 0] *= rng.random(ROWS - 40) >= lacking
    return X, y


@pytest.mark.parametrize("name", ["RLS", "CD", "SAGA", "SVRG", "GD"])
def test_sparse_rows_that_lack_nothing_are_learned_as_dense_ones(name):
    X, y = with_gaps(far=50.0, lacking=0.0)
    rows = np.column_stack([X[:, :3], X[:, :2] ** 2])
    dense, sparse = (TRACKERS[name]().partial_fit(layout(rows), y) for layout in LAYOUTS.values())
    np.testing.assert_allclose(sparse.predict(sp.csr_array(rows)), dense.predict(rows), rtol=1e-7)


def test_only_what_every_row_has_had_is_centred():
    for far, lacking, centred in [(0.0, 0.0, 3), (50.0, 0.0, 3), (0.0, 0.05, 2), (50.0, 0.05, 2), (50.0, 0.5, 2)]:
        X, y = with_gaps(far=far, lacking=lacking)
        means = RLS(DIM).partial_fit(sp.csr_array(X), y).units.arrays["means"]
        np.testing.assert_array_equal(np.flatnonzero(means), np.arange(3)[3 - centred :])


@pytest.mark.parametrize("name", ["RLS", "CD", "SAGA"])
def test_a_0_where_all_rows_had_a_number_is_a_0(name):
    """The rewards are linear in what the rows are, zeros among it: nothing may stand for the mean"""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(600, 3)) * 2.0 + [20.0, -5.0, 20.0]
    X[60:] *= rng.random((540, 3)) >= 0.03
    y = X @ [1.0, 2.0, -0.5] + 3.0 + 0.1 * rng.normal(size=600)
    tracker = {"RLS": RLS, "CD": CD, "SAGA": SAGA}[name](3)
    tracker.partial_fit(sp.csr_array(X[:60]), y[:60])
    assert np.count_nonzero(tracker.units.arrays["means"]) == 3
    tracker.partial_fit(sp.csr_array(X[60:]), y[60:])
    assert not tracker.units.arrays["means"].any()
    assert np.mean((tracker.predict(sp.csr_array(X)) - y) ** 2) < (1.0 if name == "SAGA" else 0.1)


@pytest.mark.parametrize("capacity", [None, 30])
@pytest.mark.parametrize("name", ["RLS", "CD"])
def test_sums_are_those_of_the_rows_in_their_units(name, capacity):
    X, y = with_gaps(far=50.0)
    tracker = {"RLS": RLS, "CD": CD}[name](DIM, **({"history": Window(capacity)} if capacity else {}))
    for n in range(ROWS):
        tracker.update(sp.csr_array(X[n : n + 1]), y[n])
    units = tracker.units
    held, held_y = (X[-capacity:], y[-capacity:]) if capacity else (X, y)
    Z = (held - units.arrays["means"]) * units.arrays["unit"]
    Z = np.column_stack([Z, np.full(len(held), units.frame["constant"])])
    A, b = tracker.sums()
    np.testing.assert_allclose(A, Z.T @ Z + (name == "RLS") * np.eye(DIM + 1), atol=1e-7)
    np.testing.assert_allclose(b, Z.T @ (held_y - units.frame["offset"]), atol=1e-7)


@pytest.mark.parametrize("width", [DiagonalWidth, CentredWidth])
def test_widths_follow_a_sparse_feature_that_is_centred(width):
    X, y = with_gaps(far=50.0, lacking=0.0)
    policy = LinUCB(tracker=SAGA(DIM, seed=0), width=width(), seed=0)
    for n in range(0, ROWS, 2):
        arms = sp.csr_array(X[n : n + 2])
        k = policy.choose(arms)
        policy.learn(arms, y[n + k], arm=k)
    tracker, opened = policy._models[0]
    squares = (tracker.history.matrix()[0].toarray() ** 2).sum(0)
    np.testing.assert_allclose(
        opened.arrays["squares"][:DIM], squares[:DIM], rtol=1e-9 if width is CentredWidth else 0.5
    )


NUMBERS = {
    "of users": lambda: DisjointLinUCB(features=Features(), seed=0),
    "of items": lambda: LinUCB(features=Features(), seed=0),
}


def reward_of(kind, far, seed):
    """The mean over 400 rounds with dicts, in which two numbers are moved by so many of their spreads."""
    policy, rng, total, ids = NUMBERS[kind](), np.random.default_rng(seed), 0.0, list("abc")
    wants = rng.normal(size=(3, 2))
    for n in range(400):
        Z = rng.normal(size=(3, 2))
        dicts = [{"size": "ml"[n % 2]} | {f"n{j}": far + z[j] for j in range(2)} for z in Z]
        rewards = Z @ wants[0] if kind == "of items" else wants @ Z[0]
        if kind == "of items":
            arm = policy.choose(dicts)
            policy.learn(dicts, rewards[arm], arm=arm)
        else:
            arm = policy.choose(dicts[0], ids=ids)
            policy.learn(dicts[0], rewards[arm], arm=arm, ids=ids)
        total += rewards[arm]
    return total / 400


@pytest.mark.parametrize("far", [3.0, 30.0, 1e4])
@pytest.mark.parametrize("kind", NUMBERS)
def test_moving_the_numbers_of_dicts_changes_hardly_what_is_won(kind, far):
    """Of 400 rounds some 25 go by until it is known how little numbers vary that lie 10,000 spreads from 0."""
    moved, still = (np.mean([reward_of(kind, at, seed) for seed in range(8)]) for at in (far, 0.0))
    assert moved > 0.85 * still


def test_a_large_feature_does_not_keep_saga_from_learning():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4)) * [1.0, 1e5, 1.0, 1e-4] + [0.0, 3e5, 300.0, 0.0]
    y = (X - X.mean(0)) / X.std(0) @ [1.0, 1.0, 1.0, 1.0] + 0.1 * rng.normal(size=3000)
    saga, exact = SAGA(4, seed=0).partial_fit(X, y), RLS(4).partial_fit(X, y)
    error, best = (float(np.sqrt(np.mean((t.predict(X) - y) ** 2))) for t in (saga, exact))
    assert error < 1.1 * best < 0.12  # the rewards have a standard deviation of 2


@pytest.mark.parametrize("name", ["RLS", "CD", "SAGA"])
def test_a_rare_feature_whose_first_value_is_near_0_does_not_make_predictions_explode(name):
    """Sizes of a feature that was seen once or twice are chance, and ratios of chance values have no mean."""
    rng, dim = np.random.default_rng(3), 300
    rows = [(np.sort(rng.choice(dim, 8, replace=False)).astype(np.int32), rng.normal(size=8)) for _ in range(300)]
    theta = rng.normal(size=dim)
    y = [float(values @ theta[at]) for at, values in rows]
    tracker = {"RLS": lambda: RLS(dim), "CD": lambda: CD(dim), "SAGA": lambda: SAGA(dim, seed=0)}[name]()
    errors = []
    for row, target in zip(rows, y):
        errors.append(target - tracker.predict(row))
        tracker.update(row, target)
    assert np.mean(np.square(errors)) < 1.5 * np.var(y)


@pytest.mark.parametrize("name", ["GD", "SVRG", "Diagonal", "SAGA"])
def test_what_was_learned_from_many_rows_outlives_a_unit_that_grows(name):
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], size=(9000, 3))
    X[5500:, 0] *= 80.0
    y = X @ [0.5, 1.0, -1.0] + 0.1 * rng.normal(size=9000)
    tracker = {"GD": GD, "SVRG": SVRG, "Diagonal": Diagonal, "SAGA": SAGA}[name]
    tracker = tracker(3) if name == "Diagonal" else tracker(3, seed=0)
    errors = []
    for first in range(0, 9000, 500):
        errors.append(float(np.mean((tracker.predict(X[first : first + 500]) - y[first : first + 500]) ** 2)))
        tracker.partial_fit(X[first : first + 500], y[first : first + 500])
    assert max(errors[5:]) < 0.1  # of which the noise is 0.01


def test_a_feature_that_stays_larger_gets_a_larger_unit_soon():
    X = np.random.default_rng(1).choice([-1.0, 1.0], size=(6200, 2))
    X[5500:, 0] *= 40.0
    tracker = GD(2, seed=0).partial_fit(X, X.sum(1))
    assert tracker.units.arrays["unit"][0] < 0.5


def test_a_prediction_is_linear_once_a_feature_was_seen_ten_times():
    tracker = RLS(1, intercept=False)
    for n in range(12):
        far = tracker.predict(np.array([1e6])) if n else 0.0
        assert (abs(far - 1e6 * tracker.theta[0]) < 1e-3) == (n == 0 or n >= 10)
        tracker.update(np.array([1.0]), 2.0)


def test_a_constant_feature_is_none_beside_the_intercept():
    X, y = table(6, False)
    with_one = RLS(DIM + 1).partial_fit(np.column_stack([X, np.full(ROWS, 7.0)]), y)
    without = RLS(DIM).partial_fit(X, y)
    np.testing.assert_allclose(
        with_one.predict(np.column_stack([X, np.full(ROWS, 7.0)])), without.predict(X), atol=0.05
    )


def test_the_strengths_are_those_of_the_evidence_rule():
    """One step of MacKay's rule from the policy's own numbers, written down again."""
    from driftls.draws import Draws
    from driftls.policies.evidence import Strength, likeliest
    from driftls.policies.models import Model
    from driftls.widths import ExactWidth

    X, y = table(7, False)
    tracker = RLS(DIM)
    tracker.start(False)
    width = ExactWidth().open(tracker, Draws(0))
    tracker.partial_fit(X, y)
    found = likeliest([Model(tracker, width)], [tracker.freedoms()], Strength(1.0), Strength(1.0), 0.5, both=True)
    theta, M = tracker.coefficients(), tracker.inverse()
    expected = naive.evidence(theta, np.diag(M), DIM, 1.0, 0.5)
    assert found.ridge == pytest.approx(np.clip(expected[0], 1 / 8, 8))
    assert found.intercept == pytest.approx(np.clip(expected[1], 1 / 8, 8))


@pytest.mark.parametrize("name", POLICIES)
def test_rewards_that_are_all_equal_are_no_noise(name):
    """Their mean is not that reward but for rounding: an error of 1e-16 would leave no width."""
    X, _ = table(4, False)
    policy = POLICIES[name]()
    decisions(policy, X, np.full(ROWS, 0.7), np.array) if not policy.disjoint else policy.choose(X[:1], ids=["a"])
    for n in range(40 if policy.disjoint else 0):
        policy.learn(X[n : n + 1], 0.7, arm=policy.choose(X[n : n + 1], ids=["a"]), ids=["a"])
    assert policy.kappa == policy.sigmas


@pytest.mark.parametrize("factor", [2.0**20, 2.0**-20])
def test_a_value_that_counts_as_0_is_not_the_first_of_its_feature(factor):
    def told(first, factor):
        tracker, rng = RLS(3), np.random.default_rng(0)
        for n in range(105):
            x = rng.normal(size=3)
            late, x[2] = x[2], first if n < 100 else factor * x[2]
            tracker.update(x, x[0] + (late if n >= 100 else 0.0))
        return tracker.predict(np.array([0.0, 0.0, factor]))

    assert told(1e-150, factor) == told(0.0, factor) == told(0.0, 1.0)


def test_a_gap_in_a_column_far_from_0_is_no_divergence():
    rng, policy = np.random.default_rng(0), DisjointLinUCB(features=Features(), seed=0)
    for n in range(120):
        user = {"plan": "ab"[n % 2]} | ({} if n in (60, 90) else {"year": 1e4 + rng.normal()})
        policy.learn(user, float(rng.random() < 0.5), arm=policy.choose(user, ids=["x", "y"]), ids=["x", "y"])
    assert np.abs(policy.scores({"plan": "a", "year": 1e4}, ids=["x", "y"])).max() < 10.0
