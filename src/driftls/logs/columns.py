"""The columns of a log's lines: what each holds, how lists lie in them, and what may be wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftls.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Column(NamedTuple):
    """What a column of a log holds: numbers (depth 0), lists of them, or lists of lists."""

    dtype: str
    depth: int = 0

    def __str__(self) -> str:
        return "lists of " * self.depth + ("whole numbers" if self.dtype.startswith("int") else "numbers")


COLUMNS = {
    "time": Column("int64"),
    "arms": Column("int64", 1),
    "shown": Column("int32"),
    "reward": Column("double"),
    "user_index": Column("int32", 1),
    "user_value": Column("double", 1),
    "propensity": Column("double"),
    "arm_features": Column("double", 2),
    "truth": Column("double", 1),
}
OPTIONAL = ("propensity", "arm_features", "truth")
Check = tuple[NDArray[np.bool_], str, str]  # lines that are wrong, what was expected, the column to blame


class Part(NamedTuple):
    """A column without its lists: the numbers, and the lengths of the lists, outermost first."""

    values: NDArray[Any]
    lengths: list[Ints]

    def only(self, lines: NDArray[np.bool_]) -> Part:
        """The same of these lines alone."""
        if lines.all():
            return self
        lengths = []
        for length in self.lengths:
            lengths.append(length[lines])
            lines = np.repeat(lines, length)
        return Part(self.values[lines], lengths)


def ranges(start: Ints, length: Ints) -> Ints:
    """start[0], start[0] + 1, ... (length[0] of them), then the same for start[1], and so on."""
    return np.repeat(start - as_starts(length)[:-1], length) + np.arange(length.sum())


def having(wrong: NDArray[np.bool_], lengths: Ints) -> NDArray[np.bool_]:
    """Rows of these lengths of which an entry is wrong."""
    rows = np.zeros(len(lengths), np.bool_)
    if np.any(wrong):
        rows[np.searchsorted(np.cumsum(lengths), np.flatnonzero(wrong), side="right")] = True
    return rows


def column_of(events: Sequence[Any], name: str) -> Part | None:
    """A column of all events, or None where no event has it."""
    kind, arrays, values = COLUMNS[name], [], [getattr(event, name) for event in events]
    if name in OPTIONAL and not all_or_none(name, values):
        return None
    for i, value in enumerate(values):
        try:
            array = np.asarray(value, kind.dtype)
            fits = array.ndim == kind.depth
            fits &= array is value or kind.dtype == "double" or type(value) is int or np.array_equal(array, value)
        except (TypeError, ValueError, OverflowError):
            fits = False
        if not fits:
            expected = f"`{name}` to be {kind} that fit {kind.dtype}"
            raise InputError(f"event {i}: expected {expected}, got {shortened(value)}.")
        arrays.append(array)
    lengths = [np.array([len(array) for array in arrays], np.int64)] if kind.depth else []
    if kind.depth == 2:
        lengths.append(np.repeat(np.array([array.shape[1] for array in arrays], np.int64), lengths[0]))
    return Part(np.concatenate([np.empty(0, kind.dtype), *(array.ravel() for array in arrays)]), lengths)


def line_checks(parts: dict[str, Part]) -> list[Check]:
    """What may be wrong with the columns of lines."""
    arms, users = parts["arms"].lengths[0], parts["user_index"].lengths[0]
    shown, index = parts["shown"].values, parts["user_index"].values
    step = np.diff(index, prepend=-1)
    first = as_starts(users)[:-1][users > 0]
    step[first] = index[first] + 1
    checks: list[Check] = [
        (_repeated(*parts["arms"]), "arms that differ", "arms"),
        ((shown < 0) | (shown >= arms), "`shown` to be a position among the arms, from 0", "shown"),
        (having(step <= 0, users), "user indices of at least 0 that increase", "user_index"),
    ]
    for name, other in (("user_value", "user_index"), ("truth", "arms"), ("arm_features", "arms")):
        if name in parts:
            wrong = parts[name].lengths[0] != parts[other].lengths[0]
            checks.append((wrong, f"as many entries as there are {other}", name))
    if "arm_features" in parts:
        of, each = parts["arm_features"].lengths
        usual = np.bincount(each, minlength=1).argmax()
        checks.append((having(each != usual, of), "as many features of every arm", "arm_features"))
    for name, part in parts.items():
        if part.values.dtype.kind == "f":
            wrong = ~np.isfinite(part.values)
            for lengths in reversed(part.lengths):
                wrong = having(wrong, lengths)
            checks.append((wrong, "finite numbers", name))
    if "propensity" in parts:
        propensity = parts["propensity"].values
        checks.append(((propensity <= 0) | (propensity > 1), "a probability above 0", "propensity"))
    return checks


def faults(checks: list[Check]) -> Iterator[tuple[int, str, str]]:
    """Each line that is wrong, what was expected first of all, and the column to blame."""
    for i in np.flatnonzero(np.any([wrong for wrong, _, _ in checks], axis=0)).tolist():
        yield next((i, expected, name) for wrong, expected, name in checks if wrong[i])


def new_pools(sizes: Ints, ids: Ints, features: Floats | None = None) -> NDArray[np.bool_]:
    """Lines whose candidates are not those of the line before: few, mostly."""
    before = np.arange(len(ids)) - np.repeat(np.concatenate(([0], sizes))[:-1], sizes)
    differs = ids != ids[before]
    if features is not None:
        differs |= np.any(features != features[before], axis=1)
    return np.asarray(having(differs, sizes) | (np.diff(sizes, prepend=-1) != 0))


def _repeated(ids: Ints, lengths: list[Ints]) -> NDArray[np.bool_]:
    """Lines that have an arm twice."""
    (sizes,) = lengths
    new = new_pools(sizes, ids)
    own, of = ids[np.repeat(new, sizes)], np.repeat(np.arange(new.sum()), sizes[new])
    order = np.lexsort((own, of))
    twice = (np.diff(own[order]) == 0) & (np.diff(of[order]) == 0)
    return np.isin(np.cumsum(new) - 1, of[order][1:][twice])


def all_or_none(name: str, parts: list[Any]) -> bool:
    count = sum(part is not None for part in parts)
    if count not in (0, len(parts)):
        raise InputError(f"`{name}` must be given everywhere or nowhere, got it in {count} of {len(parts)} parts.")
    return count > 0


def shortened(value: object) -> str:
    """What a value looks like, in a message."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        text = type(value).__name__
    return text if len(text) <= 60 else f"{text[:60]} ..."


def as_objects(values: Sequence[Any]) -> NDArray[Any]:
    """An array of these, whatever they are."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def as_starts(lengths: list[int] | Ints) -> Ints:
    """Where rows of these lengths begin when they are laid one after the other, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
