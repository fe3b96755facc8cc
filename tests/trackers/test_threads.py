"""One tracker in several threads: calls take turns. Several trackers: nobody waits for anybody."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from driftls.history import Mapped
from driftls.testing.trackers import same_tracker
from driftls.trackers import RAW, RLS, SAGA
from turns import hasty_threads


def together(*calls):
    """Run calls in threads of their own; the first error is raised here."""
    failed = []

    def guarded(call):
        try:
            call()
        except BaseException as error:
            failed.append(error)

    with hasty_threads():
        threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


@pytest.mark.parametrize("mapped", [False, True])
def test_saves_beside_a_thread_that_learns_are_whole(tmp_path, mapped):
    X = np.random.default_rng(0).normal(size=(64, 20))
    tracker = SAGA(20, seed=0, history=Mapped(tmp_path / "rows") if mapped else None, **RAW)
    tracker.partial_fit(X, X[:, 0])
    found = []

    def learn():
        for _ in range(60):
            tracker.partial_fit(X, X[:, 0])

    def save():
        for _ in range(8):
            tracker.save(tmp_path / "file")
            if not mapped:  # whose folder has one owner
                found.append(SAGA.load(tmp_path / "file"))

    together(learn, save, save)
    straight = SAGA(20, seed=0, **RAW)
    thetas = {}
    for _ in range(61):
        straight.partial_fit(X, X[:, 0])
        thetas[len(straight)] = straight.theta.tobytes()
    for saved in found:
        assert saved.theta.tobytes() == thetas[len(saved)]
    np.testing.assert_array_equal(tracker.theta, straight.theta)
    if mapped:
        tracker.save(tmp_path / "file")
        tracker.history.close()
        np.testing.assert_array_equal(SAGA.load(tmp_path / "file").theta, straight.theta)


def test_every_row_of_every_thread_is_learned_once():
    X = np.random.default_rng(0).normal(size=(900, 5))
    y = np.arange(900.0)
    tracker = SAGA(5, seed=0, guard=False, **RAW)

    def share(first):
        for n in range(first, first + 300):
            tracker.update(X[n], y[n])

    together(*(lambda first=first: share(first) for first in (0, 300, 600)))
    rows, rewards = tracker.history.matrix()
    assert sorted(rewards) == list(y)
    np.testing.assert_array_equal(rows, X[rewards.astype(int)])
    same_tracker(tracker, SAGA(5, seed=0, guard=False, **RAW).partial_fit(rows, rewards), "three threads")


def test_a_tracker_does_not_wait_for_another():
    one, two = SAGA(3, seed=0, **RAW), SAGA(3, seed=0, **RAW)
    with one.lock:  # as if a long call of it were under way in this thread
        together(lambda: two.partial_fit(np.eye(3), np.ones(3)), lambda: two.predict(np.eye(3)))
    assert len(two) == 3


def test_a_long_kernel_leaves_the_interpreter_to_others():
    X = np.random.default_rng(0).normal(size=(400, 400))
    tracker = RLS(400, **RAW)
    tracker.update(X[0], 1.0)  # compiled, and started
    thread = threading.Thread(target=tracker.partial_fit, args=(X, X[:, 0]))
    turns = 0
    thread.start()
    while thread.is_alive():  # one kernel runs meanwhile: with the lock held there would be hardly a turn
        turns += 1
    thread.join()
    assert turns > 1000
