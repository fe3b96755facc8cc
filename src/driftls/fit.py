"""A policy that starts warm: one pass over shards of rows, on all cores or on a cluster.

Sums add up: A, b and n of the shards are those of all rows, and the ridge is counted once, so the result is exact.
Where d is too large for A, each shard follows its own theta by SAGA and these are averaged, weighted by their rows; or
one worker follows theta through all shards. Both are approximations, see docs/benchmarks.md. Shards are put together in
their order, so two workers and eight give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls import logs, parallel
from driftls.errors import SettingsError
from driftls.features import Crosses, Features, from_header
from driftls.history import Reservoir
from driftls.kernels.judge import ERRORS, LEARNED
from driftls.kernels.phi import ENTERED, LOOSE, N, PhiState
from driftls.kernels.track import HEALTH, MAX_NORM2, MAX_Y2
from driftls.kernels.widths import DiagonalWidthState
from driftls.policies import DisjointLinUCB, Policy
from driftls.policies.bandit import Bandit
from driftls.policies.linucb import GRAM_UP_TO
from driftls.policies.models import TAPE
from driftls.trackers import CD, RLS, SAGA, Tracker
from driftls.widths import DiagonalWidth, PhiWidth, keep_spread

__all__ = ["Fit", "fit", "shown_rows", "with_articles"]

Array = NDArray[np.float64]
Rows = Iterable[Any]  # of (X, y) or (X, y, ids)


class Fit(NamedTuple):
    """A policy that is ready, the rows it has learned, and how: exact "sums", or an approximation.

    That is one "stream" through SAGA, or an "average" of shards.
    """

    policy: Bandit
    rows: int
    method: str


class Sample(NamedTuple):
    """The rows with the smallest of random keys: uniform, and the same of two samples together is one of all rows."""

    keys: Array
    X: Any
    y: Array
    room: int | None = None


class Part(NamedTuple):
    """What a shard tells of a model: n; sums A, b and y'y, or n theta and n times the mean squared error.

    For SAGA also the sums x_j^2, the largest row and reward, and a sample of the rows.
    """

    n: int
    sparse: bool
    A: Array
    b: Array
    squared: float
    squares: Array
    health: Array
    sample: Sample | None


def fit(
    policy: Policy | DisjointLinUCB,
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
    policy : Policy or DisjointLinUCB
        Over `RLS` or `CD`; or over `SAGA` with a `Reservoir`, which then holds a uniform sample of all rows.
    shards, read
        `read(shard)` gives blocks (X, y) of a shard, where the task runs, or (X, y, ids) where each arm id has a model
        of its own; `shown_rows` does so for a file of a log. Both can be pickled.
    seed : int
        Of the sample, and of SAGA's draws.
    workers, cluster
        As in `driftls.parallel.parallel_map`. For d above 5,000, one worker learns all shards as one stream.
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
    apart = isinstance(policy, DisjointLinUCB)
    work = partial(_parts, read=read, tracker=tracker, whole=whole, apart=apart, seed=seed)
    total: dict[Any, Part] = {}
    told = parallel.parallel_map(work, list(enumerate(shards)), workers=workers, cluster=cluster)
    for parts in parallel.in_order(told):
        for name, part in parts.items():
            total[name] = _add(total[name], part) if name in total else part
        if progress is not None:
            progress(sum(part.n for part in parts.values()))
    rows = sum(part.n for part in total.values())
    if not rows:
        raise SettingsError("there is nothing to fit: the shards hold no rows. Check the path.")
    method = "sums" if whole else "stream" if len(shards) == 1 else "average"
    if isinstance(policy, DisjointLinUCB):
        return Fit(_apart(policy, total, whole), rows, method)
    return Fit(_together(policy, total, whole), rows, method)


def _check(policy: Policy | DisjointLinUCB) -> None:
    tracker, width = policy.tracker, policy.width
    sums = isinstance(width, DiagonalWidth) or (isinstance(width, PhiWidth) and width.method == "gd")
    if len(tracker) or getattr(policy, "_auto", False):
        raise SettingsError("fit needs an unused policy whose tracker is given, not chosen at the first arms.")
    if getattr(tracker, "discount", 1.0) < 1.0:
        raise SettingsError("a discount counts rows by their order, which shards do not have. Fit without a discount.")
    if not sums and width.own_sums(tracker):
        raise SettingsError(
            f"{width!r} has to see every row in turn, and sums have none. Use linucb, flinucb-cd or flinucb-saga, or "
            "learn the rows through the policy."
        )
    if not (isinstance(tracker, RLS | CD) and tracker.history is None) and not (
        isinstance(tracker, SAGA) and isinstance(tracker.history, Reservoir)
    ):
        raise SettingsError(f"fit needs RLS, CD, or SAGA with history=Reservoir(capacity), got {tracker!r}.")


def _chained(read: Callable[[Any], Rows], shards: Sequence[Any]) -> Iterator[Any]:
    for shard in shards:
        yield from read(shard)


def shown_rows(path: str, features: Features) -> Iterator[tuple[Any, Array, NDArray[np.int64]]]:
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


def with_articles(features: Features, paths: Sequence[str], **where: Any) -> Features:
    """Crosses that know every article of the log, so that all shards give them the same blocks; others as they are."""
    if not isinstance(features, Crosses):
        return features
    found: dict[int, None] = {}
    for ids in parallel.in_order(parallel.parallel_map(_articles, list(paths), **where)):
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


class _Model:
    """What is gathered of one model's rows in one shard."""

    def __init__(self, tracker: Tracker, whole: bool, rng: np.random.Generator) -> None:
        self.history, self.rng = tracker.history, rng
        self.learner = _Sums(tracker.dim) if whole else _Stream(tracker, rng)
        self.n, self.sparse, self.sample = 0, False, cast("Sample | None", None)
        self.squares, self.health = np.zeros(tracker.dim), np.zeros(HEALTH)

    def take(self, X: Any, y: Array) -> None:
        self.sparse, self.n = bool(sp.issparse(X)), self.n + len(y)
        self.learner.take(X, y)
        if self.history is not None:
            entries = X.multiply(X).tocsr() if self.sparse else X * X
            self.squares += entries.sum(axis=0)
            self.health[MAX_NORM2] = max(self.health[MAX_NORM2], entries.sum(axis=1).max())
            self.health[MAX_Y2] = max(self.health[MAX_Y2], (y * y).max())
            self.sample = _smallest(self.sample, Sample(self.rng.random(len(y)), X, y), self.history.capacity)

    def part(self) -> Part:
        A, b, squared = self.learner.told()
        squares = self.squares if self.history is not None else np.diag(A)
        return Part(self.n, self.sparse, A, b, squared, squares, self.health, self.sample)


def _parts(
    numbered: tuple[int, Any], *, read: Callable[[Any], Rows], tracker: Tracker, whole: bool, apart: bool, seed: int
) -> dict[Any, Part]:
    """One pass over a shard: a part for each arm id, or one alone."""
    number, shard = numbered
    rng = np.random.default_rng([seed, number])
    models: dict[Any, _Model] = {}
    for block, y, *ids in read(shard):
        X: Any = block.tocsr() if sp.issparse(block) else np.asarray(block, dtype=np.float64)
        for name, rows in _groups(ids[0]) if apart else [(None, None)] if len(y) else []:
            if name not in models:
                models[name] = _Model(tracker, whole, rng)
            models[name].take(*((X, y) if rows is None else (X[rows], y[rows])))
    return {name: model.part() for name, model in models.items()}


def _groups(ids: Any) -> list[tuple[Any, Any]]:
    """Each id, with the rows that have it."""
    order = np.argsort(ids, kind="stable")
    names, first = np.unique(np.asarray(ids)[order], return_index=True)
    return list(zip(names.tolist(), np.split(order, first[1:])))


def _smallest(old: Sample | None, new: Sample, room: int | None) -> Sample:
    """The rows with the smallest keys of both, as many as there is room for."""
    if old is not None and len(old.y) == room:  # most new rows are out at once
        near = new.keys < old.keys[-1]
        new = Sample(new.keys[near], new.X[near], new.y[near])
    if old is not None:
        stack = sp.vstack if sp.issparse(new.X) else np.vstack
        new = Sample(np.append(old.keys, new.keys), stack([old.X, new.X]), np.append(old.y, new.y))
    order = np.argsort(new.keys)[:room]
    return Sample(new.keys[order], new.X[order], new.y[order], room)


# -- where they are put together ---------------------------------------------------------------------------------------


def _add(a: Part, b: Part) -> Part:
    sample = None
    if a.sample is not None and b.sample is not None:
        sample = _smallest(a.sample, b.sample, a.sample.room)
    return Part(
        a.n + b.n,
        a.sparse,
        a.A + b.A,
        a.b + b.b,
        a.squared + b.squared,
        a.squares + b.squares,
        np.maximum(a.health, b.health),
        sample,
    )


def _taught(tracker: Tracker, part: Part, whole: bool) -> tuple[Tracker, float]:
    """The tracker as it would stand after all rows, and the sum of their squared errors."""
    ridge = part.n * tracker.regularisation(part.n)  # type: ignore[operator]
    if isinstance(tracker, RLS | CD):
        tracker._start(part.sparse)
        tracker._set_sums(part.A, part.b, ridge, part.n)
        theta = tracker.theta
    elif whole:
        exact = RLS(tracker.dim, regularisation=tracker.regularisation, method="cholesky")
        exact._set_sums(part.A, part.b, ridge, part.n)
        theta = exact.theta
    else:
        theta = part.b / part.n
    errors = part.squared
    if whole:
        errors = max(0.0, errors - float(theta @ (2.0 * part.b - part.A @ theta)))
    if isinstance(tracker, SAGA):
        assert part.sample is not None
        tracker = tracker._at(theta, part.sample.X, part.sample.y, part.n, part.health)
    return tracker, errors


def _absorb(width: Any, part: Part) -> None:
    """Give the state of a width that sums for itself what it would have seen."""
    if isinstance(width, DiagonalWidthState):
        width.coords[0] = part.squares
        keep_spread(width)
    elif isinstance(width, PhiState):
        width.squares[0] = part.squares
        width.scalars[[ENTERED, N, LOOSE]] = part.n, part.n, 1.0


def _together(policy: Policy, total: dict[Any, Part], whole: bool) -> Policy:
    """One model for all arms."""
    [part] = total.values()
    if not policy.width.own_sums(policy.tracker):
        _, errors = _taught(policy.tracker, part, whole)
    else:  # the width starts first, unused; then the file of the policy is given the tracker that has learned
        unused, arm = copy(policy.tracker), np.zeros((1, policy.dim))
        policy._first_look(sp.csr_array(arm) if part.sparse else arm, None)
        _absorb(policy._width, part)
        header, arrays = policy.snapshot()
        tracker, errors = _taught(unused, part, whole)
        header["tracker"], parts = tracker.snapshot()
        arrays = {name: array for name, array in arrays.items() if not name.startswith("tracker.")}
        policy = type(policy).from_snapshot(header, arrays | {f"tracker.{name}": a for name, a in parts.items()})
    policy._scalars[[ERRORS, LEARNED]] = errors, part.n
    return policy


def _apart(policy: DisjointLinUCB, total: dict[Any, Part], whole: bool) -> DisjointLinUCB:
    """A model for each arm id."""
    for name, part in total.items():
        policy._sparse = part.sparse
        tracker, errors = _taught(policy.tracker.fresh(policy._seeds.spawn(1)[0], TAPE), part, whole)
        width = policy.width.allocate(tracker, 0, policy._draws)
        _absorb(width, part)
        policy._add(name, tracker, width)
        policy._scalars[[ERRORS, LEARNED]] += errors, part.n
    return policy
