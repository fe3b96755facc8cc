"""What every policy must do, with one model for all arms or with one an arm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from driftls.testing import common
from driftls.testing.common import LAYOUTS, Check, Layout, Life, Make, copy_of, refused, same, stages
from driftls.testing.rows import NOT_FINITE, bad_matrices, bad_pairs, malformed

ROUNDS = 40
POOLS = [list("abcde"), list("bcfga"), list("hagbi")]
Call = tuple[str, Callable[[], Any]]  # with what is wrong with it


class Round(NamedTuple):
    """Arms as a policy takes them (or the user, where each arm has a model), their ids, and the reward of each."""

    arms: Any
    ids: list[str]
    rewards: Any


def rounds(policy: Any, count: int, layout: Layout = np.array, first: int = 0) -> Iterator[Round]:
    """Rounds with pools that change, in which an id always has the same features."""
    vectors = {name: np.random.default_rng(ord(name)).normal(size=policy.dim) / policy.dim for name in "abcdefghi"}
    for n in range(first, first + count):
        generator = np.random.default_rng(n)
        ids = POOLS[n // 10 % len(POOLS)]
        user = np.where(generator.random(policy.dim) < 0.7, generator.normal(size=policy.dim), 0.0) / policy.dim
        matrix = np.array([vectors[name] for name in ids])
        matrix[:, ::2] *= np.abs(matrix[:, ::2]) > 0.3 / policy.dim
        rewards = generator.normal(size=len(ids)) + matrix.sum(axis=1)
        yield Round(layout(user[None]) if policy.disjoint else layout(matrix), ids, rewards)


def played(policy: Any, count: int, layout: Layout = np.array, first: int = 0) -> list[int]:
    """Choose and learn, round by round; returns the choices."""
    chosen = []
    for arms, ids, rewards in rounds(policy, count, layout, first):
        k = policy.choose(arms, ids=ids)
        policy.learn(arms, float(rewards[k]), arm=k, ids=ids)
        chosen.append(k)
    return chosen


# -- how common checks treat a policy --------------------------------------------------------------------------------

ASKING = ("scores", "widths", "probabilities")
KEYS: list[Any] = [["list"], {}, float("nan"), np.arange(2)]
IDS: list[Any] = [
    *(list("abacd"), [1, 1.0, 2, 3, 4], [*"abcd", float("nan")], [*"abcd", ["e"]], [np.arange(3)] * 5, [{}] * 5),
    *(set("abcde"), dict.fromkeys("abcde"), iter("abcde"), "abcde", 5, []),
]


def _teach(policy: Any, first: int, last: int, layout: Layout) -> list[int]:
    return played(policy, last - first, layout, first)


def _questions(policy: Any, layout: Layout) -> Iterator[Callable[[], Any]]:
    for entry in (*rounds(policy, 3, layout, 8), *rounds(policy, 2, layout, 19)):
        for name in ASKING:
            ask = partial(getattr(policy, name), entry.arms)
            yield partial(ask, ids=entry.ids)
            yield partial(ask, ids=["new", *entry.ids[1:]])
            if not policy.disjoint:
                yield ask
    yield lambda: (repr(policy), policy.kappa, policy.epsilon, policy.sigmas, policy.functions())
    yield lambda: policy.probability
    for name in ("scores", "widths"):
        yield from (call for _, call in _bad_arms(policy, name, 5))


def _bad_arms(policy: Any, method: str, every: int = 1) -> Iterator[Call]:
    """With arms, or users, that must be refused; every so many of the matrices."""
    ids, count = POOLS[0], 1 if policy.disjoint else 5
    bad = list(bad_matrices(policy.dim, count, NOT_FINITE))[len(method) % every :: every]
    bad += [("two users", np.ones((2, policy.dim))), *bad_pairs(policy.dim)] if policy.disjoint else []
    bad += [("none", np.ones((0, policy.dim))), *([] if policy.disjoint else [("a vector", np.ones(policy.dim))])]
    for name, arms in bad:
        yield f"{method}, arms: {name}", partial(getattr(policy, method), arms, ids=ids)


def _bad_calls(policy: Any, layout: Layout) -> Iterator[Call]:
    for method, every in (("choose", 1), *((method, 7) for method in ASKING)):
        yield from _bad_arms(policy, method, every)
    (arms, ids, _), table, row = next(rounds(policy, 1, layout)), np.ones((1, 5)), np.ones(policy.dim) / policy.dim
    twice = sp.vstack([arms, arms]) if sp.issparse(arms) else np.vstack([arms, arms])
    choose, learn = partial(policy.choose, arms), partial(policy.learn, arms)
    rewards = ["abc", 1.0, table[:, :-1], table * np.nan, [[1.0], [1.0, 2.0]], table * 1j, table[None]]
    numbers = [None, "1", b"1", np.nan, -np.inf, 1e75, 10**400, 1j, [1.0], np.ones(1), object(), {}]
    places = [True, False, 5, -1, 0.0, 0.5, "0", None, [0], np.array([0]), 10**30]
    masks = [[], [False] * 5, [True] * 4, [5], [-1], [0.5], "abc", {0}, object(), [[0]], [10**30]]
    names = [*IDS, *([] if policy.disjoint else [["a"], list("abcdef")])]
    matrices = [arms * np.nan, *[matrix for _, matrix in malformed(policy.dim, 1 if policy.disjoint else 5)][::9]]
    for call, argument, values in (
        *((partial(getattr(policy, method), arms), "ids", names) for method in ("choose", *ASKING)),
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


def _act(policy: Any, number: int, layout: Layout) -> Any:
    """Choose, learn, or both."""
    arms, ids, _ = next(rounds(policy, 1, layout, number % 10))
    chosen = policy.choose(arms, ids=ids) if number % 3 != 1 else 0
    if number % 3:
        policy.learn(arms, number / 1000.0, arm=chosen, ids=ids)
    return chosen


def _look(policy: Any, number: int, layout: Layout) -> None:
    arms, ids, _ = next(rounds(policy, 1, layout, number % 10))
    if number % 2 and not policy.width.samples:
        assert policy.scores(arms, ids=ids).shape == (len(ids),)
    else:
        assert copy_of(policy).dim == policy.dim


LIFE = Life(_teach, _questions, _bad_calls, _act, _look)


# -- checks ----------------------------------------------------------------------------------------------------------


def play_equals_choose_and_learn(make: Make) -> None:
    """Many rounds in one call decide as round by round: with all rewards, with those of a log, and with none."""
    for kind in LAYOUTS:
        for log in ("every reward", "a log", "no rewards"):
            one, many = make(), make()
            shown = np.random.default_rng(3).integers(-1, 5, ROUNDS)
            for first in range(0, ROUNDS, 10):
                block = list(rounds(one, 10, kind, first))
                slow = []
                for n, (arms, ids, rewards) in enumerate(block):
                    slow.append(one.choose(arms, ids=ids))
                    if log == "every reward" or (log == "a log" and shown[first + n] == slow[-1]):
                        one.learn(arms, float(rewards[slow[-1]]), arm=slow[-1], ids=ids)
                stack = sp.vstack if kind is sp.csr_array else np.vstack
                arms, table = stack([entry.arms for entry in block]), np.array([entry.rewards for entry in block])
                told: dict[str, Any] = {"ids": block[0].ids}
                if log == "a log":
                    told["shown"] = shown[first : first + 10]
                    table = table[np.arange(10), told["shown"]]
                fast = many.choose_many(arms, **told) if log == "no rewards" else many.play(arms, table, **told)
                assert fast.tolist() == slow, f"play decided differently, with {log}"
            same(one, many, f"play and choose, with {log}")


def scores_decide(make: Make) -> None:
    """Without epsilon the arm of the highest score is chosen; told probabilities are those of the choice."""
    for _, policy, kind in stages(LIFE, make):
        if policy.width.samples or (policy.disjoint and not len(policy)):
            continue
        for arms, ids, rewards in rounds(policy, 10, kind, 0):
            scores, share = policy.scores(arms, ids=ids), policy.probabilities(arms, ids=ids)
            assert scores.shape == share.shape == (len(ids),)
            assert abs(share.sum() - 1.0) < 1e-12
            assert share.min() >= policy.epsilon / len(ids) - 1e-15
            k = policy.choose(arms, ids=ids)
            if policy.epsilon == 0.0:
                ties = scores >= scores.max() - 1e-9 * max(abs(scores.max()), policy.kappa)
                assert k == int(np.argmax(ties)), "the arm of the highest score was not chosen"
            assert abs(policy.probability - share[k]) < 1e-12, "another probability than the one told"
            policy.learn(arms, float(rewards[k]), arm=k, ids=ids)


def only_allowed_arms_are_chosen(make: Make) -> None:
    """By a mask or by positions."""
    for _, policy, kind in stages(LIFE, make):
        for n, (arms, ids, _) in enumerate(rounds(policy, 20, kind)):
            mask = np.random.default_rng(n).random(len(ids)) < 0.4
            mask[n % len(ids)] = True
            for allowed in (mask, mask.tolist(), np.flatnonzero(mask), np.flatnonzero(mask).tolist()):
                assert mask[policy.choose(arms, ids=ids, allowed=allowed)], "an arm that was not allowed"
            if not policy.width.samples:
                assert not policy.probabilities(arms, ids=ids, allowed=mask)[~mask].any()


def keys_keep_choices_until_their_rewards_come(make: Make) -> None:
    """In any order, across a file, each of them once; the same as passing the arms again."""
    keys: list[Any] = ["text", 7, -1.5, ("a", 1), ("nested", ("b", 2.0)), np.int64(9), "", 0]
    for kind in LAYOUTS:
        straight, keyed = make(), make()
        played(straight, 10, kind)
        played(keyed, 10, kind)
        waiting = list(rounds(keyed, 8, kind, 10))
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
        assert played(keyed, 15, kind, 20) == played(straight, 15, kind, 20), "late rewards taught something else"


def rewards_may_come_in_any_form(make: Make) -> None:
    """Numbers of NumPy and booleans (a click) are rewards."""
    for value, forms in ((1.0, (1, True, np.True_, np.float32(1), np.int8(1), np.array(1.0))), (0.0, (0, False))):
        straight = make()
        arms, ids, _ = next(rounds(straight, 1))
        k = straight.choose(arms, ids=ids)
        straight.learn(arms, value, arm=k, ids=ids)
        for form in forms:
            policy = make()
            assert policy.choose(arms, ids=ids) == k
            policy.learn(arms, form, arm=np.int64(k), ids=tuple(ids))
            same(straight, policy, f"reward {form!r}")


COMMON = common.checks(LIFE)
the_seed_decides = COMMON["the_seed_decides"]
resuming_equals_never_having_stopped = COMMON["resuming_equals_never_having_stopped"]
a_refused_call_changes_nothing = COMMON["a_refused_call_changes_nothing"]
a_question_changes_nothing = COMMON["a_question_changes_nothing"]

POLICY_CHECKS: list[Check] = [
    *(play_equals_choose_and_learn, scores_decide, only_allowed_arms_are_chosen),
    *(keys_keep_choices_until_their_rewards_come, rewards_may_come_in_any_form),
    *COMMON.values(),
]
