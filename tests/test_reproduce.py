"""`driftls reproduce`: pieces that are done once, golden numbers, and the whole page in a browser."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from driftls import report
from driftls.errors import InputError, SettingsError
from driftls.paper import reproduce
from driftls.paper.reproduce import baselines, scaling, work
from driftls.paper.reproduce.work import Options, Piece

GOLDEN = Path(__file__).parent / "golden" / "reproduce.json"


# -- pieces ------------------------------------------------------------------------------------------------------------


def square(x, folder):
    """Leaves a trace of every call."""
    (Path(folder) / f"called_{x}_{os.getpid()}_{time.monotonic_ns()}").touch()
    if x < 0:
        raise InputError("a square of a negative number was asked for.")
    return {"square": np.array([x, x * x]), "lost": float("nan")}


def squares(tmp_path, *numbers, timed=()):
    return {"squares": [Piece(f"lane {x % 2}", square, {"x": x, "folder": str(tmp_path)}, x in timed) for x in numbers]}


def calls(tmp_path):
    return sorted(int(path.name.split("_")[1]) for path in tmp_path.glob("called_*"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_pieces_are_done_once_and_told(tmp_path, jobs):
    told = []
    for numbers in [(3, 4, 5), (4, 5, 6)]:
        data = work.do(
            squares(tmp_path, *numbers, timed=[5]), tmp_path / "data", jobs, lambda *progress: told.append(progress)
        )
        assert data["squares"] == [{"square": [x, x * x], "lost": None} for x in numbers]
    assert calls(tmp_path) == [3, 4, 5, 6]
    assert told[0] == ("squares", 0, 3)
    assert told[-1] == ("squares", 3, 3)
    again = told.index(("squares", 3, 3)) + 1
    assert told[again] == ("squares", 2, 3)  # found in the folder
    assert [done for _, done, _ in told[:again]] == sorted(done for _, done, _ in told[:again])


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_was_done_before_an_error_is_kept(tmp_path, jobs):
    with pytest.raises(InputError, match="negative"):
        work.do(squares(tmp_path, 2, -1, timed=[-1]), tmp_path / "data", jobs, lambda *_: None)
    assert len(list((tmp_path / "data").iterdir())) == 1
    with pytest.raises(InputError, match="negative"):
        work.do(squares(tmp_path, 2, -1, timed=[-1]), tmp_path / "data", jobs, lambda *_: None)
    assert calls(tmp_path).count(2) == 1


def test_a_piece_is_known_by_all_that_it_depends_on(tmp_path):
    log = tmp_path / "day"
    log.write_text("one")
    names = {Piece("lane", square, {"x": x, "folder": folder}).name for x in (1, 2) for folder in ("a", "b", str(log))}
    assert len(names) == 6
    log.write_text("another")
    assert Piece("lane", square, {"x": 1, "folder": str(log)}).name not in names
    assert Piece("other lane", square, {"x": 1, "folder": "a"}, True).name in names


def test_an_unknown_experiment_is_refused(tmp_path):
    with pytest.raises(SettingsError, match=r"'figure-7'.*tracking, settings"):
        reproduce.reproduce(Options(), tmp_path, only=["figure-7"])


def test_every_name_is_in_the_help():
    told = " ".join((reproduce.EXPERIMENTS | reproduce.ALIASES).keys())
    from test_cli import driftls

    shown = driftls("reproduce", "--help").stdout
    assert all(name in shown for name in told.split())


def test_sizes_differ_in_work_only():
    for name, each in reproduce.EXPERIMENTS.items():
        quick, usual, full = (each.pieces(Options(size)) for size in (0, 1, 2))
        assert len(quick) <= len(usual) <= len(full), name
        assert {piece.function for piece in quick} == {piece.function for piece in full}


# -- the parts of experiments that nothing else tests ------------------------------------------------------------------


@pytest.mark.parametrize("name", baselines.BASELINES)
def test_baselines_are_exact_linucb(name):
    rng, dim = np.random.default_rng(3), 7
    policy, A, b = baselines.BASELINES[name](dim, kappa=0.5), np.eye(dim), np.zeros(dim)
    for _ in range(40):
        arms = rng.normal(size=(6, dim))
        inverse = np.linalg.inv(A)
        scores = arms @ inverse @ b + 0.5 * np.sqrt(np.einsum("kd,de,ke->k", arms, inverse, arms))
        k = policy.choose(arms)
        assert k == np.argmax(scores)
        reward = float(rng.normal())
        policy.learn(arms[k], reward)
        A, b = A + np.outer(arms[k], arms[k]), b + reward * arms[k]
    np.testing.assert_allclose(policy.theta, np.linalg.solve(A, b), rtol=1e-10)
    np.testing.assert_allclose(policy.inverse, np.linalg.inv(A), rtol=1e-9, atol=1e-12)


def test_the_crossing_is_none_where_there_is_none():
    low, high = [(10, 1.0), (100, 2.0)], [(10, 3.0), (100, 3.0)]
    assert scaling.crossing(low, high) is None
    assert scaling.crossing(high, low) is None


# -- the whole page, from little work ----------------------------------------------------------------------------------

LITTLE = {"rows": 400, "lines": 200, "rounds": 1500, "runs": 4, "seconds": 0.0, "phases": 1}


def little_page(folder):
    """Every experiment with all its pieces, each as small as it can be."""
    options = Options(size=0, seed=1)
    pieces = {
        name: [
            piece._replace(arguments={key: LITTLE.get(key, value) for key, value in piece.arguments.items()})
            for piece in each.pieces(options)
            if piece.arguments.get("seed", 1) < 3  # two seeds are enough for an interval
        ]
        for name, each in reproduce.EXPERIMENTS.items()
    }
    data = work.do(pieces, folder, 1, lambda *_: None)
    return report.Page("Little", "", [each.show(options, data[name]) for name, each in reproduce.EXPERIMENTS.items()])


def test_every_part_of_the_paper_has_its_place(tmp_path, little):
    names = [section.name for section in little.sections]
    assert names == list(reproduce.EXPERIMENTS)
    assert all(section.found and section.text and section.items for section in little.sections)
    items = [item.name for section in little.sections for item in section.items]
    assert len(items) == len(set(items))
    assert {"tracking-absolute", "tracking-relative", "tracking-ours", "run-times-paper", "ctr-share"} < set(items)
    text = report.html(little)
    for printed in ("1,367,018", "1,717,997", "4,933", "6,474", "81,818", "107,386", "44,504", "55,630", "75%"):
        assert printed in text
    assert "nan" not in "".join(section.found for section in little.sections)
    files = report.write(little, tmp_path / "r.md", format="md")
    assert len(files) == 1 + 2 * len(little.figures)


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
    told = first.communicate(timeout=60)
    done = {path: path.stat().st_mtime_ns for path in out.glob("data/[!.]*.json")}
    again = subprocess.run(command, capture_output=True, text=True, timeout=300)
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
    return {} if isinstance(value, str) else {path: value}


def test_the_numbers_are_those_that_were_stored(golden_run):
    """To 1e-6 of each: sums may be taken in another order elsewhere, some 1e-12 over 4,000 contracting steps."""
    result = json.loads(golden_run[3].stdout)
    result.pop("files")
    stored, now = (numbers(each) for each in (json.loads(GOLDEN.read_text()), result))
    assert stored.keys() == now.keys()
    np.testing.assert_allclose([now[place] for place in stored], list(stored.values()), rtol=1e-6)
