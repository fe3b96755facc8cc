"""Action sets D of a linear bandit, each with its best action G(theta), the x in D of largest theta'x.

PEGE needs a smooth G: (A5) asks that it be J-Lipschitz. As G(a theta) = G(theta) for every a > 0, this can
only be meant for directions: ``||G(u) - G(v)|| <= J ||u - v||`` for u and v of length one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np
import numpy.typing as npt

from driftls.environments import Environment, Settings
from driftls.errors import DimensionError, InputError, SettingsError

__all__ = ["ActionSet", "Ball", "Ellipsoid", "GivenSet", "LinearBandit", "Sphere"]

Array = npt.NDArray[np.float64]


class ActionSet(ABC):
    """A compact set of actions in R^dim."""

    dim: int

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """J of (A5)."""

    @property
    @abstractmethod
    def max_norm(self) -> float:
        """The length of the longest action; bounded features (A2) ask for at most 1."""

    @abstractmethod
    def basis(self) -> Array:
        """The d actions b_1 ... b_d, as rows, that span R^d: what PEGE explores with (A4')."""

    @abstractmethod
    def _best(self, direction: Array) -> Array: ...

    @property
    def lambda_min(self) -> float:
        """lambda_PEGE, the smallest eigenvalue of b_1 b_1' + ... + b_d b_d'."""
        return float(np.linalg.svd(self.basis(), compute_uv=False)[-1] ** 2)

    def best(self, theta: npt.ArrayLike) -> Array:
        """G(theta). When theta = 0 all actions are best, and the answer is that for e_1."""
        direction = np.array(theta, dtype=float)
        if direction.shape != (self.dim,):
            raise DimensionError(f"theta has shape {direction.shape}, but the actions have dim={self.dim}.")
        if not np.isfinite(direction).all():
            raise InputError("theta is not finite, so it has no best action. Check the estimate.")
        if not direction.any():
            direction[0] = 1.0
        direction /= np.abs(direction).max()  # else the squares of tiny entries vanish, those of huge ones overflow
        return self._best(direction / np.linalg.norm(direction))


@dataclass(frozen=True)
class Sphere(ActionSet):
    """All x with ``||x|| = radius``: G(theta) = radius theta/||theta||, and J = radius.

    >>> Sphere(2).best([3.0, 4.0])
    array([0.6, 0.8])
    """

    dim: int
    radius: float = 1.0

    def __post_init__(self) -> None:
        if self.dim < 1 or not 0.0 < self.radius < np.inf:
            raise SettingsError(f"Expected dim >= 1 and a positive radius, got {self.dim} and {self.radius}.")

    @property
    def lipschitz(self) -> float:
        """J = radius."""
        return self.radius

    @property
    def max_norm(self) -> float:
        """The radius."""
        return self.radius

    def basis(self) -> Array:
        """The unit vectors, times the radius."""
        return self.radius * np.eye(self.dim)

    def _best(self, direction: Array) -> Array:
        return self.radius * direction


class Ball(Sphere):
    """All x with ``||x|| <= radius``. A linear reward is largest on the boundary, so G is the sphere's.

    >>> Ball(2, radius=0.5).best([0.0, 7.0])
    array([0. , 0.5])
    """


@dataclass(frozen=True, eq=False)
class Ellipsoid(ActionSet):
    """All x with ``x' Q^-1 x <= 1``, for Q symmetric and positive definite.

    G(theta) = Q theta/sqrt(theta'Q theta), and J = lambda_max(Q)/sqrt(lambda_min(Q)).

    >>> Ellipsoid(np.diag([1.0, 0.25])).best([0.0, 2.0])
    array([0. , 0.5])
    """

    Q: Array
    dim: int = field(init=False)

    def __post_init__(self) -> None:
        Q = _frozen(self, "Q", self.Q)
        if len(set(Q.shape)) > 1 or not np.array_equal(Q, Q.T) or not np.linalg.eigvalsh(Q)[0] > 0.0:
            raise SettingsError("Q must be symmetric and positive definite: the set is x' Q^-1 x <= 1.")

    @property
    def lipschitz(self) -> float:
        """J = lambda_max(Q)/sqrt(lambda_min(Q))."""
        values = np.linalg.eigvalsh(self.Q)
        return float(values[-1] / np.sqrt(values[0]))

    @property
    def max_norm(self) -> float:
        """The longest half-axis."""
        return float(np.sqrt(np.linalg.eigvalsh(self.Q)[-1]))

    def basis(self) -> Array:
        """The half-axes."""
        values, vectors = np.linalg.eigh(self.Q)
        return np.asarray((vectors * np.sqrt(values)).T)

    def _best(self, direction: Array) -> Array:
        towards = self.Q @ direction
        return np.asarray(towards / np.sqrt(direction @ towards))


@dataclass(frozen=True, eq=False)
class GivenSet(ActionSet):
    """Any other set, given by its ``G``, d actions ``b`` that span R^d (as rows), and its ``J``.

    ``G`` is called with theta scaled to length one; ``longest`` is the length of the longest action. Leave
    out ``J`` where (A5) does not hold or is not needed.

    >>> cube = GivenSet(np.sign, b=np.array([[1.0, 1.0], [1.0, -1.0]]), longest=2**0.5)
    >>> cube.best([3.0, -4.0])
    array([ 1., -1.])
    """

    G: Callable[[Array], Array]
    b: Array
    longest: float
    J: float | None = None
    dim: int = field(init=False)

    def __post_init__(self) -> None:
        b = _frozen(self, "b", self.b)
        if len(set(b.shape)) > 1 or np.linalg.matrix_rank(b) < len(b):
            raise SettingsError(f"b must hold d independent actions of R^d as rows; its shape is {b.shape}.")

    @property
    def lipschitz(self) -> float:
        """J, if it was given."""
        if self.J is None:
            raise SettingsError("(A5) asks for a J-Lipschitz G, and no J was given. Pass J=... if G has one.")
        return self.J

    @property
    def max_norm(self) -> float:
        """The length that was given."""
        return self.longest

    def basis(self) -> Array:
        """The basis that was given."""
        return self.b.copy()

    def _best(self, direction: Array) -> Array:
        return np.asarray(self.G(direction), dtype=float)


class LinearBandit(Environment):
    """A linear bandit on an action set: in each round any x of the set can be chosen.

    >>> env = LinearBandit(Sphere(3), reward="bounded", seed=1)
    >>> x = env.actions.best(env.theta(1))
    >>> env.bounded, round(env.best(1) - env.mean(1, x), 9)
    (True, 0.0)
    """

    def __init__(self, actions: ActionSet, **settings: Unpack[Settings]) -> None:
        super().__init__(actions.dim, **settings)
        if self.bernoulli:
            raise SettingsError("On an action set means can leave [0, 1]: take gaussian or bounded rewards.")
        self.actions, self.max_norm = actions, actions.max_norm

    def mean(self, n: int, x: Array) -> float:
        """The mean reward of x in round n, x'theta*_n."""
        if np.shape(x) != (self.dim,):
            raise DimensionError(f"x has shape {np.shape(x)}, but the actions have dim={self.dim}.")
        return float(x @ self.theta(n))

    def reward(self, n: int, x: Array) -> float:
        """The reward of action x in round n."""
        return self._observe(n, self.mean(n, x))

    def best(self, n: int) -> float:
        """The largest mean reward in round n, that of G(theta*_n)."""
        theta = self.theta(n)
        return float(self.actions.best(theta) @ theta)


def _frozen(owner: ActionSet, name: str, value: npt.ArrayLike) -> Array:
    """Replace a field of a frozen set by a read-only copy of its own."""
    matrix = np.array(value, dtype=float)
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
        raise SettingsError(f"{name} must be a matrix of finite numbers, got shape {matrix.shape}.")
    matrix.flags.writeable = False
    object.__setattr__(owner, name, matrix)
    object.__setattr__(owner, "dim", matrix.shape[1])
    return matrix
