"""All players on all problems: a fresh process for each repetition, one after the other, on one thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import driftls
from driftls.bench.environments import PEERS, NotInstalled, environment
from driftls.bench.players import PLAYERS, Player, baseline, reference
from driftls.bench.problems import PROBLEMS, Problem
from driftls.errors import SettingsError
from driftls.logs import synthetic_day
from driftls.run import interval

__all__ = ["QUICK", "Options", "Result", "chosen", "one_thread", "run", "tune", "write_day"]

HERE = Path(__file__).parent
TUNED = HERE / "tuned.json"
TUNING = 1000  # the first seed of those on which settings are chosen
TUNED_ON = ("dense-16", "dense-136", "dense-1000", "sparse-136", "sparse-100000", "fixed", "articles", "regression")
QUICK = ("dense-16", "dense-136", "dense-1000", "sparse-136", "fixed")
POINTS = [int(digits + "0" * zeros) for zeros in range(5) for digits in ("1", "15", "2", "3", "5", "7")]  # looked at
THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA", "BLIS", "VECLIB_MAXIMUM")
Tell = Callable[[str, str, int, int], None]  # problem, player, runs done, of how many


@dataclass(frozen=True)
class Options:
    """How much: repetitions, then rounds and seconds of one (a player stops at either; large problems take longer)."""

    repetitions: int = 3
    rounds: int = 20_000
    seconds: float = 1.0
    peers: bool = True
    players: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()

    def job(self, problem: Problem, seed: int, day: str | None) -> dict[str, Any]:
        """All of a job that does not depend on the player."""
        seconds = self.seconds * (3.0 if problem.dim >= 1000 and problem.kind == "dense" else 1.0)
        limits = {"rounds": self.rounds, "seconds": seconds, "wall": 2.0 * seconds + 1.0}
        return {"problem": list(problem), "seed": seed, "day": day, "points": POINTS, **limits}


@dataclass
class Result:
    """What came out of a benchmark: one row a player and problem, and who did not play, with the reason.

    `more` holds, by name, what is measured other than round by round from Python.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    load: list[float] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)


def one_thread() -> dict[str, str]:
    """The environment of a process in which nothing runs in parallel."""
    return {**os.environ, **{f"{name}_NUM_THREADS": "1" for name in THREADS}}


class _Failed(Exception):
    """A run that gave no result; the message is the reason that is shown."""


def chosen(names: Sequence[str] | None, quick: bool) -> list[Problem]:
    """The problems of these names, in our order; all if there are none."""
    wanted = list(names or (QUICK if quick else PROBLEMS))
    for name in wanted:
        if name not in PROBLEMS:
            raise SettingsError(f"problems must be among {', '.join(PROBLEMS)}, got {name!r}.")
    return [problem for name, problem in PROBLEMS.items() if name in wanted]


def run(
    problems: Sequence[Problem],
    options: Options,
    *,
    tell: Tell = lambda problem, player, done, of: None,
    done: Callable[[Problem, Result], None] = lambda problem, result: None,
) -> Result:
    """Play; `done` is called after each problem with what there is so far."""
    players, result = _players(options), Result(load=[os.getloadavg()[0]])
    pythons = _pythons(players, result, options, tell)
    with tempfile.TemporaryDirectory(prefix="driftls-bench-") as folder:
        for problem in problems:
            _problem(problem, players, pythons, options, Path(folder), result, tell)
            result.load.append(os.getloadavg()[0])
            done(problem, result)
    return result


def _players(options: Options) -> list[Player]:
    """Those asked for: a name is a key, a group, or a part of a label."""
    names = [name.lower() for name in options.players]

    def asked(player: Player, name: str) -> bool:
        return name in (player.key.lower(), player.group) or name in player.label.lower()

    for name in names:
        if not any(asked(player, name) for player in PLAYERS.values()):
            raise SettingsError(f"players must be parts of names such as {player_names()}; got {name!r}.")
    return [
        player
        for player in PLAYERS.values()
        if (options.peers or player.group not in PEERS) and (not names or any(asked(player, name) for name in names))
    ]


def player_names() -> str:
    """Some, for a message."""
    return ", ".join(repr(player.label) for player in list(PLAYERS.values())[::7])


def _pythons(players: Sequence[Player], result: Result, options: Options, tell: Tell) -> dict[str, str]:
    """Who runs where. Peers are installed before anything is timed."""
    import numba
    import scipy

    own = f"NumPy {np.__version__}, SciPy {scipy.__version__}, Numba {numba.__version__}"
    pythons = dict.fromkeys(("ours", "exact"), sys.executable)
    result.versions["ours and exact"] = f"driftls {driftls.__version__}, {own}"
    groups = list(dict.fromkeys(player.group for player in players if player.group in PEERS))
    for k, group in enumerate(groups):
        tell("install", group, k, len(groups))
        try:
            found = environment(PEERS[group], options.pip)
        except NotInstalled as error:
            gone = [player for player in players if player.group == group]
            result.skipped += [{"player": one.label, "problem": "all", "reason": str(error)} for one in gone]
        else:
            pythons[group], result.versions[group] = found
    if groups:
        tell("install", "", len(groups), len(groups))
    return pythons


def _problem(
    problem: Problem,
    players: Sequence[Player],
    pythons: dict[str, str],
    options: Options,
    folder: Path,
    result: Result,
    tell: Tell,
) -> None:
    playing = []
    for player in players:
        if problem.kind in player.kinds and player.group in pythons:
            if reason := player.unfit(problem):
                result.skipped.append({"player": player.label, "problem": problem.name, "reason": reason})
            else:
                playing.append(player)
    runs: dict[str, list[dict[str, Any]]] = {player.key: [] for player in playing}
    for seed in range(options.repetitions):  # interleaved: what disturbs the machine disturbs all of them
        for k, player in enumerate(list(playing)):
            tell(problem.name, player.label, seed * len(playing) + k, options.repetitions * len(playing))
            job = options.job(problem, seed, day_of(problem, seed, folder, options.rounds))
            if player.key == reference(problem):  # others are held against it: it has to get as far as they do
                job |= {"seconds": 4.0 * job["seconds"], "wall": 4.0 * job["wall"]}
            try:
                one = play(player, pythons[player.group], {**job, "settings": tuned(player, problem)}, folder)
            except _Failed as failed:
                playing.remove(player)
                result.skipped.append({"player": player.label, "problem": problem.name, "reason": str(failed)})
            else:
                runs[player.key].append(one)
    rows = [player for player in playing if _same_rounds(runs[player.key], runs[playing[0].key])]
    for player in playing:
        if player not in rows:
            reason = "was given other rounds: its NumPy draws other numbers"
            result.skipped.append({"player": player.label, "problem": problem.name, "reason": reason})
    result.rows += rows_of(problem, rows, runs)


def _same_rounds(runs: list[dict[str, Any]], others: list[dict[str, Any]]) -> bool:
    return [one["digest"] for one in runs] == [one["digest"] for one in others]


def play(player: Player, python: str, job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One repetition in a process of its own."""
    source = str(Path(driftls.__file__).parent.parent)
    job = {**job, "file": player.file, "player": player.name, "folders": [source] if player.group == "ours" else []}
    path = folder / "job.json"
    path.write_text(json.dumps(job))
    limit = 5.0 * job["wall"] + 300.0  # the first run of ours may compile
    command = [python, "-I", str(HERE / "play.py"), str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=one_thread())
    except subprocess.TimeoutExpired:
        raise _Failed(f"not done after {limit:.0f} seconds") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"ended with {done.returncode}, without a word"]
        raise _Failed(said[-1])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- what came out ---------------------------------------------------------------------------------------------------


def rows_of(problem: Problem, players: Sequence[Player], runs: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row a player: the least time over repetitions, its spread, and reward over the rounds that it got to."""
    base, ours = runs.get(baseline(problem)), runs.get(reference(problem))
    base_time = min(map(_time, base)) if base else None
    return [_row(problem, player, runs[player.key], base_time, ours) for player in players]


def _time(one: dict[str, Any]) -> float:
    return float(one["choose"] + one["learn"])


def _row(problem: Problem, player: Player, runs: Any, base_time: float | None, ours: Any) -> dict[str, Any]:
    times = [_time(one) for one in runs]
    best = runs[int(np.argmin(times))]
    n = min(one["trace"][-1][0] for one in runs)
    share, half = interval([_at(one, n)[1] for one in runs])
    return {
        "problem": problem.name,
        "player": player.key,
        "label": player.label,
        "group": player.group,
        "choose": best["choose"],
        "learn": best["learn"],
        "time": min(times),
        "spread": (max(times) - min(times)) / min(times) if len(runs) > 1 else None,
        "ratio": None if base_time is None else min(times) / base_time,
        "peak": max(one["memory"]["peak"] for one in runs),
        "own": max(one["memory"]["own"] for one in runs),
        "rounds": n,
        "share": share,
        "half": half if len(runs) > 1 else None,
        "reward": float(np.mean([_at(one, n)[2] for one in runs])),
        "ours": _share_at(ours, n),
        "settings": tuned(player, problem),
        "about": best["about"],
        "runs": runs,
    }


def _at(one: dict[str, Any], n: int) -> list[float]:
    return next(point for point in one["trace"] if point[0] == n)


def _share_at(runs: Any, n: int) -> float | None:
    """The regret of ours over the first n rounds, where it got so far."""
    if not runs or any(one["trace"][-1][0] < n for one in runs):
        return None
    return float(np.mean([_at(one, n)[1] for one in runs]))


# -- settings --------------------------------------------------------------------------------------------------------


def tuned(player: Player, problem: Problem) -> dict[str, Any]:
    """The settings found by `driftls bench --tune`, on the problem of this kind that is nearest."""
    on = problem.name
    if problem.kind == "dense":
        on = "dense-16" if problem.dim < 100 else "dense-136" if problem.dim < 1000 else "dense-1000"
    found = json.loads(TUNED.read_text()) if TUNED.exists() else {}
    settings: dict[str, Any] = found.get(player.like or player.key, {}).get(on, player.settings(problem)[0])
    return settings


def tune(problems: Sequence[Problem], options: Options, *, tell: Tell = lambda problem, player, done, of: None) -> Path:
    """Play all settings of all grids on other seeds, and write down the best of each player and problem."""
    players = [player for player in _players(options) if not player.like and player.grid]
    pythons = _pythons(players, Result(), options, tell)
    found = json.loads(TUNED.read_text()) if TUNED.exists() else {}
    with tempfile.TemporaryDirectory(prefix="driftls-tune-") as folder:
        for problem in (problem for problem in problems if problem.name in TUNED_ON):
            able = [one for one in players if problem.kind in one.kinds and not one.unfit(problem)]
            for k, player in enumerate(able):
                tell(problem.name, player.label, k, len(able))
                if player.group in pythons:
                    seeds = 1 if problem.dim >= 1000 else 2  # many arms and rounds of a large problem tell more
                    best = _best(player, pythons[player.group], problem, options, seeds, Path(folder))
                    if best is not None:
                        found.setdefault(player.key, {})[problem.name] = best
                        TUNED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return TUNED


def _best(player: Player, python: str, problem: Problem, options: Options, seeds: int, folder: Path) -> Any:
    """The settings with the least regret over the rounds that all of them got to; None if none can be played."""
    runs = []
    for settings in player.settings(problem):
        for seed in range(TUNING, TUNING + seeds):
            job = options.job(problem, seed, day_of(problem, seed, folder, options.rounds))
            try:
                runs.append((settings, play(player, python, {**job, "settings": settings}, folder)))
            except _Failed:
                return None
    n = min(one["trace"][-1][0] for _, one in runs)
    return min(player.settings(problem), key=lambda wanted: sum(_at(one, n)[1] for s, one in runs if s == wanted))


def day_of(problem: Problem, seed: int, folder: Path, lines: int) -> str | None:
    """The file of a synthetic day for this seed, made once."""
    if problem.kind != "articles":
        return None
    path = folder / f"day-{seed}.npz"
    if not path.exists():
        write_day(path, seed, min(lines, problem.most))
    return str(path)


def write_day(path: Path, seed: int, lines: int) -> None:
    """A day of a news front page, thinned to so many lines that articles still come and go as on a full day."""
    block = next(synthetic_day(lines=lines, seed=seed).blocks(lines, truth=True))
    names = ("pool_start", "pool_ids", "pool", "user_start", "user_index", "user_value", "truth")
    noise = np.random.default_rng([0xDA, seed]).random(lines)
    np.savez(path, noise=noise, **{name: getattr(block, name) for name in names})
