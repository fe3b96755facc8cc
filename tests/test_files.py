"""Saved trackers: whole or not at all, and never something else than what was saved."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors.numpy import load, save_file

import driftls
from cases import CASES, make, rows
from driftls import persistence
from driftls.errors import (
    CorruptFileError,
    DriftlsError,
    FileFormatError,
    MissingFileError,
    NewerFileError,
    OlderFileError,
    SettingsError,
    StorageError,
    TruncatedFileError,
)
from driftls.history import Reservoir
from driftls.policies import registry
from driftls.trackers import CD, GD, OLS, RAW, RLS, SAG, SAGA, SVRG, Diagonal

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture
def saved(tmp_path):
    """A small tracker, its file, and the file's bytes."""
    X, y = rows(density=0.5)
    tracker = SAGA(X.shape[1], seed=0, history=Reservoir(3), **RAW).partial_fit(sp.csr_array(X[:9]), y[:9])
    tracker._draws.take(int(8192 - tracker._draws.cursor[0]) - 4)  # a file of a few hundred bytes of data
    path = tmp_path / "t.safetensors"
    tracker.save(path)
    return tracker, path, path.read_bytes()


def header_end(content: bytes) -> int:
    return 8 + struct.unpack("<Q", content[:8])[0]


def assert_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=path.name) as caught:
        SAGA.load(path)
    if type(caught.value) is FileFormatError:
        assert re.search("not a file of driftls|not driftls'", str(caught.value))


def test_a_file_cut_off_anywhere_is_refused(saved):
    _, path, content = saved
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(TruncatedFileError, match=r"t\.safetensors: ends after \d+"):
            SAGA.load(path)


def test_a_file_with_something_behind_it_is_refused(saved):
    _, path, content = saved
    assert_refused(path, content + b"\0")


@pytest.mark.parametrize("mask", [0x01, 0x02, 0x0F, 0x20, 0x80, 0xFF])
def test_every_changed_byte_of_the_header_is_noticed(saved, mask):
    _, path, content = saved
    for at in range(header_end(content)):
        damaged = bytearray(content)
        damaged[at] ^= mask
        assert_refused(path, bytes(damaged))


def test_every_changed_byte_of_the_data_is_noticed(saved):
    _, path, content = saved
    for at in range(header_end(content), len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match="checksum does not match"):
            SAGA.load(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"dtype":"F64"', b'"dtype":"I64"'),
        (b'"dtype":"F64"', b'"dtype":"U64"'),
        (b'"dtype":"I32"', b'"dtype":"F32"'),
        (b'"shape":[2,6]', b'"shape":[6,2]'),
        (b'"shape":[2,6]', b'"shape":[4,3]'),
        (b'"data_offsets":[0,', b'"data_offsets":[0.'),
        (b'"data_offsets":[0,', b'"data_offsets":{0,'),
        (b"residual", b"Residual"),
    ],
)
def test_bytes_that_would_be_read_as_something_else_are_refused(saved, old, new):
    _, path, content = saved
    assert old in content
    assert_refused(path, content.replace(old, new))


def test_swapped_arrays_are_refused(saved):
    _, path, content = saved
    for old, new in ((b"state.residual", b"history.values"), (b'sparse\\": true', b'sparse\\":false')):
        assert old in content
        assert_refused(path, content.replace(old, new))


def rewritten(content: bytes, **changes: object) -> bytes:
    """The file with other entries in its header, and with the right sum."""
    end = header_end(content)
    entries = json.loads(content[8:end])
    text = entries["__metadata__"]["driftls"].partition(" ")[2]
    text = json.dumps({**json.loads(text), **changes})
    entries["__metadata__"] = {"driftls": f"{persistence.checksum(text, load(content))} {text}"}
    packed = json.dumps(entries).encode()
    packed += b" " * (-len(packed) % 8)
    return struct.pack("<Q", len(packed)) + packed + content[end:]


def test_a_file_of_a_newer_version_is_refused(saved):
    _, path, content = saved
    path.write_bytes(rewritten(content, version=persistence.VERSION + 1))
    with pytest.raises(NewerFileError, match="format version 3, but this driftls reads up to 2"):
        SAGA.load(path)
    path.write_bytes(rewritten(content))
    assert len(SAGA.load(path)) == 9


def test_a_file_that_driftls_0_1_wrote_is_refused_with_what_to_do():
    old = Path(__file__).parent / "golden" / "rls-0.1.driftls"  # RLS(2), two rows, saved by 0.1.0
    for opened in (RLS.load, registry.load):
        with pytest.raises(
            OlderFileError, match=r"^rls-0\.1\.driftls: format version 1, from driftls 0\.1.*Learn it again"
        ):
            opened(old)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "2"}, {"version": True}, {"version": None}, {"version": -1}, {"version": 2.5},
        {"settings": None}, {"settings": 3}, {"settings": {}}, {"settings": {"dim": -3}},
        {"settings": {"dim": 10**400}}, {"draws": None}, {"history": {"kind": "Sofa"}}, {"history": []},
    ],
    ids=str,
)  # fmt: skip
def test_a_header_that_says_nonsense_under_the_right_sum_is_refused(saved, changes):
    _, path, content = saved
    path.write_bytes(rewritten(content, **changes))
    with pytest.raises(DriftlsError):
        SAGA.load(path)
    if "version" in changes:
        with pytest.raises(CorruptFileError, match=r"t\.safetensors: "):
            persistence.read(path)


def test_an_array_of_another_shape_or_dtype_than_expected_is_refused():
    arrays = {"gram": np.zeros((3, 4)), "n": np.zeros(2, dtype=np.int32)}
    assert persistence.expect(arrays, "gram", (None, 4), np.float64) is arrays["gram"]
    for name, shape, dtype in (
        ("gram", (3,), np.float64),
        ("gram", (4, 3), np.float64),
        ("gram", (3, 4, 1), np.float64),
        ("gram", (3, 4), np.float32),
        ("n", (2,), np.int64),
        ("theta", (None,), np.float64),
    ):
        with pytest.raises(CorruptFileError, match=f"`{name}` (must be|is missing)"):
            persistence.expect(arrays, name, shape, dtype)


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    path = tmp_path / "other.safetensors"
    for metadata in (None, {"format": "pt"}, {"Driftls": "1"}):
        save_file({"weight": np.ones(3)}, path, metadata=metadata)
        with pytest.raises(FileFormatError, match="a safetensors file, but not driftls'"):
            SAGA.load(path)


@pytest.mark.parametrize(
    "content",
    [
        b"theta = [1, 2, 3]\n" * 10,
        b"\x80\x04" + b"pickle me" * 20,
        b"\0" * 64,
        b"\xff" * 64,
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 2) + b"{}",
        struct.pack("<Q", 4) + b"null",
        struct.pack("<Q", 20) + b'{"__metadata__": 5.0}'[:20],
        struct.pack("<Q", 18) + b'{"__metadata__":5}',
        struct.pack("<Q", 2000) + b"[" * 2000,
        struct.pack("<Q", 46) + b'{"__metadata__":{"driftls":7},"a":{"b":"c","d":1}}'[:46],
    ],
    ids=range(11),
)
def test_what_is_no_such_file_at_all_is_refused(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"notes\.txt: (not a file of|ends after|a safetensors file, but not)"):
        SAGA.load(path)


def test_an_empty_file_a_folder_and_nothing_at_all_are_told_apart(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(TruncatedFileError, match="ends after 0 bytes"):
        SAGA.load(tmp_path / "empty")
    with pytest.raises(FileFormatError, match="a folder"):
        SAGA.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="missing"):
        SAGA.load(tmp_path / "missing")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_tracker_is_not_loaded_as_another(case, tmp_path):
    X, y = rows()
    tracker = make(case).partial_fit(X, y)
    tracker.save(tmp_path / "t.safetensors")
    for cls in (CD, GD, OLS, RLS, SAG, SAGA, SVRG, Diagonal):
        if cls is not type(tracker):
            with pytest.raises(FileFormatError, match=f"holds a {type(tracker).__name__}, not a {cls.__name__}"):
                cls.load(tmp_path / "t.safetensors")


def test_a_function_has_to_be_supplied_again(tmp_path):
    X, y = rows()

    def gamma(n):
        return 0.1 / n**0.5

    tracker = SAGA(X.shape[1], step_size=gamma, regularisation=lambda n: 1.0 / n, seed=0, **RAW).partial_fit(X, y)
    path = tmp_path / "t.safetensors"
    tracker.save(path)
    with pytest.raises(SettingsError, match="step_size was a function of n, which no file can hold: pass step_size="):
        SAGA.load(path)
    with pytest.raises(SettingsError, match="regularisation was a function of n"):
        SAGA.load(path, step_size=gamma)
    with pytest.raises(SettingsError, match="load\\(\\) takes no steps"):
        SAGA.load(path, step_size=gamma, regularisation=lambda n: 1.0 / n, steps=3)
    again = SAGA.load(path, step_size=gamma, regularisation=lambda n: 1.0 / n)
    np.testing.assert_array_equal(again.partial_fit(X, y).theta, tracker.partial_fit(X, y).theta)


def test_a_schedule_that_the_file_holds_is_not_to_be_supplied(saved):
    _, path, _ = saved
    with pytest.raises(SettingsError, match="load\\(\\) takes no step_size: it is kept in the file"):
        SAGA.load(path, step_size=0.1)


# -- atomic --------------------------------------------------------------------------------------------------------

CHILD = """
import sys
import numpy as np
from driftls.trackers import RAW, SAGA
X = np.random.default_rng(0).normal(size=(2000, 40))
small = SAGA(40, steps=1, seed=0, **RAW).partial_fit(X[:7], np.ones(7))
large = SAGA(40, steps=1, seed=0, **RAW).partial_fit(X, np.ones(2000))
small.save(sys.argv[1])
print("saved", flush=True)
while True:
    large.save(sys.argv[1])
    small.save(sys.argv[1])
"""


@pytest.mark.parametrize("wait", [0.0, 0.017, 0.051, 0.23])
def test_a_kill_during_a_save_leaves_the_old_file_or_the_new_one(wait, tmp_path):
    path = tmp_path / "t.safetensors"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "saved"
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline:  # whoever reads meanwhile finds a whole file, too
            assert len(SAGA.load(path)) in (7, 2000)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    again = SAGA.load(path)
    assert len(again) in (7, 2000)
    again.partial_fit(np.ones((3, 40)), np.ones(3))
    again.save(path)
    assert len(SAGA.load(path)) in (10, 2003)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]  # what the dead process left behind is gone


def test_a_save_that_fails_leaves_the_old_file_and_no_other(saved, monkeypatch):
    tracker, path, content = saved

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(persistence.os, "replace", full)
    with pytest.raises(StorageError, match=r"t\.safetensors: No space left on device\. Make room"):
        tracker.save(path)
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_link_is_followed_and_stays(saved):
    tracker, path, content = saved
    folder = path.parent / "elsewhere"
    folder.mkdir()
    link, second = path.parent / "link", path.parent / "second"
    link.symlink_to(folder / "real")  # leads nowhere yet
    second.symlink_to("link")
    for name in (link, second):
        tracker.save(name)
        assert link.is_symlink()
        assert second.is_symlink()
        assert (folder / "real").read_bytes() == content
    assert [file.name for file in folder.iterdir()] == ["real"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_has_the_mode_of_the_umask_and_an_old_one_keeps_its_own(saved, umask, mode):
    tracker, path, _ = saved
    before = os.umask(umask)
    try:
        tracker.save(path.with_name("new"))
        path.chmod(0o640)
        tracker.save(path)
    finally:
        os.umask(before)
    assert path.with_name("new").stat().st_mode & 0o777 == mode
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_is_no_file_is_refused_before_anything_is_written(saved):
    tracker, path, _ = saved
    folder, pipe = path.parent / "folder", path.parent / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    before = sorted(path.parent.iterdir())
    for name, what in ((folder, "a folder"), (pipe, "a pipe"), (Path("/dev/null"), "a device")):
        with pytest.raises(StorageError, match=f"{name.name}: expected a file or a new name, got {what}"):
            tracker.save(name)
        with pytest.raises(FileFormatError, match=f"{name.name}: {what}, not a file of driftls"):
            SAGA.load(name)
    assert sorted(path.parent.iterdir()) == before
    assert not list(folder.iterdir())
    assert Path("/dev/null").is_char_device()


def test_where_nothing_can_be_saved_is_told_with_what_to_do(saved, tmp_path):
    tracker, path, _ = saved
    for name, told in (
        (tmp_path / "nowhere" / "t", "nowhere/t: there is no folder to save to. Make it first"),
        (path / "t", "t: Not a directory. A file is where a folder is needed"),
        (tmp_path / ("a" * 300), "aaaa: File name too long. Pass a shorter name"),
        (Path("/proc/t"), "/proc/t: .*Check the path|/proc/t: .*permission"),
    ):
        with pytest.raises(StorageError, match=told):
            tracker.save(name)
    with pytest.raises(MissingFileError, match=r"nowhere: No such file or directory\. Check the path"):
        SAGA.load(tmp_path / "nowhere")
    assert issubclass(MissingFileError, FileNotFoundError)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


FULL = """
import resource, sys
import numpy as np
from driftls.errors import StorageError
from driftls.trackers import SAGA
tracker = SAGA(40, seed=0).partial_fit(np.eye(40), np.ones(40))
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    tracker.save(sys.argv[1])
except StorageError as error:
    print(error)
"""


def test_a_file_that_finds_no_room_is_told_and_leaves_nothing(saved):
    _, path, content = saved
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"t\.safetensors: File too large\. Check the path and the disk\.", done.stdout)
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_only_our_own_leftovers_of_processes_that_are_gone_are_removed(saved):
    tracker, path, _ = saved
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    here, other = persistence._here(), f"{int(persistence._here(), 16) ^ 1:08x}"
    stale = path.parent / f".driftls-{here}-{gone.pid}-0123abcd.part"
    kept = [
        f".driftls-{here}-{os.getpid()}-0123abcd.part",  # a save of another thread
        f".driftls-{here}-{os.getppid()}-0123abcd.part",
        f".driftls-{other}-{gone.pid}-0123abcd.part",  # a machine that shares the folder
        f".driftls-{here}-{gone.pid}-0123abcd.part.mine",
        f".t.safetensors.{gone.pid}.part",
        "t.part",
    ]
    for name in (stale.name, *kept):
        (path.parent / name).write_bytes(b"whatever")
    persistence._remove_orphans.cache_clear()  # as in a new process
    tracker.save(path)
    assert sorted(file.name for file in path.parent.iterdir()) == sorted([path.name, *kept])


def test_equal_trackers_make_equal_files(saved):
    tracker, path, content = saved
    tracker.save(path)
    assert path.read_bytes() == content
    tracker.save(path.with_name("again.safetensors"))
    assert path.with_name("again.safetensors").read_bytes() == content


def test_a_path_without_a_folder_is_the_present_one(saved, monkeypatch):
    tracker, path, content = saved
    monkeypatch.chdir(path.parent)
    tracker.save("here.safetensors")
    assert Path("here.safetensors").read_bytes() == content


def test_nothing_of_ours_pickles():
    source = Path(driftls.__file__).parent
    loaders = re.compile(
        r"\b(import|from)\s+(pickle|dill|cloudpickle|marshal|shelve)\b|allow_pickle\s*=\s*True|joblib.*\b(dump|load)\b"
    )
    for file in source.rglob("*.py"):
        assert not [line for line in file.read_text().splitlines() if loaders.search(line)], file
