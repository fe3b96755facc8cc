"""What a fixed policy is worth, from a log of another: `estimate` reads the log, asks the policy and fits a model.

Which estimate is valid depends on how the log was made: `driftls.estimates.advise` says which one leads, and why.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import InputError, SettingsError
from driftls.estimates import Advice, Estimate, Weighted, advise, reward_bounds
from driftls.features import FeatureMap
from driftls.inputs import as_whole
from driftls.log_replay.arms import asked, features_for, shown
from driftls.logs import SyntheticDay, blocks_of, read
from driftls.logs.columns import Floats, Ints
from driftls.logs.events import Block
from driftls.logs.inspect import Logging, Showing
from driftls.logs.log import Log
from driftls.schedules import ridge as total_ridge
from driftls.trackers import RAW, RLS, SAGA, Tracker

__all__ = ["Estimates", "Fixed", "estimate"]

RIDGE = 20.0  # of the model of rewards, which are shrunk to the mean: `python -m benchmarks estimates --tune`
EXACT_UP_TO = 1000  # features, of an exact model
ARMS_AT_ONCE = 1 << 16  # that are built, where they have to be built
LEARNING = "the policy as it is now; what it earns while it learns from this log is for `driftls.replay`"


@dataclass(frozen=True)
class Estimates:
    """What a fixed policy is worth: all estimates, the one that leads, and how far the log supports it.

    `effective` is the effective sample size, `without_support` the share of lines that say nothing of this policy,
    `unseen` the share of its probability that goes to arms that the log never shows, where only the model is asked.
    """

    lines: int
    estimated: str  # what was: a fixed policy, or one that learns, as it is now
    estimates: dict[str, Estimate]
    advice: Advice
    effective: float
    largest_weight: float
    without_support: float
    unseen: float
    value: float | None = None  # the truth, where the log has it

    @property
    def leading(self) -> Estimate:
        """The estimate that is valid for this log."""
        return self.estimates[self.advice.name]

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers, texts and lists."""
        return asdict(self)

    def __str__(self) -> str:
        rows = [f"{self.advice.name} leads, since {self.advice.why}.", f"Estimated: {self.estimated}."]
        for name in sorted(self.estimates, key=lambda name: name != self.advice.name):
            found = self.estimates[name]
            rows.append(f"{name:<14}{found.value:>10.5f}{f'{found.low:.5f} ... {found.high:.5f}':>24}")
        rows.append(
            f"{self.lines:,} lines; effective {self.effective:,.0f}, largest weight {self.largest_weight:.3g}, "
            f"{self.without_support:.1%} without support."
        )
        return "\n".join([*rows, *(f"Warning: {text}." for text in self.advice.warnings)])


def estimate(
    policy: Any,
    log: Any,
    *,
    features: FeatureMap | None = None,
    folds: int = 3,
    ridge: float = RIDGE,
    bounds: tuple[float, float] | None = None,
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Estimates:
    """What a policy that no longer learns would have earned on a log that another policy made.

    Every line is used, weighted by how likely the policy was to show what the log shows. The model of rewards, for the
    direct method and the doubly robust estimates, is least squares on the policy's own features, on other lines than
    those that it predicts. The log is read twice.

    Parameters
    ----------
    policy
        Asked for its `probabilities`, never told a reward; one that is not frozen is asked as it is now, as a copy. An
        object with `dim` and `block_probabilities(features, block)` is asked for those of a whole block at once.
    log
        What `driftls.logs.read` gives or takes, or a synthetic day.
    features, limit, progress
        As for `replay`; the lines done are those of both readings together.
    folds, ridge
        Parts of the log, each of which is predicted by a model of the others; the ridge of that model.
    bounds : pair of float, optional
        The least and largest reward that there can be; 0 and 1 unless rewards were seen beyond.

    Examples
    --------
    >>> from driftls.logs import synthetic_day
    >>> from driftls.policies.registry import as_disjoint, make
    >>> policy = as_disjoint(make("epsilon-greedy", 136, seed=0), 0)
    >>> found = estimate(policy, synthetic_day(lines=2000, seed=1))
    >>> found.advice.name, found.leading.low < 0.04 < found.leading.high
    ('shrunk_dr', True)
    """
    folds, limit = as_whole(folds, "folds", 2), None if limit is None else as_whole(limit, "limit")
    if bounds is not None and not (np.shape(bounds) == (2,) and bounds[0] < bounds[1]):
        raise SettingsError(f"bounds must be the least and the largest reward, got {bounds!r}.")
    log = log if isinstance(log, Log | SyntheticDay) else read(log)
    first = next(blocks_of(log, limit=limit), None)
    if first is None:
        raise InputError("the log has no line to estimate from.")
    fixed = policy if hasattr(policy, "block_probabilities") else Fixed(policy)
    asked_one = getattr(fixed, "policy", policy)
    features = None if features is getattr(policy, "features", None) else features  # those of the copy may grow
    kind = features_for(type(policy).__name__, asked_one, features, first)
    disjoint = bool(getattr(asked_one, "disjoint", False))
    model, showing, done, rewards = _Model(kind, folds, ridge, disjoint, first.reward.mean()), Showing(), 0, []
    for block in blocks_of(log, limit=limit, arms=ARMS_AT_ONCE):
        showing.add(block)
        rewards.append(block.reward)
        model.learn(block, done)
        done += len(block)
        if progress is not None:
            progress(done)
    bounds = reward_bounds(np.concatenate(rewards)) if bounds is None else bounds
    told, lines, seen = _Asked(bounds), done, showing.shown_arms()
    for block in blocks_of(log, truth=True, limit=limit, arms=ARMS_AT_ONCE):
        told.add(block, fixed.block_probabilities(kind, block), model.predict(block, done - lines), seen)
        done += len(block)
        if progress is not None:
            progress(done)
    learns = hasattr(policy, "learn") and not getattr(policy, "frozen", False)
    return told.estimates(showing.logging(), LEARNING if learns else "a fixed policy")


class Fixed:
    """A policy, whatever has `choose` and `probabilities`, that is only ever asked, never told a reward; it is copied."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy.freeze() if hasattr(policy, "freeze") else copy.deepcopy(policy)
        self._known: set[Any] = set()

    def block_probabilities(self, features: FeatureMap, block: Block) -> Floats:
        """How likely each candidate of each line is to be shown, line after line."""
        disjoint = bool(getattr(self.policy, "disjoint", False))
        lines = (asked(features, block.part(i, i + 1), disjoint=disjoint) for i in range(len(block)))
        return np.concatenate([self.probabilities(arms, **ids) for arms, ids in lines])

    def probabilities(self, arms: Any, **ids: Any) -> Floats:
        """How likely each arm is to be shown; where that is not known, all for the arm that is chosen when asked."""
        new = set(np.asarray(ids["ids"]).tolist()) - self._known if "ids" in ids else set()
        if new:  # an arm without a model gets one when it is first offered
            self.policy.choose(arms, **ids)
            self._known |= new
        try:
            return np.asarray(self.policy.probabilities(arms, **ids), np.float64)
        except InputError:  # sampled scores
            count = len(ids["ids"]) if "ids" in ids else arms.shape[0]
            return np.asarray(np.eye(count)[self.policy.choose(arms, **ids)], np.float64)


# -- parts -------------------------------------------------------------------------------------------------------------


class _Model:
    """Least squares of reward minus its mean, cross-fitted: one tracker a fold, or a fold and arm for users alone."""

    def __init__(self, features: Any, folds: int, total: float, disjoint: bool, mean: float) -> None:
        self.features, self.folds, self.disjoint, self.mean = features, folds, disjoint, mean
        settings: dict[str, Any] = {"regularisation": total_ridge(total), **RAW}
        self._prototype: Tracker = (
            RLS(features.dim, method="cholesky", **settings)  # sums alone, solved when theta is asked for
            if features.dim <= EXACT_UP_TO and not features.grows
            else SAGA(features.dim, seed=0, **settings)
        )
        self._trackers: dict[tuple[int, int], Tracker] = {}  # by arm, or 0 for all arms, and fold

    def _folds(self, line: int, count: int) -> Ints:
        """A fold for each line, which depends on its number alone (a multiplicative hash)."""
        mixed = np.arange(line, line + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return ((mixed >> np.uint64(40)) % np.uint64(self.folds)).astype(np.int64)

    def learn(self, block: Block, line: int) -> None:
        """Learn the lines of a block, each in all folds but its own."""
        fold, (rows, arm) = self._folds(line, len(block)), shown(self.features, block, disjoint=self.disjoint)
        arm = arm if self.disjoint else np.zeros_like(arm)
        for key in product(np.unique(arm).tolist(), range(self.folds)):
            own = np.flatnonzero((arm == key[0]) & (fold != key[1]))
            if own.size:
                if key not in self._trackers:
                    self._trackers[key] = self._prototype.fresh(0)
                tracker = self._trackers[key]
                tracker.grow(max(rows.shape[1], tracker.dim))  # with a vocabulary
                tracker.partial_fit(rows[own], block.reward[own] - self.mean)

    def predict(self, block: Block, line: int) -> Floats:
        """The reward of every candidate, line after line, by a model that has not seen the line."""
        sizes = np.diff(block.truth_start)
        fold, found = np.repeat(self._folds(line, len(block)), sizes), np.zeros(sizes.sum())
        if self.disjoint:  # every candidate has the row of its visitor, and a model of its own
            rows, row = self.features.users(block), np.repeat(np.arange(len(block)), sizes)
            arm = block.pool_ids[block.candidates]
        else:
            rows, row, arm = self.features.rows(block), np.arange(len(fold)), np.zeros(len(fold), np.int64)
        for key in product(np.unique(arm).tolist(), range(self.folds)):
            at = np.flatnonzero((arm == key[0]) & (fold == key[1]))
            if at.size and key in self._trackers:
                tracker = self._trackers[key]
                tracker.grow(max(rows.shape[1], tracker.dim))
                found[at] = tracker.predict(rows[row[at]])
        return found + self.mean


class _Asked:
    """What the lines say of the policy."""

    def __init__(self, bounds: tuple[float, float]) -> None:
        self.bounds = bounds
        self.columns: list[NDArray[np.float64]] = []
        self.unseen, self.value, self.truths, self.largest = 0.0, 0.0, 0, 0.0

    def add(self, block: Block, pi: Floats, q: Floats, shown_arms: Ints) -> None:
        """Take up the lines of a block: probabilities and predictions are of every candidate."""
        start = block.truth_start
        at = start[:-1] + block.shown
        q = np.clip(q, *self.bounds)
        p = 1.0 / np.diff(start) if block.propensity is None else block.propensity
        value = np.add.reduceat(pi * q, start[:-1])
        self.columns.append(np.stack([block.reward, pi[at] / p, q[at], value]))
        self.largest = max(self.largest, float(pi.max() / p.min()))
        known = np.isin(block.pool_ids, shown_arms)[block.candidates]
        self.unseen += float(pi[~known].sum())
        if block.truth is not None:
            self.truths += len(block)
            self.value += float(pi @ block.truth)

    def estimates(self, logging: Logging, estimated: str) -> Estimates:
        """All estimates, and the one that leads."""
        reward, weight, predicted, value = np.concatenate(self.columns, axis=1)
        lines = Weighted(reward, weight, predicted, value, bounds=self.bounds, most=self.largest)
        advice, found, unseen = advise(logging, fixed=True), lines.all(), self.unseen / len(lines)
        if logging.kind == "skewed":  # no weight is known: the model's value, and no interval
            found = {"dm": Estimate(found["dm"].value, float("nan"), float("nan"))}
        if unseen > 0.01:
            never = (
                f"{unseen:.1%} of the policy's choices are arms that the log never shows: there only the model is asked"
            )
            advice = replace(advice, warnings=(*advice.warnings, never))
        support = lines.effective, lines.largest_weight, lines.without_support, unseen
        value = self.value / self.truths if self.truths == len(lines) else None
        return Estimates(len(lines), estimated, found, advice, *support, value)
