"""What a fixed policy is worth, from a log of another: `estimate` reads the log, asks the policy and fits a model.

Which estimate is valid depends on how the log was made: `driftls.estimates.advise` says which one leads, and why.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import InputError
from driftls.estimates import Estimate, Estimates, advise, reward_bounds, support_of, weighted
from driftls.features import FeatureMap
from driftls.inputs import as_whole
from driftls.log_replay.arms import asked, features_for, shown
from driftls.logs import SyntheticDay, blocks_of, read
from driftls.logs.columns import Floats, Ints
from driftls.logs.events import Block
from driftls.logs.inspect import Showing
from driftls.logs.log import Log
from driftls.schedules import ridge as total_ridge
from driftls.trackers import RAW, RLS, SAGA, Tracker

__all__ = ["Fixed", "estimate"]

FOLDS = 3  # parts of the log, each of which is predicted by a model of the others
RIDGE = 20.0  # of the model of rewards, which are shrunk to the mean: `python -m benchmarks estimates --tune`
EXACT_UP_TO = 1000  # features, of an exact model
ARMS_AT_ONCE = 1 << 16  # that are built, where they have to be built
LEARNING = "the policy as it is now; what it earns while it learns from this log is for `driftls.replay`"


def estimate(
    policy: Any,
    log: Any,
    *,
    features: FeatureMap | None = None,
    ridge: float = RIDGE,
    limit: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
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
    ridge
        Of the model of rewards.

    Examples
    --------
    >>> from driftls.logs import synthetic_day
    >>> from driftls.policies.registry import as_disjoint, make
    >>> policy = as_disjoint(make("epsilon-greedy", 136, seed=0), 0)
    >>> found = estimate(policy, synthetic_day(lines=2000, seed=1))
    >>> found.leading, found.valid.low < 0.04 < found.valid.high
    ('shrunk_dr', True)
    """
    limit = None if limit is None else as_whole(limit, "limit")
    log = log if isinstance(log, Log | SyntheticDay) else read(log)
    first = next(blocks_of(log, limit=limit), None)
    if first is None:
        raise InputError("the log has no line to estimate from.")
    fixed = policy if hasattr(policy, "block_probabilities") else Fixed(policy)
    asked_one = getattr(fixed, "policy", policy)
    features = None if features is getattr(policy, "features", None) else features  # those of the copy may grow
    kind = features_for(type(policy).__name__, asked_one, features, first)
    model = _Model(kind, ridge, bool(getattr(asked_one, "disjoint", False)), float(first.reward.mean()))
    showing, bounds, done = Showing(), (0.0, 1.0), 0
    for block in blocks_of(log, limit=limit, arms=ARMS_AT_ONCE):
        showing.add(block)
        bounds = reward_bounds(np.append(block.reward, bounds))
        model.learn(block, done)
        done += len(block)
        progress(done)
    lines, columns, truths, most, unseen = done, list[Any](), list[float](), 1.0, 0.0
    for block in blocks_of(log, truth=True, limit=limit, arms=ARMS_AT_ONCE):
        pi, q = fixed.block_probabilities(kind, block), np.clip(model.predict(block, done - lines), *bounds)
        start = block.truth_start
        at, p = start[:-1] + block.shown, 1.0 / np.diff(start) if block.propensity is None else block.propensity
        columns.append(np.stack([block.reward, pi[at] / p, q[at], np.add.reduceat(pi * q, start[:-1])]))
        most = max(most, float(pi.max() / p.min()))
        unseen += float(pi[~np.isin(block.pool_ids, showing.shown_arms())[block.candidates]].sum()) / lines
        truths += [] if block.truth is None else [float(pi @ block.truth)]
        done += len(block)
        progress(done)
    reward, weight, predicted, model_value = np.concatenate(columns, axis=1)
    logging, found = showing.logging(), weighted(reward, weight, predicted, model_value, most=most)
    advice = advise(logging, fixed=True)
    if logging.kind == "skewed":  # no weight is known: the model's value, and no interval
        found = {"dm": Estimate(found["dm"].value, float("nan"), float("nan"))}
    if unseen > 0.01:
        never = f"{unseen:.1%} of the policy's choices are arms that the log never shows: there only the model is asked"
        advice["warnings"] += (never,)
    return Estimates(
        lines=lines,
        estimated=LEARNING if hasattr(policy, "learn") and not getattr(policy, "frozen", False) else "a fixed policy",
        estimates=found,
        unseen=unseen,
        value=sum(truths) / lines if len(truths) == len(columns) else None,
        **advice,
        **support_of(weight),
    )


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


class _Model:
    """Least squares of reward minus its mean, cross-fitted: one tracker a fold, or a fold and arm for users alone."""

    def __init__(self, features: Any, total: float, disjoint: bool, mean: float) -> None:
        self.features, self.disjoint, self.mean = features, disjoint, mean
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
        return ((mixed >> np.uint64(40)) % np.uint64(FOLDS)).astype(np.int64)

    def _of(self, arm: Ints, rows: Any) -> Iterator[tuple[NDArray[np.bool_], int, Tracker]]:
        """For every arm and fold: the rows of the arm, the fold, and its tracker, with room for features as new as these."""
        arm = arm if self.disjoint else np.zeros_like(arm)
        for key in product(np.unique(arm).tolist(), range(FOLDS)):
            if key not in self._trackers:
                self._trackers[key] = self._prototype.fresh(0)
            tracker = self._trackers[key]
            tracker.grow(max(rows.shape[1], tracker.dim))  # with a vocabulary
            yield arm == key[0], key[1], tracker

    def learn(self, block: Block, line: int) -> None:
        """Learn the lines of a block, each in all folds but its own."""
        fold, (rows, arm) = self._folds(line, len(block)), shown(self.features, block, disjoint=self.disjoint)
        for of_arm, number, tracker in self._of(arm, rows):
            own = np.flatnonzero(of_arm & (fold != number))
            if own.size:
                tracker.partial_fit(rows[own], block.reward[own] - self.mean)

    def predict(self, block: Block, line: int) -> Floats:
        """The reward of every candidate, line after line, by a model that has not seen the line."""
        sizes = np.diff(block.truth_start)
        fold, arm = np.repeat(self._folds(line, len(block)), sizes), block.pool_ids[block.candidates]
        # With a model an arm, every candidate has the row of its visitor.
        rows = self.features.users(block) if self.disjoint else self.features.rows(block)
        row = np.repeat(np.arange(len(block)), sizes) if self.disjoint else np.arange(len(arm))
        found = np.full(len(arm), self.mean)
        for of_arm, number, tracker in self._of(arm, rows):
            at = np.flatnonzero(of_arm & (fold == number))
            if at.size and len(tracker):
                found[at] += tracker.predict(rows[row[at]])
        return found
