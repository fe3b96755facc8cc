"""Names of features: to indices, hashed or by a vocabulary that grows; and records as codes of names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from driftls.compiling.parts import Frame
from driftls.errors import FileFormatError, InputError
from driftls.features import kernel as kernels
from driftls.features.kernel import FEATURES

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
LOW = (1 << 32) - 1  # the part of a code that is not its column's group
MOST_COUNTS = 2**20  # indices whose names are counted one by one


class Coded(NamedTuple):
    """Records as codes of names with their values: record k has those from start[k] to start[k + 1]."""

    start: Ints
    code: Ints
    value: Floats

    def __len__(self) -> int:
        return len(self.start) - 1

    def fields(self, of: str) -> dict[str, Any]:
        """What a kernel reads of them, by the names that its record has."""
        return {f"{of}_{name}": array for name, array in self._asdict().items()}

    def longest(self) -> int:
        """The most names of a record."""
        return int(np.diff(self.start).max(initial=0))


class Collisions(NamedTuple):
    """names: how many there are; measured: the share that has its index with another; expected: what chance gives."""

    names: int
    measured: float
    expected: float


class Pool:
    """Items as codes, looked up once; made by `Features.pool`."""

    def __init__(self, items: Coded, owner: Any) -> None:
        self.items, self.owner = items, owner  # a token of the features that know the codes
        self.longest, self.most = items.longest(), len(items.code) + len(items)
        self.fields = {**items.fields("item"), "items": np.arange(len(items), dtype=np.int64)}

    def __len__(self) -> int:
        return len(self.items)


NOBODY = Pool(Coded(np.zeros(2, np.int64), np.empty(0, np.int64), np.empty(0)), None)


def mixed_bits(keys: Any) -> NDArray[np.uint64]:
    """Every bit of each key from all of its bits."""
    with np.errstate(over="ignore"):
        return np.asarray(kernels.mixed(keys.astype(np.uint64)))


def buckets(keys: Any, size: int) -> Ints:
    """The index of each key among `size`, as kernels have it."""
    return ((mixed_bits(keys) >> np.uint64(32)) * np.uint64(size) >> np.uint64(32)).astype(np.int64)


def as_bytes(name: str) -> bytes:
    """A name in UTF-8."""
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise InputError(f"expected text that UTF-8 can write, got {name!r}. Check how it was decoded.") from None


class Index:
    """Names to codes, and the record with which kernels make indices of them."""

    def __init__(self, **fields: int) -> None:
        self.frame = Frame(FEATURES)
        self.frame.set(constant=-1, **fields)
        self.size = self.frame.cell("dim")  # how many indices there are, as one number

    def set(self, **fields: Any) -> None:
        """What the kernels are to read and to write."""
        self.frame.set(**fields)

    # What keeps no names has nothing to do here.

    def crosses(self) -> Ints:
        """By index: the indices of the two names that are crossed, in one number; -1 for a name."""
        return np.empty(0, np.int64)

    def room(self, names: int) -> None:
        """Make sure that so many names more can come."""

    def cut(self, size: int) -> None:
        """Drop the names and crosses from this index on."""

    def strange(self, names: list[str]) -> str:
        """What is to be said of the names of a log, which are numbers, where others are known and none that is a number."""
        return ""

    def listed(self) -> list[Any]:
        """By index: a name, or the indices of the two that are crossed."""
        return []


class Hashing(Index):
    """Names to 32 bits; nothing has to be kept."""

    def __init__(self, dim: int) -> None:
        super().__init__(hashed=1, dim=dim)

    def code(self, name: str) -> int:
        """A name's hash: the same in every process, on every machine."""
        return crc32(as_bytes(name))

    def names(self) -> list[str]:
        """No name is kept."""
        raise InputError("hashed features keep no names. Use a vocabulary: Features() without dim.")

    def collisions(self, users: Ints, items: Ints, crossed: Ints) -> Collisions:
        """How many names share an index with another: these codes, and all crosses between them."""
        dim, constant = self.size[0], self.frame["constant"]
        alone = buckets(np.concatenate([users, items]) & LOW, dim)
        pieces = chain([alone, np.full(int(constant >= 0), constant)], self._crosses(users, items, crossed))
        if dim > MOST_COUNTS:  # names of a wide space are fewer than its indices
            counts = np.unique(np.concatenate(list(pieces)), return_counts=True)[1]
        else:
            counts = np.zeros(dim, np.int64)
            for piece in pieces:
                np.add.at(counts, piece, 1)
        names = int(counts.sum())
        measured = float(counts[counts > 1].sum() / max(names, 1))
        return Collisions(names, measured, 1.0 - (1.0 - 1.0 / dim) ** max(names - 1, 0))

    def _crosses(self, users: Ints, items: Ints, crossed: Ints) -> Iterator[Ints]:
        """The indices of all crosses between names, by user."""
        for code in users.tolist() if crossed.size else ():
            with_ = items if crossed.size == 1 else items[crossed[code >> 32, items >> 32] != 0]
            keys = (with_ & LOW).astype(np.uint64) | (np.uint64(code & LOW) << np.uint64(32))
            yield buckets(keys, self.size[0])


class Vocabulary(Index):
    """Names to indices, in the order in which they come; a cross has an index too, found by that of its two names."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, int] = {}
        self.keys: Ints = np.empty(0, np.int64)  # by index: both names of a cross, or -1
        self.room(32)

    def code(self, name: str) -> int:
        """A name's index, a new one if it is new."""
        found = self.of.get(name)
        if found is None:
            as_bytes(name)
            self.room(1)
            found = self.of[name] = self.size[0]
            self.keys[found] = -1
            self.size[0] = found + 1
        return found

    def room(self, names: int) -> None:
        size = self.size[0]
        if size + names > len(self.keys):
            keys = np.full(2 * (size + names), -1, np.int64)  # by a factor: what is copied stays in proportion
            keys[:size] = self.keys[:size]
            self.keys = keys
            self.frame.set(keys=keys, slots=np.empty(2 * len(keys), np.int32), slot_count=2 * len(keys))
            kernels.refill(self.frame, 0, 0)

    def cut(self, size: int) -> None:
        self.of = {name: index for name, index in self.of.items() if index < size}
        self.size[0] = size
        kernels.refill(self.frame, 0, 0)

    def strange(self, names: list[str]) -> str:
        known = [name for name in self.of if name != "constant"]
        if not known or not names or any(name.isdigit() for name in known):
            return ""
        ours, theirs = (", ".join([*some[:3], "..."]) for some in (known, names))
        return f"none of the log's features ({theirs}) is known to the policy's, which have met {ours}"

    def crosses(self) -> Ints:
        return self.keys[: self.size[0]]

    def names(self) -> list[str]:
        """The name of each index."""
        alone = {index: name for name, index in self.of.items()}
        return [name if isinstance(name, str) else f"{alone[name[0]]}*{alone[name[1]]}" for name in self.listed()]

    def listed(self) -> list[Any]:
        alone = iter(self.of)
        keys = self.keys[: self.size[0]].tolist()
        return [next(alone) if key < 0 else [key >> 32, key & LOW] for key in keys]

    def collisions(self, users: Ints, items: Ints, crossed: Ints) -> Collisions:
        """None: each name has its own."""
        return Collisions(self.size[0], 0.0, 0.0)

    def fill(self, listed: Iterable[Any]) -> None:
        """Take over what `listed` gave."""
        for place, entry in enumerate(listed):
            if isinstance(entry, str):
                self.code(entry)
            elif isinstance(entry, list) and len(entry) == 2 and all(k in range(place) for k in entry):
                self.room(1)
                self.keys[place] = (entry[0] << 32) | entry[1]
                self.size[0] = place + 1
            if self.size[0] != place + 1:
                raise FileFormatError(f"expected a new name or two indices below {place}, got {entry!r}.")
        kernels.refill(self.frame, 0, 0)
