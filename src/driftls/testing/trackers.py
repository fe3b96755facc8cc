"""What every tracker must do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

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
    copy_of,
    good_rows,
    same,
    same_snapshot,
)
from driftls.trackers.base import Tracker

CLOSE = 1e-8  # what sums in another order may change


# -- how common checks treat a tracker -------------------------------------------------------------------------------


def _teach(tracker: Tracker, first: int, last: int, layout: Layout) -> list[Any]:
    X, y = good_rows(tracker.dim)
    return [tracker.partial_fit(layout(X[first:last]), y[first:last]).theta.tobytes()]


def _questions(tracker: Tracker, layout: Layout) -> Iterator[Callable[[], Any]]:
    X, _ = good_rows(tracker.dim, 5)
    yield lambda: tracker.theta
    for rows in (X, X[0], sp.csr_array(X), ([0], [1.0]), "text", np.nan * X, np.ones(99)):
        yield partial(tracker.predict, rows)
    yield lambda: (repr(tracker), len(tracker), tracker.n, tracker.sparse, tracker.functions())
    yield lambda: tracker.fresh(seed=3)
    yield tracker.tracking_error
    yield tracker.tracking_error


def _bad_calls(tracker: Tracker, layout: Layout) -> Iterator[tuple[str, Callable[[], Any]]]:
    dim = tracker.dim
    (X, y), x = good_rows(dim, 4), np.ones(dim) / dim
    for name, matrix in bad_matrices(dim, 4).items():
        yield f"partial_fit, {name}", partial(tracker.partial_fit, matrix, y)
    for name, row in (bad_matrices(dim, 1) | {"two rows": X[:2], "two sparse rows": sp.csr_array(X[:2])}).items():
        yield f"update, {name}", partial(tracker.update, row, 1.0)
    for pair in (([0, 0], [1.0, 1.0]), ([0, dim], [1.0, 1.0]), ([0, 1], [1.0]), ([0], [np.nan])):
        yield f"update, {pair}", partial(tracker.update, pair, 1.0)
    wrong: Any
    for wrong in (y[:3], ["1"] * 4, np.append(y[:3], np.inf), None):
        yield f"partial_fit, y = {wrong!r:.50}", partial(tracker.partial_fit, X, wrong)
    for wrong in (np.nan, 1e75, "1.0", [1.0], None):
        yield f"update, y = {wrong!r}", partial(tracker.update, x, wrong)


def one_row(x: Any, layout: Layout) -> Any:
    return layout(x[None]) if layout is sp.csr_array else x


LIFE = Life(_teach, _questions, _bad_calls)


def same_tracker(one: Tracker, two: Tracker, what: str) -> None:
    """Fail unless both stand at the same bits, and go on alike."""
    same(one, two, what)
    X, y = good_rows(one.dim, 7, seed=77)
    same(copy_of(one).partial_fit(X, y), copy_of(two).partial_fit(X, y), f"{what}, after some more rows")


# -- checks ----------------------------------------------------------------------------------------------------------


def starts_at_zero_and_counts_rows(make: Make) -> None:
    """theta is 0 at first; n counts rows; predict has a number for a row and a vector for a block."""
    tracker = make()
    X, y = good_rows(tracker.dim)
    assert (len(tracker), tracker.n, tracker.sparse) == (0, 0, None)
    assert not tracker.theta.any()
    assert tracker.predict(X[0]) == 0.0
    assert not tracker.predict(X).any()
    tracker.partial_fit(X, y)
    assert (len(tracker), tracker.n, tracker.sparse) == (len(y), len(y), False)
    assert isinstance(tracker.predict(X[0]), float)
    theta = tracker.theta
    assert (theta.dtype, theta.shape) == (np.float64, (tracker.dim,))
    expected, far = X @ theta + tracker.intercept_, 1e-12 * max(1.0, abs(theta).max(), abs(tracker.intercept_))
    for rows in (X, sp.csr_array(X)):
        np.testing.assert_allclose(tracker.predict(rows), expected, rtol=0, atol=far)
    theta[:] = 7.0
    assert not (tracker.theta == 7.0).any(), "theta must be a fresh array"


def rows_agree_however_they_are_given(make: Make) -> None:
    """One by one, in ragged blocks, or later ones in the other layout: the same bits as in one block."""
    X, y = good_rows(make().dim)
    for layout, other in (LAYOUTS, LAYOUTS[::-1]):
        block, single, ragged = make().partial_fit(layout(X), y), make(), make()
        for x, reward in zip(X, y):
            single.update(one_row(x, layout), float(reward))
        for first, last in [(0, 1), (1, 8), (8, 9), (9, 40), (40, 40), (40, len(y))]:
            ragged.partial_fit(layout(X[first:last]), y[first:last])
        mixed = make().partial_fit(layout(X[:20]), y[:20])
        mixed.partial_fit(other(X[20:40]), y[20:40]).partial_fit(layout(X[40:50]), y[40:50])
        for x, reward in zip(X[50:], y[50:]):
            mixed.update(one_row(x, other), float(reward))
        for name, tracker in {"single rows": single, "ragged blocks": ragged, "mixed rows": mixed}.items():
            same_tracker(block, tracker, f"{name} and a block")


def dense_and_sparse_agree(make: Make) -> None:
    """Sparse rows give what dense rows give, up to the order of sums; pairs give what sparse rows give, to the bit."""
    X, y = good_rows(make().dim)
    dense, sparse = make().partial_fit(X, y), make().partial_fit(sp.csr_array(X), y)
    scale = max(1.0, float(np.abs(dense.theta).max()))
    if dense.units is None:  # else dense features are measured from their mean, and sparse ones from 0
        np.testing.assert_allclose(sparse.theta, dense.theta, rtol=0, atol=CLOSE * scale)
    pairs = make()
    for x, reward in zip(X, y):
        at = np.flatnonzero(x)
        pairs.update((at, x[at]), float(reward))
        assert pairs.predict((at, x[at])) == pairs.predict(sp.csr_array(x[None]))[0]
    same_tracker(pairs, sparse, "pairs and sparse rows")


def rows_of_zeros_are_rows_and_no_rows_are_none(make: Make) -> None:
    """Zeros count, and move theta nowhere; a block without rows is no event, dense or sparse, first or later."""
    for stage, tracker, layout in common.stages(LIFE, make):
        before = tracker.snapshot()
        tracker.partial_fit(np.empty((0, tracker.dim)), []).partial_fit(sp.csr_array((0, tracker.dim)), np.empty(0))
        same_snapshot(before, tracker.snapshot(), f"empty blocks, {stage}")
        assert tracker.predict(np.empty((0, tracker.dim))).shape == (0,)
        tracker = make().partial_fit(layout(np.zeros((9, tracker.dim))), np.ones(9))
        assert len(tracker) == 9
        assert not tracker.theta.any()


def resuming_works_after_many_rows(make: Make) -> None:
    """Also once everything that grows has grown."""
    X, y = good_rows(make().dim, 9000)
    for layout in LAYOUTS:
        tracker = make().partial_fit(layout(X[:8500]), y[:8500])
        again = copy_of(tracker).partial_fit(layout(X[8500:]), y[8500:])
        same(again, tracker.partial_fit(layout(X[8500:]), y[8500:]), "resumed after 8,500 rows")


def a_fresh_one_knows_nothing(make: Make) -> None:
    """It has the settings alone, and draws by its own seed."""
    X, y = good_rows(make().dim)
    new = make().partial_fit(X, y).fresh(seed=3)
    assert len(new) == 0
    assert not new.theta.any()
    one, two, other = (make().fresh(seed).partial_fit(X, y) for seed in (3, 3, 4))
    same(one, two, "two fresh ones of one seed")
    if one.draws_rows:
        assert one.theta.tobytes() != other.theta.tobytes(), "another seed made the same draws"


TRACKER_CHECKS: list[Check] = [
    *(starts_at_zero_and_counts_rows, rows_agree_however_they_are_given, dense_and_sparse_agree),
    *(rows_of_zeros_are_rows_and_no_rows_are_none, resuming_works_after_many_rows, a_fresh_one_knows_nothing),
    *common.checks(LIFE),
]
