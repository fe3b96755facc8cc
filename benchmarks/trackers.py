"""Trackers alone: what a row costs, and how closely the least-squares solution is followed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.measure import Options, Table, across, mean, tell, timed
from driftls import paper
from driftls.logs import synthetic_day
from driftls.trackers import CD, GD, RAW, RLS, SAG, SAGA, SVRG, Diagonal

ROWS: dict[str, Callable[[int], Any]] = {
    "Diagonal": Diagonal,
    "GD": lambda d: GD(d, seed=0, **RAW),
    "SAG": lambda d: SAG(d, seed=0, **RAW),
    "SAGA (8 steps)": lambda d: SAGA(d, seed=0, **RAW),
    "CD (4 steps)": CD,
    "RLS": RLS,
}
SQUARE = ("CD (4 steps)", "RLS")  # keep d x d numbers
# d and non-zeros, None if dense
SHAPES = ((64, None), (1024, None), (16_384, None), (1000, 10), (1_000_000, 10), (1_000_000, 100))


def rows(options: Options) -> Table:
    """Rows of a block that stays in cache: arithmetic alone."""
    rng = np.random.default_rng(0)
    ns: dict[str, dict[Any, float | None]] = {name: dict.fromkeys(SHAPES) for name in ROWS}
    for d, nnz in SHAPES:
        if options.quick and d > 1024:
            continue
        X: Any = rng.normal(size=(64, d)) / np.sqrt(d) if nnz is None else one_hot(rng, 256, d, nnz)
        y = rng.normal(size=X.shape[0])
        names = [name for name in ROWS if name not in SQUARE or d <= 1024]
        tell(f"d = {d:,}, {nnz or 'dense'}")
        trackers = {name: ROWS[name](d).partial_fit(X, y) for name in names}
        found = timed({name: partial(t.partial_fit, X, y) for name, t in trackers.items()}, options.count(9, 3))
        for name, times in found.items():
            ns[name][d, nnz] = 1e9 * times.least / X.shape[0]
    return Table([[name, *each.values()] for name, each in ns.items()], "The least of some repetitions, in turn.")


def one_hot(rng: np.random.Generator, rows: int, dim: int, nnz: int) -> sp.csr_array:
    """One feature of each of nnz ranges."""
    edges = np.arange(nnz) * (dim // nnz)
    columns = edges + rng.integers(0, dim // nnz, size=(rows, nnz))
    return sp.csr_array((np.full(rows * nnz, nnz**-0.5), columns.ravel(), np.arange(rows + 1) * nnz), shape=(rows, dim))


TRACKING: dict[str, Callable[[int], Any]] = {
    "CD": lambda s: CD(136, **RAW),
    "SAGA": lambda s: SAGA(136, seed=s, **RAW),
    "SAGA, 16 steps": lambda s: SAGA(136, steps=16, seed=s, **RAW),
    "SVRG": lambda s: SVRG(136, seed=s, **RAW),
    "SAG": lambda s: SAG(136, seed=s, **RAW),
    "GD": lambda s: GD(136, seed=s, **RAW),
    "fRLS-GD, paper's settings": lambda s: paper.frls_gd(136, seed=s),
    "fRLS-SVRG, paper's settings": lambda s: paper.frls_svrg(136, seed=s),
    "fRLS-SAG, paper's settings": lambda s: paper.frls_sag(136, seed=s),
}


def _errors(seed: int, count: int) -> list[list[float]]:
    """Of each tracker: on rows of norm 1, and on rows as they are."""
    X, y = r6b_rows(count, seed)
    norms = np.sqrt(X.multiply(X).sum(axis=1))
    matrices = sp.csr_array(X.multiply(1 / norms.reshape(-1, 1))), X
    return [[make(seed).partial_fit(X, y).tracking_error().relative for X in matrices] for make in TRACKING.values()]


def tracking(options: Options) -> Table:
    """After rows of a stream of 136 zeros and ones, rank-deficient, with squared norms from 1 to about 33."""
    count, seeds = 2000 if options.quick else 50_000, range(1, options.count(10, 2) + 1)
    tell(f"{len(seeds)} streams of {count:,} rows")
    found = np.array(across(partial(_errors, count=count), seeds))
    rows = [[name, *map(mean, found[:, k].T)] for k, name in enumerate(TRACKING)]
    return Table(rows, f"After {count:,} rows of an R6B-like stream, d = 136, {len(seeds)} seeds; theta = 0 scores 1.")


def r6b_rows(rows: int, seed: int) -> tuple[sp.csr_array, np.ndarray]:
    """The visitors of a synthetic day as sparse rows of 136 zeros and ones, and their clicks."""
    blocks = list(synthetic_day(lines=rows, seed=seed).blocks())
    lengths = np.concatenate([np.diff(block.user_start) for block in blocks])
    columns = np.concatenate([block.user_index for block in blocks])
    X = sp.csr_array((np.ones(columns.size), columns, np.append(0, np.cumsum(lengths))), shape=(rows, 136))
    X.sort_indices()
    return X, np.concatenate([block.reward for block in blocks]).astype(np.float64)
