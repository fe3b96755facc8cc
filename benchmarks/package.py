"""The package itself: its size, alone and installed; and the figures of its report, for the gallery."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import unescape
from importlib.metadata import Distribution, distribution
from pathlib import Path

from benchmarks.measure import ROOT, Options, Table, tell
from benchmarks.picture import draw

LABEL = re.compile(r'aria-label="([^"]*)"')


def sizes(options: Options) -> Table:
    """Of the wheel, and of what `pip install` puts into an empty environment, by what is installed here."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="driftls-wheel-") as folder:
        tell("building the wheel")
        build = ["wheel", "--quiet", "--no-deps", "--wheel-dir", folder, str(ROOT)]
        subprocess.run([sys.executable, "-m", "pip", *build], check=True, capture_output=True)
        wheel = next(Path(folder).glob("*.whl"))
        rows.append(["the wheel", wheel.stat().st_size / 1e6, None])
    for extra in ("", "cli", "logs", "sklearn", "all"):
        found = dict(_needed("driftls", extra))
        name = f"driftls[{extra}]" if extra else "driftls"
        rows.append([f"`pip install {name}`", sum(map(_size, found.values())) / 1e6, len(found)])
    return Table(rows, f"Python {sys.version_info.major}.{sys.version_info.minor}, compiled Python files not counted.")


def _needed(name: str, *extras: str) -> Iterator[tuple[str, Distribution]]:
    """The package and all that it requires, by the metadata of what is installed."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    todo, seen = [(name, extra) for extra in (*extras, "")], set[tuple[str, str]]()
    while todo:
        name, extra = todo.pop()
        if (canonicalize_name(name), extra) in seen:
            continue
        seen.add((canonicalize_name(name), extra))
        found = distribution(name)
        yield canonicalize_name(name), found
        for line in found.requires or ():
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                todo += [(wanted.name, more) for more in (*wanted.extras, "")]


def _size(found: Distribution) -> int:
    """Of a package's files; of this one, its sources: an editable installation lists none of them."""
    files = (
        (ROOT / "src" / "driftls").rglob("*")
        if found.metadata["Name"] == "driftls"
        else [Path(str(found.locate_file(file))) for file in found.files or ()]
    )
    return sum(file.stat().st_size for file in files if file.is_file() and file.suffix != ".pyc")


def gallery(options: Options) -> Table:
    """Figures of `driftls reproduce --quick`, written beside the pages; what they show is what they say of themselves."""
    with tempfile.TemporaryDirectory(prefix="driftls-gallery-") as made:
        images = Path(made) / "images" if options.quick else ROOT / "docs" / "images"
        command = ["reproduce", "--quick", "--out", f"{made}/report", "--figures", str(images)]
        command += ["--only", "section-4"] if options.quick else []
        if not options.quick:
            for old in images.glob("*.svg"):
                old.unlink()
        subprocess.run([sys.executable, "-m", "driftls", *command], check=True, cwd=ROOT)
        first, rows = draw(images, **({"seeds": 2, "rounds": 100} if options.quick else {})), []
        for path in sorted(images.glob("*.svg"), key=lambda path: (path != first, path.name)):
            said = LABEL.search(path.read_text())
            caption = unescape(said[1]) if said else path.stem
            rows.append([f"![{caption}](images/{path.name})<br>{caption}"])
    return Table(rows, "`driftls reproduce` draws them from more and longer runs.")
