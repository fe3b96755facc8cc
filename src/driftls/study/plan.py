"""The file of a study: problems, policies, knobs, seeds, search and budget, checked as a whole before anything runs."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable
from itertools import product
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
import numpy as np
from msgspec import Meta, Struct

from driftls.environments import ChurningPool, FixedArms, FreshContexts, Pool
from driftls.errors import DriftlsError, SettingsError
from driftls.features import FeatureMap, UserOnly, from_header
from driftls.logs import read
from driftls.policies import Policy, SharedPolicy
from driftls.policies.registry import SETTINGS, as_disjoint, make

__all__ = ["Bandit", "Log", "Plan", "PolicySpec", "Problem", "Range", "Search", "Seeds", "build", "units"]

KINDS: dict[str, Callable[..., Pool]] = {
    "fixed-arms": FixedArms,
    "churning-pool": ChurningPool,
    "fresh-contexts": FreshContexts,
}
TABLES = (".csv", ".json", ".jsonl", ".ndjson")
MOST_ENTRIES = 10**8  # of the arms of a bandit: 0.8 GB
ROUNDING = 1e-9  # 0.1**-2 is a little more than 100

Metric = Literal["regret", "reward", "ctr", "relative_tracking_error"]
Kind = Literal["fixed-arms", "churning-pool", "fresh-contexts"]
Noise = Literal["gaussian", "bounded", "bernoulli"]
Scale = Literal["linear", "log"]
Method = Literal["grid", "random"]
NAMES = {"metrics": Metric, "kind": Kind, "reward": Noise, "scale": Scale, "method": Method}  # by the key
UNKNOWN = re.compile(r"Invalid enum value .* - at `.*?(\w+)(\[\d*\])?`")

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
    scale: Scale = "linear"
    points: Annotated[int, Meta(ge=2)] = 5

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.scale == "log" and self.low <= 0.0):
            raise ValueError(f"a range needs low < high, and low > 0 on a log scale; got {self.low} and {self.high}")

    def at(self, share: float) -> float:
        """The value so far along the range."""
        if self.scale == "log":
            return float(self.low * (self.high / self.low) ** share)
        return float(self.low + share * (self.high - self.low))


Choice = float | Annotated[list[float], Meta(min_length=1)] | Range


class Seeds(Strict, frozen=True):
    """How many seeds knobs are tuned on, from the first one on, and how many others, which follow, are reported."""

    report: Whole
    tune: Annotated[int, Meta(ge=0)] = 0
    first: Seed = 0

    def of(self, stage: str) -> range:
        """The seeds of a stage."""
        begin = self.first + self.tune * (stage == "report")
        return range(begin, begin + getattr(self, stage))


class Search(Strict, frozen=True):
    """How settings are found: all of a grid, or so many draws; and which of them are given up early.

    Successive halving over tuning units (seeds, or days of a log): a rung gives all settings that are left the same first
    units; the best `keep` of them, by the mean of the first metric, go on. A rung is cut when all of its runs are there,
    so the order in which they finish does not matter; runs of earlier rungs are used again.
    """

    method: Method = "grid"
    draws: Whole = 16
    keep: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.5
    seed: Seed = 0

    def rungs(self, settings: int, units: int) -> list[tuple[int, int]]:
        """How many settings meet the first how many units, rung after rung: at least two, and in the last one all units.

        >>> Search(keep=0.5).rungs(8, units=4)
        [(8, 1), (4, 2), (2, 4)]
        >>> Search(keep=1.0).rungs(8, units=4)
        [(8, 4)]
        """
        left, keep = [settings], self.keep
        while 2 <= (after := ceil(left[-1] * keep - ROUNDING)) < left[-1] and units * keep ** len(left) >= 1 - ROUNDING:
            left.append(after)
        return [(count, ceil(units * keep**cuts - ROUNDING)) for cuts, count in zip(reversed(range(len(left))), left)]


class Bandit(Strict, frozen=True):
    """A simulated bandit; every seed is another one."""

    name: Name
    kind: Kind
    dim: Whole
    rounds: Whole
    arms: Whole = 20
    sigma: float = 0.3
    reward: Noise = "gaussian"
    nnz: Whole | None = None
    every: Whole | None = None

    def __post_init__(self) -> None:
        if self.arms * (self.nnz or self.dim) > MOST_ENTRIES or self.dim > MOST_ENTRIES:
            raise ValueError(f"arms x dim must be at most {MOST_ENTRIES:,} numbers, got {self.arms:,} x {self.dim:,}")
        try:
            self.environment(0)
        except TypeError:
            key = "nnz" if self.nnz is not None and self.kind != "fresh-contexts" else "every"
            raise ValueError(f"{self.kind} has no {key}") from None
        except DriftlsError as error:
            raise ValueError(str(error)) from None

    def environment(self, seed: int) -> Pool:
        """The bandit of this seed."""
        own = {key: value for key in ("nnz", "every") if (value := getattr(self, key)) is not None}
        return KINDS[self.kind](self.dim, self.arms, sigma=self.sigma, reward=self.reward, seed=seed, **own)


class Log(Strict, frozen=True):
    """Days of a log, to be replayed: those on which knobs are tuned, and those that are reported.

    `features` has the kind, such as "UserArmCrosses" or "UserOnly" (one model an article), and its settings; `lines`
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

    def made(self) -> FeatureMap:
        """New features, which know no article yet."""
        settings = dict(self.features)
        made = from_header({"features": settings.pop("kind", None), **settings})
        if made.grows:
            raise SettingsError("a study compares models of one length: give Features a dim, such as dim = 4096.")
        return made

    def found(self, folder: Path) -> Log:
        """The log with the full paths of its days, all of which are there."""
        given = {"tune": self.tune, "report": self.report}
        days = {stage: [str((folder / day).resolve()) for day in own] for stage, own in given.items()}
        for day in (*days["tune"], *days["report"]):
            if not Path(day).exists():
                raise SettingsError(f"the study cannot be run: logs, {self.name!r}: {day} does not exist.")
        return msgspec.structs.replace(self, **days)

    def check(self, *, truth: bool) -> None:
        """Refuse days that cannot be read, and those without the truth if it is needed: every run of them would fail."""
        for day in dict.fromkeys((*self.tune, *self.report)):
            wrong = ""
            try:
                first = next(read(day).blocks(1), None)
                if first is None:
                    wrong = f"{day}: expected lines to replay, got none. Leave it out."
                elif truth and first.truth is None:
                    known = "a column of Parquet, as `driftls synth --out day.parquet` has it"
                    other = 'Take "ctr" or "reward" among the metrics'
                    wrong = f"{day}: regret needs a log with the truth ({known}), got one without. {other}."
            except DriftlsError as error:
                wrong = str(error)
                if Path(day.removesuffix(".gz")).suffix in TABLES:
                    wrong = (
                        f"{day}: a study reads logs of Yahoo and Parquet, got a table. Replay it by `driftls replay`."
                    )
            if wrong:
                raise SettingsError(f"the study cannot be run: logs, {self.name!r}: {wrong}")


Problem = Bandit | Log


def units(problem: Problem, stage: str, seeds: Seeds) -> list[tuple[str, int]]:
    """Day (of a log alone) and seed of all runs of a setting in a stage; days change first."""
    days = getattr(problem, stage) if isinstance(problem, Log) else [""]
    return [(day, seed) for seed in seeds.of(stage) for day in days]


class PolicySpec(Strict, frozen=True):
    """A policy, its knobs, each of which is fixed (a number), listed or searched, and what it is called in results."""

    policy: str
    knobs: dict[str, Choice] = {}
    name: str = ""

    @property
    def label(self) -> str:
        """Its name; if it has none, the policy's."""
        return self.name or self.policy

    def settings(self, search: Search, number: int) -> list[Knobs]:
        """All settings of this, the `number`-th, policy, without repetitions."""
        rows: Iterable[Iterable[float]]
        if search.method == "grid":
            rows = product(*map(_grid, self.knobs.values()))
        else:
            shares = np.random.default_rng([search.seed, number]).random((search.draws, len(self.knobs)))
            rows = (map(_drawn, self.knobs.values(), row) for row in shares.tolist())
        kinds = [SETTINGS.get(self.policy, {}).get(knob) for knob in self.knobs]
        unique = dict.fromkeys(tuple(round(v) if kind is int else v for v, kind in zip(row, kinds)) for row in rows)
        return [dict(zip(self.knobs, values)) for values in unique]


def _grid(of: Choice) -> list[float]:
    if isinstance(of, Range):
        return [of.at(share) for share in np.linspace(0.0, 1.0, of.points)]
    return of if isinstance(of, list) else [of]


def _drawn(of: Choice, share: float) -> float:
    if isinstance(of, Range):
        return of.at(share)
    listed = _grid(of)
    return listed[int(share * len(listed))]


class Plan(Strict, frozen=True):
    """A study: what is in the file; docs/study.md lists its keys, and `run_study` has an example."""

    metrics: Annotated[list[Metric], Meta(min_length=1)]
    seeds: Seeds
    policies: Annotated[list[PolicySpec], Meta(min_length=1)]
    bandits: list[Bandit] = []
    logs: list[Log] = []
    search: Search = Search()
    budget: Whole = 10_000

    @classmethod
    def parse(cls, text: str | dict[str, Any], folder: str | os.PathLike[str] = ".") -> Plan:
        """Read and check the text of a file, or its tables; days of a log are found from the folder on."""
        try:
            plan = msgspec.convert(tomllib.loads(text) if isinstance(text, str) else text, Plan)
        except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
            told = str(error).rstrip(".")
            if (found := UNKNOWN.search(told)) and found[1] in NAMES:
                told += f": expected one of {', '.join(get_args(NAMES[found[1]]))}"
            raise SettingsError(f"the study cannot be run: {told}.") from None
        plan = msgspec.structs.replace(plan, logs=[log.found(Path(folder)) for log in plan.logs])
        for log in plan.logs:
            log.check(truth="regret" in plan.metrics)
        return plan

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read and check a file."""
        try:
            return cls.parse(Path(path).read_text(encoding="utf-8"), Path(path).parent)
        except SettingsError as error:
            raise SettingsError(f"{path}: {error}") from None
        except UnicodeDecodeError:
            raise SettingsError(f"{path}: expected a study as TOML, got a file that is no text.") from None

    def __post_init__(self) -> None:
        for table, names in (
            ("problems", [one.name for one in self.problems]),
            ("policies", [one.label for one in self.policies]),
        ):
            if twice := {name for name in names if names.count(name) > 1}:
                raise ValueError(f"{table}: {min(twice)!r} comes twice. Give one of them another name")
        if not self.problems:
            raise ValueError("there is nothing to play on: give [[bandits]], [[logs]], or both")
        if "ctr" in self.metrics and self.bandits:
            raise ValueError("metrics: ctr is a metric of logs; bandits have regret and reward")
        runs = 0  # every setting is built once, and the runs are counted
        for number, spec in enumerate(self.policies):
            settings = spec.settings(self.search, number)
            for problem in self.problems:
                tune, report = (len(units(problem, stage, self.seeds)) for stage in ("tune", "report"))
                if len(settings) > 1 and not tune:
                    raise ValueError(f"policies[{number}] is tuned, but {problem.name!r} has no tune seeds or days")
                for knobs in settings:
                    try:
                        build(spec.policy, knobs, problem, 0)
                    except DriftlsError as error:
                        raise ValueError(f"policies[{number}] with {knobs} on {problem.name!r}: {error}") from None
                runs += report + (tune * len(settings) if len(settings) > 1 else 0)
        if runs > self.budget:
            raise ValueError(f"budget: the study takes up to {runs} runs, but {self.budget} are allowed")

    @property
    def problems(self) -> list[Problem]:
        """Bandits and logs."""
        return [*self.bandits, *self.logs]

    @property
    def split(self) -> str:
        """What was tuned where and how, in words."""
        if not (tuned := any(len(spec.settings(self.search, k)) > 1 for k, spec in enumerate(self.policies))):
            parts = [f"Seeds: {self.seeds.report}; nothing was tuned."]
        else:
            parts = [f"Seeds: {self.seeds.tune} to tune knobs on, {self.seeds.report} others to report."]
        for log in self.logs:
            tune, report = (", ".join(Path(day).name for day in days) for days in (log.tune, log.report))
            parts.append(f"{log.name}: {f'tuned on {tune}, ' if tuned and tune else ''}reported on {report}.")
        if tuned:
            how = f"Settings by {self.search.method} search; after each rung the best {self.search.keep:.0%}"
            parts.append(f"{how} by {self.metrics[0].replace('_', ' ')} went on to more seeds or days.")
        return " ".join(parts)


def build(policy: str, knobs: Knobs, problem: Problem, seed: int) -> Policy:
    """The policy of a setting; with `UserOnly`, one model an article."""
    made: SharedPolicy = make(policy, problem.dim, seed=seed, **knobs)
    disjoint = isinstance(problem, Log) and isinstance(problem.made(), UserOnly)
    return as_disjoint(made, seed) if disjoint else made
