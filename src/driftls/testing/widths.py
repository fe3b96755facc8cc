"""What every width must do, in a policy that has it: `check(lambda: SharedPolicy(tracker, width, seed=0))`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from driftls.testing.common import LAYOUTS, Make
from driftls.testing.rows import good_rows

CLOSE = 1e-7  # what sums in another order may change


def _taught(make: Make, kind: Callable[[Any], Any] = np.array, count: int = 30) -> Any:
    policy = make()
    X, y = good_rows(policy.dim, count)
    ids = list(range(count))
    policy.choose(kind(X), ids=ids)
    for n in range(count):
        policy.learn(kind(X), float(y[n]), arm=n, ids=ids)
    return policy


def settings_make_the_same_width(make: Make) -> None:
    """What a file keeps is all that there is to know."""
    width = make().width
    again = type(width)(**width.settings())
    assert repr(again) == repr(width)
    assert again.settings() == width.settings()


def widths_are_lengths(make: Make) -> None:
    """Finite, at least 0, 0 for an arm without features or intercept, a fresh array of a number for each arm."""
    for kind in LAYOUTS:
        policy = _taught(make, kind)
        X, _ = good_rows(policy.dim, 20, seed=9)
        X[7] = 0.0
        for ids in (None, list(range(100, 120))):
            widths = policy.widths(kind(X), ids=ids)
            assert widths.shape == (20,)
            assert widths.dtype == np.float64
            assert np.isfinite(widths).all()
            assert (widths >= 0.0).all()
            assert widths[7] == 0.0 or policy.tracker.intercept
            widths[:] = -1.0
            assert (policy.widths(kind(X), ids=ids) >= 0.0).all(), "widths must be a fresh array"


def what_is_learned_gets_narrower(make: Make) -> None:
    """An arm that is learned again and again is known ever better; a width that samples has it on the average."""
    policy = make()
    X, _ = good_rows(policy.dim, 3)
    ids = ["a", "b", "c"]
    policy.choose(X, ids=ids)
    first = policy.widths(X, ids=ids)[0]
    for _ in range(200):
        policy.learn(X, 0.5, arm=0, ids=ids)
    last = policy.widths(X, ids=ids)[0]
    if first > 0.0:
        assert last < 0.7 * first, f"from {first} to {last} in 200 rows"


def dense_and_sparse_agree(make: Make) -> None:
    """Sparse rows have the widths of dense ones, up to the order of sums; not where these are found from draws."""
    if make().width.draws(make().dim):
        return
    dense, sparse = _taught(make), _taught(make, sp.csr_array)
    X, _ = good_rows(dense.dim, 20, seed=9)
    close = 1e-3 if dense.width.lazy else CLOSE
    np.testing.assert_allclose(dense.widths(X), sparse.widths(sp.csr_array(X)), rtol=close, atol=close)


def the_order_of_arms_does_not_matter(make: Make) -> None:
    """Each arm's width is its own, whichever others are beside it."""
    for kind in LAYOUTS:
        policy = _taught(make, kind)
        X, _ = good_rows(policy.dim, 20, seed=9)
        order = np.random.default_rng(2).permutation(20)
        all_, some = policy.widths(kind(X)), policy.widths(kind(X[order[:7]]))
        np.testing.assert_allclose(some, all_[order[:7]], rtol=1e-12, atol=1e-15)


WIDTH_CHECKS: list[Callable[[Make], None]] = [
    settings_make_the_same_width,
    widths_are_lengths,
    what_is_learned_gets_narrower,
    dense_and_sparse_agree,
    the_order_of_arms_does_not_matter,
]
