"""Features that come later: trackers, widths and policies grow as if they had been there from the start."""

import numpy as np
import pytest
import scipy.sparse as sp

from driftls.errors import SettingsError
from driftls.history import Growing, Mapped, Reservoir, Window
from driftls.policies import DisjointLinUCB, LinTS, LinUCB, SharedPolicy
from driftls.trackers import CD, GD, OLS, RAW, RLS, SAG, SAGA, SVRG, Diagonal
from driftls.widths import DiagonalWidth, ExactWidth, PhiWidth

FEW, MANY = 4, 11


def rows_of(rng, count, used, dim):
    X = np.zeros((count, dim))
    X[:, :used] = 3.0 * rng.normal(size=(count, used)) * (rng.random((count, used)) < 0.7)
    return X


TRACKERS = [
    lambda dim, raw: RLS(dim, **raw),
    lambda dim, raw: RLS(dim, discount=0.99, method="sherman-morrison", **raw),
    lambda dim, raw: RLS(dim, discount=0.99, method="inverse", **raw),
    lambda dim, raw: OLS(dim, **raw),
    lambda dim, raw: CD(dim, discount=0.99, **raw),
    lambda dim, raw: SAGA(dim, seed=0, **raw),
    lambda dim, raw: SAGA(dim, seed=0, history=Reservoir(20), **raw),
    lambda dim, raw: SAG(dim, seed=0, history=Window(20), **raw),
    lambda dim, raw: SVRG(dim, seed=0, **raw),
    lambda dim, raw: GD(dim, seed=0, **raw),
    lambda dim, raw: Diagonal(dim, history=Growing(), **raw),
]


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize("raw", [{}, RAW], ids=["units", "raw"])
@pytest.mark.parametrize("make", TRACKERS)
def test_a_tracker_that_has_grown_is_one_that_was_large_from_the_start(make, raw, sparse):
    rng = np.random.default_rng(0)
    form = sp.csr_array if sparse else np.asarray
    before, after = rows_of(rng, 40, FEW, MANY), rows_of(rng, 40, MANY, MANY)
    grown, large = make(FEW, raw), make(MANY, raw)
    grown.partial_fit(form(before[:, :FEW]), before.sum(axis=1) + 1.0)
    large.partial_fit(form(before), before.sum(axis=1) + 1.0)
    grown.grow(MANY)
    for X in (before[:0], after):
        grown.partial_fit(form(X), X.sum(axis=1) + 1.0)
        large.partial_fit(form(X), X.sum(axis=1) + 1.0)
        np.testing.assert_allclose(grown.theta, large.theta, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(grown.predict(form(after)), large.predict(form(after)), rtol=1e-9, atol=1e-9)
    assert grown.dim == MANY
    assert abs(grown.tracking_error().relative - large.tracking_error().relative) < 1e-6


POLICIES = {
    "auto": lambda dim: LinUCB(dim, seed=0),
    "exact": lambda dim: LinUCB(tracker=RLS(dim), seed=0),
    "saga": lambda dim: SharedPolicy(SAGA(dim, seed=0), DiagonalWidth(), epsilon=0.1, seed=0),
    "own inverse": lambda dim: SharedPolicy(SAGA(dim, seed=0), ExactWidth(), seed=0),
    "phi": lambda dim: SharedPolicy(SAGA(dim, seed=0, **RAW), PhiWidth(), seed=0),
    "disjoint": lambda dim: DisjointLinUCB(dim, seed=0),
    "disjoint saga": lambda dim: DisjointLinUCB(dim, tracker=SAGA(dim), seed=0),
}


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_that_has_grown_decides_as_one_that_was_large_from_the_start(name, sparse):
    rng = np.random.default_rng(1)
    grown, large = POLICIES[name](FEW), POLICIES[name](MANY)
    ids, chosen = ["a", "b", "c"], []
    for n in range(120):
        if n == 60:
            grown.grow(MANY)
        rows = rows_of(rng, 1 if grown.disjoint else 3, FEW if n < 60 else MANY, MANY)
        choices = []
        for policy in (grown, large):
            arms = rows[:, : policy.dim]
            arms = sp.csr_array(arms) if sparse else arms[0] if policy.disjoint else arms
            k = policy.choose(arms, ids=ids, key=n)
            if n % 7:  # some rewards come after it has grown
                policy.learn(reward=float(rows[0 if policy.disjoint else k].sum() * (1 + k)), key=n)
            choices.append(k)
        chosen.append(choices[0])
        assert choices[0] == choices[1]
    for policy in (grown, large):
        for n in range(0, 120, 7):
            policy.learn(reward=0.5, key=n)
    X = rows_of(rng, 1 if grown.disjoint else 3, MANY, MANY)
    X = sp.csr_array(X) if sparse else X
    close = 1e-6 if name == "disjoint saga" else 1e-9  # conjugate gradients magnify the order of sums
    np.testing.assert_allclose(grown.scores(X, ids=ids), large.scores(X, ids=ids), rtol=close, atol=close)
    assert len(set(chosen)) > 1
    again = type(grown).from_snapshot(*grown.snapshot())
    assert again.choose(X, ids=ids) == grown.choose(X, ids=ids)


def test_sampling_grows_too():
    rng, policy = np.random.default_rng(0), LinTS(FEW, seed=0)
    for dim in (FEW, MANY):
        policy.grow(dim)
        for _ in range(20):
            arms = rng.normal(size=(3, dim))
            policy.learn(arms, arms[0].sum(), arm=policy.choose(arms))
    assert policy.theta.shape == (MANY,)


def test_what_cannot_grow_says_so_and_stays_as_it_was(tmp_path):
    tracker = SAGA(2, seed=0, history=Mapped(tmp_path / "rows"))
    tracker.update(np.ones(2), 1.0)
    with pytest.raises(SettingsError, match="Mapped history keep their number of features"):
        tracker.grow(3)
    with pytest.raises(SettingsError, match="dim must be a whole number of at least 3"):
        SAGA(3).grow(2)
    with pytest.raises(SettingsError, match="an exact tracker keeps"):
        RLS(3).grow(10**6)
    tracker.update(np.ones(2), 1.0)
    assert (tracker.dim, len(tracker)) == (2, 2)
