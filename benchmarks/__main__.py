"""The one way to measure: `python -m benchmarks NAME [--quick] [--seeds N] [--only PART ...]`.

Without a name it lists what there is. Times are the least of some repetitions that take turns, of the machine as it
is: ratios within one run mean more than they do. What is tuned is tuned on seeds from 10,000 on and reported on the
seeds from 0 on; intervals are 95%, and paired by seed where something is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import BENCHMARKS
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
    made.add_argument("--tune", action="store_true", help="peers: find their settings anew")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the cells there as well")
    return made


def options(given: argparse.Namespace) -> Options:
    return Options(given.quick, given.seeds, tuple(given.only), given.against, given.tune)


def main(arguments: Sequence[str] | None = None) -> None:
    given = parser().parse_args(arguments)
    if given.name is None:
        width = max(map(len, BENCHMARKS))
        print("\n".join(f"{name:<{width}}  {one.about}" for name, one in BENCHMARKS.items()))
        return
    benchmark, begin = BENCHMARKS[given.name], time.perf_counter()
    table = benchmark.run(options(given))
    tell("")
    print(text(benchmark.columns, table))
    print(f"({time.perf_counter() - begin:.0f} s, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)")
    if given.json:
        given.json.write_text(json.dumps({"columns": benchmark.columns, "rows": table.rows, "note": table.note}))


if __name__ == "__main__":
    sys.exit(main())
