"""Compiled parts: small C functions over records, combined at run time through their addresses.

A *part* is compiled by itself, once, whatever it is combined with: a tracker's `enter` and `descend`, a width's `score`.
All parts have one C signature, so that a record can hold the address of any of them,

    double part(int64 t, int64 w, int64 rows, int64 i, int64 n, int64 out, double x)

where t, w and rows are addresses of records (those of the kernels are in `driftls.kernels.records`). The Python
function behind a part names the arguments that it uses, and gets records for addresses. An *entry* is a part that Python
calls through the door (`driftls.compiling.door`), with a frame for t, i and n; arrays of the caller are described in a
record g. An *inner* function is a piece of parts.

These modules do not import Numba. With DRIFTLS_INTERPRET=1 nothing is compiled at all: parts run as plain Python, and
every read and write through an address is checked against the arrays that were handed out.
"""

from __future__ import annotations

import bisect
import ctypes
import inspect
import os
import threading
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., Any])

INTERPRET = os.environ.get("DRIFTLS_INTERPRET", "") not in ("", "0")

ARGUMENTS = ("t", "w", "rows", "i", "n", "out", "x")
MOST = 2**31 - 1  # rows, features and arms of one call

INNER: set[Callable[..., Any]] = set()
PARTS: dict[str, Part] = {}


def inner(function: Function) -> Function:
    """A piece of parts: linked into each of them, never called from outside."""
    INNER.add(function)
    return function


def part(function: Callable[..., Any]) -> Part:
    """A function that records refer to by its address."""
    return Part(function)


def entry(function: Callable[..., Any]) -> Part:
    """A function that Python calls with a frame and two numbers, `entry(frame, i, n)`, and perhaps arrays."""
    return Part(function, frame=next(iter(inspect.signature(function).parameters)))


class Part:
    """One compiled function: found on disk or compiled when its address is first asked for."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[str, ...] = ARGUMENTS, frame: str = "p") -> None:
        self.function, self.arguments = function, arguments
        self.name = f"{function.__module__.rpartition('.')[2]}_{function.__name__}"
        self.used = list(inspect.signature(function).parameters)
        self._places = {frame: "t", "g": "w"}
        self._address = 0
        self.run: Callable[..., float] = self._first  # from the first call on, the machine code itself
        PARTS[self.name] = self

    @property
    def address(self) -> int:
        """Where the machine code is; with nothing compiled, a number that stands for it."""
        if not self._address:
            with LOCK:  # two threads that ask at once must not load it twice
                if not self._address:
                    self._address = self._find()
        return self._address

    def _find(self) -> int:
        if INTERPRET:
            _INTERPRETED[id(self)] = self
            return id(self)
        from driftls.compiling.objects import load

        return load(self)

    def _first(self, *given: Any) -> float:
        if INTERPRET:
            self.run = self._interpreted
        else:
            from driftls.compiling.door import through

            with LOCK:
                self.run = through(self.address)
        return self.run(*given)

    def _interpreted(self, frame: int, i: int, n: int, *arrays: Any) -> float:
        given = Frame(GIVEN)
        for name, array in zip(("values", "indices", "starts"), arrays):
            given[f"{name}_kind"] = -1
            if array.flags.c_contiguous and array.dtype.isnative and array.ndim in (1, 2):
                (rows, columns), kind = (*array.shape, -1)[:2], array.itemsize << 8 | ord(array.dtype.char)
                given.set(**{name: array, f"{name}_kind": kind, f"{name}_rows": rows, f"{name}_columns": columns})
        return self.interpret(frame, given.address, 0, i, n, 0, 0.0)

    def __call__(self, frame: Frame, i: int, n: int) -> float:
        """Call an entry; `run` takes the frame's address, and costs less."""
        return self.run(frame.address, i, n)

    def interpret(self, *arguments: Any) -> float:
        """The same as plain Python."""
        given = dict(zip(self.arguments, arguments))
        values = (RECORD_OF[name](given[self.place(name)]) if name in RECORD_OF else given[name] for name in self.used)
        with np.errstate(over="ignore"):  # hashes overflow, as they do in C
            return float(self.function(*values))

    def place(self, name: str) -> str:
        """The argument in which the address of a record comes."""
        return self._places.get(name, name)


# -- what kernels use of memory; the compiler puts machine instructions in place of these -----------------------------

_INTERPRETED: dict[int, Part] = {}
_HANDED_OUT: weakref.WeakValueDictionary[int, NDArray[Any]] = weakref.WeakValueDictionary()  # by where they begin
_FIRSTS: list[int] = []  # where these do, ascending, and perhaps some that are gone


class Pointer:
    """Elements at an address, as a pointer of C has them; here none is reached outside of the array that it points into."""

    def __init__(self, address: int, dtype: Any) -> None:
        self.address, self.dtype = int(address), np.dtype(dtype)
        while (place := bisect.bisect_right(_FIRSTS, self.address) - 1) >= 0 and _FIRSTS[place] not in _HANDED_OUT:
            del _FIRSTS[place]
        self.first = _FIRSTS[place] if place >= 0 else 0
        self.end = self.first + _HANDED_OUT[self.first].nbytes if place >= 0 else 0

    def _cell(self, k: Any) -> NDArray[Any]:
        at = self.address + int(k) * self.dtype.itemsize
        if not (self.first <= self.address < self.end and self.first <= at and at + self.dtype.itemsize <= self.end):
            raise IndexError(f"element {k} at {self.address} is outside of the array that was handed to a kernel")
        return np.ctypeslib.as_array((ctypes.c_ubyte * self.dtype.itemsize).from_address(at)).view(self.dtype)

    def __getitem__(self, k: Any) -> Any:
        return self._cell(k)[0]

    def __setitem__(self, k: Any, value: Any) -> None:
        self._cell(k)[0] = value


def _elements(dtype: Any) -> Callable[[int], Any]:
    def at(address: int) -> Any:
        return Pointer(address, dtype)

    return at


# numbers at an address, `reals(t.u)[j]`; indices are features of sparse rows
reals, integers, indices = _elements(np.float64), _elements(np.int64), _elements(np.int32)
bytes_at = _elements(np.uint8)


# -- records: named numbers and addresses -----------------------------------------------------------------------------

LAYOUTS: dict[Callable[[int], Any], np.dtype[Any]] = {}
RECORD_OF: dict[str, Callable[[int], Any]] = {}  # what comes in an argument of this name


def record(integers: str, reals: str = "") -> np.dtype[Any]:
    """The layout of a record with these fields; plain Python reads them as attributes, which none of NumPy's must hide."""
    assert not [name for name in f"{integers} {reals}".split() if hasattr(np.record, name)]
    fields = [(name, np.int64) for name in integers.split()] + [(name, np.float64) for name in reals.split()]
    return np.dtype((np.record, fields))


def record_at(layout: np.dtype[Any], argument: str = "") -> Callable[[int], Any]:
    """The function that takes an address for a record of this layout; so do parts with an argument of this name."""

    def at(address: int) -> Any:
        return _FRAMES[address].record

    LAYOUTS[at] = layout
    if argument:
        RECORD_OF[argument] = at
    return at


# Arrays of a caller, as the door gives them (door.py): where, kind (size of a number << 8 | letter of its format; 0: no array,
# -1: one that is no plain block of numbers), and shape (columns -1: a vector). Values alone are dense rows, with indices one
# sparse row, and with starts many.
GIVEN = record(
    """
    values values_kind values_rows values_columns
    indices indices_kind indices_rows indices_columns
    starts starts_kind starts_rows starts_columns
    """
)
given_at = record_at(GIVEN, "g")


def call(address: int, t: int, w: int, rows: int, i: int, n: int, out: int, x: float) -> float:
    """Call the part at an address."""
    return _INTERPRETED[address].interpret(t, w, rows, i, n, out, x)


def gemm(address: int, inverse: int, X: int, out: int, dim: int, count: int) -> None:
    """out = X inverse by BLAS (dgemm of SciPy, at this address); inverse is symmetric."""
    A, rows, product = reals(inverse), reals(X), reals(out)
    for k in range(count * dim):
        r, c = divmod(k, dim)
        product[k] = sum(rows[r * dim + j] * A[j * dim + c] for j in range(dim))


def prefetch(address: int) -> None:
    """Ask the processor for the cache line at an address; changes no result."""


def memory(size: int) -> int:
    """So many bytes (a constant), until the function returns; of the door alone, which is always compiled."""
    raise NotImplementedError


# -- frames -----------------------------------------------------------------------------------------------------------


def address_of(array: NDArray[Any]) -> int:
    """Where an array's data lie; its owner keeps it alive as long as a record holds the address."""
    at = int(array.__array_interface__["data"][0])
    if INTERPRET and array.nbytes:
        base: Any = array
        while isinstance(base.base, np.ndarray):
            base = base.base
        first = int(base.__array_interface__["data"][0])
        _HANDED_OUT[first] = base
        if first not in _FIRSTS:
            bisect.insort(_FIRSTS, first)
    return at


_FRAMES: weakref.WeakValueDictionary[int, Frame] = weakref.WeakValueDictionary()


@cache
def _places(dtype: np.dtype[Any]) -> dict[str, tuple[int, bool]]:
    """Of each field, which of the record's numbers it is, and whether it is a real one."""
    return {name: (k, dtype[name].kind == "f") for k, name in enumerate(dtype.names or ())}


class Frame:
    """A record and the arrays whose addresses are in it; its memory never moves, and only its owner writes to it.

    `frame["u"] = array` writes the array's address and keeps the array; `frame["dim"] = 3` writes a number.
    """

    def __init__(self, dtype: np.dtype[Any], memory: NDArray[Any] | None = None) -> None:
        words = np.zeros(dtype.itemsize // 8, np.int64) if memory is None else memory.view(np.int64)
        self.memory, self.names = words.view(dtype), _places(dtype)
        self.arrays: dict[str, Any] = {}
        self.address = int(words.__array_interface__["data"][0])
        integers: Any = memoryview(words)  # type: ignore[arg-type]
        self._numbers: Any = integers, integers.cast("B").cast("d")  # the same bytes as integers, and as reals
        if "address" in self.names:
            self["address"] = self.address
        if INTERPRET:
            _FRAMES[self.address] = self

    @property
    def record(self) -> Any:
        """The record, whose fields are attributes."""
        return self.memory[0]

    def cell(self, name: str) -> Any:
        """One number, to be read and written as [0] without looking for its place."""
        place, real = self.names[name]
        return self._numbers[real][place : place + 1]

    def __getitem__(self, name: str) -> Any:
        place, real = self.names[name]
        return self._numbers[real][place]

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(value, np.ndarray):
            self.arrays[name] = value
            value = address_of(value)
        elif isinstance(value, Part | Frame):
            if isinstance(value, Frame):
                self.arrays[name] = value
            value = value.address
        place, real = self.names[name]
        self._numbers[real][place] = float(value) if real else int(value)

    def set(self, **values: Any) -> None:
        """Write several fields."""
        for name, value in values.items():
            self[name] = value


LOCK = threading.RLock()  # of what all objects share: the compiler and its cache
