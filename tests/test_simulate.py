"""simulate: the compiled loop decides as the Python one, and what is told of a run is what happened."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from driftls import paper, ridge
from driftls.environments import ChurningPool, FixedArms, FreshContexts, Jumps, Rotates
from driftls.errors import CorruptFileError, DimensionError, DivergenceError, NewerFileError, SettingsError
from driftls.policies import DisjointLinUCB, LinUCB
from driftls.run import Run, interval
from driftls.simulation import log_points, simulate
from driftls.testing.common import same
from driftls.trackers import GD, RAW, SAGA
from driftls.widths import DiagonalWidth, PhiWidth
from policy_cases import CASES, DIM

ARMS = 5
SHARED = {name: case for name, case in CASES.items() if not case().disjoint}

ENVIRONMENTS = {
    "fixed": lambda: FixedArms(DIM, ARMS, seed=3),
    "fixed, bernoulli": lambda: FixedArms(DIM, ARMS, reward="bernoulli", seed=3),
    "fixed, jumps": lambda: FixedArms(DIM, ARMS, moves=Jumps(70), seed=3),
    "churning": lambda: ChurningPool(DIM, ARMS, every=7, seed=3),
    "churning, bernoulli, jumps": lambda: ChurningPool(
        DIM, ARMS, every=40, reward="bernoulli", moves=Jumps(50), seed=3
    ),
    "fresh": lambda: FreshContexts(DIM, ARMS, seed=3),
    "fresh, rotates": lambda: FreshContexts(DIM, ARMS, moves=Rotates(200.0), reward="bounded", seed=3),
    "fresh, sparse": lambda: FreshContexts(DIM, ARMS, nnz=3, seed=3),
    "fresh, sparse, bernoulli": lambda: FreshContexts(DIM, ARMS, nnz=3, reward="bernoulli", seed=3),
}
each_environment = pytest.mark.parametrize("environment", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
each_case = pytest.mark.parametrize("case", SHARED.values(), ids=SHARED)
ROUNDS = 250


def same_decisions(make, environment, rounds=ROUNDS):
    """Traces after every round tell every decision; so do theta and kappa at the end."""
    found = []
    for engine in ("python", "compiled"):
        policy = make()
        run = simulate(policy, environment(), rounds, points=range(1, rounds + 1), engine=engine)
        found.append((run.traces, policy.theta.tolist(), policy.kappa, policy.snapshot()[0]["rounds"]))
    assert found[0] == found[1]


@each_case
@each_environment
def test_both_engines_decide_alike(case, environment):
    same_decisions(lambda: case(epsilon=0.1), environment)


@pytest.mark.parametrize("name", [name for name in SHARED if "phi" in name])
def test_both_engines_leave_the_same_policy_behind(name):
    """Also where arms are dropped: 5 arms on offer, one of them new in every round, and 16 places."""
    files = []
    for engine in ("python", "compiled"):
        policy = SHARED[name](epsilon=0.1, forget_after=20)
        simulate(policy, ChurningPool(DIM, ARMS, every=1, seed=2), 150, engine=engine)
        files.append(policy)
    assert len(files[0].snapshot()[0]["ids"]) <= 32
    same(*files, "both engines")


def test_a_run_of_many_blocks_decides_alike():
    """More rounds than a chunk of the environment, a tape of draws and the first room for rows hold."""
    same_decisions(SHARED["SAGA + phi"], ENVIRONMENTS["churning"], rounds=3000)


def test_draws_are_made_in_time_where_the_loop_has_learned_since_the_tracker_counted():
    """A tape of 8,192 uniforms is over after 1,024 rows of 8 steps; the tracker counted when it made room for rows."""
    runs = [
        simulate(
            LinUCB(tracker=SAGA(136, seed=0, **RAW), width=DiagonalWidth(), kappa=0.3, seed=0),
            FreshContexts(136, 3, seed=0),
            1100,
            engine=engine,
        )
        for engine in ("compiled", "python")
    ]
    assert runs[0].traces == runs[1].traces


@pytest.mark.parametrize("make", [paper.linucb, paper.flinucb_gd, paper.flinucb_svrg, paper.flinucb_sag])
def test_the_paper_s_policies_run(make):
    run = simulate(make(DIM, kappa=0.5, seed=1), FixedArms(DIM, ARMS, seed=3), 400, tracking=True)
    assert 0.0 < run.last("regret") < 400.0
    assert 0.0 <= run.last("relative_tracking_error") < 1.5


def test_the_paper_s_settings_are_those_of_its_table():
    for make, tracker in [
        (paper.flinucb_gd, paper.frls_gd),
        (paper.flinucb_svrg, paper.frls_svrg),
        (paper.flinucb_sag, paper.frls_sag),
    ]:
        policy = make(DIM, seed=1)
        assert repr(policy.tracker) == repr(tracker(DIM))
        assert (policy.width.method, policy.width.steps, policy.kappa) == ("printed", 1, 1.0)
        assert make(DIM, kappa=0.3).kappa == 0.3
    assert (paper.linucb(DIM).tracker.total_ridge(7), paper.linucb(DIM).kappa) == (1.0, 1.0)
    assert set(paper.POLICIES) == {"linucb", "flinucb-gd", "flinucb-svrg", "flinucb-sag"}
    assert paper.POLICIES["flinucb-gd"](DIM, None, 1).kappa == 1.0
    assert paper.POLICIES["linucb"](DIM, 0.2, 1).kappa == 0.2


# -- what is told ----------------------------------------------------------------------------------------------------


@each_environment
def test_regret_and_reward_are_those_of_a_hand_loop(environment):
    policy, env = SHARED["LinUCB"](), environment()
    points = [1, 2, 50, 120]
    run = simulate(SHARED["LinUCB"](), environment(), 120, points=points)
    regret = reward = 0.0
    told = []
    for n in range(1, 121):
        arms, ids = env.round(n)
        k = policy.choose(arms, ids=ids)
        y = env.reward(n, k)
        policy.learn(arms, y, arm=k, ids=ids)
        regret += env.best(n) - float((arms @ env.theta(n))[k])
        reward += y
        if n in points:
            told.append((regret, reward))
    assert run.points == points
    np.testing.assert_allclose(list(zip(run.traces["regret"], run.traces["reward"])), told, atol=1e-9)
    assert run.seconds["play"] > 0.0


def test_tracking_error_is_the_tracker_s_own():
    policy = SHARED["SAGA + diagonal"]()
    run = simulate(policy, FreshContexts(DIM, ARMS, seed=3), 200, points=[50, 200], tracking=True)
    error = policy.tracker.tracking_error()
    assert (run.last("tracking_error"), run.last("relative_tracking_error")) == tuple(error)
    assert len(run.traces["tracking_error"]) == 2


def test_the_default_points_are_even_on_a_logarithmic_axis():
    assert log_points(1) == [1]
    assert log_points(10_000)[0] == 10
    assert log_points(10_000)[-1] == 10_000
    assert len(log_points(10_000)) == 25
    run = simulate(SHARED["LinUCB"](), FixedArms(DIM, ARMS, seed=3), 37, points=[5, 3, 3])
    assert run.points == [3, 5, 37]


def test_progress_counts_rounds():
    seen = []
    simulate(SHARED["LinUCB"](), FixedArms(DIM, ARMS, seed=3), 1200, points=[100], progress=seen.append)
    assert seen == [100, *range(228, 1200, 128), 1200]


@pytest.mark.parametrize(
    ("call", "error", "complaint"),
    [
        (lambda p, e: simulate(p, e, 0), SettingsError, "rounds must be a whole number of at least 1, got 0"),
        (lambda p, e: simulate(p, e, 10, points=[11]), SettingsError, r"points must lie in 1 ... 10, got 10 ... 11"),
        (
            lambda p, e: simulate(p, e, 10, points=[0]),
            SettingsError,
            "a point must be a whole number of at least 1, got 0",
        ),
        (lambda p, e: simulate(p, e, 10, engine="fast"), SettingsError, "engine must be 'compiled' or 'python'"),
        (lambda p, e: simulate(p, FixedArms(3, 4), 10), DimensionError, "dim=6, but the environment has dim=3"),
        (
            lambda p, e: simulate(DisjointLinUCB(DIM), e, 10),
            SettingsError,
            "takes users, but the environment offers arms",
        ),
    ],
)
def test_wrong_calls_are_refused(call, error, complaint):
    with pytest.raises(error, match=complaint):
        call(SHARED["LinUCB"](), FixedArms(DIM, ARMS, seed=3))


def test_a_run_that_diverges_is_stopped_in_both_engines():
    """A step of 1.9 on rows of length 1 is allowed, but with the noise of one row it runs away."""
    for engine in ("python", "compiled"):
        tracker = GD(DIM, step_size=1.99, regularisation=ridge(1.0), averaging=None, steps=400, seed=1, **RAW)
        policy = LinUCB(tracker=tracker, width=PhiWidth(1, method="printed"), kappa=0.5, seed=1)
        with pytest.raises(DivergenceError):
            simulate(policy, FixedArms(DIM, 3 * DIM, sigma=5.0, seed=3), 3000, engine=engine)
        assert np.isfinite(policy.theta).all()


# -- runs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def run():
    return simulate(SHARED["LinUCB"](), FixedArms(DIM, ARMS, seed=3), 50, name="exact", seed=3, tracking=True)


def test_a_run_says_what_it_is(run):
    assert (run.policy, run.problem, run.seed, run.rounds) == ("exact", "FixedArms(dim=6, arms=5)", 3, 50)
    assert "ExactWidth()" in run.settings["policy"]
    assert run.last("regret") == run.traces["regret"][-1]


def test_a_run_comes_back_from_its_file(run, tmp_path):
    run.save(tmp_path / "run.json")
    assert Run.load(tmp_path / "run.json") == run
    assert json.loads((tmp_path / "run.json").read_text())["traces"]["regret"] == run.traces["regret"]
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_number_that_json_does_not_have_comes_back_as_nan(run, tmp_path):
    run.traces["tracking_error"][0] = math.inf
    run.save(tmp_path / "run.json")
    assert math.isnan(Run.load(tmp_path / "run.json").traces["tracking_error"][0])


@pytest.mark.parametrize("text", ["", "{}", "[1, 2]", '{"traces": 3}', '{"traces": {"regret": 1}}', "\0"])
def test_a_file_that_is_no_run_is_refused(text, tmp_path):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(CorruptFileError, match="not a run of driftls"):
        Run.load(tmp_path / "run.json")


def test_a_newer_file_is_refused(run, tmp_path):
    run.save(tmp_path / "run.json")
    text = (tmp_path / "run.json").read_text()
    (tmp_path / "run.json").write_text(text.replace('"version": 1', '"version": 2'))
    with pytest.raises(NewerFileError, match="version 2, but this driftls reads up to 1"):
        Run.load(tmp_path / "run.json")


def test_the_interval_is_student_s():
    mean, half = interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.302653 / math.sqrt(3.0), rel=1e-6)  # t quantile of 2 degrees of freedom
    assert interval([5.0]) == (5.0, math.inf)
