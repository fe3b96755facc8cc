"""Many arrays behind one argument.

A compiled call spends time on each array that it is handed, and a tracker has a dozen. So the addresses and shapes
of its arrays are kept in one array of integers, the *words* of its frame; a kernel turns them back into the named
tuples that the maths is written for, at no cost. The owner of the arrays writes the words again whenever one of them
moved.

A field says what it is through its annotation: `Vector`, `Matrix`, `Coordinates`, `Integers`, `Indices`, `Values`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np
from numba import carray, farray, types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from driftls.kernels.compile import JIT, OPTIONS


@dataclass(frozen=True)
class Field:
    """The type of one array; `dtype` None is the rows' precision, `together` keeps a coordinate's values adjacent."""

    dtype: Any
    ndim: int
    together: bool = False


Array = NDArray[Any]
Vector = Annotated[NDArray[np.float64], Field(np.float64, 1)]
Matrix = Annotated[NDArray[np.float64], Field(np.float64, 2)]
# (quantity, coordinate): each quantity contiguous for dense rows, each coordinate's quantities adjacent for sparse
# ones, so that a random coordinate costs one cache line.
Coordinates = Annotated[NDArray[np.float64], Field(np.float64, 2, together=True)]
Integers = Annotated[NDArray[np.int64], Field(np.int64, 1)]
IntegerRows = Annotated[NDArray[np.int64], Field(np.int64, 2)]
Indices = Annotated[NDArray[np.int32], Field(np.int32, 1)]
Values = Annotated[Array, Field(None, 1)]
ValueRows = Annotated[Array, Field(None, 2)]


def fields(cls: type) -> list[tuple[str, Field]]:
    """Name and type of each array of a frame's tuple, in order."""
    return [(name, hint.__metadata__[0]) for name, hint in get_type_hints(cls, include_extras=True).items()]


def pack(parts: Sequence[NamedTuple]) -> NDArray[np.int64]:
    """The words of these tuples, one after the other."""
    words: list[int] = []
    for part in parts:
        for array in part:
            words.append(array.__array_interface__["data"][0])
            words.extend(array.shape)
    return np.array(words, dtype=np.int64)


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(_context: Any, address: Any, dtype: Any) -> Any:
    kind = types.CPointer(dtype.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(kind))

    return kind(address, dtype), generate


def unpack(words: Any, values: Any, *classes: Any) -> Any:
    """The tuples of these classes (or of the classes of these tuples), in the order in which they were packed.

    `values` tells precision (its dtype) and layout (2-d: dense rows).
    """
    found, at, dense = [], 0, values.ndim == 2
    given = classes[0] if len(classes) == 1 and type(classes[0]) is tuple else classes
    for cls in (kind if isinstance(kind, type) else type(kind) for kind in given):
        arrays = []
        for _, field in fields(cls):
            shape = tuple(int(word) for word in words[at + 1 : at + 1 + field.ndim])
            dtype = np.dtype(field.dtype or values.dtype)
            count = int(np.prod(shape))
            buffer = (ctypes.c_char * (count * dtype.itemsize)).from_address(int(words[at])) if count else b""
            order = "F" if field.together and not dense else "C"
            arrays.append(np.frombuffer(buffer, dtype=dtype).reshape(shape, order=order))  # type: ignore[call-overload]
            at += 1 + field.ndim
        found.append(cls(*arrays))
    return tuple(found)


if JIT:

    @overload(unpack, strict=False, jit_options=OPTIONS)  # type: ignore[untyped-decorator]
    def _unpack_overload(words: Any, values: Any, *classes: Any) -> Any:
        dense, parts, at = values.ndim == 2, [], 0
        precision = np.float64 if values.dtype == types.float64 else np.float32
        names: dict[str, Any] = {"_pointer": _pointer, "carray": carray, "farray": farray}
        given = classes[0] if len(classes) == 1 and isinstance(classes[0], types.BaseTuple | tuple) else classes
        for number, cls in enumerate(given):
            arrays = []
            names[f"class_{number}"] = cls.instance_class
            for name, field in fields(cls.instance_class):
                dtype = f"dtype_{number}_{name}"
                names[dtype] = field.dtype or precision
                shape = "".join(f"words[{at + 1 + axis}], " for axis in range(field.ndim))
                maker = "farray" if field.together and not dense else "carray"
                arrays.append(f"{maker}(_pointer(words[{at}], {dtype}), ({shape}))")
                at += 1 + field.ndim
            parts.append(f"class_{number}({', '.join(arrays)})")
        exec(f"def build(words, values, *classes):\n    return ({', '.join(parts)},)", names)
        return names["build"]
