"""What every policy must do, with one model for all arms or with one an arm; and every width, in a policy that has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from driftls.testing import common
from driftls.testing.common import (
    LAYOUTS,
    Check,
    Layout,
    Life,
    Make,
    bad_matrices,
    good_rows,
    same,
    stages,
)

ROUNDS = 40
POOLS = [list("abcde"), list("bcfga"), list("hagbi")]
CLOSE = 1e-7  # what sums in another order may change


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


def _bad_calls(policy: Any, layout: Layout) -> Iterator[tuple[str, Callable[[], Any]]]:
    (arms, ids, _), table = next(rounds(policy, 1, layout)), np.ones((1, 5))
    users = {"two users": np.ones((2, policy.dim))} if policy.disjoint else {"a vector": np.ones(policy.dim)}
    bad = list((bad_matrices(policy.dim, 1 if policy.disjoint else 5) | users).values())
    asked = ("choose", *ASKING)
    for call, argument, values in (
        *((partial(getattr(policy, name), ids=ids), "arms", bad) for name in asked),
        *((partial(getattr(policy, name), arms), "ids", [list("abacd"), [{}] * 5, "abcde", 5, []]) for name in asked),
        (partial(policy.choose, arms, ids=ids), "allowed", [[], [False] * 5, [5], "abc"]),
        (partial(policy.choose, arms, ids=ids), "key", [["list"], np.nan]),
        (partial(policy.learn, arms, arm=0, ids=ids), "reward", [None, "1", np.nan, [1.0]]),
        (partial(policy.learn, arms, 1.0, ids=ids), "arm", [True, 5, -1, 0.5, None]),
        (partial(policy.learn, reward=1.0), "key", ["unknown"]),
        (partial(policy.play, arms, ids=ids), "rewards", ["abc", table[:, :-1], table * np.nan]),
        (partial(policy.play, arms, [1.0], ids=ids), "shown", [[5], [0, 0], ["a"]]),
        (partial(policy.play, rewards=table, ids=ids), "arms", bad[:3]),
    ):
        for wrong in values:
            yield f"{call.func.__name__}, {argument}={wrong!r:.60}", partial(call, **{argument: wrong})


LIFE = Life(_teach, _questions, _bad_calls)


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


POLICY_CHECKS: list[Check] = [
    *(play_equals_choose_and_learn, scores_decide, only_allowed_arms_are_chosen, *common.checks(LIFE)),
]


# -- checks of a width -----------------------------------------------------------------------------------------------


def _taught(make: Make, layout: Layout = np.array) -> tuple[Any, Any]:
    """A policy that has learned thirty rows, and twenty others to ask about."""
    policy = make()
    X, y = good_rows(policy.dim, 30)
    policy.choose(layout(X), ids=range(30))
    for n in range(30):
        policy.learn(layout(X), float(y[n]), arm=n, ids=range(30))
    return policy, good_rows(policy.dim, 20, seed=9)[0]


def settings_make_the_same_width(make: Make) -> None:
    """What a file keeps is all that there is to know."""
    width = make().width
    again = type(width)(**width.settings())
    assert (repr(again), again.settings()) == (repr(width), width.settings())


def widths_are_lengths(make: Make) -> None:
    """Finite, at least 0, 0 for an arm without features or intercept, a fresh array of a number for each arm.

    Each arm's width is its own, whichever others are beside it.
    """
    for layout in LAYOUTS:
        policy, X = _taught(make, layout)
        X[7] = 0.0
        for ids in (None, range(100, 120)):
            widths = policy.widths(layout(X), ids=ids)
            assert (widths.shape, widths.dtype) == ((20,), np.float64)
            assert np.isfinite(widths).all()
            assert (widths >= 0.0).all()
            assert widths[7] == 0.0 or policy.tracker.intercept
            widths[:] = -1.0
            assert (policy.widths(layout(X), ids=ids) >= 0.0).all(), "widths must be a fresh array"
        some = np.random.default_rng(2).permutation(20)[:7]
        beside, alone = policy.widths(layout(X))[some], policy.widths(layout(X[some]))
        np.testing.assert_allclose(alone, beside, rtol=1e-12, atol=1e-15)


def what_is_learned_gets_narrower(make: Make) -> None:
    """An arm that is learned again and again is known ever better; a width that samples has it on the average."""
    policy, ids = make(), ["a", "b", "c"]
    X, _ = good_rows(policy.dim, 3)
    policy.choose(X, ids=ids)
    first = policy.widths(X, ids=ids)[0]
    for _ in range(200):
        policy.learn(X, 0.5, arm=0, ids=ids)
    last = policy.widths(X, ids=ids)[0]
    assert last < 0.7 * first or first == 0.0, f"from {first} to {last} in 200 rows"


def dense_and_sparse_agree(make: Make) -> None:
    """Sparse rows have the widths of dense ones, up to the order of sums; not where these are found from draws."""
    if make().width.draws(make().dim):
        return
    (dense, X), (sparse, _) = _taught(make), _taught(make, sp.csr_array)
    close = 1e-3 if dense.width.lazy else CLOSE
    np.testing.assert_allclose(dense.widths(X), sparse.widths(sp.csr_array(X)), rtol=close, atol=close)


WIDTH_CHECKS: list[Check] = [
    *(settings_make_the_same_width, widths_are_lengths, what_is_learned_gets_narrower, dense_and_sparse_agree)
]
