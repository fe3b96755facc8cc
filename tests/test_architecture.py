"""How the library is put together, held by its own source: design.md has every file, and rooms keep to themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "driftls"
MAP = (ROOT / "docs" / "design.md").read_text()
FILES = sorted(path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".so"))
FILES = [path for path in FILES if path.suffix != ".ir"]  # of which design.md speaks as a whole
SOURCES = [path for path in FILES if path.suffix == ".py"]
COMPILED = ("kernels", "compiling", "features/kernel.py", "logs/parser.py")
OUTSIDE = [path for path in SOURCES if not path.relative_to(PACKAGE).as_posix().startswith(COMPILED)]

# Private names of another package that may be used, and where.
PRIVATE: set[tuple[str, str]] = set()
# What Python and kernels both name; never where in an array something lies.
CONSTANTS = {
    # statuses that kernels return: faults of rows, and what they ask Python for
    *("NOT_FINITE", "BAD_INDEX", "BAD_POINTER", "UNSORTED", "STEP_TOO_LARGE", "DIVERGED"),
    *("NO_ROOM", "NO_DRAWS", "OTHER_KIND", "ATTEND", "LOOK", "AT_ONCE"),
    # what an exact tracker is asked for, and its routes
    *("SUM_UP", "REPAIR", "TRY", "INVERSE"),
    *("SOLVE", "WAITING", "SHERMAN_MORRISON", "INVERT"),
    # kinds: of histories, schedules, averages, score tables
    *("NOTHING", "GROWING", "WINDOW", "RESERVOIR"),
    *("POWER", "TABLE", "NORMALISED"),
    *("LAST", "POLYAK", "TAIL"),
    *("FEATURES", "PAIRS", "CROSSED", "CENTRED"),
    # kinds of log, why its parser stopped, and what it expected
    *("R6A", "R6B", "DONE", "FULL", "NEW", "EXPECTED", "ONE_BLANK", "ARTICLE", "SIX"),
    # layouts of records, for the frames of their owners
    *("ROWS", "UNITS", "COUNTS", "TRACKER", "WIDTH", "POLICY", "CELLS", "LINES"),
    # limits that both sides keep
    *("LARGEST", "SMALLEST_ENTRY", "MILLION", "MOST", "SIX_FEATURES"),
}
# What an object makes for itself, and so may write into: (attribute of self).
MADE = ("_stage", "_units")
# Frames that somebody else than their owner writes into: (file, expression).
WRITES = {("policies/tables.py", "stage.frame")}  # a policy hands its own stage to the crosses


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def package_of(path: Path) -> str:
    """The room: a folder of the library, or a module beside the folders."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


@cache
def private_names() -> dict[str, set[str]]:
    """Which private names are defined in which packages: functions, classes, attributes and variables."""
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            name = getattr(node, "name", None)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                name = node.attr if is_own(node.value) else None
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            if isinstance(name, str) and is_private(name):
                found.setdefault(name, set()).add(package_of(path))
    return found


def is_own(value: ast.expr) -> bool:
    """Self, cls, or super()."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def private_uses(path: Path) -> Iterator[str]:
    """Private names of other packages that a file uses."""
    own = package_of(path)
    for node in ast.walk(tree(path)):
        names = []
        if isinstance(node, ast.Attribute) and not is_own(node.value):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("driftls"):
            names = [alias.name for alias in node.names]
        for name in names:
            if is_private(name) and own not in (places := private_names().get(name, set())) and places:
                yield name


def kernel_constants(path: Path) -> Iterator[str]:
    """Constants of kernels that a file uses, imported by name or through the module."""
    modules = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if re.match(r"driftls\.(kernels|features\.kernel|logs\.parser)", full):
                    if alias.name.isupper():
                        yield alias.name
                    modules.add(alias.asname or alias.name)
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and node.attr.isupper() and ast.unparse(node.value) in modules:
            yield node.attr


def frame_writes(path: Path) -> Iterator[str]:
    """Expressions like tracker.frame that something is written into, where the frame is somebody else's."""
    for node in ast.walk(tree(path)):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = [target.value for target in node.targets if isinstance(target, ast.Subscript)]
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
            targets = [node.target.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "set":
            targets = [node.func.value]
        for target in targets:
            if isinstance(target, ast.Attribute) and target.attr in ("frame", "scratch") and not is_owner(target.value):
                yield ast.unparse(target)


def is_owner(value: ast.expr) -> bool:
    """Self, or something that it has made for itself."""
    return is_own(value) or (isinstance(value, ast.Attribute) and is_own(value.value) and value.attr in MADE)


# -- the map ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_file_is_on_the_map(path):
    assert f"`{name_of(path)}`" in MAP


def test_the_map_has_no_file_that_is_gone():
    layout = MAP.split("## Layout", 1)[1].split("\n## ", 1)[0]
    listed = re.findall(r"^\| `([\w/.]+)` \|", layout, flags=re.M)
    assert len(listed) == len(set(listed)) > 100
    assert {name for name in listed if not (PACKAGE / name).is_file()} == set()


# -- rooms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_module_uses_another_package_s_private_names(path):
    found = {(name_of(path), name) for name in private_uses(path)}
    assert found <= PRIVATE


@pytest.mark.parametrize("path", OUTSIDE, ids=name_of)
def test_what_leaves_the_kernels_is_a_status_or_a_kind(path):
    assert set(kernel_constants(path)) <= CONSTANTS


@pytest.mark.parametrize("path", OUTSIDE, ids=name_of)
def test_nobody_but_its_owner_writes_into_a_frame(path):
    assert {(name_of(path), target) for target in frame_writes(path)} <= WRITES


def test_nothing_is_accepted_that_is_no_longer_there():
    assert {(name_of(path), name) for path in SOURCES for name in private_uses(path)} == PRIVATE
    assert {name for path in OUTSIDE for name in kernel_constants(path)} == CONSTANTS
    assert {(name_of(path), target) for path in OUTSIDE for target in frame_writes(path)} == WRITES


def test_the_checks_see_what_they_are_for(tmp_path, monkeypatch):
    file = tmp_path / "guest.py"
    file.write_text(
        "from driftls.kernels import learn as kernels\n"
        "from driftls.kernels.exact import SOLVE\n"
        "def peep(tracker):\n"
        "    tracker._stage.take(kernels.RUNAWAY)\n"
        "    tracker.frame['dim'] = 3\n"
        "    tracker.frame.set(dim=3)\n"
    )
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    assert list(private_uses(file)) == ["_stage"]
    assert sorted(kernel_constants(file)) == ["RUNAWAY", "SOLVE"]
    assert list(frame_writes(file)) == ["tracker.frame", "tracker.frame"]
