"""Compiled loops over NumPy arrays, for readers of logs and makers of features: Numba's own, kept in our cache folder.

Numba's files are pickles, so they are kept only in a folder that this user alone can write to, or put another one in the
place of; a digest beside each tells a damaged one, which is deleted before Numba sees it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from numba import config, njit

from driftls.kernels.objects import fixed, folder, source_digest

Function = TypeVar("Function", bound=Callable[..., Any])

# Reductions vectorise only if sums may be reordered; NaN and infinity keep their meaning, since we test for them.
OPTIONS: dict[str, Any] = {"fastmath": {"reassoc", "contract", "nsz", "arcp"}, "error_model": "numpy"}
_CHECKED: dict[str, Path | None] = {}


def leaf(function: Function) -> Function:
    """A small function that becomes part of those that call it."""
    made: Any = njit(function, forceinline=True, **OPTIONS)
    return made


def kernel(function: Function) -> Function:
    """A function that Python calls: compiled on first use, and kept on disk."""
    place = _place(Path(function.__code__.co_filename).parent)
    kept = config.CACHE_DIR
    try:
        config.CACHE_DIR = "" if place is None else str(place)
        made: Any = njit(function, cache=place is not None, **OPTIONS)
    finally:
        config.CACHE_DIR = kept
    if place is None or config.DISABLE_JIT:
        return made

    def call(*arguments: Any) -> Any:
        known = len(made.signatures)
        result = made(*arguments)
        if len(made.signatures) != known:
            _seal(place)
        return result

    outer: Any = wraps(function)(call)
    outer.inside = made
    return outer


def _place(sources: Path) -> Path | None:
    """Where the kernels of a package lie: under a digest of its sources, with every damaged file removed."""
    digest, root = source_digest(sources)[:24], folder()
    if digest not in _CHECKED:
        place = None if root is None or not fixed(root) else root / f"arrays-{digest}"
        with suppress(OSError):
            if place is not None:
                place.mkdir(mode=0o700, exist_ok=True)
                for path in place.rglob("*.nb[ic]"):
                    if not _whole(path):
                        path.unlink(missing_ok=True)
        _CHECKED[digest] = place if place is not None and os.access(place, os.W_OK) else None
    return _CHECKED[digest]


def _whole(path: Path) -> bool:
    with suppress(OSError):
        return Path(f"{path}.sha256").read_bytes() == hashlib.sha256(path.read_bytes()).digest()
    return False


def _seal(place: Path) -> None:
    """Write down the digests of what Numba has just kept."""
    for path in place.rglob("*.nb[ic]"):
        with suppress(OSError):
            if not _whole(path):
                side = Path(f"{path}.{os.getpid()}.driftls-part")
                side.write_bytes(hashlib.sha256(path.read_bytes()).digest())
                side.replace(f"{path}.sha256")
