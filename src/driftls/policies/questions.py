"""What a policy is asked: scores, widths and probabilities of arms; no answer changes anything."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import InputError
from driftls.policies.arms import allowed_arms, look_at


class Questions:
    """Those of one policy; while one is under way, names that its features have never met count for nothing."""

    def __init__(self) -> None:
        self.under_way = False

    def scores(self, policy: Any, *round_: Any) -> NDArray[np.float64]:
        """theta.x + kappa width(x) of each arm of a round: arms, items, ids."""
        with self._asking(policy, scores=True) as who:
            count = who._question(*round_)
            who._models.choose(count, ask=True)
            return who._models.scores[:count].copy()  # type: ignore[no-any-return]

    def widths(self, policy: Any, *round_: Any) -> NDArray[np.float64]:
        """How sure the policy is of each arm."""
        with self._asking(policy) as who:
            return who._models.widths(who._question(*round_, whole=True))  # type: ignore[no-any-return]

    def probabilities(self, policy: Any, *round_: Any, allowed: Any) -> NDArray[np.float64]:
        """How likely each arm is to be chosen."""
        scores = policy.epsilon < 1.0 or policy.disjoint
        with self._asking(policy, scores=scores) as who:
            if scores:
                count = who._question(*round_)
            else:
                rows, count, _ = who._round(*round_)
                look_at(rows)
            mask = np.ones(count, np.int64) if allowed is None else allowed_arms(allowed, count)
            share = np.where(mask, policy.epsilon / mask.sum(), 0.0)
            if scores:
                share[who._models.choose(count, mask, ask=True)] += 1.0 - policy.epsilon
            return share

    @contextmanager
    def _asking(self, policy: Any, *, scores: bool = False) -> Iterator[Any]:
        """Who answers: the policy, whose draws are put back; or a copy of it, where it would have to change."""
        if scores and policy.width.samples:
            raise InputError("scores that are sampled change with every choice. Use a width that is not sampled.")
        with policy.lock:
            draws = policy._models.draws
            ready = len(policy._models) and draws.cursor[0] + policy.frame["draws"] <= draws.tape.size
            who = policy if ready else copy.deepcopy(policy)
            models, features = who._models, who.features
            widths = [model.width for model in models.each()] if models.need > 1 else []
            cursor, kept = int(models.draws.cursor[0]), [width.put_aside() for width in widths]
            models.refilled, who.questions.under_way = False, True
            try:
                with nullcontext() if features is None else features.asking(who.dim):
                    yield who
            finally:  # a tape that was filled up begins with what was unread
                who.questions.under_way = False
                models.draws.cursor[0] = 0 if models.refilled else cursor
                for width, aside in zip(widths, kept):
                    width.put_back(aside)
                who._answered()
