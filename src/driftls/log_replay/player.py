"""One policy on its way through a log: its choices, the lines that match, and what is told of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.compiling.objects import spent
from driftls.errors import SettingsError
from driftls.estimates import Estimate, Estimates, advise, mean_reward, support_of, weighted
from driftls.features import FeatureMap
from driftls.inputs import Rows
from driftls.log_replay.arms import asked, ids_of, runs_of
from driftls.logs.events import Block
from driftls.logs.inspect import Logging
from driftls.persistence import group
from driftls.policies import Policy
from driftls.run import described

__all__ = ["Matches", "PolicyReplay"]

FEW, SMALL = 30, 0.01  # lines that count, and their share, below which they say little
LEARNING = "a policy that learns from the lines on which it chose what was shown"
STATE = ("seconds", "points", "traces", "waiting")
FIXED = "a fixed policy, on those lines alone; `driftls.offpolicy.estimate` would use every line"


def clock() -> float:
    """Seconds, but for those in which parts are compiled: the first policy of its kind is not to look slow."""
    return time.perf_counter() - spent()


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

    def doubt(self, by_chance: float) -> str:
        """What is said where hardly any line counts, else nothing; so many would count for arms taken at random."""
        count, lines = self.evaluations, self.lines
        if count >= FEW and (count >= SMALL * lines or count >= by_chance / 2):
            return ""
        least = f"only {count:,} of {lines:,} lines counted, too few to judge by" if count else "no line counted"
        if by_chance < FEW:
            return f"{least}: the log is short for its arms; replay more lines"
        likely = "most likely the policy insists on an arm that was hardly ever shown"
        return f"{least}: {likely}; `inspect` says how often arms were, and arms= of a table names what may be shown"

    def told(self, logging: Logging, estimated: str) -> dict[str, Any]:
        """Estimates, which of them leads for such a log and why, and how far the log supports them."""
        rewards = np.concatenate([np.zeros(0), *self.rewards])
        found: dict[str, Estimate] = {"replay": mean_reward(rewards)}
        columns = np.zeros((2, self.lines))
        columns[:, : len(rewards)] = rewards, np.ones(len(rewards))
        if self.propensities == self.lines > 0:
            columns[1, : len(rewards)] = np.concatenate(self.weights)
            found |= weighted(*columns, most=self.largest)
        told = Estimates(
            lines=self.lines,
            estimated=estimated,
            estimates=found,
            value=self.value / self.truths if self.truths == self.lines > 0 else None,
            **advise(logging, fixed=False),
            **support_of(columns[1]),
        )
        clicks = bool(np.isin(rewards, (0.0, 1.0)).all())
        return {**asdict(told), "evaluations": self.evaluations, "clicks": clicks}


@dataclass
class PolicyReplay:
    """One policy on its way through the log; one that is frozen is asked alike, and told no reward."""

    name: str
    policy: Any
    features: FeatureMap
    engine: str  # "python", or the compiled loop if the policy has one
    matches: Matches = field(default_factory=Matches)
    seconds: dict[str, float] = field(default_factory=dict)
    points: list[int] = field(default_factory=list)
    traces: dict[str, list[float]] = field(default_factory=dict)
    waiting: list[tuple[int, float]] = field(default_factory=list)  # line (which is its key) and reward

    def __post_init__(self) -> None:
        kind = type(self.policy).__name__
        self.reason = "" if isinstance(self.policy, Policy) else f"a {kind} has no compiled loop"
        if self.reason and self.engine == "compiled":
            raise SettingsError(f'{self.name}: {self.reason}. Pass engine="python".')
        self.engine = "python" if self.reason or self.engine == "python" else "compiled"
        self.seconds = dict.fromkeys(("choose" if self.engine == "python" else "play", "learn", "shadow"), 0.0)
        self.disjoint = bool(getattr(self.policy, "disjoint", False))
        self.learns = not getattr(self.policy, "frozen", False)
        self._follow()

    def _follow(self) -> None:
        """A policy takes rows of features that are not its own as it would take those of its own."""
        if isinstance(self.policy, Policy):
            self.policy.follow(self.features)

    def step(self, block: Block, line: int, delay: int) -> None:
        """Ask for every line of a block, and learn where the choice is what was shown."""
        self.matches.add(block, self._chosen(block, line, delay if self.learns else 0))

    def _chosen(self, block: Block, line: int, delay: int) -> NDArray[np.int64]:
        """Runs of lines in compiled loops, no longer than the delay; or, which specifies them, line by line."""
        chosen: list[Any] = []
        runs = runs_of(self.features, block, disjoint=self.disjoint)
        for begin, end in runs if self.engine == "compiled" else ((i, i + 1) for i in range(len(block))):
            while begin < end:
                self.learn_due(line + begin, delay)
                upto = min(end, begin + delay) if delay else end
                if self.waiting:
                    upto = min(upto, max(begin + 1, self.waiting[0][0] + delay - line))
                part = block.part(begin, upto)
                arms, ids = asked(self.features, part, disjoint=self.disjoint)
                own = (self._compiled if self.engine == "compiled" else self._python)(part, arms, ids, not delay)
                if delay:
                    arms = arms.tocsr() if type(arms) is Rows else arms
                    count = 1 if self.disjoint else arms.shape[0] // len(part)
                    for i in np.flatnonzero(own == part.shown).tolist():
                        at = i * count + (0 if self.disjoint else int(part.shown[i]))
                        name = ids_of(part, np.array([part[i].arm]))[0]
                        self.policy.remember(line + begin + i, arms[[at]], name)
                        self.waiting.append((line + begin + i, float(part.reward[i])))
                chosen.append(own)
                begin = upto
        return np.concatenate(chosen)

    def _python(self, line: Block, arms: Any, ids: dict[str, Any], now: bool) -> Any:
        """Choose and learn: the specification."""
        before = clock()
        chosen = self.policy.choose(arms, **ids)
        between = clock()
        if chosen == line.shown[0] and self.learns and now:
            self.policy.learn(arms, float(line.reward[0]), arm=chosen, **ids)
        self.seconds["choose"] += between - before
        self.seconds["learn"] += clock() - between
        return np.array([chosen])

    def _compiled(self, block: Block, arms: Any, ids: dict[str, Any], now: bool) -> Any:
        """Many lines at once: what is chosen on each, and learned where that is what was shown."""
        reward, shown = (block.reward, block.shown) if self.learns and now else (None, None)
        before = clock()
        chosen = np.asarray(self.policy.play(arms, reward, shown=shown, rounds=len(block), **ids))
        self.seconds["play"] += clock() - before
        return chosen

    def learn_due(self, line: int, delay: int) -> None:
        """Learn what was chosen `delay` lines before this one, or earlier."""
        before = clock()
        while self.waiting and self.waiting[0][0] + delay <= line:
            key, reward = self.waiting.pop(0)
            self.policy.learn(reward=reward, key=key)
        self.seconds["learn"] += clock() - before

    # -- interruptions -------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """All that has happened, for a file: numbers and arrays."""
        policy, arrays = self.policy.snapshot()
        arrays = {f"policy.{name}": array for name, array in arrays.items()}
        matches = dict(vars(self.matches))
        for name in ("rewards", "weights"):
            arrays[f"matches.{name}"] = np.concatenate([np.zeros(0), *matches.pop(name)])
        state = {name: getattr(self, name) for name in STATE}
        return {**state, "matches": matches, "policy": policy, "features": self.features.to_header()}, arrays

    def resume(self, kept: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Go on from a snapshot: the caller's own policy as the one that was saved."""
        policy = self.policy
        again = type(policy).from_snapshot(kept["policy"], group(arrays, "policy."))
        if self.features is policy.features:  # with the names that it had learned by then
            self.features = again.features
        self.features.follow(kept["features"])
        vars(policy).update(vars(again))
        self._follow()
        for name in STATE:
            setattr(self, name, kept[name])
        self.waiting = [(int(line), float(reward)) for line, reward in kept["waiting"]]
        for name in ("rewards", "weights"):
            kept["matches"][name] = [arrays[f"matches.{name}"]]
        self.matches = Matches(**kept["matches"])

    # -- what is told --------------------------------------------------------------------------------------------

    def told(self, logging: Logging, by_chance: float) -> dict[str, Any]:
        """What it was, and what came out for a log that showed so, and on which chance matches so many lines."""
        told = {"policy": described(self.policy), "features": described(self.features)}
        told |= {"engine": self.engine, "engine_reason": self.reason}
        told |= self.matches.told(logging, LEARNING if self.learns else FIXED)
        doubt = self.matches.doubt(by_chance)
        return told | {"warnings": (*told["warnings"], *([f"{self.name}: {doubt}"] if doubt else []))}

    def trace(self, metrics: Sequence[str]) -> None:
        """Note where things stand."""
        before, matches = clock(), self.matches
        self.points.append(matches.lines)
        values = {"ctr": matches.ctr, "evaluations": float(matches.evaluations), "reward": matches.reward}
        if "regret" in metrics:
            values["regret"] = matches.regret
        if "tracking_error" in metrics:
            values["tracking_error"], values["relative_tracking_error"] = tracking_errors(self.policy)
        for name, value in values.items():
            self.traces.setdefault(name, []).append(value)
        self.seconds["shadow"] += clock() - before


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
