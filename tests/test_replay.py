"""The challenge's rule: identical decisions of both engines, honest estimates, delay, resume, Ctrl-C."""

from __future__ import annotations

import copy
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from driftls.errors import DimensionError, InputError, SettingsError
from driftls.features import Features, OuterProduct, UserArmCrosses, UserOnly
from driftls.log_replay import replay
from driftls.logs import Event, read, synthetic_day
from driftls.logs.log import EventLog, Log
from driftls.policies import DisjointLinUCB, LinUCB
from driftls.policies.registry import as_disjoint, make
from driftls.trackers import CD, RAW, RLS, SAGA, Diagonal
from driftls.widths import DiagonalWidth, ExactWidth
from test_cli import driftls


class Kept(Log):
    """Blocks that are in memory already."""

    format = "kept"

    def __init__(self, blocks):
        super().__init__()
        self.kept = blocks

    def _blocks(self, size):
        yield from self.kept


@pytest.fixture(scope="module")
def day():
    return Kept(list(synthetic_day(lines=3000, seed=3, ctr=0.2).blocks(size=1100, truth=True)))


def six_by_six(lines, seed):
    """A log with article features, as R6A has them, and pools that change."""
    rng = np.random.default_rng(seed)
    articles = {name: np.append(rng.dirichlet(np.ones(5)), 1.0) for name in range(100, 112)}
    for t in range(lines):
        arms = np.sort(rng.choice(list(articles), size=int(rng.integers(3, 7)), replace=False))
        yield Event(
            time=t,
            arms=arms,
            shown=int(rng.integers(len(arms))),
            reward=float(rng.random() < 0.3),
            user_index=np.arange(6, dtype=np.int32),
            user_value=np.append(rng.dirichlet(np.ones(5)), 1.0),
            arm_features=np.array([articles[int(name)] for name in arms]),
            propensity=1.0 / len(arms),
        )


def saga(*, seed, **more):
    return DisjointLinUCB(136, tracker=SAGA(136, **RAW), seed=seed, **more)


def same(one, other):
    """Whether two policies have learned and drawn the same: trackers and widths to the bit."""
    (header, arrays), (other_header, other_arrays) = one.snapshot(), other.snapshot()
    for part in ("models", "draws", "weights", "numbers"):
        assert json.dumps(header.get(part), default=str) == json.dumps(other_header.get(part), default=str), part
    return arrays.keys() == other_arrays.keys() and all(np.array_equal(arrays[k], other_arrays[k]) for k in arrays)


COMBINATIONS = {
    "disjoint SAGA, diagonal": (lambda: saga(seed=5), None),
    "disjoint RLS, exact": (lambda: DisjointLinUCB(136, tracker=RLS(136, **RAW), width=ExactWidth(), seed=5), None),
    "disjoint, floor": (lambda: DisjointLinUCB(136, tracker=Diagonal(136, **RAW), epsilon=0.3, seed=5), None),
    "disjoint, printed phi": (lambda: as_disjoint(make("flinucb-gd", 136, seed=5), 5), None),
    "crosses": (
        lambda: LinUCB(tracker=SAGA(136 * 100, seed=5, **RAW), width=DiagonalWidth(), seed=5),
        lambda: UserArmCrosses(136, articles=100),
    ),
    "Features, hashed": (lambda: LinUCB(4096, seed=5), lambda: Features(4096, cross=[("*", "id")])),
    "Features, disjoint": (lambda: DisjointLinUCB(512, seed=5), lambda: Features(512)),
    "Features, disjoint, a vocabulary": (lambda: DisjointLinUCB(features=Features(), seed=5), None),
}


@pytest.mark.parametrize("delay", [0, 40])
@pytest.mark.parametrize("name", COMBINATIONS)
def test_the_compiled_engine_decides_as_the_python_one(name, delay, day):
    make_policy, features = COMBINATIONS[name]
    runs = [
        replay(
            make_policy(),
            day,
            engine=engine,
            features=None if features is None else features(),
            delay=delay,
            limit=1500,
            metrics=["regret"],
        )
        for engine in ("compiled", "python")
    ]
    assert runs[0].traces == runs[1].traces
    assert runs[0].settings["evaluations"] == runs[1].settings["evaluations"] > 20


def test_both_engines_agree_on_dense_outer_products_of_a_changing_pool():
    events = list(six_by_six(600, 1))
    ends = []
    for engine in ("compiled", "python"):
        policy = LinUCB(tracker=CD(36, **RAW), width=DiagonalWidth(), seed=2)
        run = replay(policy, EventLog(events), engine=engine)
        ends.append((run.traces, run.settings["estimates"], policy.tracker.theta.tolist()))
        assert getattr(policy, "features", None) is None  # the caller's policy is as it was, but for what it learned
        assert run.settings["features"] == repr(OuterProduct(6, 6))
    assert ends[0] == ends[1]


def test_a_line_counts_where_the_policy_chooses_what_was_shown_and_nowhere_else():
    events = list(six_by_six(400, 2))

    class Second:
        """Always the second arm; notes what it is asked and told."""

        dim, told = 36, 0

        def choose(self, arms, **ids):
            return 1

        def learn(self, arms, reward, *, arm, **ids):
            assert arm == 1
            self.told += 1

    policy = Second()
    run = replay(policy, EventLog(events))
    matched = [event for event in events if event.shown == 1]
    assert policy.told == run.settings["evaluations"] == len(matched)
    estimate = run.settings["estimates"]["replay"]
    assert estimate["value"] == np.mean([event.reward for event in matched])
    weighted = [event.reward * len(event.arms) if event.shown == 1 else 0.0 for event in events]
    assert run.settings["estimates"]["ips"]["value"] == pytest.approx(np.mean(weighted), rel=1e-12)
    weights = sum(len(event.arms) for event in matched)
    assert run.settings["estimates"]["snips"]["value"] == pytest.approx(sum(weighted) / weights, rel=1e-12)
    assert run.settings["engine"] == "python"
    assert "Second has no compiled loop" in run.settings["engine_reason"]


def test_the_truth_gives_regret_and_value(day):
    run = replay(make_random(), day, metrics=["regret"])
    best = sum(np.maximum.reduceat(block.truth, block.truth_start[:-1]).sum() for block in day.kept)
    assert run.last("regret") == pytest.approx(best - 3000 * run.settings["value"], rel=1e-9)


def make_random(seed=0):
    return as_disjoint(make("random", 136, seed=seed), seed)


def test_replay_is_a_function_of_its_module(day):
    import driftls.log_replay as module

    assert module.replay is replay
    assert type(module) is type(sys)


def test_several_policies_over_one_log_end_where_each_ends_alone(day):
    together = replay({"a": saga(seed=1), "b": make_random()}, day)
    assert together["a"].traces == replay(saga(seed=1), day).traces
    assert together["b"].traces == replay(make_random(), day).traces


def test_a_delayed_reward_is_learned_after_so_many_lines(day):
    """With a delay beyond the log nothing is learned before the end, so every choice is an untrained policy's"""
    policy = saga(seed=1)
    run = replay(policy, day, delay=10_000, limit=800)
    untrained = saga(seed=1)
    matches = sum(
        untrained.choose(np.eye(136)[event.user_index].sum(axis=0), ids=event.arms) == event.shown
        for event in day.kept[0].part(0, 800)
    )
    assert run.settings["evaluations"] == matches
    assert sum(len(tracker) for tracker in map(policy.model, policy.ids)) == matches


@pytest.mark.parametrize("engine", ["compiled", "python"])
@pytest.mark.parametrize("delay", [0, 30])
def test_an_interrupted_replay_goes_on_from_its_checkpoint_as_if_it_had_not_stopped(engine, delay, day, tmp_path):
    straight = saga(seed=4, epsilon=0.1)
    whole = replay(straight, day, engine=engine, delay=delay, limit=1400)

    class Stop(Exception):
        pass

    def stop(lines):
        if lines > 900:
            raise Stop

    path = tmp_path / "checkpoint"
    with pytest.raises(Stop):
        replay(
            saga(seed=4, epsilon=0.1),
            day,
            engine=engine,
            delay=delay,
            limit=1400,
            checkpoint=path,
            every=400,
            progress=stop,
        )
    assert path.exists()
    resumed = saga(seed=4, epsilon=0.1)
    run = replay(resumed, day, engine=engine, delay=delay, limit=1400, checkpoint=path, every=400)
    assert (run.traces, run.points, run.settings["estimates"]) == (
        whole.traces,
        whole.points,
        whole.settings["estimates"],
    )
    for name, tracker in ((name, straight.model(name)) for name in straight.ids):
        assert np.array_equal(tracker.theta, resumed.model(name).theta)
    assert not path.exists()


def left_behind(path, log, policy, **settings):
    """The checkpoint of a replay that was interrupted."""
    with pytest.raises(RuntimeError, match="stop"):
        replay(policy, log, checkpoint=path, every=100, progress=stop_at_once, **settings)
    assert path.exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"policy": {"b": DisjointLinUCB(136, seed=1)}}, "other policies"),
        ({"policy": {"a": DisjointLinUCB(136, seed=2)}}, "other settings or seeds"),
        ({"policy": {"a": DisjointLinUCB(136, seed=1, epsilon=0.5)}}, "other settings or seeds"),
        ({"delay": 5}, "other settings"),
        ({"limit": 2000}, "other settings"),
        ({"features": UserOnly(135, constant=True)}, "other features"),
        ({"log": synthetic_day(lines=3000, seed=4, ctr=0.2)}, "another log"),
        ({"log": synthetic_day(lines=50, seed=3, ctr=0.2)}, "another log"),
    ],
    ids=str,
)
def test_a_checkpoint_belongs_to_policies_settings_and_log_or_is_refused(change, said, tmp_path):
    call = {"policy": {"a": DisjointLinUCB(136, seed=1)}, "log": synthetic_day(lines=3000, seed=3, ctr=0.2)}
    path = tmp_path / "checkpoint"
    left_behind(path, call["log"], copy.deepcopy(call["policy"]))
    before, call = path.read_bytes(), call | copy.deepcopy(change)
    (name, policy), log = next(iter(call.pop("policy").items())), call.pop("log")
    kept = json.dumps(policy.snapshot()[0])
    with pytest.raises(SettingsError, match=f"checkpoint of a replay .*{said}"):
        replay({name: policy}, log, checkpoint=path, **call)
    assert path.read_bytes() == before
    assert json.dumps(policy.snapshot()[0]) == kept


def test_a_checkpoint_does_not_depend_on_how_a_log_is_cut_or_stored(day, tmp_path):
    """The same lines from memory and from a file, in other blocks"""
    straight = replay({"a": saga(seed=1)}, day, features=UserOnly(136))
    left_behind(tmp_path / "checkpoint", day, {"a": saga(seed=1)}, features=UserOnly(136))
    synthetic_day(lines=3000, seed=3, ctr=0.2).write(tmp_path / "day.parquet")
    log = read(tmp_path / "day.parquet", block=70)
    run = replay({"a": saga(seed=1)}, log, features=UserOnly(136), checkpoint=tmp_path / "checkpoint", every=700)
    assert run["a"].traces == straight["a"].traces


def test_resumed_features_number_articles_as_they_did(day, tmp_path):
    def made():
        features = UserArmCrosses(136, articles=100)
        return LinUCB(tracker=SAGA(features.dim, seed=5, **RAW), width=DiagonalWidth(), seed=5), features

    policy, features = made()
    straight = replay(policy, day, features=features)
    first = made()
    left_behind(tmp_path / "checkpoint", day, first[0], features=first[1])
    again, numbered = made()
    run = replay(again, day, features=numbered, checkpoint=tmp_path / "checkpoint")
    assert run.traces == straight.traces
    assert numbered.to_header() == features.to_header()
    assert same(again, policy)


def test_a_resumed_vocabulary_has_the_names_that_it_had(day, tmp_path):
    def made():
        return DisjointLinUCB(features=Features(), seed=5)

    policy, again = made(), made()
    straight = replay(policy, day)
    left_behind(tmp_path / "checkpoint", day, made())
    assert replay(again, day, checkpoint=tmp_path / "checkpoint").traces == straight.traces
    assert again.features.names == policy.features.names
    assert same(again, policy)


def test_a_policy_that_cannot_be_saved_has_no_checkpoint(day, tmp_path):
    class First:
        dim = 512

        def choose(self, arms):
            return 0

    with pytest.raises(SettingsError, match="can be saved"):
        replay(First(), day, features=Features(512, cross=[("*", "id")]), checkpoint=tmp_path / "checkpoint")


def stop_at_once(lines):
    raise RuntimeError("stop")


def test_replay_changes_nothing_of_a_policy_but_what_it_learned(day):
    policy = LinUCB(512, seed=5)
    before = vars(policy).keys()
    replay(policy, day, features=Features(512, cross=[("*", "id")]), limit=300)
    assert getattr(policy, "features", None) is None
    assert vars(policy).keys() == before
    assert len(policy.tracker) > 0


def test_features_that_a_policy_has_are_used(day):
    policy, other = LinUCB(512, seed=5), LinUCB(512, seed=5)
    policy.features = Features(512, cross=[("*", "id")])
    assert replay(policy, day, limit=500).traces == replay(other, day, features=policy.features, limit=500).traces


def test_users_alone_and_one_model_an_article_go_together_event_by_event(day):
    """As docs/logs.md says"""
    features, policy = UserOnly(136), saga(seed=1)
    matched = 0
    for event in day.kept[0].part(0, 600):
        k = policy.choose(features.user(event), ids=event.arms)
        if k == event.shown:
            policy.learn(features.user(event), event.reward, arm=k, ids=event.arms)
            matched += 1
    other = saga(seed=1)
    assert replay(other, day, features=features, limit=600).settings["evaluations"] == matched > 5
    assert same(policy, other)


def test_a_run_says_what_it_was_without_addresses(day, tmp_path):
    policy = DisjointLinUCB(136, tracker=SAGA(136, regularisation=lambda n: 60.0 / n, **RAW), seed=1)
    run = replay(policy, EventLog(list(day.kept[0].part(0, 200))))
    run.save(tmp_path / "run.json")
    text = (tmp_path / "run.json").read_text()
    assert "0x" not in text
    assert "-0.0" not in text
    assert run.problem == "events"


def test_times_are_told_apart_and_hold_no_compilation(day):
    """A width that no other test compiles: its first replay is not much dearer than its second"""
    spent = []
    for _ in range(2):
        policy = DisjointLinUCB(136, tracker=CD(136, **RAW), seed=1)
        run = replay(policy, day, limit=500)
        spent.append(run.seconds["play"])
        assert set(run.seconds) == {"play", "learn", "read", "shadow"}
    assert spent[0] < spent[1] + 0.5  # a compilation takes seconds


def test_the_estimate_that_is_valid_for_the_log_leads(day):
    assert replay(make_random(), day).settings["leading"] == "replay"
    rng = np.random.default_rng(0)
    skewed = []
    for event in six_by_six(800, 3):
        weights = np.linspace(1.0, 5.0, len(event.arms))
        p = weights / weights.sum()
        shown = int(rng.choice(len(p), p=p))
        skewed.append(replace(event, shown=shown, propensity=float(p[shown])))
    told = replay(LinUCB(tracker=CD(36, **RAW), width=DiagonalWidth(), seed=2), EventLog(skewed)).settings
    assert told["leading"] == "snips"
    assert "not uniform" in told["why"]
    assert any("replay is biased here" in text for text in told["warnings"])
    unknown = [replace(event, propensity=None) for event in skewed]
    told = replay(LinUCB(tracker=CD(36, **RAW), width=DiagonalWidth(), seed=2), EventLog(unknown)).settings
    assert told["leading"] == "replay"
    assert any("no estimate is valid" in text for text in told["warnings"])
    assert set(told["estimates"]) == {"replay"}


def test_tracking_errors_are_against_the_exact_solution_of_the_same_rows(day):
    asked = {"features": Features(64, cross=[("*", "id")]), "metrics": ["tracking_error"], "limit": 1000}
    exact = replay(LinUCB(tracker=RLS(64, **RAW), width=ExactWidth(), seed=1), day, **asked)
    assert exact.last("relative_tracking_error") < 1e-9
    run = replay(LinUCB(tracker=SAGA(64, seed=1, **RAW), width=DiagonalWidth(), seed=1), day, **asked)
    assert 1e-6 < run.last("relative_tracking_error") < 1.0


class Frozen:
    """A policy that only chooses: by what another one had learned."""

    frozen, disjoint = True, True

    def __init__(self, policy):
        self.policy, self.dim = copy.deepcopy(policy), policy.dim

    def choose(self, user, *, ids):
        return self.policy.choose(user, ids=ids)


def test_a_frozen_policy_is_asked_and_never_told_a_reward(day):
    policy = saga(seed=1)
    assert "learns" in replay(policy, day, limit=600).settings["estimated"]
    frozen = Frozen(policy)
    run = replay(frozen, day, limit=600, delay=7)
    assert run.settings["estimated"].startswith("a fixed policy")
    assert same(frozen.policy, policy)
    expected = [frozen.choose(UserOnly(136).user(event), ids=event.arms) for event in day.kept[0].part(0, 600)]
    assert run.settings["evaluations"] == int(np.sum(np.array(expected) == day.kept[0].shown[:600])) > 5


@pytest.mark.parametrize("delay", [0, 5])
def test_both_engines_agree_on_a_policy_that_was_frozen(day, delay):
    policy = saga(seed=1)
    replay(policy, day, limit=600)
    told = [replay(policy.freeze(), day, engine=engine, delay=delay, limit=400) for engine in ("compiled", "python")]
    assert told[0].traces == told[1].traces
    assert told[0].settings["estimated"].startswith("a fixed policy")


def test_what_cannot_be_replayed_is_told_before_the_first_line(day):
    with pytest.raises(SettingsError, match="features="):
        replay(LinUCB(136, seed=0), day)
    with pytest.raises(DimensionError, match="dim=137"):
        replay(DisjointLinUCB(137, seed=0), day, features=UserOnly(136))
    with pytest.raises(SettingsError, match="its features do not suit it"):
        replay(DisjointLinUCB(512, seed=0), day, features=UserArmCrosses(8, articles=64))
    with pytest.raises(SettingsError, match="metrics must be among"):
        replay(saga(seed=0), day, metrics=["clicks"])
    with pytest.raises(SettingsError, match="engine must be"):
        replay(saga(seed=0), day, engine="fast")
    with pytest.raises(InputError, match="no line"):
        replay(saga(seed=0), Kept([]))


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "day.gz"
    synthetic_day(lines=3000, seed=3, ctr=0.2).write(path)
    return path


def test_the_command_prints_what_the_function_gives(file, day, tmp_path):
    done = driftls(
        "replay", file, "--policy", "flinucb-saga", "--policy", "random", "--seed", 7, "--out", tmp_path, "--json"
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    run = replay(as_disjoint(make("flinucb-saga", 136, seed=7), 7), day)
    assert told["policies"]["flinucb-saga"]["ctr"] == run.last("ctr")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        ".settings",
        "flinucb-saga.json",
        "flinucb-saga.policy",
        "random.json",
        "random.policy",
    ]
    warm = driftls("replay", file, "--warm", tmp_path / "flinucb-saga.policy", "--limit", 500, "--json")
    assert warm.returncode == 0, warm.stderr
    assert json.loads(warm.stdout)["policies"]["flinucb-saga"]["lines"] == 500


def test_the_truth_in_a_parquet_file_is_that_of_the_day(day, tmp_path):
    path = tmp_path / "day.parquet"
    synthetic_day(lines=3000, seed=3, ctr=0.2).write(path)
    expected = replay(make_random(), day, metrics=["regret"])
    assert replay(make_random(), read(path), metrics=["regret"]).traces == expected.traces
    done = driftls("replay", path, "--metric", "regret", "--policy", "random", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["policies"]["random"]["last"]["regret"] == expected.last("regret")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--policy", "best"], 2, "must be one of"),
        ([], 2, "name a policy"),
        (["--policy", "random", "--features", "outer"], 3, "user_dim=6"),
        (["--policy", "random", "--metric", "regret"], 2, "the truth"),
    ],
)
def test_a_mistake_is_told_in_a_line(arguments, code, said, file):
    done = driftls("replay", file, *arguments)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_saves_what_was_done_so_far_and_says_so(tmp_path):
    log = tmp_path / "long.gz"
    synthetic_day(lines=600_000, seed=1).write(log)
    command = [
        sys.executable,
        "-m",
        "driftls",
        "replay",
        str(log),
        *(part for name in ("random", "linucb", "linucb-auto", "flinucb-saga") for part in ("--policy", name)),
        "--json",
    ]
    for pause in (0.25 * 2.0**k for k in range(8)):  # on a busy machine no line may be played after the first ones
        runs = tmp_path / f"runs-{pause}"
        process = subprocess.Popen(
            [*command, "--out", str(runs)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        while not runs.exists():
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.05)
        time.sleep(pause)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
        assert process.returncode == 130, err
        if out:
            break
    told = json.loads(out)
    assert told["partial"]
    assert json.loads((runs / "random.json").read_text())["partial"]
    assert 0 <= told["policies"]["random"]["lines"] < 600_000


def test_a_run_is_told_in_a_few_lines(day):
    run = replay(saga(seed=1), EventLog(list(day.kept[0].part(0, 300))))
    text = str(run)
    assert text.startswith("DisjointLinUCB on events, seed 0: 300 rounds\n  replay ")
    assert "which is valid for this log" in text
    assert "play, µs a round" in text
    assert all(len(line) < 120 for line in text.splitlines())
    assert len(text.splitlines()) < 10
    assert repr(run).startswith("Run('DisjointLinUCB', 'events', seed=0, rounds=300, ctr=")
