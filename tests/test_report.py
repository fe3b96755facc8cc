"""Reports: figures, tables, the page, Markdown, and `driftls report`."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest

from driftls import report
from driftls.errors import InputError
from driftls.report import figures
from driftls.run import Run, interval
from test_cli import driftls

LINES = report.Lines(
    "growth",
    "Growth <of> two & more",
    "A caption with `code`.",
    "round n",
    "regret",
    [
        report.Line.over_seeds("slow", [10, 100, 1000], [[1.0, 2.0, 3.0], [2.0, 3.0, 5.0]], 1),
        report.Line("fast", [10, 100, 1000], [1.0, 10.0, 100.0], 2, "dashed"),
    ],
    marks=[report.Mark(50.0, "here"), report.Mark(2.0, "two", "y")],
)
DOTS = report.Dots("score", "Scores", "", "CTR", [report.Dot("a", 3.0, 0.5), report.Dot("b", 4.0)])
TABLE = report.Table("sums", "Sums", ["name", "sum"], [["a, b", "1,000 ± 2"], ["c|d", "0.5"]], "A note.")
PAGE = report.Page(
    "A page", "Its lead.", [report.Section("one", "One", ["Text."], [LINES, DOTS, TABLE], "found.")], {"seed": "3"}
)
LABELS = {"slow", "fast", "here", "two", "a", "b"}


def texts(svg):
    return {
        "".join(element.itertext()) for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")
    }


def test_a_figure_has_its_labels_and_takes_its_colours_from_the_page():
    for figure in (LINES, DOTS):
        svg = figures.inline(figure)
        assert texts(svg) >= {label for label in LABELS if label in str(figure)} - {"a", "b"} | {figure.x}
        assert not re.search("#[0-9a-f]{6}", svg)
        assert set(re.findall(r"var\(--(\w+)\)", svg)) <= set(figures.NAMES)
        assert not re.search(r'<svg[^>]*\s(width|height)="', svg)


def test_ids_of_two_figures_on_one_page_differ():
    ids = [set(re.findall(r'\bid="([^"]+)"', figures.inline(figure))) for figure in (LINES, DOTS)]
    assert all(ids)
    assert not ids[0] & ids[1]
    svg = figures.inline(LINES)
    assert set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg)) <= {
        pair for name in ids[0] for pair in ((name, ""), ("", name))
    }


def test_labels_keep_their_order_and_their_distance_and_stay_in_the_figure():
    places = [0.5, 0.52, 0.1, 0.51, 0.9, 0.99, 1.0]
    spread = figures.spread(places, 0.04)
    np.testing.assert_array_equal(np.argsort(spread), np.argsort(places))
    assert np.diff(np.sort(spread)).min() > 0.04 - 1e-12
    np.testing.assert_allclose(spread, [0.47, 0.55, 0.1, 0.51, 0.9, 0.96, 1.0])


def linear(colour):
    share = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def luminance(colour):
    return linear(colour) @ [0.2126, 0.7152, 0.0722]


def lab(light):
    """CIE L*a*b* of linear RGB."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ np.clip(light, 0.0, 1.0) / [0.9505, 1.0, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize(
    ("look", "page"), [(figures.LIGHT, "#fdfdfc"), (figures.DARK, "#151516")], ids=["light", "dark"]
)
def test_every_label_can_be_read_on_its_page(look, page):
    """The usual ratio for text, 4.5 to 1 (WCAG 2.1, 1.4.3)."""
    assert f"--page:{page}" in report.html(PAGE)
    for colour in (look.ink, look.muted, *look.series):
        low, high = sorted([luminance(colour), luminance(page)])
        assert (high + 0.05) / (low + 0.05) >= 4.5, colour


# how the three cones' responses look without one kind of cone, on linear RGB (Machado, Oliveira, Fernandes 2009)
BLIND = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}


@pytest.mark.parametrize("kind", BLIND)
@pytest.mark.parametrize("look", [figures.LIGHT, figures.DARK], ids=["light", "dark"])
def test_any_two_series_differ_for_the_colour_blind(look, kind):
    """By 15 in L*a*b*, where 2.3 can just be noticed."""
    seen = [lab(np.array(BLIND[kind]) @ linear(colour)) for colour in look.series]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 15


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234.5, "1,234"),
        (0.01234, "0.0123"),
        (1e-5, "10⁻⁵"),
        (2.5e7, "2.5·10⁷"),
        (float("inf"), "inf"),
        (-3, "-3"),
    ],
)
def test_numbers_are_short(value, text):
    assert report.number(value) == text


def test_the_page_holds_all_and_asks_for_nothing():
    text = report.html(PAGE)
    assert "Growth &lt;of&gt; two &amp; more" in text
    assert "A caption with <code>code</code>." in text
    assert not re.search(r'(src|href)="(?!#|data:)', text.replace('xlink:href="#', ""))
    assert "default-src 'none'" in text
    assert len(re.findall("<svg", text)) == 2
    for item in (LINES, DOTS, TABLE):
        [data] = re.findall(rf'download="{item.name}.csv" href="data:text/csv;charset=utf-8;base64,([^"]+)"', text)
        assert base64.b64decode(data).decode() == item.csv()


def test_csv_holds_every_point():
    rows = list(csv.reader(io.StringIO(LINES.csv())))
    assert rows[0] == ["series", "round n", "regret", "low", "high"]
    assert rows[4] == ["fast", "10", "1.0", "", ""]
    mean, half = interval([3.0, 5.0])
    assert [float(cell) for cell in rows[3][1:]] == [1000, mean, mean - half, mean + half]


def test_markdown_has_the_same_in_words(tmp_path):
    files = report.write(PAGE, tmp_path / "r.md", format="md")
    assert [file.relative_to(tmp_path).as_posix() for file in files] == [
        "r.md", "figures/growth.svg", "figures/growth.pdf", "figures/score.svg", "figures/score.pdf",
    ]  # fmt: skip
    text = files[0].read_text()
    assert "![Scores](figures/score.svg)" in text
    assert "| c\\|d | 0.5 |" in text
    assert "- **One**: found." in text
    assert files[2].read_bytes().startswith(b"%PDF")
    assert figures.LIGHT.series[0] in files[1].read_text()


def test_a_figure_is_written_the_same_twice(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        figures.save(LINES, tmp_path / folder)
    for kind in ("svg", "pdf"):
        assert (tmp_path / "a" / f"growth.{kind}").read_bytes() == (tmp_path / "b" / f"growth.{kind}").read_bytes()


# -- runs --------------------------------------------------------------------------------------------------------------


def run(policy, seed, regret, problem="Fixed", rounds=100):
    traces = {"regret": [regret / 2, regret], "reward": [1.0, float("nan")]}
    return Run(
        policy=policy, problem=problem, seed=seed, rounds=rounds, points=[10, rounds], traces=traces,
        seconds={"choose": 1e-4, "learn": 2e-4},
    )  # fmt: skip


RUNS = [run("a", 1, 10.0), run("a", 2, 14.0), run("b", 1, 8.0), run("a", 1, 3.0, "Other")]


def test_runs_are_compared_problem_by_problem():
    page = report.of_runs(RUNS)
    assert [section.title for section in page.sections] == ["Fixed, 100 rounds", "Other, 100 rounds"]
    assert page.sections[0].found == "b has the lowest regret, 8 on average."
    table, regret, _ = page.sections[0].items
    assert table.rows[0][:3] == ["a", "2", report.plus_minus(*interval([10.0, 14.0]))]
    assert table.rows[1][2:] == ["8", "nan", "1", "2"]
    assert [(line.label, list(line.y)) for line in regret.lines] == [("a", [6.0, 12.0]), ("b", [4.0, 8.0])]
    assert regret.lines[1].low is None


def test_without_runs_there_is_no_report():
    with pytest.raises(InputError, match="at least one run"):
        report.of_runs([])


def test_the_command_reads_files_and_folders(tmp_path):
    for number, each in enumerate(RUNS):
        each.save(tmp_path / f"{number}.json")
    out = tmp_path / "new" / "r.html"
    done = driftls("report", tmp_path, tmp_path / "0.json", "--out", out, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert result["runs"] == 5
    assert result["files"] == [str(out)]
    assert result["problem-1"]["1-regret"]["b"] == {"x": [10, 100], "y": [4.0, 8.0]}
    assert "b has the lowest regret" in out.read_text()
    told = driftls("report", tmp_path, "--format", "md", "--out", tmp_path / "r.md")
    assert told.stdout.endswith(f"The report is {tmp_path / 'r.md'}\n")
    assert (tmp_path / "figures" / "1-regret.pdf").exists()


def test_a_file_that_is_no_run_exits_with_3(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    for argument in (tmp_path / "x.json", tmp_path):
        done = driftls("report", argument)
        assert (done.returncode, done.stdout) == (3, "")
        assert "x.json: not a run of driftls" in done.stderr
    (tmp_path / "x.json").unlink()
    done = driftls("report", tmp_path)
    assert done.returncode == 3
    assert "holds no JSON file" in done.stderr
