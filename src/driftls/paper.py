"""The paper's named algorithms with the paper's own settings.

Korda, Prashanth, Munos: *Fast gradient descent for drifting least squares regression, with application to bandits*.
What differs from our defaults, and why, is in docs/readings.md.
"""

from __future__ import annotations

from typing import Literal

from driftls.actions import ActionSet
from driftls.draws import Seed
from driftls.errors import SettingsError
from driftls.history import History
from driftls.policies.pege import PEGE
from driftls.schedules import Power
from driftls.trackers import GD, SAG, SVRG

__all__ = ["fols_gd", "fpege_gd", "frls_gd", "frls_sag", "frls_svrg", "pege"]

ALPHA = 0.6


def fols_gd(dim: int, *, mu: float, c: float | None = None, history: History | None = None, seed: Seed = None) -> GD:
    """fOLS-GD with Theorem 1's step c/(4(c+n)); mu is the smallest eigenvalue of A_n / n.

    Examples
    --------
    >>> fols_gd(4, mu=0.25).step_size
    Power(scale=3.0, offset=12.0, exponent=1.0)
    """
    return GD(
        dim,
        step_size=Power.theorem_one(mu, c),
        regularisation=0.0,
        averaging=None,
        steps=1,
        history=history,
        seed=seed,
    )


def frls_gd(dim: int, *, history: History | None = None, seed: Seed = None) -> GD:
    """fRLS-GD as in the table of settings: gamma_n = 1/(100+n), lambda_n = n^-(1-alpha), alpha = 0.6."""
    return GD(
        dim,
        step_size=Power(1.0, 100.0, 1.0),
        regularisation=Power(1.0, 0.0, 1.0 - ALPHA),
        averaging=None,
        steps=1,
        history=history,
        seed=seed,
    )


def frls_svrg(dim: int, *, history: History | None = None, seed: Seed = None) -> SVRG:
    """SVRG as printed and as in the table of settings: gamma_n = 0.0005, lambda_n = 1/n."""
    return SVRG(
        dim,
        step_size=Power(0.0005),
        regularisation=Power(1.0, 0.0, 1.0),
        anchor="average",
        steps=1,
        history=history,
        seed=seed,
    )


def frls_sag(dim: int, *, history: History | None = None, seed: Seed = None) -> SAG:
    """SAG as in the table of settings: gamma_n = 0.005, lambda_n = 1/n."""
    return SAG(
        dim,
        step_size=Power(0.005),
        regularisation=Power(1.0, 0.0, 1.0),
        steps=1,
        history=history,
        seed=seed,
    )


def pege(actions: ActionSet) -> PEGE:
    """PEGE with the ordinary least squares of all exploration rounds, O(d^3) a phase; PEGE's default costs less.

    Examples
    --------
    >>> from driftls.actions import Sphere
    >>> pege(Sphere(3)).tracker.n
    0
    """
    return PEGE(actions, method="ols")


def fpege_gd(actions: ActionSet, *, step: Literal["theorem", "printed"] = "theorem", seed: Seed = None) -> PEGE:
    """fPEGE-GD: fOLS-GD on the exploration rounds, with Theorem 2's step or with the c/n of the algorithm's box.

    The box's step blows up in the first phases; see `PEGE.fast`, which also has averaged steps that need no mu.

    Examples
    --------
    >>> from driftls.actions import Sphere
    >>> fpege_gd(Sphere(3), step="printed").tracker.step_size
    Power(scale=4.0, offset=0.0, exponent=1.0)
    """
    if step not in ("theorem", "printed"):
        raise SettingsError(f'step must be "theorem" or "printed", got {step!r}: the paper has no other.')
    return PEGE.fast(actions, step=step, seed=seed)
