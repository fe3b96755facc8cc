"""Without a compiler: the same kernels as plain Python, with every access checked."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import scipy.sparse as sp

from cases import CASES, SEED, rows
from driftls.history import Growing, Reservoir, Window

FEW = 9  # rows: windows and reservoirs of 3 overflow, and the sums of a window are made afresh
HISTORIES = {"growing": Growing, "window": lambda: Window(3), "reservoir": lambda: Reservoir(3)}


def thetas():
    """theta of every case with every history, dense and sparse."""
    X, y = rows(density=0.6)
    found = {}
    for case in CASES:
        for history in (*case.histories, *(() if case.draws else (None,))):
            settings = {"seed": SEED} if case.draws else {}
            for kind in (np.array, sp.csr_array):
                kept = {} if history is None else {"history": HISTORIES[history]()}
                tracker = case.build(**settings, **kept).partial_fit(kind(X)[:FEW], y[:FEW])
                assert np.allclose(tracker.predict(kind(X)[:2]), X[:2] @ tracker.theta)
                found[f"{case.name} {history} {kind.__name__}"] = tracker.theta
    return found


def interpreted(code, **environment):
    """What a process without a compiler prints."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "DRIFTLS_INTERPRET": "1", **environment}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_a_compiler_every_tracker_gives_the_same(tmp_path):
    interpreted(
        "import sys; sys.modules['numba'] = sys.modules['llvmlite'] = None\n"  # importing them is an error
        "import numpy; from kernels.test_interpreter import thetas\n"
        f"numpy.savez({str(tmp_path / 'thetas.npz')!r}, **thetas())",
    )
    plain, compiled = np.load(tmp_path / "thetas.npz"), thetas()
    assert set(plain) == set(compiled)
    for name, theta in compiled.items():
        scale = max(1.0, float(np.abs(theta).max()))
        np.testing.assert_allclose(plain[name], theta, rtol=0, atol=1e-12 * scale, err_msg=name)


OUTSIDE = """
import numpy as np
from driftls.compiling.parts import address_of, integers, reals
from driftls.kernels import learn
from driftls.trackers import RAW, SAGA

arrays = [np.arange(3.0) for _ in range(100)]  # many of them side by side: none is mistaken for its neighbour
for array in arrays:
    address_of(array)
for array in arrays:
    pointer = reals(address_of(array))
    assert pointer[2] == 2.0
    for k in (-1, 3, 4, 10**6):
        for access in (pointer.__getitem__, lambda k: pointer.__setitem__(k, 1.0)):
            try:
                access(k)
            except IndexError:
                continue
            raise SystemExit(f"element {k} of 3 was reached")
    assert array.tolist() == [0.0, 1.0, 2.0]
for address in (0, 8, address_of(arrays[0]) - 8):
    try:
        integers(address)[0]
    except IndexError:
        continue
    raise SystemExit("an address that nobody handed out was read")

tracker = SAGA(3, seed=0, **RAW).partial_fit(np.eye(3), np.ones(3))
try:
    learn.predict(tracker.frame, 0, 10**4)  # more rows than there are: a compiled kernel would read on
except IndexError as error:
    print(error)
"""


def test_an_access_out_of_range_raises():
    assert "outside of the array" in interpreted(OUTSIDE)


def test_a_feature_that_repeats_behind_all_others_is_refused_within_its_block(tmp_path):
    user = b" ".join(str(name).encode() for name in (*range(1, 137), 2))
    (tmp_path / "log").write_bytes(
        b"1317513300 id-101 0 |user 1 |id-101\n1317513300 id-101 0 |user %s |id-101\n" % user
    )
    code = f"from driftls.logs import read; log = read({str(tmp_path / 'log')!r}, block=1, on_error='skip')"
    told = interpreted(code + "; print([len(block) for block in log.blocks()], log.counts.examples)")
    assert told.startswith("[1] [")
    assert "a feature id that is not in the line already, got `2`" in told
