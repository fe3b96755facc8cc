"""The paper's named algorithms with the paper's own settings.

Korda, Prashanth, Munos: *Fast gradient descent for drifting least squares regression, with application to bandits*.
What differs from our defaults, and why, is in docs/readings.md.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from driftls.draws import Seed
from driftls.history import Growing
from driftls.paper.actions import ActionSet
from driftls.paper.pege import PEGE
from driftls.policies import LinUCB
from driftls.policies.registry import Maker, register
from driftls.schedules import Power, ridge
from driftls.trackers import GD, RAW, RLS, SAG, SVRG
from driftls.widths import ExactWidth, PhiWidth

__all__ = [
    "POLICIES", "flinucb_gd", "flinucb_sag", "flinucb_svrg", "fols_gd", "fpege_gd", "frls_gd", "frls_sag", "frls_svrg",
    "linucb", "pege", "sgd",
]  # fmt: skip

ALPHA = 0.6


def sgd(
    dim: int, step_size: Power, regularisation: Power | float, *, averaging: str | None = None, seed: Seed = None
) -> GD:
    """Stochastic gradient descent as the paper has it: one step a row, on one drawn from all rows."""
    return GD(dim, step_size=step_size, regularisation=regularisation, averaging=averaging, **_printed(seed))


def _printed(seed: Seed) -> dict[str, Any]:
    """One step a row, every row kept, in the caller's units."""
    return {"steps": 1, "history": Growing(), "seed": seed, **RAW}


def fols_gd(dim: int, *, mu: float, c: float | None = None, seed: Seed = None) -> GD:
    """fOLS-GD with Theorem 1's step c/(4(c+n)); mu is the smallest eigenvalue of A_n / n.

    >>> fols_gd(4, mu=0.25).step_size
    Power(3.0, 12.0, 1.0)
    """
    return sgd(dim, Power.theorem_one(mu, c), 0.0, seed=seed)


def frls_gd(dim: int, *, seed: Seed = None) -> GD:
    """fRLS-GD as in the table of settings: gamma_n = 1/(100+n), lambda_n = n^-(1-alpha), alpha = 0.6."""
    return sgd(dim, Power(1.0, 100.0, 1.0), Power(1.0, 0.0, 1.0 - ALPHA), seed=seed)


def frls_svrg(dim: int, *, seed: Seed = None) -> SVRG:
    """SVRG as printed and as in the table of settings: gamma_n = 0.0005, lambda_n = 1/n."""
    return SVRG(dim, step_size=Power(0.0005), regularisation=ridge(1.0), anchor="average", **_printed(seed))


def frls_sag(dim: int, *, seed: Seed = None) -> SAG:
    """SAG as in the table of settings: gamma_n = 0.005, lambda_n = 1/n."""
    return SAG(dim, step_size=Power(0.005), regularisation=ridge(1.0), **_printed(seed))


def linucb(dim: int, kappa: float | None = None, seed: Seed = None) -> LinUCB:
    """LinUCB, exactly, with ridge 1. The paper prints no kappa: 1 unless given, here and below.

    >>> linucb(4).width, linucb(4).kappa
    (ExactWidth(), 1.0)
    """
    tracker = RLS(dim, regularisation=ridge(1.0), **RAW)
    return LinUCB(tracker=tracker, width=ExactWidth(), kappa=1.0 if kappa is None else kappa, seed=seed)


def flinucb_gd(dim: int, kappa: float | None = None, seed: Seed = None) -> LinUCB:
    """fLinUCB-GD: fRLS-GD for theta, and phi as printed, with the same step size, for the width of every arm.

    Arms need ids, which tell whose phi is whose.
    """
    return _with_printed_phi(frls_gd, dim, kappa, seed)


def flinucb_svrg(dim: int, kappa: float | None = None, seed: Seed = None) -> LinUCB:
    """fLinUCB-SVRG: `frls_svrg` for theta, and phi as printed."""
    return _with_printed_phi(frls_svrg, dim, kappa, seed)


def flinucb_sag(dim: int, kappa: float | None = None, seed: Seed = None) -> LinUCB:
    """fLinUCB-SAG: `frls_sag` for theta, and phi as printed."""
    return _with_printed_phi(frls_sag, dim, kappa, seed)


def _with_printed_phi(scheme: Any, dim: int, kappa: float | None, seed: Seed) -> LinUCB:
    first, second = np.random.default_rng(seed).spawn(2)
    width = PhiWidth(steps=1, method="printed")
    return LinUCB(tracker=scheme(dim, seed=first), width=width, kappa=1.0 if kappa is None else kappa, seed=second)


def pege(actions: ActionSet) -> PEGE:
    """PEGE with the ordinary least squares of all exploration rounds, O(d^3) a phase; PEGE's default costs less."""
    return PEGE(actions, method="ols")


def fpege_gd(actions: ActionSet, *, step: Literal["theorem", "printed"] = "theorem", seed: Seed = None) -> PEGE:
    """fPEGE-GD: fOLS-GD on the exploration rounds, with Theorem 2's step or with the c/n of the algorithm's box.

    The box's step blows up in the first phases; see `PEGE.fast`, which also has averaged steps that need no mu.
    """
    return PEGE.fast(actions, step=step, seed=seed)


POLICIES: dict[str, Maker] = {
    make.__name__.replace("_", "-"): make for make in (linucb, flinucb_gd, flinucb_svrg, flinucb_sag)
}
for _name, _make in POLICIES.items():
    register(_name, _make)
