"""Online least squares that costs O(d) a row, or O(nnz) when rows are sparse.

Start with `driftls.trackers.SAGA`; `driftls.paper` holds the paper's schemes under the paper's names.
"""

from driftls.schedules import Normalised, Power, ridge

__all__ = ["Normalised", "Power", "__version__", "ridge"]
__version__ = "0.1.0"
