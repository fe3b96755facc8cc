"""The command line, run as a user runs it."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from driftls import __version__, cli, paper
from driftls.cli.common import print_table
from driftls.environments import FreshContexts
from driftls.errors import DriftlsError, InputError, MissingExtraError, SettingsError, StorageError
from driftls.paper import reproduce
from driftls.policies.registry import POLICIES
from driftls.report.model import plus_minus
from driftls.run import Run, interval
from driftls.simulation import simulate


def driftls(*arguments, script=None, alone=False, **environment):
    """Run the command here, as fast as can be; a script that ends in it, or `alone`, in a process of its own."""
    if not (script or alone or environment):
        out, err, code = (*(io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)), 0)
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setenv("COLUMNS", "200")
            try:
                cli.run([str(argument) for argument in arguments])
            except SystemExit as left:
                code = left.code or 0
        return subprocess.CompletedProcess(arguments, code, *(file.buffer.getvalue().decode() for file in (out, err)))
    command = ["-c", script] if script else ["-m", "driftls"]
    return subprocess.run(
        [sys.executable, *command, *map(str, arguments)],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
    )


def test_the_version():
    done = driftls("--version", alone=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"driftls {__version__}\n", "")


def test_alone_it_greets_with_three_things_to_do_first():
    done = driftls()
    assert (done.returncode, done.stderr) == (0, "")
    commands = [line.split() for line in done.stdout.splitlines() if line.startswith("  driftls ")]
    assert [command[1] for command in commands] == ["reproduce", "simulate", "synth", "replay"]
    for command in commands:  # which exist, with these options
        told = driftls(command[1], "--help").stdout
        assert all(option in told for option in command if option.startswith("--"))


def test_help_lists_every_command_in_full():
    told = driftls("--help", COLUMNS="80").stdout
    assert told.startswith("Usage: driftls [OPTIONS] COMMAND")
    listed = [line.split()[0] for line in told.partition("Commands:\n")[2].splitlines()]
    assert sorted(listed) == sorted(command.callback.__name__ for command in cli.app.registered_commands)
    cut = [line.split()[0] for line in told.splitlines() if line.endswith("...")]
    assert [name for name in cut if name != "reproduce"] == ["Usage:"] * cut.count("Usage:")


@pytest.mark.parametrize(
    "command",
    [[], ["warmup"], ["study"], ["fit"], ["reproduce"], ["report"], ["simulate"]],
    ids=lambda command: " ".join(command) or "driftls",
)
def test_help_has_examples(command):
    done = driftls(*command, "--help")
    assert done.returncode == 0
    assert "Examples:\n" in done.stdout
    assert f"    driftls {' '.join(command)}".rstrip() in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["fly"], "No such command 'fly'"),
        (["warmup", "lasso"], "unexpected extra argument"),
        (["reproduce", "--seed", "-1"], "Invalid value for '--seed'"),
        (["reproduce", "--only", "figure-9"], "driftls: only must name experiments, got 'figure-9'. There are "),
        (["reproduce", "--quick", "--full"], "not together with --full"),
        (["reproduce", "--log", "nowhere.gz"], "'nowhere.gz' does not exist"),
        (["reproduce", "--out", __file__], "is a file"),
        (["report"], "Missing argument"),
        (["report", "nowhere.json"], "'nowhere.json' does not exist"),
        (["simulate"], "Missing option '--policy'"),
        (["simulate", "--policy", "linucb,lasso"], "a policy must be one of flinucb-saga, linucb-exact, "),
        (["simulate", "--policy", "linucb", "--bandit", "poker"], "Invalid value for '--bandit'"),
        (["simulate", "--policy", "linucb", "--rounds", "0"], "Invalid value for '--rounds'"),
        (["simulate", "--policy", "linucb", "--nnz", "3"], "fixed-arms has no nnz"),
        (["simulate", "--policy", "linucb", "--sigma", "-1"], ": sigma must be at least 0"),
        (["simulate", "--policy", "linucb", "--sigma", "nan"], ": sigma must be finite"),
        (
            ["simulate", "--policy", "random", "--dim", "99999", "--arms", "99999"],
            "arms x dim must be at most 100,000,000",
        ),
        (
            ["simulate", "--policy", "random", "--out", "/dev/null"],
            "driftls: /dev/null: File exists. A file is where a folder is needed",
        ),
        (["study", "nowhere.toml", "--out", "study"], "'nowhere.toml' does not exist"),
        (["study", ".", "--out", "study"], "is a directory"),
        (["study", sys.executable, "--out", "study"], "expected a study as TOML, got a file that is no text.\n"),
        (["study", __file__, "--out", "study"], "the study cannot be run: "),
        (["simulate", "--policy", "linucb", "--kappa", "-1"], "kappa must "),
    ],
    ids=str,
)
def test_a_wrong_call_exits_with_2(arguments, complaint):
    done = driftls(*arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert not done.stdout


def test_errors_end_a_process_as_they_end_a_call():
    for arguments, code in ((["fly"], 2), (["simulate", "--policy", "linucb", "--sigma", "-1"], 2)):
        here, there = driftls(*arguments), driftls(*arguments, alone=True)
        assert (here.returncode, here.stdout, here.stderr) == (there.returncode, there.stdout, there.stderr)
        assert here.returncode == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SettingsError("steps must be at least 1."), 2),
        (MissingExtraError("needs matplotlib."), 2),
        (InputError("row 3: y must be finite."), 3),
        (DriftlsError("something else."), 3),
        (StorageError("demo: Permission denied. Pass a place where you have permission."), 2),
        (PermissionError(13, "Permission denied", "demo"), 2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_one_line_on_stderr(error, code, monkeypatch, capsys):
    def fail(*arguments, **more):
        raise error

    monkeypatch.setattr(reproduce, "reproduce", fail)
    with pytest.raises(SystemExit) as left:
        cli.run(["reproduce"])
    assert left.value.code == code
    printed = capsys.readouterr()
    line = "demo: Permission denied. Pass a place where you have permission."
    line = line if isinstance(error, OSError) else str(error)
    assert (printed.out, printed.err) == ("", f"driftls: {line}\n")


# Files that are not what a command expects, and what they hold.
WRONG = {
    "empty": b"",
    "junk": bytes(range(256)) * 20,
    "junk.gz": b"\x1f\x8b" + bytes(range(200)),
    "junk.parquet": b"PAR1" + bytes(range(200)) + b"PAR1",
    "latin.toml": "name = 'café'".encode("latin-1"),
    "deep.toml": b"a = " + b"[" * 5000,
    "deep.json": b"[" * 100_000,
    "null.json": b"null",
    "text": b"hello\nworld\n",
}


@pytest.mark.parametrize("name", [*WRONG, "folder", "missing", "/dev/null"])
def test_no_file_whatever_ends_in_a_traceback(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for file, content in WRONG.items():
        Path(file).write_bytes(content)
    Path("day").write_text("1317513291 id-7 1 |user 1 13 |id-7\n")
    before = sorted(tmp_path.rglob("*"))
    for command in (
        ["inspect", name],
        ["convert", name, "--out", "days"],
        ["replay", name, "--policy", "random", "--out", "runs"],
        ["replay", "day", "--warm", name],
        ["report", name, "--out", "page.html"],
        ["study", name, "--out", "study"],
        ["fit", name, "--policy", "linucb", "--out", "warm.policy"],
    ):
        with pytest.raises(SystemExit) as left:
            cli.run(command)
        printed = capsys.readouterr()
        assert left.value.code in (2, 3), command
        assert printed.out == ""
        assert printed.err.splitlines()[-1].startswith(("driftls: ", "Error: ")), command
        assert sorted(tmp_path.rglob("*")) == before, command


@pytest.mark.parametrize("out", ["day", "day/under", "/proc/nowhere", "/dev/null", "a" * 300])
def test_nowhere_to_write_to_is_a_sentence(out, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("day").write_text("1317513291 id-7 1 |user 1 13 |id-7\n")
    problem = ["--policy", "random", "--rounds", "3", "--seeds", "1", "--dim", "2", "--arms", "2"]
    for command in (
        ["simulate", *problem, "--out", out],
        ["replay", "day", "--policy", "random", "--out", out],
        ["synth", "--lines", "5", "--out", out if out != "day" else "day/under"],
    ):
        with pytest.raises(SystemExit) as left:
            cli.run(command)
        told = capsys.readouterr()
        assert (left.value.code, told.out) == (2, ""), command
        assert told.err.splitlines()[-1].startswith(("driftls: ", "Error: "))
        assert os.listdir(tmp_path) == ["day"]


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("driftls", ["numpy", "numba", "scipy", "typer", "rich"]),
        ("driftls.policies", ["typer", "rich", "matplotlib", "sklearn", "scipy.linalg", "driftls.logs", "isal"]),
    ],
)
def test_importing_stays_light(module, heavy):
    done = driftls(script=f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])")
    assert done.stdout == "[]\n"


def test_a_table_shows_names_as_they_are(capsys):
    print_table(["policy", "regret"], [["[red]x", "3"]], "of [all]")
    assert capsys.readouterr().out.splitlines()[2:] == ["[red]x        3", "", "of [all]"]


def test_every_name_of_the_top_level_is_there():
    import driftls as top

    found = {name: getattr(top, name) for name in top.__all__}
    assert {name for name, thing in found.items() if getattr(thing, "__name__", name) != name} == set()
    assert set(dir(top)) == {*found, "__all__"}


@pytest.mark.parametrize(("module", "package", "extra"), [("typer", "typer and rich", "cli")])
def test_a_missing_extra_is_named(module, package, extra, tmp_path):
    script = f"import sys; sys.modules[{module!r}] = None; from driftls.__main__ import main; main()"
    done = driftls("reproduce", "--out", tmp_path / "out", script=script)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"needs {package}, which is not installed. Run: pip install 'driftls[{extra}]'\n")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


# -- warmup ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """What `driftls warmup` says, and the cache that it has filled."""
    cache = tmp_path_factory.mktemp("cache")
    done = driftls("warmup", "--json", DRIFTLS_CACHE_DIR=str(cache))
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout), cache


def compiled(cache):
    return {path: path.stat().st_mtime_ns for path in Path(cache).rglob("*.obj")}


FIRST_ROWS = """
import numpy as np, scipy.sparse as sp
from driftls.policies import DisjointLinUCB, LinUCB
from driftls.trackers import RAW, SAGA

X = np.random.default_rng(0).normal(size=(20, 4))
for rows in (X, sp.csr_array(X)):
    SAGA(4, seed=0, **RAW).partial_fit(rows, X[:, 0]).predict(rows)
    policy, each = LinUCB(4), DisjointLinUCB(4)
    for _ in range(3):
        policy.learn(rows, 1.0, arm=policy.choose(rows))
        each.learn(rows[[0]], 1.0, arm=each.choose(rows[[0]], ids=[1, 2]), ids=[1, 2])
"""


def test_after_warmup_a_new_process_compiles_nothing(warm):
    told, cache = warm
    before = compiled(cache)
    assert told["compiled"] == len(before) > 10
    done = driftls(script=FIRST_ROWS, DRIFTLS_CACHE_DIR=str(cache))
    assert (done.returncode, done.stderr) == (0, "")
    assert compiled(cache) == before


def test_a_second_warmup_has_nothing_to_do_and_shows_a_bar_on_a_terminal(warm):
    told, cache = warm
    before = compiled(cache)
    terminal, stderr = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "driftls", "warmup"],
        env={**os.environ, "DRIFTLS_CACHE_DIR": str(cache), "TERM": "xterm", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=stderr,
    )
    os.close(stderr)
    seen = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    assert done.stdout.decode().startswith(f"0 of {told['parts']} kernels compiled in ")
    assert str(told["folder"]) in done.stdout.decode()
    assert "\x1b[" in seen
    assert compiled(cache) == before


# -- simulate --------------------------------------------------------------------------------------------------------

PROBLEM = ["--dim", 5, "--arms", 4, "--rounds", 60, "--seeds", 3, "--seed", 7]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Two policies on three seeds: what was printed as JSON, and the folder of the runs."""
    out = tmp_path_factory.mktemp("simulate") / "new" / "runs"
    done = driftls("simulate", "--policy", "linucb, random", *PROBLEM, "--out", out, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout), out


def test_simulate_tells_what_its_runs_say(simulated):
    result, out = simulated
    assert (result["metric"], result["runs"], result["report"]) == ("regret", 6, str(out / "report.html"))
    runs = [Run.load(file) for file in (out / "runs").iterdir()]
    assert sorted((run.policy, run.seed, run.rounds) for run in runs) == [
        (name, seed, 60) for name in ("linucb", "random") for seed in (7, 8, 9)
    ]
    assert [row["policy"] for row in result["leaderboard"]] == ["linucb", "random"]
    for row in result["leaderboard"]:
        ends = [run.last("regret") for run in runs if run.policy == row["policy"]]
        assert (row["problem"], row["runs"], row["failed"]) == ("fixed-arms", 3, 0)
        assert (row["mean"], row["half"]) == pytest.approx(interval(ends))
        assert row["microseconds"] > 0
    assert {run.last("relative_tracking_error") for run in runs if run.policy == "linucb"} == {0.0}
    assert "relative_tracking_error" not in next(run for run in runs if run.policy == "random").traces


def test_simulate_prints_the_same_as_a_table(simulated):
    result, _ = simulated
    done = driftls("simulate", "--policy", "linucb,random", *PROBLEM)
    assert (done.returncode, done.stderr) == (0, "")
    found, _, head, _, *lines = done.stdout.splitlines()
    assert found.startswith("fixed-arms: linucb has the best regret, ")
    assert head.split() == ["policy", "regret", "to", "the", "first", "p", "µs", "a", "round", "runs"]
    for line, row in zip(lines, result["leaderboard"]):
        assert line.split()[0] == row["policy"]
        assert " ".join(line.split()[1:4]) == plus_minus(row["mean"], row["half"])
    assert lines[-1].startswith("Next: ")


def test_simulate_takes_policies_by_commas_and_by_options_given_again(tmp_path):
    given = ["--policy", "linucb, greedy", "--policy", "random", "--policy", "linucb,"]
    done = driftls("simulate", *given, *PROBLEM, "--out", tmp_path, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert {row["policy"] for row in found["leaderboard"]} == {"linucb", "greedy", "random"}
    page = (tmp_path / "report.html").read_text()
    assert "<title>Simulated bandits</title>" in page
    assert "Seeds: 3; nothing was tuned." in page


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["linucb", "--nnz", 3], "driftls: fixed-arms has no nnz."),
        (["linucb,lasso"], "driftls: a policy must be one of "),
        (["linucb", "--kappa", -1], "driftls: kappa must "),
        (
            ["linucb", "--sigma", "nan"],
            "driftls: sigma must be finite (and below 1e75), got nan. Nothing was learned.\n",
        ),
    ],
)
def test_simulate_speaks_of_no_study_and_of_no_file(given, said):
    done = driftls("simulate", "--policy", *given)
    assert done.returncode == 2
    assert done.stderr.startswith(said)
    assert "study" not in done.stderr
    assert "$" not in done.stderr


def test_simulate_refuses_a_folder_of_other_settings(simulated):
    _, out = simulated
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    done = driftls("simulate", "--policy", "linucb,random", *PROBLEM, "--sigma", 0.5, "--out", out)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("of other settings (bandits.0.sigma was 0.3, is 0.5). Pass another folder.\n")
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_simulate_plays_the_bandit_it_was_asked_for(tmp_path):
    done = driftls(
        *["simulate", "--bandit", "fresh-contexts", "--nnz", 3, "--reward", "bernoulli", "--policy", "linucb"],
        *["--dim", 6, "--arms", 5, "--rounds", 40, "--seeds", 1, "--kappa", 0.25, "--out", tmp_path, "--json"],
    )
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)["leaderboard"]
    policy = paper.linucb(6, kappa=0.25, seed=0)
    run = simulate(policy, FreshContexts(6, 5, nnz=3, reward="bernoulli", seed=0), 40)
    assert (row["mean"], row["half"]) == (run.last("regret"), None)


def test_every_policy_of_the_help_exists():
    for command in ("simulate", "replay"):
        told = driftls(command, "--help").stdout
        assert [name for name in POLICIES if name not in told] == []
    assert len(POLICIES) == 11
