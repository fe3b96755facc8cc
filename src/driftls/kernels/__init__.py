"""Every compiled line: one copy of the maths, in the paper's order. `driftls.kernels.parts` says how it is compiled."""

from __future__ import annotations

from importlib import import_module

from driftls.kernels.parts import INTERPRET, PARTS, Part

MODULES = (
    *("door", "rows", "units", "learn", "gd", "sag", "cg", "svrg", "exact", "cd", "diagonal"),
    *("score", "centred", "bounds", "phi", "sampling", "table", "choose", "features", "yahoo"),
)
__all__ = ["INTERPRET", "MODULES", "Part", "all_parts"]


def all_parts() -> list[Part]:
    """Every part of the library."""
    for name in MODULES:
        import_module(f"driftls.kernels.{name}")
    return [part for part in PARTS.values() if part.function.__module__.startswith("driftls.kernels.")]
