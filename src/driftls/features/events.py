"""Features of the events of a log: how a visitor and an article make one vector.

`arms(event)` gives the arms of one event, `rows(block)` those of all lines of a block at once, by the same code.
Where it says `constant`: one more feature of every visitor, of value 1, for logs that have none. R6B has one, index 0.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from driftls.errors import DimensionError, InputError, SettingsError
from driftls.features.base import FeatureMap
from driftls.features.crossed import CrossedArms, in_blocks
from driftls.features.names import Floats, Ints
from driftls.inputs import Rows
from driftls.logs.columns import ranges
from driftls.logs.events import Block, Event, Numbers


class EventFeatures(FeatureMap):
    """What every kind can do."""

    user_dim: int

    def __post_init__(self) -> None:
        for name, value in self._settings().items():
            if not isinstance(value, bool) and not (isinstance(value, int) and value >= 1):
                raise SettingsError(f"{name} must be a whole number of at least 1, got {value!r}.")

    @abstractmethod
    def _matrix(self, block: Block, users: Rows, line: Ints) -> Any:
        """A row for each of ``block.candidates``; `line` says which user each belongs to."""

    def arms(self, event: Event) -> Any:
        """The arms of one event, (K, dim): an array, or a csr_array with sorted indices, none of them twice."""
        return self.rows(Block.from_events([event]))

    def rows(self, block: Block) -> Any:
        """The arms of all lines; those of line i are ``rows[block.truth_start[i]:block.truth_start[i + 1]]``."""
        line = np.repeat(np.arange(len(block)), np.diff(block.pool_start)[block.pool])
        return self._matrix(block, self.visitors(block), line)

    def visitors(self, block: Block) -> Rows:
        """The visitors' rows as plain arrays, with the constant behind them if there is to be one."""
        if block.visitor is not None:
            raise InputError("visitors of a table are dicts: build the policy with features=Features(...).")
        start, index, value = block.user_start, block.user_index, block.user_value
        largest = int(index.max()) if len(index) else -1
        if largest >= self.user_dim:
            raise DimensionError(
                f"a visitor has feature {largest}, but user_dim={self.user_dim}. "
                f"Declare user_dim={largest + 1} or more (--dim on the command line), or check the log."
            )
        if not getattr(self, "constant", False):
            return Rows(index, value, start, self.user_dim)
        index, value = np.insert(index, start[1:], self.user_dim), np.insert(value, start[1:], 1.0)
        return Rows(index, value, start + np.arange(len(start)), self.user_dim + 1)

    def _settings(self) -> dict[str, Any]:
        values = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.init}  # type: ignore[arg-type]
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}


@dataclass(frozen=True)
class OuterProduct(EventFeatures):
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

    def _matrix(self, block: Block, users: Rows, line: Ints) -> Floats:
        features = block.arm_features
        if features is None:
            raise InputError("OuterProduct needs logs with article features. Use UserArmCrosses for this one.")
        if features.shape[1] != self.arm_dim:
            raise DimensionError(f"the articles have {features.shape[1]} features, but arm_dim={self.arm_dim}.")
        products = users.tocsr().toarray()[line][:, :, None] * features[block.candidates][:, None, :]
        return np.asarray(products.reshape(len(products), self.dim))


@dataclass(frozen=True)
class UserOnly(EventFeatures):
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
        return self.users(Block.from_events([event]))

    def users(self, block: Block) -> Any:
        """The visitor's row of each line, (n, dim)."""
        return self.visitors(block).tocsr()

    def _matrix(self, block: Block, users: Rows, line: Ints) -> Any:
        return users.tocsr()[line]


@dataclass(frozen=True)
class UserArmCrosses(EventFeatures):
    """One block of user features an article, in one sparse vector, alone or behind user features that all share.

    Articles get blocks in the order in which they first come; which one has which belongs to what is saved.

    Examples
    --------
    >>> from driftls.features import UserArmCrosses, from_header
    >>> from driftls.logs import synthetic_day
    >>> features = UserArmCrosses(user_dim=136, articles=200, shared=True)
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
    numbers: Numbers = field(default_factory=Numbers, init=False, repr=False, compare=False)

    @property
    def dim(self) -> int:
        """The length of an arm."""
        return (self.user_dim + self.constant) * (self.articles + self.shared)

    def crossed(self, source: Event | Block) -> CrossedArms:
        """The arms of an event, or of all lines of a block that has one pool, without building a row for each."""
        block = Block.from_events([source]) if isinstance(source, Event) else source
        if (block.pool != block.pool[:1]).any():
            raise InputError("these lines have several pools. Take those of one pool at a time: block.part(i, j).")
        begin, end = block.pool_start[block.pool[0] : block.pool[0] + 2]
        numbers = self.numbers(block.pool_ids[begin:end], most=self.articles)
        return CrossedArms(self.visitors(block), numbers, self.articles, self.shared)

    def _matrix(self, block: Block, users: Rows, line: Ints) -> Any:
        pools, first = np.unique(block.pool, return_index=True)
        pools = pools[np.argsort(first)]  # articles get their numbers in the order in which lines name them
        entries = ranges(block.pool_start[pools], np.diff(block.pool_start)[pools])
        number = np.zeros(len(block.pool_ids), np.int64)
        number[entries] = self.numbers(block.pool_ids[entries], most=self.articles)
        return in_blocks(users, line, number[block.candidates], self.articles, self.shared).tocsr()

    def follow(self, header: dict[str, Any]) -> None:
        """Take over the articles of a copy, in the order of their blocks."""
        self.numbers(np.array(header.get("ids", []), np.int64), most=self.articles)

    def to_header(self) -> dict[str, Any]:
        """What a file keeps: the settings, and the articles in the order of their blocks."""
        return {**super().to_header(), "ids": list(self.numbers.of)}
