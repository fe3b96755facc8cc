"""Online least squares and linear bandits that cost O(d) a round, or O(nnz) when features are sparse.

Start with `LinUCB` (one theta for all arms) or `DisjointLinUCB` (one model an arm), or with the tracker `SAGA` for a
regression on a stream; `driftls.paper` holds the paper's schemes under the paper's names.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# where each name of the top level is; imported when it is used, so that nobody waits for what he does not need
_WHERE = {
    "driftls.trackers": ("CD", "GD", "OLS", "RLS", "SAG", "SAGA", "SVRG", "AutoDiscount", "Diagonal"),
    "driftls.policies": ("DisjointLinUCB", "Greedy", "LinTS", "LinUCB", "Random", "SharedPolicy"),
    "driftls.policies.registry": ("load",),
    "driftls.widths": ("CentredWidth", "DiagonalWidth", "ExactWidth", "PhiWidth"),
    "driftls.history": ("Growing", "Reservoir", "Window"),
    "driftls.schedules": ("Normalised", "Power", "ridge"),
    "driftls.features": ("CrossedArms", "Features"),
    "driftls.log_replay": ("replay",),
    "driftls.simulation": ("simulate",),
    "driftls.evaluation": ("evaluate",),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}
__all__ = ["__version__", *sorted(_MODULE_OF)]

if TYPE_CHECKING:
    from driftls.evaluation import evaluate as evaluate
    from driftls.features import CrossedArms as CrossedArms
    from driftls.features import Features as Features
    from driftls.history import Growing as Growing
    from driftls.history import Reservoir as Reservoir
    from driftls.history import Window as Window
    from driftls.log_replay import replay as replay
    from driftls.policies import DisjointLinUCB as DisjointLinUCB
    from driftls.policies import Greedy as Greedy
    from driftls.policies import LinTS as LinTS
    from driftls.policies import LinUCB as LinUCB
    from driftls.policies import Random as Random
    from driftls.policies import SharedPolicy as SharedPolicy
    from driftls.policies.registry import load as load
    from driftls.schedules import Normalised as Normalised
    from driftls.schedules import Power as Power
    from driftls.schedules import ridge as ridge
    from driftls.simulation import simulate as simulate
    from driftls.trackers import CD as CD
    from driftls.trackers import GD as GD
    from driftls.trackers import OLS as OLS
    from driftls.trackers import RLS as RLS
    from driftls.trackers import SAG as SAG
    from driftls.trackers import SAGA as SAGA
    from driftls.trackers import SVRG as SVRG
    from driftls.trackers import AutoDiscount as AutoDiscount
    from driftls.trackers import Diagonal as Diagonal
    from driftls.widths import CentredWidth as CentredWidth
    from driftls.widths import DiagonalWidth as DiagonalWidth
    from driftls.widths import ExactWidth as ExactWidth
    from driftls.widths import PhiWidth as PhiWidth


def __getattr__(name: str) -> Any:
    """A name of the top level, or a module, imported when it is first used."""
    from importlib.util import find_spec

    if name in _MODULE_OF:
        value = getattr(import_module(_MODULE_OF[name]), name)
        globals()[name] = value  # a module of the same name must not hide the function
        return value
    if not name.startswith("_") and find_spec(f"driftls.{name}") is not None:
        return import_module(f"driftls.{name}")
    raise AttributeError(f"module 'driftls' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*_MODULE_OF, "__version__", "__all__"})
