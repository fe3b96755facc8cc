"""Many sparse features, up to a million: what is won, and what a round costs.

Arms are rows of categories, one of each field; how often a category comes falls as one over its rank, so that most are rare
and some are in every second row. Beside the library plays a prototype of another solver (`Columns`), which is not part of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.measure import Mean, Options, Table, mean, tell
from driftls import ridge
from driftls.policies import LinUCB
from driftls.trackers import RAW, SAGA, Diagonal
from driftls.widths import CentredWidth, DiagonalWidth

DIMS = (1_000, 10_000, 100_000, 1_000_000)
FIELDS, ARMS, ROUNDS, TEST = 20, 10, 10_000, 5_000
SIGMA = 0.5
LONGEST = 64  # entries of a column: a longer one is solved for with this share of its rows' arrivals


def _rows(rng: np.random.Generator, count: int, dim: int) -> sp.csr_array:
    """One category of each field, by Zipf's law."""
    often = np.cumsum(1.0 / np.arange(1, dim // FIELDS + 1))
    at = np.searchsorted(often, often[-1] * rng.random((count, FIELDS))) + dim // FIELDS * np.arange(FIELDS)
    return sp.csr_array(
        (np.ones(at.size), at.ravel().astype(np.int32), FIELDS * np.arange(count + 1)), shape=(count, dim)
    )


# -- a prototype: coordinate descent over the columns that a row touches ---------------------------------------------


@cache
def _columns() -> Any:
    """The prototype's learning and playing, compiled."""
    import numba

    jit = numba.njit(error_model="numpy")

    @jit
    def learn(at: Any, y: float, n: int, lam: float, sweeps: int, state: Any) -> None:
        """Note the row; then theta_j to its optimum, the others fixed, for each column j of it: O(length of the column)

        And for the columns of earlier rows, in turn: of as many rows as there are sweeps.
        """
        theta, squares, head, entry_row, entry_next, residual, turn, kept, cursor = state
        error, width = y, at.size
        for p in range(width):
            error -= theta[at[p]]
        residual[n] = error
        for p in range(width):
            e = n * width + p
            kept[e], entry_row[e], entry_next[e], head[at[p]] = at[p], n, head[at[p]], e
            squares[at[p]] += 1.0
        for k in range(sweeps):
            if k > 0:
                cursor[0] = (cursor[0] + 1) % (n + 1)
            first = width * (n if k == 0 else cursor[0])
            for p in range(first, first + width):
                j = kept[p]
                turn[j] += LONGEST
                if turn[j] < squares[j]:
                    continue
                turn[j] = 0.0
                gradient, e = -lam * theta[j], head[j]
                while e >= 0:
                    gradient += residual[entry_row[e]]
                    e = entry_next[e]
                step, e = gradient / (lam + squares[j]), head[j]
                theta[j] += step
                while e >= 0:
                    residual[entry_row[e]] -= step
                    e = entry_next[e]

    @jit
    def play(indices: Any, rewards: Any, arms: int, lam: float, kappa: float, sweeps: int, state: Any) -> Any:
        """LinUCB with diagonal widths: the arm of each round"""
        theta, squares = state[0], state[1]
        rounds, width = rewards.shape[0], indices.shape[1]
        chosen = np.zeros(rounds, np.int64)
        for n in range(rounds):
            best, highest = 0, -np.inf
            for k in range(arms):
                value, width2 = 0.0, 0.0
                for p in range(width):
                    j = indices[n * arms + k, p]
                    value += theta[j]
                    width2 += 1.0 / (lam + squares[j])
                value += kappa * np.sqrt(width2)
                if value > highest:
                    best, highest = k, value
            chosen[n] = best
            learn(indices[n * arms + best], rewards[n, best], n, lam, sweeps, state)
        return chosen

    return play


class Columns:
    """LinUCB over the prototype: ones as values, one length for all rows."""

    def __init__(self, dim: int, sweeps: int = 1) -> None:
        self.dim, self.sweeps, self.theta = dim, sweeps, np.zeros(dim)

    def play(self, arms: Any, rewards: Any, each: int = ARMS, kappa: float = 2 * SIGMA) -> Any:
        count, dim = len(rewards), self.dim
        entries, rows = np.zeros((2, count * FIELDS), np.int64), arms.indices.reshape(-1, FIELDS)
        kept, cursor = np.zeros(count * FIELDS, np.int64), np.zeros(1, np.int64)
        head, (squares, turn) = np.full(dim, -1), np.zeros((2, dim))
        state = (self.theta, squares, head, *entries, np.zeros(count), turn, kept, cursor)
        return _columns()(rows, rewards, each, 1.0, kappa, self.sweeps, state)

    def partial_fit(self, X: Any, y: Any) -> Columns:
        self.play(X, y[:, None], 1)
        return self

    def predict(self, X: Any) -> Any:
        return X @ self.theta


# -- what is played --------------------------------------------------------------------------------------------------


def _saga(dim: int, seed: int, steps: int = 8) -> SAGA:
    return SAGA(dim, steps=steps, regularisation=ridge(1.0), seed=seed, **RAW)


POLICIES: dict[str, Callable[[int, int], Any]] = {
    "LinUCB, default": lambda d, s: LinUCB(d, seed=s),
    "SAGA + diagonal": lambda d, s: LinUCB(tracker=SAGA(d, seed=s), width=DiagonalWidth(), sigmas=2.0, seed=s),
    "SAGA + centred": lambda d, s: LinUCB(tracker=SAGA(d, seed=s), width=CentredWidth(), sigmas=2.0, seed=s),
    "Diagonal + diagonal": lambda d, s: LinUCB(tracker=Diagonal(d), width=DiagonalWidth(), sigmas=2.0, seed=s),
    "SAGA + diagonal, raw": lambda d, s: LinUCB(tracker=_saga(d, s), width=DiagonalWidth(), kappa=2 * SIGMA, seed=s),
    "columns + diagonal, raw": lambda d, s: Columns(d),
}
TRACKERS: dict[str, Callable[[int, int], Any]] = {
    "SAGA": lambda d, s: SAGA(d, seed=s),
    "SAGA, raw": _saga,
    "SAGA, raw, 32 steps": lambda d, s: _saga(d, s, 32),
    "Diagonal": lambda d, s: Diagonal(d),
    "columns, raw": lambda d, s: Columns(d),
    "columns, raw, and of 7 earlier rows": lambda d, s: Columns(d, 8),
}


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    before = time.process_time()
    found = work()
    return found, time.process_time() - before


def _plays(dim: int, seed: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Of each policy: reward of the second half, % of what the best arms bring over random ones; µs a round."""
    rng = np.random.default_rng([0x1A, dim, seed])
    arms, theta = _rows(rng, rounds * ARMS, dim), rng.normal(size=dim) / np.sqrt(FIELDS)
    expected = (arms @ theta).reshape(rounds, ARMS)
    rewards, late, found = expected + SIGMA * rng.normal(size=expected.shape), slice(rounds // 2, rounds), {}
    most = (expected.max(axis=1) - expected.mean(axis=1))[late].mean()
    for name, make in POLICIES.items():
        tell(f"d = {dim:,}, seed {seed}: {name}")
        policy = make(dim, seed)
        chosen, seconds = _timed(lambda policy=policy: policy.play(arms, rewards))
        won = (expected[np.arange(rounds), chosen] - expected.mean(axis=1))[late].mean()
        found[name] = 100.0 * won / most, 1e6 * seconds / rounds
    return found


def _predicts(dim: int, seed: int, count: int) -> dict[str, tuple[float, float]]:
    """Of each tracker: % of the variance of rows to come that is explained, noise aside; µs a row."""
    rng = np.random.default_rng([0x1B, dim, seed])
    X, theta = _rows(rng, count + TEST, dim), rng.normal(size=dim) / np.sqrt(FIELDS)
    means, found = X @ theta, {}
    y = means + SIGMA * rng.normal(size=means.size)
    for name, make in TRACKERS.items():
        tell(f"d = {dim:,}, seed {seed}: {name}")
        tracker = make(dim, seed)
        _, seconds = _timed(lambda tracker=tracker: tracker.partial_fit(X[:count], y[:count]))
        left = means[count:] - tracker.predict(X[count:])
        found[f"rows: {name}"] = 100.0 * (1.0 - float(left @ left) / (TEST * means.var())), 1e6 * seconds / count
    return found


def large(options: Options) -> Table:
    rounds, seeds = (500 if options.quick else ROUNDS), range(options.count(8, 2))
    dims = DIMS[:2] if options.quick else DIMS
    for work in (_plays, _predicts):
        work(DIMS[0], 0, 200)  # compiles
    found: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for work, dim, seed in product((_plays, _predicts), dims, seeds):
        for name, figures in work(dim, seed, rounds if work is _plays else 2 * rounds).items():
            found.setdefault(name, {}).setdefault(dim, []).append(figures)
    rows = []
    for name, by_dim in found.items():
        cells: list[Mean | float | None] = []
        for dim in DIMS:
            each = np.array(by_dim.get(dim, [])).T
            cells += [mean(each[0]), float(each[1].min())] if each.size else [None, None]
        rows.append([name, *cells])
    told = (
        f"{FIELDS} categories a row, {ARMS} arms, {rounds:,} rounds, noise {SIGMA}, {len(seeds)} seeds.",
        "Policies: reward of the second half, % of what there is to win over random choices.",
        f"Trackers, after {2 * rounds:,} rows: explained variance of rows to come, %, noise aside.",
        "Then µs of processor time a round or row, the least over seeds.",
    )
    return Table(rows, " ".join(told))
