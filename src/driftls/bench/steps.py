"""Close to what the machine can do: a lazy sparse step against merely reading its row, and scores across arms.

Rows are drawn at random from a history that is larger than any cache, so that reading them is the floor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from driftls.bench.day import DIM, RIDGE, Held
from driftls.kernels import track
from driftls.kernels.compile import kernel
from driftls.kernels.models import Mirror
from driftls.kernels.rows import FAR, NEAR, row_prefetch
from driftls.logs import synthetic_day
from driftls.policies import DisjointLinUCB
from driftls.policies.bandit import NO_MIRROR
from driftls.replay import replay
from driftls.schedules import ridge
from driftls.trackers import SAGA
from driftls.widths import ExactWidth

__all__ = ["across", "steps"]

SHAPES = ((136, 9), (1000, 9), (90_000, 10), (1_000_000, 50))  # d and non-zeros
AHEAD = 8  # rows that the reading looks ahead


@kernel
def read_rows(rows: Any, picks: Any, ahead: int) -> float:
    """All of the drawn rows and nothing else, looking `ahead` as a step does"""
    total = 0.0
    for t in range(picks.size):
        if ahead > 0 and t + 2 * ahead < picks.size:
            row_prefetch(rows, picks[t + 2 * ahead], FAR)
            row_prefetch(rows, picks[t + ahead], NEAR)
        i = picks[t]
        total += rows.y[i]
        for p in range(rows.start[i], rows.stop[i]):
            total += rows.values[p] * rows.indices[p]
    return total


def _least(work: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, float]:
    """Seconds: the least of so many, in turn."""
    least = dict.fromkeys(work, np.inf)
    for _ in range(repetitions):
        for name, one in work.items():
            begin = time.perf_counter()
            one()
            least[name] = min(least[name], time.perf_counter() - begin)
    return least


def steps(megabytes: int, repetitions: int) -> dict[str, Any]:
    """Nanoseconds of a SAGA step on rows in memory, with and without looking ahead, and of reading the same rows."""
    rows = []
    for dim, nnz in SHAPES:
        rng = np.random.default_rng(0)
        held_rows, inner = int(megabytes * 1e6 / (12 * nnz + 32)), 512
        X = _fields(rng, 8192, dim, nnz)
        y = rng.normal(size=8192)
        tracker = SAGA(dim, steps=1, seed=0)
        while len(tracker) < held_rows:
            tracker.partial_fit(X, y)
        # so many steps a row that storing the row does not count
        tracker._plan.knobs[track.STEPS] = tracker.steps = inner
        ahead, block = float(tracker._plan.knobs[track.LOOKAHEAD]), X[:64]
        picks = rng.integers(0, len(tracker), size=64 * inner)
        kept = tracker.history.rows  # type: ignore[union-attr]

        def step(far: float, tracker: SAGA = tracker, block: Any = block, y: Any = y) -> Callable[[], Any]:
            def run() -> None:
                tracker._plan.knobs[track.PREFETCH_FROM] = far
                tracker.partial_fit(block, y[:64])

            return run

        def reading(far: int, kept: Any = kept, picks: Any = picks) -> Callable[[], Any]:
            return lambda: read_rows(kept, picks, far)

        work = {"read": reading(0), "read ahead": reading(AHEAD), "step": step(np.inf), "step ahead": step(0.0)}
        found = {name: 1e9 * seconds / picks.size for name, seconds in _least(work, repetitions + 2).items()}
        rows.append({"dim": dim, "nnz": nnz, "rows": len(tracker), "lookahead": ahead, **found})
    return {"megabytes": megabytes, "rows": rows}


def _fields(rng: np.random.Generator, count: int, dim: int, nnz: int) -> Any:
    """Rows with one feature of each of nnz ranges."""
    edges = np.arange(nnz) * (dim // nnz)
    columns = (edges + rng.integers(0, dim // nnz, size=(count, nnz))).astype(np.int32)
    parts = np.full(count * nnz, nnz**-0.5), columns.ravel(), np.arange(count + 1, dtype=np.int32) * nnz
    return csr_array(parts, shape=(count, dim))


class _ArmByArm(DisjointLinUCB):
    """Without a mirror."""

    def _mirror_for(self, arms: Any, count: int, rounds: int) -> Mirror:
        return NO_MIRROR


def across(lines: int, repetitions: int) -> dict[str, Any]:
    """Microseconds of choosing a line of a day, scored across the arms of a pool and arm by arm."""
    # few lines of a whole day, so that pools last as long as they do there
    blocks = list(synthetic_day(lines=lines * 10, seed=501).blocks(lines))[:1]
    rows = []
    for width in ("diagonal", "exact"):
        times = {"across": np.inf, "arm by arm": np.inf}
        for _ in range(repetitions + 1):
            for name, kind in (("across", DisjointLinUCB), ("arm by arm", _ArmByArm)):
                tracker = SAGA(DIM, regularisation=ridge(RIDGE)) if width == "diagonal" else None
                exact = ExactWidth() if width == "exact" else None
                tracker = tracker or DisjointLinUCB(DIM).tracker  # type: ignore[assignment]
                policy = kind(DIM, tracker=tracker, width=exact, seed=0)
                run = replay(policy, Held(blocks), points=[1])
                times[name] = min(times[name], 1e6 * run.seconds["choose"] / lines)
        rows.append({"widths": width, **times, "ratio": times["arm by arm"] / times["across"]})
    return {"lines": lines, "rows": rows}
