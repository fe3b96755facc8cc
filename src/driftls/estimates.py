"""What a policy is worth, from a log of another: off-policy estimates and their intervals, in NumPy alone.

All of them are means over the log's lines: of reward r, the probability p with which the log showed what it showed, the
policy's probability pi of showing the same, the weight w = pi / p, and a model's prediction q(a); `docs/replay.md` has a table.

Intervals are Wilson's for clicks that count alike, else `likelihood_interval`: both stay within the range of rewards,
and neither collapses when nothing was clicked. `python -m benchmarks estimates` holds them against known truths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import InputError, SettingsError
from driftls.logs.inspect import Logging

__all__ = ["Advice", "Estimate", "Weighted", "advise", "likelihood_interval", "mean_reward", "wilson"]

Floats = NDArray[np.float64]
Bounds = tuple[float, float]
LEVEL = 0.95
NORMAL = 1.959963984540054  # its two-sided quantile
IMPOSSIBLE = 1e6  # a log likelihood ratio
GROUPS = 4096  # more terms than twice this are put into groups of neighbours for an interval; not for a value


@dataclass(frozen=True)
class Estimate:
    """A value and its 95% interval."""

    value: float
    low: float
    high: float


NOTHING = Estimate(float("nan"), float("nan"), float("nan"))


def wilson(hits: float, count: float) -> Estimate:
    """A rate of successes, with Wilson's interval, which holds for small rates too and stays within 0 and 1.

    Examples
    --------
    >>> estimate = wilson(40, 1000)
    >>> estimate.value, round(estimate.low, 4), round(estimate.high, 4)
    (0.04, 0.0295, 0.054)
    >>> wilson(0, 100).low, round(wilson(0, 100).high, 3)
    (0.0, 0.037)
    """
    if count == 0:
        return NOTHING
    rate, square = hits / count, NORMAL * NORMAL / count
    middle, half = rate + square / 2.0, NORMAL * np.sqrt(rate * (1.0 - rate) / count + square / (4.0 * count))
    low = 0.0 if hits == 0 else float((middle - half) / (1.0 + square))
    high = 1.0 if hits == count else float((middle + half) / (1.0 + square))
    return Estimate(rate, low, high)


def mean_reward(rewards: Floats) -> Estimate:
    """The mean of rewards: Wilson's interval for clicks, the likelihood one for others."""
    if np.isin(rewards, (0.0, 1.0)).all():
        return wilson(float(rewards.sum()), rewards.size)
    bounds = reward_bounds(rewards)
    return _ratio(rewards, None, bounds, bounds)


def reward_bounds(rewards: Floats) -> Bounds:
    """The range of rewards where none is told: 0 to 1, or what was seen if that goes beyond."""
    return float(rewards.min(initial=0.0)), float(rewards.max(initial=1.0))


@dataclass(frozen=True, eq=False)
class Weighted:
    """Lines of a log as an off-policy estimate sees them.

    Parameters
    ----------
    reward, weight : arrays, (n,)
        The weight is pi / p of what was shown; for a policy that was only asked for its choice, 1 / p where it chose
        what was shown and 0 elsewhere.
    predicted, model_value : arrays, (n,), optional
        A model's prediction for what was shown, and what it gives the policy, sum_a pi(a) q(a). The model must not have
        learned this line (cross-fitting).
    bounds, most
        The least and the largest reward that there can be, 0 and 1 unless rewards were seen beyond; the largest weight
        that there could have been, by default the largest there was.

    Examples
    --------
    >>> shown = np.array([1, 1, 0, 0, 0, 0, 0, 0])  # 1: what our policy would have shown, with p = 1/4; else 3/4
    >>> clicks = np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    >>> lines = Weighted(clicks, np.where(shown, 4.0, 0.0))
    >>> lines.ips.value, lines.snips.value, lines.effective
    (0.5, 0.5, 2.0)
    """

    reward: Floats
    weight: Floats
    predicted: Floats | None = None
    model_value: Floats | None = None
    bounds: Bounds | None = None
    most: float | None = None

    def __post_init__(self) -> None:
        given = [a for a in (self.reward, self.weight, self.predicted, self.model_value) if a is not None]
        if any(np.shape(a) != np.shape(self.reward) or np.ndim(a) != 1 for a in given):
            shapes = ", ".join(str(np.shape(a)) for a in given)
            raise InputError(f"one reward, weight and prediction a line are needed, got shapes {shapes}.")
        if not all(np.isfinite(a).all() for a in given) or (self.weight < 0.0).any():
            raise InputError("rewards, weights and predictions must be finite, and weights at least 0.")
        if (self.predicted is None) != (self.model_value is None):
            raise InputError("a model is known by `predicted` and `model_value`: pass both, or neither.")

    def __len__(self) -> int:
        return len(self.reward)

    # -- what can be trusted -------------------------------------------------------------------------------------

    @property
    def effective(self) -> float:
        """Effective sample size, (sum w)^2 / sum w^2: so many lines of the policy's own would say as much."""
        squares = float(self.weight @ self.weight)
        return float(self.weight.sum()) ** 2 / squares if squares else 0.0

    @property
    def largest_weight(self) -> float:
        """Of all lines."""
        return float(self.weight.max(initial=0.0))

    @property
    def without_support(self) -> float:
        """The share of lines that say nothing, since the policy would never have shown what they show."""
        return float(np.mean(self.weight == 0.0)) if len(self) else 1.0

    # -- the estimates -------------------------------------------------------------------------------------------

    def all(self) -> dict[str, Estimate]:
        """Every estimate, by its name; those that need a model only if there is one."""
        names = (*UNMODELLED, *MODELLED) if self.predicted is not None else UNMODELLED
        return {name: getattr(self, name) for name in names}

    @cached_property
    def ips(self) -> Estimate:
        """Inverse propensity scoring, mean w r: unbiased if p is right."""
        (low, high), most = self._bounds, self._most
        return _ratio(self.weight * self.reward, None, (min(0.0, most * low), max(0.0, most * high)), self._bounds)

    @cached_property
    def snips(self) -> Estimate:
        """Self-normalised, sum w r / sum w: a little biased, mostly nearer."""
        (low, high), most = self._bounds, self._most
        return _ratio(self.weight * self.reward, self.weight, (most * low, most * high), self._bounds, most)

    @property
    def clipped_ips(self) -> Estimate:
        """mean min(w, clip) r: less noise, and too small where weights are cut. The interval is that of `ips`."""
        return self._beside(self.ips, np.minimum(self.weight, self.clip) * self.reward)

    @property
    def dm(self) -> Estimate:
        """The direct method, mean sum_a pi(a) q(a). The interval is that of `dr`: how wrong the model is shows there alone."""
        return self._beside(self.dr, self._model()[1])

    @cached_property
    def dr(self) -> Estimate:
        """Doubly robust, mean sum_a pi(a) q(a) + w (r - q): unbiased if p or the model is right."""
        (low, high), (predicted, value), most = self._bounds, self._model(), self._most
        if not len(self):
            return NOTHING
        least = float(value.min()) + most * min(0.0, low - float(predicted.max()))
        largest = float(value.max()) + most * max(0.0, high - float(predicted.min()))
        return _ratio(value + self._correction, None, (least, largest), self._bounds)

    @property
    def switch_dr(self) -> Estimate:
        """Doubly robust up to the weight `switch`, then the model. The interval is that of `dr`."""
        kept = np.where(self.weight <= self.switch, self._correction, 0.0)
        return self._beside(self.dr, self._model()[1] + kept)

    @property
    def shrunk_dr(self) -> Estimate:
        """The direct method, and of its correction by `dr` as much as stands out of noise. The interval is `dr`'s.

        With the correction C and its variance V, the share max(0, 1 - V / C^2) of C is taken (positive-part James and
        Stein): near `dm` where the model is right, near `dr` where it is wrong and lines enough say so.
        """
        terms, share = self._correction, 0.0
        if len(self) and (correction := float(terms.mean())):
            share = max(0.0, 1.0 - (float(terms.std()) / correction) ** 2 / len(self))
        return self._beside(self.dr, self._model()[1] + share * terms)

    # -- parts ---------------------------------------------------------------------------------------------------

    @property
    def clip(self) -> float:
        """A weight at which to clip: the square root of the number of lines."""
        return float(np.sqrt(max(len(self), 1)))

    @cached_property
    def switch(self) -> float:
        """The weight at which to switch to the model: of 20 quantiles, the one with the least estimated squared error.

        The squared bias is that of what is left out, as far as it stands out of its own noise.
        """
        used = self.weight[self.weight > 0.0]
        if used.size == 0:
            return 0.0
        dr, best, least = self._model()[1] + self._correction, float(used.max()), np.inf
        for most in np.unique(np.quantile(used, np.linspace(0.05, 1.0, 20))):
            out = np.where(self.weight > most, self._correction, 0.0)
            bias = max(float(out.mean()) ** 2 - float(out.var()) / len(self), 0.0)
            error = float((dr - out).var()) / len(self) + bias
            if error < least:
                best, least = float(most), error
        return best

    @cached_property
    def _bounds(self) -> Bounds:
        return reward_bounds(self.reward) if self.bounds is None else self.bounds

    @property
    def _most(self) -> float:
        return max(self.largest_weight, self.most or 0.0, 1.0)

    @cached_property
    def _correction(self) -> Floats:
        return self.weight * (self.reward - self._model()[0])

    def _model(self) -> tuple[Floats, Floats]:
        if self.predicted is None or self.model_value is None:
            raise SettingsError("this estimate needs a model: pass `predicted` and `model_value`.")
        return self.predicted, self.model_value

    def _beside(self, unbiased: Estimate, terms: Floats) -> Estimate:
        """The mean of terms, with the interval of an estimate that is not biased."""
        return _held(float(terms.mean()), (unbiased.low, unbiased.high), self._bounds) if len(self) else NOTHING


UNMODELLED = ("ips", "snips", "clipped_ips")
MODELLED = ("dm", "dr", "switch_dr", "shrunk_dr")


def _held(value: float, interval: Bounds, bounds: Bounds) -> Estimate:
    """The interval holds the value, unless that left the bounds, as weighted sums can."""
    inside = min(max(value, bounds[0]), bounds[1])
    return Estimate(value + 0.0, min(interval[0], inside) + 0.0, max(interval[1], inside) + 0.0)  # + 0.0: no -0.0


def _ratio(top: Floats, bottom: Floats | None, support: Bounds, bounds: Bounds, most: float = 1.0) -> Estimate:
    """sum(top) / sum(bottom), or the mean of top: terms within `support`, over weights of at most `most`."""
    bottom = np.ones(len(top)) if bottom is None else bottom
    if not bottom.any():
        return NOTHING
    low, high = support
    interval = likelihood_interval(top, bottom, lambda v: (low - most * v, high - most * v), bounds)
    return _held(float(top.sum() / bottom.sum()), interval, bounds)


# -- which one to take -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Advice:
    """Which estimate leads for a log, why, and what has to be said with it."""

    name: str
    why: str
    warnings: tuple[str, ...] = ()


def advise(logging: Logging, *, fixed: bool) -> Advice:
    """The estimate that is valid for a log, of a policy that learns from it or of a fixed one."""
    warnings = [f"{logging.doubt}: no estimate that rests on them can be trusted"] if logging.doubt else []
    if logging.kind == "skewed":
        name = "dm" if fixed else "replay"
        warnings += [f"{name} is biased here, and no estimate is valid: {logging.reason}. Log propensities"]
        return Advice(name, f"nothing better is known of this log: {logging.reason}", tuple(warnings))
    if logging.kind == "unknown":
        warnings += [f"every estimate takes for granted that the log showed uniformly: {logging.reason}"]
    if logging.kind == "propensities":
        if fixed:
            return Advice("shrunk_dr", f"the log is not uniform: {logging.reason}", tuple(warnings))
        warnings += ["replay is biased here: lines that the log liked to show count too often"]
        return Advice("snips", f"the log is not uniform: {logging.reason}", tuple(warnings))
    name = "shrunk_dr" if fixed else "replay"
    return Advice(name, f"the log is taken for uniform: {logging.reason}", tuple(warnings))


# -- the interval ------------------------------------------------------------------------------------------------------


def likelihood_interval(top: Floats, bottom: Floats, support: Callable[[float], Bounds], bounds: Bounds) -> Bounds:
    """The 95% empirical-likelihood interval of sum(top) / sum(bottom), for terms of bounded support.

    A ratio v is kept while some distribution of the terms x = top - v bottom within ``support(v)`` has mean 0 and a
    likelihood not too far below the largest (Owen's interval, to which the ends of the support are added as values that
    could have come): while max over t of sum log(1 + t x) is at most a threshold. So it is skewed as the terms are,
    ends within `bounds`, and does not collapse when all terms are 0. The threshold is half the square of Student's
    quantile, with as many degrees of freedom as terms that matter, (sum x^2)^2 / sum x^4, but never above log 40: with
    nothing but zeros the interval then ends where Clopper and Pearson's does.
    """
    from scipy.optimize import brentq
    from scipy.special import stdtrit

    least, most = bounds
    value = min(max(float(top.sum() / bottom.sum()), least), most)
    top, bottom, count = _grouped(top, bottom, value)
    x = top - value * bottom
    fourth = float(count @ x**4)
    degrees = float(count @ x**2) ** 2 / fourth - 1.0 if fourth > 0.0 else 0.0
    limit = float(np.log(2.0 / (1.0 - LEVEL)))
    if degrees > 1.0:
        limit = min(limit, 0.5 * float(stdtrit(degrees, 0.5 + LEVEL / 2.0)) ** 2)

    def above(v: float) -> float:
        return _likelihood(top - v * bottom, count, support(v)) - limit

    if above(value) > 0.0:
        return least, most  # a value beyond the bounds, and not by chance: these lines contradict what is said of them
    ends = []
    for end in (least, most):
        inside = value == end or above(end) <= 0.0
        ends.append(end if inside else float(brentq(above, value, end, xtol=1e-12 * max(most - least, 1e-300))))
    return ends[0], ends[1]


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
