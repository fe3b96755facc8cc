"""Mapped: one owner, files that grow, kills, full disks and damaged folders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp

from cases import CASES, make, name, rows
from driftls.errors import CorruptFileError, FileFormatError, SettingsError
from driftls.history import FIRST_BYTES, Growing, Mapped, Reservoir, Window
from driftls.trackers import RAW, SAGA
from streams import as_layout, held_rows, numbered, stream

LAYOUTS = pytest.mark.parametrize("layout", ["dense", "sparse"])


# -- one owner -----------------------------------------------------------------------------------------------------


def test_one_history_cannot_serve_two_trackers(tmp_path):
    for history in (Growing(), Window(5), Reservoir(5), Mapped(tmp_path / "rows")):
        first, second = SAGA(2, history=history, seed=0, **RAW), SAGA(2, history=history, seed=0, **RAW)
        first.partial_fit(np.eye(2), [1.0, 2.0])
        with pytest.raises(SettingsError, match="a history serves one tracker"):
            second.partial_fit(np.eye(2), [1.0, 2.0])
        assert len(second) == 0
        assert len(first) == len(history) == 2
        first.update(np.ones(2), 1.0)
        assert len(first) == 3


def test_two_owners_of_one_folder_are_refused(tmp_path):
    first = SAGA(2, history=Mapped(tmp_path / "rows"), seed=0, **RAW).partial_fit(np.eye(2), [1.0, 2.0])
    first.save(tmp_path / "t.safetensors")
    with pytest.raises(SettingsError, match="in use by another tracker"):
        SAGA(2, history=Mapped(tmp_path / "rows"), seed=0, **RAW).partial_fit(np.eye(2), [1.0, 2.0])
    with pytest.raises(SettingsError, match="in use by another tracker"):
        SAGA.load(tmp_path / "t.safetensors")
    first.history.close()
    assert len(SAGA.load(tmp_path / "t.safetensors")) == 2


def test_a_folder_is_let_go_with_its_tracker(tmp_path):
    first = SAGA(2, history=Mapped(tmp_path / "rows"), seed=0, **RAW).partial_fit(np.eye(2), [1.0, 2.0])
    first.save(tmp_path / "t.safetensors")
    del first
    assert len(SAGA.load(tmp_path / "t.safetensors")) == 2


def test_a_closed_history_can_no_longer_be_learned_into(tmp_path):
    X, y = stream(30)
    closed = SAGA(4, history=Mapped(tmp_path / "rows"), seed=0, **RAW).partial_fit(X, y)
    closed.save(tmp_path / "t.safetensors")
    closed.history.close()
    again = SAGA.load(tmp_path / "t.safetensors")
    for attempt in (lambda: closed.update(X[0], y[0]), lambda: closed.partial_fit(X, y), lambda: closed.target):
        with pytest.raises(SettingsError, match="was closed"):
            attempt()
    with pytest.raises(SettingsError, match="was closed"):
        closed.save(tmp_path / "wrong.safetensors")
    again.partial_fit(X, y)
    assert len(closed) == 30
    np.testing.assert_allclose(closed.predict(X), X @ closed.theta, rtol=0, atol=1e-13)
    assert len(again.history) == 60


def test_a_folder_that_holds_rows_is_refused_with_advice(tmp_path):
    X, y = stream(30)
    first = SAGA(4, history=Mapped(tmp_path / "rows"), seed=0, **RAW).partial_fit(X, y)
    first.history.close()
    second = SAGA(4, history=Mapped(tmp_path / "rows"), seed=0, **RAW)
    with pytest.raises(SettingsError, match=r"already holds rows.*Mapped\.read"):
        second.partial_fit(X, y)
    # the advice works, and the refusal has not kept the folder
    kept, targets = Mapped.read(tmp_path / "rows")
    third = SAGA(4, history=Mapped(tmp_path / "other"), seed=0, **RAW).partial_fit(kept, targets)
    np.testing.assert_array_equal(third.theta, first.theta)


def test_a_folder_whose_first_rows_were_refused_is_free(tmp_path):
    tracker = SAGA(2, history=Mapped(tmp_path / "rows"), seed=0, **RAW)
    with pytest.raises(ValueError, match="finite"):
        tracker.partial_fit([[np.nan, 1.0]], [1.0])
    tracker.partial_fit(sp.csr_array(np.eye(2)), [1.0, 2.0])
    assert tracker.history.sparse
    tracker.history.close()


# -- on disk -------------------------------------------------------------------------------------------------------


@LAYOUTS
@pytest.mark.parametrize("case", [case for case in CASES if "growing" in case.histories], ids=name)
def test_mapped_equals_growing_to_the_bit(case, layout, tmp_path):
    X, y = rows(density=0.6)
    matrix = as_layout(X, layout)
    growing = make(case, "growing").partial_fit(matrix, y)
    settings = {"seed": 11} if case.draws else {}
    mapped = case.build(history=Mapped(tmp_path / "rows"), **settings)
    for first in range(0, len(y), 13):
        mapped.partial_fit(matrix[first : first + 13], y[first : first + 13])
    np.testing.assert_array_equal(mapped.theta, growing.theta)
    for one, two in zip(held_rows(mapped.history), held_rows(growing.history), strict=True):
        np.testing.assert_array_equal(one, two)


@LAYOUTS
def test_mapped_grows_over_many_steps_and_can_be_read_meanwhile(layout, tmp_path):
    dim = 8
    count = 9 * FIRST_BYTES // (8 * dim)
    X, y = numbered(0, count, dim)
    tracker = SAGA(dim, steps=1, seed=0, history=Mapped(tmp_path / "rows"), **RAW)
    for first in range(0, count, 3000):
        tracker.partial_fit(as_layout(X[first : first + 3000], layout), y[first : first + 3000])
        held = min(first + 3000, count)
        kept, targets = Mapped.read(tmp_path / "rows")  # while its owner goes on
        np.testing.assert_array_equal(kept.toarray() if layout == "sparse" else kept, X[:held])
        np.testing.assert_array_equal(targets, y[:held])
    if layout == "dense":
        kept[0, 0] = -5.0  # stays in this process
    assert held_rows(tracker.history)[0][0, 0] == 1.0


@LAYOUTS
def test_rows_that_came_after_a_save_are_dropped_when_it_is_loaded(layout, tmp_path):
    X, y = stream(300, density=0.7)
    matrix = as_layout(X, layout)
    straight = SAGA(4, seed=0, **RAW).partial_fit(matrix, y)
    tracker = SAGA(4, seed=0, history=Mapped(tmp_path / "rows"), **RAW).partial_fit(matrix[:100], y[:100])
    tracker.save(tmp_path / "t.safetensors")
    tracker.partial_fit(matrix[200:], y[200:])
    assert len(tracker.history) == 200
    tracker.history.close()
    again = SAGA.load(tmp_path / "t.safetensors")
    assert len(again) == len(again.history) == 100
    again.partial_fit(matrix[100:], y[100:])
    np.testing.assert_array_equal(again.theta, straight.theta)
    np.testing.assert_array_equal(held_rows(again.history)[0], X)


CHILD = """
import sys
import numpy as np, scipy.sparse as sp
from driftls.history import Mapped
from driftls.trackers import RAW, SAGA
from streams import as_layout, numbered, stream
folder, layout = sys.argv[1:]
X, y = stream(400, dim=8, density=0.7)
tracker = SAGA(8, steps=1, seed=0, guard=False, history=Mapped(folder + "/rows"), **RAW)
tracker.partial_fit(as_layout(X, layout), y)
tracker.save(folder + "/t.safetensors")
print("saved", flush=True)
first = 400
while True:  # until somebody ends it
    size = 1 + first % 700
    X, y = numbered(first, first + size)
    tracker.partial_fit(as_layout(X, layout), y)
    first += size
"""


@pytest.mark.parametrize(("layout", "after"), [("dense", 5_000), ("sparse", 60_000)])
def test_a_mapped_history_survives_a_kill_in_mid_stream(layout, after, tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), layout],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "saved"
        while len(Mapped.read(tmp_path / "rows")[1]) < after:
            assert child.poll() is None
            time.sleep(0.003)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    kept, targets = Mapped.read(tmp_path / "rows")
    dense = kept.toarray() if layout == "sparse" else np.array(kept)
    assert len(targets) >= after
    first_X, first_y = stream(400, dim=8, density=0.7)
    np.testing.assert_array_equal(dense[:400], first_X)
    np.testing.assert_array_equal(targets[:400], first_y)
    number = np.arange(400, len(targets)) + 1.0  # every row that is counted is whole, and in its place
    np.testing.assert_array_equal(targets[400:], number)
    np.testing.assert_array_equal(dense[400:], np.repeat(number[:, None], 8, axis=1))
    # and the tracker that was saved goes on as if nothing had happened
    again = SAGA.load(tmp_path / "t.safetensors")
    assert len(again) == 400
    X, y = stream(600, dim=8, seed=9, density=0.7)
    straight = SAGA(8, steps=1, seed=0, **RAW).partial_fit(as_layout(first_X, layout), first_y)
    again.partial_fit(as_layout(X, layout), y)
    straight.partial_fit(as_layout(X, layout), y)
    np.testing.assert_array_equal(again.theta, straight.theta)
    np.testing.assert_array_equal(held_rows(again.history)[0], np.vstack([first_X, X]))


@pytest.fixture
def saved(tmp_path):
    """A folder with the rows of a saved tracker, whose process is gone."""
    X, y = stream(30)
    tracker = SAGA(4, history=Mapped(tmp_path / "rows"), seed=0, **RAW).partial_fit(X, y)
    tracker.save(tmp_path / "t.safetensors")
    tracker.history.close()
    return tmp_path


def test_a_folder_of_another_version_is_refused(saved):
    head = np.fromfile(saved / "rows" / "settings", np.int64)
    head[0] += 1
    head.tofile(saved / "rows" / "settings")
    for attempt in (
        lambda: Mapped.read(saved / "rows"),
        lambda: SAGA(4, history=Mapped(saved / "rows"), seed=0, **RAW).partial_fit(*stream(3)),
    ):
        with pytest.raises(FileFormatError, match="of another version"):
            attempt()


def test_rows_that_were_rewritten_in_other_units_after_the_save_are_refused(tmp_path):
    X, y = stream(600)
    tracker = SAGA(4, history=Mapped(tmp_path / "rows"), seed=0).partial_fit(X[:50], y[:50])
    tracker.save(tmp_path / "early")
    tracker.partial_fit(1e3 * X[50:], y[50:])  # other units
    tracker.save(tmp_path / "late")
    tracker.history.close()
    with pytest.raises(FileFormatError, match="rewritten in other units"):
        SAGA.load(tmp_path / "early")
    again = SAGA.load(tmp_path / "late")
    np.testing.assert_array_equal(again.theta, tracker.theta)
    again.history.close()


@pytest.mark.parametrize(
    ("damage", "error", "complaint"),
    [
        (lambda folder: (folder / "settings").unlink(), FileFormatError, "settings is missing"),
        (lambda folder: (folder / "settings").write_text("{"), FileFormatError, "settings is damaged"),
        (lambda folder: (folder / "settings").write_text("[1]" * 9), FileFormatError, "settings is damaged"),
        (lambda folder: (folder / "values").unlink(), FileFormatError, "values: has 0 of at least 960 bytes"),
        (lambda folder: folder.rename(folder.with_name("moved")), FileFormatError, "Check the folder's name"),
        (lambda folder: np.zeros(5, np.int64).tofile(folder / "settings"), FileFormatError, "settings is damaged"),
        (lambda folder: np.array([2, 4, *[0] * 7]).tofile(folder / "settings"), FileFormatError, "holds 0 rows, but"),
        (lambda folder: os.truncate(folder / "values", 100), CorruptFileError, "has 100 of at least 960 bytes"),
        (lambda folder: os.truncate(folder / "y", 8), CorruptFileError, "has 8 of at least 240 bytes"),
    ],
)
def test_a_damaged_folder_gets_its_own_clear_error(saved, damage, error, complaint):
    damage(saved / "rows")
    with pytest.raises(error, match=complaint):
        SAGA.load(saved / "t.safetensors")


def test_a_folder_of_another_tracker_is_not_mistaken_for_its_own(saved):
    for file in (saved / "rows").iterdir():
        file.unlink()
    other = SAGA(7, history=Mapped(saved / "rows"), seed=0, **RAW).partial_fit(*stream(50, dim=7))
    other.history.close()
    with pytest.raises(FileFormatError, match="rows of another tracker"):
        SAGA.load(saved / "t.safetensors")


def test_reading_an_empty_or_missing_folder_says_so(tmp_path):
    with pytest.raises(FileFormatError, match="settings is missing"):
        Mapped.read(tmp_path / "nothing")
    history = Mapped(tmp_path / "rows")
    history.open(3, sparse=False)
    X, y = Mapped.read(tmp_path / "rows")
    assert X.shape == (0, 3)
    assert y.shape == (0,)
    history.close()


# -- a full disk ---------------------------------------------------------------------------------------------------

FULL = """
import sys
import numpy as np
from driftls.errors import DriftlsError
from driftls.history import Mapped
from driftls.testing.trackers import same_snapshot
from driftls.trackers import RAW, SAGA
import scipy.sparse as sp

folder, kind = sys.argv[1], {"dense": np.array, "sparse": sp.csr_array}[sys.argv[2]]
tracker, generator = SAGA(400, seed=0, history=Mapped(folder + "/rows"), **RAW), np.random.default_rng(0)
taken = refused = 0
for size in (1, 1, 20, 5) * 20:
    X = kind(generator.normal(size=(size, 400)))
    before = tracker.snapshot()
    try:
        tracker.partial_fit(X, np.ones(size))
        taken += 1
    except DriftlsError as error:
        assert "no room for" in str(error) and "Nothing was learned" in str(error), error
        if before[0]["sparse"] is not None:
            same_snapshot(before, tracker.snapshot(), "a full disk")
        refused += 1
    assert np.isfinite(tracker.theta).all() and np.isfinite(tracker.predict(X)).all()
print(taken, refused, len(tracker), len(Mapped.read(folder + "/rows")[1]))
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting a small disk needs root")
@LAYOUTS
def test_a_full_disk_refuses_rows_and_leaves_the_rest_as_it_was(layout, tmp_path):
    size = {"dense": "256k", "sparse": "2500k"}[layout]  # each some more than the first rows ask for
    shell = f'mount -t tmpfs -o size={size} tmpfs "$1" && exec "$2" -c "$3" "$1" "$4"'
    command = ["unshare", "-m", "sh", "-c", shell, "sh", str(tmp_path), sys.executable, FULL, layout]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    taken, refused, n, kept = map(int, done.stdout.split())
    assert taken
    assert refused
    assert n == kept
