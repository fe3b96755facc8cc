"""The documentation site: built once, strictly, and opened in a real browser from disk, without a server."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from browser import Browser, found

pytest.importorskip("mkdocstrings", reason="the site's tools are not installed: pip install '.[docs]'")

ROOT = Path(__file__).parent.parent
PAGES = ("index.html", "tutorials/first-bandit.html", "api/policies.html", "math/linucb.html", "gallery.html")


def build(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder / "site"), *more]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if found() is None:
        reason = "no Chromium was found: the site is not opened. Install the package chromium."
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


def opened(browser, site, page, width=1280, scheme="light"):
    """Open a page of the site: nothing is asked of another machine, and nothing goes wrong."""
    browser.open(site / page, width, scheme)
    check(browser)


def check(browser):
    events = [(event["method"], event["params"]) for event in browser.events if "params" in event]
    asked = [params["request"]["url"] for method, params in events if method == "Network.requestWillBeSent"]
    assert asked
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert [params for method, params in events if method in ("Log.entryAdded", "Runtime.exceptionThrown")] == []


def wait(browser, expression, seconds=300.0):
    """The value of an expression, as soon as it is true."""
    end = time.monotonic() + seconds
    while not (value := browser.value(expression)):
        assert time.monotonic() < end, expression
        time.sleep(0.05)
    return value


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_and_asks_for_nothing(browser, site, page, width):
    opened(browser, site, page, width)
    assert browser.value("document.querySelectorAll('h1').length") == 1
    assert browser.value("document.documentElement.scrollWidth") <= width
    broken = "[...document.images].filter(image => !image.complete || image.naturalWidth < 40).map(image => image.src)"
    assert browser.value(broken) == []


def test_the_front_page_is_the_readme_and_leads_on(browser, site):
    opened(browser, site, "index.html")
    assert browser.value("document.querySelector('h1').innerText").startswith("driftls")
    assert browser.value("document.images.length") == 1
    tabs = browser.value("[...document.querySelectorAll('.md-tabs__link')].map(link => link.innerText.trim())")
    assert tabs == ["Home", "Learn", "How do I ...", "Guide", "API", "Maths", "About"]
    assert wait(browser, "document.querySelectorAll('.md-content a[href*=\"tutorials/\"]').length") >= 3


def test_an_api_page_has_signatures_parameters_and_examples_of_the_docstrings(browser, site):
    opened(browser, site, "api/policies.html")
    text = browser.value("document.querySelector('.md-content').innerText")
    for part in (
        "LinUCB(",
        "Parameters:",
        "sigmas",
        "Examples:",
        ">>> policy = LinUCB(dim=3, seed=0)",
        "choose",
        "save",
    ):
        assert part in text


def test_search_finds_a_page_without_a_server(browser, site):
    opened(browser, site, "index.html")
    wait(browser, "typeof __index === 'object' || document.querySelector('.md-search__input') !== null")
    browser.value(
        "(input => { input.focus(); input.value = 'reservoir'; input.dispatchEvent(new Event('input', {bubbles: true}));"
        " input.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})); })(document.querySelector('.md-search__input'))"
    )
    links = wait(browser, "[...document.querySelectorAll('.md-search-result__link')].map(link => link.href)")
    assert any("math/history.html" in link or "api/history.html" in link for link in links)
    check(browser)


@pytest.mark.parametrize("width", [1280, 390])
def test_formulas_are_drawn(browser, site, width):
    opened(browser, site, "math/linucb.html", width)
    boxes = browser.value(
        "[...document.querySelectorAll('.formula math')].map(math => math.getBoundingClientRect())"
        ".map(box => [box.width, box.height])"
    )
    assert boxes
    for wide, high in boxes:
        assert wide > 60
        assert high > 12
    fraction = "document.querySelector('.formula mfrac').getBoundingClientRect().height"
    assert browser.value(fraction) > 25  # one above the other: the browser knows what a fraction is
    assert "\\" not in browser.value("[...document.querySelectorAll('math')].map(math => math.textContent).join(' ')")


def test_dark_and_light_differ(browser, site):
    colours = set()
    for scheme in ("light", "dark"):
        opened(browser, site, "glossary.html", scheme=scheme)
        colours.add(browser.value("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2  # as the reader's system says


def test_a_link_that_leads_nowhere_stops_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# One\n\n[two](two.md), [three](index.md#three)\n")
    (tmp_path / "mkdocs.yml").write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nhooks: []\nplugins: []\nnav: [index.md]\n"
    )
    done = build(tmp_path, "--config-file", str(tmp_path / "mkdocs.yml"))
    assert done.returncode != 0
    assert "two.md" in done.stderr
    assert "#three" in done.stderr
