"""Which arm is chosen, and how likely that was."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import scipy.sparse as sp

import naive
from driftls import ridge
from driftls.environments import FixedArms, FreshContexts
from driftls.errors import ConditioningWarning, InputError
from driftls.inputs import Rows
from driftls.policies import DisjointLinUCB, Greedy, LinUCB, SharedPolicy
from driftls.simulation import simulate
from driftls.testing.common import same_snapshot
from driftls.testing.policies import played, rounds
from driftls.trackers import OLS, RAW, RLS, SAGA
from driftls.widths import DiagonalWidth, ExactWidth, NoWidth, PhiWidth
from policy_cases import CASES, DIM

ARMS = 5


def fast(dim, **settings):
    return LinUCB(tracker=SAGA(dim, seed=0, **RAW), width=DiagonalWidth(), seed=0, **settings)


def sparse(rng, count=3, dim=8):
    return sp.csr_array(rng.normal(size=(count, dim)) * (rng.random((count, dim)) < 0.4))


@pytest.mark.parametrize("kind", [np.array, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("kappa", [None, 0.8])
def test_decisions_and_kappa_are_those_of_the_oracle(kind, kappa):
    policy = LinUCB(tracker=RLS(DIM, **RAW), width=ExactWidth(), kappa=kappa, sigmas=1.0)
    oracle = naive.LinUCB(DIM, kappa)
    rng = np.random.default_rng(4)
    for n in range(120):
        arms = rng.normal(size=(ARMS, DIM)) * (rng.random((ARMS, DIM)) < (0.5 if kind is sp.csr_array else 1.0))
        scores = np.array([oracle.score(x) for x in arms])
        np.testing.assert_allclose(policy.scores(kind(arms)), scores, atol=1e-9)
        k = policy.choose(kind(arms))
        assert k == naive.best(scores), n
        y = float(arms[k].sum() + rng.normal())
        policy.learn(kind(arms), y, arm=k)
        oracle.learn(arms[k], y)
        assert policy.kappa == pytest.approx(oracle.kappa, rel=1e-10)
        assert policy.probability == 1.0
    np.testing.assert_allclose(policy.theta, oracle.theta, atol=1e-9)


@pytest.mark.parametrize("ids", [None, list("abcd")], ids=["new arms", "arms that recur"])
@pytest.mark.parametrize("size", [1e-30, 1.0, -1.0, 1e30])
def test_the_first_of_those_that_tie_is_chosen(ids, size):
    scores = size * np.array([1.0, 1.0 + 3e-9, 1.0 + 3.5e-9, 1.0 + 3.2e-9])
    policy = LinUCB(tracker=RLS(4, **RAW), width=ExactWidth(), kappa=0.0, seed=0)
    for k in range(4):
        policy.learn(np.eye(4)[[k]], 2.0 * scores[k], arm=0)  # of which a ridge of 1 leaves half
    for one in (policy, policy.freeze()):
        np.testing.assert_allclose(one.scores(np.eye(4)), scores, rtol=1e-15)
        for allowed in ([0, 1, 2, 3], [0, 2, 3], [2, 3], [0]):
            best = allowed[naive.best(scores[allowed])]
            assert one.choose(np.eye(4), ids=ids, allowed=allowed) == best
            assert one.probabilities(np.eye(4), ids=ids, allowed=allowed)[best] == 1.0
    assert policy.choose(np.eye(4), ids=ids) == (1 if size > 0.0 else 0)


@pytest.mark.parametrize("name", ["LinUCB", "SAGA + phi", "Random", "one exact model an arm"])
def test_frequencies_are_the_probabilities_that_were_told(name):
    policy, count = CASES[name](epsilon=0.4), 3000
    played(policy, 15)
    arms, ids, _ = next(rounds(policy, 1))
    if policy.disjoint:
        policy = policy.freeze()  # or units, and widths with them, would become those of this one round
    told = policy.probabilities(arms, ids=ids)
    chosen = [policy.choose(arms, ids=ids) for _ in range(count)]
    found = np.bincount(chosen, minlength=ARMS) / count
    assert (np.abs(found - told) <= 5.0 * np.sqrt(told * (1.0 - told) / count) + 1e-12).all()


FROZEN = ["LinUCB", "RLS + exact", "SAGA + phi", "LinTS", "one exact model an arm", "one SAGA an arm, centred"]


@pytest.mark.parametrize("kind", [np.array, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_policy_plays_as_it_chooses_and_notes_nothing_of_the_arms(name, kind):
    policy = CASES[name](epsilon=0.2)
    played(policy, 30, kind)
    one, many = policy.freeze(), policy.freeze()
    block = list(rounds(one, 10, kind, 40))
    ids, stack = block[0].ids, sp.vstack if kind is sp.csr_array else np.vstack
    arms = stack([100.0 * entry.arms for entry in block])  # far from what gave features their units
    chosen = [one.choose(100.0 * entry.arms, ids=ids) for entry in block]
    assert many.choose_many(arms, ids=ids).tolist() == chosen
    same_snapshot(one.snapshot(), many.snapshot(), "many rounds of a frozen policy")
    if policy.units is not None:
        for what in ("count", "squares", "unit"):
            np.testing.assert_array_equal(many.units.arrays[what], policy.units.arrays[what])


def test_frequencies_among_allowed_arms():
    policy, count = CASES["RLS + exact"](epsilon=0.4), 3000
    arms, ids, _ = next(rounds(policy, 1))
    told = policy.probabilities(arms, ids=ids, allowed=[0, 3])
    chosen = [policy.choose(arms, ids=ids, allowed=[0, 3]) for _ in range(count)]
    found = np.bincount(chosen, minlength=ARMS) / count
    assert sorted(told)[:3] == [0.0, 0.0, 0.0]
    assert sorted(told)[3:] == pytest.approx([0.2, 0.8])
    assert (np.abs(found - told) <= 5.0 * np.sqrt(told * (1.0 - told) / count) + 1e-12).all()


def test_the_probability_of_a_sampled_choice_is_not_known():
    policy = CASES["LinTS"]()
    played(policy, 2)
    with pytest.raises(InputError, match="by sampling is not known"):
        _ = policy.probability
    with pytest.raises(InputError, match="scores that are sampled"):
        policy.probabilities(np.eye(DIM))


def test_no_width_is_greedy():
    policy = SharedPolicy(RLS(DIM, **RAW), NoWidth(), kappa=0.0)
    played(policy, 30)
    arms = next(rounds(policy, 1)).arms
    np.testing.assert_allclose(policy.scores(arms), arms @ policy.theta, atol=1e-12)
    assert not policy.widths(arms).any()


@pytest.mark.parametrize(
    "tracker", [lambda: RLS(DIM, discount=0.9, **RAW), lambda: OLS(DIM, **RAW)], ids=["discounted", "OLS"]
)
def test_a_tracker_that_solves_when_asked_is_asked(tracker):
    environment, runs = FreshContexts(DIM, 4, seed=2), []
    for engine in ("python", "compiled"):
        policy = Greedy(tracker())
        runs.append(simulate(policy, environment, 80, engine=engine, points=range(1, 81)).traces)
        arms = environment.round(81).arms
        np.testing.assert_allclose(policy.scores(arms), arms @ policy.theta, atol=1e-12)
        assert policy.choose(arms) == naive.best(arms @ policy.theta)
    assert runs[0] == runs[1]


def test_an_ill_conditioned_matrix_leaves_the_widths_exact():
    """Rows of very different sizes cost Sherman-Morrison its digits: it has to notice, in both engines."""
    arms = np.array([[1e5, 1e5, 0.0], [1e5, 1e5 + 1.0, 0.0], [0.0, 1.0, 1e-2]])
    runs = []
    for engine in ("python", "compiled"):
        policy = LinUCB(tracker=RLS(3, regularisation=ridge(1e-3), **RAW), width=ExactWidth(), kappa=1.0)
        with pytest.warns(ConditioningWarning, match="too ill-conditioned for Sherman-Morrison"):
            simulate(policy, FixedArms(3, arms, theta=[1.0, -1.0, 0.5], seed=1), 60, engine=engine)
        assert np.isfinite(policy.scores(arms)).all()
        runs.append((policy.tracker.route, policy.theta.tolist()))
    assert runs[0] == runs[1]


@pytest.mark.filterwarnings("ignore")
def test_an_exact_tracker_that_has_to_be_solved_first_is():
    """It may leave Sherman-Morrison in rows that the policy does not see."""
    policy, arms = LinUCB(tracker=RLS(2, **RAW), seed=0), np.eye(2)
    policy.choose(arms)
    X = np.array([[1e9, 1.0], [1e9, -1.0], [1.0, 1.0]])
    policy.tracker.partial_fit(X, np.ones(3))
    expected = np.sqrt(np.diag(np.linalg.inv(X.T @ X + np.eye(2))))
    np.testing.assert_allclose(policy.widths(arms), expected, rtol=1e-6)


# -- forms of arms -----------------------------------------------------------------------------------------------------


def test_every_form_of_arms_is_taken_alike():
    rng = np.random.default_rng(4)
    kinds = (sp.csr_array, sp.csr_matrix, sp.coo_array, sp.csc_array, sp.bsr_array, _wide, _rows)
    policies = [fast(8) for _ in kinds]
    for _ in range(15):
        arms = sparse(rng)
        chosen = [policy.choose(kind(arms)) for policy, kind in zip(policies, kinds)]
        assert len(set(chosen)) == 1
        for policy, kind in zip(policies, kinds):
            policy.learn(kind(arms), 1.0, arm=chosen[0])
    assert len({policy.theta.tobytes() for policy in policies}) == 1


def _wide(arms):
    arms = arms.copy()
    arms.indices, arms.indptr = arms.indices.astype(np.int64), arms.indptr.astype(np.int64)
    return arms


def _rows(arms):
    return Rows(arms.indices.astype(np.int32), arms.data, arms.indptr.astype(np.int64), arms.shape[1])


def test_lists_are_taken_as_arrays_are():
    rng, one, two = np.random.default_rng(5), fast(6, epsilon=0.2), fast(6, epsilon=0.2)
    for _ in range(50):
        arms, reward = rng.normal(size=(4, 6)), float(rng.normal())
        k = one.choose(arms)
        assert two.choose(arms.tolist()) == k
        one.learn(arms, reward, arm=k)
        two.learn(arms[k].tolist(), reward)
    assert one.theta.tobytes() == two.theta.tobytes()
    assert one.kappa == two.kappa


def test_sparse_arms_that_are_filled_anew_in_place_are_read_anew():
    """One matrix that a loop refills: other rows, also of other lengths."""
    rng, same, built = np.random.default_rng(1), fast(8), fast(8)
    arms = sp.csr_array(np.eye(3, 8))
    for _ in range(30):
        cuts = np.sort(rng.choice(np.arange(1, 3), 2, replace=True))
        arms.indptr[:] = [0, *cuts, 3]
        arms.indices[:] = np.sort(rng.choice(8, 3, replace=False))
        fresh = arms.copy()
        k = same.choose(arms)
        assert built.choose(fresh) == k
        same.learn(arms, 1.0, arm=k)
        built.learn(fresh, 1.0, arm=k)
    assert same.theta.tobytes() == built.theta.tobytes()


def test_an_array_whose_shape_was_changed_in_place_is_looked_at_again():
    arms, policy = np.ones((4, 3)), fast(3)
    for _ in range(3):
        policy.learn(arms, 1.0, arm=policy.choose(arms))
    arms.shape = (3, 4)
    with pytest.raises(InputError):
        policy.choose(arms)
    with pytest.raises(InputError):
        policy.learn(arms, 1.0, arm=0)


@pytest.mark.parametrize("make", [lambda: fast(8), lambda: LinUCB(tracker=SAGA(8, seed=0, **RAW), width=PhiWidth())])
def test_more_arms_than_there_was_room_for(make):
    policy, rng = make(), np.random.default_rng(0)
    for count in (3, 40, 5, 200):
        arms = rng.normal(size=(count, 8))
        ids = [f"{count} {k}" for k in range(count)]
        k = policy.choose(arms, ids=ids)
        assert k == naive.best(policy.scores(arms, ids=ids))
        policy.learn(arms, 1.0, arm=k, ids=ids)


def test_arms_may_be_a_list_of_indices_and_values():
    arms = [([1, 5], [1.0, 2.0]), ([2], [1.0]), ([], [])]
    matrix = sp.csr_array(([1.0, 2.0, 1.0], [1, 5, 2], [0, 2, 3, 3]), shape=(3, 8))
    one, other = LinUCB(8, seed=0), LinUCB(8, seed=0)
    for n in range(20):
        k = one.choose(arms)
        assert k == other.choose(matrix)
        one.learn(arms, float(n % 3), arm=k)
        other.learn(matrix, float(n % 3), arm=k)
    assert one.scores(arms).tolist() == other.scores(matrix).tolist()


def test_infinity_in_a_rare_feature_is_refused_although_its_unit_is_not_known_well():
    policy = LinUCB(3, seed=0)
    rows = [sp.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]])) for _ in range(2)]
    policy.learn(rows[0], 1.0, arm=policy.choose(rows[0]))
    rows[1].data[2] = np.inf
    before = policy.snapshot()
    for call in (policy.choose, policy.scores, policy.widths, lambda arms: policy.play(arms, rounds=1)):
        with pytest.raises(InputError, match="finite"):
            call(rows[1])
    same_snapshot(before, policy.snapshot(), "a refused call")


@pytest.mark.parametrize("factor", [1.0, 0.7, 3.0, 1e5])
def test_scores_that_cancel_tie_by_the_size_of_their_terms(factor):
    policy, arms = LinUCB(tracker=RLS(2), width=NoWidth(), seed=0), factor * np.eye(2)
    for y in [0.0, 1.0] * 6:
        for arm in (0, 1):
            policy.learn(arms, y, arm=arm)
        assert policy.choose(arms) == 0


def test_one_arm_whose_rewards_are_all_equal_is_no_divergence():
    rng, policy = np.random.default_rng(0), DisjointLinUCB(2000, seed=0, epsilon=1.0)
    for _ in range(60):
        x = sp.random_array((1, 2000), density=0.004, rng=rng, format="csr")
        k = policy.choose(x, ids=["a", "b", "c"])
        policy.learn(x, float(k), arm=k, ids=["a", "b", "c"])
    told = [policy.model(name).predict(x)[0] for name in ("a", "b", "c")]
    np.testing.assert_allclose(told, [0.0, 1.0, 2.0], atol=0.5)


def test_a_matrix_that_lost_all_digits_is_inverted_all_the_same():
    rng, policy = np.random.default_rng(2), LinUCB(tracker=RLS(6, scale=False, intercept=False), seed=0)

    def learn():
        for _ in range(130):
            arms = rng.normal(size=(5, 6)) + 1e9
            policy.learn(arms, float(rng.normal()), arm=policy.choose(arms))

    with pytest.warns(ConditioningWarning):
        learn()
    assert np.isfinite(policy.theta).all()


@pytest.mark.parametrize("kind", [LinUCB, DisjointLinUCB])
def test_a_copy_before_the_first_arms_draws_from_the_same_kind_of_generator(kind):
    def learned(policy):
        rng = np.random.default_rng(1)
        for _ in range(40):
            arms = rng.normal(size=(4, 250)) * (rng.random((4, 250)) < 0.1)
            given = {"ids": range(4)} if kind is DisjointLinUCB else {}
            x = sp.csr_array(arms[:1] if given else arms)
            k = policy.choose(x, **given)
            policy.learn(x, float(arms[k, :9].sum()), arm=k, **given)
        return policy.scores(x, **given)

    def fresh():
        return kind(250, seed=np.random.Generator(np.random.Philox(3)))

    np.testing.assert_array_equal(learned(copy.deepcopy(fresh())), learned(fresh()))


@pytest.mark.parametrize("raw", [{}, RAW], ids=["units", "raw"])
def test_arms_are_their_owners_again_after_a_choice(raw):
    rng = np.random.default_rng(0)
    one, other = (LinUCB(tracker=SAGA(3, seed=0, **raw), width=DiagonalWidth(), seed=0) for _ in range(2))
    for n in range(20):
        arms = rng.normal(size=(5, 3))
        assert one.choose(arms, key=n) == other.choose(arms.copy(), key=n)
        arms[:] = np.nan
        for policy in (one, other):
            policy.learn(reward=float(n % 3), key=n)
    np.testing.assert_array_equal(one.theta, other.theta)
