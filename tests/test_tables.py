"""The tables of the documentation: their commands and columns exist, and it is known when they are stale."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from benchmarks import BENCHMARKS, figures
from benchmarks.__main__ import main, options, parser
from benchmarks.measure import ROOT, Mean, Table

SLOTS = list(figures.slots())
MEASURED = re.compile(r"^\|.*(±|\d (µs|ns|ms|s)\b)")


@pytest.mark.parametrize("slot", SLOTS, ids=lambda slot: slot.name)
def test_a_table_has_a_command_that_exists_and_the_columns_that_it_gives(slot):
    given = parser().parse_args(slot.arguments)
    assert given.name in BENCHMARKS
    assert not given.quick
    assert not given.write
    assert options(given).against is None  # a page does not depend on another tree
    assert slot.columns == slot.benchmark.columns, f"run: python -m benchmarks {given.name} --write"


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_has_a_function_and_sources_that_exist(name):
    assert callable(BENCHMARKS[name].load())
    assert all(figures.sources(BENCHMARKS[name]).values())
    assert len(set(BENCHMARKS[name].columns)) == len(BENCHMARKS[name].columns)


def test_tables_have_names_of_their_own_and_what_is_known_of_them_is_of_tables_that_exist():
    names = [slot.name for slot in SLOTS]
    assert len(set(names)) == len(names)
    assert set(figures._taken(ROOT)) <= set(names)


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in figures.pages()])
def test_what_is_measured_stands_between_markers(page):
    text = figures.MARKER.sub("", (ROOT / page).read_text())
    assert not [line for line in text.splitlines() if MEASURED.match(line)]
    assert "<!-- table:" not in text  # a marker that is not understood


def test_code_is_what_runs():
    text = '"""Doc."""\n\n# why\ndef f():\n    """Two\n    lines."""\n    return "#"  # because\n'
    assert figures.code(text) == 'def f():\n    return "#"  # because'
    assert figures.code(text.replace("lines.", "words.").replace("# why\n", "")) == figures.code(text)
    assert figures.code(text.replace('"#"', '"!"')) != figures.code(text)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A page with two tables, and a benchmark of two source files."""
    benchmark = replace(
        BENCHMARKS["rows"], function="trackers:rows", columns=("tracker", "ns"), sources=("core", "a.py")
    )
    monkeypatch.setitem(BENCHMARKS, "rows", benchmark)
    for path in ("benchmarks/trackers.py", "src/driftls/core/b.py", "src/driftls/a.py", "README.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    (tmp_path / "docs").mkdir()
    marker = "<!-- table: {} command: python -m benchmarks rows{} -->\n<!-- end -->\n"
    (tmp_path / "docs/page.md").write_text(
        f"# Page\n\n{marker.format('one', '')}between\n{marker.format('two', ' --seeds 3')}"
    )
    return tmp_path


def taken(project, name):
    slot = next(slot for slot in figures.slots(project) if slot.name == name)
    figures.write(slot, Table([["GD", Mean(3.0, 0.25)]], "A note."), 1.25, project)


def test_a_table_is_written_in_place_with_where_it_comes_from(project):
    taken(project, "two")
    page = (project / "docs/page.md").read_text()
    before, after = page.split("between")
    assert before == "# Page\n\n<!-- table: one command: python -m benchmarks rows -->\n<!-- end -->\n"
    assert (
        "| tracker | ns |\n| --- | --- |\n| GD | 3.00 ± 0.25 |\n\n*A note. `python -m benchmarks rows --seeds 3`"
        in after
    )
    assert re.search(r"commit \w+, \d{4}-\d\d-\d\d, load 1\.2 on \d+ cores\.\*\n<!-- end -->\n$", after)
    taken(project, "two")
    assert (project / "docs/page.md").read_text() == page


def test_a_table_is_stale_once_its_sources_have_changed(project):
    assert figures.stale(project) == {"one": "was never measured", "two": "was never measured"}
    for name in ("one", "two"):
        taken(project, name)
    assert figures.stale(project) == {}
    (project / "src/driftls/core/b.py").write_text("# a comment\n")
    assert figures.stale(project) == {}
    (project / "src/driftls/core/b.py").write_text("x = 1\n")
    assert figures.stale(project)["one"].endswith("since then changed: core")
    taken(project, "one")
    assert set(figures.stale(project)) == {"two"}
    page = project / "docs/page.md"
    page.write_text(page.read_text().replace("| tracker | ns |", "| tracker | ms |", 1).replace("--seeds 3 -->", "-->"))
    assert figures.stale(project) == {
        "one": "has other columns than its benchmark",
        "two": "was measured by `python -m benchmarks rows --seeds 3`",
    }
    (project / "src/driftls/a.py").unlink()
    page.write_text(page.read_text().replace("| tracker | ms |", "| tracker | ns |", 1))
    with pytest.raises(FileNotFoundError, match="a benchmark depends on it"):
        figures.stale(project)


def test_a_benchmark_that_gives_other_cells_than_its_columns_is_refused(monkeypatch):
    monkeypatch.setattr("benchmarks.trackers.rows", lambda options: Table([["GD"]]))
    with pytest.raises(ValueError, match="1 cells for"):
        BENCHMARKS["rows"].run(options(parser().parse_args(["rows"])))


def test_the_command_lists_what_there_is_and_names_what_is_stale(monkeypatch, capsys):
    assert main([]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(BENCHMARKS)
    monkeypatch.setattr(figures, "stale", lambda: {"day": "was never measured"})
    assert main(["--stale"]) == 1
    assert capsys.readouterr().out == "day was never measured.\n"
    monkeypatch.setattr(figures, "stale", dict)
    assert main(["--stale"]) == 0
    with pytest.raises(SystemExit, match="measured by the command in its marker"):
        main(["--write", "--quick"])


def test_only_the_tables_asked_for_are_measured(monkeypatch):
    measured, written = [], []
    monkeypatch.setattr("benchmarks.trackers.rows", lambda options: measured.append(options) or Table())
    monkeypatch.setattr(figures, "write", lambda slot, table, load: written.append(slot.name))
    assert main(["rows", "--write"]) == 0
    assert written == [slot.name for slot in SLOTS if slot.arguments[0] == "rows"] == ["rows"]
    assert len(measured) == 1
    monkeypatch.setattr(figures, "stale", dict)
    assert main(["--write"]) == 0
    assert len(measured) == 1
