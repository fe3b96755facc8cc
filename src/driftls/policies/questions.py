"""Whose turn it is, and what a policy is asked: scores, widths and probabilities; no answer changes anything."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from driftls.compiling.parts import Frame
from driftls.errors import InputError
from driftls.persistence import Saveable
from driftls.policies.arms import allowed_arms


class Turn:
    """A call of a policy with features: if it is refused, and nothing was learned, they forget what they have met in it."""

    __slots__ = ("learned", "policy")

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def __enter__(self) -> None:
        self.policy.lock.acquire()
        self.learned = self.policy.frame["learned"]
        self.policy.features.__enter__()

    def __exit__(self, *error: Any) -> None:
        features: Any = self.policy.features
        try:
            if error[0] is not None and self.policy.frame["learned"] > self.learned:
                features.keep()
            features.__exit__(*error)
        finally:
            self.policy.lock.release()


class Questions(Saveable):
    """The questions that every policy answers; names that its features have never met count for nothing."""

    disjoint: ClassVar[bool] = False  # one model an arm: a round has a user, and an id for each arm
    frame: Frame
    _asked: int | None = None  # during a question, how many features there were before it

    def _question(self: Any, arms: Any, items: Any, ids: Any, *, whole: bool = False) -> int:
        """Stage a round without opening anything for its arms; how many these are. whole: a row for each."""
        rows, count, names = self._round(arms, items, ids)
        self._stage(rows, count, names, whole=whole)
        self._models.table.leave()  # which has rounded otherwise, and whose slots these are
        if self._models.by_slot:
            self._offer(names, count, ask=True)
        return count  # type: ignore[no-any-return]

    def scores(self, arms: Any, items: Any = None, *, ids: Any = None) -> NDArray[np.float64]:
        """theta.x + kappa width(x) of each arm."""
        with self._asking(scores=True) as who:
            count = who._question(arms, items, ids)
            who._models.choose(count, ask=True)
            return who._models.scores[:count].copy()  # type: ignore[no-any-return]

    def widths(self, arms: Any, items: Any = None, *, ids: Any = None) -> NDArray[np.float64]:
        """How sure the policy is of each arm, before kappa."""
        with self._asking() as who:
            return who._models.widths(who._question(arms, items, ids, whole=True))  # type: ignore[no-any-return]

    def probabilities(
        self, arms: Any, items: Any = None, *, ids: Any = None, allowed: Any = None
    ) -> NDArray[np.float64]:
        """How likely each arm is to be chosen now, if nothing but epsilon is random."""
        with self._asking(scores=True) as who:
            count, epsilon = who._question(arms, items, ids), self.frame["epsilon"]
            mask = np.ones(count, np.int64) if allowed is None else allowed_arms(allowed, count)
            share = np.where(mask, epsilon / mask.sum(), 0.0)
            share[who._models.choose(count, mask, ask=True)] += 1.0 - epsilon
            return share

    @contextmanager
    def _asking(self: Any, *, scores: bool = False) -> Iterator[Any]:
        """Who answers: the policy, whose draws are put back; or a copy of it, where it would have to change."""
        if scores and self.width.samples:
            raise InputError("scores that are sampled change with every choice. Use a width that is not sampled.")
        with self.lock:
            draws = self._models.draws
            ready = len(self._models) and draws.cursor[0] + self.frame["draws"] <= draws.tape.size
            who = self if ready else copy.deepcopy(self)
            models, features = who._models, who.features
            widths = [model.width for model in models.each()] if models.need > 1 else []
            cursor, kept = int(models.draws.cursor[0]), [width.put_aside() for width in widths]
            models.refilled = False
            with features or who.lock:
                who._asked = who.dim if features is None else min(who.dim, features.dim)
                try:
                    yield who
                finally:  # a tape that was filled up begins with what was unread
                    who._asked = None
                    models.draws.cursor[0] = 0 if models.refilled else cursor
                    for width, aside in zip(widths, kept):
                        width.put_back(aside)
                    if features is not None:
                        features.drop()
