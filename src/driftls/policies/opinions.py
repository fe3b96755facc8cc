"""What a policy thinks of arms, told without changing anything."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.errors import InputError
from driftls.kernels import policy as kernels
from driftls.kernels.judge import PROBABILITY
from driftls.kernels.kept import EnsembleState
from driftls.kernels.widths import SampleState
from driftls.policies.bandit import Bandit
from driftls.trackers.inputs import Block

SAMPLES = 2000
# What a choice cannot change, of the arrays of a width.
UNTOUCHED = {"gram", "factor", "inverse", "theta", "start", "squares", "spread"}


class Opinions(Bandit):
    """Scores, widths and probabilities of a policy with one model."""

    _width: Any
    _last: Any
    _slot_of: dict[Hashable, int]
    _offered: NDArray[np.int64]

    @abstractmethod
    def _arms(self, arms: Any, ids: Any = None) -> Block:
        """Arms as rows of the tracker's kind."""

    @abstractmethod
    def _choose(self, block: Block, ids: Any) -> int: ...

    @abstractmethod
    def _slots(self, ids: Any, block: Block) -> NDArray[np.int64]: ...

    @abstractmethod
    def _arm_fault(self, code: int) -> Exception: ...

    def probabilities(self, arms: Any, *, ids: Any = None) -> NDArray[np.float64]:
        """How likely each arm is to be chosen now; learns and draws nothing.

        For an ensemble exactly: the share of members that would choose each arm. For samples of the posterior there
        is no closed form: estimated from 2,000 samples of a fixed seed.
        """
        count = len(self._arms(arms, ids).y)
        if not self._samples:
            return self._greedy_share(self.scores(arms, ids=ids))
        self._usable(arms, ids)
        arms = arms if sp.issparse(arms) else np.asarray(arms, dtype=np.float64)
        if isinstance(self._width, EnsembleState):
            directions = self._width.theta.T
        else:
            z = np.random.default_rng(0).standard_normal((self.dim, SAMPLES))
            directions = np.linalg.solve(np.tril(self._width.factor).T, z)
        winners = np.argmax((arms @ self.theta)[:, None] + self.kappa * (arms @ directions), axis=0)
        share = np.bincount(winners, minlength=count) / winners.size
        return np.asarray(self.epsilon / count + (1.0 - self.epsilon) * share)

    def scores(self, arms: Any, *, ids: Any = None) -> NDArray[np.float64]:
        """theta.x + kappa width(x) of each arm; learns nothing, and leaves the policy's chance where it was."""
        block = self._arms(arms, ids)
        with self._unchanged():
            self._choose(block, ids)
            return self._scores[: len(block.y)].copy()

    def widths(self, arms: Any, *, ids: Any = None) -> NDArray[np.float64]:
        """The width of each arm, before kappa; changes nothing."""
        block = self._usable(arms, ids)
        tracker = self.tracker
        out = np.zeros(len(block.y))
        with self._unchanged():
            slots = self._slots(ids, block)
            held = len(tracker) if tracker.history is None else len(tracker.history)
            kernels.widths_of(self._width, block, slots, tracker._alive[3], held, out)
        return out

    def _usable(self, arms: Any, ids: Any) -> Block:
        """Arms as rows, every one of them looked at."""
        block = self._arms(arms, ids)
        code = kernels.first_fault(block, self.dim, len(block.y))
        if code:
            raise self._arm_fault(code)
        return block

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Whatever is chosen inside, the policy is afterwards what it was."""
        draws, width = self._draws, self._width
        shared = {id(array) for array in self.tracker._state}
        arrays = [a for name, a in width._asdict().items() if name not in UNTOUCHED and id(a) not in shared]
        arrays += [draws.tape, draws.cursor, self._scalars]
        kept = [array.copy() for array in arrays]
        generator = draws.generator.bit_generator.state
        names, offered, rounds = self._slot_of, self._offered, self._rounds
        self._slot_of, self._offered = dict(names), offered.copy()
        try:
            yield
        finally:
            for array, before in zip(arrays, kept):
                array[...] = before
            draws.generator.bit_generator.state = generator
            self._width, self._slot_of, self._offered, self._rounds = width, names, offered, rounds

    @property
    def _samples(self) -> bool:
        """Whether arms are scored with a random direction."""
        width = self._width
        return isinstance(width, SampleState) or (isinstance(width, EnsembleState) and bool(width.member[0] >= 0))

    @property
    def probability(self) -> float:
        """How likely the last choice was.

        A policy that samples finds it out when asked, so it has to be asked before anything more is learned.
        """
        if not self._samples:
            return float(self._scalars[PROBABILITY])
        if self._last is None or self._last[2] != len(self.tracker):
            raise InputError("what was learned since has changed the probability. Ask between choose and learn.")
        arms, chosen, _ = self._last
        return float(self.probabilities(arms)[chosen])

    @property
    def theta(self) -> NDArray[np.float64]:
        """The tracker's estimate."""
        return self.tracker.theta
