"""PEGE, phased exploration and greedy exploitation, and fPEGE-GD, which replaces its least squares by fOLS-GD.

Phase m = 1, 2, ... explores the d actions of a basis, then plays the best action for the estimate m times. Only what
exploration observes is learned; the exploration rounds, counted by n from 1, choose b_{n mod d}, and b_0 is b_d.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from driftls.errors import DimensionError, InputError, SettingsError
from driftls.inputs import as_number, as_whole
from driftls.paper.actions import ActionSet, LinearBandit
from driftls.simulation import log_points
from driftls.trackers import Tracker

__all__ = ["PEGE", "Played", "play"]

Array = npt.NDArray[np.float64]


class PEGE:
    """Phased exploration and greedy exploitation on a smooth action set.

    Parameters
    ----------
    actions : ActionSet
        A sphere, ball, ellipsoid, or any set given by its G and J. On finitely many actions G jumps, so that (A5) does
        not hold: take LinUCB.
    tracker : Tracker, optional
        A new one, which estimates theta in its own way; `driftls.paper.fpege_gd` builds those of fPEGE-GD. Without one
        the estimate is exact: theta = B^-1 y-bar, from the mean reward of each basis action, O(d^2) a phase, or O(d)
        where the basis lies along the axes (sphere, ball). `OLS` finds the same in O(d^3) a phase.

    Attributes
    ----------
    rounds, explored, phase : int
        Rounds whose reward has come; n, how many of them explored; m, the phase of the round that `choose` gives.

    Examples
    --------
    >>> from driftls.paper.actions import LinearBandit, Sphere
    >>> env, policy = LinearBandit(Sphere(2), seed=0), PEGE(Sphere(2))
    >>> for n in range(1, 8):
    ...     x = policy.choose()
    ...     print(policy.phase, "explore" if policy.exploring else "exploit", x.round(2))
    ...     policy.learn(x, env.reward(n, x))
    1 explore [1. 0.]
    1 explore [0. 1.]
    1 exploit [ 0.95 -0.3 ]
    2 explore [1. 0.]
    2 explore [0. 1.]
    2 exploit [ 0.96 -0.27]
    2 exploit [ 0.96 -0.27]
    """

    def __init__(self, actions: ActionSet, tracker: Tracker | None = None) -> None:
        self.lipschitz = actions.lipschitz  # (A5): raises where there is no J
        self.actions, self.dim, self.tracker = actions, actions.dim, tracker
        if tracker is not None and (tracker.dim != self.dim or len(tracker)):
            raise SettingsError(
                f"Expected a new tracker with dim={self.dim}, got one with dim={tracker.dim} that has seen "
                f"{len(tracker)} rows. Build one for this policy."
            )
        self._basis = actions.basis()
        axes = np.diag(self._basis)  # a basis along the axes is inverted entry by entry
        along = np.array_equal(self._basis, np.diag(axes))
        self._inverse: Array = np.asarray(1.0 / axes if along else np.linalg.inv(self._basis), dtype=np.float64)
        self._sums = np.zeros(self.dim)  # of the rewards of each basis action
        self.phase, self._at = 1, 0  # m, and the rounds of phase m that are over
        self.rounds = self.explored = 0
        self._waiting: Array | None = None  # the action that choose() gave, until its reward comes
        self._best: Array | None = None  # G(theta) of this phase

    @property
    def exploring(self) -> bool:
        """Whether the round that `choose` gives explores; until its reward comes, that is the round it gave."""
        return self._at < self.dim

    @property
    def theta(self) -> Array:
        """The present estimate; exactly, a basis action that was not tried yet counts as one of reward 0."""
        if self.tracker is not None:
            return self.tracker.theta
        tried = (self.explored + self.dim - 1 - np.arange(self.dim)) // self.dim
        means = self._sums / np.maximum(tried, 1)
        return np.asarray(self._inverse * means if self._inverse.ndim == 1 else self._inverse @ means)

    def choose(self) -> Array:
        """The action to take: x = b_{n mod d}, or G(theta). The same one until its reward was learned."""
        rows, _ = self.decided(1)
        self._waiting = np.array(rows[0])
        return self._waiting.copy()

    def learn(self, x: npt.ArrayLike, reward: float) -> None:
        """Take the reward of the action that `choose` gave; while exploiting it is counted, not learned."""
        if self._waiting is None:
            before = f"The reward of round {self.rounds} has come already" if self.rounds else "No action was chosen"
            raise InputError(f"{before}. Call choose(), then learn() once with its action.")
        if not np.array_equal(x, self._waiting):
            raise InputError("x is not the action that choose() gave for this round. Pass that one, unchanged.")
        self.take(np.array([as_number(reward, "reward")]))

    def decided(self, limit: int) -> tuple[Array, int]:
        """The actions of the next rounds, as far as they are known: rows, or one row for all; and how many rounds."""
        if self.exploring:
            rows = self._basis[self._at : self._at + limit]
            return rows, len(rows)
        if self._best is None:
            self._best = self.actions.best(self.theta)
        return self._best[None], min(limit, self.dim + self.phase - self._at)

    def take(self, rewards: Array) -> None:
        """The rewards of the next rounds, all of which `decided` has told of."""
        first, last = self._at, self._at + len(rewards)
        if self.exploring:
            if self.tracker is None:
                self._sums[first:last] += rewards
            else:
                self.tracker.partial_fit(self._basis[first:last], rewards)
            self.explored += len(rewards)
        self.rounds += len(rewards)
        self._at, self._waiting = last, None
        if last == self.dim + self.phase:
            self.phase, self._at, self._best = self.phase + 1, 0, None

    def __repr__(self) -> str:
        actions = f"{type(self.actions).__name__}(dim={self.dim})"
        return f"PEGE({actions}, {self.tracker!r}), phase={self.phase}, rounds={self.rounds}"


class Played(NamedTuple):
    """Regret and reward, each summed over the first ``rounds`` rounds that were played."""

    rounds: npt.NDArray[np.int64]
    regret: Array
    reward: Array


def play(policy: PEGE, environment: LinearBandit, rounds: int, *, checkpoints: Sequence[int] | None = None) -> Played:
    """Play so many rounds, a phase at a time: all decisions are as `choose` and `learn` make them, round by round.

    The policy goes on where it stands: the first round played is ``policy.rounds + 1``, of the environment too. Regret
    and reward are told after the rounds `checkpoints`; spread logarithmically by default.

    >>> from driftls.paper.actions import Sphere
    >>> environment = LinearBandit(Sphere(5), seed=0)
    >>> run = play(PEGE(Sphere(5)), environment, 100_000, checkpoints=[1000, 100_000])
    >>> print((run.regret[1] / run.regret[0]).round())  # of 100 times as many rounds
    11.0
    """
    if environment.dim != policy.dim:
        raise DimensionError(f"The policy has dim={policy.dim}, but the environment has dim={environment.dim}.")
    rounds = as_whole(rounds, "rounds")
    at = np.array([as_whole(n, "a checkpoint") for n in (log_points(rounds) if checkpoints is None else checkpoints)])
    if not at.size or at.max() > rounds:
        raise SettingsError(f"checkpoints must be rounds between 1 and {rounds}, got {checkpoints}.")
    gaps, rewards, done = np.empty(rounds), np.empty(rounds), 0
    while done < rounds:
        exploring, n = policy.exploring, policy.rounds + 1
        X, count = policy.decided(rounds - done)
        thetas = environment.thetas(n, 1 if environment.moves is None else count)
        best = np.array([environment.best(n + k) for k in range(len(thetas))])
        if exploring:  # the product of `mean`, one a round, so that what is learned agrees to the last bit
            means = np.array([x @ theta for x, theta in zip(X, np.broadcast_to(thetas, X.shape))])
        else:
            means = np.broadcast_to(thetas @ X[0], count)
        now = slice(done, done + count)
        gaps[now], rewards[now] = best - means, means + environment.noise(n, count)
        policy.take(rewards[now])
        done += count
    return Played(at, np.cumsum(gaps)[at - 1], np.cumsum(rewards)[at - 1])
