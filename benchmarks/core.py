"""This tree against another one: the same programs in alternating processes, and ratios of their processor time.

    python -m benchmarks core --against OTHER/src [--quick] [--only PART ...] [--seeds N]

`cold`: processor seconds of a process from nothing to the first result, with an empty cache; `again`: the same with
the cache that it left. `loops`, `rounds`, `day`: microseconds once all is compiled, of each tree's own defaults;
`raw-loops`, `raw-rounds`, `raw-day`: of the same model in both, as 0.1 had it (no units, no intercept, all rows kept).
`warmup`: processor seconds of `driftls warmup` with an empty cache, only if it is asked for. Ratios are of the least to
the least; the range is that of the pairs of processes: on a busy machine two equal trees differ by 10% and more, so take
many pairs (--seeds) before you believe a difference. `same` says whether decisions, or theta to nine digits, are equal.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.core_programs import COLD, PARTS, cold
from benchmarks.measure import SOURCE, Options, Table, cell, one_thread, tell

PROGRAMS = Path(__file__).with_name("core_programs.py")
WARMUP = "from driftls.__main__ import main; main()"
Trees = tuple[Path, ...]


def core(options: Options) -> Table:
    trees = _trees(options)
    parts = options.wanted(["cold", "again", *PARTS, "warmup"])
    pairs, rows = options.count(7, 3), []
    if not options.only:
        parts.remove("warmup")
    for name in COLD if "cold" in parts or "again" in parts else ():
        found = [_cold(trees, name) for _ in range(1 if options.quick else min(pairs, 3))]
        for k, part in enumerate(("cold", "again")):
            if part in parts:
                rows.append(_row(f"{part}: {name}", "s", [(pair[0][k], pair[1][k]) for pair in found]))
    for part in (part for part in PARTS if part in parts):
        tell(f"{part}: warming up")
        for tree in trees:  # what is not in the user's cache yet is compiled here
            _warm(tree, part, 1)
        runs = [[_warm(tree, part, 3) for tree in trees] for _ in range(pairs)]
        names = dict.fromkeys(name for pair in runs for side in pair for name in side)
        rows += [
            _compared(f"{part}: {name}", [[side.get(name, {}) for side in pair] for pair in runs]) for name in names
        ]
    if "warmup" in parts:
        rows.append(_row("driftls warmup", "s", [tuple(_seconds(tree, WARMUP, "warmup") for tree in trees)]))
    return Table(rows, f"This tree over {trees[1]}; at most {pairs} pairs of processes, processor time.")


def start(options: Options) -> Table:
    """This tree alone: processor seconds to a first result with an empty cache, and with the one that is left."""
    rows = []
    for name in COLD:
        found = [_cold((SOURCE,), name)[0] for _ in range(options.count(3, 1))]
        rows.append([name, *map(min, zip(*found))])
    with tempfile.TemporaryDirectory(prefix="driftls-cold-") as cache:
        tell("warmup")
        rows.append(["driftls warmup, all parts", *(_seconds(SOURCE, WARMUP, "warmup", cache=cache) for _ in range(2))])
    return Table(rows, "`choose` and `learn` of policies; imports included.")


def _trees(options: Options) -> Trees:
    if options.against is None:
        raise SystemExit("core compares two trees: pass --against with the src folder of the other one.")
    trees = SOURCE, options.against.resolve()
    for tree in trees:
        if not (tree / "driftls" / "__init__.py").exists():
            raise SystemExit(f"{tree} has no driftls in it: pass the src folder of a tree.")
    return trees


def _run(tree: Path, command: list[str], **environment: str) -> tuple[str, float]:
    """What a process printed, and the seconds of processor that it and its children took."""
    made = one_thread(PYTHONPATH=str(tree), PYTHONDONTWRITEBYTECODE="", **environment)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen([sys.executable, "-P", *command], stdout=out, stderr=told, env=made)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        told.seek(0)
        if process.returncode:
            raise RuntimeError(f"{tree}: {(told.read().strip().splitlines() or ['ended without a word'])[-1]}")
        return out.read(), used.ru_utime + used.ru_stime


def _seconds(tree: Path, code: str, *arguments: str, cache: str | None = None) -> float | None:
    """None if this tree cannot run it."""
    with tempfile.TemporaryDirectory(prefix="driftls-cold-") as empty:
        folder = cache or empty
        places = dict.fromkeys(("DRIFTLS_CACHE_DIR", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"), folder)
        try:
            return _run(tree, ["-c", code, *arguments], **places)[1]
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return None


def _cold(trees: Trees, name: str) -> list[tuple[Any, Any]]:
    """Of each tree: seconds with an empty cache, and with the one that is left."""
    found = []
    for tree in trees:
        tell(f"cold: {name}, {tree}")
        with tempfile.TemporaryDirectory(prefix="driftls-cold-") as cache:
            found.append((_seconds(tree, cold(name), cache=cache), _seconds(tree, cold(name), cache=cache)))
    return found


def _warm(tree: Path, part: str, repetitions: int) -> dict[str, Any]:
    tell(f"{part}: {tree}")
    try:
        found: dict[str, Any] = json.loads(_run(tree, [str(PROGRAMS), part, str(repetitions)])[0].splitlines()[-1])
    except RuntimeError as error:  # the other tree still counts
        print(error, file=sys.stderr)
        return {}
    return found


def _compared(name: str, pairs: list[list[dict[str, Any]]]) -> list[Any]:
    for side in pairs[0]:
        if "error" in side:
            print(f"{name}: {side['error']}", file=sys.stderr)
    row = _row(name, "µs", [(ours.get("us"), theirs.get("us")) for ours, theirs in pairs])
    digests = {side.get("digest") for pair in pairs for side in pair}
    return [*row[:-1], "" if None in digests else "yes" if len(digests) == 1 else "no"]


def _row(name: str, unit: str, pairs: list[tuple[Any, ...]]) -> list[Any]:
    """Name, this tree, the other, the ratio, its range over pairs, and a blank for `same`."""
    sides = [[one for one in side if one is not None] for side in zip(*pairs)]
    cells = [f"{cell(min(side))} {unit}" if side else "failed" for side in sides]
    if not all(sides):
        return [name, *cells, None, None, None]
    ratios = sorted(ours / theirs for ours, theirs in pairs if ours is not None and theirs is not None)
    return [name, *cells, min(sides[0]) / min(sides[1]), f"{ratios[0]:.2f} to {ratios[-1]:.2f}", None]
