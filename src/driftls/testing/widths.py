"""What every width must do, in a policy that has it: `check(lambda: SharedPolicy(tracker, width, seed=0))`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from driftls.testing.common import LAYOUTS, Check, Layout, Make
from driftls.testing.rows import good_rows

CLOSE = 1e-7  # what sums in another order may change


def _taught(make: Make, layout: Layout = np.array) -> tuple[Any, Any]:
    """A policy that has learned thirty rows, and twenty others to ask about."""
    policy = make()
    X, y = good_rows(policy.dim, 30)
    policy.choose(layout(X), ids=range(30))
    for n in range(30):
        policy.learn(layout(X), float(y[n]), arm=n, ids=range(30))
    return policy, good_rows(policy.dim, 20, seed=9)[0]


def settings_make_the_same_width(make: Make) -> None:
    """What a file keeps is all that there is to know."""
    width = make().width
    again = type(width)(**width.settings())
    assert (repr(again), again.settings()) == (repr(width), width.settings())


def widths_are_lengths(make: Make) -> None:
    """Finite, at least 0, 0 for an arm without features or intercept, a fresh array of a number for each arm.

    Each arm's width is its own, whichever others are beside it.
    """
    for layout in LAYOUTS:
        policy, X = _taught(make, layout)
        X[7] = 0.0
        for ids in (None, range(100, 120)):
            widths = policy.widths(layout(X), ids=ids)
            assert (widths.shape, widths.dtype) == ((20,), np.float64)
            assert np.isfinite(widths).all()
            assert (widths >= 0.0).all()
            assert widths[7] == 0.0 or policy.tracker.intercept
            widths[:] = -1.0
            assert (policy.widths(layout(X), ids=ids) >= 0.0).all(), "widths must be a fresh array"
        some = np.random.default_rng(2).permutation(20)[:7]
        beside, alone = policy.widths(layout(X))[some], policy.widths(layout(X[some]))
        np.testing.assert_allclose(alone, beside, rtol=1e-12, atol=1e-15)


def what_is_learned_gets_narrower(make: Make) -> None:
    """An arm that is learned again and again is known ever better; a width that samples has it on the average."""
    policy, ids = make(), ["a", "b", "c"]
    X, _ = good_rows(policy.dim, 3)
    policy.choose(X, ids=ids)
    first = policy.widths(X, ids=ids)[0]
    for _ in range(200):
        policy.learn(X, 0.5, arm=0, ids=ids)
    last = policy.widths(X, ids=ids)[0]
    assert last < 0.7 * first or first == 0.0, f"from {first} to {last} in 200 rows"


def dense_and_sparse_agree(make: Make) -> None:
    """Sparse rows have the widths of dense ones, up to the order of sums; not where these are found from draws."""
    if make().width.draws(make().dim):
        return
    (dense, X), (sparse, _) = _taught(make), _taught(make, sp.csr_array)
    close = 1e-3 if dense.width.lazy else CLOSE
    np.testing.assert_allclose(dense.widths(X), sparse.widths(sp.csr_array(X)), rtol=close, atol=close)


WIDTH_CHECKS: list[Check] = [
    *(settings_make_the_same_width, widths_are_lengths, what_is_learned_gets_narrower, dense_and_sparse_agree)
]
