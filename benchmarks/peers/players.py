"""Who plays: a table of methods, with what each can play and the settings that it is tuned over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.peers.problems import Problem

Grid = tuple[dict[str, Any], ...]
MOST_EXACT = 8000  # features: beyond, d x d numbers are more than half a gigabyte


def _too_large(problem: Problem) -> str:
    size = 8e-9 * problem.dim**2
    return "" if problem.dim <= MOST_EXACT else f"keeps d x d numbers, {size:,.0f} GB"


def _anything(problem: Problem) -> str:
    return ""


class Player(NamedTuple):
    """A method: its class in a file of this folder, and the kinds of problems that it is for.

    `grid` holds, by kind, the settings of which the best is taken, found on other seeds; a kind that is not in it has
    those of "". `like`: the player whose settings it takes, since their decisions are the same. `unfit` says why a
    problem that it is for cannot be had.
    """

    label: str
    group: str  # ours, exact, or the package of a peer
    file: str
    name: str
    kinds: tuple[str, ...]
    grid: dict[str, Grid] = {}  # noqa: RUF012
    like: str = ""
    unfit: Callable[[Problem], str] = _anything

    @property
    def key(self) -> str:
        """Its name in files and on the command line."""
        return f"{self.file}:{self.name}"

    def settings(self, kind: str) -> Grid:
        """What is tried."""
        return self.grid.get(kind, self.grid.get("", ({},)))


def _grid(first: str, values: tuple[Any, ...], second: str, others: tuple[Any, ...]) -> Grid:
    return tuple({first: one, second: other} for one in values for other in others)


SHARED = ("dense", "sparse", "fixed")
UCB = {
    "": _grid("kappa", (0.1, 0.3), "ridge", (0.1, 1.0)),
    "fixed": _grid("kappa", (0.3, 0.6), "ridge", (0.1, 1.0)),
    "articles": _grid("kappa", (0.5, 1.0), "ridge", (30.0, 100.0)),
    "regression": ({"ridge": 0.1}, {"ridge": 0.3}, {"ridge": 1.0}, {"ridge": 3.0}),
}
RATES = (0.1, 0.3, 0.6, 1.0)
STEPS = {  # arms that change explore for everybody: there the rate decides, and epsilon is 0
    "": tuple({"rate": rate} for rate in RATES),
    "fixed": _grid("rate", (0.1, 0.3), "epsilon", (0.0, 0.05)),
    "articles": _grid("rate", (0.003, 0.01), "epsilon", (0.0, 0.1)),
}
VW = {  # --regcbopt --mellowness 0.01 was tried too, and was not the best on any of these problems
    "": _grid("explore", ("--squarecb --gamma_scale 100", "--squarecb --gamma_scale 1000"), "rate", (0.5, 4.0)),
    "regression": tuple({"rate": rate} for rate in (0.1, 0.5, 2.0, 8.0)),
}
BAYES = {
    "": _grid("alpha", (1.0, 4.0), "beta", (10.0, 40.0)),
    "articles": _grid("alpha", (30.0, 100.0), "beta", (1.0, 10.0)),
}
SM = "exact:ShermanMorrison"


def _ours(label: str, name: str, *kinds: str, unfit: Callable[[Problem], str] = _anything) -> Player:
    return Player(f"driftls {label}", "ours", "ours", name, kinds, unfit=unfit)


def _exact(label: str, name: str, *kinds: str, like: str = SM, unfit: Any = _too_large) -> Player:
    return Player(label, "exact", "exact", name, kinds, UCB, like if like != f"exact:{name}" else "", unfit)


def _peer(
    label: str, group: str, name: str, kinds: tuple[str, ...], grid: Any, unfit: Any = _anything, like: str = ""
) -> Player:
    return Player(label, group, "libraries", name, kinds, grid, like, unfit)


ALL = (*SHARED, "regression")
PLAYERS = {
    player.key: player
    for player in (
        _ours("LinUCB, default", "default", *SHARED),
        _ours("RLS, exact widths", "exact", *SHARED, unfit=_too_large),
        _ours("SAGA, diagonal widths", "saga", *SHARED),
        _ours("Diagonal, diagonal widths", "diagonal", *SHARED),
        _ours("SAGA, phi", "saga-phi", "fixed"),
        _ours("DisjointLinUCB, default", "disjoint", "articles"),
        _ours("DisjointLinUCB, SAGA", "disjoint-saga", "articles"),
        _ours("LinUCB, crosses, SAGA", "crosses", "articles"),
        _ours("RLS", "rls", "regression"),
        _ours("SAGA", "saga-rows", "regression"),
        _ours("CD", "cd-rows", "regression"),
        _ours("Diagonal", "diagonal-rows", "regression"),
        _exact("Sherman-Morrison, BLAS f64", "ShermanMorrison", *ALL),
        _exact("Sherman-Morrison, BLAS f32", "ShermanMorrison32", *ALL),
        _exact("batched Woodbury, 32 rows", "Batched", *ALL),
        _exact("inversion each round", "Inversion", *ALL),
        _exact("sparse-scored, compiled", "SparseScored", "sparse"),
        _exact("fixed arms, Gram", "Gram", "fixed"),
        _exact("one model each, BLAS f64", "ArticlesOnBlas", "articles", like="exact:ArticlesOnBlas"),
        _exact("one model each, sparse-scored", "ArticlesSparse", "articles", like="exact:ArticlesOnBlas"),
        _peer("Vowpal Wabbit", "vowpalwabbit", "VowpalWabbit", (*ALL, "articles"), VW),
        _peer("contextualbandits", "contextualbandits", "ContextualBandits", (*ALL, "articles"), UCB, _too_large),
        _peer("river SGD", "river", "RiverSGD", (*ALL, "articles"), STEPS),
        _peer("river LinUCBDisjoint", "river", "RiverDisjoint", ("articles",),
              {"": tuple({"beta": beta} for beta in (10.0, 30.0, 100.0, 300.0))}),
        _peer("bayesianbandits, Thompson", "bayesianbandits", "BayesianBandits", (*ALL, "articles"), BAYES),
        _peer("MABWiser LinUCB", "mabwiser", "MABWiser", ("articles",), UCB),
        _peer("scikit-learn SGD", "scikit-learn", "ScikitLearn", (*ALL, "articles"), STEPS),
    )
}  # fmt: skip

# real tables: what benchmarks/tables.py plays, the tuned one first
_WIDE = _grid("kappa", (0.01, 0.03, 0.1, 0.3, 1.0), "ridge", (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0))
_RIDGES = tuple({"ridge": 10.0**power} for power in range(-4, 6))
_RIVER = _grid("rate", (0.003, 0.02), "epsilon", (0.02, 0.1))
_SQUARECB = _grid("explore", ("--squarecb --gamma_scale 10", "--squarecb --gamma_scale 100"), "rate", (0.5, 8.0))
ON_TABLES = {
    player.key: player
    for player in (
        Player("exact, tuned", "exact", "exact", "Classes", ("classes",), {"": _WIDE}),
        Player("exact ridge, tuned", "exact", "exact", "Ridge", ("regression",), {"": _RIDGES}),
        Player("predicting the mean", "exact", "exact", "RunningMean", ("regression",)),
        _ours("DisjointLinUCB, dense", "classes", "classes"),
        _ours("LinUCB over crosses", "class-crosses", "classes"),
        _peer("Vowpal Wabbit, classes", "vowpalwabbit", "VowpalWabbitClasses", ("classes",), {"": _SQUARECB}),
        _peer("river, scaled", "river", "RiverScaled", ("classes", "regression"), {"": _RIVER, "regression": (
            {"rate": 0.001}, {"rate": 0.003}, {"rate": 0.01}, {"rate": 0.03}, {"rate": 0.1},
        )}),
    )
}  # fmt: skip
TABLE_PLAYERS = (
    "exact:Classes", "ours:classes", "ours:class-crosses", "libraries:VowpalWabbitClasses", "libraries:RiverScaled",
)  # fmt: skip
STREAM_PLAYERS = (
    "exact:Ridge", "exact:RunningMean", "ours:rls", "ours:saga-rows", "ours:cd-rows", "ours:diagonal-rows",
    "libraries:VowpalWabbit", "libraries:RiverScaled",
)  # fmt: skip
