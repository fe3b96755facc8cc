"""The Open Bandit Dataset's layout: on a folder that the test writes, and on the sample that the package obp ships."""

from __future__ import annotations

import csv
import importlib.util
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftls.errors import LogFormatError
from driftls.logs import Block, Counts, OpenBanditLog, read, write_parquet

pytest.importorskip("pyarrow", reason="the reader of the Open Bandit Dataset needs pyarrow")

# Invented values in the dataset's columns.
HEADER = ["", "timestamp", "item_id", "position", "click", "propensity_score"]
HEADER += [f"user_feature_{k}" for k in range(4)] + ["user-item_affinity_0", "user-item_affinity_1"]
LINES = [
    ["0", "2019-11-24 00:00:15.004101+00:00", "4", "3", "0", "0.5", "a", "b", "c", "d", "0.0", "1.0"],
    ["1", "2019-11-24 00:00:16+00:00", "1", "1", "1", "0.25", "a", "x", "a", "d", "0.0", "0.0"],
    ["2", "2019-11-25 12:00:00.5+00:00", "2", "3", "0", "0.125", "e", "b", "c", "f", "2.0", "0.0"],
]


def write(folder: Path, lines: list[list[str]], header: list[str] = HEADER) -> Path:
    folder.mkdir()
    with open(folder / f"{folder.name}.csv", "w", newline="") as file:
        csv.writer(file).writerows([header, *lines])
    (folder / "item_context.csv").write_text(",item_id,item_feature_0\n0,2,0.5\n1,1,0.25\n2,4,-1.0\n")
    return folder


def changed(line: int, column: str, value: str) -> list[list[str]]:
    lines = [list(values) for values in LINES]
    lines[line][HEADER.index(column)] = value
    return lines


def test_lines_are_events_over_all_items(tmp_path: Path) -> None:
    log = read(write(tmp_path / "all", LINES))
    events = list(log)
    assert (log.format, log.counts) == ("Open Bandit", Counts(lines=3, events=3))
    assert [event.time for event in events] == [1574553615, 1574553616, 1574683200]
    assert [event.arms.tolist() for event in events] == [[1, 2, 4]] * 3
    assert [event.arm for event in events] == [4, 1, 2]
    assert [event.reward for event in events] == [0.0, 1.0, 0.0]
    assert [event.propensity for event in events] == [0.5, 0.25, 0.125]
    assert log.share == 1.0


def test_values_get_indices_in_the_order_of_their_coming(tmp_path: Path) -> None:
    folder = write(tmp_path / "all", LINES)
    log = OpenBanditLog([str(folder)])
    events = list(log)
    names = ["position=3", "user_feature_0=a", "user_feature_1=b", "user_feature_2=c", "user_feature_3=d"]
    names += ["position=1", "user_feature_1=x", "user_feature_2=a", "user_feature_0=e", "user_feature_3=f"]
    assert log.names == ["constant", *names]
    expected = [[0, 1, 2, 3, 4, 5], [0, 2, 5, 6, 7, 8], [0, 1, 3, 4, 9, 10]]
    assert [event.user_index.tolist() for event in events] == expected
    assert list(log) == events  # and the same when it is read again


@pytest.mark.parametrize("size", [1, 2, 3])
def test_blocks_change_nothing(tmp_path: Path, size: int) -> None:
    folder = write(tmp_path / "all", LINES)
    log = read(folder, block=size)
    assert Block.join(log.blocks()) == next(read(folder).blocks())


def test_names_that_are_given_keep_their_indices(tmp_path: Path) -> None:
    one = OpenBanditLog([str(write(tmp_path / "one", LINES))])
    expected = list(one)
    other = OpenBanditLog([str(write(tmp_path / "other", LINES[::-1]))], names=one.names)
    assert list(other) == expected[::-1]
    assert other.names == one.names


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (changed(1, "item_id", "3"), "all.csv:3: expected an item of item_context.csv, got item_id = 3."),
        (changed(2, "item_id", "9"), "all.csv:4: expected an item of item_context.csv, got item_id = 9."),
        (changed(0, "click", "2"), "all.csv:2: expected a click of 0 or 1, got click = 2."),
        (changed(1, "propensity_score", "0"), "all.csv:3: expected a probability above 0, got propensity_score = 0.0."),
        (changed(1, "propensity_score", ""), "all.csv:3: expected a probability above 0, got propensity_score = None."),
        (changed(2, "item_id", ""), "all.csv:4: expected an item of item_context.csv, got item_id = None."),
        (changed(2, "click", ""), "all.csv:4: expected a click of 0 or 1, got click = None."),
        (changed(0, "timestamp", ""), "all.csv:2: expected a time, got timestamp = None."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_line_that_makes_no_sense_is_named_or_counted(tmp_path: Path, lines: Any, message: str) -> None:
    folder = write(tmp_path / "all", lines)
    with pytest.raises(LogFormatError) as error:
        list(read(folder))
    assert str(error.value).startswith(f"{folder}/{message}")
    log = read(folder, on_error="skip")
    assert len(list(log)) == 2
    assert log.counts == Counts(lines=3, events=2, skipped=1, examples=[f"{folder}/{message}"])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (changed(1, "item_id", "one"), "all.csv:3: .*'one'"),
        (changed(1, "timestamp", "yesterday"), "all.csv:3: .*'yesterday'"),
        ([*LINES, ["3", "2019"]], r"all.csv:5: .*Expected 12 columns, got 2"),
    ],
    ids=["item", "time", "short"],
)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_line_that_cannot_be_read_always_raises(tmp_path: Path, lines: Any, message: str, on_error: str) -> None:
    with pytest.raises(LogFormatError, match=message):
        list(read(write(tmp_path / "all", lines), on_error=on_error))


def test_a_folder_that_is_not_complete_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "all", LINES)
    (folder / "item_context.csv").write_text("item\n1\n")
    with pytest.raises(
        LogFormatError, match=r"item_context.csv: expected CSV with the columns item_id, got: .*does not exist"
    ):
        read(folder)
    (folder / "item_context.csv").write_text("item_id\n1\n1\n")
    with pytest.raises(
        LogFormatError, match=r"item_context.csv:3: expected as item_id a number that no other item has, got 1\."
    ):
        read(folder)
    for text, said in (
        ("1\n99999999999999999999\n", ":3: .*invalid value '9999"),
        ("x\n", ":2: .*invalid value 'x'"),
        ("", "none"),
    ):
        (folder / "item_context.csv").write_text(f"item_id\n{text}")
        with pytest.raises(LogFormatError, match=f"item_context.csv{said}" if ":" in said else said):
            read(folder)
    (folder / "all.csv").unlink()
    with pytest.raises(LogFormatError, match=r"one other \.csv file, got none"):
        read(folder)
    with pytest.raises(LogFormatError, match=r"no\.csv: .*click"):
        list(read(write(tmp_path / "no", [line[:4] for line in LINES], HEADER[:4])))


def sample() -> Path:
    """The folder of the sample, found without importing obp, which pulls much else."""
    found = importlib.util.find_spec("obp")
    if found is None or found.origin is None:
        pytest.skip("obp, whose sample is read here, is not installed")
    return Path(found.origin).parent / "dataset" / "obd"


@pytest.mark.parametrize("campaign", ["random/all", "bts/men"])
def test_the_sample_of_obp_is_read_as_the_csv_module_reads_it(tmp_path: Path, campaign: str) -> None:
    folder = sample() / campaign
    log = read(folder)
    block = Block.join(log.blocks())
    with open(folder / f"{folder.name}.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert log.counts == Counts(lines=len(rows), events=len(rows))
    assert block.reward.tolist() == [float(row["click"]) for row in rows]
    assert block.propensity is not None
    assert block.propensity.tolist() == [float(row["propensity_score"]) for row in rows]
    assert block.pool_ids[block.shown].tolist() == [int(row["item_id"]) for row in rows]
    assert block.time.tolist() == [int(datetime.fromisoformat(row["timestamp"]).timestamp()) for row in rows]
    assert isinstance(log, OpenBanditLog)
    names = np.array(log.names)
    for i in range(0, len(rows), 997):
        features = ["position", *(f"user_feature_{k}" for k in range(4))]
        expected = {"constant", *(f"{name}={rows[i][name]}" for name in features)}
        assert set(names[block[i].user_index]) == expected
    write_parquet(log, tmp_path / "days")
    assert Block.join(read(tmp_path / "days").blocks()) == block
