"""synth, convert and inspect, run as a user runs them."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driftls import DisjointLinUCB, Features
from driftls import replay as replay_log
from driftls.logs import Block, inspect, read, read_table, synthetic_day
from test_cli import driftls

pytest.importorskip("pyarrow", reason="Parquet logs need pyarrow")


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A day that `synth` wrote."""
    folder = tmp_path_factory.mktemp("day")
    done = driftls("synth", "--lines", 3000, "--seed", 4, "--out", folder / "day.gz", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert result == {
        "lines": 3000,
        "seed": 4,
        "out": str(folder / "day.gz"),
        "bytes": (folder / "day.gz").stat().st_size,
    }
    return folder / "day.gz"


def test_synth_writes_the_day_of_the_library_and_parquet_has_its_truth(day: Path, tmp_path: Path) -> None:
    expected = Block.join(synthetic_day(lines=3000, seed=4).blocks(truth=True))
    assert replace(expected, truth=None) == Block.join(read(day).blocks())
    path = tmp_path / "day.parquet"
    done = driftls("synth", "--lines", 3000, "--seed", 4, "--out", path)
    told, following = done.stdout.splitlines()
    assert told == f"Wrote 3,000 lines ({path.stat().st_size / 1e6:.1f} MB) to {path}."
    assert following.startswith(f"Next: driftls replay {path} ")
    assert Block.join(read(path).blocks()) == expected


def test_convert_keeps_every_line_and_says_where(day: Path, tmp_path: Path) -> None:
    done = driftls("convert", day, "--out", tmp_path / "days", "--json")
    result = json.loads(done.stdout)
    assert (result["format"], result["lines"], result["events"], result["skipped"]) == ("R6B", 3000, 3000, 0)
    assert [Path(file).parent.name for file in result["files"]] == ["day=2011-10-01", "day=2011-10-02"]
    assert Block.join(read(tmp_path / "days").blocks()) == Block.join(read(day).blocks())
    again = driftls("convert", day, "--out", tmp_path / "days")
    assert (again.returncode, again.stdout) == (2, "")
    expected = f"{tmp_path / 'days'}: expected a new or an empty folder. Choose another, or remove it."
    assert again.stderr == f"driftls: {expected}\n"


def test_broken_lines_stop_convert_or_are_told(tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_text("1317513291 id-7 0 |user 1 204 |id-7\n1317513291 id-7 1 |user 1 13 |id-7\n")
    done = driftls("convert", path, "--out", tmp_path / "one.parquet")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"driftls: {path}:1:27: expected a feature id")
    assert done.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == ["bad"]
    done = driftls("convert", path, "--out", tmp_path / "one.parquet", "--on-error", "skip")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Wrote 1 of 2 lines of R6B to {tmp_path / 'one.parquet'}.\nNext: driftls ")
    assert done.stderr.startswith(f"Skipped: {path}:1:27: expected a feature id")


def test_inspect_speaks_json_and_text(day: Path) -> None:
    import msgspec

    expected = msgspec.to_builtins(inspect(read(day)))
    done = driftls("inspect", day, "--json")
    assert json.loads(done.stdout) == expected
    text = driftls("inspect", day).stdout
    assert re.search(r"^lines +3,000: 3,000 events, 0 broken *$", text, re.M)
    assert re.search(r"^time +2011-10-01 23:5\d:\d\d to 2011-10-02 23:5\d:\d\d UTC *$", text, re.M)
    assert re.search(rf"^clicks +{expected['clicks']:g}, a rate of {expected['ctr']:.5f} *$", text, re.M)
    p = min(expected["logging"][of]["p"] for of in ("uniform_arms", "uniform_positions"))
    told = rf"^replay +matched lines can be counted: nothing speaks against uniform showing \(p = {p:.2g}"
    assert re.search(told, text, re.M)


def test_inspect_counts_broken_lines_and_stops_at_a_file_that_breaks_off(day: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.gz"
    path.write_bytes(gzip.compress(b"1317513291 id-7 1 |user 1 13 |id-7\nnonsense\n" * 3))
    result = json.loads(driftls("inspect", path, "--json").stdout)
    assert (result["lines"], result["events"], result["skipped"]) == (6, 3, 3)
    assert "expected a time in whole seconds, got `nonsense`" in driftls("inspect", path).stdout
    path.write_bytes(day.read_bytes()[:-100])
    done = driftls("inspect", path)
    assert (done.returncode, done.stdout) == (3, "")
    assert re.fullmatch(
        rf"driftls: {path}: the gzip stream breaks off after line \d+. Fetch the file again.\n", done.stderr
    )


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["synth"], 2, "Missing option '--out'"),
        (
            ["synth", "--out", "no/folder/day.gz", "--lines", "5"],
            2,
            "no/folder/day.gz: there is no folder to save to",
        ),
        (["convert", "--out", "days"], 2, "Missing argument"),
        (["convert", "nothing.gz", "--out", "days"], 2, "does not exist"),
        (["inspect", "nothing.gz"], 2, "does not exist"),
        (["inspect", __file__], 3, "expected a line of R6B"),
        (["inspect", "."], 3, "expected a folder with .parquet files in it, got none"),
    ],
    ids=str,
)
def test_a_wrong_call_has_its_exit_code(
    arguments: list[str], code: int, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = driftls(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == []


def test_without_pyarrow_parquet_says_what_to_install(day: Path, tmp_path: Path) -> None:
    script = "import sys; sys.modules['pyarrow'] = None; from driftls.__main__ import main; main()"
    done = driftls("convert", day, "--out", tmp_path / "days", script=script)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "driftls: a Parquet log needs pyarrow, which is not installed. Run: pip install 'driftls[logs]'\n"
    )
    assert os.listdir(tmp_path) == []
    assert driftls("inspect", day, script=script).returncode == 0


def test_importing_logs_and_features_brings_no_extra() -> None:
    script = "import sys, driftls.logs, driftls.features; print({'pyarrow', 'sklearn', 'pandas'} & set(sys.modules))"
    assert driftls(script=script).stdout == "set()\n"


def test_a_terminal_sees_lines_rate_and_time(day: Path, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    command: list[Any] = [sys.executable, "-m", "driftls", "convert", day, "--out", tmp_path / "days", "--json"]
    environment = {**os.environ, "COLUMNS": "120", "TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, text=True, env=environment) as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                shown += os.read(leader, 1 << 16)
            except OSError:  # the other end is closed
                break
        result, _ = process.communicate()
    os.close(leader)
    assert json.loads(result)["events"] == 3000
    assert re.search(r"days .* 3,000 lines, [\d,]+ a second", shown.decode())


@pytest.mark.parametrize("command", ["synth", "convert", "inspect"])
def test_help_has_examples(command: str) -> None:
    done = driftls(command, "--help")
    assert done.returncode == 0
    assert f"    driftls {command} " in done.stdout


def test_a_table_of_ones_own_is_inspected_and_replayed_by_its_columns(tmp_path: Path) -> None:
    path, runs = tmp_path / "events.csv", tmp_path / "runs"
    lines = [f"{'Oslo' if k % 3 else 'Rome'},{'ab'[k % 2]},{int(k % 6 == 0)},0.5" for k in range(300)]
    path.write_text("\n".join(["city,offer,click,likely", *lines, ""]))
    columns = ("--shown", "offer", "--reward", "click", "--propensity", "likely")
    done = driftls("inspect", path, *columns)
    assert done.returncode == 0, done.stderr
    assert "300: 300 events, 0 broken" in done.stdout
    assert f"Next: driftls replay {path} {' '.join(columns)} --policy" in done.stdout
    for features in ("auto", "hashed"):
        asked = ("replay", path, *columns, "--policy", "linucb-auto", "--features", features, "--json")
        done = driftls(*asked, *(("--out", runs) if features == "auto" else ()))
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["policies"]["linucb-auto"]["lines"] == 300
    done = driftls("replay", path, *columns, "--warm", runs / "linucb-auto.policy", "--frozen", "--json")
    assert done.returncode == 0, done.stderr
    for wrong in (columns[:2], ("--shown", "ofer", *columns[2:]), (*columns, "--features", "outer"), ()):
        done = driftls("replay", path, *wrong, "--policy", "random")
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        assert "--shown" in done.stderr or "ofer" in done.stderr or "--features" in done.stderr


def test_a_log_with_more_features_than_yahoos_is_told_to_say_so(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "wide.parquet"
    rows = {"time": [1, 2, 3, 4], "arms": [[1, 2]] * 4, "shown": [0, 1, 0, 1], "reward": [1.0, 0.0, 1.0, 0.0]}
    pq.write_table(pa.table(rows | {"user_index": [[3], [700], [], [3, 499]]}), path)
    assert "--dim 701" in driftls("inspect", path).stdout
    assert "--dim" in driftls("replay", path, "--policy", "linucb-auto").stderr


def test_lines_that_a_frozen_replay_skipped_are_told_once_and_names_must_differ(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("city,offer,click,p\nO,a,1,.5\nR,b,0,.5\nO,b,x,.5\nR,a,1,.5\n")
    columns = ["--shown", "offer", "--reward", "click", "--propensity", "p"]
    found = driftls("replay", table, *columns, "--policy", "random", "--on-error", "skip", "--frozen")
    assert (found.returncode, found.stderr.count("Skipped: ")) == (0, 1)
    found = driftls("replay", table, *columns, "--policy", "random", "--policy", "random")
    assert found.returncode == 2
    assert "two policies are called random" in " ".join(found.stderr.split())


def test_policies_of_a_replay_are_named_with_commas_or_again(day: Path) -> None:
    for asked in (["random,greedy", "lints"], ["random", "greedy", "lints"], ["random, greedy,lints,"]):
        options = [part for names in asked for part in ("--policy", names)]
        done = driftls("replay", day, "--limit", 50, *options, "--json")
        assert done.returncode == 0, done.stderr
        assert list(json.loads(done.stdout)["policies"]) == ["random", "greedy", "lints"]
    done = driftls("replay", day, "--policy", "random,greedi")
    assert (done.returncode, "greedy" in done.stderr) == (2, True)


def test_the_visitors_columns_are_named_with_commas_or_again(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    lines = [f"{'Oslo' if k % 3 else 'Rome'},{k % 50},{k % 2 * 7},{'ab'[k % 2]},{k % 2}" for k in range(60)]
    path.write_text("\n".join(["city,age,paid,offer,click", *lines, ""]))
    columns = ("--shown", "offer", "--reward", "click")
    found = []
    for visitor in (("--visitor", "city,age"), ("--visitor", "city", "--visitor", "age")):
        done = driftls("replay", path, *columns, *visitor, "--policy", "linucb-auto", "--out", tmp_path / visitor[-1])
        assert done.returncode == 0, done.stderr
        found.append(json.loads((tmp_path / visitor[-1] / "linucb-auto.json").read_bytes())["settings"])
        told = driftls("inspect", path, *columns, *visitor).stdout
        assert f"replay {path} {' '.join(columns)} --visitor city,age --policy" in told
    assert found[0]["command"]["columns"] == found[1]["command"]["columns"] == ["offer", "click", None, "city", "age"]
    alone = tmp_path / "alone.csv"
    alone.write_text("\n".join(re.sub(r"^(\w+,\w+),\w+", r"\1", line) for line in path.read_text().splitlines()))
    assert driftls("replay", alone, *columns, "--policy", "linucb-auto", "--out", tmp_path / "alone").returncode == 0
    found.append(json.loads((tmp_path / "alone" / "linucb-auto.json").read_bytes())["settings"])
    assert found[0]["estimates"] == found[1]["estimates"] == found[2]["estimates"]
    done = driftls("replay", path, *columns, "--visitor", "town", "--policy", "random")
    assert (done.returncode != 0, "expected columns 'town', got 'city'" in done.stderr) == (True, True)
    assert "--shown" in driftls("inspect", path, "--visitor", "city").stderr


def test_inspect_lists_the_columns_of_visitors_and_the_arms_and_calls_money_rewards(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    lines = [f"{'Oslo' if k % 3 else 'Rome'},{k % 50 or ''},{k % 7},{'aab'[k % 3]},{k % 2}" for k in range(60)]
    path.write_text("\n".join(["city,age,paid,offer,click", *lines, ""]))
    text = driftls("inspect", path, "--shown", "offer", "--reward", "click").stdout
    for told in ("clicks +30, a rate of 0.50000", "times shown +a 40, b 20", "visitor's city +text, 2 distinct"):
        assert re.search(rf"^{told} *$", text, re.M)
    assert re.search(r"^visitor's age +number, 49 distinct, 2 missing *$", text, re.M)
    text = driftls("inspect", path, "--shown", "offer", "--reward", "paid").stdout
    assert re.search(r"^rewards +174 in all, a mean of 2.9 *$", text, re.M)
    assert "clicks" not in text


def test_a_replay_that_counts_no_line_says_so_in_place_of_nan(tmp_path: Path) -> None:
    rows = [{"x": k % 2, "offer": "ab"[k % 2], "click": k % 2} for k in range(400)]
    policy = DisjointLinUCB(features=Features(64), seed=0)
    replay_log(
        policy, read_table([row | {"x": k // 2 % 2} for k, row in enumerate(rows)], shown="offer", reward="click")
    )
    policy.save(tmp_path / "fond.policy")
    path = tmp_path / "events.csv"
    path.write_text("\n".join(["x,offer,click", *(f"{k % 2},a,0" for k in range(100)), "1,b,1", ""]))
    columns = ("--shown", "offer", "--reward", "click", "--limit", 100)
    done = driftls("replay", path, *columns, "--warm", tmp_path / "fond.policy")
    assert (done.returncode, "nan" in done.stdout) == (0, False), done.stderr
    assert re.search(r"^fond +no line counted +0 ", done.stdout, re.M)
    assert (
        "Warning: fond: no line counted: most likely the policy insists on an arm that was hardly ever" in done.stdout
    )
    told = json.loads(driftls("replay", path, *columns, "--warm", tmp_path / "fond.policy", "--json").stdout)
    assert told["policies"]["fond"]["ctr"] is None
