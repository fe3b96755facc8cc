"""The one way to measure: `python -m benchmarks NAME [--quick] [--seeds N] [--only PART ...]`.

Without a name it lists what there is. `--stale` names the tables of the pages whose sources have changed since they
were taken; `--write` measures those anew, each by the command in its marker, or with NAME that one.

Times are the least of some repetitions that take turns, of the machine as it is: ratios within one run mean more than
they do. What is tuned is tuned on seeds from 10,000 on and reported on the seeds from 0 on; intervals are 95%, and
paired by seed where something is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import BENCHMARKS, figures
from benchmarks.measure import Options, tell, text


def parser() -> argparse.ArgumentParser:
    """Of the command line, which is also that of a table's marker on a page."""
    made = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("name", nargs="?", choices=list(BENCHMARKS), metavar="NAME", help="what to measure")
    made.add_argument("--quick", action="store_true", help="few rounds, few seeds: does it run?")
    made.add_argument("--seeds", type=int, help="how many are reported, or repetitions of what is timed")
    made.add_argument("--only", nargs="+", default=(), metavar="PART", help="these parts of it alone")
    made.add_argument("--against", type=Path, metavar="SRC", help="core: the src folder of another tree")
    made.add_argument("--tune", action="store_true", help="day, peers: find settings anew")
    made.add_argument("--long", action="store_true", help="lives: ten times as many rounds")
    made.add_argument("--stale", action="store_true", help="name the tables to measure anew; exit 1 if there are any")
    made.add_argument("--write", action="store_true", help="measure them, or those of NAME, and write their pages")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the cells there as well")
    return made


def options(given: argparse.Namespace) -> Options:
    return Options(given.quick, given.seeds, tuple(given.only), given.against, given.tune, given.long)


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    if given.stale:
        found = figures.stale()
        print("\n".join(f"{name} {reason}." for name, reason in found.items()) or "All tables are of this code.")
        return 1 if found else 0
    if given.write:
        return write(given)
    if given.name is None:
        width = max(map(len, BENCHMARKS))
        print("\n".join(f"{name:<{width}}  {one.about}" for name, one in BENCHMARKS.items()))
        return 0
    benchmark, begin = BENCHMARKS[given.name], time.perf_counter()
    table = benchmark.run(options(given))
    tell("")
    print(text(benchmark.columns, table))
    print(f"({time.perf_counter() - begin:.0f} s, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)")
    if given.json:
        given.json.write_text(json.dumps({"columns": benchmark.columns, "rows": table.rows, "note": table.note}))
    return 0


def write(given: argparse.Namespace) -> int:
    """Tables one after the other; each is on its page as soon as it is measured."""
    if given.quick or given.seeds or given.only:
        raise SystemExit("a table on a page is measured by the command in its marker: change that one.")
    found = figures.stale()
    for slot in list(figures.slots()):
        if given.name == slot.arguments[0] or (given.name is None and slot.name in found):
            print(f"{slot.name}: {slot.command}", flush=True)
            load = os.getloadavg()[0]
            table = slot.benchmark.run(options(parser().parse_args(slot.arguments)))
            tell("")
            figures.write(slot, table, load)
    return 0


if __name__ == "__main__":
    sys.exit(main())
