"""The report of a study says who leads, at what cost, which knobs matter, and what was tuned where."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from driftls.errors import DivergenceError
from driftls.report import html, of_runs
from driftls.study import Plan, stages
from test_cli import driftls
from test_study import TEXT
from test_study_results import row


@pytest.fixture(scope="module")
def page():
    rows = [row("linucb", seed, 5.0 + seed, cost=4.0, kappa=0.3) for seed in (10, 11, 12)]
    rows += [row("random", seed, 90.0 + 2 * seed, cost=1.0) for seed in (10, 11, 12)]
    rows += [
        row("linucb", s, 9.0 * k + s, stage="tune", kappa=k) for k, seeds in ((0.3, 4), (3.0, 2)) for s in range(seeds)
    ]
    return of_runs(rows, lead=Plan.parse(TEXT).split)


def items(page):
    return {item.name: item for section in page.sections for item in section.items}


def test_the_leaderboard_has_intervals_and_differences(page):
    first, second = items(page)["1-board"].rows
    assert first[:4] == ["linucb", "kappa = 0.3", "16.0 ± 2.5", ""]
    assert second[0] == "random"
    assert second[3].startswith("96.0 ± ")
    assert "linucb has the best regret" in page.sections[0].findings[0].text


def test_curves_and_knobs_are_drawn(page):
    found = items(page)
    learning = found["1-regret"].lines
    assert [line.label for line in learning] == ["linucb", "random"]
    assert (list(learning[0].x), learning[0].y) == ([1, 2], [0.0, 16.0])  # the mean over seeds at each point
    assert learning[0].low[1] < 16.0 < learning[0].high[1]
    [knob] = [item for item in found.values() if item.title == "linucb: kappa"]
    assert [dot.label for dot in knob.dots] == ["0.3", "3"]


def test_the_split_is_told(page):
    assert "Seeds: 4 to tune knobs on, 3 others to report." in page.lead
    assert "Settings by grid search; after each rung the best 50% by regret went on" in page.lead


def test_where_nothing_was_tuned_no_tuning_is_told():
    text = TEXT.replace("[0.05, 0.3, 1.0, 3.0]", "0.3")
    assert Plan.parse(text).split == "Seeds: 3; nothing was tuned."


def test_the_page_is_whole(page):
    text = html(page)
    assert text.count("<svg") == 1 + len(page.figures) == 3  # one beside the finding


def test_the_command_writes_results_and_a_report(tmp_path):
    (tmp_path / "study.toml").write_text(TEXT)
    command = [sys.executable, "-m", "driftls", "study", "study.toml", "--out", "study", "--workers", "1", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert [one["policy"] for one in told["leaderboard"]] == ["linucb", "random"]
    assert told["leaderboard"][0]["p"] is None
    assert (tmp_path / told["results"]).exists()
    assert "Leaderboard" in (tmp_path / told["report"]).read_text()
    for folder in ("study", "study/runs"):  # runs that tuned knobs are not to be pooled with the others
        refused = driftls("report", str(tmp_path / folder), "--out", str(tmp_path / "r.html"))
        assert (refused.returncode, refused.stdout) == (3, "")
        assert "got those of a study, which has a page of its own" in refused.stderr


def test_a_study_of_which_every_run_fails_says_why_and_exits_with_3(tmp_path, monkeypatch):
    def diverge(*_, **__):
        raise DivergenceError("too far")

    monkeypatch.setattr(stages, "simulate", diverge)
    (tmp_path / "study.toml").write_text(TEXT)
    command = ["study", tmp_path / "study.toml", "--workers", 1, "--out"]
    done = driftls(*command, tmp_path / "a")
    assert done.returncode == 3
    assert "runs failed: DivergenceError: too far" in done.stdout
    assert done.stderr == "driftls: no run succeeded: DivergenceError: too far (of 18 runs).\n"
    assert "too far" in (tmp_path / "a" / "report.html").read_text()
    done = driftls(*command, tmp_path / "b", "--json")
    assert (done.returncode, json.loads(done.stdout)["errors"]) == (
        3,
        [{"error": "DivergenceError: too far", "runs": 18}],
    )


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path):
    (tmp_path / "study.toml").write_text(TEXT.replace("dim = 5", "dim = 0"))
    command = [sys.executable, "-m", "driftls", "study", "study.toml", "--out", "study"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "driftls: study.toml: the study cannot be run: Expected `int` >= 1 - at `$.bandits[0].dim`"
    )
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "study").exists()
