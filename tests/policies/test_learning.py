"""What a policy learns, when, and what it does with what it cannot."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import scipy.sparse as sp

from driftls.errors import DivergenceError, InputError, SettingsError
from driftls.history import Growing, Mapped, Reservoir, Window
from driftls.policies import DisjointLinUCB, LinUCB
from driftls.testing.policies import played, rounds
from driftls.testing.trackers import same_snapshot
from driftls.trackers import GD, RAW, RLS, SAGA
from driftls.widths import DiagonalWidth, NoWidth, PhiWidth
from policy_cases import CASES, DIM

SHARED = [name for name, case in CASES.items() if not case().disjoint]


@pytest.mark.parametrize("name", SHARED)
def test_rewards_may_come_late_and_in_any_order(name):
    policy = CASES[name]()
    arms, ids, rewards = next(rounds(policy, 1))
    choices = [policy.choose(arms, ids=ids) for _ in range(6)]
    for n in (3, 0, 5):
        policy.learn(arms, float(rewards[choices[n]] + n), arm=choices[n], ids=ids)
    policy.learn(arms[2], 1.0)
    assert len(policy.tracker) == 4
    if isinstance(policy.tracker, RLS) and policy.units is None:
        X = np.array([*(arms[choices[n]] for n in (3, 0, 5)), arms[2]])
        y = [*(rewards[choices[n]] + n for n in (3, 0, 5)), 1.0]
        np.testing.assert_allclose(policy.theta, np.linalg.solve(X.T @ X + np.eye(DIM), X.T @ y), atol=1e-10)


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("kind", [np.array, lambda x: sp.csr_array(x[None])], ids=["dense", "sparse"])
def test_learning_may_come_before_the_first_choice(name, kind):
    policy = CASES[name]()
    policy.learn(kind(np.ones(DIM) / DIM), 1.0)
    assert len(policy.tracker) == 1
    arms, ids, _ = next(rounds(policy, 1))
    assert 0 <= policy.choose(arms, ids=ids) < 5


@pytest.mark.parametrize("x", [([0, 2], [1.0, 0.5]), (np.array([0, 2], np.int32), np.array([1.0, 0.5]))])
def test_a_row_may_be_a_pair_of_indices_and_values(x):
    one, two = (LinUCB(tracker=SAGA(4, seed=0, **RAW), width=DiagonalWidth(), seed=0) for _ in range(2))
    for _ in range(3):
        one.learn(x, 1.0)
        two.learn(sp.csr_array([[1.0, 0.0, 0.5, 0.0]]), 1.0)
    assert one.theta.tobytes() == two.theta.tobytes()


def test_a_choice_that_was_made_elsewhere_is_remembered():
    policy, straight = (LinUCB(tracker=RLS(3, **RAW), seed=0) for _ in range(2))
    policy.remember("k", [1.0, 2.0, 3.0], "a")
    policy.remember(("k", 2), ([0], [1.0]))
    policy.learn(reward=1.0, key="k")
    policy.learn(reward=0.0, key=("k", 2))
    straight.learn(np.array([1.0, 2.0, 3.0]), 1.0)
    straight.learn(np.array([1.0, 0.0, 0.0]), 0.0)
    assert policy.theta.tobytes() == straight.theta.tobytes()
    with pytest.raises(InputError, match="was used before"):
        policy.remember("k", np.ones(3))


@pytest.mark.parametrize("reward", [np.nan, np.inf, "1", None])
def test_a_refused_reward_leaves_its_key_waiting(reward):
    policy = CASES["LinUCB"]()
    arms, ids, _ = next(rounds(policy, 1))
    policy.choose(arms, ids=ids, key=7)
    with pytest.raises(InputError, match=r"a reward must be|learn needs a reward"):
        policy.learn(reward=reward, key=7)
    for waiting in (copy.deepcopy(policy), policy):
        waiting.learn(reward=1.0, key=7)
        assert len(waiting.tracker) == 1


@pytest.mark.parametrize(("settings", "learned"), [({"regularisation": 0.6}, True), ({"guard": True}, False)])
def test_a_key_waits_no_longer_once_its_row_was_learned_also_if_the_error_ran_away(settings, learned):
    policy = LinUCB(tracker=GD(2, step_size=1.9, seed=0, **settings, **RAW), width=NoWidth(), seed=0)
    x, keys = np.array([1.0, 0.0]) if learned else np.array([2.0, 0.0]), []

    def learn_on():
        for key in range(2000):
            keys.append(key)
            policy.remember(key, x)
            policy.learn(reward=1.0, key=key)

    with pytest.raises(DivergenceError):
        learn_on()
    assert (keys[-1] in policy.keys.learned) is learned
    assert (keys[-1] in policy.keys.waiting) is not learned


def test_a_row_that_diverges_is_counted_once():
    policy = LinUCB(tracker=GD(2, step_size=1.9, regularisation=0.6, seed=0, **RAW), width=NoWidth(), seed=0)
    x, counts = np.array([1.0, 0.0]), []

    def learn_on():
        for _ in range(2000):
            counts.append(len(policy.tracker))
            policy.learn(x, 1.0)

    with pytest.raises(DivergenceError):
        learn_on()
    assert len(policy.tracker) == counts[-1] + 1


@pytest.mark.parametrize("kind", [np.array, sp.csr_array], ids=["dense", "sparse"])
def test_a_first_row_that_the_guard_refuses_decides_nothing(kind):
    policy = LinUCB(tracker=GD(2, step_size=1.0, seed=0, **RAW), width=NoWidth(), seed=0)
    before = policy.snapshot()
    with pytest.raises(DivergenceError):
        policy.learn(kind(np.array([[9.0, 0.0]])), 1.0, arm=0)
    same_snapshot(before, policy.snapshot(), "a refused first row")
    policy.learn(np.array([[1.0, 0.0]]), 1.0, arm=0)
    assert policy.tracker.sparse is False


def test_a_step_size_that_fails_teaches_nothing():
    def failing(n):
        if n > 3000:
            raise RuntimeError("no more")
        return 0.1

    policy = LinUCB(tracker=SAGA(2, step_size=failing, seed=0, **RAW), width=PhiWidth(), seed=0)
    arms = np.eye(2)

    def learn_on():
        for _ in range(6000):
            policy.learn(arms, 1.0, arm=policy.choose(arms, ids=["a", "b"]), ids=["a", "b"])

    with pytest.raises(RuntimeError, match="no more"):
        learn_on()
    assert np.isfinite(policy.scores(arms, ids=["a", "b"])).all()
    assert len(policy.tracker) <= 3000


def test_functions_of_n_are_passed_again(tmp_path):
    def step(n):
        return 0.1 / n**0.5

    policy = LinUCB(tracker=SAGA(DIM, steps=2, step_size=step, seed=1, **RAW), seed=1)
    played(policy, 10)
    policy.save(tmp_path / "policy")
    with pytest.raises(SettingsError, match="pass step_size= to load"):
        LinUCB.load(tmp_path / "policy")
    again, copied = LinUCB.load(tmp_path / "policy", step_size=step), copy.deepcopy(policy)
    assert played(policy, 10, first=10) == played(again, 10, first=10) == played(copied, 10, first=10)


def test_a_policy_over_a_mapped_history_is_not_copied(tmp_path):
    policy = LinUCB(tracker=SAGA(DIM, steps=2, history=Mapped(tmp_path / "rows"), seed=1, **RAW), seed=1)
    policy.learn(np.ones(DIM), 1.0)
    with pytest.raises(SettingsError, match="cannot be copied"):
        copy.deepcopy(policy)


@pytest.mark.parametrize("engine", ["play", "choose"])
def test_crossed_scores_follow_a_tracker_that_learned_by_itself(engine):
    """Whose table was filled before."""
    from driftls.features import CrossedArms

    def policy():
        return LinUCB(tracker=SAGA(9, steps=1, seed=0, **RAW), width=DiagonalWidth(), kappa=0.0, seed=0)

    one, rows = policy(), sp.csr_array(np.random.default_rng(3).normal(size=(50, 9)))
    arms = CrossedArms([1.0, 0.5, -1.0], [0, 1, 2], count=3)
    for _ in range(12):
        one.choose(arms)
    one.tracker.partial_fit(rows, np.arange(50.0))
    theta = one.theta.reshape(3, 3) @ [1.0, 0.5, -1.0]
    chosen = one.choose(arms) if engine == "choose" else int(one.play(arms)[0])
    assert chosen == int(np.argmax(theta))


def test_a_model_of_an_arm_is_given_as_a_copy():
    policy, user = DisjointLinUCB(2, seed=0), np.array([1.0, 0.5])
    policy.choose(user, ids=["a", "b"])
    before = policy.snapshot()
    policy.model("a").update(user, 1.0)
    same_snapshot(before, policy.snapshot(), "a copy that learned")


@pytest.mark.parametrize("kind", [np.array, sp.csr_array], ids=["dense", "sparse"])
def test_a_copy_of_a_model_predicts_in_units_as_the_policy_does(kind):
    rng, policy = np.random.default_rng(0), DisjointLinUCB(3, kappa=0.0, seed=0)
    for _ in range(60):
        user = kind(rng.normal(size=(1, 3)) * [1.0, 100.0, 0.01])
        k = policy.choose(user, ids=["a", "b"])
        policy.learn(user, 5.0 + k, arm=k, ids=["a", "b"])
        policy.learn(user, 6.0 - k, arm=1 - k, ids=["a", "b"])
    told = np.ravel([policy.model(name).predict(user) for name in ("a", "b")])
    np.testing.assert_allclose(told, [5.0, 6.0], atol=0.1)
    scores = policy.scores(user, ids=["a", "b"])  # measured from the mean reward
    np.testing.assert_allclose(told[1] - told[0], scores[1] - scores[0], atol=1e-9)


@pytest.mark.parametrize("history", [Growing, lambda: Window(40), lambda: Reservoir(40)], ids=["all", "window", "some"])
@pytest.mark.parametrize("entries", range(1, 10))
def test_room_for_a_row_is_room_for_its_constant(entries, history):
    # whatever fills an arena of sparse entries to the last one: a kernel that asked for too little asked for ever
    rng = np.random.default_rng(entries)
    X = sp.csr_array(
        (rng.normal(size=600 * entries), np.tile(np.arange(entries), 600), np.arange(601) * entries), shape=(600, 12)
    )
    played, told = (
        LinUCB(tracker=SAGA(12, seed=1, history=history()), width=DiagonalWidth(), seed=2) for _ in range(2)
    )
    rewards = rng.normal(size=(200, 3))
    choices = played.play(X, rewards)
    for n, k in enumerate(choices):
        assert told.choose(X[3 * n : 3 * n + 3]) == k
        told.learn(X[3 * n : 3 * n + 3], float(rewards[n, k]), arm=k)
    tracker = SAGA(12, seed=1, history=history()).partial_fit(X, rng.normal(size=600))
    assert len(played.tracker) == len(told.tracker) == 200
    assert len(tracker) == 600


@pytest.mark.parametrize("averaging", ["tail", "polyak", None])
def test_other_units_change_no_prediction_of_gradient_descent(averaging):
    rng = np.random.default_rng(0)
    policy = LinUCB(tracker=GD(3, averaging=averaging, seed=0), width=DiagonalWidth(), kappa=0.1, seed=0)
    looks = 0
    for n in range(120):
        arms = rng.normal((5.0, 0.0, 100.0), size=(4, 3))
        before = n and (policy.tracker.predict(arms), policy.units.arrays["means"].copy())
        chosen = policy.choose(arms)
        if n > 30:  # until a feature was seen ten times, its coefficient may be cut
            np.testing.assert_allclose(policy.tracker.predict(arms), before[0], rtol=1e-9)
            looks += bool((policy.units.arrays["means"] != before[1]).any())
        policy.learn(arms, float(arms[chosen] @ [1.0, 2.0, 3.0] + 7.0), arm=chosen)
    assert looks > 1
