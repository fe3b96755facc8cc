"""One user, many articles: arms that are told apart by the block of features that the user's stand in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.errors import DimensionError, InputError
from driftls.kernels.rows import CrossRows


@dataclass(frozen=True)
class Crossed:
    """The arms of a user, without building a row for each.

    Arm k is the user's features in block `blocks[k]` of `count`; with `shared`, behind a copy that all arms have. It is
    the same as the rows of `tocsr()`, and costs the user's features once, not once an arm.

    Parameters
    ----------
    users : (1, d) sparse row, or vector
        Or (n, d): every user with every block, user by user.
    blocks : array of int, (K,)
        Whole numbers in 0 ... count - 1.
    count : int
        How many blocks there can be.
    shared : bool
        Whether the user's features also stand in front, alike for all arms.

    Examples
    --------
    >>> arms = Crossed([1.0, 0.5], [0, 2], count=3)
    >>> arms.tocsr().toarray()
    array([[1. , 0.5, 0. , 0. , 0. , 0. ],
           [0. , 0. , 0. , 0. , 1. , 0.5]])
    """

    users: Any
    blocks: Any
    count: int
    shared: bool = False

    def __post_init__(self) -> None:
        users: Any = self.users if sp.issparse(self.users) else np.atleast_2d(np.asarray(self.users))
        if users.dtype.kind not in "fiub":
            raise InputError(f"a user must have real numbers, got {users.dtype}.")
        users = sp.csr_array(users.reshape(1, -1) if users.ndim == 1 else users)
        blocks = np.array(self.blocks)  # a copy, which nobody writes to
        if blocks.ndim != 1:
            raise DimensionError(f"blocks must be a vector, with a block for each arm, got shape {blocks.shape}.")
        if not isinstance(self.count, int | np.integer) or (blocks.size and blocks.dtype.kind not in "iu"):
            raise InputError(f"blocks and their count must be whole numbers, got {self.blocks!r} of {self.count!r}.")
        if blocks.size and not (blocks.min() >= 0 and blocks.max() < self.count):
            raise InputError(f"blocks must lie in 0 ... {self.count - 1}, got {blocks.min()} ... {blocks.max()}.")
        blocks = blocks.astype(np.int64)
        blocks.flags.writeable = False
        for name, value in (("users", users), ("blocks", blocks)):
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> tuple[int, int]:
        """(K, dim), as of a matrix; with n users, (n K, dim)."""
        return len(self), self.users.shape[1] * (self.count + self.shared)

    def __len__(self) -> int:
        return int(self.users.shape[0] * self.blocks.size)

    def __getitem__(self, arms: Any) -> Crossed:
        """Some of the arms of one user."""
        if isinstance(arms, slice):
            arms = range(len(self))[arms]
        rows = np.atleast_1d(np.asarray(arms, dtype=np.int64))
        if rows.size and not (rows.min() >= 0 and rows.max() < len(self)):
            raise IndexError(f"there are {len(self)} arms, got {rows.min()} ... {rows.max()}.")
        lines, places = np.divmod(rows, max(self.blocks.size, 1))
        if rows.size == 0 or lines.min() != lines.max():
            raise InputError("at least one arm, and arms of one user at a time.")
        return Crossed(self.users[[int(lines[0])]], self.blocks[places], self.count, self.shared)

    def __iter__(self) -> Iterator[Crossed]:
        """Arm by arm."""
        return (self[k] for k in range(len(self)))

    def rows(self, y: NDArray[np.float64], dtype: np.dtype[Any]) -> CrossRows:
        """What a kernel reads."""
        start = np.array(self.users.indptr, dtype=np.int64)
        width = self.users.shape[1]
        indices = self.users.indices
        if indices.dtype.itemsize > 4:  # what does not fit must not come out as another index
            indices = np.clip(indices, -1, np.iinfo(np.int32).max)
        indices, values = (
            np.require(array, kind, ["C", "A", "W"]) for array, kind in ((indices, np.int32), (self.users.data, dtype))
        )
        shared = np.array([self.shared, width], dtype=np.int64)
        return CrossRows(width * (self.blocks + self.shared), start[:-1], start[1:], indices, values, y, shared)

    def tocsr(self) -> sp.csr_array:
        """The same as a sparse matrix with a row for each arm."""
        width = self.users.shape[1]
        pieces = []
        for line in range(self.users.shape[0]):
            begin, end = self.users.indptr[line : line + 2]
            index, value = self.users.indices[begin:end], self.users.data[begin:end]
            for block in self.blocks.tolist():
                moved = index + width * (block + self.shared)
                if self.shared:
                    pieces.append((np.concatenate([index, moved]), np.concatenate([value, value])))
                else:
                    pieces.append((moved, value))
        start = np.concatenate([[0], np.cumsum([index.size for index, _ in pieces])])
        columns = np.concatenate([index for index, _ in pieces]) if pieces else np.empty(0, np.int64)
        values = np.concatenate([value for _, value in pieces]) if pieces else np.empty(0)
        return sp.csr_array((values, columns, start), shape=self.shape)
