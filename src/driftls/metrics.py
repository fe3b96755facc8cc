"""What is measured of a replay: estimates with an honest error bar, and how far from exact the parts are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import SettingsError
from driftls.logs.events import Block
from driftls.policies import DisjointLinUCB
from driftls.trackers import Tracker
from driftls.widths import constant_ridge, discount_of

__all__ = ["Estimate", "Tally", "tracking_errors", "width_errors", "wilson"]

NORMAL = 1.959963984540054  # the 97.5% quantile
LARGEST_EXACT = 4_000  # features, of the exact shadow that widths are held against


@dataclass(frozen=True)
class Estimate:
    """A value and its 95% interval."""

    value: float
    low: float
    high: float


def wilson(hits: float, count: float) -> Estimate:
    """A rate of successes, with Wilson's interval, which holds for small rates too.

    Examples
    --------
    >>> estimate = wilson(40, 1000)
    >>> estimate.value, round(estimate.low, 4), round(estimate.high, 4)
    (0.04, 0.0295, 0.054)
    """
    if count == 0:
        return Estimate(float("nan"), float("nan"), float("nan"))
    rate, square = hits / count, NORMAL * NORMAL / count
    middle, half = rate + square / 2.0, NORMAL * np.sqrt(rate * (1.0 - rate) / count + square / (4.0 * count))
    return Estimate(rate, float((middle - half) / (1.0 + square)), float((middle + half) / (1.0 + square)))


def _normal(value: float, variance: float) -> Estimate:
    half = NORMAL * float(np.sqrt(max(variance, 0.0)))
    return Estimate(value, value - half, value + half)


@dataclass
class Tally:
    """Sums over the lines of a replay, from which every estimate is made.

    A line counts where the policy chose what the log shows. `weighted` sums are over such lines, each over its
    propensity; `value` and `best` are the truth's, over all lines, where it is known.
    """

    lines: int = 0
    evaluations: int = 0
    reward: float = 0.0
    reward2: float = 0.0
    binary: bool = True
    weights: float = 0.0
    weights2: float = 0.0
    weighted: float = 0.0
    weighted2: float = 0.0
    crossed: float = 0.0
    propensities: int = 0
    truths: int = 0
    value: float = 0.0
    best: float = 0.0

    def add(self, block: Block, chosen: NDArray[np.int64]) -> None:
        """Count the lines of a block."""
        matched = chosen == block.shown
        reward = block.reward[matched]
        self.lines += len(block)
        self.evaluations += int(matched.sum())
        self.reward += float(reward.sum())
        self.reward2 += float((reward * reward).sum())
        self.binary = self.binary and bool(np.isin(reward, (0.0, 1.0)).all())
        if block.propensity is not None:
            weight = 1.0 / block.propensity[matched]
            self.propensities += len(block)
            self.weights += float(weight.sum())
            self.weights2 += float((weight * weight).sum())
            self.weighted += float((weight * reward).sum())
            self.weighted2 += float((weight * weight * reward * reward).sum())
            self.crossed += float((weight * weight * reward).sum())
        if block.truth is not None:
            start = block.truth_start
            own = block.truth[start[:-1] + chosen]
            self.truths += len(block)
            self.value += float(own.sum())
            self.best += float(np.maximum.reduceat(block.truth, start[:-1]).sum()) if len(block) else 0.0

    @property
    def replay(self) -> Estimate:
        """The mean reward of the lines that count; for clicks the click rate."""
        n = self.evaluations
        if self.binary or n < 2:
            return wilson(self.reward, n)
        mean = self.reward / n
        return _normal(mean, (self.reward2 / n - mean * mean) / (n - 1))

    @property
    def ctr(self) -> float:
        """The paper's score: clicks over evaluations, times 10,000."""
        return 1e4 * self.replay.value

    @property
    def ips(self) -> Estimate | None:
        """Inverse propensity: (1/lines) sum of reward/propensity over the lines that count."""
        n = self.propensities
        if n < 2 or n != self.lines:
            return None
        mean = self.weighted / n
        return _normal(mean, (self.weighted2 / n - mean * mean) / (n - 1))

    @property
    def snips(self) -> Estimate | None:
        """Self-normalised: the same sum over the sum of 1/propensity."""
        if self.propensities != self.lines or self.weights == 0.0:
            return None
        value = self.weighted / self.weights
        spread = self.weighted2 - 2.0 * value * self.crossed + value * value * self.weights2
        return _normal(value, spread / (self.weights * self.weights))

    @property
    def regret(self) -> float:
        """Of all lines, against the best arm of each; NaN where the truth is not known."""
        return self.best - self.value if self.truths == self.lines else float("nan")


def tracking_errors(policy: Any) -> tuple[float, float]:
    """Absolute and relative tracking error (theta = 0 scores 1); of many models, their sums."""
    absolute = size = 0.0
    for tracker in _trackers(policy):
        exact = tracker.target.theta
        absolute += float(np.linalg.norm(tracker.theta - exact))
        size += float(np.linalg.norm(exact))
    return absolute, absolute / size if size else (0.0 if absolute == 0.0 else float("inf"))


def _trackers(policy: Any) -> list[Tracker]:
    if isinstance(policy, DisjointLinUCB):
        return [tracker for tracker in policy.trackers.values() if len(tracker)]
    return [policy.tracker]


def exact_widths(tracker: Tracker, arms: Any) -> NDArray[np.float64]:
    """sqrt(x'(A + ridge I)^-1 x) of each arm, from all rows that the tracker has kept."""
    if tracker.history is None or tracker.history.evicts or discount_of(tracker) < 1.0:
        raise SettingsError("width_error needs a tracker that keeps all rows, with history=Growing() and no discount.")
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
    if isinstance(policy, DisjointLinUCB):
        exact = np.array([exact_widths(policy.model(name), arms)[0] for name in ids])
        mine = policy.widths(arms, ids=ids)
    else:
        exact, mine = exact_widths(policy.tracker, arms), policy.widths(arms)
    return float(np.mean(np.abs(mine / exact - 1.0)))
