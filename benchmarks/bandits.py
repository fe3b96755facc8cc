"""Simulated bandits: what policies lose against exact ones, and what a round costs.

All policies of a seed meet the same arms, the same theta* and the same noise.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks.measure import Options, Table, across, mean, ratio, slope, tell, timed
from benchmarks.peers.exact import ShermanMorrison
from benchmarks.peers.problems import Problem
from driftls import paper, ridge
from driftls.environments import FixedArms, FreshContexts, Jumps, Rotates
from driftls.history import Window
from driftls.policies import Greedy, LinUCB
from driftls.simulation import simulate
from driftls.trackers import GD, RAW, RLS, SAGA, Diagonal
from driftls.widths import DiagonalWidth, ExactWidth, PhiWidth

DIM, ARMS, ROUNDS = 50, 100, 10_000
SIGMA = 0.3
KAPPA = 2 * SIGMA
Make = Callable[[int], Any]


def _exact(dim: int, *, kappa: float | None = KAPPA, **settings: Any) -> LinUCB:
    return LinUCB(tracker=RLS(dim, regularisation=ridge(1.0), **settings, **RAW), width=ExactWidth(), kappa=kappa)


def _linucb(tracker: Any, width: Any, seed: int) -> LinUCB:
    return LinUCB(tracker=tracker, width=width, kappa=KAPPA, seed=seed)


# -- fixed arms ------------------------------------------------------------------------------------------------------

EXACT = "exact LinUCB"
FIXED: dict[str, Make] = {
    EXACT: lambda s: _exact(DIM),
    "LinUCB, default": lambda s: LinUCB(DIM, seed=s),
    "SAGA + φ": lambda s: _linucb(SAGA(DIM, seed=s, **RAW), PhiWidth(), s),
    "SAGA + diagonal": lambda s: _linucb(SAGA(DIM, seed=s, **RAW), DiagonalWidth(), s),
    "fLinUCB-GD as printed": lambda s: paper.flinucb_gd(DIM, kappa=KAPPA, seed=s),
    "greedy": lambda s: Greedy(RLS(DIM, **RAW), seed=s),
}


def _regret(name: str, seed: int, moves: str | None = None, *, rounds: int) -> float:
    policy = (FIXED if moves is None else MOVING)[name](seed)
    environment = FixedArms(DIM, ARMS, sigma=SIGMA, moves=None if moves is None else MOVES[moves], seed=seed)
    return simulate(policy, environment, rounds, points=[rounds]).last("regret")


def fixed(options: Options) -> Table:
    """Regret on all cores; times on one."""
    rounds, seeds = (500 if options.quick else ROUNDS), range(options.count(200, 3))
    environment, us = FixedArms(DIM, ARMS, sigma=SIGMA, seed=0), dict.fromkeys(FIXED, np.inf)
    for _ in range(1 + 3):  # one more: which may compile
        for name, make in FIXED.items():
            tell(f"timing {name}")
            run = simulate(make(0), environment, rounds // 5, points=[rounds // 5])
            us[name] = min(us[name], 1e6 * sum(run.seconds.values()) / (rounds // 5))
    tell(f"regret, {len(seeds)} seeds")
    found = np.reshape(across(partial(_regret, rounds=rounds), *zip(*product(FIXED, seeds))), (-1, len(seeds)))
    rows = [
        [name, mean(regret), statistics.median(regret), ratio(regret, found[0]), us[name]]
        for name, regret in zip(FIXED, found)
    ]
    return Table(
        rows,
        f"d = {DIM}, K = {ARMS}, {rounds:,} rounds, noise {SIGMA}, {len(seeds)} seeds, paired; κ = {KAPPA} and λ = 1 but "
        "for the default, which finds both.",
    )


# -- a theta* that moves ---------------------------------------------------------------------------------------------

DISCOUNT, MEMORY = 0.998, 500
MOVES: dict[str, Any] = {"jumps every 2,500": Jumps(2500), "turns once in 10,000": Rotates(10_000)}
MOVING: dict[str, Make] = {
    "exact, discounted": lambda s: _exact(DIM, discount=DISCOUNT, method="sherman-morrison"),
    f"SAGA, window of {MEMORY}, + φ": lambda s: _linucb(
        SAGA(DIM, history=Window(MEMORY), seed=s, **RAW), PhiWidth(steps=4), s
    ),
    "newest row + diagonal": lambda s: _linucb(
        GD(DIM, newest=True, regularisation=ridge(1.0), **RAW), DiagonalWidth(), s
    ),
    "exact, no forgetting": lambda s: _exact(DIM),
}


def moving(options: Options) -> Table:
    rounds, seeds = (500 if options.quick else ROUNDS), range(options.count(20, 3))
    jobs = [(name, seed, moves) for moves, name, seed in product(MOVES, MOVING, seeds)]
    tell(f"{len(jobs)} runs")
    found = np.reshape(across(partial(_regret, rounds=rounds), *zip(*jobs)), (len(MOVES), len(MOVING), len(seeds)))
    rows = [
        [moves, name, mean(regret), ratio(regret, block[0])]
        for moves, block in zip(MOVES, found)
        for name, regret in zip(MOVING, block)
    ]
    return Table(
        rows, f"The fixed arms from above, discount {DISCOUNT}, {rounds:,} rounds, {len(seeds)} seeds, paired."
    )


# -- cost ------------------------------------------------------------------------------------------------------------

COST_ARMS, DIMS = 20, (64, 256, 1024, 4096)
COST: dict[str, Callable[[int], Any]] = {
    "Diagonal + diagonal": lambda d: LinUCB(tracker=Diagonal(d, **RAW), width=DiagonalWidth(), kappa=SIGMA),
    "SAGA + diagonal": lambda d: LinUCB(tracker=SAGA(d, seed=0, **RAW), width=DiagonalWidth(), kappa=SIGMA),
    EXACT: lambda d: _exact(d, kappa=SIGMA),
}
BLAS = "exact, NumPy with BLAS"


def _blas(player: ShermanMorrison, block: Any) -> None:
    """The exact method as a careful user would write it."""
    for arms, rewards in zip(block.arms, block.rewards):
        k = int(player.choose(arms))
        player.learn(arms, k, float(rewards[k]))


def cost(options: Options) -> Table:
    dims = DIMS[:2] if options.quick else DIMS
    us: dict[str, list[float]] = {name: [] for name in [*COST, BLAS]}
    for d in dims:
        environment = FreshContexts(d, COST_ARMS, sigma=SIGMA, seed=0)
        policies = {name: make(d) for name, make in COST.items()}
        few = int(np.clip(1e9 / (COST_ARMS * d * d), 3, 200))
        block = environment.block(1, few)
        player = ShermanMorrison(Problem("", "dense", d, COST_ARMS), 0, kappa=SIGMA)
        found = dict.fromkeys(us, np.inf)
        for _, (name, policy) in product(range(options.count(5, 2) + 1), policies.items()):  # one more: may compile
            tell(f"d = {d}: {name}")
            rounds = few if name == EXACT else 200
            run = simulate(policy, environment, rounds, points=[rounds])
            found[name] = min(found[name], 1e6 * sum(run.seconds.values()) / rounds)
        blas = timed({BLAS: partial(_blas, player, block)}, options.count(5, 2))
        found[BLAS] = 1e6 * blas[BLAS].least / few
        for name, value in found.items():
            us[name].append(value)
    empty = [None] * (len(DIMS) - len(dims))
    rows = [
        [name, *values, *empty, slope(dims[1:], values[1:]) if len(dims) > 2 else None] for name, values in us.items()
    ]
    return Table(rows, f"K = {COST_ARMS} fresh dense arms, choosing and learning, in a compiled loop.")
