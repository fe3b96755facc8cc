"""Policies that are given features: users and items as dicts, pools of them, and copies that only choose."""

import json
import sys
import threading

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from driftls import replay
from driftls.errors import DriftlsError, InputError, SettingsError
from driftls.features import Features, UserOnly
from driftls.logs import synthetic_day
from driftls.policies import DisjointLinUCB, Greedy, LinTS, LinUCB
from driftls.policies.registry import load
from driftls.trackers import RLS

ITEMS = [{"id": "a", "colour": "red"}, {"id": "b", "colour": "blue"}, {"id": "c", "colour": "green"}]
LIKED = {"Oslo": 0, "Rome": 1, "Lima": 2}
MAKERS = {
    "LinUCB, vocabulary": lambda **k: LinUCB(features=Features(cross="all"), seed=0, **k),
    "LinUCB, hashed": lambda **k: LinUCB(features=Features(2**12, cross="all"), seed=0, **k),
    "LinUCB, exact": lambda **k: LinUCB(tracker=RLS(8), features=Features(cross="all"), seed=0, **k),
    "disjoint, vocabulary": lambda **k: DisjointLinUCB(features=Features(), seed=0, **k),
    "disjoint, hashed": lambda **k: DisjointLinUCB(features=Features(2**8), seed=0, **k),
}
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def users(count, seed=0):
    rng = np.random.default_rng(seed)
    for n in range(count):
        city = list(LIKED)[rng.integers(3)]
        yield {
            "city": city,
            "age": int(rng.integers(20, 60)),
            "tags": [f"t{rng.integers(0, 1 + n // 4)}"],
            "income": None,
        }


def taught(policy, rounds=300, items=ITEMS, seed=0):
    rng, good = np.random.default_rng(seed), []
    for user in users(rounds, seed):
        k = policy.choose(user, items)
        good.append(LIKED[user["city"]] == k)
        policy.learn(user, float(rng.random() < (0.9 if good[-1] else 0.1)), items=items, arm=k)
    return good


@every
def test_dicts_are_chosen_from_and_learned_and_saved(make, tmp_path):
    policy = make()
    assert np.mean(taught(policy)[-100:]) > 0.9
    assert policy.features.missing["income"] == 600  # left out, and said: of each choice and each reward
    policy.save(tmp_path / "p")
    again = load(tmp_path / "p")
    assert again.features.to_header() == policy.features.to_header()
    assert taught(again, 50, seed=1) == taught(policy, 50, seed=1)
    np.testing.assert_array_equal(again.scores({"city": "Oslo"}, ITEMS), policy.scores({"city": "Oslo"}, ITEMS))


@every
def test_a_vocabulary_that_grows_decides_as_if_all_names_had_been_known(make):
    grown, known = make(), make()
    if not grown.features.grows:
        pytest.skip("hashed")
    rounds, names = (300, 100) if grown.disjoint else (120, 400)
    known.grow(names)
    first = grown.dim
    assert taught(grown, rounds) == taught(known, rounds)
    assert first < grown.dim
    assert grown.features.dim == known.features.dim <= names


@every
def test_a_pool_many_users_and_what_is_allowed_are_the_same_choices(make):
    policy = make()
    taught(policy, 60)
    policy = policy.freeze()  # which answers the same however often it is asked
    some, pool = list(users(20, seed=3)), policy.pool(ITEMS)
    chosen = [policy.choose(user, ITEMS) for user in some]
    assert len(set(chosen)) > 1
    assert [policy.choose(user, pool) for user in some] == chosen
    assert policy.choose_many(some, ITEMS).tolist() == chosen
    assert policy.choose_many(pd.DataFrame(some), pool if policy.disjoint else ITEMS).tolist() == chosen
    assert [policy.choose(user, pd.DataFrame(ITEMS)) for user in some] == chosen
    for user, best in zip(some, chosen):
        assert policy.probabilities(user, pool)[best] == 1.0
        others = [k for k in range(3) if k != best]
        assert policy.choose(user, pool, allowed=others) in others
        assert policy.probabilities(user, pool, allowed=others)[best] == 0.0


def test_many_users_are_played_as_they_are_chosen_and_learned_one_by_one():
    some, rewards = list(users(40)), np.random.default_rng(0).random((40, 3))
    for name in ("LinUCB, hashed", "disjoint, hashed"):
        one, many = MAKERS[name](), MAKERS[name]()
        chosen = []
        for user, reward in zip(some, rewards):
            chosen.append(one.choose(user, ITEMS))
            one.learn(user, reward[chosen[-1]], items=ITEMS, arm=chosen[-1])
        assert many.play(some, rewards, items=ITEMS).tolist() == chosen


def test_items_without_a_user_and_arms_as_rows():
    policy = LinUCB(features=Features(), seed=0)
    prices = [{"price": 1.0}, {"price": 3.0}, {"price": 2.0}]
    for _ in range(20):
        k = policy.choose(prices)
        policy.learn(prices, -prices[k]["price"], arm=k)
    assert policy.choose(prices) == policy.choose(policy.pool(prices)) == 0
    rows = policy.features.arms({}, prices).tocsr()
    assert rows.shape[1] < policy.dim  # made by its own vocabulary: they fit
    assert policy.choose(rows) == 0
    with pytest.raises(InputError, match="must have 3 features"):
        LinUCB(3).choose(sp.csr_array(np.ones((2, 4))))
    arms = np.eye(3)
    assert LinUCB(3).choose(LinUCB(3).pool(arms)) == 0


@every
def test_a_frozen_policy_chooses_as_before_and_never_learns(make, tmp_path):
    policy = make(epsilon=0.2)
    taught(policy, 50)
    frozen = policy.freeze()
    assert (frozen.frozen, policy.frozen) == (True, False)
    frozen.save(tmp_path / "p")
    again = load(tmp_path / "p")
    assert again.frozen
    some = list(users(60, seed=5))
    assert [again.choose(user, ITEMS) for user in some] == [frozen.choose(user, ITEMS) for user in some]
    twin = policy.freeze()
    assert policy.choose(some[0], ITEMS) == twin.choose(some[0], ITEMS)
    assert policy.probability == twin.probability
    before = frozen.scores(some[3], ITEMS)
    for call in (
        lambda: frozen.learn(some[0], 1.0, items=ITEMS, arm=0),
        lambda: frozen.play(some, np.zeros((60, 3)), items=ITEMS),
    ):
        with pytest.raises(SettingsError, match="frozen and never learns"):
            call()
    huge = {"age": 1e9, "city": "nowhere", "never": 4.0}
    frozen.choose(huge, ITEMS)
    frozen.choose_many([huge, some[0]], ITEMS)
    np.testing.assert_array_equal(frozen.scores(some[3], ITEMS), before)
    taught(policy, 20, seed=9)
    np.testing.assert_array_equal(frozen.scores(some[3], ITEMS), before)


def test_frozen_frequencies_are_the_probabilities_that_are_told():
    policy = LinUCB(3, epsilon=0.4, seed=0).freeze()
    arms = np.diag([3.0, 2.0, 1.0])
    told = policy.probabilities(arms, allowed=[0, 2])
    found = np.bincount([policy.choose(arms, allowed=[0, 2]) for _ in range(3000)], minlength=3) / 3000
    np.testing.assert_allclose(found, told, atol=0.03)
    sampled = LinTS(2, seed=0).freeze()
    assert {sampled.choose(np.eye(2)) for _ in range(50)} == {0, 1}


@every
@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda p: p.choose({"age": {"years": 3}}, ITEMS), "Flatten it"),
        (lambda p: p.choose({"age": float("inf")}, ITEMS), "must be finite"),
        (lambda p: p.choose({"age": 3}, []), "empty|1 ... most_arms"),
        (lambda p: p.choose({"age": 3}, "abc"), "list"),
        (lambda p: p.choose({"age": 3}, None), "ids are missing|no items"),
        (lambda p: p.choose({"age": 3}, [{"id": "a"}, None]), "id|dict"),
        (lambda p: p.choose({"age": 3}, {"id": "a"}), "list|length"),
        (lambda p: p.choose({"age": 3}, ITEMS, allowed=[7]), "allowed must be"),
        (lambda p: p.choose("Oslo", ITEMS), "a dict|real numbers"),
        (lambda p: p.choose(None, ITEMS), "a dict|real numbers"),
        (lambda p: p.learn({"age": 3}, None, items=ITEMS, arm=0), "reward"),
        (lambda p: p.learn({"age": 3}, 1.0, items=ITEMS, arm=3), "arm must be"),
        (lambda p: p.learn({"age": 3}, 1.0), "learn needs|no items"),
    ],
)
def test_what_newcomers_get_wrong_is_told_and_changes_nothing(make, call, complaint):
    policy = make()
    taught(policy, 5)
    before = json.dumps(policy.snapshot()[0]["numbers"]), policy.scores({"city": "Oslo"}, ITEMS)
    with pytest.raises(DriftlsError, match=complaint):
        call(policy)
    assert json.dumps(policy.snapshot()[0]["numbers"]) == before[0]
    np.testing.assert_array_equal(policy.scores({"city": "Oslo"}, ITEMS), before[1])


def test_dicts_without_features_and_features_without_dicts():
    for policy in (LinUCB(3), DisjointLinUCB(3), Greedy(RLS(3))):
        with pytest.raises(InputError, match=r"features=Features\(...\)"):
            policy.choose({"age": 3}, ITEMS)
    with pytest.raises(InputError, match="features=Features"):
        DisjointLinUCB(features=UserOnly(3)).choose({"age": 3}, ITEMS)
    with pytest.raises(SettingsError, match="needs dim or features"):
        LinUCB()
    with pytest.raises(InputError, match='every item needs an "id"'):
        DisjointLinUCB(features=Features()).choose({"age": 3}, [{"colour": "red"}])
    with pytest.raises(InputError, match='needs a column "id"'):
        DisjointLinUCB(features=Features()).choose({"age": 3}, pd.DataFrame({"colour": ["red"]}))


def test_a_log_is_replayed_with_the_features_that_a_policy_has():
    day = synthetic_day(lines=150, seed=1)
    for features in (Features(2**14, cross="all"), Features(cross=[("*", "id")])):
        policy = LinUCB(features=features, seed=0)
        assert replay(policy, day).rounds == 150
        assert policy.features is features
        assert policy.dim >= features.dim > 64
    with pytest.raises(SettingsError, match="belongs to its policy"):
        replay(LinUCB(64, seed=0), day, features=Features())


@every
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_a_question_with_names_never_seen_changes_nothing_and_they_count_for_nothing(make, epsilon):
    policy = make(epsilon=epsilon)
    taught(policy, 60)
    features, known = policy.features, {"city": "Oslo", "age": 31}
    new = {**known, "tags": ["never"], "shoe": 44.0, "income": float("nan")}
    items = [*ITEMS[:2], {"id": "c", "colour": "pink", "size": 3}]

    def state():
        header, arrays = policy.snapshot()
        told = features.missing, str(features), policy.dim, features.to_header()
        return json.dumps(header), {name: array.tobytes() for name, array in arrays.items()}, told

    before, expected = state(), policy.scores(known, ITEMS)
    for ask in (policy.scores, policy.widths, policy.probabilities):
        found = ask(new, items), ask(new, pd.DataFrame(ITEMS)), ask(new, ITEMS)
        assert state() == before
        if features.grows:
            np.testing.assert_array_equal(found[2], ask(known, ITEMS))
            if ask != policy.probabilities:
                np.testing.assert_array_equal(found[0][:2], found[2][:2])
    np.testing.assert_array_equal(policy.scores(known, ITEMS), expected)
    if features.grows:
        wide = features.user(new) if policy.disjoint else features.arms(new, items)  # which is no question: it grows
        features.table([{"word": f"w{k}"} for k in range(4 * policy.dim)])
        rows, dim = wide._replace(dim=features.dim).tocsr(), policy.dim
        policy.scores(rows, ids=None if not policy.disjoint else ["a", "b", "c"])
        assert policy.dim == dim < features.dim
    policy.choose(new, ITEMS)
    assert "shoe" in features.missing


@pytest.mark.parametrize("kind", [LinUCB, DisjointLinUCB])
def test_a_question_in_another_thread_leaves_no_new_name_out_of_what_is_learned(kind):
    """Two policies share one vocabulary: one is asked just when the other has met names, and is about to grow."""
    features = Features()
    asked, learns = (kind(features=features, seed=0) for _ in range(2))
    for policy in (asked, learns):
        taught(policy, 3)
    make, question, begun, over = features.arms, asked._question, threading.Event(), threading.Event()

    def answer(*round_):
        begun.set()
        over.wait(60.0)
        return question(*round_)

    asked._question = answer
    thread = threading.Thread(target=asked.scores, args=({"city": "Oslo"}, ITEMS))

    def arms(*made_of):
        rows = make(*made_of)
        if threading.current_thread() is not thread:
            thread.start()
            begun.wait(0.2)  # in vain: it waits for its turn with the features
        return rows

    user = {"tags": [f"word {k}" for k in range(100)]}
    features.arms = arms
    try:
        learns.learn(user, 1.0, items=ITEMS, arm=1)
    finally:
        over.set()
        thread.join()
        del features.arms
    assert learns.dim >= features.dim > 100 > asked.dim
    tracker = learns.model("b") if learns.disjoint else learns.tracker
    row = tracker.history.matrix()[0][-1:] if len(tracker.history) else tracker.frame.arrays["b"]
    assert np.count_nonzero(row.toarray() if sp.issparse(row) else row) >= 100


def test_a_frozen_copy_that_meets_names_does_not_tell_the_policy():
    policy = LinUCB(features=Features(), seed=0)
    taught(policy, 5)
    frozen, before, dim = policy.freeze(), str(policy.features), policy.features.dim
    frozen.choose({"tags": [f"word {k}" for k in range(100)]}, ITEMS)
    assert frozen.dim >= frozen.features.dim > 100 > policy.features.dim == dim
    assert str(policy.features) == before


def test_a_policy_is_written_down_while_another_one_teaches_its_features_names():
    features, items = Features(cross="all"), [{"id": k} for k in range(5)]
    one, other = LinUCB(features=features, seed=0), LinUCB(features=features, seed=1)
    one.choose({"city": "Oslo"}, items)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        teacher = threading.Thread(target=lambda: [other.choose({"city": f"town {n}"}, items) for n in range(1500)])
        teacher.start()
        while teacher.is_alive():
            one.snapshot()
    finally:
        sys.setswitchinterval(before)
        teacher.join()
    assert features.dim > 1500
