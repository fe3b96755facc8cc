"""The picture of the README: a real table as a bandit, by a policy without a setting and by an exact one that was tuned."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import across
from driftls import ridge
from driftls.errors import ConditioningWarning
from driftls.policies import DisjointLinUCB
from driftls.report.figures import save
from driftls.report.model import Line, Lines
from driftls.trackers import RAW, RLS
from driftls.widths import ExactWidth

DIM, CLASSES = 64, list(range(10))
TUNED = (100.0, 0.1)  # ridge and kappa: the best of 10 to 1,000 and 0.03 to 1 on two other seeds


def _ours(rows: Any, seed: int) -> tuple[Any, Any]:
    return DisjointLinUCB(DIM, seed=seed), rows


def _tuned(rows: Any, seed: int) -> tuple[Any, Any]:
    """With a constant among the features, as large as a pixel can be."""
    tracker = RLS(DIM + 1, regularisation=ridge(TUNED[0]), **RAW)
    policy = DisjointLinUCB(DIM + 1, tracker=tracker, width=ExactWidth(), kappa=TUNED[1], seed=seed)
    return policy, np.column_stack([rows, np.full(len(rows), 16.0)])


def _rights(seed: int, rounds: int) -> list[Any]:
    """Which rounds were right: of each policy, on the pixels as they are and on those in other units."""
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(seed)
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))[:rounds]
    units, rewards = 10.0 ** rng.uniform(-3.0, 3.0, DIM), np.eye(10)[y[order]]
    found = []
    for make in (_ours, _tuned):
        for rows in (X[order], X[order] * units):
            policy, features = make(rows, seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConditioningWarning)  # of the tuned one in other units
                chosen = policy.play(features, rewards, ids=CLASSES)
            found.append(rewards[np.arange(rounds), chosen])
    return found


def draw(folder: Path, *, seeds: int = 20, rounds: int = 1797) -> Path:
    """Share of right answers against the number of rounds, as learning.svg."""
    runs = 100.0 * np.array(across(partial(_rights, rounds=rounds), range(seeds)))
    at = np.linspace(50, rounds, 40).astype(int)
    share = np.cumsum(runs, axis=2)[:, :, at - 1] / at
    same = 100.0 * float((runs[:, 0] == runs[:, 1]).mean())
    lines = [
        Line.over_seeds("driftls", at.tolist(), share[:, 0].tolist(), colour=3),
        Line.over_seeds("exact, tuned", at.tolist(), share[:, 2].tolist(), colour=1),
        Line.over_seeds("tuned, other units", at.tolist(), share[:, 3].tolist(), colour=2, dash="dashed"),
        Line("random", [int(at[0]), rounds], [10.0, 10.0], dash="dotted"),
    ]
    caption = (
        "scikit-learn's digits as a bandit: 10 arms, reward 1 for the right one. driftls: DisjointLinUCB(64), which has "
        "no setting. Exact: LinUCB whose ridge and κ were tuned for this table. Other units: every pixel multiplied by "
        f"10^U(−3, 3), which left {same:.1f}% of driftls's answers as right or wrong as they were. Bands: 95%."
    )
    return save(Lines("learning", "Right answers so far", caption, "round", "right, %", lines, log=""), folder)
