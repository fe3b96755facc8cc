"""How a kernel is compiled, cached and chosen by type.

`kernel` is the one decorator of all compiled code. Its disk cache lives under a digest of *every* file of this
folder: a leaf may be edited in one file and be inlined into a caller of another, and a cache that looked at the
caller's file alone would go on serving the old answer.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar

from numba import config, njit, types
from numba.core import cgutils
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.extending import intrinsic, overload

Function = TypeVar("Function", bound=Callable[..., Any])

# Reductions vectorise only if sums may be reordered; NaN and infinity keep their meaning, since we test for them.
OPTIONS = {"fastmath": {"reassoc", "contract", "nsz", "arcp"}, "error_model": "numpy"}
# Said explicitly: a function that says nothing takes over what its caller has.
EXACT = {"fastmath": False, "error_model": "numpy"}
JIT = not config.DISABLE_JIT


def cache_root() -> Path:
    """Where compiled kernels are kept: DRIFTLS_CACHE_DIR, or the user's cache folder."""
    chosen = os.environ.get("DRIFTLS_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "driftls"


def source_digest(folder: Path) -> str:
    """A digest of every source file of a folder: it changes when any of them does."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


DIGEST = source_digest(Path(__file__).parent)


class _Locator(_CacheLocator):  # type: ignore[misc]
    """Puts the cache of a kernel under the digest of all kernels, and of its own folder where it lives elsewhere."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        folder = Path(py_file).parent
        # numba names the file after the last part of the module's name: `logs.rows` and `kernels.rows` would share it
        self._place = f"{folder.name}-{py_func.__code__.co_firstlineno}"
        self._stamp = DIGEST
        if folder != Path(__file__).parent and Path(py_file).exists():
            self._stamp += source_digest(folder)

    def get_cache_path(self) -> str:
        return str(cache_root() / "kernels" / DIGEST)

    def get_source_stamp(self) -> str:
        return self._stamp

    def get_disambiguator(self) -> str:
        return self._place

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator:
        return cls(py_func, py_file)


class _CacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _Cache(FunctionCache):  # type: ignore[misc]
    """A cache that may fail: a folder that cannot be written or a damaged file costs a compilation, never an error."""

    _impl_class = _CacheImpl

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(signature, target_context)
        except Exception:  # whatever a damaged file makes of itself
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        with suppress(OSError, EOFError, UnpicklingError), _alone():
            super().save_overload(signature, data)


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time: each reads the index of a kernel's versions and writes it back."""
    folder = cache_root() / "kernels" / DIGEST
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def leaf(function: Function) -> Function:
    """A small kernel that is always inlined: handing rows and states over by value would cost more than its work."""
    compiled: Any = njit(function, forceinline=True, **OPTIONS)
    return compiled


def exactly(function: Function) -> Function:
    """A leaf whose sums keep their order and their rounding, so that two routes to a number agree to the bit."""
    compiled: Any = njit(function, forceinline=True, **EXACT)
    return compiled


def merged(function: Function) -> Function:
    """A kernel that becomes part of its caller before anything is optimised.

    Every kernel optimises all that it calls once more, so a long chain of large ones would take minutes to compile.
    """
    compiled: Any = njit(function, inline="always", **OPTIONS)
    return compiled


def kernel(function: Function) -> Function:
    """Compile `function` on first use, keep the machine code on disk, and notice when any kernel was edited."""
    compiled: Any = njit(function, **OPTIONS)
    if JIT:
        compiled._cache = _Cache(function)
    return compiled


def remove_stale_kernels() -> int:
    """Delete the caches of other versions of the kernels; returns how many there were."""
    folder = cache_root() / "kernels"
    stale = [path for path in folder.glob("*") if path.is_dir() and path.name != DIGEST] if folder.is_dir() else []
    for path in stale:
        shutil.rmtree(path, ignore_errors=True)
    return len(stale)


def by_type(table: dict[type, Callable[..., Any]], *, exact: bool = False) -> Callable[..., Any]:
    """A function that picks its leaf by the type of its first argument, in Python and inside a kernel alike.

    `exact`: the leaves are those of `exactly`.
    """
    options = EXACT if exact else OPTIONS

    def pick(*args: Any) -> Any:
        return table[type(args[0])](*args)

    if JIT:

        @overload(pick, strict=False, jit_options={**options, "forceinline": True})  # type: ignore[untyped-decorator]
        def _choose(*signature: Any) -> Any:
            leaf: Any = table.get(getattr(signature[0], "instance_class", type(None)))
            return None if leaf is None else leaf.py_func

    return pick


@intrinsic  # type: ignore[untyped-decorator]
def _prefetch(_context: Any, array: Any, offset: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer = builder.gep(data, [args[1]])
        void, word = cgutils.voidptr_t, cgutils.int32_t
        function_type = cgutils.ir.FunctionType(cgutils.ir.VoidType(), [void, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
        read, keep, data_cache = (cgutils.ir.Constant(word, value) for value in (0, 3, 1))
        builder.call(function, [builder.bitcast(pointer, void), read, keep, data_cache])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def _cycles(_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function_type = cgutils.ir.FunctionType(cgutils.ir.IntType(64), [])
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.readcyclecounter")
        return builder.call(function, [])

    return types.int64(), generate


@intrinsic  # type: ignore[untyped-decorator]
def _bare(_context: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = context.make_array(signature.return_type)(context, builder, args[0])
        for owner in ("meminfo", "parent"):
            setattr(made, owner, cgutils.get_null_value(getattr(made, owner).type))
        return made._getvalue()

    return array(array), generate


def bare(array: Any) -> Any:
    """The same array without an owner, which the caller has to keep alive.

    An array that was handed to a kernel is counted, by an atomic operation, whenever a tuple with it is passed on.
    """
    return array


def cycles() -> int:
    """The processor's clock, to tell how the time of a loop is shared out."""
    return time.perf_counter_ns()


def prefetch(array: Any, offset: int) -> None:
    """Ask the processor for the cache line of `array.flat[offset]` (contiguous arrays); changes no result."""


if JIT:

    @overload(cycles, strict=False, jit_options=OPTIONS)  # type: ignore[untyped-decorator]
    def _cycles_overload() -> Any:
        return lambda: _cycles()

    @overload(bare, strict=False, jit_options=OPTIONS)  # type: ignore[untyped-decorator]
    def _bare_overload(array: Any) -> Any:
        return lambda array: _bare(array)

    @overload(prefetch, strict=False, jit_options=OPTIONS)  # type: ignore[untyped-decorator]
    def _prefetch_overload(array: Any, offset: Any) -> Any:
        def call(array: Any, offset: Any) -> None:
            _prefetch(array, offset)

        return call
