"""`driftls reproduce`: pieces that are done once, golden numbers, and the whole page in a browser."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from driftls import parallel, report
from driftls.errors import InputError, SettingsError
from driftls.logs import synthetic_day
from driftls.paper import reproduce
from driftls.paper.reproduce import common, ctr, replays, runtimes, theorem2
from driftls.paper.reproduce.common import Job, Options
from driftls.report import model

GOLDEN = Path(__file__).parent / "golden" / "reproduce.json"


# -- jobs --------------------------------------------------------------------------------------------------------------


def square(x, folder):
    """Leaves a trace of every call."""
    (Path(folder) / f"called_{x}_{os.getpid()}_{time.monotonic_ns()}").touch()
    if x < 0:
        raise InputError("a square of a negative number was asked for.")
    return {"square": np.array([x, x * x]), "lost": float("nan")}


def squares(tmp_path, *numbers, timed=()):
    return [Job(square, {"x": x, "folder": str(tmp_path)}, x in timed) for x in numbers]


def silent(done, of):
    """Nobody is told."""


def calls(tmp_path):
    return sorted(int(path.name.split("_")[1]) for path in tmp_path.glob("called_*"))


@pytest.mark.parametrize("workers", [1, 2])
def test_jobs_are_done_once_and_told(tmp_path, workers):
    told = []
    for numbers in [(3, 4, 5), (4, 5, 6)]:
        data = common.do(
            squares(tmp_path, *numbers, timed=[5]), tmp_path / "data", workers, lambda *progress: told.append(progress)
        )
        assert data == [{"square": [x, x * x], "lost": None} for x in numbers]
    assert calls(tmp_path) == [3, 4, 5, 6]
    again = told.index((3, 3)) + 1
    assert told[:again] == [(0, 3), (1, 3), (2, 3), (2, 3), (3, 3)]  # the timed one comes last
    assert told[again] == (1, 3)  # found in the folder
    assert told[-1] == (3, 3)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_was_done_before_an_error_is_kept(tmp_path, workers):
    for _ in range(2):
        with pytest.raises(InputError, match="negative"):
            common.do(squares(tmp_path, 2, -1, timed=[-1]), tmp_path / "data", workers, silent)
    assert len(list((tmp_path / "data").iterdir())) == 1
    assert calls(tmp_path).count(2) == 1


def test_a_job_is_known_by_all_that_it_depends_on(tmp_path, monkeypatch):
    log = tmp_path / "day"
    log.write_text("one")
    keys = {Job(square, {"x": x, "log": name}).key for x in (1, 2) for name in ("", str(log))}
    assert len(keys) == 4
    log.write_text("another")
    assert Job(square, {"x": 1, "log": str(log)}).key not in keys
    assert Job(square, {"x": 1, "log": ""}, True).key in keys
    monkeypatch.setattr(parallel, "_sources", lambda: "another")
    assert Job(square, {"x": 1, "log": ""}).key not in keys


def test_an_unknown_experiment_is_refused(tmp_path):
    with pytest.raises(SettingsError, match=r"'figure-7'.*tracking, theorem-1"):
        reproduce.reproduce(Options(), tmp_path, only=["figure-7"])


def test_every_name_is_in_the_help():
    told = " ".join((reproduce.EXPERIMENTS | reproduce.ALIASES).keys())
    from test_cli import driftls

    shown = driftls("reproduce", "--help").stdout
    assert all(name in shown for name in told.split())


def test_sizes_differ_in_work_only():
    for name, each in reproduce.EXPERIMENTS.items():
        quick, usual, full = (each.jobs(Options(size)) for size in (0, 1, 2))
        assert len(quick) <= len(usual) <= len(full), name
        assert {job.function for job in quick} == {job.function for job in full}


# -- the parts of experiments that nothing else tests ------------------------------------------------------------------


@pytest.mark.parametrize("name", replays.BASELINES)
def test_baselines_are_exact_linucb(name):
    rng, dim = np.random.default_rng(3), 7
    policy, A, b = replays.BASELINES[name](dim, kappa=0.5), np.eye(dim), np.zeros(dim)
    for _ in range(40):
        arms = rng.normal(size=(6, dim))
        inverse = np.linalg.inv(A)
        scores = arms @ inverse @ b + 0.5 * np.sqrt(np.einsum("kd,de,ke->k", arms, inverse, arms))
        rewards = rng.normal(size=6)
        [k] = policy.play(arms, rewards[None])
        assert k == np.argmax(scores)
        A, b = A + np.outer(arms[k], arms[k]), b + rewards[k] * arms[k]
    np.testing.assert_allclose(policy.theta, np.linalg.solve(A, b), rtol=1e-10)
    np.testing.assert_allclose(policy.inverse, np.linalg.inv(A), rtol=1e-9, atol=1e-12)


def test_a_ratio_has_the_interval_that_it_should():
    """Of ratios of medians of five lognormal times, some 95% of intervals hold the true one, 3."""
    rng = np.random.default_rng(0)
    draws = [(3.0 * np.exp(0.1 * rng.standard_normal(5)), np.exp(0.1 * rng.standard_normal(5))) for _ in range(300)]
    ratios = [common.ratio(above.tolist(), below.tolist()) for above, below in draws]
    inside = np.mean([each.low <= 3.0 <= each.high for each in ratios])
    assert 0.88 < inside <= 1.0
    assert all(each.low <= each.value <= each.high for each in ratios)


def test_a_share_is_paired():
    base = np.random.default_rng(1).uniform(1.0, 9.0, 40)
    middle, half = common.share((0.6 * base).tolist(), base.tolist())
    assert (middle, half) == (pytest.approx(60.0), pytest.approx(0.0, abs=1e-9))


def test_a_method_has_one_colour():
    for family in (["fLinUCB-GD", "fRLS-GD", "fPEGE-GD", "fPEGE-GD, printed step"], ["fRLS-SAG", "fLinUCB-SAG"],
                   ["SAGA", "SAGA, diagonal widths"], ["LinUCB", "PEGE", "inversion"]):  # fmt: skip
        assert len({common.colour(name) for name in family}) == 1
    assert (
        len({common.colour(name) for name in ("fRLS-GD", "fRLS-SVRG", "fRLS-SAG", "SAGA", "CD", "LinUCB", "random")})
        == 7
    )


def test_pieces_of_a_day_have_one_pool_each_and_hold_its_first_lines():
    lines = 3000
    pieces = list(replays.pieces(lines, 1, 2, "", of=4000))
    assert sum(map(len, pieces)) == lines
    assert all(len(set(piece.pool.tolist())) == 1 and len(piece) <= replays.PIECE for piece in pieces)
    whole = np.concatenate([block.shown for block in synthetic_day(lines=4000, seed=12).blocks()])
    np.testing.assert_array_equal(np.concatenate([piece.shown for piece in pieces]), whole[:lines])


@pytest.mark.parametrize("policy", ["SAGA, diagonal widths", "SAGA, one model an article"])
def test_a_piece_is_played_as_choose_and_learn_would(policy):
    """Both kinds of rewards: of every arm, and of the one that was shown."""
    pieces = list(replays.pieces(60, 3, 2, "", of=400))
    rng = np.random.default_rng(0)
    for all_known in (True, False):
        fast, slow = (replays.POLICIES[policy](5) for _ in range(2))
        for piece in pieces:
            arms, count = replays.Arms(piece), len(replays.Arms(piece).ids)
            rewards = rng.random((len(piece), count)) if all_known else piece.reward
            chosen = arms.play(fast, rewards, None if all_known else piece.shown)
            for i, k in enumerate(chosen):
                article = "article" in policy
                rows = arms.users[[i]] if article else arms.pairs[i * count : (i + 1) * count]
                ids = {"ids": arms.ids} if article else {}
                assert slow.choose(rows, **ids) == k
                if all_known or k == piece.shown[i]:
                    slow.learn(rows, float(rewards[i, k] if all_known else rewards[i]), arm=int(k), **ids)


def test_a_log_is_replayed_and_counts_the_lines_that_match(tmp_path):
    path = tmp_path / "day.gz"
    synthetic_day(lines=900, seed=4).write(path)
    given = {"seed": 0, "day": 2, "log": str(path)}
    jobs = [Job(ctr.score, {"lines": 10**9, **given}), Job(runtimes.spent, {"lines": 300, **given})]
    told, spent = common.do(jobs, tmp_path, 1, silent)
    assert 5 < told["rounds"] < 90
    assert set(replays.POLICIES) < set(told)
    assert spent.keys() == set(runtimes.METHODS)


# -- the whole page, from little work ----------------------------------------------------------------------------------

LITTLE = {"rows": 400, "lines": 200, "rounds": 1500, "runs": 4, "least": 0.0, "phases": 2, "repeats": 2}


def little_page(folder):
    """Every experiment with all its jobs, each as small as it can be."""
    options = Options(size=0, seed=1)
    jobs = {
        name: [
            job._replace(arguments={key: LITTLE.get(key, value) for key, value in job.arguments.items()})
            for job in each.jobs(options)
            if job.arguments.get("seed", 1) < 3  # two seeds are enough for an interval
            and job.arguments.get("dim", 0) <= 128
        ]
        for name, each in reproduce.EXPERIMENTS.items()
    }
    each_show = ((each, common.do(jobs[name], folder, 1, silent)) for name, each in reproduce.EXPERIMENTS.items())
    return model.Page("Little", "", [each.show(options, data) for each, data in each_show])


@pytest.mark.parametrize(("size", "box", "verdict"), [(0, 1.5, "open"), (0, 5.0, "fails"), (1, 1.5, "holds")])
def test_the_quick_run_does_not_say_that_the_printed_step_works(size, box, verdict):
    """It fails where d is large, which the quick run does not reach."""
    regret = {method: [10.0, 30.0, 100.0] for method in theorem2.METHODS}
    regret[theorem2.BOX] = [10.0, 30.0, 100.0 * box]
    data = [{"kind": "regret", "dim": dim, "n": [100, 1000, 10_000], **regret} for dim in (5, 10, 20) for _ in range(3)]
    data.append({"kind": "phase", "dim": 10, **{method: [1.0, 2.0, 3.0] for method in theorem2.TIMED}})
    section = theorem2.show(Options(size=size), data)
    claim = section.claims[1]
    assert claim.verdict == verdict
    assert ("goes to d = 50" in claim.measured) == (size == 0)
    told = report.counted(model.Page("", "", [section]))
    assert ("not decided here" in told) == (verdict == "open")


def test_every_part_of_the_paper_has_its_place(little):
    assert [section.name for section in little.sections] == list(reproduce.EXPERIMENTS)
    assert all(section.text and section.items for section in little.sections)
    assert all(section.claims for section in little.sections)
    items = [item.name for section in little.sections for item in section.items]
    assert len(items) == len(set(items))
    assert {
        "tracking-absolute",
        "tracking-relative",
        "tracking-ours",
        "run-times-paper",
        "ctr-share",
        "settings",
    } < set(items)
    assert all(figure.caption for figure in little.figures)
    text = report.html(little)
    for printed in ("1,367,018", "1,717,997", "4,933", "6,474", "81,818", "107,386", "44,504", "55,630", "75%"):
        assert printed in text


def test_findings_are_short_sentences_with_a_number_and_its_interval(little):
    findings = [finding for section in little.sections for finding in section.findings]
    assert 3 <= len(findings) <= 5
    for finding in findings:
        assert len(finding.text.split()) <= 25, finding.text
        assert finding.text.endswith(".")
        assert "nan" not in finding.text
        assert re.search(r"\d ± \d|\d \(-?[\d.,]+ to [\d.,]+\)", finding.text), finding.text


# -- a run, as a user runs it ------------------------------------------------------------------------------------------

COMMAND = [sys.executable, "-m", "driftls", "reproduce", "--quick", "--seed", "1", "--json"]
EXACT = ["section-4", "theorem-1"]  # small enough, and no clock in them


def only(names):
    return [word for name in names for word in ("--only", name)]


@pytest.fixture(scope="module")
def golden_run(tmp_path_factory):
    """Interrupted once, and started again."""
    out = tmp_path_factory.mktemp("golden")
    command = [*COMMAND, *only(EXACT), "--out", str(out)]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while first.poll() is None and len(list(out.glob("data/[!.]*.json"))) < 3:
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGINT)
    told = first.communicate(timeout=600)
    done = {path: path.stat().st_mtime_ns for path in out.glob("data/[!.]*.json")}
    again = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    return first.returncode, told, done, again, out


def test_an_interrupted_run_says_so_and_goes_on_where_it_was(golden_run):
    code, (out, err), done, again, folder = golden_run
    assert code == 130
    assert out == ""
    assert "Traceback" not in err
    assert done
    assert (again.returncode, again.stderr) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert len(list(folder.glob("data/[!.]*.json"))) > len(done)


def numbers(value, path=""):
    """Every number of nested data, with where it stands."""
    if isinstance(value, dict):
        return {place: n for key, each in value.items() for place, n in numbers(each, f"{path}/{key}").items()}
    if isinstance(value, list):
        return {place: n for k, each in enumerate(value) for place, n in numbers(each, f"{path}/{k}").items()}
    return {} if value is None or isinstance(value, str) else {path: value}


def test_the_numbers_are_those_that_were_stored(golden_run):
    """To 1e-6 of each: sums may be taken in another order elsewhere, some 1e-12 over 4,000 contracting steps."""
    result = json.loads(golden_run[3].stdout)
    result.pop("files")
    stored, now = (numbers(each) for each in (json.loads(GOLDEN.read_text()), result))
    assert stored.keys() == now.keys()
    np.testing.assert_allclose([now[place] for place in stored], list(stored.values()), rtol=1e-6)
