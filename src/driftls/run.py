"""What came out of a run: settings, counts, traces and times, in a file that a person can read too."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

import msgspec
import numpy as np

from driftls.errors import CorruptFileError, InputError, NewerFileError, storage_error
from driftls.persistence import atomic

__all__ = ["Leading", "Run", "described", "interval"]

VERSION = 1
WIDE = 110  # letters of a line
NOTHING = "  no line counted"  # in place of a mean of none
WORK = ("choose", "learn", "play")  # apart where rounds came from Python, together in a compiled loop


class Leading(NamedTuple):
    """The estimate that is valid for a run's log, with its 95% interval: reward a line."""

    name: str
    value: float
    low: float
    high: float


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One policy on one problem with one seed.

    `points` are the rounds at which `traces` were taken; `seconds` are those of choosing and of learning, apart from
    everything else.
    """

    policy: str
    problem: str
    seed: int
    rounds: int
    points: list[int]
    traces: dict[str, list[float]]
    seconds: dict[str, float]
    settings: dict[str, Any] = {}
    partial: bool = False
    version: int = VERSION

    def __repr__(self) -> str:
        ends = {name: values[-1] for name, values in self.traces.items() if values}
        if self.biased and (lead := self.leading):
            ends = {lead.name: lead.value, **{name: value for name, value in ends.items() if name != "ctr"}}
        told = "".join(f", {name}={value:.6g}" for name, value in ends.items())
        return f"Run({self.policy!r}, {self.problem!r}, seed={self.seed}, rounds={self.rounds}{told})"

    def __str__(self) -> str:
        """A few lines: what was run, estimates (of a replay), where traces ended, and times."""
        ended = ", interrupted" if self.partial else ""
        lines = [f"{self.policy} on {self.problem}, seed {self.seed}: {self.rounds:,} rounds{ended}"]
        leading = self.settings.get("leading")
        none = self.biased and leading == "replay"  # it leads where nothing better is known
        for name, found in sorted(self.settings.get("estimates", {}).items(), key=lambda item: item[0] != leading):
            mark = ", which is valid for this log" if name == leading and not none else ""
            told = f"{found['value']:>12.5g}  (95%: {found['low']:.5g} to {found['high']:.5g}){mark}"
            lines.append(f"  {name:<24}{told if _known(found['value']) else NOTHING}")
        what = f"  (in 10,000 counted lines{', biased for this log' * self.biased})"
        for name, value in ((name, values[-1]) for name, values in self.traces.items() if values):
            told = f"{value:>12.6g}{what if leading and name == 'ctr' else ''}" if _known(value) else NOTHING
            lines.append(f"  {name.replace('_', ' '):<24}{told}")
        took = {name: self.seconds[name] for name in WORK if self.seconds.get(name)}
        rounds = max(self.rounds, 1)
        lines += [f"  {name + ', µs a round':<24}{1e6 * each / rounds:>12.3g}" for name, each in took.items()]
        warned = (f"Warning: {text}." for text in self.settings.get("warnings", ()))
        lines += chain.from_iterable(wrap(text, WIDE, initial_indent="  ", subsequent_indent="    ") for text in warned)
        return "\n".join(lines)

    @property
    def leading(self) -> Leading | None:
        """Of a replay the estimate that leads; None of other runs."""
        name, estimates = self.settings.get("leading"), self.settings.get("estimates")
        if not isinstance(name, str) or not isinstance(estimates, dict):
            return None
        if not isinstance(found := estimates.get(name), dict):
            return None
        ends = (found.get(end) for end in ("value", "low", "high"))
        return Leading(name, *(float("nan") if end is None else float(end) for end in ends))  # NaN is kept as null

    @property
    def biased(self) -> bool:
        """Whether the trace `ctr`, of the lines that counted, is known to be biased for the log."""
        leading, warnings = self.settings.get("leading", "replay"), self.settings.get("warnings", ())
        return leading != "replay" or any("replay is biased" in str(text) for text in warnings)

    def last(self, trace: str) -> float:
        """The final value of a trace."""
        if not self.traces.get(trace):
            raise InputError(f"expected a trace of this run, {', '.join(self.traces)}, got {trace!r}.")
        return self.traces[trace][-1]

    def end(self, trace: str) -> float:
        """What a run is judged by: the final value; of a log's clicks (`ctr`) the estimate that leads, in 10,000."""
        lead = self.leading if trace == "ctr" else None
        return self.last(trace) if lead is None else 1e4 * lead.value

    @property
    def microseconds(self) -> float:
        """Of choosing and learning, a round."""
        return 1e6 * sum(self.seconds.get(part, 0.0) for part in WORK) / max(self.rounds, 1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the run as JSON, atomically."""
        with atomic(path) as part:
            part.write_bytes(msgspec.json.format(msgspec.json.encode(_plain(msgspec.to_builtins(self)))))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Run:
        """Read a run that `save` wrote."""
        try:
            kept = msgspec.json.decode(Path(path).read_bytes())
            if isinstance(version := kept.get("version"), int) and version > VERSION:  # whatever else may be in it
                raise NewerFileError(
                    f"{path}: version {version}, but this driftls reads up to {VERSION}. Install a newer driftls."
                )
            for trace in kept["traces"].values():  # JSON has no infinity and no NaN: they are kept as null
                trace[:] = [float("nan") if value is None else value for value in trace]
            run = msgspec.convert(kept, Run)
        except OSError as error:
            raise storage_error(error, path) from None
        except (msgspec.MsgspecError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptFileError(
                f"{path}: not a run of driftls ({error}). Pass a file that Run.save wrote."
            ) from error
        return run


def described(thing: Any) -> str:
    """What an object says of itself, without the addresses of functions inside, which no two runs share."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(thing))


def _known(value: float | None) -> bool:
    """Whether there is a number; in a file NaN is null."""
    return value is not None and value == value


def _plain(value: Any) -> Any:
    """The same with 0.0 for -0.0, at any depth."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value + 0.0 if isinstance(value, float) else value


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of its 95% interval (Student's t) over seeds; infinite for one seed."""
    from scipy.stats import t

    data = np.asarray(values, dtype=np.float64)
    if data.size < 2:
        return float(data.mean()), float("inf")
    return float(data.mean()), float(t.ppf(0.975, data.size - 1) * data.std(ddof=1) / np.sqrt(data.size))
