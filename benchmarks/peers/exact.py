"""The exact method at its best, each in the way that suits a problem: NumPy, BLAS and Numba, nothing of driftls.

All keep A^-1 = (ridge I + sum x x')^-1 or an equal of it, and score theta.x + kappa sqrt(x' A^-1 x).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import blas


class Shared:
    """One theta over arms: `_score` gives means and squared widths, `_enter` takes a row."""

    dtype: Any = np.float64

    def __init__(self, problem: Any, seed: int, *, kappa: float = 0.3, ridge: float = 1.0) -> None:
        self.dim, self.kappa, self.ridge = problem.dim, kappa, ridge
        self.regression = problem.kind == "regression"
        self.theta = np.zeros(self.dim, self.dtype)
        self._begin()

    def _begin(self) -> None:
        # Fortran's order, in which BLAS works in place
        self.inverse = np.asfortranarray(np.eye(self.dim, dtype=self.dtype) / self.dtype(self.ridge))

    def prepare(self, given: Any) -> Any:
        """Dense, in the player's own precision: untimed."""
        arms = given.arms if isinstance(given.arms, np.ndarray) else given.arms.toarray()
        return np.ascontiguousarray(arms[0] if self.regression else arms, dtype=self.dtype)

    def choose(self, arms: Any) -> Any:
        if self.regression:
            return self.theta @ arms
        means, widths2 = self._score(arms)
        return np.argmax(means + self.kappa * np.sqrt(np.maximum(widths2, 0.0)))

    def learn(self, arms: Any, k: int, reward: float) -> None:
        if self.regression:
            self._enter(arms, self._times(arms), reward)
        else:
            self._enter(arms[k], self.products[k], reward)  # A^-1 x is left from scoring

    def _score(self, arms: Any) -> tuple[Any, Any]:
        self.products = self._times(arms)
        return arms @ self.theta, np.einsum("kd,kd->k", self.products, arms)

    def _times(self, arms: Any) -> Any:
        return arms @ self.inverse  # symmetric

    def _enter(self, x: Any, v: Any, reward: float) -> None:
        scale = 1.0 / (1.0 + float(x @ v))
        error = reward - float(self.theta @ x)
        self.theta += self.dtype(scale * error) * v
        self._downdate(v, scale)

    def _downdate(self, v: Any, scale: float) -> None:
        blas.dger(-scale, v, v, a=self.inverse, overwrite_a=True)


class ShermanMorrison(Shared):
    """A^-1 by a rank-one update a row, on BLAS."""


class ShermanMorrison32(Shared):
    """The same in single precision: half the memory traffic."""

    dtype = np.float32

    def _downdate(self, v: Any, scale: float) -> None:
        blas.sger(-scale, v, v, a=self.inverse, overwrite_a=True)


class Inversion(Shared):
    """A itself, and a new inverse every round: what a textbook writes."""

    def _begin(self) -> None:
        self.sums, self.moments = self.ridge * np.eye(self.dim), np.zeros(self.dim)

    def choose(self, arms: Any) -> Any:
        self.inverse = np.linalg.inv(self.sums)
        self.theta = self.inverse @ self.moments
        return super().choose(arms)

    def learn(self, arms: Any, k: int, reward: float) -> None:
        x = arms if self.regression else arms[k]
        self.sums += np.outer(x, x)
        self.moments += reward * x


class Batched(Shared):
    """Woodbury: rows wait in a thin matrix, and enter A^-1 32 at a time by one matrix product.

    Exact in every round: what waits is taken off the widths as it is, A^-1 = B - U'U with U of at most 32 rows.
    """

    batch = 32

    def _begin(self) -> None:
        super()._begin()
        self.waiting, self.held = np.zeros((self.batch, self.dim)), 0

    def _times(self, arms: Any) -> Any:
        u = self.waiting[: self.held]
        return arms @ self.inverse - (arms @ u.T) @ u

    def _downdate(self, v: Any, scale: float) -> None:
        self.waiting[self.held] = np.sqrt(scale) * v
        self.held += 1
        if self.held == self.batch:
            # C order of a symmetric matrix is Fortran's order: dgemm adds in place
            blas.dgemm(-1.0, self.waiting.T, self.waiting.T, trans_b=True, beta=1.0, c=self.inverse, overwrite_c=True)
            self.held = 0


class Gram:
    """A pool that never changes, in Gram space: X A^-1 X', O(K^2) a round whatever the dimension."""

    def __init__(self, problem: Any, seed: int, *, kappa: float = 0.6, ridge: float = 1.0) -> None:
        self.kappa, self.ridge = kappa, ridge
        self.gram: Any = None

    def prepare(self, given: Any) -> None:
        if self.gram is None:
            self.gram = np.asfortranarray(given.arms @ given.arms.T / self.ridge)
            self.means, self.widths2 = np.zeros(len(given.arms)), self.gram.diagonal()

    def choose(self, given: None) -> Any:
        return np.argmax(self.means + self.kappa * np.sqrt(np.maximum(self.widths2, 0.0)))

    def learn(self, given: None, k: int, reward: float) -> None:
        column = self.gram[:, k].copy()
        scale = 1.0 / (1.0 + column[k])
        self.means += scale * (reward - self.means[k]) * column
        blas.dger(-scale, column, column, a=self.gram, overwrite_a=True)


@cache
def compiled() -> tuple[Any, Any, Any]:
    """`best`, `enter` and `day`, by Numba and not by ours: importing this file must not need it."""
    import numba

    jit = numba.njit(fastmath=True, error_model="numpy")

    @jit
    def best(inverse: Any, theta: Any, slots: Any, start: Any, index: Any, value: Any, kappa: float) -> int:
        """The best of the arms `start` (one row for all, if it is one) in the models `slots`: nnz^2/2 an arm."""
        chosen, highest = 0, -np.inf
        for k in range(slots.size):
            row = k if start.size > 2 else 0
            mean, width2, matrix, a, b = 0.0, 0.0, inverse[slots[k]], start[row], start[row + 1]
            for p in range(a, b):
                line, part = matrix[index[p]], 0.0
                for q in range(p + 1, b):  # symmetric
                    part += value[q] * line[index[q]]
                width2 += value[p] * (2.0 * part + value[p] * line[index[p]])
                mean += value[p] * theta[slots[k], index[p]]
            score = mean + kappa * np.sqrt(max(width2, 0.0))
            if score > highest:
                chosen, highest = k, score
        return chosen

    @jit
    def enter(matrix: Any, theta: Any, index: Any, value: Any, reward: float, v: Any) -> None:
        """Sherman-Morrison with a sparse row."""
        v[:] = 0.0
        error, width2 = reward, 0.0
        for p in range(index.size):
            error -= value[p] * theta[index[p]]
            line = matrix[index[p]]
            for j in range(v.size):
                v[j] += value[p] * line[j]
        for p in range(index.size):
            width2 += value[p] * v[index[p]]
        scale = 1.0 / (1.0 + width2)
        for i in range(v.size):
            theta[i] += scale * error * v[i]
            factor, line = scale * v[i], matrix[i]
            for j in range(v.size):
                line[j] -= factor * v[j]

    @jit
    def day(inverse: Any, theta: Any, slots: Any, log: Any, users: Any, kappa: float, sums: Any, b: Any) -> Any:
        """Lines of a log, learned where it shows what is chosen; with `sums`, by inversion at each match."""
        (start, pool, shown, reward), (user_start, index, value) = log, users
        matches, won, v = 0, 0.0, np.zeros(theta.shape[1])
        for i in range(pool.size):
            offered = slots[start[pool[i]] : start[pool[i] + 1]]
            user = user_start[i : i + 2]
            if best(inverse, theta, offered, user, index, value, kappa) != shown[i]:
                continue
            matches, won = matches + 1, won + reward[i]
            a, x, value_x = offered[shown[i]], index[user[0] : user[1]], value[user[0] : user[1]]
            if sums.size == 0:
                enter(inverse[a], theta[a], x, value_x, reward[i], v)
                continue
            for p in range(x.size):
                b[a, x[p]] += reward[i] * value_x[p]
                for q in range(x.size):
                    sums[a, x[p], x[q]] += value_x[p] * value_x[q]
            inverse[a] = np.linalg.inv(sums[a])
            theta[a] = np.dot(inverse[a], b[a])
        return matches, won

    return best, enter, day


class SparseScored:
    """Sherman-Morrison over sparse arms, compiled: an arm reads nnz^2 entries of A^-1."""

    def __init__(self, problem: Any, seed: int, *, kappa: float = 0.3, ridge: float = 1.0) -> None:
        self.kappa, (self.best, self.enter, _) = kappa, compiled()
        self.inverse, self.theta = np.eye(problem.dim)[None] / ridge, np.zeros((1, problem.dim))
        self.v = np.zeros(problem.dim)

    def prepare(self, given: Any) -> Any:
        arms = given.arms
        return np.zeros(arms.shape[0], np.int64), arms.indptr, arms.indices, arms.data

    def choose(self, arms: Any) -> Any:
        return self.best(self.inverse, self.theta, *arms, self.kappa)

    def learn(self, arms: Any, k: int, reward: float) -> None:
        _, start, index, value = arms
        part = slice(start[k], start[k + 1])
        self.enter(self.inverse[0], self.theta[0], index[part], value[part], reward, self.v)


class _Articles:
    """One model an article: slots of a growing stack of inverses, handed out as articles come."""

    room = 256

    def __init__(self, problem: Any, seed: int, *, kappa: float = 1.0, ridge: float = 60.0) -> None:
        self.dim, self.kappa, self.ridge = problem.dim, kappa, ridge
        self.slot_of: dict[int, int] = {}
        self.inverse = np.zeros((self.room, self.dim, self.dim))
        self.theta = np.zeros((self.room, self.dim))
        self.pool: Any = None

    def _slots(self, ids: Any) -> Any:
        if self.pool is None or self.pool[0] is not ids:
            for name in ids.tolist():
                if name not in self.slot_of:
                    self.slot_of[name] = len(self.slot_of)
                    self.inverse[self.slot_of[name]] = np.eye(self.dim) / self.ridge
            self.pool = ids, np.array([self.slot_of[name] for name in ids.tolist()])
        return self.pool[1]


class ArticlesOnBlas(_Articles):
    """Sherman-Morrison on BLAS, dense users, one product for each article."""

    def prepare(self, given: Any) -> Any:
        return given.ids, given.user.toarray()[0]

    def choose(self, given: Any) -> Any:
        slots, x = self._slots(given[0]), given[1]
        self.products = [self.inverse[slot] @ x for slot in slots]
        widths2 = np.array(self.products) @ x
        return np.argmax(self.theta[slots] @ x + self.kappa * np.sqrt(np.maximum(widths2, 0.0)))

    def learn(self, given: Any, k: int, reward: float) -> None:
        slot, x, v = self.pool[1][k], given[1], self.products[k]
        scale = 1.0 / (1.0 + x @ v)
        self.theta[slot] += scale * (reward - self.theta[slot] @ x) * v
        blas.dger(-scale, v, v, a=self.inverse[slot].T, overwrite_a=True)


class ArticlesSparse(_Articles):
    """Sherman-Morrison, compiled: a sparse user reads nnz^2 entries of each article's inverse."""

    def __init__(self, problem: Any, seed: int, *, kappa: float = 1.0, ridge: float = 60.0) -> None:
        super().__init__(problem, seed, kappa=kappa, ridge=ridge)
        self.best, self.enter, _ = compiled()
        self.v = np.zeros(self.dim)

    def prepare(self, given: Any) -> Any:
        return given.ids, given.user.indptr, given.user.indices, given.user.data

    def choose(self, given: Any) -> Any:
        return self.best(self.inverse, self.theta, self._slots(given[0]), *given[1:], self.kappa)

    def learn(self, given: Any, k: int, reward: float) -> None:
        slot = self.pool[1][k]
        self.enter(self.inverse[slot], self.theta[slot], given[2], given[3], reward, self.v)


class Classes:
    """LinUCB in twenty lines: one model for each class of a table, of dense rows with a constant."""

    def __init__(self, problem: Any, seed: int, *, kappa: float, ridge: float) -> None:
        self.kappa, self.theta = kappa, np.zeros((problem.arms, problem.dim + 1))
        self.inverse = np.repeat(np.eye(problem.dim + 1)[None] / ridge, problem.arms, axis=0)

    def prepare(self, given: Any) -> Any:
        return np.append(1.0, given.user)

    def choose(self, x: Any) -> Any:
        self.products = self.inverse @ x
        return np.argmax(self.theta @ x + self.kappa * np.sqrt(np.maximum(self.products @ x, 0.0)))

    def learn(self, x: Any, k: int, reward: float) -> None:
        v = self.products[k]
        scale = 1.0 / (1.0 + x @ v)
        self.theta[k] += scale * (reward - self.theta[k] @ x) * v
        self.inverse[k] -= np.outer(scale * v, v)


class Ridge(ShermanMorrison):
    """Exact least squares of dense rows with a constant, which is hardly held back."""

    def __init__(self, problem: Any, seed: int, *, ridge: float) -> None:
        super().__init__(problem._replace(dim=problem.dim + 1), seed, ridge=ridge)
        self.inverse[0, 0] = 1e6

    def prepare(self, given: Any) -> Any:
        return np.append(1.0, given.arms[0])


class RunningMean:
    """Predicts the mean of what it has seen."""

    def __init__(self, problem: Any, seed: int) -> None:
        self.total, self.count = 0.0, 0

    def prepare(self, given: Any) -> None:
        return None

    def choose(self, given: None) -> float:
        return self.total / max(self.count, 1)

    def learn(self, given: None, k: int, reward: float) -> None:
        self.total, self.count = self.total + reward, self.count + 1


PLAYERS = {
    each.__name__: each
    for each in (
        ShermanMorrison, ShermanMorrison32, Inversion, Batched, Gram, SparseScored, ArticlesOnBlas, ArticlesSparse,
        Classes, Ridge, RunningMean,
    )
}  # fmt: skip
