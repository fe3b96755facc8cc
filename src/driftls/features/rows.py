"""Sparse rows as plain arrays, and the compiled loop that makes them of users and items."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import config
from numpy.typing import NDArray

from driftls.kernels.arrays import kernel, leaf

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
LOW = (1 << 32) - 1  # the lower half of a key


class Coded(NamedTuple):
    """Records as codes of names with their values: record k has those from start[k] to start[k + 1].

    A code is 32 bits of a name's hash, or its index in the vocabulary. Above them is the group of its column, by which
    crosses tell columns apart.
    """

    start: Ints
    code: Ints
    value: Floats

    def __len__(self) -> int:
        return len(self.start) - 1


@leaf
def mixed(key: Any) -> Any:
    """Every bit of a key from all of them: the last step of splitmix64"""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


@leaf
def bucket(key: Any, size: Any) -> Any:
    """The place of a key among `size`: a product of the upper bits, where a remainder would cost a division"""
    return np.int64(((mixed(np.uint64(key)) >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32))


def mixed_bits(keys: Any) -> NDArray[np.uint64]:
    """`mixed` of an array."""
    mix: Any = getattr(mixed, "py_func", mixed)
    return np.asarray(mix(keys.astype(np.uint64)))


def buckets(keys: Any, size: int) -> Ints:
    """`bucket` of an array."""
    return ((mixed_bits(keys) >> np.uint64(32)) * np.uint64(size) >> np.uint64(32)).astype(np.int64)


@leaf
def slot_of(keys: Any, slots: Any, key: Any) -> Any:
    """Where a cross stands in the hash table of a vocabulary, or where it would"""
    slot = bucket(key, len(slots))
    while slots[slot] >= 0 and keys[slots[slot]] != key:
        slot = slot + 1 if slot + 1 < len(slots) else 0
    return slot


@leaf
def sort(keys: Ints, end: int) -> None:
    """In place, by Shell's method: rows are short"""
    gap = 1
    while gap < end // 9:
        gap = 3 * gap + 1
    while gap > 0:
        for p in range(gap, end):
            key, q = keys[p], p
            while q >= gap and keys[q - gap] > key:
                keys[q] = keys[q - gap]
                q -= gap
            keys[q] = key
        gap //= 3


@kernel
def refill(keys: Ints, slots: Any, size: int) -> None:
    """The hash table anew, from the key of each index"""
    slots[:] = -1
    for j in range(size):
        if keys[j] >= 0:
            slots[slot_of(keys, slots, keys[j])] = j


@kernel  # flat arguments: a call costs less for arrays than for tuples of them
def assemble(
    u_start: Any, u_code: Any, u_value: Any, i_start: Any, i_code: Any, i_value: Any, pairs: Any, crossed: Any,
    size: Any, keys: Any, slots: Any, indices: Any, values: Any, start: Any,
) -> int:  # fmt: skip
    """Row k of the user pairs[0, k] and the item pairs[1, k]: a constant, the user's names, the item's, their crosses.

    crossed: which groups of columns are crossed, user by item; (1, 1) if all are, and of size 0 if none is.
    size: how many indices there are, and that of the constant (or -1). keys, slots: the vocabulary; empty if hashed.
    """
    hashed, to, most = len(slots) == 0, 0, 0
    for k in range(pairs.shape[1]):
        u, i = pairs[0, k], pairs[1, k]
        most = max(most, (1 + u_start[u + 1] - u_start[u]) * (1 + i_start[i + 1] - i_start[i]))
    order, raw = np.empty(most, np.int64), np.empty(most)  # index and place of an entry in one number; its value
    start[0] = 0
    for k in range(pairs.shape[1]):
        u, i, n = pairs[0, k], pairs[1, k], 0
        if size[1] >= 0:
            order[0], raw[0], n = size[1] << 32, 1.0, 1
        for p in range(u_start[u], u_start[u + 1]):
            j = u_code[p] & LOW
            order[n], raw[n] = ((bucket(j, size[0]) if hashed else j) << 32) | n, u_value[p]
            n += 1
        for q in range(i_start[i], i_start[i + 1]):
            j = i_code[q] & LOW
            order[n], raw[n] = ((bucket(j, size[0]) if hashed else j) << 32) | n, i_value[q]
            n += 1
        for p in range(u_start[u], u_start[u + 1] if crossed.size > 0 else 0):
            for q in range(i_start[i], i_start[i + 1]):
                if crossed.size == 1 or crossed[u_code[p] >> 32, i_code[q] >> 32]:
                    key = ((u_code[p] & LOW) << 32) | (i_code[q] & LOW)
                    if hashed:
                        j = bucket(key, size[0])
                    else:
                        slot = slot_of(keys, slots, key)
                        if slots[slot] < 0:
                            slots[slot], keys[size[0]] = size[0], key
                            size[0] += 1
                        j = np.int64(slots[slot])
                    order[n], raw[n] = (j << 32) | n, u_value[p] * i_value[q]
                    n += 1
        sort(order, n)
        last = -1
        for p in range(n):
            j, x = order[p] >> 32, raw[order[p] & LOW]
            if x != 0.0 and j == last:  # two names of one index: they are added up
                values[to - 1] += x
            elif x != 0.0:
                indices[to], values[to], last = j, x, j
                to += 1
        start[k + 1] = to
    return to


if config.DISABLE_JIT:  # as plain Python, NumPy's numbers warn where products of hashes run over
    assemble = np.errstate(over="ignore")(assemble)
    refill = np.errstate(over="ignore")(refill)
