"""From LLVM IR to machine code for this processor, by llvmlite; its cache on disk; and the IR that is shipped.

The cache is a cache: a file that is missing, damaged, foreign or not ours to trust costs a compilation and nothing else.
`NAME-KEY.obj` is the machine code of a part under a digest of all kernel sources, the processor and LLVM's version;
`NAME-KEY.ir`, in the package, its IR under that of the sources. Each begins with a digest of its name and of what follows,
which is checked before anything runs. The cache must be this user's to write alone; otherwise nothing is read or written.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import shutil
import stat
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from driftls.compiling.door import FOREIGN
from driftls.compiling.parts import LOCK, Part

LOGGER = logging.getLogger("driftls")
MAGIC = b"driftls kernel 1\n"
SAY_AFTER = 0.5  # seconds of compilation


HERE = Path(__file__).parent
KERNELS = HERE.parent / "kernels"


@cache
def source_digest() -> str:
    """A digest of every kernel's source, any of which may be linked into any part, and of what compiles them."""
    digest = hashlib.sha256()
    for path in (*sorted(HERE.glob("*.py")), *sorted(KERNELS.glob("*.py"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def part_digest(part: Part) -> str:
    """A digest of what a part is made of: the kernels, and its own file where that is somebody else's."""
    code = part.function.__code__
    file = Path(code.co_filename)
    if file.parent in (HERE, KERNELS):
        return source_digest()[:24]
    own = file.read_bytes() if file.is_file() else code.co_code + repr((code.co_consts, code.co_names)).encode()
    return hashlib.sha256(source_digest().encode() + own).hexdigest()[:24]


@cache
def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    host, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=host, features=features, opt=3, codemodel="jitdefault", jit=True)


@cache
def _engine() -> Any:
    for name, *_ in FOREIGN.values():
        llvm.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())


def load(part: Part) -> int:
    """The address of a part: from the cache, or compiled and put there."""
    with LOCK:
        made_for = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()} {llvmlite.__version__}"
        name = f"{part.name}-{hashlib.sha256(f'{part_digest(part)} {made_for}'.encode()).hexdigest()[:24]}.obj"
        began, code = time.perf_counter(), read(name)
        if code is None:
            text = shipped(part)
            if text is None or _spent[0] > SAY_AFTER:
                _say()
            code = machine_code(intermediate(part) if text is None else text)
            write(name, code)
        _engine().add_object_file(llvm.ObjectFileRef.from_data(code))
        _engine().finalize_object()
        seconds = time.perf_counter() - began
        _spent[0] += seconds
        if seconds > SAY_AFTER:
            LOGGER.info("driftls: compiled %s in %.1f s (%.1f s so far)", part.name, seconds, _spent[0])
        address = int(_engine().get_function_address(part.name))
        if not address:
            raise RuntimeError(f"{part.name} was compiled, but is not there. Please report this.")
        return address


def machine_code(text: bytes) -> bytes:
    """IR, optimised for this processor and made an object file."""
    machine = _machine()
    module = llvm.parse_assembly(text.decode())
    module.triple, module.data_layout = llvm.get_process_triple(), str(machine.target_data)
    optimise(module, machine, 3)
    return bytes(machine.emit_object(module))


def optimise(module: Any, machine: Any, level: int) -> None:
    """LLVM's passes of a level; loops are rewritten from 2 on, where the processor is known."""
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = level > 1
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


# -- what comes with the package --------------------------------------------------------------------------------------


def intermediate(part: Part) -> bytes:
    """The IR of a part, by Numba."""
    from driftls.compiling.compiler import module_of

    return module_of(part).encode()


def shipped(part: Part) -> bytes | None:
    """The IR that came with the package, if it is that of these sources."""
    name = f"{part.name}-{part_digest(part)}.ir"
    with suppress(OSError, ValueError):
        return opened(name, (HERE / "ir" / name).read_bytes())
    return None


def ship(parts: Iterable[Part]) -> None:
    """Put the IR of these parts, and no other, where `shipped` finds it: `make ir`."""
    texts = {f"{part.name}-{part_digest(part)}.ir": intermediate(part) for part in parts}
    shutil.rmtree(HERE / "ir", ignore_errors=True)
    (HERE / "ir").mkdir()
    for name, text in texts.items():
        (HERE / "ir" / name).write_bytes(sealed(name, text))


# -- the folder -------------------------------------------------------------------------------------------------------


def folder() -> Path | None:
    """Where compiled parts are kept: DRIFTLS_CACHE_DIR, or the user's cache folder; None where there is no such place."""
    chosen = os.environ.get("DRIFTLS_CACHE_DIR")
    with suppress(RuntimeError, OSError):
        root = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "driftls"
        place = root / "parts"
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return place if _ours(os.lstat(place)) else None
    return None


def _ours(facts: os.stat_result) -> bool:
    """Whether nobody else can write to it: what is read from there will be executed."""
    if not hasattr(os, "getuid"):
        return True
    return facts.st_uid == os.getuid() and not facts.st_mode & 0o022 and not stat.S_ISLNK(facts.st_mode)


def sealed(name: str, body: bytes) -> bytes:
    """The content of a file: a part under another's name must not pass for it."""
    return MAGIC + hashlib.sha256(name.encode() + b"\0" + body).digest() + body


def opened(name: str, content: bytes) -> bytes:
    """What was sealed under this name."""
    body = content[len(MAGIC) + 32 :]
    if content != sealed(name, body):
        raise ValueError("not a kernel, or a damaged one")
    return body


def read(name: str) -> bytes | None:
    """What the cache has under this name, if it is whole and ours."""
    place = folder()
    if place is None:
        return None
    with suppress(OSError, ValueError):
        number = os.open(place / name, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
        with open(number, "rb") as file:
            if _ours(os.fstat(number)):
                return opened(name, file.read())
    return None


def write(name: str, body: bytes) -> None:
    """Keep something, whole or not at all; a cache that cannot be written is no error."""
    place = folder()
    if place is None:
        return
    temporary = place / f".{name}.{os.getpid()}.driftls-part"
    with suppress(OSError):
        try:
            with open(temporary, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(sealed(name, body))
            os.replace(temporary, place / name)
        finally:
            temporary.unlink(missing_ok=True)


# -- nobody waits in silence ------------------------------------------------------------------------------------------

_spent = [0.0]  # seconds, in this process


@cache
def _say() -> None:
    """Once, before the first long compilation of this process."""
    text = (
        "driftls: compiling what is used for the first time on this machine, some seconds; "
        "`driftls warmup` does so ahead of time."
    )
    LOGGER.info(text)
    if sys.stderr is not None and sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
