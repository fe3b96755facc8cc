"""The one loop for all players: `python -I play.py JOBS`, in whichever environment the player lives.

Must run without driftls, hence the imports by path. JOBS is a JSON object: module and name of the player, folders to
import from, and jobs of problem (its fields), seed, file, settings and seconds. One line of JSON for each comes out.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import zlib
from pathlib import Path
from time import perf_counter, perf_counter_ns
from types import ModuleType
from typing import Any

import numpy as np

CHECKED = 2  # rounds whose digest says that all were given the same; the slowest player gets to so many


def load(path: Path) -> ModuleType:
    """A module by its path, under a name that no package has."""
    name = f"benchmark_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def digest(before: int, given: Any) -> int:
    """Of what a player is shown, to the bit."""
    for part in (given.arms, given.user):
        if isinstance(part, np.ndarray):
            before = zlib.crc32(part.tobytes(), before)
        elif part is not None:
            before = zlib.crc32(part.data.tobytes(), zlib.crc32(part.indices.astype(np.int64).tobytes(), before))
    return zlib.crc32(repr(given.noise).encode(), before)


def play(job: dict[str, Any], problems: ModuleType, make: Any) -> dict[str, Any]:
    """Play until the rounds, the timed seconds or twice those on the wall are used up."""
    problem = problems.Problem(*job["problem"])
    regression = problem.kind == "regression"
    player = make(problem, job["seed"], **job["settings"])
    begin, spent, lost, random, gained, late, crc = perf_counter(), 0, 0.0, 0.0, 0.0, 0.0, 0
    chosen: list[int] = []
    learned: list[int] = []
    for n, each in enumerate(problems.rounds(problem, job["seed"], job["file"]), 1):
        if n > problem.most or spent > 1e9 * job["seconds"] or perf_counter() - begin > 2.0 * job["seconds"] + 1.0:
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
        if n <= 2:  # which may compile
            begin = perf_counter()
        else:
            spent += chosen[-1] + learned[-1]
        mean = float(each.means[k])
        if regression:
            error = (float(answer) - mean) ** 2
            lost, random, late = lost + error, random + mean * mean, late + error * (n > problem.most // 2)
        else:
            best = float(each.means.max())
            lost, random, gained = lost + best - mean, random + best - float(each.means.mean()), gained + mean
    count = len(chosen)
    found = {"rounds": count, "digest": crc, "choose": later(chosen), "learn": later(learned)}
    late /= max(count - problem.most // 2, 1)  # the mean squared error of the later half
    return found | {"share": lost / random, "late": late, "reward": gained / count}


def later(nanoseconds: list[int]) -> float:
    """Microseconds a round: the mean over the later half, where compilers are done and states have grown.

    A mean, since some methods do in one round what they save in many others; the least over repetitions is taken
    against noise.
    """
    return float(np.mean(nanoseconds[len(nanoseconds) // 2 :])) / 1e3


def main(path: str) -> None:
    """Play the jobs of this file, and print what came out of each."""
    given = json.loads(Path(path).read_text())
    sys.path[:0] = given["folders"]
    here = Path(__file__).resolve().parent
    problems = load(here / "problems.py")
    make = load(here / f"{given['module']}.py").PLAYERS[given["player"]]
    for job in given["jobs"]:
        print(json.dumps(play(job, problems, make)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
