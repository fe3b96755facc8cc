"""The ridge from the data: of each feature; where a tracker forgets, as over all rows in a window, and not with a discount."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from driftls.history import Window
from driftls.policies import DisjointLinUCB
from driftls.policies.evidence import ANCHOR, freedoms_of, next_weights
from driftls.schedules import ridge
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


def where_half_matter(rounds, **settings):
    """A policy over features of many sizes, of which the first half tells arms apart."""
    rng = np.random.default_rng(5)
    policy, theta = DisjointLinUCB(DIM, seed=0, **settings), rng.normal(size=(ARMS, DIM)) * (np.arange(DIM) < DIM // 2)
    users, sizes = rng.normal(size=(rounds, DIM)), 10.0 ** rng.uniform(-3, 3, DIM)
    policy.play(users * sizes, users @ theta.T + rng.normal(size=(rounds, ARMS)), ids=list(range(ARMS)))
    return policy


@pytest.mark.parametrize("tracker", [None, SAGA(DIM, seed=0)], ids=["exact", "SAGA"])
def test_features_that_matter_weigh_more(tracker):
    weights = where_half_matter(2000, tracker=tracker).units.arrays["weight"]
    assert weights[: DIM // 2].min() > 1.5 * weights[DIM // 2 :].max()


def test_freedom_is_probed_feature_by_feature_without_bias():
    rng, found, exact = np.random.default_rng(0), [], []
    X = rng.normal(size=(300, DIM)) @ rng.normal(size=(DIM, DIM))
    tracker = SAGA(DIM, regularisation=ridge(30.0), seed=0)
    for n in range(0, 300, 2):
        tracker.partial_fit(X[n : n + 2], rng.normal(size=2))
        if n >= 100:
            rows = tracker.history.matrix()[0]
            found.append(tracker.freedoms())
            exact.append(1.0 - 30.0 * np.diag(np.linalg.inv(rows.T @ rows + 30.0 * np.eye(DIM + 1)))[:DIM])
    error = np.std(np.array(found) - exact, axis=0) / np.sqrt(len(found))
    assert (abs(np.mean(found, axis=0) - np.mean(exact, axis=0)) < 4.0 * error).all()


def test_weights_are_those_of_the_rule_and_stay_in_a_file(tmp_path):
    policy, lam, sigma2 = where_half_matter(700), 2.0, 1.5
    now, models = policy.units.arrays["weight"] ** 2, policy._models.each()
    freedom, size = np.zeros(DIM), np.zeros(DIM)
    for tracker, _ in models:
        matrix, moment = tracker.sums()
        inverse = np.linalg.inv(matrix)
        freedom += 1.0 - policy.strength.ridge * np.diag(inverse)[:DIM]
        size += (inverse @ moment)[:DIM] ** 2
    anchor = ANCHOR * ARMS
    expected = (now * lam * size / sigma2 + anchor) / (freedom + anchor)
    assert np.allclose(
        next_weights(models, freedoms_of(models), ARMS, policy.units, lam, sigma2) ** 2,
        expected,
        rtol=1e-6,
    )
    policy.save(tmp_path / "policy.driftls")
    same = DisjointLinUCB.load(tmp_path / "policy.driftls")
    assert np.array_equal(same.units.arrays["weight"], policy.units.arrays["weight"])


def test_a_large_weight_is_no_growth_that_asks_for_a_look():
    policy, looks = where_half_matter(2000), []
    units, rng = policy.units, np.random.default_rng(6)
    take = units.look
    units.look = lambda *args, **more: looks.append(1) or take(*args, **more)
    spread = units.arrays["weight"] / units.arrays["unit"]
    for x in rng.normal(size=(600, DIM)) * spread:
        policy.choose(x, ids=list(range(ARMS)))
    assert len(looks) <= 1


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
def test_freedom_needs_neither_an_intercept_nor_a_feature_that_was_seen(layout):
    rng = np.random.default_rng(0)
    for intercept, size in ((False, 1.0), (True, 0.0)):
        policy = DisjointLinUCB(DIM, tracker=SAGA(DIM, intercept=intercept, seed=0), seed=0)
        users = layout(size * rng.normal(size=(200, DIM)))
        policy.play(users, rng.normal(size=(200, 2)), ids=["a", "b"])
        assert np.isfinite(policy.scores(users[:1], ids=["a", "b"])).all()
