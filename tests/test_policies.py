"""What every policy must do. A new one gets the tests of the first half by being named in CASES once."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from driftls import paper, persistence, ridge
from driftls.errors import DimensionError, DriftlsError, FileFormatError, InputError, SettingsError
from driftls.history import Mapped
from driftls.kernels import track
from driftls.policies import (
    DisjointLinUCB,
    EnsembleTS,
    FixedPool,
    Greedy,
    LinTS,
    LinUCB,
    Policy,
    Random,
    named,
)
from driftls.trackers import CD, OLS, RAW, RLS, SAGA
from driftls.widths import DiagonalWidth, ExactWidth, NoWidth, PhiWidth, SampleWidth

DIM, ARMS = 6, 5


@dataclass(frozen=True)
class Case:
    """A policy by its maker, which takes the seed and epsilon."""

    name: str
    make: Callable[..., Policy]
    draws: bool = False  # whether the seed decides what is chosen, without epsilon


def saga(seed: int) -> SAGA:
    return SAGA(DIM, steps=2, seed=seed, **RAW)


CASES = [
    Case("LinUCB", lambda s, **k: LinUCB(DIM, seed=s, **k)),
    Case("CD + phi-CD", lambda s, **k: LinUCB(tracker=CD(DIM, **RAW), width=PhiWidth(method="cd"), seed=s, **k)),
    Case("SAGA + phi", lambda s, **k: LinUCB(tracker=saga(s), width=PhiWidth(2), seed=s, **k), True),
    Case("SAGA + diagonal", lambda s, **k: LinUCB(tracker=saga(s), width=DiagonalWidth(), seed=s, **k), True),
    Case(
        "fLinUCB-GD",
        lambda s, **k: LinUCB(
            tracker=paper.frls_gd(DIM, seed=s), width=PhiWidth(method="printed"), kappa=0.5, seed=s, **k
        ),
        True,
    ),
    Case("LinTS", lambda s, **k: LinTS(DIM, seed=s, **k), True),
    Case("EnsembleTS", lambda s, **k: EnsembleTS(DIM, members=8, seed=s, **k), True),
    Case("Greedy", lambda s, **k: Greedy(RLS(DIM, **RAW), seed=s, **k)),
    Case("Random", lambda s, **k: Random(DIM, seed=s), True),
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
each_layout = pytest.mark.parametrize("layout", ["dense", "sparse"])
IDS = [["a", "b", "c", "d", "e"], ["b", "c", "f", "g", "a"], ["h", "a", "g", "b", "i"]]
# One vector an id, as for articles.
VECTORS = {name: np.random.default_rng(ord(name)).normal(size=DIM) for name in "abcdefghi"}
THETA = np.random.default_rng(77).normal(size=DIM)


def pool(n: int, layout: str = "dense") -> tuple[Any, list[str]]:
    """The arms of round n and their ids."""
    ids = IDS[n % len(IDS)]
    arms = np.array([VECTORS[name] for name in ids])
    return (sp.csr_array(np.where(np.abs(arms) > 0.5, arms, 0.0)) if layout == "sparse" else arms), ids


def reward(n: int, x: Any) -> float:
    x = x.toarray().ravel() if sp.issparse(x) else x
    return float(x @ THETA + 0.3 * np.random.default_rng(n).normal())


def play(policy: Policy, first: int, last: int, layout: str = "dense") -> list[int]:
    chosen = []
    for n in range(first, last):
        arms, ids = pool(n, layout)
        k = policy.choose(arms, ids=ids)
        policy.learn(arms, reward(n, arms[[k]] if layout == "sparse" else arms[k]), arm=k, ids=ids)
        chosen.append(k)
    return chosen


def saved(policy: Any, folder: Any) -> dict[str, Any]:
    """All that a file holds, to the bit; without how much room a history has made for rows to come."""
    policy.save(folder / "policy")
    header, arrays = persistence.read(folder / "policy")
    del header["sums"]
    for tracker in [header.get("tracker"), *(model["tracker"] for model in header.get("models", []))]:
        for part in (tracker, (tracker or {}).get("history")):
            if part is not None and "book" in part:
                part["book"] = [part["book"][track.HELD], part["book"][track.SEEN]]
    held = {name: len(array) for name, array in arrays.items() if name.endswith("history.y")}
    for name, rows in held.items():
        residual = name.replace("history.y", "state.residual")
        if residual in arrays:
            arrays[residual] = arrays[residual][:rows]
    return {**header, **{name: (array.shape, array.tobytes()) for name, array in arrays.items()}}


# -- every policy ----------------------------------------------------------------------------------------------------


@each_case
def test_the_same_seed_makes_the_same_decisions(case):
    one, two, other = (play(case.make(seed, epsilon=0.2), 0, 60) for seed in (1, 1, 2))
    assert one == two
    assert one != other


@each_case
@each_layout
def test_resuming_equals_never_having_stopped_to_the_bit(case, layout, tmp_path):
    straight, stopped = case.make(1, epsilon=0.1), case.make(1, epsilon=0.1)
    play(straight, 0, 30, layout)
    play(stopped, 0, 30, layout)
    bits = saved(stopped, tmp_path)
    again = type(stopped).load(tmp_path / "policy")
    assert repr(again) == repr(stopped)
    assert saved(again, tmp_path) == bits
    assert play(again, 30, 70, layout) == play(straight, 30, 70, layout)
    np.testing.assert_array_equal(again.theta, straight.theta)
    assert again.kappa == straight.kappa
    assert saved(again, tmp_path) == saved(straight, tmp_path)


@each_case
@pytest.mark.parametrize("rounds", [0, 12])
def test_a_copy_and_a_pickle_share_nothing_with_the_original(case, rounds, tmp_path):
    policy = case.make(1, epsilon=0.1)
    play(policy, 0, rounds)
    before = saved(policy, tmp_path)
    for copied in (copy.copy(policy), copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert saved(copied, tmp_path) == before
        chosen = play(copied, rounds, rounds + 20)
        assert saved(policy, tmp_path) == before
    assert play(policy, rounds, rounds + 20) == chosen


@each_case
@each_layout
def test_asking_changes_nothing(case, layout, tmp_path):
    policy = case.make(1, epsilon=0.1)
    play(policy, 0, 20, layout)
    before = saved(policy, tmp_path)
    arms, ids = pool(1, layout)
    for names in (ids, ["new", *ids[1:]], None):
        assert policy.scores(arms, ids=names).shape == (ARMS,)
        assert policy.widths(arms, ids=names).shape == (ARMS,)
        probabilities = policy.probabilities(arms, ids=names)
        assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)
        assert probabilities.min() >= policy.epsilon / ARMS - 1e-15
        assert saved(policy, tmp_path) == before
    many = sp.vstack([arms] * 9).tocsr() if layout == "sparse" else np.vstack([arms] * 9)
    assert policy.scores(many, ids=list(range(45))).shape == (45,)  # more than there are slots
    assert policy.widths(many, ids=list(range(45))).shape == (45,)
    assert saved(policy, tmp_path) == before
    np.testing.assert_array_equal(policy.scores(arms, ids=ids), policy.scores(arms, ids=ids))


NAN = np.full((1, DIM), np.nan)
WRONG: dict[str, tuple[Callable[[Policy], Any], str]] = {
    "no arms": (lambda p: p.choose(np.zeros((0, DIM))), "the pool is empty"),
    "wrong dim": (lambda p: p.choose(np.eye(5)), r"arms must be a \(K, 6\) matrix, got shape \(5, 5\)"),
    "a vector": (lambda p: p.choose(np.ones(DIM)), r"got shape \(6,\)"),
    "NaN features": (lambda p: p.choose(np.vstack([np.eye(DIM), NAN])), "arm 6: every feature and y must be finite"),
    "NaN features, new ids": (
        lambda p: p.choose(np.vstack([np.eye(DIM), NAN]), ids=list(range(7))),
        "arm 6: every feature and y must be finite",
    ),
    "NaN features, old ids": (lambda p: p.choose(np.vstack([pool(0)[0][:2], NAN]), ids=["a", "b", "c"]), "arm 2"),
    "text": (lambda p: p.choose([["a"] * DIM]), "matrix of real numbers"),
    "sparse, bad index": (
        lambda p: p.choose(sp.csr_array((np.ones(2), [3, 1], [0, 2]), shape=(1, DIM))),
        "indices must increase",
    ),
    "few ids": (lambda p: p.choose(np.eye(DIM), ids=[1, 2]), "6 arms, but 2 ids"),
    "NaN scored": (lambda p: p.scores(NAN), "must be finite"),
    "NaN widths": (lambda p: p.widths(NAN), "must be finite"),
    "NaN probabilities": (lambda p: p.probabilities(NAN), "must be finite"),
    "NaN reward": (lambda p: p.learn(np.ones(DIM), np.nan), "a reward must be finite"),
    "infinite reward": (lambda p: p.learn(np.ones(DIM), -np.inf), "a reward must be finite"),
    "text reward": (lambda p: p.learn(np.ones(DIM), "1.0"), "a reward must be a number, got '1.0'"),
    "no reward": (lambda p: p.learn(np.ones(DIM)), "learn needs an arm and a reward"),
    "nothing": (lambda p: p.learn(), "learn needs an arm and a reward"),
    "no arms to count in": (lambda p: p.learn(reward=1.0, arm=0), "learn needs the arms"),
    "NaN learned": (lambda p: p.learn(NAN[0], 1.0), "every feature and y must be finite"),
    "several arms": (lambda p: p.learn(np.eye(DIM), 1.0), "6 arms and one reward: say which"),
    "arm 6 of 6": (lambda p: p.learn(np.eye(DIM), 1.0, arm=6), "arm 6 is not among the 6 arms"),
    "arm -1": (lambda p: p.learn(np.eye(DIM), 1.0, arm=-1), "arm -1 is not among"),
    "half an arm": (lambda p: p.learn(np.eye(DIM), 1.0, arm=0.5), "arm 0.5 is not among"),
    "short arm": (lambda p: p.learn(np.ones(4), 1.0), r"got shape \(1, 4\)"),
    "unknown key": (lambda p: p.learn(reward=1.0, key="k"), "key 'k' is not known: choose"),
}


@each_case
@pytest.mark.parametrize("rounds", [0, 20])
def test_what_cannot_be_used_is_refused_and_changes_nothing(case, rounds, tmp_path):
    policy = case.make(1, epsilon=0.1)
    play(policy, 0, rounds)
    before = saved(policy, tmp_path)
    for name, (wrong, complaint) in WRONG.items():
        if name == ("sparse, bad index" if rounds else "NaN features, old ids"):
            continue  # dense policies sort the indices; the old ids are not there yet
        with pytest.raises(InputError, match=complaint):
            wrong(policy)
        assert saved(policy, tmp_path) == before, name
    assert play(policy, rounds, rounds + 30) == play(case.make(1, epsilon=0.1), 0, rounds + 30)[rounds:]


@each_case
def test_a_key_keeps_a_choice_until_its_reward_comes(case, tmp_path):
    straight, policy = case.make(1, epsilon=0.1), case.make(1, epsilon=0.1)
    arms, ids = pool(0)
    for late in (straight, policy):
        play(late, 0, 10)
    first, second = (policy.choose(arms, ids=ids, key=key) for key in ("one", ("two", 2)))
    assert [straight.choose(arms, ids=ids) for _ in range(2)] == [first, second]
    with pytest.raises(InputError, match="key 'one' was used before"):
        policy.choose(arms, ids=ids, key="one")
    saved(policy, tmp_path)
    policy = type(policy).load(tmp_path / "policy")
    policy.learn(reward=1.0, key=("two", 2))
    policy.learn(reward=0.5, key="one")
    straight.learn(arms, 1.0, arm=second, ids=ids)
    straight.learn(arms, 0.5, arm=first, ids=ids)
    np.testing.assert_array_equal(policy.theta, straight.theta)
    before = saved(policy, tmp_path)
    with pytest.raises(InputError, match="key 'one' was learned already"):
        policy.learn(reward=0.5, key="one")
    assert saved(policy, tmp_path) == before
    assert play(policy, 10, 30) == play(straight, 10, 30)


@each_layout
def test_a_refused_reward_leaves_its_key_waiting_across_a_file(layout, tmp_path):
    policy = CASES[0].make(1)
    play(policy, 0, 5, layout)
    policy.choose(pool(0, layout)[0], ids=pool(0)[1], key=7)
    with pytest.raises(InputError, match="a reward must be finite"):
        policy.learn(reward=np.nan, key=7)
    for waiting in (LinUCB.load(_file(policy, tmp_path)), copy.deepcopy(policy), policy):
        waiting.learn(reward=1.0, key=7)
        assert len(waiting.tracker) == 6
    np.testing.assert_array_equal(waiting.theta, policy.theta)


def _file(policy: Any, folder: Any) -> Any:
    policy.save(folder / "policy")
    return folder / "policy"


@each_case
def test_rewards_may_come_late_and_in_any_order(case):
    policy = case.make(1)
    arms, ids = pool(0)
    choices = [policy.choose(arms, ids=ids) for _ in range(6)]
    for n in (3, 0, 5):
        policy.learn(arms, reward(n, arms[choices[n]]), arm=choices[n], ids=ids)
    policy.learn(arms[2], 1.0)
    assert len(policy.tracker) == 4
    if isinstance(policy.tracker, RLS):
        X = np.array([*(arms[choices[n]] for n in (3, 0, 5)), arms[2]])
        y = [*(reward(n, arms[choices[n]]) for n in (3, 0, 5)), 1.0]
        np.testing.assert_allclose(policy.theta, np.linalg.solve(X.T @ X + np.eye(DIM), X.T @ y), atol=1e-10)


@each_case
def test_learning_may_come_before_the_first_choice(case):
    policy = case.make(1)
    policy.learn(VECTORS["a"], 1.0)
    assert 0 <= policy.choose(pool(0)[0], ids=pool(0)[1]) < ARMS


def five_sigma(p: Any, count: int, others: float = np.inf) -> Any:
    """Of a frequency out of `count` draws, and of an estimate of p from so many others."""
    return 5.0 * np.sqrt(p * (1.0 - p) * (1.0 / count + 1.0 / others)) + 1e-12


@each_case
def test_frequencies_are_the_probabilities_that_were_told(case):
    samples = {"kappa": 3.0} if case.name in ("LinTS", "EnsembleTS") else {}
    policy, count = case.make(1, epsilon=0.4, **samples), 3000
    play(policy, 0, 15)
    arms, ids = pool(0)
    told = policy.probabilities(arms, ids=ids)
    chosen = np.zeros(count, dtype=int)
    for n in range(count):
        chosen[n] = policy.choose(arms, ids=ids)
    frequencies = np.bincount(chosen, minlength=ARMS) / count
    share = (told - 0.4 / ARMS) / 0.6  # what a sample decides; LinTS estimates it from 2,000 samples
    slack = 0.6 * five_sigma(np.clip(share, 1e-3, 1 - 1e-3), 2000) if case.name == "LinTS" else 0.0
    assert (np.abs(frequencies - told) <= five_sigma(told, count) + slack).all()
    assert policy.probability == pytest.approx(told[chosen[-1]], abs=1e-12)
    if samples:
        assert (told > 0.4 / ARMS + 0.01).sum() >= 2  # sampling, not epsilon, shares the choice
        policy.learn(arms[0], 1.0)
        with pytest.raises(InputError, match="Ask between choose and learn"):
            _ = policy.probability


@each_case
def test_a_file_of_another_policy_is_refused(case, tmp_path):
    policy = case.make(1)
    policy.save(tmp_path / "policy")
    other = Greedy if case.name != "Greedy" else Random
    with pytest.raises(FileFormatError, match=f"holds a {type(policy).__name__}, not a {other.__name__}"):
        other.load(tmp_path / "policy")


# -- LinUCB ----------------------------------------------------------------------------------------------------------


class NaiveLinUCB:
    """theta = A^-1 b, scores theta.x + kappa sqrt(x'A^-1 x), A = I + sum x x'; kappa a number or estimated"""

    def __init__(self, dim, kappa=None, sigmas=1.0):
        self.A, self.b = np.eye(dim), np.zeros(dim)
        self.given, self.sigmas, self.errors, self.n = kappa, sigmas, 0.0, 0

    @property
    def kappa(self):
        if self.given is not None:
            return self.given
        return self.sigmas * (np.sqrt(self.errors / self.n) if self.errors > 0.0 else 1.0)

    def score(self, x):
        return x @ np.linalg.solve(self.A, self.b) + self.kappa * np.sqrt(x @ np.linalg.solve(self.A, x))

    def learn(self, x, y):
        error = y - x @ np.linalg.solve(self.A, self.b)
        self.errors += error**2 / (1.0 + x @ np.linalg.solve(self.A, x))
        self.n += 1
        self.A = self.A + np.outer(x, x)
        self.b = self.b + y * x


@each_layout
@pytest.mark.parametrize("kappa", [None, 0.8])
def test_decisions_and_kappa_are_those_of_naive_linucb(layout, kappa):
    policy, naive = LinUCB(DIM, kappa=kappa, regularisation=ridge(1.0)), NaiveLinUCB(DIM, kappa)
    if layout == "sparse":
        policy = LinUCB(tracker=RLS(DIM, **RAW), width=ExactWidth(), kappa=kappa)
    rng = np.random.default_rng(4)
    for n in range(150):
        arms = rng.normal(size=(ARMS, DIM)) * (rng.random((ARMS, DIM)) < (0.5 if layout == "sparse" else 1.0))
        matrix = sp.csr_array(arms) if layout == "sparse" else arms
        scores = np.array([naive.score(x) for x in arms])
        np.testing.assert_allclose(policy.scores(matrix), scores, atol=1e-9)
        k = policy.choose(matrix)
        assert k == int(np.argmax(scores)), n
        y = reward(n, arms[k])
        policy.learn(matrix, y, arm=k)
        naive.learn(arms[k], y)
        assert policy.kappa == pytest.approx(naive.kappa, rel=1e-10)
        assert policy.probability == 1.0


@pytest.mark.parametrize("method", ["gram", "kept"])
@pytest.mark.parametrize("kappa", [None, 0.8])
def test_a_fixed_pool_is_exact_linucb(method, kappa):
    arms = np.random.default_rng(3).normal(size=(12, DIM))
    fixed, naive = FixedPool(arms, kappa=kappa, method=method), NaiveLinUCB(DIM, kappa, sigmas=2.0)
    for n in range(200):
        scores = np.array([naive.score(x) for x in arms])
        np.testing.assert_allclose(fixed.scores, scores, atol=1e-9)
        k = fixed.choose()
        assert k == int(np.argmax(scores))
        assert fixed.probability == 1.0
        y = reward(n, arms[k])
        fixed.learn(y, arm=k)
        naive.learn(arms[k], y)
        assert fixed.kappa == pytest.approx(naive.kappa, rel=1e-9)
    if method == "kept":
        np.testing.assert_allclose(fixed.theta, np.linalg.solve(naive.A, naive.b), atol=1e-9)


@pytest.mark.parametrize("method", ["gram", "kept"])
def test_a_fixed_pool_resumes_explores_and_refuses(method, tmp_path):
    arms = np.random.default_rng(3).normal(size=(4, DIM))
    fixed = FixedPool(arms, method=method, epsilon=0.4, seed=1)

    def rounds(policy, count):
        out = []
        for n in range(count):
            out.append(policy.choose())
            assert policy.probability == pytest.approx(policy.probabilities[out[-1]])
            policy.learn(reward(n, arms[out[-1]]), arm=out[-1])
        return out

    rounds(fixed, 20)
    before = saved(fixed, tmp_path)
    again, copied = FixedPool.load(tmp_path / "policy"), copy.deepcopy(fixed)
    for wrong, complaint in [
        (lambda: fixed.learn(1.0, arm=4), "arm 4 is not among the 4 arms"),
        (lambda: fixed.learn(np.nan, arm=0), "a reward must be finite"),
        (lambda: fixed.learn("1", arm=0), "a reward must be a number"),
    ]:
        with pytest.raises(InputError, match=complaint):
            wrong()
        assert saved(fixed, tmp_path) == before
    assert rounds(fixed, 30) == rounds(again, 30) == rounds(copied, 30)
    assert saved(fixed, tmp_path) == saved(again, tmp_path)
    told = fixed.probabilities
    chosen = np.bincount([fixed.choose() for _ in range(3000)], minlength=4) / 3000
    assert (np.abs(chosen - told) <= five_sigma(told, 3000)).all()
    with pytest.raises(FileFormatError, match="holds a FixedPool, not a LinTS"):
        LinTS.load(tmp_path / "policy")


@pytest.mark.parametrize(
    ("dim", "sparse", "ids", "kinds", "sigmas", "reason"),
    [
        (
            6,
            False,
            False,
            (RLS, ExactWidth),
            1.0,
            "exact: with 6 dense features the exact method is affordable, and nothing is lost",
        ),
        (
            6,
            False,
            True,
            (RLS, ExactWidth),
            2.0,
            "exact: with 6 dense features the exact method is affordable, and nothing is lost",
        ),
        (6, True, False, (SAGA, DiagonalWidth), 1.0, "fast: 6 sparse features and arms that change: SAGA"),
        (201, False, True, (CD, PhiWidth), 2.0, "fast: 201 dense features and arms that recur: CD, with one phi"),
        (201, False, False, (SAGA, DiagonalWidth), 1.0, "fast: 201 dense features and arms that change: SAGA"),
        (5001, False, True, (SAGA, PhiWidth), 2.0, "fast: 5001 features, too many for a 5001 x 5001 matrix: SAGA"),
    ],
)
@pytest.mark.parametrize("by", ["choose", "scores", "load"])
def test_the_parts_are_chosen_from_the_first_arms_and_the_reason_is_told(
    dim, sparse, ids, kinds, sigmas, reason, by, tmp_path
):
    arms = np.random.default_rng(1).normal(size=(2, dim))
    policy, expected = (LinUCB(dim, epsilon=0.3, seed=1) for _ in range(2))
    matrix = sp.csr_array(arms) if sparse else arms
    names = ["a", "b"] if ids else None
    if by == "scores":
        policy.scores(matrix, ids=names)
    elif by == "load":
        policy.save(tmp_path / "policy")
        policy = LinUCB.load(tmp_path / "policy")
    decisions = [[p.choose(matrix, ids=names) for _ in range(20)] for p in (policy, expected)]
    assert decisions[0] == decisions[1]
    assert (type(policy.tracker), type(policy.width)) == kinds
    assert policy.reason.startswith(reason)
    assert policy.kappa == sigmas
    policy.save(tmp_path / "policy")
    assert LinUCB.load(tmp_path / "policy").reason == policy.reason


def test_a_refused_first_call_decides_nothing():
    policy = LinUCB(201, seed=1)
    with pytest.raises(InputError):
        policy.choose(np.full((2, 201), np.nan))
    with pytest.raises(InputError):
        policy.choose(np.ones((2, 200)), ids=["a", "b"])
    with pytest.raises(InputError):
        policy.learn(np.ones(201), np.nan)
    policy.choose(np.eye(201)[:2], ids=["a", "b"])
    assert policy.reason.startswith("fast: 201 dense features and arms that recur")


def test_an_ill_conditioned_matrix_leaves_the_widths_exact():
    """Rows of very different sizes cost Sherman-Morrison its digits: it has to notice, in both engines."""
    from driftls.environments import FixedArms
    from driftls.errors import ConditioningWarning
    from driftls.simulate import simulate

    arms = np.array([[1e5, 1e5, 0.0], [1e5, 1e5 + 1.0, 0.0], [0.0, 1.0, 1e-2]])
    runs = []
    for engine in ("python", "compiled"):
        policy = LinUCB(tracker=RLS(3, regularisation=ridge(1e-3), **RAW), width=ExactWidth(), kappa=1.0)
        with pytest.warns(ConditioningWarning, match="inverted after every row"):
            simulate(policy, FixedArms(3, arms, theta=[1.0, -1.0, 0.5], seed=1), 60, engine=engine)
        assert np.isfinite(policy.scores(arms)).all()
        runs.append((policy.tracker.route, policy.theta.tolist()))
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    "tracker", [lambda: RLS(DIM, discount=0.9, **RAW), lambda: OLS(DIM, intercept=False)], ids=["discounted", "OLS"]
)
def test_a_tracker_that_solves_when_asked_is_asked(tracker):
    from driftls.environments import FreshContexts
    from driftls.simulate import simulate

    environment = FreshContexts(DIM, 4, seed=2)
    runs = []
    for engine in ("python", "compiled"):
        policy = Greedy(tracker())
        runs.append(simulate(policy, environment, 80, engine=engine, points=range(1, 81)).traces)
        arms = environment.round(81).arms
        np.testing.assert_allclose(policy.scores(arms), arms @ policy.theta, atol=1e-12)
        assert policy.choose(arms) == int(np.argmax(arms @ policy.theta))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("name", [*named.POLICIES])
def test_policies_by_name(name):
    policy = named.make(name, DIM, kappa=0.5, seed=1)
    assert policy.dim == DIM
    assert policy.kappa == (0.0 if name in ("greedy", "epsilon-greedy", "random") else 0.5)


def test_an_unknown_name_is_refused_with_the_list():
    with pytest.raises(SettingsError, match="'linucbb' is not one of flinucb-saga, flinucb-cd, linucb-auto"):
        named.make("linucbb", 3)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: LinUCB(), "either dim, and chooses its parts itself, or a tracker"),
        (lambda: LinUCB(3, tracker=RLS(3, **RAW)), "either dim"),
        (lambda: LinUCB(3, width=ExactWidth()), "width needs a tracker"),
        (lambda: LinUCB(tracker=RLS(3, **RAW), regularisation=1.0), "give it to the tracker"),
        (lambda: LinUCB(3, kappa=-1.0), "kappa must be a number of at least 0, or None to estimate it, got -1.0"),
        (lambda: LinUCB(3, kappa=np.nan), "kappa must be a number"),
        (lambda: LinUCB(3, kappa="big"), "kappa must be a number of at least 0, or None to estimate it, got 'big'"),
        (lambda: LinUCB(3, sigmas=0.0), "sigmas must be positive"),
        (lambda: LinUCB(3, epsilon=1.1), r"epsilon must lie in \[0, 1\], got 1.1"),
        (lambda: LinUCB(3, forget_after=-1), "forget_after must be a whole number of rounds"),
        (lambda: EnsembleTS(), "either dim"),
        (lambda: EnsembleTS(3, tracker=CD(3, **RAW)), "either dim"),
        (lambda: Policy(RLS(3, **RAW), "exact"), "a policy needs a tracker and a width"),
        (lambda: Greedy("RLS"), "a policy needs a tracker and a width"),
        (lambda: FixedPool(np.eye(2), kappa=-1.0), "kappa must be a number"),
        (lambda: FixedPool(np.eye(2), epsilon=2.0), "epsilon must lie"),
        (lambda: FixedPool(np.eye(2), method="exact"), "method must be 'gram' or 'kept'"),
        (lambda: FixedPool(np.eye(2), total_ridge=0.0), "total_ridge positive"),
        (lambda: FixedPool(np.zeros((0, 2))), "at least one row"),
        (lambda: FixedPool([[np.nan]]), "must be finite"),
        (lambda: DisjointLinUCB(3, tracker=RLS(4, **RAW)), "tracker must be an unused one of dim=3"),
        (lambda: DisjointLinUCB(3, tracker=RLS(3, discount=0.9, **RAW)), "finds theta only when asked"),
        (lambda: DisjointLinUCB(3, most_arms=0), "most_arms must be a whole number"),
        (lambda: DisjointLinUCB(3, kappa=-1.0), "kappa must be a number"),
    ],
)
def test_bad_settings_are_refused(make, complaint):
    with pytest.raises(DriftlsError, match=complaint):
        make()


def test_ids_must_differ_and_must_fit_in_a_file(tmp_path):
    policy = CASES[1].make(1)
    with pytest.raises(InputError, match="arm id 'a' stands for two arms"):
        policy.choose(np.eye(DIM)[:3], ids=["a", "b", "a"])
    assert len(policy._slot_of) == 0
    policy.choose(np.eye(DIM)[:3], ids=[("user", 1), 2.5, np.int64(3)])
    assert LinUCB.load(_file(policy, tmp_path))._slot_of == {("user", 1): 0, 2.5: 1, 3: 2}
    policy.choose(np.eye(DIM)[:1], ids=[frozenset("a")])
    with pytest.raises(SettingsError, match="text, numbers or tuples"):
        policy.save(tmp_path / "policy")


def test_a_policy_over_a_mapped_history_is_not_copied(tmp_path):
    policy = LinUCB(tracker=SAGA(DIM, steps=2, history=Mapped(tmp_path / "rows"), seed=1, **RAW), seed=1)
    policy.learn(np.ones(DIM), 1.0)
    with pytest.raises(SettingsError, match="cannot be copied"):
        copy.deepcopy(policy)


def test_functions_of_n_are_passed_again(tmp_path):
    def step(n):
        return 0.1 / n**0.5

    policy = LinUCB(tracker=SAGA(DIM, steps=2, step_size=step, seed=1, **RAW), seed=1)
    play(policy, 0, 10)
    with pytest.raises(SettingsError, match="pass step_size= to load"):
        LinUCB.load(_file(policy, tmp_path))
    again, copied = LinUCB.load(tmp_path / "policy", step_size=step), copy.deepcopy(policy)
    assert play(policy, 10, 30) == play(again, 10, 30) == play(copied, 10, 30)


# -- one model an arm ------------------------------------------------------------------------------------------------


def users(count, layout="dense", seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, DIM)) * (rng.random((count, DIM)) < (0.5 if layout == "sparse" else 1.0))
    X[:, 0] = 1.0
    return X


def own_reward(n, x, name):
    return float(x @ VECTORS[name] + 0.3 * np.random.default_rng(n).normal())


@each_layout
@pytest.mark.parametrize("kappa", [None, 0.8])
def test_disjoint_models_are_independent_linucbs(layout, kappa):
    policy = DisjointLinUCB(DIM, tracker=RLS(DIM, **RAW), width=ExactWidth(), kappa=kappa, sigmas=1.0, seed=1)
    models = {name: NaiveLinUCB(DIM, kappa) for name in VECTORS}
    errors = seen = 0.0
    for n, x in enumerate(users(150, layout)):
        ids = IDS[n % 3]
        weight = kappa if kappa is not None else np.sqrt(errors / seen) if errors else 1.0
        assert policy.kappa == pytest.approx(weight, rel=1e-9)
        for name in ids:
            models[name].given = weight
        user = sp.csr_array(x[None]) if layout == "sparse" else x
        k = policy.choose(user, ids=ids)
        assert k == int(np.argmax([models[name].score(x) for name in ids])), n
        y = own_reward(n, x, ids[k])
        policy.learn(user, y, arm=k, ids=ids)
        before = models[ids[k]].errors
        models[ids[k]].learn(x, y)
        errors, seen = errors + models[ids[k]].errors - before, seen + 1.0
    for name in IDS[0]:
        np.testing.assert_allclose(policy.model(name).theta, np.linalg.solve(models[name].A, models[name].b), atol=1e-9)


def disjoint(**settings):
    return DisjointLinUCB(DIM, tracker=SAGA(DIM, steps=2, seed=0, **RAW), epsilon=0.1, seed=1, **settings)


def play_disjoint(policy, first, last, layout="dense"):
    chosen = []
    for n in range(first, last):
        x, ids = users(100, layout)[n], IDS[n % 3]
        user = sp.csr_array(x[None]) if layout == "sparse" else x
        chosen.append(policy.choose(user, ids=ids))
        policy.learn(user, own_reward(n, x, ids[chosen[-1]]), arm=chosen[-1], ids=ids)
    return chosen


@each_layout
@pytest.mark.parametrize("rounds", [0, 20])
def test_disjoint_models_resume_and_copy_to_the_bit(layout, rounds, tmp_path):
    policy, straight = disjoint(), disjoint()
    play_disjoint(straight, 0, rounds, layout)
    play_disjoint(policy, 0, rounds, layout)
    before = saved(policy, tmp_path)
    again = DisjointLinUCB.load(tmp_path / "policy")
    copied, pickled = copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))
    assert saved(copied, tmp_path) == before
    end = rounds + 30
    assert (
        play_disjoint(straight, rounds, end, layout)
        == play_disjoint(again, rounds, end, layout)
        == play_disjoint(copied, rounds, end, layout)
        == play_disjoint(pickled, rounds, end, layout)
    )
    assert saved(policy, tmp_path) == before
    assert saved(again, tmp_path) == saved(straight, tmp_path)
    assert 0.0 < again.probability <= 1.0


@pytest.mark.parametrize("rounds", [0, 20])
def test_disjoint_models_refuse_and_change_nothing(rounds, tmp_path):
    policy, x = disjoint(), np.ones(DIM)
    play_disjoint(policy, 0, rounds)
    before = saved(policy, tmp_path)
    for wrong, complaint in [
        (lambda: policy.choose(np.full(DIM, np.nan), ids=["new", "a"]), "the user: every feature and y must be finite"),
        (lambda: policy.choose(np.full(DIM, np.nan), ids=["a"]), "the user: every feature"),
        (lambda: policy.choose(x[:3], ids=["a"]), "a user has 6 features, got 3"),
        (lambda: policy.choose(["a"] * DIM, ids=["a"]), "a user must be a vector of real numbers"),
        (lambda: policy.choose(x, ids=[]), "the pool is empty"),
        (lambda: policy.choose(x, ids=["a", "a"]), "stands for two arms"),
        (lambda: policy.learn(x, 1.0, arm=0, ids=["unknown"]), "arm id 'unknown' was never offered"),
        (lambda: policy.learn(x, 1.0, arm=3, ids=["a"]), "arm 3 is not among the 1 arms"),
        (lambda: policy.learn(x, np.nan, arm=0, ids=["a"]), "a reward must be finite" if rounds else "never offered"),
        (lambda: policy.learn(np.full(DIM, np.nan), 1.0, arm=0, ids=["a"]), "the user" if rounds else "never offered"),
        (lambda: policy.model("unknown"), "never offered"),
    ]:
        with pytest.raises((InputError, DimensionError), match=complaint):
            wrong()
        assert saved(policy, tmp_path) == before


def test_the_model_that_was_not_offered_for_longest_is_dropped():
    policy, x = disjoint(most_arms=3), np.ones(DIM)
    policy.choose(x, ids=["a", "b", "c"])
    policy.choose(x, ids=["a", "c"])
    policy.choose(x, ids=["a", "d"])
    assert set(policy._slot_of) == {"a", "c", "d"}
    policy.choose(x, ids=["c", "e", "f"])  # c is on offer, so it stays
    assert set(policy._slot_of) == {"c", "e", "f"}
    assert len({policy._slot_of[name] for name in "cef"}) == 3
    with pytest.raises(InputError, match="arm id 'a' was never offered, or was dropped"):
        policy.learn(x, 1.0, arm=0, ids=["a"])
    with pytest.raises(InputError, match="4 arms, but most_arms=3 models are kept"):
        policy.choose(x, ids=list("cefg"))
    assert len(policy) == 3


def test_many_models_that_sample_have_draws_enough():
    """60 arms of 2 x 100 draws each are more than the tape holds at first."""
    policy = DisjointLinUCB(100, tracker=RLS(100, **RAW), width=SampleWidth(), kappa=1.0, seed=1)
    chosen = {policy.choose(np.ones(100), ids=list(range(60))) for _ in range(40)}
    assert len(chosen) > 10
    assert policy._draws.tape.size >= 61 * policy._need
    again = copy.deepcopy(policy)
    same = [[p.choose(np.ones(100), ids=list(range(60))) for _ in range(5)] for p in (policy, again)]
    assert same[0] == same[1]
    with pytest.raises(InputError, match="sampled models is not known"):
        _ = policy.probability


def test_no_width_is_greedy():
    policy = Policy(RLS(DIM, **RAW), NoWidth(), kappa=0.0)
    play(policy, 0, 30)
    arms, _ = pool(0)
    np.testing.assert_allclose(policy.scores(arms), arms @ policy.theta, atol=1e-12)
    assert not policy.widths(arms).any()
