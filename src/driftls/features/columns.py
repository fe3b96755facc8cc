"""Records as codes of names, column by column: {"age": 31, "city": "Oslo"} has the names "age" and "city=Oslo"."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import ColumnWarning, InputError, MissingNumberWarning, SettingsError
from driftls.features.names import Coded

Key = str | int | None  # a category, a place in a list of numbers, or the number itself
NUMBERS = frozenset({bool, int, float})
LARGEST = 1e75  # what trackers and policies take
MANY, MOSTLY = 100, 0.9  # texts of a column, and the share of them that reads as numbers: that may be a mistake


class Call:
    """What the present call has noted of columns, until it is kept or undone."""

    def __init__(self) -> None:
        self.counted: list[Space | Column] = []  # each has a record more, as often as it stands here
        self.tallied: list[tuple[Space | Column, int]] = []  # and these have so many more
        self.undo: list[Callable[[], object]] = []  # what else it takes to have all as it was, the newest last
        self.untold: list[Warning] = []
        self.told = False  # that a number was missing
        self.names = 0  # whose codes are remembered, in all columns

    def tally(self, one: Space | Column, records: int) -> None:
        """So many records of a table came, or had a column."""
        one.records += records
        self.tallied.append((one, records))

    def keep(self) -> list[Warning]:
        """All of it stays; returns what is to be said."""
        self.counted.clear()
        self.tallied.clear()
        self.undo.clear()
        untold = self.untold
        if untold:
            self.untold, self.told = [], True
        return untold

    def drop(self) -> None:
        """All is as it was before the call."""
        for one in self.counted:
            one.records -= 1
        for one, records in self.tallied:
            one.records -= records
        for undo in reversed(self.undo):
            undo()
        self.untold.clear()
        self.keep()

    def tell_missing(self, column: Column) -> None:
        """Note once that a number is missing: it may not be obvious as what it counts."""
        if not (self.told or self.untold):
            told = (
                f"column {column.name!r}: a number is missing, and is left out. To a policy with these features it counts as "
                "the column's mean if half of the records have it, else as 0. Fill it in, or say it in a column of its own; "
                "features.missing counts such records, of every column."
            )
            self.untold.append(MissingNumberWarning(told))


class Column(dict[Key, int]):
    """The codes of a column's names, made as they come; above each stands the group of the column."""

    __slots__ = ("blank", "call", "category", "code", "group", "name", "records")

    def __init__(self, space: Space, name: str, group: int, category: bool) -> None:
        self.code, self.call = space.code, space.call  # not the space, which has it: what is dropped is free at once
        self.name, self.group, self.category = name, group, category
        self.records = 0  # that had it
        self.blank = False  # whether a cell was blank before it was known whether there are numbers

    def __missing__(self, key: Key) -> int:
        name = self.name
        if key is not None:
            name += f"={key}" if isinstance(key, str) else f"[{key}]"
        found = self[key] = self.code(name) | (self.group << 32)
        self.call.names += 1
        self.call.undo.append(self.forget)
        if key is None and self.blank:
            self.call.tell_missing(self)
        return found

    def categories(self, keys: list[str]) -> list[int]:
        """The codes of many of its categories, those that are new made at once."""
        code, start, group = self.code, self.name + "=", self.group << 32
        new = [key for key in keys if key not in self]
        self.update(zip(new, [code(start + key) | group for key in new]))
        self.call.names += len(new)
        self.call.undo.append(partial(self.forget, len(new)))
        return [self[key] for key in keys]

    def forget(self, names: int = 1) -> None:
        """Forget the newest names."""
        self.call.names -= names
        for _ in range(names):
            self.popitem()

    def meet_blank(self) -> None:
        """A cell is blank."""
        if not self.blank:
            self.blank = True
            self.call.undo.append(partial(setattr, self, "blank", False))
        if None in self:
            self.call.tell_missing(self)


class Space(dict[Any, Column]):
    """The columns of users, or those of items, by their names."""

    def __init__(
        self,
        prefix: str,
        code: Callable[[str], int],
        groups: Mapping[str, int],
        categories: Collection[str],
        call: Call,
    ) -> None:
        self.prefix, self.code, self._groups, self._categories, self.call = prefix, code, groups, categories, call
        self.records = 0
        self.plain = (
            True  # whether there were only ids, and dicts without lists or arrays that could be changed in place
        )

    def __missing__(self, name: Any) -> Column:
        text = str(name)
        column = Column(self, self.prefix + text, self._groups.get(text, 0), text in self._categories or text == "id")
        self[name] = column
        self.call.undo.append(self.popitem)
        return column

    def forget(self) -> None:
        """All columns are as new."""
        self.clear()
        self.records = 0

    def add(self, record: Any, codes: list[int], values: list[float]) -> None:
        """Append the codes and values of a record."""
        if type(record) is not dict:
            record = self._dict_of(record)
        count = self.call.counted.append
        self.records += 1
        count(self)
        for name, value in record.items():
            column = self[name]
            kind = type(value)
            if kind is str:
                codes.append(column[value])
                values.append(1.0)
            elif kind in NUMBERS and -LARGEST < value < LARGEST and not column.category:
                codes.append(column[None])
                values.append(value)
            elif not self._add_rest(column, value, codes, values):
                continue
            column.records += 1
            count(column)

    def _dict_of(self, record: Any) -> dict[Any, Any]:
        """A record as a dict; an id is a column."""
        row = as_record(record)
        if row is None:
            return {"id": _id_of(record)}
        self.plain = False
        return dict(row)

    def _add_rest(self, column: Column, value: Any, codes: list[int], values: list[float]) -> bool:
        """Append a value of any kind; returns whether there is one."""
        if hasattr(value, "tolist"):  # an array, which may be changed in place, or a number of NumPy's
            self.plain &= not isinstance(value, np.ndarray)
            value = value.tolist()
        several = isinstance(value, list | tuple)
        self.plain &= not several
        entries = [scalar(entry, column) for entry in (value if several else [value])]
        for place, entry in enumerate(entries):
            if entry is not None:
                key, x = entry
                codes.append(column[place if several and key is None else key])
                values.append(x)
            elif not several:
                column.meet_blank()
        return several or entries != [None]

    def coded(self, records: Iterable[Any]) -> Coded:
        """Records, one after the other."""
        codes: list[int] = []
        values: list[float] = []
        start = [0]
        for record in records:
            self.add(record, codes, values)
            start.append(len(codes))
        return Coded(np.array(start, np.int64), np.array(codes, np.int64), np.array(values, np.float64))

    def all_codes(self) -> NDArray[np.int64]:
        """Of every name of every column."""
        return np.array([code for column in self.values() for code in column.values()], np.int64)

    def missing(self) -> dict[str, int]:
        """Of the records so far, how many lacked each column."""
        return {column.name: self.records - column.records for column in self.values()}


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


def numbers_as_text(space: Space) -> list[Warning]:
    """What is to be said of columns whose many texts are nearly all numbers: every one of them is a category."""
    found: list[Warning] = []
    for column in space.values():
        texts = [] if column.category else [key for key in column if isinstance(key, str)]
        if len(texts) >= MANY and sum(map(_reads_as_number, texts)) >= MOSTLY * len(texts):
            told = (
                f"column {column.name!r}: {len(texts)} texts, such as {texts[0]!r}, are nearly all numbers, and each is a "
                "category. Turn them into numbers with float(), or name the column in categories= if they are names."
            )
            found.append(ColumnWarning(told))
    return found


def _reads_as_number(text: str) -> bool:
    try:
        return bool(float(text) < LARGEST)
    except ValueError:
        return False
