"""What all benchmarks share: options, one timing loop, intervals, processes on one thread, one printer."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
TUNING = 10_000  # the first seed of those on which anything is tuned
THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA", "BLIS", "VECLIB_MAXIMUM")


@dataclass(frozen=True)
class Options:
    """What the command line says: a small run or a whole one, how many seeds, which parts, and the other tree."""

    quick: bool = False
    seeds: int | None = None
    only: tuple[str, ...] = ()
    against: Path | None = None
    tune: bool = False
    long: bool = False

    def count(self, whole: int, quick: int) -> int:
        """The seeds asked for, or so many."""
        return self.seeds or (quick if self.quick else whole)

    def wanted(self, names: Iterable[str]) -> list[str]:
        """Those that `only` names; all if it names none."""
        names = list(names)
        unknown = [name for name in self.only if name not in names]
        if unknown:
            raise SystemExit(f"--only takes any of {', '.join(names)}; got {', '.join(unknown)}.")
        return [name for name in names if not self.only or name in self.only]


@dataclass(frozen=True)
class Table:
    """What a benchmark gives: rows of cells, and a sentence on how they were taken."""

    rows: list[list[Any]] = field(default_factory=list)
    note: str = ""


# -- time ------------------------------------------------------------------------------------------------------------


class Times(NamedTuple):
    """The least of some repetitions in seconds, and how much more the slowest one took."""

    least: float
    spread: float


def timed(work: dict[str, Callable[[], Any]], repetitions: int = 5) -> dict[str, Times]:
    """Each so often, in turns: what disturbs the machine disturbs all of them."""
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repetitions):
        for name, run in work.items():
            begin = time.perf_counter()
            run()
            found[name].append(time.perf_counter() - begin)
    return {name: Times(min(each), max(each) / min(each) - 1.0) for name, each in found.items()}


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Of y against x on logarithmic axes."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def across(work: Callable[..., Any], *jobs: Iterable[Any]) -> list[Any]:
    """`map` over all cores: for what is counted, never for what is timed."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        return list(pool.map(work, *jobs))


def one_thread(**more: str) -> dict[str, str]:
    """The environment of a process in which nothing runs in parallel."""
    return {**os.environ, **{f"{name}_NUM_THREADS": "1" for name in THREADS}, **more}


# -- means over seeds ------------------------------------------------------------------------------------------------


class Mean(NamedTuple):
    """A mean over seeds and half its 95% interval (Student's t)."""

    value: float
    half: float


def mean(values: Iterable[float]) -> Mean:
    from scipy.stats import t

    x = np.asarray(list(values), dtype=float)
    half = t.ppf(0.975, x.size - 1) * x.std(ddof=1) / np.sqrt(x.size) if x.size > 1 else np.inf
    return Mean(float(x.mean()), float(half))


def difference(values: Any, base: Any) -> Mean:
    """Paired by seed."""
    return mean(np.asarray(values) - np.asarray(base))


def ratio(values: Any, base: Any) -> Mean:
    """Mean over mean; the interval is that of the pairs (delta method)."""
    a, b = np.asarray(values, dtype=float), np.asarray(base, dtype=float)
    r = float(a.mean() / b.mean())
    return Mean(r, mean((a - r * b) / abs(b.mean())).half)


# -- what is printed -------------------------------------------------------------------------------------------------


def cell(value: Any) -> str:
    """A number of three figures, a mean with as many as its interval has, or the text that it is."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, Mean):
        places = 0 if value.half >= 10 else 1 if value.half >= 1 else 2 if value.half >= 0.1 else 3
        half = f" ± {value.half:,.{places}f}" if np.isfinite(value.half) else ""
        return f"{value.value:,.{places if half else 2}f}{half}"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def text(columns: Sequence[str], table: Table) -> str:
    """For a terminal: aligned columns, without those in which nothing was measured."""
    rows = [list(columns), *([cell(value) for value in row] for row in table.rows)]
    kept = [k for k, column in enumerate(zip(*rows)) if k == 0 or any(column[1:])]
    rows = [[row[k] for k in kept] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(one.rjust(width) for one, width in zip(row[1:], widths[1:]))])
        for row in rows
    ]
    return "\n".join([*lines, *([table.note] if table.note else [])])


def markdown(columns: Sequence[str], table: Table) -> str:
    """For a page."""
    rows = [columns, ["---"] * len(columns), *([cell(value) for value in row] for row in table.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def tell(what: str) -> None:
    """What is being measured now, on one line of a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{what[:100]}")
        sys.stderr.flush()
