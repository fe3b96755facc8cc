"""A report as Markdown, with its figures beside it."""

from __future__ import annotations

from driftls.report.model import Item, Page, Table

__all__ = ["markdown"]


def markdown(page: Page, figures: str) -> str:
    """The page as Markdown; `figures` is the folder of the figures, seen from the file."""
    parts = [f"# {page.title}", page.lead]
    parts.append("\n".join(f"- **{section.title}**: {section.found}" for section in page.sections if section.found))
    for section in page.sections:
        parts += [f"## {section.title}", *section.text]
        parts += [part for item in section.items for part in _item(item, figures)]
    parts += ["## How it was run", "\n".join(f"- {key}: {value}" for key, value in page.how.items())]
    return "\n\n".join(filter(None, parts)) + "\n"


def _item(item: Item, figures: str) -> list[str]:
    if isinstance(item, Table):
        lines = [item.head, ["---"] * len(item.head), *item.rows]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return [f"### {item.title}", table, item.note]
    return [f"### {item.title}", f"![{item.title}]({figures}/{item.name}.svg)", item.caption]
