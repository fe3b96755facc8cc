"""The tape of uniforms, and the sequences gamma_n and lambda_n."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from checks import normalised, rows
from numpy.random import MT19937, PCG64DXSM, SFC64, Generator, Philox, SeedSequence

import naive
from driftls import Normalised, Power, ridge
from driftls.draws import TAPE, Draws
from driftls.errors import CorruptFileError, SettingsError
from driftls.history import Reservoir
from driftls.kernels import schedules as kernels
from driftls.schedules import Tabulated, as_schedule, encode, from_header, to_header
from driftls.trackers import GD, SAGA

GENERATORS = {
    "seed": lambda: 7,
    "sequence": lambda: SeedSequence(7),
    "PCG64": lambda: np.random.default_rng(7),
    "MT19937": lambda: Generator(MT19937(7)),
    "Philox": lambda: Generator(Philox(7)),
    "SFC64": lambda: Generator(SFC64(7)),
    "PCG64DXSM": lambda: Generator(PCG64DXSM(7)),
}
every_generator = pytest.mark.parametrize("seed", GENERATORS.values(), ids=GENERATORS)


# -- draws ---------------------------------------------------------------------------------------------------------


@every_generator
def test_the_tape_is_the_generators_own_stream_however_it_is_taken(seed):
    expected = np.random.default_rng(seed()).random(4 * TAPE)
    whole, pieces, small = Draws(seed()), Draws(seed()), Draws(seed(), size=5)
    np.testing.assert_array_equal(whole.take(4 * TAPE), expected)
    sizes = [1, 2, TAPE - 1, 0, TAPE, TAPE + 3, 17]
    taken = np.concatenate([pieces.take(size) for size in sizes])
    np.testing.assert_array_equal(taken, expected[: sum(sizes)])
    np.testing.assert_array_equal(small.take(100), expected[:100])


@every_generator
@pytest.mark.parametrize("taken", [0, 1, 100, TAPE - 1, TAPE, TAPE + 1])
def test_a_restored_tape_goes_on_where_it_stood(seed, taken):
    draws = Draws(seed())
    draws.take(taken)
    header, unread = json.loads(json.dumps(draws.header())), draws.unread()
    again = Draws(0)
    again.restore(header, unread)
    np.testing.assert_array_equal(again.take(2 * TAPE), draws.take(2 * TAPE))


def test_getting_ready_never_loses_or_repeats_a_draw():
    generator = np.random.default_rng(1)
    draws, expected = Draws(3), np.random.default_rng(3).random(40 * TAPE)
    read = 0
    while read < 20 * TAPE:
        wanted = int(generator.integers(0, TAPE + 1))
        ahead = draws.ready(wanted)
        assert ahead >= wanted
        use = int(generator.integers(0, wanted + 1))
        at = int(draws.cursor[0])
        np.testing.assert_array_equal(draws.tape[at : at + use], expected[read : read + use])
        draws.cursor[0] += use
        read += use


@pytest.mark.parametrize("name", ["seed", "Generator", "RandomState", "nothing", "__doc__", None])
def test_a_random_state_that_names_no_bit_generator_is_refused(name):
    with pytest.raises(CorruptFileError, match="unknown generator"):
        Draws(0).restore({"bit_generator": name}, np.empty(0))


def test_more_kept_draws_than_there_can_be_are_refused():
    draws = Draws(0)
    with pytest.raises(CorruptFileError, match="more than the 8192"):
        Draws(1).restore(draws.header(), np.zeros(TAPE + 1))


@pytest.mark.parametrize("seed", ["text", -1, 1.5, object()])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(SettingsError, match="seed must be"):
        SAGA(2, seed=seed)


@pytest.mark.parametrize("steps", [1, 3, 1000])
@pytest.mark.parametrize("reservoir", [False, True])
def test_block_size_never_changes_a_result_across_refills_of_the_tape(steps, reservoir):
    generator = np.random.default_rng(0)
    count = 3 * TAPE // steps + 50
    X = generator.normal(size=(count, 2))
    y = X @ [1.0, 2.0] + generator.normal(size=count)

    def learned(sizes):
        tracker = SAGA(2, steps=steps, seed=4, **({"history": Reservoir(30)} if reservoir else {}))
        first = 0
        for size in sizes:
            tracker.partial_fit(X[first : first + size], y[first : first + size])
            first += size
        for n in range(first, count):
            tracker.update(X[n], y[n])
        return tracker

    one, whole = learned([]), learned([count])
    ragged = learned([3, 1, count // 3, 0, count // 2])
    for other in (whole, ragged):
        np.testing.assert_array_equal(other.theta, one.theta)
        np.testing.assert_array_equal(other._draws.take(5), one._draws.unread()[:5])


def test_more_steps_a_row_than_the_tape_usually_holds():
    X, y = rows()
    tracker = SAGA(X.shape[1], steps=TAPE + 1000, seed=0).partial_fit(X[:8], y[:8])
    assert tracker.tracking_error().relative < 1e-9  # that many steps solve 8 rows


@every_generator
def test_a_saved_tracker_goes_on_with_its_own_generator(seed, tmp_path):
    X, y = rows()
    straight = SAGA(X.shape[1], seed=seed()).partial_fit(X, y)
    stopped = SAGA(X.shape[1], seed=seed()).partial_fit(X[:30], y[:30])
    stopped.save(tmp_path / "t.safetensors")
    again = SAGA.load(tmp_path / "t.safetensors").partial_fit(X[30:], y[30:])
    np.testing.assert_array_equal(again.theta, straight.theta)
    assert type(again._draws.generator.bit_generator) is type(straight._draws.generator.bit_generator)
    np.testing.assert_array_equal(again._draws.take(2 * TAPE), straight._draws.take(2 * TAPE))


# -- schedules -----------------------------------------------------------------------------------------------------

POWERS = [(0.3, 0.0, 0.0), (1.0, 100.0, 1.0), (1.0, 0.0, 0.4), (2.0, 5.0, 0.5), (4.0, 0.5, 2.0), (0.0, 0.0, 1.0)]


@pytest.mark.parametrize("numbers", POWERS)
def test_a_power_is_scale_over_offset_plus_n_to_the_exponent(numbers):
    scale, offset, exponent = numbers
    schedule = Power(*numbers)
    encoded = encode(schedule)
    for n in (1, 2, 3, 10, 1000, 10**6):
        expected = scale / (offset + n) ** exponent
        assert schedule(n) == pytest.approx(expected, rel=1e-15)
        assert kernels.power(encoded, float(n)) == pytest.approx(expected, rel=4e-16)


@pytest.mark.parametrize("schedule", [Power(0.3), Power(1, 100, 1), ridge(2.5), Normalised(0.25)])
def test_what_a_file_keeps_of_a_schedule_gives_it_back(schedule):
    assert from_header(json.loads(json.dumps(to_header(schedule)))) == schedule


@pytest.mark.parametrize("total", [1.0, 3.0, 0.1, 1e-12, 7.7])
def test_a_ridge_keeps_n_lambda_n_constant_without_rounding(total):
    tracker = SAGA(1, regularisation=ridge(total), seed=0).partial_fit([[1.0]], [1.0])
    for n in range(1, 2000):
        assert kernels.total_ridge(tracker._plan, float(n)) == total
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
        SAGA(2, regularisation=Normalised(0.5))


def test_a_normalised_step_follows_the_largest_row_and_is_held_where_the_ridge_is_heavy():
    plan = SAGA(1, step_size=Normalised(0.5), seed=0).partial_fit([[1.0]], [1.0])._plan
    assert kernels.step_size(plan, 1, 0.0, 4.0) == 0.125
    assert kernels.step_size(plan, 1, 2.0, 4.0) == 0.125
    assert kernels.step_size(plan, 1, 8.0, 4.0) == 0.0625  # 1/(2 lam)
    assert kernels.step_size(plan, 1, 0.0, 0.0) == 0.0
    assert kernels.step_size(plan, 1, 0.0, 1e-310) == 0.0  # not 1/0


@pytest.mark.parametrize("block", [1, 100, 5000])
def test_a_function_is_tabulated_ahead_across_growth_of_its_table(block):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(5000, 2))
    y = X @ [1.0, -1.0]
    calls = []

    def gamma(n):
        calls.append(n)
        return 0.3 / n**0.5

    tracker = GD(2, step_size=gamma, regularisation=lambda n: 1 / n**0.7, averaging=None, steps=1, seed=2, guard=False)
    for first in range(0, 5000, block):
        if block == 1:
            tracker.update(X[first], y[first])
        else:
            tracker.partial_fit(X[first : first + block], y[first : first + block])
    assert calls == list(range(1, len(calls) + 1))  # each n once, in order
    powers = GD(
        2, step_size=Power(0.3, 0, 0.5), regularisation=Power(1, 0, 0.7), averaging=None, steps=1, seed=2, guard=False
    )
    np.testing.assert_allclose(tracker.theta, powers.partial_fit(X, y).theta, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0, None, "text"])
@pytest.mark.parametrize("at", [1, 40, 1024, 1025, 1500])
def test_a_function_that_gives_no_number_is_refused_with_its_n(bad, at):
    X, y = np.ones((2000, 1)), np.ones(2000)
    tracker = SAGA(1, step_size=lambda n: bad if n == at else 0.1, steps=1, seed=0)
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
        return SAGA(X.shape[1], step_size=gamma, steps=1, seed=0)

    straight = tracker().partial_fit(X, y)
    broken[0] = True
    hurt = tracker().partial_fit(X[:900], y[:900])
    with pytest.raises(ArithmeticError, match="not today"):
        hurt.partial_fit(X[900:], y[900:])
    broken[0] = False
    assert len(hurt) == 900
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
    tracker = SAGA(X.shape[1], step_size=Normalised(0.9), regularisation=ridge(20.0), steps=2, seed=3)
    np.testing.assert_allclose(tracker.partial_fit(X, y).theta, expected[-1], rtol=0, atol=1e-12)
