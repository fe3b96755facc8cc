"""Logs of one's own: tables and dicts with a row for each decision."""

from __future__ import annotations

import gzip
import json
import re
from datetime import UTC, datetime

import numpy as np
import pytest

from driftls import DisjointLinUCB, Features, LinUCB, replay
from driftls.errors import DriftlsError, InputError, LogFormatError, MissingFileError, SettingsError
from driftls.features import UserOnly
from driftls.logs import Block, inspect, read, read_table, write_parquet
from driftls.offpolicy import estimate

COLUMNS = {"shown": "offer", "reward": "click", "propensity": "likely"}
OFFERS, LIKELY = ["a", "b", "c"], [0.6, 0.3, 0.1]


def rows(count: int = 400, seed: int = 0) -> list[dict]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        city, k = str(rng.choice(["Oslo", "Rome"])), int(rng.choice(3, p=LIKELY))
        click = int(rng.random() < (0.8 if (city, k) == ("Rome", 2) else 0.1))
        made.append({"city": city, "age": int(rng.integers(18, 80)), "offer": OFFERS[k], "click": click})
        made[-1]["likely"] = LIKELY[k]
    return made


def as_pandas(records):
    return pytest.importorskip("pandas").DataFrame(records)


def as_polars(records):
    return pytest.importorskip("polars").DataFrame(records)


def as_arrow(records):
    return pytest.importorskip("pyarrow").Table.from_pylist(records)


KINDS = {"dicts": list, "pandas": as_pandas, "polars": as_polars, "arrow": as_arrow}


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_any_kind_holds_what_its_dicts_do(kind):
    log, expected = read_table(KINDS[kind](rows()), **COLUMNS), rows()
    events = list(log)
    assert [event.visitor for event in events] == [{"city": row["city"], "age": row["age"]} for row in expected]
    assert [event.items[event.arm]["id"] for event in events] == [row["offer"] for row in expected]
    assert [event.reward for event in events] == [row["click"] for row in expected]
    assert [event.propensity for event in events] == [row["likely"] for row in expected]
    assert Block.join(log.blocks(7)) == Block.join(log.blocks())


@pytest.mark.parametrize("name", ["events.csv", "events.jsonl", "events.csv.gz", "events.jsonl.gz"])
def test_a_file_is_read_as_the_table_that_it_holds(tmp_path, name):
    pytest.importorskip("pyarrow")
    records = rows(40)
    if ".csv" in name:
        text = "\n".join([",".join(records[0]), *(",".join(map(str, row.values())) for row in records), ""])
    else:
        text = "".join(json.dumps(row) + "\n" for row in records)
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert Block.join(read_table(path, **COLUMNS).blocks()) == Block.join(read_table(records, **COLUMNS).blocks())
    with pytest.raises(InputError, match="read_table"):
        read(path)


def test_a_policy_learns_from_it_what_it_knows_when_it_serves():
    policy = DisjointLinUCB(features=Features(2**10), seed=0)
    run = replay(policy, read_table(rows(1500), **COLUMNS))
    assert run.settings["leading"] == "snips"
    assert sorted(policy.ids) == OFFERS
    assert policy.choose({"city": "Rome", "age": 31}, ids=OFFERS) == 2
    found = estimate(policy.freeze(), read_table(rows(1500, seed=1), **COLUMNS))
    assert found.valid.low < 0.45 < found.valid.high  # .8 of half of them, .1 of the others


@pytest.mark.parametrize(
    ("features", "disjoint"),
    [(Features, True), (lambda: Features(2**9), True), (lambda: Features(2**9), False)],
    ids=["vocabulary, one model an arm", "hashed, one model an arm", "hashed, shared"],
)
@pytest.mark.parametrize("delay", [0, 5])
def test_it_is_replayed_as_choose_and_learn_of_dicts_are(features, disjoint, delay):
    items = {"a": {"colour": "red"}, "b": {"colour": "blue", "price": 2.0}, "c": {}}
    records = rows(120)

    def make():
        return (DisjointLinUCB if disjoint else LinUCB)(features=features(), seed=0)

    policies = {"compiled": make(), "python": make()}
    for engine, policy in policies.items():
        replay(policy, read_table(records, items=items, **COLUMNS), engine=engine, delay=delay)
    by_hand = make()
    listed = [{"id": name, **items[name]} for name in OFFERS]
    order = list(dict.fromkeys(row["offer"] for row in records))  # arms in the order in which they are first shown
    listed = [next(item for item in listed if item["id"] == name) for name in order]
    waiting = []
    for n, row in enumerate(records):
        while waiting and waiting[0][0] + delay <= n:
            by_hand.learn(reward=waiting.pop(0)[1], key=n - delay)
        user = {"city": row["city"], "age": row["age"]}
        shown = order.index(row["offer"])
        what = {"ids": order} if disjoint else {"items": listed}
        if by_hand.choose(user, **what, key=n) != shown:
            by_hand.keys.waiting.pop(n)
        else:
            waiting.append((n, float(row["click"])))
            if not delay:
                by_hand.learn(reward=waiting.pop(0)[1], key=n)
    for n, reward in waiting:
        by_hand.learn(reward=reward, key=n)
    test = {"city": "Rome", "age": 44}
    what = {"ids": order} if disjoint else {"items": listed}
    scores = [policy.scores(test, **what) for policy in (*policies.values(), by_hand)]
    for other in scores[1:]:
        np.testing.assert_allclose(scores[0], other, rtol=1e-9)


def test_candidates_are_those_of_a_column_or_of_a_list():
    records = [row | {"pool": [row["offer"], "z"]} for row in rows(20)]
    for event in read_table(records, arms="pool", **COLUMNS):
        assert [event.items[k]["id"] for k in event.arms][-1] == "z"
        assert event.shown == 0
    event = next(iter(read_table(rows(20), arms=["c", "b", "a", "y"], **COLUMNS)))
    assert [event.items[k]["id"] for k in event.arms] == ["c", "b", "a", "y"]


def test_columns_are_the_visitors_unless_they_are_named():
    log = read_table(rows(3), visitor=["age"], **COLUMNS)
    assert [list(event.visitor) for event in log] == [["age"]] * 3


BROKEN = {
    "reward": {"click": "often"},
    "no reward": {"click": None},
    "infinite reward": {"click": float("inf")},
    "probability": {"likely": 0.0},
    "likelier than 1": {"likely": 1.5},
    "another arm": {"offer": "q"},
    "no arm": {"offer": None},
    "a list for an arm": {"offer": ["a"]},
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_row_is_named_or_counted(change):
    records = rows(10)
    records[4] |= change
    with pytest.raises(LogFormatError, match="row 4: expected"):
        list(read_table(records, arms=OFFERS, **COLUMNS))
    log = read_table(records, arms=OFFERS, on_error="skip", **COLUMNS)
    assert len(list(log)) == log.counts.events == 9
    assert (log.counts.lines, log.counts.skipped) == (10, 1)


def test_one_cell_that_is_no_number_breaks_its_own_row_alone(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "events.csv"
    path.write_text("city,offer,click\nOslo,a,1\nOslo,b,x\nRome,b,0.5\n")
    log = read_table(path, shown="offer", reward="click", on_error="skip")
    assert [event.reward for event in log] == [1.0, 0.5]
    assert (log.counts.skipped, log.counts.lines) == (1, 3)


def test_what_is_no_table_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "bad.jsonl").write_bytes(b'{"offer": "a", "cl')
    (tmp_path / "bad.csv").write_bytes(b"offer,click\na,1\nb\n")
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    (tmp_path / "half.csv.gz").write_bytes(gzip.compress(b"offer,click\na,1\n" * 100)[:40])
    for source in (5, [1, 2], "missing.csv", *tmp_path.iterdir()):
        with pytest.raises((InputError, MissingFileError, LogFormatError)):
            read_table(source, shown="offer", reward="click")
    for settings in ({"shown": "ofer"}, {"arms": []}, {"arms": ["a", "a"]}, {"arms": [None]}, {"visitor": ["q"]}):
        with pytest.raises(InputError):
            read_table(rows(5), **(COLUMNS | settings))


def test_what_cannot_take_dicts_says_so(tmp_path):
    log = read_table(rows(30), **COLUMNS)
    with pytest.raises(SettingsError, match="features="):
        replay(DisjointLinUCB(5, seed=0), log)
    with pytest.raises(DriftlsError, match="features="):
        replay(DisjointLinUCB(5, seed=0), log, features=UserOnly(5))
    with pytest.raises(InputError, match="dicts"):
        write_parquet(log, tmp_path / "log.parquet")
    assert inspect(log).logging.kind in ("propensities", "unknown")


def test_a_checkpoint_of_other_dicts_is_refused(tmp_path):
    records = rows(60)
    policy = DisjointLinUCB(features=Features(64), seed=0)

    def stop(lines: int) -> None:
        if lines >= 30:
            raise KeyboardInterrupt

    path = tmp_path / "replay.checkpoint"
    run = replay(policy, read_table(records, block=10, **COLUMNS), checkpoint=path, every=10, progress=stop)
    assert run.partial
    records[3]["city"] = "Bonn"
    again = DisjointLinUCB(features=Features(64), seed=0)
    with pytest.raises(DriftlsError):
        replay(again, read_table(records, block=10, **COLUMNS), checkpoint=path, every=10)


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("t.csv", "city,offer,click\nO,a,1\nR,b\nO,b,0\n", "t.csv:3: expected 3 columns, as the first line has, got 2"),
        ("t.jsonl", '{"city": "O", "offer": "a", "click": 1}\n{broken\n', "t.jsonl:2: expected a JSON object"),
    ],
)
def test_lines_of_a_file_that_are_no_rows_are_named_or_skipped_and_counted(tmp_path, name, text, place):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(LogFormatError, match=re.escape(place)):
        list(read_table(path, shown="offer", reward="click"))
    log = read_table(path, shown="offer", reward="click", on_error="skip")
    for _ in range(2):  # read once more, they are told once more
        assert [event.visitor["city"] for event in log] == ["O"] * (text.count("O,") or 1)
        assert (log.counts.skipped, place in log.counts.examples[0]) == (1, True)


def test_an_empty_cell_of_what_was_shown_breaks_its_row_and_is_no_arm(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "events.csv"
    path.write_text("city,offer,click\nOslo,a,1\nOslo,,1\n,b,0\nRome,b,1\n")
    with pytest.raises(LogFormatError, match="row 1: expected one of the arms, got 'offer' = None"):
        list(read_table(path, shown="offer", reward="click"))
    log = read_table(path, shown="offer", reward="click", on_error="skip")
    assert [event.visitor["city"] for event in log] == ["Oslo", None, "Rome"]
    assert [item["id"] for item in log.items] == ["a", "b"]
    assert (log.counts.skipped, log.counts.lines) == (1, 4)
    policy = DisjointLinUCB(features=Features(64), seed=0)
    assert replay(policy, log).rounds == 3  # a visitor's missing cell is no name


@pytest.mark.parametrize("compressed", [False, True])
def test_dates_and_times_of_a_csv_file_are_text_as_they_are_written(tmp_path, compressed):
    pytest.importorskip("pyarrow")
    when = {
        "at": "2024-03-01 10:00:00.5+00:00",
        "second": "2024-03-01 10:00:00",
        "day": "2024-03-01",
        "hour": "10:00:00",
    }
    records = [when | {"offer": "ab"[k % 2], "click": k % 2} for k in range(6)]
    text = "\n".join([",".join(records[0]), *(",".join(map(str, row.values())) for row in records), "a,b", ""])
    path = tmp_path / ("events.csv.gz" if compressed else "events.csv")
    path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
    log = read_table(path, shown="offer", reward="click", on_error="skip")
    assert [event.visitor for event in log] == [when] * 6
    assert log.counts.skipped == 1
    assert replay(DisjointLinUCB(features=Features(64), seed=0), log).rounds == 6


@pytest.mark.parametrize(("mark", "called"), [(";", "semicolons"), ("\t", "tabs")])
def test_a_csv_file_that_is_separated_by_something_else_is_told_so(tmp_path, mark, called):
    pytest.importorskip("pyarrow")
    path = tmp_path / "events.csv"
    path.write_text("city,offer,click\nOslo,a,1\n".replace(",", mark))
    with pytest.raises(InputError, match=f"seems to be separated by {called}: write it with commas"):
        read_table(path, shown="offer", reward="click")


def test_a_parquet_file_is_read_as_the_table_that_it_holds(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "events.parquet"
    pq.write_table(as_arrow(rows(40)), path)
    assert Block.join(read_table(path, **COLUMNS).blocks()) == Block.join(read_table(rows(40), **COLUMNS).blocks())
    times = [datetime(2024, 3, 1, 10, k, tzinfo=UTC) for k in range(40)]
    dated = [
        row | {"at": at, "day": at.date(), "hour": at.time(), "since": at - times[0]}
        for row, at in zip(rows(40), times)
    ]
    pq.write_table(as_arrow(dated), path)
    log = read_table(path, visitor=["at", "day", "hour", "since"], **COLUMNS)
    assert {type(value) for event in log for value in event.visitor.values()} == {str}
    path.write_text("offer,click\na,1\n")
    with pytest.raises(LogFormatError, match="expected a Parquet file"):
        read_table(path, shown="offer", reward="click")


def test_a_parquet_file_without_our_columns_is_told_to_name_its_own(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "events.parquet"
    pq.write_table(as_arrow(rows(4)), path)
    with pytest.raises(LogFormatError, match=re.escape("name its columns: --shown and --reward, or read_table")):
        read(path)


def few_counted(arms=None, count=4000, **settings):
    """A replay of a log that shows "a" but for one line, and what it prints."""
    records = [{"offer": "b" if k == 3 else "a", "click": 1 if k == 3 else -1, "x": k % 2} for k in range(count)]
    policy = DisjointLinUCB(features=Features(64), seed=0)
    run = replay(policy, read_table(records, shown="offer", reward="click", arms=arms), **settings)
    return run, " ".join(str(run).split())


def test_a_replay_of_which_hardly_a_line_counts_says_so_and_why():
    run, text = few_counted()
    assert run.settings["evaluations"] < 30
    told = f"Warning: DisjointLinUCB: only {run.settings['evaluations']} of 4,000 lines counted, too few to judge by"
    assert f"{told}: most likely the policy insists on an arm that was hardly ever shown" in text
    assert "arms= of a table names what may be shown" in text
    run, text = few_counted(arms=["b", "a"], limit=1)
    assert run.settings["evaluations"] == 0
    assert "nan" not in text
    assert "replay no line counted" in text
    assert "ctr no line counted" in text
    assert "Warning: DisjointLinUCB: no line counted: the log is short for its arms; replay more lines." in text


def test_a_log_of_many_arms_that_showed_uniformly_counts_what_chance_does():
    rng = np.random.default_rng(0)
    records = [{"offer": int(rng.integers(200)), "click": 0, "x": k % 2} for k in range(12_000)]
    log = read_table(records, shown="offer", reward="click", arms=list(range(200)))
    run = replay(DisjointLinUCB(features=Features(64), seed=0), log)
    assert 30 <= run.settings["evaluations"] < 120  # fewer than 1%, as many as there can be
    assert not run.settings["warnings"]


def test_arms_that_are_not_named_do_not_tell_which_is_shown_next():
    rows = [{"offer": offer, "click": 0} for offer in ("c", "a", "d", "b", 2, 1)]
    log = read_table(rows, shown="offer", reward="click")
    assert [item["id"] for item in log.items] == [1, 2, "a", "b", "c", "d"]
