"""Widths: what the oracle says on the same rows and draws, and what becomes of arms that come, change and go."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import naive
from driftls import paper, ridge
from driftls.errors import InputError, SettingsError
from driftls.history import Growing, Reservoir, Window
from driftls.kernels import phi
from driftls.policies import EnsembleTS, LinTS, LinUCB, Policy
from driftls.schedules import Power
from driftls.trackers import CD, RLS, SAGA, Diagonal
from driftls.widths import DiagonalWidth, EnsembleWidth, ExactWidth, NoWidth, PhiWidth, SampleWidth

DIM, ROWS, ARMS, SEED, RIDGE = 6, 60, 5, 3, 0.7
each_layout = pytest.mark.parametrize("layout", ["dense", "sparse"])


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
    """The chance of LinUCB(seed=SEED), from a place on."""
    return iter(np.random.default_rng(SEED).spawn(2)[0].random(5000)[skip:])


def problem(layout):
    rng = np.random.default_rng(9)
    return unit_rows(ROWS, layout, 1), unit_rows(ARMS, layout, 2), rng.normal(size=ROWS)


def saga(**settings):
    return SAGA(DIM, steps=2, regularisation=ridge(RIDGE), seed=1, **settings)


def learn(policy, X, y, layout="dense"):
    matrix = as_layout(X, layout)
    for n in range(len(y)):
        policy.learn(matrix[[n]] if layout == "sparse" else X[n], y[n])


def assert_widths(policy, arms, ids, expected2, layout, tolerance=1e-10):
    found = policy.widths(as_layout(arms, layout), ids=ids)
    np.testing.assert_allclose(found**2, expected2, rtol=0, atol=tolerance)


# -- against the oracle ----------------------------------------------------------------------------------------------


@each_layout
@pytest.mark.parametrize("method", ["printed", "gd"])
def test_phi_equals_the_oracle_for_early_and_late_arms(method, layout):
    X, arms, y = problem(layout)
    steps, late = 2, 25
    tracker = paper.frls_gd(DIM, seed=1) if method == "printed" else saga()
    policy = LinUCB(tracker=tracker, width=PhiWidth(steps, method=method), kappa=1.0, seed=SEED)
    lent = naive.Phis(DIM, 0.3, RIDGE, steps, uniforms(steps))  # the rows are no arms: of these only `open` is lent

    def oracle(x, n, stream, n0=0, phi=None):
        if method == "printed":
            return naive.phi_printed(x, X[:n], stream, naive.schedule(1.0, 100.0, 1.0), steps=steps, n0=n0)[-1]
        return naive.phi_regularised(x, X[:n], stream, 0.3, RIDGE, steps, n0=n0, phi=phi)[-1]

    policy.choose(as_layout(arms[:3], layout), ids=[0, 1, 2])  # reads its picks, then each row reads its own
    for x in arms[:3]:
        lent.open(x)
    learn(policy, X[:late], y[:late], layout)
    lent.phis = np.array([oracle(x, late, uniforms(steps)) for x in arms[:3]])
    early = [naive.phi_width2(x, phi) for x, phi in zip(arms, lent.phis)]
    assert_widths(policy, arms[:3], [0, 1, 2], early, layout)
    policy.choose(as_layout(arms[2:], layout), ids=[2, 3, 4])
    for x in arms[3:]:
        lent.open(x)
    learn(policy, X[late:], y[late:], layout)
    # the early ones read on past the picks of the second choice
    skipped = [u for i, u in enumerate(uniforms()) if not steps * (late + 1) <= i < steps * (late + 2)]
    phis = [oracle(x, ROWS, iter(skipped[steps:])) for x in arms[:3]]
    for x, start in zip(arms[3:], lent.phis[3:]):
        phis.append(oracle(x, ROWS, uniforms(steps * (late + 2)), late, start if layout == "dense" else None))
    expected = [naive.phi_width2(x, phi) for x, phi in zip(arms, phis)]
    assert_widths(policy, arms, list(range(ARMS)), expected, layout)


@pytest.mark.parametrize("history", [Growing(), Reservoir(15)], ids=["growing", "reservoir"])
def test_phi_is_exact_while_every_row_is_an_arm_that_is_kept(history):
    arms, pulls = unit_rows(12, seed=4), np.random.default_rng(2).integers(0, 12, size=ROWS)
    policy = LinUCB(tracker=saga(history=history), width=PhiWidth(2), kappa=1.0, seed=SEED)
    rows = []
    for n, k in enumerate(pulls):
        pool = arms[: 3 + n // 5]  # a new arm every fifth round: at first there are too few to span the space
        ids = list(range(len(pool)))
        policy.choose(pool, ids=ids)
        if rows:
            assert_widths(policy, pool, ids, exact(np.array(rows), pool), "dense")
        policy.learn(pool, 1.0, arm=int(k) % len(pool), ids=ids)
        rows.append(pool[k % len(pool)])


def test_phi_equals_the_oracle_where_arms_go_and_rows_are_no_arms():
    """Sixteen places for arms of thirty features: what was learned of an arm that went is not there for the next."""
    rng, dim = np.random.default_rng(6), 30
    arms, others = rng.normal(size=(2, 60, dim)) / np.sqrt(dim)
    tracker = SAGA(dim, steps=1, regularisation=ridge(RIDGE), seed=1)
    policy = LinUCB(tracker=tracker, width=PhiWidth(2), kappa=1.0, forget_after=0, seed=SEED)
    chance, largest, names, doubted = uniforms(), 0.0, {}, 0
    oracle = naive.Phis(dim, None, RIDGE, 2, chance)
    for n in range(120):
        pool = list(range(n // 3, n // 3 + 8))
        policy.choose(arms[pool], ids=pool)
        next(chance), next(chance)  # the picks for arms without ids
        for name in pool:
            slot = policy._slot_of[name]
            if names.get(slot) != name:
                if slot in names:
                    oracle.drop(list(names).index(slot))
                    del names[slot]
                names[slot] = name
                oracle.open(arms[name])
        at = [list(names.values()).index(name) for name in pool]
        expected = [naive.phi_width2(arms[name], oracle.phis[k]) for name, k in zip(pool, at)]
        assert_widths(policy, arms[pool], pool, expected, "dense")
        doubted += sum(oracle.doubts[at] > 0.0)
        k, odd = int(rng.integers(8)), n in (90, 95)
        x = others[n - 90] if odd else arms[pool[k]]
        largest = max(largest, x @ x)
        oracle.g = 0.3 / largest
        if odd:
            policy.learn(x, 1.0)
        else:
            policy.learn(arms[pool], 1.0, arm=k, ids=pool)
        oracle.enter(x, None if odd else at[k])
    assert 100 < doubted < 8 * 120 - 100  # both kinds were met


@pytest.mark.parametrize("layout", ["window", "sparse"])
def test_phi_takes_steps_of_one_length_over_a_window_and_for_sparse_rows(layout):
    arms, pulls = unit_rows(ARMS, "sparse", 2), np.random.default_rng(2).integers(0, ARMS, size=ROWS)
    tracker = saga(history=Window(15)) if layout == "window" else saga()
    policy = LinUCB(tracker=tracker, width=PhiWidth(2), kappa=1.0, seed=SEED)
    given, ids, phis = as_layout(arms, layout), list(range(ARMS)), arms / RIDGE
    policy.choose(given, ids=ids)
    chance = uniforms(2)
    for n, k in enumerate(pulls, 1):
        policy.learn(given, 1.0, arm=int(k), ids=ids)
        held = arms[pulls[:n]]
        if layout == "window" and n > 15:  # a new row takes the place of the oldest
            held = np.array([held[i + (n - 1 - i) // 15 * 15] for i in range(15)])
        for _ in range(2):
            x_i = held[int(next(chance) * len(held))]
            phis = phis + 0.3 * (arms / len(held) - (phis @ x_i)[:, None] * x_i - RIDGE * phis / len(held))
    assert_widths(policy, arms, ids, np.maximum(0.0, (arms * phis).sum(axis=1)), layout)


def test_a_row_that_is_not_what_its_arm_was_brings_doubt():
    arms = unit_rows(ARMS, seed=2)
    policy = LinUCB(tracker=saga(), width=PhiWidth(2), kappa=1.0, seed=SEED)
    policy.choose(arms, ids=list(range(ARMS)))
    policy.learn(arms, 1.0, arm=1, ids=list(range(ARMS)))
    assert not policy._width.doubts.any()
    policy.learn(2.0 * arms, 1.0, arm=1, ids=list(range(ARMS)))
    assert (policy._width.doubts[:ARMS] > 0.9).all()


@each_layout
def test_an_arm_without_an_id_takes_its_steps_from_the_diagonal_s_guess(layout):
    X, arms, y = problem(layout)
    policy = LinUCB(tracker=saga(), width=PhiWidth(3), kappa=1.0, seed=SEED)
    learn(policy, X, y, layout)
    policy.choose(as_layout(arms, layout))
    guess = arms / np.diag(naive.gram(X, RIDGE))
    expected = [
        naive.phi_width2(x, naive.phi_regularised(x, X, uniforms(3 * ROWS), 0.3, RIDGE, 3, n0=ROWS - 1, phi=start)[-1])
        for x, start in zip(arms, guess)
    ]
    assert_widths(policy, arms, None, expected, layout)


@pytest.mark.parametrize("history", [Window(15), Reservoir(15)], ids=["window", "reservoir"])
def test_phi_counts_the_rows_of_a_window_and_all_rows_of_a_reservoir(history):
    X, arms, y = problem("dense")
    policy = LinUCB(tracker=saga(history=history), width=PhiWidth(2), kappa=1.0, seed=SEED)
    policy.choose(arms, ids=list(range(ARMS)))
    chance, phis = uniforms(2), arms / RIDGE
    for n in range(1, ROWS + 1):
        learn(policy, X[n - 1 : n], y[n - 1 : n])
        held = np.array(history.rows.X[: len(history)])
        count = len(held) if isinstance(history, Window) else n
        for _ in range(2):
            x_i = held[int(next(chance) * len(held))]
            phis = phis + 0.3 * (arms / count - (phis @ x_i)[:, None] * x_i - RIDGE * phis / count)
    assert_widths(policy, arms, list(range(ARMS)), np.maximum(0.0, (arms * phis).sum(axis=1)), "dense")


@each_layout
def test_phi_by_coordinate_descent_equals_the_oracle(layout):
    X, arms, y = problem(layout)
    policy = LinUCB(tracker=CD(DIM, regularisation=ridge(RIDGE)), width=PhiWidth(2, method="cd"), kappa=1.0, seed=SEED)
    ids = list(range(ARMS))
    policy.choose(as_layout(arms, layout), ids=ids)
    for n in range(1, ROWS + 1):
        learn(policy, X[n - 1 : n], y[n - 1 : n], layout)
        M = naive.gram(X[:n], RIDGE)
        if n in (1, 7, ROWS):
            phis = [naive.phi_cd(x, X[:n], RIDGE, steps=2)[-1] for x in arms]
            assert_widths(policy, arms, ids, [naive.phi_cd_width2(x, M, p) for x, p in zip(arms, phis)], layout)
    # a new arm is solved for until its residual is 1e-4 of it: the width is off by the square of that
    late = unit_rows(3, layout, 7)
    policy.choose(as_layout(late, layout), ids=["x", "y", "z"])
    exact = [naive.exact_width2(x, M) for x in late]
    assert_widths(policy, late, ["x", "y", "z"], exact, layout, tolerance=1e-7)


def test_phi_by_coordinate_descent_keeps_its_residual_under_a_discount():
    X, arms, y = problem("dense")
    tracker = CD(DIM, regularisation=ridge(RIDGE), discount=0.9)
    policy = LinUCB(tracker=tracker, width=PhiWidth(method="cd"), kappa=1.0)
    policy.choose(arms, ids=list(range(ARMS)))
    learn(policy, X, y)
    M = naive.moments(X, y, range(ROWS), 0.9)[0] + RIDGE * np.eye(DIM)
    phi, residual = policy._width.phi[:ARMS], policy._width.residual[:ARMS]
    np.testing.assert_allclose(residual, arms - phi @ M, atol=1e-12)


@each_layout
def test_exact_widths_equal_the_oracle(layout):
    X, arms, y = problem(layout)
    policy = LinUCB(tracker=RLS(DIM, regularisation=ridge(RIDGE)), width=ExactWidth(), kappa=1.0)
    learn(policy, X, y, layout)
    expected = [naive.exact_width2(x, naive.gram(X, RIDGE)) for x in arms]
    assert_widths(policy, arms, None, expected, layout)


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_a_tracker_without_an_inverse_gets_exact_widths_too(discount):
    X, arms, y = problem("dense")
    policy = LinUCB(tracker=CD(DIM, regularisation=ridge(RIDGE), discount=discount), width=ExactWidth(), kappa=1.0)
    learn(policy, X, y)
    M = naive.moments(X, y, range(ROWS), discount)[0] + RIDGE * np.eye(DIM)
    assert_widths(policy, arms, None, [naive.exact_width2(x, M) for x in arms], "dense")


@each_layout
def test_diagonal_widths_equal_the_oracle(layout):
    X, arms, y = problem(layout)
    policy = LinUCB(tracker=saga(), width=DiagonalWidth(), kappa=1.0)
    learn(policy, X, y, layout)
    expected = [naive.diagonal_width2(x, naive.gram(X, RIDGE)) for x in arms]
    assert_widths(policy, arms, None, expected, layout)


@each_layout
def test_the_factor_of_exact_samples_stays_right(layout):
    X, arms, y = problem(layout)
    policy = LinTS(DIM, regularisation=ridge(RIDGE), kappa=1.0, seed=0)
    learn(policy, X, y, layout)
    M = naive.gram(X, RIDGE)
    factor = np.tril(policy._width.factor)
    np.testing.assert_allclose(factor @ factor.T, M, atol=1e-12)
    assert_widths(policy, arms, None, [naive.exact_width2(x, M) for x in arms], layout)


@each_layout
def test_the_spread_of_an_ensemble_is_the_inverse(layout):
    X, arms, y = problem(layout)
    members = 4000
    policy = EnsembleTS(tracker=CD(DIM, regularisation=ridge(RIDGE)), members=members, steps=3 * DIM, kappa=1.0, seed=5)
    learn(policy, X, y, layout)
    exact = np.array([naive.exact_width2(x, naive.gram(X, RIDGE)) for x in arms])
    found = policy.widths(as_layout(arms, layout)) ** 2
    # the mean of M squares of normal numbers has a relative standard deviation of sqrt(2/M); five of them
    np.testing.assert_allclose(found, exact, rtol=5.0 * np.sqrt(2.0 / members))
    mean = policy._width.theta.mean(axis=0) @ arms.T
    assert (np.abs(mean) < 5.0 * np.sqrt(exact / members)).all()


def test_the_start_of_an_ensemble_s_members_is_not_discounted():
    """A direction that never comes keeps the spread of the prior, so that it can still be explored."""
    policy = EnsembleTS(tracker=CD(2, discount=0.9), members=2000, steps=4, kappa=1.0, seed=5)
    for _ in range(200):
        policy.learn([1.0, 0.0], 1.0)
    never = policy.widths([[0.0, 1.0]])[0] ** 2
    assert abs(never - 1.0) < 5.0 * np.sqrt(2.0 / 2000)


def test_an_ensemble_without_sampling_gives_widths():
    X, arms, y = problem("dense")
    policy = LinUCB(tracker=CD(DIM), width=EnsembleWidth(8), kappa=2.0, seed=1)
    learn(policy, X, y)
    np.testing.assert_allclose(policy.scores(arms), arms @ policy.theta + 2.0 * policy.widths(arms), atol=1e-12)
    assert policy.probabilities(arms)[policy.choose(arms)] == policy.probability == 1.0


# -- arms that come, change and go -----------------------------------------------------------------------------------


def recurring(**settings):
    tracker = CD(DIM, regularisation=ridge(RIDGE))
    return LinUCB(tracker=tracker, width=PhiWidth(DIM, method="cd"), kappa=1.0, seed=SEED, **settings)


def exact(X, arms):
    return [naive.exact_width2(x, naive.gram(X, RIDGE)) for x in arms]


def test_more_arms_than_slots_and_arms_that_come_back():
    X, y = unit_rows(ROWS, seed=1), np.ones(ROWS)
    arms = unit_rows(45, seed=4)
    policy = recurring()
    policy.choose(arms[:10], ids=list(range(10)))
    learn(policy, X[:20], y[:20])
    policy.choose(arms[10:], ids=np.arange(10, 45))
    learn(policy, X[20:], y[20:])
    assert len(policy._slot_of) == 45
    assert policy._offered.size == 64
    kept = policy._width.phi[policy._slot_of[3]].copy()
    assert_widths(policy, arms, list(range(45)), exact(X, arms), "dense", tolerance=1e-4)
    policy.choose(arms[:1], ids=[0])
    np.testing.assert_array_equal(policy._width.phi[policy._slot_of[3]], kept)


def test_an_arm_that_was_not_offered_is_dropped_when_its_place_is_needed():
    arms = unit_rows(17, seed=4)
    policy = recurring(forget_after=5)
    policy.choose(arms[:16], ids=list(range(16)))
    for _ in range(4):
        policy.choose(arms[:2], ids=[0, 1])
    policy.choose(arms[15:], ids=[15, 16])  # four rounds without them: not yet
    assert len(policy._slot_of) == 17
    policy = recurring(forget_after=5)
    policy.choose(arms[:16], ids=list(range(16)))
    for _ in range(5):
        policy.choose(arms[:2], ids=[0, 1])
    policy.choose(arms[15:], ids=[15, 16])  # 15 is back, and is not dropped for 16
    assert set(policy._slot_of) == {0, 1, 15, 16}
    assert policy._width.live.sum() == 4
    assert policy._offered.size == 16
    with pytest.raises(InputError, match="arm id 7 was never offered, or was dropped"):
        policy.learn(arms[7:8], 1.0, arm=0, ids=[7])
    policy.learn(arms[7], 1.0)  # without its id it can be learned all the same


@each_layout
@pytest.mark.parametrize("method", ["gd", "cd"])
def test_an_id_that_comes_with_other_features_starts_afresh(method, layout):
    X, arms, y = problem(layout)
    tracker = saga() if method == "gd" else CD(DIM, regularisation=ridge(RIDGE))
    policy = LinUCB(tracker=tracker, width=PhiWidth(2, method=method), kappa=1.0, seed=SEED)
    policy.choose(as_layout(arms[:2], layout), ids=["a", "b"])
    learn(policy, X, y, layout)
    mixed = np.array([arms[0], arms[3]])
    policy.choose(as_layout(mixed, layout), ids=["a", "b"])
    fresh = policy.widths(as_layout(mixed, layout), ids=["other", "b"])
    again = policy.widths(as_layout(mixed, layout), ids=["a", "new"])
    assert policy.widths(as_layout(mixed, layout), ids=["a", "b"])[1] == fresh[1]
    if method == "gd":
        np.testing.assert_allclose(fresh[1] ** 2, 1.0 / RIDGE, atol=1e-12)
    # a new id is lent phi by the arms that are there, and one of them has the very features
    np.testing.assert_allclose(again[1], fresh[1], rtol=1e-9)


def test_fewer_features_are_other_features():
    policy = LinUCB(tracker=saga(), width=PhiWidth(2), kappa=1.0, seed=SEED)
    arm = np.array([[0.6, 0.8, 0.0, 0.0, 0.0, 0.0]])
    policy.choose(sp.csr_array(arm), ids=["a"])
    arm[0, 1] = 0.0
    policy.choose(sp.csr_array(arm), ids=["a"])
    np.testing.assert_allclose(policy.widths(sp.csr_array(arm), ids=["a"]), 0.6 / np.sqrt(RIDGE), atol=1e-12)


def test_negative_widths_are_clamped_and_counted():
    policy = LinUCB(tracker=saga(), width=PhiWidth(8, scale=1.9), kappa=1.0, seed=SEED)
    X, _, y = problem("dense")
    arms, ids = unit_rows(40, seed=8), list(range(40))
    policy.choose(arms, ids=ids)
    clamped = 0
    for n in range(ROWS):
        learn(policy, X[n : n + 1], y[n : n + 1])
        width, places = policy._width, [policy._slot_of[name] for name in ids]
        phis = width.P[places, None] * width.U[places] + width.Q[places, None] * width.X[places]
        squares = np.einsum("kd,kd->k", arms, phis)
        clamped += int((squares < 0.0).sum())
        np.testing.assert_allclose(policy.widths(arms, ids=ids) ** 2, np.maximum(squares, 0.0), atol=1e-10)
        policy.choose(arms, ids=ids)
    assert clamped > 0
    assert policy._width.scalars[phi.CLAMPED] == clamped


# -- what cannot be combined -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tracker", "width", "complaint"),
    [
        (lambda: CD(DIM, history=Window(9)), PhiWidth(method="cd"), "rows that leave a Window"),
        (lambda: CD(DIM, history=Window(9)), EnsembleWidth(), "rows that leave a Window"),
        (lambda: saga(history=Window(9)), DiagonalWidth(), "rows that leave a Window"),
        (lambda: saga(history=Window(9)), ExactWidth(), "rows that leave a Window"),
        (lambda: CD(DIM, discount=0.9), SampleWidth(), "cannot discount"),
        (lambda: CD(DIM), PhiWidth(), "history=Growing"),
        (lambda: CD(DIM, regularisation=Power(1.0, 0.0, 0.5)), PhiWidth(method="cd"), "constant, positive total ridge"),
        (lambda: paper.frls_gd(DIM), PhiWidth(), "constant, positive total ridge"),
        (lambda: paper.frls_gd(DIM), DiagonalWidth(), "constant, positive total ridge"),
        (lambda: paper.frls_gd(DIM), ExactWidth(), "constant, positive total ridge"),
        (lambda: RLS(DIM, discount=0.9), ExactWidth(), "keeps no inverse"),
    ],
    ids=lambda value: None if callable(value) else str(value),
)
def test_a_combination_that_cannot_be_right_is_refused_at_the_first_arms(tracker, width, complaint):
    policy = Policy(tracker(), width)
    for _ in range(2):
        with pytest.raises(SettingsError, match=complaint):
            policy.choose(np.eye(DIM))
    assert policy.tracker._state is None


@pytest.mark.parametrize("width", [DiagonalWidth(), PhiWidth(), EnsembleWidth(), SampleWidth(), ExactWidth()], ids=repr)
def test_a_width_with_sums_of_its_own_must_see_every_row(width):
    tracker = saga().partial_fit(np.eye(DIM), np.ones(DIM))
    with pytest.raises(SettingsError, match="the tracker has learned 6 rows before"):
        Policy(tracker, width).choose(np.eye(DIM))


def test_a_width_that_reads_its_tracker_may_come_later():
    X, arms, y = problem("dense")
    for tracker, width in [(RLS(DIM), ExactWidth()), (CD(DIM), PhiWidth(method="cd"))]:
        policy = LinUCB(tracker=tracker.partial_fit(X, y), width=width, kappa=1.0)
        policy.choose(arms, ids=list(range(ARMS)))
        expected = [naive.exact_width2(x, naive.gram(X, 1.0)) for x in arms]
        assert_widths(policy, arms, list(range(ARMS)), expected, "dense", tolerance=1e-7)
    assert Policy(Diagonal(DIM).partial_fit(X, y), NoWidth(), kappa=0.0).choose(arms) >= 0


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: PhiWidth(method="newton"), "method must be 'gd', 'cd' or 'printed'"),
        (lambda: PhiWidth(0), "steps must be a whole number of at least 1, got 0"),
        (lambda: PhiWidth(1.5), "steps must be a whole number of at least 1, got 1.5"),
        (lambda: PhiWidth(scale=0.0), r"scale must lie in \(0, 2\)"),
        (lambda: PhiWidth(scale=float("nan")), r"scale must lie in \(0, 2\)"),
        (lambda: EnsembleWidth(1), "at least 2 members and 1 step"),
        (lambda: EnsembleWidth(5, steps=0), "at least 2 members and 1 step"),
    ],
)
def test_bad_settings_are_refused(make, complaint):
    with pytest.raises(SettingsError, match=complaint):
        make()
