"""Everything that is measured, by name: `python -m benchmarks NAME [--quick]`.

A benchmark is a function of `Options` that gives a `Table`. Its columns are declared here, so that a page can be held
against them without measuring, and so are the files on which its figures depend: when one of them changes, the tables
taken before are stale.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

for library in ("OMP", "OPENBLAS", "MKL"):  # before NumPy is imported: nothing here is measured on two threads
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

from benchmarks.measure import Options, Table  # noqa: E402

CORE = (
    *("compiling", "kernels", "trackers", "policies", "widths.py", "width_base.py", "inputs.py", "stage.py"),
    *("history", "draws.py", "schedules.py", "state.py", "units.py"),
)
LOOPS = (*CORE, "environments.py", "simulation.py")
LOGS = (*CORE, "logs", "features", "log_replay")


@dataclass(frozen=True)
class Benchmark:
    """`function` is "module:name" of this package; `sources` are below src/driftls."""

    about: str
    function: str
    columns: tuple[str, ...]
    sources: tuple[str, ...] = CORE

    def load(self) -> Callable[[Options], Table]:
        """The function, imported now."""
        module, name = self.function.split(":")
        found: Callable[[Options], Table] = getattr(import_module(f"benchmarks.{module}"), name)
        return found

    def run(self, options: Options) -> Table:
        """Measure; a row that does not fit the columns is a mistake of the benchmark."""
        table = self.load()(options)
        for row in table.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.function} gave {len(row)} cells for {len(self.columns)} columns: {row}.")
        return table


BENCHMARKS = {
    "core": Benchmark(
        "this tree against another one, --against OTHER/src: cold starts, loops, rounds, the day",
        "core:core",
        ("program", "this", "other", "ratio", "range", "same"),
        (*LOOPS, *LOGS),
    ),
    "start": Benchmark(
        "the first result of a process, with an empty and with a filled cache",
        "core:start",
        ("first result, processor seconds", "empty cache", "filled cache"),
    ),
    "rows": Benchmark(
        "a row of a tracker in a compiled loop, against d and non-zeros",
        "trackers:rows",
        ("tracker, ns a row", "dense d = 64", "1,024", "16,384", "10 of 1,000", "10 of 1,000,000", "100 of 1,000,000"),
    ),
    "cost": Benchmark(
        "a round of 20 fresh dense arms in a compiled loop, against d",
        "bandits:cost",
        ("policy, µs a round", "d = 64", "256", "1,024", "4,096", "slope from 256"),
        LOOPS,
    ),
    "peers": Benchmark(
        "a round from Python: ours, exact methods at their best, other libraries",
        "peers:peers",
        (
            "µs a round (regret over random's)",
            "dense d = 16", "136", "1,000", "4,000",
            "sparse 15 of 136", "50 of 100,000", "100 fixed arms", "articles", "one row",
        ),
    ),
    "threads": Benchmark(
        "two policies in two threads, against one", "lives:threads", ("", "rounds a second", "over one thread"), LOOPS
    ),
    "lives": Benchmark(
        "long lives: ids that come and go, keys that wait, memory over many rounds",
        "lives:lives",
        ("", "first", "second", "third", "last", "ratio"),
        LOOPS,
    ),
    "day": Benchmark(
        "a day of a front page: clicks and time of ours and of a tuned exact method",
        "day:day",
        ("policy", "clicks in 1,000", "against exact, %", "µs a line", "over exact"),
        LOGS,
    ),
    "paper": Benchmark(
        "the paper's claims, by `driftls reproduce`",
        "paper:claims",
        ("claim", "measured here", "verdict"),
        (*LOGS, "paper", "environments.py"),
    ),
    "reading": Benchmark("a day's log as text and as Parquet", "day:reading", ("", "µs a line", "bytes a line"), LOGS),
    "coverage": Benchmark(
        "how often the 95% interval of a replay has the truth in it",
        "day:coverage",
        ("policy", "logs", "intervals with the truth inside, %", "relative error, %"),
        (*LOGS, "estimates.py"),
    ),
    "estimates": Benchmark(
        "off-policy estimates of fixed policies, on logs whose truth is known",
        "estimates:estimates",
        (
            "log, policy", "recommended", "its relative error, %", "its intervals with the truth inside, %",
            "recommended's RMSE", "ips", "snips", "dm", "dr", "replay",
        ),
        (*LOGS, "estimates.py", "offpolicy.py"),
    ),
    "tables": Benchmark(
        "real tables as bandits: points against exact LinUCB tuned on other seeds",
        "tables:tables",
        (
            "points against exact, tuned",
            "rounds", "exact, tuned, %", "the same, tuned on these units",
            "DisjointLinUCB", "LinUCB over crosses", "Vowpal Wabbit", "river",
        ),
    ),
    "far": Benchmark(
        "share of right arms from dicts whose numbers lie so many spreads from 0",
        "features:far",
        ("right, %", "0", "1", "3", "10", "100", "10,000"),
        (*CORE, "features"),
    ),
    "streams": Benchmark(
        "real tables as regression streams: RMSE over that of exact ridge tuned on other seeds",
        "tables:streams",
        (
            "RMSE over exact ridge's, tuned",
            "rows", "exact ridge, RMSE", "the same, tuned on these units", "predicting the mean",
            "RLS", "SAGA", "CD", "Diagonal", "Vowpal Wabbit", "river",
        ),
    ),
    "fixed": Benchmark(
        "fixed arms, where widths decide: regret against exact LinUCB",
        "bandits:fixed",
        ("policy", "regret", "median", "over exact", "µs a round"),
        LOOPS,
    ),
    "moving": Benchmark(
        "a theta* that moves: regret against exact D-LinUCB",
        "bandits:moving",
        ("theta*", "policy", "regret", "over exact, discounted"),
        LOOPS,
    ),
    "evidence": Benchmark(
        "the evidence rule where the tracker forgets: the ridge that it finds, and what that brings",
        "evidence:evidence",
        ("model", "ridge of the prior", "found, median", "reward, %", "over ridge(1), points"),
    ),
    "forgetting": Benchmark(
        "how fast to forget: streams that stay, wander or jump, and real ones in the order of time",
        "forgetting:forgetting",
        (
            "squared error", "rows", "RLS, no discount",
            "best discount, in hindsight, over it", "rows it remembers for each coefficient", "AutoDiscount, over RLS",
        ),
    ),
    "large": Benchmark(
        "many sparse features, up to a million: what is won, and what a round costs",
        "large:large",
        ("", "d = 1e3, %", "1e3, µs", "1e4, %", "1e4, µs", "1e5, %", "1e5, µs", "1e6, %", "1e6, µs"),
    ),
    "tracking": Benchmark(
        "relative tracking error after rows of an R6B-like stream",
        "trackers:tracking",
        ("tracker", "rows of norm 1", "rows as they are"),
        (*CORE, "logs", "paper*"),
    ),
    "pege": Benchmark(
        "PEGE on the sphere: exact and fast variants",
        "pege:pege",
        ("variant", "regret", "over PEGE", "slope of log R_n, last tenfold"),
        (*CORE, "paper/actions.py", "environments.py", "paper*"),
    ),
    "inputs": Benchmark(
        "single sparse rows from Python: ours, river with dicts, exact by hand",
        "features:inputs",
        ("µs", "driftls", "river SGD, dicts", "exact by hand"),
        (*CORE, "features"),
    ),
    "features": Benchmark(
        "dicts and tables to arms: ours, FeatureHasher, VW's parsing",
        "features:features",
        ("", "µs each", "rows a second", "over ours"),
        ("features",),
    ),
    "histories": Benchmark(
        "what a bounded history costs: streams and bandits ten times as long as the history",
        "histories:histories",
        ("", "all rows", "window", "reservoir"),
    ),
    "workers": Benchmark(
        "what workers bring and what a task costs", "study:workers", ("", "s", "aim"), (*CORE, "study", "parallel.py")
    ),
    "fit": Benchmark(
        "a warm start from Parquet: rows a second and peak memory",
        "study:fit",
        ("policy", "rows", "rows a second", "over reading", "peak, GB"),
        (*LOGS, "fit.py"),
    ),
    "sizes": Benchmark(
        "the wheel, and installations with and without extras",
        "package:sizes",
        ("", "MB", "packages"),
        ("__init__.py", "compiling", "kernels"),
    ),
    "gallery": Benchmark(
        "the picture of the README and the figures of `driftls reproduce --quick`, for docs/gallery.md",
        "package:gallery",
        ("figure",),
        (*LOOPS, *LOGS, "paper", "report"),
    ),
}  # fmt: skip
