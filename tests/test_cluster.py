"""A study on a real cluster: a Dask scheduler and workers as processes on loopback, one of them killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

from driftls import parallel
from driftls.errors import SettingsError
from driftls.features import Features
from driftls.fit import fit, shown_rows
from driftls.logs import ParquetLog, synthetic_day, write_parquet
from driftls.paper import linucb
from driftls.study import Plan, run_study
from test_study import same

distributed = pytest.importorskip("distributed", reason="distributed is not installed")

TEXT = """
metrics = ["regret"]
seeds = { report = 16 }
bandits = [{ name = "small", kind = "fixed-arms", dim = 8, arms = 30, rounds = 60000 }]
policies = [{ policy = "linucb", knobs = { kappa = 0.5 } }, { policy = "random" }]
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The address of a scheduler, and two workers without a nanny: nobody brings a killed one back."""
    tmp_path = tmp_path_factory.mktemp("cluster")
    file = tmp_path / "scheduler.json"
    place = ["--host", "127.0.0.1", "--no-dashboard"]
    commands = [["scheduler", *place, "--port", "0", "--scheduler-file", str(file)]]
    worker = ["--nthreads", "1", "--no-nanny", "--local-directory", str(tmp_path)]
    commands += 2 * [["worker", *place, "--scheduler-file", str(file), *worker]]
    log = (tmp_path / "log").open("wb")
    processes = [
        subprocess.Popen([sys.executable, "-m", "dask", *command], stdout=log, stderr=log) for command in commands
    ]
    try:
        address = _address(file)
        with distributed.Client(address) as client:
            client.wait_for_workers(2, timeout=600)
        yield address, processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()
        log.close()


def _address(file):
    end = time.monotonic() + 600
    while time.monotonic() < end:
        try:
            return json.loads(file.read_text())["address"]
        except (FileNotFoundError, json.JSONDecodeError):  # not there yet, or half written
            time.sleep(0.05)
    raise AssertionError("no scheduler")


def test_a_fit_on_the_cluster_has_the_bits_of_one_here(cluster, tmp_path):
    for seed in (1, 2, 3):
        write_parquet(synthetic_day(lines=500, seed=seed), tmp_path / str(seed))
    read_shown = partial(shown_rows, features=Features(40, cross=[("*", "id")]))
    paths = ParquetLog([str(tmp_path)]).paths
    here, there = (
        fit(linucb(40), paths, read_shown, **where).policy for where in ({"workers": 1}, {"cluster": cluster[0]})
    )
    for mine, other in zip(here.snapshot()[1].values(), there.snapshot()[1].values(), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_worker_killed_in_mid_study_costs_no_result_and_doubles_none(cluster, tmp_path):
    address, workers = cluster

    def kill(stage, done, total):
        if done == 5 and workers[0].poll() is None:
            os.kill(workers[0].pid, signal.SIGKILL)

    plan = Plan.parse(TEXT)
    rows = run_study(plan, tmp_path / "dask", cluster=address, progress=kill)
    assert workers[0].wait(timeout=600) == -signal.SIGKILL
    assert len({row.settings["key"] for row in rows}) == len(rows) == 32
    assert same(rows) == same(run_study(plan, tmp_path / "here", workers=1))


def test_a_scheduler_that_does_not_answer_is_told_in_a_sentence(monkeypatch):
    monkeypatch.setattr(parallel, "PATIENCE", 1.0)
    with pytest.raises(SettingsError, match=r"no scheduler answers at tcp://127\.0\.0\.1:1\."):
        list(parallel.parallel_map(abs, [1], cluster="tcp://127.0.0.1:1"))
