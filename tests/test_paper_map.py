"""docs/paper-map.md names things that exist, and leaves no label of the paper out."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAP = (ROOT / "docs" / "paper-map.md").read_text()

LABELS = [
    "alg:LinUCBwithBGD",
    "alg:PEGEwithGD",
    "cor:fOLS-GD",
    "eq:SAG",
    "eq:exp-bound-pege",
    "eq:expectation-error-rates",
    "eq:fOLS-GD-update",
    "eq:fOLS-GD-update-again",
    "eq:fRLS-GD-update",
    "eq:high-prob-rates",
    "eq:l2-prob-bound",
    "eq:ols",
    "eq:prob-equivalence-appendix",
    "eq:reg-decomp",
    "eq:reg-ls",
    "eq:roarlsa-update",
    "eq:roarlsa-update-variation",
    "eq:svrg-update",
    "eq:thm2-it-appendix",
    "eq:thm2-pi",
    "fig:normdiff1",
    "fig:normdiff2",
    "fig:normdiff3",
    "fig:runtimes",
    "fig:ttalgo",
    "sec:analysis",
    "sec:conclusions",
    "sec:experiments",
    "sec:fOLS-GD",
    "sec:fRLS-GD",
    "sec:fRLS-GD-bandits",
    "sec:online",
    "sec:strongly-convex-bandits",
    "thm:online-exp",
    "thm:online-high-prob",
    "thm:pege-regret",
]
STATES = {"here", "later (bandits)", "later (replay)", "later (reproduce)", "proof only", "text only"}


def names_in(text: str) -> list[str]:
    return re.findall(r"`(driftls(?:\.\w+)*)`", text)


def rows() -> list[list[str]]:
    """The cells of every row of every table, without the tables' heads."""
    lines = [line for line in MAP.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    heads = {i for i, line in enumerate(lines[1:]) if set(line) <= set("|-")}
    return [row for i, row in enumerate(cells) if i not in heads and i - 1 not in heads]


def found(name: str) -> object:
    """The object of a dotted name: the longest prefix that is a module, then attributes."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            thing: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("driftls"):
                raise
            continue
        for part in parts[length:]:
            thing = getattr(thing, part)
        return thing
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("name", sorted(set(names_in(MAP))))
def test_every_name_of_the_map_exists(name):
    assert found(name) is not None


def test_a_name_that_does_not_exist_would_be_noticed():
    for wrong in ("driftls.trackers.Newton", "driftls.kernels.gd.newton_step", "driftls.nothing.GD"):
        with pytest.raises((AttributeError, ModuleNotFoundError)):
            found(wrong)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_names_of_the_other_pages_exist_too(page):
    for name in names_in(page.read_text()):
        found(name)


@pytest.mark.parametrize("label", LABELS)
def test_every_label_of_the_paper_is_in_the_map(label):
    assert any(f"`{label}`" in row[0] for row in rows())


def test_the_map_knows_no_label_that_the_paper_does_not_have():
    assert set(re.findall(r"`((?:alg|cor|eq|fig|sec|thm):[^`]+)`", MAP)) == set(LABELS)


@pytest.mark.parametrize(
    "file", sorted((ROOT / "src" / "driftls").rglob("*.py")), ids=lambda file: str(file.relative_to(ROOT / "src"))
)
def test_the_labels_in_docstrings_are_in_the_map(file):
    for bracket in re.findall(r"\[([^\]\n]*\b(?:eq|alg|thm|cor|fig):[^\]\n]*)\]", file.read_text()):
        for label in re.findall(r"\b(?:eq|alg|thm|cor|fig):[\w-]+", bracket):
            assert label in LABELS, f"{file.name}: [{bracket}]"


def test_the_kernels_cite_the_paper_s_updates():
    """A leaf of a scheme of the paper has its label in its docstring, and the map leads to that leaf."""
    cited = {}
    for file in (ROOT / "src" / "driftls" / "kernels").glob("*.py"):
        for leaf, docstring in re.findall(r'^def (\w+)\([^"]*?"""(.*?)"""', file.read_text(), flags=re.M | re.S):
            for label in re.findall(r"\b(?:eq):[\w-]+", docstring):
                cited.setdefault(label, set()).add(f"driftls.kernels.{file.stem}.{leaf}")
    assert {"eq:ols", "eq:reg-ls", "eq:fOLS-GD-update", "eq:fRLS-GD-update", "eq:svrg-update", "eq:SAG"} <= set(cited)
    for label, leaves in cited.items():
        code = " ".join(row[2] for row in rows() if f"`{label}`" in row[0])
        assert leaves <= set(names_in(code)), label


def test_every_row_says_where_it_is_or_why_not():
    assert len(rows()) > 80
    for row in rows():
        assert len(row) == 4, row
        assert row[3] in STATES, row
        if row[3] == "here":
            assert names_in(row[2]), row
