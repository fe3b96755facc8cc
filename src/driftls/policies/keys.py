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
    """A choice: its row, and (or nothing) the arm's id."""

    row: Any  # a block of one, dense or sparse
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
        for key, (row, name) in self.waiting.items():
            row = row._replace(dim=dim) if isinstance(row, Rows) else np.pad(row, ((0, 0), (0, dim - row.shape[1])))
            self.waiting[key] = Waiting(row, name)

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Keys for a header, and the rows of all waiting choices in a few arrays."""
        rows = [choice.row for choice in self.waiting.values()]
        values = [row.values if isinstance(row, Rows) else row[0] for row in rows]
        indices = [row.indices for row in rows if isinstance(row, Rows)]
        waiting = [[key, name, isinstance(row, Rows)] for key, (row, name) in self.waiting.items()]
        return {"learned": list(self.learned), "waiting": waiting}, {
            "start": np.cumsum([0, *map(len, values)], dtype=np.int64),
            "values": np.concatenate([np.empty(0), *values]),
            "indices": np.concatenate([np.empty(0, np.int32), *indices]),
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
            own, at = indices[at : at + last - first].copy(), at + (last - first if sparse else 0)
            refuse((own.size if sparse else dim) != last - first, "waiting")
            row = values[first:last].copy()
            row = Rows(own, row, np.array([0, own.size]), dim) if sparse else row[None]
            self.waiting[id_of(key)] = Waiting(row, tuple(map(id_of, name)))


def one_row(rows: Any, k: int) -> Any:
    """Row k of some rows, copied."""
    if isinstance(rows, np.ndarray):
        return np.array(rows[k : k + 1], dtype=np.float64)
    first, last = int(rows.start[k]), int(rows.start[k + 1])
    index = np.clip(np.asarray(rows.indices)[first:last], -1, 2**31 - 1).astype(np.int32)
    return Rows(index, np.array(rows.values[first:last], dtype=np.float64), np.array([0, last - first]), rows.dim)
