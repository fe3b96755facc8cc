"""A report as Markdown, with its figures beside it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from driftls.report.model import Page, Table
from driftls.report.page import MARKS, counted

__all__ = ["markdown"]


def markdown(page: Page, figures: str) -> str:
    """The page as Markdown; `figures` is the folder of the figures, seen from the file."""
    claims = [claim for section in page.sections for claim in section.claims]
    lines = [f"**{each.question}** {each.text}" for section in page.sections for each in section.findings]
    lines = lines or [f"**{section.title}**: {section.found}" for section in page.sections if section.found]
    parts = [f"# {_text(page.title)}", _text(page.lead), "\n".join(f"- {_text(line)}" for line in lines)]
    if claims:
        rows = [[MARKS[claim.verdict], claim.claim, claim.measured] for claim in claims]
        parts += [counted(page), _rows(["", "The paper", "Measured here"], rows)]
    for section in page.sections:
        parts += [f"## {_text(section.title)}", *map(_text, section.text)]
        for item in section.items:
            title = _text(item.title)
            if isinstance(item, Table):
                parts += [f"### {title}", _rows(item.head, item.rows), _text(item.note)]
            else:
                parts += [f"### {title}", f"![{title}]({figures}/{item.name}.svg)", _text(item.caption)]
    parts += ["## How it was run", "\n".join(f"- {_text(key)}: {_text(value)}" for key, value in page.how.items())]
    return "\n\n".join(filter(None, parts)) + "\n"


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_text(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _text(text: str) -> str:
    """One line of Markdown in which nothing is HTML."""
    return escape(" ".join(text.split()), quote=False)
