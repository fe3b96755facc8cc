"""What is kept of a record: arrays by name and shape, and numbers, made, enlarged, saved and restored by one list."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.compiling.parts import Frame
from driftls.errors import CorruptFileError
from driftls.persistence import checked, expect

Arrays = dict[str, NDArray[Any]]
Shape = tuple[str | type, ...]
LINE = 64  # bytes of a cache line, and of the widest vector


class State:
    """Arrays whose addresses are in a record, and numbers of that record.

    Parameters
    ----------
    frame : Frame
        The record. An array whose name is none of its fields is for the owner to point to.
    shapes, sizes : dict
        What each array has, by name, {"gram": ("dim", "dim"), "live": ("slots", np.int64)}: the names of its lengths,
        and its type, if it is not of reals; and the lengths.
    numbers : tuple of str
        Fields that are kept.
    constant : bool
        Whether the last of `dim` is the intercept, which stays last.
    columns : tuple of str
        Arrays whose columns are adjacent.
    make : function of name, shape and type
        Makes arrays elsewhere than in memory.
    """

    def __init__(
        self,
        frame: Frame,
        shapes: dict[str, Shape],
        sizes: dict[str, int],
        numbers: tuple[str, ...] = (),
        *,
        constant: bool = False,
        columns: tuple[str, ...] = (),
        make: Callable[..., NDArray[Any]] | None = None,
    ) -> None:
        self.frame, self.shapes, self.sizes, self.numbers = frame, shapes, sizes, numbers
        self.constant, self.columns, self._make = constant, columns, make
        self.arrays: Arrays = {}
        self._put(self._made())

    def _made(self, **sizes: int) -> Arrays:
        """New arrays in place of those that have other lengths."""
        given, made = {**self.sizes, **sizes}, {}
        for name, shape in self.shapes.items():
            lengths = tuple(given[size] for size in shape if isinstance(size, str))
            if name not in self.arrays or self.arrays[name].shape != lengths:
                kind: Any = np.float64 if isinstance(shape[-1], str) else shape[-1]
                order: Any = "F" if name in self.columns else "C"
                made[name] = zeros(lengths, kind, order) if self._make is None else self._make(name, lengths, kind)
        return made

    def _put(self, arrays: Arrays) -> None:
        self.arrays |= arrays
        self.frame.set(**{name: array for name, array in arrays.items() if name in self.frame.names})

    def lengthen(self, **sizes: int) -> None:
        """Have room for more rows or arms; what is there stays."""
        made = self._made(**sizes)
        for name, array in made.items():
            if not isinstance(array, np.memmap):  # whose file has it already
                array[: len(self.arrays[name])] = self.arrays[name]
        self._put(made)
        self.sizes |= sizes

    def widen(self, dim: int) -> None:
        """Have room for more features; what is there stays, and the constant goes behind them."""
        made, before = self._made(dim=dim), self.sizes["dim"]
        for name, array in made.items():
            widened(self.arrays[name], array, before - self.constant, dim - self.constant)
        self._put(made)
        self.sizes["dim"] = dim

    # -- files ---------------------------------------------------------------------------------------------------

    def _used(self, used: dict[str, int]) -> Arrays:
        """The arrays, and of those with an entry for each row or arm so many as are used."""
        first = {name: used.get(str(self.shapes[name][0])) for name in self.arrays}
        return {name: array[: first[name]] for name, array in self.arrays.items()}

    def snapshot(self, **used: int) -> tuple[dict[str, Any], Arrays]:
        """Numbers and arrays, copied."""
        arrays = {name: np.array(array, order="C") for name, array in self._used(used).items()}
        return {name: self.frame[name] for name in self.numbers}, arrays

    def read(
        self, numbers: dict[str, Any], arrays: Arrays, prefix: str = "", **used: int
    ) -> tuple[dict[str, float], Arrays]:
        """What a file has of these, under names with a prefix: of the right shapes and finite, or refused."""
        kept = {name: checked(numbers.get(prefix + name), float) for name in self.numbers}
        found = {n: expect(arrays, prefix + n, like.shape, like.dtype) for n, like in self._used(used).items()}
        for name, value in (*kept.items(), *found.items()):
            refuse(not np.isfinite(value).all(), name)
        return kept, found

    def fill(self, numbers: dict[str, float], arrays: Arrays) -> None:
        """What `read` has looked at."""
        self.frame.set(**numbers)
        for name, array in arrays.items():
            self.arrays[name][: len(array)] = array


def zeros(shape: tuple[int, ...], kind: Any = np.float64, order: Any = "C") -> NDArray[Any]:
    """An array of zeros that begins with a cache line, so that no access of a whole line takes two of them."""
    size = math.prod(shape) * np.dtype(kind).itemsize
    memory = np.zeros(size + LINE, np.uint8)
    first = -memory.__array_interface__["data"][0] % LINE
    made: NDArray[Any] = memory[first : first + size].view(kind).reshape(shape, order=order)
    return made


def product(one: NDArray[Any], other: NDArray[Any]) -> float:
    """one . other on this thread alone: for some thousand numbers, and on a busy machine for many more, it takes longer to
    wake BLAS' others and to wait for them.
    """
    return float(np.einsum("i,i->", one, other))


def times(X: Any, v: NDArray[Any]) -> Any:
    """X v on this thread alone, for the same reason."""
    return np.einsum("ij,j->i", X, v) if isinstance(X, np.ndarray) else X @ v


def refuse(wrong: Any, name: str) -> None:
    """Say that a file cannot be right."""
    if wrong:
        raise CorruptFileError(f"`{name}` is not what it can be. Restore the file from a copy.")


def widened(old: NDArray[Any], into: NDArray[Any], before: int, after: int) -> NDArray[Any]:
    """What was kept of `before` features, written into the array of one that has `after`; the intercept stays last."""
    at = [
        np.append(np.arange(before), after)[:size] if size != wider else np.arange(size)
        for size, wider in zip(old.shape, into.shape)
    ]
    into[np.ix_(*at)] = old
    return into


@contextmanager
def unbroken() -> Iterator[None]:
    """Ctrl-C comes after this: what changes several things must not stop between them."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[Any] = []
    signal.signal(signal.SIGINT, lambda *told: came.append(told))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(*came[0])
