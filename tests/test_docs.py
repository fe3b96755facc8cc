"""The documentation runs: every docstring example, and every python block of the README and of docs/."""

from __future__ import annotations

import doctest
import importlib
import re
import tomllib
import traceback
from pathlib import Path

import pytest

from driftls import __version__
from driftls.errors import MissingExtraError

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "driftls"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.M | re.S)


def modules() -> list[str]:
    """Every module of the package, by its file: nothing has to be imported to be found."""
    files = (path.relative_to(PACKAGE.parent).with_suffix("") for path in sorted(PACKAGE.rglob("*.py")))
    return [".".join(file.parts).removesuffix(".__init__") for file in files]


def skip_if_optional(error: ImportError) -> None:
    """A package that is not ours and not installed is a reason to skip; anything else is an error."""
    if isinstance(error, MissingExtraError):
        pytest.skip(str(error))
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("driftls"):
        pytest.skip(f"{error.name} is not installed")
    raise error


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Examples may write files, and draw without a screen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")


@pytest.mark.parametrize("name", modules())
def test_docstrings_run(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        skip_if_optional(error)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def blocks(page: Path) -> list[tuple[int, str]]:
    """(line of its first statement, text) of every python block."""
    text = page.read_text()
    return [(text.count("\n", 0, found.start(1)) + 1, found.group(1)) for found in BLOCK.finditer(text)]


def run(page: Path, line: int, block: str, names: dict) -> str | None:
    """Run one block; None, or what went wrong as file:line: message."""
    if block.lstrip().startswith(">>>"):  # a transcript: what is printed counts too
        report: list[str] = []
        test = doctest.DocTestParser().get_doctest(block, names, page.name, str(page), line - 1)
        result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(
            test, out=report.append, clear_globs=False
        )
        names.update(test.globs)
        return f"{page}:{line}: {''.join(report)}" if result.failed else None
    try:
        exec(compile("\n" * (line - 1) + block, str(page), "exec"), names)
    except ImportError as error:
        skip_if_optional(error)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        at = [frame.lineno for frame in frames if frame.filename == str(page)] or [getattr(error, "lineno", None)]
        return f"{page}:{at[-1] or line}: {type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "CONTRIBUTING.md"],  # whose blocks are run by test_guide.py
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_examples_of_a_page_run(page):
    names = {"__name__": "__page__"}
    for line, block in blocks(page):
        failure = run(page, line, block, names)
        assert failure is None, failure


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "math").glob("*.md")), ids=lambda page: page.stem)
def test_a_page_of_maths_opens_with_its_symbols_and_has_an_example(page):
    text = page.read_text()
    head = text.split("\n## ")[0]
    assert "|---|---|" in head, "a table from symbol to name comes first"
    assert blocks(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_the_readme_can_be_read_in_two_minutes():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 120
    assert text.count("](docs/images/") == 1


def test_the_version_is_in_one_place_and_the_changelog_has_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/driftls/__init__.py"
    sections = re.findall(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert sections == [__version__, "0.1.0"]


def test_a_release_is_refused_while_a_table_is_stale():
    recipe = (ROOT / "Makefile").read_text().split("\ndist:")[1].split("\n\n")[0].splitlines()
    assert recipe[1].endswith("-m benchmarks --stale")  # which exits with 1: see test_tables.py
    assert not recipe[1].startswith("\t-")


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("x = 1\nassert x == 2\n", r"page\.md:4: AssertionError"),
        (">>> 1 + 1\n3\n", r"page\.md:3: "),
        ("x = = 1\n", r"page\.md:3: SyntaxError"),
    ],
)
def test_a_failure_names_file_and_line(tmp_path, block, message):
    page = tmp_path / "page.md"
    page.write_text(f"Words.\n```python\n{block}```\n")
    [(line, text)] = blocks(page)
    assert re.search(message, run(page, line, text, {}) or "")
