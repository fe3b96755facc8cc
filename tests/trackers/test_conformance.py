"""Every tracker of ours passes the checks that a user's own must pass, and equals the oracle row by row."""

from __future__ import annotations

import copy
import pickle
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from bad_rows import bad_blocks, bad_rows, forms, malformed
from cases import CASES, HISTORIES, combinations, make, name, rows
from driftls.history import Growing, Reservoir, Window
from driftls.testing import TRACKER_CHECKS
from driftls.testing import trackers as checks
from driftls.testing.common import LAYOUTS, a_question_changes_nothing, a_refused_call_changes_nothing, good_rows, same
from driftls.trackers import CD, GD, OLS, RLS, SAG, SAGA, SVRG, AutoDiscount, Diagonal
from turns import TRACKER, threads_take_turns

every = pytest.mark.parametrize(("case", "history"), combinations(), ids=[name(*both) for both in combinations()])


def every_bad_call(tracker, layout):
    for told, X, y in bad_blocks(tracker.dim):
        yield f"partial_fit, {told}", partial(tracker.partial_fit, X, y)
    for told, x, y in bad_rows(tracker.dim):
        yield f"update, {told}", partial(tracker.update, x, y)
    if tracker.sparse is not None:
        for told, matrix in malformed(tracker.dim):
            yield f"predict, {told}", partial(tracker.predict, matrix)


def no_bad_call_changes_anything(make):
    """All of them; a user's own tracker, whose rows come by the same way, is asked a few."""
    a_refused_call_changes_nothing(checks.LIFE._replace(bad_calls=every_bad_call), make)


def every_form_of_numbers_is_read(make):
    """Any type, layout and sparse format of real numbers is read as what it says, and never written to."""
    dim = make().dim
    X = np.zeros((dim + 3, dim))  # one or two ones a row: of a small norm, and exact in every type
    X[np.arange(dim + 3), np.arange(dim + 3) % dim] = X[::2, 0] = 1.0
    y = np.arange(len(X)) % 3.0
    plain = {sparse: make().partial_fit(sp.csr_array(X) if sparse else X, y) for sparse in (False, True)}
    for told, form in forms(X):
        tracker = make().partial_fit(form, y.astype(np.float32) if "f" in told else y.astype(int).tolist())
        same(tracker, plain[sp.issparse(form)], told)
        np.testing.assert_array_equal(tracker.predict(form), plain[sp.issparse(form)].predict(X), err_msg=told)


def the_history_holds_what_it_says(make):
    """All rows, the newest, or some of all; never one twice, never another."""
    X, y = good_rows(make().dim)
    X, y = np.tile(X, (3, 1)), np.arange(3.0 * len(y)) / (3 * len(y))
    for layout in LAYOUTS:
        tracker = make()
        for first in range(0, len(y), 17):
            tracker.partial_fit(layout(X[first : first + 17]), y[first : first + 17])
        held_X, held_y = tracker.history.matrix()
        assert (len(held_y), tracker.history.seen) == (len(tracker.history), len(y))
        if tracker.units is not None:  # rows are held in the tracker's own units
            continue
        place = np.searchsorted(y, held_y)
        np.testing.assert_array_equal(y[place], held_y)
        np.testing.assert_array_equal(X[place], held_X.toarray() if sp.issparse(held_X) else held_X)
        assert len(set(place)) == len(place)
        most = tracker.history.capacity or len(y)
        if isinstance(tracker.history, Growing | Window):
            assert sorted(place) == list(range(max(0, len(y) - most), len(y)))
        elif isinstance(tracker.history, Reservoir):
            assert len(place) == min(most, len(y))


def a_pickle_and_a_shallow_copy_go_on_alike(make):
    X, y = good_rows(make().dim)
    for way in (copy.copy, *([] if make().functions() else [lambda thing: pickle.loads(pickle.dumps(thing))])):
        tracker = make().partial_fit(X[:30], y[:30])
        same(way(tracker).partial_fit(X[30:], y[30:]), tracker.partial_fit(X[30:], y[30:]), "a copy")


def calls_from_threads_take_turns(make):
    threads_take_turns(TRACKER, make)


EVERY_CHECK = [check for check in TRACKER_CHECKS if check.__name__ != "a_refused_call_changes_nothing"]
EVERY_CHECK += [
    a_pickle_and_a_shallow_copy_go_on_alike,
    calls_from_threads_take_turns,
    no_bad_call_changes_anything,
    every_form_of_numbers_is_read,
    the_history_holds_what_it_says,
]
# These look at what is passed, and at the lock, which no history decides.
ONCE = {
    "no_bad_call_changes_anything",
    "every_form_of_numbers_is_read",
    "a_question_changes_nothing",
    "calls_from_threads_take_turns",
    "a_pickle_and_a_shallow_copy_go_on_alike",
}


@pytest.mark.parametrize("check", EVERY_CHECK, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_every_tracker(case, check):
    # whose inverse is made by Python for each of many rows
    once = check.__name__ in ONCE or (case.name == "RLS inverse" and check is checks.resuming_works_after_many_rows)
    histories = ((None, *case.histories) if not case.draws else case.histories)[: 1 if once else None]
    for history in histories:
        check(partial(make, case, history))


def test_the_list_names_every_tracker_that_is_offered():
    assert {type(make(case)) for case in CASES} == {CD, GD, OLS, RLS, SAG, SAGA, SVRG, AutoDiscount, Diagonal}


@every
@pytest.mark.parametrize("kind", [np.array, sp.csr_array], ids=["dense", "sparse"])
def test_kernels_equal_the_oracle(case, history, kind):
    X, y = rows(density=1.0 if kind is np.array else 0.4)
    kept = HISTORIES[history][1] if history else ("growing",) if case.draws else None
    expected = case.oracle(X, y, kept)
    tracker, matrix = make(case, history), kind(X)
    for n in range(len(y)):
        tracker.partial_fit(matrix[n : n + 1], y[n : n + 1])
        scale = max(1.0, float(np.abs(expected[n]).max()))
        np.testing.assert_allclose(tracker.theta, expected[n], atol=case.exact_to * scale, err_msg=f"row {n + 1}")


class Mine(SAGA):
    """A tracker of a user, with a constructor of its own."""

    def __init__(self, features):
        super().__init__(features, steps=3, seed=5)


@pytest.mark.parametrize("check", TRACKER_CHECKS)
def test_a_tracker_of_a_user(check):
    check(lambda: Mine(5))


class Forgetful(SAGA):
    """A tracker of a user that gets one thing wrong: a refused row leaves a trace."""

    def update(self, x, y):
        self.frame["max_y2"] = self.frame["max_y2"] + 1.0
        super().update(x, y)


class Curious(SAGA):
    """Another one, which draws a number when it is asked for theta."""

    @property
    def theta(self):
        self._draws.take(1)
        return super().theta


@pytest.mark.parametrize(
    ("kind", "check"),
    [(Forgetful, a_refused_call_changes_nothing), (Curious, a_question_changes_nothing)],
)
def test_the_checks_notice(kind, check):
    with pytest.raises(AssertionError, match=r"changed|header"):
        check(checks.LIFE, lambda: kind(4, seed=0))
