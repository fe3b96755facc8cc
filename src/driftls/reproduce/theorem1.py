"""Theorem 1: the error of fOLS-GD, its mean and its quantile, under both printed bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls import theory
from driftls.report import Line, Lines, Section, Table, number
from driftls.reproduce.work import Options, Piece
from driftls.schedules import Power
from driftls.trackers import GD

TITLE = "Theorem 1: the error of fOLS-GD"
DELTA = 0.05
# mu c/4: regimes (i) and (ii) of the appendix, then two values that the theorem admits
PRODUCTS = {"i": 0.3, "ii": 2.0 / 3.0, "iii": 0.75, "iii, larger": 0.95}
POLYAK = 0.0  # no c at all: the step n^-0.6 and the mean of all iterates
POINTS = 14


def pieces(options: Options) -> list[Piece]:
    """Theorem 1's step for several d, the other step sizes for one of them."""
    rows, runs = options.pick(4_000, 20_000, 50_000), options.pick(100, 200, 400)
    dims = options.pick([2, 10], [2, 10, 30], [2, 10, 30])
    todo = [(dim, PRODUCTS["iii"]) for dim in dims]
    todo += [(10, product) for product in [*PRODUCTS.values(), POLYAK] if product != PRODUCTS["iii"]]
    return [
        Piece(
            "averaged GD, dense" if product == POLYAK else "GD, dense",
            errors,
            {"dim": dim, "product": product, "rows": rows, "runs": runs, "seed": options.seed},
        )
        for dim, product in todo
    ]


def errors(dim: int, product: float, rows: int, runs: int, seed: int) -> dict[str, Any]:
    """Mean and 1 - delta quantile of the error over runs that share features and differ in noise and draws."""
    rng = np.random.default_rng([seed, dim])
    X = rng.standard_normal((rows, dim))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    n0 = 20 * dim
    points = np.unique(np.geomspace(n0 + 1, rows, POINTS).astype(int)).tolist()
    averages = np.cumsum(X[:, :, None] * X[:, None, :], axis=0)[n0 - 1 :: dim]
    counts = np.arange(n0, rows + 1, dim)[: len(averages), None]
    mu = float((np.linalg.eigvalsh(averages)[:, :1] / counts).min())
    c = 4.0 * product / mu
    step, average = (Power(1.0, 0.0, 0.6), "polyak") if product == POLYAK else (Power(c / 4.0, c, 1.0), None)
    found = []
    for child in rng.spawn(runs):
        y = X @ np.full(dim, dim**-0.5) + child.choice([-1.0, 1.0], rows)
        tracker = GD(dim, step_size=step, regularisation=0.0, averaging=average, steps=1, seed=child)
        found.append([])
        for first, last in zip([0, *points], points):
            tracker.partial_fit(X[first:last], y[first:last])
            found[-1].append(tracker.tracking_error().absolute)
    quantile = np.quantile(found, 1.0 - DELTA, axis=0)
    told = {"dim": dim, "product": product, "mu": mu, "c": c, "n0": n0, "n": points, "runs": runs}
    return {**told, "mean": np.mean(found, axis=0), "quantile": quantile, **_bounds(told)}


def _bounds(told: dict[str, Any]) -> dict[str, Any]:
    """Both printed forms, where the theorem admits c."""
    low, high = theory.admissible_c(told["mu"])
    if not low * (1 + 1e-9) < told["c"] < high:
        return {}
    settings = {key: told[key] for key in ("mu", "c", "dim", "n0")}
    forms = {"theorem": theory.bound_theorem, "appendix": theory.bound_appendix}
    return {name: tuple(form(told["n"], delta=DELTA, **settings)) for name, form in forms.items()}


def show(options: Options, data: list[dict[str, Any]]) -> Section:
    """The bounds over one run, several d, the regimes with the average, and a table of all."""
    one = next(each for each in data if each["dim"] == 10 and each["product"] == PRODUCTS["iii"])
    ours = [each for each in data if each["product"] == PRODUCTS["iii"]]
    regimes = [next(e for e in data if e["dim"] == 10 and e["product"] == p) for p in [*PRODUCTS.values(), POLYAK]]
    loose = [bound[k][-1] / each[kind][-1] for each in data if "theorem" in each for bound in (each["theorem"], each["appendix"]) for k, kind in enumerate(("mean", "quantile"))]  # fmt: skip
    slope = {each["product"]: _slope(each) for each in regimes}
    axis = "‖θₙ − OLS‖"
    items = [
        Lines(
            "theorem-1-bounds",
            "Measured error and both bounds, d = 10",
            f"Mean and {1 - DELTA:.0%} quantile over {one['runs']} runs, solid; the bounds on them as the theorem and "
            "as the appendix prints them, dashed and dotted.",
            "round n",
            axis,
            [
                Line("95% quantile", one["n"], one["quantile"], 2),
                Line("mean", one["n"], one["mean"], 1),
                Line("theorem, 95%", one["n"], one["theorem"][1], 2, "dashed"),
                Line("theorem, mean", one["n"], one["theorem"][0], 1, "dashed"),
                Line("appendix, 95%", one["n"], one["appendix"][1], 2, "dotted"),
                Line("appendix, mean", one["n"], one["appendix"][0], 1, "dotted"),
            ],
        ),
        Lines(
            "theorem-1-dims",
            "Several d, μc/4 = 3/4",
            "The mean error, solid, and the theorem's bound on it, dashed. Lines of n^(−1/2) are parallel to the thin one.",
            "round n",
            axis,
            [
                line
                for colour, each in enumerate(ours, 1)
                for line in (
                    Line(f"d = {each['dim']}", each["n"], each["mean"], colour),
                    Line(f"bound, d = {each['dim']}", each["n"], each["theorem"][0], colour, "dashed"),
                )
            ]
            + [_root(ours[0])],
        ),
        Lines(
            "theorem-1-regimes",
            "The three regimes of μc, and Polyak's average, d = 10",
            "The mean error. Below regime (iii) the steps are too small for the rate n^(−1/2); the average of iterates "
            "with step n^(−0.6) needs no μ.",
            "round n",
            axis,
            [
                Line(label, each["n"], each["mean"], colour)
                for colour, (label, each) in enumerate(zip(_names(), regimes), 1)
            ],
        ),
        Table(
            "theorem-1",
            "At the last round",
            ["d", "μc/4", "n", "mean", "95% quantile", "theorem over mean", "appendix over mean", "slope"],
            [
                [
                    str(each["dim"]),
                    "Polyak" if each["product"] == POLYAK else f"{each['product']:.2f}",
                    f"{each['n'][-1]:,}",
                    number(each["mean"][-1]),
                    number(each["quantile"][-1]),
                    *(number(each[form][0][-1] / each["mean"][-1]) if form in each else "–" for form in ("theorem", "appendix")),
                    f"{_slope(each):.2f}",
                ]
                for each in data
            ],
            "Slope: of log error against log n over the later half of the points. The theorem promises −0.5 up to logs.",
        ),
    ]  # fmt: skip
    return Section(
        "theorem-1",
        TITLE,
        [
            "The paper bounds the distance of fOLS-GD from ordinary least squares, in mean and with probability 1 − δ, "
            "by K(n)/√(n + c), if 2/3 < μc/4 < 1. It has no experiment on it.",
            "Here: features uniform on the sphere, noise ±1, θ₀ = 0 at distance 1 from θ*, δ = 0.05; μ is the smallest "
            "eigenvalue of Aₙ/n from round n₀ = 20 d on. The theorem and its proof print two forms, which differ in "
            "powers of μ: both are drawn. They are far above what happens because they bound every step by its worst "
            "case, with constants such as 128 d.",
        ],
        items,
        f"both printed bounds hold, {number(min(loose))} to {number(max(loose))} times above the measured error; the "
        f"rate is right (slope {slope[PRODUCTS['iii']]:.2f} where −0.5 is promised, {slope[PRODUCTS['i']]:.2f} with too "
        f"small a c, {slope[POLYAK]:.2f} with Polyak's average, which needs no μ).",
    )


def _names() -> list[str]:
    return [f"({key.split(',')[0]}) μc/4 = {product:.2f}" for key, product in PRODUCTS.items()] + ["Polyak"]


def _slope(each: dict[str, Any]) -> float:
    half = len(each["n"]) // 2
    return float(np.polyfit(np.log(each["n"][half:]), np.log(each["mean"][half:]), 1)[0])


def _root(each: dict[str, Any]) -> Line:
    n = np.array(each["n"], dtype=float)
    return Line("n^(−1/2)", n.tolist(), (0.3 * each["mean"][-1] * np.sqrt(n[-1] / n)).tolist(), 0, "dotted")
