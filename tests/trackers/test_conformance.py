"""Every tracker of ours passes the checks that a user's own must pass, and equals the oracle row by row."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from cases import CASES, HISTORIES, combinations, make, name, rows
from driftls.testing import TRACKER_CHECKS
from driftls.testing import trackers as checks
from driftls.trackers import CD, GD, OLS, RLS, SAG, SAGA, SVRG, AutoDiscount, Diagonal

every = pytest.mark.parametrize(("case", "history"), combinations(), ids=[name(*both) for both in combinations()])
# These look at what is passed, and at the lock, which no history decides.
ONCE = {
    *(checks.every_form_of_numbers_is_read, checks.a_refused_call_changes_nothing, checks.a_question_changes_nothing),
    checks.threads_take_turns,
}


@pytest.mark.parametrize("check", TRACKER_CHECKS)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_every_tracker(case, check):
    # whose inverse is made by Python for each of many rows
    once = check in ONCE or (case.name == "RLS inverse" and check is checks.resuming_works_after_many_rows)
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
    [(Forgetful, checks.a_refused_call_changes_nothing), (Curious, checks.a_question_changes_nothing)],
)
def test_the_checks_notice(kind, check):
    with pytest.raises(AssertionError, match=r"changed|header"):
        check(lambda: kind(4, seed=0))
