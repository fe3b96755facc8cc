"""The cache of compiled parts: damaged, foreign, unwritable or missing, it costs a compilation and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from driftls.cli.studies import every_part
from driftls.compiling import objects, parts
from driftls.kernels import learn

needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files to another user"
)
NOBODY = 65534
BODY = b"machine code, or so it says"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache with one file, `part-1.obj`."""
    monkeypatch.setenv("DRIFTLS_CACHE_DIR", str(tmp_path / "cache"))
    objects.write("part-1.obj", BODY)
    assert objects.read("part-1.obj") == BODY
    return tmp_path / "cache" / "parts"


# -- one file ------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_noticed_in_header_digest_and_body(cache):
    file = cache / "part-1.obj"
    content = file.read_bytes()
    assert len(content) == len(objects.MAGIC) + 32 + len(BODY)
    for at in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[at] ^= 1 << bit
            file.write_bytes(damaged)
            assert objects.read("part-1.obj") is None
    file.write_bytes(content)
    assert objects.read("part-1.obj") == BODY


def test_a_file_that_is_cut_off_or_goes_on_is_noticed(cache):
    file = cache / "part-1.obj"
    content = file.read_bytes()
    for length in range(len(content)):
        file.write_bytes(content[:length])
        assert objects.read("part-1.obj") is None
    file.write_bytes(content + b"\0")
    assert objects.read("part-1.obj") is None


def test_a_whole_file_under_another_name_is_noticed(cache):
    (cache / "part-1.obj").rename(cache / "part-2.obj")
    assert objects.read("part-2.obj") is None
    assert objects.read("part-1.obj") is None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_not_read(cache, mode):
    (cache / "part-1.obj").chmod(mode)
    assert objects.read("part-1.obj") is None
    objects.write("part-1.obj", BODY)  # compiled anew, and ours again
    assert objects.read("part-1.obj") == BODY
    assert (cache / "part-1.obj").stat().st_mode & 0o777 == 0o600


@needs_root
def test_a_file_of_another_user_is_not_read(cache):
    os.chown(cache / "part-1.obj", NOBODY, NOBODY)
    assert objects.read("part-1.obj") is None


def test_a_link_a_folder_and_a_missing_file_are_not_read(cache):
    (cache / "part-1.obj").rename(cache.parent / "elsewhere")
    assert objects.read("part-1.obj") is None
    (cache / "part-1.obj").symlink_to(cache.parent / "elsewhere")
    assert objects.read("part-1.obj") is None
    (cache / "part-1.obj").unlink()
    (cache / "part-1.obj").mkdir()
    assert objects.read("part-1.obj") is None
    objects.write("part-1.obj", BODY)  # which cannot be, and is no error


# -- the folder ----------------------------------------------------------------------------------------------------


def assert_unused(cache: Path) -> None:
    assert objects.folder() is None
    assert objects.read("part-1.obj") is None
    objects.write("part-2.obj", BODY)
    assert not (cache / "part-2.obj").exists()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777, 0o722])
def test_a_folder_that_others_may_write_to_is_not_used(cache, mode):
    cache.chmod(mode)
    assert_unused(cache)


@needs_root
def test_a_folder_of_another_user_is_not_used(cache):
    os.chown(cache, NOBODY, NOBODY)
    assert_unused(cache)


def test_a_link_to_a_folder_is_not_used(cache):
    cache.rename(cache.parent / "real")
    cache.symlink_to(cache.parent / "real")
    assert_unused(cache)


def test_a_place_that_cannot_be_made_is_none(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below", "/proc/driftls"):
        monkeypatch.setenv("DRIFTLS_CACHE_DIR", str(place))
        assert_unused(Path(place) / "parts")


def test_the_cache_lies_where_the_environment_says(tmp_path, monkeypatch):
    for name in ("DRIFTLS_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: _no_home())
    assert objects.folder() is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert objects.folder() == tmp_path / "xdg" / "driftls" / "parts"
    monkeypatch.setenv("DRIFTLS_CACHE_DIR", str(tmp_path / "chosen"))
    assert objects.folder() == tmp_path / "chosen" / "parts"
    assert (tmp_path / "chosen" / "parts").stat().st_mode & 0o777 == 0o700


def _no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_a_part_of_somebody_else_is_compiled_anew_when_its_file_changes(tmp_path):
    digests = set()
    for number in (1, 2):
        file = tmp_path / "mine.py"
        file.write_text(f"def mine(i, n):\n    return {number}.0 * i\n")
        space: dict[str, Any] = {"__name__": "mine"}
        exec(compile(file.read_text(), str(file), "exec"), space)
        typed: dict[str, Any] = {"__name__": "typed"}
        exec(file.read_text(), typed)  # as in a notebook: there is no file
        for function in (space["mine"], typed["mine"]):
            digests.add(objects.part_digest(parts.entry(function)))
            del parts.PARTS[f"{function.__module__}_mine"]
    assert len(digests) == 4
    assert objects.part_digest(learn.learn) == objects.source_digest()[:24] not in digests


# -- what comes with the package ----------------------------------------------------------------------------------


def test_the_ir_that_is_shipped_is_that_of_the_present_sources():
    """Else it is ignored, and a first result waits for the compiler, which takes five times as long."""
    needed = every_part()  # by `driftls warmup`
    stale = [part.name for part in needed if objects.shipped(part) is None]
    assert not stale, (
        f"the IR of {len(stale)} of {len(needed)} parts in src/driftls/compiling/ir is missing or not that of the present "
        f"sources ({', '.join(stale[:3])}, ...). Kernels or what compiles them have changed: run `make ir`."
    )
    names = {f"{part.name}-{objects.part_digest(part)}.ir" for part in needed}
    left = {path.name for path in (objects.HERE / "ir").iterdir()} - names
    assert not left, f"nobody reads {sorted(left)} in src/driftls/compiling/ir: run `make ir`."


def test_the_ir_that_is_made_is_the_ir_that_is_read(tmp_path, monkeypatch):
    objects.source_digest()  # of the sources that are here
    monkeypatch.setattr(objects, "HERE", tmp_path)
    (tmp_path / "ir").mkdir()
    (tmp_path / "ir" / "of-older-sources.ir").write_text("")
    assert objects.shipped(learn.predict) is None
    objects.ship([learn.predict])
    assert [path.name for path in (tmp_path / "ir").iterdir()] == [
        f"learn_predict-{objects.part_digest(learn.predict)}.ir"
    ]
    assert b"define double @learn_predict" in objects.shipped(learn.predict)


# -- whole processes -----------------------------------------------------------------------------------------------

USE = """
import os, sys
from driftls.compiling import compiler, parts
from driftls.kernels import records  # imported while we may still read everything
def warm(i, n):
    total = 0.0
    for k in range(i):
        total += 1.0 / (k + n)
    return total
def tiny(i, n):
    total = 0.0
    for k in range(i):
        total += 1.0 / (k + n)
    return total
warm, tiny, frame = parts.entry(warm), parts.entry(tiny), parts.Frame(records.COUNTS)
if len(sys.argv) > 1:
    cache = os.environ.pop("DRIFTLS_CACHE_DIR")
    os.environ["XDG_CACHE_HOME"] = "/proc/nowhere"
    warm(frame, 7, 3)  # has Numba import whatever it needs
    os.environ["DRIFTLS_CACHE_DIR"] = cache
    os.setgid(int(sys.argv[1]))
    os.setuid(int(sys.argv[1]))
print(tiny(frame, 7, 3).hex())
"""
RIGHT = sum(1.0 / (k + 3) for k in range(7))


def start(cache: Path | None, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for name in ("DRIFTLS_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        environment.pop(name, None)
    if cache is not None:
        environment["DRIFTLS_CACHE_DIR"] = str(cache)
    command = [sys.executable, "-W", "error", "-c", USE, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> float:
    out, error = process.communicate()
    assert process.returncode == 0, error
    return float.fromhex(out)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A cache that a process has filled."""
    cache = tmp_path_factory.mktemp("filled")
    assert answer(start(cache)) == pytest.approx(RIGHT, rel=1e-15)
    assert len(list((cache / "parts").glob("*tiny*.obj"))) == 1
    return cache


def planted(cache: Path) -> Path:
    """The cache with well-sealed code that says something else, as another user would leave it."""
    (code,) = (cache / "parts").glob("*tiny*.obj")
    name, _, _ = code.name.rpartition("-")
    text = f"define double @{name}({'i64, ' * 6}double) {{ ret double 7.0 }}"
    code.write_bytes(objects.sealed(code.name, objects.machine_code(text.encode())))
    return cache


def copied(cache: Path, to: Path) -> Path:
    (to / "parts").mkdir(parents=True, mode=0o700)
    for file in (cache / "parts").iterdir():
        (to / "parts" / file.name).write_bytes(file.read_bytes())
        (to / "parts" / file.name).chmod(0o600)
    return to


def test_a_damaged_cache_is_compiled_over_and_whole_afterwards(filled, tmp_path):
    cache = copied(filled, tmp_path / "cache")
    (file,) = (cache / "parts").glob("*tiny*.obj")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert answer(start(cache)) == pytest.approx(RIGHT, rel=1e-15)
    assert objects.opened(file.name, file.read_bytes())


def test_code_that_another_user_could_have_planted_is_not_run(filled, tmp_path):
    ours = planted(copied(filled, tmp_path / "ours"))
    assert answer(start(ours)) == 7.0  # it would run, if it were trusted
    shared = planted(copied(filled, tmp_path / "shared"))
    (shared / "parts").chmod(0o777)
    assert answer(start(shared)) == pytest.approx(RIGHT, rel=1e-15)


@needs_root
def test_a_cache_that_is_neither_ours_nor_writable_costs_a_compilation(filled, tmp_path):
    cache = planted(copied(filled, tmp_path / "cache"))
    before = {file.name: file.read_bytes() for file in (cache / "parts").iterdir()}
    assert answer(start(cache, str(NOBODY))) == pytest.approx(RIGHT, rel=1e-15)
    assert {file.name: file.read_bytes() for file in (cache / "parts").iterdir()} == before


def test_without_a_home_everything_still_works():
    assert answer(start(None)) == pytest.approx(RIGHT, rel=1e-15)


def test_two_processes_at_once_share_an_empty_cache(tmp_path):
    both = [start(tmp_path / "cache") for _ in range(2)]
    assert [answer(process) for process in both] == pytest.approx([RIGHT, RIGHT], rel=1e-15)
    left = list((tmp_path / "cache" / "parts").iterdir())
    assert {path.suffix for path in left} == {".obj"}
    for file in left:
        assert objects.opened(file.name, file.read_bytes())
