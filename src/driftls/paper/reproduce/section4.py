"""The discussion of section 4: why adaptive regularisation keeps an error, with its three terms measured apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls.paper import sgd, theory
from driftls.paper.reproduce.common import Job, Options, of, slope, told, verdict
from driftls.report.model import Claim, Line, Lines, Section
from driftls.schedules import Power, ridge

DIM = 8
CASES: dict[str, tuple[str, str, Any, Any]] = {
    "paper": ("The paper's settings", "γₙ = 1/(100 + n), λₙ = n⁻⁰·⁴", Power(1.0, 100.0, 1.0), Power(1.0, 0.0, 0.4)),
    "discussed": ("As section 4 asks", "γₙ = n⁻⁰·⁶/2, λₙ = n⁻⁰·⁴", Power(0.5, 0.0, 0.6), Power(1.0, 0.0, 0.4)),
    "constant": ("A constant ridge", "γₙ = n⁻⁰·⁶/2, λₙ = 1/n", Power(0.5, 0.0, 0.6), ridge(1.0)),
}
TERMS = {"total": (2, "solid"), "drift": (0, "solid"), "sampling": (0, "dashed"), "initial": (0, "dotted")}
TEXT = [
    "The paper splits the error of fRLS-GD into the start that is not forgotten (initial), the drift of the solution, "
    "and the noise of the drawn rows (sampling), without an experiment. Here: d = 8, eigenvalues from 1 to 1/1000. "
    "Every round's step is split exactly: the terms add up to the error, which as printed they do not.",
    "The first claim holds if the start counts for less with the λₙ that section 4 asks for than with a constant one. "
    "The second holds if with that λₙ the drift does not fall (slope above -0.1), in part if it falls more slowly than "
    "the 1/√n that Theorem 1 has where features are controlled.",
]


def jobs(options: Options) -> list[Job]:
    """Each setting on each seed."""
    rows, seeds = options.pick(4_000, 20_000, 20_000), options.seeds(10, 20, 40)
    return [Job(terms, {"case": case, "rows": rows, "seed": seed}) for case in CASES for seed in seeds]


def terms(case: str, rows: int, seed: int) -> dict[str, Any]:
    """The lengths of the three terms, and of their sum, relative to the solution's.

    Features have eigenvalues from 1 down to 1/1000: nobody controls the smallest.
    """
    rng = np.random.default_rng([seed, 4])
    X = rng.standard_normal((rows, DIM)) * np.geomspace(1.0, 1e-3, DIM) ** 0.5
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = X @ np.full(DIM, DIM**-0.5) + rng.uniform(-1.0, 1.0, rows)
    *_, step, lam = CASES[case]
    tracker = sgd(DIM, step, lam, seed=rng)
    thetas = np.zeros((rows + 1, DIM))
    for n in range(rows):
        tracker.update(X[n], y[n])
        thetas[n + 1] = tracker.theta
    gamma, ridges = (np.array([schedule(n) for n in range(1, rows + 1)]) for schedule in (step, lam))
    split = theory.decompose(X, y, thetas, gamma, regularisation=ridges, n0=DIM)
    points = np.unique(np.geomspace(2 * DIM, rows, 30).astype(int))
    parts = {**split._asdict(), "total": split.total}
    size = np.linalg.norm(thetas[points] - split.total[points - DIM], axis=1)  # of the exact solution
    found = {name: np.linalg.norm(parts[name][points - DIM], axis=1) / size for name in TERMS}
    return {"case": case, "n": points, **found}


def show(options: Options, data: list[dict[str, Any]]) -> Section:
    """A figure for each setting."""
    n, discussed = data[0]["n"], of(data, case="discussed")
    start = {case: [one["initial"][-1] for one in of(data, case=case)] for case in CASES}
    late = next(k for k, at in enumerate(n) if at >= n[-1] / 10)
    falls = [slope(n[late:], one["drift"][late:]) for one in discussed]
    claims = [
        Claim(
            "To forget where it started, fRLS-GD must regularise by a λₙ that falls no faster than n⁻⁰·⁴.",
            f"After {n[-1]:,} rounds the start counts for {told(start['discussed'])} of the solution's length with "
            f"it, and for {told(start['constant'])} with a constant ridge.",
            verdict(bool(np.mean(start["discussed"]) < np.mean(start["constant"]))),
        ),
        Claim(
            "With that λₙ the solution drifts, and only a constant bounds the error that this makes.",
            f"The drift's part is {told([one['drift'][-1] for one in discussed])}, and falls with a slope of {told(falls)}.",
            verdict(bool(np.mean(falls) > -0.1), bool(np.mean(falls) > -0.5)),
        ),
    ]
    figures = []
    for case, (title, formula, *_) in CASES.items():
        runs = of(data, case=case)
        drawn = [Line.over_seeds(term, n, [one[term] for one in runs], *look) for term, look in TERMS.items()]
        caption = f"{formula}. fRLS-GD's error and its three parts: mean and 95% interval of {len(runs)} seeds."
        figures.append(Lines(f"section-4-{case}", title, caption, "round n", "length / the solution's", drawn))
    return Section("section-4", "Section 4: what adaptive regularisation costs", TEXT, figures, claims=claims)
