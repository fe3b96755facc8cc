"""The paper's named algorithms with the paper's own settings.

Korda, Prashanth, Munos: *Fast gradient descent for drifting least squares regression, with application to bandits*.
What differs from our defaults, and why, is in docs/readings.md.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from driftls.draws import Seed
from driftls.errors import SettingsError
from driftls.history import Growing
from driftls.paper.actions import ActionSet
from driftls.paper.pege import PEGE
from driftls.paper.theory import Bounds
from driftls.policies import LinUCB
from driftls.policies.registry import Maker, register
from driftls.schedules import Power, ridge
from driftls.trackers import GD, OLS, RAW, RLS, SAG, SVRG
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
    return PEGE(actions, OLS(actions.dim, intercept=False))


def fpege_gd(
    actions: ActionSet, *, step: Literal["averaged", "theorem", "printed"] = "theorem", seed: Seed = None
) -> PEGE:
    """fPEGE-GD: theta is followed by stochastic gradient descent on the exploration rounds, O(d) each.

    "theorem": fOLS-GD with Theorem 2's c/(4(c+n)), c = 6d/lambda_PEGE, for actions of length at most 1, as (A2) asks.
    "printed": fOLS-GD with c/n, c = 4d/(3 lambda_PEGE), as in the algorithm's box; it blows up in the first phases.
    "averaged" is ours: constant steps of 1/(2||x||^2), each on the newest row, and the mean of all iterates; it needs no
    mu, keeps no rows and draws none. `seed` is that of the rows that fOLS-GD draws.
    """
    if step not in ("averaged", "theorem", "printed"):
        raise SettingsError(f'step must be "averaged", "theorem" or "printed", got {step!r}.')
    if step == "averaged":
        averaged: dict[str, Any] = {"step_size": 0.5, "newest": True, "averaging": "polyak"}
        return PEGE(actions, GD(actions.dim, regularisation=0.0, **averaged, **RAW))
    if step == "theorem" and actions.max_norm > 1.0 + 1e-12:
        raise SettingsError(
            f"Theorem 2's step needs actions of length at most 1 (A2); these reach {actions.max_norm:.4g}. "
            'Scale them, or use step="averaged", which adapts to their length.'
        )
    c, box = Bounds.of_pege(actions.dim, actions.lambda_min).c, 4.0 * actions.dim / (3.0 * actions.lambda_min)
    size = Power(c / 4.0, c, 1.0) if step == "theorem" else Power(box, 0.0, 1.0)
    guard = step == "theorem"  # it would refuse the printed one's first steps, too large by far
    return PEGE(
        actions, GD(actions.dim, step_size=size, regularisation=0.0, averaging=None, guard=guard, **_printed(seed))
    )


POLICIES: dict[str, Maker] = {
    make.__name__.replace("_", "-"): make for make in (linucb, flinucb_gd, flinucb_svrg, flinucb_sag)
}
for _name, _make in POLICIES.items():
    register(_name, _make)
