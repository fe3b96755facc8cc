"""A report as one HTML file that asks nobody for anything: styles, figures and data are in it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template

from driftls.report.figures import DARK, LIGHT, STYLE, inline, variables
from driftls.report.model import Claim, Item, Page, Section, Table, Verdict

PAGE, SCRIPT, CSS = (
    Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("page.html", "page.js", "style.css")
)
CSS = CSS.replace("LIGHT", variables(LIGHT)).replace("DARK", variables(DARK)) + STYLE
NUMBERS = re.compile(r"[-+−–±\d.,·%×⁻⁰¹²³⁴⁵⁶⁷⁸⁹ ]*|inf|nan")
MARKS: dict[Verdict, str] = {
    "holds": "✓ holds", "in part": "◐ holds in part", "fails": "✗ does not hold", "open": "? not decided here",
}  # fmt: skip


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


# The browser itself refuses whatever would leave the page, and whatever is not this style and this script.
POLICY = f"default-src 'none'; style-src {_hash(CSS)}; script-src {_hash(SCRIPT)}; base-uri 'none'; form-action 'none'"


def html(page: Page) -> str:
    """The page; complete without its script, which tells values and switches lines off."""
    return Template(PAGE).substitute(
        policy=POLICY,
        css=CSS,
        script=SCRIPT,
        title=_text(page.title),
        lead=_text(page.lead),
        summary=_summary(page),
        sections="\n".join(map(_section, page.sections)),
        how="".join(f"<dt>{_text(key)}</dt><dd>{_text(value)}</dd>" for key, value in page.how.items()),
    )


def _summary(page: Page) -> str:
    """Findings with their pictures, then all claims, each with a link to its section."""
    findings = rows = claims = ""
    for section in page.sections:
        link = f'<a href="#{section.name}"'
        for finding in section.findings:
            findings += (
                f'{link} class="finding"><div><h3>{_text(finding.question)}</h3><p>{_text(finding.text)}</p></div>'
                f"{inline(finding.picture, small=True)}</a>"
            )
        for claim in section.claims:
            told = f"<td>{link}>{_text(claim.claim)}</a></td><td>{_text(claim.measured)}</td>"
            rows += f"<tr><td>{_mark(claim)}</td>{told}</tr>"
    if rows:
        head = "<thead><tr><th></th><th>The paper</th><th>Measured here</th></tr></thead>"
        claims = (
            f'<section id="claims"><h2>Is the paper right?</h2><p>{_text(counted(page))}</p>'
            f'<div class="scroll"><table>{head}<tbody>{rows}</tbody></table></div></section>'
        )
    return f'<div class="findings">{findings}</div>{claims}'


def counted(page: Page) -> str:
    """How many claims hold, in one sentence."""
    kinds = Counter(claim.verdict for section in page.sections for claim in section.claims)
    hold, part, fail, undecided = (kinds[verdict] for verdict in MARKS)
    told = f"{hold} hold, {part} hold in part, and {fail} do not"
    return f"Of the paper's {kinds.total()} claims {told}" + (
        f"; {undecided} is not decided here." if undecided else "."
    )


def _mark(claim: Claim) -> str:
    return f'<span class="mark {claim.verdict.replace(" ", "-")}">{MARKS[claim.verdict]}</span>'


def _section(section: Section) -> str:
    claims = "".join(
        f'<div class="claim">{_mark(claim)}<p><b>The paper:</b> {_text(claim.claim)}<br>'
        f"<b>Measured:</b> {_text(claim.measured)}</p></div>"
        for claim in section.claims
    )
    figures = "\n".join(map(_shown, (item for item in section.items if not isinstance(item, Table))))
    figures = f'<div class="figures">{figures}</div>' if figures else ""
    tables = "\n".join(map(_shown, (item for item in section.items if isinstance(item, Table))))
    details = "".join(f"<p>{_text(paragraph)}</p>" for paragraph in section.text) + tables
    if section.claims and details:
        title = "How it was measured" + (", and the numbers" if tables else "")
        details = f"{figures}<details><summary>{title}</summary>{details}</details>"
    else:
        details += figures
    return f'<section id="{section.name}"><h2>{_text(section.title)}</h2>{claims}\n{details}</section>'


def _shown(item: Item) -> str:
    """A figure or a table below its title, with its data; columns of numbers are on the right, and never broken."""
    data = b64encode(item.csv().encode()).decode()
    link = f'<a download="{item.name}.csv" href="data:text/csv;charset=utf-8;base64,{data}">CSV</a>'
    bar = f'<div class="bar"><h3>{_text(item.title)}</h3>{link}</div>'
    if not isinstance(item, Table):
        caption = f"<figcaption>{_text(item.caption)}</figcaption>"
        return f'<figure id="figure-{item.name}">{bar}{inline(item)}{caption}</figure>'
    kinds = ["number" if all(map(NUMBERS.fullmatch, column)) else "words" for column in zip(*item.rows)]
    head, *rows = (
        "<tr>" + "".join(f'<{tag} class="{kind}">{_text(cell)}</{tag}>' for cell, kind in zip(row, kinds)) + "</tr>"
        for tag, row in [("th", item.head), *(("td", row) for row in item.rows)]
    )
    table = f'<table id="table-{item.name}"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<div class="table">{bar}<div class="scroll">{table}</div><p class="note">{_text(item.note)}</p></div>'


def _text(text: str) -> str:
    """Text as HTML; what stands in backticks is code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
