"""Warm starts: sums over shards are exact, and what comes out goes on learning."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from driftls import logs, paper
from driftls.errors import InputError, SettingsError
from driftls.features import Features, UserArmCrosses, UserOnly
from driftls.fit import fit, shown_rows
from driftls.history import Growing, Window
from driftls.policies import DisjointLinUCB, LinTS, LinUCB
from driftls.policies.registry import make
from driftls.trackers import CD, GD, RAW, RLS, SAGA
from driftls.widths import DiagonalWidth, ExactWidth
from test_cli import driftls

DIM, SHARDS, NOISE = 6, [300, 1, 512, 0, 87], 0.3
THETA = np.linspace(-1.0, 1.0, DIM)


def read(shard, sparse=False, theta=THETA, block=100):
    """Blocks of the `shard`-th shard."""
    rng = np.random.default_rng([5, shard])
    X = rng.normal(size=(SHARDS[shard], theta.size)) * (rng.random((SHARDS[shard], theta.size)) < 0.7)
    y = X @ theta + NOISE * rng.normal(size=len(X))
    for first in range(0, len(y), block):
        piece = X[first : first + block]
        yield sp.csr_array(piece) if sparse else piece, y[first : first + block]


def everything(**settings):
    blocks = [pair for shard in range(len(SHARDS)) for pair in read(shard, **settings)]
    return np.vstack([X for X, _ in blocks]), np.concatenate([y for _, y in blocks])


MAKERS = {"linucb": paper.linucb, "linucb-exact": partial(make, "linucb-exact")}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_sums_over_shards_give_the_solution_of_all_rows(name, sparse):
    X, y = everything()
    exact = RLS(DIM, **RAW).partial_fit(X, y)
    found = fit(MAKERS[name](DIM), range(len(SHARDS)), partial(read, sparse=sparse), workers=1)
    assert (found.rows, len(found.policy.tracker)) == (900, 900)
    np.testing.assert_allclose(found.policy.theta, exact.theta, rtol=0, atol=1e-9 * np.abs(exact.theta).max())
    arms = np.random.default_rng(1).normal(size=(4, DIM))
    by_hand = LinUCB(tracker=exact, width=ExactWidth())
    ids = range(4)
    found.policy.choose(arms, ids=ids)
    np.testing.assert_allclose(found.policy.widths(arms, ids=ids), by_hand.widths(arms, ids=ids), rtol=1e-9)


def test_the_sums_that_cd_keeps_are_those_of_one_machine():
    policy = LinUCB(tracker=CD(DIM, **RAW), width=DiagonalWidth())
    found = fit(policy, range(len(SHARDS)), read, workers=1).policy.tracker
    online = CD(DIM, **RAW).partial_fit(*everything())
    np.testing.assert_allclose(found.sums()[0], online.sums()[0], rtol=1e-9)
    np.testing.assert_allclose(found.target.theta, online.target.theta, rtol=1e-9)


@pytest.mark.parametrize("name", MAKERS)
def test_the_number_of_workers_changes_no_bit(name):
    one, two = (fit(MAKERS[name](DIM), range(len(SHARDS)), read, workers=workers).policy for workers in (1, 2))
    for mine, other in zip(one.snapshot()[1].values(), two.snapshot()[1].values(), strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("name", MAKERS)
def test_a_fitted_policy_chooses_learns_and_comes_back_from_a_file(name, tmp_path):
    policy = fit(MAKERS[name](DIM), range(len(SHARDS)), read, workers=1).policy
    policy.save(tmp_path / "warm.policy")
    again = type(policy).load(tmp_path / "warm.policy")
    rng = np.random.default_rng(2)
    for _ in range(50):
        arms = rng.normal(size=(5, DIM))
        chosen = policy.choose(arms)
        assert again.choose(arms) == chosen
        for one in (policy, again):
            one.learn(arms, float(arms[chosen] @ THETA), arm=chosen)
    np.testing.assert_array_equal(policy.theta, again.theta)
    assert np.linalg.norm(policy.theta - THETA) < 0.1


def test_kappa_starts_from_the_noise_of_the_rows():
    policy = fit(make("linucb-exact", DIM), range(len(SHARDS)), read, workers=1).policy
    # the standard deviation of a standard deviation from 900 rows is 2.4%: four of them
    assert policy.kappa == pytest.approx(NOISE, rel=4 / np.sqrt(2 * 900))


ARTICLES = {
    "linucb": lambda: DisjointLinUCB(DIM, tracker=RLS(DIM, **RAW), width=ExactWidth(), seed=0),
    "cd": lambda: DisjointLinUCB(DIM, tracker=CD(DIM, **RAW), seed=0),
}


def read_articles(shard):
    """The rows of `read`, each of one of three arms."""
    for number, (X, y) in enumerate(read(shard)):
        yield X, y, np.random.default_rng([shard, number]).integers(7, 10, len(y))


def means(policy, user, ids=(7, 8, 9)):
    """theta.x of each arm's model."""
    return policy.scores(user, ids=ids) - policy.kappa * policy.widths(user, ids=ids)


@pytest.mark.parametrize("name", ARTICLES)
def test_each_arm_has_a_model_of_its_own_rows(name):
    found = fit(ARTICLES[name](), range(len(SHARDS)), read_articles, workers=1)
    online = ARTICLES["linucb"]()
    rows = [block for shard in range(len(SHARDS)) for block in read_articles(shard)]
    for X, y, ids in rows:
        for x, reward, arm in zip(X, y, ids):
            online.choose(x, ids=[7, 8, 9])
            online.learn(x, reward, arm=int(arm) - 7, ids=[7, 8, 9])
    policy = found.policy
    assert (found.rows, len(policy)) == (900, 3)
    seen = {
        name: model["tracker"]["history"]["seen"]
        for (name, *_), model in zip(policy.snapshot()[0]["ids"], policy.snapshot()[0]["models"], strict=True)
    }
    assert seen == {arm: sum((ids == arm).sum() for *_, ids in rows) for arm in (7, 8, 9)}
    for user in np.eye(DIM):
        np.testing.assert_allclose(means(policy, user), means(online, user), rtol=0, atol=1e-9)
    user = np.ones(DIM)
    if name == "linucb":
        np.testing.assert_allclose(policy.widths(user, ids=[7, 8, 9]), online.widths(user, ids=[7, 8, 9]), rtol=1e-9)
    else:
        squares = {arm: sum((X[ids == arm] ** 2).sum(axis=0) for X, _, ids in rows) for arm in (7, 8, 9)}
        ridge = 1.0
        expected = [np.sqrt((user**2 / (ridge + squares[arm])).sum()) for arm in (7, 8, 9)]
        np.testing.assert_allclose(policy.widths(user, ids=[7, 8, 9]), expected, rtol=1e-9)
    # the standard deviation of a standard deviation from 900 rows is 2.4%: four of them, and three models were fitted
    assert policy.kappa == pytest.approx(policy.sigmas * NOISE, rel=4 / np.sqrt(2 * 900) + 3 * DIM / 900)
    policy.learn(user, 1.0, arm=policy.choose(user, ids=[7, 8, 9]), ids=[7, 8, 9])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinTS(DIM), r"SampleWidth\(\) has to see every row"),
        (lambda: LinUCB(DIM), "unused policy whose tracker is given"),
        (lambda: LinUCB(tracker=RLS(DIM, **RAW).partial_fit(np.eye(DIM), np.ones(DIM))), "unused policy"),
        (lambda: make("linucb-exact", DIM, discount=0.9), "without a history or discount"),
        (lambda: make("flinucb-saga", DIM), r"needs RLS or CD without .*got SAGA"),
        (
            lambda: LinUCB(tracker=GD(DIM, history=Growing(), **RAW), width=DiagonalWidth()),
            "RLS or CD without .*got GD",
        ),
        (lambda: LinUCB(tracker=RLS(DIM, history=Window(9), **RAW)), "RLS or CD without a history"),
        (lambda: LinUCB(tracker=SAGA(DIM, **RAW), width=ExactWidth()), "RLS or CD without .*got SAGA"),
        (
            lambda: LinUCB(tracker=CD(5001, **RAW), width=DiagonalWidth()),
            r"at most 5,000 features, got 5,001\. Use hashed",
        ),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_the_reason(make, message):
    with pytest.raises(SettingsError, match=message):
        fit(make(), [0], read, workers=1)


def test_shards_without_rows_are_told():
    with pytest.raises(SettingsError, match="nothing to fit"):
        fit(paper.linucb(DIM), [3], read, workers=1)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ((np.ones((2, DIM + 1)), [1.0, 1.0]), "X with 6 columns, got .2, 7."),
        ((np.ones((2, DIM)), [1.0]), "a y of 2 numbers"),
        ((np.ones((1, DIM)), [np.nan]), "finite numbers"),
        ((sp.csr_array([[np.inf] * DIM]), [1.0]), "finite numbers"),
    ],
)
def test_a_block_that_cannot_be_learned_is_refused(block, message):
    with pytest.raises(InputError, match=message):
        fit(paper.linucb(DIM), [0], lambda _: [block], workers=1)


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    """A synthetic day that crosses midnight, as Parquet in two folders."""
    folder = tmp_path_factory.mktemp("days")
    logs.write_parquet(logs.synthetic_day(lines=4000, seed=1), folder)
    return folder


@pytest.mark.parametrize(
    "make",
    [
        lambda: UserOnly(136, constant=True),
        lambda: UserArmCrosses(136, articles=80),
        lambda: Features(500, cross="all"),
    ],
)
def test_a_row_is_the_arm_that_was_shown(days, make):
    features = make()
    log = logs.read(days)
    rows = [pair for path in log.paths for pair in shown_rows(path, features)]
    X, y, ids = (stack(column) for stack, column in zip((sp.vstack, np.concatenate, np.concatenate), zip(*rows)))
    X = X.tocsr()
    events = list(log)
    assert len(events) == len(y) == 4000
    for i in range(0, 4000, 371):
        assert (y[i], ids[i]) == (events[i].reward, events[i].arm)
        arms = features.arms(events[i])
        assert (X[[i]] != sp.csr_array(arms)[[events[i].shown]]).nnz == 0


@pytest.mark.parametrize("disjoint", [False, True])
def test_files_of_a_log_are_read_by_the_features_of_the_policy(days, disjoint):
    features, paths = Features(64), logs.read(days).paths
    kind = DisjointLinUCB if disjoint else LinUCB
    policy = fit(kind(tracker=RLS(features.dim, **RAW), features=features, seed=0), paths, workers=1).policy
    assert policy.dim == policy.features.dim == 64
    blocks = [block for path in paths for block in logs.read(path).blocks()]
    arm = blocks[0][0].arm
    exact, seen = RLS(policy.dim, **RAW), 0
    for event in (event for block in blocks for event in block):
        if event.arm == arm or not disjoint:
            user = {str(index): value for index, value in zip(event.user_index.tolist(), event.user_value.tolist())}
            row = features.user(user) if disjoint else features.arms(user, [{"id": event.arm}])
            exact.partial_fit(row.tocsr(), [event.reward])
            seen += 1
    own = policy.model(arm) if disjoint else policy.tracker
    assert len(own) == seen
    np.testing.assert_allclose(own.theta, exact.theta, rtol=0, atol=1e-9 * np.abs(exact.theta).max())


@pytest.mark.parametrize("features", [None, Features(), UserArmCrosses(136, articles=9)], ids=str)
def test_files_of_a_log_need_features_that_number_names_alike(features):
    policy = paper.linucb(DIM) if features is None else LinUCB(tracker=RLS(features.dim, **RAW), features=features)
    with pytest.raises(SettingsError, match="needs `read`, or a policy with features that number names alike"):
        fit(policy, ["day.parquet"], workers=1)


def test_the_command_writes_a_policy_that_knows_the_log(days, tmp_path):
    out = tmp_path / "warm.policy"
    done = driftls(
        "fit", days, "--policy", "linucb", "--features", "hashed", "--width", 60, "--out", out, "--workers", 1, "--json"
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["rows"], told["shards"], told["dim"]) == (4000, 2, 60)
    policy = LinUCB.load(out)
    features = policy.features
    assert repr(features) == repr(Features(60, cross="all"))
    exact = RLS(60, **RAW)
    for path in logs.read(days).paths:
        for X, y, _ in shown_rows(path, features):
            exact.partial_fit(X, y)
    np.testing.assert_allclose(policy.theta, exact.theta, rtol=0, atol=1e-9 * np.abs(exact.theta).max())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--policy", "linucbb"], 2, "a policy must be one of"),
        (["--policy", "lints"], 2, "SampleWidth() has to see every row"),
        (["--policy", "linucb-exact", "--features", "outer"], 3, "user_dim=6"),
        (["--policy", "linucb", "--dim", "5"], 3, "user_dim=5"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(days, tmp_path, arguments, code, message):
    done = driftls("fit", days, "--out", tmp_path / "warm.policy", "--workers", 1, *arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "warm.policy").exists()
