"""Theorem 1: the error of fOLS-GD, its mean and its quantile, under both printed bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls.history import Growing
from driftls.paper import theory
from driftls.paper.reproduce.show import Ratio, of, slope
from driftls.paper.reproduce.work import Job, Options
from driftls.report import Claim, Finding, Item, Line, Lines, Section, Table, number
from driftls.schedules import Power
from driftls.trackers import GD, RAW

TITLE = "Theorem 1: the error of fOLS-GD"
DELTA = 0.05
# mu c/4: regimes (i) and (ii) of the appendix, then two values that the theorem admits
PRODUCTS = {"i": 0.3, "ii": 2.0 / 3.0, "iii": 0.75, "iii, larger": 0.95}
POLYAK = 0.0  # no c at all: the step n^-0.6 and the mean of all iterates
ADMITTED = PRODUCTS["iii"]
AXES = ("round n", "‖θₙ − OLS‖")
TEXT = [
    "The paper has no experiment on it. Here: features uniform on the sphere, noise ±1, θ₀ = 0 at distance 1 from θ*, "
    "δ = 0.05; μ is the smallest eigenvalue of Aₙ/n from round n₀ = 20 d on. The theorem and its proof print two "
    "forms, which differ in powers of μ: both are drawn. They take the worst case of every step, times 128 d and more.",
    "The first claim holds if no bound is below what it bounds, at any point. The second holds if the slope of log "
    "error against log n, over the later half of the points, is below -0.4 with the theorem's c.",
]


def jobs(options: Options) -> list[Job]:
    """Theorem 1's step for several d, the other step sizes for one of them."""
    rows, runs = options.pick(4_000, 20_000, 50_000), options.pick(100, 200, 400)
    todo = [(dim, ADMITTED) for dim in options.pick([2, 10], [2, 10, 30], [2, 10, 30])]
    todo += [(10, product) for product in [*PRODUCTS.values(), POLYAK] if product != ADMITTED]
    return [
        Job(errors, {"dim": dim, "product": product, "rows": rows, "runs": runs, "seed": options.seed})
        for dim, product in todo
    ]


def errors(dim: int, product: float, rows: int, runs: int, seed: int) -> dict[str, Any]:
    """Mean and 1 - delta quantile of the error over runs that share features and differ in noise and draws."""
    rng = np.random.default_rng([seed, dim])
    X = rng.standard_normal((rows, dim))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    n0 = 20 * dim
    points = np.unique(np.geomspace(n0 + 1, rows, 14).astype(int)).tolist()
    averages = np.cumsum(X[:, :, None] * X[:, None, :], axis=0)[n0 - 1 :: dim]
    counts = np.arange(n0, rows + 1, dim)[: len(averages), None]
    mu = float((np.linalg.eigvalsh(averages)[:, :1] / counts).min())
    c = 4.0 * product / mu
    step, average = (Power(1.0, 0.0, 0.6), "polyak") if product == POLYAK else (Power(c / 4.0, c, 1.0), None)
    found: list[list[float]] = []
    for child in rng.spawn(runs):
        y = X @ np.full(dim, dim**-0.5) + child.choice([-1.0, 1.0], rows)
        tracker = GD(
            dim, step_size=step, regularisation=0.0, averaging=average, history=Growing(), steps=1, seed=child, **RAW
        )
        found.append([])
        for first, last in zip([0, *points], points):
            tracker.partial_fit(X[first:last], y[first:last])
            found[-1].append(tracker.tracking_error().absolute)
    all_of = np.array(found)
    draws = [all_of[rng.integers(runs, size=runs)].mean(axis=0) for _ in range(400)]
    half = len(points) // 2
    given = {"dim": dim, "product": product, "mu": mu, "c": c, "n0": n0, "n": points, "runs": runs}
    return {
        **given,
        "mean": all_of.mean(axis=0),
        "quantile": np.quantile(all_of, 1.0 - DELTA, axis=0),
        "low": np.quantile(draws, 0.025, axis=0),
        "high": np.quantile(draws, 0.975, axis=0),
        "slopes": np.quantile([slope(points[half:], draw[half:]) for draw in draws], [0.5, 0.025, 0.975]),
        **_bounds(given),
    }


def _bounds(given: dict[str, Any]) -> dict[str, Any]:
    """Both printed forms, where the theorem admits c."""
    low, high = theory.admissible_c(given["mu"])
    if not low * (1 + 1e-9) < given["c"] < high:
        return {}
    settings = {key: given[key] for key in ("mu", "c", "dim", "n0")}
    forms = {"theorem": theory.bound_theorem, "appendix": theory.bound_appendix}
    return {name: tuple(form(given["n"], delta=DELTA, **settings)) for name, form in forms.items()}


def show(options: Options, data: list[dict[str, Any]]) -> Section:
    """The bounds over one run, several d, the regimes with the average, and a table of all."""
    ten = {each["product"]: each for each in of(data, dim=10)}
    one = ten[ADMITTED]
    loose, slopes = _looseness(data), {product: Ratio(*each["slopes"]) for product, each in ten.items()}
    last = one["theorem"][0][-1]
    over = Ratio(last / one["mean"][-1], last / one["high"][-1], last / one["low"][-1])
    claims = [
        Claim(
            "The error of fOLS-GD is bounded, in mean and with probability 1 − δ, by K(n)/√(n + c).",
            f"The printed bounds are {number(min(loose))} to {number(max(loose))} times what they bound.",
            "holds" if min(loose) >= 1.0 else "fails",
        ),
        Claim(
            "With 2/3 < μc/4 < 1 the error falls like n^(-1/2), up to logarithms.",
            f"Its slope is {slopes[ADMITTED]}; with too small a c {slopes[PRODUCTS['i']]}; with Polyak's average, "
            f"which needs no μ, {slopes[POLYAK]}.",
            "holds" if slopes[ADMITTED].value < -0.4 else "fails",
        ),
    ]
    bounds = _bounds_figure(one)
    text = f"Theorem 1 holds, but its bound is {over} times the error of fOLS-GD: a guarantee, not a guide."
    findings = [Finding(text, bounds)] if min(loose) >= 1.0 else []
    items = [bounds, _dims_figure(of(data, product=ADMITTED)), _regimes_figure(ten), _table(data)]
    return Section("theorem-1", TITLE, TEXT, items, "", claims, findings)


def _bounds_figure(one: dict[str, Any]) -> Lines:
    lines = [
        Line("mean error", one["n"], one["mean"], 2, "solid", one["low"], one["high"]),
        Line(f"{1 - DELTA:.0%} quantile", one["n"], one["quantile"], 2, "dashed"),
        Line("bound, theorem", one["n"], one["theorem"][0], 1, "dashed"),
        Line("bound, appendix", one["n"], one["appendix"][0], 1, "dotted"),
    ]
    caption = f"fOLS-GD over {one['runs']} runs, below; the bounds on its mean as printed in two places, above."
    return Lines("theorem-1-bounds", "The error and its bounds, d = 10", caption, *AXES, lines)


def _dims_figure(ours: list[dict[str, Any]]) -> Item:
    lines = []
    for each in ours:
        lines.append(Line(f"d = {each['dim']}", each["n"], each["mean"], 2, "solid", each["low"], each["high"]))
        lines.append(Line(f"bound, d = {each['dim']}", each["n"], each["theorem"][0], 1, "dashed"))
    n = np.array(ours[0]["n"], dtype=float)
    lines.append(Line("n^(-1/2)", n.tolist(), (0.3 * ours[0]["mean"][-1] * np.sqrt(n[-1] / n)).tolist(), 0, "dotted"))
    caption = "The mean error and the theorem's bound on it fall side by side with n^(-1/2), dotted."
    return Lines("theorem-1-dims", "Several d, μc/4 = 3/4", caption, *AXES, lines)


def _regimes_figure(ten: dict[float, dict[str, Any]]) -> Item:
    names = {product: f"({key.split(',')[0]}) μc/4 = {product:.2f}" for key, product in PRODUCTS.items()}
    colours = {PRODUCTS["i"]: 5, PRODUCTS["ii"]: 4, ADMITTED: 2, PRODUCTS["iii, larger"]: 1, POLYAK: 6}
    lines = [
        Line({**names, POLYAK: "Polyak"}[product], ten[product]["n"], ten[product]["mean"], shade, "solid",
             ten[product]["low"], ten[product]["high"])
        for product, shade in colours.items()
    ]  # fmt: skip
    caption = "The mean error in the appendix's regimes (i) to (iii), and of the average of iterates, step n^(-0.6)."
    return Lines("theorem-1-regimes", "The regimes of μc, d = 10", caption, *AXES, lines)


def _table(data: list[dict[str, Any]]) -> Item:
    rows = []
    for each in data:
        mean, quantile, polyak = each["mean"][-1], each["quantile"][-1], each["product"] == POLYAK
        over = [number(each[form][0][-1] / mean) if form in each else "–" for form in ("theorem", "appendix")]
        name, product = ("averaged", "–") if polyak else ("last iterate", f"{each['product']:.2f}")
        rows.append(
            [name, str(each["dim"]), product, number(mean), number(quantile), *over, str(Ratio(*each["slopes"]))]
        )
    head = ["estimate", "d", "μc/4", "mean", "95% quantile", "theorem / mean", "appendix / mean", "slope"]
    return Table("theorem-1", f"At round {data[0]['n'][-1]:,}", head, rows, "Slopes with 95% intervals by bootstrap.")


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
