"""Reports: figures, tables, the page, and `driftls report`."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from itertools import combinations
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from driftls import report
from driftls.errors import InputError
from driftls.report import figures, model
from driftls.run import Run, interval
from test_cli import driftls

LINES = model.Lines(
    "growth",
    "Growth <of> two & more",
    "A caption with `code`.",
    "round n",
    "regret",
    [
        model.Line.over_seeds("slow", [10, 100, 1000], [[1.0, 2.0, 3.0], [2.0, 3.0, 5.0]], 1),
        model.Line("fast", [10, 100, 1000], [1.0, 10.0, 100.0], 2, "dashed"),
    ],
)
DOTS = model.Dots(
    "score", "Scores", "", "CTR", [model.Dot("a", 3.0, 0.5), model.Dot("b", 4.0)], marks=[model.Mark(3.5, "here")]
)
TABLE = model.Table("sums", "Sums", ["name", "sum"], [["a, b", "1,000 ± 2"], ["c|d", "0.5"]], "A note.")
CLAIMS = [model.Claim(f"Claim {k}.", "Measured.", verdict) for k, verdict in enumerate(report.MARKS)]
PAGE = model.Page("A page", "Its lead.", [model.Section("one", "One", ["Text."], [LINES, DOTS, TABLE])], {"seed": "3"})
TOLD = model.Section("one", "One", ["Method."], [LINES, TABLE], CLAIMS, [model.Finding("What?", "A thing.", DOTS)])
STORY = model.Page("A story", "", [TOLD])
LABELS = {"slow", "fast", "here"}


def texts(svg):
    return {
        "".join(element.itertext()) for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")
    }


def test_a_figure_has_its_labels_and_takes_its_colours_from_the_page():
    for figure in (LINES, DOTS):
        svg = figures.inline(figure)
        assert "style=" not in svg
        assert texts(svg) >= {label for label in LABELS if label in str(figure)} | {figure.x}
        assert not re.search("#[0-9a-f]{6}", svg)
        assert set(re.findall(r"var\(--(\w+)\)", figures.STYLE)) <= set(figures.NAMES)
        assert not re.search(r'<svg[^>]*\s(width|height|id)="', svg)


def test_a_figure_tells_every_value_without_a_script():
    told = re.findall("<title>(.*?)</title>", figures.inline(LINES))
    assert "fast, round n 100: 10" in told
    assert len(told) == 6
    assert re.fullmatch(r"slow, round n 10: 1\.5 \(.* to .*\)", told[0])


def test_a_band_on_a_logarithmic_axis_never_falls_to_its_end():
    """Runs that differ a hundredfold: the mean minus half of its interval is negative, the band is not."""
    runs = [[0.01, 0.02], [1.0, 2.0], [0.1, 0.1]]
    mean, half = interval([run[0] for run in runs])
    assert mean - half < 0.0
    line = model.Line.over_seeds("wide", [1, 2], runs)
    assert all(0.0 < low < middle < high for low, middle, high in zip(line.low, line.y, line.high))
    np.testing.assert_allclose(np.log(np.divide(line.high, line.y)), np.log(np.divide(line.y, line.low)))
    assert np.log(line.high[0] / mean) == pytest.approx(half / mean)
    signed = model.Line.over_seeds("signed", [1], [[-1.0], [3.0]])
    mean, half = interval([-1.0, 3.0])
    assert (signed.low, signed.high) == ([mean - half], [mean + half])


@pytest.mark.parametrize("log", ["", "x", "y", "xy"])
@pytest.mark.parametrize(
    "values",
    [[], [0.0], [1.0], [-1.0, 2.0], [float("nan")] * 2, [1e308, -1e308], [5e-324, 1.0], [float("inf"), 1.0], [3.0] * 4],
    ids=str,
)
def test_whatever_is_drawn_stays_in_the_figure(values, log):
    line = model.Line("a", range(len(values)), values, 1, "solid", values, values)
    for figure in (
        model.Lines("f", "", "", "x", "y", [line], log),
        model.Dots("f", "", "", "x", [model.Dot("a", value, 1.0) for value in values], log),
    ):
        svg = figures.inline(figure)
        ElementTree.fromstring(svg)
        places = [float(place) for place in re.findall(r'(?:\bx|\by|cx|cy)="([^"]*)"', svg)]
        assert all(-1.0 <= place <= 420.0 for place in places)


@pytest.mark.parametrize(
    ("low", "high", "log", "ticks"),
    [
        (0.0, 1.0, False, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (-3.0, 7.0, False, [-2.0, 0.0, 2.0, 4.0, 6.0]),
        (0.01, 200.0, True, [0.01, 0.1, 1.0, 10.0, 100.0]),
        (8.0, 70.0, True, [10.0, 20.0, 50.0]),
        (90.0, 110.0, True, [90.0, 95.0, 100.0, 105.0, 110.0]),
    ],
)
def test_ticks_are_few_and_round(low, high, log, ticks):
    np.testing.assert_allclose(figures.Axis(low, high, log, 0.0, 1.0).ticks(), ticks, atol=1e-12)


def test_labels_keep_their_order_and_their_distance_and_stay_in_the_figure():
    places = [0.5, 0.52, 0.1, 0.51, 0.9, 0.99, 1.0]
    spread = np.array(figures.spread(places, 0.04, 0.0, 1.0))
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
    for colour in (value for name, value in look.items() if name != "grid"):
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
    seen = [lab(np.array(BLIND[kind]) @ linear(colour)) for colour in (look[f"c{k}"] for k in range(1, 7))]
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
    assert model.number(value) == text


def test_the_page_holds_all_and_asks_for_nothing():
    text = report.html(PAGE)
    assert "Growth &lt;of&gt; two &amp; more" in text
    assert "A caption with <code>code</code>." in text
    assert not re.search(r'(src|href)="(?!#|data:)', text.replace('xlink:href="#', ""))
    assert "default-src 'none'" in text
    assert not re.search(r"\son\w+=", text)  # no inline event handlers, and nothing that would allow them
    assert "unsafe" not in text
    for kind in ("script", "style"):
        [inside] = re.findall(rf"<{kind}>(.*?)</{kind}>", text, flags=re.S)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in text
    assert len(re.findall("<svg", text)) == 2
    for item in (LINES, DOTS, TABLE):
        [data] = re.findall(rf'download="{item.name}.csv" href="data:text/csv;charset=utf-8;base64,([^"]+)"', text)
        assert base64.b64decode(data).decode() == item.csv()


def test_csv_holds_every_point():
    rows = list(csv.reader(io.StringIO(LINES.csv())))
    assert rows[0] == ["series", "round n", "regret", "low", "high"]
    assert rows[4] == ["fast", "10", "1.0", "", ""]
    mean, half = interval([3.0, 5.0])
    ends = [mean * np.exp(sign * half / mean) for sign in (-1, 1)]
    assert [float(cell) for cell in rows[3][1:]] == [1000, mean, *ends]


EVIL = [
    '"><script>alert(1)</script>', "' onload=alert(1) x='", "</style><script>x</script>", "../../../etc/passwd",
    "a b", "a-b", "$\\frac{", "`code`<img src=x onerror=alert(1)>", "=cmd()", "é" * 300, "",
]  # fmt: skip


def evil_run(name):
    traces = {trace: [1.0, 2.0] for trace in EVIL}
    return Run(policy=name, problem=name, seed=0, rounds=50, points=[10, 50], traces=traces, seconds={})


def test_what_came_from_outside_is_escaped_everywhere(tmp_path):
    page = report.of_runs([evil_run(name) for name in EVIL], {name: name for name in EVIL})
    text = report.html(page)
    plain = report.html(PAGE)
    for tag in ("<script", "<style", "<img", "</style"):
        assert text.count(tag) == plain.count(tag)
    allowed = r"""(?:\s+[\w:-]+="[^"<>]*")*\s*/?"""
    for tag in re.findall("<[^>]*>", re.sub("<(script|style)>.*?</\\1>", "", text, flags=re.S)):
        assert re.fullmatch(rf"<(?:/?[\w]+{allowed}|!doctype html)>", tag), tag
        assert not re.search(r"\son\w+=", re.sub('"[^"]*"', "", tag))
    ids = re.findall(r'\sid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[\w-]+", name, flags=re.ASCII) for name in ids)
    files = report.write(page, tmp_path / "deep" / "r.html", figures=tmp_path / "figures")
    assert {file.parent for file in files[1:]} == {tmp_path / "figures"}
    assert len(set(files)) == 1 + len(page.figures)
    for file in files[1:]:
        assert "<script" not in file.read_text()
        assert "<img" not in file.read_text()


@pytest.mark.parametrize(
    "cell", ["=1+1", "+1+1", "-1+1", "@x", "\t=1", "\r=1", "=", "-", "+", " =1", "-0.4 ± 0.1", "-1e", "＝1"]
)
def test_no_spreadsheet_takes_a_cell_for_a_formula(cell):
    table = model.Table("t", "", ["name", cell], [[cell, "1"]])
    lines = model.Lines("l", "", "", cell, cell, [model.Line(cell, [-1], [-2.0])])
    dots = model.Dots("d", "", "", cell, [model.Dot(cell, -1.0)])
    for item in (table, lines, dots):
        cells = [each for row in csv.reader(io.StringIO(item.csv(), newline="")) for each in row]
        assert "'" + re.sub(r"\s", " ", cell) in cells
        assert all(re.fullmatch(r"-\d+(\.\d+)?", each) or each[:1] not in tuple("=+-@\t\r") for each in cells)


@pytest.mark.parametrize("cell", ["-1", "-0.5", "+2", "-1,234.5", "-1e-05", "1 ± 2", "–"])
def test_numbers_stay_numbers(cell):
    assert model.Table("t", "", ["x"], [[cell]]).csv().splitlines()[1].strip('"') == cell


def test_a_story_opens_with_findings_and_claims_and_folds_its_details():
    text = report.html(STORY)
    order = ["What?", "A thing.", "Of the paper&#x27;s 4 claims 1 hold, 1 hold in part, and 1 do not; 1 is not",
             "<h2>One</h2>", 'id="figure-growth"', "<details>", "Method.", 'id="table-sums"']  # fmt: skip
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert all(text.count(mark) == 2 for mark in report.MARKS.values())
    assert "<details>" not in report.html(PAGE)
    data = STORY.data()["one"]
    assert data["findings"] == ["A thing."]
    assert data["claims"] == [[claim.verdict, claim.claim, claim.measured] for claim in CLAIMS]


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [(76.214, 3.618, "76.2 ± 3.6"), (1234.5, 12.3, "1,234 ± 12"), (0.5, float("inf"), "0.5"),
     (2e-7, 3e-8, "2·10⁻⁷ ± 3·10⁻⁸"), (3.0, 0.0, "3 ± 0"), (float("nan"), 1.0, "nan")],
)  # fmt: skip
def test_an_interval_says_how_many_places_count(mean, half, text):
    assert model.plus_minus(mean, half) == text


def test_figures_are_files_too_light_and_dark(tmp_path):
    files = report.write(PAGE, tmp_path / "r.html", figures=tmp_path / "new" / "figures")
    assert [file.relative_to(tmp_path).as_posix() for file in files] == [
        "r.html", "new/figures/growth.svg", "new/figures/score.svg",
    ]  # fmt: skip
    for look in (figures.LIGHT, figures.DARK):
        assert look["c1"] in files[1].read_text()
    assert ElementTree.parse(files[1]).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_a_figure_is_written_the_same_twice(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        figures.save(LINES, tmp_path / folder)
    assert (tmp_path / "a" / "growth.svg").read_bytes() == (tmp_path / "b" / "growth.svg").read_bytes()


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
    assert page.sections[0].findings[0].text.startswith("b has the best regret, 8")
    table, regret, _ = page.sections[0].items
    assert table.rows[0] == ["b", "", "8", "nan", "", "", "3", "1"]
    assert table.rows[1][:3] == ["a", "", model.plus_minus(*interval([10.0, 14.0]))]
    loop = run("c", 1, 1.0)
    loop.seconds.clear()
    loop.seconds["play"] = 5e-4  # of a compiled loop, which does not tell choosing and learning apart
    assert report.of_runs([loop]).sections[0].items[0].rows[0][-2] == "5"
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
    assert result["problem-1"]["1-regret"]["rows"][2:] == [["b", 10, 4.0, None, None], ["b", 100, 8.0, None, None]]
    assert "b has the best regret" in out.read_text()
    told = driftls("report", tmp_path, "--figures", tmp_path / "figures", "--out", out)
    assert told.stdout.endswith(f"Next: open {out}\n")
    assert (tmp_path / "figures" / "1-regret.svg").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": 0, "points": [], "traces": {}, "partial": True},
        {"points": [], "traces": {"regret": []}},
        {"traces": {"regret": [1.0]}},
        {"traces": {"regret": [1e308, -1e308]}},
        {"traces": {"regret": [None, None]}, "seconds": {"play": 0.0}},
    ],
    ids=str,
)
def test_a_run_that_ended_early_or_went_wrong_is_shown_as_far_as_it_goes(change, tmp_path):
    whole = json.loads(msgspec.json.encode(run("a", 1, 2.0)))
    files = [tmp_path / "0.json", tmp_path / "1.json"]
    files[0].write_text(json.dumps(whole))
    files[1].write_text(json.dumps({**whole, "seed": 2, **change}))
    text = report.html(report.of_runs([Run.load(file) for file in files]))
    assert "Fixed" in text


def test_a_file_that_is_no_run_exits_with_3(tmp_path):
    for text in ("{}", "[" * 100_000, "null", '{"traces": 3}'):
        (tmp_path / "x.json").write_text(text)
        for argument in (tmp_path / "x.json", tmp_path):
            done = driftls("report", argument)
            assert (done.returncode, done.stdout) == (3, "")
            assert "x.json: not a run of driftls" in done.stderr
    (tmp_path / "x.json").unlink()
    done = driftls("report", tmp_path)
    assert done.returncode == 3
    assert "holds no JSON file" in done.stderr


def of_a_log(policy, leading, ctr, value, *warnings, seed=0):
    estimates = {"replay": {"value": ctr / 1e4, "low": 0.01, "high": 0.9}}
    estimates |= {leading: {"value": value, "low": value - 0.02, "high": value + 0.03}}
    told = {"leading": leading, "estimates": estimates, "warnings": warnings, "evaluations": 40, "clicks": True}
    return Run(
        policy=policy, problem="day", seed=seed, rounds=100, points=[10, 100], settings=told,
        traces={"ctr": [1.0, ctr], "evaluations": [4.0, 40.0]}, seconds={"play": 1e-4},
    )  # fmt: skip


BIASED = "replay is biased here: lines that the log liked to show count too often"


def test_runs_of_a_log_are_compared_by_the_estimate_that_is_valid_for_it(tmp_path):
    runs = [of_a_log("a", "snips", 3000.0, 0.05, BIASED), of_a_log("b", "snips", 400.0, 0.07, BIASED, "few lines")]
    (section,) = report.of_runs(runs).sections
    assert section.findings[0].text.startswith("b has the best clicks in 10,000 by snips, 700 (95%: 500 to 1,000);")
    board, estimates, ctr, _ = section.items
    assert board.head[2] == "clicks in 10,000 (snips)"
    assert [row[:3] for row in board.rows] == [["b", "", "700"], ["a", "", "500"]]
    assert estimates.rows[0] == ["a", "", "0", "snips", "500", "300 to 800", "40"]
    assert section.text == [f"Warning: {BIASED}.", "Warning: few lines (b)."]
    assert "biased for this log" in ctr.caption
    for one in runs:
        one.save(tmp_path / f"{one.policy}.json")
    told = driftls("report", tmp_path, "--out", tmp_path / "r.html").stdout
    for text in (told, (tmp_path / "r.html").read_text()):
        assert BIASED in text
        assert "500 to 1,000" in text
        assert "3,000" not in text.split("<svg")[0]
    found = json.loads(driftls("report", tmp_path, "--out", tmp_path / "r.html", "--json").stdout)
    assert found["notes"] == {"problem-1": section.text}
    assert re.search(r"a +0? *snips +500 +300 to 800", told)


def test_over_seeds_the_interval_is_that_of_their_estimates():
    runs = [of_a_log("a", "snips", 1.0, value, seed=seed) for seed, value in enumerate((0.05, 0.07, 0.09))]
    (section,) = report.of_runs(runs).sections
    assert section.items[0].rows[0][2] == model.plus_minus(*interval([500.0, 700.0, 900.0]))
    assert len(section.items[1].rows) == 3


def test_a_printed_run_says_what_its_share_of_clicks_is():
    biased, fair = of_a_log("a", "snips", 3000.0, 0.05, BIASED), of_a_log("a", "replay", 500.0, 0.05)
    assert re.search(r"ctr +3000  \(in 10,000 counted lines, biased for this log\)", str(biased))
    assert "valid for this log" in str(biased)
    assert re.search(r"ctr +500  \(in 10,000 counted lines\)", str(fair))
    assert repr(biased).endswith(", snips=0.05, evaluations=40)")
    assert repr(fair).endswith(", ctr=500, evaluations=40)")
    lost = of_a_log("a", "replay", 500.0, 0.05, "replay is biased here, and no estimate is valid: it liked some arms")
    assert "biased for this log" in str(lost)
    assert "valid for this log" not in str(lost)


def test_an_estimate_of_nothing_is_no_number_after_a_file_too(tmp_path):
    nothing = of_a_log("a", "snips", 1.0, float("nan"))
    nothing.save(tmp_path / "a.json")
    assert np.isnan(Run.load(tmp_path / "a.json").leading.value)
    assert "nan" in str(report.of_runs([Run.load(tmp_path / "a.json")]).sections[0].items[1].rows)
