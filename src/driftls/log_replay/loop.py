"""The loop over a log: lines in pieces, policies that are asked, traces, checkpoints, and the runs at the end."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from driftls.errors import InputError, SettingsError
from driftls.features import FeatureMap, UserArmCrosses, UserOnly
from driftls.inputs import as_whole
from driftls.log_replay.arms import features_for
from driftls.log_replay.checkpoint import Checkpoint
from driftls.log_replay.player import PolicyReplay
from driftls.logs import SyntheticDay, blocks_of, read
from driftls.logs.events import Block
from driftls.logs.inspect import Showing
from driftls.logs.log import Log
from driftls.run import Run

__all__ = ["METRICS", "Replay", "replay"]

METRICS = ("ctr", "regret", "tracking_error")
ENGINES = ("auto", "compiled", "python")
ARMS_AT_ONCE = 1 << 16  # that are built, where they have to be built
FIRST_MARK = 1000
NEVER = 1 << 40  # a line that does not come


class Replay:
    """A replay under way: policies over the lines of one log, piece by piece."""

    def __init__(self, players: list[PolicyReplay], settings: dict[str, Any]) -> None:
        self.players, self.settings = players, settings
        self.done, self.reading, self.showing = 0, 0.0, Showing()

    def next_mark(self) -> int:
        """The next number of lines at which traces are taken."""
        points = self.settings["points"]
        if points is not None:
            return next((point for point in points if point > self.done), NEVER)
        mark = FIRST_MARK
        while mark <= self.done:
            mark = mark * 6 // 5
        return mark

    def pieces(self, block: Block, next_stop: Callable[[int], int]) -> Iterator[Block]:
        """The lines of a block, in pieces that end where something has to be noted."""
        built = not all(isinstance(player.features, UserOnly | UserArmCrosses) for player in self.players)
        most = max(1, ARMS_AT_ONCE // int(np.diff(block.pool_start).max(initial=1))) if built else len(block)
        at = 0
        while at < len(block):
            room = min(len(block) - at, most, min(self.next_mark(), next_stop(self.done)) - self.done)
            yield block.part(at, at + room)
            at += room

    def step(self, block: Block) -> None:
        """Replay the lines of a piece: every policy is asked about every line."""
        mark = self.next_mark()
        for player in self.players:
            player.step(block, self.done, self.settings["delay"])
        self.skip(block)
        if self.done == mark:
            self._trace()

    def skip(self, block: Block) -> None:
        """Pass lines without asking, as those that were replayed before an interruption."""
        self.showing.add(block)
        self.done += len(block)

    def _trace(self) -> None:
        for player in self.players:
            if self.done and (not player.points or player.points[-1] != player.matches.lines):
                player.trace(self.settings["metrics"])

    def runs(self, problem: str, *, partial: bool = False) -> dict[str, Run]:
        """What came out, by the policies' names; rewards that are still out are learned, unless it was interrupted."""
        for player in self.players:
            if not partial:
                player.learn_due(self.done, 0)
        self._trace()
        logging, by_chance = self.showing.logging(), self.showing.by_chance
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {
            player.name: Run(
                policy=player.name,
                problem=problem,
                seed=self.settings["seed"],
                rounds=player.matches.lines,
                points=player.points,
                traces=player.traces,
                seconds={**player.seconds, "read": self.reading},
                settings={**player.told(logging, by_chance), "peak_megabytes": megabytes},
                partial=partial,
            )
            for player in self.players
        }


def replay(
    policy: Any,
    log: Any,
    *,
    features: FeatureMap | None = None,
    metrics: Iterable[str] = ("ctr",),
    engine: str = "auto",
    delay: int = 0,
    limit: int | None = None,
    points: Sequence[int] | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 200_000,
    progress: Callable[[int], None] | None = None,
) -> Any:
    """Replay one policy, or several at once, over a log.

    Parameters
    ----------
    policy : policy, or mapping from names to policies
        New, or warm from a file. Each is changed as it learns, and in nothing else. One that is frozen
        (`policy.freeze()`) is asked alike and learns nothing; `settings["estimated"]` says which it was.
    log
        What `driftls.logs.read` gives, a synthetic day, or whatever `read` takes: paths, or an iterable of events.
    features : FeatureMap, optional
        How a visitor and an article make an arm; by default the policy's own, else one model an article for
        `DisjointLinUCB`, and outer products where articles have features.
    metrics : iterable of str
        Of "ctr" (always there), "regret" (where the truth is known) and "tracking_error".
    engine : {"auto", "compiled", "python"}
        "python" calls `choose` and `learn` line by line and is the specification; "compiled" makes the same decisions
        (a vocabulary that grows numbers new names by blocks, and what is found by random signs differs a little);
        "auto" is the compiled one where it can be, and `settings["engine_reason"]` of the run says why not.
    delay : int
        A reward is learned so many lines after the choice; what is still out at the end is learned then.
    limit, points
        Lines at most; after how many of them traces are taken, by default more and more apart.
    checkpoint : path, optional
        A file that is written every `every` lines, and from which the same call goes on if it was interrupted. It
        belongs to these policies as they came, these settings and these lines, and is refused for any others.
    seed, progress
        What the `Run` says about itself; a function that is called with the number of lines done.

    Returns
    -------
    Run, or a dict of them
        Ctrl-C ends early, with what was done so far and `partial` set. `settings["leading"]` names the estimate that is
        valid for this log.

    Examples
    --------
    >>> from driftls.logs import synthetic_day
    >>> from driftls.policies import DisjointLinUCB
    >>> run = replay(DisjointLinUCB(136, seed=0), synthetic_day(lines=2000, seed=1), metrics=["regret"])
    >>> run.rounds, 20 < run.settings["evaluations"] < 120, run.settings["leading"]
    (2000, True, 'replay')
    """
    metrics, every = list(dict.fromkeys(("ctr", *metrics))), as_whole(every, "every")
    for name, value, known in (*(("metrics", m, METRICS) for m in metrics), ("engine", engine, ENGINES)):
        if value not in known:
            raise SettingsError(f"{name} must be among {', '.join(known)}, got {value!r}.")
    delay, limit = as_whole(delay, "delay", 0), None if limit is None else as_whole(limit, "limit")
    points = None if points is None else sorted(as_whole(point, "a point") for point in points)
    # What a checkpoint belongs to; not the engine, since all of them decide alike.
    settings = {"metrics": metrics, "delay": delay, "limit": limit, "points": points, "seed": seed}
    policies = dict(policy) if isinstance(policy, Mapping) else {type(policy).__name__: policy}
    if not policies:
        raise SettingsError("no policy to replay.")
    log = log if isinstance(log, Log | SyntheticDay) else read(log)
    blocks = blocks_of(log, truth="regret" in metrics, limit=limit)
    first = next(blocks, None)
    if first is None:
        raise InputError("the log has no line to replay.")
    if "regret" in metrics and first.truth is None:
        raise SettingsError("regret needs a log with the truth: a synthetic day, or Parquet with that column.")
    players = [
        PolicyReplay(name, one, features_for(name, one, features, first), engine) for name, one in policies.items()
    ]
    under_way = Replay(players, settings)
    kept = None if checkpoint is None else Checkpoint(Path(checkpoint), under_way, every)
    step, stop = (under_way.step, lambda done: NEVER) if kept is None else (kept.step, kept.next_stop)
    blocks, partial = chain([first], blocks), False
    try:
        while True:
            before = time.perf_counter()
            block = next(blocks, None)
            under_way.reading += time.perf_counter() - before
            if block is None:
                break
            for piece in under_way.pieces(block, stop):
                step(piece)
                if progress is not None:
                    progress(under_way.done)
        if kept is not None:
            kept.ended()
    except KeyboardInterrupt:
        partial = True
    runs = under_way.runs(_called(log), partial=partial)
    if kept is not None and not partial:
        kept.path.unlink(missing_ok=True)
    return runs if isinstance(policy, Mapping) else next(iter(runs.values()))


def _called(log: Any) -> str:
    paths = getattr(log, "paths", None)
    if paths:
        return f"{log.format} {' '.join(Path(path).name for path in paths)}"
    return repr(log) if isinstance(log, SyntheticDay) else str(log.format)
