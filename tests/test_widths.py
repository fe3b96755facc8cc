"""Widths: what the oracle says on the same rows and draws, and what becomes of arms that come, change and go."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import scipy.sparse as sp

import naive
from driftls import ridge
from driftls.compiling import parts
from driftls.draws import Draws
from driftls.errors import CorruptFileError, SettingsError
from driftls.history import Growing, Reservoir, Window
from driftls.inputs import as_rows
from driftls.schedules import Power
from driftls.stage import Stage
from driftls.trackers import CD, GD, OLS, RAW, RLS, SAGA, Diagonal
from driftls.widths import KINDS, DiagonalWidth, ExactWidth, NoWidth, PhiWidth, SampleWidth

DIM, ROWS, ARMS, SEED, RIDGE = 6, 60, 5, 3, 0.7
each_layout = pytest.mark.parametrize("layout", ["dense", "sparse"])


class Model:
    """A tracker and a width, driven part by part as a policy drives them."""

    def __init__(self, tracker, width, *, sparse=False, slots=0, seed=SEED):
        self.tracker, self.width, self.draws = tracker, width, Draws(seed, 4096)
        if tracker.sparse is None:
            tracker.start(sparse)
        self.state = width.open(tracker, self.draws, slots)
        self.stage = Stage(tracker.dim)
        self.stage.start(sparse)

    def call(self, name, i=0, n=0, out=0, x=0.0):
        address = self.state.frame[name]
        if not address:
            return 0.0
        self.draws.ready(self.width.draws(self.tracker.dim))
        given = self.tracker.frame.address, self.state.frame.address, self.stage.frame.address, i, n, out, x
        if parts.INTERPRET:
            return parts.call(address, *given)
        kinds = [*[ctypes.c_int64] * 6, ctypes.c_double]
        return ctypes.CFUNCTYPE(ctypes.c_double, *kinds)(address)(*given)

    def take(self, arms):
        return self.stage.take(as_rows(arms, self.tracker.dim))

    def offer(self, arms, slots):
        """New arms, or arms that may have changed, get their slots; then a round begins."""
        self.take(arms)
        for k, slot in enumerate(slots):
            if not self.state.arrays["live"][slot] or self.call("same", k, slot) == 0.0:
                self.call("open", k, slot)
        self.call("begin")

    def learn(self, X, y, slots=None):
        """Row after row; slots: of the arms that they are."""
        for n in range(len(y)):
            x = X[[n]]
            self.tracker.partial_fit(x, y[n : n + 1])
            self.take(x)
            self.stage.y[0] = y[n]
            if self.call("enter", 0, -1 if slots is None else int(slots[n])):
                self.state.attend()

    def widths2(self, arms, slots=None):
        count = self.take(arms)
        return np.array([self.call("width2", k, -1 if slots is None else int(slots[k])) for k in range(count)])

    def scores(self, arms, slots=None, kappa=1.0):
        out, given = np.zeros(self.take(arms)), np.array([] if slots is None else slots, dtype=np.int64)
        self.stage.frame["slots"] = 0 if slots is None else given
        try:
            self.call("score", 0, out.size, parts.address_of(out), kappa)
        finally:
            self.stage.frame["slots"] = 0
        return out


def unit_rows(count, layout="dense", seed=0):
    """Rows of length 1, so that the largest squared norm is 1 from the first row on."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, DIM))
    if layout == "sparse":
        X *= rng.random((count, DIM)) < 0.5
        X[np.arange(count), rng.integers(DIM, size=count)] = 1.0  # no row is empty
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def as_layout(X, layout):
    return sp.csr_array(X) if layout == "sparse" else X


def uniforms(skip=0):
    """What a Model draws, from a place on."""
    return iter(np.random.default_rng(SEED).random(5000)[skip:])


def problem(layout):
    rng = np.random.default_rng(9)
    return unit_rows(ROWS, layout, 1), unit_rows(ARMS, layout, 2), rng.normal(size=ROWS)


def saga(**settings):
    return SAGA(DIM, steps=2, regularisation=ridge(RIDGE), seed=1, **settings, **RAW)


def exact(X, arms):
    return np.array([naive.exact_width2(x, naive.gram(X, RIDGE)) for x in arms])


def close(found, expected, tolerance=1e-10):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


# -- phi against the oracle ------------------------------------------------------------------------------------------


@each_layout
@pytest.mark.parametrize("method", ["printed", "regularised"])
def test_phi_equals_the_oracle_for_early_and_late_arms(method, layout):
    X, arms, y = problem(layout)
    steps, late, gamma = 2, 25, Power(1.0, 100.0, 1.0)
    tracker = GD(DIM, step_size=gamma, averaging=None, seed=1, **RAW) if method == "printed" else saga()
    model = Model(tracker, PhiWidth(steps, method=method), sparse=layout == "sparse", slots=ARMS)

    def oracle(x, stream, n0=0):
        if method == "printed":
            return naive.phi_printed(x, X, stream, gamma, steps=steps, n0=n0)[-1]
        return naive.phi_regularised(x, X, stream, 0.3, RIDGE, steps, n0=n0)[-1]

    given = as_layout(X, layout)
    model.offer(as_layout(arms[:3], layout), [0, 1, 2])  # reads its draws for cold arms, then each row reads its own
    model.learn(given[:late], y[:late])
    model.offer(as_layout(arms[2:], layout), [2, 3, 4])
    model.learn(given[late:], y[late:])
    # the early ones read on past the draws of the second round
    read = [u for i, u in enumerate(uniforms()) if not steps * (late + 1) <= i < steps * (late + 2)]
    phis = [oracle(x, iter(read[steps:])) for x in arms[:3]]
    phis += [oracle(x, uniforms(steps * (late + 2)), late) for x in arms[3:]]
    expected = np.array([naive.phi_width2(x, phi) for x, phi in zip(arms, phis)])
    given = as_layout(arms, layout)
    close(model.widths2(given, range(ARMS)), expected)
    np.testing.assert_allclose(
        model.scores(given, range(ARMS), 0.4),
        arms @ tracker.theta + 0.4 * np.sqrt(model.widths2(given, range(ARMS))),
        atol=1e-12,
    )


@pytest.mark.parametrize("layout", ["window", "sparse", "dense"])
def test_phi_takes_its_steps_while_rows_are_arms(layout):
    arms, pulls = unit_rows(ARMS, "sparse", 2), np.random.default_rng(2).integers(0, ARMS, size=ROWS)
    tracker = saga(history=Window(15)) if layout == "window" else saga()
    model = Model(tracker, PhiWidth(2), sparse=layout == "sparse", slots=ARMS)
    given, phis = as_layout(arms, layout), arms / RIDGE
    model.offer(given, range(ARMS))
    chance = uniforms(2)
    for n, k in enumerate(pulls, 1):
        model.learn(given[[k]], np.ones(1), [k])
        held = arms[pulls[:n]]
        if layout == "window" and n > 15:  # a new row takes the place of the oldest
            held = np.array([held[i + (n - 1 - i) // 15 * 15] for i in range(15)])
        for _ in range(2):
            x_i = held[int(next(chance) * len(held))]
            phis = phis + 0.3 * (arms / len(held) - (phis @ x_i)[:, None] * x_i - RIDGE * phis / len(held))
    close(model.widths2(given, range(ARMS)), np.maximum(0.0, (arms * phis).sum(axis=1)))


@each_layout
@pytest.mark.parametrize("method", ["regularised", "printed"])
def test_an_arm_without_a_slot_takes_its_steps_afresh(method, layout):
    X, arms, y = problem(layout)
    gamma = Power(1.0, 100.0, 1.0)
    tracker = GD(DIM, step_size=gamma, averaging=None, seed=1, **RAW) if method == "printed" else saga()
    model = Model(tracker, PhiWidth(3, method=method), sparse=layout == "sparse")
    model.learn(as_layout(X, layout), y)
    given = as_layout(arms, layout)
    model.offer(given, [])
    guess, expected = arms / np.diag(naive.gram(X, RIDGE)), []
    for x, start in zip(arms, guess):
        if method == "printed":
            phi = naive.phi_printed(x, X, uniforms(3 * ROWS), gamma, steps=3, n0=ROWS - 1)[-1]
        else:
            phi = naive.phi_regularised(x, X, uniforms(3 * ROWS), 0.3, RIDGE, 3, n0=ROWS - 1, phi=start)[-1]
        expected.append(naive.phi_width2(x, phi))
    for _ in range(2):  # asking changes nothing
        close(model.widths2(given), expected)


@pytest.mark.parametrize("kind", [Window, Reservoir])
def test_phi_counts_the_rows_of_a_window_and_all_rows_of_a_reservoir(kind):
    X, arms, y = problem("dense")
    history = kind(15)
    model = Model(saga(history=history), PhiWidth(2), slots=ARMS)
    model.offer(arms, range(ARMS))
    chance, phis = uniforms(2), arms / RIDGE
    for n in range(1, ROWS + 1):
        model.learn(X[n - 1 : n], y[n - 1 : n])
        held = history.matrix()[0]
        count = len(held) if kind is Window else n
        for _ in range(2):
            x_i = held[int(next(chance) * len(held))]
            phis = phis + 0.3 * (arms / count - (phis @ x_i)[:, None] * x_i - RIDGE * phis / count)
    close(model.widths2(arms, range(ARMS)), np.maximum(0.0, (arms * phis).sum(axis=1)))


@each_layout
def test_phi_survives_any_number_of_halvings(layout):
    """A large ridge holds the steps at n/(2 ridge), and each halves phi: the scalars would underflow."""
    X, arms, _ = problem(layout)
    total, steps = 1e6, 400  # 2^-399 is the first that is too small: what is wrong then has no time to fade
    tracker = SAGA(DIM, steps=1, regularisation=ridge(total), seed=1, **RAW)
    model = Model(tracker, PhiWidth(steps), sparse=layout == "sparse", slots=1)
    given = as_layout(arms, layout)
    model.offer(given[[0]], [0])
    model.learn(as_layout(X[[0]], layout), np.ones(1))
    model.offer(given[[0]], [0])
    phi, cold = arms[0] / total, arms[1] / (total + np.square(X[0]))
    for _ in range(steps):
        phi = phi + 0.5 / total * (arms[0] - (phi @ X[0]) * X[0] - total * phi)
        cold = cold + 0.5 / total * (arms[1] - (cold @ X[0]) * X[0] - total * cold)
    found = model.widths2(given[[0, 1]], [0, -1])
    np.testing.assert_allclose(found, [arms[0] @ phi, arms[1] @ cold], rtol=1e-10)


def test_negative_widths_are_clamped_and_counted():
    X, _, y = problem("dense")
    arms, clamped = unit_rows(40, seed=8), 0
    model = Model(saga(), PhiWidth(8, scale=1.9), slots=40)
    model.offer(arms, range(40))
    for n in range(ROWS):
        model.learn(X[n : n + 1], y[n : n + 1])
        P, Q, U = (model.state.arrays[name] for name in ("P", "Q", "phi"))
        squares = np.einsum("kd,kd->k", arms, P[:, None] * U + Q[:, None] * arms)
        clamped += int((squares < 0.0).sum())
        close(model.widths2(arms, range(40)), np.maximum(squares, 0.0))
    assert clamped > 0
    assert model.state.frame["clamped"] == clamped


# -- exact and diagonal ----------------------------------------------------------------------------------------------


@each_layout
def test_exact_widths_equal_the_oracle(layout):
    X, arms, y = problem(layout)
    model = Model(RLS(DIM, regularisation=ridge(RIDGE), **RAW), ExactWidth(), sparse=layout == "sparse")
    model.learn(as_layout(X, layout), y)
    close(model.widths2(as_layout(arms, layout)), exact(X, arms))


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_a_tracker_without_an_inverse_gets_exact_widths_too(discount):
    X, arms, y = problem("dense")
    model = Model(CD(DIM, regularisation=ridge(RIDGE), discount=discount, **RAW), ExactWidth())
    model.learn(X, y)
    M = naive.moments(X, y, range(ROWS), discount)[0] + RIDGE * np.eye(DIM)
    close(model.widths2(arms), [naive.exact_width2(x, M) for x in arms])


def test_many_dense_arms_are_scored_by_one_product():
    rng = np.random.default_rng(0)
    X, arms = rng.normal(size=(80, 40)) / 5.0, rng.normal(size=(70, 40)) / 5.0
    model = Model(RLS(40, regularisation=ridge(RIDGE), **RAW), ExactWidth())
    model.learn(X, X[:, 0])
    assert model.state.frame["blas"] != 0
    model.state.reserve(70)
    M = naive.gram(X, RIDGE)
    expected = arms @ model.tracker.theta + 0.4 * np.sqrt([naive.exact_width2(x, M) for x in arms])
    close(model.scores(arms, kappa=0.4), expected)


@each_layout
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_diagonal_widths_equal_the_oracle(discount, layout):
    X, arms, y = problem(layout)
    tracker = Diagonal(DIM, regularisation=ridge(RIDGE), discount=discount, **RAW)
    model = Model(tracker, DiagonalWidth(), sparse=layout == "sparse")
    model.learn(as_layout(X, layout), y)
    A = naive.moments(X, y, range(ROWS), discount)[0]
    for total in (RIDGE, 2.5):
        model.state.set_ridge(total)
        M = A + total * np.eye(DIM)
        close(model.widths2(as_layout(arms, layout)), [naive.diagonal_width2(x, M) for x in arms])


def test_the_ridge_of_other_widths_cannot_change():
    with pytest.raises(SettingsError, match="cannot change"):
        Model(saga(), PhiWidth()).state.set_ridge(2.0)
    with pytest.raises(SettingsError, match="cannot change"):
        Model(saga(), ExactWidth()).state.set_ridge(2.0)


# -- samples ---------------------------------------------------------------------------------------------------------


@each_layout
def test_the_factor_of_exact_samples_stays_right(layout):
    X, arms, y = problem(layout)
    model = Model(RLS(DIM, regularisation=ridge(RIDGE), **RAW), SampleWidth(), sparse=layout == "sparse")
    model.learn(as_layout(X, layout), y)
    factor = model.state.arrays["factor"]
    np.testing.assert_allclose(factor.T @ factor, naive.gram(X, RIDGE), atol=1e-12)
    close(model.widths2(as_layout(arms, layout)), exact(X, arms))


@each_layout
def test_exact_samples_have_the_covariance_of_the_inverse_and_are_what_is_added(layout):
    X, arms, y = problem(layout)
    model, rounds = Model(RLS(DIM, regularisation=ridge(RIDGE), **RAW), SampleWidth(), sparse=layout == "sparse"), 4000
    model.learn(as_layout(X, layout), y)
    given, found = as_layout(arms, layout), np.zeros((rounds, ARMS))
    for r in range(rounds):
        model.call("begin")
        found[r] = model.scores(given, kappa=2.0) - arms @ model.tracker.theta
    np.testing.assert_allclose(found[-1], 2.0 * arms @ model.state.arrays["direction"], atol=1e-12)
    # the mean of M squares of normal numbers has a relative standard deviation of sqrt(2/M); five of them
    np.testing.assert_allclose((found**2).mean(axis=0), 4.0 * exact(X, arms), rtol=5.0 * np.sqrt(2.0 / rounds))


def test_a_sample_is_solved_for_with_the_numbers_of_the_tape():
    X, _, y = problem("dense")
    model = Model(RLS(DIM, regularisation=ridge(RIDGE), **RAW), SampleWidth())
    model.learn(X, y)
    model.call("begin")
    u = np.random.default_rng(SEED).random((DIM, 2))
    z = np.sqrt(-2.0 * np.log(1.0 - u[:, 0])) * np.cos(2.0 * np.pi * u[:, 1])
    L = np.linalg.cholesky(naive.gram(X, RIDGE))
    np.testing.assert_allclose(model.state.arrays["direction"], np.linalg.solve(L.T, z), atol=1e-12)


# -- arms that come, change and go -----------------------------------------------------------------------------------


@each_layout
@pytest.mark.parametrize("method", ["regularised", "printed"])
def test_more_slots_lose_nothing(method, layout):
    X, arms, y = problem(layout)
    found = []
    for first in (2, 16):
        tracker = GD(DIM, step_size=0.1, averaging=None, seed=1, regularisation=ridge(RIDGE), **RAW)
        model = Model(tracker, PhiWidth(2, method=method), sparse=layout == "sparse", slots=first)
        model.offer(as_layout(arms[:2], layout), [0, 1])
        model.learn(as_layout(X[:20], layout), y[:20])
        model.state.grow(16)
        model.offer(as_layout(arms[2:], layout), [2, 3, 4])
        model.learn(as_layout(X[20:], layout), y[20:])
        found.append(model.widths2(as_layout(arms, layout), range(ARMS)))
    np.testing.assert_array_equal(*found)


@each_layout
def test_an_id_that_comes_with_other_features_starts_afresh(layout):
    X, arms, y = problem(layout)
    model = Model(saga(), PhiWidth(2), sparse=layout == "sparse", slots=3)
    model.offer(as_layout(arms[:2], layout), [0, 1])
    model.learn(as_layout(X, layout), y)
    kept = model.widths2(as_layout(arms[:1], layout), [0])
    mixed = as_layout(arms[[0, 3, 3]], layout)
    model.offer(mixed, [0, 1, 2])
    old, changed, new = model.widths2(mixed, [0, 1, 2])
    assert old == kept[0]
    assert changed == new
    np.testing.assert_allclose(new, 1.0 / RIDGE, atol=1e-12)


def test_fewer_features_are_other_features():
    model = Model(saga(), PhiWidth(2), sparse=True, slots=1)
    arm = np.array([[0.6, 0.8, 0.0, 0.0, 0.0, 0.0]])
    model.offer(sp.csr_array(arm), [0])
    X, _, y = problem("sparse")
    model.learn(sp.csr_array(X), y)
    arm[0, 1] = 0.0
    model.offer(sp.csr_array(arm), [0])
    np.testing.assert_allclose(model.widths2(sp.csr_array(arm), [0]), 0.36 / RIDGE, atol=1e-12)


def test_a_dropped_arm_is_not_followed():
    X, arms, y = problem("dense")
    model = Model(saga(), PhiWidth(2), slots=2)
    model.offer(arms[:2], [0, 1])
    model.state.drop(1)
    before = model.state.arrays["phi"].copy()
    model.learn(X, y)
    changed = (model.state.arrays["phi"] != before).any(axis=1)
    np.testing.assert_array_equal(changed, [True, False])


# -- files -----------------------------------------------------------------------------------------------------------

KEPT = [
    (lambda: saga(), NoWidth()),
    (lambda: RLS(DIM, regularisation=ridge(RIDGE), **RAW), ExactWidth()),
    (lambda: CD(DIM, regularisation=ridge(RIDGE), **RAW), ExactWidth()),
    (lambda: CD(DIM, regularisation=ridge(RIDGE), discount=0.9, **RAW), ExactWidth()),
    (lambda: CD(DIM, regularisation=ridge(RIDGE), discount=0.9, **RAW), DiagonalWidth()),
    (saga, PhiWidth(2)),
    (lambda: GD(DIM, step_size=0.1, seed=1, **RAW), PhiWidth(2, method="printed")),
    (saga, SampleWidth()),
]
each_kept = pytest.mark.parametrize(("tracker", "width"), KEPT, ids=[f"{k}-{w}" for k, (_, w) in enumerate(KEPT)])


def half_way(tracker, width, layout):
    X, arms, y = problem(layout)
    X, arms = as_layout(X, layout), as_layout(arms, layout)
    model = Model(tracker(), width, sparse=layout == "sparse", slots=ARMS)
    if width.keeps_arms:
        model.offer(arms[[0, 1, 2]], [0, 1, 2])
    model.call("begin")
    model.learn(X[:30], y[:30])
    return model, X[30:], arms, y[30:]


@each_layout
@each_kept
def test_a_state_that_was_written_down_goes_on_as_if_it_had_never_stopped(tracker, width, layout):
    model, X, arms, y = half_way(tracker, width, layout)
    numbers, arrays = model.state.snapshot()
    kind = type(model.tracker)
    again = Model.__new__(Model)
    again.tracker = kind.from_snapshot(*model.tracker.snapshot())
    again.draws, again.stage = Draws(0), Stage(DIM)
    again.draws.restore(model.draws.header(), model.draws.unread())
    again.stage.start(layout == "sparse")
    again.width = KINDS[type(width).__name__](**width.settings())
    again.state = again.width.open(again.tracker, again.draws, ARMS, restored=True)
    again.state.restore(numbers, arrays)
    slots = [0, 1, 2, -1, -1] if width.keeps_arms else None
    for one in (model, again):
        one.first = one.scores(arms, slots)
        one.learn(X, y, np.arange(30) % 3 if width.keeps_arms else None)
        one.call("begin")
        one.then = one.scores(arms, slots), one.widths2(arms, slots)
    np.testing.assert_array_equal(model.first, again.first)
    np.testing.assert_array_equal(model.then, again.then)


@each_kept
def test_a_state_that_cannot_be_right_is_refused_and_changes_nothing(tracker, width):
    model, _, arms, _ = half_way(tracker, width, "dense")
    numbers, arrays = model.state.snapshot()
    before = model.widths2(arms)
    for name, array in arrays.items():
        for bad in (None, array[:-1], np.full_like(array, -1)):
            if bad is not None and bad.shape == array.shape:
                if name.removeprefix("own.") not in ("live", "sizes", "drawn", "squares", "P", "factor"):
                    bad = np.full_like(array, np.nan)
                elif array.dtype == np.int64 and name == "drawn":
                    bad = np.full_like(array, 30)
            wrong = {**arrays, name: bad}
            if bad is None:
                del wrong[name]
            with pytest.raises(CorruptFileError):
                model.state.restore(numbers, wrong)
    for name in numbers:
        for bad in (None, float("nan"), -1.0, "1"):
            with pytest.raises(CorruptFileError):
                model.state.restore({**numbers, name: bad}, arrays)
    np.testing.assert_array_equal(model.widths2(arms), before)


# -- what cannot be combined -----------------------------------------------------------------------------------------


def printed_gd():
    return GD(DIM, step_size=Power(1.0, 100.0, 1.0), regularisation=Power(1.0, 0.0, 0.8), **RAW)


@pytest.mark.parametrize(
    ("tracker", "width", "complaint"),
    [
        (lambda: CD(DIM, discount=0.9, **RAW), SampleWidth(), "cannot discount"),
        (lambda: CD(DIM, discount=0.9, history=Growing(), **RAW), PhiWidth(), "cannot discount"),
        (lambda: CD(DIM, **RAW), PhiWidth(), "history=Growing"),
        (printed_gd, PhiWidth(), "constant, positive total ridge"),
        (printed_gd, DiagonalWidth(), "constant, positive total ridge"),
        (printed_gd, ExactWidth(), "constant, positive total ridge"),
        (lambda: RLS(DIM, discount=0.9, **RAW), ExactWidth(), "keeps no inverse"),
        (lambda: SAGA(40_000, **RAW), SampleWidth(), "40000 x 40000"),
    ],
    ids=lambda value: None if callable(value) else str(value),
)
def test_a_combination_that_cannot_be_right_is_refused(tracker, width, complaint):
    with pytest.raises(SettingsError, match=complaint):
        Model(tracker(), width)


@pytest.mark.parametrize("width", [DiagonalWidth(), PhiWidth(), SampleWidth(), ExactWidth()], ids=repr)
def test_a_width_with_sums_of_its_own_must_see_every_row(width):
    tracker = saga().partial_fit(np.eye(DIM), np.ones(DIM))
    with pytest.raises(SettingsError, match="the tracker has learned 6 rows before"):
        width.open(tracker, Draws(0), 0)


def test_a_file_cannot_give_exact_widths_to_an_rls_without_an_inverse():
    tracker = RLS(DIM, method="cholesky", **RAW).partial_fit(np.eye(DIM), np.ones(DIM))
    with pytest.raises(SettingsError, match="keeps no inverse"):
        ExactWidth().open(tracker, Draws(0), restored=True)


def test_exact_widths_over_ols_come_once_its_matrix_can_be_inverted():
    X, arms, y = problem("dense")
    with pytest.raises(SettingsError, match="keeps no inverse"):
        Model(OLS(DIM, **RAW), ExactWidth())
    model = Model(OLS(DIM, **RAW).partial_fit(X, y), ExactWidth())
    close(model.widths2(arms), [naive.exact_width2(x, X.T @ X) for x in arms])
    numbers, arrays = model.state.snapshot()
    again = ExactWidth().open(model.tracker, model.draws, restored=True)
    again.restore(numbers, arrays)
    assert again.frame["own"] == 0


def test_a_width_that_reads_its_tracker_may_come_later():
    X, arms, y = problem("dense")
    model = Model(RLS(DIM, **RAW).partial_fit(X, y), ExactWidth(), slots=ARMS)
    close(model.widths2(arms, range(ARMS)), [naive.exact_width2(x, naive.gram(X, 1.0)) for x in arms])
    model = Model(Diagonal(DIM, **RAW).partial_fit(X, y), NoWidth())
    close(model.scores(arms), arms @ model.tracker.theta)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: PhiWidth(method="newton"), "method must be 'regularised' or 'printed'"),
        (lambda: PhiWidth(0), "steps must be a whole number of at least 1, got 0"),
        (lambda: PhiWidth(1.5), "steps must be a whole number of at least 1, got 1.5"),
        (lambda: PhiWidth(scale=0.0), r"scale must lie in \(0, 2\)"),
        (lambda: PhiWidth(scale=float("nan")), r"scale must lie in \(0, 2\)"),
    ],
)
def test_bad_settings_are_refused(make, complaint):
    with pytest.raises(SettingsError, match=complaint):
        make()
