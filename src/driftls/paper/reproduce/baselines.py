"""Exact LinUCB as one writes it in NumPy: what a fast method has to beat."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyr

__all__ = ["BASELINES", "Inversion", "ShermanMorrison"]

Array = NDArray[np.float64]


class ShermanMorrison:
    """A rank-one update of the inverse a round, O(d^2); the widths of all arms by one product of matrices."""

    def __init__(self, dim: int, *, kappa: float = 1.0) -> None:
        self.kappa, self.b = kappa, np.zeros(dim)
        self.inverse = np.asfortranarray(np.eye(dim))
        self.theta = np.zeros(dim)

    def choose(self, arms: Array) -> int:
        """The arm of the highest upper confidence bound."""
        widths = np.sqrt(np.einsum("kd,kd->k", arms @ self.inverse, arms))
        return int(np.argmax(arms @ self.theta + self.kappa * widths))

    def learn(self, x: Array, reward: float) -> None:
        """Take in a row."""
        v = self.inverse @ x
        # both triangles: the product of matrices in `choose` reads all of it
        for lower in (0, 1):
            dsyr(-1.0 / (1.0 + x @ v), v, a=self.inverse, lower=lower, overwrite_a=1)
            if lower == 0:
                diagonal = self.inverse.diagonal().copy()
        np.fill_diagonal(self.inverse, diagonal)
        self.b += reward * x
        self.theta = self.inverse @ self.b


class Inversion(ShermanMorrison):
    """A new inverse a round, O(d^3): what the paper's run times were compared with."""

    def __init__(self, dim: int, *, kappa: float = 1.0) -> None:
        super().__init__(dim, kappa=kappa)
        self.A = np.eye(dim)

    def learn(self, x: Array, reward: float) -> None:
        """Take in a row."""
        self.A += np.outer(x, x)
        self.inverse = np.asarray(np.linalg.inv(self.A), dtype=np.float64)
        self.b += reward * x
        self.theta = self.inverse @ self.b


BASELINES: dict[str, Any] = {"inversion": Inversion, "Sherman-Morrison on BLAS": ShermanMorrison}
