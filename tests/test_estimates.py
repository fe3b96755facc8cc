"""Off-policy estimates: against plain loops, known answers, and the promises about their intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import naive
from driftls.errors import InputError
from driftls.estimates import (
    mean_reward,
    ratio,
    reward_bounds,
    support_of,
    weighted,
)

ALL = {"ips", "snips", "clipped_ips", "dm", "dr", "switch_dr", "shrunk_dr"}


def random_lines(seed: int, n: int, *, clicks: float = 0.2) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    propensity = rng.choice([0.01, 0.1, 0.5, 0.9], n)
    weight = rng.choice([0.0, 0.3, 1.0], n) / propensity
    reward = (rng.random(n) < clicks).astype(float)
    return [reward, weight, 0.5 * rng.random(n), 0.5 * rng.random(n)]


@pytest.mark.parametrize("seed", range(20))
def test_every_estimate_is_the_sum_that_a_plain_loop_gives(seed: int) -> None:
    lines = random_lines(seed, 700)
    expected = naive.off_policy(*lines, np.sqrt(700), np.sqrt(700))
    found = weighted(*lines)
    assert set(found) == ALL
    for name, estimate in found.items():
        assert estimate.value == pytest.approx(expected[name], rel=1e-12, abs=1e-14), name


@pytest.mark.parametrize("seed", range(6))
def test_the_ends_of_an_interval_are_where_the_likelihood_ratio_reaches_its_threshold(seed: int) -> None:
    lines = random_lines(seed, 300)
    reward, weight, *_ = lines
    found, terms, most = weighted(*lines), weight * reward, weight.max()
    for told, bottom, support in (
        (found["ips"], np.ones(300), lambda v: (-v, most - v)),
        (found["snips"], weight, lambda v: (-most * v, most * (1.0 - v))),
    ):
        x = terms - told.value * bottom
        degrees = (x**2).sum() ** 2 / (x**4).sum() - 1.0
        threshold = min(np.log(40.0), stats.t.ppf(0.975, degrees) ** 2 / 2.0 if degrees > 1.0 else np.inf)
        for end in (told.low, told.high):
            if 0.0 < end < 1.0:
                ratio_there = naive.log_likelihood_ratio(terms - end * bottom, *support(end))
                assert ratio_there == pytest.approx(threshold, rel=1e-6)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 60).flatmap(
        lambda n: st.tuples(
            st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=n, max_size=n),
            st.lists(st.sampled_from([0.0, 1e-3, 0.7, 1.0, 5.0, 1000.0]), min_size=n, max_size=n),
            st.lists(st.floats(0.0, 1.0), min_size=n, max_size=n),
        )
    )
)
def test_an_interval_holds_its_value_and_never_leaves_the_range_of_rewards(columns: tuple[list[float], ...]) -> None:
    reward, weight, model = map(np.array, columns)
    for name, estimate in weighted(reward, weight, model, model[::-1].copy()).items():
        if np.isnan(estimate.value):
            assert name == "snips"
            assert not weight.any()
            continue
        assert 0.0 <= estimate.low < estimate.high <= 1.0, name
        assert estimate.low <= min(max(estimate.value, 0.0), 1.0) <= estimate.high, name
        assert "-0.0" not in (str(estimate.low), str(estimate.value))


@pytest.mark.parametrize("n", [1, 10, 1000])
def test_without_a_click_an_interval_ends_where_clopper_and_pearsons_does(n: int) -> None:
    exact = 1.0 - 0.025 ** (1.0 / n)
    for name, estimate in weighted(np.zeros(n), np.ones(n), np.zeros(n), np.zeros(n)).items():
        assert (estimate.value, estimate.low) == (0.0, 0.0), name
        assert estimate.high == pytest.approx(exact, rel=1e-9), name
    heavy = weighted(np.zeros(n), np.full(n, 20.0))["ips"]  # weights of 20 know that much less
    assert heavy.high == pytest.approx(min(1.0, 20.0 * exact), rel=1e-9)


def test_with_many_alike_lines_the_interval_is_the_normal_one() -> None:
    rng = np.random.default_rng(0)
    reward = (rng.random(60_000) < 0.3).astype(float)
    estimate = weighted(reward, np.ones(60_000))["ips"]
    half = 1.96 * reward.std() / np.sqrt(60_000)
    assert estimate.high - estimate.value == pytest.approx(half, rel=0.02)
    assert estimate.value - estimate.low == pytest.approx(half, rel=0.02)


def test_groups_of_neighbours_change_an_interval_by_less_than_a_thousandth(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    n = 50_000
    weight = 0.3 / rng.uniform(0.01, 1.0, n)
    reward = (rng.random(n) < 0.05).astype(float)
    grouped = weighted(reward, weight)
    monkeypatch.setattr("driftls.estimates.GROUPS", n)
    exact = weighted(reward, weight)
    for name in ("ips", "snips"):
        some, all_ = grouped[name], exact[name]
        assert some.value == all_.value
        assert (some.low, some.high) == pytest.approx((all_.low, all_.high), abs=1e-3 * (all_.high - all_.low))


def test_clicks_have_wilsons_interval_of_the_textbooks() -> None:
    estimate = mean_reward(np.repeat([1.0, 0.0], [5, 95]))
    assert (estimate.low, estimate.high) == pytest.approx((0.02154368, 0.11175047), abs=1e-7)
    assert np.isnan(mean_reward(np.zeros(0)).value)
    assert (mean_reward(np.zeros(7)).low, mean_reward(np.ones(7)).high) == (0.0, 1.0)


def test_rewards_that_are_no_clicks_have_an_interval_within_their_range() -> None:
    rewards = np.array([0.2, 0.9, 0.9, 0.4])
    estimate = mean_reward(rewards)
    assert estimate.value == pytest.approx(0.6)
    assert 0.0 < estimate.low < 0.6 < estimate.high < 1.0
    assert mean_reward(rewards * 10.0).high <= 9.0
    assert reward_bounds(np.array([-2.0, 0.5])) == (-2.0, 1.0)


def test_what_can_be_trusted_is_told() -> None:
    weight, none = np.array([0.0, 0.0, 1.0, 3.0]), np.zeros(0)
    assert support_of(weight) == {"effective": pytest.approx(1.6), "largest_weight": 3.0, "without_support": 0.5}
    assert set(weighted(np.zeros(4), weight)) == {"ips", "snips", "clipped_ips"}  # the others need a model
    assert support_of(none) == {"effective": 0.0, "largest_weight": 0.0, "without_support": 1.0}
    assert np.isnan(weighted(none, none)["ips"].value)
    assert set(weighted(none, none, none, none)) == ALL


def test_the_doubly_robust_estimate_survives_a_wrong_model_or_wrong_propensities() -> None:
    """Means over 400 logs of 500 lines: within four standard errors of the truth if one of the two is right"""
    rng = np.random.default_rng(3)
    truth, errors = np.array([0.2, 0.6]), {"model": [], "propensity": []}  # type: ignore[var-annotated]
    for _ in range(400):
        shown = (rng.random(500) < 0.25).astype(int)
        reward = (rng.random(500) < truth[shown]).astype(float)
        right = np.where(shown == 1, 4.0, 0.0)  # the policy always shows arm 1
        wrong_model = weighted(reward, right, np.full(500, 0.9), np.full(500, 0.9))
        wrong_weight = weighted(reward, 2.0 * right, truth[shown], np.full(500, truth[1]))
        errors["model"].append(wrong_model["dr"].value - truth[1])
        errors["propensity"].append(wrong_weight["dr"].value - truth[1])
    for name, found in errors.items():
        assert abs(np.mean(found)) < 4.0 * np.std(found) / 20.0, name


def test_intervals_cover_the_truth_at_least_at_their_rate() -> None:
    """1,000 logs, propensities down to 0.01: misses of 5% and no more than three standard deviations beyond"""
    rng = np.random.default_rng(7)
    misses, value, n = dict.fromkeys(("ips", "snips"), 0), 0.1, 800
    for _ in range(1000):
        propensity = rng.choice([0.01, 0.1, 0.4], n, p=[0.2, 0.4, 0.4])
        weight = np.where(rng.random(n) < propensity, 1.0 / propensity, 0.0)
        found = weighted((rng.random(n) < value).astype(float), weight, most=100.0)
        for name in misses:
            estimate = found[name]
            misses[name] += not estimate.low <= value <= estimate.high
    assert all(count < 50 + 3 * np.sqrt(1000 * 0.05 * 0.95) for count in misses.values()), misses


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([0.0, 1.0], [1.0]), "one reward, weight and both predictions a line"),
        (([0.0], [-1.0]), "weights at least 0"),
        (([np.nan], [1.0]), "must be finite"),
        (([0.0], [1.0], [0.5]), "both predictions a line"),
    ],
)
def test_lines_that_cannot_be_are_refused(arguments: tuple[list[float], ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        weighted(*map(np.array, arguments))


def test_the_interval_is_that_of_any_ratio() -> None:
    found = ratio(np.array([1.0, 2.0, 3.0]), np.ones(3), (0.0, 10.0), (0.0, 10.0))
    assert 0.0 < found.low < found.value == 2.0 < found.high < 10.0
