"""A report as one HTML file that asks nobody for anything: styles, figures and data are in it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from pathlib import Path

from driftls.report.figures import DARK, LIGHT, NAMES, Look, inline
from driftls.report.model import Figure, Item, Page, Section, Table

__all__ = ["html"]

# The browser itself refuses whatever would leave the page.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
COPY = """
document.querySelectorAll("button[data-table]").forEach(button => button.addEventListener("click", () => {
  const rows = [...document.querySelectorAll("#" + button.dataset.table + " tr")];
  const text = rows.map(row => [...row.cells].map(cell => cell.innerText).join("\\t")).join("\\n");
  navigator.clipboard.writeText(text).then(() => { button.textContent = "copied"; });
}));
"""
NUMBERS = re.compile(r"[-+−–±\d.,·%×⁻⁰¹²³⁴⁵⁶⁷⁸⁹ ]*|inf|nan")


def html(page: Page) -> str:
    """The page."""
    found = [section for section in page.sections if section.found]
    summary = "".join(f'<li><a href="#{s.name}">{_text(s.title)}</a>: {_text(s.found)}</li>' for s in found)
    how = "".join(f"<dt>{_text(key)}</dt><dd>{_text(value)}</dd>" for key, value in page.how.items())
    sections = "\n".join(map(_section, page.sections))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{_text(page.title)}</title>
<style>{_style()}</style>
</head>
<body>
<header><h1>{_text(page.title)}</h1><p>{_text(page.lead)}</p></header>
<main>
<div class="summary"><ul>{summary}</ul></div>
{sections}
</main>
<footer><h3>How it was run</h3><dl>{how}</dl></footer>
<script>{COPY}</script>
</body>
</html>
"""


def _style() -> str:
    text = Path(__file__).with_name("style.css").read_text()
    return text.replace("LIGHT", _variables(LIGHT)).replace("DARK", _variables(DARK))


def _variables(look: Look) -> str:
    return ";".join(f"--{name}:{value}" for name, value in zip(NAMES, (*look[:3], *look.series)))


def _section(section: Section) -> str:
    text = "".join(f"<p>{_text(paragraph)}</p>" for paragraph in section.text)
    items = "\n".join(map(_item, section.items))
    return f'<section id="{section.name}"><h2>{_text(section.title)}</h2>{text}\n{items}</section>'


def _item(item: Item) -> str:
    return _table(item) if isinstance(item, Table) else _figure(item)


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
    kinds = [' class="words"' if word else "" for word in words]
    return f"<tr>{''.join(f'<{tag}{kind}>{_text(cell)}</{tag}>' for cell, kind in zip(row, kinds))}</tr>"


def _bar(item: Item, more: str) -> str:
    data = b64encode(item.csv().encode()).decode()
    link = f'<a download="{item.name}.csv" href="data:text/csv;charset=utf-8;base64,{data}">CSV</a>'
    return f'<div class="bar"><h3>{_text(item.title)}</h3><span>{more}{link}</span></div>'


def _text(text: str) -> str:
    """Text as HTML; what stands in backticks is code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
