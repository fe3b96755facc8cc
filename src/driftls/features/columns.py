"""Records as codes of names, column by column: {"age": 31, "city": "Oslo"} has the names "age" and "city=Oslo"."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import ColumnWarning, InputError, MissingNumberWarning, SettingsError
from driftls.features.names import Coded

Key = str | int | None  # a category, a place in a list of numbers, or the number itself
NUMBERS = frozenset({bool, int, float})
LARGEST = 1e75  # what trackers and policies take
NEVER = object()  # the name of no column


class Column:
    """What is known of one column: the code of each of its names, and how many records had it."""

    __slots__ = ("blank", "category", "codes", "group", "name", "present")

    def __init__(self, name: str, group: int, category: bool) -> None:
        self.name, self.group, self.category = name, group, category
        self.codes: dict[Key, int] = {}
        self.present = 0
        self.blank = False  # whether a cell was blank before it was known whether there are numbers


class Space:
    """The columns of users, or those of items."""

    def __init__(
        self,
        prefix: str,
        code: Callable[[str], int],
        groups: Mapping[str, int],
        categories: Collection[str],
        untold: list[Warning],
    ) -> None:
        self.prefix, self._code, self._groups, self._categories, self._untold = prefix, code, groups, categories, untold
        self.columns: dict[Any, Column] = {}
        self.records = 0
        self.names = 0
        self.plain = True  # whether no value was a list or array, which could be changed in place
        self.told = False  # that a number was missing
        # what the present call has noted of columns, which records it has counted, and where it began: columns, told
        self.noted: list[tuple[Column, str]] = []
        self.counted: list[Any] = []
        self._began = 0, False

    def column(self, name: Any) -> Column:
        """The column of this name, a new one if it is new."""
        column = self.columns.get(name)
        if column is None:
            text = str(name)
            column = Column(self.prefix + text, self._groups.get(text, 0), text in self._categories or text == "id")
            self.columns[name] = column
        return column

    def code(self, column: Column, key: Key) -> int:
        """The code of one of its names; the group of the column stands above it."""
        found = column.codes.get(key)
        if found is None:
            name = column.name
            if key is not None:
                name += f"={key}" if isinstance(key, str) else f"[{key}]"
            found = column.codes[key] = self._code(name) | (column.group << 32)
            self.names += 1
            self.noted.append((column, "name"))
        return found

    def categories(self, column: Column, keys: list[str]) -> list[int]:
        """The codes of many of its categories."""
        known, start, group = column.codes, column.name + "=", column.group << 32
        new = [key for key in keys if key not in known]
        known.update(zip(new, [self._code(start + key) | group for key in new]))
        self.names += len(new)
        return [known[key] for key in keys]

    def add(self, record: Any, codes: list[int], values: list[float]) -> None:
        """Append the codes and values of a record."""
        record = self._columns_of(record)
        columns = self.columns
        self.records += 1
        self.counted.append(record)
        name: Any = None
        try:
            for name, value in record.items():
                try:
                    column = columns[name]
                    kind = type(value)
                    if kind is str:
                        codes.append(column.codes[value])
                        values.append(1.0)
                    elif kind in NUMBERS and -LARGEST < value < LARGEST and not column.category:
                        codes.append(column.codes[None])
                        values.append(value)
                    else:
                        column.present += self._add_rest(column, value, codes, values)
                        continue
                except KeyError:  # a new column, or a new name
                    column = self.column(name)
                    if type(value) is not str:
                        column.present += self._add_rest(column, value, codes, values)
                        continue
                    codes.append(self.code(column, value))
                    values.append(1.0)
                column.present += 1
        except BaseException:
            self._uncount(self.counted.pop(), name)
            raise

    def _uncount(self, record: Any, until: Any = NEVER) -> None:
        """Take back that a record was counted, up to this column of it."""
        self.records -= 1
        for name, value in record.items():
            if name is until:
                return
            column = self.columns[name]
            value = value.tolist() if hasattr(value, "tolist") else value
            column.present -= isinstance(value, list | tuple) or scalar(value, column) is not None

    def _columns_of(self, record: Any) -> Any:
        """A record as a dict; an id is a column."""
        if type(record) is dict:
            return record
        if isinstance(record, Mapping):
            return dict(record)  # once: it may make its keys and values as they are asked for
        row = as_record(record)
        self.plain &= row is None
        return {"id": _id_of(record)} if row is None else row

    def _add_rest(self, column: Column, value: Any, codes: list[int], values: list[float]) -> bool:
        """Append a value of any kind; returns whether there is one."""
        if hasattr(value, "tolist"):  # an array, or a number of NumPy's
            value = value.tolist()
        several = isinstance(value, list | tuple)
        self.plain &= not several
        entries = [scalar(entry, column) for entry in (value if several else [value])]
        found = [
            (k if several and entry[0] is None else entry[0], entry[1]) for k, entry in enumerate(entries) if entry
        ]
        if not several and not found and not column.blank:
            column.blank = True
            self.noted.append((column, "blank"))
        codes += [self.code(column, key) for key, _ in found]
        if column.blank and None in column.codes:
            self.tell_missing(column)
        values += [x for _, x in found]
        return several or bool(found)

    def tell_missing(self, column: Column) -> None:
        """Note once that a number is missing: what is left out is 0, which for a number is a value as any other."""
        if not self.told:
            self.told = True
            told = (
                f"column {column.name!r}: a number is missing, and is left out, which counts as 0, or as the mean if "
                "nearly all records have one far from 0. Fill it in, or say "
            )
            told += "it in a column of its own; features.missing counts such records, of every column."
            self._untold.append(MissingNumberWarning(told))

    def coded(self, records: Iterable[Any]) -> Coded:
        """Records, one after the other."""
        codes: list[int] = []
        values: list[float] = []
        start = [0]
        for record in records:
            self.add(record, codes, values)
            start.append(len(codes))
        return Coded(np.array(start, np.int64), np.array(codes, np.int64), np.array(values, np.float64))

    def mark(self) -> Any:
        """Where it stands, for `back`."""
        known = {name: (column.present, len(column.codes)) for name, column in self.columns.items()}
        return self.records, self.names, self.told, len(self.noted), known

    def back(self, mark: Any) -> None:
        """As it was at that mark."""
        self.records, self.names, self.told, notes, known = mark
        for column, what in self.noted[notes:]:
            column.blank &= what != "blank"
        del self.noted[notes:]
        self.columns = {name: column for name, column in self.columns.items() if name in known}
        for name, column in self.columns.items():
            column.present, codes = known[name]
            while len(column.codes) > codes:
                column.codes.popitem()  # the newest

    def begin(self) -> None:
        """A call begins, which `take_back` may undo."""
        self.noted.clear()
        self.counted.clear()
        self._began = len(self.columns), self.told

    def take_back(self) -> None:
        """Undo the records of the present call, what it has noted of columns, and new ones."""
        while self.counted:
            self._uncount(self.counted.pop())
        for column, what in self.noted:
            if what == "name":
                column.codes.popitem()  # the newest
                self.names -= 1
            else:
                column.blank = False
        columns, self.told = self._began
        self.columns = dict(list(self.columns.items())[:columns])
        self.begin()

    def all_codes(self) -> NDArray[np.int64]:
        """Of every name of every column."""
        return np.array([code for column in self.columns.values() for code in column.codes.values()], np.int64)

    def missing(self) -> dict[str, int]:
        """Of the records so far, how many lacked each column."""
        return {column.name: self.records - column.present for column in self.columns.values()}


def scalar(value: Any, column: Column) -> tuple[str | None, float] | None:
    """A category (its text, 1) or a number (None, itself); None if it is missing."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return str.__str__(value), 1.0
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if not isinstance(value, int | float):
        raise _refused(value, column)
    if value != value:
        return None
    if column.category and -LARGEST < value < LARGEST:
        return text_of(value), 1.0
    if not -LARGEST < value < LARGEST:
        raise InputError(f"column {column.name!r}: a number must be finite (and below 1e75), got {digits(value)}.")
    return None, float(value)


def as_record(x: Any) -> Mapping[Any, Any] | None:
    """A dict, or what is like one: a row of a pandas table; None if it is neither."""
    if isinstance(x, Mapping):
        return x
    row = hasattr(x, "to_dict") and hasattr(x, "index") and not hasattr(x, "columns")
    return x.to_dict() if row else None


def digits(number: float) -> str:
    """A number in a message; Python refuses to write those of thousands of digits."""
    return (
        f"one of {number.bit_length():,} bits"
        if isinstance(number, int) and number.bit_length() > 1024
        else repr(number)
    )


def text_of(number: float) -> str:
    """A number as a category: what is equal reads alike."""
    return str(int(number)) if number == number // 1 else repr(float(number))


def _id_of(item: Any) -> Any:
    if isinstance(item, np.generic):
        item = item.item()
    if isinstance(item, int) and not isinstance(item, bool) and abs(item) < LARGEST:
        return str(item)
    if isinstance(item, str):
        return item
    told = digits(item) if isinstance(item, int) else repr(item)
    raise InputError(f"expected a dict of columns, or an id (text or a whole number below 1e75), got {told}.")


def _refused(value: Any, column: Column) -> InputError:
    if isinstance(value, Mapping):
        advice = "Flatten it: {'a': {'b': 1}} is {'a.b': 1}."
    elif isinstance(value, list | tuple | set | frozenset):
        advice = "A list may hold numbers and text, no lists or sets; make a set a list."
    else:
        advice = "Turn it into one of these."
    kind = type(value).__name__
    return InputError(f"column {column.name!r}: expected a number, text or a list of them, got a {kind}. {advice}")


def pairs_of(cross: Any) -> tuple[tuple[str, str], ...]:
    """The pairs of columns that are crossed; ("*", "*") is all of them."""
    pairs = [("*", "*")] if isinstance(cross, str) and cross == "all" else cross
    wrong = isinstance(pairs, str) or any(isinstance(pair, str) or len(pair) != 2 for pair in pairs)
    if wrong:
        raise SettingsError(f'cross must be "all" or pairs (column of users, column of items), got {cross!r}.')
    return tuple((str(one), str(other)) for one, other in pairs)


def grouped(cross: tuple[tuple[str, str], ...]) -> tuple[list[dict[str, int]], Any]:
    """Numbers from 1 for the columns that crosses name, on either side; and which are crossed, (users, items)."""
    if not cross or ("*", "*") in cross:
        return [{}, {}], np.ones((1, 1) if cross else (0, 0), np.int64)
    named = [sorted({pair[side] for pair in cross} - {"*"}) for side in (0, 1)]
    groups = [{name: k for k, name in enumerate(names, 1)} for names in named]
    crossed = np.zeros((1 + len(named[0]), 1 + len(named[1])), np.int64)
    for one, other in cross:
        at = [slice(None) if name == "*" else groups[side][name] for side, name in enumerate((one, other))]
        crossed[tuple(at)] = 1
    return groups, crossed


def never_seen(cross: Any, categories: Any, users: list[str], items: list[str]) -> list[Warning]:
    """What is to be said of settings that name columns which no record had; given are those that there were."""
    named = [
        ("cross, of users", {one for one, _ in cross}, users),
        ("cross, of items", {two for _, two in cross}, items),
    ]
    found: list[Warning] = []
    for setting, columns, seen in [*named, ("categories", set(categories), users + items)]:
        if never := sorted(columns.difference(seen, "*")):
            listed = ", ".join([*seen[:20], "..."] if len(seen) > 20 else seen) or "none"
            told = f"{setting}: no record had a column {', '.join(never)}; there were {listed}. Check the names."
            found.append(ColumnWarning(told))
    return found
