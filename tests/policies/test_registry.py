"""Policies by name, files of any kind, Thompson sampling by name."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from driftls.errors import FileFormatError, SettingsError
from driftls.policies import DisjointLinUCB, Greedy, LinTS, Random, registry
from driftls.testing.policies import played
from driftls.trackers import RAW, RLS
from driftls.widths import DiagonalWidth, SampleWidth
from policy_cases import CASES, DIM


def test_the_paper_s_policies_are_among_them():
    for name in ("linucb", "flinucb-gd", "flinucb-svrg", "flinucb-sag"):
        assert registry.make(name, DIM, seed=1).kappa == 1.0


@pytest.mark.parametrize("name", [*registry.POLICIES])
def test_policies_by_name(name):
    policy = registry.make(name, DIM, kappa=0.5, seed=1)
    assert policy.dim == DIM
    assert policy.kappa == (0.0 if name in ("greedy", "epsilon-greedy", "random") else 0.5)
    assert played(policy, 10) == played(registry.make(name, DIM, kappa=0.5, seed=1), 10)


@pytest.mark.parametrize("name", [name for name, kinds in registry.SETTINGS.items() if "ridge" in kinds])
def test_settings_by_name_reach_their_part(name):
    policy = registry.make(name, DIM, ridge=7.0, seed=1)
    assert 5 * policy.tracker.regularisation(5) == pytest.approx(7.0)


def test_an_unknown_name_or_setting_is_refused_with_the_list():
    with pytest.raises(SettingsError, match=r"must be one of flinucb-saga, linucb-exact, linucb-auto.*'linucbb'"):
        registry.make("linucbb", 3)
    with pytest.raises(SettingsError, match="random has no setting 'ridge'"):
        registry.make("random", 3, ridge=1.0)
    with pytest.raises(SettingsError, match="there is a policy of the name 'lints' already"):
        registry.register("lints", lambda dim, kappa, seed: None)


@pytest.mark.parametrize("name", CASES)
def test_a_file_says_what_it_holds(name, tmp_path):
    policy = CASES[name]()
    played(policy, 5)
    policy.save(tmp_path / "policy")
    again = registry.load(tmp_path / "policy")
    assert type(again) is type(policy)
    assert played(again, 10, first=5) == played(policy, 10, first=5)
    other = Greedy if type(policy) is not Greedy else Random
    with pytest.raises(FileFormatError, match=f"holds a {type(policy).__name__}, not a {other.__name__}"):
        other.load(tmp_path / "policy")


def test_one_model_an_arm_from_one_model():
    shared = registry.make("flinucb-saga", DIM, kappa=0.3, seed=1)
    each = registry.as_disjoint(shared, seed=1)
    assert isinstance(each, DisjointLinUCB)
    assert isinstance(each.width, DiagonalWidth)
    assert (each.kappa, each.epsilon) == (0.3, 0.0)
    assert each.choose(np.ones(DIM), ids=["a"]) == 0


def test_thompson_sampling_samples():
    """Over a pool of equals every arm is chosen about as often."""
    policy = registry.make("lints", 4, kappa=1.0, seed=3)
    chosen = np.bincount([policy.choose(np.eye(4)) for _ in range(2000)], minlength=4) / 2000
    assert (np.abs(chosen - 0.25) < 0.06).all()


def test_exact_samples_have_the_covariance_of_the_posterior():
    """The score of an arm is N(theta.x, kappa^2 x'(A + I)^-1 x): the best of two arms is chosen as often as it says."""
    from scipy.stats import norm

    policy = LinTS(2, kappa=1.0, seed=3, **RAW)
    for x, y in (([1.0, 0.5], 1.0), ([0.0, 1.0], -0.5), ([1.0, -1.0], 0.3)):
        policy.learn(np.array(x), y)
    X = np.array([[1.0, 0.5], [0.0, 1.0], [1.0, -1.0]])
    A = np.linalg.inv(X.T @ X + np.eye(2))
    arms = np.array([[0.3, 1.0], [1.0, 0.2]])
    gap = arms[0] - arms[1]
    expected = norm.cdf(gap @ policy.theta / np.sqrt(gap @ A @ gap))
    found = np.mean([policy.choose(arms) == 0 for _ in range(4000)])
    assert abs(found - expected) < 5.0 * np.sqrt(expected * (1.0 - expected) / 4000)


@pytest.mark.parametrize("kind", [np.array, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("disjoint", [False, True])
def test_samples_follow_when_units_and_the_ridge_change(kind, disjoint):
    """Their factor is that of the tracker's own sums, whatever looks have done to these."""
    rng = np.random.default_rng(5)
    policy = DisjointLinUCB(3, tracker=RLS(3), width=SampleWidth(), seed=0) if disjoint else LinTS(3, seed=0)
    for n in range(150):
        x = rng.normal(size=(1 if disjoint else 4, 3)) * [1.0, 1e4, 1e-3] * (1.0 + (n > 40)) + [0.0, 1e4, 0.0]
        ids = ["a", "b"] if disjoint else None
        k = policy.choose(kind(x), ids=ids)
        policy.learn(kind(x), float(x[0 if disjoint else k, 0] + 0.1 * rng.normal()), arm=k, ids=ids)
    for model in policy._models.each():
        factor, (matrix, _) = model.width.arrays["factor"], model.tracker.sums()
        np.testing.assert_allclose(factor.T @ factor, matrix, rtol=1e-9, atol=1e-9 * np.diag(matrix).max())
    assert policy.strength.ridge != 1.0
    assert "from 150 rewards: ridge" in policy.reason
