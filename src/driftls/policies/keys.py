"""Choices whose rewards have not come yet, by key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from driftls.errors import InputError
from driftls.inputs import Rows
from driftls.persistence import expect
from driftls.policies.arm_index import id_of, plain_id
from driftls.state import refuse

MOST_LEARNED = 100_000  # keys that are remembered after their reward, so that a repeated one is noticed


class Waiting(NamedTuple):
    """A choice: the features of its row, and (or nothing) the arm's id."""

    indices: Any  # None for a dense row
    values: Any
    name: tuple[Hashable, ...]


class Keys:
    """Keys of choices that wait for their reward, and of those that had theirs."""

    def __init__(self) -> None:
        self.waiting: dict[Hashable, Waiting] = {}
        self.learned: OrderedDict[Hashable, None] = OrderedDict()

    def new(self, key: Any) -> Hashable:
        """A key that was not used before."""
        name = plain_id(key)
        if name in self.waiting or name in self.learned:
            raise InputError(f"key {name!r} was used before. Every choice needs a key of its own.")
        return name

    def choice(self, key: Any) -> Waiting:
        """The choice that waits under this key."""
        key = plain_id(key)
        if key not in self.waiting:
            state = "was learned already" if key in self.learned else "is not known: choose(..., key=key) first"
            raise InputError(f"key {key!r} {state}.")
        return self.waiting[key]

    def settle(self, key: Any, *, learned: bool) -> None:
        """If its reward was learned it waits no longer; the key is remembered for a while."""
        if learned:
            key = plain_id(key)
            del self.waiting[key]
            self.learned[key] = None
            if len(self.learned) > MOST_LEARNED:
                self.learned.popitem(last=False)

    def grow(self, dim: int) -> None:
        """Rows have so many features from now on."""
        for key, choice in self.waiting.items():
            if choice.indices is None:
                self.waiting[key] = choice._replace(values=np.pad(choice.values, (0, dim - len(choice.values))))

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Keys for a header, and the rows of all waiting choices in a few arrays."""
        choices, none = self.waiting.values(), np.empty(0, np.int32)
        header = {
            "learned": list(self.learned),
            "waiting": [[key, choice.name, choice.indices is not None] for key, choice in self.waiting.items()],
        }
        return header, {
            "start": np.cumsum([0, *(len(choice.values) for choice in choices)], dtype=np.int64),
            "values": np.concatenate([np.empty(0), *(choice.values for choice in choices)]),
            "indices": np.concatenate([none, *(choice.indices for choice in choices if choice.indices is not None)]),
        }

    def restore(self, header: dict[str, Any], arrays: dict[str, Any], dim: int) -> None:
        """What `snapshot` wrote down of rows of `dim` features, in time linear in what is kept."""
        waiting = header["waiting"]
        start = expect(arrays, "start", (len(waiting) + 1,), np.int64)
        values = expect(arrays, "values", (None,), np.float64)
        indices, at = expect(arrays, "indices", (None,), np.int32), 0
        refuse(start[0] != 0 or (np.diff(start) < 0).any() or start[-1] != values.size, "start")
        self.learned = OrderedDict.fromkeys(id_of(key) for key in header["learned"])
        for number, (key, name, sparse) in enumerate(waiting):
            first, last = int(start[number]), int(start[number + 1])
            index = indices[at : at + last - first].copy() if sparse else None
            refuse((dim if index is None else index.size) != last - first, "waiting")
            at += last - first if sparse else 0
            self.waiting[id_of(key)] = Waiting(index, values[first:last].copy(), tuple(map(id_of, name)))


def row_of(choice: Waiting, dim: int) -> Any:
    """The row of a waiting choice, as `inputs.as_rows` gives rows."""
    if choice.indices is None:
        return choice.values.reshape(1, -1)
    return Rows(choice.indices, choice.values, np.array([0, len(choice.values)]), dim)


def waiting_of(rows: Any, k: int, name: tuple[Hashable, ...]) -> Waiting:
    """Row k of some rows, copied, as a choice that waits."""
    if isinstance(rows, np.ndarray):
        return Waiting(None, np.array(rows[k], dtype=np.float64), name)
    first, last = int(rows.start[k]), int(rows.start[k + 1])
    index = np.clip(np.asarray(rows.indices)[first:last], -1, 2**31 - 1).astype(np.int32)
    return Waiting(index, np.array(rows.values[first:last], dtype=np.float64), name)
