"""Files whose checksums are right but whose content is not: refused, or harmless; never a crash or a raw error."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from cases import CASES, make, name, rows
from driftls import persistence
from driftls.errors import ConditioningWarning, DriftlsError, FileFormatError
from driftls.history import Mapped
from driftls.trackers import RAW, RLS, SAGA

NUMBERS = (-1, 2, 3, 1e18, 1e300, 2**62, None, "x")


def other_arrays(array):
    """What a file could hold in place of an array."""
    yield array[:-1]
    yield array[:0]
    yield np.concatenate([array, array])
    yield array.reshape(-1, 1)
    yield array.ravel()[None]
    yield array.astype(np.float32 if array.dtype != np.float32 else np.float64)
    yield array.astype(np.int64 if array.dtype != np.int64 else np.int32)
    for value in (-1, 7, 2**30) if array.dtype.kind == "i" else (np.nan, np.inf, -0.5, 1.0, 1e300):
        spoiled = array.copy()
        if spoiled.size:
            spoiled.flat[spoiled.size // 2] = value
            yield spoiled


def other_headers(header):
    """Every number, list and word of a header, changed."""
    for key in header:
        for value in (None, [], {}, 3, "x"):
            yield {**header, key: value}
    for part in ("settings", "history", "numbers", "draws"):
        for key in header[part]:
            for value in NUMBERS:
                changed = copy.deepcopy(header)
                changed[part][key] = value
                yield changed
            missing = copy.deepcopy(header)
            del missing[part][key]
            yield missing
    yield {**header, "sparse": not header["sparse"]}


def crafted(tracker):
    """Variants of a tracker's file, each with one thing changed."""
    header, arrays = tracker.snapshot()
    for key, array in arrays.items():
        for other in other_arrays(array):
            yield f"{key} {other.dtype} {other.shape}", header, {**arrays, key: other}
        yield f"{key} missing", header, {other: kept for other, kept in arrays.items() if other != key}
    for number, other in enumerate(other_headers(header)):
        yield f"header {number}: {[other.get(key) for key in header if other.get(key) != header[key]]}", other, arrays


def attack(case):
    """Load every variant of a case's file, and go on with those that load; a raw error ends the process, as a crash."""
    warnings.simplefilter("ignore")
    X, y = rows(density=0.6)
    refused = 0
    histories = case.histories or (None,)
    for kind, history in ((np.array, histories[0]), (sp.csr_array, histories[-1])):
        tracker = make(case, history).partial_fit(kind(X)[:40], y[:40])
        for what, header, arrays in crafted(tracker):
            print(case.name, history, kind.__name__, what, file=sys.stderr)
            try:
                with persistence.reading("file"):
                    again = type(tracker).from_snapshot(header, arrays, **tracker.functions())
                again.partial_fit(kind(X)[40:60], y[40:60]).predict(kind(X)[:3])
                again.update(X[0], 1.0)
                again.snapshot()
            except DriftlsError:
                refused += 1
    print(refused)


NAMES = ("GD tail", "SVRG average", "SVRG refreshed", "SAGA", "CD", "Diagonal", "RLS", "RLS inverse", "OLS", "NLMS")


@pytest.mark.parametrize("case", [case for case in CASES if case.name in NAMES], ids=name)
def test_a_crafted_file_is_refused_or_harmless(case):
    code = (
        f"from cases import CASES; from trackers.test_crafted_files import attack; attack(CASES[{CASES.index(case)}])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit {done.returncode}\n" + "\n".join(done.stderr.splitlines()[-15:])
    assert int(done.stdout) > 100


@pytest.mark.parametrize("route", [0, 1, 2, 3])
@pytest.mark.parametrize("method", ["cholesky", "inverse", "sherman-morrison"])
def test_a_route_without_its_matrix_is_refused(method, route):
    tracker = RLS(50, method=method, **RAW).partial_fit(np.eye(50), np.ones(50))
    header, arrays = tracker.snapshot()
    header["numbers"]["route"] = route
    if (method == "cholesky") == (route == 0):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConditioningWarning)
            RLS.from_snapshot(header, arrays).partial_fit(np.eye(50), np.ones(50))
    else:
        with pytest.raises(FileFormatError, match="route"):
            RLS.from_snapshot(header, arrays)


def test_units_that_count_a_feature_less_than_never_are_refused():
    """Its first value would be noted as new again, beyond the list of features that were seen"""
    tracker = SAGA(5, seed=0).partial_fit(sp.csr_array(np.ones((3, 5))), np.arange(3.0))
    header, arrays = tracker.snapshot()
    with pytest.raises(DriftlsError, match="count"):
        SAGA.from_snapshot(header, {**arrays, "units.count": -arrays["units.count"]})


def test_sums_of_rewards_that_no_rewards_have_are_refused():
    header, arrays = SAGA(5, seed=0).partial_fit(np.ones((3, 5)), np.arange(3.0)).snapshot()
    header["units"] = header["units"] | {"reward_sum": 1e300}
    with pytest.raises(DriftlsError, match="reward_sum"):
        SAGA.from_snapshot(header, arrays)


def test_a_tape_too_short_for_a_row_is_refused():
    header, arrays = SAGA(2, seed=0, steps=9000, **RAW).partial_fit(np.eye(2), np.ones(2)).snapshot()
    arrays["unread"] = arrays["unread"][:0]
    header["draws"]["tape"] = 100
    with pytest.raises(FileFormatError, match="fewer draws"):
        SAGA.from_snapshot(header, arrays)


def test_a_mapped_folder_with_wrong_pointers_is_refused(tmp_path):
    X = sp.csr_array(np.eye(3))
    tracker = SAGA(3, seed=0, history=Mapped(tmp_path / "rows"), **RAW).partial_fit(X, np.ones(3))
    tracker.save(tmp_path / "file")
    tracker.history.close()
    for part, dtype, value in (("stop", np.int64, 2**40), ("start", np.int64, -1), ("indices", np.int32, 10**6)):
        content = (tmp_path / "rows" / part).read_bytes()
        spoiled = np.frombuffer(content, dtype).copy()
        spoiled[1] = value
        spoiled.tofile(tmp_path / "rows" / part)
        with pytest.raises(FileFormatError, match="rows"):
            SAGA.load(tmp_path / "file")
        if part != "start":
            with pytest.raises(FileFormatError, match="rows"):
                Mapped.read(tmp_path / "rows")
        (tmp_path / "rows" / part).write_bytes(content)
    assert len(SAGA.load(tmp_path / "file")) == 3
