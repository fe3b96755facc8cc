"""What a log says: one `Event` a line, or a `Block`, the same for many lines in packed columns.

A person reads events; a compiled loop reads blocks. Both hold the same facts, and each converts into the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import InputError
from driftls.logs.columns import (
    COLUMNS,
    Floats,
    Ints,
    Part,
    all_or_none,
    as_objects,
    as_starts,
    column_of,
    faults,
    line_checks,
    new_pools,
    ranges,
    shortened,
)

__all__ = ["Block", "Event"]


class _Compared:
    """Whatever is the same if all its columns are."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))  # type: ignore[arg-type]
        return all((a is None) == (b is None) and np.array_equal(a, b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]  # the arrays inside can be written to


@dataclass(frozen=True, eq=False)
class Event(_Compared):
    """One decision that was logged: who came, what could be shown, what was shown, what it brought."""

    time: int  # Unix seconds
    arms: Ints  # (K,): the candidates' ids, as the log names them
    shown: int  # which candidate was shown: its position in `arms`, from 0
    reward: float
    user_index: NDArray[np.int32]  # the visitor's features as a sparse row: indices count from 0 and increase
    user_value: Floats
    propensity: float | None = None  # with which the log's policy showed what it showed, if the log says so
    arm_features: Floats | None = None  # (K, k): the candidates' own features, if the log has any
    truth: Floats | None = None  # (K,): expected reward of every candidate, where it is known
    visitor: Any = None  # of a table: the visitor's columns, a dict, instead of indices and values
    items: Any = None  # of a table: what its ids stand for, id k for items[k], a dict with the "id" that the table has

    @property
    def arm(self) -> int:
        """The id of the candidate that was shown."""
        return int(self.arms[self.shown])


@dataclass(frozen=True, eq=False)
class Block(_Compared):
    """Many events in columns: what a compiled loop reads.

    The candidates rarely change from line to line, so each distinct pool is stored once and a line names its row.

    Examples
    --------
    >>> import numpy as np
    >>> from driftls.logs import Block, Event
    >>> event = Event(time=1317513291, arms=np.array([101, 205]), shown=1, reward=1.0,
    ...               user_index=np.array([0, 12], dtype=np.int32), user_value=np.ones(2))
    >>> block = Block.from_events([event, event])
    >>> len(block), block.pool_ids.tolist(), block.user_index.tolist()
    (2, [101, 205], [0, 12, 0, 12])
    >>> block[1] == event
    True
    """

    time: Ints  # (n,)
    pool: NDArray[np.int32]  # (n,): which pool a line has
    shown: NDArray[np.int32]  # (n,): a position in that pool
    reward: Floats  # (n,)
    pool_start: Ints  # pool p is pool_ids[pool_start[p]:pool_start[p + 1]]
    pool_ids: Ints
    user_start: Ints  # the visitors' features in CSR form
    user_index: NDArray[np.int32]
    user_value: Floats
    propensity: Floats | None = None  # (n,)
    arm_features: Floats | None = None  # row j belongs to pool_ids[j]
    truth: Floats | None = None  # of every candidate, line after line: truth[truth_start[i]:truth_start[i + 1]]
    visitor: NDArray[Any] | None = None  # (n,): of a table, dicts of the visitors' columns
    items: Any = None  # of a table, what ids stand for

    def __post_init__(self) -> None:
        # A compiled loop trusts these columns: whatever could lead it out of an array is refused here.
        n, ids, nnz = len(self.time), len(self.pool_ids), len(self.user_index)
        pools, sizes = len(self.pool_start) - 1, np.diff(self.pool_start)
        _refuse(not _is_start(self.pool_start, pools, ids), "pool_start to go from 0 up to len(pool_ids)")
        _refuse(not _is_start(self.user_start, n, nnz), "user_start to go from 0 up to len(user_index)")
        lengths = dict.fromkeys(("pool", "shown", "reward", "propensity", "visitor"), n)
        for name, length in {**lengths, "user_value": nnz, "arm_features": ids}.items():
            column = getattr(self, name)
            _refuse(column is not None and len(column) != length, f"{length} entries of {name}")
        _refuse(np.any((self.pool < 0) | (self.pool >= pools)), "pool to name rows of the table of pools")
        _refuse(np.any((self.shown < 0) | (self.shown >= sizes[self.pool])), "shown to be positions in the pool")
        _refuse(nnz > 0 and self.user_index.min() < 0, "user indices of at least 0")
        _refuse(self.truth is not None and len(self.truth) != sizes[self.pool].sum(), "a truth for each candidate")
        if self.propensity is not None:
            _refuse(not ((self.propensity > 0.0) & (self.propensity <= 1.0)).all(), "propensities above 0, at most 1")

    def __len__(self) -> int:
        return len(self.time)

    @property
    def truth_start(self) -> Ints:
        """Where each line's candidates begin in a column with one entry a candidate, such as `truth`."""
        return as_starts(np.diff(self.pool_start)[self.pool])

    @property
    def candidates(self) -> Ints:
        """Every line's candidates, line after line, as places in `pool_ids`."""
        return ranges(self.pool_start[self.pool], np.diff(self.pool_start)[self.pool])

    def part(self, first: int, last: int) -> Block:
        """Lines first ... last - 1, without a copy; the table of pools stays whole."""
        if (first, last) == (0, len(self)):
            return self
        lines, users = slice(first, last), slice(*self.user_start[[first, last]])
        part = object.__new__(Block)  # not looked at again: what is cut out of a sound block is sound
        part.__dict__.update(
            self.__dict__,
            **{name: getattr(self, name)[lines] for name in ("pool", "time", "shown", "reward")},
            user_start=self.user_start[first : last + 1] - self.user_start[first],
            user_index=self.user_index[users],
            user_value=self.user_value[users],
            propensity=_cut(self.propensity, lines),
            visitor=_cut(self.visitor, lines),
            truth=None if self.truth is None else self.truth[slice(*self.truth_start[[first, last]])],
        )
        return part

    def alone(self) -> Block:
        """The same lines, each with what it shows as its only candidate; without the truth."""
        places, pool = np.unique(self.pool_start[self.pool] + self.shown, return_inverse=True)
        return replace(
            self,
            pool=pool.astype(np.int32),
            shown=np.zeros_like(self.shown),
            pool_start=np.arange(len(places) + 1),
            pool_ids=self.pool_ids[places],
            arm_features=_cut(self.arm_features, places),
            truth=None,
        )

    def __getitem__(self, i: int) -> Event:
        if not -len(self) <= i < len(self):
            raise IndexError(f"line {i} of a block of {len(self)} lines")
        line = range(len(self))[i]
        return next(iter(self.part(line, line + 1)))

    def __iter__(self) -> Iterator[Event]:
        start = self.truth_start
        for i in range(len(self)):
            arms = slice(*self.pool_start[self.pool[i] : self.pool[i] + 2])
            user = slice(*self.user_start[i : i + 2])
            told = int(self.time[i]), self.pool_ids[arms], int(self.shown[i]), float(self.reward[i])
            propensity = None if self.propensity is None else float(self.propensity[i])
            own = _cut(self.arm_features, arms), _cut(self.truth, slice(*start[i : i + 2])), _cut(self.visitor, i)
            yield Event(*told, self.user_index[user], self.user_value[user], propensity, *own, self.items)

    @classmethod
    def packed(
        cls, pool: NDArray[Any], pool_start: Ints, pool_ids: Ints, features: Floats | None, **columns: Any
    ) -> Block:
        """A block of these pools, of which equal ones are stored once and those that no line has are left out."""
        numbers = np.full(len(pool_start) - 1, -1, np.int32)
        places: dict[tuple[bytes, bytes], int] = {}
        kept: list[int] = []
        for p in np.flatnonzero(np.bincount(pool, minlength=len(numbers))).tolist():
            part = slice(pool_start[p], pool_start[p + 1])
            key = pool_ids[part].tobytes(), b"" if features is None else features[part].tobytes()
            numbers[p] = places.setdefault(key, len(kept))
            if numbers[p] == len(kept):
                kept.append(p)
        sizes = np.diff(pool_start)[kept]
        entries = ranges(pool_start[kept], sizes)
        return cls(
            pool=numbers[pool],
            pool_start=as_starts(sizes),
            pool_ids=pool_ids[entries],
            arm_features=_cut(features, entries),
            **columns,
        )

    def parts(self) -> dict[str, Part]:
        """The columns of the lines, each with candidates of its own: what `from_columns` makes a block of."""
        arms, users = [np.diff(self.truth_start)], [np.diff(self.user_start)]
        features = _cut(self.arm_features, self.candidates)
        told: dict[str, Any] = {
            **{"time": (self.time, []), "arms": (self.pool_ids[self.candidates], arms)},
            **{"shown": (self.shown, []), "reward": (self.reward, []), "propensity": (self.propensity, [])},
            **{
                "user_index": (self.user_index, users),
                "user_value": (self.user_value, users),
                "truth": (self.truth, arms),
            },
        }
        if features is not None:
            told["arm_features"] = features.ravel(), [*arms, np.full(len(features), features.shape[1])]
        return {name: Part(*told[name]) for name in COLUMNS if name in told and told[name][0] is not None}

    @classmethod
    def from_columns(cls, parts: dict[str, Part], **others: Any) -> Block:
        """A block of the columns of lines, which `line_checks` has nothing against; and others as they are."""
        (ids, [sizes]), (index, [users]) = parts["arms"], parts["user_index"]
        columns: dict[str, Any] = {name: part.values for name, part in parts.items() if name != "arms"}
        features = columns.pop("arm_features", None)
        if features is not None:
            features = features.reshape(len(ids), -1) if len(ids) else np.empty((0, 0))
        columns = {"user_value": np.ones(len(index)), "user_start": as_starts(users)} | columns | others
        new = new_pools(sizes, ids, features)
        own = np.repeat(new, sizes)
        return cls.packed(np.cumsum(new) - 1, as_starts(sizes[new]), ids[own], _cut(features, own), **columns)

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> Block:
        """Pack events, if their parts fit each other, and all or none have a propensity, arm features or a truth."""
        events = list(events)
        for i, event in enumerate(events):
            if not isinstance(event, Event):
                raise InputError(f"event {i}: expected an `Event`, got {type(event).__name__}.")
        found = {name: column_of(events, name) for name in COLUMNS}
        parts = {name: part for name, part in found.items() if part is not None}
        for i, expected, name in faults(line_checks(parts)):
            raise InputError(f"event {i}: expected {expected}, got {name} = {shortened(getattr(events[i], name))}.")
        visitors = [event.visitor for event in events]
        visitor = as_objects(visitors) if all_or_none("visitor", visitors) else None
        return cls.from_columns(parts, visitor=visitor, items=events[0].items if events else None)

    @classmethod
    def join(cls, blocks: Iterable[Block]) -> Block:
        """One block of several, in order; a pool that several have is stored once."""
        blocks = [block for block in blocks if len(block)]
        if not blocks:
            return cls.from_events([])
        told = [block.parts() for block in blocks]
        visitors: list[Any] = [block.visitor for block in blocks]
        parts = {}
        for name in COLUMNS:
            if all_or_none(name, some := [columns.get(name) for columns in told]):
                values, lengths = zip(*some)
                parts[name] = Part(np.concatenate(values), [np.concatenate(each) for each in zip(*lengths)])
        visitor = np.concatenate(visitors) if all_or_none("visitor", visitors) else None
        return cls.from_columns(parts, visitor=visitor, items=blocks[0].items)


class Numbers:
    """Whole numbers for ids, in the order in which the ids first came."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}

    def __call__(self, ids: Ints, *, most: float = np.inf) -> Ints:
        """The number of each id. If there would be more than `most`, none is added."""
        distinct, first, place = np.unique(ids, return_index=True, return_inverse=True)
        names = distinct.tolist()
        new = [names[k] for k in np.argsort(first) if names[k] not in self.of]
        if len(self.of) + len(new) > most:
            raise InputError(f"there is room for {most} articles, and id {new[int(most) - len(self.of)]} is one more.")
        for name in new:
            self.of[name] = len(self.of)
        return np.array([self.of[name] for name in names], np.int64)[place]


def _refuse(wrong: Any, expected: str) -> None:
    if wrong:
        raise InputError(f"a block needs {expected}.")


def _cut(column: Any, at: Any) -> Any:
    return None if column is None else column[at]


def _is_start(starts: Ints, rows: int, entries: int) -> bool:
    ends = len(starts) == rows + 1 > 0 and starts[0] == 0 and starts[-1] == entries
    return bool(ends and np.all(np.diff(starts) >= 0))
