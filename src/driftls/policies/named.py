"""Policies by name, with the settings that we recommend; those of the paper have theirs in `driftls.paper`.

Every maker takes the dimension, kappa (None: estimated from the data) and a seed, which sets the policy's chance and
its tracker's draws.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import numpy as np

from driftls import persistence
from driftls.draws import Seed
from driftls.errors import FileFormatError, SettingsError
from driftls.policies.bandit import Bandit
from driftls.policies.base import Policy
from driftls.policies.disjoint import DisjointLinUCB
from driftls.policies.linucb import LinUCB
from driftls.policies.others import EnsembleTS, Greedy, LinTS, Random
from driftls.trackers import CD, RLS, SAGA
from driftls.widths import DiagonalWidth, PhiWidth

__all__ = ["POLICIES", "Maker", "load", "make", "one_model_an_article"]

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
