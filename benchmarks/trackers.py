"""What a row costs, and how closely it is followed: the figures of docs/benchmarks.md.

    python -m benchmarks.trackers [scaling] [memory] [python] [tracking]

Every time is the least of several repetitions, interleaved with its baseline; only ratios within one run mean
anything. River is needed for `python` (make bench installs it).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from driftls import paper
from driftls.kernels import track
from driftls.kernels.compile import kernel
from driftls.kernels.rows import FAR, row_prefetch
from driftls.logs import synthetic_day
from driftls.run import interval
from driftls.trackers import CD, GD, SAG, SAGA, SVRG, Diagonal

RESULTS = Path(__file__).parent / "results"


def best(work: dict[str, Callable[[], None]], repeats: int = 5) -> dict[str, float]:
    """The least time of each, taken in turns."""
    found = dict.fromkeys(work, np.inf)
    for _ in range(repeats):
        for name, run in work.items():
            before = time.perf_counter()
            run()
            found[name] = min(found[name], time.perf_counter() - before)
    return found


def slope(xs: list[float], ys: list[float]) -> float:
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def scaling() -> dict:
    """Nanoseconds a row against d (dense), and against d and nnz (sparse). Rows are in cache: arithmetic alone."""
    rng = np.random.default_rng(0)
    makers = {
        "GD": lambda d: paper.frls_gd(d, seed=0),
        "SAG": lambda d: SAG(d, seed=0),
        "SAGA": lambda d: SAGA(d, seed=0),
    }
    dims = [16, 64, 256, 1024, 4096, 16384]
    dense: dict[str, list[float]] = {name: [] for name in makers}
    for d in dims:
        X = rng.normal(size=(64, d)) / np.sqrt(d)
        y = X @ rng.normal(size=d)
        trackers = {name: make(d).partial_fit(X, y) for name, make in makers.items()}
        times = best({name: lambda t=t: [t.partial_fit(X, y) for _ in range(4)] for name, t in trackers.items()})
        for name in makers:
            dense[name].append(times[name] / 256 * 1e9)
    print("\ndense, ns a row" + "".join(f"{d:>10}" for d in dims) + "   slope (from 256)")
    for name, row in dense.items():
        print(f"{name:>15}" + "".join(f"{ns:10.0f}" for ns in row) + f"   {slope(dims[2:], row[2:]):.2f}")
    sparse: dict[str, dict[str, list[float]]] = {name: {} for name in makers}
    sizes = [1_000, 10_000, 100_000, 1_000_000]
    for nnz in (10, 30, 100):
        for d in sizes:
            X = one_hot_rows(rng, 256, d, nnz)
            y = rng.normal(size=256)
            trackers = {name: make(d).partial_fit(X, y) for name, make in makers.items()}
            times = best({name: lambda t=t: t.partial_fit(X, y) for name, t in trackers.items()})
            for name in makers:
                sparse[name].setdefault(str(nnz), []).append(times[name] / 256 * 1e9)
    print("\nsparse, ns a row, d = " + ", ".join(map(str, sizes)))
    for name, by_nnz in sparse.items():
        for nnz, row in by_nnz.items():
            print(f"{name:>15} nnz={nnz:<4}" + "".join(f"{ns:10.0f}" for ns in row))
    return {"dims": dims, "dense_ns": dense, "sparse_dims": sizes, "sparse_ns": sparse,
            "dense_slope_from_256": {name: slope(dims[2:], row[2:]) for name, row in dense.items()}}  # fmt: skip


def one_hot_rows(rng: np.random.Generator, rows: int, dim: int, nnz: int) -> sp.csr_array:
    edges = np.arange(nnz) * (dim // nnz)
    columns = edges + rng.integers(0, dim // nnz, size=(rows, nnz))
    return sp.csr_array((np.full(rows * nnz, nnz**-0.5), columns.ravel(), np.arange(rows + 1) * nnz), shape=(rows, dim))


@kernel
def read_rows(rows, picks, ahead, out):
    """Merely read the drawn rows, with the same look ahead."""
    total = 0.0
    for t in range(picks.size):
        if ahead > 0 and t + ahead < picks.size:
            row_prefetch(rows, picks[t + ahead], FAR)
        x = rows.X[picks[t]]
        for j in range(x.size):
            total += x[j]
    out[0] = total


def memory() -> dict:
    """An inner step of GD on rows that lie in DRAM, against merely reading the same number of random rows."""
    rng = np.random.default_rng(0)
    found = {}
    for d in (136, 1000):
        rows, steps = int(512e6 / (8 * d)), 512  # so many steps a row that storing it does not count
        X = rng.normal(size=(4096, d)) / np.sqrt(d)
        y = X @ rng.normal(size=d)
        tracker = GD(d, averaging=None, steps=1, seed=0)
        while len(tracker) < rows:
            tracker.partial_fit(X, y)
        tracker._plan.knobs[track.STEPS] = tracker.steps = steps
        block = X[: 32768 // steps]
        picks = rng.integers(0, rows, size=len(block) * steps)
        kept = tracker.history.rows
        out = np.zeros(1)

        def step(ahead: int, tracker=tracker, block=block) -> Callable[[], None]:
            def run() -> None:
                tracker._plan.knobs[track.PREFETCH_FROM] = 0 if ahead else np.inf
                tracker._plan.knobs[track.LOOKAHEAD] = max(ahead, 1)
                tracker.partial_fit(block, y[: len(block)])

            return run

        work = {"read": lambda k=kept, p=picks, o=out: read_rows(k, p, 0, o),
                "read, prefetched": lambda k=kept, p=picks, o=out: read_rows(k, p, 4, o),
                "step": step(0), "step, prefetched": step(2)}  # fmt: skip
        times = best(work, repeats=9)
        ns = {name: seconds / picks.size * 1e9 for name, seconds in times.items()}
        floor = min(ns["read"], ns["read, prefetched"])
        ratio = {name: value / floor for name, value in ns.items()}
        print(f"\nd = {d}, history of {rows * d * 8 / 1e6:.0f} MB: ns a drawn row (ratio to the fastest reading)")
        for name in work:
            print(f"{name:>20} {ns[name]:8.0f}  {ratio[name]:.2f}x")
        print(f"prefetching is worth {ns['step'] / ns['step, prefetched']:.2f}x")
        found[str(d)] = {"ns": ns, "ratio_to_fastest_reading": ratio, "prefetch": ns["step"] / ns["step, prefetched"]}
    return found


def python() -> dict:
    """One row at a time from Python, d = 136, against the one-row updates of River and scikit-learn."""
    from river import linear_model
    from sklearn.linear_model import SGDRegressor

    d, n = 136, 2000
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) / np.sqrt(d)
    y = (X @ rng.normal(size=d)).tolist()
    rows = list(X)
    dicts = [{j: float(value) for j, value in enumerate(x)} for x in X]
    river, scikit = linear_model.LinearRegression(), SGDRegressor()
    scikit.partial_fit(X[:1], y[:1])
    trackers = {
        "fRLS-GD": paper.frls_gd(d, seed=0),
        "SAGA (8 steps)": SAGA(d, seed=0),
        "Diagonal": Diagonal(d),
        "CD": CD(d),
    }
    for tracker in trackers.values():
        tracker.update(rows[0], y[0])

    def updates(tracker) -> Callable[[], None]:
        def run() -> None:
            update = tracker.update
            for x, reward in zip(rows, y):
                update(x, reward)

        return run

    def river_run() -> None:
        for x, reward in zip(dicts, y):
            river.learn_one(x, reward)

    def scikit_run() -> None:
        for i in range(0, n, 10):
            scikit.partial_fit(X[i : i + 1], y[i : i + 1])

    times = best({**{name: updates(t) for name, t in trackers.items()}, "river": river_run, "scikit": scikit_run})
    us = {name: seconds / n * 1e6 for name, seconds in times.items()}
    us["scikit"] *= 10
    print("\none row from Python, d = 136: us, times faster than River's learn_one, scikit-learn's partial_fit")
    for name, value in us.items():
        print(f"{name:>15} {value:8.2f} {us['river'] / value:8.1f}x {us['scikit'] / value:8.1f}x")
    return {"us": us}


def tracking(rows: int = 50_000, seeds: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)) -> dict:
    """Relative tracking error after so many rows of the R6B-like stream (d = 136, rank-deficient).

    Rows are scaled to norm 1, as (A2) asks, and left as they are (zeros and ones, squared norms from 1 to about 33).
    """
    makers = {
        "fRLS-GD (paper)": lambda s: paper.frls_gd(136, seed=s),
        "fRLS-SVRG (paper)": lambda s: paper.frls_svrg(136, seed=s),
        "fRLS-SAG (paper)": lambda s: paper.frls_sag(136, seed=s),
        "GD": lambda s: GD(136, seed=s),
        "SVRG": lambda s: SVRG(136, seed=s),
        "SAG": lambda s: SAG(136, seed=s),
        "SAGA": lambda s: SAGA(136, seed=s),
        "SAGA, 16 steps": lambda s: SAGA(136, steps=16, seed=s),
        "CD": lambda s: CD(136),
    }
    found: dict[str, dict[str, list[float]]] = {name: {"norm 1": [], "as they are": []} for name in makers}
    for seed in seeds:
        X, y = r6b_rows(rows, seed)
        norms = np.sqrt(X.multiply(X).sum(axis=1))
        for scale, matrix in {"norm 1": sp.csr_array(X.multiply(1 / norms.reshape(-1, 1))), "as they are": X}.items():
            for name, make in makers.items():
                found[name][scale].append(make(seed).partial_fit(matrix, y).tracking_error().relative)
    print(f"\nrelative tracking error after {rows:,} rows of an R6B-like stream; theta = 0 scores 1")
    print(f"mean and 95% interval over seeds {seeds}; rows of norm 1, rows as they are")
    for name, scales in found.items():
        cells = [f"{mean:8.4f} +- {half:.4f}" for mean, half in map(interval, scales.values())]
        print(f"{name:>20}   {'   '.join(cells)}")
    return {"rows": rows, "seeds": list(seeds), "relative": found}


def r6b_rows(rows: int, seed: int) -> tuple[sp.csr_array, np.ndarray]:
    """The visitors of a synthetic day as sparse rows of 136 zeros and ones, and their clicks."""
    blocks = list(synthetic_day(lines=rows, seed=seed).blocks())
    start = [0]
    indices = []
    for block in blocks:
        start.extend((start[-1] + block.user_start[1:] - block.user_start[0]).tolist())
        indices.append(block.user_index)
    columns = np.concatenate(indices)
    X = sp.csr_array((np.ones(columns.size), columns, np.array(start)), shape=(rows, 136))
    X.sort_indices()
    return X, np.concatenate([block.reward for block in blocks]).astype(np.float64)


def plot(found: dict) -> None:
    """Cost a row against d, on logarithmic axes."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for (name, row), colour in zip(found["dense_ns"].items(), ("#0072B2", "#CC79A7", "#D55E00")):
        axes.loglog(found["dims"], row, marker="o", color=colour)
        axes.annotate(name, (found["dims"][-1], row[-1]), xytext=(6, 0), textcoords="offset points", color=colour)
    base = found["dense_ns"]["GD"]
    axes.loglog(found["dims"][2:], [base[2] * d / found["dims"][2] * 0.6 for d in found["dims"][2:]], "k:", lw=1)
    axes.annotate("slope 1", (1024, base[3] * 0.45), color="black", fontsize=9)
    axes.set(xlabel="features, d", ylabel="nanoseconds a row", title="A dense row costs O(d)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(RESULTS / "scaling.svg")
    plt.close(figure)


def main(names: list[str]) -> None:
    parts = {"scaling": scaling, "memory": memory, "python": python, "tracking": tracking}
    RESULTS.mkdir(exist_ok=True)
    for name in names or list(parts):
        found = parts[name]()
        (RESULTS / f"trackers-{name}.json").write_text(json.dumps(found, indent=1))
        if name == "scaling":
            plot(found)


if __name__ == "__main__":
    main(sys.argv[1:])
