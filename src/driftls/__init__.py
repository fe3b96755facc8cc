"""Online least squares that costs O(d) a row, or O(nnz) when rows are sparse.

Start with `driftls.trackers.SAGA`; `driftls.paper` holds the paper's schemes under the paper's names.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftls.schedules import Normalised, Power, ridge

__all__ = ["Normalised", "Power", "__version__", "ridge"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The names of `__all__`, imported when they are used: a command line that only wants a version is not kept."""
    if name in __all__:
        from driftls import schedules

        return getattr(schedules, name)
    raise AttributeError(f"module 'driftls' has no attribute {name!r}")
