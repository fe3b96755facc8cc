"""From Python functions to LLVM IR, by Numba; loaded only when a part is neither on disk nor in the wheel.

The kernels are plain Python. Here each module of them gets a second namespace, in which `inner` functions are compiled
ones and `reals`, `call`, `tracker` ... are machine instructions. Numba compiles a part for no processor in particular;
`driftls.compiling.objects` does the rest.
"""

from __future__ import annotations

import types as python_types
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import cfunc, config, from_dtype, njit, types
from numba.extending import intrinsic

from driftls.compiling import parts
from driftls.compiling.door import FOREIGN
from driftls.compiling.objects import optimise

# Reductions vectorise only if sums may be reordered; NaN and infinity keep their meaning, since we test for them.
OPTIONS: dict[str, Any] = {"fastmath": {"reassoc", "contract", "nsz", "arcp"}, "error_model": "numpy"}
PART = types.float64(*[types.int64] * 6, types.float64)


COMPILED: dict[Callable[..., Any], Any] = {}  # what compiled code has in place of a plain function


def instruction(plain: Callable[..., Any], result: Any, *given: Any) -> Callable[[Callable[..., Any]], None]:
    """What compiled code has in place of a plain function: of these types, and built out of LLVM's instructions."""

    def built_by(build: Callable[..., Any]) -> None:
        def typed(_context: Any, *_given: Any) -> Any:
            return result(*given), lambda context, builder, _signature, args: build(context, builder, *args)

        names = ("_context", *signature(plain).parameters)
        typed.__signature__ = Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])  # type: ignore[attr-defined]
        COMPILED[plain] = intrinsic(typed)

    return built_by


def _cast(plain: Callable[..., Any], kind: Any) -> None:
    """An address, taken for a pointer to this type, or for a record."""
    to_kind = instruction(plain, kind, types.int64)
    to_kind(lambda context, builder, address: builder.inttoptr(address, context.get_value_type(kind)))


def _record(dtype: np.dtype[Any]) -> Any:
    return from_dtype(np.dtype([(name, dtype[name]) for name in dtype.names or ()], align=True))


@instruction(parts.call, types.float64, types.int64, *PART.args)
def _call(context: Any, builder: Any, address: Any, *args: Any) -> Any:
    """The part at an address"""
    kind = ir.FunctionType(ir.DoubleType(), [context.get_value_type(entry) for entry in PART.args])
    return builder.call(builder.inttoptr(address, kind.as_pointer()), args)


@instruction(parts.gemm, types.void, *[types.int64] * 6)
def _gemm(context: Any, builder: Any, address: Any, inverse: Any, X: Any, out: Any, dim: Any, count: Any) -> Any:
    """BLAS takes the address of everything"""
    word, number, byte = ir.IntType(32), ir.DoubleType(), ir.IntType(8).as_pointer()

    def held(kind: Any, value: Any) -> Any:
        place = builder.alloca(kind)
        builder.store(value, place)
        return builder.bitcast(place, byte)

    letter = held(ir.IntType(8), ir.Constant(ir.IntType(8), ord("N")))
    size, arms = (held(word, builder.trunc(value, word)) for value in (dim, count))
    one, zero = (held(number, ir.Constant(number, value)) for value in (1.0, 0.0))
    inverse, X, out = (builder.inttoptr(value, byte) for value in (inverse, X, out))
    given = [letter, letter, size, arms, size, one, inverse, size, X, size, zero, out, size]
    kind = ir.FunctionType(ir.VoidType(), [byte] * len(given))
    builder.call(builder.inttoptr(address, kind.as_pointer()), given)
    return context.get_dummy_value()


@instruction(parts.prefetch, types.void, types.int64)
def _prefetch(context: Any, builder: Any, address: Any) -> Any:
    """For reading, soon and often"""
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind, name = ir.FunctionType(ir.VoidType(), [byte, word, word, word]), "llvm.prefetch.p0"
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(function, [builder.inttoptr(address, byte), *(ir.Constant(word, value) for value in (0, 3, 1))])
    return context.get_dummy_value()


@instruction(parts.memory, types.int64, types.int64)
def _memory(_context: Any, builder: Any, size: Any) -> Any:
    """On the stack, in words"""
    return builder.ptrtoint(builder.alloca(ir.IntType(64), builder.udiv(size, size.type(8))), ir.IntType(64))


for _plain, _kind in (
    *((parts.reals, types.float64), (parts.integers, types.int64)),
    *((parts.indices, types.int32), (parts.bytes_at, types.uint8)),
):
    _cast(_plain, types.CPointer(_kind))
for _function, (_name, *_kinds) in FOREIGN.items():
    _result, *_given = (getattr(types, kind) for kind in _kinds)
    COMPILED[_function] = types.ExternalFunction(_name, _result(*_given))
_SPACES: dict[int, dict[str, Any]] = {}


def compiled(function: Callable[..., Any]) -> Any:
    """The compiled form of an inner function, or of one that takes an address for a record."""
    if function in parts.LAYOUTS and function not in COMPILED:
        _cast(function, _record(parts.LAYOUTS[function]))
    if function not in COMPILED:
        COMPILED[function] = njit(
            python_types.FunctionType(function.__code__, _namespace(function), function.__name__),
            no_cpython_wrapper=True,
            no_cfunc_wrapper=True,
            **OPTIONS,
        )
    return COMPILED[function]


def _namespace(function: Callable[..., Any]) -> dict[str, Any]:
    """The names that a function sees, with compiled functions in place of plain ones."""
    plain = function.__globals__
    space = _SPACES.get(id(plain))
    if space is None:
        space = _SPACES[id(plain)] = dict(plain)
        for name, value in plain.items():
            if isinstance(value, python_types.FunctionType) and any(
                value in known for known in (parts.INNER, parts.LAYOUTS, COMPILED)
            ):
                space[name] = compiled(value)
    return space


def module_of(part: parts.Part) -> str:
    """The LLVM IR of a part: one plain C function of the part's name, which knows neither Python nor the processor."""
    body = compiled(part.function) if part.function in COMPILED else compiled(parts.inner(part.function))
    space = {"body": body, **{f"record_{name}": compiled(maker) for name, maker in parts.RECORD_OF.items()}}
    given = ", ".join(f"record_{name}({part.place(name)})" if name in parts.RECORD_OF else name for name in part.used)
    exec(f"def {part.name}({', '.join(part.arguments)}):\n    return body({given})", space)
    kinds = [types.float64 if name == "x" else types.int64 for name in part.arguments]
    kept = config.OPT, config.LOOP_VECTORIZE, config.SLP_VECTORIZE
    try:  # optimised for the processor later, and once
        config.OPT, config.LOOP_VECTORIZE, config.SLP_VECTORIZE = 0, 0, 0
        made = cfunc((types.float64 if "x" in part.arguments else types.int64)(*kinds), **OPTIONS)(space[part.name])
    finally:
        config.OPT, config.LOOP_VECTORIZE, config.SLP_VECTORIZE = kept
    return _cut_out(part, made)


def _cut_out(part: parts.Part, made: Any) -> str:
    """The native function alone, without its wrapper, which speaks to Python about errors that a part never has."""
    native = made.native_name.removeprefix("cfunc.")
    module = llvm.parse_assembly(made.inspect_llvm())
    kinds = [f"double %{name}" if name == "x" else f"i64 %{name}" for name in part.arguments]
    result = "double" if "x" in part.arguments else "i64"  # the door returns an object of Python
    glue = llvm.parse_assembly(
        f"""
        define {result} @{part.name}({", ".join(kinds)}) {{
          %result = alloca {result}
          %error = alloca ptr
          %status = call i32 @"{native}"(ptr %result, ptr %error, {", ".join(kinds)})
          %value = load {result}, ptr %result
          ret {result} %value
        }}
        declare i32 @"{native}"(ptr, ptr, {", ".join(kind.split()[0] for kind in kinds)})
        """
    )
    glue.triple, glue.data_layout = module.triple, module.data_layout
    module.link_in(glue)
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name != part.name:
            value.linkage = "internal"
    optimise(module, llvm.Target.from_default_triple().create_target_machine(), 1)
    return str(module)
