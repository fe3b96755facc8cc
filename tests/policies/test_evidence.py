"""The ridge from the data where a tracker forgets: found over a window as over all rows, and left alone with a discount."""

from __future__ import annotations

import numpy as np
import pytest

from driftls.history import Window
from driftls.policies import DisjointLinUCB
from driftls.trackers import RLS, SAGA
from driftls.widths import CentredWidth, ExactWidth

DIM, ARMS, ROUNDS = 6, 4, 3000


def after_rounds(tracker, width, lam):
    """A policy whose coefficients are draws of a prior of strength `lam`, with noise 1."""
    rng = np.random.default_rng(3)
    policy, theta = DisjointLinUCB(DIM, tracker=tracker, width=width, seed=0), lam**-0.5 * rng.normal(size=(ARMS, DIM))
    users = rng.normal(size=(ROUNDS, DIM))
    for x, seen in zip(users, users @ theta.T + rng.normal(size=(ROUNDS, ARMS))):
        k = policy.choose(x, ids=range(ARMS))
        policy.learn(x, float(seen[k]), arm=k, ids=range(ARMS))
    return policy


@pytest.mark.parametrize("lam", [0.3, 20.0])
@pytest.mark.parametrize(
    "parts",
    [
        lambda: (RLS(DIM), ExactWidth()),
        lambda: (RLS(DIM, history=Window(200)), ExactWidth()),
        lambda: (RLS(DIM, history=Window(200)), CentredWidth()),
        lambda: (SAGA(DIM, history=Window(200)), CentredWidth()),
    ],
    ids=["all rows", "window", "window, centred", "SAGA, window"],
)
def test_ridge_and_noise_are_found_also_over_a_window(parts, lam):
    policy = after_rounds(*parts(), lam)
    # 24 coefficients: the mean of so many squared draws is within a factor of 2 of its expectation, and a change of the ridge
    # by less than half is left out
    assert lam / 3.0 < policy.strength.ridge < 3.0 * lam
    assert abs(policy.kappa / policy.sigmas - 1.0) < 0.15


def test_with_a_discount_the_ridge_is_what_was_given():
    tracker = RLS(DIM, discount=0.99, method="sherman-morrison")
    assert after_rounds(tracker, ExactWidth(), 20.0).strength is None


def test_the_noise_is_that_of_rows_held_where_rewards_have_grown():
    rng = np.random.default_rng(0)
    tracker = SAGA(DIM, history=Window(300), seed=0)
    policy, theta = DisjointLinUCB(DIM, tracker=tracker, width=CentredWidth(), seed=0), rng.normal(size=DIM)
    for n, x in enumerate(rng.normal(size=(4000, DIM))):
        policy.choose(x, ids=[0])
        policy.learn(x, (1.0 if n < 1000 else 100.0) * float(x @ theta + rng.normal()), arm=0, ids=[0])
    assert abs(policy.kappa / policy.sigmas - 100.0) < 15.0
