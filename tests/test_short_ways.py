"""The short ways of a policy, and what must not slip through them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import driftls
from driftls.errors import DimensionError, DivergenceError, InputError
from driftls.logs import Event
from driftls.policies import Crossed, DisjointLinUCB, LinUCB
from driftls.replay import replay
from driftls.trackers import CD, GD, RAW, RLS, SAGA
from driftls.widths import DiagonalWidth, NoWidth, PhiWidth


def sparse_user(dim=2):
    return sp.csr_array((np.ones(1), np.array([1], np.int32), np.array([0, 1], np.int32)), shape=(1, dim))


def fast(dim, **more):
    return LinUCB(tracker=SAGA(dim, seed=0, **RAW), width=DiagonalWidth(), seed=0, **more)


@pytest.mark.parametrize(
    ("tracker", "width"), [(SAGA, PhiWidth()), (CD, PhiWidth(method="cd"))], ids=["phi", "phi by coordinates"]
)
def test_a_model_of_an_arm_may_have_phi_widths(tracker, width):
    """Which keep no arms there: a slot names a model, and not a place in the width"""
    policy = DisjointLinUCB(2, tracker=tracker(2), width=width, seed=0)
    users = np.random.default_rng(0).normal(size=(40, 2))
    for user in users:
        policy.learn(user, 1.0, arm=policy.choose(user, ids=["a", "b", "c"]), ids=["a", "b", "c"])
    assert np.isfinite(policy.widths(users[0], ids=["a", "b", "c"])).all()
    assert sum(len(tracker) for tracker in policy.trackers.values()) == 40


def test_blocks_of_crossed_arms_cannot_be_moved_afterwards():
    blocks = np.array([0, 1])
    arms = Crossed([1.0, 0.5], blocks, count=3)
    blocks[1] = 1000
    policy = fast(6)
    policy.learn(arms, 1.0, arm=policy.choose(arms))
    with pytest.raises(ValueError, match="read-only"):
        arms.blocks[0] = 7
    arms.users.indptr[1] = 10_000
    with pytest.raises(InputError, match="indptr"):
        policy.choose(arms)


@pytest.mark.parametrize(
    ("user", "blocks", "count"), [([1.0], [0.7], 2), ([1.0], [0], 2.5), ([1j], [0], 2), (["a"], [0], 2)]
)
def test_crossed_arms_of_other_than_numbers_are_refused(user, blocks, count):
    with pytest.raises(InputError):
        Crossed(user, blocks, count)


def test_crossed_arms_can_be_taken_one_by_one():
    arms = Crossed([1.0, 0.5], [2, 0], count=3)
    assert [one.blocks.tolist() for one in arms] == [[2], [0]]
    assert arms[1].shape == (1, 6)
    with pytest.raises(IndexError, match="2 arms"):
        arms[2]


def test_an_array_whose_shape_was_changed_in_place_is_looked_at_again():
    arms, policy = np.ones((4, 3)), fast(3)
    for _ in range(3):
        policy.learn(arms, 1.0, arm=policy.choose(arms))
    arms.shape = (3, 4)
    with pytest.raises(InputError):
        policy.choose(arms)
    with pytest.raises(InputError):
        policy.learn(arms, 1.0, arm=0)


def test_sparse_arms_that_are_filled_anew_in_place_are_read_anew():
    """One matrix that a loop refills: other rows, also of other lengths"""
    rng, same, built = np.random.default_rng(1), fast(8), fast(8)
    arms = sp.csr_array(np.eye(3, 8))
    arms.indices, arms.indptr = arms.indices.astype(np.int32), arms.indptr.astype(np.int32)
    for _ in range(30):
        cuts = np.sort(rng.choice(np.arange(1, 3), 2, replace=True))
        arms.indptr[:] = [0, *cuts, 3]
        arms.indices[:] = np.sort(rng.choice(8, 3, replace=False))
        fresh = arms.copy()
        k = same.choose(arms)
        assert built.choose(fresh) == k
        same.learn(arms, 1.0, arm=k)
        built.learn(fresh, 1.0, arm=k)
    assert np.array_equal(same.theta, built.theta)


def test_matrices_of_both_kinds_of_scipy_are_taken_alike():
    rng, kinds, policies = (
        np.random.default_rng(4),
        (sp.csr_array, sp.csr_matrix, sp.coo_array),
        [fast(8) for _ in "abc"],
    )
    for _ in range(20):
        arms = sp.csr_array(rng.normal(size=(3, 8)) * (rng.random((3, 8)) < 0.4))
        chosen = [policy.choose(kind(arms)) for policy, kind in zip(policies, kinds)]
        assert chosen == chosen[:1] * 3
        for policy, kind in zip(policies, kinds):
            policy.learn(kind(arms), 1.0, arm=chosen[0])
    assert np.array_equal(policies[0].theta, policies[1].theta)
    assert np.array_equal(policies[0].theta, policies[2].theta)


def test_indices_of_64_bits_are_taken_alike_and_none_comes_out_as_another():
    rng, narrow, wide = np.random.default_rng(6), fast(8), fast(8)
    for _ in range(20):
        arms = sp.csr_array(rng.normal(size=(3, 8)) * (rng.random((3, 8)) < 0.4))
        broad = arms.copy()
        arms.indices, broad.indices = arms.indices.astype(np.int32), broad.indices.astype(np.int64)
        k = narrow.choose(arms)
        assert wide.choose(broad) == k
        narrow.learn(arms, 1.0, arm=k)
        wide.learn(broad, 1.0, arm=k)
    assert np.array_equal(narrow.theta, wide.theta)
    broad = sp.csr_array(np.eye(3, 8))
    broad.indices = broad.indices.astype(np.int64) + 2**32
    with pytest.raises(DimensionError, match="outside"):
        wide.choose(broad)
    each, user = DisjointLinUCB(8, seed=0), broad[[0]]
    each.choose(sparse_user(8), ids=[1])
    user.indices = user.indices.astype(np.int64) + 2**32
    with pytest.raises(DimensionError, match="outside"):
        each.choose(user, ids=[1])


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


def test_a_model_that_learned_by_itself_is_followed_by_the_compiled_loop():
    rng = np.random.default_rng(2)
    events = [
        Event(time=i, arms=np.array([1, 2]), shown=int(rng.integers(2)), reward=1.0,
              user_index=np.array([0, 1], np.int32), user_value=rng.normal(size=2))
        for i in range(300)
    ]  # fmt: skip
    ends = []
    for engine in ("compiled", "python"):
        policy = DisjointLinUCB(2, tracker=SAGA(2, **RAW), seed=0)
        policy.choose(sparse_user(), ids=[1, 2])
        policy.model(1).partial_fit(sp.csr_array(np.random.default_rng(3).normal(size=(5000, 2))), np.ones(5000))
        replay(policy, events, engine=engine)
        ends.append((len(policy.model(1)), *policy.model(1).theta))
    assert ends[0] == ends[1]


def test_a_pool_that_could_not_be_made_is_forgotten(monkeypatch):
    policy = DisjointLinUCB(2, most_arms=2, seed=0)
    user = np.array([1.0, 0.5])
    policy.choose(user, ids=["a", "b"])
    with monkeypatch.context() as patched:
        patched.setattr(policy, "_new", lambda name: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            policy.choose(user, ids=["c", "d"])
    assert policy.choose(user, ids=["a", "b"]) == 0
    assert len(policy) == 2


@pytest.mark.parametrize("engine", ["compiled", "python"])
def test_a_reward_that_is_no_number_stops_a_replay(engine):
    event = Event(time=0, arms=np.array([1, 2]), shown=0, reward=np.nan, user_index=np.array([0], np.int32),
                  user_value=np.ones(1))  # fmt: skip
    with pytest.raises(InputError, match="line 0: a reward must be finite"):
        replay(DisjointLinUCB(2, seed=0), [event], engine=engine)


def test_a_step_size_that_fails_leaves_no_slot_behind():
    def failing(n):
        if n > 3:
            raise RuntimeError("no more")
        return 0.1

    policy = LinUCB(tracker=SAGA(2, step_size=failing, seed=0, **RAW), width=PhiWidth(), seed=0)
    arms = np.eye(2)

    def learn_on():
        for _ in range(3000):
            policy.learn(arms, 1.0, arm=policy.choose(arms, ids=["a", "b"]), ids=["a", "b"])

    with pytest.raises(RuntimeError, match="no more"):
        learn_on()
    assert (policy._idle.slots == -1).all()


def test_pointers_that_lie_are_refused():
    user = sparse_user()
    policy = DisjointLinUCB(2, seed=0)
    policy.choose(user, ids=[1, 2])
    user.indptr = user.indptr[:1]
    with pytest.raises(InputError, match="indptr"):
        policy.choose(user, ids=[1, 2])


def test_a_number_instead_of_an_arm_is_refused():
    policy = fast(2)
    policy.choose(np.eye(2))
    with pytest.raises(InputError):
        policy.learn(np.array(1.0), 1.0)


@pytest.mark.filterwarnings("ignore")
def test_an_exact_tracker_that_has_to_be_solved_first_is():
    """It may leave Sherman-Morrison in rows that the policy does not see"""
    short, long = (LinUCB(tracker=RLS(2, **RAW), seed=0) for _ in range(2))
    arms = np.eye(2)
    for policy in (short, long):
        policy.choose(arms)
        policy.tracker.partial_fit(np.array([[1e9, 1.0], [1e9, -1.0], [1.0, 1.0]]), np.ones(3))
    assert short.choose(arms) == long.choose(arms.tolist())
    np.testing.assert_allclose(short.scores(arms), long.scores(arms.tolist()))


def test_modules_are_there_when_they_are_asked_for():
    assert driftls.schedules.ridge is driftls.ridge
    with pytest.raises(AttributeError, match="nonsense"):
        _ = driftls.nonsense
