"""Policies by name, with the settings that we recommend; those of the paper have theirs in `driftls.paper`.

Every maker takes the dimension, kappa (None: estimated from the data), a seed, which sets the policy's chance and
its tracker's draws, and the further knobs that `KNOBS` lists.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from driftls import persistence
from driftls.draws import Seed
from driftls.errors import FileFormatError, SettingsError
from driftls.policies.bandit import Bandit
from driftls.policies.base import Policy
from driftls.policies.disjoint import DisjointLinUCB
from driftls.policies.linucb import LinUCB
from driftls.policies.others import EnsembleTS, Greedy, LinTS, Random
from driftls.schedules import ridge
from driftls.trackers import CD, RLS, SAGA
from driftls.widths import DiagonalWidth, PhiWidth

__all__ = ["KNOBS", "POLICIES", "Maker", "load", "make", "one_model_an_article"]

Maker = Callable[..., Policy]


def _of_tracker(knobs: dict[str, Any]) -> dict[str, Any]:
    """Take the tracker's settings out of the knobs; `ridge` is n lambda_n."""
    settings = {name: knobs.pop(name) for name in ("steps", "discount") if name in knobs}
    return settings | ({"regularisation": ridge(knobs.pop("ridge"))} if "ridge" in knobs else {})


def _saga(dim: int, kappa: float | None, seed: Seed, **knobs: Any) -> Policy:
    first, second = np.random.default_rng(seed).spawn(2)
    tracker = SAGA(dim, seed=first, history=knobs.pop("history", None), **_of_tracker(knobs))
    return LinUCB(tracker=tracker, width=PhiWidth(), kappa=kappa, seed=second, **knobs)


def _cd(dim: int, kappa: float | None, seed: Seed, **knobs: Any) -> Policy:
    tracker = CD(dim, **_of_tracker(knobs))
    return LinUCB(tracker=tracker, width=PhiWidth(method="cd"), kappa=kappa, seed=seed, **knobs)


def _over_dim(kind: Callable[..., Policy]) -> Maker:
    """A policy that makes its tracker itself."""
    return lambda dim, kappa, seed, **knobs: kind(dim, kappa=kappa, seed=seed, **_of_tracker(knobs), **knobs)


def _greedy(dim: int, kappa: float | None, seed: Seed, **knobs: Any) -> Policy:
    return Greedy(RLS(dim, **_of_tracker(knobs)), seed=seed, **knobs)


POLICIES: dict[str, Maker] = {
    "flinucb-saga": _saga,
    "flinucb-cd": _cd,
    "linucb-auto": _over_dim(LinUCB),
    "lints": _over_dim(LinTS),
    "ensemble-ts": _over_dim(EnsembleTS),
    "greedy": _greedy,
    "epsilon-greedy": lambda dim, kappa, seed, **knobs: _greedy(dim, kappa, seed, **{"epsilon": 0.1, **knobs}),
    "random": lambda dim, kappa, seed: Random(dim, seed=seed),
}

_UCB: dict[str, type] = {"kappa": float, "sigmas": float, "epsilon": float, "ridge": float}
# What can be set, and whether it is a whole number; the paper's policies have kappa alone.
KNOBS: dict[str, dict[str, type]] = {
    "flinucb-saga": {**_UCB, "steps": int},
    "flinucb-cd": {**_UCB, "steps": int, "discount": float},
    "linucb-auto": _UCB,
    "lints": _UCB,
    "ensemble-ts": {**_UCB, "steps": int, "members": int},
    "greedy": {"ridge": float},
    "epsilon-greedy": {"ridge": float, "epsilon": float},
    "random": {},
}


def load(path: str | os.PathLike[str]) -> Bandit:
    """A saved policy, of whichever kind the file holds."""
    header, arrays = persistence.read(path)
    kinds: dict[str, type[Bandit]] = {
        kind.__name__: kind for kind in (DisjointLinUCB, EnsembleTS, Greedy, LinTS, LinUCB, Policy, Random)
    }
    if header.get("class") not in kinds:
        raise FileFormatError(f"{path}: holds a {header.get('class')}, not one of {', '.join(kinds)}.")
    return kinds[header["class"]].from_snapshot(header, arrays)


def one_model_an_article(policy: Policy, seed: Seed = None) -> DisjointLinUCB:
    """The same tracker, width and weights, with a model of its own for every arm id.

    A width that keeps something for every recurring arm gives way to the diagonal one, since a model sees users, who
    do not recur; the paper's printed phi stays, and takes its steps afresh for every user.

    Examples
    --------
    >>> one_model_an_article(make("flinucb-saga", 136)).width
    DiagonalWidth()
    """
    width, kappa = policy.width, policy.kappa if policy.sigmas is None else None
    if isinstance(width, PhiWidth) and width.method != "printed":
        width = DiagonalWidth()
    sigmas = 1.0 if policy.sigmas is None else policy.sigmas
    return DisjointLinUCB(
        policy.dim, tracker=policy.tracker, width=width, kappa=kappa, sigmas=sigmas, epsilon=policy.epsilon, seed=seed
    )


def make(
    name: str,
    dim: int,
    *,
    kappa: float | None = None,
    seed: Seed = None,
    table: Mapping[str, Maker] = POLICIES,
    **knobs: float,
) -> Policy:
    """The policy of this name.

    Examples
    --------
    >>> make("epsilon-greedy", 3, ridge=10.0).epsilon
    0.1
    """
    if name not in table:
        raise SettingsError(f"{name!r} is not one of {', '.join(table)}.")
    known = KNOBS.get(name, {"kappa": float})
    if unknown := [knob for knob in knobs if knob not in known]:
        raise SettingsError(f"{name} has no knob {unknown[0]!r}. It has: {', '.join(known) or 'none'}.")
    return table[name](dim, kappa, seed, **knobs)
