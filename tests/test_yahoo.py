"""The readers of R6A and R6B: what is right is read to the byte, what is wrong is named by its place."""

from __future__ import annotations

import gzip
import itertools
import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftls.errors import CorruptFileError, SettingsError, TruncatedFileError
from driftls.logs import Block, Counts, Event, LogFormatError, read, synthetic_day, yahoo
from driftls.logs import parser as kernels
from driftls.logs.log import MOST_EXAMPLES
from driftls.logs.synthetic.day import r6b_text

# Invented lines: no row of the licensed logs is in this project.
R6B = b"1317513300 id-101 0 |user 1 11 36 13 |id-101 |id-205 |id-307\n"
R6A = (
    b"1241160900 43 1 |user 2:0.100000 3:0.000000 4:0.200001 5:0.000009 6:0.699990 1:1.000000"
    b" |42 2:0.000001 3:0.250000 4:0.250000 5:0.499999 6:0.000000 1:1.000000"
    b" |43 2:0.123456 3:0.000044 4:0.876500 5:0.000000 6:0.000000 1:1.000000\n"
)

# The oracle: the formats as patterns, read with str.split. It imports nothing of the parser.
WHOLE = rb"(?:0|[1-9]\d{0,15})"
VALUE = rb"(?:0\.\d{6}|1\.000000)"
FIVE = b"".join(rb" %d:%s" % (i, VALUE) for i in range(2, 7))
SOME = b"".join(rb"(?: %d:%s)?" % (i, VALUE) for i in range(2, 7)) + rb"(?: 1:1\.000000)?"
PATTERN = {
    "R6B": re.compile(rb"%s id-%s [01] \|user(?: %s)+(?: \|id-%s)+\n" % (WHOLE, WHOLE, WHOLE, WHOLE)),
    "R6A": re.compile(rb"%s %s [01] \|user%s 1:1\.000000(?: \|%s%s)+\n" % (WHOLE, WHOLE, FIVE, WHOLE, SOME)),
}


def features(text: str) -> dict[int, float]:
    return {int(f.split(":")[0]): float(f.split(":")[1]) for f in text.split()[1:]}


def oracle(line: bytes, kind: str, last: int = -1) -> Event | str:
    """The event of a line, or "broken", or "dropped" """
    if not PATTERN[kind].fullmatch(line):
        return "broken"
    head, user, *rest = line.decode().replace("id-", "").split("|")
    time, shown, reward = map(int, head.split())
    ids = [int(part.split()[0]) for part in rest]
    large = max(time, shown, *ids) > 10**15
    if large or time < last or shown not in ids or len(set(ids)) < len(ids):
        return "broken"
    if kind == "R6B":
        names = [int(f) for f in user.split()[1:]]
        if names[0] != 1 or len(set(names)) < len(names) or not 1 <= min(names) <= max(names) <= 136:
            return "broken"
        if ids != sorted(ids):
            return "broken"
        index, value, table = sorted(i - 1 for i in names), [1.0] * len(names), None
    else:
        have = features(user)
        index, value = list(range(6)), [have[i] for i in range(1, 7)]
        rows = {i: features(part) for i, part in zip(ids, rest)}
        ids = [i for i in ids if len(rows[i]) == 6]
        if shown not in ids:
            return "dropped"
        table = np.array([[rows[i][f] for f in range(1, 7)] for i in ids])
    arms = np.array(ids)
    return Event(time, arms, ids.index(shown), reward, np.array(index), np.array(value), arm_features=table)


def write(folder: Path, data: bytes, name: str = "log") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def mutations(line: bytes, alphabet: Iterable[int]) -> Iterable[bytes]:
    """Every line with one byte replaced, left out, or put in"""
    for at, byte in itertools.product(range(len(line) - 1), alphabet):
        yield line[:at] + bytes([byte]) + line[at + 1 :]
        yield line[:at] + bytes([byte]) + line[at:]
    for at in range(len(line) - 1):
        yield line[:at] + line[at + 1 :]
        yield line[:at] + b"\n"


def check_line(line: bytes, kind: str, before: bytes = b"") -> None:
    """The parser and the oracle agree on a line, given an array that ends where the line does"""
    number = yahoo.NAME.index(kind)
    filling = yahoo._Filling(number, 2)
    filling.frame["last"] = -1
    data = bytearray(before + line)
    status = filling.parse(data, 0, len(data))
    at, where = filling.frame["at"], filling.frame["where"]
    expected = oracle(line, kind, filling.frame["last"] if before else -1)
    if isinstance(expected, Event):
        assert (status, at) == (kernels.DONE, len(data)), line
        assert filling.take()[-1] == expected, line
    elif expected == "dropped":
        assert (status, filling.frame["dropped_lines"]) == (kernels.DONE, 1), line
    else:
        assert filling.expected, line
        assert at == len(before), line
        assert at <= where < len(data), line


def with_newline(line: bytes) -> bytes:
    return line.replace(b"\n", b"") + b"\n"


ALPHABET = b"\x00\n\r -.0129:|abdeiru\xff"


@pytest.mark.parametrize(("kind", "line"), [("R6B", R6B), ("R6A", R6A)], ids=["R6B", "R6A"])
def test_parser_and_oracle_agree_on_every_change_of_one_byte(kind: str, line: bytes) -> None:
    for changed in mutations(line, ALPHABET):
        changed = with_newline(changed)
        check_line(changed, kind)
        check_line(changed, kind, before=line)  # the candidates are then compared with those of a line before


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_parser_and_oracle_agree_on_several_changes(data: Any) -> None:
    kind, line = data.draw(st.sampled_from([("R6B", R6B), ("R6A", R6A)]))
    text = bytearray(line)
    for _ in range(data.draw(st.integers(1, 4))):
        a, b = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
        text[a : min(b, a + 12)] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b" ", b" 1", b" |id-7", b"0", b"|"])
        )
    before = data.draw(st.sampled_from([b"", line]))
    check_line(with_newline(bytes(text)), kind, before)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_never_read_as_a_line(noise: bytes) -> None:
    check_line(with_newline(noise), "R6A")
    check_line(with_newline(noise), "R6B")


def test_the_uncompiled_parser_stays_within_its_arrays() -> None:
    """Without the compiler every access is checked; one change in seven suffices, as the code is the same."""
    code = (
        "import itertools, test_yahoo as t\n"
        "for kind, line in (('R6B', t.R6B), ('R6A', t.R6A)):\n"
        "    for changed in itertools.islice(t.mutations(line, b'\\n 1|'), 0, None, 7):\n"
        "        t.check_line(t.with_newline(changed), kind)\n"
        "        t.check_line(t.with_newline(changed), kind, before=line)\n"
    )
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "DRIFTLS_INTERPRET": "1", "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, env=env, timeout=1800)


# ^ marks the place that the message must name.
BROKEN = [
    (b"^yesterday id-101 0 |user 1 |id-101\n", "a time in whole seconds, got `yesterday`"),
    (b"^01317513300 id-101 0 |user 1 |id-101\n", "a time in whole seconds, got `01317513300`"),
    (b"^1317513299 id-101 0 |user 1 |id-101\n", "a time not before that of the line before, got `1317513299`"),
    (b"^\n", "a time in whole seconds, got the end of the line"),
    (b"1317513300^\tid-101 0 |user 1 |id-101\n", "one blank, got `\\tid-101`"),
    (b"1317513300 ^ id-101 0 |user 1 |id-101\n", "an article's id, got a blank"),
    (b"1317513300 ^101 0 |user 1 |id-101\n", "an article's id, got `101`"),
    (b"1317513300 ^id-102 0 |user 1 |id-101\n", "the article shown to be among the candidates, got `id-102`"),
    (b"1317513300 id-101 ^2 |user 1 |id-101\n", "a reward, 0 or 1, got `2`"),
    (b"1317513300 id-101 0 |use^d 1 |id-101\n", "` |user`, got `d`"),
    (b"1317513300 id-101 0 |user 1 ^204 |id-101\n", "a feature id between 1 and 136, got `204`"),
    (b"1317513300 id-101 0 |user 1 ^0 |id-101\n", "a feature id between 1 and 136, got `0`"),
    (b"1317513300 id-101 0 |user 1 ^\xc3\xa9 |id-101\n", "a feature id between 1 and 136, got `\\xc3\\xa9`"),
    (b"1317513300 id-101 0 |user 1 136 99 ^136 |id-101\n", "a feature id that is not in the line already, got `136`"),
    (b"1317513300 id-101 0 |user ^11 1 |id-101\n", "the constant, feature 1, first, got `11`"),
    (b"1317513300 id-101 0 |user^ |id-101\n", "the constant, feature 1, first, got a blank"),
    (b"1317513300 id-101 0 |user 1 |^id- |id-101\n", "an article's id, got `id-`"),
    (b"1317513300 id-101 0 |user 1 |id-101 ^id-205\n", "a candidate, got `id-205`"),
    (b"1317513300 id-101 0 |user 1 |id-101 |^id-101\n", "a candidate id above the one before it, got `id-101`"),
    (b"1317513300 id-101 0 |user 1^\n", "a candidate, got the end of the line"),
    (b"1317513300 id-101 0 |user 1 |id-101^\r\n", "one blank, got `\\r`"),
    (b"1317513300 id-101 0 |user 1 |id-101^", "a newline at the end of the last line, got the end of the line"),
]


@pytest.mark.parametrize(("marked", "message"), BROKEN)
def test_a_broken_line_is_named_by_file_line_and_column_or_counted(tmp_path: Path, marked: bytes, message: str) -> None:
    path = write(tmp_path, R6B + marked.replace(b"^", b""))
    place = f"{path}:2:{marked.index(b'^') + 1}: expected {message}."
    with pytest.raises(LogFormatError) as error:
        list(read(path))
    assert str(error.value) == f'{place} Pass on_error="skip" to skip and count bad lines.'
    log = read(path, on_error="skip")
    assert list(log) == [oracle(R6B, "R6B")]
    assert log.counts == Counts(lines=2, events=1, skipped=1, examples=[place])


USER_A = b"1241160900 43 1 |user 2:0.100000 3:0.000000 4:0.200000 5:0.000000 6:0.700000 1:1.000000"
FULL = b" 2:0.000001 3:0.250000 4:0.250000 5:0.499999 6:0.000000 1:1.000000"
SIX = "the features 2 3 4 5 6 1"


@pytest.mark.parametrize(
    ("marked", "message"),
    [
        (b"1241160900 43 1 |user 2:0.100000 3:0.900000^ |43" + FULL, SIX),
        (USER_A + b" |43 2:0.000000 4:0.000000 ^3:0.000000", SIX),
        (USER_A + b" |43 ^2:0.00000", SIX),
        (USER_A + b" |43 ^2:1.000001", SIX),
        (USER_A + b" |43 ^1:0.500000", SIX),
        (USER_A + b" |43" + FULL + b" |^43" + FULL, "a candidate id that is not in the line already"),
        (USER_A + b" |43 |^43" + FULL, "a candidate id that is not in the line already"),
        (USER_A.replace(b" 43", b" ^44") + b" |43" + FULL, "the article shown to be among the candidates"),
    ],
)
def test_a_broken_line_of_r6a_is_named_too(tmp_path: Path, marked: bytes, message: str) -> None:
    path = write(tmp_path, R6A + marked.replace(b"^", b"") + b"\n")
    with pytest.raises(LogFormatError, match=re.escape(f"{path}:2:{marked.index(b'^') + 1}: expected {message}")):
        list(read(path))


@pytest.fixture(scope="module")
def day() -> Any:
    return synthetic_day(lines=6000, seed=3)


@pytest.fixture(scope="module")
def text(day: Any) -> bytes:
    return b"".join(map(r6b_text, day.blocks()))


def test_what_is_written_is_read_back_to_the_bit(tmp_path: Path, day: Any) -> None:
    day.write(tmp_path / "day")
    log = read(tmp_path / "day")
    assert log.format == "R6B"
    assert Block.join(log.blocks()) == Block.join(day.blocks())
    assert log.counts == Counts(lines=6000, events=6000)


def test_reader_and_oracle_agree_on_a_day(tmp_path: Path, text: bytes) -> None:
    lines = text.splitlines(keepends=True)[:500]
    assert list(read(write(tmp_path, b"".join(lines)))) == [oracle(line, "R6B") for line in lines]


@pytest.mark.parametrize("chunk", [1 << 12, 5003, 1 << 16])
@pytest.mark.parametrize("block", [1, 100, 10_000])
def test_neither_blocks_nor_chunks_change_what_is_read(
    tmp_path: Path, day: Any, text: bytes, chunk: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yahoo, "CHUNK", chunk)
    some = 400
    path = write(tmp_path, b"".join(text.splitlines(keepends=True)[:some]))
    blocks = list(read(path, block=block).blocks())
    assert [len(b) for b in blocks] == [min(block, some - first) for first in range(0, some, block)]
    assert Block.join(blocks) == next(day.blocks(some))


def test_a_block_that_was_handed_out_is_never_written_again(tmp_path: Path, text: bytes) -> None:
    path = write(tmp_path, text)
    kept = list(read(path, block=1000).blocks())
    assert kept == list(read(path, block=1000).blocks())


@pytest.mark.parametrize("chunk", [1 << 12, 1 << 20])
def test_lines_are_counted_across_chunks_blocks_and_files(
    tmp_path: Path, text: bytes, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yahoo, "CHUNK", chunk)
    lines = text.splitlines(keepends=True)[:300]
    for i in (0, 17, 250):
        lines[i] = lines[i].replace(b"|user 1", b"|user 9")
    one, two = write(tmp_path, b"".join(lines), "one"), write(tmp_path, b"".join(lines), "two")
    log = read([one, two], on_error="skip", block=64)
    assert sum(map(len, log.blocks())) == 594
    assert (log.counts.lines, log.counts.events, log.counts.skipped) == (600, 594, 6)
    places = [example.split(": ")[0].rsplit(":", 1)[0] for example in log.counts.examples]
    assert places == [f"{path}:{line}" for path in (one, two) for line in (1, 18, 251)]


def test_time_may_go_back_from_one_file_to_the_next_only(tmp_path: Path) -> None:
    late = write(tmp_path, R6B.replace(b"1317513300", b"1317600000"), "late")
    assert [e.time for e in read([late, write(tmp_path, R6B)])] == [1317600000, 1317513300]


def test_only_the_first_examples_of_broken_lines_are_kept(tmp_path: Path) -> None:
    log = read(write(tmp_path, R6B + b"?\n" * 100), on_error="skip")
    assert len(list(log)) == 1
    assert log.counts.skipped == 100
    assert len(log.counts.examples) == MOST_EXAMPLES


def test_room_grows_for_users_pools_and_candidates(tmp_path: Path) -> None:
    everything = b" ".join(b"%d" % i for i in range(1, 137))
    many = b" ".join(b"|id-%d" % i for i in range(9000))
    lines = [b"1 id-0 0 |user %s |id-0 |id-%d\n" % (everything, i) for i in range(1, 500)]
    lines.append(b"1 id-8999 1 |user 1 %s\n" % many)
    log = read(write(tmp_path, b"".join(lines)), block=1000)
    (block,) = log.blocks()
    assert list(block) == [oracle(line, "R6B") for line in lines]


def test_a_pool_that_comes_back_is_stored_once(tmp_path: Path) -> None:
    other = R6B.replace(b" |id-307", b"")
    (block,) = read(write(tmp_path, R6B + other + R6B + other)).blocks()
    assert block.pool.tolist() == [0, 1, 0, 1]
    assert block.pool_ids.tolist() == [101, 205, 307, 101, 205]


def r6a(shown: int, *candidates: bytes) -> bytes:
    return USER_A.replace(b" 43 ", b" %d " % shown) + b"".join(candidates) + b"\n"


def test_r6a_drops_candidates_without_features_and_lines_that_show_one(tmp_path: Path) -> None:
    bare, short, full = b" |7", b" |8 2:0.100000 3:0.900000", b" |9" + FULL
    lines = [
        r6a(9, bare, full),
        r6a(9, bare, full),  # the same text: compared, not parsed, and counted all the same
        r6a(7, bare, full),
        r6a(9, bare, short, full),
        r6a(8, short),
        r6a(9, full, b" |10" + FULL),
    ]
    log = read(write(tmp_path, b"".join(lines)), block=4)
    blocks = list(log.blocks())
    assert log.format == "R6A"
    kept = [event for event in (oracle(line, "R6A") for line in lines) if event != "dropped"]
    assert [event for block in blocks for event in block] == kept
    assert log.counts == Counts(lines=6, events=4, dropped_lines=2, dropped_candidates=6)
    joined = Block.join(blocks)
    assert joined.arm_features is not None
    assert joined.arm_features.tolist() == [[1.0, 0.000001, 0.25, 0.25, 0.499999, 0.0]] * 3
    assert joined.user_index[:6].tolist() == [0, 1, 2, 3, 4, 5]
    assert joined.user_value[:6].tolist() == [1.0, 0.1, 0.0, 0.2, 0.0, 0.7]


def inflaters() -> list[Any]:
    try:
        from isal import igzip
    except ImportError:
        missing = pytest.mark.skip(reason="isal is not installed: pip install isal")
        return [pytest.param(gzip, id="gzip"), pytest.param(None, id="isal", marks=missing)]
    return [pytest.param(gzip, id="gzip"), pytest.param(igzip, id="isal")]


@pytest.fixture(params=inflaters())
def inflater(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(yahoo, "GZIP", request.param)
    module: ModuleType = request.param
    return module


@pytest.mark.usefixtures("inflater")
def test_gzip_is_recognised_by_content_and_may_have_several_members(tmp_path: Path, day: Any, text: bytes) -> None:
    half = text.index(b"\n", len(text) // 2) - 5  # within a line
    path = write(tmp_path, gzip.compress(text[:half]) + gzip.compress(text[half:]), "no-suffix")
    assert Block.join(read(path).blocks()) == Block.join(day.blocks())


@pytest.mark.usefixtures("inflater")
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_truncated_gzip_file_is_an_error_at_its_end(tmp_path: Path, text: bytes, on_error: str) -> None:
    zipped = gzip.compress(text)
    for size in (len(zipped) // 2, len(zipped) - 1):
        log = read(write(tmp_path, zipped[:size]), on_error=on_error)
        with pytest.raises(TruncatedFileError, match=r"log: the gzip stream breaks off after line \d+\. Fetch"):
            list(log.blocks())


@pytest.mark.usefixtures("inflater")
def test_a_damaged_gzip_file_is_an_error(tmp_path: Path, text: bytes) -> None:
    zipped = bytearray(gzip.compress(text))
    zipped[-6] ^= 1  # of the checksum
    log = read(write(tmp_path, bytes(zipped)))
    with pytest.raises(CorruptFileError, match=r"log: the gzip stream is damaged after line \d+"):
        list(log.blocks())


def test_a_damaged_deflate_stream_never_reads_as_a_whole_log(tmp_path: Path) -> None:
    zipped = bytearray(gzip.compress(R6B * 50, mtime=0))
    for at in range(len(zipped)):
        changed = zipped.copy()
        changed[at] ^= 16
        log_path = write(tmp_path, bytes(changed))
        try:
            whole = len(list(read(log_path, on_error="skip")))
        except (LogFormatError, CorruptFileError, TruncatedFileError):
            continue
        assert whole == 50
        assert gzip.decompress(changed) == R6B * 50  # the byte was one of the header that says nothing


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"log:1:1: expected a line of R6B .* or of R6A .*, got an empty file"),
        (b"a,b,c\n1,2,3\n", r"log:1:1: expected a line of R6B .* got `a,b,c`"),
        (b"\x00" * 100, r"log:1:1: expected"),
        (gzip.compress(b"", mtime=0), r"got an empty file"),
    ],
)
def test_a_file_in_neither_format_is_refused_at_once(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(LogFormatError, match=message):
        read(write(tmp_path, data), on_error="skip")


def test_formats_are_not_mixed(tmp_path: Path) -> None:
    with pytest.raises(LogFormatError, match=r"two: expected R6B as in .*one, got R6A"):
        read([write(tmp_path, R6B, "one"), write(tmp_path, R6A, "two")])


def test_a_broken_first_line_does_not_hide_the_format(tmp_path: Path) -> None:
    log = read(write(tmp_path, b"# a comment\n" + R6B), on_error="skip")
    assert len(list(log)) == 1
    assert log.counts.skipped == 1


def test_an_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yahoo, "CHUNK", 4096)
    with pytest.raises(LogFormatError, match=r"log:2:1: expected a newline within 4096 bytes"):
        list(read(write(tmp_path, R6B + b"1" * 10_000), on_error="skip"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: read(path, on_error="ignore"), "on_error must be 'raise' or 'skip', got 'ignore'"),
        (lambda path: list(read(path, block=0)), "lines of a block must be a whole number of at least 1, got 0"),
        (lambda path: list(read(path).blocks(-1)), "lines of a block must be a whole number of at least 1, got -1"),
        (lambda path: read([]), "at least one file"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, call: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        call(write(tmp_path, R6B))


def test_memory_depends_on_the_block_and_not_on_the_log(tmp_path: Path, text: bytes) -> None:
    path = write(tmp_path, gzip.compress(text))

    def peak(paths: list[Path]) -> int:
        tracemalloc.start()
        for _ in read(paths, block=500).blocks():
            pass
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak([path])  # whatever is loaded once
    once, ten_times = peak([path]), peak([path] * 10)
    assert ten_times < 1.2 * once
    assert ten_times < 8 * yahoo.CHUNK  # the chunk, what the inflater holds, and two blocks
