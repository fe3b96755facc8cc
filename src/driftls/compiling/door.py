"""The door: how Python calls an entry, at the cost of a built-in function, and shows it arrays as they are.

`through(address)` is a built-in function of Python around the entry at an address; it takes `(frame, i, n)` and up to three
arrays, which the entry finds described in a record (GIVEN). While the entry runs, nobody can free them. All that is used of
Python is its public C interface, by the names of its functions.

The interpreter's lock is given back while an entry runs. It is kept only while some few rows are copied, which takes less
time than to give it back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from driftls.compiling.parts import Part, bytes_at, call, indices, integers, memory

MOST_ARRAYS = 3
FEW = 1 << 16  # bytes that are copied at once
FASTCALL = 0x80  # METH_FASTCALL: arguments come as an array, and how many there are
FORMAT_AND_SHAPE = 12  # PyBUF_FORMAT | PyBUF_ND: arrays without gaps alone
# Py_buffer of the stable interface: memory, owner, length, size of a number, (read-only, dimensions), format, shape, ...
VIEW, OWNER, LENGTH, SIZE, DIMENSIONS, TEXT, SHAPE = 80, 8, 16, 24, 36, 40, 48
ARRAY = 32  # bytes in GIVEN, of each array

FOREIGN: dict[Callable[..., Any], tuple[str, ...]] = {}  # name, result, arguments


def foreign(*declared: str) -> Any:
    """A function of Python's C interface."""

    def function(*_arguments: Any) -> Any:
        raise NotImplementedError

    FOREIGN[function] = declared
    return function


to_address = foreign("PyLong_AsVoidPtr", "int64", "int64")
to_number = foreign("PyLong_AsLongLong", "int64", "int64")
from_number = foreign("PyFloat_FromDouble", "int64", "float64")
failed = foreign("PyErr_Occurred", "int64")
forgive = foreign("PyErr_Clear", "void")
refuse = foreign("PyErr_BadArgument", "int32")
view_of = foreign("PyObject_GetBuffer", "int32", "int64", "int64", "int32")
release = foreign("PyBuffer_Release", "void", "int64")
unlock = foreign("PyEval_SaveThread", "int64")
lock = foreign("PyEval_RestoreThread", "void", "int64")


def door(entry: int, arguments: int, count: int) -> int:
    """Call an entry: Python's objects in, a Python number out; 0 where an exception was set"""
    objects, arrays = integers(arguments), count - 3
    if arrays < 0 or arrays > MOST_ARRAYS:
        refuse()
        return 0
    code, frame, i, n = to_address(entry), to_number(objects[0]), to_number(objects[1]), to_number(objects[2])
    if failed() != 0:
        return 0
    views, given, length = memory(VIEW * MOST_ARRAYS), memory(ARRAY * MOST_ARRAYS), 0
    for k in range(MOST_ARRAYS):
        view, array = views + VIEW * k, integers(given + ARRAY * k)
        array[0], array[1], array[2], array[3] = 0, 0, 0, -1
        if k < arrays:
            array[1] = -1  # of no kind that anyone takes
            integers(view)[OWNER // 8] = 0  # nothing to release: NumPy leaves that to us where it refuses
            if view_of(objects[3 + k], view, FORMAT_AND_SHAPE) != 0:
                forgive()
                continue
            fields, dimensions = integers(view), indices(view + DIMENSIONS)[0]
            text, shape = bytes_at(fields[TEXT // 8]), integers(fields[SHAPE // 8])
            if 1 <= dimensions <= 2 and text[1] == 0:
                array[0], array[1], array[2] = fields[0], fields[SIZE // 8] << 8 | text[0], shape[0]
                if dimensions == 2:
                    array[3] = shape[1]
            length += fields[LENGTH // 8]
    if 0 < length <= FEW:
        result = call(code, frame, given, 0, i, n, 0, 0.0)
    else:
        state = unlock()
        result = call(code, frame, given, 0, i, n, 0, 0.0)
        lock(state)
    for k in range(arrays):
        release(views + VIEW * k)
    return from_number(result)


DOOR = Part(door, ("entry", "arguments", "count"))


class _Method(ctypes.Structure):
    """PyMethodDef: name, function, flags, text"""

    _fields_ = tuple(zip("nfgt", (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)))


@cache
def _method() -> Any:
    return _Method(b"entry", DOOR.address, FASTCALL, None)


def through(address: int) -> Callable[..., float]:
    """The entry at an address, as a function of Python; for one caller at a time, as it makes what all of them share."""
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    make = kind(("PyCFunction_NewEx", ctypes.pythonapi))
    return make(ctypes.addressof(_method()), address, None)
