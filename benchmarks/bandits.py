"""Simulated bandits: what fast policies lose against exact ones, what defaults lose against tuned ones, what they cost.

All policies of a seed meet the same arms, the same theta* and the same noise.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np

from benchmarks.measure import TUNING, Mean, Options, Table, mean, ratio, slope, tell, timed
from benchmarks.peers.exact import ShermanMorrison
from benchmarks.peers.problems import Problem
from driftls import paper, ridge
from driftls.environments import FixedArms, FreshContexts, Jumps, Rotates
from driftls.features import UserOnly
from driftls.history import Window
from driftls.logs import synthetic_day
from driftls.policies import DisjointLinUCB, Greedy, LinUCB
from driftls.simulation import simulate
from driftls.trackers import CD, GD, RAW, RLS, SAGA, Diagonal
from driftls.widths import DiagonalWidth, ExactWidth, PhiWidth

DIM, ARMS, ROUNDS = 50, 100, 10_000
SIGMA = 0.3
KAPPA = 2 * SIGMA
Make = Callable[[int], Any]


def _exact(dim: int, *, lam: float = 1.0, kappa: float | None = KAPPA, **settings: Any) -> LinUCB:
    return LinUCB(tracker=RLS(dim, regularisation=ridge(lam), **settings, **RAW), width=ExactWidth(), kappa=kappa)


def _linucb(tracker: Any, width: Any, seed: int) -> LinUCB:
    return LinUCB(tracker=tracker, width=width, kappa=KAPPA, seed=seed)


# -- fixed arms ------------------------------------------------------------------------------------------------------

EXACT = "exact LinUCB"
FIXED: dict[str, Make] = {
    EXACT: lambda s: _exact(DIM),
    "SAGA (4 steps) + φ": lambda s: _linucb(SAGA(DIM, steps=4, seed=s, **RAW), PhiWidth(), s),
    "SAGA (4 steps) + diagonal": lambda s: _linucb(SAGA(DIM, steps=4, seed=s, **RAW), DiagonalWidth(), s),
    "greedy": lambda s: Greedy(RLS(DIM, **RAW), seed=s),
    "fLinUCB-GD as printed": lambda s: paper.flinucb_gd(DIM, kappa=KAPPA, seed=s),
}
NO_WIDTH = ("greedy", "fLinUCB-GD as printed")  # or none that an exact one of the same ridge stands beside


def fixed(options: Options) -> Table:
    rounds, seeds = (1000 if options.quick else ROUNDS), range(options.count(120, 3))
    names = list(FIXED)
    found: dict[str, list[Any]] = {name: [] for name in names}
    for seed in seeds:
        environment = FixedArms(DIM, ARMS, sigma=SIGMA, seed=seed)
        for name in names:
            tell(f"seed {seed}: {name}")
            found[name].append(_played(name, environment, rounds, seed))
    base = [one[0] for one in found[EXACT]]
    rows = []
    for name, each in found.items():
        regret, us, errors = zip(*each)
        wrong = None if errors[0] is None else np.mean(errors, axis=0)
        widths = [None, None] if wrong is None else [f"{wrong.max():.2%}", f"{wrong[-1]:.2%}"]
        median = statistics.median(regret)
        rows.append([name, mean(regret), median, ratio(regret, base), *widths, statistics.median(us)])
    return Table(
        rows, f"d = {DIM}, K = {ARMS}, {rounds:,} rounds, σ = {SIGMA}, κ = {KAPPA}, λ = 1, {len(seeds)} seeds."
    )


def _played(name: str, environment: Any, rounds: int, seed: int) -> tuple[float, float, Any]:
    points = [point for point in (100, 300, 1000, 3000, 10_000) if point <= rounds]
    run = simulate(FIXED[name](seed), environment, rounds, points=points, width_error=name not in NO_WIDTH)
    return run.last("regret"), 1e6 * sum(run.seconds.values()) / rounds, run.traces.get("width_error")


# -- defaults --------------------------------------------------------------------------------------------------------

FRESH, USERS = 200, 136


def _reward(policy: Any, environment: Any, rounds: int) -> float:
    """The sum of the means of what was chosen."""
    run = simulate(policy, environment, rounds, points=[rounds])
    return float(run.last("reward") - environment.noise(1, rounds).sum())


def _clicks(policy: DisjointLinUCB, lines: int, seed: int) -> float:
    """The sum of the truths of what was chosen on a day thinned to so many lines, each of them a round."""
    luck, features, total = np.random.default_rng([seed, 77]), UserOnly(USERS), 0.0
    block: Any
    for block in synthetic_day(lines=lines, seed=seed).blocks(truth=True):
        users, at = features.users(block), block.truth_start
        uniforms = luck.random(len(block))
        borders = [0, *(np.flatnonzero(np.diff(block.pool)) + 1).tolist(), len(block)]
        for first, last in pairwise(borders):
            ids = block[first].arms.tolist()
            truth = block.truth[at[first] : at[last]].reshape(last - first, len(ids))
            rewards = (uniforms[first:last, None] < truth).astype(float)
            chosen = policy.play(users[first:last], rewards, ids=ids)
            total += float(truth[np.arange(last - first), chosen].sum())
    return total


def _each(seed: int, **settings: Any) -> DisjointLinUCB:
    return DisjointLinUCB(USERS, seed=seed, **settings)


# problem: how a policy is played, lambdas, kappas, exact LinUCB with them, rounds, seeds and what has no knob
CASES: dict[str, dict[str, Any]] = {
    f"fresh dense arms, d = {FRESH}": {
        "play": lambda policy, rounds, seed: _reward(policy, FreshContexts(FRESH, 20, sigma=SIGMA, seed=seed), rounds),
        "grid": ([1.0, 3.0, 10.0, 30.0], [0.03, 0.1, 0.3]),
        "exact": lambda lam, kappa, s: _exact(FRESH, lam=lam, kappa=kappa),
        "rounds": ROUNDS,
        "seeds": (30, 5),
        "policies": {
            "LinUCB, default": lambda s: LinUCB(FRESH, seed=s),
            "SAGA + diagonal": lambda s: LinUCB(tracker=SAGA(FRESH, seed=s, **RAW), width=DiagonalWidth(), seed=s),
        },
    },
    "articles, d = 136": {
        "play": _clicks,
        "grid": ([10.0, 30.0, 100.0, 300.0], [0.5, 1.0, 2.0]),
        "exact": lambda lam, kappa, s: _each(
            s, tracker=RLS(USERS, regularisation=ridge(lam), **RAW), width=ExactWidth(), kappa=kappa
        ),
        "rounds": 20_000,
        "seeds": (100, 8),
        "policies": {
            "DisjointLinUCB, default": _each,
            "SAGA + diagonal": lambda s: _each(s, tracker=SAGA(USERS, regularisation=ridge(60.0), **RAW)),
        },
    },
    f"fixed arms, d = {DIM}": {
        "play": lambda policy, rounds, seed: _reward(policy, FixedArms(DIM, ARMS, sigma=SIGMA, seed=seed), rounds),
        "grid": ([0.3, 1.0, 3.0, 10.0], [0.3, 0.45, 0.6]),
        "exact": lambda lam, kappa, s: _exact(DIM, lam=lam, kappa=kappa),
        "rounds": ROUNDS,
        "seeds": (100, 20),
        "policies": {
            "LinUCB, default": lambda s: LinUCB(DIM, seed=s),
        },
    },
}


def defaults(options: Options) -> Table:
    rows, chosen = [], []
    for name, case in CASES.items():
        if options.only and not any(part in name for part in options.only):
            continue
        rounds = case["rounds"] // (20 if options.quick else 1)
        seeds, tuning = (range(options.count(case["seeds"][0], 3)), 2 if options.quick else case["seeds"][1])

        def rewards(make: Make, seeds: Any, case: Any = case, rounds: int = rounds) -> list[float]:
            return [case["play"](make(seed), rounds, seed) for seed in seeds]

        grid = {}
        for lam, kappa in product(*case["grid"]):
            tell(f"{name}: tuning, λ = {lam}, κ = {kappa}")
            make = lambda s, lam=lam, kappa=kappa, case=case: case["exact"](lam, kappa, s)  # noqa: E731
            grid[lam, kappa] = np.mean(rewards(make, range(TUNING, TUNING + tuning))), make
        best = max(grid, key=lambda setting: grid[setting][0])
        chosen.append(f"{name}: λ = {best[0]:g}, κ = {best[1]:g}, {rounds:,} rounds, {len(seeds)} seeds")
        base = rewards(grid[best][1], seeds)
        rows.append([name, "exact, tuned", mean(base), None])
        for policy, make in case["policies"].items():
            tell(f"{name}: {policy}")
            found = rewards(make, seeds)
            change = ratio(found, base)
            rows.append([None, policy, mean(found), Mean(100.0 * (change.value - 1.0), 100.0 * change.half)])
    return Table(rows, f"Tuned on other seeds: {'; '.join(chosen)}.")


# -- a theta* that moves ---------------------------------------------------------------------------------------------

DISCOUNT, MEMORY = 0.998, 500
MOVES: dict[str, Any] = {"jumps every 2,500": Jumps(2500), "turns once in 10,000": Rotates(10_000)}
MOVING: dict[str, Make] = {
    "exact D-LinUCB": lambda s: _exact(DIM, discount=DISCOUNT, method="inverse"),
    "exact, the ridge fades too": lambda s: _exact(DIM, discount=DISCOUNT, method="sherman-morrison"),
    "exact, no forgetting": lambda s: _exact(DIM),
    f"SAGA, window of {MEMORY}, + φ": lambda s: _linucb(
        SAGA(DIM, history=Window(MEMORY), seed=s, **RAW), PhiWidth(steps=4), s
    ),
    "newest row + diagonal": lambda s: _linucb(
        GD(DIM, newest=True, regularisation=ridge(1.0), **RAW), DiagonalWidth(), s
    ),
}


def moving(options: Options) -> Table:
    rounds, seeds = (1000 if options.quick else ROUNDS), range(options.count(16, 3))
    rows = []
    for title, moves in MOVES.items():
        regret: dict[str, list[float]] = {name: [] for name in MOVING}
        for seed, (name, make) in product(seeds, MOVING.items()):
            tell(f"{title}, seed {seed}: {name}")
            environment = FixedArms(DIM, ARMS, sigma=SIGMA, moves=moves, seed=seed)
            regret[name].append(simulate(make(seed), environment, rounds, points=[rounds]).last("regret"))
        base = regret["exact D-LinUCB"]
        rows += [[title, name, mean(values), ratio(values, base)] for name, values in regret.items()]
    return Table(rows, f"The fixed arms from above, discount {DISCOUNT}, {rounds:,} rounds, {len(seeds)} seeds.")


# -- cost ------------------------------------------------------------------------------------------------------------

COST_ARMS, DIMS = 20, (64, 256, 1024, 4096)
COST: dict[str, Callable[[int], Any]] = {
    "Diagonal + diagonal": lambda d: LinUCB(tracker=Diagonal(d, **RAW), width=DiagonalWidth(), kappa=SIGMA),
    "SAGA (8 steps) + diagonal": lambda d: LinUCB(tracker=SAGA(d, seed=0, **RAW), width=DiagonalWidth(), kappa=SIGMA),
    "SAGA (8 steps) + φ (4 steps)": lambda d: LinUCB(
        tracker=SAGA(d, seed=0, **RAW), width=PhiWidth(steps=4), kappa=SIGMA
    ),
    "CD (4 steps) + diagonal": lambda d: LinUCB(tracker=CD(d, **RAW), width=DiagonalWidth(), kappa=SIGMA),
    EXACT: lambda d: _exact(d, kappa=SIGMA),
}
BLAS = "exact, NumPy with BLAS"


def _blas(player: ShermanMorrison, block: Any) -> None:
    """The exact method as a careful user would write it."""
    for arms, means, noise in zip(block.arms, block.means, block.noise):
        k = int(player.choose(arms))
        player.learn(arms, k, float(means[k] + noise))


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
        for _ in range(options.count(5, 2) + 1):  # one more: which may compile
            for name, policy in policies.items():
                tell(f"d = {d}: {name}")
                rounds = few if name == EXACT else 200
                run = simulate(policy, environment, rounds, points=[rounds])
                found[name] = min(found[name], 1e6 * sum(run.seconds.values()) / rounds)
            blas = timed({BLAS: partial(_blas, player, block)}, 1)
            found[BLAS] = min(found[BLAS], 1e6 * blas[BLAS].least / few)
        for name, value in found.items():
            us[name].append(value)
    empty = [None] * (len(DIMS) - len(dims))
    rows = [
        [name, *values, *empty, slope(dims[1:], values[1:]) if len(dims) > 2 else None] for name, values in us.items()
    ]
    return Table(rows, f"K = {COST_ARMS} fresh dense arms, choosing and learning.")
