"""Settings that trackers share, by name and type."""

from __future__ import annotations

from typing import Any, TypedDict

from driftls.draws import Seed
from driftls.history import History

MOST_STEPS = 10_000_000  # a row: as many uniforms are drawn ahead

# features as they are, and no intercept: what the paper's algorithms are printed for
RAW: dict[str, Any] = {"scale": False, "intercept": False}


class Common(TypedDict, total=False):
    """Of every tracker."""

    regularisation: Any
    history: History | None
    scale: bool
    intercept: bool


class Drawing(Common, total=False):
    """Of those that draw rows."""

    step_size: Any
    steps: int
    seed: Seed
    guard: bool
