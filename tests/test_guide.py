"""CONTRIBUTING's guides to a new tracker and a new width, executed as they are printed."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from driftls.policies import SharedPolicy
from driftls.trackers import RAW, SAGA
from driftls.widths import KINDS

GUIDE = Path(__file__).parent.parent / "CONTRIBUTING.md"


@pytest.fixture(scope="module")
def guide(tmp_path_factory):
    """All blocks of the page, in a module of its own; the checks that it prints are passed on the way."""
    printed = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    for name, block in (("TRACKER_CHECKS", printed[2]), ("POLICY_CHECKS", printed[5])):
        assert f"for check in {name}" in block
    file = tmp_path_factory.mktemp("guide") / "guide.py"
    file.write_text("".join(printed))
    spec = importlib.util.spec_from_file_location("guide", file)
    module = sys.modules["guide"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["guide"], KINDS["BallWidth"]


def test_the_guide_s_tracker_solves_a_consistent_system(guide):
    X = np.random.default_rng(0).normal(size=(500, 4))
    theta = np.arange(1.0, 5.0)
    np.testing.assert_allclose(guide.Kaczmarz(4, seed=0).partial_fit(X, X @ theta).theta, theta, rtol=0, atol=1e-10)


def test_the_guide_s_width_is_what_it_says(guide):
    X = np.random.default_rng(0).normal(size=(50, 4))
    policy = SharedPolicy(SAGA(4, seed=0, **RAW), guide.BallWidth(), kappa=1.0)
    for x in X:
        policy.learn(x, 1.0)
    expected = np.linalg.norm(X, axis=1) / np.sqrt(1.0 + (X**2).sum() / 4)
    np.testing.assert_allclose(policy.widths(X), expected, rtol=1e-12)


def test_the_guide_s_parts_follow_when_units_change(guide):
    X = np.random.default_rng(0).normal(size=(400, 4))
    theta, units = np.arange(1.0, 5.0), np.array([1e-3, 1.0, 10.0, 1e4])
    found = guide.Kaczmarz(4, seed=0).partial_fit(X * units, X @ theta + 2.0)
    np.testing.assert_allclose(found.theta * units, theta, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.intercept_, 2.0, rtol=0, atol=1e-8)
    policies = [SharedPolicy(SAGA(4, seed=0), guide.BallWidth(), kappa=1.0) for _ in range(2)]
    for x in X:
        for policy, by in zip(policies, (1.0, units)):
            policy.choose([x * by])
            policy.learn(x * by, float(x @ theta))
    np.testing.assert_allclose(policies[0].widths(X), policies[1].widths(X * units), rtol=1e-9)
