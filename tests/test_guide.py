"""CONTRIBUTING's guides to a new tracker and a new width, executed as they are printed."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from driftls.policies import LinUCB, SharedPolicy
from driftls.testing import POLICY_CHECKS, TRACKER_CHECKS
from driftls.trackers import RAW, SAGA
from driftls.widths import KINDS

GUIDE = Path(__file__).parent.parent / "CONTRIBUTING.md"


def built(folder: Path, name: str, blocks: list[str]):
    """A module of these blocks, as a file of its own."""
    file = folder / f"{name}.py"
    file.write_text("".join(blocks))
    spec = importlib.util.spec_from_file_location(name, file)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def tracker(tmp_path_factory):
    """The class that the guide builds."""
    kernel, kind, checks = blocks()[:3]
    assert "for check in TRACKER_CHECKS" in checks
    yield built(tmp_path_factory.mktemp("guide"), "kaczmarz", [kernel, kind]).Kaczmarz
    del sys.modules["kaczmarz"]


@pytest.fixture(scope="module")
def width(tmp_path_factory):
    """The width that the guide builds."""
    kernel, kind, checks = blocks()[3:6]
    assert "for check in POLICY_CHECKS" in checks
    yield built(tmp_path_factory.mktemp("guide"), "ball", [kernel, kind]).BallWidth
    del sys.modules["ball"], KINDS["BallWidth"]


@pytest.mark.parametrize("check", TRACKER_CHECKS)
def test_the_guide_s_tracker_does_what_every_tracker_does(tracker, check):
    check(lambda: tracker(4, seed=0, **RAW))


def test_the_guide_s_tracker_solves_a_consistent_system(tracker):
    X = np.random.default_rng(0).normal(size=(500, 4))
    theta = np.arange(1.0, 5.0)
    np.testing.assert_allclose(tracker(4, seed=0).partial_fit(X, X @ theta).theta, theta, rtol=0, atol=1e-10)


@pytest.mark.parametrize("check", POLICY_CHECKS)
def test_a_policy_with_the_guide_s_width_does_what_every_policy_does(width, check):
    check(lambda: LinUCB(tracker=SAGA(4, seed=0, **RAW), width=width(), seed=0))


def test_the_guide_s_width_is_what_it_says(width):
    X = np.random.default_rng(0).normal(size=(50, 4))
    policy = SharedPolicy(SAGA(4, seed=0, **RAW), width(), kappa=1.0)
    for x in X:
        policy.learn(x, 1.0)
    expected = np.linalg.norm(X, axis=1) / np.sqrt(1.0 + (X**2).sum() / 4)
    np.testing.assert_allclose(policy.widths(X), expected, rtol=1e-12)


def test_the_guide_s_parts_follow_when_units_change(tracker, width):
    X = np.random.default_rng(0).normal(size=(400, 4))
    theta, units = np.arange(1.0, 5.0), np.array([1e-3, 1.0, 10.0, 1e4])
    found = tracker(4, seed=0).partial_fit(X * units, X @ theta + 2.0)
    np.testing.assert_allclose(found.theta * units, theta, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.intercept_, 2.0, rtol=0, atol=1e-8)
    policies = [SharedPolicy(SAGA(4, seed=0), width(), kappa=1.0) for _ in range(2)]
    for x in X:
        for policy, by in zip(policies, (1.0, units)):
            policy.choose([x * by])
            policy.learn(x * by, float(x @ theta))
    np.testing.assert_allclose(policies[0].widths(X), policies[1].widths(X * units), rtol=1e-9)
