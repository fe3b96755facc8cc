"""The sequences gamma_n and lambda_n."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

import naive
from cases import normalised, rows
from driftls import Normalised, Power, ridge
from driftls.errors import SettingsError
from driftls.kernels import learn as kernels
from driftls.schedules import Tabulated, as_schedule, fields, from_header, to_header
from driftls.testing.trackers import same_snapshot
from driftls.trackers import GD, RAW, SAGA

POWERS = [(0.3, 0.0, 0.0), (1.0, 100.0, 1.0), (1.0, 0.0, 0.4), (2.0, 5.0, 0.5), (4.0, 0.5, 2.0), (0.0, 0.0, 1.0)]


@pytest.mark.parametrize("numbers", POWERS)
def test_a_power_is_scale_over_offset_plus_n_to_the_exponent(numbers):
    scale, offset, exponent = numbers
    schedule = Power(*numbers)
    for n in (1, 2, 3, 10, 1000, 10**6):
        expected = scale / (offset + n) ** exponent
        assert schedule(n) == pytest.approx(expected, rel=1e-15)
        assert kernels.power(scale, offset, exponent, float(n)) == pytest.approx(expected, rel=4e-16)


@pytest.mark.parametrize("schedule", [Power(0.3), Power(1, 100, 1), ridge(2.5), Normalised(0.25)])
def test_what_a_file_keeps_of_a_schedule_gives_it_back(schedule):
    assert from_header(json.loads(json.dumps(to_header(schedule)))) == schedule


@pytest.mark.parametrize("total", [1.0, 3.0, 0.1, 1e-12, 7.7])
def test_a_ridge_keeps_n_lambda_n_constant_without_rounding(total):
    record = SimpleNamespace(**fields(ridge(total), "ridge"))
    for n in range(1, 2000):
        assert kernels.total_ridge(record, float(n), kernels.regularisation(record, float(n))) == total
        assert n * ridge(total)(n) == pytest.approx(total, rel=3e-16)


def test_theorem_one_takes_its_step_from_mu():
    for mu in (1e-6, 0.1, 0.5, 3.0, 1e4):
        schedule = Power.theorem_one(mu)
        c = schedule.offset
        assert 2 / 3 < mu * c / 4 < 1
        for n in (1, 10, 1000):
            assert schedule(n) == pytest.approx(c / (4 * (c + n)), rel=1e-14)
    assert Power.theorem_one(0.5, 7.0) == Power(1.75, 7.0, 1.0)


@pytest.mark.parametrize(
    ("mu", "c", "interval"),
    [
        (0.5, 3.28, (5.333, 8.0)),
        (0.5, 8.0, (5.333, 8.0)),
        (0.5, 16 / 3 * (1 - 1e-9), (5.333, 8.0)),
        (0.5, 0.0, (5.333, 8.0)),
        (0.5, -1.0, (5.333, 8.0)),
        (0.5, float("nan"), (5.333, 8.0)),
        (0.5, float("inf"), (5.333, 8.0)),
        (1000.0, 1.0, (0.002667, 0.004)),
        (1e-9, 1.0, (2.667e9, 4e9)),
    ],
)
def test_a_c_outside_theorem_one_is_told_the_interval(mu, c, interval):
    with pytest.raises(SettingsError, match="Theorem 1") as caught:
        Power.theorem_one(mu, c)
    low, high = re.findall(r"[-+.e\d]*\d", str(caught.value).split("choose", 1)[1])[-2:]
    assert (float(low), float(high)) == interval


@pytest.mark.parametrize("mu", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("c", [None, 6.0])
def test_theorem_one_needs_strong_convexity(mu, c):
    with pytest.raises(SettingsError, match="mu"):
        Power.theorem_one(mu, c)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "text", None])
@pytest.mark.parametrize("name", ["scale", "offset", "exponent"])
def test_a_power_of_something_else_is_refused(name, value):
    with pytest.raises(SettingsError, match=f"Power's {name} must be a finite number of at least 0"):
        Power(**{"scale": 1.0, name: value})


@pytest.mark.parametrize("scale", [0.0, 2.0, -1.0, float("nan"), "text", None])
def test_a_normalised_step_that_must_diverge_is_refused(scale):
    with pytest.raises(SettingsError, match=r"scale in \(0, 2\)"):
        Normalised(scale)


@pytest.mark.parametrize("value", ["text", None, [1.0], True, np.eye(2)])
def test_what_is_no_schedule_is_refused(value):
    with pytest.raises(SettingsError, match="step_size must be a number, a Power or a function of n"):
        as_schedule(value, "step_size")


@pytest.mark.parametrize("value", [0.25, 1, np.float32(0.25), np.int64(1)])
def test_a_number_is_a_constant(value):
    assert as_schedule(value, "step_size") == Power(float(value))


def test_a_regularisation_cannot_be_normalised():
    with pytest.raises(SettingsError, match="regularisation cannot be Normalised"):
        SAGA(2, regularisation=Normalised(0.5), **RAW)


def test_a_normalised_step_follows_the_largest_row_and_is_held_where_the_ridge_is_heavy():
    record = SimpleNamespace(**fields(Normalised(0.5), "step"))
    assert kernels.step_size(record, 1, 0.0, 4.0) == 0.125
    assert kernels.step_size(record, 1, 2.0, 4.0) == 0.125
    assert kernels.step_size(record, 1, 8.0, 4.0) == 0.0625  # 1/(2 lam)
    assert kernels.step_size(record, 1, 0.0, 0.0) == 0.0
    assert kernels.step_size(record, 1, 0.0, 1e-310) == 0.0  # not 1/0


@pytest.mark.parametrize("block", [1, 100, 5000])
def test_a_function_is_tabulated_ahead_across_growth_of_its_table(block):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(5000, 2))
    y = X @ [1.0, -1.0]
    calls = []

    def gamma(n):
        calls.append(n)
        return 0.3 / n**0.5

    tracker = GD(
        2, step_size=gamma, regularisation=lambda n: 1 / n**0.7, averaging=None, steps=1, seed=2, guard=False, **RAW
    )
    for first in range(0, 5000, block):
        if block == 1:
            tracker.update(X[first], y[first])
        else:
            tracker.partial_fit(X[first : first + block], y[first : first + block])
    assert calls == list(range(1, len(calls) + 1))  # each n once, in order
    powers = GD(
        2,
        step_size=Power(0.3, 0, 0.5),
        regularisation=Power(1, 0, 0.7),
        averaging=None,
        steps=1,
        seed=2,
        guard=False,
        **RAW,
    )
    np.testing.assert_allclose(tracker.theta, powers.partial_fit(X, y).theta, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0, None, "text"])
@pytest.mark.parametrize("at", [1, 40, 1024, 1025, 1500])
def test_a_function_that_gives_no_number_is_refused_with_its_n(bad, at):
    X, y = np.ones((2000, 1)), np.ones(2000)
    tracker = SAGA(1, step_size=lambda n: bad if n == at else 0.1, steps=1, seed=0, **RAW)
    with pytest.raises(SettingsError, match=f"step_size must give a finite number of at least 0.*at n = {at}"):
        tracker.partial_fit(X, y)
    assert len(tracker) == 0


def test_a_function_that_fails_late_leaves_tracker_and_history_whole():
    X, y = rows()
    X, y = np.vstack([X] * 30), np.tile(y, 30)
    broken = [False]

    def gamma(n):
        if n > 1500 and broken[0]:
            raise ArithmeticError("not today")
        return 0.05

    def tracker():
        return SAGA(X.shape[1], step_size=gamma, steps=1, seed=0, **RAW)

    straight = tracker().partial_fit(X, y)
    broken[0] = True
    hurt = tracker().partial_fit(X[:900], y[:900])
    before = hurt.snapshot()
    with pytest.raises(ArithmeticError, match="not today"):
        hurt.partial_fit(X[900:], y[900:])
    same_snapshot(before, hurt.snapshot(), "a function that failed")
    broken[0] = False
    hurt.partial_fit(X[900:], y[900:])
    np.testing.assert_array_equal(hurt.theta, straight.theta)
    np.testing.assert_array_equal(hurt.history.matrix()[0], X)


def test_a_tabulated_schedule_can_be_called_anywhere():
    schedule = Tabulated(lambda n: 1.0 / n)
    assert schedule(5000) == 1 / 5000
    assert schedule(1) == 1.0
    assert schedule.table.size >= 5000


def test_the_oracle_agrees_on_a_normalised_step():
    X, y = rows()
    uniforms = iter(np.random.default_rng(3).random(10_000))
    expected = naive.saga(X, y, uniforms, normalised(0.9), lambda n: 20.0 / n, steps=2)
    tracker = SAGA(X.shape[1], step_size=Normalised(0.9), regularisation=ridge(20.0), steps=2, seed=3, **RAW)
    np.testing.assert_allclose(tracker.partial_fit(X, y).theta, expected[-1], rtol=0, atol=1e-12)


def test_a_power_that_overflows_is_a_step_of_0():
    assert Power(1.0, 1e300, 2.0)(1) == 0.0
    assert SAGA(3, seed=0, regularisation=Power(1.0, 1e300, 2.0)).partial_fit(np.eye(3), np.ones(3)).n == 3
