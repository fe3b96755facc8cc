"""Who follows the least-squares solution.

| tracker | cost a row | memory | follows the exact solution |
|---|---|---|---|
| `OLS`, `RLS` | O(d^2) | O(d^2) | is it |
| `GD`, `SVRG`, `SAG`, `SAGA` | O(steps nnz) | O(d) and the history | SAGA closest |
| `SVRG(anchor="average")`, as printed | O(steps d^2) | O(d^2) and the history | |
| `CD` | O(nnz^2 + steps d) | O(d^2) | very closely |
| `AutoDiscount` | that of four `CD` | that of four `CD` | one that moves, without a setting |
| `Diagonal` | O(nnz) | O(d) | where features rarely overlap |
"""

from driftls.trackers.base import Tracker, TrackingError
from driftls.trackers.cd import CD
from driftls.trackers.diagonal import Diagonal
from driftls.trackers.discounts import AutoDiscount
from driftls.trackers.exact import OLS, RLS
from driftls.trackers.health import Health
from driftls.trackers.settings import RAW
from driftls.trackers.sgd import GD, SAG, SAGA, SVRG

__all__ = ["CD", "GD", "OLS", "RAW", "RLS", "SAG", "SAGA", "SVRG"]
__all__ += ["AutoDiscount", "Diagonal", "Health", "Tracker", "TrackingError"]
