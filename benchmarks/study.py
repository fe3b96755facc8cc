"""Studies and warm starts: what engines cost, what workers bring, how fast `fit` reads.

    python -m benchmarks.study speedup              # 16 equal tasks on one worker and on two
    python -m benchmarks.study overhead             # of the engine, a task: loky and Dask
    python -m benchmarks.study fit --rows 20000000  # rows/s from Parquet, peak memory, against reading alone
    python -m benchmarks.study [--quick]            # all of them

Times mean something on an idle machine alone: the load average is printed first.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from driftls import fit as fits
from driftls import paper, parallel
from driftls.features import UserFeatures
from driftls.history import Reservoir
from driftls.policies import named
from driftls.study.plan import Bandit
from driftls.study.tasks import Task, complete

TASKS, CALLS = 16, 400


def speedup(rounds: int) -> dict[str, float]:
    bandit = Bandit(name="equal", kind="fixed-arms", dim=50, arms=100, rounds=rounds)
    tasks = [
        Task(problem=bandit, policy="linucb", knobs={"kappa": 0.5}, seed=seed, metrics=["regret"])
        for seed in range(TASKS)
    ]
    seconds = {}
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            complete(tasks, Path(folder), workers=workers)
            seconds[workers] = time.perf_counter() - begin
    print(f"{TASKS} tasks: {seconds[1]:.1f} s on one worker, {seconds[2]:.1f} s on two, their start included", end=": ")
    print(f"{seconds[1] / seconds[2]:.2f}x (aim 1.7x)")
    return {"one": seconds[1], "two": seconds[2]}


def overhead() -> dict[str, float]:
    found = {"loky": _per_task(workers=2)}
    with _cluster() as address:
        found["dask"] = _per_task(cluster=address)
    for engine, aim in (("loky", 50), ("dask", 100)):
        print(f"{engine}: {1e3 * found[engine]:.1f} ms a task and worker (aim {aim} ms)")
    return found


def _per_task(**where: Any) -> float:
    """Seconds of one of two workers for a call that does nothing, once they run."""
    with parallel.Workers(**where) as pool:
        list(pool.map(abs, range(8)))
        begin = time.perf_counter()
        list(pool.map(abs, range(CALLS)))
        return 2 * (time.perf_counter() - begin) / CALLS


@contextmanager
def _cluster() -> Iterator[str]:
    """A scheduler and two workers on loopback."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "scheduler.json")
        dask = [sys.executable, "-m", "dask"]
        place = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started = [subprocess.Popen([*dask, "scheduler", *place, "--port", "0"], **quiet)]
        worker = [*dask, "worker", *place, "--nthreads", "1", "--no-nanny", "--local-directory", folder]
        started += [subprocess.Popen(worker, **quiet) for _ in range(2)]
        try:
            while not file.exists():
                time.sleep(0.1)
            time.sleep(5.0)
            yield json.loads(file.read_text())["address"]
        finally:
            for process in started:
                process.kill()
                process.wait()


def _days(folder: Path, rows: int) -> list[str]:
    """A synthetic R6B day of a million lines as Parquet, under as many names as it takes."""
    from driftls.logs import synthetic_day, write_parquet

    write_parquet(synthetic_day(lines=min(rows, 1_000_000), seed=1), folder / "day")
    parts = sorted((folder / "day").rglob("*.parquet"))
    paths = []
    for copy in range(-(-rows // 1_000_000)):
        for number, part in enumerate(parts):
            paths.append(folder / f"{copy}-{number}.parquet")
            os.link(part, paths[-1])
    return [str(path) for path in paths]


def _just_read(path: str) -> int:
    from driftls.logs import read

    return sum(len(block) for block in read(path).blocks())


def _decode(path: str) -> int:
    """What pyarrow alone takes."""
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        return sum(len(batch) for batch in file.iter_batches(32_768))


def fit(rows: int, name: str) -> dict[str, float]:
    """In seconds of a core, which others on the machine change less; memory is the peak of this process."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        maker = partial(_days, Path(folder), rows)
        [paths] = [result for _, result in parallel.parallel_map(_run, [maker, int], workers=2) if result]
        features = UserFeatures(136)
        history = {"history": Reservoir(20_000)} if name == "flinucb-saga" else {}
        policy = {**paper.POLICIES, **named.POLICIES}[name](features.dim, None, 0, **history)
        begin = time.process_time()
        done = fits.fit(policy, paths, partial(fits.shown_rows, features=features), workers=1)
        found["fit"] = time.process_time() - begin
        found["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        for label, read in (("blocks", _just_read), ("pyarrow", _decode)):
            begin = time.process_time()
            some = paths[: max(1, len(paths) // 4)]
            count = sum(map(read, some))
            found[label] = (time.process_time() - begin) * done.rows / count
    speed, alone, raw = done.rows / found["fit"], found["fit"] / found["blocks"], found["fit"] / found["pyarrow"]
    print(f"{name}: {done.rows} rows, d = 136, in {found['fit']:.1f} s of a core: {speed:,.0f} rows/s, {alone:.2f}x of")
    print(f"reading blocks, {raw:.2f}x of decoding the columns; peak memory {found['memory']:.2f} GB (aim: under 1)")
    return found


def _run(call: Any) -> Any:
    return call()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", nargs="?", choices=("speedup", "overhead", "fit"), help="all if not given")
    parser.add_argument("--rounds", type=int, default=60_000, help="of each of the equal tasks")
    parser.add_argument("--rows", type=int, default=20_000_000, help="to fit")
    parser.add_argument("--policy", default="flinucb-cd", help="to fit")
    parser.add_argument("--quick", action="store_true", help="fit a million rows")
    chosen = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    figures = {
        "speedup": partial(speedup, chosen.rounds),
        "overhead": overhead,
        "fit": partial(fit, 1_000_000 if chosen.quick else chosen.rows, chosen.policy),
    }
    for name in [chosen.figure] if chosen.figure else figures:
        figures[name]()


if __name__ == "__main__":
    main()
