"""Exact widths that are found only where they can matter: the choices are those of all widths."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import naive
from driftls.errors import CorruptFileError
from driftls.history import Window
from driftls.policies import LinUCB
from driftls.schedules import ridge
from driftls.trackers import CD, RAW, RLS
from driftls.widths import ExactWidth

POLICIES = {
    "default": lambda dim: LinUCB(dim, seed=1),
    "raw units": lambda dim: LinUCB(tracker=RLS(dim, **RAW), width=ExactWidth(), seed=1),
    "epsilon": lambda dim: LinUCB(tracker=RLS(dim, **RAW), width=ExactWidth(), epsilon=0.2, seed=1),
    "of its own": lambda dim: LinUCB(tracker=CD(dim), width=ExactWidth(), seed=1),
    "discount": lambda dim: LinUCB(
        tracker=RLS(dim, discount=0.97, method="sherman-morrison"), width=ExactWidth(), seed=1
    ),
    "inverted, discount": lambda dim: LinUCB(
        tracker=RLS(dim, discount=0.97, method="inverse", **RAW), width=ExactWidth(), seed=1
    ),
    "window": lambda dim: LinUCB(tracker=RLS(dim, history=Window(25), **RAW), width=ExactWidth(), seed=1),
    "ill-conditioned": lambda dim: LinUCB(
        tracker=RLS(dim, regularisation=ridge(1e-7), **RAW), width=ExactWidth(), kappa=1e-3, seed=1
    ),
}


def rounds(seed, dim, count, how_many, *, sparse):
    """Pools that change, arms that recur, some with other features, some not allowed; two arms of a pool are alike."""
    rng = np.random.default_rng(seed)
    theta, everyone = (
        rng.normal(size=dim) / np.sqrt(dim),
        rng.normal(size=(3 * count, dim)) * 10.0 ** rng.normal(size=dim),
    )
    everyone *= rng.random(everyone.shape) < (0.4 if sparse else 1.0)
    everyone[1] = everyone[0]
    for n in range(how_many):
        ids = np.arange(count) if n % 3 else rng.permutation(3 * count)[:count]
        arms = everyone[ids].copy()
        if n % 7 == 0:
            arms[-1] *= 1.5
        allowed = None if n % 5 else np.sort(rng.permutation(count)[: 1 + count // 2])
        yield (
            (sp.csr_array(arms) if sparse else arms),
            ids.tolist(),
            allowed,
            arms @ theta + 0.3 * rng.normal(size=count),
        )


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.filterwarnings("ignore::driftls.errors.ConditioningWarning")
def test_bounds_change_no_choice(name, sparse):
    for seed, (dim, count) in enumerate([(2, 3), (5, 8), (20, 12), (20, 40)]):
        bounded, every = POLICIES[name](dim), POLICIES[name](dim)
        if name == "default":  # which would take other parts for sparse arms, or with ids
            bounded, every = (LinUCB(tracker=RLS(dim), width=ExactWidth(), seed=1) for _ in range(2))
        for arms, ids, allowed, rewards in rounds(seed, dim, count, 120, sparse=sparse):
            chosen = every.choose(arms, allowed=allowed)
            assert bounded.choose(arms, ids=ids, allowed=allowed) == chosen
            for policy, names in ((bounded, ids), (every, None)):
                policy.learn(arms, float(rewards[chosen]), arm=chosen, ids=names)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.filterwarnings("ignore::driftls.errors.ConditioningWarning")
def test_a_pool_that_stays_is_played_as_it_is_chosen_from(name):
    dim, count, n = 20, 30, 200
    rng = np.random.default_rng(3)
    arms, rewards = rng.normal(size=(count, dim)) * 3.0 + 1.0, rng.normal(size=(n, count))
    by_one, at_once, every = (POLICIES[name](dim) for _ in range(3))
    chosen = []
    for values in rewards:
        chosen.append(by_one.choose(arms, ids=list(range(count))))
        by_one.learn(arms, float(values[chosen[-1]]), arm=chosen[-1], ids=list(range(count)))
    assert at_once.play(arms, rewards, ids=list(range(count))).tolist() == chosen
    assert every.play(arms, rewards).tolist() == chosen
    assert at_once.theta.tobytes() == by_one.theta.tobytes()
    if by_one.units is not None:
        for mine, other in zip(by_one.units.snapshot()[1].values(), at_once.units.snapshot()[1].values(), strict=True):
            np.testing.assert_array_equal(mine, other)


def test_few_widths_are_found_anew_and_every_question_is_answered_exactly():
    dim, count, n = 20, 100, 400
    rng = np.random.default_rng(0)
    arms, ids = rng.normal(size=(count, dim)) / 4.0, list(range(count))
    rewards = arms @ rng.normal(size=dim) + 0.3 * rng.normal(size=(n, count))
    policy = LinUCB(tracker=RLS(dim, **RAW), width=ExactWidth(), kappa=0.6, seed=0)
    found = 0
    for line in rewards:
        k = policy.choose(arms, ids=ids)
        stamps = policy.snapshot()[1]["0.width.stamps"]
        found += int((stamps == stamps.max()).sum())
        policy.learn(arms, float(line[k]), arm=k, ids=ids)
    assert found < 5 * n  # of 100 a round
    pulled = policy.tracker.sums()[0]
    expected = np.sqrt([naive.exact_width2(x, pulled) for x in arms])
    np.testing.assert_allclose(policy.widths(arms, ids=ids), expected, rtol=1e-9)
    np.testing.assert_allclose(policy.scores(arms, ids=ids), arms @ policy.theta + 0.6 * expected, rtol=1e-9)


def test_bounds_that_a_file_cannot_hold_are_refused():
    policy = LinUCB(3, seed=0)
    policy.choose(np.eye(3), ids=list("abc"))
    header, arrays = policy.snapshot()
    arrays["0.width.bounds"] = -np.ones_like(arrays["0.width.bounds"])
    with pytest.raises(CorruptFileError, match="bounds"):
        LinUCB.from_snapshot(header, arrays)
