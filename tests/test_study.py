"""Studies: the file is checked as a whole, and results are the same however and wherever the runs were done."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
import warnings

import msgspec
import numpy as np
import pytest
from pyarrow.parquet import read_table

from driftls import parallel
from driftls.errors import DriftlsError, LearningWarning, SettingsError
from driftls.log_replay import replay
from driftls.logs import synthetic_day, write_parquet
from driftls.parallel import file_digest
from driftls.policies import DisjointLinUCB, registry
from driftls.report.runs import leaderboard, of_runs
from driftls.run import Run, interval
from driftls.simulation import simulate
from driftls.study import Plan, run_study, stages
from driftls.study.plan import PolicySpec, Range, Search, build
from driftls.study.stages import Task, best, execute

TEXT = """
metrics = ["regret", "reward"]
budget = 100
seeds = { tune = 4, report = 3 }

[search]
method = "grid"

[[bandits]]
name = "small"
kind = "fixed-arms"
dim = 5
arms = 8
rounds = 300

[[policies]]
policy = "linucb"
knobs = { kappa = [0.05, 0.3, 1.0, 3.0] }

[[policies]]
policy = "random"
"""


def same(runs):
    """Runs without what was measured of the machine: times, and the memory of the process."""
    measured = ("peak_megabytes",)
    plain = [{name: of for name, of in run.settings.items() if name not in measured} for run in runs]
    return [msgspec.structs.replace(run, seconds={}, settings=settings) for run, settings in zip(runs, plain)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The study of TEXT, in this process."""
    out = tmp_path_factory.mktemp("whole")
    return out, run_study(Plan.parse(TEXT), out, workers=1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dim = 5", 'dim = "5"', r"\$\.bandits\[0\]\.dim"),
        ("dim = 5", "dim = 0", r">= 1.*\$\.bandits\[0\]\.dim"),
        ("arms = 8", "arms = 8\nnnz = 2", r"fixed-arms has no nnz.*\$\.bandits\[0\]"),
        ('"grid"', '"gird"', r"gird.*\$\.search\.method`: expected one of grid, random\.$"),
        (
            "fixed-arms",
            "fixedarms",
            r"'fixedarms'.*\[0\]\.kind`: expected one of fixed-arms, churning-pool, fresh-contexts",
        ),
        ('"reward"', '"regrets"', r"'regrets'.*: expected one of regret, reward, ctr, relative_tracking_error\.$"),
        ("rounds =", 'reward = "coin"\nrounds =', r"'coin'.*: expected one of gaussian, bounded, bernoulli\.$"),
        ('method = "grid"', "drawz = 3", r"drawz.*\$\.search"),
        ("kappa =", "kapa =", r"policies\[0\].*'small': linucb has no setting 'kapa'\. It has: kappa"),
        ("[0.05, 0.3, 1.0, 3.0]", "[]", r"length >= 1.*\$\.policies\[0\]\.knobs"),
        ("[0.05, 0.3, 1.0, 3.0]", "{ low = 1.0, high = 0.5 }", r"low < high.*\$\.policies\[0\]\.knobs"),
        ("0.05", "-0.05", r"policies\[0\].*'kappa': -0\.05.*'small'"),
        ('"random"', '"randon"', r"policies\[1\].*a policy must be one of .*'randon'"),
        ('"random"', '"linucb"\nknobs = { kappa = [1.0] }', r"policies: 'linucb' comes twice"),
        ("budget = 100", "budget = 15", r"budget: .* up to 22 runs, but 15"),
        ("report = 3", "report = 0", r">= 1.*\$\.seeds\.report"),
        ("tune = 4, ", "", r"policies\[0\] is tuned, but 'small' has no tune seeds"),
        ('"reward"', '"clicks"', r"clicks.*\$\.metrics\[1\]"),
        ('"reward"', '"ctr"', r"metrics: ctr is a metric of logs"),
        ("[[bandits]]", "[[bandids]]", r"unknown field `bandids`"),
        ("metrics =", "metrics ", r"line 2"),
    ],
)
def test_a_mistake_in_the_file_is_named_by_its_key_before_anything_runs(old, new, message):
    assert old in TEXT
    with pytest.raises(SettingsError, match=f"(?s){message}"):
        Plan.parse(TEXT.replace(old, new))


def test_a_grid_has_every_combination_and_the_ends_of_a_range():
    spec = PolicySpec(policy="flinucb-saga", knobs={"kappa": Range(0.01, 1.0, "log", points=3), "steps": [2.0, 4.0]})
    found = spec.settings(Search(method="grid"), 0)
    assert [(knobs["kappa"], knobs["steps"]) for knobs in found] == [
        (0.01, 2), (0.01, 4), (pytest.approx(0.1), 2), (pytest.approx(0.1), 4), (1.0, 2), (1.0, 4)
    ]  # fmt: skip


def test_draws_depend_on_the_seed_of_the_search_and_stay_in_range():
    spec = PolicySpec(
        policy="flinucb-saga",
        knobs={"kappa": Range(0.1, 10.0, "log"), "steps": Range(5.0, 9.0)},
    )
    first, again, other = (spec.settings(Search(method="random", draws=50, seed=seed), 0) for seed in (1, 1, 2))
    assert first == again != other
    assert all(0.1 <= knobs["kappa"] <= 10.0 and knobs["steps"] in range(5, 10) for knobs in first)
    # half of the draws below the middle of a log scale: 50 coins, 4 standard deviations
    assert abs(sum(knobs["kappa"] < 1.0 for knobs in first) - 25) <= 4 * math.sqrt(50) / 2


@pytest.mark.parametrize("name", registry.SETTINGS)
def test_every_knob_reaches_its_policy(name):
    bandit = Plan.parse(TEXT).bandits[0]
    plain = repr(build(name, {}, bandit, 0))
    for knob, kind in registry.SETTINGS[name].items():
        value = 3 if kind is int else 0.625
        assert repr(build(name, {knob: value}, bandit, 0)) != plain, knob


def test_a_policy_refuses_a_knob_that_it_does_not_have():
    with pytest.raises(SettingsError, match=r"greedy has no setting 'steps'\. It has: ridge"):
        registry.make("greedy", 3, steps=2)


def test_a_range_on_a_log_scale_is_halved_at_the_geometric_mean():
    assert Range(0.01, 1.0, "log").at(0.5) == pytest.approx(0.1)


def test_rungs_end_with_all_units_and_a_choice_of_two():
    for settings in range(2, 40):
        for units in range(1, 12):
            for keep in (0.1, 0.3, 0.5, 0.9, 1.0):
                plan = Search(keep=keep).rungs(settings, units)
                left, seen = zip(*plan)
                assert left[0] == settings
                assert seen[-1] == units
                assert min(left) >= 2
                assert list(seen) == sorted(seen)


def test_of_equals_the_first_is_kept_and_a_failure_is_the_worst():
    assert best([2.0, math.nan, 2.0, 1.0], 2, larger=True) == [0, 2]
    assert best([math.nan, 5.0], 1, larger=True) == [1]


def test_halving_stops_bad_settings_and_reports_the_best_on_other_seeds(whole):
    _, rows = whole
    tuned = {}
    for row in rows:
        if row.settings["stage"] == "tune":
            tuned.setdefault(row.settings["knobs"]["kappa"], {})[row.seed] = row.last("regret")
    assert sorted(len(seeds) for seeds in tuned.values()) == [2, 2, 4, 4]
    first = sorted(tuned, key=lambda kappa: tuned[kappa][0] + tuned[kappa][1])
    assert {kappa for kappa, seeds in tuned.items() if len(seeds) == 4} == set(first[:2])
    winner = min(first[:2], key=lambda kappa: np.mean(list(tuned[kappa].values())))
    reported = [row for row in rows if row.settings["stage"] == "report" and row.policy == "linucb"]
    assert {row.seed for row in reported} == {4, 5, 6}
    assert {row.settings["knobs"]["kappa"] for row in reported} == {winner}


def test_the_parquet_file_holds_every_run_once(whole):
    out, rows = whole
    table = read_table(out / "results.parquet").to_pylist()
    assert [line["regret"] for line in table] == [row.last("regret") for row in rows]
    assert [line["reward_trace"] for line in table] == [row.traces["reward"] for row in rows]
    assert [json.loads(line["knobs"]) for line in table] == [row.settings["knobs"] for row in rows]
    assert [(line["key"], line["stage"], line["seed"]) for line in table] == [
        (r.settings["key"], r.settings["stage"], r.seed) for r in rows
    ]
    assert len({row.settings["key"] for row in rows}) == len(rows) == 4 * 2 + 2 * 2 + 2 * 3
    assert sorted(path.name for path in out.iterdir()) == [".settings", "results.parquet", "runs"]


@pytest.mark.parametrize("workers", [2, 8])
def test_any_number_of_workers_gives_the_same_bits(whole, tmp_path, workers):
    assert same(run_study(Plan.parse(TEXT), tmp_path, workers=workers)) == same(whole[1])


def test_a_second_run_does_only_what_is_missing(whole, tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(stages, "execute", lambda task: done.append(task) or execute(task))
    plan = Plan.parse(TEXT)
    first = run_study(plan, tmp_path, workers=1)
    assert len(done) == len(first)
    done.clear()
    lost, broken = sorted((tmp_path / "runs").iterdir())[:2]
    lost.unlink()
    broken.write_text("{")
    assert same(run_study(plan, tmp_path, workers=1)) == same(first) == same(whole[1])
    assert {task.key for task in done} == {lost.stem, broken.stem}


def test_two_policies_that_meet_in_one_setting_share_its_runs(tmp_path):
    text = TEXT.replace('policy = "random"', 'policy = "linucb"\nname = "fixed"\nknobs = { kappa = 0.3 }')
    rows = run_study(Plan.parse(text.replace("[0.05, 0.3, 1.0, 3.0]", "[0.3]")), tmp_path, workers=1)
    reported = [(row.policy, row.seed, row.last("regret")) for row in rows if row.settings["stage"] == "report"]
    assert len(reported) == 6
    assert [row[1:] for row in reported[:3]] == [row[1:] for row in reported[3:]]
    assert len(list((tmp_path / "runs").iterdir())) == len(rows) - 3


def test_a_key_changes_with_everything_that_the_result_depends_on(monkeypatch):
    bandit = Plan.parse(TEXT).bandits[0]
    task = Task(problem=bandit, policy="linucb", knobs={"kappa": 0.3}, seed=1, metrics=["reward"])
    others = [
        msgspec.structs.replace(task, **change)
        for change in (
            {"seed": 2},
            {"knobs": {"kappa": 0.4}},
            {"policy": "linucb-exact"},
            {"problem": msgspec.structs.replace(bandit, sigma=0.1)},
            {"metrics": ["relative_tracking_error"]},
            {"digest": "of another log"},
        )
    ]
    renamed = msgspec.structs.replace(task, problem=msgspec.structs.replace(bandit, name="another"), metrics=[])
    assert renamed.key == task.key
    keys = {task.key, *(other.key for other in others)}
    monkeypatch.setattr(parallel, "_sources", lambda: "another")
    assert len(keys | {task.key}) == 8


def test_a_setting_that_fails_is_a_result_that_says_why(tmp_path, monkeypatch):
    task = Task(problem=Plan.parse(TEXT).bandits[0], policy="linucb", knobs={"kappa": 0.3}, seed=1, metrics=["regret"])

    def diverge(*_, **__):
        raise DriftlsError("too far")

    monkeypatch.setattr(stages, "simulate", diverge)
    run = execute(task)
    assert run.partial
    assert run.settings["error"] == "DriftlsError: too far"
    run.save(tmp_path / "run.json")
    assert Run.load(tmp_path / "run.json").settings == run.settings


def test_that_a_policy_learns_slowly_is_not_said_by_a_study(monkeypatch):
    def slow(*given, **more):
        warnings.warn("slow", LearningWarning, stacklevel=1)
        warnings.warn("other", UserWarning, stacklevel=1)
        return simulate(*given, **more)

    monkeypatch.setattr(stages, "simulate", slow)
    task = Task(problem=Plan.parse(TEXT).bandits[0], policy="random", knobs={}, seed=1, metrics=["regret"])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert not execute(task).partial
    assert {str(one.message) for one in said} == {"other"}


LOGS = """
metrics = ["ctr"]
seeds = { tune = 1, report = 2 }
[[logs]]
name = "news"
tune = ["1", "2"]
report = ["3", "4.parquet"]
lines = 900
features = { kind = "Features", dim = 60, cross = [["*", "id"]] }
[[policies]]
policy = "linucb"
knobs = { kappa = [0.05, 0.5] }
[[policies]]
policy = "random"
"""


@pytest.fixture(scope="module")
def news(tmp_path_factory):
    """A plan over four short days, one of them a single file."""
    folder = tmp_path_factory.mktemp("news")
    for day in ("1", "2", "3", "4"):
        write_parquet(synthetic_day(lines=1000, seed=int(day)), folder / day)
    max((folder / "4").rglob("*.parquet"), key=lambda file: file.stat().st_size).rename(folder / "4.parquet")
    (folder / "study.toml").write_text(LOGS)
    return folder / "study.toml"


def test_knobs_are_tuned_on_some_days_of_a_log_and_reported_on_others(news, tmp_path):
    plan = Plan.load(news)
    rows = run_study(plan, tmp_path / "1", workers=1)
    days = {
        stage: {row.settings["day"].split("/")[-1] for row in rows if row.settings["stage"] == stage}
        for stage in ("tune", "report")
    }
    assert days == {"tune": {"1", "2"}, "report": {"3", "4.parquet"}}
    assert {row.settings.get("error", "") for row in rows} == {""}
    assert "tuned on 1, 2, reported on 3, 4.parquet" in plan.split
    assert same(run_study(plan, tmp_path / "2", workers=2)) == same(rows)
    first, second = leaderboard(rows, "ctr")
    mine = [row for row in rows if row.settings["stage"] == "report" and row.policy == first.policy]
    by_day = [
        np.mean([row.last("ctr") for row in mine if row.settings["day"] == day])
        for day in sorted({r.settings["day"] for r in mine})
    ]
    assert (first.mean, first.half) == pytest.approx(interval(by_day))  # two days are two samples, not four
    assert second.mean <= first.mean


def test_random_follows_no_theta_and_is_no_failure(news, tmp_path):
    where = news.parent / "tracking.toml"
    text = LOGS.replace('["ctr"]', '["relative_tracking_error", "ctr"]').replace("lines = 900", "lines = 200")
    # a knob that changes nothing of it
    where.write_text(text.replace('policy = "random"', 'policy = "random"\nknobs = { kappa = [1.0, 2.0] }'))
    runs = run_study(Plan.load(where), tmp_path, workers=1)
    assert not any(run.partial for run in runs)
    drawn = [run for run in runs if run.policy == "random"]
    assert {len(run.traces["relative_tracking_error"]) for run in drawn} == {0}
    assert all(run.traces["ctr"] for run in drawn)
    assert [one.policy for one in leaderboard(runs, "relative_tracking_error")] == ["linucb", "random"]
    assert not any(item.title.startswith("random: ") for item in of_runs(runs).sections[0].items)


def test_ctrl_c_in_a_replay_ends_the_study_and_is_no_result(news, tmp_path, monkeypatch):
    def interrupted(policies, *given, **more):
        runs = replay(policies, *given, **more)
        return {name: msgspec.structs.replace(run, partial=True) for name, run in runs.items()}

    monkeypatch.setattr(stages, "replay", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_study(Plan.load(news), tmp_path, workers=1)
    assert list((tmp_path / "runs").iterdir()) == []


def test_with_the_visitor_alone_every_article_has_a_model(news):
    text = LOGS.replace('"Features", dim = 60, cross = [["*", "id"]]', '"UserOnly", user_dim = 136')
    log = Plan.parse(text, news.parent).logs[0]
    assert isinstance(build("linucb", {}, log, 0), DisjointLinUCB)


def test_features_of_names_make_the_arms_of_a_study_too(news):
    log = Plan.parse(LOGS, news.parent).logs[0]
    run = execute(Task(problem=log, policy="linucb", knobs={}, seed=1, metrics=["ctr"], day=log.report[0]))
    assert (run.rounds, run.partial) == (900, False)
    assert "Features(60, cross=[('*', 'id')]" in run.settings["features"]


def test_a_log_is_known_by_its_content_wherever_it_lies(news, tmp_path):
    day = news.parent / "4.parquet"
    copy = tmp_path / "moved.parquet"
    copy.write_bytes(day.read_bytes())
    assert file_digest(str(copy)) == file_digest(str(day))
    content = bytearray(day.read_bytes())
    content[len(content) // 2] ^= 1
    copy.write_bytes(content)
    assert file_digest(str(copy)) != file_digest(str(day))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('report = ["3", "4.parquet"]', 'report = ["3", "1"]', r"1 is in tune and in report.*\$\.logs\[0\]"),
        ('"3"', '"9"', r"'news': .*9 does not exist"),
        ("dim = 60, ", "", r"compares models of one length: give Features a dim"),
        ('"Features"', '"Hash"', r"features: .*'Hash'.*\$\.logs\[0\]"),
        ("dim = 60", "wide = 60", r"features: .*wide.*\$\.logs\[0\]"),
        ('tune = ["1", "2"]\n', "", r"policies\[0\] is tuned, but 'news' has no tune"),
    ],
)
def test_a_mistake_about_a_log_is_named_too(news, old, new, message):
    assert old in LOGS
    with pytest.raises(SettingsError, match=f"(?s){message}"):
        Plan.parse(LOGS.replace(old, new), news.parent)


def test_a_log_that_no_run_could_be_of_is_refused_before_anything_runs(news, tmp_path):
    synthetic_day(lines=50, seed=1).write(tmp_path / "day.gz")  # the format of Yahoo, which has no truth
    (tmp_path / "table.csv").write_text("offer,click\na,1\n")
    text = LOGS.replace('tune = ["1", "2"]\n', "").replace("[0.05, 0.5]", "0.5")
    for day, metric, message in (
        ("day.gz", "regret", r"'news': .*day\.gz: regret needs a log with the truth .*, got one without\. Take"),
        ("table.csv", "ctr", r"'news': .*table\.csv: a study reads logs of Yahoo and Parquet, got a table"),
    ):
        plan = text.replace('["3", "4.parquet"]', f'["{day}"]').replace('"ctr"', f'"{metric}"')
        with pytest.raises(SettingsError, match=message):
            Plan.parse(plan, tmp_path)
    assert Plan.parse(text.replace('["3", "4.parquet"]', '["day.gz"]'), tmp_path).metrics == ["ctr"]
    write_parquet(synthetic_day(lines=50, seed=1).blocks(truth=True), tmp_path / "known")
    plan = text.replace('["3", "4.parquet"]', '["known"]').replace('"ctr"', '"regret"')
    assert Plan.parse(plan, tmp_path).metrics == ["regret"]


def test_a_killed_study_loses_only_what_was_under_way(whole, tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(TEXT.replace("rounds = 300", "rounds = 100000"))
    command = [sys.executable, "-m", "driftls", "study", str(file), "--out", str(tmp_path / "out"), "--workers", "1"]
    victim = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    runs = tmp_path / "out" / "runs"
    end = time.monotonic() + 600
    while len(list(runs.glob("*.json"))) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    victim.kill()
    assert victim.wait() == -signal.SIGKILL
    kept = {path: path.stat().st_mtime_ns for path in runs.glob("[!.]*.json")}
    assert 3 <= len(kept) < 18
    assert not (tmp_path / "out" / "results.parquet").exists()
    subprocess.run(command, check=True, capture_output=True, timeout=1800)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert len(read_table(tmp_path / "out" / "results.parquet")) == 18


def test_a_worker_killed_in_mid_study_changes_no_result(whole, tmp_path):
    plan = Plan.parse(TEXT)
    script = f"""
import os, signal
from driftls.study import Plan, run_study, stages
from pathlib import Path
real = stages.execute
def execute(task):
    marker = Path({str(tmp_path)!r}) / "dead"
    if task.seed == 2 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return real(task)
stages.execute = execute
run_study(Plan.parse({TEXT!r}), {str(tmp_path / "out")!r}, workers=2)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert (tmp_path / "dead").exists()
    assert same(run_study(plan, tmp_path / "out", workers=1)) == same(whole[1])


def test_the_folder_of_another_study_is_refused_unless_it_is_to_be_extended(whole, tmp_path):
    text = TEXT.replace("[0.05, 0.3, 1.0, 3.0]", "0.3")
    run_study(Plan.parse(text), tmp_path, workers=1)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    other = Plan.parse(text.replace("report = 3", "report = 4"))
    with pytest.raises(
        SettingsError, match=r"holds results of other settings \(seeds.report was 3, is 4\)\. Pass another folder"
    ):
        run_study(other, tmp_path, workers=1)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before
    rows = run_study(other, tmp_path, workers=1, extend=True)
    assert len(rows) == 8
    runs = [path for path in before if path.parent.name == "runs"]
    assert len(runs) == 6
    assert all(path.stat().st_mtime_ns == before[path] for path in runs)
    assert run_study(Plan.parse(text.replace("report = 3", "report = 4").replace("100", "90")), tmp_path, workers=1)
