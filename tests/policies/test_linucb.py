"""LinUCB chooses its parts, and lambda, from what it sees."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from driftls import ridge
from driftls.environments import FreshContexts
from driftls.errors import DriftlsError, InputError
from driftls.policies import Greedy, LinUCB, SharedPolicy
from driftls.simulation import simulate
from driftls.testing.trackers import same_snapshot
from driftls.trackers import RAW, RLS, SAGA
from driftls.widths import DiagonalWidth, ExactWidth, PhiWidth

PARTS = [
    (6, False, False, (RLS, ExactWidth), 2.0, "exact: with 6 dense features the exact method is affordable"),
    (6, False, True, (RLS, ExactWidth), 2.0, "exact: with 6 dense features the exact method is affordable"),
    (6, True, False, (SAGA, DiagonalWidth), 2.0, "fast: 6 sparse features, and arms that change: SAGA"),
    (201, False, True, (RLS, ExactWidth), 2.0, "exact: 201 dense features and arms that recur"),
    (1001, False, True, (RLS, ExactWidth), 2.0, "exact: 1001 dense features and arms that recur, in raw units"),
    (201, False, False, (SAGA, DiagonalWidth), 2.0, "fast: 201 dense features, and arms that change: SAGA"),
    (5001, False, True, (SAGA, PhiWidth), 2.0, "fast: 5001 features, too many for a 5001 x 5001 matrix: SAGA"),
]


@pytest.mark.parametrize(("dim", "sparse", "ids", "kinds", "sigmas", "reason"), PARTS)
@pytest.mark.parametrize("by", ["choose", "scores", "load"])
def test_the_parts_are_chosen_from_the_first_arms_and_the_reason_is_told(
    dim, sparse, ids, kinds, sigmas, reason, by, tmp_path
):
    arms = np.random.default_rng(1).normal(size=(2, dim))
    policy, expected = (LinUCB(dim, epsilon=0.3, seed=1) for _ in range(2))
    matrix, names = sp.csr_array(arms) if sparse else arms, ["a", "b"] if ids else None
    if by == "scores":  # a question decides nothing
        policy.scores(arms[:1])
    elif by == "load":
        policy.save(tmp_path / "policy")
        policy = LinUCB.load(tmp_path / "policy")
    decisions = [[one.choose(matrix, ids=names) for _ in range(20)] for one in (policy, expected)]
    assert decisions[0] == decisions[1]
    assert (type(policy.tracker), type(policy.width)) == kinds
    assert policy.reason.startswith(reason)
    assert policy.kappa == sigmas
    policy.save(tmp_path / "policy")
    assert LinUCB.load(tmp_path / "policy").reason == policy.reason


def test_a_refused_first_call_decides_nothing():
    policy = LinUCB(201, seed=1)
    for wrong in (
        lambda: policy.choose(np.full((2, 201), np.nan)),
        lambda: policy.choose(np.ones((2, 200)), ids=["a", "b"]),
        lambda: policy.choose(np.ones((2, 201)), ids=["a"]),
        lambda: policy.choose(np.ones((2, 201)), allowed=[]),
        lambda: policy.choose(np.ones((2, 201)), key=[]),
        lambda: policy.learn(np.ones(201), np.nan),
        lambda: policy.play(np.ones((2, 201)), np.ones((1, 3))),
        lambda: policy.remember("key", np.full(201, np.nan)),
    ):
        with pytest.raises(InputError):
            wrong()
    policy.choose(np.eye(201)[:2], ids=["a", "b"])
    assert policy.reason.startswith("exact: 201 dense features and arms that recur")


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: LinUCB(), "dim or features, and chooses its parts itself, or a tracker"),
        (lambda: LinUCB(3, tracker=RLS(3, **RAW)), "dim or features"),
        (lambda: LinUCB(3, width=ExactWidth()), "width needs a tracker"),
        (lambda: LinUCB(tracker=RLS(3, **RAW), regularisation=1.0), "give it to the tracker"),
        (lambda: LinUCB(3, kappa=-1.0), "kappa must lie in .* got -1.0"),
        (lambda: LinUCB(3, kappa=np.nan), "kappa must lie in"),
        (lambda: LinUCB(3, kappa="big"), "kappa must lie in .* got 'big'"),
        (lambda: LinUCB(3, kappa=True), "kappa must lie in"),
        (lambda: LinUCB(3, sigmas=-1.0), "sigmas must lie in"),
        (lambda: LinUCB(3, epsilon=1.1), r"epsilon must lie in \[0, 1\], got 1.1"),
        (lambda: LinUCB(3, forget_after=-1), "forget_after must be"),
        (lambda: LinUCB(0), "dim must be"),
        (lambda: LinUCB(3, seed="seed"), "seed must be"),
        (lambda: SharedPolicy(RLS(3, **RAW), "exact"), "a policy needs a tracker and a width"),
        (lambda: Greedy("RLS"), "a policy needs a tracker and a width|no attribute"),
    ],
)
def test_bad_settings_are_refused(make, complaint):
    with pytest.raises(DriftlsError, match=complaint):
        make()


# -- lambda from the data ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [6, 250])
def test_both_engines_and_a_saved_policy_move_lambda_alike(dim, tmp_path):
    runs = []
    for engine in ("compiled", "python"):
        policy = LinUCB(dim, seed=0)
        run = simulate(policy, FreshContexts(dim, 5, sigma=0.3, seed=1), 150, engine=engine)
        runs.append((run.traces, policy.tracker.regularisation.scale))
    assert runs[0] == runs[1]
    policy.save(tmp_path / "policy")
    again = LinUCB.load(tmp_path / "policy")
    for one in (policy, again):
        simulate(one, FreshContexts(dim, 5, sigma=0.3, seed=2), 100)
    assert policy.tracker.regularisation == again.tracker.regularisation
    assert policy.theta.tobytes() == again.theta.tobytes()


def test_lambda_stays_where_it_was_given():
    fixed = LinUCB(6, regularisation=ridge(2.0), seed=0)
    simulate(fixed, FreshContexts(6, 5, sigma=0.3, seed=1), 100)
    assert fixed.tracker.regularisation == ridge(2.0)
    assert fixed.strength is None


@pytest.mark.parametrize("dim", [5, 300])
def test_the_same_seed_makes_the_same_policy_before_the_first_arms_too(dim):
    """By which the checkpoint of a replay knows its policies."""
    same_snapshot(LinUCB(dim, seed=3).snapshot(), LinUCB(dim, seed=3).snapshot(), "another policy of the same seed")
