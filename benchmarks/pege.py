"""PEGE on the sphere: the regret of exact and fast variants; all of a seed meet the same theta* and the same noise.

No knob is tuned on the seeds reported. That "averaged" steps on the newest row with the mean of all iterates, and not
on drawn rows with a tail average, was decided on the seeds 1000 to 1007; its step of 0.5/||x||^2 is the default of GD.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks.measure import Options, Table, across, mean, ratio, tell
from driftls import paper
from driftls.paper.actions import LinearBandit, Sphere
from driftls.paper.pege import PEGE, play
from driftls.trackers import GD, RAW

VARIANTS = {
    "PEGE, exact": lambda actions, seed: PEGE(actions),
    "averaged steps": lambda actions, seed: paper.fpege_gd(actions, step="averaged"),
    "theorem's step": lambda actions, seed: paper.fpege_gd(actions, step="theorem", seed=seed),
    "printed c/n": lambda actions, seed: paper.fpege_gd(actions, step="printed", seed=seed),
    "averaged, drawn rows, 4 steps": lambda actions, seed: _drawn(actions, seed, 4),
    "averaged, drawn rows, 8 steps": lambda actions, seed: _drawn(actions, seed, 8),
}


def _drawn(actions: Any, seed: int, steps: int) -> PEGE:
    return PEGE(actions, GD(actions.dim, regularisation=0.0, steps=steps, seed=seed, **RAW))


def _phases(dim: int, rounds: int) -> float:
    """The m for which m d + m(m + 1)/2 rounds are over."""
    half = dim + 0.5
    return -half + math.sqrt(half**2 + 2 * rounds)


def _regret(name: str, seed: int, dim: int, points: Any) -> Any:
    actions = Sphere(dim)
    # uniform on [-1, 1], the widest of its kind that (A3) allows
    bandit = LinearBandit(actions, reward="bounded", sigma=3**-0.5, seed=seed)
    return play(VARIANTS[name](actions, seed), bandit, int(points[-1]), checkpoints=points).regret


def pege(options: Options) -> Table:
    dim, rounds = (10, 20_000) if options.quick else (50, 10**6)
    seeds, points = range(options.count(20, 4)), np.array([rounds // 10, rounds])
    tell(f"{len(VARIANTS)} variants, {len(seeds)} seeds")
    found = across(partial(_regret, dim=dim, points=points), *zip(*product(VARIANTS, seeds)))
    regret = dict(zip(VARIANTS, np.reshape(found, (len(VARIANTS), len(seeds), 2))))
    base = np.array(regret["PEGE, exact"])[:, 1]
    rows = []
    for name, each in regret.items():
        before, last = np.array(each).T
        rows.append([name, mean(last), ratio(last, base), mean(np.log10(last / before))])
    expected = math.log10(_phases(dim, rounds) / _phases(dim, rounds // 10))
    note = f"Unit sphere, d = {dim}, {rounds:,} rounds, {len(seeds)} seeds; the number of phases has a slope of "
    return Table(rows, f"{note}{expected:.3f}.")
