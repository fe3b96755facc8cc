"""Warm start of a policy: one pass over shards of rows, on all cores or on a cluster.

Sums add up: A, b and n of the shards are those of all rows, and the ridge is counted once, so the result is exact.
Shards are put together in their order, so two workers and eight give the same bits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls import logs, parallel
from driftls.errors import DimensionError, InputError, SettingsError
from driftls.features import FeatureMap, UserArmCrosses
from driftls.history import History
from driftls.inputs import checked_csr
from driftls.log_replay.arms import shown
from driftls.policies import DisjointLinUCB, Policy, SharedPolicy
from driftls.trackers import CD, RAW, RLS, Tracker
from driftls.widths import DiagonalWidth

__all__ = ["Fit", "fit", "shown_rows"]

Array = NDArray[np.float64]
Rows = Iterable[Any]  # of (X, y) or (X, y, ids)
MOST_FEATURES = 5_000  # beyond, the matrix A of a shard takes more than 200 MB


class Fit(NamedTuple):
    """A policy that is ready, and the number of rows that it has learned."""

    policy: Policy
    rows: int


class Sums:
    """Sums over the rows of a model: n, A = X'X, b = X'y, y'y."""

    def __init__(self, dim: int) -> None:
        self.A, self.b, self.yy = np.zeros((dim, dim)), np.zeros(dim), 0.0
        self.n, self.sparse = 0, False

    def enter(self, X: Any, y: Array) -> None:
        """Add these rows."""
        self.sparse = bool(sp.issparse(X))
        gram = X.T @ X
        if self.sparse:  # only where there is something: A may be far larger than a block
            gram = gram.tocoo()
            self.A[gram.row, gram.col] += gram.data
        else:
            self.A += gram
        self.b += X.T @ y
        self.yy += float(y @ y)
        self.n += len(y)

    def add(self, other: Sums) -> None:
        """Add the rows of another shard."""
        self.A += other.A
        self.b += other.b
        self.yy, self.n, self.sparse = self.yy + other.yy, self.n + other.n, other.sparse


def fit(
    policy: SharedPolicy | DisjointLinUCB,
    shards: Sequence[Any],
    read: Callable[[Any], Rows] | None = None,
    *,
    workers: int = -1,
    cluster: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Fit:
    """Teach an unused policy the rows of all shards, exactly.

    Parameters
    ----------
    policy : LinUCB, Greedy or DisjointLinUCB
        Over `RLS` or `CD`, which keep sums. At most 5,000 features: the sums take d^2.
    shards, read
        `read(shard)` gives blocks (X, y) of a shard, where the task runs, or (X, y, ids) where each arm id has a model
        of its own. Both can be pickled. Without `read`, shards are files of a log, and the policy's features (of a given
        length) make rows of what they show.
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
    by_id, dim, features = isinstance(policy, DisjointLinUCB), policy.dim, policy.features
    if read is None:
        if features is None or features.grows or isinstance(features, UserArmCrosses):
            raise SettingsError(
                "fit needs `read`, or a policy with features that number names alike in every file, such as "
                f"features=Features(4096); got {features!r}."
            )
        read = partial(shown_rows, features=features, disjoint=by_id)
    work = partial(_sums, read=read, dim=dim, by_id=by_id)
    total: dict[Any, Sums] = defaultdict(partial(Sums, dim))
    for of_shard in parallel.in_order(parallel.parallel_map(work, list(shards), workers=workers, cluster=cluster)):
        for name, sums in of_shard.items():
            total[name].add(sums)
        if progress is not None:
            progress(sum(sums.n for sums in of_shard.values()))
    if not total:
        raise SettingsError("there is nothing to fit: the shards hold no rows. Check the path.")
    for name, sums in total.items():
        policy.warm(*([name] if by_id else []), **_told(policy.tracker, sums))
    return Fit(policy, sum(sums.n for sums in total.values()))


def _check(policy: SharedPolicy | DisjointLinUCB) -> None:
    tracker, width, advice = (
        policy.tracker,
        policy.width,
        "Or learn block after block: policy.tracker.partial_fit(X, y).",
    )
    if len(tracker) or getattr(policy, "_auto", False) or getattr(policy, "ids", None):
        raise SettingsError("fit needs an unused policy whose tracker is given, not chosen at the first arms.")
    plain = isinstance(tracker, RLS | CD) and type(tracker.history) is History  # which keeps no rows
    if plain and not isinstance(width, DiagonalWidth) and width.own_sums(tracker):
        raise SettingsError(f"{width!r} has to see every row in turn, and sums have none. Use linucb or linucb-exact.")
    if not plain or getattr(tracker, "discount", 1.0) < 1.0 or tracker.scale or tracker.intercept:
        raise SettingsError(
            "fit adds up sums of rows as they are: it needs RLS or CD without a history or discount, with scale=False and "
            f"intercept=False, as linucb and linucb-exact of the registry have; got {tracker!r}. {advice}"
        )
    if policy.dim > MOST_FEATURES:
        raise SettingsError(
            f"fit takes sums of size d^2, so at most {MOST_FEATURES:,} features, got {policy.dim:,}. Use hashed features of "
            f"a smaller width. {advice}"
        )


# -- rows of a log -----------------------------------------------------------------------------------------------------


def shown_rows(
    path: str, features: FeatureMap, *, disjoint: bool = False
) -> Iterator[tuple[Any, Array, NDArray[np.int64]]]:
    """The arm that was shown (or the visitor, for one model an arm), its reward and its id, of every line; in blocks."""
    for block in logs.read(path).blocks():
        rows, ids = shown(features, block, disjoint=disjoint)
        yield rows, block.reward, ids


# -- sums of a shard, where it is read ---------------------------------------------------------------------------------


def _sums(shard: Any, *, read: Callable[[Any], Rows], dim: int, by_id: bool) -> dict[Any, Sums]:
    """One pass over a shard: sums for each arm id, or one alone."""
    total: dict[Any, Sums] = defaultdict(partial(Sums, dim))
    for block, y, *ids in read(shard):
        X, y = _checked(block, y, dim)
        of_all = [(None, slice(None))] if len(y) else []
        for name, rows in _groups(ids[0]) if by_id else of_all:
            total[name].enter(X[rows], y[rows])
    return total


def _checked(X: Any, y: Any, dim: int) -> tuple[Any, Array]:
    """A block that `read` gave, as floats; what cannot be learned is refused."""
    X = checked_csr(X).astype(np.float64) if sp.issparse(X) else np.asarray(X, dtype=np.float64)
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


def _told(tracker: Tracker, sums: Sums) -> dict[str, Any]:
    """What brings a model over an unused tracker to where it would stand after all rows."""
    ridge = sums.n * tracker.regularisation(sums.n)  # type: ignore[operator]
    exact = RLS(tracker.dim, regularisation=tracker.regularisation, method="cholesky", **RAW)
    exact.set_sums(sums.A, sums.b, ridge, sums.n)
    theta = exact.theta
    errors = max(0.0, sums.yy - float(theta @ (2.0 * sums.b - sums.A @ theta)))
    return {
        "fill": lambda tracker: tracker.set_sums(sums.A, sums.b, ridge, sums.n),
        **{"sparse": sums.sparse, "squares": np.diag(sums.A), "n": sums.n, "errors": errors},
    }
