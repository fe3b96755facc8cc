"""Exact LinUCB as one writes it in NumPy: what a fast method has to beat."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dger

__all__ = ["BASELINES"]

Array = NDArray[np.float64]


class DenseLinUCB:
    """LinUCB on dense rows: the inverse by a rank-one update a round, O(d^2), or `anew`, O(d^3), as in the paper."""

    def __init__(self, dim: int, *, kappa: float = 1.0, anew: bool = False) -> None:
        self.kappa, self.anew = kappa, anew
        self.A, self.b, self.theta = np.eye(dim), np.zeros(dim), np.zeros(dim)
        self.inverse = np.asfortranarray(np.eye(dim))

    def choose(self, arms: Array) -> int:
        """The arm of the highest upper confidence bound; the widths of all by one product of matrices."""
        widths = np.sqrt(np.einsum("kd,kd->k", arms @ self.inverse, arms))
        return int(np.argmax(arms @ self.theta + self.kappa * widths))

    def learn(self, x: Array, reward: float) -> None:
        """Take in a row."""
        if self.anew:
            self.A += np.outer(x, x)
            self.inverse = np.asarray(np.linalg.inv(self.A))
        else:
            v = self.inverse @ x
            dger(-1.0 / (1.0 + x @ v), v, v, a=self.inverse, overwrite_a=1)
        self.b += reward * x
        self.theta = self.inverse @ self.b


BASELINES: dict[str, Any] = {"inversion": partial(DenseLinUCB, anew=True), "Sherman-Morrison": DenseLinUCB}
