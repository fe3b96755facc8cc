"""Which arm id has which slot: slots are given out to new ids and taken back from those that stayed away longest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import takewhile
from typing import Any

import numpy as np

from driftls.errors import CorruptFileError, InputError
from driftls.inputs import as_whole

MOST_BITS = 1024  # of a whole number that is an id


class ArmIndex:
    """Ids of arms and their slots, in the order in which they were last offered; every operation is O(1) an id.

    Examples
    --------
    >>> index = ArmIndex(most=2)
    >>> [index.open(name, 0) for name in "ab"]
    [0, 1]
    >>> index.note("a", 1)
    >>> index.open("c", 1), list(index.slot_of)
    (1, ['a', 'c'])
    """

    def __init__(self, most: int = 2**31, forget_after: int = 1000) -> None:
        self.most = most
        self.forget_after = as_whole(forget_after, "forget_after", 0)  # rounds, where room is needed
        self.slot_of: OrderedDict[Hashable, int] = OrderedDict()
        self._offered: dict[Hashable, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.slot_of)

    def note(self, names: Iterable[Hashable], round_number: int = 0) -> None:
        """These ids were on offer in this round."""
        slot_of, offered = self.slot_of, self._offered
        for name in names:
            if name in slot_of:
                slot_of.move_to_end(name)
                offered[name] = round_number

    def offer(self, names: list[Hashable], opened: Callable[[Hashable], Any], round_number: int = 0) -> list[int]:
        """The slots of the ids of a round; each that is new has one `opened`."""
        self.note(names, round_number)  # first: what is here now is not dropped for what is new
        new = [name for name in names if name not in self.slot_of]
        for name in new:
            opened(name)
        if new:
            self.note(names, round_number)  # in the order of the pool, whichever of them were new
        return [self.slot_of[name] for name in names]

    def open(self, name: Hashable, round_number: int = 0) -> int:
        """A slot for a new id; where all are in use, that of the id that was not offered for longest."""
        if len(self.slot_of) >= self.most:
            self.drop(next(iter(self.slot_of)))
        slot = self._free.pop() if self._free else len(self.slot_of)
        self.slot_of[name], self._offered[name] = slot, round_number
        return slot

    def drop(self, name: Hashable) -> int:
        """Forget an id; its slot is free for another."""
        slot = self.slot_of.pop(name)
        del self._offered[name]
        self._free.append(slot)
        return slot

    def stale(self, now: int) -> list[Hashable]:
        """Ids that were not offered for so long that they may be forgotten, the longest away first."""
        return list(takewhile(lambda name: self._offered[name] < now - self.forget_after, self.slot_of))

    def header(self) -> list[list[Any]]:
        """Id, slot and last round of each, for a file."""
        return [[name, slot, self._offered[name]] for name, slot in self.slot_of.items()]

    def restore(self, kept: list[Any], slots: int | None = None) -> None:
        """What `header` wrote down, where there are so many slots."""
        slots, used = self.most if slots is None else slots, set()
        for name, slot, offered in kept:
            if type(slot) is not int or type(offered) is not int or not 0 <= slot < slots or slot in used:
                raise CorruptFileError(f"arm id {name!r} has slot {slot!r} of {slots}. Restore the file from a copy.")
            used.add(slot)
            self.slot_of[id_of(name)], self._offered[id_of(name)] = slot, offered
        self._free = [slot for slot in range(max(used, default=0)) if slot not in used]


def plain_id(name: Any) -> Hashable:
    """An id or key that can be found again, and that a file can keep."""
    if type(name) is str:
        return name
    if isinstance(name, np.generic):
        name = name.item()
    if type(name) is tuple:
        return tuple(map(plain_id, name))
    if not (name is None or isinstance(name, str | int | float)):
        kind = type(name).__name__
        raise InputError(
            f"an id or key must be text, a number or a tuple of them, got a {kind}. Pass str(it), if it has one."
        )
    if name != name:
        raise InputError("an id or key must be equal to itself, got NaN.")
    if isinstance(name, int) and name.bit_length() > MOST_BITS:
        raise InputError(
            f"an id or key must be a number of at most {MOST_BITS} bits, got one of {name.bit_length():,}."
        )
    return name


def plain_ids(ids: Any) -> list[Hashable]:
    """The ids of a pool, in order, no two of them alike."""
    table = hasattr(ids, "columns")
    if table or isinstance(ids, str | bytes | dict | set | frozenset) or not hasattr(ids, "__len__"):
        raise InputError(f"ids must be a list or array with an id for each arm, in order, got {type(ids).__name__}.")
    names = [plain_id(name) for name in (ids.tolist() if isinstance(ids, np.ndarray) else ids)]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"arm id {twice!r} stands for two arms of the pool. Ids must differ.")
    return names


class ArmIds(list[Hashable]):
    """The ids of a pool that were looked at, in order; made by `DisjointLinUCB.pool`."""


def item_ids(items: Any) -> Any:
    """The ids of items, which may be dicts or a table with an "id", or ids themselves."""
    if items is None:
        raise InputError("ids are missing: choose(user, ids), with an id for each arm.")
    if isinstance(items, Mapping):
        raise InputError("expected a list of ids, or of items that have an id, got a dict. Put it into a list.")
    if hasattr(items, "columns"):  # a table of pandas, polars or Arrow
        columns = list(items.columns if not hasattr(items, "column_names") else items.column_names)
        if "id" not in columns:
            raise InputError(f'a table of items needs a column "id", by which an arm has its model, got {columns}.')
        column = items["id"]
        return column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()
    if isinstance(items, list | tuple) and any(isinstance(item, Mapping) for item in items):
        for item in items:
            if not isinstance(item, Mapping) or item.get("id") is None:
                raise InputError(f'every item needs an "id", by which its arm has its model, got {item!r}.')
        return [item["id"] for item in items]
    return items


def id_of(kept: Any) -> Hashable:
    """The id that a file has kept, where a tuple is a list."""
    if isinstance(kept, list | tuple):
        return tuple(map(id_of, kept))
    if kept is not None and not isinstance(kept, str | int | float):
        raise CorruptFileError(f"an id must be text, a number or a tuple of them, got {kept!r}.")
    return kept
