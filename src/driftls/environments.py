"""Simulated linear bandits with a known theta*: the reward of x in round n is x'theta*_n + xi_n.

Arms, noise and theta* of round n depend on the seed and on n alone: not on what a policy chose, nor on which
rounds were asked for before. So two policies on one seed meet the same luck, and a block of rounds, for a
compiled loop, holds what `round` and `reward` give one by one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from numpy.random import Generator, SeedSequence, default_rng
from scipy.sparse import csr_array

from driftls.draws import Seed, generator_of
from driftls.errors import DimensionError, InputError, SettingsError
from driftls.inputs import as_number, as_numbers, as_whole

__all__ = ["ChurningPool", "Environment", "FixedArms", "FreshContexts", "Jumps", "Pool", "Rotates"]

Array = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Draw = Callable[[Generator, int], Array]
TAG = 0xE7


class Round(NamedTuple):
    """The arms of one round, (K, d) dense or CSR; ``ids`` (K,) name them where arms recur, else None."""

    arms: Array | csr_array
    ids: Ids | None


class Block(NamedTuple):
    """Consecutive rounds as arrays; rounds that have the same ids have the same arms."""

    arms: Array | csr_array  # (count, K, d), or count K sparse rows
    ids: Ids | None  # (count, K)
    means: Array  # (count, K)
    rewards: Array  # (count, K), what each arm would bring


@dataclass(frozen=True)
class Jumps:
    """theta* takes a new direction, drawn uniformly, after every ``every`` rounds."""

    every: int


@dataclass(frozen=True)
class Rotates:
    """theta* turns in a plane, once around in ``period`` rounds."""

    period: float


class Environment:
    """Theta* and the noise, which all environments share.

    Parameters
    ----------
    reward : {"gaussian", "bounded", "bernoulli"}
        Bounded noise is uniform, with |xi| <= 1. Bernoulli rewards need means in [0, 1]: their first feature is
        constant, arms and theta* are (1, u)/sqrt(2) with ``||u|| = 1``, and a mean is (1 + u'u*)/2.
    sigma : float
        The standard deviation of the noise; without effect on Bernoulli rewards.
    theta, moves
        theta* of round 1, by default a uniform direction of length 1; how it moves, `Jumps` or `Rotates`.
    seed : int, SeedSequence or Generator
        Of a generator a child is used; None gives another environment each time.
    """

    max_norm = 1.0  # no arm is longer

    def __init__(
        self,
        dim: int,
        *,
        reward: Literal["gaussian", "bounded", "bernoulli"] = "gaussian",
        sigma: float = 0.3,
        theta: npt.ArrayLike | None = None,
        moves: Jumps | Rotates | None = None,
        seed: Seed = 0,
    ) -> None:
        if reward not in ("gaussian", "bounded", "bernoulli"):
            raise SettingsError(f'reward must be "gaussian", "bounded" or "bernoulli", got {reward!r}.')
        self.dim, self.kind, self.sigma, self.moves = as_whole(dim, "dim"), reward, as_number(sigma, "sigma"), moves
        if not 0.0 <= sigma < np.inf or (reward == "bounded" and sigma > 3**-0.5):
            raise SettingsError(f"sigma must be at least 0, and at most 0.577 if |xi| <= 1; got {sigma}.")
        if moves is not None and not isinstance(moves, Jumps | Rotates):
            raise SettingsError(f"moves must be Jumps(every) or Rotates(period), got {moves!r}.")
        if moves and not as_number(moves.every if isinstance(moves, Jumps) else moves.period, "a move's rounds") > 0:
            raise SettingsError(f"theta* can only move after a positive number of rounds, got {moves}.")
        self.bernoulli = reward == "bernoulli"
        self._free = dim - self.bernoulli  # the entries of u
        if self._free < 1 + isinstance(moves, Rotates):
            raise SettingsError(f"dim={dim} is too small for {reward} rewards and moves={moves}.")
        rng = seed.spawn(1)[0] if isinstance(seed, Generator) else generator_of(seed)
        self._seed = cast(SeedSequence, rng.bit_generator.seed_seq)
        self._thetas = _Stream(self._seed, 0, dim, lambda rng, size: _directions(rng, (size, self._free)))
        self._noise = _Stream(self._seed, 1, 1, self._draw_noise)
        self._first = self._thetas.take(0, 1)[0] if theta is None else _numbers(theta, "theta")
        if theta is not None and self.bernoulli:
            raise SettingsError("Bernoulli rewards need means in [0, 1] and draw their own theta*.")
        self._length = float(np.linalg.norm(self._first))
        if self._first.shape != (self._free,) or not 0.0 < self._length < np.inf:
            raise DimensionError(f"theta must be {dim} finite numbers, not all 0, got {self._first}.")

    @property
    def bounded(self) -> bool:
        """Whether ``||x|| <= 1`` and ``|xi| <= 1``, as (A2) and (A3) ask."""
        return self.kind != "gaussian" and self.max_norm <= 1.0 + 1e-12

    def theta(self, n: int) -> Array:
        """theta* of round n."""
        return np.asarray(self.thetas(n, 1)[0])

    def thetas(self, n: int, count: int) -> Array:
        """theta* of the rounds n ... n + count - 1, (count, d)."""
        n, count = as_whole(n, "a round"), as_whole(count, "count")
        first, length, past = self._first, self._length, np.arange(n - 1, n - 1 + count)
        if isinstance(self.moves, Jumps):
            part = past // self.moves.every
            thetas = length * self._thetas.take(int(part[0]), int(np.ptp(part)) + 1)[part - part[0]]
            thetas[part == 0] = first
        elif isinstance(self.moves, Rotates):
            ahead = self._thetas.take(1, 1)[0]
            ahead -= (ahead @ first) / length**2 * first
            angle = 2.0 * np.pi * past[:, None] / self.moves.period
            thetas = np.cos(angle) * first + np.sin(angle) * ahead * (length / np.linalg.norm(ahead))
        else:
            thetas = np.tile(first, (count, 1))
        return _with_intercept(thetas) if self.bernoulli else np.asarray(thetas)

    def noise(self, n: int, count: int) -> Array:
        """The noise of the rounds n ... n + count - 1; for Bernoulli rewards a uniform u, and the reward is u < mean."""
        return self._noise.take(as_whole(n, "a round"), as_whole(count, "count"))

    def _draw_noise(self, rng: Generator, size: int) -> Array:
        if self.kind == "gaussian":
            return self.sigma * rng.standard_normal(size)
        limit = 3**0.5 * self.sigma
        return rng.random(size) if self.bernoulli else rng.uniform(-limit, limit, size)


class Pool(Environment, ABC):
    """An environment that offers K arms a round, all of length 1 unless given."""

    def __init__(self, dim: int, arms: int, **settings: Any) -> None:
        super().__init__(dim, **settings)
        self.arms = as_whole(arms, "arms")

    def _arm_stream(self, width: int | None = None, *shape: int) -> _Stream:
        """Arms of ``width`` entries, dim if not given; ``shape`` of them an item."""
        width = width or self.dim

        def draw(rng: Generator, size: int) -> Array:
            arms = _directions(rng, (size, *shape, width - self.bernoulli))
            return _with_intercept(arms) if self.bernoulli else arms

        return _Stream(self._seed, 2, width * math.prod(shape), draw)

    @abstractmethod
    def _arms(self, n: int, count: int) -> tuple[Array | csr_array, Ids | None]:
        """Arms and ids as in `Block`."""

    def round(self, n: int) -> Round:
        """What round n offers."""
        arms, ids, _, _ = self.block(n, 1)
        return Round(arms if isinstance(arms, csr_array) else np.array(arms[0]), None if ids is None else ids[0])

    def block(self, n: int, count: int) -> Block:
        """The rounds n ... n + count - 1, with the mean and the reward of every arm."""
        noise, (arms, ids) = self.noise(n, count)[:, None], self._arms(n, count)
        means = np.empty((count, self.arms))
        every = self.moves.every if isinstance(self.moves, Jumps) else 1 if self.moves else n + count
        for a, b in pairwise([0, *range(every - (n - 1) % every, count, every), count]):  # while theta* stays
            rows = arms[a * self.arms : b * self.arms] if isinstance(arms, csr_array) else arms[a:b]
            means[a:b] = (rows @ self.theta(n + a)).reshape(-1, self.arms)
        return Block(arms, ids, means, (noise < means).astype(np.float64) if self.bernoulli else means + noise)

    def reward(self, n: int, k: int) -> float:
        """The reward of the k-th arm of round n."""
        if not 0 <= k < self.arms:
            raise InputError(f"Round {n} has the arms 0 ... {self.arms - 1}, got {k}.")
        return float(self.block(n, 1).rewards[0, k])

    def best(self, n: int) -> float:
        """The largest mean among the arms of round n."""
        return float(self.block(n, 1).means.max())


class FixedArms(Pool):
    """The same arms in every round: a (K, d) array, or so many directions drawn uniformly.

    >>> env = FixedArms(2, np.eye(2), theta=[0.2, 0.7], sigma=0.0)
    >>> env.round(1).ids, env.best(1), env.reward(1, 0)
    (array([0, 1]), 0.7, 0.2)
    """

    def __init__(self, dim: int, arms: int | Array = 100, **settings: Any) -> None:
        rows = None if np.ndim(arms) == 0 else _numbers(arms, "arms")
        super().__init__(dim, arms if rows is None else len(rows), **settings)  # type: ignore[arg-type]
        if rows is None:
            rows = self._arm_stream().take(0, self.arms)
        elif rows.shape != (self.arms, dim) or not np.isfinite(rows).all():
            raise DimensionError(f"arms must be finite, with dim={dim} columns; shape {rows.shape}.")
        elif self.bernoulli:
            raise SettingsError("Bernoulli rewards need means in [0, 1] and draw their own arms.")
        self._rows, self.max_norm = rows, float(np.linalg.norm(rows, axis=1).max())

    def _arms(self, n: int, count: int) -> tuple[Array, Ids]:
        return np.broadcast_to(self._rows, (count, *self._rows.shape)), np.tile(np.arange(self.arms), (count, 1))


class ChurningPool(Pool):
    """A pool of K arms in which, after every ``every`` rounds, a new arm takes the place of the oldest.

    Arms are numbered in the order in which they appear; each stays for K ``every`` rounds.

    >>> env = ChurningPool(5, arms=3, every=10)
    >>> print(env.round(10).ids, env.round(11).ids, env.round(51).ids)
    [0 1 2] [3 1 2] [6 7 5]
    """

    def __init__(self, dim: int, arms: int = 20, *, every: int = 50, **settings: Any) -> None:
        super().__init__(dim, arms, **settings)
        self.every = as_whole(every, "every")
        self._vectors = self._arm_stream()

    def _arms(self, n: int, count: int) -> tuple[Array, Ids]:
        place = np.arange(self.arms)
        arrived = (np.arange(n - 1, n - 1 + count) // self.every)[:, None]
        ids = place + self.arms * ((arrived - place + self.arms - 1) // self.arms)
        oldest = int(ids.min())
        return self._vectors.take(oldest, int(ids.max()) - oldest + 1)[ids - oldest], ids


class FreshContexts(Pool):
    """New arms in every round, as when each request brings its own features; no arm recurs, so no ids.

    With ``nnz`` arms are CSR rows of so many non-zeros, one in each of nnz equal ranges of features.

    >>> FreshContexts(1000, arms=5, nnz=8).round(1).arms.nnz
    40
    """

    def __init__(self, dim: int, arms: int = 20, *, nnz: int | None = None, **settings: Any) -> None:
        super().__init__(dim, arms, **settings)
        if nnz is not None and not 1 + self.bernoulli <= as_whole(nnz, "nnz") <= dim:
            raise SettingsError(f"nnz must lie in [{1 + self.bernoulli}, {dim}] here, got {nnz}.")
        self.nnz = nnz
        self._vectors = self._arm_stream(nnz, arms)
        self._uniforms = _Stream(self._seed, 3, arms * (nnz or 1), lambda rng, size: rng.random((size, arms, nnz or 1)))

    def _arms(self, n: int, count: int) -> tuple[Array | csr_array, None]:
        values = self._vectors.take(n, count)
        if self.nnz is None:
            return values, None
        # feature 0 is the intercept of Bernoulli rewards: a range of its own
        edges = np.arange(self.nnz + 1) * self.dim // self.nnz
        if self.bernoulli:
            edges = np.append(0, 1 + np.arange(self.nnz) * (self.dim - 1) // (self.nnz - 1))
        columns = edges[:-1] + (self._uniforms.take(n, count) * np.diff(edges)).astype(np.int64)
        starts = np.arange(count * self.arms + 1) * self.nnz
        return csr_array((values.ravel(), columns.ravel(), starts), shape=(count * self.arms, self.dim)), None


class _Stream:
    """Item i of a random sequence, the same whenever and in whatever order it is asked for.

    Items are drawn in chunks, each from a generator of its own, a child of the seed.
    """

    def __init__(self, seed: SeedSequence, key: int, width: int, draw: Draw) -> None:
        self._size = max(1, min(1024, 2**18 // width))  # items a chunk: at most 2 MB, if one item is no more

        @lru_cache(maxsize=2)  # rounds mostly come in order: the next ones are near
        def chunk(c: int) -> Array:
            # the tag keeps these apart from the children of a policy that was given the same seed
            child = SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, TAG, key, c))
            return draw(default_rng(child), self._size)

        self._chunk = chunk

    def take(self, start: int, count: int) -> Array:
        """Items start ... start + count - 1; the array is the caller's own."""
        first, last = start // self._size, (start + count - 1) // self._size
        items = self._chunk(first) if first == last else np.concatenate([*map(self._chunk, range(first, last + 1))])
        return items[start - first * self._size :][:count].copy()


def _numbers(values: npt.ArrayLike, name: str) -> Array:
    return as_numbers(values, f"{name} must be an array").astype(np.float64)


def _directions(rng: Generator, shape: tuple[int, ...]) -> Array:
    """Uniform on the unit sphere, along the last axis."""
    drawn = rng.standard_normal(shape)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=-1, keepdims=True))


def _with_intercept(directions: Array) -> Array:
    """(1, u)/sqrt(2), along the last axis."""
    ones = np.ones((*directions.shape[:-1], 1))
    return np.concatenate([ones, directions], axis=-1) / 2**0.5
