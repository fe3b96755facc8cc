"""What every tracker must do."""

from __future__ import annotations

import copy
import pickle
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from driftls.errors import DriftlsError, SettingsError
from driftls.history import Growing, Reservoir, Window
from driftls.testing.rows import bad_blocks, bad_rows, forms, good_rows, malformed
from driftls.trackers.base import Tracker

Make = Callable[[], Tracker]
LAYOUTS: tuple[Callable[[Any], Any], ...] = (np.array, sp.csr_array)
CLOSE = 1e-8  # what sums in another order may change


def same_snapshot(before: Any, after: Any, what: str) -> None:
    """Fail unless two snapshots are equal to the bit."""
    assert before[0] == after[0], f"{what}: the header changed from {before[0]} to {after[0]}"
    assert before[1].keys() == after[1].keys(), f"{what}: other arrays than before"
    for name, array in before[1].items():
        assert array.tobytes() == after[1][name].tobytes(), f"{what}: `{name}` changed"


def copy_of(tracker: Tracker) -> Tracker:
    """A copy by way of what a file would hold."""
    return type(tracker).from_snapshot(*tracker.snapshot(), **tracker.functions())


def same_tracker(one: Tracker, two: Tracker, what: str) -> None:
    """Fail unless both stand at the same bits, and go on alike; how many draws were made ahead does not matter."""
    assert (len(one), one.sparse, len(one.history)) == (len(two), two.sparse, len(two.history)), what
    for a, b in zip(one.history.matrix(), two.history.matrix()):
        assert (abs(a - b)).max() == 0.0 if a.shape[0] else True, f"{what}: other rows are held"
    X, y = good_rows(one.dim, 7, seed=77)
    one, two = copy_of(one), copy_of(two)
    for step in ("now", "after some more rows"):
        assert one.theta.tobytes() == two.theta.tobytes(), f"{what}: theta differs {step}: {one.theta - two.theta}"
        one.partial_fit(X, y)
        two.partial_fit(X, y)


def taught(make: Make, kind: Callable[[Any], Any] = np.array, count: int = 40) -> Tracker:
    """A tracker that has seen some rows."""
    X, y = good_rows(make().dim, count)
    return make().partial_fit(kind(X), y)


def stages(make: Make) -> Iterator[tuple[str, Tracker]]:
    """A tracker that has seen nothing, dense rows, sparse rows."""
    yield "new", make()
    yield "dense", taught(make)
    yield "sparse", taught(make, sp.csr_array)


def refused(what: str, call: Callable[..., Any], *arguments: Any) -> None:
    """Fail unless the call ends in one of our errors."""
    try:
        call(*arguments)
    except DriftlsError:
        return
    except Exception as error:
        raise AssertionError(f"{what}: a raw {type(error).__name__}: {error}") from error
    raise AssertionError(f"{what}: was accepted")


def starts_at_zero_and_counts_rows(make: Make) -> None:
    """theta is 0 at first; n counts rows; predict has a number for a row and a vector for a block."""
    tracker = make()
    X, y = good_rows(tracker.dim)
    assert (len(tracker), tracker.n, tracker.sparse) == (0, 0, None)
    assert not tracker.theta.any()
    assert tracker.predict(X[0]) == 0.0
    assert not tracker.predict(X).any()
    tracker.partial_fit(X, y)
    assert (len(tracker), tracker.n, tracker.sparse) == (len(y), len(y), False)
    assert isinstance(tracker.predict(X[0]), float)
    theta = tracker.theta
    assert theta.dtype == np.float64
    assert theta.shape == (tracker.dim,)
    np.testing.assert_allclose(tracker.predict(X), X @ theta, rtol=0, atol=1e-12 * max(1.0, abs(theta).max()))
    np.testing.assert_allclose(tracker.predict(sp.csr_array(X)), X @ theta, rtol=0, atol=1e-12)
    theta[:] = 7.0
    assert not (tracker.theta == 7.0).any(), "theta must be a fresh array"


def rows_and_blocks_agree(make: Make) -> None:
    """Row by row, as a block and in ragged blocks: the same bits."""
    X, y = good_rows(make().dim)
    for kind in LAYOUTS:
        matrix = kind(X)
        one, block, ragged = make(), make().partial_fit(matrix, y), make()
        for n in range(len(y)):
            one.update(matrix[[n]] if sp.issparse(matrix) else X[n], float(y[n]))
        for first, last in [(0, 1), (1, 8), (8, 9), (9, 40), (40, 40), (40, len(y))]:
            ragged.partial_fit(matrix[first:last], y[first:last])
        same_tracker(one, block, "rows and a block")
        same_tracker(one, ragged, "rows and ragged blocks")


def dense_and_sparse_agree(make: Make) -> None:
    """Sparse rows give what dense rows give, up to the order of sums; pairs give what sparse rows give, to the bit."""
    X, y = good_rows(make().dim)
    dense, sparse = make().partial_fit(X, y), make().partial_fit(sp.csr_array(X), y)
    scale = max(1.0, float(np.abs(dense.theta).max()))
    np.testing.assert_allclose(sparse.theta, dense.theta, rtol=0, atol=CLOSE * scale)
    for whole in (np.int32, np.int64, list):
        pairs = make()
        for x, reward in zip(X, y):
            at = np.flatnonzero(x)
            pair = (at.tolist(), x[at].tolist()) if whole is list else (at.astype(whole), x[at])
            pairs.update(pair, float(reward))
            assert pairs.predict(pair) == pairs.predict(sp.csr_array(x[None]))[0]
        same_tracker(pairs, sparse, "pairs and sparse rows")


def dense_and_sparse_rows_mix(make: Make) -> None:
    """Rows are kept as the first ones were; later ones may come in the other form."""
    X, y = good_rows(make().dim)
    for kind, other in (LAYOUTS, LAYOUTS[::-1]):
        plain, mixed = make().partial_fit(kind(X), y), make().partial_fit(kind(X[:20]), y[:20])
        mixed.partial_fit(other(X[20:40]), y[20:40]).partial_fit(kind(X[40:50]), y[40:50])
        for x, reward in zip(X[50:], y[50:]):
            mixed.update(other(x[None]) if other is sp.csr_array else x, float(reward))
        same_tracker(plain, mixed, "mixed rows")


def every_form_of_numbers_is_read(make: Make) -> None:
    """Any type, layout and sparse format of real numbers is read as what it says, and never written to."""
    dim = make().dim
    X = np.zeros((dim + 3, dim))  # one or two ones a row: of a small norm, and exact in every type
    X[np.arange(dim + 3), np.arange(dim + 3) % dim] = X[::2, 0] = 1.0
    y = np.arange(len(X)) % 3.0
    plain = {sparse: make().partial_fit(sp.csr_array(X) if sparse else X, y) for sparse in (False, True)}
    for name, form in forms(X):
        tracker = make().partial_fit(form, y.astype(np.float32) if "f" in name else y.astype(int).tolist())
        same_tracker(tracker, plain[sp.issparse(form)], name)
        np.testing.assert_array_equal(tracker.predict(form), plain[sp.issparse(form)].predict(X), err_msg=name)


def empty_blocks_change_nothing(make: Make) -> None:
    """A block without rows is no event, dense or sparse, first or later."""
    for stage, tracker in stages(make):
        before = tracker.snapshot()
        tracker.partial_fit(np.empty((0, tracker.dim)), []).partial_fit(sp.csr_array((0, tracker.dim)), np.empty(0))
        same_snapshot(before, tracker.snapshot(), f"empty blocks, {stage}")
        assert tracker.predict(np.empty((0, tracker.dim))).shape == (0,)


def rows_of_zeros_are_rows(make: Make) -> None:
    """They count, and move theta nowhere."""
    for kind in LAYOUTS:
        tracker = make().partial_fit(kind(np.zeros((9, make().dim))), np.ones(9))
        assert len(tracker) == 9
        assert not tracker.theta.any()


def a_refused_call_changes_nothing(make: Make) -> None:
    """Whatever cannot be used gets one of our errors, and not a bit of the tracker changes."""
    for stage, tracker in stages(make):
        before = tracker.snapshot()
        for name, X, y in bad_blocks(tracker.dim):
            refused(f"partial_fit, {stage}, {name}", tracker.partial_fit, X, y)
            same_snapshot(before, tracker.snapshot(), f"partial_fit, {stage}, {name}")
        for name, x, y in bad_rows(tracker.dim):
            refused(f"update, {stage}, {name}", tracker.update, x, y)
            same_snapshot(before, tracker.snapshot(), f"update, {stage}, {name}")
        clean = dict(stages(make))[stage]
        same_tracker(tracker, clean, f"after refusals, {stage}")


def a_question_changes_nothing(make: Make) -> None:
    """predict, theta, repr, len and tracking_error, also refused ones."""
    for stage, tracker in stages(make):
        X, _ = good_rows(tracker.dim, 5)
        before = tracker.snapshot()
        for question in (*(questions(tracker, X)), *(questions(tracker, X))):
            question()
            same_snapshot(before, tracker.snapshot(), f"a question, {stage}")
        for name, matrix in (*malformed(tracker.dim), ("text", "text"), ("NaN", np.nan * X), ("wide", np.ones(99))):
            if tracker.sparse is not None or name in ("text", "wide"):
                refused(f"predict, {stage}, {name}", tracker.predict, matrix)
        same_snapshot(before, tracker.snapshot(), f"refused questions, {stage}")


def questions(tracker: Tracker, X: Any) -> Iterator[Callable[[], Any]]:
    """Whatever can be asked."""
    yield lambda: tracker.theta
    for rows in (X, X[0], sp.csr_array(X), ([0], [1.0])):
        yield lambda rows=rows: tracker.predict(rows)  # type: ignore[misc]
    yield lambda: (repr(tracker), len(tracker), tracker.n, tracker.sparse, tracker.functions())
    yield lambda: tracker.fresh(seed=3)
    try:
        tracker.tracking_error()
    except SettingsError:  # it keeps no rows
        return
    yield tracker.tracking_error


def resuming_equals_never_having_stopped(make: Make) -> None:
    """By save and load, copy, deepcopy and pickle, before the first row and in the midst."""
    X, y = good_rows(make().dim)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tracker"

        def saved(tracker: Tracker) -> Tracker:
            tracker.save(path)
            return type(tracker).load(path, **tracker.functions())

        ways: list[Callable[[Tracker], Tracker]] = [saved, copy.copy, copy.deepcopy]
        kind = type(make())
        importable = getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind
        if importable and not make().functions():  # else nobody can pickle it
            ways.append(lambda tracker: pickle.loads(pickle.dumps(tracker)))
        for layout in LAYOUTS:
            matrix = layout(X)
            straight = make().partial_fit(matrix, y)
            for stop in (0, 37):
                for way in ways:
                    stopped = make().partial_fit(matrix[:stop], y[:stop])
                    again, before = way(stopped), stopped.snapshot()
                    same_snapshot(before, again.snapshot(), f"a copy after {stop} rows")
                    assert repr(again) == repr(stopped) or stopped.functions()
                    again.partial_fit(matrix[stop:], y[stop:])
                    same_tracker(again, straight, f"resumed after {stop} rows")
                    same_snapshot(before, stopped.snapshot(), "what its copy learned")


def resuming_works_after_many_rows(make: Make) -> None:
    """Also once everything that grows has grown."""
    X, y = good_rows(make().dim, 9000)
    for kind in LAYOUTS:
        tracker = make().partial_fit(kind(X[:8500]), y[:8500])
        again = copy_of(tracker).partial_fit(kind(X[8500:]), y[8500:])
        same_tracker(again, tracker.partial_fit(kind(X[8500:]), y[8500:]), "resumed after 8,500 rows")


def the_seed_decides(make: Make) -> None:
    """Equal seeds, equal bits; other seeds, other draws; a fresh one knows nothing."""
    X, y = good_rows(make().dim)
    same_tracker(make().partial_fit(X, y), make().partial_fit(X, y), "two of one seed")
    new = make().partial_fit(X, y).fresh(seed=3)
    assert len(new) == 0
    assert not new.theta.any()
    one, two, other = (make().fresh(seed).partial_fit(X, y) for seed in (3, 3, 4))
    same_tracker(one, two, "two fresh ones of one seed")
    if one.draws_rows:
        assert one.theta.tobytes() != other.theta.tobytes(), "another seed made the same draws"


def the_history_holds_what_it_says(make: Make) -> None:
    """All rows, the newest, or some of all; never one twice, never another."""
    tracker = make()
    X, y = good_rows(tracker.dim)
    X, y = np.tile(X, (3, 1)), np.arange(3.0 * len(y)) / (3 * len(y))
    for kind in LAYOUTS:
        tracker = make()
        for first in range(0, len(y), 17):
            tracker.partial_fit(kind(X[first : first + 17]), y[first : first + 17])
        held_X, held_y = tracker.history.matrix()
        held_X = held_X.toarray() if sp.issparse(held_X) else held_X
        place = np.searchsorted(y, held_y)
        np.testing.assert_array_equal(y[place], held_y)
        np.testing.assert_array_equal(X[place], held_X)
        assert len(set(place)) == len(place) == len(tracker.history)
        assert tracker.history.seen == len(y)
        most = tracker.history.capacity or len(y)
        if isinstance(tracker.history, Growing | Window):
            assert sorted(place) == list(range(max(0, len(y) - most), len(y)))
        elif isinstance(tracker.history, Reservoir):
            assert len(place) == min(most, len(y))


@contextmanager
def hasty_threads() -> Iterator[None]:
    """Have threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def threads_take_turns(make: Make, workers: int = 4, calls: int = 40) -> None:
    """Any mix of calls from several threads equals some order of them: what they saw, saved and left behind."""
    for kind in LAYOUTS:
        tracker = make()
        X, y = good_rows(tracker.dim, workers * calls)
        y += np.linspace(0.0, 1e-3, len(y))  # tells rows apart
        if not isinstance(tracker.history, Growing):  # whose rows tell in which order they came; else all are alike
            X, y = np.tile(X[:1], (len(y), 1)), np.full(len(y), y[0])
        rows = kind(X)
        seen: list[Any] = []
        shares = [range(worker * calls, (worker + 1) * calls) for worker in range(workers)]
        with hasty_threads():
            threads = [threading.Thread(target=_work, args=(tracker, rows, y, share, seen)) for share in shares]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        for entry in seen:
            if isinstance(entry, BaseException):
                raise AssertionError(f"a thread failed: {entry!r}") from entry
        _equals_an_order(make, tracker, rows, y, seen)


def _work(tracker: Tracker, rows: Any, y: Any, share: range, seen: list[Any]) -> None:
    """Learn a share of the rows, and look and copy now and then."""
    generator, n = np.random.default_rng(share.start), share.start
    try:
        while n < share.stop:
            action = generator.integers(6)
            if action < 2:
                tracker.update(rows[[n]] if sp.issparse(rows) else rows[n], float(y[n]))
                n += 1
            elif action == 2:
                last = min(n + 3, share.stop)
                tracker.partial_fit(rows[n:last], y[n:last])
                n = last
            elif action == 3:
                seen.append((None, tracker.theta))
            elif action == 4:
                tracker.predict(rows[n : n + 2])
            else:
                then = copy_of(tracker)
                seen.append((len(then), then.theta))
    except BaseException as error:  # which would end the thread and nothing else
        seen.append(error)


def _equals_an_order(make: Make, tracker: Tracker, rows: Any, y: Any, seen: list[Any]) -> None:
    order = np.arange(len(y))
    if isinstance(tracker.history, Growing):
        by_reward = np.argsort(y)
        order = by_reward[np.searchsorted(y, tracker.history.matrix()[1], sorter=by_reward)]
        assert sorted(order) == list(range(len(y))), "a row was lost, or came twice"
    serial = make()
    thetas = [serial.theta, *(serial.partial_fit(rows[[n]], y[[n]]).theta for n in order)]
    same_tracker(serial, tracker, "four threads and their order of calls")
    known = {theta.tobytes() for theta in thetas}
    for n, theta in seen:
        assert theta.tobytes() in (known if n is None else {thetas[n].tobytes()}), "a theta that never was"


TRACKER_CHECKS: list[Callable[[Make], None]] = [
    starts_at_zero_and_counts_rows,
    rows_and_blocks_agree,
    dense_and_sparse_agree,
    dense_and_sparse_rows_mix,
    every_form_of_numbers_is_read,
    empty_blocks_change_nothing,
    rows_of_zeros_are_rows,
    a_refused_call_changes_nothing,
    a_question_changes_nothing,
    resuming_equals_never_having_stopped,
    resuming_works_after_many_rows,
    the_seed_decides,
    the_history_holds_what_it_says,
    threads_take_turns,
]
