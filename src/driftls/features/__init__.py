"""From what people have to arms: dicts and tables, and the events of logs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from driftls.errors import FileFormatError, NewerFileError
from driftls.features.base import VERSION, FeatureMap, resized
from driftls.features.crossed import CrossedArms
from driftls.inputs import Rows

__all__ = [
    "CrossedArms", "FeatureMap", "Features", "OuterProduct", "Pool", "Rows", "UserArmCrosses", "UserOnly",
    "from_header", "is_records", "resized",
]  # fmt: skip

KINDS = ("Features", "OuterProduct", "UserOnly", "UserArmCrosses")


def from_header(header: dict[str, Any]) -> FeatureMap:
    """The features that `to_header` wrote down."""
    settings = {name: value for name, value in header.items() if name not in ("features", "version", "names", "ids")}
    kind, version = header.get("features"), header.get("version", 0)
    if version == 1:
        raise FileFormatError(
            "these features are of driftls 0.1, which made and hashed them otherwise. Learn them anew."
        )
    if kind not in KINDS:
        raise FileFormatError(f"expected a header of features, one of {', '.join(KINDS)}, got {kind!r}.")
    if version > VERSION:
        raise NewerFileError(f"features of version {version}, but this driftls reads up to {VERSION}. Install a newer.")
    made: FeatureMap = __getattr__(kind)(**settings)
    made.follow(header)
    return made


def __getattr__(name: str) -> Any:
    """Import late what brings the compiler, or the readers of logs, which most policies do without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = {"Features": "records", "Pool": "records", "is_records": "tables"}.get(name, "events")
    return getattr(import_module(f"driftls.features.{room}"), name)
