"""What a bounded history costs: streams and bandits ten times as long as the history, against all rows kept.

The bound is scaled down, and the rest with it. Streams: the error on rows to come over that of the exact solution of all
rows, and how far predictions are from its. Bandits: the reward of the second half, in percent of what is to be won over
random choices, by LinUCB over SAGA with diagonal widths; arms are items, to be shown to segments of users.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.measure import Options, Table, mean, tell
from driftls.history import Growing, History, Reservoir, Window
from driftls.policies import LinUCB
from driftls.trackers import RLS, SAGA
from driftls.widths import DiagonalWidth

HELD = 1_000
LONGER = 10
HISTORIES: dict[str, Callable[[], History]] = {
    "all rows": Growing,
    "window": lambda: Window(HELD),
    "reservoir": lambda: Reservoir(HELD),
}
ITEMS, SEGMENTS, POOL, TEST = 60, 4, 10, 500


def histories(options: Options) -> Table:
    rounds, seeds = (2 if options.quick else LONGER) * HELD, range(options.count(16, 2))
    streams = {"dense rows": _dense, "sparse rows": _sparse, "dense rows, theta* moves": _moving}
    bandits = ("items stay", "items stay, most are rare", "every 100 rounds a new item", "rewards of items move")
    rows: list[list[Any]] = []
    for name in options.wanted((*streams, *bandits)):
        found: dict[str, list[Any]] = {kept: [] for kept in HISTORIES}
        for seed in seeds:
            tell(f"{name}, seed {seed}")
            measured = _stream(streams[name], seed, rounds) if name in streams else _bandit(name, seed, rounds)
            for kept, figure in measured.items():
                found[kept].append(figure)
        for k, what in enumerate(("RMSE over exact's", "distance from exact") if name in streams else ("reward, %",)):
            rows.append([f"{name}: {what}", *(mean(np.array(each)[:, k]) for each in found.values())])
    return Table(rows, f"{HELD:,} rows held of {rounds:,}, {len(seeds)} seeds.")


# -- streams ---------------------------------------------------------------------------------------------------------


def _dense(rng: np.random.Generator, count: int, move: float = 0.0) -> tuple[Any, Any]:
    X = rng.normal(size=(count, 30)) * np.exp(rng.normal(size=30))
    theta = rng.normal(size=30) + np.cumsum(move * rng.normal(size=X.shape), axis=0)
    return X, (X * theta).sum(axis=1) + rng.normal(size=count)


def _moving(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    return _dense(rng, count, 0.03)


def _sparse(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """8 of 300 features, some of which are rare."""
    often = 1.0 / np.arange(1, 301)
    at = np.sort([rng.choice(300, 8, replace=False, p=often / often.sum()) for _ in range(count)], axis=1)
    X = _ones(at, 300)
    return X, X @ rng.normal(size=300) + rng.normal(size=count)


def _ones(at: Any, dim: int) -> Any:
    return sp.csr_array((np.ones(at.size), at.ravel(), np.arange(len(at) + 1) * at.shape[1]), shape=(len(at), dim))


def _stream(make: Callable[..., tuple[Any, Any]], seed: int, count: int) -> dict[str, tuple[float, float]]:
    X, y = make(np.random.default_rng(seed), count + TEST)
    past, future = X[:count], X[count:]
    exact = RLS(X.shape[1]).partial_fit(past.toarray() if sp.issparse(past) else past, y[:count]).predict(future)
    found = {}
    for name, history in HISTORIES.items():
        told = SAGA(X.shape[1], history=history(), seed=seed).partial_fit(past, y[:count]).predict(future)
        error, least = (float(np.sqrt(np.mean((one - y[count:]) ** 2))) for one in (told, exact))
        found[name] = error / least, float(np.linalg.norm(told - exact) / np.linalg.norm(exact))
    return found


# -- bandits ---------------------------------------------------------------------------------------------------------


def _bandit(name: str, seed: int, rounds: int) -> dict[str, tuple[float]]:
    rng = np.random.default_rng(seed)
    new = name == "every 100 rounds a new item"
    items = rounds // 100 + POOL if new else ITEMS
    often = 1.0 / np.arange(1, items + 1) if name == "items stay, most are rare" else np.ones(items)
    pools = np.array(
        [
            np.arange(n // 100, n // 100 + POOL)
            if new
            else rng.choice(items, POOL, replace=False, p=often / often.sum())
            for n in range(rounds)
        ]
    )
    segment = np.repeat(rng.integers(0, SEGMENTS, (rounds, 1)), POOL, axis=1)
    by_item, by_pair, by_segment = (0.5 * rng.normal(size=size) for size in (items, (items, SEGMENTS), SEGMENTS))
    expected = by_item[pools] + by_pair[pools, segment] + by_segment[segment]
    if name == "rewards of items move":
        expected += np.take_along_axis(np.cumsum(0.02 * rng.normal(size=(rounds, items)), axis=0), pools, 1)
    rewards = expected + 0.5 * rng.normal(size=(rounds, 1))
    at = np.stack([pools, items + pools * SEGMENTS + segment, items * (1 + SEGMENTS) + segment], -1)
    dim = (items + 1) * (1 + SEGMENTS) - 1
    arms = _ones(at.reshape(-1, 3), dim)
    found = {}
    for kept, history in HISTORIES.items():
        policy = LinUCB(tracker=SAGA(dim, history=history(), seed=seed), width=DiagonalWidth(), seed=seed)
        chosen = policy.play(arms, rewards)
        late = slice(rounds // 2, rounds)
        won = (expected[np.arange(rounds), chosen] - expected.mean(axis=1))[late].mean()
        found[kept] = (float(100.0 * won / (expected.max(axis=1) - expected.mean(axis=1))[late].mean()),)
    return found
