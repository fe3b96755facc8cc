"""The evidence rule where the tracker forgets: does it find the ridge of the prior, and what does that bring?

One model an arm; the coefficients are draws of the prior, as the rule assumes, with noise 1 and features of spread 1: so the
right ridge is known. They stay, or each wanders back and forth with a memory of 500 rounds and the prior's variance.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks.measure import Options, Table, across, difference, mean, tell
from driftls import ridge
from driftls.history import Window
from driftls.policies import DisjointLinUCB
from driftls.trackers import RLS, SAGA
from driftls.widths import CentredWidth, ExactWidth

DIM, ARMS, ROUNDS, HELD, MEMORY = 10, 5, 4_000, 300, 500
RIDGES = (0.3, 3.0, 30.0, 100.0)
MODELS: dict[str, Callable[..., Any]] = {
    "RLS, all rows": lambda **k: {"tracker": RLS(DIM, **k), "width": ExactWidth()},
    f"RLS, window of {HELD}": lambda **k: {"tracker": RLS(DIM, history=Window(HELD), **k), "width": ExactWidth()},
    "SAGA, all rows": lambda **k: {"tracker": SAGA(DIM, **k), "width": CentredWidth()},
    f"SAGA, window of {HELD}": lambda **k: {"tracker": SAGA(DIM, history=Window(HELD), **k), "width": CentredWidth()},
}


def _bandit(seed: int, lam: float, moves: bool, rounds: int) -> tuple[Any, Any, Any]:
    """Users, expected rewards of their arms, and what is seen of them."""
    rng = np.random.default_rng([0xE7, seed, round(100 * lam)])
    users, size = rng.normal(size=(rounds, DIM)), lam**-0.5
    theta, keep = size * rng.normal(size=(ARMS, DIM)), np.exp(-1.0 / MEMORY) if moves else 1.0
    new = size * np.sqrt(1.0 - keep**2)
    expected = np.zeros((rounds, ARMS))
    for n, x in enumerate(users):
        expected[n] = theta @ x
        if moves:
            theta = keep * theta + new * rng.normal(size=theta.shape)
    return users, expected, expected + rng.normal(size=expected.shape)


def _play(name: str, moves: bool, lam: float, seed: int, rounds: int) -> list[float]:
    """The ridge that was found; reward, % of what the best arms bring over random ones, with it and with ridge(1)."""
    users, expected, rewards = _bandit(seed, lam, moves, rounds)
    late, found = slice(rounds // 4, rounds), []
    for settings in ({}, {"regularisation": ridge(1.0)}):
        policy = DisjointLinUCB(DIM, **MODELS[name](**settings), seed=seed)
        chosen = []
        for x, seen in zip(users, rewards):
            k = int(policy.choose(x, ids=range(ARMS)))
            policy.learn(x, float(seen[k]), arm=k, ids=range(ARMS))
            chosen.append(k)
        if not settings:
            found.append(policy.strength.ridge)
        won = (expected[np.arange(rounds), chosen] - expected.mean(axis=1))[late].mean()
        found.append(100.0 * won / (expected.max(axis=1) - expected.mean(axis=1))[late].mean())
    return found


def evidence(options: Options) -> Table:
    rounds, seeds = (300 if options.quick else ROUNDS), range(options.count(8, 2))
    cases = list(product(MODELS, (False, True), RIDGES))
    jobs = [(*case, seed) for case, seed in product(cases, seeds)]
    tell(f"{len(jobs)} runs")
    found = np.reshape(across(partial(_play, rounds=rounds), *zip(*jobs)), (len(cases), len(seeds), 3))
    rows = [
        [
            f"{name}, θ* {'wanders' if moves else 'stays'}",
            lam,
            float(np.median(ridges)),
            mean(rule),
            difference(rule, one),
        ]
        for (name, moves, lam), (ridges, rule, one) in zip(cases, found.transpose(0, 2, 1))
    ]
    return Table(rows, f"DisjointLinUCB, d = {DIM}, {ARMS} arms, {rounds:,} rounds, {len(seeds)} seeds, paired.")
