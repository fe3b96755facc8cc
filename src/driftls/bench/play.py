"""The one loop for all players: `python -I play.py JOB`, in whichever environment the player lives.

Must run without driftls, hence the imports by path. JOB is a JSON object: problem (its fields), seed, day, file and
class of the player, settings, rounds, seconds, wall, points, and the folders to import from. The result is one line.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import sys
import zlib
from itertools import chain
from pathlib import Path
from time import perf_counter, perf_counter_ns
from types import ModuleType
from typing import Any

import numpy as np

__all__ = ["main", "play"]

CHECKED = 2  # rounds whose digest says that all were given the same; the slowest player gets to so many


def load(path: Path) -> ModuleType:
    """A module by its path, under a name that no package has."""
    name = f"bench_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def memory() -> tuple[int, int]:
    """What this process has now, and the most that it ever had, in bytes."""
    now = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return now, max(now, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def digest(before: int, given: Any) -> int:
    """Of what a player is shown, to the bit."""
    for part in (given.arms, given.user):
        if isinstance(part, np.ndarray):
            before = zlib.crc32(part.tobytes(), before)
        elif part is not None:
            before = zlib.crc32(part.data.tobytes(), zlib.crc32(part.indices.astype(np.int64).tobytes(), before))
    return zlib.crc32(repr(given.noise).encode(), before)


def play(job: dict[str, Any], problems: ModuleType, make: Any) -> dict[str, Any]:
    """Play until the rounds, the timed seconds or the seconds on the wall are used up."""
    problem = problems.Problem(*job["problem"])
    given = problems.rounds(problem, job["seed"], job.get("day"))
    given = chain([next(given)], given)
    regression, after_imports = problem.kind == "regression", memory()
    player = make(problem, job["seed"], **job["settings"])
    begin, spent, lost, random, gained, crc = perf_counter(), 0, 0.0, 0.0, 0.0, 0
    chosen, learned, trace = [], [], []
    points = set(job["points"])
    for n, each in enumerate(given, 1):
        if n > min(job["rounds"], problem.most) or spent > 1e9 * job["seconds"] or perf_counter() - begin > job["wall"]:
            break
        crc = digest(crc, each) if n <= CHECKED else crc
        arms = player.prepare(each)
        at = perf_counter_ns()
        answer = player.choose(arms)
        between = perf_counter_ns()
        k = 0 if regression else int(answer)
        reward = each.reward(k)
        then = perf_counter_ns()
        player.learn(arms, k, reward)
        end = perf_counter_ns()
        chosen.append(between - at)
        learned.append(end - then)
        if n == 1:  # which may compile
            begin = perf_counter()
        else:
            spent += chosen[-1] + learned[-1]
        mean = float(each.means[k])
        if regression:
            lost, random = lost + (float(answer) - mean) ** 2, random + mean * mean
        else:
            best = float(each.means.max())
            lost, random, gained = lost + best - mean, random + best - float(each.means.mean()), gained + mean
        if n in points:
            trace.append([n, lost / random, gained / n])
    at_end = memory()
    return {
        "rounds": len(chosen),
        "choose": later(chosen),
        "learn": later(learned),
        "trace": trace,
        "digest": crc,
        # imports may have peaked higher than all that followed: then what is held at the end tells
        "memory": {"peak": at_end[1], "own": max(end - start for start, end in zip(after_imports, at_end))},
        "about": getattr(player, "about", ""),
    }


def later(nanoseconds: list[int]) -> float:
    """Microseconds a round: the mean over the later half, where compilers are done and states have grown.

    A mean, since some methods do in one round what they save in many others; the least over repetitions is taken
    against noise.
    """
    return float(np.mean(nanoseconds[len(nanoseconds) // 2 :])) / 1e3


def main(path: str) -> None:
    """Play the job of this file, and print what came out of it."""
    job = json.loads(Path(path).read_text())
    sys.path[:0] = job["folders"]
    here = Path(__file__).resolve().parent
    problems = load(here / "problems.py")
    players = load(here / "players" / f"{job['file']}.py")
    make = players.PLAYERS[job["player"]]
    if hasattr(make, "load"):  # imports are not the player's memory
        make.load()
    print(json.dumps(play(job, problems, make)))


if __name__ == "__main__":
    main(sys.argv[1])
