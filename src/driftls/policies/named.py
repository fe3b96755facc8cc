"""Policies by name, with the settings that we recommend; those of the paper have theirs in `driftls.paper`.

Every maker takes the dimension, kappa (None: estimated from the data) and a seed, which sets the policy's chance and
its tracker's draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from driftls.draws import Seed
from driftls.errors import SettingsError
from driftls.policies.base import Policy
from driftls.policies.linucb import LinUCB
from driftls.policies.others import EnsembleTS, Greedy, LinTS, Random
from driftls.trackers import CD, RLS, SAGA
from driftls.widths import PhiWidth

__all__ = ["POLICIES", "Maker", "make"]

Maker = Callable[[int, float | None, Seed], Policy]


def _saga(dim: int, kappa: float | None, seed: Seed) -> Policy:
    first, second = np.random.default_rng(seed).spawn(2)
    return LinUCB(tracker=SAGA(dim, seed=first), width=PhiWidth(), kappa=kappa, seed=second)


POLICIES: dict[str, Maker] = {
    "flinucb-saga": _saga,
    "flinucb-cd": lambda dim, kappa, seed: LinUCB(tracker=CD(dim), width=PhiWidth(method="cd"), kappa=kappa, seed=seed),
    "linucb-auto": lambda dim, kappa, seed: LinUCB(dim, kappa=kappa, seed=seed),
    "lints": lambda dim, kappa, seed: LinTS(dim, kappa=kappa, seed=seed),
    "ensemble-ts": lambda dim, kappa, seed: EnsembleTS(dim, kappa=kappa, seed=seed),
    "greedy": lambda dim, kappa, seed: Greedy(RLS(dim), seed=seed),
    "epsilon-greedy": lambda dim, kappa, seed: Greedy(RLS(dim), epsilon=0.1, seed=seed),
    "random": lambda dim, kappa, seed: Random(dim, seed=seed),
}


def make(
    name: str, dim: int, *, kappa: float | None = None, seed: Seed = None, table: Mapping[str, Maker] = POLICIES
) -> Policy:
    """The policy of this name.

    Examples
    --------
    >>> make("epsilon-greedy", 3).epsilon
    0.1
    """
    if name not in table:
        raise SettingsError(f"{name!r} is not one of {', '.join(table)}.")
    return table[name](dim, kappa, seed)
