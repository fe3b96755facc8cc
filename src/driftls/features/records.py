"""Features of dicts and tables: one object that makes arms of them, hashed or by a vocabulary that grows."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from driftls.errors import InputError, SettingsError
from driftls.features.base import FeatureMap, joined
from driftls.features.columns import Call, Space, as_record, grouped, never_seen, numbers_as_text, pairs_of
from driftls.features.kernel import assemble
from driftls.features.names import NOBODY, Coded, Collisions, Hashing, Ints, Pool, Vocabulary, buckets
from driftls.features.tables import candidates, coded, visitors
from driftls.inputs import Rows

if TYPE_CHECKING:
    from driftls.logs.events import Block

ENOUGH = (
    1000  # records, after which is told of columns that were named and never came, and of numbers that came as text
)
NAMES = 2**20  # names whose codes are remembered; above, all are forgotten and looked up anew
ENTRIES = 2**20  # entries that are made at once: what a table takes on top of its result is bounded


class Features(FeatureMap):
    """Arms from dicts, or from tables of pandas, polars and Arrow: numbers as they are, text one-hot, lists multi-hot.

    Parameters
    ----------
    dim : int, optional
        Names are hashed to so many indices. Without it there is a vocabulary: every new name gets the next index, and
        `dim` grows.
    cross : "all" or pairs of columns
        Which columns of users are crossed with which of items, as VW's `-q`: ``[("city", "colour"), ("*", "id")]``,
        where "*" is every column.
    categories : names of columns
        Whose numbers are categories; `id` always is one.
    constant : bool
        A feature that is 1 in every arm.

    Examples
    --------
    >>> features = Features(cross=[("city", "colour")])
    >>> user = {"age": 31, "city": "Oslo", "tags": ["a", "b"], "income": None}
    >>> arms = features.arms(user, [{"colour": "red", "price": 2.5}, {"colour": "blue"}])
    >>> for name, column in zip(features.names, arms.tocsr().toarray().T):
    ...     print(name, column)
    constant [1. 1.]
    age [31. 31.]
    city=Oslo [1. 1.]
    tags=a [1. 1.]
    tags=b [1. 1.]
    item.colour=red [1. 0.]
    item.price [2.5 0. ]
    item.colour=blue [0. 1.]
    city=Oslo*item.colour=red [1. 0.]
    city=Oslo*item.colour=blue [0. 1.]
    >>> features.missing
    {'age': 0, 'city': 0, 'tags': 0, 'income': 1, 'item.colour': 0, 'item.price': 1}
    """

    def __init__(
        self,
        dim: int | None = None,
        *,
        cross: str | Iterable[Sequence[str]] = (),
        categories: Iterable[str] = (),
        constant: bool = True,
    ) -> None:
        if dim is not None and not (isinstance(dim, int | np.integer) and 1 <= dim < 2**31):
            raise SettingsError(f"dim must be a whole number below 2^31, or None for a vocabulary, got {dim!r}.")
        if isinstance(categories, str):
            raise SettingsError(f"categories must be a list of columns, got {categories!r}. Pass [{categories!r}].")
        if not isinstance(constant, bool | np.bool_):
            raise SettingsError(f"constant must be True or False, got {constant!r}.")
        self.hashed, self.grows, self.constant = dim is not None, dim is None, bool(constant)
        try:
            self.cross, self.categories = pairs_of(cross), tuple(map(str, categories))
        except TypeError:
            raise SettingsError(f"cross and categories name columns, got {cross!r} and {categories!r}.") from None
        self._index: Hashing | Vocabulary = Vocabulary() if dim is None else Hashing(int(dim))
        groups, self._crossed = grouped(self.cross)
        self._call = Call()
        self._users = Space("", self._index.code, groups[0], self.categories, self._call)
        self._items = Space("item.", self._index.code, groups[1], self.categories, self._call)
        if self.constant:
            code = self._index.code("constant")
            self._index.set(constant=buckets(np.array([code]), int(dim))[0] if dim is not None else code)
        self._index.set(groups=self._crossed, columns=self._crossed.shape[1])
        self._lock, self._token, self._depth = RLock(), object(), 0  # of calls, one within the other
        self._last: tuple[Any, Any] = (None, None)  # a pool of items, and its codes
        self._size = self._index.size
        self._kept = self._size[0], self._last  # before the present call
        self._at: Any = None  # the items that the kernel has the addresses of
        self._looked = False  # whether settings name columns that come
        self._have_user(16)
        self._have_room(256, 64)

    # -- what it says of itself ----------------------------------------------------------------------------------------

    @property
    def dim(self) -> int:
        """The length of an arm; with a vocabulary, by now."""
        return self._size[0]  # type: ignore[no-any-return]

    @property
    def names(self) -> list[str]:
        """The name of each index. Hashing keeps none."""
        return self._index.names()

    @property
    def missing(self) -> dict[str, int]:
        """How many records lacked each column (None, NaN, or not there), since it was made or loaded."""
        return self._users.missing() | self._items.missing()

    @property
    def collisions(self) -> Collisions:
        """How many names share an index with another: of those seen, and of all crosses between them."""
        return self._index.collisions(self._users.all_codes(), self._items.all_codes(), self._crossed)

    def crosses(self) -> Ints:
        """By index: the indices of the two names that are crossed, in one number; -1 for a name, or where none are kept."""
        return self._index.crosses()

    def __repr__(self) -> str:
        told = f"cross={list(self.cross)!r}, categories={list(self.categories)!r}, constant={self.constant!r}"
        return f"Features({self.dim if self.hashed else None}, {told})"

    def __str__(self) -> str:
        """The settings, what was seen so far, and what was missing."""
        seen = f"{self._users.records:,} users and {self._items.records:,} items, {self.dim:,} features"
        lacking = [f"{name} in {count:,}" for name, count in self.missing.items() if count]
        return f"{self!r}: {seen}; missing: {', '.join(lacking) or 'nothing'}"

    # -- one decision --------------------------------------------------------------------------------------------------

    def user(self, user: Any) -> Rows:
        """The row of one user, for one model an arm; or of one record, for a regression."""
        return self.arms(user, NOBODY)  # type: ignore[no-any-return]

    def arms(self, user: Any, items: Any = None) -> Any:
        """The arms of a user (a dict) and items (a list of dicts or ids, a table, or a `pool`), a row for each item.

        Of an event of a log the user's columns are the numbers of its features, and an item has an "id".
        """
        if items is None and hasattr(user, "user_index"):
            from driftls.logs.events import Block

            return self.rows(Block.from_events([user]))
        record = user if type(user) is dict else as_record(user)
        if items is None or record is None:
            raise InputError(
                "expected a user (a dict, or a row of pandas) and items (a list of dicts or ids, or a table), "
                f"got {user!r} and {items!r}."
            )
        with self:
            codes, values = list[int](), list[float]()
            self._users.add(record, codes, values)
            pool = self._pool(items)
            n, count = len(codes), len(pool.items)
            if n > self._user_code.size:
                self._have_user(2 * n)
            self._user_start[1], self._user_code[:n], self._user_value[:n] = n, codes, values
            if self._at is not pool:
                self._index.set(**pool.fields, users=np.zeros(count, np.int64), **self._user)
                self._at = pool
            longest = (1 + n) * (1 + pool.longest)
            most = count * longest if self._crossed.size else pool.most + n * count
            return self._assembled(count, most, longest)

    def pool(self, items: Any) -> Pool:
        """Items whose codes are looked up once, for `arms` of these features."""
        with self:
            return self._pool(items)

    def _pool(self, items: Any) -> Pool:
        if type(items) is Pool:
            if items.owner is not self._token and items is not NOBODY:
                raise InputError("expected a pool of these features, got another. Make one: features.pool(items).")
            return items
        if type(items) is not list:
            return Pool(coded(self._items, items), self._token)
        try:
            if items == self._last[0]:  # pools come again, and to compare costs less than to look up
                return self._last[1]  # type: ignore[no-any-return]
        except ValueError:  # arrays cannot be compared
            pass
        self._items.plain = True
        pool = Pool(self._items.coded(items), self._token)
        copied = [dict(item) if isinstance(item, dict) else item for item in items] if self._items.plain else None
        self._last = copied, pool
        return pool

    # -- many at once --------------------------------------------------------------------------------------------------

    def table(self, users: Any, items: Any = None) -> Any:
        """The rows of a table or list of dicts as a csr_array; with `items`, row k is of user k and item k."""
        return self._many(users, items, every=False).tocsr()

    def rounds(self, users: Any, items: Any) -> Any:
        """Every user with every item, user by user, as a csr_array: what `policy.play` takes."""
        return self._many(users, items, every=True).tocsr()

    def rows(self, block: Block) -> Any:
        """The arms of all lines of a block of a log, line after line, as a csr_array."""
        if not hasattr(block, "user_index"):
            told = f"rows are made of a block of a log, got {type(block).__name__}"
            raise InputError(f"{told}. Of dicts: table(X), user(x), or arms(user, items).")
        with self:
            users, items = visitors(self._users, block), candidates(self._items, block)
            lines = np.repeat(np.arange(len(block)), np.diff(block.pool_start)[block.pool])
            return self._rows(users, items, np.stack([lines, block.candidates])).tocsr()

    def users(self, block: Block) -> Any:
        """The visitor's row of each line, for one model an article."""
        with self:
            pairs = np.stack([np.arange(len(block)), np.zeros(len(block), np.int64)])
            return self._rows(visitors(self._users, block), NOBODY.items, pairs).tocsr()

    def strange(self, block: Block) -> str:
        """What is to be said if the names of a log's visitors were never met, where others were; else nothing."""
        return self._index.strange(np.unique(block.user_index).astype(str).tolist())

    def _many(self, users: Any, items: Any, *, every: bool) -> Rows:
        with self:
            one = coded(self._users, users)
            other = NOBODY.items if items is None else coded(self._items, items)
            n, k = len(one), len(other)
            if not every and items is not None and n != k:
                raise InputError(f"expected an item for each user, got {n} and {k}. Use rounds for all pairs.")
            if every:
                pairs = np.indices((n, k)).reshape(2, -1)
            else:
                pairs = np.arange(n) * np.array([[1], [items is not None]])
            return self._rows(one, other, pairs)

    def _rows(self, users: Coded, items: Coded, pairs: Ints) -> Rows:
        """The rows of these pairs of a user and an item."""
        self._at = None
        self._index.set(**users.fields("user"), **items.fields("item"))
        n, k = users.longest(), items.longest()
        longest = (1 + n) * (1 + k) if self._crossed.size else 1 + n + k
        step = max(1, ENTRIES // longest)
        pieces = []
        for first in range(0, max(1, pairs.shape[1]), step):
            one, other = np.ascontiguousarray(pairs[:, first : first + step])
            self._index.set(users=one, items=other)
            pieces.append(self._assembled(len(one), len(one) * longest, longest))
        if self._room > ENTRIES // 8:  # what a table needed is not kept
            self._have_room(256, 64)
        return pieces[0] if len(pieces) == 1 else joined(pieces)._replace(dim=self.dim)

    def _assembled(self, count: int, most: int, longest: int) -> Rows:
        """The rows of the users and items whose addresses stand in the record; they have at most so many entries."""
        index = self._index
        if self._crossed.size:
            index.room(most)
        if most > self._room or longest > self._longest or count >= self._start.size:
            self._have_room(2 * max(most, count), 2 * longest)
        end = int(assemble(index.frame, 0, count))
        return Rows(
            self._indices[:end].copy(), self._values[:end].copy(), self._start[: count + 1].copy(), self._size[0]
        )

    def _have_user(self, names: int) -> None:
        """Room for the names of one user."""
        user = Coded(np.zeros(2, np.int64), np.zeros(names, np.int64), np.zeros(names))
        (self._user_start, self._user_code, self._user_value), self._user = user, user.fields("user")
        self._at = None

    def _have_room(self, entries: int, longest: int) -> None:
        """Room for the rows that are made, and to sort one of them in."""
        self._room, self._longest = entries, longest
        self._indices, self._values = np.zeros(entries, np.int32), np.zeros(entries)
        self._start = np.zeros(entries + 1, np.int64)
        self._index.set(indices=self._indices, values=self._values, start=self._start)
        self._index.set(order=np.zeros(longest, np.int64), raw=np.zeros(longest))

    # -- a call: what it meets is kept or dropped --------------------------------------------------------------------------

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._depth -= 1
        try:
            if self._depth == 0:
                self.keep() if kind is None else self.drop()
        finally:
            self._lock.release()

    def keep(self) -> None:
        untold = self._call.keep()
        if not self._looked and self._users.records + self._items.records >= ENOUGH:
            self._looked = True
            spaces = ([str(name) for name in space] for space in (self._users, self._items))
            untold = untold + never_seen(self.cross, self.categories, *spaces)
            untold += numbers_as_text(self._users) + numbers_as_text(self._items)
        if self._call.names > NAMES:
            self._forget()
        self._kept = self._size[0], self._last
        for warning in untold:  # when all is counted, for it may be raised
            warnings.warn(warning, stacklevel=4)

    def drop(self) -> None:
        self._call.drop()
        size, self._last = self._kept
        self._at = None
        if self.dim > size:
            self._index.cut(size)

    def _forget(self) -> None:
        self._users.forget()
        self._items.forget()
        self._call.names = 0
        self._last, self._at = (None, None), None

    # -- kept with a policy --------------------------------------------------------------------------------------------

    def _settings(self) -> dict[str, Any]:
        kept = {"cross": [list(pair) for pair in self.cross], "categories": list(self.categories)}
        with self._lock:  # another policy may be learning with these features
            kept |= {"constant": self.constant, "names": self._index.listed()}
        return {"dim": self.dim if self.hashed else None, **kept}

    def follow(self, header: dict[str, Any]) -> None:
        """Take over the names of a copy: each has the index that it has there."""
        with self._lock:
            if isinstance(self._index, Vocabulary) and header.get("names"):
                self._index.cut(0)
                self._index.fill(header["names"])
                self._forget()
                self._kept = self.dim, self._last

    def __reduce__(self) -> Any:
        from driftls.features import from_header

        return from_header, (self.to_header(),)
