"""What `mkdocs build` needs besides pages: formulas, docstrings as Markdown, and the README and its like as pages.

Formulas become MathML, which browsers draw by themselves: no script, no fonts, nothing to fetch.
"""

from __future__ import annotations

import html
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(?<=\]\()[^)\s#]+")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# symbols in the text, as people type them: θ_n, x_ij, θ̃_n, n^0.6
SYMBOL = re.compile(r"(?<!\w)([A-Za-zα-ωΑ-Ω][\u0302-\u0304']?)_(?:\{([^{}]*)\}|([A-Za-z0-9]{1,5}(?![A-Za-z0-9_])))")
POWER = re.compile(r"(?<=\w)\^(−?[A-Za-z0-9.]+|\([^()]*\))")
VERBATIM = re.compile(r"(<(pre|code|math|a|h1)\b.*?</\2>|<[^>]+>)", re.DOTALL)
HEADING = re.compile(r"^-+$")


def on_files(files: Any, config: Any) -> Any:
    """Pages that stand outside of docs/, with links as seen from there."""
    for name, page in OUTSIDE.items():
        text = LINK.sub(lambda found: OUTSIDE.get(found[0], found[0].removeprefix("docs/")), (ROOT / name).read_text())
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to those pages, which lead out of docs/ on disk; and no emphasis between one θ* and the next."""
    up = "../" * page.file.src_uri.count("/")
    for name, made in OUTSIDE.items():
        markdown = markdown.replace(f"](../{up}{name}", f"]({up}{made}")
    return markdown.replace("θ*", "θ∗")


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Formulas, in the text and on lines of their own; on pages of maths, symbols with their indices."""
    content = FORMULA.sub(_mathml, content)
    if not page.file.src_uri.startswith(("math/", "readings", "paper-map", "performance")):
        return content
    parts = VERBATIM.split(content)  # text, what is left as it is, the name of its tag, text, ...
    parts[::3] = [POWER.sub(r"<sup>\1</sup>", SYMBOL.sub(r"\1<sub>\2\3</sub>", text)) for text in parts[::3]]
    return "".join(part or "" for k, part in enumerate(parts) if k % 3 != 2)


def _mathml(found: re.Match[str]) -> str:
    formula = html.unescape(found[2]).strip()
    if found[1] == "span":
        return convert(formula)
    parts = (
        convert(part.strip(), display="block") for part in formula.split(r"\qquad")
    )  # so that a phone can wrap them
    return f'<div class="formula">{"".join(parts)}</div>'


class Docstrings(griffe.Extension):
    """Examples that stand outside of a section are code too, and text after a section is text."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _markdown(obj.docstring.value)


def _markdown(text: str) -> str:
    made, section, fenced, before = list[str](), "", False, ""
    for line, after in pairwise([*text.expandtabs().splitlines(), ""]):
        if HEADING.match(after) and line and not line.startswith(" "):
            section = line
        if section == "Parameters" and not before and line[:1].isupper() and not HEADING.match(after):
            section = ""
            made += ["Notes", "-----"]
        if not section:
            if line.startswith(">>> ") and not fenced:
                fenced = True
                made += ["```pycon"]
            elif fenced and not line:
                fenced = False
                made += ["```"]
        made.append(line)
        before = line
    return "\n".join([*made, *(["```"] if fenced else [])])
