"""A policy that starts warm: one pass over shards of rows, on all cores or on a cluster.

Sums add up: A, b and n of the shards are those of all rows, and the ridge is counted once, so the result is exact.
Where d is too large for A, each shard follows its own theta by SAGA and these are averaged, weighted by their rows; or
one worker follows theta through all shards. Both are approximations, see docs/benchmarks.md. Shards are put together in
their order, so two workers and eight give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls import engines, logs
from driftls.errors import SettingsError
from driftls.features import Crosses, Features, from_header
from driftls.history import Reservoir
from driftls.kernels import widths as width_kernels
from driftls.kernels.policy import ERRORS, LEARNED
from driftls.kernels.track import HEALTH, MAX_NORM2, MAX_Y2
from driftls.policies import Policy
from driftls.policies.linucb import GRAM_UP_TO
from driftls.trackers import CD, RLS, SAGA, Tracker
from driftls.widths import DiagonalWidth, PhiWidth

__all__ = ["Fit", "fit", "shown_rows", "with_articles"]

Array = NDArray[np.float64]
Rows = Iterable[tuple[Any, Array]]


class Fit(NamedTuple):
    """A policy that is ready, the rows it has learned, and how: exact "sums", or an approximation.

    That is one "stream" through SAGA, or an "average" of shards.
    """

    policy: Policy
    rows: int
    method: str


class Sample(NamedTuple):
    """The rows with the smallest of random keys: uniform, and the same of two samples together is one of all rows."""

    keys: Array
    X: Any
    y: Array


class Part(NamedTuple):
    """What a shard tells: its sums A, b and y'y; or n theta and n times the mean squared error. Sums all of them."""

    n: int
    A: Array
    b: Array
    squared: float
    squares: Array
    health: Array
    sample: Sample | None


def fit(
    policy: Policy,
    shards: Sequence[Any],
    read: Callable[[Any], Rows],
    *,
    seed: int = 0,
    workers: int = -1,
    cluster: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Fit:
    """Teach an unused policy the rows of all shards.

    Parameters
    ----------
    policy : Policy
        Over `RLS` or `CD`; or over `SAGA` with a `Reservoir`, which then holds a uniform sample of all rows.
    shards, read
        `read(shard)` gives blocks (X, y) of a shard, where the task runs; both can be pickled.
    seed : int
        Of the sample, and of SAGA's draws.
    workers, cluster
        As in `driftls.engines.each`. For d above 5,000, one worker learns all shards as one stream.
    progress : function, optional
        Called with the number of rows of each shard that is there.

    Examples
    --------
    >>> from driftls.policies import Greedy
    >>> def read(shard):
    ...     X = np.random.default_rng(shard).normal(size=(1000, 3))
    ...     yield X, X @ [1.0, 2.0, 3.0]
    >>> found = fit(Greedy(RLS(3)), [0, 1], read, workers=1)
    >>> found.rows, found.method, found.policy.theta.round(2)
    (2000, 'sums', array([1., 2., 3.]))
    """
    tracker = policy.tracker
    _check(policy)
    whole = tracker.dim <= GRAM_UP_TO or not isinstance(tracker, SAGA)
    if not whole and workers == 1 and cluster is None:
        shards, read = [list(shards)], partial(_chained, read)
    work = partial(_part, read=read, tracker=tracker, whole=whole, seed=seed)
    total: Part | None = None
    parts = engines.each(work, list(enumerate(shards)), workers=workers, cluster=cluster)
    for part in engines.in_order(parts):
        total = part if total is None else _add(total, part, tracker)
        if progress is not None:
            progress(part.n)
    if total is None or total.n == 0:
        raise SettingsError("there is nothing to fit: the shards hold no rows. Check the path.")
    method = "sums" if whole else "stream" if len(shards) == 1 else "average"
    return Fit(_ready(policy, total, whole), total.n, method)


def _check(policy: Policy) -> None:
    tracker, width = policy.tracker, policy.width
    if len(tracker) or getattr(policy, "_auto", False):
        raise SettingsError("fit needs an unused policy whose tracker is given, not chosen at the first arms.")
    if getattr(tracker, "discount", 1.0) < 1.0:
        raise SettingsError("a discount counts rows by their order, which shards do not have. Fit without a discount.")
    if isinstance(tracker, RLS | CD):
        if tracker.history is not None or width.own_sums(tracker):
            raise SettingsError(
                f"{type(width).__name__} or a history has to see every row in turn, and sums have none. Use linucb or "
                "flinucb-cd, or learn the rows through the policy."
            )
    elif not (isinstance(tracker, SAGA) and isinstance(tracker.history, Reservoir)):
        raise SettingsError(f"fit needs RLS, CD, or SAGA with history=Reservoir(capacity), got {tracker!r}.")
    elif not isinstance(width, PhiWidth | DiagonalWidth):
        raise SettingsError(f"over SAGA fit needs a PhiWidth or a DiagonalWidth, got {width!r}.")


def _chained(read: Callable[[Any], Rows], shards: Sequence[Any]) -> Iterator[tuple[Any, Array]]:
    for shard in shards:
        yield from read(shard)


def shown_rows(path: str, features: Features) -> Iterator[tuple[Any, Array]]:
    """The arm that was shown, with its reward, of every line of a log; in blocks."""
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
        yield features.rows(alone), block.reward


def with_articles(features: Features, paths: Sequence[str], **where: Any) -> Features:
    """Crosses that know every article of the log, so that all shards give them the same blocks; others as they are."""
    if not isinstance(features, Crosses):
        return features
    found: dict[int, None] = {}
    for ids in engines.in_order(engines.each(_articles, list(paths), **where)):
        found |= dict.fromkeys(ids)
    return from_header({**features.to_header(), "ids": list(found)})


def _articles(path: str) -> list[int]:
    return list(dict.fromkeys(i for block in logs.read(path).blocks() for i in block.pool_ids.tolist()))


# -- where a shard is read ---------------------------------------------------------------------------------------------


class _Sums:
    """A, b and y'y."""

    def __init__(self, dim: int) -> None:
        self.tracker, self.squared = RLS(dim, regularisation=0.0, method="cholesky"), 0.0

    def take(self, X: Any, y: Array) -> None:
        self.tracker._absorb(X, y, 0.0)
        self.squared += float(y @ y)

    def told(self) -> tuple[Array, Array, float]:
        return *self.tracker._sums(), self.squared


class _Stream:
    """n theta by SAGA over the shuffled rows of each block, and n times its mean squared error."""

    def __init__(self, tracker: Tracker, rng: np.random.Generator) -> None:
        self.rng, self.tracker, self.squared, self.judged = rng, tracker.fresh(rng.spawn(1)[0]), 0.0, 0

    def take(self, X: Any, y: Array) -> None:
        if len(self.tracker):  # a block is judged before it is learned, the first one by theta = 0: it does not count
            self.squared += float(np.sum((y - self.tracker.predict(X)) ** 2))
            self.judged += len(y)
        order = self.rng.permutation(len(y))
        self.tracker.partial_fit(X[order], y[order])

    def told(self) -> tuple[Array, Array, float]:
        n = len(self.tracker)
        return np.zeros((0, 0)), n * self.tracker.theta, n * self.squared / max(self.judged, 1)


def _part(numbered: tuple[int, Any], *, read: Callable[[Any], Rows], tracker: Tracker, whole: bool, seed: int) -> Part:
    """One pass over a shard."""
    number, shard = numbered
    rng = np.random.default_rng([seed, number])
    learner = _Sums(tracker.dim) if whole else _Stream(tracker, rng)
    n, squares, health, sample = 0, np.zeros(tracker.dim), np.zeros(HEALTH), None
    for block, y in read(shard):
        if not len(y):
            continue
        X: Any = block.tocsr() if sp.issparse(block) else np.asarray(block, dtype=np.float64)
        learner.take(X, y)
        if tracker.history is not None:
            entries = X.multiply(X).tocsr() if sp.issparse(X) else X * X
            squares += entries.sum(axis=0)
            health[MAX_NORM2] = max(health[MAX_NORM2], entries.sum(axis=1).max())
            health[MAX_Y2] = max(health[MAX_Y2], (y * y).max())
            sample = _smallest(sample, Sample(rng.random(len(y)), X, y), tracker.history.capacity)
        n += len(y)
    A, b, squared = learner.told() if n else (np.zeros((0, 0)), np.zeros(0), 0.0)
    return Part(n, A, b, squared, squares, health, sample)


def _smallest(old: Sample | None, new: Sample, count: int | None) -> Sample:
    """The `count` rows with the smallest keys of both."""
    if old is not None and len(old.y) == count:  # most new rows are out at once
        near = new.keys < old.keys[-1]
        new = Sample(new.keys[near], new.X[near], new.y[near])
    if old is not None:
        stack = sp.vstack if sp.issparse(new.X) else np.vstack
        new = Sample(np.append(old.keys, new.keys), stack([old.X, new.X]), np.append(old.y, new.y))
    order = np.argsort(new.keys)[:count]
    return Sample(new.keys[order], new.X[order], new.y[order])


# -- where they are put together ---------------------------------------------------------------------------------------


def _add(a: Part, b: Part, tracker: Tracker) -> Part:
    if not (a.n and b.n):
        return a if a.n else b
    sample = None
    if a.sample is not None and b.sample is not None and tracker.history is not None:
        sample = _smallest(a.sample, b.sample, tracker.history.capacity)
    return Part(
        a.n + b.n,
        a.A + b.A,
        a.b + b.b,
        a.squared + b.squared,
        a.squares + b.squares,
        np.maximum(a.health, b.health),
        sample,
    )


def _ready(policy: Policy, total: Part, whole: bool) -> Policy:
    """The policy as it would stand after all rows."""
    tracker = policy.tracker
    ridge = total.n * tracker.regularisation(total.n)  # type: ignore[operator]
    if isinstance(tracker, RLS | CD):
        tracker._set_sums(total.A, total.b, ridge, total.n)
        theta = tracker.theta
    elif whole:
        exact = RLS(tracker.dim, regularisation=tracker.regularisation, method="cholesky")
        exact._set_sums(total.A, total.b, ridge, total.n)
        theta = exact.theta
    else:
        theta = total.b / total.n
    errors = total.squared
    if whole:
        errors = max(0.0, total.squared - float(theta @ (2.0 * total.b - total.A @ theta)))
    if isinstance(tracker, SAGA):
        policy = _with_rows(policy, tracker, theta, total)
    policy._scalars[[ERRORS, LEARNED]] = errors, total.n
    return policy


def _with_rows(policy: Policy, tracker: SAGA, theta: Array, total: Part) -> Policy:
    """What a file of the policy would hold after all rows, and the policy of that file."""
    assert total.sample is not None
    _, X, y = total.sample
    fitted, parts = tracker._at(theta, X, y, total.n, total.health).snapshot()
    policy._first_look(X[:1], None)  # which gives the width its state
    header, arrays = policy.snapshot()
    arrays = {name: np.array(array) for name, array in arrays.items() if not name.startswith("tracker.")}
    arrays |= {f"tracker.{name}": array for name, array in parts.items()}
    if isinstance(policy.width, PhiWidth):
        arrays["width.squares"][0] = total.squares
        arrays["width.scalars"][[width_kernels.ENTERED, width_kernels.N]] = total.n
    else:
        arrays["width.coords"][0] = total.squares
    return type(policy).from_snapshot({**header, "tracker": fitted}, arrays)
