"""How a Python function becomes machine code that records can point to: read `parts` first."""

from __future__ import annotations

from driftls.compiling.parts import INTERPRET, PARTS, Part

__all__ = ["INTERPRET", "PARTS", "Part"]
