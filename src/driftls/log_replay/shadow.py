"""How far a policy's tracker and widths are from the exact ones of the same rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import SettingsError
from driftls.trackers import Tracker
from driftls.widths import constant_ridge, discount_of

__all__ = ["exact_widths", "tracking_errors", "width_errors"]

LARGEST_EXACT = 4_000  # features, of the matrix that widths are held against


def tracking_errors(policy: Any) -> tuple[float, float]:
    """Absolute and relative tracking error (theta = 0 scores 1); of many models, their sums."""
    absolute = size = 0.0
    for tracker in _trackers(policy):
        exact = tracker.target.coefficients()
        absolute += float(np.linalg.norm(tracker.coefficients() - exact))
        size += float(np.linalg.norm(exact))
    return absolute, absolute / size if size else (0.0 if absolute == 0.0 else float("inf"))


def _trackers(policy: Any) -> list[Tracker]:
    if policy.disjoint:
        return [tracker for tracker in map(policy.model, policy.ids) if len(tracker)]
    return [policy.tracker]


def exact_widths(tracker: Tracker, arms: Any) -> NDArray[np.float64]:
    """sqrt(x'(A + ridge I)^-1 x) of each arm, from all rows that the tracker has kept."""
    if tracker.history.dropped or discount_of(tracker) < 1.0:
        raise SettingsError("width_error needs a tracker that keeps all rows, with history=Growing() and no discount.")
    if tracker.scale or tracker.intercept:
        raise SettingsError("width_error is of raw units: give the policy a tracker with scale=False, intercept=False.")
    if tracker.dim > LARGEST_EXACT:
        raise SettingsError(f"width_error needs a {tracker.dim} x {tracker.dim} matrix; at most {LARGEST_EXACT}.")
    A = constant_ridge(tracker) * np.eye(tracker.dim)
    if len(tracker):
        X = tracker.history.matrix()[0]
        product = X.T @ X
        A += product.toarray() if hasattr(product, "toarray") else product
    dense = arms.toarray() if hasattr(arms, "toarray") else np.asarray(arms)
    return np.asarray(np.sqrt(np.einsum("kd,dk->k", dense, np.linalg.solve(A, dense.T))))


def width_errors(policy: Any, arms: Any, ids: Any) -> float:
    """The mean relative error of the widths of these arms; with a model an arm, `arms` is the user."""
    if policy.disjoint:
        exact = np.array([exact_widths(policy.model(name), arms)[0] for name in ids])
        mine = policy.widths(arms, ids=ids)
    else:
        exact, mine = exact_widths(policy.tracker, arms), policy.widths(arms)
    return float(np.mean(np.abs(mine / exact - 1.0)))
