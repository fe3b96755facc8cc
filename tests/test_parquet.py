"""Parquet logs: what is written is read back to the bit, what is wrong is named by its place, nothing is half there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftls import persistence
from driftls.errors import CorruptFileError, InputError, LogFormatError, SettingsError
from driftls.logs import Block, Counts, Event, SyntheticDay, parquet, read, synthetic_day, write_parquet

pa = pytest.importorskip("pyarrow", reason="Parquet logs need pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS: dict[str, Any] = {
    "time": [1317513300, 1317513301, 1317600000],
    "arms": [[5, 7], [5, 7, 9], [5, 7]],
    "shown": [1, 2, 0],
    "reward": [0.0, 1.0, 0.5],
    "user_index": [[0, 3], [], [2]],
    "user_value": [[1.0, 0.25], [], [2.0]],
    "propensity": [0.5, 0.25, 1.0],
    "arm_features": [[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [[1.0, 2.0], [3.0, 9.0]]],
    "truth": [[0.1, 0.2], [0.1, 0.2, 0.3], [0.4, 0.5]],
}


def write_rows(path: Path, **columns: Any) -> Path:
    """The rows above with some columns changed, or left out where they are None; by pyarrow alone."""
    kept = {name: values for name, values in {**ROWS, **columns}.items() if values is not None}
    pq.write_table(pa.table(kept), path)
    return path


def whole_log(path: Any, **options: Any) -> Block:
    return Block.join(read(path, **options).blocks())


def random_events(seed: int, n: int = 200) -> list[Event]:
    """Few pools and many, of all sizes, over three days, with everything that an event can have."""
    rng = np.random.default_rng(seed)
    pools = [rng.choice(50, size, replace=False) for size in rng.integers(1, 6, 12)]
    events = []
    for _ in range(n):
        arms = pools[rng.integers(12)]
        index = np.flatnonzero(rng.random(9) < 0.3).astype(np.int32)
        events.append(
            Event(
                time=int(rng.integers(0, 3 * 86_400)),
                arms=arms,
                shown=int(rng.integers(len(arms))),
                reward=float(rng.normal()),
                user_index=index,
                user_value=rng.normal(size=len(index)),
                propensity=float(rng.uniform(0.01, 1)),
                arm_features=np.outer(arms, [1.0, rng.integers(2)]),
                truth=rng.random(len(arms)),
            )
        )
    return events


# -- reading and writing ---------------------------------------------------------------------------------------------


def test_rows_that_pyarrow_wrote_are_events(tmp_path: Path) -> None:
    log = read(write_rows(tmp_path / "own.parquet"))
    events = list(log)
    assert (log.format, log.counts) == ("Parquet", Counts(lines=3, events=3))
    for i, event in enumerate(events):
        for name, values in ROWS.items():
            assert np.array_equal(getattr(event, name), values[i]), name
    assert events[1].user_index.dtype == np.int32
    arrays = [array for array in vars(next(log.blocks())).values() if array is not None]
    assert len(arrays) > 9
    assert all(array.flags.writeable for array in arrays)


def test_what_is_optional_may_be_absent_and_absent_values_are_ones(tmp_path: Path) -> None:
    optional = dict.fromkeys(("user_value", "propensity", "arm_features", "truth"))
    block = whole_log(write_rows(tmp_path / "own.parquet", **optional))
    assert (block.propensity, block.arm_features, block.truth) == (None, None, None)
    assert block.user_value.tolist() == [1.0, 1.0, 1.0]
    assert block.pool.tolist() == [0, 1, 0]


@pytest.mark.parametrize("kind", ["large", "fixed", "narrow"])
def test_other_widths_of_the_same_types_are_read_alike(tmp_path: Path, kind: str) -> None:
    arms, plain = [[5, 7], [7, 9], [5, 7]], dict.fromkeys(("arm_features", "truth"))
    write_rows(tmp_path / "a.parquet", arms=arms, shown=[0, 1, 1], **plain)
    types = {"large": pa.large_list(pa.int64()), "fixed": pa.list_(pa.uint32(), 2), "narrow": pa.list_(pa.int16())}
    other = {"arms": pa.array(arms, types[kind]), "shown": pa.array([0, 1, 1], pa.uint8())}
    reward = pa.array(ROWS["reward"], pa.float32())
    write_rows(tmp_path / "b.parquet", **other, reward=reward, **plain)
    assert whole_log(tmp_path / "a.parquet") == whole_log(tmp_path / "b.parquet")


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_everything_comes_back_to_the_bit_whatever_the_blocks(tmp_path: Path, size: int) -> None:
    events = random_events(seed=1)
    write_parquet(read(events, block=size), tmp_path / "one.parquet")
    log = read(tmp_path / "one.parquet", block=size)
    assert list(log) == events
    assert max(map(len, log.blocks())) <= size
    assert log.share == 1.0


def test_a_folder_has_one_file_a_day_and_reads_in_the_order_of_days(tmp_path: Path) -> None:
    events = random_events(seed=2)
    write_parquet(read(events), tmp_path / "days")
    files = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.parquet"))
    assert files == [f"days/day=1970-01-0{day}/part-0.parquet" for day in (1, 2, 3)]
    assert list(read(tmp_path / "days")) == sorted(events, key=lambda event: event.time // 86_400)


def test_text_and_parquet_hold_the_same_blocks(tmp_path: Path) -> None:
    synthetic_day(lines=3000, seed=3).write(tmp_path / "day.gz")
    write_parquet(read(tmp_path / "day.gz"), tmp_path / "days")
    assert whole_log(tmp_path / "days") == whole_log(tmp_path / "day.gz")


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP", 64)
    heard: list[int] = []
    write_parquet(read(random_events(seed=4)).blocks(150), tmp_path / "one.parquet", progress=heard.append)
    file = pq.ParquetFile(tmp_path / "one.parquet")
    assert [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)] == [64, 64, 22, 50]
    assert heard == [150, 200]


@given(st.lists(st.sampled_from([(1,), (2,), (1, 2), (2, 1), (3, 1, 2)]), max_size=30), st.booleans())
def test_pools_are_merged_as_a_dictionary_would(pools: list[tuple[int, ...]], with_features: bool) -> None:
    sizes = np.array([len(pool) for pool in pools], np.int64)
    ids, n = np.array(sum(pools, ()), np.int64), len(pools)
    features = np.repeat(np.arange(n) % 2, sizes)[:, None].astype(float) if with_features else None
    lines = {"time": np.arange(n), "shown": np.zeros(n, np.int32), "reward": np.zeros(n)}
    lines |= {"user_start": np.zeros(n + 1, int), "user_index": np.zeros(0, np.int32), "user_value": np.zeros(0)}
    start = np.concatenate(([0], np.cumsum(sizes)))
    block = Block.packed(np.arange(n), start, ids, features, **lines)
    distinct = list(dict.fromkeys((pool, i % 2 if with_features else 0) for i, pool in enumerate(pools)))
    assert block.pool.tolist() == [distinct.index((p, i % 2 if with_features else 0)) for i, p in enumerate(pools)]
    assert block.pool_ids.tolist() == list(sum((pool for pool, _ in distinct), ()))


def test_memory_does_not_grow_with_the_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP", 65_536)

    def peak(lines: int) -> int:
        write_parquet(synthetic_day(lines=lines, seed=1), tmp_path / f"{lines}.parquet")
        log = read(tmp_path / f"{lines}.parquet", block=2000)
        assert pq.ParquetFile(tmp_path / f"{lines}.parquet").num_row_groups == 1
        next(log.blocks())  # imports what it needs
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        arrow = max(pa.total_allocated_bytes() - before for _ in log.blocks())
        ours = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return arrow + ours

    assert peak(60_000) < 1.5 * peak(15_000)  # four times the lines


# -- what is wrong ---------------------------------------------------------------------------------------------------

BAD_ROWS: list[tuple[dict[str, Any], int, str]] = [
    ({"shown": [1, 3, 0]}, 1, "`shown` to be a position among the arms, from 0, got shown = 3."),
    ({"shown": [1, 2, -1]}, 2, "`shown` to be a position among the arms, from 0, got shown = -1."),
    ({"arms": [[], [5, 7, 9], [5, 7]]}, 0, "`shown` to be a position among the arms, from 0, got shown = 1."),
    ({"arms": [[5, 7], [5, 9, 5], [5, 7]]}, 1, "arms that differ, got arms = [5, 9, 5]."),
    ({"reward": [0.0, float("nan"), 0.5]}, 1, "finite numbers, got reward = nan."),
    ({"reward": [0.0, 1.0, None]}, 2, "no null, got reward = None."),
    ({"arms": [[5, 7], [5, None, 9], [5, 7]]}, 1, "no null, got arms = [5, None, 9]."),
    ({"user_index": [[3, 0], [], [2]]}, 0, "user indices of at least 0 that increase, got user_index = [3, 0]."),
    ({"user_index": [[3, 3], [], [2]]}, 0, "user indices of at least 0 that increase, got user_index = [3, 3]."),
    ({"user_index": [[0, 3], [], [-2]]}, 2, "user indices of at least 0 that increase, got user_index = [-2]."),
    (
        {"user_value": [[1.0, 0.25], [1.0], [2.0]]},
        1,
        "as many entries as there are user_index, got user_value = [1.0].",
    ),
    ({"user_value": [[1.0, np.inf], [], [2.0]]}, 0, "finite numbers, got user_value = [1.0, inf]."),
    ({"propensity": [0.5, 0.0, 1.0]}, 1, "a probability above 0, got propensity = 0.0."),
    ({"truth": [[0.1, 0.2], [0.1], [0.4, 0.5]]}, 1, "as many entries as there are arms, got truth = [0.1]."),
    (
        {"arm_features": [[[1.0], [3.0]], [[1.0], [3.0], [5.0, 6.0]], [[1.0], [3.0]]]},
        1,
        "as many features of every arm, got arm_features = [[1.0], [3.0], [5.0, 6.0]].",
    ),
]


@pytest.mark.parametrize(("columns", "row", "message"), BAD_ROWS, ids=[message for _, _, message in BAD_ROWS])
def test_a_bad_row_is_named_by_file_and_row_or_counted(
    tmp_path: Path, columns: dict[str, Any], row: int, message: str
) -> None:
    path = write_rows(tmp_path / "bad.parquet", **columns)
    place = f"{path}: row {row}: expected {message}"
    with pytest.raises(LogFormatError) as error:
        list(read(path))
    assert str(error.value) == f'{place} Pass on_error="skip" to skip and count bad lines.'
    log = read(path, on_error="skip")
    good = list(read(write_rows(tmp_path / "good.parquet")))
    if set(columns) & {"arm_features"}:
        assert [e.time for e in log] == [e.time for i, e in enumerate(good) if i != row]
    else:
        assert list(log) == [event for i, event in enumerate(good) if i != row]
    assert log.counts == Counts(lines=3, events=2, skipped=1, examples=[place])


@pytest.mark.parametrize(
    "columns", [{"reward": [np.nan] * 3}, {"time": pa.nulls(3, pa.int64())}, {"arms": [[1, 1, 1]] * 3}]
)
def test_a_file_of_bad_rows_has_no_events(tmp_path: Path, columns: dict[str, Any]) -> None:
    plain = dict.fromkeys(("arm_features", "truth"))
    log = read(write_rows(tmp_path / "bad.parquet", **plain | columns), on_error="skip")
    assert list(log) == []
    assert (log.counts.lines, log.counts.skipped) == (3, 3)


def test_the_arms_whose_features_are_unlike_the_others_are_blamed(tmp_path: Path) -> None:
    features = [[[1.0, 2.0], [3.0]], [[1.0], [3.0], [5.0]], [[1.0], [3.0]]]
    log = read(write_rows(tmp_path / "bad.parquet", arm_features=features), on_error="skip")
    assert [event.time for event in log] == ROWS["time"][1:]


def test_rows_are_counted_across_row_groups(tmp_path: Path) -> None:
    shown = np.zeros(100, np.int32)
    shown[[47, 48]] = 9, 8
    repeated = {name: [values[0]] * 100 for name, values in ROWS.items()}
    pq.write_table(pa.table({**repeated, "shown": shown}), tmp_path / "bad.parquet", row_group_size=40)
    log = read(tmp_path / "bad.parquet", on_error="skip", block=5)
    assert sum(map(len, log.blocks())) == 98
    places = [example.split(": expected")[0].split(".parquet: ")[1] for example in log.counts.examples]
    assert places == ["row 47", "row 48"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"reward": None}, "expected a column `reward` of numbers, got time, arms, shown"),
        ({"reward": ["0", "1", "0"]}, "expected `reward` to be numbers that fit double, got string"),
        ({"time": [0.5, 1.5, 2.5]}, "expected `time` to be whole numbers that fit int64, got double"),
        ({"arms": [1, 2, 3]}, "expected `arms` to be lists of whole numbers that fit int64, got int64"),
        ({"truth": [["a"], [], []]}, "expected `truth` to be lists of numbers that fit double, got list"),
        (
            {"arm_features": [[1.0], [], []]},
            "expected `arm_features` to be lists of lists of numbers that fit double, got list",
        ),
        (
            {"user_index": [[0, 2**40], [], [2]]},
            "expected `user_index` to be lists of whole numbers that fit int32, got list<element: int64>",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_column_that_cannot_be_used_is_named(
    tmp_path: Path, columns: dict[str, Any], message: str, on_error: str
) -> None:
    path = write_rows(tmp_path / "bad.parquet", **columns)
    with pytest.raises(LogFormatError) as error:
        list(read(path, on_error=on_error))
    assert str(error.value).startswith(f"{path}: {message}")


def test_a_file_that_breaks_off_is_damaged_wherever_it_is_cut(tmp_path: Path) -> None:
    content = write_rows(tmp_path / "good.parquet").read_bytes()
    path = tmp_path / "cut.parquet"
    for length in (4, 8, 11, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(CorruptFileError, match="the footer is damaged"):
            read(path)


def test_damaged_bytes_are_noticed_by_their_checksum(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    write_parquet(synthetic_day(lines=2000, seed=1), path)
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(CorruptFileError, match="what follows row 0 is damaged"):
        list(read(path).blocks())
    content[-8:-4] = b"\xff\xff\xff\x7f"  # the length of the footer
    path.write_bytes(content)
    with pytest.raises(CorruptFileError, match="the footer is damaged"):
        read(path)


def test_a_folder_without_parquet_and_a_mixture_of_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere: expected a log"):
        read(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LogFormatError, match=r"with \.parquet files in it, got none"):
        read(tmp_path / "empty")
    synthetic_day(lines=10).write(tmp_path / "day.gz")
    with pytest.raises(LogFormatError, match="expected a Parquet file"):
        read([write_rows(tmp_path / "own.parquet"), tmp_path / "day.gz"])


@pytest.mark.parametrize("name", ["days", "one.parquet"])
def test_events_that_do_not_have_the_same_columns_are_not_written(tmp_path: Path, name: str) -> None:
    one, two = (Block.from_events([event]) for event in random_events(seed=5, n=2))
    with pytest.raises(InputError, match="throughout"):
        write_parquet([one, replace(two, time=one.time, truth=None)], tmp_path / name)
    with pytest.raises(InputError, match="no events"):
        write_parquet([], tmp_path / name)
    assert list(tmp_path.iterdir()) == []


# -- files that are whole --------------------------------------------------------------------------------------------


def test_a_folder_that_holds_something_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(SettingsError, match="a new or an empty folder"):
        write_parquet(synthetic_day(lines=10), tmp_path)
    assert (tmp_path / "mine").read_text() == "keep"
    (tmp_path / "empty").mkdir()
    write_parquet(synthetic_day(lines=10), tmp_path / "empty")
    assert len(whole_log(tmp_path / "empty")) == 10


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    write_parquet(synthetic_day(lines=10), path)
    before = path.read_bytes()

    def interrupted() -> Any:
        yield next(synthetic_day(lines=20).blocks())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_parquet(interrupted(), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["days", "one.parquet"])
def test_a_convert_that_is_killed_leaves_nothing_that_looks_whole_and_the_next_one_completes(
    tmp_path: Path, name: str
) -> None:
    synthetic_day(lines=4000, seed=6).write(tmp_path / "day.gz")
    slow = (
        "import sys, time, driftls.logs as logs\n"
        "log, out = logs.read(sys.argv[1], block=100), sys.argv[2]\n"
        "logs.parquet.ROW_GROUP = 100\n"
        "logs.write_parquet(log, out, progress=lambda lines: (print(lines, flush=True), time.sleep(0.05)))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", slow, tmp_path / "day.gz", tmp_path / name], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while int(process.stdout.readline()) < 1500:
        assert not (tmp_path / name).exists()
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    (left,) = (entry for entry in os.listdir(tmp_path) if entry != "day.gz")
    assert re.fullmatch(rf"\.driftls-\w+-{process.pid}-\w+\.part", left)
    (tmp_path / "above").mkdir()
    (tmp_path / left).rename(tmp_path / "above" / left)
    with pytest.raises(LogFormatError, match="got none"):  # what was left is not found by a folder above it
        read(tmp_path / "above")
    (tmp_path / "above" / left).rename(tmp_path / left)
    persistence._remove_orphans.cache_clear()  # as in a new process
    write_parquet(read(tmp_path / "day.gz"), tmp_path / name)
    assert whole_log(tmp_path / name) == whole_log(tmp_path / "day.gz")
    assert sorted(os.listdir(tmp_path)) == ["above", "day.gz", name]


# -- events of the caller's own --------------------------------------------------------------------------------------


def test_any_iterable_of_events_is_a_log() -> None:
    events = random_events(seed=7, n=25)
    log = read(events, block=10)
    assert [len(block) for block in log.blocks()] == [10, 10, 5]
    assert list(log) == events
    assert (log.format, log.counts) == ("events", Counts(lines=25, events=25))
    once = read(iter(events), block=10)
    assert list(once) == events
    with pytest.raises(InputError, match="can be read once"):
        list(once)


def test_a_synthetic_day_is_an_iterable_of_events() -> None:
    day: SyntheticDay = synthetic_day(lines=50, seed=1)
    assert Block.join(read(day).blocks()) == Block.join(day.blocks())


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_any_log_survives_the_way_through_a_file(seed: int, n: int) -> None:
    events = random_events(seed, n)
    with tempfile.TemporaryDirectory() as folder:
        write_parquet(read(events), f"{folder}/one.parquet")
        assert list(read(f"{folder}/one.parquet")) == events
