"""What `inspect` says of a log, against counts made the slow way; and how often its tests reject."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from driftls.logs import Block, Event, inspect, read, read_table, synthetic_day
from driftls.logs.inspect import Column, Summary

R6A = (
    "1241160900 43 {} |user 2:0.1{}0000 3:0.000000 4:0.200001 5:0.000009 6:0.699990 1:1.000000"
    " |42 2:0.000001 3:0.250000 4:0.250000 5:0.499999 6:0.000000 1:1.000000"
    " |43 2:0.123456 3:0.000044 4:0.876500 5:0.000000 6:0.000000 1:1.000000\n"
)


def test_every_figure_is_what_a_count_of_the_events_gives(tmp_path: Path) -> None:
    day = synthetic_day(lines=3000, seed=2)
    day.write(tmp_path / "day")
    with open(tmp_path / "day", "ab") as file:
        file.write(b"nonsense\n")
    summary = inspect(read(tmp_path / "day", on_error="skip", block=250))
    events = list(day)
    sizes = [len(event.arms) for event in events]
    assert (summary.format, summary.lines, summary.events, summary.skipped) == ("R6B", 3001, 3000, 1)
    assert "expected a time in whole seconds, got `nonsense`" in summary.examples[0]
    assert summary.clicks == sum(event.reward for event in events)
    assert summary.ctr == summary.clicks / 3000
    assert summary.arms == len({int(arm) for event in events for arm in event.arms})
    assert (summary.first_time, summary.last_time) == (events[0].time, events[-1].time)
    assert (summary.pool_min, summary.pool_max) == (min(sizes), max(sizes))
    assert summary.pool_mean == sum(sizes) / 3000
    assert summary.pool_harmonic_mean == pytest.approx(stats.hmean(sizes), rel=1e-12)
    assert summary.user_dim == 1 + max(int(event.user_index[-1]) for event in events)
    assert summary.user_nonzeros == sum(len(event.user_index) for event in events) / 3000
    assert (summary.logging.smallest_propensity, summary.truth, summary.arm_features) == (None, False, 0)


def test_the_chi_square_is_the_textbook_one_for_a_single_pool() -> None:
    rng = np.random.default_rng(0)
    arms, none = np.array([3, 5, 8, 13]), np.zeros(0)
    shown = rng.choice(4, 400, p=[0.22, 0.24, 0.26, 0.28])
    events = [Event(i, arms, int(k), 0.0, none.astype(np.int32), none) for i, k in enumerate(shown)]
    expected = stats.chisquare(np.bincount(shown, minlength=4))
    summary = inspect(read(events, block=70))
    for test in (summary.logging.uniform_positions, summary.logging.uniform_arms):
        assert test.degrees == pytest.approx(3, rel=1e-12)
        assert (test.statistic, test.p) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9)
    assert summary.user_dim == 0


def summaries(seeds: range, bias: float = 0.0) -> list[Summary]:
    """Of days whose pools change; with `bias`, that share of lines shows the first candidate instead."""
    found = []
    for seed in seeds:
        block = Block.join(synthetic_day(lines=4000, seed=seed, churn=200.0).blocks())
        first = np.random.default_rng(seed).random(len(block)) < bias
        found.append(inspect(read(replace(block, shown=np.where(first, 0, block.shown).astype(np.int32)))))
    return found


def test_p_values_are_uniform_if_the_logging_is() -> None:
    of_days = summaries(range(20))
    for tests in ([s.logging.uniform_positions.p for s in of_days], [s.logging.uniform_arms.p for s in of_days]):
        assert stats.kstest(tests, "uniform").pvalue > 1e-3


def test_logging_that_prefers_a_position_is_noticed() -> None:
    # 4% of 4000 lines are 160 more for a position that has about 110: some 15 standard deviations
    assert all(s.logging.uniform_positions.p < 1e-6 for s in summaries(range(5), bias=0.04))


def test_too_few_lines_for_a_test_have_no_p_value() -> None:
    summary = inspect(read(synthetic_day(lines=20, seed=1)))
    assert summary.logging.uniform_arms is None


def test_the_columns_of_an_r6a_log_are_counted(tmp_path: Path) -> None:
    (tmp_path / "day").write_text("".join(R6A.format(i % 2, i) for i in range(8)))
    summary = inspect(read(tmp_path / "day"))
    assert (summary.format, summary.events, summary.clicks) == ("R6A", 8, 4.0)
    assert (summary.user_dim, summary.arm_features, summary.arms) == (6, 6, 2)


def with_propensities(seed: int, lines: int, *, wrong: bool = False, even: bool = False) -> Summary:
    """A log of four arms whose probabilities change from line to line; `wrong` ones were told the wrong way round."""
    rng = np.random.default_rng(seed)
    p = np.full((lines, 4), 0.25) if even else rng.dirichlet(np.full(4, 2.0), lines) * 0.96 + 0.01
    shown = (p.cumsum(axis=1) > rng.random((lines, 1)) * p.sum(axis=1, keepdims=True)).argmax(axis=1)
    none, told = np.zeros(0), p[:, ::-1] if wrong else p
    return inspect(
        read(
            Event(i, np.array([2, 3, 5, 7]), int(k), 0.0, none.astype(np.int32), none, propensity=float(told[i, k]))
            for i, k in enumerate(shown)
        )
    )


def test_propensities_that_fit_are_not_doubted_and_those_that_do_not_are() -> None:
    found = [with_propensities(seed, 1000) for seed in range(60)]
    assert {summary.logging.kind for summary in found} == {"propensities"}
    p = np.array([summary.logging.propensity_fit.p for summary in found])  # type: ignore[union-attr]
    # At most 5% and three standard deviations: Bonferroni p-values are too large rather than too small.
    assert np.mean(p < 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)
    wrong = with_propensities(0, 2000, wrong=True)
    assert wrong.logging.propensity_fit is not None
    assert wrong.logging.propensity_fit.p < 1e-6  # type: ignore[operator]
    assert "do not fit" in wrong.logging.doubt


def test_what_kind_of_logging_it_was_is_told() -> None:
    even = with_propensities(1, 500, even=True).logging
    assert (even.kind, even.doubt, even.smallest_propensity) == ("uniform", "", 0.25)
    assert 0.01 <= with_propensities(1, 500).logging.smallest_propensity < 0.25  # type: ignore[operator]
    (day,) = summaries(range(1))
    assert (day.logging.kind, day.logging.propensity_fit) == ("uniform", None)
    (skewed,) = summaries(range(1), bias=0.3)
    assert skewed.logging.kind == "skewed"
    assert "did not show uniformly" in skewed.logging.reason
    assert inspect(read(synthetic_day(lines=20, seed=1))).logging.kind == "unknown"


def test_the_columns_of_a_tables_visitors_are_told_and_how_often_arms_were_shown():
    rows = [
        {"city": "OR"[k % 2], "age": k % 30 or None, "tags": [k % 3], "mixed": k if k % 2 else "x", "none": None}
        | {"offer": "abc"[k % 10 // 5 + k % 10 // 9], "click": k % 2}
        for k in range(100)
    ]
    summary = inspect(read_table(rows, shown="offer", reward="click"))
    assert summary.most_shown == {"a": 50, "b": 40, "c": 10}
    assert [*summary.most_shown] == ["a", "b", "c"]
    assert summary.visitor == {
        "city": Column("text", 2, 0),
        "age": Column("number", 29, 4),
        "tags": Column("other", 3, 0),
        "mixed": Column("number and text", 51, 0),
        "none": Column("empty", 0, 100),
    }
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rows).astype({"age": "Int64"}).drop(columns=["tags", "none"])
    found = inspect(read_table(frame, shown="offer", reward="click"))
    assert found.visitor == {name: summary.visitor[name] for name in ("city", "age", "mixed")}
    many = [{"x": k, "offer": k % 40, "click": 0} for k in range(11_000)]
    summary = inspect(read_table(many, shown="offer", reward="click"))
    assert (summary.arms, len(summary.most_shown), summary.visitor["x"].distinct) == (40, 10, 10_000)
