"""From events to arms: how a visitor and an article make one vector.

A kind of features is a small frozen object. `arms(event)` gives the arms of one event, `rows(block)` those of all lines
of a block at once, and both are the same code. `to_header` and `from_header` keep it beside what was learned with it.

Where it says `constant`: one more feature of every visitor, of value 1, for logs that have none. R6B has one, index 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.crossed import Crossed
from driftls.errors import DimensionError, FileFormatError, InputError, NewerFileError, SettingsError, missing_extra
from driftls.logs.events import Block, Event, Floats, Ints, Numbers, as_starts, ranges

__all__ = ["Crosses", "Features", "Hashed", "OuterProduct", "UserFeatures", "from_header"]

VERSION = 1


class Pairs(NamedTuple):
    """Visitors in CSR form; articles; and the pairs of them that are candidates, line after line."""

    start: Ints
    feature: Ints
    value: Floats
    ids: Ints
    arm_features: Floats | None
    visitor: Ints
    article: Ints  # a place in ids


class Features(ABC):
    """What every kind can do."""

    user_dim: int

    def __post_init__(self) -> None:
        for setting in self._settings():
            value = getattr(self, setting)
            if not isinstance(value, bool) and not (isinstance(value, int | np.integer) and value >= 1):
                raise SettingsError(f"{setting} must be a whole number of at least 1, got {value!r}.")

    @property
    @abstractmethod
    def dim(self) -> int:
        """The length of an arm."""

    @abstractmethod
    def _matrix(self, pairs: Pairs) -> Any: ...

    def arms(self, event: Event) -> Any:
        """The arms of one event, (K, dim): an array, or a csr_array with sorted indices, none of them twice."""
        return self._matrix(self._pairs(event))

    def rows(self, block: Block) -> Any:
        """The arms of all lines; those of line i are ``rows[block.truth_start[i]:block.truth_start[i + 1]]``."""
        return self._matrix(self._pairs(block))

    def _pairs(self, source: Event | Block) -> Pairs:
        if isinstance(source, Event):
            count = np.arange(len(source.arms))
            return self._checked(Pairs(*_visitor(source), source.arms, source.arm_features, 0 * count, count))
        sizes = np.diff(source.pool_start)
        used, first = np.unique(source.pool, return_index=True)
        used = used[np.argsort(first)]  # articles in the order in which lines name them
        entries = ranges(source.pool_start[used], sizes[used])
        place = np.zeros(len(source.pool_ids), np.int64)
        place[entries] = np.arange(len(entries))
        features = None if source.arm_features is None else source.arm_features[entries]
        lines = np.repeat(np.arange(len(source)), sizes[source.pool])
        pairs = Pairs(*_visitors(source), source.pool_ids[entries], features, lines, place[source.candidates])
        return self._checked(pairs)

    def _checked(self, pairs: Pairs) -> Pairs:
        start, feature, value = self._visiting(pairs.start, pairs.feature, pairs.value)
        return pairs._replace(start=start, feature=feature, value=value)

    def _visiting(self, start: Ints, index: NDArray[Any], value: Floats) -> tuple[Ints, NDArray[Any], Floats]:
        """The visitors' rows, looked at, and with the constant behind them if there is to be one."""
        largest = index.max() if len(index) else -1
        if largest >= self.user_dim:
            raise DimensionError(
                f"a visitor has feature {largest}, but user_dim={self.user_dim}. "
                f"Declare user_dim={largest + 1} or more, or check the log."
            )
        if not getattr(self, "constant", False):
            return start, index, value
        ends, lines = start[1:], np.arange(len(start))
        return start + lines, np.insert(index, ends, self.user_dim), np.insert(value, ends, 1.0)

    def _settings(self) -> list[str]:
        return [entry.name for entry in fields(self) if entry.init]  # type: ignore[arg-type]

    def to_header(self) -> dict[str, Any]:
        """What a file keeps, as plain numbers and lists."""
        values = ((name, getattr(self, name)) for name in self._settings())
        settings = {name: value if isinstance(value, bool) else int(value) for name, value in values}
        return {"features": type(self).__name__, "version": VERSION, **settings}


@dataclass(frozen=True)
class OuterProduct(Features):
    """Products of each user feature with each article feature, dense: entry ``i * arm_dim + j`` is user i times arm j.

    Examples
    --------
    >>> import numpy as np
    >>> from driftls.features import OuterProduct
    >>> from driftls.logs import Event
    >>> event = Event(time=0, arms=np.array([7, 8]), shown=0, reward=1.0, user_index=np.array([0, 1], dtype=np.int32),
    ...               user_value=np.array([1.0, 0.5]), arm_features=np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> OuterProduct(user_dim=2, arm_dim=2).arms(event)
    array([[1. , 2. , 0.5, 1. ],
           [3. , 4. , 1.5, 2. ]])
    """

    user_dim: int
    arm_dim: int

    @property
    def dim(self) -> int:
        """The length of an arm."""
        return self.user_dim * self.arm_dim

    def _matrix(self, pairs: Pairs) -> Floats:
        features = pairs.arm_features
        if features is None:
            raise InputError("OuterProduct needs logs with article features. Use Crosses or Hashed for this one.")
        if features.shape[1] != self.arm_dim:
            raise DimensionError(f"the articles have {features.shape[1]} features, but arm_dim={self.arm_dim}.")
        users = np.zeros((len(pairs.start) - 1, self.user_dim))
        users[np.repeat(np.arange(len(users)), np.diff(pairs.start)), pairs.feature] = pairs.value
        products = users[pairs.visitor][:, :, None] * features[pairs.article][:, None, :]
        return products.reshape(len(products), self.dim)


@dataclass(frozen=True)
class UserFeatures(Features):
    """The visitor alone, for one model an article: ``DisjointLinUCB.choose(features.user(event), ids=event.arms)``.

    As arms, every candidate has the visitor's row.
    """

    user_dim: int
    constant: bool = field(default=False, kw_only=True)

    @property
    def dim(self) -> int:
        """The length of a visitor's row."""
        return self.user_dim + self.constant

    def user(self, event: Event) -> Any:
        """The visitor's row, (1, dim)."""
        return self._each(*_visitor(event))

    def users(self, block: Block) -> Any:
        """The visitor's row of each line, (n, dim)."""
        return self._each(block.user_start, block.user_index, block.user_value)

    def _each(self, start: Ints, index: NDArray[Any], value: Floats) -> Any:
        start, index, value = self._visiting(start, index, value)
        return _csr(value, index, start, self.dim)

    def _matrix(self, pairs: Pairs) -> Any:
        start, entries = _entries(pairs, pairs.visitor)
        return _csr(pairs.value[entries], pairs.feature[entries], start, self.dim)


@dataclass(frozen=True)
class Crosses(Features):
    """One block of user features an article, in one sparse vector, alone or behind user features that all share.

    Articles get blocks in the order in which they first come; which one has which belongs to what is saved.

    Examples
    --------
    >>> from driftls.features import Crosses, from_header
    >>> from driftls.logs import synthetic_day
    >>> features = Crosses(user_dim=136, articles=200, shared=True)
    >>> block = next(synthetic_day(lines=100, seed=1).blocks())
    >>> rows = features.rows(block)
    >>> rows.shape == (block.truth_start[-1], 136 * 201)
    True
    >>> (from_header(features.to_header()).arms(block[5]) != rows[block.truth_start[5] : block.truth_start[6]]).nnz
    0
    """

    user_dim: int
    articles: int = field(kw_only=True)
    shared: bool = field(default=False, kw_only=True)
    constant: bool = field(default=False, kw_only=True)
    _numbers: Numbers = field(default_factory=Numbers, init=False, repr=False, compare=False)

    @property
    def dim(self) -> int:
        """The length of an arm."""
        return (self.user_dim + self.constant) * (self.articles + self.shared)

    def crossed(self, source: Event | Block) -> Crossed:
        """The arms of an event, or of all lines of a block that has one pool, without building a row for each."""
        visitors: tuple[Ints, NDArray[Any], Floats]
        if isinstance(source, Event):
            visitors, ids = _visitor(source), source.arms
        else:
            visitors, ids = (source.user_start, source.user_index, source.user_value), source.pool_ids
            pool = source.pool[:1]
            if (source.pool != pool).any():
                raise InputError("these lines have several pools. Take those of one pool at a time: block.part(i, j).")
            ids = ids[int(source.pool_start[pool[0]]) : int(source.pool_start[pool[0] + 1])]
        start, index, value = self._visiting(*visitors)
        users = _csr(value, index, start, self.user_dim + self.constant)
        return Crossed(users, self._numbers(ids, most=self.articles), self.articles, self.shared)

    def _matrix(self, pairs: Pairs) -> Any:
        width = self.user_dim + self.constant
        block = self._numbers(pairs.ids, most=self.articles)[pairs.article] + self.shared
        visitor = pairs.visitor
        if self.shared:  # two copies of the visitor: block 0, then the article's own
            visitor, block = np.repeat(visitor, 2), np.stack([np.zeros_like(block), block], axis=1).ravel()
        start, entries = _entries(pairs, visitor)
        column = pairs.feature[entries] + np.repeat(width * block, np.diff(start))
        return _csr(pairs.value[entries], column, start[:: 1 + self.shared], self.dim)

    def to_header(self) -> dict[str, Any]:
        """What a file keeps: the settings, and the articles in the order of their blocks."""
        return {**super().to_header(), "ids": list(self._numbers.of)}


@dataclass(frozen=True)
class Hashed(Features):
    """Crosses of user features and articles, hashed to a fixed width: entries that meet are added up.

    The pair of feature f and article a is what scikit-learn's `FeatureHasher` makes of the text ``"{f}x{a}"``, with
    its sign. An article is hashed when it first comes, and takes 5 bytes a user feature from then on.
    """

    width: int
    user_dim: int = field(kw_only=True)
    constant: bool = field(default=False, kw_only=True)
    _table: HashTable = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_table", HashTable(self.width, self.user_dim + self.constant))

    @property
    def dim(self) -> int:
        """The length of an arm."""
        return self.width

    def _matrix(self, pairs: Pairs) -> Any:
        start, entries = _entries(pairs, pairs.visitor)
        row = np.repeat(self._table.rows(pairs.ids)[pairs.article], np.diff(start))
        feature = pairs.feature[entries]
        value = pairs.value[entries] * self._table.sign[row, feature]
        matrix = _csr(value, self._table.column[row, feature], start, self.dim)
        matrix.sum_duplicates()
        return matrix


class HashTable:
    """Column and sign of every pair: one row an article, in the order of their coming, one entry a user feature."""

    def __init__(self, width: int, features: int) -> None:
        try:
            from sklearn.feature_extraction import FeatureHasher
        except ImportError:
            raise missing_extra("scikit-learn", "sklearn", "Hashed") from None
        self._hasher = FeatureHasher(width, input_type="string")
        self._numbers = Numbers()
        self.column: NDArray[np.int32] = np.empty((0, features), np.int32)
        self.sign: NDArray[np.int8] = np.empty((0, features), np.int8)

    def rows(self, ids: Ints) -> Ints:
        """The row of each article; new ones are hashed."""
        known = len(self._numbers.of)
        rows = self._numbers(ids)
        new = list(islice(self._numbers.of, known, None))
        if known + len(new) > len(self.column):
            room = 2 * (known + len(new))  # by a factor: what is copied stays in proportion
            self.column = _grown(self.column, room)
            self.sign = _grown(self.sign, room)
        if new:
            hashed = self._hasher.transform([[f"{f}x{a}"] for a in new for f in range(self.column.shape[1])])
            self.column[known : known + len(new)] = hashed.indices.reshape(len(new), -1)
            self.sign[known : known + len(new)] = hashed.data.reshape(len(new), -1)
        return rows


def from_header(header: dict[str, Any]) -> Features:
    """The features that `to_header` wrote down."""
    settings = dict(header)
    kind, version, ids = settings.pop("features", None), settings.pop("version", 0), settings.pop("ids", [])
    if kind not in KINDS:
        raise FileFormatError(f"expected a header of features, one of {', '.join(KINDS)}, got {kind!r}.")
    if version > VERSION:
        raise NewerFileError(f"features of version {version}, but this driftls reads up to {VERSION}. Install a newer.")
    features: Features = KINDS[kind](**settings)
    if isinstance(features, Crosses):
        features._numbers(np.array(ids, np.int64), most=features.articles)
    return features


KINDS: dict[str, Any] = {kind.__name__: kind for kind in (OuterProduct, UserFeatures, Crosses, Hashed)}


def _visitor(event: Event) -> tuple[Ints, Ints, Floats]:
    return np.array([0, len(event.user_index)]), event.user_index.astype(np.int64), event.user_value


def _visitors(block: Block) -> tuple[Ints, Ints, Floats]:
    return block.user_start, block.user_index.astype(np.int64), block.user_value


def _entries(pairs: Pairs, visitor: Ints) -> tuple[Ints, Ints]:
    """CSR starts of a row for each of `visitor`, and where its entries are among those of `pairs`"""
    length = np.diff(pairs.start)[visitor]
    return as_starts(length), ranges(pairs.start[visitor], length)


def _grown(table: NDArray[Any], rows: int) -> Any:
    grown = np.empty((rows, table.shape[1]), table.dtype)
    grown[: len(table)] = table
    return grown


def _csr(value: Floats, column: NDArray[Any], start: Ints, dim: int) -> Any:
    small = max(dim, len(column)) < 2**31  # half the memory, and what kernels read
    dtype = np.int32 if small else np.int64
    parts = value, column.astype(dtype, copy=False), start.astype(dtype)
    return sp.csr_array(parts, shape=(len(start) - 1, dim))
