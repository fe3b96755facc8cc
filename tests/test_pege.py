"""PEGE and fPEGE-GD: the phases, the estimates, and regret that grows like the square root of n."""

from __future__ import annotations

import math

import numpy as np
import pytest

from driftls import paper
from driftls.environments import Jumps, Rotates
from driftls.errors import DimensionError, DivergenceError, InputError, SettingsError
from driftls.paper.actions import ActionSet, Ball, Ellipsoid, LinearBandit, Sphere
from driftls.paper.pege import PEGE, play
from driftls.paper.theory import check_admissible
from driftls.schedules import Power
from driftls.trackers import CD, GD, OLS, RAW, SAGA

TILTED = np.array([[0.5, 0.2, 0.0], [0.2, 0.4, 0.1], [0.0, 0.1, 0.3]])
SKEWED = np.array([[0.8, 0.6, 0.0], [0.0, 0.8, 0.6], [0.6, 0.0, 0.8]])  # of length 1, not orthogonal
SETS = {
    "sphere": Sphere(3),
    "ball": Ball(3, radius=0.8),
    "ellipsoid": Ellipsoid(TILTED),
    "given": ActionSet(lambda direction: direction, SKEWED, longest=1.0, J=1.0),
}
METHODS = {
    "basis": lambda actions, seed=0: PEGE(actions),
    "ols": lambda actions, seed=0: paper.pege(actions),
    "averaged": lambda actions, seed=0: paper.fpege_gd(actions, step="averaged", seed=seed),
    "theorem": lambda actions, seed=0: paper.fpege_gd(actions, step="theorem", seed=seed),
    "printed": lambda actions, seed=0: paper.fpege_gd(actions, step="printed", seed=seed),
    "SAGA": lambda actions, seed=0: PEGE(actions, SAGA(actions.dim, regularisation=0.0, steps=4, seed=seed, **RAW)),
}
each_set = pytest.mark.parametrize("actions", SETS.values(), ids=SETS)
each_method = pytest.mark.parametrize("make", METHODS.values(), ids=METHODS)
SOUND = [name for name in METHODS if name != "printed"]
each_sound_method = pytest.mark.parametrize("make", [METHODS[name] for name in SOUND], ids=SOUND)


def bandit(actions, seed=0, **settings):
    """Noise as wide as bounded uniform noise can be: uniform on [-1, 1]."""
    return LinearBandit(actions, reward="bounded", sigma=3**-0.5, seed=seed, **settings)


def one_by_one(policy, env, rounds):
    """What `play` does, with choose and learn; the regret of every round."""
    gaps = []
    for n in range(policy.rounds + 1, policy.rounds + rounds + 1):
        x = policy.choose()
        gaps.append(env.best(n) - env.mean(n, x))
        policy.learn(x, env.reward(n, x))
    return np.cumsum(gaps)


def phases(dim, rounds):
    """How many phases, as a real number, so many rounds hold: m d + m(m + 1)/2 rounds are m phases."""
    half = dim + 0.5
    return -half + math.sqrt(half**2 + 2 * rounds)


# --- phases ---------------------------------------------------------------------------------------------------------


@each_set
@each_method
def test_phase_m_explores_the_basis_and_then_plays_one_action_m_times(actions, make):
    policy, env, n = make(actions), bandit(actions), 0
    basis = actions.basis()
    for m in range(1, 9):
        for k in range(3):
            n += 1
            x = policy.choose()
            assert (policy.phase, policy.exploring) == (m, True)
            np.testing.assert_array_equal(x, basis[k])
            policy.learn(x, env.reward(n, x))
        chosen = actions.best(policy.theta)
        for _ in range(m):
            n += 1
            x = policy.choose()
            assert (policy.phase, policy.exploring, policy.explored) == (m, False, 3 * m)
            np.testing.assert_array_equal(x, chosen)
            policy.learn(x, env.reward(n, x))
        assert policy.rounds == n == 3 * m + m * (m + 1) // 2


def test_exploitation_uses_the_last_iterate_and_learns_nothing():
    actions, env = Sphere(4), bandit(Sphere(4), seed=3)
    policy = paper.fpege_gd(actions, step="theorem", seed=5)
    alone = GD(4, step_size=Power.theorem_one(mu=1 / 8), regularisation=0.0, averaging=None, steps=1, seed=5, **RAW)
    for n in range(1, 400):
        x, exploring = policy.choose(), policy.exploring
        reward = env.reward(n, x)
        if exploring:
            alone.update(x, reward)
        else:  # theta_md, which has seen md rows
            assert len(policy.tracker) == 4 * policy.phase
            np.testing.assert_array_equal(x, actions.best(alone.theta))
        policy.learn(x, reward)
        np.testing.assert_array_equal(policy.theta, alone.theta)


@each_set
@each_method
def test_a_whole_run_decides_as_round_by_round(actions, make):
    rounds = 300
    slow, fast = make(actions), make(actions)
    env = bandit(actions, seed=1)
    regret = one_by_one(slow, env, rounds)
    run = play(fast, env, rounds, checkpoints=np.arange(1, rounds + 1))
    np.testing.assert_array_equal(slow.theta, fast.theta)
    np.testing.assert_array_equal(slow.choose(), fast.choose())
    assert (slow.phase, slow.rounds, slow.explored) == (fast.phase, fast.rounds, fast.explored)
    np.testing.assert_allclose(run.regret, regret, rtol=1e-12, atol=1e-12)
    assert run.reward[-1] == pytest.approx(
        sum(env.best(n) for n in range(1, 301)) - regret[-1] + env.noise(1, 300).sum()
    )


@pytest.mark.parametrize("moves", [Jumps(70), Rotates(500.0)], ids=["jumps", "rotates"])
def test_a_whole_run_follows_a_theta_star_that_moves(moves):
    env = bandit(Sphere(3), moves=moves)
    slow, fast = PEGE(Sphere(3)), PEGE(Sphere(3))
    regret = one_by_one(slow, env, 300)
    run = play(fast, env, 300, checkpoints=np.arange(1, 301))
    np.testing.assert_allclose(run.regret, regret, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(slow.theta, fast.theta)


@each_method
def test_a_run_in_pieces_equals_a_run(make):
    whole, pieces, env = make(Sphere(3)), make(Sphere(3)), bandit(Sphere(3))
    total = play(whole, env, 200, checkpoints=[200])
    parts = [play(pieces, env, rounds, checkpoints=[rounds]) for rounds in (1, 4, 7, 100, 88)]
    np.testing.assert_array_equal(whole.theta, pieces.theta)
    np.testing.assert_allclose(sum(part.regret for part in parts), total.regret, rtol=1e-12)
    np.testing.assert_allclose(sum(part.reward for part in parts), total.reward, rtol=1e-12)


def test_checkpoints_come_in_any_order_and_by_default_cover_the_run():
    env = bandit(Sphere(3))
    every = play(PEGE(Sphere(3)), env, 500, checkpoints=np.arange(1, 501))
    some = play(PEGE(Sphere(3)), env, 500, checkpoints=[500, 3, 77])
    np.testing.assert_allclose(some.regret, every.regret[[499, 2, 76]], rtol=1e-14)
    default = play(PEGE(Sphere(3)), env, 500)
    assert default.rounds[0] == 10
    assert default.rounds[-1] == 500
    assert (np.diff(default.rounds) > 0).all()


# --- estimates ------------------------------------------------------------------------------------------------------


@each_set
def test_the_basis_route_is_ordinary_least_squares(actions):
    basis, ols, env = PEGE(actions), paper.pege(actions), bandit(actions)
    assert basis.tracker is None
    for n in range(1, 500):
        x, other = basis.choose(), ols.choose()
        np.testing.assert_allclose(x, other, atol=1e-10)
        basis.learn(x, env.reward(n, x))
        ols.learn(other, env.reward(n, x))
        if ols.explored >= 3:  # in the middle of a phase too
            np.testing.assert_allclose(basis.theta, ols.theta, rtol=0, atol=1e-10)


@each_set
@each_sound_method
def test_rewards_are_maximised(actions, make):
    policy, env = make(actions), bandit(actions, seed=2)
    run = play(policy, env, 20_000, checkpoints=[10_000, 20_000])
    assert env.best(1) > 0
    share = np.diff(run.reward)[0] / (10_000 * env.best(1))
    assert share > 0.8  # an argmin would come out near -1, and chance near 0
    assert np.diff(run.regret)[0] > 0
    assert actions.best(policy.theta) @ env.theta(1) > 0.95 * env.best(1)


def test_steps_are_those_of_the_theorem_and_of_the_box():
    actions = Ellipsoid(TILTED)
    smallest = np.linalg.eigvalsh(TILTED)[0]
    theorem, printed = (paper.fpege_gd(actions, step=step).tracker for step in ("theorem", "printed"))
    c = 6 * 3 / smallest
    check_admissible(smallest / 6, theorem.step_size.offset)
    assert theorem.step_size(7) == pytest.approx(c / (4 * (c + 7)))
    assert printed.step_size(7) == pytest.approx(4 * 3 / (3 * smallest) / 7)
    assert theorem.guard
    assert not printed.guard
    averaged = paper.fpege_gd(actions, step="averaged").tracker
    assert averaged.history.kind == 0
    for tracker in (theorem, printed, averaged):
        assert tracker.regularisation == Power(0.0)


def test_the_printed_step_blows_up_and_the_theorem_s_does_not():
    largest = {"theorem": [], "printed": [], "averaged": []}
    for name, norms in largest.items():
        for seed in range(9):
            policy, env, sizes = METHODS[name](Sphere(50), seed), bandit(Sphere(50), seed), []
            while policy.phase <= 4:
                play(policy, env, 10)
                sizes.append(np.linalg.norm(policy.theta))
            norms.append(max(sizes))
    # ||theta*|| = 1, and OLS of one phase has a noise of sqrt(50/3) = 4.1
    assert max(largest["theorem"] + largest["averaged"]) < 6
    assert np.median(largest["printed"]) > 1000
    step = paper.fpege_gd(Sphere(50), step="printed").tracker.step_size
    guarded = PEGE(Sphere(50), GD(50, step_size=step, regularisation=0.0, **RAW))
    with pytest.raises(DivergenceError, match="step_size times the row's squared norm"):
        play(guarded, bandit(Sphere(50)), 50)


@pytest.mark.parametrize("actions", [Sphere(3), SETS["given"]], ids=["orthogonal", "skewed"])
def test_averaged_steps_are_within_order_one_over_m_of_least_squares(actions):
    """For basis actions of length 1 the distance is at most (1 + gamma d)||last iterate||/(gamma lambda_PEGE m)."""
    env, exact, averaged = bandit(actions), PEGE(actions), paper.fpege_gd(actions, step="averaged")
    last = PEGE(actions, GD(3, step_size=0.5, newest=True, averaging=None, **RAW))
    for m in range(1, 301):
        for policy in (exact, averaged, last):
            play(policy, env, 3)
        distance = np.linalg.norm(averaged.theta - exact.theta)
        assert distance <= (1 + 0.5 * 3) * np.linalg.norm(last.theta) / (0.5 * actions.lambda_min * m) + 1e-12
        for policy in (exact, averaged, last):
            play(policy, env, m)


@pytest.mark.parametrize("name", SOUND)
def test_regret_grows_like_the_square_root(name):
    """The expected regret of a phase is constant, so regret should grow like the number of phases, which is about
    sqrt(2n). The tolerance: four standard errors over the seeds, and what the first 200 rounds, about which nothing is
    claimed, can do to the slope if their regret is taken away.
    """
    dim, early, first, last, seeds = 5, 200, 20_000, 200_000, 9
    slopes, bias = [], []
    for seed in range(seeds):
        run = play(METHODS[name](Sphere(dim), seed), bandit(Sphere(dim), seed), last, checkpoints=[early, first, last])
        start, low, high = run.regret
        slopes.append(math.log(high / low) / math.log(last / first))
        bias.append(math.log((high - start) / (low - start)) / math.log(last / first) - slopes[-1])
    expected = math.log(phases(dim, last) / phases(dim, first)) / math.log(last / first)
    assert 0.5 < expected < 0.52
    tolerance = 4 * np.std(slopes, ddof=1) / math.sqrt(seeds) + np.mean(bias)
    assert tolerance < 0.1  # or the test would say nothing
    assert abs(np.mean(slopes) - expected) < tolerance


def test_averaged_steps_lose_next_to_nothing_against_exact_pege():
    """On the skewed basis too; drawn rows would lose 10% and more."""
    for actions in (Sphere(3), SETS["given"]):
        regret = {
            name: [
                play(METHODS[name](actions), bandit(Sphere(3), seed), 50_000, checkpoints=[50_000]).regret[0]
                for seed in range(6)
            ]
            for name in ("basis", "averaged")
        }
        assert 0.99 < np.sum(regret["averaged"]) / np.sum(regret["basis"]) < 1.02


# --- settings, errors and files -------------------------------------------------------------------------------------


def test_a_set_without_J_is_refused():
    with pytest.raises(SettingsError, match=r"\(A5\).*no J was given"):
        PEGE(ActionSet(np.sign, np.eye(3), longest=3**0.5))


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(SettingsError, match="new tracker with dim=3, got one with dim=4"):
        PEGE(Sphere(3), OLS(4, **RAW))
    with pytest.raises(SettingsError, match="has seen 1 rows"):
        PEGE(Sphere(3), OLS(3, **RAW).partial_fit(np.ones((1, 3)), [1.0]))
    with pytest.raises(SettingsError, match='"averaged", "theorem" or "printed", got \'best\''):
        paper.fpege_gd(Sphere(3), step="best")
    with pytest.raises(SettingsError, match=r"at most 1 \(A2\); these reach 2"):
        paper.fpege_gd(Sphere(3, radius=2.0), step="theorem")


def test_actions_of_any_length_suit_averaged_steps():
    for radius in (0.01, 100.0):
        actions = Sphere(3, radius)
        env = LinearBandit(actions, sigma=radius, seed=1)
        policy = paper.fpege_gd(actions, step="averaged")
        play(policy, env, 20_000)
        assert actions.best(policy.theta) @ env.theta(1) > 0.98 * env.best(1)


@each_method
def test_a_reward_that_cannot_be_used_changes_nothing(make):
    clean, hurt, env = make(Sphere(3)), make(Sphere(3)), bandit(Sphere(3))
    with pytest.raises(InputError, match=r"No action was chosen\. Call choose"):
        hurt.learn([1.0, 0.0, 0.0], 1.0)
    for n in range(1, 30):
        x = hurt.choose()
        np.testing.assert_array_equal(x, hurt.choose())
        for bad in (np.nan, np.inf, "much", None):
            with pytest.raises(InputError, match="reward must be"):
                hurt.learn(x, bad)
        for wrong in (-x, x[:2], [0.0, 0.0, 0.0], None):
            with pytest.raises(InputError, match="not the action that choose"):
                hurt.learn(wrong, 0.5)
        x[:] = 7.0  # the caller's own array
        hurt.learn(hurt.choose(), env.reward(n, hurt.choose()))
        with pytest.raises(InputError, match=f"The reward of round {n} has come already"):
            hurt.learn(x, 0.5)
    play(clean, env, 29)
    np.testing.assert_array_equal(clean.theta, hurt.theta)
    assert clean.rounds == hurt.rounds


def test_a_run_that_cannot_be_played_is_refused():
    with pytest.raises(DimensionError, match="dim=3, but the environment has dim=4"):
        play(PEGE(Sphere(3)), bandit(Sphere(4)), 10)
    with pytest.raises(SettingsError, match="rounds must be a whole number of at least 1"):
        play(PEGE(Sphere(3)), bandit(Sphere(3)), 0)
    for checkpoints in ([0], [11], [2.5], []):
        with pytest.raises(SettingsError, match="checkpoint"):
            play(PEGE(Sphere(3)), bandit(Sphere(3)), 10, checkpoints=checkpoints)


def test_the_paper_s_policies_are_ols_and_fols_gd():
    assert isinstance(paper.pege(Sphere(3)).tracker, OLS)
    assert repr(paper.fpege_gd(Sphere(3))) == repr(paper.fpege_gd(Sphere(3), step="theorem"))
    policies = [paper.fpege_gd(Sphere(3), seed=4) for _ in range(2)]
    for policy in policies:
        play(policy, bandit(Sphere(3)), 200)
    np.testing.assert_array_equal(policies[0].theta, policies[1].theta)


def test_any_tracker_will_do():
    env = bandit(Sphere(3), seed=1)
    for tracker in (CD(3, **RAW), SAGA(3, seed=0, **RAW)):
        policy = PEGE(Sphere(3), tracker)
        play(policy, env, 5000)
        assert policy.choose() @ env.theta(1) > 0.9
