"""Parts at run time: prefetching, threads that ask for one part at once, rows in every layout."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from cases import HISTORIES
from driftls.history import Growing, Reservoir, Window
from driftls.trackers import CD, GD, RAW, SAG, SAGA, SVRG, machine


def learned(make_tracker, history, matrix, y):
    kept = {"growing": Growing, "window": lambda: Window(300), "reservoir": lambda: Reservoir(300)}[history]()
    return make_tracker(matrix.shape[1], steps=3, seed=1, history=kept, **RAW).partial_fit(matrix, y).theta


@pytest.mark.parametrize("history", list(HISTORIES))
@pytest.mark.parametrize("kind", [np.array, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("make_tracker", [GD, SAG, SAGA, SVRG])
def test_prefetching_changes_no_result(make_tracker, history, kind, monkeypatch):
    generator = np.random.default_rng(3)
    X = generator.normal(size=(1500, 6)) * (generator.random((1500, 6)) < 0.5)
    y = X @ np.arange(6.0) + generator.normal(size=1500)
    monkeypatch.setattr(machine, "PREFETCH_FROM_BYTES", 1 << 40)
    without = learned(make_tracker, history, kind(X), y)
    monkeypatch.setattr(machine, "PREFETCH_FROM_BYTES", 0)
    for lookahead in (0, 1, 2, 7):
        monkeypatch.setattr(machine, "LOOKAHEAD", lookahead)
        np.testing.assert_array_equal(learned(make_tracker, history, kind(X), y), without)


def test_prefetching_starts_by_itself_once_a_history_outgrows_the_cache():
    X = np.random.default_rng(3).normal(size=(9000, 16))
    assert X.nbytes > 2 * machine.PREFETCH_FROM_BYTES
    assert SAGA(16, seed=0, **RAW).partial_fit(X, X[:, 0]).frame["ahead"]
    assert not SAGA(16, seed=0, **RAW).partial_fit(X[:9], X[:9, 0]).frame["ahead"]
    assert not CD(16, history=Growing(), **RAW).partial_fit(X, X[:, 0]).frame["ahead"]  # which draws nothing


def process(code):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_prefetching_never_follows_rows_that_are_still_to_come():
    process(
        "import numpy as np, scipy.sparse as sp\n"
        "from driftls.history import History\n"
        "from driftls.trackers import SAGA, machine\n"
        "def garbage(self, name, shape, dtype):\n"
        "    new = np.full(shape, 0 if name == 'start' else 2**62 if name == 'stop' else 1, dtype=dtype)\n"
        "    old = self.arrays.get(name, new[:0])\n"
        "    new[: len(old)] = old\n"
        "    return new\n"
        "History._sized = garbage\n"  # memory as it may come: full of what somebody else left in it
        "machine.PREFETCH_FROM_BYTES = 0\n"
        "SAGA(3, seed=0, steps=1).partial_fit(sp.csr_array(np.ones((3000, 3))), np.ones(3000))\n"
    )


def test_threads_that_ask_for_the_same_parts_at_once_load_them_once():
    out = process(
        "import sys, threading, numpy as np\n"
        "from driftls.trackers import SAGA\n"
        "sys.setswitchinterval(1e-6)\n"
        "X, found = np.random.default_rng(0).normal(size=(50, 4)), []\n"
        "def work():\n"
        "    found.append(SAGA(4, seed=0).partial_fit(X, X[:, 0]).theta.tobytes())\n"
        "threads = [threading.Thread(target=work) for _ in range(8)]\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
        "print(len(found), len(set(found)))"
    )
    assert out == "8 1"
