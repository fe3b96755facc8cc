"""What the experiments on logs share: days, pairs of visitor and article as features, and the policies."""

from __future__ import annotations

from typing import Any

from driftls import paper
from driftls.features import Hashed
from driftls.logs import read, synthetic_day
from driftls.policies import DisjointLinUCB, LinUCB, named
from driftls.replay import replay
from driftls.run import Run
from driftls.schedules import ridge
from driftls.trackers import RLS, SAGA
from driftls.widths import DiagonalWidth, ExactWidth

__all__ = ["DIM", "KAPPA", "LINUCB", "POLICIES", "SAME_KERNELS", "USER", "day_of", "features", "played"]

USER = 136
DIM = 512  # small enough for the exact method and for SVRG as printed, both of which keep d x d numbers
KAPPA = 0.19  # the standard deviation of a click at the days' mean rate of 3.7%
LINUCB = "LinUCB"
PAIRS: dict[str, Any] = {
    LINUCB: paper.POLICIES["linucb"],
    "fLinUCB-GD": paper.POLICIES["flinucb-gd"],
    "fLinUCB-SVRG": paper.POLICIES["flinucb-svrg"],
    "fLinUCB-SAG": paper.POLICIES["flinucb-sag"],
    "SAGA, diagonal widths": lambda dim, kappa, seed: LinUCB(
        tracker=SAGA(dim, seed=seed), width=DiagonalWidth(), kappa=kappa, seed=seed
    ),
    "greedy": named.POLICIES["greedy"],
    "epsilon-greedy": named.POLICIES["epsilon-greedy"],
    "random": named.POLICIES["random"],
}
ARTICLES: dict[str, Any] = {
    "LinUCB, one model an article": lambda kappa, seed: DisjointLinUCB(
        USER, tracker=RLS(USER), width=ExactWidth(), kappa=kappa, seed=seed
    ),
    "SAGA, one model an article": lambda kappa, seed: DisjointLinUCB(
        USER, tracker=SAGA(USER, regularisation=ridge(60.0)), kappa=kappa, seed=seed
    ),
    "our default, untuned": lambda kappa, seed: DisjointLinUCB(USER, seed=seed),
}
SAME_KERNELS = {"epsilon-greedy": "greedy", "our default, untuned": "LinUCB, one model an article"}
POLICIES = [*PAIRS, *ARTICLES]


def features() -> Hashed:
    """Pairs of user feature and article, hashed: a shared theta needs pairs, and R6B has no features of articles."""
    return Hashed(DIM, user_dim=USER)


def day_of(lines: int, seed: int, day: int, log: str) -> Any:
    """The log, or the synthetic day of this number and seed."""
    return read(log) if log else synthetic_day(lines=lines, seed=10 * seed + day)


def played(name: str, log: Any, seed: int, **more: Any) -> Run:
    """The replay of one policy."""
    if name in ARTICLES:
        return replay(ARTICLES[name](KAPPA, seed), log, seed=seed, **more)  # type: ignore[no-any-return]
    return replay(PAIRS[name](DIM, KAPPA, seed), log, features=features(), seed=seed, **more)  # type: ignore[no-any-return]
