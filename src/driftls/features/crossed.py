"""One user, many articles: arms that are told apart by the block of features that the user's stand in."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.errors import DimensionError, InputError
from driftls.inputs import POINTER, Rows, fault, is_sparse, sparse_rows
from driftls.kernels.rows import BAD_INDEX

WHOLE = (int, np.integer)


class CrossedArms:
    """The arms of a user as interactions with articles, without building a row for each.

    Arm k is the user's features in block `blocks[k]` of `count`; with `shared`, behind a copy that all arms have. It is
    the same as the rows of `tocsr()`, and costs the user's features once, not once an arm.

    `users` is a vector or a sparse row, or (n, d): then every user with every block, user by user. `blocks` (K,) are whole
    numbers below `count`. Users need no constant: policies that choose their parts themselves give each block one.

    Examples
    --------
    >>> arms = CrossedArms([1.0, 0.5], [0, 2], count=3)
    >>> arms.tocsr().toarray()
    array([[1. , 0.5, 0. , 0. , 0. , 0. ],
           [0. , 0. , 0. , 0. , 1. , 0.5]])
    """

    def __init__(self, users: Any, blocks: Any, count: int, shared: bool = False) -> None:
        row = users if type(users) is Rows else _as_rows(users)
        if not isinstance(row.dim, WHOLE) or row.dim < 1:
            raise InputError(f"expected users of at least one feature, got {row.dim!r}.")
        if shared is not True and not (isinstance(shared, (int, np.bool_)) and shared in (0, 1)):
            raise InputError(f"shared must be True or False, got {shared!r}.")
        self.row = row if row.plain() else sparse_rows(row, "a user")  # of each user
        self.blocks, self.count = _blocks_of(blocks, count)
        self.shared = bool(shared)
        self._more: CrossedArms | None = None  # the same with a constant: choosing and learning ask for it

    @cached_property
    def users(self) -> sp.csr_array:
        """The users' rows as a SciPy matrix."""
        return self.row.tocsr()

    @property
    def shape(self) -> tuple[int, int]:
        """(K, dim), as of a matrix; with n users, (n K, dim)."""
        return len(self), self.row.dim * (self.count + self.shared)

    def __len__(self) -> int:
        return self.row.shape[0] * self.blocks.size

    def __getitem__(self, arms: Any) -> CrossedArms:
        """Some of the arms of one user."""
        places = np.arange(len(self))[arms] if isinstance(arms, slice) else np.atleast_1d(np.asarray(arms, np.int64))
        if places.size and not (places.min() >= 0 and places.max() < len(self)):
            raise IndexError(f"there are {len(self)} arms, got {places.min()} ... {places.max()}.")
        user, place = np.divmod(places, max(self.blocks.size, 1))
        if places.size == 0 or user.min() != user.max():
            raise InputError("expected at least one arm, and arms of one user at a time.")
        begin, end = (int(at) for at in self.row.start[user[0] : user[0] + 2])
        one = Rows(self.row.indices[begin:end], self.row.values[begin:end], np.array([0, end - begin]), self.row.dim)
        return CrossedArms(one, self.blocks[place], self.count, self.shared)

    def with_constant(self) -> CrossedArms:
        """The same with a feature behind each user's own that is always 1."""
        if self._more is None:
            indices, values, start, dim = self.row
            n = indices.size
            if start.size == 2 and start.item(1) == n == values.size:  # one user, in a fraction of the time
                at, x = np.empty(n + 1, indices.dtype), np.empty(n + 1)
                at[:n], at[n], x[:n], x[n] = indices, dim, values, 1.0
                row = Rows(at, x, np.array([0, n + 1]), dim + 1)
            else:
                indices, values, start, dim = sparse_rows(self.row, "a user")
                at, x = np.insert(indices, start[1:], dim), np.insert(values, start[1:], 1.0)
                row = Rows(at, x, start + np.arange(start.size), dim + 1)
            self._more = CrossedArms(row, self.blocks, self.count, self.shared)
        return self._more

    def rows(self) -> Rows:
        """The same with a row for each arm, as plain arrays."""
        row = sparse_rows(self.row, "a user")
        if row.indices.size and not 0 <= int(row.indices.min()) <= int(row.indices.max()) < row.dim:
            raise fault(BAD_INDEX, "a user", row.dim)  # in another arm's block it would be a good one
        user = np.repeat(np.arange(row.shape[0]), self.blocks.size)
        return in_blocks(row, user, np.tile(self.blocks, row.shape[0]), self.count, self.shared)

    def tocsr(self) -> sp.csr_array:
        """The same as a sparse matrix with a row for each arm."""
        return self.rows().tocsr()


def in_blocks(users: Rows, user: NDArray[np.int64], block: NDArray[np.int64], count: int, shared: bool) -> Rows:
    """Row k has the features of user[k] in block[k] of so many; with `shared`, behind a copy that all rows have."""
    dim = users.dim * (count + shared)
    if shared:  # two pieces of a row: in front, then in its block
        user, block = np.repeat(user, 2), np.stack([np.zeros_like(block), block + 1], axis=1).ravel()
    sizes = np.diff(users.start)[user]
    ends = np.cumsum(sizes)
    at = np.arange(sizes.sum()) + np.repeat(users.start[user] - ends + sizes, sizes)
    index = users.indices[at] + np.repeat(users.dim * block, sizes)
    index = index.astype(np.int32) if dim < 2**31 else index  # half the memory, and what kernels read
    return Rows(index, users.values[at], np.append(0, ends)[:: 1 + shared], dim)


def with_constants(rows: Any, dim: int) -> Rows:
    """Rows that stand in blocks of so many features, with a 1 behind each block of which a row has something."""
    indices, values, start, width = sparse_rows(rows if is_sparse(rows) else sp.csr_array(rows), "arms")
    block, end = indices // dim, np.zeros(indices.size + 1, bool)
    end[1:-1], end[start[1:]] = block[1:] != block[:-1], True
    at = np.flatnonzero(end[1:]) + 1
    own = block[at - 1] * (dim + 1) + dim
    indices, start = np.insert(indices + block, at, own), start + np.searchsorted(at, start, side="right")
    return Rows(indices, np.insert(values, at, 1.0), start, -(-width // dim) * (dim + 1))


_last: tuple[bytes, int, NDArray[np.int64]] = (b"", -1, np.zeros(0, POINTER))  # blocks, their count, and as an array


def _blocks_of(blocks: Any, count: Any) -> tuple[NDArray[np.int64], int]:
    """Blocks that were looked at, as an array that nobody writes to, and their count; most often they are the last ones."""
    global _last
    known, number, at = _last
    whole = type(blocks) is np.ndarray and blocks.dtype is POINTER and blocks.ndim == 1 and type(count) is int
    if whole and number == count and blocks.tobytes() == known:
        return at, count
    at = np.array(blocks)
    if at.ndim != 1:
        raise DimensionError(f"expected a vector with a block for each arm, got shape {at.shape}.")
    if not isinstance(count, WHOLE) or (at.size and at.dtype.kind not in "iu"):
        raise InputError(f"expected blocks and their count as whole numbers, got {blocks!r} of {count!r}.")
    if at.dtype is not POINTER:  # what is too large must not come out as another block
        at = (np.minimum(at, np.uint64(2**62)) if at.dtype == np.uint64 else at).astype(POINTER)
    if at.size and at.view(np.uint64).max() >= count:  # one below 0 is a large one, too
        got = f"{at.min()} ... {at.max()}"
        raise InputError(f"expected blocks in 0 ... {count - 1}, got {got}. Raise count, or check the blocks.")
    at.flags.writeable = False
    _last = (at.tobytes(), int(count), at)
    return at, int(count)


def _as_rows(users: Any) -> Rows:
    users = users if sp.issparse(users) else np.atleast_2d(np.asarray(users))
    if users.dtype.kind not in "fiub":
        raise InputError(f"expected a user of real numbers, got {users.dtype}.")
    matrix = sp.csr_array(users.reshape(1, -1) if users.ndim == 1 else users)
    # what does not fit into 32 bits must not come out as another index
    indices = np.clip(matrix.indices, -1, np.iinfo(np.int32).max).astype(np.int32)
    return Rows(indices, matrix.data, matrix.indptr.astype(np.int64), matrix.shape[1])
