"""Online least squares that costs O(d) a row, or O(nnz) when rows are sparse.

Start with `driftls.trackers.SAGA`; `driftls.paper` holds the paper's schemes under the paper's names.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftls.schedules import Normalised, Power, ridge

__all__ = ["Normalised", "Power", "__version__", "ridge"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The names of `__all__`, and modules, imported when they are used: who only wants the version does not wait."""
    from importlib import import_module
    from importlib.util import find_spec

    if name in __all__:
        return getattr(import_module("driftls.schedules"), name)
    if not name.startswith("_") and find_spec(f"driftls.{name}") is not None:
        return import_module(f"driftls.{name}")
    raise AttributeError(f"module 'driftls' has no attribute {name!r}")
