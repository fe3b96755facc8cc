"""Every policy of ours passes the checks that a user's own must pass."""

from __future__ import annotations

import copy
import pickle
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from bad_rows import NOT_FINITE, bad_matrices, bad_pairs, malformed
from driftls import policies
from driftls.policies import LinUCB
from driftls.policies.policy import Policy
from driftls.testing import POLICY_CHECKS
from driftls.testing import policies as checks
from driftls.testing.common import (
    a_question_changes_nothing,
    a_refused_call_changes_nothing,
    copy_of,
    refused,
    resuming_equals_never_having_stopped,
    same,
    the_seed_decides,
)
from policy_cases import CASES, DIM
from turns import POLICY, threads_take_turns

KEYS = [["list"], {}, float("nan"), np.arange(2)]
IDS = [
    *(list("abacd"), [1, 1.0, 2, 3, 4], [*"abcd", float("nan")], [*"abcd", ["e"]], [np.arange(3)] * 5, [{}] * 5),
    *(set("abcde"), dict.fromkeys("abcde"), iter("abcde"), "abcde", 5, []),
]


def bad_arms(policy, method, every=1):
    """With arms, or users, that must be refused; every so many of the matrices."""
    ids, count = checks.POOLS[0], 1 if policy.disjoint else 5
    bad = list(bad_matrices(policy.dim, count, NOT_FINITE))[len(method) % every :: every]
    bad += [("two users", np.ones((2, policy.dim))), *bad_pairs(policy.dim)] if policy.disjoint else []
    bad += [("none", np.ones((0, policy.dim))), *([] if policy.disjoint else [("a vector", np.ones(policy.dim))])]
    for name, arms in bad:
        yield f"{method}, arms: {name}", partial(getattr(policy, method), arms, ids=ids)


def every_bad_call(policy, layout):
    for method, every in (("choose", 1), *((method, 7) for method in checks.ASKING)):
        yield from bad_arms(policy, method, every)
    (arms, ids, _), table, row = (
        next(checks.rounds(policy, 1, layout)),
        np.ones((1, 5)),
        np.ones(policy.dim) / policy.dim,
    )
    twice = sp.vstack([arms, arms]) if sp.issparse(arms) else np.vstack([arms, arms])
    choose, learn = partial(policy.choose, arms), partial(policy.learn, arms)
    rewards = ["abc", 1.0, table[:, :-1], table * np.nan, [[1.0], [1.0, 2.0]], table * 1j, table[None]]
    numbers = [None, "1", b"1", np.nan, -np.inf, 1e75, 10**400, 1j, [1.0], np.ones(1), object(), {}]
    places = [True, False, 5, -1, 0.0, 0.5, "0", None, [0], np.array([0]), 10**30]
    masks = [[], [False] * 5, [True] * 4, [5], [-1], [0.5], "abc", {0}, object(), [[0]], [10**30]]
    names = [*IDS, *([] if policy.disjoint else [["a"], list("abcdef")])]
    matrices = [arms * np.nan, *[matrix for _, matrix in malformed(policy.dim, 1 if policy.disjoint else 5)][::9]]
    for call, argument, values in (
        *((partial(getattr(policy, method), arms), "ids", names) for method in ("choose", *checks.ASKING)),
        (partial(learn, 1.0, arm=0), "ids", names),
        (partial(policy.play, arms, table), "ids", names),
        (partial(choose, ids=ids), "allowed", masks),
        (partial(choose, ids=ids), "key", KEYS),
        (partial(policy.remember, x=row, name="a"), "key", KEYS),
        (partial(policy.remember, "key", name="a"), "x", [np.nan * row]),
        (partial(policy.learn, reward=1.0), "key", [*KEYS, "unknown"]),
        (partial(learn, arm=0, ids=ids), "reward", numbers),
        (partial(learn, 1.0, ids=ids), "arm", places),
        (partial(policy.learn, reward=1.0), "arm", [0]),
        (partial(policy.learn), "arm", [None]),
        (partial(policy.play, arms, ids=ids), "rewards", rewards),
        (partial(policy.play, arms, [1.0], ids=ids), "shown", [[5], [0.5], ["a"], [0, 0], 0, [10**30]]),
        (partial(policy.play, arms, ids=ids), "shown", [[0]]),
        (partial(policy.play, twice, ids=ids), "rounds", [-1, 2.5, "1", 7]),
        (partial(policy.play, rewards=table, ids=ids), "arms", matrices),
    ):
        for wrong in values:
            yield f"{call.func.__name__}, {argument}={wrong!r:.60}", partial(call, **{argument: wrong})


def no_bad_call_changes_anything(make):
    """All of them; a user's own policy, whose arguments come by the same way, is asked a few."""
    a_refused_call_changes_nothing(checks.LIFE._replace(bad_calls=every_bad_call), make)


def rewards_may_come_in_any_form(make):
    """Numbers of NumPy and booleans (a click) are rewards."""
    for value, forms in ((1.0, (1, True, np.True_, np.float32(1), np.int8(1), np.array(1.0))), (0.0, (0, False))):
        straight = make()
        arms, ids, _ = next(checks.rounds(straight, 1))
        k = straight.choose(arms, ids=ids)
        straight.learn(arms, value, arm=k, ids=ids)
        for form in forms:
            policy = make()
            assert policy.choose(arms, ids=ids) == k
            policy.learn(arms, form, arm=np.int64(k), ids=tuple(ids))
            same(straight, policy, f"reward {form!r}")


def a_pickle_and_a_shallow_copy_go_on_alike(make):
    for way in (copy.copy, lambda thing: pickle.loads(pickle.dumps(thing))):
        policy = make()
        checks.played(policy, 17)
        again = way(policy)
        assert checks.played(again, 20, first=17) == checks.played(policy, 20, first=17)
        same(again, policy, "a copy")


def calls_from_threads_take_turns(make):
    threads_take_turns(POLICY, make)


def keys_keep_choices_until_their_rewards_come(make):
    """In any order, across a file, each of them once; the same as passing the arms again."""
    keys = ["text", 7, -1.5, ("a", 1), ("nested", ("b", 2.0)), np.int64(9), "", 0]
    for kind in checks.LAYOUTS:
        straight, keyed = make(), make()
        checks.played(straight, 10, kind)
        checks.played(keyed, 10, kind)
        waiting = list(checks.rounds(keyed, 8, kind, 10))
        for key, (arms, ids, _) in zip(keys, waiting):
            assert keyed.choose(arms, ids=ids, key=key) == straight.choose(arms, ids=ids), "a key changed the choice"
        chosen = [keyed.keys.choice(key).name[0] for key in keys]
        keyed = copy_of(keyed)
        for n in (5, 0, 7, 3, 1):
            arms, ids, rewards = waiting[n]
            k = ids.index(chosen[n])
            keyed.learn(reward=float(rewards[k]), key=keys[n])
            straight.learn(arms, float(rewards[k]), arm=k, ids=ids)
            refused("a reward that came twice", partial(keyed.learn, reward=1.0, key=keys[n]))
        refused("a key that was used", partial(keyed.choose, waiting[5].arms, ids=waiting[5].ids, key="text"))
        assert len(keyed.keys.waiting) == 3
        assert checks.played(keyed, 15, kind, 20) == checks.played(straight, 15, kind, 20), (
            "late rewards taught something else"
        )


EVERY_CHECK = [check for check in POLICY_CHECKS if check.__name__ != "a_refused_call_changes_nothing"]
EVERY_CHECK += [
    a_pickle_and_a_shallow_copy_go_on_alike,
    calls_from_threads_take_turns,
    no_bad_call_changes_anything,
    rewards_may_come_in_any_form,
    keys_keep_choices_until_their_rewards_come,
]


@pytest.mark.parametrize("check", EVERY_CHECK, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_policy(case, check):
    check(lambda: case())


EXPLORE = [
    *(partial(check, checks.LIFE) for check in (the_seed_decides, resuming_equals_never_having_stopped)),
    *(checks.play_equals_choose_and_learn, checks.only_allowed_arms_are_chosen),
]


@pytest.mark.parametrize("check", EXPLORE)
@pytest.mark.parametrize("name", ["LinUCB", "SAGA + phi", "LinTS", "one SAGA an arm"])
def test_with_an_exploration_floor(name, check):
    check(lambda: CASES[name](epsilon=0.3))


def test_the_list_names_every_policy_that_is_offered():
    offered = {kind for kind in vars(policies).values() if isinstance(kind, type) and issubclass(kind, Policy)}
    assert {type(case()) for case in CASES.values()} >= offered - {Policy}


class Forgetful(LinUCB):
    """A policy of a user that gets one thing wrong: a refused choice counts as a round."""

    def choose(self, arms, **more):
        self._models.rounds += 1
        return super().choose(arms, **more)


class Curious(LinUCB):
    """Another one, which draws a number when it is asked for scores."""

    def scores(self, arms, **more):
        self._models.draws.take(1)
        return super().scores(arms, **more)


@pytest.mark.parametrize(
    ("kind", "check"),
    [(Forgetful, a_refused_call_changes_nothing), (Curious, a_question_changes_nothing)],
)
def test_the_checks_notice(kind, check):
    with pytest.raises(AssertionError, match=r"changed|header"):
        check(checks.LIFE, lambda: kind(DIM, seed=0))
