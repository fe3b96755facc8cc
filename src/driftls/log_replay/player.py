"""One policy on its way through a log: its choices, the lines that match, and what is told of them."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import DriftlsError
from driftls.estimates import Estimate, Weighted, advise, mean_reward
from driftls.features import FeatureMap, UserOnly
from driftls.log_replay.arms import arms_of, arms_of_run, ids_of_run, play, runs_of
from driftls.logs.events import Block
from driftls.logs.shown import Logging
from driftls.policies import Policy

__all__ = ["Matches", "PolicyReplay"]

LEARNING = "a policy that learns from the lines on which it chose what was shown"
FIXED = "a fixed policy, on those lines alone; `driftls.offpolicy.estimate` would use every line"


@dataclass
class Matches:
    """The lines on which a policy chose what was shown: rewards and 1 / propensity; and the truth of all lines."""

    lines: int = 0
    evaluations: int = 0
    reward: float = 0.0
    propensities: int = 0
    largest: float = 0.0
    truths: int = 0
    value: float = 0.0
    best: float = 0.0
    rewards: list[NDArray[np.float64]] = field(default_factory=list)
    weights: list[NDArray[np.float64]] = field(default_factory=list)

    def add(self, block: Block, chosen: NDArray[np.int64]) -> None:
        """Count the lines of a block."""
        matched = chosen == block.shown
        reward = block.reward[matched]
        self.lines += len(block)
        self.evaluations += int(matched.sum())
        self.reward += float(reward.sum())
        self.rewards.append(reward)
        if block.propensity is not None:
            self.propensities += len(block)
            self.largest = max(self.largest, float(1.0 / block.propensity.min()))
            self.weights.append(1.0 / block.propensity[matched])
        if block.truth is not None:
            start = block.truth_start
            self.truths += len(block)
            self.value += float(block.truth[start[:-1] + chosen].sum())
            self.best += float(np.maximum.reduceat(block.truth, start[:-1]).sum())

    @property
    def ctr(self) -> float:
        """The paper's score: clicks over evaluations, times 10,000."""
        return 1e4 * (self.reward / self.evaluations) if self.evaluations else float("nan")

    @property
    def regret(self) -> float:
        """Of all lines, against the best arm of each; NaN where the truth is not known."""
        return self.best - self.value if self.truths == self.lines else float("nan")

    def told(self, logging: Logging, *, learns: bool) -> dict[str, Any]:
        """Estimates, which of them leads for such a log and why, and how far the log supports them."""
        rewards = np.concatenate([np.zeros(0), *self.rewards])
        found: dict[str, Estimate] = {"replay": mean_reward(rewards)}
        lines = None
        if self.propensities == self.lines > 0:
            columns = np.zeros((2, self.lines))
            columns[:, : len(rewards)] = rewards, np.concatenate(self.weights)
            lines = Weighted(columns[0], columns[1], most=self.largest)
            found |= {"ips": lines.ips, "snips": lines.snips}
        advice = advise(logging, fixed=False)
        return {
            "estimated": LEARNING if learns else FIXED,
            "estimates": {name: asdict(estimate) for name, estimate in found.items()},
            **{"leading": advice.name, "why": advice.why, "warnings": list(advice.warnings)},
            "effective": float(self.evaluations) if lines is None else lines.effective,
            "largest_weight": None if lines is None else lines.largest_weight,
            "without_support": 1.0 - self.evaluations / self.lines if self.lines else 1.0,
            "value": self.value / self.truths if self.truths == self.lines > 0 else None,
            "evaluations": self.evaluations,
            "clicks": bool(np.isin(rewards, (0.0, 1.0)).all()),
        }


@dataclass
class PolicyReplay:
    """One policy on its way through the log; one that is frozen is asked alike, and told no reward."""

    name: str
    policy: Any
    features: FeatureMap
    engine: str
    reason: str
    matches: Matches = field(default_factory=Matches)
    seconds: dict[str, float] = field(default_factory=dict)
    points: list[int] = field(default_factory=list)
    traces: dict[str, list[float]] = field(default_factory=dict)
    waiting: list[tuple[int, float]] = field(default_factory=list)  # line (which is its key) and reward
    warm: bool = False  # whether all is compiled

    def __post_init__(self) -> None:
        parts = ("choose",) if self.engine == "python" else ("play",)
        self.seconds = dict.fromkeys((*parts, "learn", "shadow"), 0.0)
        self.disjoint = isinstance(self.features, UserOnly)
        self.learns = not getattr(self.policy, "frozen", False)

    def step(self, block: Block, line: int, delay: int) -> None:
        """Ask for every line of a block, and learn where the choice is what was shown."""
        if not self.warm:
            self._warm_up(block)
        delay = delay if self.learns else 0
        chosen = (self._python if self.engine == "python" else self._compiled)(block, line, delay)
        self.matches.add(block, chosen)

    def _warm_up(self, block: Block) -> None:
        """A copy plays a line, so that no compilation falls into a time that is told."""
        self.warm = True
        if not isinstance(self.policy, Policy):
            return
        try:
            twin: Any = copy.deepcopy(self.policy)
        except DriftlsError:  # over a history that has one owner
            return
        arms, named = arms_of(self.features, block[0])
        chosen = twin.choose(arms, **named)
        if self.learns:
            twin.learn(arms, 0.0, arm=chosen, **named)
        if self.engine == "compiled":
            arms, ids = arms_of_run(self.features, block.part(0, 1)), ids_of_run(block)
            chosen = play(twin, arms, None, None, ids, 1)
            if self.learns:
                play(twin, arms, np.zeros(1), chosen, ids, 1)

    # -- the specification ---------------------------------------------------------------------------------------

    def _python(self, block: Block, line: int, delay: int) -> NDArray[np.int64]:
        """Choose and learn, line by line."""
        chosen = np.zeros(len(block), np.int64)
        for i, event in enumerate(block):
            self.learn_due(line + i, delay)
            arms, ids = arms_of(self.features, event)
            before = time.perf_counter()
            k = chosen[i] = self.policy.choose(arms, **ids)
            self.seconds["choose"] += time.perf_counter() - before
            if k != event.shown or not self.learns:
                continue
            if delay:
                self._keep(arms if self.disjoint else arms[[k]], event.arm, line + i, event.reward)
            else:
                before = time.perf_counter()
                self.policy.learn(arms, event.reward, arm=event.shown, **ids)
                self.seconds["learn"] += time.perf_counter() - before
        return chosen

    def _keep(self, x: Any, arm: int, line: int, reward: float) -> None:
        self.policy.remember(line, x, arm)
        self.waiting.append((line, reward))

    def learn_due(self, line: int, delay: int) -> None:
        """Learn what was chosen `delay` lines before this one, or earlier."""
        before = time.perf_counter()
        while self.waiting and self.waiting[0][0] + delay <= line:
            key, reward = self.waiting.pop(0)
            self.policy.learn(reward=reward, key=key)
        self.seconds["learn"] += time.perf_counter() - before

    # -- the compiled loop ---------------------------------------------------------------------------------------

    def _compiled(self, block: Block, line: int, delay: int) -> NDArray[np.int64]:
        """The same in compiled loops, one for each run of lines with the same pool, and no longer than the delay."""
        chosen = []
        for begin, end in runs_of(self.features, block):
            while begin < end:
                self.learn_due(line + begin, delay)
                upto = min(end, begin + delay) if delay else end
                if self.waiting:
                    upto = min(upto, max(begin + 1, self.waiting[0][0] + delay - line))
                chosen.append(self._run(block.part(begin, upto), line + begin, bool(delay)))
                begin = upto
        return np.concatenate(chosen)

    def _run(self, block: Block, line: int, delayed: bool) -> NDArray[np.int64]:
        arms, ids = arms_of_run(self.features, block), ids_of_run(block)
        reward, shown = (block.reward, block.shown) if self.learns and not delayed else (None, None)
        before = time.perf_counter()
        chosen = play(self.policy, arms, reward, shown, ids, len(block))
        self.seconds["play"] += time.perf_counter() - before
        if delayed:
            count = 1 if self.disjoint else len(ids)
            for i in np.flatnonzero(chosen == block.shown).tolist():
                at = i * count + (0 if self.disjoint else int(block.shown[i]))
                self._keep(arms[[at]], block[i].arm, line + i, float(block.reward[i]))
        return chosen

    # -- what is told --------------------------------------------------------------------------------------------

    def trace(self, metrics: Sequence[str]) -> None:
        """Note where things stand."""
        before, matches = time.perf_counter(), self.matches
        self.points.append(matches.lines)
        values = {"ctr": matches.ctr, "evaluations": float(matches.evaluations), "reward": matches.reward}
        if "regret" in metrics:
            values["regret"] = matches.regret
        if "tracking_error" in metrics:
            values["tracking_error"], values["relative_tracking_error"] = tracking_errors(self.policy)
        for name, value in values.items():
            self.traces.setdefault(name, []).append(value)
        self.seconds["shadow"] += time.perf_counter() - before


def tracking_errors(policy: Any) -> tuple[float, float]:
    """Absolute and relative tracking error (theta = 0 scores 1); of many models, their sums."""
    trackers = map(policy.model, policy.ids) if policy.disjoint else [policy.tracker]
    absolute = size = 0.0
    for tracker in trackers:
        if len(tracker):
            exact = tracker.target.coefficients()
            absolute += float(np.linalg.norm(tracker.coefficients() - exact))
            size += float(np.linalg.norm(exact))
    return absolute, absolute / size if size else (0.0 if absolute == 0.0 else float("inf"))
