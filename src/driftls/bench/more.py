"""What is measured other than round by round from Python, each part in a process of its own, on one thread."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from driftls.bench.run import Options, Result, Tell, one_thread
from driftls.errors import DriftlsError
from driftls.report import Item, Section, Table, number

__all__ = ["MORE", "measure", "sections"]

# the arguments of each part: for a whole run, and for a quick one
MORE: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "day": ({"lines": 1_850_000, "repetitions": 3}, {"lines": 1_850_000, "repetitions": 1, "quick": 1}),
    "reading": ({"lines": 1_850_000, "repetitions": 3}, {"lines": 600_000, "repetitions": 3}),
    "steps": ({"megabytes": 500, "repetitions": 5}, {"megabytes": 200, "repetitions": 3}),
    "across": ({"lines": 60_000, "repetitions": 5}, {"lines": 30_000, "repetitions": 3}),
}


def measure(names: Sequence[str], quick: bool, result: Result, tell: Tell) -> None:
    """Measure these parts, and put what came out into `result.more`."""
    for k, name in enumerate(names):
        tell("more", name, k, len(names))
        command = [sys.executable, "-m", "driftls.bench.more", name, json.dumps(MORE[name][quick])]
        done = subprocess.run(command, capture_output=True, text=True, env=one_thread())
        if done.returncode:
            raise DriftlsError(f"{name} could not be measured: {done.stderr.strip().splitlines()[-1]}")
        result.more[name] = json.loads(done.stdout.splitlines()[-1])
    if names:
        tell("more", "", len(names), len(names))


def main(name: str, arguments: str) -> None:
    """Measure one part, and print it as one line."""
    from driftls.bench import day, steps

    parts: dict[str, Callable[..., Any]] = {"day": day.day, "reading": day.reading}
    parts |= {"steps": steps.steps, "across": steps.across}
    print(json.dumps(parts[name](**json.loads(arguments))))


# -- the page --------------------------------------------------------------------------------------------------------


def sections(result: Result, options: Options | None = None) -> list[Section]:
    """Of what was measured."""
    return [section(result.more[name]) for name, section in SECTIONS.items() if name in result.more]


def _times(value: float | None) -> str:
    return "" if value is None else f"{number(value)}x"


def _day(found: dict[str, Any]) -> Section:
    rows = [
        [
            row["method"],
            f"{row['lines']:,}",
            number(row["us"]),
            "" if row["spread"] is None else f"{row['spread']:.0%}",
            _times(row["ours"]),
            _times(row["crosses"]),
            f"{row['rate']:.2%}",
        ]
        for row in found["rows"]
    ]
    head = ["method", "lines", "µs a line", "spread", "over SAGA", "over crosses", "clicks"]
    note = (
        "From arrays to decisions, with all that a replay counts; ratios are to ours on the same lines; clicks: of the "
        "lines where the method chose what the log shows."
    )
    items: list[Item] = [Table("day", "A whole day, compiled", head, rows, note)]
    text = [
        f"A synthetic day like R6B of {found['lines']:,} lines, some 40 articles to choose from, replayed from memory. "
        "SAGA takes 8 steps a row and has diagonal widths. Exact methods have one model an article."
    ]
    by_name = {row["method"]: row for row in found["rows"]}
    told = "; ".join(f"{name} takes {_times(row['ours'])} as long" for name, row in list(by_name.items())[2:])
    return Section("day", "A whole day in one go", text, items, f"against SAGA with one model an article, {told}.")


def _reading(found: dict[str, Any]) -> Section:
    rows = [[row["step"], number(row["seconds"]), _times(row["ratio"])] for row in found["rows"]]
    note = (
        f"{found['lines']:,} lines, {found['megabytes']:.0f} MB gzipped; our reader inflates with {found['inflate']}."
    )
    items: list[Item] = [Table("reading", "From gzipped text", ["", "s", "over gunzip"], rows, note)]
    last = found["rows"][-1]
    told = f"gzipped text becomes decisions in {_times(last['ratio'])} the time that zlib takes to inflate it."
    return Section("reading", "Reading a log", [], items, told)


def _steps(found: dict[str, Any]) -> Section:
    head = ["d, non-zeros", "reading", "reading ahead", "step, not ahead", "step"]
    head += ["over reading", "over reading ahead", "ahead is worth"]
    rows = [
        [
            f"{row['dim']:,}, {row['nnz']}",
            *(number(row[name]) for name in ("read", "read ahead", "step", "step ahead")),
            _times(row["step ahead"] / row["read"]),
            _times(row["step ahead"] / row["read ahead"]),
            _times(row["step"] / row["step ahead"]),
        ]
        for row in found["rows"]
    ]
    note = (
        "ns a row that is drawn at random. Reading: the row's indices, values and y, and nothing else; ahead: asking "
        "for rows that the draws name next."
    )
    items: list[Item] = [Table("steps", "A SAGA step against reading its row", head, rows, note)]
    text = [f"A lazy sparse step on rows of a history of {found['megabytes']} MB, which no cache holds."]
    first = found["rows"][0]
    told = (
        f"at d = {first['dim']} a step takes {_times(first['step ahead'] / first['read'])} the time of merely reading "
        f"its row, {_times(first['step ahead'] / first['read ahead'])} that of reading which looks ahead as well, and "
        f"looking ahead is worth {_times(first['step'] / first['step ahead'])}."
    )
    return Section("steps", "How near to the floor", text, items, told)


def _across(found: dict[str, Any]) -> Section:
    head = ["widths", "across arms", "arm by arm", "ratio"]
    rows = [[r["widths"], number(r["across"]), number(r["arm by arm"]), _times(r["ratio"])] for r in found["rows"]]
    note = "µs of choosing a line of a day, one model an article."
    items: list[Item] = [Table("across", "Scores across the arms of a pool", head, rows, note)]
    told = ", ".join(f"{_times(row['ratio'])} with {row['widths']} widths" for row in found["rows"])
    return Section("across", "Across arms", [], items, f"scoring across arms is worth {told}.")


SECTIONS: dict[str, Callable[[dict[str, Any]], Section]] = {
    "day": _day,
    "reading": _reading,
    "steps": _steps,
    "across": _across,
}

if __name__ == "__main__":
    main(*sys.argv[1:3])
