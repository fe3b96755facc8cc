"""Growing, Reservoir, Window and Mapped: what they keep, what they cost, and what they survive."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats

from checks import CASES, make, rows
from driftls import ridge
from driftls.errors import CorruptFileError, FileFormatError, NewerFileError, SettingsError
from driftls.history import FIRST_BYTES, Growing, History, Mapped, Reservoir, Window
from driftls.kernels.track import BOOK, HELD
from driftls.trackers import CD, GD, OLS, RLS, SAG, SAGA, SVRG, Diagonal
from driftls.trackers.base import SMALLEST_PIECE

TESTS = Path(__file__).parent
LAYOUTS = pytest.mark.parametrize("layout", ["dense", "sparse"])


def stream(count: int, dim: int = 4, seed: int = 0, density: float = 1.0) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(count, dim)) * (generator.random((count, dim)) < density)
    return X, X @ generator.normal(size=dim) + 0.1 * generator.normal(size=count)


def numbered(first: int, last: int, dim: int = 8) -> tuple[Any, Any]:
    """Rows that tell which they are: row i holds i + 1 in every entry, and so does y."""
    number = np.arange(first, last) + 1.0
    return np.repeat(number[:, None], dim, axis=1), number


def as_layout(X: Any, layout: str) -> Any:
    return sp.csr_array(X) if layout == "sparse" else X


def held_rows(history: History) -> tuple[Any, Any]:
    X, y = history.matrix()
    return (X.toarray() if sp.issparse(X) else np.array(X)), np.array(y)


# -- what is kept --------------------------------------------------------------------------------------------------


@LAYOUTS
def test_a_growing_history_keeps_every_row_across_many_growth_steps(layout):
    dim = 8
    count = 40 * max(16, FIRST_BYTES // (8 * dim))
    X, y = numbered(0, count, dim)
    tracker = Diagonal(dim, history=Growing())
    for first in range(0, count, 997):
        tracker.partial_fit(as_layout(X[first : first + 997], layout), y[first : first + 997])
    kept, targets = held_rows(tracker.history)
    np.testing.assert_array_equal(kept, X)
    np.testing.assert_array_equal(targets, y)
    assert tracker.history.sparse == (layout == "sparse")


@LAYOUTS
def test_a_block_larger_than_everything_before_it_is_kept_whole(layout):
    X, y = numbered(0, 30_000, 3)
    tracker = SAGA(3, history=Growing(), steps=1, seed=0)
    tracker.update(as_layout(X[:1], layout) if layout == "sparse" else X[0], y[0])
    tracker.partial_fit(as_layout(X[1:], layout), y[1:])
    kept, targets = held_rows(tracker.history)
    np.testing.assert_array_equal(kept, X)
    np.testing.assert_array_equal(targets, y)


@LAYOUTS
@pytest.mark.parametrize("block", [1, 7, 400])
def test_a_window_keeps_the_newest_rows(layout, block):
    X, y = numbered(0, 400)
    tracker = GD(8, history=Window(64), seed=0)
    for first in range(0, 400, block):
        tracker.partial_fit(as_layout(X[first : first + block], layout), y[first : first + block])
    kept, targets = held_rows(tracker.history)
    assert sorted(targets) == list(range(337, 401))
    np.testing.assert_array_equal(kept, np.repeat(targets[:, None], 8, axis=1))
    assert tracker.history.seen == 400
    assert len(tracker.history) == 64


@LAYOUTS
def test_a_reservoir_is_uniform_over_all_rows_seen(layout):
    # 400 seeds, 20 of 100 rows each: how often row i is held is binomial with mean 80. The counts of a seed are
    # negatively correlated (they sum to 20), which the factor (N - 1)/(N (1 - p)) of sampling without replacement
    # turns into a chi-square with N - 1 degrees of freedom. Fixed seeds: the test cannot flicker.
    capacity, count, seeds = 20, 100, 400
    X, y = numbered(0, count, 2)
    matrix = as_layout(X, layout)
    counts = np.zeros(count)
    for seed in range(seeds):
        tracker = GD(2, steps=1, history=Reservoir(capacity), seed=seed).partial_fit(matrix, y)
        _, targets = held_rows(tracker.history)
        assert len(set(targets)) == capacity
        counts[targets.astype(int) - 1] += 1
    share = capacity / count
    statistic = ((counts - seeds * share) ** 2).sum() / (seeds * share * (1 - share)) * (count - 1) / count
    assert 0.001 < scipy.stats.chi2.sf(statistic, count - 1) < 0.999


@pytest.mark.parametrize("history", [lambda: Window(50), lambda: Reservoir(50)], ids=["window", "reservoir"])
@pytest.mark.parametrize("block", [1, 100, 6000])
def test_memory_stays_bounded_when_sparse_rows_of_any_length_come_and_go(history, block):
    generator = np.random.default_rng(2)
    count, dim = 6000, 200
    lengths = generator.integers(0, dim, size=count)
    lengths[generator.random(count) < 0.9] = 3
    indices = [np.sort(generator.choice(dim, size=length, replace=False)) for length in lengths]
    start = np.concatenate([[0], np.cumsum(lengths)])
    X = sp.csr_array((np.ones(start[-1]), np.concatenate(indices), start), shape=(count, dim))
    tracker = SAGA(dim, steps=1, history=history(), seed=0)
    largest = 0
    for first in range(0, count, block):
        tracker.partial_fit(X[first : first + block], np.ones(min(block, count - first)))
        largest = max(largest, tracker.history.rows.indices.size)
    # Twice what 50 rows can hold, and the rows of one piece: never in proportion to the stream.
    piece = max(np.convolve(lengths, np.ones(min(block, SMALLEST_PIECE)), "valid").max(), 0)
    assert largest <= 2 * 50 * dim + piece
    assert largest < X.nnz
    kept, _ = held_rows(tracker.history)
    wanted = X.toarray()[-50:]
    if isinstance(tracker.history, Window):
        np.testing.assert_array_equal(np.sort(kept, axis=0), np.sort(wanted, axis=0))


@LAYOUTS
@pytest.mark.parametrize("make_tracker", [RLS, OLS, CD], ids=lambda cls: cls.__name__)
def test_a_window_equals_a_tracker_of_the_last_rows_alone(make_tracker, layout):
    X, y = stream(5000, dim=5, density=0.8)
    matrix = as_layout(X, layout)
    settings = {"steps": 60} if make_tracker is CD else {}  # enough to solve the 5 x 5 system in every row
    tracker = make_tracker(5, history=Window(80), **settings)
    for first, last in ((0, 50), (50, 500), (500, 501), (501, 5000)):
        tracker.partial_fit(matrix[first:last], y[first:last])
        newest = slice(max(0, last - 80), last)
        exact = make_tracker(5, **({"method": "cholesky"} if make_tracker is not CD else settings))
        exact.partial_fit(matrix[newest], y[newest])
        np.testing.assert_allclose(tracker.theta, exact.theta, rtol=0, atol=1e-11)


@pytest.mark.filterwarnings("ignore::driftls.errors.ConditioningWarning")  # the outlier itself is ill-conditioned
@pytest.mark.parametrize("make_tracker", [RLS, CD, SAG, SAGA, SVRG], ids=lambda cls: cls.__name__)
def test_what_an_outlier_did_to_the_last_digits_leaves_the_window_with_it(make_tracker):
    # Entries of 1e14 pass through sums of size 100: errors of 1e14 * 2e-16 = 0.02 and more would stay for good.
    X, y = stream(3000, dim=5, seed=4)
    if make_tracker in (RLS, CD):
        settings: dict[str, Any] = {}
        X[500] *= 1e7
    else:  # a fixed step cannot take such a row: let it be the reward
        settings = {"seed": 0, "step_size": 0.02, "steps": 30, "guard": False}
        y[500] *= 1e14
    tracker = make_tracker(5, history=Window(100), **settings).partial_fit(X, y)
    clean = make_tracker(5, history=Window(100), **settings).partial_fit(X[1000:], y[1000:])
    exact = RLS(5, method="cholesky").partial_fit(X[-100:], y[-100:]).theta
    error = np.abs(tracker.theta - exact).max()
    assert error < 1e-8 or error < 1.5 * np.abs(clean.theta - exact).max()


@pytest.mark.parametrize("history", [lambda: Window(40), lambda: Reservoir(40)], ids=["window", "reservoir"])
@pytest.mark.parametrize("make_tracker", [SAG, SAGA])
def test_the_sum_of_stored_gradients_is_that_of_the_rows_held(make_tracker, history):
    X, y = stream(3000, dim=5)
    tracker = make_tracker(5, history=history(), seed=0, steps=2).partial_fit(X, y)
    held = len(tracker.history)
    kept, _ = held_rows(tracker.history)
    np.testing.assert_allclose(tracker._state.coords[1], tracker._state.residual[:held] @ kept, rtol=0, atol=1e-11)


# -- precision -----------------------------------------------------------------------------------------------------


@LAYOUTS
@pytest.mark.parametrize("make_tracker", [GD, SAGA, SVRG], ids=lambda cls: cls.__name__)
def test_float32_rows_take_half_the_memory_and_give_nearly_the_same(make_tracker, layout):
    X, y = stream(600, dim=8, density=0.7)
    matrix = as_layout(X, layout)
    double, single = (
        make_tracker(8, history=Growing(dtype=dtype), seed=5).partial_fit(matrix, y)
        for dtype in (np.float64, np.float32)
    )
    values = (rows.values if layout == "sparse" else rows.X for rows in (double.history.rows, single.history.rows))
    assert next(values).itemsize == 2 * next(values).itemsize
    # Every entry is off by 2^-24 of itself at most, which the condition number of A (about 2) hardly changes.
    np.testing.assert_allclose(single.theta, double.theta, rtol=0, atol=50 * 2.0**-24 * np.abs(double.theta).max())
    rounded = make_tracker(8, history=Growing(), seed=5).partial_fit(matrix.astype(np.float32), y)
    np.testing.assert_allclose(single.theta, rounded.theta, rtol=0, atol=1e-11)


def test_a_value_that_float32_cannot_hold_is_refused():
    tracker = SAGA(2, history=Growing(dtype=np.float32), seed=0).partial_fit([[1.0, 2.0]], [1.0])
    with pytest.raises(ValueError, match="row 0: every feature and y must be finite"):
        tracker.partial_fit([[1e39, 1.0]], [1.0])
    with pytest.raises(ValueError, match="finite"):
        tracker.update(np.array([1e39, 1.0]), 1.0)
    assert len(tracker) == 1


# -- one owner -----------------------------------------------------------------------------------------------------


def test_one_history_cannot_serve_two_trackers(tmp_path):
    for history in (Growing(), Window(5), Reservoir(5), Mapped(tmp_path / "rows")):
        first, second = SAGA(2, history=history, seed=0), SAGA(2, history=history, seed=0)
        first.partial_fit(np.eye(2), [1.0, 2.0])
        with pytest.raises(SettingsError, match="a history serves one tracker"):
            second.partial_fit(np.eye(2), [1.0, 2.0])
        assert len(second) == 0
        assert len(first) == len(history) == 2
        first.update(np.ones(2), 1.0)
        assert len(first) == 3


def test_two_owners_of_one_folder_are_refused(tmp_path):
    first = SAGA(2, history=Mapped(tmp_path / "rows"), seed=0).partial_fit(np.eye(2), [1.0, 2.0])
    first.save(tmp_path / "t.safetensors")
    with pytest.raises(SettingsError, match="in use by another tracker"):
        SAGA(2, history=Mapped(tmp_path / "rows"), seed=0).partial_fit(np.eye(2), [1.0, 2.0])
    with pytest.raises(SettingsError, match="in use by another tracker"):
        SAGA.load(tmp_path / "t.safetensors")
    first.history.close()
    assert len(SAGA.load(tmp_path / "t.safetensors")) == 2


def test_a_folder_is_let_go_with_its_tracker(tmp_path):
    first = SAGA(2, history=Mapped(tmp_path / "rows"), seed=0).partial_fit(np.eye(2), [1.0, 2.0])
    first.save(tmp_path / "t.safetensors")
    del first
    assert len(SAGA.load(tmp_path / "t.safetensors")) == 2


def test_a_closed_history_can_no_longer_be_learned_into(tmp_path):
    X, y = stream(30)
    closed = SAGA(4, history=Mapped(tmp_path / "rows"), seed=0).partial_fit(X, y)
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
    first = SAGA(4, history=Mapped(tmp_path / "rows"), seed=0).partial_fit(X, y)
    first.history.close()
    second = SAGA(4, history=Mapped(tmp_path / "rows"), seed=0)
    with pytest.raises(SettingsError, match=r"already holds rows.*Mapped\.read"):
        second.partial_fit(X, y)
    # the advice works, and the refusal has not kept the folder
    kept, targets = Mapped.read(tmp_path / "rows")
    third = SAGA(4, history=Mapped(tmp_path / "other"), seed=0).partial_fit(kept, targets)
    np.testing.assert_array_equal(third.theta, first.theta)


def test_a_folder_whose_first_rows_were_refused_is_free(tmp_path):
    tracker = SAGA(2, history=Mapped(tmp_path / "rows"), seed=0)
    with pytest.raises(ValueError, match="finite"):
        tracker.partial_fit([[np.nan, 1.0]], [1.0])
    tracker.partial_fit(sp.csr_array(np.eye(2)), [1.0, 2.0])
    assert tracker.history.sparse
    tracker.history.close()


# -- on disk -------------------------------------------------------------------------------------------------------


@LAYOUTS
@pytest.mark.parametrize("case", [case for case in CASES if "growing" in case.histories], ids=lambda case: case.name)
def test_mapped_equals_growing_to_the_bit(case, layout, tmp_path):
    X, y = rows(density=0.6)
    matrix = as_layout(X, layout)
    growing = make(case, "growing").partial_fit(matrix, y)
    settings = {"seed": 11} if case.draws else {}
    mapped = case.make(history=Mapped(tmp_path / "rows"), **settings)
    for first in range(0, len(y), 13):
        mapped.partial_fit(matrix[first : first + 13], y[first : first + 13])
    np.testing.assert_array_equal(mapped.theta, growing.theta)
    for one, two in zip(held_rows(mapped.history), held_rows(growing.history), strict=True):
        np.testing.assert_array_equal(one, two)


@LAYOUTS
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_mapped_grows_over_many_steps_and_can_be_read_meanwhile(layout, dtype, tmp_path):
    dim = 8
    count = 9 * FIRST_BYTES // (8 * dim)
    X, y = numbered(0, count, dim)
    tracker = SAGA(dim, steps=1, seed=0, history=Mapped(tmp_path / "rows", dtype=dtype))
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
    straight = SAGA(4, seed=0).partial_fit(matrix, y)
    tracker = SAGA(4, seed=0, history=Mapped(tmp_path / "rows")).partial_fit(matrix[:100], y[:100])
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
from driftls.trackers import SAGA
from test_histories import numbered, stream, as_layout
folder, layout = sys.argv[1:]
X, y = stream(400, dim=8, density=0.7)
tracker = SAGA(8, steps=1, seed=0, guard=False, history=Mapped(folder + "/rows"))
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


@LAYOUTS
@pytest.mark.parametrize("after", [5_000, 200_000])
def test_a_mapped_history_survives_a_kill_in_mid_stream(layout, after, tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), layout],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(TESTS)])},
        stdout=subprocess.PIPE,
        text=True,
    )
    book = tmp_path / "rows" / "book"
    try:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "saved"
        deadline = time.monotonic() + 60.0
        while np.fromfile(book, dtype=np.int64, count=BOOK)[HELD] < after:
            assert time.monotonic() < deadline
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
    straight = SAGA(8, steps=1, seed=0).partial_fit(as_layout(first_X, layout), first_y)
    again.partial_fit(as_layout(X, layout), y)
    straight.partial_fit(as_layout(X, layout), y)
    np.testing.assert_array_equal(again.theta, straight.theta)
    np.testing.assert_array_equal(held_rows(again.history)[0], np.vstack([first_X, X]))


@pytest.fixture
def saved(tmp_path):
    """A folder with the rows of a saved tracker, whose process is gone."""
    X, y = stream(30)
    tracker = SAGA(4, history=Mapped(tmp_path / "rows"), seed=0).partial_fit(X, y)
    tracker.save(tmp_path / "t.safetensors")
    tracker.history.close()
    return tmp_path


def test_a_folder_of_a_newer_version_is_refused(saved):
    file = saved / "rows" / "history.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "version": 2}))
    with pytest.raises(NewerFileError, match="version 2"):
        SAGA.load(saved / "t.safetensors")
    with pytest.raises(NewerFileError, match="version 2"):
        Mapped.read(saved / "rows")
    with pytest.raises(NewerFileError, match="version 2"):
        SAGA(4, history=Mapped(saved / "rows"), seed=0).partial_fit(*stream(3))


@pytest.mark.parametrize(
    ("damage", "error", "complaint"),
    [
        (lambda folder: (folder / "history.json").unlink(), FileFormatError, "history.json is missing"),
        (lambda folder: (folder / "history.json").write_text("{"), CorruptFileError, "cannot be read"),
        (lambda folder: (folder / "history.json").write_text("[1]"), CorruptFileError, "cannot be read"),
        (lambda folder: (folder / "X").unlink(), FileFormatError, "X is missing"),
        (lambda folder: (folder / "book").unlink(), FileFormatError, "book is missing"),
        (lambda folder: folder.rename(folder.with_name("moved")), FileFormatError, "Check the folder's name"),
        (lambda folder: np.zeros(BOOK, dtype=np.int64).tofile(folder / "book"), FileFormatError, "holds 0 rows, but"),
    ],
)
def test_a_damaged_folder_gets_its_own_clear_error(saved, damage, error, complaint):
    damage(saved / "rows")
    with pytest.raises(error, match=complaint):
        SAGA.load(saved / "t.safetensors")


def test_a_folder_of_another_tracker_is_not_mistaken_for_its_own(saved):
    for file in (saved / "rows").iterdir():
        file.unlink()
    other = SAGA(7, history=Mapped(saved / "rows"), seed=0).partial_fit(*stream(50, dim=7))
    other.history.close()
    with pytest.raises(FileFormatError, match="rows of another tracker"):
        SAGA.load(saved / "t.safetensors")


def test_reading_an_empty_or_missing_folder_says_so(tmp_path):
    with pytest.raises(FileFormatError, match=r"history\.json is missing"):
        Mapped.read(tmp_path / "nothing")
    history = Mapped(tmp_path / "rows")
    history.open(3, sparse=False)
    X, y = Mapped.read(tmp_path / "rows")
    assert X.shape == (0, 3)
    assert y.shape == (0,)
    history.close()


# -- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [0, -1, 2.5, "ten", None])
@pytest.mark.parametrize("kind", [Window, Reservoir])
def test_a_capacity_that_cannot_be_is_refused(kind, capacity):
    with pytest.raises(SettingsError, match="capacity must be a whole number of rows, at least 1"):
        kind(capacity)


@pytest.mark.parametrize("dtype", ["float16", int, complex, "no such type"])
def test_a_precision_that_is_not_offered_is_refused(dtype):
    with pytest.raises(SettingsError, match="float64 or float32"):
        Growing(dtype=dtype)


@pytest.mark.parametrize("history", [History(), Growing, "growing", 100, np.eye(2)])
def test_what_is_not_a_history_is_refused(history):
    with pytest.raises(SettingsError, match="history must be a Growing"):
        SAGA(2, history=history)


@pytest.mark.parametrize(
    ("make_tracker", "complaint"),
    [
        (lambda: RLS(2, history=Reservoir(5)), "needs no reservoir"),
        (lambda: CD(2, history=Reservoir(5)), "needs no reservoir"),
        (lambda: Diagonal(2, history=Reservoir(5)), "cannot take a row back"),
        (lambda: Diagonal(2, history=Window(5)), "cannot take a row back"),
        (lambda: RLS(2, discount=0.9, history=Window(5)), "both forget"),
        (lambda: CD(2, discount=0.9, history=Window(5)), "both forget"),
        (lambda: RLS(2, discount=0.9, regularisation=0.1), "total ridge is constant"),
        (lambda: RLS(2, method="inverse", regularisation=ridge(0.0)), "cannot be inverted"),
    ],
)
def test_a_history_that_a_tracker_cannot_use_is_refused(make_tracker, complaint):
    with pytest.raises(SettingsError, match=complaint):
        make_tracker()
