"""What the experiments share: days of a log, pairs of user and article as features, and the policies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from time import thread_time
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.blas import dger

from driftls import paper
from driftls.features import UserOnly
from driftls.features.names import buckets, mixed_bits
from driftls.logs import Block, read, synthetic_day
from driftls.policies import DisjointLinUCB, LinUCB, Random
from driftls.schedules import ridge
from driftls.trackers import RAW, RLS, SAGA
from driftls.widths import DiagonalWidth, ExactWidth

Array = NDArray[np.float64]
USER = 136
DIM = 512  # small enough for the exact method and for SVRG as printed, both of which keep d x d numbers
KAPPA = 0.19  # the standard deviation of a click at the days' mean rate of 3.7%
PIECE = 2_000  # lines whose arms are built at a time
LINUCB, DEFAULT = "LinUCB", "our default"
VARIANTS = {
    "fLinUCB-GD": paper.flinucb_gd,
    "fLinUCB-SVRG": paper.flinucb_svrg,
    "fLinUCB-SAG": paper.flinucb_sag,
}
POLICIES: dict[str, Any] = {
    name: lambda seed, make=make: make(DIM, kappa=KAPPA, seed=seed)
    for name, make in {LINUCB: paper.linucb, **VARIANTS}.items()
} | {
    "SAGA, diagonal widths": lambda seed: LinUCB(
        tracker=SAGA(DIM, seed=seed, **RAW), width=DiagonalWidth(), kappa=KAPPA, seed=seed
    ),
    "random": lambda seed: Random(DIM, seed=seed),
    "LinUCB, one model an article": lambda seed: DisjointLinUCB(
        USER, tracker=RLS(USER, **RAW), width=ExactWidth(), kappa=KAPPA, seed=seed
    ),
    "SAGA, one model an article": lambda seed: DisjointLinUCB(
        USER, tracker=SAGA(USER, regularisation=ridge(60.0), **RAW), width=DiagonalWidth(), kappa=KAPPA, seed=seed
    ),
    DEFAULT: lambda seed: DisjointLinUCB(USER, seed=seed),
}


def pieces(lines: int, seed: int, day: int, log: str, *, of: int | None = None) -> Iterator[Block]:
    """The first lines of the log, or of a synthetic day of so many whose truth is known; a piece has one pool."""
    made = synthetic_day(lines=of or lines, seed=10 * seed + day)
    for block in read(log).blocks(PIECE) if log else made.blocks(PIECE, truth=True):
        borders = np.flatnonzero(np.diff(block.pool)) + 1
        for first, last in pairwise([0, *borders.tolist(), len(block)]):
            last = min(last, first + lines)
            lines -= last - first
            yield block.part(first, last)
            if lines == 0:
                return


class Arms:
    """The arms of a piece, made once for all policies that meet it: users for one model an article, pairs for one of all.

    R6B has no features of articles, so pairs of user feature and article are hashed to DIM, with signs.
    """

    def __init__(self, piece: Block) -> None:
        pool = slice(*piece.pool_start[piece.pool[0] : piece.pool[0] + 2])
        self.ids: list[int] = piece.pool_ids[pool].tolist()
        self.users, rows = UserOnly(USER).users(piece), UserOnly(USER).rows(piece)
        articles = mixed_bits(piece.pool_ids).astype(np.int64)[piece.candidates]  # ids of near numbers, far apart
        keys = np.repeat(articles, np.diff(rows.indptr)) + rows.indices
        sign = np.where(mixed_bits(keys) & np.uint64(1), 1.0, -1.0)
        self.pairs = sp.csr_array((sign * rows.data, buckets(keys, DIM), rows.indptr), shape=(rows.shape[0], DIM))
        self.pairs.sum_duplicates()

    def play(self, policy: Any, rewards: Array, shown: Any = None) -> NDArray[np.int64]:
        """The policy's choices; rewards are those of every arm, or of the one that was shown."""
        if isinstance(policy, DisjointLinUCB):
            return policy.play(self.users, rewards, shown=shown, ids=self.ids)
        return np.asarray(policy.play(self.pairs, rewards, shown=shown))


class DenseLinUCB:
    """Exact LinUCB as one writes it in NumPy: what a fast method has to beat.

    The inverse by a rank-one update a round, O(d^2), or `anew`, O(d^3), as in the paper.
    """

    def __init__(self, dim: int, *, kappa: float = 1.0, anew: bool = False) -> None:
        self.kappa, self.anew = kappa, anew
        self.A, self.b, self.theta = np.eye(dim), np.zeros(dim), np.zeros(dim)
        self.inverse = np.asfortranarray(np.eye(dim))

    def play(self, arms: Array, rewards: Array, shown: Any = None) -> list[int]:
        """Choices in rounds of arms that are stacked; rewards are those of every arm. Of a log, one line in K is learned."""
        chosen = []
        for n, rows in enumerate(arms.reshape(len(rewards), -1, len(self.b))):
            widths = np.sqrt(np.einsum("kd,kd->k", rows @ self.inverse, rows))
            k = int(np.argmax(rows @ self.theta + self.kappa * widths))
            if shown is None:
                self.learn(rows[k], rewards[n, k])
            elif n % len(rows) == 0:
                self.learn(rows[k], rewards[n])
            chosen.append(k)
        return chosen

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


def seconds(policy: Any, *rounds: Any) -> float:
    """What a policy takes to play these rounds, of the processor."""
    begin = thread_time()
    policy.play(*rounds)
    return thread_time() - begin


BASELINES: dict[str, Any] = {"inversion": partial(DenseLinUCB, anew=True), "Sherman-Morrison": DenseLinUCB}
