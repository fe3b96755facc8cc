"""What was observed: the rows that a tracker draws from.

`Window` keeps the newest rows (the default, so that memory is bounded), `Reservoir` a uniform sample of all, `Growing`
all of them in memory, `Mapped` all of them on disk. A history is dense or sparse as the first rows are, and serves one
tracker.
"""

from typing import Any

from driftls.errors import CorruptFileError
from driftls.history.mapped import Mapped
from driftls.history.rows import FIRST_BYTES, ROWS_KEPT, Bounded, Growing, History, Reservoir, Window
from driftls.persistence import whole

__all__ = ["FIRST_BYTES", "ROWS_KEPT", "Growing", "History", "Mapped", "Reservoir", "Window", "from_header"]

KINDS: dict[str, type[History]] = {kind.__name__: kind for kind in (History, Growing, Reservoir, Window, Mapped)}


def from_header(header: dict[str, Any]) -> History:
    """An empty history with the settings that `header` wrote down."""
    kind = KINDS.get(str(header.get("kind")))
    if kind is None:
        raise CorruptFileError(f"the file names an unknown history: {header.get('kind')!r}.")
    if kind is Mapped:
        return Mapped(str(header["path"]))
    return kind(whole(header, "capacity")) if issubclass(kind, Bounded) else kind()
