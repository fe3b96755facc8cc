"""Any mix of calls from several threads: what trackers and policies do then."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from driftls.testing import policies, trackers
from driftls.testing.common import LAYOUTS, copy_of, good_rows, same


class Turns(NamedTuple):
    """How a tracker, or a policy, is called."""

    teach: Callable[..., Any]
    act: Callable[..., Any]  # one of several calls, by number, that may change it; 1 learns one row
    look: Callable[..., Any]  # one that changes nothing


def act(tracker, number, layout):
    X, y = good_rows(tracker.dim)
    n = number % 50
    if number % 3 == 0:
        tracker.partial_fit(layout(X[n : n + 3]), y[n : n + 3])
    elif number % 3 == 1:
        tracker.update(trackers.one_row(X[n], layout), float(y[n]))
    return tracker.predict(layout(X[n : n + 2])).tobytes() if number % 3 == 2 else None


def look(tracker, number, layout):
    if number % 3 == 0:
        assert np.isfinite(tracker.theta).all()
    elif number % 3 == 1:
        tracker.predict(layout(good_rows(tracker.dim, 2)[0]))
    else:
        assert len(copy_of(tracker)) <= len(tracker)


def policy_act(policy, number, layout):
    """Choose, learn, or both."""
    arms, ids, _ = next(policies.rounds(policy, 1, layout, number % 10))
    chosen = policy.choose(arms, ids=ids) if number % 3 != 1 else 0
    if number % 3:
        policy.learn(arms, number / 1000.0, arm=chosen, ids=ids)
    return chosen


def policy_look(policy, number, layout):
    arms, ids, _ = next(policies.rounds(policy, 1, layout, number % 10))
    if number % 2 and not policy.width.samples:
        assert policy.scores(arms, ids=ids).shape == (len(ids),)
    else:
        assert copy_of(policy).dim == policy.dim


TRACKER = Turns(trackers.LIFE.teach, act, look)
POLICY = Turns(policies.LIFE.teach, policy_act, policy_look)


@contextmanager
def hasty_threads():
    """Have threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def threads_take_turns(turns, make, workers=4, calls=12, seed=0):
    """Any mix of calls from several threads equals some order of them: that in which they had the lock.

    And calls that are all alike, from threads that nobody holds back: each of them counts once.
    """
    for layout in LAYOUTS:
        for mixed in (True, False):
            thing, serial = make(), make()
            log = []
            for one in (thing, serial):
                turns.teach(one, 0, 3, layout)

            def work(worker, thing=thing, layout=layout, mixed=mixed, log=log):
                for number in np.random.default_rng([seed, worker]).integers(0, 1000, calls).tolist():
                    with thing.lock if mixed else nullcontext():  # so that the order is known; calls take it again
                        log.append((number if mixed else 1, turns.act(thing, number if mixed else 1, layout)))
                    turns.look(thing, number, layout)

            with hasty_threads(), ThreadPoolExecutor(workers) as pool:
                list(pool.map(work, range(workers)))
            for number, found in log:
                assert turns.act(serial, number, layout) == found, "no order of calls answers so"
            same(serial, thing, "threads and their order of calls")
