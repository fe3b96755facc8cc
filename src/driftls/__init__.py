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
__all__ = [
    "CD", "GD", "OLS", "RLS", "SAG", "SAGA", "SVRG", "AutoDiscount", "CentredWidth", "CrossedArms", "Diagonal",
    "DiagonalWidth", "DisjointLinUCB", "ExactWidth", "Features", "Greedy", "Growing", "LinTS", "LinUCB", "Normalised",
    "PhiWidth", "Power", "Random", "Reservoir", "SharedPolicy", "Window", "__version__", "evaluate", "load", "replay",
    "ridge", "simulate",
]  # fmt: skip

if TYPE_CHECKING:
    from driftls.evaluation import evaluate
    from driftls.features import CrossedArms, Features
    from driftls.history import Growing, Reservoir, Window
    from driftls.log_replay import replay
    from driftls.policies import DisjointLinUCB, Greedy, LinTS, LinUCB, Random, SharedPolicy
    from driftls.policies.registry import load
    from driftls.schedules import Normalised, Power, ridge
    from driftls.simulation import simulate
    from driftls.trackers import CD, GD, OLS, RLS, SAG, SAGA, SVRG, AutoDiscount, Diagonal
    from driftls.widths import CentredWidth, DiagonalWidth, ExactWidth, PhiWidth


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
