"""Parts of a policy's file, which may say anything."""

from __future__ import annotations

from typing import Any

import driftls.trackers
from driftls.errors import CorruptFileError
from driftls.trackers import Tracker
from driftls.widths import KINDS, Width


def tracker_of(header: dict[str, Any], arrays: dict[str, Any], functions: dict[str, Any]) -> Tracker:
    """The tracker that a policy's file names."""
    kind = getattr(driftls.trackers, str(header.get("class")), None)
    if not (isinstance(kind, type) and issubclass(kind, Tracker)):
        raise CorruptFileError(f"the file names an unknown tracker: {header.get('class')!r}.")
    return kind.from_snapshot(header, arrays, **functions)


def width_of(header: dict[str, Any]) -> Width:
    """The width that a policy's file names."""
    settings = dict(header["width"])
    kind = KINDS.get(str(settings.pop("kind")))
    if kind is None:
        raise CorruptFileError(f"the file names an unknown width: {header['width']!r}.")
    return kind(**settings)


def group(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def revive(kind: Any, header: dict[str, Any], arrays: dict[str, Any], functions: dict[str, Any]) -> Any:
    """What a pickle calls."""
    return kind.from_snapshot(header, arrays, **functions)
