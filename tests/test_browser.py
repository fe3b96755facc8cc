"""The page in a real browser: at a desk and on a phone, light and dark."""

from __future__ import annotations

import os

import pytest

from browser import Browser, found
from driftls import report
from test_report import PAGE, STORY

SIZES = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]

# Texts of one figure whose boxes overlap by more than a pixel both ways, or which leave their figure or the window.
CROWDED = """
[...document.querySelectorAll("svg")].flatMap(svg => {
  const outer = svg.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
  const out = boxes.filter(([, b]) => b.left < outer.left - 1 || b.right > outer.right + 1 || b.right > innerWidth
                                      || b.top < outer.top - 1 || b.bottom > outer.bottom + 1)
    .map(([text]) => "cut: " + text);
  boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
    const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    // boxes are as high as the font's tallest letter: lines of text that touch do not overlap
    if (wide > 1 && high > 0.4 * Math.min(p.height, q.height)) out.push("overlap: " + a + " / " + b);
  }));
  return out.map(text => (svg.parentElement.id || "finding") + ": " + text);
})
"""
# Boxes of the page's own flow that leave the window; tables may scroll within theirs.
WIDE = """
[...document.querySelectorAll("body *:not(svg *):not(.scroll *)")]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + " " + e.textContent.slice(0, 40))
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if found() is None:
        reason = "no Chromium was found: the page is not opened. Install the package chromium."
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


def check(browser, path, page, width, scheme):
    """What must be true of every page of ours."""
    browser.open(path, width, scheme)
    wrong = [
        e
        for e in browser.events
        if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
    ]
    assert not wrong
    asked = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    assert asked == [path.resolve().as_uri()]
    drawn = browser.value(
        "[...document.querySelectorAll('figure svg')].filter(s => s.getBoundingClientRect().height > 60).length"
    )
    assert drawn == len(page.figures)
    assert browser.value("document.documentElement.scrollWidth") <= width
    ids = browser.value("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    assert browser.value(CROWDED) == []
    assert browser.value(WIDE) == []


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "r.html"
    report.write(PAGE, path)
    return path


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    path = tmp_path_factory.mktemp("story") / "r.html"
    report.write(STORY, path)
    return path


@pytest.mark.parametrize(("width", "scheme"), SIZES, ids=str)
@pytest.mark.parametrize("page", [PAGE, STORY], ids=["runs", "story"])
def test_a_page_is_whole(browser, tmp_path, page, width, scheme):
    report.write(page, tmp_path / "r.html")
    check(browser, tmp_path / "r.html", page, width, scheme)


def move(browser, selector):
    """Put the mouse upon an element."""
    browser.value(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
    x, y, wide, high = browser.value(
        f"(b => [b.x, b.y, b.width, b.height])(document.querySelector({selector!r}).getBoundingClientRect())"
    )
    x, y = x + wide / 2, y + high / 2
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    return x, y


def test_a_point_tells_its_value_and_a_label_switches_its_line_off(browser, story):
    browser.open(story, 1280)
    move(browser, "figure .series .point")
    assert browser.value("document.querySelector('output').innerText").startswith("slow, round n 10: 1.5 (")
    assert browser.value("getComputedStyle(document.querySelector('output')).display") == "block"
    x, y = move(browser, "figure .series .label text")
    assert browser.value("getComputedStyle(document.querySelector('output')).display") == "none"
    lines = "[...document.querySelectorAll('figure .series .line')].map(e => getComputedStyle(e).display)"
    assert browser.value(lines) == ["inline", "inline"]
    for pressed, shown in (("false", ["none", "inline"]), ("true", ["inline", "inline"])):
        for kind in ("mousePressed", "mouseReleased"):
            browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        assert browser.value(lines) == shown
        assert browser.value("document.querySelector('figure .label').getAttribute('aria-pressed')") == pressed


def test_an_inline_handler_would_not_run(browser, tmp_path):
    path = tmp_path / "r.html"
    path.write_text(report.html(PAGE).replace("<footer>", '<p id="evil" onclick="this.textContent = 1">0</p><footer>'))
    browser.open(path, 1280)
    browser.value("document.getElementById('evil').click()")
    assert browser.value("document.getElementById('evil').textContent") == "0"


def test_the_page_is_complete_without_its_script(browser, story):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(story, 1280)
        root = browser.call("DOM.getDocument", depth=-1)["root"]
        text = browser.call("DOM.getOuterHTML", nodeId=root["nodeId"])["outerHTML"]
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    for part in ("A thing.", "✗ does not hold", "fast, round n 100: 10", "1,000 ± 2", "<summary>"):
        assert part in text


@pytest.mark.parametrize(("width", "scheme"), SIZES, ids=str)
def test_the_page_of_the_paper_is_whole(browser, little, tmp_path, width, scheme):
    path = tmp_path / "r.html"
    report.write(little, path)
    check(browser, path, little, width, scheme)


def test_a_request_would_be_noticed_and_refused(browser, tmp_path):
    path = tmp_path / "r.html"
    path.write_text(report.html(PAGE).replace("<footer>", '<img src="http://127.0.0.1:9/x.png"><footer>'))
    with pytest.raises(AssertionError):
        check(browser, path, PAGE, 1280, "light")


def test_labels_that_overlap_would_be_noticed(browser, tmp_path):
    path = tmp_path / "r.html"
    path.write_text(
        report.html(PAGE).replace("</svg>", '<text x="60" y="100">one</text><text x="62" y="101">two</text></svg>', 1)
    )
    with pytest.raises(AssertionError, match="overlap: one / two"):
        check(browser, path, PAGE, 390, "light")


def test_dark_and_light_differ(browser, small):
    colours = (
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('svg text')).fill]"
    )
    seen = []
    for scheme in ("light", "dark"):
        browser.open(small, 1280, scheme)
        seen.append(browser.value(colours))
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] != seen[1][1]
