"""Tables on pages, written by the commands that measure them.

A table stands between two markers, of which the first says how it is measured:

    <!-- table: NAME command: python -m benchmarks day --seeds 5 -->
    <!-- end -->

`docs/tables.json` has for each table when and where it was taken, and digests of the sources that it depends on. A
table is stale when one of them has changed since, whatever happened to comments and docstrings.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import BENCHMARKS, Benchmark
from benchmarks.measure import ROOT, Table, markdown

MARKER = re.compile(r"<!-- table: (?P<name>\S+) command: (?P<command>.*?) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL)
COMMAND = "python -m benchmarks "
WHERE = "docs/tables.json"


class Slot(NamedTuple):
    """A place on a page for a table, and what is there."""

    name: str
    command: str
    body: str
    page: Path

    @property
    def arguments(self) -> list[str]:
        """Of `python -m benchmarks`."""
        if not self.command.startswith(COMMAND):
            raise ValueError(f"{self.page.name}: the command of table {self.name} must start with {COMMAND!r}.")
        return shlex.split(self.command.removeprefix(COMMAND))

    @property
    def benchmark(self) -> Benchmark:
        """By the first argument."""
        return BENCHMARKS[self.arguments[0]]

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the table that is on the page."""
        head = next((line for line in self.body.splitlines() if line.startswith("|")), "||")
        return tuple(cell.strip() for cell in head.strip("|").split("|"))


def pages(root: Path = ROOT) -> list[Path]:
    """All that may have tables."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def slots(root: Path = ROOT) -> Iterator[Slot]:
    """All tables of all pages."""
    for page in pages(root):
        for found in MARKER.finditer(page.read_text()):
            yield Slot(found["name"], found["command"], found["body"], page)


# -- sources ---------------------------------------------------------------------------------------------------------


def sources(benchmark: Benchmark, root: Path = ROOT) -> dict[str, str]:
    """A digest for each source that the figures depend on, the benchmark itself among them."""
    module = benchmark.function.split(":")[0]
    places = {name: f"src/driftls/{name}" for name in dict.fromkeys(benchmark.sources)}
    return {name: _digest(root, place) for name, place in {**places, "benchmark": f"benchmarks/{module}*"}.items()}


def _digest(root: Path, place: str) -> str:
    found = hashlib.sha256()
    for path in _files(root, place):
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + code(path.read_text()).encode() + b"\0")
    return found.hexdigest()[:16]


def _files(root: Path, place: str) -> list[Path]:
    """Python files at or below a path, which may have a star."""
    files = [file for path in root.glob(place) for file in (path.rglob("*.py") if path.is_dir() else [path])]
    if not files:
        raise FileNotFoundError(f"{place}: a benchmark depends on it, and it is not there.")
    return sorted(file for file in files if file.suffix == ".py")


@cache  # many tables depend on the same files
def code(text: str) -> str:
    """Lines of a file without docstrings, texts of errors, blank lines and lines of comment: what it does, not what it says."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        told = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if told or isinstance(node, ast.Raise):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))


# -- stale and written -----------------------------------------------------------------------------------------------


def _taken(root: Path) -> dict[str, Any]:
    path = root / WHERE
    taken: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return taken


def stale(root: Path = ROOT) -> dict[str, str]:
    """The tables that have to be measured, each with the reason."""
    taken, found = _taken(root), {}
    for slot in slots(root):
        before = taken.get(slot.name)
        if before is None:
            found[slot.name] = "was never measured"
        elif before["command"] != slot.command:
            found[slot.name] = f"was measured by `{before['command']}`"
        elif slot.columns != slot.benchmark.columns:
            found[slot.name] = "has other columns than its benchmark"
        else:
            now = sources(slot.benchmark, root)
            changed = [name for name in now if now[name] != before["sources"].get(name)]
            if changed:
                found[slot.name] = f"is of {before['date']}; since then changed: {', '.join(changed)}"
    return found


def write(slot: Slot, table: Table, load: float, root: Path = ROOT) -> None:
    """Put the table on its page, and where it comes from into tables.json."""
    benchmark, commit, date = slot.benchmark, _commit(root), datetime.now(UTC).date().isoformat()
    origin = f"`{slot.command}`, commit {commit}, {date}, load {load:.1f} on {os.cpu_count()} cores."
    replace(slot, f"{markdown(benchmark.columns, table)}\n\n*{f'{table.note} {origin}'.strip()}*\n")
    taken = _taken(root)
    taken[slot.name] = {
        "command": slot.command,
        "commit": commit,
        "date": date,
        "load": round(load, 1),
        "sources": sources(benchmark, root),
    }
    known = {one.name for one in slots(root)}
    kept = {name: taken[name] for name in sorted(taken) if name in known}
    (root / WHERE).write_text(json.dumps(kept, indent=1) + "\n")


def replace(slot: Slot, body: str) -> None:
    """What stands between the markers."""

    def swapped(found: re.Match[str]) -> str:
        if found["name"] != slot.name:
            return found[0]
        return f"<!-- table: {slot.name} command: {slot.command} -->\n{body}<!-- end -->"

    slot.page.write_text(MARKER.sub(swapped, slot.page.read_text()))


def _commit(root: Path) -> str:
    """Short, with a + if files differ from it; "unknown" outside of a repository."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "src", "benchmarks")
    return f"{git('rev-parse', '--short', 'HEAD') or 'unknown'}{'+' if changed else ''}"
