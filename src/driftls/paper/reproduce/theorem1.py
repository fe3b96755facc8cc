"""Theorem 1: the error of fOLS-GD, its mean and its quantile, under both printed bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls.paper import theory
from driftls.paper.reproduce.work import Options, Piece
from driftls.report import Item, Line, Lines, Section, Table, number
from driftls.schedules import Power
from driftls.trackers import GD

TITLE = "Theorem 1: the error of fOLS-GD"
DELTA = 0.05
# mu c/4: regimes (i) and (ii) of the appendix, then two values that the theorem admits
PRODUCTS = {"i": 0.3, "ii": 2.0 / 3.0, "iii": 0.75, "iii, larger": 0.95}
POLYAK = 0.0  # no c at all: the step n^-0.6 and the mean of all iterates
POINTS = 14
AXES = ("round n", "‖θₙ − OLS‖")
TEXT = [
    "The paper bounds the distance of fOLS-GD from ordinary least squares, in mean and with probability 1 − δ, by "
    "K(n)/√(n + c), if 2/3 < μc/4 < 1. It has no experiment on it.",
    "Here: features uniform on the sphere, noise ±1, θ₀ = 0 at distance 1 from θ*, δ = 0.05; μ is the smallest "
    "eigenvalue of Aₙ/n from round n₀ = 20 d on. The theorem and its proof print two forms, which differ in powers of "
    "μ: both are drawn. They bound every step by its worst case, with constants such as 128 d.",
]


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
    found: list[list[float]] = []
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
    ours = [each for each in data if each["product"] == PRODUCTS["iii"]]
    ten = {each["product"]: each for each in data if each["dim"] == 10}
    regimes = [ten[product] for product in [*PRODUCTS.values(), POLYAK]]
    loose, slope = _looseness(data), {product: _slope(each) for product, each in ten.items()}
    found = (
        f"the printed bounds {'hold' if min(loose) >= 1.0 else 'do not hold'}: they are {number(min(loose))} to "
        f"{number(max(loose))} times the measured error. The error falls with a slope of {slope[PRODUCTS['iii']]:.2f} "
        f"where -0.5 is promised, {slope[PRODUCTS['i']]:.2f} with too small a c, and {slope[POLYAK]:.2f} with Polyak's "
        "average, which needs no μ."
    )
    items = [_bounds_figure(ten[PRODUCTS["iii"]]), _dims_figure(ours), _regimes_figure(regimes), _table(data)]
    return Section("theorem-1", TITLE, TEXT, items, found)


def _bounds_figure(one: dict[str, Any]) -> Item:
    lines = [Line(kind, one["n"], one[kind], colour) for colour, kind in ((1, "mean"), (2, "quantile"))]
    for form, dash in (("theorem", "dashed"), ("appendix", "dotted")):
        for colour, (bound, kind) in enumerate(zip(one[form], ("mean", "quantile")), 1):
            lines.append(Line(f"{form}, {kind}", one["n"], bound, colour, dash))
    caption = (
        f"Mean and {1 - DELTA:.0%} quantile over {one['runs']} runs, solid; the bounds on them as the theorem and as "
        "the appendix prints them, dashed and dotted."
    )
    return Lines("theorem-1-bounds", "Measured error and both bounds, d = 10", caption, *AXES, lines)


def _dims_figure(ours: list[dict[str, Any]]) -> Item:
    lines = []
    for colour, each in enumerate(ours, 1):
        lines.append(Line(f"d = {each['dim']}", each["n"], each["mean"], colour))
        lines.append(Line(f"bound, d = {each['dim']}", each["n"], each["theorem"][0], colour, "dashed"))
    n = np.array(ours[0]["n"], dtype=float)
    lines.append(Line("n^(-1/2)", n.tolist(), (0.3 * ours[0]["mean"][-1] * np.sqrt(n[-1] / n)).tolist(), 0, "dotted"))
    caption = "The mean error, solid, and the theorem's bound on it, dashed; the slope of n^(-1/2), dotted."
    return Lines("theorem-1-dims", "Several d, μc/4 = 3/4", caption, *AXES, lines)


def _regimes_figure(regimes: list[dict[str, Any]]) -> Item:
    names = [f"({key.split(',')[0]}) μc/4 = {product:.2f}" for key, product in PRODUCTS.items()] + ["Polyak"]
    lines = [Line(name, each["n"], each["mean"], k) for k, (name, each) in enumerate(zip(names, regimes), 1)]
    caption = (
        "The mean error in the appendix's regimes (i) to (iii), and of the average of iterates with step n^(-0.6)."
    )
    return Lines("theorem-1-regimes", "The three regimes of μc, and Polyak's average, d = 10", caption, *AXES, lines)


def _table(data: list[dict[str, Any]]) -> Item:
    rows = []
    for each in data:
        mean, quantile = each["mean"][-1], each["quantile"][-1]
        over = [number(each[form][0][-1] / mean) if form in each else "–" for form in ("theorem", "appendix")]
        product = "–" if each["product"] == POLYAK else f"{each['product']:.2f}"
        name = "averaged" if each["product"] == POLYAK else "last iterate"
        rows.append([name, str(each["dim"]), product, number(mean), number(quantile), *over, f"{_slope(each):.2f}"])
    head = ["estimate", "d", "μc/4", "mean", "95% quantile", "theorem / mean", "appendix / mean", "slope"]
    note = "Slope: of log error against log n over the later half of the points."
    return Table("theorem-1", f"At round {data[0]['n'][-1]:,}", head, rows, note)


def _looseness(data: list[dict[str, Any]]) -> list[float]:
    """Each bound over what it bounds, at every point."""
    return [
        float(ratio)
        for each in data
        for form in ("theorem", "appendix")
        if form in each
        for bound, kind in zip(each[form], ("mean", "quantile"))
        for ratio in np.divide(bound, each[kind])
    ]


def _slope(each: dict[str, Any]) -> float:
    half = len(each["n"]) // 2
    return float(np.polyfit(np.log(each["n"][half:]), np.log(each["mean"][half:]), 1)[0])
