"""Exact LinUCB as one writes it in NumPy: what a fast method has to beat."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyr

__all__ = ["BASELINES"]

Array = NDArray[np.float64]


class ShermanMorrison:
    """A rank-one update of the inverse a round, O(d^2); the widths of all arms by one product of matrices."""

    def __init__(self, dim: int, *, kappa: float = 1.0) -> None:
        self.kappa, self.A, self.b, self.theta = kappa, np.eye(dim), np.zeros(dim), np.zeros(dim)
        self.inverse = np.asfortranarray(np.eye(dim))

    def choose(self, arms: Array) -> int:
        """The arm of the highest upper confidence bound."""
        widths = np.sqrt(np.einsum("kd,kd->k", arms @ self.inverse, arms))
        return int(np.argmax(arms @ self.theta + self.kappa * widths))

    def learn(self, x: Array, reward: float) -> None:
        """Take in a row."""
        self._invert(x)
        self.b += reward * x
        self.theta = self.inverse @ self.b

    def _invert(self, x: Array) -> None:
        v = self.inverse @ x
        diagonal = self.inverse.diagonal() - v * v / (1.0 + x @ v)
        for lower in (0, 1):  # both triangles: the product of matrices in `choose` reads all of it
            dsyr(-1.0 / (1.0 + x @ v), v, a=self.inverse, lower=lower, overwrite_a=1)
        np.fill_diagonal(self.inverse, diagonal)


class Inversion(ShermanMorrison):
    """A new inverse a round, O(d^3): what the paper's run times were compared with."""

    def _invert(self, x: Array) -> None:
        self.A += np.outer(x, x)
        self.inverse = np.asarray(np.linalg.inv(self.A), dtype=np.float64)


BASELINES: dict[str, Any] = {"inversion": Inversion, "Sherman-Morrison on BLAS": ShermanMorrison}
