"""Any order of public calls: the tracker equals one that was given the same rows at once."""

from __future__ import annotations

import copy
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bad_rows import bad_blocks, bad_rows
from cases import DIM, combinations, make
from driftls.errors import DriftlsError
from driftls.testing.common import good_rows
from driftls.testing.trackers import same_snapshot, same_tracker

# Near a singular matrix OLS may leave its route with a warning, at another place than a block does.
CASES = [both for both in combinations() if both[0].name != "OLS"]
BAD_BLOCKS, BAD_ROWS = list(bad_blocks(DIM)), list(bad_rows(DIM))


class Life(RuleBasedStateMachine):
    """What can happen to a tracker."""

    @initialize(which=st.integers(0, len(CASES) - 1), sparse=st.booleans())
    def begin(self, which, sparse):
        self.case, self.history = CASES[which]
        self.tracker, self.X, self.y = make(self.case, self.history), np.empty((0, DIM)), np.empty(0)
        self.kind = sp.csr_array if sparse else np.array
        self.other = np.array if sparse else sp.csr_array

    def learn(self, X, y, call):
        call(X, y)
        self.X, self.y = np.vstack([self.X, X]), np.concatenate([self.y, y])

    @rule(seed=st.integers(0, 10**6), count=st.integers(0, 40))
    def block(self, seed, count):
        self.learn(*good_rows(DIM, count, seed=seed), lambda X, y: self.tracker.partial_fit(self.kind(X), y))

    @precondition(lambda self: len(self.tracker))
    @rule(seed=st.integers(0, 10**6), count=st.integers(1, 40))
    def block_of_the_other_kind(self, seed, count):
        self.learn(*good_rows(DIM, count, seed=seed), lambda X, y: self.tracker.partial_fit(self.other(X), y))

    @precondition(lambda self: len(self.tracker))
    @rule(seed=st.integers(0, 10**6), pair=st.booleans())
    def row(self, seed, pair):
        def call(X, y):
            at = np.flatnonzero(X[0])
            self.tracker.update((at, X[0][at]) if pair else X[0], float(y[0]))

        self.learn(*good_rows(DIM, 1, seed=seed), call)

    @rule(which=st.integers(0, len(BAD_BLOCKS) - 1))
    def bad_block(self, which):
        what, X, y = BAD_BLOCKS[which]
        self.refused(what, lambda: self.tracker.partial_fit(X, y))

    @rule(which=st.integers(0, len(BAD_ROWS) - 1))
    def bad_row(self, which):
        what, x, y = BAD_ROWS[which]
        self.refused(what, lambda: self.tracker.update(x, y))

    def refused(self, what, call):
        before = self.tracker.snapshot()
        with pytest.raises(DriftlsError):
            call()
        same_snapshot(before, self.tracker.snapshot(), what)

    @rule()
    def questions(self):
        before = self.tracker.snapshot()
        X, _ = good_rows(DIM, 3)
        np.testing.assert_allclose(self.tracker.predict(X), X @ self.tracker.theta, rtol=0, atol=1e-9)
        assert repr(self.tracker).endswith(f"n={len(self.y)}")
        same_snapshot(before, self.tracker.snapshot(), "questions")

    @rule(way=st.sampled_from(["copy", "pickle", "file"]))
    def replaced(self, way):
        before, functions = self.tracker.snapshot(), self.tracker.functions()
        if way == "file":
            with tempfile.TemporaryDirectory() as folder:
                self.tracker.save(Path(folder) / "t")
                self.tracker = type(self.tracker).load(Path(folder) / "t", **functions)
        elif way == "pickle" and not functions:
            self.tracker = pickle.loads(pickle.dumps(self.tracker))
        else:
            self.tracker = copy.deepcopy(self.tracker)
        same_snapshot(before, self.tracker.snapshot(), way)

    @invariant()
    def counts(self):
        if hasattr(self, "tracker"):
            assert len(self.tracker) == self.tracker.n == self.tracker.history.seen == len(self.y)
            assert self.tracker.sparse == (None if not len(self.y) else self.kind is sp.csr_array)

    def teardown(self):
        if hasattr(self, "tracker"):
            straight = make(self.case, self.history).partial_fit(self.kind(self.X), self.y)
            same_tracker(self.tracker, straight, f"{self.case.name}, {self.history}")


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=40,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
