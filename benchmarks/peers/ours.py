"""Ours, as a user would call them: one round at a time, from Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from driftls.features import CrossedArms
from driftls.policies import DisjointLinUCB, LinUCB
from driftls.trackers import CD, RLS, SAGA, Diagonal, Tracker
from driftls.widths import DiagonalWidth, ExactWidth, PhiWidth

BLOCKS = 512  # articles that a day may have


class Bandit:
    """A policy over arms, with ids where they recur."""

    def __init__(self, problem: Any, seed: int, *, make: Callable[[Any, int], Any]) -> None:
        self.policy, self.fixed = make(problem, seed), problem.kind == "fixed"
        self.ids: Any = None

    def prepare(self, given: Any) -> Any:
        if self.fixed and self.ids is None:
            self.ids = given.ids
        return given.arms

    def choose(self, arms: Any) -> Any:
        return self.policy.choose(arms, ids=self.ids)

    def learn(self, arms: Any, k: int, reward: float) -> None:
        self.policy.learn(arms, reward, arm=k, ids=self.ids)


class Articles:
    """One model an article; a user is a sparse row."""

    def __init__(self, problem: Any, seed: int, *, make: Callable[[Any, int], Any]) -> None:
        self.policy = make(problem, seed)

    def prepare(self, given: Any) -> Any:
        return given.user, given.ids

    def choose(self, given: Any) -> Any:
        return self.policy.choose(given[0], ids=given[1])

    def learn(self, given: Any, k: int, reward: float) -> None:
        self.policy.learn(given[0], reward, arm=k, ids=given[1])


class Classes(Articles):
    """The classes of a table: a user is a dense row."""

    def prepare(self, given: Any) -> Any:
        return given.user, given.ids


class Crosses(Articles):
    """One theta over user x article crosses."""

    def __init__(self, problem: Any, seed: int, *, make: Callable[[Any, int], Any]) -> None:
        super().__init__(problem, seed, make=make)
        self.block_of: dict[int, int] = {}
        self.blocks, self.shared = problem.arms or BLOCKS, problem.arms is None

    def prepare(self, given: Any) -> Any:
        blocks = [self.block_of.setdefault(name, len(self.block_of)) for name in given.ids.tolist()]
        return CrossedArms(given.user, blocks, self.blocks, shared=self.shared)

    def choose(self, given: Any) -> Any:
        return self.policy.choose(given)

    def learn(self, given: Any, k: int, reward: float) -> None:
        self.policy.learn(given, reward, arm=k)


class Regression:
    """A tracker that predicts each row before it takes it."""

    def __init__(self, problem: Any, seed: int, *, make: Callable[[int, int], Tracker]) -> None:
        self.tracker = make(problem.dim, seed)

    def prepare(self, given: Any) -> Any:
        return np.ascontiguousarray(given.arms[0])

    def choose(self, x: Any) -> float:
        return float(self.tracker.predict(x))

    def learn(self, x: Any, k: int, reward: float) -> None:
        self.tracker.update(x, reward)


def _linucb(tracker: Callable[[int, int], Tracker], width: Callable[[], Any]) -> Callable[[Any, int], Any]:
    def make(problem: Any, seed: int) -> LinUCB:
        sigmas = 2.0 if problem.kind == "fixed" else 1.0  # as the default takes them
        return LinUCB(tracker=tracker(problem.dim, seed), width=width(), sigmas=sigmas, seed=seed)

    return make


def _saga(dim: int, seed: int) -> SAGA:
    return SAGA(dim, steps=8, seed=seed)


def _with(kind: Any, **settings: Any) -> Any:
    return lambda problem, seed: kind(problem, seed, **settings)


PLAYERS: dict[str, Any] = {
    "default": _with(Bandit, make=lambda problem, seed: LinUCB(problem.dim, seed=seed)),
    "exact": _with(Bandit, make=_linucb(lambda dim, seed: RLS(dim), ExactWidth)),
    "saga": _with(Bandit, make=_linucb(_saga, DiagonalWidth)),
    "diagonal": _with(Bandit, make=_linucb(lambda dim, seed: Diagonal(dim), DiagonalWidth)),
    "saga-phi": _with(Bandit, make=_linucb(_saga, PhiWidth)),
    "disjoint": _with(Articles, make=lambda problem, seed: DisjointLinUCB(problem.dim, seed=seed)),
    "disjoint-saga": _with(
        Articles,
        make=lambda problem, seed: DisjointLinUCB(problem.dim, tracker=SAGA(problem.dim, steps=8), seed=seed),
    ),
    "crosses": _with(
        Crosses,
        make=lambda problem, seed: LinUCB(
            tracker=SAGA(problem.dim * (BLOCKS + 1), steps=8, seed=seed), width=DiagonalWidth(), seed=seed
        ),
    ),
    "classes": _with(Classes, make=lambda problem, seed: DisjointLinUCB(problem.dim, seed=seed)),
    "class-crosses": _with(Crosses, make=lambda problem, seed: LinUCB(problem.dim * problem.arms, seed=seed)),
    "rls": _with(Regression, make=lambda dim, seed: RLS(dim)),
    "saga-rows": _with(Regression, make=_saga),
    "cd-rows": _with(Regression, make=lambda dim, seed: CD(dim)),
    "diagonal-rows": _with(Regression, make=lambda dim, seed: Diagonal(dim)),
}
