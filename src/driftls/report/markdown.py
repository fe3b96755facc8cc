"""A report as Markdown, with its figures beside it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from driftls.report.model import Item, Page, Table
from driftls.report.page import MARKS

__all__ = ["markdown"]


def markdown(page: Page, figures: str) -> str:
    """The page as Markdown; `figures` is the folder of the figures, seen from the file."""
    claims = [
        [MARKS[claim.verdict], claim.claim, claim.measured] for section in page.sections for claim in section.claims
    ]
    findings = [finding.text for section in page.sections for finding in section.findings]
    lines = findings or [f"**{s.title}**: {s.found}" for s in page.sections if s.found]
    parts = [f"# {_text(page.title)}", _text(page.lead), "\n".join(f"- {_text(line)}" for line in lines)]
    parts.append(_rows(["", "The paper", "Measured here"], claims) if claims else "")
    for section in page.sections:
        parts += [f"## {_text(section.title)}", *map(_text, section.text)]
        parts += [part for item in section.items for part in _item(item, figures)]
    parts += ["## How it was run", "\n".join(f"- {_text(key)}: {_text(value)}" for key, value in page.how.items())]
    return "\n\n".join(filter(None, parts)) + "\n"


def _item(item: Item, figures: str) -> list[str]:
    title = _text(item.title)
    if isinstance(item, Table):
        return [f"### {title}", _rows(item.head, item.rows), _text(item.note)]
    return [f"### {title}", f"![{title}]({figures}/{item.name}.svg)", _text(item.caption)]


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_text(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _text(text: str) -> str:
    """One line of Markdown in which nothing is HTML."""
    return escape(" ".join(text.split()), quote=False)
