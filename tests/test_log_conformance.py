"""Every reader of logs does what `driftls.testing.logs` asks; a new one is tested by being listed."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from driftls.logs import Block, Log, ParquetLog, YahooLog, read, read_table, synthetic_day, write_parquet
from driftls.logs.log import EventLog
from driftls.testing.logs import check_log
from test_yahoo import R6A, R6B

pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")


def opened(kind: Any) -> Callable[..., Log]:
    return lambda path, **settings: kind([str(path)], **settings)


def text(line: bytes, broken: bytes, folder: Path) -> tuple[Any, Path, Path]:
    lines = [line.replace(b"300 ", b"30%d " % i).replace(b"900 ", b"90%d " % i) for i in range(6)]
    (folder / "good").write_bytes(b"".join(lines))
    (folder / "broken").write_bytes(b"".join([*lines[:3], broken, *lines[3:]]))
    return opened(YahooLog), folder / "good", folder / "broken"


def zipped(folder: Path) -> tuple[Any, Path, Path]:
    make, good, broken = text(R6B, b"?\n", folder)
    for path in (good, broken):
        path.write_bytes(gzip.compress(path.read_bytes()))
    return make, good, broken


def rows(folder: Path, name: str) -> tuple[Any, Path, Path]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    write_parquet(synthetic_day(lines=60, seed=1).blocks(truth=True), folder / f"good{name}")
    table = pq.read_table(next(file for file in sorted(folder.rglob("*.parquet")) if file.is_file()))
    shown = table["shown"].to_pylist()
    shown[17] = 99
    place = table.schema.get_field_index("shown")
    pq.write_table(table.set_column(place, "shown", pa.array(shown, pa.int32())), folder / "broken.parquet")
    return opened(ParquetLog), folder / f"good{name}", folder / "broken.parquet"


def table(folder: Path) -> tuple[Any, Path, Path]:
    lines = [b'{"city": "Oslo", "offer": "%c", "click": %d}\n' % (b"ab"[i % 2], i % 3 == 0) for i in range(8)]
    (folder / "good.jsonl").write_bytes(b"".join(lines))
    (folder / "broken.jsonl").write_bytes(b"".join([*lines[:3], b'{"offer": "a", "click": "?"}\n', *lines[3:]]))
    made = partial(read_table, shown="offer", reward="click")
    return made, folder / "good.jsonl", folder / "broken.jsonl"


def in_memory(folder: Path) -> tuple[Any, None, None]:
    events = list(synthetic_day(lines=60, seed=1))
    return lambda **settings: EventLog(events, **settings), None, None


READERS: dict[str, Callable[[Path], Any]] = {
    "R6B": lambda folder: text(R6B, b"1317513303 id-101 0 |user 1 204 |id-101\n", folder),
    "R6A": lambda folder: text(R6A, R6A.replace(b"|user 2:", b"|user 7:"), folder),
    "R6B, gzipped": zipped,
    "Parquet": lambda folder: rows(folder, ".parquet"),
    "Parquet, a folder": lambda folder: rows(folder, ""),
    "table": table,
    "events": in_memory,
}


@pytest.mark.parametrize("name", READERS)
def test_a_reader_does_what_every_reader_does(name: str, tmp_path: Path) -> None:
    check_log(*READERS[name](tmp_path))


@pytest.mark.parametrize("name", [name for name in READERS if name != "table"])  # which has dicts
def test_a_log_survives_the_way_through_parquet(name: str, tmp_path: Path) -> None:
    make, good, _ = READERS[name](tmp_path)
    log = make() if good is None else make(good)
    write_parquet(log, tmp_path / "again.parquet")
    assert Block.join(read(tmp_path / "again.parquet").blocks()) == Block.join(log.blocks())


class Careless(EventLog):
    """A reader that leaves out the last line if blocks are small."""

    def _blocks(self, size: int) -> Any:
        blocks = list(super()._blocks(size))
        yield from blocks if size > 3 else blocks[:-1]


def test_a_reader_that_depends_on_its_blocks_is_found() -> None:
    events = list(synthetic_day(lines=60, seed=1))
    with pytest.raises(AssertionError, match="blocks of 1 lines hold something else"):
        check_log(lambda **settings: Careless(events, **settings))


def test_a_reader_that_takes_half_a_line_is_found(tmp_path: Path) -> None:
    """A reader that adds the newline that is missing reads a line that was cut within its last candidate"""

    def lenient(path: Path, **settings: Any) -> Log:
        whole = path.with_name("completed")
        whole.write_bytes(path.read_bytes().rstrip(b"\n") + b"\n")
        return YahooLog([str(whole)], **settings)

    _, good, _ = text(R6B.replace(b"307", b"3071"), b"?\n", tmp_path)
    with pytest.raises(AssertionError, match="lines that nobody wrote"):
        check_log(lenient, good)
