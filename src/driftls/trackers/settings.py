"""Settings that trackers share, and what is refused."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np

from driftls.draws import Seed
from driftls.errors import SettingsError
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


def flag(value: Any, name: str) -> bool:
    """A setting that is on or off."""
    if not isinstance(value, bool | np.bool_):
        raise SettingsError(f"{name} must be True or False, got {value!r}.")
    return bool(value)
