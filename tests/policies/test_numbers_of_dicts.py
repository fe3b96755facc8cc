"""Numbers of dicts: wherever they lie, in columns and in crosses; missing, or 0."""

import warnings

import numpy as np
import pytest

from driftls.errors import FileFormatError, MissingNumberWarning
from driftls.features import Features
from driftls.policies import DisjointLinUCB, LinUCB
from driftls.policies.registry import load
from driftls.schedules import ridge
from driftls.trackers import CD, RLS, SAGA
from driftls.widths import DiagonalWidth

ITEMS = [{"id": f"a{k}"} for k in range(3)]
MAKERS = {
    "crosses": lambda: LinUCB(features=Features(cross="all"), seed=0),
    "one model an arm": lambda: DisjointLinUCB(features=Features(), seed=0),
}
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def played(policy, *, distance, missing=0.0, rounds=600, seed=0, late=0):
    """The share of right answers of the second half, where two numbers that lie so many spreads from 0 tell which is right"""
    rng, right = np.random.default_rng(seed), []
    wants = np.random.default_rng(99).normal(size=(3, 2))
    for n in range(rounds):
        z, there = rng.normal(size=2), (rng.random(2) >= missing) & (n >= late)
        user = {"city": f"c{rng.integers(3)}"}
        user |= {f"n{j}": float((z[j] + distance) * (1000.0, 0.01)[j]) for j in range(2) if there[j]}
        k = policy.choose(user, ITEMS)
        right.append(k == int(np.argmax(wants @ z)))
        policy.learn(user, float(right[-1]), items=ITEMS, arm=k)
    return np.mean(right[rounds // 2 :])


@every
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_numbers_may_lie_as_far_from_0_as_they_like(make, missing):
    near = played(make(), distance=0.0, missing=missing)
    assert near > (0.75 if missing else 0.85)
    for distance in (5.0, 1000.0):  # before: a third, as by chance
        assert played(make(), distance=distance, missing=missing) > near - 0.05


@pytest.mark.parametrize("kind", [RLS, CD])
def test_sums_over_rows_that_missed_a_number_do_not_take_it_for_0(kind):
    policy = LinUCB(tracker=kind(9), width=DiagonalWidth(), features=Features(cross="all"), seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingNumberWarning)
        assert played(policy, distance=1000.0, late=3) > 0.85


@every
def test_a_number_that_is_missing_counts_as_the_mean(make):
    policy = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingNumberWarning)
        played(policy, distance=50.0, missing=0.1)
    at = policy.features.names.index("n0")
    mean = float(policy.units.arrays["means"][at])
    assert 48.0 < mean / 1000.0 < 52.0
    if isinstance(policy, DisjointLinUCB):  # in crosses every arm has a mean of its own
        lacking, having = {"city": "c1", "n1": 0.5}, {"city": "c1", "n1": 0.5, "n0": mean}
        for answer in (policy.scores, policy.widths):
            np.testing.assert_allclose(answer(lacking, ITEMS), answer(having, ITEMS), rtol=1e-9)


def test_a_0_is_no_missing_number():
    features = Features(cross="all")
    rows = features.arms({"age": 0, "city": "Oslo"}, [{"price": 0.0}, {"price": 2.0}])
    names = [features.names[j] for j in rows.indices[rows.start[0] : rows.start[1]]]
    assert {"age", "item.price", "age*item.price"} <= set(names)
    again = features.table([{"age": 0, "city": "Oslo"}] * 2, [{"price": 0.0}, {"price": 2.0}])
    np.testing.assert_array_equal(again.indices, rows.indices)
    np.testing.assert_array_equal(again.data, rows.values)
    # and of 600 users of age 0 or 60, those of age 0 do not get the mean
    policy, rng = DisjointLinUCB(features=Features(), seed=0), np.random.default_rng(1)
    for _ in range(600):
        age = 60.0 * rng.integers(2)
        k = policy.choose({"age": age}, ids=["a", "b"])
        policy.learn({"age": age}, float(k == (age > 0)), arm=k, ids=["a", "b"])
    assert [policy.choose({"age": age}, ids=["a", "b"]) for age in (0.0, 60.0)] == [0, 1]


def test_crosses_around_their_means_are_the_exact_solution_of_rows_around_them():
    features, rng = Features(cross="all"), np.random.default_rng(3)
    policy = LinUCB(tracker=RLS(40, regularisation=ridge(2.0)), features=features, kappa=0.3, seed=0)
    learned, rewards = [], []
    for _ in range(400):
        user = {"city": f"c{rng.integers(3)}", "year": 2020.0 + rng.normal()}
        k, reward = int(rng.integers(3)), float(rng.normal())
        policy.choose(user, ITEMS)
        policy.learn(user, reward, items=ITEMS, arm=k)
        row = features.arms(user, ITEMS)
        learned.append(np.zeros(40))
        learned[-1][row.indices[row.start[k] : row.start[k + 1]]] = row.values[row.start[k] : row.start[k + 1]]
        rewards.append(reward)
    kept, X, units = policy.units.arrays, np.array(learned), policy.units
    crosses = [features.names.index(f"year*item.id={item['id']}") for item in ITEMS]
    assert (kept["means"][crosses] > 2000.0).all()
    Z = np.where(X != 0.0, (X - kept["means"]) * kept["unit"], 0.0)
    Z = np.hstack([Z, np.full((400, 1), units.frame["constant"])])
    expected = np.linalg.solve(Z.T @ Z + 2.0 * np.eye(41), Z.T @ (np.array(rewards) - units.frame["offset"]))
    np.testing.assert_allclose(policy.tracker.coefficients(), expected, atol=1e-8)
    # and in the caller's units the same is predicted
    raw = X @ policy.theta + policy.tracker.intercept_
    np.testing.assert_allclose(raw, Z @ expected + units.frame["offset"], atol=1e-6)


@every
def test_a_saved_policy_goes_on_with_numbers_far_from_0_as_if_it_had_never_stopped(make, tmp_path):
    policy = make()
    played(policy, distance=300.0, missing=0.05, rounds=90)
    policy.save(tmp_path / "p.driftls")
    again = load(tmp_path / "p.driftls")
    shares = [played(each, distance=300.0, missing=0.05, rounds=200, seed=4) for each in (policy, again)]
    assert shares[0] == shares[1]
    np.testing.assert_array_equal(*(each.features.names for each in (policy, again)))
    users = [{"city": "c0", "n0": 3e5, "n1": 3.0}, {"city": "c2", "n1": 3.01}]
    for user in users:
        np.testing.assert_array_equal(policy.scores(user, ITEMS), again.scores(user, ITEMS))


def test_a_cross_with_a_number_that_seemed_to_be_a_category_is_measured_from_0_again():
    policy, rng = LinUCB(tracker=SAGA(30, seed=0), features=Features(cross="all"), seed=0), np.random.default_rng(0)
    for n in range(300):
        items = [{"id": "a", "weight": 1.0 if n < 100 else float(rng.integers(1, 4))}, {"id": "b", "weight": 1.0}]
        user = {"year": 2020.0 + rng.normal()}
        k = policy.choose(user, items)
        policy.learn(user, float(rng.normal()), items=items, arm=k)
        if n == 99:
            at = policy.features.names.index("year*item.weight")
            assert policy.units.arrays["means"][at] > 2000.0
    assert policy.units.arrays["means"][at] == 0.0
    assert np.isfinite(policy.scores(user, items)).all()


@pytest.mark.parametrize("kind", [RLS, CD])
def test_crosses_without_an_intercept_are_measured_from_0(kind):
    policy = LinUCB(tracker=kind(40, intercept=False), features=Features(cross="all"), kappa=0.3, seed=0)
    played(policy, distance=5.0, rounds=60)
    assert not policy.units.arrays["means"].any()
    user = {"city": "c1", "n0": 5000.0, "n1": 0.05}
    rows = policy.features.arms(user, ITEMS).tocsr().toarray()
    expected = np.pad(rows, ((0, 0), (0, 40 - rows.shape[1]))) @ policy.theta
    np.testing.assert_allclose(policy.tracker.predict(np.pad(rows, ((0, 0), (0, 40 - rows.shape[1])))), expected)


def test_a_file_whose_crosses_have_categories_that_never_came_is_refused():
    policy = LinUCB(tracker=SAGA(40, seed=0), features=Features(cross="all"), seed=0)
    played(policy, distance=5.0, rounds=60)
    header, arrays = policy.snapshot()
    partner, never = arrays["tracker.units.partner"], np.flatnonzero(arrays["tracker.units.count"] == 0.0)
    for other in (40, int(never[0])):
        spoiled = np.where(partner > 0, 1 + other, 0)
        with pytest.raises(FileFormatError, match="partner"):
            LinUCB.from_snapshot(header, {**arrays, "tracker.units.partner": spoiled})
