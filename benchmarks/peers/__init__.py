"""Ours, exact methods at their best and other libraries on the same rounds, driven from Python on one thread.

Every player runs in a process of its own, a library in an environment of its own, and all take turns. Arms come in
the format that a library likes best, made outside of the timed part. Ours have no settings; those of exact methods and
libraries are the best of a small grid on other seeds: `python -m benchmarks peers --tune`, kept in tuned.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import SOURCE, TUNING, Options, Table, cell, one_thread, tell
from benchmarks.peers.environments import PEERS, NotInstalled, environment
from benchmarks.peers.players import PLAYERS, Player
from benchmarks.peers.problems import PROBLEMS, Problem

HERE = Path(__file__).parent
TUNED = HERE / "tuned.json"
QUICK = ("dense-16", "dense-136", "sparse-136", "fixed")
Job = dict[str, Any]


class Failed(Exception):
    """A process that gave no result; the message is the reason that is shown."""


def peers(options: Options) -> Table:
    """Microseconds of choosing and learning, and regret as a share of random's where all rounds were played."""
    problems = [name for name in PROBLEMS if name in options.only] or list(QUICK if options.quick else PROBLEMS)
    players = _asked([name for name in options.only if name not in PROBLEMS])
    pythons, skipped = _pythons(players)
    with tempfile.TemporaryDirectory(prefix="driftls-peers-") as folder:
        if options.tune:
            return _tune(problems, players, pythons, Path(folder))
        found = {name: _problem(PROBLEMS[name], players, pythons, options, Path(folder), skipped) for name in problems}
    rows = [[player.label, *(found.get(name, {}).get(player.key) for name in PROBLEMS)] for player in players]
    note = f"{options.count(3, 1)} seeds, the least time of them. " + " ".join(f"{reason}." for reason in skipped)
    return Table([row for row in rows if any(row[1:])], note.strip())


def _asked(names: Sequence[str]) -> list[Player]:
    """A name is a key, a group, or a part of a label; all if there are none."""

    def asked(player: Player, name: str) -> bool:
        return name.lower() in (player.key.lower(), player.group) or name.lower() in player.label.lower()

    for name in names:
        if not any(asked(player, name) for player in PLAYERS.values()):
            some = ", ".join(repr(player.label) for player in list(PLAYERS.values())[::7])
            raise SystemExit(f"--only takes {', '.join(PROBLEMS)} and parts of names such as {some}; got {name!r}.")
    return [player for player in PLAYERS.values() if not names or any(asked(player, name) for name in names)]


def _pythons(players: Sequence[Player]) -> tuple[dict[str, str], list[str]]:
    """The interpreter of each group, and why some libraries have none."""
    pythons, skipped = dict.fromkeys(("ours", "exact"), sys.executable), []
    for group in dict.fromkeys(player.group for player in players if player.group in PEERS):
        tell(f"installing {group}")
        try:
            pythons[group] = environment(PEERS[group])
        except NotInstalled as error:
            skipped.append(str(error))
    return pythons, skipped


def _problem(
    problem: Problem, players: Sequence[Player], pythons: dict[str, str], options: Options, folder: Path, skipped: Any
) -> dict[str, str]:
    """One cell a player."""
    playing = [one for one in players if problem.kind in one.kinds and one.group in pythons and not one.unfit(problem)]
    seconds = (0.2 if options.quick else 1.0) * (3.0 if problem.dim >= 1000 and problem.kind == "dense" else 1.0)
    runs: dict[str, list[Any]] = {player.key: [] for player in playing}
    for seed in range(options.count(3, 1)):
        for player in list(playing):
            tell(f"{problem.name}, seed {seed}: {player.label}")
            job = job_of(problem, seed, folder, settings=tuned(player, problem), seconds=seconds)
            try:
                runs[player.key] += played(player, pythons[player.group], [job], folder)
            except Failed as failed:
                playing.remove(player)
                skipped.append(f"{player.label} failed on {problem.name}: {failed}")
    cells = {}
    for player in playing:
        of = runs[player.key]
        if [one["digest"] for one in of] != [one["digest"] for one in runs[playing[0].key]]:
            skipped.append(f"{player.label} was given other rounds of {problem.name}: its NumPy draws other numbers")
            continue
        time = cell(min(one["choose"] + one["learn"] for one in of))
        whole = all(one["rounds"] == problem.most for one in of)
        cells[player.key] = f"{time} ({np.mean([one['share'] for one in of]):.2g})" if whole else time
    return cells


def job_of(problem: Problem, seed: int, folder: Path, *, settings: Any, seconds: float, file: str | None = None) -> Job:
    """What one process is asked to play."""
    if problem.kind == "articles" and file is None:
        file = str(folder / f"day-{seed}.npz")
        if not Path(file).exists():
            write_day(Path(file), seed, problem.most)
    return {"problem": list(problem), "seed": seed, "file": file, "settings": settings, "seconds": seconds}


def played(player: Player, python: str, jobs: list[Job], folder: Path) -> list[dict[str, Any]]:
    """All jobs in one process, one after the other."""
    path = folder / f"{player.file}-{player.name}.json"
    source = [str(SOURCE)] if player.group == "ours" else []
    path.write_text(json.dumps({"module": player.file, "player": player.name, "folders": source, "jobs": jobs}))
    limit = 300.0 + sum(5.0 * job["seconds"] + 5.0 for job in jobs)  # ours may compile first
    command = [python, "-I", str(HERE / "play.py"), str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=one_thread())
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {limit:.0f} seconds") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"ended with {done.returncode}, without a word"]
        raise Failed(said[-1])
    return [json.loads(line) for line in done.stdout.splitlines()[-len(jobs) :]]


def tuned(player: Player, problem: Problem) -> dict[str, Any]:
    """What `--tune` found on this problem or the nearest one of its kind."""
    on = "dense-1000" if problem.kind == "dense" and problem.dim > 1000 else problem.name
    found = json.loads(TUNED.read_text())
    settings: dict[str, Any] = found.get(player.like or player.key, {}).get(on, player.settings(problem.kind)[0])
    return settings


def _tune(problems: Sequence[str], players: Sequence[Player], pythons: dict[str, str], folder: Path) -> Table:
    """The settings of the grid with the least regret over two other seeds, written to tuned.json."""
    found = json.loads(TUNED.read_text()) if TUNED.exists() else {}
    for problem in (PROBLEMS[name] for name in problems if name != "dense-4000"):
        for player in players:
            if player.like or not player.grid or problem.kind not in player.kinds or player.unfit(problem):
                continue
            tell(f"{problem.name}: {player.label}")
            best = best_of(player, pythons[player.group], problem, folder, range(TUNING, TUNING + 2))
            found.setdefault(player.key, {})[problem.name] = best
            TUNED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return Table(note=f"The settings are in {TUNED.name}.")


def best_of(player: Player, python: str, problem: Problem, folder: Path, seeds: range, files: Any = None) -> Any:
    """The settings of a player's grid that lose least on these seeds."""
    grid = player.settings(problem.kind)
    if len(grid) == 1:
        return grid[0]
    jobs = [
        job_of(problem, seed, folder, settings=settings, seconds=3.0, file=files[seed] if files else None)
        for settings in grid
        for seed in seeds
    ]
    lost = np.reshape([one["share"] for one in played(player, python, jobs, folder)], (len(grid), len(seeds)))
    return grid[int(lost.mean(axis=1).argmin())]


def write_day(path: Path, seed: int, lines: int) -> None:
    """A day of a news front page, thinned to so many lines that articles still come and go as on a full day."""
    from driftls.logs import synthetic_day

    block = next(synthetic_day(lines=lines, seed=seed).blocks(lines, truth=True))
    names = ("pool_start", "pool_ids", "pool", "user_start", "user_index", "user_value", "truth")
    noise = np.random.default_rng([0xDA, seed]).random(lines)
    np.savez(path, noise=noise, **{name: getattr(block, name) for name in names})
