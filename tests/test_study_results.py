"""What is said from the rows of a study: leaders, costs and knobs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ttest_rel

from driftls.study.results import Row, effects, leaderboard


def row(policy, seed, regret, *, stage="report", cost=1.0, error="", **knobs):
    return Row(
        stage=stage, problem="p", policy=policy, knobs=knobs, seed=seed, rounds=2, points=[1, 2],
        traces={"regret": [0.0, regret]}, microseconds=cost,
        key=f"{policy}{seed}{knobs}", error=error,
    )  # fmt: skip


def test_the_leaderboard_pairs_seeds_and_counts_failures():
    rng = np.random.default_rng(0)
    luck = rng.normal(size=8)
    a, b = 5 + luck, 6 + luck + 0.1 * rng.normal(size=8)
    rows = [row("a", s, a[s]) for s in range(8)] + [row("b", s, b[s]) for s in reversed(range(8))]
    rows += [row("c", 0, 9.0), row("c", 1, math.nan, error="diverged")]
    first, second, third = leaderboard(rows, "regret", larger=False)
    assert (first.policy, second.policy, third.policy) == ("a", "b", "c")
    assert second.difference == pytest.approx(np.mean(b - a), rel=1e-12)
    assert second.p == pytest.approx(ttest_rel(b, a).pvalue, rel=1e-6)
    assert second.difference_half < 0.2 * second.half  # luck that both share is taken out
    assert (third.runs, third.failed, math.isnan(third.p)) == (2, 1, True)
    assert (second.told_apart, third.told_apart) == (True, False)


def test_the_effect_of_a_knob_is_the_mean_over_the_others():
    rows = [
        row("a", s, 10 * k + r, stage="tune", k=k, r=r, fixed=1.0)
        for s in (0, 1)
        for k in (1.0, 2.0)
        for r in (3.0, 5.0)
    ]
    found = {
        (knob, value): np.mean(runs)
        for (_, _, knob), values in effects(rows, "regret").items()
        for value, runs in values.items()
    }
    assert found == {("k", 1.0): 14.0, ("k", 2.0): 24.0, ("r", 3.0): 18.0, ("r", 5.0): 20.0}
