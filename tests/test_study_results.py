"""What is said from runs: leaders, costs and knobs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ttest_rel

from driftls.report import of_runs
from driftls.report.runs import leaderboard
from driftls.run import Run


def row(policy, seed, regret, *, stage="report", cost=1.0, error="", **knobs):
    settings = {"stage": stage, "knobs": knobs, "day": "", **({"error": error} if error else {})}
    return Run(
        problem="p", policy=policy, seed=seed, rounds=2, points=[1, 2], settings=settings, partial=bool(error),
        traces={"regret": [] if error else [0.0, regret]}, seconds={"play": 2e-6 * cost},
    )  # fmt: skip


def test_the_leaderboard_pairs_seeds_and_counts_failures():
    rng = np.random.default_rng(0)
    luck = rng.normal(size=8)
    a, b = 5 + luck, 6 + luck + 0.1 * rng.normal(size=8)
    rows = [row("a", s, a[s]) for s in range(8)] + [row("b", s, b[s]) for s in reversed(range(8))]
    rows += [row("c", 0, 9.0), row("c", 1, math.nan, error="diverged")]
    first, second, third = leaderboard(rows, "regret")
    assert (first.policy, second.policy, third.policy) == ("a", "b", "c")
    assert second.difference == pytest.approx(np.mean(b - a), rel=1e-12)
    assert second.p == pytest.approx(2 * ttest_rel(b, a).pvalue, rel=1e-6)  # of two tests
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
    drawn = [item for item in of_runs([*rows, row("a", 2, 1.0)]).sections[0].items if item.title.startswith("a: ")]
    found = {(item.title, dot.label): dot.value for item in drawn for dot in item.dots}
    assert found == {("a: k", "1"): 14.0, ("a: k", "2"): 24.0, ("a: r", "3"): 18.0, ("a: r", "5"): 20.0}


def test_where_every_run_failed_nobody_leads():
    failed = [row(policy, seed, math.nan, error="diverged") for policy in "ab" for seed in range(2)]
    (section,) = of_runs(failed).sections
    assert (section.findings, section.text) == (
        [],
        ["4 of these runs did not finish.", "4 of 4 runs failed: diverged"],
    )


def test_errors_are_told_each_once_with_those_of_tuning():
    rows = [row("a", 0, 1.0), row("a", 1, math.nan, error="too far."), row("b", 0, 1.0)]
    rows += [row("a", s, math.nan, stage="tune", error=error, k=1.0) for s, error in enumerate(("too far.", "none"))]
    (section,) = of_runs(rows).sections
    assert section.text[1:] == ["2 of 5 runs failed: too far.", "1 of 5 runs failed: none"]
