"""A report as one HTML file that asks nobody for anything: styles, figures and data are in it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from pathlib import Path

from driftls.report.figures import DARK, LIGHT, STYLE, inline, variables
from driftls.report.model import Claim, Figure, Item, Page, Section, Table, Verdict

__all__ = ["MARKS", "counted", "html"]

HERE = Path(__file__).parent
SCRIPT = (HERE / "page.js").read_text(encoding="utf-8")
CSS = (HERE / "style.css").read_text(encoding="utf-8")
CSS = CSS.replace("LIGHT", variables(LIGHT)).replace("DARK", variables(DARK)) + STYLE
NUMBERS = re.compile(r"[-+−–±\d.,·%×⁻⁰¹²³⁴⁵⁶⁷⁸⁹ ]*|inf|nan")
MARKS: dict[Verdict, str] = {"holds": "✓ holds", "in part": "◐ holds in part", "fails": "✗ does not hold"}


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


# The browser itself refuses whatever would leave the page, and whatever is not this style and this script.
POLICY = f"default-src 'none'; style-src {_hash(CSS)}; script-src {_hash(SCRIPT)}; base-uri 'none'; form-action 'none'"


def html(page: Page) -> str:
    """The page; complete without its script, which copies tables, tells values and switches lines off."""
    how = "".join(f"<dt>{_text(key)}</dt><dd>{_text(value)}</dd>" for key, value in page.how.items())
    sections = "\n".join(map(_section, page.sections))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{_text(page.title)}</title>
<style>{CSS}</style>
</head>
<body>
<header><h1>{_text(page.title)}</h1><p>{_text(page.lead)}</p></header>
<main>
{_summary(page)}
{_claims(page)}
{sections}
</main>
<footer><h3>How it was run</h3><dl>{how}</dl></footer>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _summary(page: Page) -> str:
    """The findings with their pictures; where there are none, a line a section."""
    findings = "".join(
        f'<a class="finding" href="#{section.name}"><p>{_text(finding.text)}</p>'
        f"{inline(finding.picture, small=True)}</a>"
        for section in page.sections
        for finding in section.findings
    )
    if findings:
        return f'<div class="findings">{findings}</div>'
    found = "".join(
        f'<li><a href="#{section.name}">{_text(section.title)}</a>: {_text(section.found)}</li>'
        for section in page.sections
        if section.found
    )
    return f'<div class="summary"><ul>{found}</ul></div>' if found else ""


def counted(page: Page) -> str:
    """How many claims hold, in one sentence."""
    kinds = Counter(claim.verdict for section in page.sections for claim in section.claims)
    hold, part, fail = (kinds[verdict] for verdict in MARKS)
    return f"Of {hold + part + fail} claims of the paper, {hold} hold, {part} hold in part, {fail} do not hold."


def _claims(page: Page) -> str:
    """All claims in one table, each with a link to its section."""
    rows = "".join(
        f'<tr><td>{_mark(claim)}</td><td><a href="#{section.name}">{_text(claim.claim)}</a></td>'
        f"<td>{_text(claim.measured)}</td></tr>"
        for section in page.sections
        for claim in section.claims
    )
    if not rows:
        return ""
    return (
        f'<section id="claims"><h2>Is the paper right?</h2><p>{_text(counted(page))}</p><div class="scroll">'
        "<table><thead><tr><th></th><th>The paper</th><th>Measured here</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _mark(claim: Claim) -> str:
    return f'<span class="mark {claim.verdict.replace(" ", "-")}">{MARKS[claim.verdict]}</span>'


def _section(section: Section) -> str:
    claims = "".join(
        f'<div class="claim">{_mark(claim)}<p><b>The paper:</b> {_text(claim.claim)}<br>'
        f"<b>Measured:</b> {_text(claim.measured)}</p></div>"
        for claim in section.claims
    )
    text = "".join(f"<p>{_text(paragraph)}</p>" for paragraph in section.text)
    figures = "\n".join(_figure(item) for item in section.items if not isinstance(item, Table))
    tables = "\n".join(_table(item) for item in section.items if isinstance(item, Table))
    details = text + tables
    if section.claims and details:
        details = f"<details><summary>How it was measured, and the numbers</summary>{details}</details>"
    head = f"<h2>{_text(section.title)}</h2>{claims}"
    body = f'<div class="figures">{figures}</div>' if figures else ""
    order = body + details if section.claims else text + tables + body
    return f'<section id="{section.name}">{head}\n{order}</section>'


def _figure(figure: Figure) -> str:
    return (
        f'<figure id="figure-{figure.name}">{_bar(figure, "")}{inline(figure)}'
        f"<figcaption>{_text(figure.caption)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    words = [not all(map(NUMBERS.fullmatch, column)) for column in zip(*table.rows)]
    head = _cells("th", table.head, words)
    rows = "".join(_cells("td", row, words) for row in table.rows)
    copy = f'<button type="button" data-table="table-{table.name}">copy</button> '
    return (
        f'<div class="table">{_bar(table, copy)}<div class="scroll"><table id="table-{table.name}">'
        f"<thead>{head}</thead><tbody>{rows}</tbody></table></div>"
        f'<p class="note">{_text(table.note)}</p></div>'
    )


def _cells(tag: str, row: Sequence[str], words: list[bool]) -> str:
    """A row; columns of numbers are on the right, and never broken."""
    kinds = [' class="words"' if word else ' class="number"' for word in words]
    return f"<tr>{''.join(f'<{tag}{kind}>{_text(cell)}</{tag}>' for cell, kind in zip(row, kinds))}</tr>"


def _bar(item: Item, more: str) -> str:
    data = b64encode(item.csv().encode()).decode()
    link = f'<a download="{item.name}.csv" href="data:text/csv;charset=utf-8;base64,{data}">CSV</a>'
    return f'<div class="bar"><h3>{_text(item.title)}</h3><span>{more}{link}</span></div>'


def _text(text: str) -> str:
    """Text as HTML; what stands in backticks is code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
