"""Crossed arms, the short ways of choose and learn, one model an arm from outside, and lambda from the data."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import naive
from driftls import ridge
from driftls.environments import FreshContexts
from driftls.errors import DimensionError, InputError
from driftls.features import CrossedArms, UserArmCrosses
from driftls.logs import synthetic_day
from driftls.policies import DisjointLinUCB, LinUCB
from driftls.simulate import simulate
from driftls.trackers import RLS, SAGA
from driftls.widths import DiagonalWidth, ExactWidth


def user(rng, dim=5):
    return sp.random_array((1, dim), density=0.6, rng=rng, format="csr")


@pytest.mark.parametrize("shared", [False, True])
def test_crossed_arms_are_the_rows_of_their_matrix(shared):
    row = np.array([[1.0, 0.0, 2.0]])
    arms = CrossedArms(row[0], [2, 0], count=3, shared=shared)
    expected = np.zeros((2, 3 * (3 + shared)))
    for k, block in enumerate([2, 0]):
        expected[k, 3 * (block + shared) : 3 * (block + shared) + 3] = row
        if shared:
            expected[k, :3] = row
    assert np.array_equal(arms.tocsr().toarray(), expected)
    assert arms.shape == expected.shape
    assert np.array_equal(arms[[1]].tocsr().toarray(), expected[[1]])


@pytest.mark.parametrize("shared", [False, True])
def test_crossed_arms_are_scored_and_learned_as_their_rows(shared):
    rng = np.random.default_rng(3)
    dim = 5 * (4 + shared)
    crossed, built = (LinUCB(tracker=SAGA(dim, seed=1), width=DiagonalWidth(), seed=1) for _ in range(2))
    for _ in range(60):
        arms = CrossedArms(user(rng), rng.permutation(4)[:3], count=4, shared=shared)
        k, reward = crossed.choose(arms), float(rng.normal())
        built.choose(arms.tocsr())
        crossed.learn(arms, reward, arm=k)
        built.learn(arms.tocsr(), reward, arm=k)
    arms = CrossedArms(user(rng), [3, 1, 0], count=4, shared=shared)
    np.testing.assert_allclose(crossed.theta, built.theta, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(crossed.scores(arms), built.scores(arms.tocsr()), rtol=1e-12)
    np.testing.assert_allclose(crossed.widths(arms), built.widths(arms.tocsr()), rtol=1e-12)


def test_the_crosses_of_a_log_are_the_rows_that_features_build():
    block = next(synthetic_day(lines=50, seed=2).blocks())
    features = UserArmCrosses(136, articles=120, shared=True)
    border = int(np.flatnonzero(np.diff(block.pool))[0]) + 1
    part = block.part(0, border)
    assert border > 1
    assert (features.crossed(part).tocsr() != features.rows(part)).nnz == 0
    assert (features.crossed(block[7]).tocsr() != features.arms(block[7])).nnz == 0
    with pytest.raises(InputError, match="several pools"):
        features.crossed(block)


@pytest.mark.parametrize(("users", "blocks"), [(0, 2), (3, 0), (3, 2)])
def test_every_user_is_crossed_with_every_block_user_by_user(users, blocks):
    rows, which = np.arange(4.0 * users).reshape(users, 4), np.arange(blocks)[::-1]
    arms = CrossedArms(sp.csr_array(rows), which, count=3, shared=True)
    expected = np.zeros((users, blocks, 4, 4))
    for k, block in enumerate(which):
        expected[:, k, 0] = expected[:, k, block + 1] = rows
    assert np.array_equal(arms.tocsr().toarray(), expected.reshape(users * blocks, 16))
    assert arms.tocsr().has_sorted_indices


def test_crossed_arms_that_cannot_be_are_refused():
    with pytest.raises(InputError, match=r"0 \.\.\. 2, got 1 \.\.\. 3"):
        CrossedArms([1.0], [1, 3], count=3)
    with pytest.raises(DimensionError, match="a block for each arm"):
        CrossedArms([1.0, 1.0], [[0]], count=3)
    policy = LinUCB(tracker=SAGA(6, seed=0), width=DiagonalWidth())
    with pytest.raises(InputError, match="2 users"):
        policy.choose(CrossedArms(np.ones((2, 2)), [0], count=3))
    with pytest.raises(InputError, match="one user"):
        CrossedArms(np.ones((2, 2)), [0], count=3)[[0, 1]]
    with pytest.raises(DimensionError, match="6"):
        policy.choose(CrossedArms([1.0, 1.0], [0, 1], count=2))
    with pytest.raises(InputError, match="finite"):
        policy.choose(CrossedArms([1.0, np.nan], [0, 1], count=3))


# -- the short way -----------------------------------------------------------------------------------------------------


def test_the_short_way_of_choose_and_learn_decides_as_the_long_one():
    """A list instead of an array takes the way that looks at everything"""
    rng = np.random.default_rng(5)
    short, long = (LinUCB(tracker=SAGA(6, seed=1), width=DiagonalWidth(), epsilon=0.2, seed=1) for _ in range(2))
    for _ in range(200):
        arms, reward = rng.normal(size=(4, 6)), float(rng.normal())
        k = short.choose(arms)
        assert long.choose(arms.tolist()) == k
        assert short.probability == long.probability
        short.learn(arms, reward, arm=k)
        long.learn(arms[k].tolist(), reward)
    assert np.array_equal(short.theta, long.theta)
    assert short.kappa == long.kappa


def test_the_short_way_refuses_what_the_long_one_refuses_and_changes_nothing():
    rng = np.random.default_rng(5)
    policy = LinUCB(tracker=SAGA(3, seed=1), width=DiagonalWidth(), seed=1)
    for _ in range(3):
        arms = rng.normal(size=(4, 3))
        policy.learn(arms, 1.0, arm=policy.choose(arms))
    theta, arms = policy.theta, np.ones((4, 3))
    arms[2, 1] = np.nan
    with pytest.raises(InputError, match="arm 2"):
        policy.choose(arms)
    with pytest.raises(InputError, match="finite"):
        policy.learn(arms, 1.0, arm=2)
    with pytest.raises(InputError, match="finite"):
        policy.learn(np.ones(3), float("nan"))
    assert np.array_equal(policy.theta, theta)
    assert len(policy.tracker) == 3


# -- one model an arm --------------------------------------------------------------------------------------------------


def played(rounds=40):
    rng = np.random.default_rng(0)
    policy = DisjointLinUCB(3, tracker=RLS(3, regularisation=ridge(2.0)), width=ExactWidth(), kappa=0.5, seed=0)
    rows = {name: [] for name in "abc"}
    for _ in range(rounds):
        x, reward = rng.normal(size=3), float(rng.normal())
        k = policy.choose(x, ids=list("abc"))
        policy.learn(x, reward, arm=k, ids=list("abc"))
        rows["abc"[k]].append((x, reward))
    return policy, rows


def test_scores_widths_and_probabilities_of_many_models_are_those_of_each():
    policy, rows = played()
    x = np.array([0.5, -1.0, 2.0])
    expected, widths = [], []
    for name in "abc":
        X, y = np.array([row for row, _ in rows[name]]), np.array([reward for _, reward in rows[name]])
        A = X.T @ X + 2.0 * np.eye(3)
        widths.append(np.sqrt(x @ np.linalg.solve(A, x)))
        expected.append(x @ np.linalg.solve(A, X.T @ y) + 0.5 * widths[-1])
    before = policy.snapshot()[1]["scalars"].copy()
    np.testing.assert_allclose(policy.scores(x, ids=list("abc")), expected, rtol=1e-9)
    np.testing.assert_allclose(policy.widths(x, ids=list("abc")), widths, rtol=1e-9)
    assert policy.probabilities(x, ids=list("abc")).tolist() == np.eye(3)[int(np.argmax(expected))].tolist()
    assert np.array_equal(policy.snapshot()[1]["scalars"], before)
    with pytest.raises(InputError, match="never offered"):
        policy.scores(x, ids=["a", "z"])


def test_many_models_keep_choices_under_a_key_until_their_rewards_come(tmp_path):
    straight, keyed = played()[0], played()[0]
    rng = np.random.default_rng(9)
    users = rng.normal(size=(6, 3))
    chosen = [straight.choose(x, ids=list("abc")) for x in users]
    assert [keyed.choose(x, ids=list("abc"), key=i) for i, x in enumerate(users)] == chosen
    keyed.save(tmp_path / "policy")
    keyed = DisjointLinUCB.load(tmp_path / "policy")
    for i in (3, 0, 5):
        straight.learn(users[i], float(i), arm=chosen[i], ids=list("abc"))
        keyed.learn(reward=float(i), key=i)
    for name in "abc":
        assert np.array_equal(straight.model(name).theta, keyed.model(name).theta)
    with pytest.raises(InputError, match="learned already"):
        keyed.learn(reward=1.0, key=3)
    with pytest.raises(InputError, match="is not known"):
        keyed.learn(reward=1.0, key="new")
    with pytest.raises(InputError, match="used before"):
        keyed.choose(users[0], ids=list("abc"), key=1)


# -- lambda from the data ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [8, 250])
def test_lambda_moves_half_way_to_the_likeliest_one_when_n_has_grown_by_a_tenth(dim):
    policy = LinUCB(dim, seed=0)
    environment = FreshContexts(dim, 5, sigma=0.3, seed=1)
    lam, look = 1.0, 64
    for n in range(1, 90):
        arms = environment.round(n)[0]
        k = policy.choose(arms)
        policy.learn(arms, float(arms[k] @ environment.theta(n) + 0.3 * np.sin(n)), arm=k)
        if n == look:
            state, sigma2 = policy._width, policy._scalars[3] / n  # the noise estimate has its own tests
            if dim == 8:
                X, y = policy_rows(policy)
                gamma = naive.settled(X, lam)
                theta = np.linalg.solve(X.T @ X + lam * np.eye(dim), X.T @ y)
            else:
                gamma, theta = float((state.coords[0] / (lam + state.coords[0])).sum()), policy.theta
            lam = np.sqrt(lam * np.clip((gamma + 1) / (theta @ theta / sigma2 + 1), 0.01, 1000.0))
            look = int(np.ceil(1.1 * n))
        assert n * policy.tracker.regularisation(n) == pytest.approx(lam, rel=1e-9)
    assert look == 96


def policy_rows(policy):
    """Rows that explain what an exact tracker has: a square root of A, and rewards that give b"""
    gram, moment = policy.tracker._state.gram, policy.tracker._state.coords[1]
    X = np.linalg.cholesky(gram).T
    return X, np.linalg.solve(X.T, moment)


def test_after_a_look_at_lambda_the_exact_solution_and_its_widths_have_the_new_one():
    policy = LinUCB(6, seed=0)
    simulate(policy, FreshContexts(6, 5, sigma=0.3, seed=1), 64)
    lam = policy.tracker.regularisation.scale
    assert lam != 1.0
    A = policy.tracker._state.gram + lam * np.eye(6)
    np.testing.assert_allclose(policy.theta, np.linalg.solve(A, policy.tracker._state.coords[1]), rtol=1e-9)
    x = np.arange(6.0)
    np.testing.assert_allclose(policy.widths([x]), [np.sqrt(x @ np.linalg.solve(A, x))], rtol=1e-9)


@pytest.mark.parametrize("dim", [6, 250])
def test_both_engines_and_a_saved_policy_move_lambda_alike(dim, tmp_path):
    runs = []
    for engine in ("compiled", "python"):
        policy = LinUCB(dim, seed=0)
        run = simulate(policy, FreshContexts(dim, 5, sigma=0.3, seed=1), 150, engine=engine)
        runs.append((run.traces, policy.tracker.regularisation.scale))
    assert runs[0] == runs[1]
    policy.save(tmp_path / "policy")
    again = LinUCB.load(tmp_path / "policy")
    for one in (policy, again):
        simulate(one, FreshContexts(dim, 5, sigma=0.3, seed=2), 100)
    assert policy.tracker.regularisation == again.tracker.regularisation
    assert np.array_equal(policy.theta, again.theta)


def test_lambda_stays_where_it_was_given_or_where_no_rule_is_known_to_be_safe():
    fixed = LinUCB(6, regularisation=ridge(2.0), seed=0)
    simulate(fixed, FreshContexts(6, 5, sigma=0.3, seed=1), 100)
    assert fixed.tracker.regularisation == ridge(2.0)
    recurring, arms = LinUCB(6, seed=0), np.eye(6)
    for _ in range(80):
        recurring.learn(arms, 0.5, arm=recurring.choose(arms, ids=range(6)), ids=range(6))
    assert recurring.tracker.regularisation == ridge(1.0)
