"""What every reader of logs must do: `check_log(make, good, broken)` for a reader and files of yours.

`make(path, **settings)` opens a log, with the keywords of `Log`, `on_error` and `block`. `good` is a file or folder of
more than three lines, of which copies are damaged; of `broken` one line is bad. A log that is no file, such as events in
memory, has neither: `check_log(make)`.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from driftls.errors import DriftlsError, LogFormatError, SettingsError
from driftls.logs import Block, Log
from driftls.testing.common import refused

__all__ = ["check_log"]

Make = Callable[..., Log]
PLACE = re.compile(r":\d+|row \d+")  # file:line, or a row of a table


def check_log(make: Make, good: Path | None = None, broken: Path | None = None) -> None:
    """Raise `AssertionError` where a reader does not do what every other one does."""
    _reads_alike_in_blocks_of_any_size(make if good is None else lambda **settings: make(good, **settings))
    if broken is not None:
        _names_a_broken_line_or_counts_it(make, broken)
    if good is not None:
        _never_takes_a_file_that_breaks_off_for_a_whole_one(make, good)


def _reads_alike_in_blocks_of_any_size(opened: Make) -> None:
    log = opened()
    whole = Block.join(log.blocks())
    assert log.format and len(whole) > 3, "a log must name its format, and have more than three lines here"  # noqa: PT018
    assert list(log) == list(whole), "events and blocks must hold the same"
    for size in (1, 3, len(whole) + 1):
        blocks = list(log.blocks(size))
        assert max(map(len, blocks)) <= size, f"a block has more than {size} lines"
        assert Block.join(blocks) == whole, f"blocks of {size} lines hold something else"
        assert Block.join(opened(block=size).blocks()) == whole, "a log that is opened again must be read alike"
        assert list(log.blocks(size)) == blocks, "what was handed out must not be written to again"
    counts = log.counts
    assert counts.events == len(whole), "`counts` must be those of the last reading"
    assert counts.lines == counts.events + counts.skipped + counts.dropped_lines, "each line is counted once"
    refused("a block of no lines", lambda: log.blocks(0), SettingsError)


def _names_a_broken_line_or_counts_it(make: Make, broken: Path) -> None:
    said = refused("a broken line", lambda: list(make(broken).blocks()), LogFormatError)
    assert str(broken) in said, f"a broken line must be named by its file, got: {said}"
    assert PLACE.search(said), f"a broken line must be named by its place in the file, got: {said}"
    assert "expected" in said, f"an error must say what was expected, got: {said}"
    log = make(broken, on_error="skip")
    assert len(list(log)) == log.counts.events > 0, "the lines before and behind a broken one must be read"
    assert log.counts.skipped == len(log.counts.examples) == 1, f"of one broken line were counted {log.counts.skipped}"


def _never_takes_a_file_that_breaks_off_for_a_whole_one(make: Make, good: Path) -> None:
    files = [file for file in good.rglob("*") if file.is_file()] if good.is_dir() else [good]
    largest, whole = max(files, key=lambda file: file.stat().st_size), list(make(good))
    content = largest.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, good.name)
        shutil.copytree(good, copy) if good.is_dir() else shutil.copy(good, copy)
        for length in (0, 1, len(content) // 3, len(content) // 2, len(content) - 2, len(content) - 1):
            (copy / largest.relative_to(good) if good.is_dir() else copy).write_bytes(content[:length])
            try:
                events = list(make(copy))
            except DriftlsError:
                continue
            assert events == whole[: len(events)], f"cut after {length} bytes, it has lines that nobody wrote"
            ended = content[:length].endswith(b"\n")  # text may lack lines at its end, unnoticed, but no part of one
            assert ended or events == whole, f"cut after {length} bytes, within a line, it is taken for whole"
