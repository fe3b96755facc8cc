"""Rows of users and items: names to indices, hashed or by a vocabulary, and the crosses between them.

A record of users or items has codes: 32 bits of a name's hash, or its index in the vocabulary, and above them the group of
its column, by which crosses tell columns apart. Codes of record k stand from start[k] to start[k + 1].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls.compiling.parts import entry, indices, inner, integers, reals, record, record_at

# Users and items on their way to rows: names are hashed to `size` indices, or have theirs in a vocabulary,
# where a cross is found by its key in slots. groups: which columns are crossed. order, raw: room for one row.
FEATURES = record(
    """
    address hashed dim constant keys slots slot_count groups columns
    users items user_start user_code user_value item_start item_code item_value
    order raw indices values start
    """
)
features_at = record_at(FEATURES, "f")

# A column of a table as codes, and where its entries go.
CELLS = record("address start place codes value cursor code_out value_out")
cells_at = record_at(CELLS, "c")

LOW = (1 << 32) - 1  # the lower half of a key


@inner
def mixed(key: Any) -> Any:
    """Every bit of a key from all of them: the last step of splitmix64"""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


@inner
def bucket(key: Any, size: int) -> Any:
    """The place of a key among `size`: a product of the upper bits, where a remainder would cost a division"""
    return np.int64(((mixed(np.uint64(key)) >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32))


@inner
def slot_of(f: Any, key: int) -> Any:
    """Where a cross stands in the hash table of a vocabulary, or where it would"""
    keys, slots, slot = integers(f.keys), indices(f.slots), bucket(key, f.slot_count)
    while slots[slot] >= 0 and keys[slots[slot]] != key:
        slot = slot + 1 if slot + 1 < f.slot_count else 0
    return slot


@inner
def sort(keys: Any, end: int) -> None:
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


@inner
def index_of(f: Any, code: int) -> Any:
    """The index of a name"""
    return bucket(code & LOW, f.dim) if f.hashed != 0 else code & LOW


@inner
def cross_of(f: Any, one: int, other: int) -> Any:
    """The index of a cross, a new one if it is new"""
    key = ((one & LOW) << 32) | (other & LOW)
    if f.hashed != 0:
        return bucket(key, f.dim)
    slots, slot = indices(f.slots), slot_of(f, key)
    if slots[slot] < 0:
        slots[slot], integers(f.keys)[f.dim] = f.dim, key
        f.dim += 1
    return np.int64(slots[slot])  # which will be shifted


@entry
def refill(f: Any, i: int, n: int) -> float:
    """The hash table anew, from the key of each index"""
    keys, slots = integers(f.keys), indices(f.slots)
    for slot in range(f.slot_count):
        slots[slot] = -1
    for j in range(f.dim):
        if keys[j] >= 0:
            slots[slot_of(f, keys[j])] = j
    return 0.0


@entry
def assemble(f: Any, i: int, n: int) -> float:
    """Rows 0 ... n - 1, of a user and an item each: a constant, the user's names, the item's, their crosses; entries made

    users, items: which belong to each row. groups: which columns are crossed, user by item; 0 columns if none are, 1 if
    all are. order, raw: room for one row, the index and place of an entry in one number, and its value.
    """
    order, raw = integers(f.order), reals(f.raw)
    users, items, u_start, i_start = (
        integers(f.users),
        integers(f.items),
        integers(f.user_start),
        integers(f.item_start),
    )
    u_code, i_code, u_value, i_value = (
        integers(f.user_code),
        integers(f.item_code),
        reals(f.user_value),
        reals(f.item_value),
    )
    features, values, start, groups, to = indices(f.indices), reals(f.values), integers(f.start), integers(f.groups), 0
    start[0] = 0
    for k in range(n):
        u, v, end = users[k], items[k], 0
        if f.constant >= 0:
            order[0], raw[0], end = f.constant << 32, 1.0, 1
        for p in range(u_start[u], u_start[u + 1]):
            order[end], raw[end] = (index_of(f, u_code[p]) << 32) | end, u_value[p]
            end += 1
        for q in range(i_start[v], i_start[v + 1]):
            order[end], raw[end] = (index_of(f, i_code[q]) << 32) | end, i_value[q]
            end += 1
        for p in range(u_start[u], u_start[u + 1] if f.columns > 0 else u_start[u]):
            for q in range(i_start[v], i_start[v + 1]):
                if f.columns == 1 or groups[(u_code[p] >> 32) * f.columns + (i_code[q] >> 32)] != 0:
                    order[end], raw[end] = (cross_of(f, u_code[p], i_code[q]) << 32) | end, u_value[p] * i_value[q]
                    end += 1
        sort(order, end)
        last = -1
        for p in range(end):
            j, x = order[p] >> 32, raw[order[p] & LOW]
            if j == last:  # two names of one index: they are added up
                values[to - 1] += x
            else:  # also a 0, which is no missing number
                features[to], values[to], last = j, x, j
                to += 1
        start[k + 1] = to
    return float(to)


@entry
def take_cells(c: Any, i: int, n: int) -> float:
    """Entries of a column of a table, for rows i ... i + n - 1, to where each row's cursor stands; how many are missing

    Entry p has the code codes[place[p]]; -1 is missing, as is a value of NaN. Without code_out, entries are counted.
    """
    start, place, codes, value, cursor = (
        integers(c.start),
        indices(c.place),
        integers(c.codes),
        reals(c.value),
        integers(c.cursor),
    )
    code_out, value_out, missing = integers(c.code_out), reals(c.value_out), 0
    for row in range(i, i + n):
        for p in range(start[row] if c.start != 0 else row, start[row + 1] if c.start != 0 else row + 1):
            code, x = codes[place[p] if c.place != 0 else 0], value[p] if c.value != 0 else 1.0
            if code < 0 or x != x:
                missing += 1
                continue
            if c.code_out != 0:
                code_out[cursor[row]], value_out[cursor[row]] = code, x
            cursor[row] += 1
    return float(missing)
