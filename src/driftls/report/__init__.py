"""Reports: one self-contained HTML page with figures and tables."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

from driftls import __version__
from driftls.report.figures import save
from driftls.report.model import Page
from driftls.report.page import MARKS, counted, html
from driftls.report.runs import of_runs

__all__ = ["MARKS", "counted", "how", "html", "of_runs", "write"]


def write(page: Page, path: str | os.PathLike[str], *, figures: Path | None = None) -> list[Path]:
    """Write a report, and every figure as SVG into the folder `figures`, if it is given; returns the files.

    Examples
    --------
    >>> import tempfile
    >>> from driftls.report.model import Line, Lines, Section
    >>> line = Line("y", [1, 10], [1, 100])
    >>> page = Page("Squares", "", [Section("s", "A line", [], [Lines("f", "y", "", "x", "y", [line])])])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [file.name for file in write(page, Path(folder, "r.html"), figures=Path(folder))]
    ['r.html', 'f.svg']
    """
    path = Path(path)
    for folder in (path.parent, figures or path.parent):
        folder.mkdir(parents=True, exist_ok=True)
    path.write_text(html(page), encoding="utf-8")
    return [path, *(save(figure, figures) for figure in page.figures if figures is not None)]


def how(**more: str) -> dict[str, str]:
    """How a report was run: the command, versions and machine, and what else is given."""
    from importlib.metadata import version

    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "numba"))
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return {
        "command": f"`driftls {' '.join(sys.argv[1:])}`",
        **more,
        "driftls": __version__,
        "with": f"Python {platform.python_version()}, {versions}",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores{load}",
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
