"""What SAGA and SAG do at a look: conjugate gradients over the rows held, and a table of residuals that is exact."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from driftls.history import Window
from driftls.trackers import SAG, SAGA

LAYOUTS = pytest.mark.parametrize("kind", [np.array, sp.csr_array], ids=["dense", "sparse"])


def correlated(rows=400, dim=12, seed=0):
    """Features that come together: stochastic steps alone are slow on them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, dim)) @ (np.eye(dim) + 3.0 * rng.normal(size=(dim, dim)) / dim**0.5)
    return X, X @ rng.normal(size=dim) + 0.5 * rng.normal(size=rows)


@LAYOUTS
@pytest.mark.parametrize("tracker", [SAGA, SAG])
def test_a_look_brings_theta_to_its_target(kind, tracker):
    X, y = correlated()
    one = tracker(12, seed=0).partial_fit(kind(X), y)
    before = one.tracking_error().relative
    assert one.settle(1.0)
    assert one.tracking_error().relative < min(0.02, before)
    assert not one.settle()  # there is nothing new


@LAYOUTS
def test_after_a_look_the_table_holds_the_residuals_of_theta(kind):
    X, y = correlated()
    one = SAGA(12, seed=0, history=Window(150)).partial_fit(kind(X), y)
    one.settle(1.0)
    rows, targets = one.history.matrix()
    residual = rows @ one.coefficients() - targets
    kept = one.snapshot()[1]
    np.testing.assert_allclose(kept["state.residual"], residual, atol=1e-9)
    np.testing.assert_allclose(kept["state.coords"][1], rows.T @ residual, atol=1e-7)


@LAYOUTS
def test_degrees_of_freedom_are_probed_without_bias(kind):
    X, y = correlated()
    one = SAGA(12, seed=0, history=Window(300))
    found, exact = [], []
    for n in range(0, 400, 2):
        one.partial_fit(kind(X[n : n + 2]), y[n : n + 2])
        if n >= 100:
            rows = one.history.matrix()[0]
            A = rows.T @ rows if isinstance(rows, np.ndarray) else (rows.T @ rows).toarray()
            found.append(one.freedom())
            exact.append(12 - np.trace(np.linalg.inv(A + np.eye(13))[:12, :12]))
    assert np.mean(found) == pytest.approx(np.mean(exact), rel=0.02)
