"""Environments: reproducible, the same by rounds and by blocks, and distributed as they say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from driftls.environments import ChurningPool, FixedArms, FreshContexts, Jumps, Rotates
from driftls.errors import DimensionError, InputError, SettingsError
from driftls.paper.actions import Ball, LinearBandit, Sphere

DIM, ARMS = 7, 5
POOLS = {
    "fixed": lambda **settings: FixedArms(DIM, ARMS, **settings),
    "churning": lambda **settings: ChurningPool(DIM, ARMS, every=3, **settings),
    "fresh": lambda **settings: FreshContexts(DIM, ARMS, **settings),
    "sparse": lambda **settings: FreshContexts(DIM, ARMS, nnz=3, **settings),
}
ALL = POOLS | {"sphere": lambda **settings: LinearBandit(Sphere(DIM), **settings)}
REWARDS = ["gaussian", "bounded", "bernoulli"]
MOVES = [None, Jumps(every=4), Rotates(period=50.0)]


def dense(arms):
    return arms.toarray() if isinstance(arms, csr_array) else arms


def arms_of(block, i):
    return dense(block.arms).reshape(-1, ARMS, DIM)[i]


# --- reproducible ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moves", MOVES, ids=str)
@pytest.mark.parametrize("reward", REWARDS)
@pytest.mark.parametrize("name", POOLS)
def test_a_block_holds_what_its_rounds_give(name, reward, moves):
    settings = {"reward": reward, "moves": moves, "seed": 4}
    block = POOLS[name](**settings).block(9, 30)
    env = POOLS[name](**settings)
    assert block.means.shape == (30, ARMS)
    for i, n in enumerate(range(9, 39)):
        offered = env.round(n)
        np.testing.assert_array_equal(dense(offered.arms), arms_of(block, i))
        np.testing.assert_array_equal(offered.arms @ env.theta(n), block.means[i])
        assert env.best(n) == block.means[i].max()
        assert (offered.ids is None) == (block.ids is None)
        if block.ids is not None:
            np.testing.assert_array_equal(offered.ids, block.ids[i])
        for k in range(ARMS):
            mean, noise = block.means[i, k], env.noise(n, 1)[0]
            assert env.reward(n, k) == (float(noise < mean) if reward == "bernoulli" else mean + noise)
            assert env.reward(n, k) == block.rewards[i, k]


@pytest.mark.parametrize("name", POOLS)
def test_rounds_are_the_same_in_any_order_and_after_any_choices(name):
    forwards, backwards = POOLS[name](seed=1), POOLS[name](seed=1)
    there = {n: (dense(forwards.round(n).arms), forwards.reward(n, n % ARMS)) for n in range(1, 40)}
    for n in [2000, *range(39, 0, -1), 5]:
        backwards.reward(n, 0)  # another choice, which changes nothing
        if n in there:
            np.testing.assert_array_equal(dense(backwards.round(n).arms), there[n][0])
            assert backwards.reward(n, n % ARMS) == there[n][1]


@pytest.mark.parametrize("name", POOLS)
def test_long_blocks_are_made_of_short_ones(name):
    env = POOLS[name](seed=2, moves=Jumps(700))
    whole = env.block(1, 3000)
    parts = [env.block(1, 10), env.block(11, 1500), env.block(1511, 1490)]
    for field in ("means", "rewards"):
        np.testing.assert_array_equal(getattr(whole, field), np.concatenate([getattr(p, field) for p in parts]))
    np.testing.assert_array_equal(arms_of(whole, 2900), arms_of(parts[2], 2900 - 1510))


@pytest.mark.parametrize("name", ALL)
def test_seeds_decide(name):
    def draw(seed):
        env = ALL[name](seed=seed)
        return np.append(env.theta(1), env.noise(1, 5))

    np.testing.assert_array_equal(draw(3), draw(3))
    np.testing.assert_array_equal(draw(np.random.default_rng(3)), draw(np.random.default_rng(3)))
    assert (draw(3) != draw(4)).all()
    rng = np.random.default_rng(3)
    assert (draw(rng) != draw(rng)).all()  # two children of one generator


def test_what_is_handed_out_can_be_changed_without_harm():
    env = FixedArms(DIM, ARMS)
    before = env.round(1).arms.copy()
    env.round(1).arms[:] = 0.0
    env.theta(1)[:] = 0.0
    env.noise(1, 3)[:] = 0.0
    np.testing.assert_array_equal(env.round(2).arms, before)
    assert np.linalg.norm(env.theta(1)) == pytest.approx(1.0)
    assert (env.noise(1, 3) != 0.0).all()


# --- distributed as they say ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", REWARDS)
@pytest.mark.parametrize("name", POOLS)
def test_arms_have_length_one(name, reward):
    env = POOLS[name](reward=reward)
    for n in (1, 50):
        np.testing.assert_allclose(np.linalg.norm(dense(env.round(n).arms), axis=1), 1.0)
    assert np.linalg.norm(env.theta(1)) == pytest.approx(1.0)
    assert env.bounded == (reward != "gaussian")


def test_bounded_is_what_the_assumptions_ask():
    assert LinearBandit(Ball(3), reward="bounded").bounded
    assert not LinearBandit(Ball(3, radius=1.5), reward="bounded").bounded
    assert not LinearBandit(Ball(3)).bounded
    assert not FixedArms(2, 2 * np.eye(2), reward="bounded").bounded


@pytest.mark.parametrize(
    ("reward", "sigma"), [("gaussian", 0.3), ("gaussian", 2.0), ("bounded", 0.3), ("bounded", 0.57)]
)
def test_noise_has_mean_zero_and_standard_deviation_sigma(reward, sigma):
    noise = FixedArms(DIM, ARMS, reward=reward, sigma=sigma).noise(1, 40_000)
    # five standard errors: sigma/200 for the mean, and at most sigma/(200 sqrt 2) for the deviation
    assert abs(noise.mean()) < 5 * sigma / 200
    assert abs(noise.std() - sigma) < 5 * sigma / 282
    assert reward == "gaussian" or np.abs(noise).max() <= 1.0


def test_bernoulli_rewards_are_one_as_often_as_their_mean():
    env = FixedArms(DIM, ARMS, reward="bernoulli", seed=6)
    block = env.block(1, 20_000)
    assert (block.means >= 0.0).all()
    assert (block.means <= 1.0).all()
    np.testing.assert_allclose(block.arms[0, :, 0], 0.5**0.5)
    np.testing.assert_allclose(block.rewards.mean(axis=0), block.means[0], atol=5 * 0.5 / 20_000**0.5)
    assert {env.reward(n, 0) for n in range(1, 60)} == {0.0, 1.0}


def test_directions_are_uniform():
    arms = FreshContexts(3, 10, seed=8).block(1, 4000).arms.reshape(-1, 3)
    # E x = 0 and E x x' = I/3; an entry of x x' has standard deviation at most 0.3
    np.testing.assert_allclose(arms.mean(axis=0), 0.0, atol=5 * 0.58 / 200)
    np.testing.assert_allclose(arms.T @ arms / len(arms), np.eye(3) / 3, atol=5 * 0.3 / 200)


def test_streams_do_not_repeat_one_another():
    """theta*, noise and arms of one seed, and the generator that a policy makes of the same seed, are unrelated."""
    env = FreshContexts(400, 1, seed=5)
    rows = [env.theta(1), env.noise(1, 400), env.round(1).arms[0], np.random.default_rng(5).standard_normal(400)]
    correlations = np.corrcoef(rows)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 5 / 20


# --- moving theta* --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", REWARDS)
def test_theta_jumps_when_it_should(reward):
    thetas = FixedArms(DIM, ARMS, moves=Jumps(every=10), reward=reward).thetas(1, 40)
    changed = (np.diff(thetas, axis=0) != 0.0).any(axis=1)
    np.testing.assert_array_equal(np.flatnonzero(changed) + 2, [11, 21, 31])  # the rounds with a new theta*
    np.testing.assert_allclose(np.linalg.norm(thetas, axis=1), 1.0)


def test_theta_rotates_evenly_in_a_plane():
    start = np.array([0.0, 2.0, 0.0, 0.0])
    thetas = FixedArms(4, ARMS, moves=Rotates(period=40.0), theta=start).thetas(1, 41)
    np.testing.assert_allclose(np.linalg.norm(thetas, axis=1), 2.0)
    turned = np.arccos(np.einsum("nd,nd->n", thetas[:-1], thetas[1:]) / 4.0)
    np.testing.assert_allclose(turned, 2 * np.pi / 40)
    np.testing.assert_allclose(thetas[[0, 20, 40]], [start, -start, start], atol=1e-12)
    assert np.linalg.matrix_rank(thetas, tol=1e-9) == 2


def test_a_given_theta_is_where_jumps_start():
    env = FixedArms(2, ARMS, theta=[3.0, 4.0], moves=Jumps(5))
    np.testing.assert_array_equal(env.thetas(1, 5), np.tile([3.0, 4.0], (5, 1)))
    assert np.linalg.norm(env.theta(6)) == pytest.approx(5.0)


# --- pools ----------------------------------------------------------------------------------------------------------


def test_a_pool_churns_one_arm_at_a_time_and_arms_keep_their_features():
    env = ChurningPool(DIM, arms=4, every=3)
    block = env.block(1, 60)
    seen = {}
    for n, (arms, ids) in enumerate(zip(block.arms, block.ids), 1):
        assert len(set(ids)) == 4
        for arm, name in zip(arms, ids):
            first, features = seen.setdefault(int(name), (n, arm))
            np.testing.assert_array_equal(arm, features)
            assert n < first + 4 * 3  # how long an arm stays
    assert (np.diff(block.ids, axis=0) != 0).sum(axis=1).tolist() == ([0, 0, 1] * 20)[:59]
    assert sorted(seen) == list(range(4 + 19))
    born = [seen[name][0] for name in range(4, 23)]
    assert born == [3 * j + 1 for j in range(1, 20)]


@pytest.mark.parametrize(("dim", "nnz"), [(7, 3), (1000, 8), (5, 5), (6, 2)])
@pytest.mark.parametrize("reward", ["gaussian", "bernoulli"])
def test_sparse_rows_have_their_non_zeros_in_order(dim, nnz, reward):
    env = FreshContexts(dim, ARMS, nnz=nnz, reward=reward)
    block = env.block(1, 200)
    rows = block.arms
    assert rows.shape == (200 * ARMS, dim)
    columns = rows.indices.reshape(-1, nnz)
    assert (np.diff(columns, axis=1) > 0).all()
    assert columns.min() == 0
    assert columns.max() == dim - 1
    assert reward == "gaussian" or (columns[:, 0] == 0).all()
    np.testing.assert_allclose(rows @ env.theta(1), block.means.ravel())


def test_a_linear_bandit_on_a_set():
    env = LinearBandit(Sphere(4), reward="bounded", seed=9, moves=Rotates(100.0))
    for n in (1, 30):
        theta = env.theta(n)
        assert env.best(n) == pytest.approx(np.linalg.norm(theta))
        x = env.actions.basis()[2]
        assert env.mean(n, x) == theta[2]
        assert env.reward(n, x) == theta[2] + env.noise(n, 1)[0]


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedArms(DIM, ARMS, reward="poisson"), "gaussian"),
        (lambda: FixedArms(DIM, ARMS, sigma=-1.0), "sigma"),
        (lambda: FixedArms(DIM, ARMS, reward="bounded", sigma=0.6), "0.577"),
        (lambda: FixedArms(DIM, ARMS, moves=Jumps(0)), "positive number of rounds"),
        (lambda: FixedArms(DIM, ARMS, moves=Rotates(-3.0)), "positive number of rounds"),
        (lambda: FixedArms(1, ARMS, moves=Rotates(9.0)), "too small"),
        (lambda: FixedArms(1, ARMS, reward="bernoulli"), "too small"),
        (lambda: FixedArms(DIM, ARMS, theta=[1.0, 2.0]), "7 finite numbers"),
        (lambda: FixedArms(DIM, ARMS, theta=np.zeros(DIM)), "not all 0"),
        (lambda: FixedArms(DIM, ARMS, theta=np.ones(DIM), reward="bernoulli"), "own theta"),
        (lambda: FixedArms(2, np.eye(2), reward="bernoulli"), "own arms"),
        (lambda: FixedArms(3, np.eye(2)), "dim=3"),
        (lambda: FixedArms(DIM, 0), "arms must be a whole number of at least 1"),
        (lambda: FixedArms(DIM, ARMS, moves=5), "Jumps"),
        (lambda: FixedArms(2.5, ARMS), "dim must be a whole number"),
        (lambda: FixedArms(DIM, ARMS, seed="a"), "seed must be"),
        (lambda: ChurningPool(DIM, ARMS, every=0), "every must be a whole number of at least 1"),
        (lambda: FreshContexts(DIM, ARMS, nnz=8), "nnz"),
        (lambda: FreshContexts(DIM, ARMS, nnz=1, reward="bernoulli"), "nnz"),
        (lambda: LinearBandit(Sphere(3), reward="bernoulli"), "leave"),
    ],
)
def test_settings_that_cannot_work_are_refused(make, message):
    with pytest.raises((SettingsError, DimensionError), match=message):
        make()


def test_an_unknown_setting_is_refused():
    with pytest.raises(TypeError, match="noise"):
        FixedArms(DIM, ARMS, noise=1.0)


def test_rounds_and_arms_that_do_not_exist_are_refused():
    env = FixedArms(DIM, ARMS)
    for call in (lambda: env.round(0), lambda: env.block(1, 0), lambda: env.theta(-1), lambda: env.noise(0, 3)):
        with pytest.raises(SettingsError, match="must be a whole number of at least 1"):
            call()
    for k in (-1, ARMS):
        with pytest.raises(InputError, match=r"arms 0 \.\.\. 4"):
            env.reward(1, k)
    with pytest.raises(DimensionError, match="dim=3"):
        LinearBandit(Sphere(3)).reward(1, np.ones(2))
