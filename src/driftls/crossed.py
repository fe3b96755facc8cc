"""One user, many articles: arms that are told apart by the block of features that the user's stand in."""

from __future__ import annotations

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
        users: Any = self.users
        if not sp.issparse(users):
            users = sp.csr_array(np.atleast_2d(np.asarray(users, dtype=np.float64)))
        users = users.reshape(1, -1).tocsr() if users.ndim == 1 else users.tocsr()
        blocks = np.asarray(self.blocks, dtype=np.int64)
        if blocks.ndim != 1:
            raise DimensionError(f"blocks must be a vector, with a block for each arm, got shape {blocks.shape}.")
        if blocks.size and not (blocks.min() >= 0 and blocks.max() < self.count):
            raise InputError(f"blocks must lie in 0 ... {self.count - 1}, got {blocks.min()} ... {blocks.max()}.")
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
        lines, places = np.divmod(np.arange(len(self))[arms], max(self.blocks.size, 1))
        if np.unique(lines).size != 1:
            raise InputError("arms can be taken of one user at a time.")
        return Crossed(self.users[[int(lines[0])]], self.blocks[places], self.count, self.shared)

    def rows(self, y: NDArray[np.float64], dtype: np.dtype[Any]) -> CrossRows:
        """What a kernel reads."""
        start = np.array(self.users.indptr, dtype=np.int64)
        width = self.users.shape[1]
        indices, values = (
            np.require(array, kind, ["C", "A", "W"])
            for array, kind in ((self.users.indices, np.int32), (self.users.data, dtype))
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
                both = (np.concatenate([index, moved]), np.concatenate([value, value]))
                pieces.append(both if self.shared else (moved, value))
        start = np.concatenate([[0], np.cumsum([index.size for index, _ in pieces])])
        columns = np.concatenate([index for index, _ in pieces]) if pieces else np.empty(0, np.int64)
        values = np.concatenate([value for _, value in pieces]) if pieces else np.empty(0)
        return sp.csr_array((values, columns, start), shape=self.shape)
