"""Features of dicts and tables: sorted, unique, in range; alike by dict, by table and after a save; never half done."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import subprocess
import sys
import warnings
from collections import Counter
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftls.errors import (
    ColumnWarning,
    FileFormatError,
    InputError,
    MissingNumberWarning,
    NewerFileError,
    SettingsError,
)
from driftls.features import Features, Rows, from_header, is_records
from driftls.features import records as module
from driftls.logs import Block, synthetic_day

MAKE = {
    "hashed": lambda: Features(50, cross=[("a", "b"), ("*", "c")], categories=["b"]),
    "hashed, all crosses": lambda: Features(2**20, cross="all", constant=False),
    "vocabulary": lambda: Features(categories=["b"]),
    "vocabulary, all crosses": lambda: Features(cross="all"),
}
each = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE.keys())
USER = {"age": 31, "city": "Oslo", "tags": ["a", "b"], "embedding": [0.5, -2.0]}
ITEMS = [{"colour": "red", "price": 2.5}, {"colour": "blue"}, {"colour": "red", "price": 0.0}]

numbers = st.integers(-(10**9), 10**9) | st.floats(-1e6, 1e6) | st.booleans() | st.just(math.nan)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
columns = st.sampled_from(["a", "b", "c", "longer name", "d=1"])
values = st.none() | numbers | words | st.lists(words, max_size=3) | st.lists(st.floats(-10, 10), max_size=3)
record = st.dictionaries(columns, values, max_size=5)


def named(features: Features, rows: Any, k: int = 0) -> dict[str, float]:
    """Row k as {name: value}."""
    names = features.names
    begin, end = rows.start[k], rows.start[k + 1]
    return {names[j]: float(x) for j, x in zip(rows.indices[begin:end], rows.values[begin:end])}


def plain(features: Features, user: dict[str, Any], item: dict[str, Any]) -> dict[str, float]:
    """The names and values of an arm, in plain Python: what a vocabulary makes."""

    def names(prefix: str, given: dict[str, Any]) -> list[tuple[str, str, float]]:
        found = []
        for column, cell in given.items():
            several = isinstance(cell, list)
            for k, value in enumerate(cell if several else [cell]):
                if value is None or value != value:
                    continue
                if isinstance(value, str):
                    found.append((column, f"{prefix}{column}={value}", 1.0))
                elif column in features.categories:
                    text = str(int(value)) if value == int(value) else repr(float(value))
                    found.append((column, f"{prefix}{column}={text}", 1.0))
                else:
                    found.append((column, f"{prefix}{column}[{k}]" if several else prefix + column, float(value)))
        return found

    one, other = names("", user), names("item.", item)
    arm: Counter[str] = Counter({"constant": 1.0} if features.constant else {})
    for _, name, x in one + other:
        arm[name] += x
    for column, name, x in one:
        for with_, name_, z in other:
            if any(p in ("*", column) and q in ("*", with_) for p, q in features.cross):
                arm[f"{name}*{name_}"] += x * z
    return dict(arm)


def _optional(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError:
        return None


def alike(rows: Rows, other: Rows) -> bool:
    return rows.dim == other.dim and all(np.array_equal(a, b) for a, b in zip(rows[:3], other[:3]))


@given(user=record, items=st.lists(record, max_size=4))
@settings(max_examples=150, deadline=None)
@each
def test_any_records_give_sorted_unique_indices_in_range_and_the_names_that_plain_loops_give(make, user, items):
    features = make()
    rows = features.arms(user, items)
    assert rows.shape == (len(items), features.dim)
    assert rows.indices.dtype == np.int32
    assert rows.values.dtype == np.float64
    for k, item in enumerate(items):
        row = rows.indices[rows.start[k] : rows.start[k + 1]]
        assert (np.diff(row) > 0).all()
        assert len(row) == 0 or (row[0] >= 0 and row[-1] < features.dim)
        if not features.hashed:
            expected = {name: x for name, x in plain(features, user, item).items() if x != 0.0}
            got = {name: x for name, x in named(features, rows, k).items() if x != 0.0}
            assert got == pytest.approx(expected, rel=1e-12)


@given(user=record, items=st.lists(record, max_size=3), later=record)
@settings(max_examples=100, deadline=None)
@each
def test_what_was_saved_goes_on_alike(make, user, items, later):
    features = make()
    features.arms(user, items)
    header = features.to_header()
    loaded = from_header(json.loads(json.dumps(header)))
    assert loaded.to_header() == header
    for other in (loaded, copy.deepcopy(features), pickle.loads(pickle.dumps(features))):
        again = make()
        again.arms(user, items)
        for one in (later, user):
            assert alike(other.arms(one, [later, *items]), again.arms(one, [later, *items]))


def tables() -> dict[str, Any]:
    """Ways from records that have all columns, of one type each, to a table."""
    found = {"dict of columns": lambda rows: {name: [row[name] for row in rows] for name in rows[0]}}
    for name, of in (
        ("pandas", lambda package, rows: package.DataFrame(rows)),
        ("polars", lambda package, rows: package.DataFrame(rows, infer_schema_length=None)),
        ("pyarrow", lambda package, rows: package.Table.from_pylist(rows)),
    ):
        found[name] = lambda rows, name=name, of=of: of(pytest.importorskip(name), rows)
    return found


typed = st.fixed_dictionaries(
    {
        "number": st.none() | st.floats(-100, 100) | st.just(math.nan),
        "whole": st.integers(-(2**40), 2**40),
        "flag": st.booleans(),
        "b": st.integers(0, 3) | st.none(),
        "text": st.none() | words,
        "tags": st.none() | st.lists(words, max_size=3),
        "vector": st.lists(st.floats(-9, 9), min_size=2, max_size=2),
    }
)


@pytest.mark.parametrize("kind", ["dict of columns", "pandas", "polars", "pyarrow"])
@given(rows=st.lists(typed, min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_a_table_gives_what_its_rows_give_as_dicts(kind, rows):
    table = tables()[kind](rows)
    for make in MAKE.values():
        one, other = make(), make()
        by_dict, by_table = one._many(rows, None, every=False), other._many(table, None, every=False)
        assert one.missing == other.missing
        if one.hashed:
            assert alike(by_dict, by_table)
        else:  # a table names column by column, so the order of names differs
            for k in range(len(rows)):
                assert named(one, by_dict, k) == named(other, by_table, k)


@pytest.mark.parametrize("kind", ["dict of columns", "pandas", "polars", "pyarrow"])
def test_tables_of_users_and_items_are_crossed_row_by_row_or_each_with_each(kind):
    users = [{"a": "x", "n": 1.5}, {"a": "y", "n": 2.0}, {"a": "x", "n": -1.0}]
    items = [{"b": 3, "c": "p"}, {"b": 4, "c": "q"}, {"b": 3, "c": "q"}]
    make = MAKE["hashed"]
    features, table = make(), tables()[kind]
    rows = features.table(table(users), table(items)).toarray()
    every = features.rounds(table(users), table(items)).toarray()
    for n, user in enumerate(users):
        arms = make().arms(user, items).tocsr().toarray()
        assert np.array_equal(rows[n], arms[n])
        assert np.array_equal(every[3 * n : 3 * n + 3], arms)


def test_without_pyarrow_a_table_goes_record_by_record(monkeypatch):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([USER, {**USER, "city": None, "age": 2}], index=["x", "y"])
    expected = Features(64).table(frame)
    frames = [
        frame,
        *([polars.DataFrame([USER, {**USER, "city": None, "age": 2}])] if (polars := _optional("polars")) else []),
    ]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for table in frames:
        assert (Features(64).table(table) != expected).nnz == 0
    assert (Features(64).table([USER, {**USER, "city": None, "age": 2}]) != expected).nnz == 0


def test_columns_of_many_types_and_categories_of_a_frame_are_read_by_their_values():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"mixed": ["a", 1.5, None], "kind": pandas.Categorical(["p", "q", "p"], ["z", "q", "p"])})
    features = Features()
    rows = features._many(frame, None, every=False)
    assert named(features, rows, 1) == {"constant": 1.0, "mixed": 1.5, "kind=q": 1.0}
    only = Features()
    only.table(frame[["kind"]])
    assert only.names == ["constant", "kind=q", "kind=p"]  # no row has "z"
    assert Features().table(frame[["kind"]].iloc[:0]).shape == (0, 1)


# -- names and their indices -------------------------------------------------------------------------------------------


def test_hashes_are_the_same_in_every_process_and_written_down_here():
    text = (
        "from driftls.features import Features\n"
        "print(Features(2**20, cross='all').arms({'a': 'x'}, [{'b': 2}]).indices)"
    )
    found = {
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, env=env).stdout
        for env in (os.environ | {"PYTHONHASHSEED": seed} for seed in ("1", "2"))
    }

    def place(key: int) -> int:
        key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        key = (key ^ (key >> 27)) * 0x94D049BB133111EB % 2**64
        return ((key ^ (key >> 31)) >> 32) * 2**20 >> 32

    codes = [crc32(name) for name in (b"constant", b"a=x", b"item.b")]
    expected = sorted([*(place(code) for code in codes), place(codes[1] << 32 | codes[2])])
    assert found == {f"{np.array(expected)}\n"}


def test_the_same_comes_out_with_the_compiler_off():
    script = (
        "from driftls.features import Features\n"
        "for features in (Features(64, cross='all'), Features(cross='all')):\n"
        "    arms = features.arms({'a': 'x', 'n': 2.5}, [{'b': 'y'}, {'b': 'z'}])\n"
        "    print(arms.indices, arms.values, features.table([{'a': 'new'}]))\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True, env=env
        ).stdout
        for env in (os.environ | {"DRIFTLS_INTERPRET": off} for off in ("0", "1"))
    }
    assert len(found) == 1


def test_a_vocabulary_grows_and_what_had_an_index_keeps_it():
    features = Features(cross="all")
    assert (features.dim, features.names) == (1, ["constant"])
    first = features.arms({"city": "Oslo"}, [{"id": "x"}])
    before = features.names
    later = features.arms({"city": "Rome"}, [{"id": "x"}, {"id": "y"}])
    assert features.names[: len(before)] == before
    assert later.dim == features.dim > first.dim == len(before)
    assert features.arms({"city": "Oslo"}, [{"id": "x"}]).indices.tolist() == first.indices.tolist()


def test_a_vocabulary_of_many_crosses_gives_each_its_own_index_in_pieces_too(monkeypatch):
    users, items = [{"u": str(k)} for k in range(60)], [{"i": str(k)} for k in range(70)]
    features, pieces = Features(cross="all"), Features(cross="all")
    whole = features.rounds(users, items)
    assert features.dim == 1 + 60 + 70 + 60 * 70
    assert len(set(features.names)) == features.dim
    monkeypatch.setattr(module, "ENTRIES", 50)
    assert (pieces.rounds(users, items) != whole).nnz == 0
    assert (from_header(pieces.to_header()).rounds(users, items) != whole).nnz == 0


def test_the_share_of_collisions_is_what_counting_gives_and_near_what_is_expected():
    features = Features(1000, cross=[("u", "i")])
    features.rounds([{"u": str(k), "v": "1"} for k in range(30)], [{"i": str(k), "w": "1"} for k in range(30)])
    names, measured, expected = features.collisions
    wide = Features(2**24, cross=[("u", "i")])
    wide.rounds([{"u": str(k), "v": "1"} for k in range(30)], [{"i": str(k), "w": "1"} for k in range(30)])
    assert names == wide.collisions.names == 1 + 31 + 31 + 900
    assert wide.collisions.measured == 0.0
    assert expected == pytest.approx(1 - (1 - 1 / 1000) ** 962)
    # the number of names that share has a standard deviation of about sqrt(names) at most
    assert abs(measured - expected) < 4 / math.sqrt(names)
    assert Features().collisions == (1, 0.0, 0.0)


def test_names_are_forgotten_when_there_are_too_many_and_nothing_else_changes(monkeypatch):
    monkeypatch.setattr(module, "NAMES", 10)
    for make in (lambda: Features(64, cross="all"), lambda: Features(cross="all")):
        features, free = make(), make()
        for k in range(40):
            user, items = {"id": str(k % 23)}, [{"id": str(k % 7)}, "other"]
            rows = features.arms(user, items)
            monkeypatch.setattr(module, "NAMES", 10**6)
            assert alike(rows, free.arms(user, items))
            monkeypatch.setattr(module, "NAMES", 10)
        assert sum(len(column) for column in features._users.values()) <= 11


def test_missing_values_are_left_out_and_counted():
    features = Features()
    assert named(features, features.user({"a": None, "b": math.nan, "c": "x", "d": []})) == {"constant": 1, "c=x": 1}
    features.user({"a": 1.0, "c": np.nan, "b": np.float32(2)})
    assert features.missing == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_items_may_be_ids_and_a_pool_is_looked_up_once():
    features = Features(cross="all")
    rows = features.arms({"age": 3}, ["x", 12, np.int64(12)])
    assert named(features, rows, 0) == {"constant": 1, "age": 3, "item.id=x": 1, "age*item.id=x": 3}
    assert named(features, rows, 1) == named(features, rows, 2)
    assert alike(features.arms({"age": 3}, features.pool(["x", 12, 12])), rows)


def test_a_pool_that_was_changed_in_place_is_seen():
    features = Features()
    for pool, change in (
        ([{"n": 1.0}], lambda pool: pool[0].update(n=2.0)),
        ([{"n": [1.0, 2.0]}], lambda pool: pool[0]["n"].__setitem__(0, 5.0)),
        ([{"n": np.array([1.0, 2.0])}], lambda pool: pool[0]["n"].__setitem__(0, 5.0)),
    ):
        features.arms({}, pool)
        before = features.arms({}, pool)
        change(pool)
        after = features.arms({}, pool)
        assert not np.array_equal(before.values, after.values)
        assert alike(after, features.arms({}, copy.deepcopy(pool)))


def test_equal_numbers_are_one_category():
    features = Features(categories=["id"])
    for value in (1, 1.0, True, np.int8(1), "1"):
        assert named(features, features.user({"id": value})) == {"constant": 1, "id=1": 1}
    assert features.dim == 2


# -- events of logs ----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::driftls.errors.ColumnWarning")  # settings of other tests, too
@each
def test_an_event_is_a_user_with_numbered_columns_and_items_with_ids(make):
    block = next(synthetic_day(lines=40, seed=3).blocks())
    features, start = make(), block.truth_start
    rows = features.rows(block)
    for i in (0, 7, 39):
        event = block[i]
        user = {str(j): x for j, x in zip(event.user_index, event.user_value)}
        arms = features.arms(user, event.arms.tolist()).tocsr()
        assert (features.arms(event) != arms).nnz == 0
        part = rows[start[i] : start[i + 1]]
        assert (part != arms[:, : part.shape[1]]).nnz == 0
    assert features.rows(Block.from_events([block[0]])).shape[0] == len(block[0].arms)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"b": 1}, "column 'a': expected a number, text or a list of them, got a dict. Flatten it"),
        ([["x"]], "got a list. A list may hold numbers and text"),
        ({"x"}, "got a set. .*make a set a list"),
        (b"x", "got a bytes"),
        (math.inf, "must be finite"),
        (1e80, "must be finite .and below 1e75., got 1e.80"),
        ("\ud800", "text that UTF-8 can write"),
    ],
)
@each
def test_what_cannot_be_a_feature_is_refused_and_nothing_is_changed(make, value, message):
    features = make()
    features.arms(USER, ITEMS)
    before, expected = features.to_header(), features.arms(USER, ITEMS)
    for user, items in (({"new": "name", "a": value}, ITEMS), (USER, [{"newer": "name"}, {"a": value}])):
        with pytest.raises(InputError, match=message.replace("column 'a'", "column '(item.)?a'")):
            features.arms(user, items)
        with pytest.raises(InputError):
            features.table([USER, user], None if items is ITEMS else items)
    assert features.to_header() == before
    assert alike(features.arms(USER, ITEMS), expected)


def test_columns_of_a_table_are_refused_in_the_same_words():
    pa = pytest.importorskip("pyarrow")
    import datetime

    for cell, message in (
        ({"x": 1}, "got a dict. Flatten it"),
        (datetime.date(2020, 1, 1), "got a date"),
        ([[1]], "got a list"),
        (math.inf, "must be finite"),
    ):
        with pytest.raises(InputError, match=message):
            Features().table(pa.table({"a": [None, cell]}))
        with pytest.raises(InputError, match=message):
            Features().user({"a": cell})


def test_sets_are_refused_in_a_table_as_in_a_dict():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")  # which would make lists of them
    for table in (pandas.DataFrame({"a": [["x"], {"y"}]}), {"a": [{1}, None]}, [{"a": {"x"}}]):
        with pytest.raises(InputError, match="got a set"):
            Features().table(table)


def test_cells_that_pyarrow_cannot_read_go_record_by_record():
    pandas, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    tuples, small = Features(), Features(categories=["a"])
    tuples.table(pandas.DataFrame({"a": pandas.Categorical([(1, 2), (3, 4), (1, 2)])}))
    assert tuples.names == ["constant", "a[0]", "a[1]"]
    small.table(pandas.DataFrame({"a": np.array([1.5, 2.0], np.float16)}))
    assert small.names == ["constant", "a=1.5", "a=2"]
    dates = Features()
    assert dates.table(pa.table({"a": pa.array([None, None], pa.date32())})).nnz == 2
    assert dates.missing == {"a": 2}


def test_settings_and_arguments_that_cannot_be_are_refused():
    with pytest.raises(SettingsError, match="dim must be a whole number"):
        Features(0)
    with pytest.raises(SettingsError, match='cross must be "all" or pairs'):
        Features(cross="city")
    with pytest.raises(SettingsError, match="cross must be"):
        Features(cross=[("a", "b", "c")])
    with pytest.raises(SettingsError, match=r"Pass \['id'\]"):
        Features(categories="id")
    with pytest.raises(InputError, match="expected a user"):
        Features().arms([1.0, 2.0], ITEMS)
    with pytest.raises(InputError, match=r"got 3 and 2\. Use rounds"):
        Features().table([USER] * 3, ITEMS[:2])
    with pytest.raises(InputError, match="expected a pool of these features"):
        Features().arms(USER, Features().pool(ITEMS))
    with pytest.raises(InputError, match="a table or a list of dicts"):
        Features().table(3)
    for table in ({"a": 31, "b": "x"}, {"a": [1, 2], "b": [1]}, {"a": "text"}):
        with pytest.raises(InputError, match="columns of one length"):
            Features().table(table)
    with pytest.raises(FileFormatError, match="expected a new name or two indices below 1"):
        from_header({**Features().to_header(), "names": ["constant", "constant"]})
    with pytest.raises(FileFormatError, match="two indices below 1"):
        from_header({**Features().to_header(), "names": ["constant", [0, 1]]})
    assert from_header({"features": "Features", "cross": "all"}).names == ["constant"]  # as a study says it
    with pytest.raises(InputError, match="hashed features keep no names"):
        _ = Features(8).names
    with pytest.raises(InputError, match="expected a dict of columns, or an id"):
        Features().arms(USER, [1.5])
    with pytest.raises(NewerFileError, match="version 9"):
        from_header({**Features().to_header(), "version": 9})
    with pytest.raises(FileFormatError, match=r"of driftls 0\.1, which made and hashed them otherwise"):
        from_header({"features": "Hashed", "version": 1, "width": 8, "user_dim": 3})


def test_what_records_are():
    pa = pytest.importorskip("pyarrow")
    for yes in ({}, {"a": 1}, [{"a": 1}], pa.table({"a": [1]}), pa.table({"a": [1]}).to_batches()[0]):
        assert is_records(yes)
    for no in ([], [1.0], np.eye(2), 3, "text", __import__("scipy.sparse").sparse.csr_array(np.eye(2)), None):
        assert not is_records(no)


@pytest.mark.parametrize(
    "records",
    [
        [{"age": 31}, {"age": None}, {"age": None}],
        [{"age": float("nan")}, {"age": 31}],
        {"age": [31.0, None]},
    ],
    ids=["None", "NaN", "table"],
)
def test_a_number_that_is_missing_is_said_once_and_counted(records: Any) -> None:
    features = Features()
    with pytest.warns(MissingNumberWarning, match="column 'age': a number is missing, and is left out"):
        features.table(records)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        features.table(records)
    assert f"missing: age in {features.missing['age']}" in str(features)


def test_a_category_that_is_missing_is_counted_and_no_cause_for_a_warning() -> None:
    features = Features()
    features.table([{"city": "Oslo"}, {"city": None}, {}])
    assert features.missing == {"city": 2}
    assert str(features).endswith("3 users and 0 items, 2 features; missing: city in 2")


def test_a_blank_of_pandas_in_a_column_of_text_is_no_number_that_is_missing() -> None:
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"city": ["Oslo", None, float("nan")]})
    features = Features()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        features.table(table)
        for _, row in table.iterrows():
            features.user(row)
    assert features.missing == {"city": 4}


def test_rows_of_what_is_no_block_say_what_makes_rows_of_dicts():
    with pytest.raises(InputError, match=r"block of a log, got list\. Of dicts: table\(X\)"):
        Features().rows([{"age": 31}])


# -- what is said of settings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [None, 64])
def test_columns_that_are_named_and_never_come_are_said_once_with_those_that_did(dim):
    features = Features(dim, cross=[("town", "colour"), ("*", "id")], categories=["zip"])
    user, items = {"city": "Oslo", "age": 31}, [{"id": 1, "colour": "red"}, {"id": 2, "colour": "blue"}]
    for _ in range(997):  # and two items, looked up once
        features.arms(user, items)
    with pytest.warns(ColumnWarning) as told:
        features.arms(user, items)
    assert sorted(str(one.message) for one in told) == [
        "categories: no record had a column zip; there were city, age, id, colour. Check the names.",
        "cross, of users: no record had a column town; there were city, age. Check the names.",
    ]
    for _ in range(500):
        features.arms(user, items)


def test_columns_that_come_are_no_cause_for_a_warning():
    features = Features(cross=[("city", "colour")], categories=["zip"])
    features.rounds([{"city": "Oslo", "zip": 1}] * 1000, [{"colour": "red"}])


def test_a_warning_that_is_an_error_leaves_no_record_half_counted():
    features = Features()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        features.user({"age": None, "height": float("nan"), "city": "Oslo"})  # which may be text
        with pytest.raises(MissingNumberWarning):
            features.user({"age": 31, "height": 1.8, "city": "Oslo"})
    assert features.missing == {"age": 1, "height": 1, "city": 0}


def test_rows_of_pandas_are_users_and_items():
    pd = pytest.importorskip("pandas")
    users, items = pd.DataFrame([{"age": 31, "city": "Oslo"}]), pd.DataFrame([{"id": 1, "size": 2.0}, {"id": 2}])
    one, other = Features(cross="all"), Features(cross="all")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingNumberWarning)
        rows = [row for _, row in items.astype({"id": object}).iterrows()]
        got = one.arms(users.iloc[0], rows).tocsr()
        expected = other.arms(users.iloc[0].to_dict(), [row.to_dict() for row in rows]).tocsr()
    assert one.names == other.names
    assert (got != expected).nnz == 0
    with pytest.raises(InputError, match="a row of pandas"):
        one.arms(users, rows)
    rows[1]["size"] = 3.0  # changed in place: seen
    assert one.arms(users.iloc[0], rows).tocsr()[1].sum() != got[1].sum()


@pytest.mark.parametrize("make", [Features, lambda: Features(64)], ids=["vocabulary", "hashed"])
def test_a_table_that_is_refused_leaves_names_and_counts_as_they_were(make):
    features = make()
    features.table([{"city": "Oslo", "age": 31}, {"city": "Rome"}])
    before = features.to_header(), features.missing, str(features)
    for bad in ([{"city": "Lima", "shoe": 44}, {"city": object()}], {"city": ["Bonn"], "size": [1e80]}):
        with pytest.raises(InputError):
            features.table(bad)
        assert (features.to_header(), features.missing, str(features)) == before
    assert features.table([{"city": "Rome", "age": 2}]).nnz == 3


@pytest.mark.parametrize("make", [Features, lambda: Features(64)], ids=["vocabulary", "hashed"])
@pytest.mark.parametrize(
    ("user", "items"),
    [
        ({"shoe": 44.0, "age": math.inf}, ["a"]),
        ({"age": 3.0, "hat": "top"}, ["b", {"id": []}, 1.5]),
        ({"city": "Rome", "size": None, "tags": ["x", object()]}, ["a"]),
        ({"city": np.array([1.0, 2.0]), "age": None}, [{"id": "c", "price": 1.0}, {"id": "d", "price": {}}]),
        ({"city": "Lima", "age": 1}, {"id": ["e", "f"], "price": [1.0, 1e80]}),
        ({"city": "Lima"}, 5),
        ({"city": "Lima"}, ["a", "\ud800"]),
    ],
)
def test_a_refused_decision_leaves_names_and_counts_as_they_were(make, user, items) -> None:
    features = make()
    for _ in range(3):
        features.arms({"city": None, "age": 3.0}, [{"id": "a", "colour": "red"}])
    features.pool([{"id": "z"}])  # new names that no refusal may take

    def told():
        return features.to_header(), features.missing, str(features), features.collisions

    before = told()
    with pytest.raises(InputError):
        features.arms(user, items)
    assert told() == before
    features.arms({"city": "Lima", "hat": "top"}, ["b", "z"])
    assert features.missing == {"city": 3, "age": 1, "hat": 3, "item.id": 0, "item.colour": 3}


@pytest.mark.parametrize("cells", [[2**63, 1], [2**63, None], [-(10**30), 2.5]])
def test_whole_numbers_beyond_64_bits_are_read_from_a_table_as_from_dicts(cells):
    one, other = Features(), Features()
    found = one.table({"a": cells})
    expected = other.table([{"a": cell} for cell in cells])
    assert (found.toarray() == expected.toarray()).all()


def test_a_table_with_a_column_twice_is_refused():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InputError, match="'a' twice"):
        Features().table(pandas.DataFrame([[1, 2]], columns=["a", "a"]))


def test_an_array_in_an_item_may_be_changed_in_place():
    price = np.array(2.0)
    items, features = [{"price": price}], Features(constant=False)
    assert features.arms({}, items).values.tolist() == [2.0]
    price[...] = 5.0
    assert features.arms({}, items).values.tolist() == [5.0]


@pytest.mark.parametrize("as_table", [False, True])
def test_numbers_that_come_as_text_are_said_once(as_table: bool) -> None:
    records = [{"spend": f"{n / 7:.2f}", "zip": f"{n:04}", "name": f"n{n}", "id": str(n)} for n in range(1200)]
    features = Features(categories=["zip"])
    with pytest.warns(ColumnWarning, match=r"column 'spend': .* texts, such as '0.00', are nearly all numbers") as told:
        features.table(pd.DataFrame(records) if as_table else records)
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        features.table(records)
