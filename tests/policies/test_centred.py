"""Centred widths: against the oracle, from a table and arm by arm, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import naive
from driftls import ridge
from driftls.errors import SettingsError
from driftls.policies import DisjointLinUCB
from driftls.trackers import CD, RAW, RLS, SAGA
from driftls.widths import CentredWidth

DIM, ROUNDS, IDS = 5, 90, ["a", "b", "c"]
LAYOUTS = pytest.mark.parametrize("kind", [np.array, sp.csr_array], ids=["dense", "sparse"])


def problem(seed=0):
    rng = np.random.default_rng(seed)
    X = (rng.random((ROUNDS, DIM)) < 0.4) * rng.integers(1, 4, (ROUNDS, DIM)).astype(float)
    return X, (rng.random((ROUNDS, len(IDS))) < [0.2, 0.5, 0.6]).astype(float)


@LAYOUTS
@pytest.mark.parametrize("tracker", [RLS, SAGA])
def test_widths_equal_the_oracle(kind, tracker):
    """In raw units but for the intercept: sums are then those of the rows themselves."""
    X, rewards = problem()
    given = tracker(DIM, regularisation=ridge(2.0), scale=False)
    policy = DisjointLinUCB(DIM, tracker=given, width=CentredWidth(), seed=0)
    chosen = policy.play(kind(X), rewards, ids=IDS)
    for user in X[:7]:
        expected = [
            naive.centred_width2(X[chosen == k], user, 2.0, 2.0) if (chosen == k).any() else np.nan for k in range(3)
        ]
        found = policy.widths(kind(user[None]), ids=IDS)
        # between two looks, features that a row does not have keep their share of an earlier n
        tolerance = 1e-9 if kind is np.array else 0.05
        np.testing.assert_allclose(found, np.sqrt(expected), rtol=tolerance)


@LAYOUTS
@pytest.mark.parametrize("make", [lambda: RLS(DIM), lambda: SAGA(DIM, seed=0), lambda: CD(DIM, discount=0.98)])
def test_rounds_from_a_table_equal_rounds_from_python(kind, make):
    X, rewards = problem(1)
    at_once, by_hand = (DisjointLinUCB(DIM, tracker=make(), width=CentredWidth(), seed=3) for _ in range(2))
    chosen = at_once.play(kind(X), rewards, ids=IDS)
    for n, user in enumerate(X):
        k = by_hand.choose(kind(user[None]), ids=IDS)
        assert k == chosen[n], n
        by_hand.learn(kind(user[None]), rewards[n, k], arm=k, ids=IDS)


def test_an_intercept_is_needed():
    policy = DisjointLinUCB(DIM, tracker=RLS(DIM, **RAW), width=CentredWidth())
    with pytest.raises(SettingsError, match="intercept=True"):
        policy.choose(np.ones(DIM), ids=IDS)
