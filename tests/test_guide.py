"""CONTRIBUTING's guide to a new tracker, executed as it is printed."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from driftls.testing import TRACKER_CHECKS

GUIDE = Path(__file__).parent.parent / "CONTRIBUTING.md"


@pytest.fixture(scope="module")
def tracker(tmp_path_factory):
    """The class that the guide builds."""
    kernel, kind, checks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)[:3]
    assert "for check in TRACKER_CHECKS" in checks
    file = tmp_path_factory.mktemp("guide") / "kaczmarz.py"
    file.write_text(kernel + kind)
    spec = importlib.util.spec_from_file_location("kaczmarz", file)
    module = sys.modules["kaczmarz"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module.Kaczmarz
    del sys.modules["kaczmarz"]


@pytest.mark.parametrize("check", TRACKER_CHECKS)
def test_the_guide_s_tracker_does_what_every_tracker_does(tracker, check):
    check(lambda: tracker(4, seed=0))


def test_the_guide_s_tracker_solves_a_consistent_system(tracker):
    X = np.random.default_rng(0).normal(size=(500, 4))
    theta = np.arange(1.0, 5.0)
    np.testing.assert_allclose(tracker(4, seed=0).partial_fit(X, X @ theta).theta, theta, rtol=0, atol=1e-10)
