"""The file of a study: problems, policies, knobs, seeds, search and budget, checked as a whole before anything runs."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

from driftls import paper
from driftls.environments import ChurningPool, FixedArms, FreshContexts, Pool
from driftls.errors import DriftlsError, SettingsError
from driftls.features import Features, UserFeatures, from_header
from driftls.policies import DisjointLinUCB, Policy, named
from driftls.study.search import most_runs

__all__ = ["Bandit", "Contender", "Log", "Plan", "Problem", "Range", "Search", "Seeds", "build"]

POLICIES = {**paper.POLICIES, **named.POLICIES}
KINDS: dict[str, Callable[..., Pool]] = {
    "fixed-arms": FixedArms,
    "churning-pool": ChurningPool,
    "fresh-contexts": FreshContexts,
}
LARGER_IS_BETTER = {"regret": False, "reward": True, "ctr": True, "relative_tracking_error": False}

Whole = Annotated[int, Meta(ge=1)]
Seed = Annotated[int, Meta(ge=0)]
Name = Annotated[str, Meta(min_length=1)]
Knobs = dict[str, float]


class Strict(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file: a key that is not known is an error."""


class Range(Strict, frozen=True):
    """A knob that is searched between two values; a grid takes `points` of them."""

    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"
    points: Annotated[int, Meta(ge=2)] = 5

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.scale == "log" and self.low <= 0.0):
            raise ValueError(f"a range needs low < high, and low > 0 on a log scale; got {self.low} and {self.high}")

    def at(self, share: float) -> float:
        """The value so far along the range."""
        if self.scale == "log":
            return float(self.low * (self.high / self.low) ** share)
        return self.low + share * (self.high - self.low)

    def grid(self) -> list[float]:
        """Evenly spaced points; the ends are met exactly."""
        inner = [self.at(place / (self.points - 1)) for place in range(1, self.points - 1)]
        return [self.low, *inner, self.high]


class Span(Strict, frozen=True):
    """So many seeds from the first on."""

    first: Seed
    count: Whole


class Seeds(Strict, frozen=True):
    """Knobs are tuned on the first set and reported on the second."""

    report: list[Seed] | Span
    tune: list[Seed] | Span = []

    def __post_init__(self) -> None:
        tune, report = self.of("tune"), self.of("report")
        if not report or len(set(report)) < len(report) or len(set(tune)) < len(tune):
            raise ValueError("report needs at least one seed, and no seed may come twice")
        if both := set(tune) & set(report):
            raise ValueError(
                f"seed {min(both)} is in tune and in report: a knob must not be reported where it was tuned"
            )

    def of(self, stage: str) -> list[int]:
        """The seeds of a stage."""
        seeds: list[int] | Span = getattr(self, stage)
        return list(range(seeds.first, seeds.first + seeds.count)) if isinstance(seeds, Span) else seeds


class Search(Strict, frozen=True):
    """How settings are found: all of a grid, or so many draws; `keep` survive a rung (see search.py)."""

    method: Literal["grid", "random"] = "grid"
    draws: Whole = 16
    keep: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.5
    seed: Seed = 0


class Bandit(Strict, frozen=True):
    """A simulated bandit; every seed is another one."""

    name: Name
    kind: Literal["fixed-arms", "churning-pool", "fresh-contexts"]
    dim: Whole
    rounds: Whole
    arms: Whole = 20
    sigma: float = 0.3
    reward: Literal["gaussian", "bounded", "bernoulli"] = "gaussian"
    nnz: Whole | None = None
    every: Whole | None = None

    def __post_init__(self) -> None:
        try:
            self.environment(0)
        except TypeError:
            key = "nnz" if self.nnz is not None and self.kind != "fresh-contexts" else "every"
            raise ValueError(f"{self.kind} has no {key}") from None
        except DriftlsError as error:
            raise ValueError(str(error)) from None

    def identity(self) -> dict[str, Any]:
        """What a result depends on."""
        return {key: value for key, value in msgspec.structs.asdict(self).items() if key != "name"}

    def units(self, stage: str, seeds: Seeds) -> list[tuple[str, int]]:
        """Day (none here) and seed of the runs of a stage."""
        return [("", seed) for seed in seeds.of(stage)]

    def environment(self, seed: int) -> Pool:
        """The bandit of this seed."""
        own = {key: value for key in ("nnz", "every") if (value := getattr(self, key)) is not None}
        return KINDS[self.kind](self.dim, self.arms, sigma=self.sigma, reward=self.reward, seed=seed, **own)


class Log(Strict, frozen=True):
    """Days of a log, to be replayed: those on which knobs are tuned, and those that are reported.

    `features` has the kind, such as "Crosses" or "UserFeatures" (one model an article), and its settings; `lines`
    bounds a replay.
    """

    name: Name
    report: Annotated[list[str], Meta(min_length=1)]
    features: dict[str, Any]
    tune: list[str] = []
    lines: Whole | None = None

    def __post_init__(self) -> None:
        if both := set(self.tune) & set(self.report):
            raise ValueError(f"{min(both)} is in tune and in report: report on days that nothing was tuned on")
        try:
            self.made()
        except (DriftlsError, TypeError) as error:
            raise ValueError(f"features: {error}") from None

    @property
    def dim(self) -> int:
        """The length of an arm."""
        return self.made().dim

    def made(self) -> Features:
        """New features, which know no article yet."""
        settings = dict(self.features)
        return from_header({"features": settings.pop("kind", None), **settings})

    def identity(self) -> dict[str, Any]:
        """What a result depends on, but for the day."""
        return {"features": self.features, "lines": self.lines}

    def units(self, stage: str, seeds: Seeds) -> list[tuple[str, int]]:
        """Day and seed of the runs of a stage; days change first."""
        days: list[str] = getattr(self, stage)
        return [(day, seed) for seed in seeds.of(stage) for day in days]


Problem = Bandit | Log


class Contender(Strict, frozen=True):
    """A policy by name; a knob is fixed (a number), listed or searched."""

    policy: str
    knobs: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"policy {self.policy!r} is not one of {', '.join(POLICIES)}")
        known = named.KNOBS.get(self.policy, {"kappa": float})
        for knob in self.knobs:
            if knob not in known:
                raise ValueError(f"{self.policy} has no knob {knob!r}; it has: {', '.join(known) or 'none'}")
            self.choices(knob)

    def choices(self, knob: str) -> list[float] | Range:
        """What a knob can be: one value, those listed, or a range."""
        kind = Annotated[list[float], Meta(min_length=1)] | Range | float
        try:
            value = msgspec.convert(self.knobs[knob], kind)
        except msgspec.ValidationError as error:
            raise ValueError(f"knob {knob!r}: {error}") from None
        return [value] if isinstance(value, float) else value

    def _whole(self, knob: str) -> bool:
        return named.KNOBS.get(self.policy, {}).get(knob) is int

    @property
    def tuned(self) -> list[str]:
        """The knobs of which there is more than one value."""
        return [knob for knob in self.knobs if isinstance(self.knobs[knob], list | dict)]

    def settings(self, search: Search, number: int) -> list[Knobs]:
        """All settings of this, the `number`-th, policy, without repetitions."""
        choices = {knob: self.choices(knob) for knob in self.knobs}
        if search.method == "grid":
            columns = [values.grid() if isinstance(values, Range) else values for values in choices.values()]
            found = [dict(zip(choices, values)) for values in product(*columns)]
        else:
            rng = np.random.default_rng([search.seed, number])
            shares = rng.random((search.draws if self.tuned else 1, len(choices)))
            found = [dict(zip(choices, map(_pick, choices.values(), row))) for row in shares]
        for knobs in found:
            knobs.update({knob: round(value) for knob, value in knobs.items() if self._whole(knob)})
        return [knobs for place, knobs in enumerate(found) if knobs not in found[:place]]


class Plan(Strict, frozen=True):
    """A study: what is in the file.

    Examples
    --------
    >>> plan = Plan.parse('''
    ... metrics = ["regret"]
    ... seeds = { tune = [0, 1], report = { first = 10, count = 5 } }
    ... [[bandits]]
    ... name = "small"
    ... kind = "fixed-arms"
    ... dim = 5
    ... rounds = 100
    ... [[policies]]
    ... policy = "linucb"
    ... knobs = { kappa = [0.1, 1.0] }
    ... ''')
    >>> plan.policies[0].tuned, plan.seeds.of("report")
    (['kappa'], [10, 11, 12, 13, 14])
    """

    metrics: Annotated[list[Literal["regret", "reward", "ctr", "relative_tracking_error"]], Meta(min_length=1)]
    seeds: Seeds
    policies: Annotated[list[Contender], Meta(min_length=1)]
    bandits: list[Bandit] = []
    logs: list[Log] = []
    search: Search = Search()
    budget: Whole = 10_000

    @classmethod
    def parse(cls, text: str, folder: str | os.PathLike[str] = ".") -> Plan:
        """Read and check the text of a file; days of a log are found from the folder on."""
        try:
            tables = tomllib.loads(text)
            plan = msgspec.convert(tables, Plan)
        except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise SettingsError(f"the study cannot be run: {str(error).rstrip('.')}.") from None
        return msgspec.structs.replace(plan, logs=[_found(log, Path(folder)) for log in plan.logs])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read and check a file."""
        try:
            return cls.parse(Path(path).read_text(), Path(path).parent)
        except (SettingsError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path}: {error}") from None

    def __post_init__(self) -> None:
        for table, names in (("problems", [one.name for one in self.problems]), ("policies", self.labels)):
            if twice := {name for name in names if names.count(name) > 1}:
                raise ValueError(f"{table}: {min(twice)!r} comes twice")
        if not self.problems:
            raise ValueError("there is nothing to play on: give [[bandits]], [[logs]], or both")
        if "ctr" in self.metrics and self.bandits:
            raise ValueError("metrics: ctr is a metric of logs; bandits have regret and reward")
        if "relative_tracking_error" in self.metrics and any(c.policy == "random" for c in self.policies):
            raise ValueError("metrics: random follows no theta, so it has no relative_tracking_error")
        self._check_settings()

    @property
    def problems(self) -> list[Problem]:
        """Bandits and logs."""
        return [*self.bandits, *self.logs]

    def _check_settings(self) -> None:
        """Build every setting once, and count the runs."""
        runs = 0
        for number, contender in enumerate(self.policies):
            settings = contender.settings(self.search, number)
            for problem in self.problems:
                tune, report = (len(problem.units(stage, self.seeds)) for stage in ("tune", "report"))
                if len(settings) > 1 and not tune:
                    raise ValueError(f"policies[{number}] is tuned, but {problem.name!r} has no tune seeds or days")
                for knobs in settings:
                    try:
                        build(contender.policy, knobs, problem, 0)
                    except DriftlsError as error:
                        raise ValueError(f"policies[{number}] with {knobs} on {problem.name!r}: {error}") from None
                runs += most_runs(len(settings), self.search.keep, tune=tune, report=report)
        if runs > self.budget:
            raise ValueError(f"budget: the study takes up to {runs} runs, but {self.budget} are allowed")

    @property
    def split(self) -> str:
        """What was tuned where, in words."""
        tune, report = (_words(self.seeds.of(stage)) for stage in ("tune", "report"))
        parts = [f"Knobs are tuned on the seeds {tune or '(none)'} and reported on the seeds {report}."]
        for log in self.logs:
            days = {stage: ", ".join(Path(day).name for day in getattr(log, stage)) for stage in ("tune", "report")}
            parts.append(f"{log.name}: tuned on {days['tune'] or 'no day'}, reported on {days['report']}.")
        return " ".join(parts)

    @property
    def labels(self) -> list[str]:
        """The policies as they are called in results; with fixed knobs where a policy comes more than once."""
        names = [contender.policy for contender in self.policies]
        fixed = [{k: v for k, v in c.knobs.items() if k not in c.tuned} for c in self.policies]
        return [
            f"{name} {' '.join(f'{k}={v:g}' for k, v in own.items())}".strip() if names.count(name) > 1 else name
            for name, own in zip(names, fixed)
        ]


def _words(seeds: list[int]) -> str:
    consecutive = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[0] + len(seeds)))
    return f"{seeds[0]} to {seeds[-1]}" if consecutive else ", ".join(map(str, seeds))


def _found(log: Log, folder: Path) -> Log:
    """The log with the full paths of its days, all of which are there."""
    days = {stage: [str((folder / day).resolve()) for day in getattr(log, stage)] for stage in ("tune", "report")}
    for day in (*days["tune"], *days["report"]):
        if not Path(day).exists():
            raise SettingsError(f"the study cannot be run: logs, {log.name!r}: {day} does not exist.")
    return msgspec.structs.replace(log, **days)


def _pick(values: list[float] | Range, share: float) -> float:
    return values.at(float(share)) if isinstance(values, Range) else values[int(share * len(values))]


def build(policy: str, knobs: Knobs, problem: Problem, seed: int) -> Policy | DisjointLinUCB:
    """The policy of a setting; with `UserFeatures`, one model an article."""
    made = named.make(policy, problem.dim, seed=seed, table=POLICIES, **knobs)
    disjoint = isinstance(problem, Log) and isinstance(problem.made(), UserFeatures)
    return named.one_model_an_article(made, seed) if disjoint else made
