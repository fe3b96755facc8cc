"""Crosses under policies that choose their parts themselves: each block has a constant of its own, and means."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from driftls.errors import CorruptFileError
from driftls.features import CrossedArms
from driftls.inputs import Rows
from driftls.policies import LinTS, LinUCB
from driftls.policies.registry import load
from driftls.schedules import ridge
from driftls.testing.common import same_snapshot
from driftls.trackers import RAW, RLS
from driftls.widths import ExactWidth

USER, ARMS, ROUNDS = 4, 5, 150
SIZES = {"exact": 6, "fast": 80}  # blocks
BLOCKS = np.arange(ARMS)


def problem(seed, popular=1.0, far=0.0):
    """Users with features of several sizes, the last of which some lack; rewards of arms that are popular or not."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(ROUNDS, USER))
    R = popular * rng.normal(size=ARMS) + Z @ rng.normal(size=(USER, ARMS)) * 0.3
    R += 0.1 * rng.normal(size=R.shape)
    X = (Z + far) * [1.0, 20.0, 0.1, 1.0]
    X[30:, -1] *= rng.random(ROUNDS - 30) < 0.8
    return X, R


def make(count, shared=False, own=0):
    return LinUCB((USER + own) * (count + shared), seed=0)


def arms_of(x, count, shared=False, own=False):
    return CrossedArms(np.append(x, 7.0) if own else x, BLOCKS, count, shared)


def play(policy, X, R, count, shared=False, own=False):
    chosen = []
    for x, rewards in zip(X, R):
        arms = arms_of(x, count, shared, own)
        chosen.append(policy.choose(arms))
        policy.learn(arms, rewards[chosen[-1]], arm=chosen[-1])
    return np.array(chosen)


def won(chosen, R):
    return R[np.arange(len(R)), chosen].mean()


both = pytest.mark.parametrize("count", SIZES.values(), ids=SIZES)
all_kinds = [both, pytest.mark.parametrize("shared", [False, True])]


def every(test):
    for mark in all_kinds:
        test = mark(test)
    return test


@both
def test_an_arm_can_be_more_popular_than_another_whatever_its_user_is(count):
    """Rewards depend on the arm alone, and features say nothing of it: they are as often below 0 as above."""
    gained = []
    for seed in range(4):
        X, _ = problem(seed)
        R = np.random.default_rng(seed).normal(size=ARMS) + 0.1 * np.random.default_rng(1).normal(size=(ROUNDS, ARMS))
        policy = make(count)
        chosen = play(policy, X, R, count)
        gained.append(won(chosen[50:], R[50:]) - R.mean(axis=0).max())
        predicted = policy.tracker.predict(CrossedArms(0.0 * X[:1], BLOCKS, count).with_constant().tocsr())
        best = np.argmax(R.mean(axis=0))
        assert predicted[best] == pytest.approx(R[:, best].mean(), abs=0.1)
    assert np.mean(gained) > -0.15


@every
def test_it_is_the_model_of_users_with_a_constant(count, shared):
    """One by hand is 0 beside the block's own: nothing is added twice, whatever its value."""
    same, gained = [], []
    for seed in range(4):
        X, R = problem(seed, far=3.0)
        bare, given = make(count, shared), make(count, shared, own=1)
        one, two = play(bare, X, R, count, shared), play(given, X, R, count, shared, own=True)
        same.append(np.mean(one == two))
        gained.append(won(one, R) - won(two, R))
        period = given.units.period
        theta = given.tracker.coefficients()[:-1].reshape(-1, period)
        assert bare.units.period == period - 1 == USER + 1
        assert given.units.arrays["means"][USER] == pytest.approx(7.0)
        assert np.abs(theta[:, USER]).max() < 1e-6 < np.abs(theta[:, -1]).max()
        if count == SIZES["exact"]:
            scores = bare.scores(arms_of(X[0], count, shared))
            np.testing.assert_allclose(given.scores(arms_of(X[0], count, shared, own=True)), scores, rtol=1e-7)
    assert min(same) == 1.0 if count == SIZES["exact"] else np.mean(same) > 0.8  # of draws that probe the ridge
    assert abs(np.mean(gained)) < 0.05


@both
def test_users_far_from_0_are_as_good_as_others(count):
    """Beside a constant in each block a mean is a change of prior, and is taken away."""
    moved, still = ([won(play(make(count), *problem(seed, far=far), count), problem(seed)[1]) for seed in range(4)]
                    for far in (1000.0, 0.0))  # fmt: skip
    assert np.mean(moved) > np.mean(still) - 0.1


@both
def test_what_is_learned_is_ridge_regression_on_users_around_their_means(count):
    X, R = problem(5, far=3.0)
    policy = LinUCB(USER * count, regularisation=ridge(1.0), seed=0)
    chosen = play(policy, X, R, count)
    units = policy.units
    assert np.count_nonzero(units.arrays["means"]) == USER - 1  # all but what some lack
    Z = np.column_stack([(X - units.arrays["means"][:-1]) * units.arrays["unit"][:-1], np.ones(ROUNDS)])
    Z[X[:, -1] == 0.0, USER - 1] = 0.0
    rows = CrossedArms(Z, [0], 1).rows().tocsr().toarray()
    Z = np.zeros((ROUNDS, count, USER + 1))
    Z[np.arange(ROUNDS), chosen] = rows
    Z = np.column_stack([Z.reshape(ROUNDS, -1), np.full(ROUNDS, units.frame["constant"])])
    y = R[np.arange(ROUNDS), chosen] - units.frame["offset"]
    theta = np.linalg.solve(Z.T @ Z + np.eye(Z.shape[1]), Z.T @ y)
    error = np.linalg.norm(policy.tracker.coefficients() - theta) / np.linalg.norm(theta)
    assert error < (1e-8 if count == SIZES["exact"] else 0.2)


@every
def test_crosses_with_constants_are_scored_and_learned_as_their_rows(count, shared):
    X, R = problem(3, far=3.0)
    crossed, built, keyed, many = (make(count, shared) for _ in range(4))
    first = arms_of(X[0], count, shared)
    for policy in (crossed, built, keyed):
        policy.choose(first)
    many.play(first)
    chosen = []
    for n in range(60):
        arms = arms_of(X[n], count, shared)
        scores = crossed.scores(arms)
        np.testing.assert_allclose(crossed.scores(arms.tocsr().toarray()), scores, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(crossed.widths(arms), crossed.widths(arms.tocsr()), rtol=1e-9, atol=1e-12)
        chosen.append(k := crossed.choose(arms))
        assert built.choose(arms) == keyed.choose(arms, key=n) == k
        crossed.learn(arms, R[n, k], arm=k)
        built.learn(arms.tocsr(), R[n, k], arm=k)
        keyed.learn(reward=R[n, k], key=n)
    assert many.play(CrossedArms(X[:60], BLOCKS, count, shared), R[:60]).tolist() == chosen
    for policy in (built, keyed, many):
        np.testing.assert_allclose(policy.theta, crossed.theta, rtol=1e-9, atol=1e-12)
    rows = arms.with_constant().tocsr()
    tracker = crossed.tracker
    np.testing.assert_allclose(tracker.predict(rows), rows @ tracker.theta + tracker.intercept_, rtol=1e-9)
    assert crossed.theta.size == crossed.dim == USER * (count + shared)


@every
def test_files_copies_and_growth_keep_the_constants(count, shared, tmp_path):
    X, R = problem(4)
    policy = make(count, shared)
    play(policy, X[:60], R[:60], count, shared)
    policy.choose(arms_of(0.0 * X[0], count, shared), key="no feature at all")
    policy.save(tmp_path / "policy")
    twins = [load(tmp_path / "policy"), copy.deepcopy(policy)]
    for twin in twins:
        same_snapshot(policy.snapshot(), twin.snapshot(), "a copy")
    before, wider = policy.scores(arms_of(X[0], count, shared)), arms_of(X[0], 2 * count, shared)
    for one in (policy, *twins):
        one.grow(USER * (2 * count + shared))
        np.testing.assert_allclose(one.scores(wider), before, rtol=1e-9)
        one.learn(reward=5.0, key="no feature at all")
    first, *others = (play(one, X[60:], R[60:], 2 * count, shared).tolist() for one in (policy, *twins))
    assert others == [first, first]
    assert policy.theta.size == policy.dim == USER * (2 * count + shared)
    assert policy.freeze().scores(wider).tolist() == policy.scores(wider).tolist()
    header, arrays = policy.snapshot()
    for damage in ({"period": 3}, {"period": 0}, {"period": 1}):
        bad = copy.deepcopy(header)
        bad["tracker"]["units"] |= damage
        with pytest.raises(CorruptFileError):
            LinUCB.from_snapshot(bad, arrays)


def test_a_reward_that_comes_late_finds_the_block_of_a_user_without_features():
    keyed, straight = make(6, shared=True), make(6, shared=True)
    for n in range(20):
        arms = CrossedArms(Rows(np.zeros(0, np.int32), np.zeros(0), np.array([0, 0]), USER), BLOCKS, 6, shared=True)
        k = keyed.choose(arms, key=n)
        assert straight.choose(arms) == k
        keyed.learn(reward=float(k == 3), key=n)
        straight.learn(arms, float(k == 3), arm=k)
    np.testing.assert_array_equal(keyed.tracker.theta, straight.tracker.theta)
    assert k == 3


def test_a_choice_that_was_made_elsewhere_before_the_first_crosses_is_learned_in_its_block():
    policy, arms = make(6), CrossedArms(np.ones(USER), BLOCKS, 6)
    policy.remember("before", arms.tocsr()[[2]])
    policy.learn(arms, 0.0, arm=policy.choose(arms))
    policy.learn(reward=1.0, key="before")
    constants = policy.tracker.theta.reshape(-1, USER + 1)[:, -1]
    assert constants.argmax() == 2
    assert constants[2] > 0.1


def test_thompson_sampling_has_the_constants_too():
    gained = []
    for seed in range(4):
        X, R = problem(seed, popular=3.0)
        policy = LinTS(USER * 6, seed=seed)
        gained.append(won(play(policy, X, R, 6)[50:], R[50:]) - R.max(axis=1).mean())
    assert policy.tracker.dim == (USER + 1) * 6
    assert np.mean(gained) > -0.5  # it explores


@pytest.mark.parametrize("settings", [{}, RAW])
def test_a_tracker_that_is_given_and_raw_units_get_none(settings):
    X, R = problem(0)
    given = LinUCB(tracker=RLS(USER * 6, **settings), width=ExactWidth(), seed=0)
    raw = LinTS(USER * 6, seed=0, **RAW)
    for policy in (given, raw):
        play(policy, X[:30], R[:30], 6)
        assert policy.tracker.dim == policy.dim == USER * 6


def test_an_unusable_first_row_of_crosses_decides_nothing():
    policy = make(6)
    with pytest.raises(ValueError, match="finite"):
        policy.learn(CrossedArms([1.0, np.inf, 0.0, 0.0], BLOCKS, 6), 1.0, arm=0)
    rows = np.random.default_rng(0).normal(size=(3, USER * 6))
    policy.learn(rows, 1.0, arm=policy.choose(rows))
    assert policy.tracker.dim == USER * 6
