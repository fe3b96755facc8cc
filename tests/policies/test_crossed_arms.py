"""Crossed arms are scored and learned as their rows are, without a row for each."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import naive
from driftls.errors import DimensionError, InputError
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
        assert k == int(np.argmax([oracle.score(x) for x in rows]))
        policy.learn(arms, reward, arm=k)
        oracle.learn(rows[k], reward)


@pytest.mark.parametrize("name", ["SAGA + diagonal", "CD + exact, written out"])
@pytest.mark.parametrize("log", [False, True])
def test_play_equals_choose_and_learn(name, log):
    rng, count = np.random.default_rng(5), 40
    one, many = PARTS[name](FEATURES * COUNT), PARTS[name](FEATURES * COUNT)
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


def test_keys_keep_the_row_of_the_arm_that_was_chosen():
    keyed, straight = (PARTS["SAGA + diagonal"](FEATURES * COUNT) for _ in range(2))
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
    assert chosen == int(np.argmax(policy.scores(rows)))


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
