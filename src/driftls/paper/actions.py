"""Action sets D of a linear bandit, each with its best action G(theta), the x in D of largest theta'x; and the bandit.

PEGE needs a smooth G: (A5) asks that it be J-Lipschitz. As G(a theta) = G(theta) for every a > 0, this can
only be meant for directions: ``||G(u) - G(v)|| <= J ||u - v||`` for u and v of length one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from driftls.environments import Environment
from driftls.errors import DimensionError, InputError, SettingsError
from driftls.inputs import as_whole

__all__ = ["ActionSet", "Ball", "Ellipsoid", "LinearBandit", "Sphere"]

Array = npt.NDArray[np.float64]


class ActionSet:
    """A compact set of actions in R^d, given by its best action.

    G gives the best action for a direction of length one, and J is its Lipschitz constant, where (A5) holds. The rows of
    `b` are d actions that span R^d: what PEGE explores with (A4'). `longest` is the length of the longest action; bounded
    features (A2) ask for at most 1.

    >>> cube = ActionSet(np.sign, [[1.0, 1.0], [1.0, -1.0]], longest=2**0.5)
    >>> cube.best([3.0, -4.0])
    array([ 1., -1.])
    """

    def __init__(
        self, G: Callable[[Array], Array], b: npt.ArrayLike, *, longest: float, J: float | None = None
    ) -> None:
        self._basis = _square("b", b)
        if np.linalg.matrix_rank(self._basis) < len(self._basis) or not longest > 0.0:
            raise SettingsError("b must hold d independent actions of R^d as rows, and the longest a positive length.")
        self.dim, self.max_norm = len(self._basis), float(longest)
        self._G, self._J = G, J

    @property
    def lipschitz(self) -> float:
        """J of (A5); raises where there is none."""
        if self._J is None:
            raise SettingsError("(A5) asks for a J-Lipschitz G, and no J was given. Pass J=... if G has one.")
        return self._J

    @property
    def lambda_min(self) -> float:
        """lambda_PEGE, the smallest eigenvalue of b_1 b_1' + ... + b_d b_d'."""
        return float(np.linalg.svd(self._basis, compute_uv=False)[-1] ** 2)

    def basis(self) -> Array:
        """b_1 ... b_d, as rows."""
        return self._basis.copy()

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
        return np.asarray(self._G(direction / np.linalg.norm(direction)), dtype=float)


class Sphere(ActionSet):
    """All x with ``||x|| = radius``: G(theta) = radius theta/||theta||, J = radius, and the axes as a basis.

    >>> Sphere(2).best([3.0, 4.0])
    array([0.6, 0.8])
    """

    def __init__(self, dim: int, radius: float = 1.0) -> None:
        axes = np.diag(np.full(as_whole(dim, "dim"), radius))
        super().__init__(lambda direction: radius * direction, axes, longest=radius, J=radius)


class Ball(Sphere):
    """All x with ``||x|| <= radius``. A linear reward is largest on the boundary, so G is the sphere's."""


class Ellipsoid(ActionSet):
    """All x with ``x' Q^-1 x <= 1``, for Q symmetric and positive definite; the basis are its half-axes.

    G(theta) = Q theta/sqrt(theta'Q theta), and J = lambda_max(Q)/sqrt(lambda_min(Q)).

    >>> Ellipsoid(np.diag([1.0, 0.25])).best([0.0, 2.0])
    array([0. , 0.5])
    """

    def __init__(self, Q: npt.ArrayLike) -> None:
        form = _square("Q", Q)
        values, vectors = np.linalg.eigh(form)
        if not np.array_equal(form, form.T) or not values[0] > 0.0:
            raise SettingsError("Q must be symmetric and positive definite: the set is x' Q^-1 x <= 1.")
        super().__init__(
            lambda direction: form @ direction / np.sqrt(direction @ form @ direction),
            (vectors * np.sqrt(values)).T,
            longest=float(np.sqrt(values[-1])),
            J=float(values[-1] / np.sqrt(values[0])),
        )


class LinearBandit(Environment):
    """A linear bandit on an action set: in each round any x of the set can be chosen.

    >>> env = LinearBandit(Sphere(3), reward="bounded", seed=1)
    >>> x = env.actions.best(env.theta(1))
    >>> env.bounded, round(env.best(1) - env.mean(1, x), 9)
    (True, 0.0)
    """

    def __init__(self, actions: ActionSet, **settings: Any) -> None:
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
        return self.mean(n, x) + float(self.noise(n, 1)[0])

    def best(self, n: int) -> float:
        """The largest mean reward in round n, that of G(theta*_n)."""
        theta = self.theta(n)
        return float(self.actions.best(theta) @ theta)


def _square(name: str, value: npt.ArrayLike) -> Array:
    """A copy of one's own."""
    matrix = np.array(value, dtype=float)
    if matrix.ndim != 2 or len(set(matrix.shape)) > 1 or not matrix.size or not np.isfinite(matrix).all():
        raise SettingsError(f"{name} must be a square matrix of finite numbers, got shape {matrix.shape}.")
    return matrix
