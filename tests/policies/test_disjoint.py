"""One model an arm id: independent LinUCBs, models that come and go, tables across arms."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import scipy.sparse as sp

import naive
from driftls import ridge
from driftls.errors import DimensionError, InputError, SettingsError
from driftls.policies import DisjointLinUCB
from driftls.testing.common import same
from driftls.testing.trackers import same_snapshot
from driftls.trackers import CD, RAW, RLS, SAGA
from driftls.widths import CentredWidth, DiagonalWidth, ExactWidth, NoWidth, PhiWidth, SampleWidth
from policy_cases import DIM

POOLS = [list("abcde"), list("bcfga"), list("hagbi")]
LAYOUTS = pytest.mark.parametrize("kind", [np.array, sp.csr_array], ids=["dense", "sparse"])


def users(count, kind=np.array, dim=DIM, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, dim)) * (rng.random((count, dim)) < (0.5 if kind is sp.csr_array else 1.0))
    X[:, 0] = 1.0
    return X


def own_reward(n, x, name):
    theta = np.random.default_rng(ord(name)).normal(size=len(x))
    return float(x @ theta + 0.3 * np.random.default_rng(n).normal())


def disjoint(**settings):
    return DisjointLinUCB(DIM, tracker=SAGA(DIM, steps=2, seed=0, **RAW), width=DiagonalWidth(), seed=1, **settings)


@LAYOUTS
@pytest.mark.parametrize("kappa", [None, 0.8])
@pytest.mark.parametrize("every", [1, 30])
def test_models_are_independent_linucbs(kind, kappa, every):
    """Pools that change in every round, and pools that stay for a while: then scores come from a table."""
    policy = DisjointLinUCB(DIM, tracker=RLS(DIM, **RAW), width=ExactWidth(), kappa=kappa, sigmas=1.0, seed=1)
    models = {name: naive.LinUCB(DIM, kappa) for name in "abcdefghi"}
    errors = seen = 0.0
    for n, x in enumerate(users(150, kind)):
        ids = POOLS[n // every % 3]
        weight = kappa if kappa is not None else np.sqrt(errors / seen) if errors else 1.0
        assert policy.kappa == pytest.approx(weight, rel=1e-9)
        for name in ids:
            models[name].given = weight
        user = kind(x[None])
        k = policy.choose(user, ids=ids)
        expected = [models[name].score(x) for name in ids]
        assert k == naive.best(expected), n
        np.testing.assert_allclose(policy.scores(user, ids=ids), expected, atol=1e-9)
        y = own_reward(n, x, ids[k])
        policy.learn(user, y, arm=k, ids=ids)
        before = models[ids[k]].errors
        models[ids[k]].learn(x, y)
        errors, seen = errors + models[ids[k]].errors - before, seen + 1.0
    for name in POOLS[0]:
        np.testing.assert_allclose(policy.model(name).theta, models[name].theta, atol=1e-9)


@LAYOUTS
@pytest.mark.parametrize("width", [DiagonalWidth(), NoWidth(), ExactWidth()], ids=repr)
def test_a_table_scores_as_models_do(kind, width):
    """Rewards also come late, from other pools and by key, and rows may be forgotten bit by bit."""
    tracker = RLS(DIM, **RAW) if isinstance(width, ExactWidth) else CD(DIM, discount=0.97, **RAW)
    tabled, plain = (DisjointLinUCB(DIM, tracker=tracker, width=width, kappa=0.7, seed=1) for _ in range(2))
    ids = list("abcde")
    for n, x in enumerate(users(80, kind)):
        user = kind(x[None])
        k = tabled.choose(user, ids=ids, key=n)
        plain.choose(user, ids=["z"])  # another pool: no table is ever made
        assert plain.choose(user, ids=ids) == k, n
        tabled.learn(reward=own_reward(n, x, ids[k]), key=n)
        plain.learn(user, own_reward(n, x, ids[k]), arm=k, ids=ids)
        if n % 7 == 3:
            for policy in (tabled, plain):
                policy.learn(user, 1.0, arm=0, ids=["c"])


def test_scores_widths_and_probabilities_are_those_of_each_model():
    rng = np.random.default_rng(0)
    policy = DisjointLinUCB(3, tracker=RLS(3, regularisation=ridge(2.0), **RAW), width=ExactWidth(), kappa=0.5, seed=0)
    rows = {name: [] for name in "abc"}
    for _ in range(40):
        x, reward = rng.normal(size=3), float(rng.normal())
        k = policy.choose(x, ids=list("abc"))
        policy.learn(x, reward, arm=k, ids=list("abc"))
        rows["abc"[k]].append((x, reward))
    x, expected, widths = np.array([0.5, -1.0, 2.0]), [], []
    for name in "abc":
        X, y = np.array([row for row, _ in rows[name]]), np.array([reward for _, reward in rows[name]])
        A = X.T @ X + 2.0 * np.eye(3)
        widths.append(np.sqrt(x @ np.linalg.solve(A, x)))
        expected.append(x @ np.linalg.solve(A, X.T @ y) + 0.5 * widths[-1])
    before = policy.snapshot()
    np.testing.assert_allclose(policy.scores(x, ids=list("abc")), expected, rtol=1e-9)
    np.testing.assert_allclose(policy.widths(x, ids=list("abc")), widths, rtol=1e-9)
    assert policy.probabilities(x, ids=list("abc")).tolist() == np.eye(3)[int(np.argmax(expected))].tolist()
    with pytest.raises(InputError, match="never offered"):
        policy.scores(x, ids=["a", "z"])
    same_snapshot(before, policy.snapshot(), "questions")


def test_a_model_may_have_phi_widths():
    """Which keep no arms there: a slot names a model, and not a place in the width."""
    policy = DisjointLinUCB(2, tracker=SAGA(2, **RAW), width=PhiWidth(), seed=0)
    X = np.random.default_rng(0).normal(size=(40, 2))
    for user in X:
        policy.learn(user, 1.0, arm=policy.choose(user, ids=["a", "b", "c"]), ids=["a", "b", "c"])
    assert np.isfinite(policy.widths(X[0], ids=["a", "b", "c"])).all()
    assert sum(len(policy.model(name)) for name in policy.ids) == 40


def test_the_model_that_was_not_offered_for_longest_is_dropped():
    policy, x = disjoint(most_arms=3), np.ones(DIM)
    policy.choose(x, ids=["a", "b", "c"])
    policy.choose(x, ids=["a", "c"])
    policy.choose(x, ids=["a", "d"])
    assert set(policy.ids) == {"a", "c", "d"}
    policy.choose(x, ids=["c", "e", "f"])  # c is on offer, so it stays
    assert set(policy.ids) == {"c", "e", "f"}
    with pytest.raises(InputError, match="arm id 'a' was never offered, or was dropped"):
        policy.learn(x, 1.0, arm=0, ids=["a"])
    with pytest.raises(InputError, match=r"4 arms, but 1 \.\.\. most_arms=3 models are kept"):
        policy.choose(x, ids=list("cefg"))
    assert len(policy) == 3


def test_a_model_that_comes_back_starts_afresh():
    policy, x = disjoint(most_arms=2), np.ones(DIM)
    policy.choose(x, ids=["a", "b"])
    policy.learn(x, 5.0, arm=0, ids=["a"])
    policy.choose(x, ids=["c", "b"])
    policy.choose(x, ids=["a", "b"])
    assert len(policy.model("a")) == 0
    assert not policy.model("a").theta.any()


def test_a_pool_that_could_not_be_made_is_forgotten(monkeypatch):
    policy, user = DisjointLinUCB(2, most_arms=2, seed=0), np.array([1.0, 0.5])
    policy.choose(user, ids=["a", "b"])
    with monkeypatch.context() as patched:
        patched.setattr(RLS, "fresh", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            policy.choose(user, ids=["c", "d"])
    assert policy.choose(user, ids=["a", "b"]) == 0
    assert policy.ids == ["a", "b"]


def test_many_models_that_sample_have_draws_enough():
    """60 arms of 2 x 100 draws each are more than the tape holds at first."""
    policy = DisjointLinUCB(100, tracker=RLS(100, **RAW), width=SampleWidth(), kappa=1.0, seed=1)
    chosen = {policy.choose(np.ones(100), ids=list(range(60))) for _ in range(40)}
    assert len(chosen) > 10
    again = copy.deepcopy(policy)
    same = [[p.choose(np.ones(100), ids=list(range(60))) for _ in range(5)] for p in (policy, again)]
    assert same[0] == same[1]
    with pytest.raises(InputError, match="by sampling is not known"):
        _ = policy.probability


@pytest.mark.parametrize(
    ("user", "ids", "error", "complaint"),
    [
        (np.full(DIM, np.nan), ["new", "a"], InputError, "the user: every number must be finite"),
        (np.ones(3), ["a"], DimensionError, r"a user must have 6 features .* got shape \(1, 3\)"),
        (["a"] * DIM, ["a"], InputError, "a user must be a vector of real numbers"),
        (np.ones((2, DIM)), ["a"], InputError, "a user must be one row, got 2"),
        (([0, 7], [1.0, 1.0]), ["a"], DimensionError, "a sparse index must lie in 0 ... 5"),
    ],
)
def test_users_that_cannot_be_are_refused(user, ids, error, complaint):
    with pytest.raises(error, match=complaint):
        disjoint().choose(user, ids=ids)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"tracker": RLS(4, **RAW)}, "tracker must be an unused one of dim=6"),
        ({"tracker": RLS(DIM, **RAW).partial_fit(np.eye(DIM), np.ones(DIM))}, "tracker must be an unused one"),
        ({"most_arms": 0}, "most_arms must be a whole number"),
        ({"kappa": -1.0}, "kappa must lie in"),
        ({"epsilon": 1.1}, "epsilon must lie in"),
    ],
)
def test_bad_settings_are_refused(settings, complaint):
    with pytest.raises(SettingsError, match=complaint):
        DisjointLinUCB(DIM, **settings)


@pytest.mark.parametrize(
    ("dim", "arms", "kind", "parts"),
    [
        (6, 3, np.array, (RLS, ExactWidth)),
        (6, 3, sp.csr_array, (RLS, CentredWidth)),
        (200, 51, np.array, (RLS, CentredWidth)),
        (201, 3, np.array, (SAGA, CentredWidth)),
        (201, 3, sp.csr_array, (SAGA, CentredWidth)),
    ],
)
def test_parts_by_default(dim, arms, kind, parts):
    policy = copy.deepcopy(DisjointLinUCB(dim))  # what is saved before the first user is as open
    assert policy.reason.startswith("open")
    policy.choose(kind(np.ones((1, dim))), ids=list(range(arms)))
    assert (type(policy.tracker), type(policy.width)) == parts
    assert policy.reason.startswith("exact" if parts[1] is ExactWidth else "fast")
    assert policy.sigmas == 1.5
    assert policy.strength is not None


def test_ids_in_any_form_and_order_are_the_same_models():
    one, two = disjoint(), disjoint()
    for n, x in enumerate(users(40)):
        names = list(range(n // 10, n // 10 + 4))
        forms = [names, tuple(names), np.array(names), range(names[0], names[-1] + 1), [np.int64(k) for k in names]]
        form = forms[n % len(forms)]
        k = one.choose(x, ids=names)
        assert two.choose(x, ids=form) == k
        one.learn(x, 0.1 * n, arm=k, ids=names)
        two.learn(x, 0.1 * n, arm=k, ids=form)
    same(one, two, "ids in other forms")


def test_who_goes_next_does_not_depend_on_a_file_in_between():
    """A pool of old and new arms that goes on after loading."""
    straight, stopped = disjoint(most_arms=6), disjoint(most_arms=6)
    for policy in (straight, stopped):
        policy.choose(np.ones(DIM), ids=["a", "b", "c"])
        policy.choose(np.ones(DIM), ids=["x", "a", "y", "b"])
    stopped = copy.deepcopy(stopped)
    for policy in (straight, stopped):
        policy.choose(np.ones(DIM), ids=["x", "a", "y", "b"])
        policy.choose(np.ones(DIM), ids=["new", "c", "newer", "x"])
    assert straight.ids == stopped.ids
