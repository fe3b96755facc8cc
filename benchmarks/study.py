"""Studies on two workers, and warm starts from Parquet: how fast, in how much memory."""

from __future__ import annotations

import os
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.measure import Options, Table, tell
from driftls import fit as fits
from driftls import parallel
from driftls.features import UserOnly
from driftls.logs import read, synthetic_day, write_parquet
from driftls.policies import LinUCB
from driftls.policies.registry import make
from driftls.run import Run
from driftls.study.plan import Bandit
from driftls.study.stages import Task, execute
from driftls.trackers import CD, RAW
from driftls.widths import DiagonalWidth

TASKS, CALLS = 16, 400


def workers(options: Options) -> Table:
    """Equal tasks on one worker and on two, their start included; and a task that does nothing."""
    bandit = Bandit(name="equal", kind="fixed-arms", dim=50, arms=100, rounds=6000 if options.quick else 60_000)
    tasks = [
        Task(problem=bandit, policy="linucb", knobs={"kappa": 0.5}, seed=seed, metrics=["regret"])
        for seed in range(TASKS)
    ]
    seconds = {}
    for count in (1, 2):
        tell(f"{TASKS} tasks, {count} workers")
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            jobs = {task.key: task for task in tasks}
            parallel.cached_map(execute, jobs, Path(folder), workers=count, load=Run.load, save=Run.save)
            seconds[count] = time.perf_counter() - begin
    list(parallel.parallel_map(abs, range(8), workers=2))
    begin = time.perf_counter()
    list(parallel.parallel_map(abs, range(CALLS), workers=2))
    empty = 2 * (time.perf_counter() - begin) / CALLS
    faster = f"{seconds[1] / seconds[2]:.2f}x as fast as one (aim 1.7x)"
    return Table(
        [
            [f"{TASKS} equal tasks, one worker", seconds[1], None],
            ["two workers", seconds[2], faster],
            ["overhead of a task on a worker that runs", empty, "0.05"],
        ]
    )


def fit(options: Options) -> Table:
    """Seconds of a core, which others on the machine change less; memory is the peak of this process."""
    count, rows = 1_000_000 if options.quick else 4_000_000, []
    with tempfile.TemporaryDirectory() as folder:
        with ProcessPoolExecutor(1) as pool:  # what writing takes is not this process's
            tell("writing days")
            paths = pool.submit(_days, Path(folder), count).result()
        next(iter(read(paths[0]).blocks()))  # which may compile
        begin = time.process_time()
        some = paths[: max(1, len(paths) // 4)]
        alone = sum(len(block) for path in some for block in read(path).blocks()) / (time.process_time() - begin)
        policies = {
            "exact": make("linucb-exact", 136, seed=0),
            "coordinate descent": LinUCB(tracker=CD(136, **RAW), width=DiagonalWidth(), seed=0),
        }
        for name, policy in policies.items():
            tell(name)
            begin = time.process_time()
            done = fits.fit(policy, paths, partial(fits.shown_rows, features=UserOnly(136)), workers=1)
            speed = done.rows / (time.process_time() - begin)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            rows.append([name, done.rows, speed, f"{alone / speed:.2f}x", peak])
    return Table(rows, "d = 136, from Parquet on one core; over the time of reading and checking the blocks alone.")


def _days(folder: Path, rows: int) -> list[str]:
    """A synthetic R6B day of a million lines as Parquet, under as many names as it takes."""
    write_parquet(synthetic_day(lines=min(rows, 1_000_000), seed=1), folder / "day")
    paths = []
    for copy in range(-(-rows // 1_000_000)):
        for number, part in enumerate(sorted((folder / "day").rglob("*.parquet"))):
            paths.append(folder / f"{copy}-{number}.parquet")
            os.link(part, paths[-1])
    return [str(path) for path in paths]
