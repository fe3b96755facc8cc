"""What a policy is worth, from a log of another: off-policy estimates and their intervals, of arrays alone.

All of them are means over the log's lines: of reward r, the probability p with which the log showed what it showed, the
policy's probability pi of showing the same, the weight w = pi / p, and a model's prediction q(a); `docs/replay.md` has a table.

Intervals are Wilson's for clicks that count alike, else those of `ratio`: both stay within the range of rewards,
and neither collapses when nothing was clicked. `python -m benchmarks estimates` holds them against known truths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import InputError
from driftls.logs.inspect import Logging

__all__ = ["Estimate", "Estimates", "advise", "mean_reward", "ratio", "support_of", "weighted"]

Floats = NDArray[np.float64]
Bounds = tuple[float, float]
LEVEL = 0.95
IMPOSSIBLE = 1e6  # a log likelihood ratio
GROUPS = 4096  # more terms than twice this are put into groups of neighbours for an interval; not for a value


@dataclass(frozen=True)
class Estimate:
    """A value and its 95% interval."""

    value: float
    low: float
    high: float


NOTHING = Estimate(float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """What a policy is worth: all estimates, the one that leads, and how far the log supports it.

    `effective` is the effective sample size, (sum w)^2 / sum w^2: so many lines of the policy's own would say as much.
    `without_support` is the share of lines that say nothing of this policy, `unseen` the share of its probability that
    goes to arms that the log never shows, where only the model is asked.
    """

    lines: int
    estimated: str  # what was: a fixed policy, or one that learns
    estimates: dict[str, Estimate]
    leading: str  # the name of the estimate that is valid for this log
    why: str
    warnings: tuple[str, ...] = ()
    effective: float
    largest_weight: float
    without_support: float
    unseen: float = 0.0
    value: float | None = None  # the truth, where the log has it

    @property
    def valid(self) -> Estimate:
        """The estimate that leads."""
        return self.estimates[self.leading]

    def __str__(self) -> str:
        rows = [f"{self.leading} leads, since {self.why}.", f"Estimated: {self.estimated}."]
        for name in sorted(self.estimates, key=lambda name: name != self.leading):
            found = self.estimates[name]
            rows.append(f"{name:<14}{found.value:>10.5f}{f'{found.low:.5f} ... {found.high:.5f}':>24}")
        rows.append(
            f"{self.lines:,} lines; effective {self.effective:,.0f}, largest weight {self.largest_weight:.3g}, "
            f"{self.without_support:.1%} without support."
        )
        return "\n".join([*rows, *(f"Warning: {text}." for text in self.warnings)])


def mean_reward(rewards: Floats) -> Estimate:
    """The mean of rewards: Wilson's interval for clicks, the likelihood one for others."""
    if not len(rewards):
        return NOTHING
    if np.isin(rewards, (0.0, 1.0)).all():
        from scipy.stats import binomtest

        interval = binomtest(int(rewards.sum()), len(rewards)).proportion_ci(LEVEL, "wilson")
        return Estimate(float(rewards.mean()), float(interval.low), float(interval.high))
    bounds = reward_bounds(rewards)
    return ratio(rewards, np.ones(len(rewards)), bounds, bounds)


def reward_bounds(rewards: Floats) -> Bounds:
    """The range of rewards where none is told: 0 to 1, or what was seen if that goes beyond."""
    return float(rewards.min(initial=0.0)), float(rewards.max(initial=1.0))


def support_of(weight: Floats) -> dict[str, Any]:
    """How far lines of these weights support an estimate: what `Estimates` says of it."""
    squares = float(weight @ weight)
    return {
        "effective": float(weight.sum()) ** 2 / squares if squares else 0.0,
        "largest_weight": float(weight.max(initial=0.0)),
        "without_support": float(np.mean(weight == 0.0)) if len(weight) else 1.0,
    }


def weighted(
    reward: Floats,
    weight: Floats,
    predicted: Floats | None = None,
    model_value: Floats | None = None,
    *,
    most: float = 1.0,
) -> dict[str, Estimate]:
    """Every off-policy estimate by its name; from "dm" on, they need a model.

    Parameters
    ----------
    reward, weight : arrays, (n,)
        Of each line. The weight is pi / p of what was shown; for a policy that was only asked for its choice, 1 / p
        where it chose what was shown and 0 elsewhere.
    predicted, model_value : arrays, (n,), optional
        A model's prediction for what was shown, and what it gives the policy, sum_a pi(a) q(a). The model must not have
        learned this line (cross-fitting).
    most
        The largest weight that there could have been, if that is more than the largest there was.

    Examples
    --------
    >>> shown = np.array([1, 1, 0, 0, 0, 0, 0, 0])  # 1: what our policy would have shown, with p = 1/4; else 3/4
    >>> clicks = np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    >>> found = weighted(clicks, np.where(shown, 4.0, 0.0))
    >>> found["ips"].value, found["snips"].value
    (0.5, 0.5)
    """
    columns: Any = (
        (reward, weight) if predicted is None and model_value is None else (reward, weight, predicted, model_value)
    )
    if any(np.shape(column) != np.shape(reward) or np.ndim(column) != 1 for column in columns):
        shapes = ", ".join(str(np.shape(column)) for column in columns)
        raise InputError(f"one reward, weight and both predictions a line are needed, got shapes {shapes}.")
    if not np.isfinite(np.concatenate(columns)).all() or (weight < 0.0).any():
        raise InputError("rewards, weights and predictions must be finite, and weights at least 0.")
    n, most = len(reward), max(float(weight.max(initial=1.0)), most)
    if not n:
        return dict.fromkeys(UNMODELLED if predicted is None else (*UNMODELLED, *MODELLED), NOTHING)
    bounds = low, high = reward_bounds(reward)

    def robust(q: Floats, value: Floats) -> Estimate:
        """mean value + w (r - q): unbiased if p or the model is right; without a model, inverse propensity scoring."""
        least = float(value.min()) + most * min(0.0, low - float(q.max()))
        largest = float(value.max()) + most * max(0.0, high - float(q.min()))
        return ratio(value + weight * (reward - q), np.ones(n), (least, largest), bounds)

    ips = robust(np.zeros(n), np.zeros(n))
    snips = ratio(weight * reward, weight, (most * low, most * high), bounds, most)
    large = np.sqrt(n)  # a weight at which to clip, or to switch to the model
    clipped = _beside(ips, np.minimum(weight, large) * reward, bounds)
    found = dict(zip(UNMODELLED, (ips, snips, clipped)))
    if predicted is None or model_value is None:
        return found
    dr, correction = robust(predicted, model_value), weight * (reward - predicted)
    switched = np.where(weight <= large, correction, 0.0)
    # Of the correction C with variance V as much as stands out of noise, max(0, 1 - V / C^2): positive-part James-Stein.
    mean = float(correction.mean())
    share = max(0.0, 1.0 - (float(correction.std()) / mean) ** 2 / n) if mean else 0.0
    # These are biased, which shows in the interval of the unbiased one alone.
    beside = (_beside(dr, model_value + terms, bounds) for terms in (0.0, switched, share * correction))
    dm, switch_dr, shrunk_dr = beside
    return found | dict(zip(MODELLED, (dm, dr, switch_dr, shrunk_dr)))


UNMODELLED = ("ips", "snips", "clipped_ips")
MODELLED = ("dm", "dr", "switch_dr", "shrunk_dr")


def _beside(unbiased: Estimate, terms: Floats, bounds: Bounds) -> Estimate:
    """The mean of terms, with the interval of an estimate that is not biased."""
    return _held(float(terms.mean()), (unbiased.low, unbiased.high), bounds)


def _held(value: float, interval: Bounds, bounds: Bounds) -> Estimate:
    """The interval holds the value, unless that left the bounds, as weighted sums can."""
    inside = min(max(value, bounds[0]), bounds[1])
    return Estimate(value + 0.0, min(interval[0], inside) + 0.0, max(interval[1], inside) + 0.0)  # + 0.0: no -0.0


def advise(logging: Logging, *, fixed: bool) -> dict[str, Any]:
    """Which estimate leads for a log, of a policy that learns from it or of a fixed one; why, and what it needs saying."""
    name, why, warnings = "shrunk_dr" if fixed else "replay", "the log is taken for uniform", list[str]()
    if logging.doubt:
        warnings.append(f"{logging.doubt}: no estimate that rests on them can be trusted")
    if logging.kind == "skewed":
        name, why = "dm" if fixed else "replay", "nothing better is known of this log"
        warnings.append(f"{name} is biased here, and no estimate is valid: {logging.reason}. Log propensities")
    elif logging.kind == "unknown":
        warnings.append(f"every estimate takes for granted that the log showed uniformly: {logging.reason}")
    elif logging.kind == "propensities":
        why = "the log is not uniform"
        if not fixed:
            name = "snips"
            warnings.append("replay is biased here: lines that the log liked to show count too often")
    return {"leading": name, "why": f"{why}: {logging.reason}", "warnings": tuple(warnings)}


# -- the interval ------------------------------------------------------------------------------------------------------


def ratio(top: Floats, bottom: Floats, support: Bounds, bounds: Bounds, most: float = 1.0) -> Estimate:
    """sum(top) / sum(bottom) with its 95% empirical-likelihood interval: terms within `support`, over weights up to `most`.

    A ratio v is kept while some distribution of the terms x = top - v bottom within its support has mean 0 and a
    likelihood not too far below the largest (Owen's interval, to which the ends of the support are added as values that
    could have come): while max over t of sum log(1 + t x) is at most a threshold. So it is skewed as the terms are,
    ends within `bounds`, and does not collapse when all terms are 0. The threshold is half the square of Student's
    quantile, with as many degrees of freedom as terms that matter, (sum x^2)^2 / sum x^4, but never above log 40: with
    nothing but zeros the interval then ends where Clopper and Pearson's does.
    """
    from scipy.optimize import brentq
    from scipy.special import stdtrit

    if not bottom.any():
        return NOTHING
    found = float(top.sum() / bottom.sum())
    value = min(max(found, bounds[0]), bounds[1])
    top, bottom, count = _grouped(top, bottom, value)
    x = top - value * bottom
    fourth = float(count @ x**4)
    degrees = float(count @ x**2) ** 2 / fourth - 1.0 if fourth > 0.0 else 0.0
    limit = float(np.log(2.0 / (1.0 - LEVEL)))
    if degrees > 1.0:
        limit = min(limit, 0.5 * float(stdtrit(degrees, 0.5 + LEVEL / 2.0)) ** 2)

    def above(v: float) -> float:
        return _likelihood(top - v * bottom, count, (support[0] - most * v, support[1] - most * v)) - limit

    def end(bound: float) -> float:
        if value == bound or above(bound) <= 0.0:
            return bound
        return float(brentq(above, value, bound, xtol=1e-12 * max(bounds[1] - bounds[0], 1e-300)))

    # A value beyond the bounds, and not by chance: these lines contradict what is said of them.
    contradicted = above(value) > 0.0
    return _held(found, bounds if contradicted else (end(bounds[0]), end(bounds[1])), bounds)


def _likelihood(x: Floats, count: Floats, support: Bounds) -> float:
    """max over t of sum log(1 + t x), where 1 + t x is at least 0 on the whole support."""
    from scipy.optimize import brentq

    mean = float(count @ x)
    if mean == 0.0:
        return 0.0
    if mean < 0.0:  # the mirror image: then t is positive
        x, support, mean = -x, (-support[1], -support[0]), -mean
    if support[0] >= 0.0:
        return IMPOSSIBLE  # no distribution on the support has mean 0
    end = -1.0 / support[0]
    factor = 1.0 + end * x
    inside = bool(factor.min() > 0.0)
    # If it still rises there, the end of the support, which may never have come, gets what probability is missing.
    if inside and count @ (x / factor) >= 0.0:
        return float(count @ np.log(factor))
    last = end if inside else end * (1.0 - 1e-12)
    t = brentq(lambda t: float(count @ (x / (1.0 + t * x))), 0.0, last, xtol=1e-13 * end)
    return float(count @ np.log1p(t * x))


def _grouped(top: Floats, bottom: Floats, value: float) -> tuple[Floats, Floats, Floats]:
    """Terms in groups of neighbours, each at its mean: the largest ones alone, so that no tail is lost."""
    if len(top) <= 2 * GROUPS:
        return top, bottom, np.ones(len(top))
    x = top - value * bottom
    order = np.argsort(x)
    tail = GROUPS // 2  # half of the groups are single terms, a quarter of them at either end
    middle = np.linspace(tail, len(x) - tail, GROUPS).astype(np.int64)
    starts = np.unique(np.concatenate([np.arange(tail), middle, len(x) - np.arange(tail - 1, 0, -1)]))
    count = np.diff(np.append(starts, len(x))).astype(np.float64)
    sums: list[Any] = [np.add.reduceat(column[order], starts) for column in (top, bottom)]
    return sums[0] / count, sums[1] / count, count
