"""Crossed arms are scored and learned as their rows are, without a row for each."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import scipy.sparse as sp

import naive
from driftls.errors import CorruptFileError, DimensionError, InputError
from driftls.features import CrossedArms
from driftls.inputs import Rows
from driftls.policies import DisjointLinUCB, LinUCB
from driftls.testing.common import same_snapshot
from driftls.trackers import CD, RAW, RLS, SAGA
from driftls.widths import DiagonalWidth, ExactWidth, NoWidth

PARTS = {
    "SAGA + diagonal": lambda dim: LinUCB(tracker=SAGA(dim, steps=1, seed=1, **RAW), width=DiagonalWidth(), seed=1),
    "CD + diagonal, discounted": lambda dim: LinUCB(
        tracker=CD(dim, discount=0.95, **RAW), width=DiagonalWidth(), seed=1
    ),
    "SAGA greedy": lambda dim: LinUCB(tracker=SAGA(dim, steps=1, seed=1, **RAW), width=NoWidth(), seed=1),
    "RLS + exact, written out": lambda dim: LinUCB(tracker=RLS(dim, **RAW), width=ExactWidth(), seed=1),
    "CD + exact, written out": lambda dim: LinUCB(tracker=CD(dim, **RAW), width=ExactWidth(), seed=1),
}
IN_UNITS = {
    "SAGA + diagonal, in units": lambda dim: LinUCB(tracker=SAGA(dim, steps=1, seed=1), width=DiagonalWidth(), seed=1),
    "CD greedy, in units": lambda dim: LinUCB(tracker=CD(dim), width=NoWidth(), seed=1),
    "CD, units and no intercept": lambda dim: LinUCB(tracker=CD(dim, intercept=False), width=DiagonalWidth(), seed=1),
    "RLS + exact, in units, written out": lambda dim: LinUCB(tracker=RLS(dim), width=ExactWidth(), seed=1),
}
ALL = PARTS | IN_UNITS
FEATURES, COUNT = 5, 4


def user(rng):
    return sp.random_array((1, FEATURES), density=0.6, rng=rng, format="csr")


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("every", [1, 15])
@pytest.mark.parametrize("make", PARTS.values(), ids=PARTS)
def test_as_their_rows(make, every, shared):
    """Blocks that change in every round, and blocks that stay: then scores come from a table."""
    rng, dim = np.random.default_rng(3), FEATURES * (COUNT + shared)
    crossed, built = make(dim), make(dim)
    for n in range(60):
        if n % every == 0:
            blocks = rng.permutation(COUNT)[:3]
        arms, reward = CrossedArms(user(rng), blocks, count=COUNT, shared=shared), float(rng.normal())
        k = crossed.choose(arms)
        assert built.choose(arms.tocsr()) == k, n
        crossed.learn(arms, reward, arm=k)
        built.learn(arms.tocsr(), reward, arm=k)
        np.testing.assert_allclose(crossed.scores(arms), built.scores(arms.tocsr()), rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(crossed.widths(arms), built.widths(arms.tocsr()), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(crossed.theta, built.theta, rtol=1e-10, atol=1e-13)


def test_decisions_are_those_of_the_oracle():
    rng, oracle = np.random.default_rng(3), naive.LinUCB(FEATURES * COUNT, 0.5)
    policy = LinUCB(tracker=RLS(FEATURES * COUNT, **RAW), width=ExactWidth(), kappa=0.5)
    for _ in range(80):
        arms = CrossedArms(user(rng), rng.permutation(COUNT)[:3], count=COUNT)
        rows = arms.tocsr().toarray()
        k, reward = policy.choose(arms), float(rng.normal())
        assert k == naive.best([oracle.score(x) for x in rows])
        policy.learn(arms, reward, arm=k)
        oracle.learn(rows[k], reward)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("make", IN_UNITS.values(), ids=IN_UNITS)
def test_in_the_units_of_the_users_features_they_are_scored_as_their_rows(make, shared):
    """Questions about rows note nothing, so that one policy can be asked both ways; and what it learned is its own."""
    rng, dim = np.random.default_rng(3), FEATURES * (COUNT + shared)
    policy = make(dim)
    for n in range(90):
        if n < 30 or n % 15 == 0:
            blocks = rng.permutation(COUNT)[:3]
        arms = CrossedArms(user(rng) * 100.0 ** np.arange(FEATURES), blocks, count=COUNT, shared=shared)
        if n == 0:
            policy.choose(arms)
        scores = policy.scores(arms)
        np.testing.assert_allclose(scores, policy.scores(arms.tocsr()), rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(policy.widths(arms), policy.widths(arms.tocsr()), rtol=1e-10, atol=1e-13)
        k = policy.choose(arms)
        assert k == naive.best(scores)
        policy.learn(arms, float(rng.normal()), arm=k)
    x = arms.tocsr()[[k]]
    assert policy.tracker.predict(x)[0] == pytest.approx((x @ policy.theta)[0] + policy.tracker.intercept_)
    assert policy.units.arrays["unit"].size == FEATURES
    assert policy.tracker.theta.size == dim


def test_what_is_learned_in_the_units_of_the_users_features_is_ridge_regression():
    rng, rows, y = np.random.default_rng(6), [], []
    policy = LinUCB(tracker=RLS(FEATURES * (COUNT + 1)), width=DiagonalWidth(), seed=0)
    for _ in range(50):
        arms = CrossedArms(user(rng) * 100.0 ** np.arange(FEATURES), range(COUNT), count=COUNT, shared=True)
        k = policy.choose(arms)
        rows.append(arms.tocsr().toarray()[k])
        y.append(float(rng.normal()))
        policy.learn(arms, y[-1], arm=k)
    units = policy.units
    Z = np.array(rows) * np.tile(units.arrays["unit"], COUNT + 1)
    Z = np.column_stack([Z, np.full(50, units.frame["constant"])])
    theta = np.linalg.solve(Z.T @ Z + np.eye(Z.shape[1]), Z.T @ (np.array(y) - units.frame["offset"]))
    np.testing.assert_allclose(policy.tracker.coefficients(), theta, atol=1e-9)
    size = np.sqrt(units.arrays["squares"] / units.arrays["count"])
    np.testing.assert_allclose(units.arrays["unit"] * size, 1.0, rtol=0.3)  # as it was at the last look
    assert size[-1] > 1e7 * size[0]


def test_users_of_another_size_are_written_out():
    """The units are those of the first users' features: others have theirs by position, as any rows do."""
    rng, policy = np.random.default_rng(4), IN_UNITS["SAGA + diagonal, in units"](12)
    for n in range(40):
        features = 3 if n % 2 == 0 else 4
        arms = CrossedArms(rng.normal(size=features), [0, 2, 1], count=12 // features)
        k = policy.choose(arms)
        policy.learn(arms, float(rng.normal()), arm=k)
        np.testing.assert_allclose(policy.scores(arms), policy.scores(arms.tocsr()), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("name", ["SAGA + diagonal, in units", "CD greedy, in units"])
def test_crosses_in_units_go_to_files_and_grow_with_their_blocks(name):
    rng, policy = np.random.default_rng(8), IN_UNITS[name](FEATURES * COUNT)

    def play(policy, count, rng):
        chosen = []
        for _ in range(30):
            arms = CrossedArms(user(rng), range(count), count=count)
            chosen.append(policy.choose(arms))
            policy.learn(arms, float(rng.normal()), arm=chosen[-1])
        return chosen

    play(policy, COUNT, rng)
    twin = copy.deepcopy(policy)
    same_snapshot(policy.snapshot(), twin.snapshot(), "a copy")
    assert play(policy, COUNT, np.random.default_rng(1)) == play(twin, COUNT, np.random.default_rng(1))
    arms = CrossedArms(user(rng), range(COUNT), count=COUNT)
    before = policy.scores(arms)
    policy.grow(FEATURES * 2 * COUNT)
    wider = CrossedArms(arms.row, range(2 * COUNT), count=2 * COUNT)
    np.testing.assert_allclose(policy.scores(wider)[:COUNT], before, rtol=1e-12)
    play(policy, 2 * COUNT, rng)
    np.testing.assert_allclose(policy.scores(wider), policy.scores(wider.tocsr()), rtol=1e-10, atol=1e-13)


def test_units_that_repeat_as_no_user_could_are_refused_in_a_file():
    policy = IN_UNITS["CD greedy, in units"](FEATURES * COUNT)
    policy.choose(CrossedArms(np.ones(FEATURES), [0, 1], count=COUNT))
    header, arrays = policy.snapshot()
    for period in (-1, FEATURES + 1, FEATURES * COUNT + 1, 1.5, None):
        header["tracker"]["units"]["period"] = period
        with pytest.raises(CorruptFileError):
            type(policy).from_snapshot(header, arrays)


@pytest.mark.parametrize("name", ["SAGA + diagonal", "CD + exact, written out", *IN_UNITS])
@pytest.mark.parametrize("log", [False, True])
def test_play_equals_choose_and_learn(name, log):
    rng, count = np.random.default_rng(5), 40
    one, many = ALL[name](FEATURES * COUNT), ALL[name](FEATURES * COUNT)
    users = sp.random_array((count, FEATURES), density=0.6, rng=rng, format="csr")
    rewards, shown, chosen = rng.normal(size=(count, 3)), rng.integers(-1, 3, count), []
    for n in range(count):
        arms = CrossedArms(users[[n]], [2, 0, 3], count=COUNT)
        chosen.append(one.choose(arms))
        if not log or shown[n] == chosen[-1]:
            one.learn(arms, float(rewards[n, chosen[-1]]), arm=chosen[-1])
    arms = CrossedArms(users, [2, 0, 3], count=COUNT)
    if log:
        fast = many.play(arms, rewards[np.arange(count), shown], shown=shown)
    else:
        fast = many.play(arms, rewards)
    assert fast.tolist() == chosen
    np.testing.assert_allclose(many.theta, one.theta, rtol=1e-12, atol=1e-14)
    more = [one.choose(CrossedArms(users[[n]], [1, 0], count=COUNT)) for n in range(count)]
    assert many.play(CrossedArms(users, [1, 0], count=COUNT)).tolist() == more


@pytest.mark.parametrize("name", ["SAGA + diagonal", "SAGA + diagonal, in units"])
def test_keys_keep_the_row_of_the_arm_that_was_chosen(name):
    keyed, straight = (ALL[name](FEATURES * COUNT) for _ in range(2))
    rng = np.random.default_rng(1)
    for n in range(30):
        arms = CrossedArms(user(rng), [3, 1], count=COUNT)
        k = keyed.choose(arms, key=n)
        assert straight.choose(arms) == k
        keyed.learn(reward=float(n % 3), key=n)
        straight.learn(arms, float(n % 3), arm=k)
    np.testing.assert_allclose(keyed.theta, straight.theta, rtol=1e-12, atol=1e-14)


def test_crossed_and_other_arms_take_turns():
    rng, one, two = np.random.default_rng(2), *(PARTS["SAGA + diagonal"](FEATURES * COUNT) for _ in range(2))
    for n in range(60):
        arms = CrossedArms(user(rng), [0, 1, 2] if n % 30 < 20 else [3, 1], count=COUNT)
        rows = arms.tocsr()
        k = one.choose(arms if n % 10 else rows)
        assert two.choose(rows) == k, n
        one.learn(arms if n % 7 else rows, 1.0 * k, arm=k)
        two.learn(rows, 1.0 * k, arm=k)
    np.testing.assert_allclose(one.theta, two.theta, rtol=1e-12, atol=1e-14)


def test_what_cannot_be_is_refused():
    policy = PARTS["SAGA + diagonal"](6)
    for arms, error, complaint in [
        (CrossedArms(np.ones((2, 2)), [0], count=3), InputError, "one user, got the arms of 2"),
        (CrossedArms([1.0, 1.0], [0, 1], count=2), DimensionError, "arms must have 6 features, got 4"),
        (CrossedArms([1.0, np.nan], [0, 1], count=3), InputError, "finite"),
        (CrossedArms([1.0, 1.0], [], count=3), InputError, "the pool is empty"),
    ]:
        for _ in range(2):
            with pytest.raises(error, match=complaint):
                policy.choose(arms)
        policy.choose(CrossedArms([1.0, 1.0], [0, 1], count=3))
    arms = CrossedArms(sp.csr_array([[1.0, 1.0]]), [0, 1], count=3)
    arms.row.start[1] = 10_000
    with pytest.raises(InputError, match="indptr"):
        policy.choose(arms)


def test_blocks_cannot_be_moved_afterwards():
    blocks = np.array([0, 1])
    arms, policy = CrossedArms([1.0, 0.5], blocks, count=3), PARTS["SAGA + diagonal"](6)
    blocks[1] = 1000
    policy.learn(arms, 1.0, arm=policy.choose(arms))
    with pytest.raises(ValueError, match="read-only"):
        arms.blocks[0] = 7


def test_one_model_an_arm_takes_users_not_arms():
    with pytest.raises(InputError):
        DisjointLinUCB(6).choose(CrossedArms([1.0, 0.5], [0, 1], count=3), ids=["a", "b"])


def test_rows_after_crosses_that_were_only_learned_have_room_for_their_scores():
    """Learning one of 300 crossed arms makes room for their rewards, not for their scores."""
    rng, count = np.random.default_rng(0), 300
    policy = PARTS["SAGA + diagonal"](FEATURES * count)
    policy.learn(CrossedArms(user(rng), range(count), count), 1.0, arm=count - 1)
    policy.choose(sp.csr_array(np.ones((2, FEATURES * count))))  # few arms, with many entries
    rows = CrossedArms(user(rng), range(250), count).rows()
    chosen = policy.choose(rows)
    assert policy._models.slots.size >= 250
    assert chosen == naive.best(policy.scores(rows))


@pytest.mark.parametrize("dim", [FEATURES * COUNT, FEATURES * 50])
def test_a_user_with_an_index_outside_is_not_taken_for_another_block(dim):
    policy, blocks = LinUCB(dim, seed=0), dim // FEATURES
    good = CrossedArms(np.ones(FEATURES), [0, 1], blocks)
    policy.learn(good, 1.0, arm=policy.choose(good))
    lists = CrossedArms(Rows([0, 1], [1.0, 1.0], [0, 2], FEATURES), [0, 1], blocks)
    assert policy.choose(lists) in (0, 1)
    before = policy.snapshot()
    for index, start in (([0, FEATURES], [0, 2]), ([-1, 0], [0, 2]), ([0, 1], [0, 5]), ([0, 1], [2, 0])):
        bad = Rows(np.array(index, np.int32), np.ones(2), np.array(start), FEATURES)
        for call in (policy.choose, lambda arms: policy.learn(arms, 1.0, arm=0)):
            with pytest.raises(InputError):
                call(CrossedArms(bad, [0, 1], blocks))
    same_snapshot(before, policy.snapshot(), "bad users")
