"""Choices whose rewards have not come yet, by key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from driftls.errors import CorruptFileError, DimensionError, InputError
from driftls.inputs import Rows
from driftls.persistence import expect
from driftls.policies.arm_index import id_header, id_of, plain_id

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
        key = plain_id(key)
        if not learned:
            return
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
        choices = list(self.waiting.values())
        header = {
            "learned": [id_header(key) for key in self.learned],
            "waiting": [
                [id_header(key), [id_header(name) for name in choice.name], choice.indices is not None]
                for key, choice in self.waiting.items()
            ],
        }
        sizes = [len(choice.values) for choice in choices]
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        values = np.concatenate([choice.values for choice in choices]) if choices else np.empty(0)
        none = np.empty(0, np.int32)
        indices = [none if choice.indices is None else choice.indices for choice in choices]
        return header, {"start": start, "values": values, "indices": np.concatenate([none, *indices]).astype(np.int32)}

    def restore(self, header: dict[str, Any], arrays: dict[str, Any], dim: int) -> None:
        """What `snapshot` wrote down of rows of `dim` features, in time linear in what is kept."""
        waiting = header["waiting"]
        start = expect(arrays, "start", (len(waiting) + 1,), np.int64)
        values = expect(arrays, "values", (None,), np.float64)
        indices, at = expect(arrays, "indices", (None,), np.int32), 0
        if start[0] != 0 or (np.diff(start) < 0).any() or start[-1] != values.size:
            raise CorruptFileError("the rows of waiting choices do not lie within their arrays.")
        self.learned = OrderedDict.fromkeys(id_of(key) for key in header["learned"])
        for number, (key, name, sparse) in enumerate(waiting):
            first, last = int(start[number]), int(start[number + 1])
            index = indices[at : at + last - first].copy() if sparse else None
            if index is not None and index.size != last - first:
                raise CorruptFileError("a waiting choice has fewer indices than values.")
            if index is None and last - first != dim:
                raise DimensionError(f"a waiting choice has {last - first} features, expected {dim}.")
            at += last - first if sparse else 0
            row = Waiting(index, values[first:last].copy(), tuple(id_of(entry) for entry in name))
            self.waiting[id_of(key)] = row


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
