"""Calls of a policy that must be refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def bad_arms(policy: Any, method: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls with arms, or users, that must be refused."""
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
    bad |= {f"{name}": matrix for name, matrix in malformed(dim, count)}
    if policy.disjoint:
        bad |= {f"({name})": pair for name, pair in bad_pairs(dim)} | {"two users": np.ones((2, dim))}
    else:
        bad |= {"a vector": np.ones(dim)}
    ask = getattr(policy, method)
    for name, arms in bad.items():
        yield f"{method}, arms: {name}", lambda arms=arms: ask(arms, ids=ids)  # type: ignore[misc]


def bad_ids(policy: Any, arms: Any) -> Iterator[tuple[str, Any]]:
    """Ids that must be refused."""
    yield "repeated", ["a", "b", "a", "c", "d"]
    yield "repeated, of two types", [1, 1.0, 2, 3, 4]
    yield "NaN", ["a", "b", "c", "d", float("nan")]
    yield "unhashable", ["a", "b", "c", "d", ["e"]]
    yield "an array each", [np.arange(3)] * 5
    yield "a dictionary each", [{}, {}, {}, {}, {}]
    yield "a set", set("abcde")
    yield "a dictionary", dict.fromkeys("abcde")
    yield "text", "abcde"
    yield "a number", 5
    yield "a generator", (name for name in "abcde")
    if not policy.disjoint:
        yield "too few", ["a"]
        yield "too many", list("abcdef")
    yield "none", []


def bad_calls(policy: Any, kind: Callable[[Any], Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls that must be refused, by what is wrong with them."""
    arms, ids, rewards = next(rounds(policy, 1, kind))
    many = {"ids": ids}
    for method in ("choose", "scores", "widths", "probabilities"):
        yield from bad_arms(policy, method)
        for name, wrong in bad_ids(policy, arms):
            yield f"{method}, ids: {name}", lambda m=method, w=wrong: getattr(policy, m)(arms, ids=w)  # type: ignore[misc]
    for name, wrong in bad_ids(policy, arms):
        yield f"learn, ids: {name}", lambda w=wrong: policy.learn(arms, 1.0, arm=0, ids=w)  # type: ignore[misc]
        yield f"play, ids: {name}", lambda w=wrong: policy.play(arms, rewards[None], ids=w)  # type: ignore[misc]
    for allowed in ([], [False] * 5, [True] * 4, [5], [-1], [0.5], "abc", {0}, object(), [[0]], [10**30]):
        yield f"allowed={allowed!r}", lambda a=allowed: policy.choose(arms, ids=ids, allowed=a)  # type: ignore[misc]
    for key in (["list"], {}, float("nan"), np.arange(2), *(["waiting"] if policy.keys.waiting else [])):
        yield f"key={key!r}", lambda k=key: policy.choose(arms, ids=ids, key=k)  # type: ignore[misc]
        yield f"remember({key!r})", lambda k=key: policy.remember(k, _row(policy), "a")  # type: ignore[misc]
        if not isinstance(key, str):
            yield f"learn key={key!r}", lambda k=key: policy.learn(reward=1.0, key=k)  # type: ignore[misc]
    yield "an unknown key", lambda: policy.learn(reward=1.0, key="unknown")
    yield "remember NaN", lambda: policy.remember("key", np.full(policy.dim, np.nan), "a")
    for reward in (None, "1", b"1", np.nan, -np.inf, 1e75, 10**400, 1j, [1.0], np.ones(1), object(), {}):
        yield f"reward {reward!r:.30}", lambda r=reward: policy.learn(arms, r, arm=0, ids=ids)  # type: ignore[misc]
        if policy.keys.waiting:
            yield f"key, reward {reward!r:.30}", lambda r=reward: policy.learn(reward=r, key="waiting")  # type: ignore[misc]
    for arm in (True, False, 5, -1, 0.0, 0.5, "0", None, [0], np.array([0]), 10**30):
        if arm is not None or policy.disjoint or len(ids) > 1:
            yield f"arm={arm!r}", lambda a=arm: policy.learn(arms, 1.0, arm=a, ids=ids)  # type: ignore[misc]
    yield "learn()", lambda: policy.learn()
    yield "learn without arms", lambda: policy.learn(reward=1.0, arm=0)
    table = np.ones((1, len(ids)))
    for name, wrong in {"text": "abc", "a number": 1.0, "too narrow": table[:, :-1], "NaN": table * np.nan,
                        "ragged": [[1.0], [1.0, 2.0]], "complex": table * 1j, "cube": table[None]}.items():  # fmt: skip
        yield f"play, rewards: {name}", lambda w=wrong: policy.play(arms, w, **many)  # type: ignore[misc]
    for shown in ([5], [0.5], ["a"], [0, 0], 0, [10**30]):
        yield f"play, shown={shown}", lambda s=shown: policy.play(arms, [1.0], shown=s, **many)  # type: ignore[misc]
    yield "play, shown without rewards", lambda: policy.play(arms, shown=[0], **many)
    for count in (-1, 2.5, "1", 7):
        yield f"play, rounds={count!r}", lambda c=count: policy.play(_two(arms), rounds=c, **many)  # type: ignore[misc]
    for name, wrong in malformed(policy.dim, 1 if policy.disjoint else len(ids)):
        yield f"play, {name}", lambda w=wrong: policy.play(w, table, **many)  # type: ignore[misc]
    yield (
        "play, NaN",
        lambda: policy.play(np.full((len(table) * (1 if policy.disjoint else 5), policy.dim), np.nan), table, **many),
    )


def _two(arms: Any) -> Any:
    return sp.vstack([arms, arms]) if sp.issparse(arms) else np.vstack([arms, arms])


def _row(policy: Any) -> Any:
    return np.ones(policy.dim) / policy.dim
