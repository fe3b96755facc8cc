"""Warm start of a policy: one pass over shards of rows, on all cores or on a cluster.

Sums add up: A, b and n of the shards are those of all rows, and the ridge is counted once, so the result is exact.
Shards are put together in their order, so two workers and eight give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls import logs, parallel
from driftls.errors import DimensionError, InputError, SettingsError
from driftls.features import FeatureMap, UserArmCrosses, from_header
from driftls.history import History, Reservoir
from driftls.policies import DisjointLinUCB, Policy, SharedPolicy
from driftls.trackers import CD, RAW, RLS, SAGA, Tracker
from driftls.widths import DiagonalWidth, PhiWidth

__all__ = ["Fit", "fit", "shown_rows", "with_articles"]

Array = NDArray[np.float64]
Rows = Iterable[Any]  # of (X, y) or (X, y, ids)
MOST_FEATURES = 5_000  # beyond, the matrix A of a shard takes more than 200 MB


class Fit(NamedTuple):
    """A policy that is ready, and the number of rows that it has learned."""

    policy: Policy
    rows: int


class Sample(NamedTuple):
    """The rows with the smallest of random keys: uniform, and the same of two samples together is one of all rows."""

    keys: Array
    X: Any
    y: Array


class Sums(NamedTuple):
    """Sums over the rows of a model: n, A = X'X, b = X'y, y'y; for SAGA its largest row and reward, and a sample."""

    n: int
    sparse: bool
    A: Array
    b: Array
    yy: float
    max_norm2: float = 0.0
    max_y2: float = 0.0
    sample: Sample | None = None


def fit(
    policy: SharedPolicy | DisjointLinUCB,
    shards: Sequence[Any],
    read: Callable[[Any], Rows],
    *,
    seed: int = 0,
    workers: int = -1,
    cluster: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Fit:
    """Teach an unused policy the rows of all shards, exactly.

    Parameters
    ----------
    policy : LinUCB, Greedy or DisjointLinUCB
        Over `RLS` or `CD`; or over `SAGA` with a `Reservoir`, which then holds a uniform sample of all rows. At most
        5,000 features: the sums take d^2.
    shards, read
        `read(shard)` gives blocks (X, y) of a shard, where the task runs, or (X, y, ids) where each arm id has a model
        of its own; `shown_rows` does so for a file of a log. Both can be pickled.
    seed : int
        Of the sample.
    workers, cluster
        As in `driftls.parallel.parallel_map`.
    progress : function, optional
        Called with the number of rows of each shard that is there.

    Examples
    --------
    >>> from driftls.policies import Greedy
    >>> def read(shard):
    ...     X = np.random.default_rng(shard).normal(size=(1000, 3))
    ...     yield X, X @ [1.0, 2.0, 3.0]
    >>> found = fit(Greedy(RLS(3, **RAW)), [0, 1], read, workers=1)
    >>> found.rows, found.policy.theta.round(2)
    (2000, array([1., 2., 3.]))
    """
    _check(policy)
    history = policy.tracker.history
    room = history.capacity if isinstance(history, Reservoir) else None
    work = partial(_sums, read=read, dim=policy.dim, room=room, by_id=isinstance(policy, DisjointLinUCB), seed=seed)
    total: dict[Any, Sums] = {}
    numbered = parallel.parallel_map(work, list(enumerate(shards)), workers=workers, cluster=cluster)
    for of_shard in parallel.in_order(numbered):
        for name, sums in of_shard.items():
            total[name] = _add(total[name], sums, room) if name in total else sums
        if progress is not None:
            progress(sum(sums.n for sums in of_shard.values()))
    rows = sum(sums.n for sums in total.values())
    if not rows:
        raise SettingsError("there is nothing to fit: the shards hold no rows. Check the path.")
    if isinstance(policy, DisjointLinUCB):
        return Fit(_warm_disjoint(policy, total), rows)
    [sums] = total.values()
    return Fit(_warm_shared(policy, sums), rows)


def _check(policy: SharedPolicy | DisjointLinUCB) -> None:
    tracker, width = policy.tracker, policy.width
    sums = isinstance(width, DiagonalWidth) or (isinstance(width, PhiWidth) and width.method == "regularised")
    if len(tracker) or getattr(policy, "_auto", False):
        raise SettingsError("fit needs an unused policy whose tracker is given, not chosen at the first arms.")
    if getattr(tracker, "discount", 1.0) < 1.0:
        raise SettingsError("a discount counts rows by their order, which shards do not have. Fit without a discount.")
    if not sums and width.own_sums(tracker):
        raise SettingsError(
            f"{width!r} has to see every row in turn, and sums have none. Use linucb, linucb-exact or flinucb-saga, or "
            "learn the rows through the policy."
        )
    if tracker.scale or tracker.intercept:
        raise SettingsError(
            "fit takes sums of rows as they are, and this tracker measures features in units that it finds on its way. "
            "Build it with scale=False, intercept=False, and give the rows a constant."
        )
    keeps = type(tracker.history)  # the plain History keeps no rows
    if not (isinstance(tracker, RLS | CD) and keeps is History) and not (
        isinstance(tracker, SAGA) and keeps is Reservoir
    ):
        raise SettingsError(f"fit needs RLS, CD, or SAGA with history=Reservoir(capacity), got {tracker!r}.")
    if tracker.dim > MOST_FEATURES:
        raise SettingsError(
            f"fit takes sums of size d^2, so at most {MOST_FEATURES:,} features, got {tracker.dim:,}. Use hashed "
            "features of a smaller width, or learn block after block: policy.tracker.partial_fit(X, y)."
        )


# -- rows of a log -----------------------------------------------------------------------------------------------------


def shown_rows(path: str, features: FeatureMap) -> Iterator[tuple[Any, Array, NDArray[np.int64]]]:
    """The arm that was shown, its reward and its id, of every line of a log; in blocks."""
    for block in logs.read(path).blocks():
        places, pool = np.unique(block.pool_start[block.pool] + block.shown, return_inverse=True)
        alone = replace(
            block,
            pool=pool.astype(np.int32),
            shown=np.zeros_like(block.shown),
            pool_start=np.arange(len(places) + 1),
            pool_ids=block.pool_ids[places],
            arm_features=None if block.arm_features is None else block.arm_features[places],
            truth=None,
        )
        yield features.rows(alone), block.reward, alone.pool_ids[pool]


def with_articles(features: FeatureMap, paths: Sequence[str], **where: Any) -> FeatureMap:
    """Crosses that know every article of the log, so that all shards give them the same blocks; others as they are."""
    if not isinstance(features, UserArmCrosses):
        return features
    found: dict[int, None] = {}
    for ids in parallel.in_order(parallel.parallel_map(_articles, list(paths), **where)):
        found |= dict.fromkeys(ids)
    return from_header({**features.to_header(), "ids": list(found)})


def _articles(path: str) -> list[int]:
    return list(dict.fromkeys(i for block in logs.read(path).blocks() for i in block.pool_ids.tolist()))


# -- sums of a shard, where it is read, and of all shards --------------------------------------------------------------


def _sums(
    numbered: tuple[int, Any], *, read: Callable[[Any], Rows], dim: int, room: int | None, by_id: bool, seed: int
) -> dict[Any, Sums]:
    """One pass over a shard: sums for each arm id, or one alone. `room` is that of a sample, if one is wanted."""
    number, shard = numbered
    rng = np.random.default_rng([seed, number])
    total: dict[Any, Sums] = {}
    for block, y, *ids in read(shard):
        X, y = _checked(block, y, dim)
        for name, rows in _groups(ids[0]) if by_id else [(None, slice(None))] if len(y) else []:
            sums = total.get(name) or Sums(0, False, np.zeros((dim, dim)), np.zeros(dim), 0.0)
            total[name] = _enter(sums, X[rows], y[rows], room, rng)
    return total


def _checked(X: Any, y: Any, dim: int) -> tuple[Any, Array]:
    """A block that `read` gave, as floats; what cannot be learned is refused."""
    X = X.tocsr().astype(np.float64) if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] != dim:
        raise DimensionError(f"read must give X with {dim} columns, got {X.shape}. Check the features.")
    if y.shape != (X.shape[0],):
        raise InputError(f"read must give a y of {X.shape[0]} numbers, one a row of X; got {y.shape}.")
    if not (np.isfinite(y).all() and np.isfinite(X.data if sp.issparse(X) else X).all()):
        raise InputError("read must give finite numbers, got NaN or infinity. Leave such rows out.")
    return X, y


def _groups(ids: Any) -> list[tuple[Any, Any]]:
    """Each id, with the rows that have it."""
    order = np.argsort(ids, kind="stable")
    names, first = np.unique(np.asarray(ids)[order], return_index=True)
    return list(zip(names.tolist(), np.split(order, first[1:])))


def _enter(sums: Sums, X: Any, y: Array, room: int | None, rng: np.random.Generator) -> Sums:
    """The sums with more rows; A and b are added to in place."""
    sparse = bool(sp.issparse(X))
    gram = X.T @ X
    if sparse:  # only where there is something: A may be far larger than a block
        gram = gram.tocoo()
        sums.A[gram.row, gram.col] += gram.data
    else:
        sums.A[...] += gram
    sums.b[...] += X.T @ y
    sums = sums._replace(n=sums.n + len(y), sparse=sparse, yy=sums.yy + float(y @ y))
    if room is None:
        return sums
    norms = (X.multiply(X) if sparse else X * X).sum(axis=1)
    sample = _smallest(sums.sample, Sample(rng.random(len(y)), X, y), room)
    return sums._replace(
        max_norm2=max(sums.max_norm2, float(norms.max())), max_y2=max(sums.max_y2, float((y * y).max())), sample=sample
    )


def _add(a: Sums, b: Sums, room: int | None) -> Sums:
    sample = a.sample if b.sample is None else _smallest(a.sample, b.sample, room)
    largest = max(a.max_norm2, b.max_norm2), max(a.max_y2, b.max_y2)
    return Sums(a.n + b.n, a.sparse, a.A + b.A, a.b + b.b, a.yy + b.yy, *largest, sample)


def _smallest(old: Sample | None, new: Sample, room: int | None) -> Sample:
    """The rows with the smallest keys of both, as many as there is room for."""
    if old is not None and len(old.y) == room:  # most new rows are out at once
        near = new.keys < old.keys[-1]
        new = Sample(new.keys[near], new.X[near], new.y[near])
    if old is not None:
        stack = sp.vstack if sp.issparse(new.X) else np.vstack
        new = Sample(np.append(old.keys, new.keys), stack([old.X, new.X]), np.append(old.y, new.y))
    order = np.argsort(new.keys)[:room]
    return Sample(new.keys[order], new.X[order], new.y[order])


# -- policies that start from sums -------------------------------------------------------------------------------------


def _solution(tracker: Tracker, sums: Sums) -> tuple[Any, float]:
    """What puts the unused tracker where it would stand after all rows, and the sum of their squared errors."""
    ridge = sums.n * tracker.regularisation(sums.n)  # type: ignore[operator]
    exact = RLS(tracker.dim, regularisation=tracker.regularisation, method="cholesky", **RAW)
    exact.set_sums(sums.A, sums.b, ridge, sums.n)
    theta = exact.theta
    errors = max(0.0, sums.yy - float(theta @ (2.0 * sums.b - sums.A @ theta)))

    def fill(tracker: Any) -> None:
        if isinstance(tracker, SAGA):
            assert sums.sample is not None
            sample = sums.sample
            tracker.stand_at(theta, sample.X, sample.y, sums.n, sums.max_norm2, sums.max_y2)
        else:
            tracker.set_sums(sums.A, sums.b, ridge, sums.n)

    return fill, errors


def _warm_shared(policy: SharedPolicy, sums: Sums) -> SharedPolicy:
    """One model for all arms."""
    fill, errors = _solution(policy.tracker, sums)
    policy.warm(fill, sparse=sums.sparse, squares=np.diag(sums.A), n=sums.n, errors=errors)
    return policy


def _warm_disjoint(policy: DisjointLinUCB, total: dict[Any, Sums]) -> DisjointLinUCB:
    """A model for each arm id."""
    for name, sums in total.items():
        fill, errors = _solution(policy.tracker, sums)
        policy.warm(name, fill, sparse=sums.sparse, squares=np.diag(sums.A), n=sums.n, errors=errors)
    return policy
