"""Calls of a policy that must be refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from driftls.testing.rows import bad_pairs, malformed

POOLS = [list("abcde"), list("bcfga"), list("hagbi")]


class Round(NamedTuple):
    """Arms as a policy takes them (or the user, where each arm has a model), their ids, and the reward of each."""

    arms: Any
    ids: list[str]
    rewards: Any


def rounds(policy: Any, count: int, kind: Callable[[Any], Any] = np.array, first: int = 0) -> Iterator[Round]:
    """Rounds with pools that change, in which an id always has the same features."""
    vectors = {name: np.random.default_rng(ord(name)).normal(size=policy.dim) / policy.dim for name in "abcdefghi"}
    for n in range(first, first + count):
        generator = np.random.default_rng(n)
        ids = POOLS[n // 10 % len(POOLS)]
        keep = generator.random(policy.dim) < 0.7
        user = np.where(keep, generator.normal(size=policy.dim), 0.0) / policy.dim
        matrix = np.array([vectors[name] for name in ids])
        matrix[:, ::2] *= np.abs(matrix[:, ::2]) > 0.3 / policy.dim
        rewards = generator.normal(size=len(ids)) + matrix.sum(axis=1)
        yield Round(kind(user[None]) if policy.disjoint else kind(matrix), ids, rewards)


def bad_arms(policy: Any, method: str, every: int = 1) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls with arms, or users, that must be refused; of malformed matrices every so many, others for each method."""
    dim, ids = policy.dim, POOLS[0]
    count = 1 if policy.disjoint else len(ids)
    good = np.ones((count, dim)) / dim
    bad: dict[str, Any] = {
        "None": None,
        "text": "arms",
        "a number": 3.0,
        "ragged": [[1.0] * dim, [1.0]],
        "a set": {1.0},
    }
    for value in (np.nan, np.inf, -np.inf):
        spoiled = good.copy()
        spoiled[-1, -1] = value
        bad |= {f"{value}": spoiled, f"{value}, sparse": sp.csr_array(spoiled)}
    bad |= {"complex": good + 1j, "dates": good.astype("datetime64[s]"), "texts": good.astype(str)}
    bad |= {"too wide": np.ones((count, dim + 1)), "a cube": good[None], "masked": np.ma.masked_array(good, good > 0)}
    bad |= {"too wide, sparse": sp.csr_array(np.ones((count, dim + 1))), "none": np.ones((0, dim))}
    bad |= dict(list(malformed(dim, count))[len(method) % every :: every])
    if policy.disjoint:
        bad |= {f"({name})": pair for name, pair in bad_pairs(dim)} | {"two users": np.ones((2, dim))}
    else:
        bad |= {"a vector": np.ones(dim)}
    for name, arms in bad.items():
        yield f"{method}, arms: {name}", partial(getattr(policy, method), arms, ids=ids)


BAD_IDS: dict[str, Any] = {
    "repeated": ["a", "b", "a", "c", "d"],
    "repeated, of two types": [1, 1.0, 2, 3, 4],
    "NaN": ["a", "b", "c", "d", float("nan")],
    "unhashable": ["a", "b", "c", "d", ["e"]],
    "an array each": [np.arange(3)] * 5,
    "a dictionary each": [{}, {}, {}, {}, {}],
    "a set": set("abcde"),
    "a dictionary": dict.fromkeys("abcde"),
    "text": "abcde",
    "a number": 5,
    "none": [],
}


def bad_calls(policy: Any, kind: Callable[[Any], Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls that must be refused, by what is wrong with them."""
    arms, ids, rewards = next(rounds(policy, 1, kind))
    table, row = np.ones((1, len(ids))), np.ones(policy.dim) / policy.dim
    play, learn, choose = (
        partial(policy.play, ids=ids),
        partial(policy.learn, arms, ids=ids),
        partial(policy.choose, arms),
    )
    yield from bad_arms(policy, "choose")
    for method in ("scores", "widths", "probabilities"):
        yield from bad_arms(policy, method, 9)
    wrong_ids = BAD_IDS | {"a generator": iter("abcde")}
    if not policy.disjoint:
        wrong_ids |= {"too few": ["a"], "too many": list("abcdef")}
    for name, wrong in wrong_ids.items():
        for method in ("choose", "scores", "widths", "probabilities"):
            yield f"{method}, ids: {name}", partial(getattr(policy, method), arms, ids=wrong)
        yield f"learn, ids: {name}", partial(policy.learn, arms, 1.0, arm=0, ids=wrong)
        yield f"play, ids: {name}", partial(policy.play, arms, rewards[None], ids=wrong)
    for allowed in ([], [False] * 5, [True] * 4, [5], [-1], [0.5], "abc", {0}, object(), [[0]], [10**30]):
        yield f"allowed={allowed!r}", partial(choose, ids=ids, allowed=allowed)
    keys: tuple[Any, ...] = (["list"], {}, float("nan"), np.arange(2))
    for key in keys:
        yield f"key={key!r}", partial(choose, ids=ids, key=key)
        yield f"remember({key!r})", partial(policy.remember, key, row, "a")
        yield f"learn key={key!r}", partial(policy.learn, reward=1.0, key=key)
    yield "an unknown key", partial(policy.learn, reward=1.0, key="unknown")
    yield "remember NaN", partial(policy.remember, "key", np.nan * row, "a")
    for reward in (None, "1", b"1", np.nan, -np.inf, 1e75, 10**400, 1j, [1.0], np.ones(1), object(), {}):
        yield f"reward {reward!r:.30}", partial(learn, reward, arm=0)
    for arm in (True, False, 5, -1, 0.0, 0.5, "0", None, [0], np.array([0]), 10**30):
        yield f"arm={arm!r}", partial(learn, 1.0, arm=arm)
    yield "learn()", policy.learn
    yield "learn without arms", partial(policy.learn, reward=1.0, arm=0)
    for name, wrong in {"text": "abc", "a number": 1.0, "too narrow": table[:, :-1], "NaN": table * np.nan,
                        "ragged": [[1.0], [1.0, 2.0]], "complex": table * 1j, "cube": table[None]}.items():  # fmt: skip
        yield f"play, rewards: {name}", partial(play, arms, wrong)
    for shown in ([5], [0.5], ["a"], [0, 0], 0, [10**30]):
        yield f"play, shown={shown}", partial(play, arms, [1.0], shown=shown)
    yield "play, shown without rewards", partial(play, arms, shown=[0])
    twice = sp.vstack([arms, arms]) if sp.issparse(arms) else np.vstack([arms, arms])
    for count in (-1, 2.5, "1", 7):
        yield f"play, rounds={count!r}", partial(play, twice, rounds=count)
    for name, matrix in list(malformed(policy.dim, 1 if policy.disjoint else len(ids)))[::9]:
        yield f"play, {name}", partial(play, matrix, table)
    yield "play, NaN", partial(play, np.full((1 if policy.disjoint else 5, policy.dim), np.nan), table)
