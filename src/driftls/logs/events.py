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

__all__ = ["Block", "Event"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Event:
    """One decision that was logged: who came, what could be shown, what was shown, what it brought.

    Attributes
    ----------
    time : int
        Unix seconds.
    arms : array of int, (K,)
        The candidates' ids, as the log names them.
    shown : int
        Which candidate was shown: its position in `arms`, from 0.
    reward : float
    user_index, user_value : arrays, (nnz,)
        The visitor's features as a sparse row: indices count from 0 and increase. A log whose ids count from 1,
        such as Yahoo's, is shifted by one.
    propensity : float or None
        The probability with which the log's policy showed what it showed, if the log says so.
    arm_features : array, (K, k), or None
        The candidates' own features, if the log has any; column j belongs to index j.
    truth : array, (K,), or None
        Expected reward of every candidate; known only where the log was made by us.
    """

    time: int
    arms: Ints
    shown: int
    reward: float
    user_index: NDArray[np.int32]
    user_value: Floats
    propensity: float | None = None
    arm_features: Floats | None = None
    truth: Floats | None = None

    @property
    def arm(self) -> int:
        """The id of the candidate that was shown."""
        return int(self.arms[self.shown])

    def __eq__(self, other: object) -> bool:
        return _same(self, other) if isinstance(other, Event) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # the arrays inside can be written to


@dataclass(frozen=True, eq=False)
class Block:
    """Many events in columns: what a compiled loop reads.

    The candidates rarely change from line to line, so each distinct pool is stored once and a line names its row.

    Attributes
    ----------
    time, pool, shown, reward : arrays, (n,)
        int64, int32, int32, float64. ``pool[i]`` is the row of line i's candidates in the table of pools;
        ``shown[i]`` a position in that pool.
    pool_start, pool_ids : arrays, (P + 1,) and (pool_start[-1],)
        int64. Pool p is ``pool_ids[pool_start[p]:pool_start[p + 1]]``.
    user_start, user_index, user_value : arrays
        int64, int32, float64: the visitors' features in CSR form.
    propensity : array, (n,), or None
    arm_features : array, (pool_start[-1], k), or None
        Row j belongs to ``pool_ids[j]``.
    truth : array or None
        Expected reward of every candidate, line after line: ``truth[truth_start[i]:truth_start[i + 1]]``.

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

    time: Ints
    pool: NDArray[np.int32]
    shown: NDArray[np.int32]
    reward: Floats
    pool_start: Ints
    pool_ids: Ints
    user_start: Ints
    user_index: NDArray[np.int32]
    user_value: Floats
    propensity: Floats | None = None
    arm_features: Floats | None = None
    truth: Floats | None = None

    def __post_init__(self) -> None:
        # A compiled loop trusts these columns: whatever could lead it out of an array is refused here.
        n, ids, nnz = len(self.time), len(self.pool_ids), len(self.user_index)
        pools, sizes = len(self.pool_start) - 1, np.diff(self.pool_start)
        _refuse(len(self.pool) != n or len(self.shown) != n or len(self.reward) != n, "columns of equal length")
        _refuse(not _is_start(self.pool_start, pools, ids), "pool_start to go from 0 up to len(pool_ids)")
        _refuse(not _is_start(self.user_start, n, nnz), "user_start to go from 0 up to len(user_index)")
        _refuse(len(self.user_value) != nnz, "one user_value for each user_index")
        _refuse(np.any((self.pool < 0) | (self.pool >= pools)), "pool to name rows of the table of pools")
        _refuse(np.any((self.shown < 0) | (self.shown >= sizes[self.pool])), "shown to be positions in the pool")
        _refuse(nnz > 0 and self.user_index.min() < 0, "user indices of at least 0")
        _refuse(self.propensity is not None and len(self.propensity) != n, "a propensity for each line")
        _refuse(self.arm_features is not None and len(self.arm_features) != ids, "arm_features for each of pool_ids")
        _refuse(self.truth is not None and len(self.truth) != sizes[self.pool].sum(), "a truth for each candidate")

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
        return replace(
            self,
            **{name: getattr(self, name)[lines] for name in ("time", "pool", "shown", "reward")},
            user_start=self.user_start[first : last + 1] - self.user_start[first],
            user_index=self.user_index[users],
            user_value=self.user_value[users],
            propensity=None if self.propensity is None else self.propensity[lines],
            truth=None if self.truth is None else self.truth[slice(*self.truth_start[[first, last]])],
        )

    def __getitem__(self, i: int) -> Event:
        if not -len(self) <= i < len(self):
            raise IndexError(f"line {i} of a block of {len(self)} lines")
        return self._event(range(len(self))[i], None if self.truth is None else self.truth_start)

    def __iter__(self) -> Iterator[Event]:
        truth_start = None if self.truth is None else self.truth_start
        return (self._event(i, truth_start) for i in range(len(self)))

    def _event(self, i: int, truth_start: Ints | None) -> Event:
        arms = slice(*self.pool_start[self.pool[i] : self.pool[i] + 2])
        user = slice(*self.user_start[i : i + 2])
        return Event(
            time=int(self.time[i]),
            arms=self.pool_ids[arms],
            shown=int(self.shown[i]),
            reward=float(self.reward[i]),
            user_index=self.user_index[user],
            user_value=self.user_value[user],
            propensity=None if self.propensity is None else float(self.propensity[i]),
            arm_features=None if self.arm_features is None else self.arm_features[arms],
            truth=None if self.truth is None or truth_start is None else self.truth[slice(*truth_start[i : i + 2])],
        )

    def __eq__(self, other: object) -> bool:
        return _same(self, other) if isinstance(other, Block) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # the arrays inside can be written to

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> Block:
        """Pack events; pools are stored in the order in which they first came.

        Raises
        ------
        InputError
            If an event's parts do not fit each other, or some events have a propensity, arm features or a truth
            and others have not.
        """
        events = list(events)
        pools: dict[tuple[bytes, bytes], int] = {}
        firsts: list[Event] = []
        pool = np.empty(len(events), np.int32)
        for i, event in enumerate(events):
            _check(event, i)
            features = b"" if event.arm_features is None else np.asarray(event.arm_features, np.float64).tobytes()
            pool[i] = pools.setdefault((np.asarray(event.arms, np.int64).tobytes(), features), len(pools))
            if pool[i] == len(firsts):
                firsts.append(event)
        with_propensity = _all_or_none(events, "propensity")
        with_arms = _all_or_none(events, "arm_features")
        with_truth = _all_or_none(events, "truth")
        return cls(
            time=np.array([e.time for e in events], np.int64),
            pool=pool,
            shown=np.array([e.shown for e in events], np.int32),
            reward=np.array([e.reward for e in events], np.float64),
            pool_start=as_starts([len(e.arms) for e in firsts]),
            pool_ids=_joined([e.arms for e in firsts], np.int64),
            user_start=as_starts([len(e.user_index) for e in events]),
            user_index=_joined([e.user_index for e in events], np.int32),
            user_value=_joined([e.user_value for e in events], np.float64),
            propensity=np.array([e.propensity for e in events], np.float64) if with_propensity else None,
            arm_features=np.concatenate([e.arm_features for e in firsts], dtype=np.float64) if with_arms else None,  # type: ignore[misc]
            truth=_joined([e.truth for e in events], np.float64) if with_truth else None,
        )

    @classmethod
    def join(cls, blocks: Iterable[Block]) -> Block:
        """One block of several, in order; a pool that several have is stored once.

        Raises
        ------
        InputError
            If some have a propensity, arm features or a truth and others have not.
        """
        blocks = [block for block in blocks if len(block)]
        if not blocks:
            return cls.from_events([])

        def column(name: str) -> NDArray[Any] | None:
            return np.concatenate([getattr(b, name) for b in blocks]) if _all_or_none(blocks, name) else None

        first_pool = as_starts([len(b.pool_start) - 1 for b in blocks])
        pool, pool_start, pool_ids, arm_features = distinct_pools(
            np.concatenate([b.pool + first for b, first in zip(blocks, first_pool)]),
            as_starts(np.concatenate([np.diff(b.pool_start) for b in blocks])),
            np.concatenate([b.pool_ids for b in blocks]),
            column("arm_features"),
        )
        plain = {n: column(n) for n in ("time", "shown", "reward", "user_index", "user_value", "propensity", "truth")}
        return cls(
            pool=pool,
            pool_start=pool_start,
            pool_ids=pool_ids,
            arm_features=arm_features,
            user_start=as_starts(np.concatenate([np.diff(b.user_start) for b in blocks])),
            **plain,  # type: ignore[arg-type]
        )


class Numbers:
    """Whole numbers for ids, in the order in which the ids first came."""

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self.of = {id_: number for number, id_ in enumerate(ids)}

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


def ranges(start: Ints, length: Ints) -> Ints:
    """start[0], start[0] + 1, ... (length[0] of them), then the same for start[1], and so on."""
    return np.repeat(start - as_starts(length)[:-1], length) + np.arange(length.sum())


def having(wrong: NDArray[np.bool_], lengths: Ints) -> NDArray[np.bool_]:
    """Rows of these lengths of which an entry is wrong."""
    rows = np.zeros(len(lengths), np.bool_)
    if np.any(wrong):
        rows[np.searchsorted(np.cumsum(lengths), np.flatnonzero(wrong), side="right")] = True
    return rows


def merged_pools(
    sizes: Ints, ids: Ints, features: Floats | None
) -> tuple[NDArray[np.int32], Ints, Ints, Floats | None]:
    """One table of the distinct pools among those of all lines, and each line's row in it; numbered by first use."""
    start = as_starts(sizes)
    # A pool rarely changes from line to line: after one look at its neighbour, few lines are left to compare.
    before = np.arange(len(ids)) - np.repeat(np.concatenate(([0], sizes))[:-1], sizes)
    differs = ids != ids[before]
    if features is not None:
        differs |= np.any(features != features[before], axis=1)
    new = having(differs, sizes) | (np.diff(sizes, prepend=-1) != 0)
    heads = np.flatnonzero(new)
    first = np.empty(len(heads), np.int64)  # the first head that has the same pool
    for size in np.unique(sizes[heads]):
        own = np.flatnonzero(sizes[heads] == size)
        places = start[heads[own], None] + np.arange(size)
        bits = ids[places].view(np.uint8)
        if features is not None:
            bits = np.hstack([bits, features[places].reshape(len(own), -1).view(np.uint8)])
        _, place, inverse = np.unique(
            np.ascontiguousarray(bits).view(f"V{bits.shape[1]}")[:, 0], return_index=True, return_inverse=True
        )
        first[own] = own[place][inverse]
    kept, pool = np.unique(first, return_inverse=True)
    rows = heads[kept]
    entries = ranges(start[rows], sizes[rows])
    table = None if features is None else features[entries]
    return pool[np.cumsum(new) - 1].astype(np.int32), as_starts(sizes[rows]), ids[entries], table


def distinct_pools(
    pool: NDArray[Any], pool_start: Ints, pool_ids: Ints, arm_features: Floats | None
) -> tuple[NDArray[np.int32], Ints, Ints, Floats | None]:
    """The same table without pools that no line has, and with equal ones merged; `pool` numbers by first use."""
    numbers = np.full(len(pool_start) - 1, -1, np.int32)
    places: dict[tuple[bytes, bytes], int] = {}
    kept: list[slice] = []
    for p in np.flatnonzero(np.bincount(pool, minlength=len(numbers))):
        part = slice(*pool_start[p : p + 2])
        features = b"" if arm_features is None else arm_features[part].tobytes()
        numbers[p] = places.setdefault((pool_ids[part].tobytes(), features), len(kept))
        if numbers[p] == len(kept):
            kept.append(part)
    starts = as_starts([part.stop - part.start for part in kept])
    ids = _joined([pool_ids[part] for part in kept], np.int64)
    rows = None if arm_features is None else np.concatenate([arm_features[:0], *(arm_features[part] for part in kept)])
    return numbers[pool], starts, ids, rows


def _refuse(wrong: Any, expected: str) -> None:
    if wrong:
        raise InputError(f"a block needs {expected}.")


def _is_start(starts: Ints, rows: int, entries: int) -> bool:
    ends = len(starts) == rows + 1 > 0 and starts[0] == 0 and starts[-1] == entries
    return bool(ends and np.all(np.diff(starts) >= 0))


def _check(event: Event, i: int) -> None:
    def wrong(what: str) -> InputError:
        return InputError(f"event {i}: {what}")

    arms = len(event.arms)
    if not 0 <= event.shown < arms:
        raise wrong(f"`shown` must be a position in its {arms} arms, got {event.shown}.")
    if len(event.user_index) != len(event.user_value):
        raise wrong(f"got {len(event.user_index)} user indices but {len(event.user_value)} values.")
    if np.any(np.diff(event.user_index, prepend=-1) <= 0):
        raise wrong("user indices must be at least 0 and increase. Sort them, and merge repeated ones.")
    for name, values in (("arm_features", event.arm_features), ("truth", event.truth)):
        if values is not None and len(values) != arms:
            raise wrong(f"got {len(values)} rows of `{name}` for {arms} arms.")


def _all_or_none(parts: list[Any], name: str) -> bool:
    having = sum(getattr(part, name) is not None for part in parts)
    if having not in (0, len(parts)):
        raise InputError(f"`{name}` must be given everywhere or nowhere, got it in {having} of {len(parts)} parts.")
    return having > 0


def as_starts(lengths: list[int] | Ints) -> Ints:
    """Where rows of these lengths begin when they are laid one after the other, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def _joined(parts: list[Any], dtype: type) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *parts]).astype(dtype, copy=False)


def _same(one: Any, other: Any) -> bool:
    pairs = ((getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    return all((a is None) == (b is None) and np.array_equal(a, b) for a, b in pairs)
