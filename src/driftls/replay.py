"""Would this policy have done better on yesterday's traffic? The challenge's rule, over any log.

The policy is asked on every line. Where it chooses what the log shows, the line counts and its reward is learned.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import driftls.policies
from driftls import persistence
from driftls.errors import DimensionError, FileFormatError, InputError, SettingsError
from driftls.features import Crosses, Features, Hashed, OuterProduct, UserFeatures
from driftls.kernels.policy import first_fault
from driftls.kernels.rows import LARGEST, CrossRows
from driftls.logs import SyntheticDay, read
from driftls.logs.events import Block, Event
from driftls.logs.log import Log
from driftls.metrics import Tally, tracking_errors, width_errors
from driftls.policies import DisjointLinUCB
from driftls.policies.bandit import Bandit, new_rounds, timed
from driftls.policies.inputs import part
from driftls.run import Run
from driftls.trackers.inputs import as_block

__all__ = ["METRICS", "replay"]

METRICS = ("ctr", "regret", "tracking_error", "width_error")
ROWS_AT_ONCE = 1 << 16  # arms that are built at a time, where they have to be built
FIRST_MARK = 1000
NEVER = 1 << 40  # the position of no arm


@dataclass
class Player:
    """One policy on its way through the log."""

    name: str
    policy: Any
    features: Features
    engine: str
    reason: str
    tally: Tally = field(default_factory=Tally)
    seconds: dict[str, float] = field(default_factory=lambda: {"choose": 0.0, "learn": 0.0, "shadow": 0.0})
    points: list[int] = field(default_factory=list)
    traces: dict[str, list[float]] = field(default_factory=dict)
    waiting: list[tuple[int, float]] = field(default_factory=list)  # line (which is its key) and reward

    @property
    def disjoint(self) -> bool:
        return isinstance(self.features, UserFeatures)

    # -- the specification ---------------------------------------------------------------------------------------

    def python(self, block: Block, line: int, delay: int) -> NDArray[np.int64]:
        """Choose and learn, line by line."""
        chosen = np.zeros(len(block), np.int64)
        for i, event in enumerate(block):
            self._learn_due(line + i, delay)
            arms, ids = self._arms(event)
            before = time.perf_counter()
            k = chosen[i] = self.policy.choose(arms, **ids)
            self.seconds["choose"] += time.perf_counter() - before
            if k == event.shown:
                self._matched(arms, ids, event, line + i, delay)
        return chosen

    def _arms(self, event: Event) -> tuple[Any, dict[str, Any]]:
        if isinstance(self.features, UserFeatures):
            return self.features.user(event), {"ids": event.arms}
        if isinstance(self.features, Crosses):
            return self.features.crossed(event), {}
        return self.features.arms(event), {}  # no ids: an article has other features for every user

    def _matched(self, arms: Any, ids: dict[str, Any], event: Event, line: int, delay: int) -> None:
        if delay:
            self.policy.remember(line, arms if self.disjoint else arms[[event.shown]], event.arm)
            self.waiting.append((line, event.reward))
            return
        before = time.perf_counter()
        self.policy.learn(arms, event.reward, arm=event.shown, **ids)
        self.seconds["learn"] += time.perf_counter() - before

    def _learn_due(self, line: int, delay: int) -> None:
        """Learn what was chosen `delay` lines before this one, or earlier."""
        before = time.perf_counter()
        while self.waiting and self.waiting[0][0] + delay <= line:
            key, reward = self.waiting.pop(0)
            self.policy.learn(reward=reward, key=key)
        self.seconds["learn"] += time.perf_counter() - before

    # -- the compiled loop ---------------------------------------------------------------------------------------

    def compiled(self, block: Block, line: int, delay: int) -> NDArray[np.int64]:
        """The same in compiled loops, one for each run of lines with the same pool."""
        pool = block.pool
        if not isinstance(self.features, UserFeatures | Crosses):  # arms are rows, and differ in their number alone
            pool = np.diff(block.pool_start)[pool]
        borders = (np.flatnonzero(np.diff(pool)) + 1).tolist()
        runs = zip([0, *borders], [*borders, len(block)])
        return np.concatenate([self._run(block.part(begin, end), line + begin, delay) for begin, end in runs])

    def _run(self, block: Block, line: int, delay: int) -> NDArray[np.int64]:
        size, count = len(block), int(block.pool_start[block.pool[0] + 1] - block.pool_start[block.pool[0]])
        matrix, first = self._matrix(block), np.arange(size) * (1 if self.disjoint else count)
        if not self.disjoint:
            self.policy._first_look(matrix[:count], None)
        kept = self.policy._sparse if self.disjoint else self.policy.tracker._sparse
        sparse = bool(sp.issparse(matrix)) if kept is None else bool(kept)
        rows = self.policy._block(matrix, np.zeros(matrix.shape[0]), sparse)
        if isinstance(rows, CrossRows):  # each visitor is looked at once, not once an article
            users = as_block(matrix.users, np.zeros(size), True, rows.values.dtype)
            code = first_fault(users, matrix.users.shape[1], size)
        else:
            code = first_fault(rows, self.policy.dim, len(rows.y))
        if code:
            raise self.policy._arm_fault(code) if not self.disjoint else self.policy._user_fault(code)
        job = new_rounds(first, np.full(size, NEVER) if delay else block.shown, block.reward[:, None])
        slots, begin = self._slots(matrix, block, count), 0
        while begin < size:
            self._learn_due(line + begin, delay)
            upto = self._until(begin, size, line, delay)
            with timed(job, self.seconds):
                self.policy._play(rows, slots, job, begin, upto)
            job.clock[:] = 0
            if delay:
                for i in begin + np.flatnonzero(job.chosen[begin:upto] == block.shown[begin:upto]):
                    at = int(first[i]) + (0 if self.disjoint else int(block.shown[i]))
                    self.policy.remember(line + int(i), matrix[[at]], block[int(i)].arm)
                    self.waiting.append((line + int(i), float(block.reward[i])))
            begin = upto
        return job.chosen

    def _matrix(self, block: Block) -> Any:
        kind = self.features
        if isinstance(kind, UserFeatures):
            return kind.users(block)
        return kind.crossed(block) if isinstance(kind, Crosses) else kind.rows(block)

    def _until(self, begin: int, end: int, line: int, delay: int) -> int:
        """How far one may go before something has to be learned."""
        if not delay:
            return end
        due = self.waiting[0][0] + delay - line if self.waiting else end
        return max(begin + 1, min(end, due, begin + delay))

    def _slots(self, matrix: Any, block: Block, count: int) -> NDArray[np.int64]:
        if not self.disjoint:
            return self.policy._open_slots(matrix[:count], None)  # type: ignore[no-any-return]
        ids = block.pool_ids[block.pool_start[block.pool[0]] : block.pool_start[block.pool[0] + 1]]
        return self.policy._pool(ids.tolist(), self.policy._user(matrix[[0]]))  # type: ignore[no-any-return]

    # -- what is told --------------------------------------------------------------------------------------------

    def trace(self, metrics: Sequence[str], event: Event) -> None:
        """Note where things stand after the line of this event."""
        before = time.perf_counter()
        self.points.append(self.tally.lines)
        values = {"ctr": self.tally.ctr, "evaluations": float(self.tally.evaluations), "reward": self.tally.reward}
        if "regret" in metrics:
            values["regret"] = self.tally.regret
        if "tracking_error" in metrics:
            values["tracking_error"], values["relative_tracking_error"] = tracking_errors(self.policy)
        if "width_error" in metrics:
            arms, ids = self._arms(event)
            values["width_error"] = width_errors(self.policy, arms, ids.get("ids"))
        for name, value in values.items():
            self.traces.setdefault(name, []).append(value)
        self.seconds["shadow"] += time.perf_counter() - before

    def run(self, problem: str, seed: int, reading: float, partial: bool) -> Run:
        tally = self.tally
        estimates = {"replay": tally.replay, "ips": tally.ips, "snips": tally.snips}
        return Run(
            policy=self.name,
            problem=problem,
            seed=seed,
            rounds=tally.lines,
            points=self.points,
            traces=self.traces,
            seconds={**self.seconds, "read": reading},
            settings={
                "policy": repr(self.policy),
                "features": repr(self.features),
                "engine": self.engine,
                "engine_reason": self.reason,
                "estimates": {name: asdict(value) for name, value in estimates.items() if value is not None},
                "value": tally.value / tally.lines if tally.truths == tally.lines > 0 else None,
                "evaluations": tally.evaluations,
                "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            },
            partial=partial,
        )


def replay(
    policy: Any,
    log: Any,
    *,
    features: Features | None = None,
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
        New, or warm from a file. Each is changed as it learns.
    log
        What `driftls.logs.read` gives, a synthetic day, or whatever `read` takes: paths, or an iterable of events.
    features : Features, optional
        How a visitor and an article make an arm; by default what the policy was saved with, else one model an article
        for `DisjointLinUCB`, and outer products where articles have features. The policy keeps it.
    metrics : iterable of str
        Of "ctr" (always there), "regret" (where the truth is known), "tracking_error" and "width_error".
    engine : {"auto", "compiled", "python"}
        "python" calls `choose` and `learn` line by line and is the specification; "compiled" makes the same decisions;
        "auto" is the compiled one where it can be, and `settings["engine_reason"]` of the run says why not.
    delay : int
        A reward is learned so many lines after the choice; what is still out at the end is learned then.
    limit : int, optional
        Lines at most.
    points : sequence of int, optional
        After how many lines traces are taken; by default more and more apart.
    seed : int
        What the `Run` says about itself; the randomness is the policy's own.
    checkpoint : path, optional
        A file that is written every `every` lines, and from which the same call goes on if it was interrupted.
    progress : function, optional
        Called with the number of lines done.

    Returns
    -------
    Run, or a dict of them
        Ctrl-C ends early, with what was done so far and `partial` set.

    Examples
    --------
    >>> from driftls.logs import synthetic_day
    >>> from driftls.policies import DisjointLinUCB
    >>> run = replay(DisjointLinUCB(136, seed=0), synthetic_day(lines=2000, seed=1), metrics=["regret"])
    >>> run.rounds, 20 < run.settings["evaluations"] < 120
    (2000, True)
    """
    metrics = tuple(dict.fromkeys(("ctr", *metrics)))
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise SettingsError(f"metrics must be among {', '.join(METRICS)}, got {unknown[0]!r}.")
    if engine not in ("auto", "compiled", "python"):
        raise SettingsError(f"engine must be 'auto', 'compiled' or 'python', got {engine!r}.")
    if delay < 0 or every < 1 or (limit is not None and limit < 1):
        raise SettingsError(f"delay must be at least 0, every and limit at least 1, got {delay}, {every}, {limit}.")
    log = log if isinstance(log, Log | SyntheticDay) else read(log)
    policies = dict(policy) if isinstance(policy, Mapping) else {type(policy).__name__: policy}
    if not policies:
        raise SettingsError("no policy to replay.")
    blocks = log.blocks(truth="regret" in metrics) if isinstance(log, SyntheticDay) else log.blocks()
    blocks, first = _peek(blocks)
    players = [_player(name, one, features, engine, first) for name, one in policies.items()]
    path = None if checkpoint is None else Path(checkpoint)
    done = _resume(path, players) if path is not None and path.exists() else 0
    after = _marks(points)
    reading, partial, event = 0.0, False, None
    try:
        pieces = _cut(blocks, players, done, limit, after, every if path is not None else 0)
        while True:
            before = time.perf_counter()
            block = next(pieces, None)
            reading += time.perf_counter() - before
            if block is None:
                break
            if "regret" in metrics and block.truth is None:
                raise SettingsError("regret needs a log with the truth: a synthetic day, or Parquet with that column.")
            wrong = np.flatnonzero(~(np.abs(block.reward) < LARGEST))
            if wrong.size:
                line, reward = done + int(wrong[0]), block.reward[wrong[0]]
                raise InputError(f"line {line}: a reward must be finite (and below 1e75), got {reward}.")
            mark = after(done)
            for player in players:
                player.tally.add(block, getattr(player, player.engine)(block, done, delay))
            done, event = done + len(block), block[-1]
            if done == mark:
                for player in players:
                    player.trace(metrics, event)
            if path is not None and done % every == 0:
                _save(path, players, done)
            if progress is not None:
                progress(done)
    except KeyboardInterrupt:
        partial = True
    for player in players:
        if not partial:
            player._learn_due(done + delay, delay)
        if event is not None and (not player.points or player.points[-1] != player.tally.lines):
            player.trace(metrics, event)
    runs = {player.name: player.run(_called(log), seed, reading, partial) for player in players}
    if path is not None and not partial:
        path.unlink(missing_ok=True)
    return runs if isinstance(policy, Mapping) else next(iter(runs.values()))


def _player(name: str, policy: Any, features: Features | None, engine: str, first: Block) -> Player:
    """A policy with the features and the engine that suit it, or the reason why it cannot be replayed."""
    features = features or getattr(policy, "features", None)
    if features is None:
        if isinstance(policy, DisjointLinUCB):
            features = UserFeatures(policy.dim)
        elif first.arm_features is not None and policy.dim % first.arm_features.shape[1] == 0:
            arm_dim = first.arm_features.shape[1]
            features = OuterProduct(policy.dim // arm_dim, arm_dim)
        else:
            raise SettingsError(
                f"{name}: which features make an arm of a visitor and an article? Pass features=, for example "
                "Crosses(user_dim=136, articles=200), or use a DisjointLinUCB, which has one model an article."
            )
    if isinstance(policy, DisjointLinUCB) != isinstance(features, UserFeatures):
        raise SettingsError(f"{name}: UserFeatures and DisjointLinUCB, with one model an article, belong together.")
    if features.dim != policy.dim:
        raise DimensionError(f"{name}: the features have dim={features.dim}, but the policy has dim={policy.dim}.")
    reason = "" if isinstance(policy, Bandit) else f"a {type(policy).__name__} has no compiled loop"
    if reason and engine == "compiled":
        raise SettingsError(f'{name}: {reason}. Pass engine="python".')
    if isinstance(policy, Bandit):
        policy.features = features
    return Player(name, policy, features, "python" if reason or engine == "python" else "compiled", reason)


def _peek(blocks: Iterator[Block]) -> tuple[Iterator[Block], Block]:
    first = next(blocks, None)
    if first is None:
        raise InputError("the log has no line to replay.")
    return chain([first], blocks), first


def _marks(points: Sequence[int] | None) -> Callable[[int], int]:
    """The next number of lines, after so many, at which traces are taken."""
    if points is not None:
        chosen = sorted(points)
        return lambda done: next((point for point in chosen if point > done), NEVER)

    def after(done: int) -> int:
        mark = FIRST_MARK
        while mark <= done:
            mark = mark * 6 // 5
        return mark

    return after


def _cut(
    blocks: Iterator[Block],
    players: list[Player],
    done: int,
    limit: int | None,
    after: Callable[[int], int],
    every: int,
) -> Iterator[Block]:
    """The lines from number `done` on, in pieces that end where something has to be noted."""
    begin = 0
    rows = (OuterProduct, Hashed)  # of which a matrix is built
    built = any(player.engine == "compiled" and isinstance(player.features, rows) for player in players)
    for block in blocks:
        at, size = max(0, done - begin), len(block)
        most = max(1, ROWS_AT_ONCE // int(np.diff(block.pool_start).max())) if built else size
        while at < size:
            line = begin + at
            room = min(size - at, most, after(line) - line, (limit or NEVER) - line)
            if room <= 0:
                return
            if every:
                room = min(room, every - line % every)
            yield block.part(at, at + room)
            at += room
        begin += size


def _save(path: Path, players: list[Player], done: int) -> None:
    header: dict[str, Any] = {"class": "Replay", "lines": done, "players": []}
    arrays: dict[str, Any] = {}
    for number, player in enumerate(players):
        kept, parts = player.policy.snapshot()
        state = {name: getattr(player, name) for name in ("name", "seconds", "points", "traces", "waiting")}
        header["players"].append({**state, "tally": asdict(player.tally), "policy": kept})
        arrays |= {f"{number}.{name}": array for name, array in parts.items()}
    persistence.write(path, header, arrays)


def _resume(path: Path, players: list[Player]) -> int:
    """Every player goes on where the file says; returns how many lines are done."""
    header, arrays = persistence.read(path)
    if header.get("class") != "Replay":
        raise FileFormatError(f"{path}: holds a {header.get('class')}, not the checkpoint of a replay.")
    if [kept["name"] for kept in header["players"]] != [player.name for player in players]:
        raise SettingsError(f"{path}: the checkpoint of a replay of other policies. Delete it, or choose another path.")
    for number, (player, kept) in enumerate(zip(players, header["players"])):
        saved = getattr(driftls.policies, kept["policy"]["class"]).from_snapshot(
            kept["policy"], part(arrays, f"{number}.")
        )
        player.policy.__dict__ = saved.__dict__  # the caller's own policy goes on
        player.features = player.policy.features
        player.tally = Tally(**kept["tally"])
        player.waiting = [(int(line), float(reward)) for line, reward in kept["waiting"]]
        player.seconds, player.points, player.traces = kept["seconds"], kept["points"], kept["traces"]
    return int(header["lines"])


def _called(log: Log) -> str:
    paths = getattr(log, "paths", None)
    return f"{log.format} {' '.join(Path(path).name for path in paths)}" if paths else repr(log)


class _Callable(ModuleType):
    """`from driftls import replay` gives this module, which is called as its one function."""

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        return replay(*arguments, **settings)


sys.modules[__name__].__class__ = _Callable
