"""Policies by name: the one list, with the settings that we recommend; the paper's are among them.

Every maker takes the dimension, kappa (None: estimated from the data), a seed, which sets the policy's randomness and
its tracker's draws, and the settings that `SETTINGS` lists for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any

from driftls import persistence
from driftls.draws import Seed, generator_of
from driftls.errors import FileFormatError, SettingsError
from driftls.history import Growing
from driftls.policies.disjoint import DisjointLinUCB
from driftls.policies.linucb import LinUCB
from driftls.policies.policy import Policy
from driftls.policies.shared import SharedPolicy
from driftls.policies.simple import Greedy, LinTS, Random
from driftls.schedules import ridge
from driftls.trackers import RAW, RLS, SAGA
from driftls.widths import DiagonalWidth, ExactWidth, PhiWidth

__all__ = ["POLICIES", "SETTINGS", "as_disjoint", "load", "make", "register"]

Maker = Callable[..., Any]  # of (dim, kappa, seed, **settings)


def _of_tracker(settings: dict[str, Any]) -> dict[str, Any]:
    """Take the tracker's settings out; `ridge` is n lambda_n."""
    found = {name: settings.pop(name) for name in ("steps", "discount") if name in settings}
    return found | ({"regularisation": ridge(settings.pop("ridge"))} if "ridge" in settings else {})


def _saga(dim: int, kappa: float | None, seed: Seed, **settings: Any) -> SharedPolicy:
    first, second = generator_of(seed).spawn(2)  # phi follows a row that leaves less closely: all are kept
    tracker = SAGA(dim, seed=first, history=settings.pop("history", Growing()), **_of_tracker(settings), **RAW)
    return LinUCB(tracker=tracker, width=PhiWidth(), kappa=kappa, seed=second, **settings)


def _exact(dim: int, kappa: float | None, seed: Seed, **settings: Any) -> SharedPolicy:
    tracker = RLS(dim, method="sherman-morrison", **_of_tracker(settings), **RAW)
    return LinUCB(tracker=tracker, width=ExactWidth(), kappa=kappa, seed=seed, **settings)


def _over_dim(kind: Callable[..., SharedPolicy]) -> Maker:
    """A policy that makes its tracker itself."""
    return lambda dim, kappa, seed, **settings: kind(dim, kappa=kappa, seed=seed, **_of_tracker(settings), **settings)


def _greedy(dim: int, kappa: float | None, seed: Seed, **settings: Any) -> SharedPolicy:
    return Greedy(RLS(dim, **_of_tracker(settings)), seed=seed, **settings)


POLICIES: dict[str, Maker] = {}
SETTINGS: dict[str, dict[str, type]] = {}  # what can be set, and whether it is a whole number


def register(name: str, maker: Maker, settings: dict[str, type] | None = None) -> None:
    """Add a policy to the list, under a name that is not taken; the paper's have kappa alone."""
    if name in POLICIES and POLICIES[name] is not maker:
        raise SettingsError(f"there is a policy of the name {name!r} already. Choose another name.")
    POLICIES[name], SETTINGS[name] = maker, {"kappa": float} if settings is None else settings


_UCB: dict[str, type] = {"kappa": float, "sigmas": float, "epsilon": float, "ridge": float}
register("flinucb-saga", _saga, {**_UCB, "steps": int})
register("linucb-exact", _exact, {**_UCB, "discount": float})
register("linucb-auto", _over_dim(LinUCB), _UCB)
register("lints", _over_dim(LinTS), _UCB)
register("greedy", _greedy, {"ridge": float})
register("epsilon-greedy", partial(_greedy, epsilon=0.1), {"ridge": float, "epsilon": float})
register("random", lambda dim, kappa, seed: Random(dim, seed=seed), {})


def load(path: str | os.PathLike[str]) -> Policy:
    """A saved policy, of whichever kind the file holds."""
    header, arrays = persistence.read(path)
    kinds, name = (DisjointLinUCB, Greedy, LinTS, LinUCB, SharedPolicy, Random), header.get("class")
    for kind in kinds:
        if kind.__name__ == name:
            with persistence.reading(path):
                return kind.from_snapshot(header, arrays)
    told = f"{path}: expected a policy ({', '.join(kind.__name__ for kind in kinds)}), got a {name}"
    raise FileFormatError(f"{told}. A tracker is loaded by its class: {name}.load(path).")


def as_disjoint(policy: SharedPolicy, seed: Seed = None) -> DisjointLinUCB:
    """The same tracker, width and weights, with a model of its own for every arm id.

    A width that keeps something for every recurring arm gives way to the diagonal one, since a model sees users, who
    do not recur; the paper's printed phi stays, and takes its steps afresh for every user.

    Examples
    --------
    >>> as_disjoint(make("flinucb-saga", 136)).width
    DiagonalWidth()
    """
    width, kappa = policy.width, policy.kappa if policy.sigmas is None else None
    if isinstance(width, PhiWidth) and width.method != "printed":
        width = DiagonalWidth()
    sigmas = 1.0 if policy.sigmas is None else policy.sigmas
    return DisjointLinUCB(
        policy.dim, tracker=policy.tracker, width=width, kappa=kappa, sigmas=sigmas, epsilon=policy.epsilon, seed=seed
    )


def make(name: str, dim: int, *, kappa: float | None = None, seed: Seed = None, **settings: float) -> Any:
    """The policy of this name.

    Examples
    --------
    >>> make("epsilon-greedy", 3, ridge=10.0).epsilon
    0.1
    """
    if not isinstance(name, str) or name not in POLICIES:
        import_module("driftls.paper")  # a room above this one, which adds its policies to the list
    if not isinstance(name, str) or name not in POLICIES:
        near = get_close_matches(str(name).lower(), POLICIES, 1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise SettingsError(f"a policy must be one of {', '.join(POLICIES)}, got {name!r}.{meant}")
    known = SETTINGS[name]
    if unknown := [setting for setting in settings if setting not in known]:
        raise SettingsError(f"{name} has no setting {unknown[0]!r}. It has: {', '.join(known) or 'none'}.")
    return POLICIES[name](dim, kappa, seed, **settings)
