"""Every tracker of ours by name, with what the oracle says of it: a new one gets every test by being named here once.

A case builds the tracker and runs the oracle's transliteration of the same scheme on the same rows and draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import naive
from driftls import Normalised, Power, ridge
from driftls.history import Growing, History, Reservoir, Window
from driftls.trackers import CD, GD, OLS, RAW, RLS, SAG, SAGA, SVRG, AutoDiscount, Diagonal, Tracker

DIM, ROWS, SEED = 6, 90, 11
HISTORIES: dict[str, tuple[Callable[[], History], tuple[Any, ...]]] = {
    "growing": (Growing, ("growing",)),
    "window": (lambda: Window(25), ("window", 25)),
    "reservoir": (lambda: Reservoir(25), ("reservoir", 25)),
}


@dataclass(frozen=True)
class Case:
    """One tracker with one set of settings, and what the oracle says."""

    name: str
    build: Callable[..., Any]
    oracle: Callable[..., list[Any]]
    draws: bool = True
    histories: tuple[str, ...] = ("growing", "window", "reservoir")
    exact_to: float = 1e-10


def uniforms() -> Iterator[float]:
    """The draws of a tracker with seed=SEED."""
    generator = np.random.default_rng(SEED)
    while True:
        yield float(generator.random())


def normalised(scale: float) -> Callable[..., float]:
    """The oracle's gamma for Normalised(scale)."""

    def gamma(n: int, max_norm2: float, lam: float) -> float:
        step = scale / max_norm2
        return min(step, 0.5 / lam) if lam > 0 else step

    return gamma


def fixed(schedule: Callable[[float], float]) -> Callable[..., float]:
    """The oracle's gamma for a schedule that looks at n alone."""
    return lambda n, max_norm2, lam: schedule(n)


def total(schedule: Callable[[float], float]) -> Callable[[int], float]:
    return lambda n: n * schedule(n)


def quarter(held: int | None = None) -> Callable[[int, int], bool]:
    """SVRG's default rule of refreshing: after a quarter as many rows as were held at the last refresh."""
    return lambda n, last: n - last >= 0.25 * (last if held is None else min(last, held))


LAM = naive.schedule(1.0, 0.0, 0.4)
LAM_SCHEDULE = Power(1.0, 0.0, 0.4)
ONE = naive.schedule(1.0, 0.0, 1.0)
STEP = naive.schedule(0.4, 9.0, 1.0)
STEP_SCHEDULE = Power(0.4, 9.0, 1.0)

CASES = [
    Case(
        "fOLS-GD",
        lambda **k: GD(DIM, step_size=STEP_SCHEDULE, regularisation=0, averaging=None, steps=1, **k, **RAW),
        lambda X, y, h: naive.gd(X, y, uniforms(), fixed(STEP), lambda n: 0.0, history=h),
    ),
    Case(
        "fRLS-GD",
        lambda **k: GD(
            DIM, step_size=Power(1, 100, 1), regularisation=LAM_SCHEDULE, averaging=None, steps=1, **k, **RAW
        ),
        lambda X, y, h: naive.gd(X, y, uniforms(), fixed(naive.schedule(1.0, 100.0, 1.0)), LAM, history=h),
    ),
    Case(
        "GD tail",
        lambda **k: GD(DIM, steps=3, **k, **RAW),
        lambda X, y, h: naive.gd(X, y, uniforms(), normalised(0.5), ONE, steps=3, averaging="tail", history=h),
    ),
    Case(
        "GD polyak",
        lambda **k: GD(
            DIM, step_size=Power(0.2, 0, 0.5), regularisation=LAM_SCHEDULE, averaging="polyak", steps=2, **k, **RAW
        ),
        lambda X, y, h: naive.gd(
            X, y, uniforms(), fixed(naive.schedule(0.2, 0, 0.5)), LAM, steps=2, averaging="polyak", history=h
        ),
    ),
    Case(
        "GD tail heavy ridge",
        lambda **k: GD(DIM, steps=8, regularisation=0.1, **k, **RAW),
        lambda X, y, h: naive.gd(
            X, y, uniforms(), normalised(0.5), lambda n: 0.1, steps=8, averaging="tail", history=h
        ),
    ),
    Case(
        "NLMS",
        lambda **k: GD(DIM, newest=True, regularisation=0.01, **k, **RAW),
        lambda X, y, h: naive.nlms(X, y, lambda n: 0.5, lambda n: 0.01),
        draws=False,
        histories=(),
    ),
    Case(
        "SVRG average",
        lambda **k: SVRG(DIM, anchor="average", step_size=0.05, regularisation=LAM_SCHEDULE, steps=2, **k, **RAW),
        lambda X, y, h: naive.svrg_average(X, y, uniforms(), fixed(naive.schedule(0.05)), LAM, steps=2, history=h),
    ),
    Case(
        "SVRG refreshed",
        lambda **k: SVRG(DIM, steps=3, **k, **RAW),
        lambda X, y, h: naive.svrg(
            X, y, uniforms(), normalised(1 / 3), ONE, steps=3, refresh=quarter(*h[1:]), history=h
        ),
    ),
    Case(
        "SVRG every 7",
        lambda **k: SVRG(DIM, steps=2, every=7, step_size=0.05, regularisation=LAM_SCHEDULE, **k, **RAW),
        lambda X, y, h: naive.svrg(
            X,
            y,
            uniforms(),
            fixed(naive.schedule(0.05)),
            LAM,
            steps=2,
            refresh=lambda n, last: n >= last + 7,
            history=h,
        ),
    ),
    Case(
        "SAG",
        lambda **k: SAG(DIM, steps=3, **k, **RAW),
        lambda X, y, h: naive.sag(X, y, uniforms(), normalised(1 / 16), ONE, steps=3, history=h),
    ),
    Case(
        "fRLS-SAG",
        lambda **k: SAG(DIM, step_size=0.005, regularisation=ridge(1.0), steps=1, **k, **RAW),
        lambda X, y, h: naive.sag(X, y, uniforms(), fixed(naive.schedule(0.005)), ONE, history=h),
    ),
    Case(
        "SAGA",
        lambda **k: SAGA(DIM, steps=4, **k, **RAW),
        lambda X, y, h: naive.saga(X, y, uniforms(), normalised(1 / 3), ONE, steps=4, history=h),
    ),
    Case(
        "SAGA heavy ridge",
        lambda **k: SAGA(DIM, steps=2, regularisation=ridge(50.0), **k, **RAW),
        lambda X, y, h: naive.saga(X, y, uniforms(), normalised(1 / 3), naive.schedule(50.0, 0, 1), steps=2, history=h),
    ),
    Case(
        "SAGA lambda_n",
        lambda **k: SAGA(DIM, steps=2, step_size=Normalised(0.2), regularisation=LAM_SCHEDULE, **k, **RAW),
        lambda X, y, h: naive.saga(X, y, uniforms(), normalised(0.2), LAM, steps=2, history=h),
    ),
    Case(
        "SAGA function",
        lambda **k: SAGA(
            DIM,
            steps=2,
            step_size=lambda n: 0.2 / (1 + np.log(n)),
            regularisation=lambda n: 1 / n**0.7,
            **k,
            **RAW,
        ),
        lambda X, y, h: naive.saga(
            X, y, uniforms(), fixed(lambda n: 0.2 / (1 + np.log(n))), lambda n: 1 / n**0.7, steps=2, history=h
        ),
    ),
    Case(
        "CD",
        lambda **k: CD(DIM, steps=3, **k, **RAW),
        lambda X, y, h: naive.cd(X, y, 1.0, steps=3, history=h),
        draws=False,
        histories=("growing", "window"),
    ),
    Case(
        "CD lambda_n",
        lambda **k: CD(DIM, steps=2, regularisation=LAM_SCHEDULE, **k, **RAW),
        lambda X, y, h: naive.cd(X, y, total(LAM), steps=2, history=h),
        draws=False,
        histories=("growing", "window"),
    ),
    Case(
        "CD discount",
        lambda **k: CD(DIM, steps=2, discount=0.9, **k, **RAW),
        lambda X, y, h: naive.cd(X, y, 1.0, steps=2, discount=0.9),
        draws=False,
        histories=("growing",),
    ),
    Case(
        "AutoDiscount",
        lambda **k: AutoDiscount(DIM, **k, **RAW),
        lambda X, y, h: naive.auto_discount(X, y, 1.0, (1.0, *(1 - 1 / (m * (DIM + 1)) for m in (64, 16, 4))), steps=8),
        draws=False,
        histories=(),
    ),
    Case(
        "Diagonal",
        lambda **k: Diagonal(DIM, **k, **RAW),
        lambda X, y, h: naive.diagonal(X, y, 1.0),
        draws=False,
        histories=("growing",),
    ),
    Case(
        "Diagonal discount",
        lambda **k: Diagonal(DIM, discount=0.95, regularisation=ridge(2.0), **k, **RAW),
        lambda X, y, h: naive.diagonal(X, y, 2.0, discount=0.95),
        draws=False,
        histories=(),
    ),
    Case(
        "RLS",
        lambda **k: RLS(DIM, **k, **RAW),
        lambda X, y, h: naive.rls(X, y, 1.0, history=h),
        draws=False,
        histories=("growing", "window"),
    ),
    Case(
        "RLS cholesky lambda_n",
        lambda **k: RLS(DIM, regularisation=LAM_SCHEDULE, **k, **RAW),
        lambda X, y, h: naive.rls(X, y, total(LAM), history=h),
        draws=False,
        histories=("growing", "window"),
    ),
    Case(
        "RLS inverse",
        lambda **k: RLS(DIM, regularisation=LAM_SCHEDULE, method="inverse", **k, **RAW),
        lambda X, y, h: naive.rls(X, y, total(LAM), history=h),
        draws=False,
        histories=("growing", "window"),
    ),
    Case(
        "RLS discount",
        lambda **k: RLS(DIM, discount=0.9, **k, **RAW),
        lambda X, y, h: naive.rls(X, y, 1.0, discount=0.9),
        draws=False,
        histories=("growing",),
    ),
    Case(
        "RLS fading",
        lambda **k: RLS(DIM, discount=0.9, method="sherman-morrison", **k, **RAW),
        lambda X, y, h: naive.rls(X, y, 1.0, discount=0.9, fading=True),
        draws=False,
        histories=("growing",),
    ),
    Case(
        "OLS",
        lambda **k: OLS(DIM, **k, **RAW),
        lambda X, y, h: naive.ols(X, y),
        draws=False,
        histories=("growing",),
        exact_to=1e-7,  # near-singular rounds: the condition number of the first full-rank A_n is about 1e4
    ),
]


def make(case: Case, history: str | None = None) -> Tracker:
    """A new tracker of this case."""
    settings: dict[str, Any] = {"seed": SEED} if case.draws else {}
    if history is not None:
        settings["history"] = HISTORIES[history][0]()
    return case.build(**settings)


def combinations() -> list[tuple[Case, str | None]]:
    """Every case with every history that it can have, and without one."""
    return [
        (case, history) for case in CASES for history in ((None, *case.histories) if not case.draws else case.histories)
    ]


def name(case: Case, history: str | None = None) -> str:
    """What a test of it is called."""
    return case.name if history is None else f"{case.name}-{history}"


def rows(seed: int = 5, density: float = 1.0) -> tuple[Any, Any]:
    """Rows and rewards of a noisy linear model; some entries are zero where density is below 1."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(ROWS, DIM)) * (generator.random((ROWS, DIM)) < density)
    return X, X @ generator.normal(size=DIM) + 0.1 * generator.normal(size=ROWS)
