"""The stochastic schemes: GD, SVRG, SAG and SAGA. Each draws rows of its history, O(nnz) a step."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.draws import Seed
from driftls.errors import SettingsError
from driftls.history import Growing, History
from driftls.kernels import gd, lazy, sag, svrg
from driftls.kernels.gd import AveragedGDState, GDState
from driftls.kernels.sag import SAGAState, SAGState
from driftls.kernels.svrg import SVRGAverageState, SVRGState
from driftls.kernels.track import BOOK, HELD, SEEN, USED, WINDOW
from driftls.schedules import Normalised, ridge
from driftls.trackers.base import Tracker
from driftls.trackers.exact import RLS

STEPS = 8  # more steps track closer, at a cost in proportion
AVERAGING = {"polyak": gd.POLYAK, "tail": gd.TAIL}


def coordinates(quantities: int, dim: int, sparse: bool) -> NDArray[np.float64]:
    """A table (quantity, coordinate), laid out for dense or for sparse rows."""
    return np.zeros((dim, quantities)).T if sparse else np.zeros((quantities, dim))


class StochasticTracker(Tracker):
    """The target of a scheme that descends the mean squared error of its history's rows."""

    def __init__(
        self,
        dim: int,
        *,
        step_size: Any,
        regularisation: Any,
        steps: int,
        history: History | None,
        seed: Seed,
        guard: bool,
    ) -> None:
        super().__init__(
            dim,
            step_size=step_size,
            regularisation=ridge(1.0) if regularisation is None else regularisation,
            steps=steps,
            history=history,
            seed=seed,
            guard=guard,
        )
        if steps == 0:
            raise SettingsError("steps must be at least 1: a scheme without steps never moves.")

    @property
    def target(self) -> Tracker:
        """RLS over the rows held, with the same regularisation; O(d^2) memory, brought up to date when asked for."""
        history, n = self.history, len(self)
        if history is None:
            raise SettingsError(
                "this tracker keeps no rows, so its target cannot be found. Build it with history=Growing()."
            )
        if n == 0:
            return RLS(self.dim, regularisation=self.regularisation, method="cholesky")
        held = len(history)
        total = held * self.regularisation(held if history.kind == WINDOW else n)  # type: ignore[operator]
        if self._target is None or history.evicts or len(self._target) > held:
            self._target = RLS.of_rows(*history.matrix(), total)
        else:
            self._target._absorb(*history.matrix(len(self._target)), total)
        target: RLS = self._target
        return target


class GD(StochasticTracker):
    """Stochastic gradient descent on a row drawn from the past: fOLS-GD (regularisation 0) and fRLS-GD (lambda_n).

    Parameters
    ----------
    dim : int
        Number of features.
    step_size : schedule
        gamma_n. `Power.theorem_one(mu)` is Theorem 1's. The default, `Normalised(1/2)`, is a constant step for the
        averaged iterate.
    regularisation : schedule
        lambda_n per row; `ridge(total)` keeps n lambda_n constant, and ridge(1) is the default.
    averaging : {"tail", "polyak", None}
        What is reported: an average that weighs late iterates more (t^3), the plain mean of all iterates, or the last
        iterate.
    steps : int
        Inner steps a row.
    newest : bool
        Step on the newest row instead of a drawn one, with gamma_n divided by the row's squared norm: normalised
        least mean squares (NLMS). Keeps no history, and follows a theta* that moves.
    history : History
        Where rows are kept; `Growing()` by default.
    seed : int or Generator
        Of the draws.
    guard : bool
        Raise `DivergenceError` when a step is too large or the error runs away.

    Examples
    --------
    >>> tracker = GD(dim=2, seed=0)
    >>> tracker.partial_fit(np.eye(2), [1.0, 2.0]).n
    2
    """

    _state_class: ClassVar[type[NamedTuple]] = GDState

    def __init__(
        self,
        dim: int,
        *,
        step_size: Any = None,
        regularisation: Any = None,
        averaging: str | None = "default",
        steps: int | None = None,
        newest: bool = False,
        history: History | None = None,
        seed: Seed = None,
        guard: bool = True,
    ) -> None:
        if averaging == "default":
            averaging = None if newest else "tail"
        if averaging is not None and averaging not in AVERAGING:
            raise SettingsError(f"averaging must be 'tail', 'polyak' or None, got {averaging!r}.")
        self.averaging, self.newest = averaging, bool(newest)
        if step_size is None:
            step_size = 0.5 if newest else Normalised(0.5)
        elif newest and isinstance(step_size, Normalised):
            raise SettingsError("newest=True normalises each step by its row already: pass a number for step_size.")
        super().__init__(
            dim,
            step_size=step_size,
            regularisation=0.0 if newest and regularisation is None else regularisation,
            steps=(1 if newest else STEPS) if steps is None else steps,
            history=history if newest or history is not None else Growing(),
            seed=0 if newest else seed,
            guard=guard,
        )
        self._draws_rows = not newest  # type: ignore[misc]

        if averaging is not None:
            self._state_class = AveragedGDState  # type: ignore[misc]

    def _allocate(self, sparse: bool) -> GDState | AveragedGDState:
        scalars = np.zeros(gd.SCALARS if self.averaging is None else gd.AVERAGE_SCALARS)
        scalars[lazy.P] = 1.0
        if self.averaging is None:
            return GDState(coordinates(1, self.dim, sparse), scalars)
        scalars[gd.RULE] = AVERAGING[self.averaging]
        return AveragedGDState(coordinates(2, self.dim, sparse), scalars)

    def _extra_settings(self) -> dict[str, Any]:
        return {"averaging": self.averaging, "newest": self.newest}


class SVRG(StochasticTracker):
    """Variance-reduced descent around an anchor whose full gradient is known.

    Parameters
    ----------
    anchor : {"refreshed", "average"}
        "refreshed" moves the anchor to theta now and then; in between, its full gradient stays exact in O(nnz) a
        row. "average" is the printed scheme: the anchor is the mean of all iterates, and its gradient costs O(d^2) a
        step.
    every : int, optional
        Refresh after this many rows; by default after a quarter as many as are held, five visits a row in all where
        none is dropped.
    dim, step_size, regularisation, steps, history, seed, guard
        As for `GD`; the default step is `Normalised(1/3)`.

    Examples
    --------
    >>> SVRG(dim=3, anchor="average", step_size=0.0005, steps=1).anchor
    'average'
    """

    _state_class: ClassVar[type[NamedTuple]] = SVRGState

    def __init__(
        self,
        dim: int,
        *,
        step_size: Any = None,
        regularisation: Any = None,
        anchor: str = "refreshed",
        every: int | None = None,
        steps: int = STEPS,
        history: History | None = None,
        seed: Seed = None,
        guard: bool = True,
    ) -> None:
        if anchor not in ("refreshed", "average"):
            raise SettingsError(f"anchor must be 'refreshed' or 'average', got {anchor!r}.")
        if every is not None and (anchor == "average" or not isinstance(every, int | np.integer) or every < 1):
            raise SettingsError("every counts rows between refreshes: at least 1, and only with anchor='refreshed'.")
        self.anchor, self.every = anchor, every
        super().__init__(
            dim,
            step_size=Normalised(1 / 3) if step_size is None else step_size,
            regularisation=regularisation,
            steps=steps,
            history=Growing() if history is None else history,
            seed=seed,
            guard=guard,
        )
        if anchor == "average":
            self._state_class = SVRGAverageState  # type: ignore[misc]

    def _allocate(self, sparse: bool) -> SVRGState | SVRGAverageState:
        if self.anchor == "average":
            gram = np.zeros((self.dim, self.dim))
            return SVRGAverageState(coordinates(4, self.dim, sparse), np.zeros(svrg.AVERAGE_SCALARS), gram)
        scalars = np.zeros(svrg.SCALARS)
        scalars[lazy.P] = 1.0
        scalars[svrg.EVERY] = self.every or 0
        scalars[svrg.PER_ROW] = self.steps
        # the anchor 0 counts as refreshed before the first row
        scalars[svrg.SINCE] = self.steps
        scalars[svrg.DUE] = 0 if self.every is None else self.every * self.steps
        return SVRGState(coordinates(3, self.dim, sparse), scalars)

    def _extra_settings(self) -> dict[str, Any]:
        return {"anchor": self.anchor, "every": self.every}


class _TableTracker(StochasticTracker):
    """SAG and SAGA: a table of residuals, one a row."""

    _default_scale: ClassVar[float]

    def __init__(
        self,
        dim: int,
        *,
        step_size: Any = None,
        regularisation: Any = None,
        steps: int = STEPS,
        history: History | None = None,
        seed: Seed = None,
        guard: bool = True,
    ) -> None:
        super().__init__(
            dim,
            step_size=Normalised(self._default_scale) if step_size is None else step_size,
            regularisation=regularisation,
            steps=steps,
            history=Growing() if history is None else history,
            seed=seed,
            guard=guard,
        )

    def _allocate(self, sparse: bool) -> Any:
        scalars = np.zeros(sag.SCALARS)
        scalars[lazy.P] = 1.0
        assert self.history is not None
        capacity = 0 if self.history.rows is None else self.history.rows.y.size
        state_class: Any = self._state_class
        return state_class(coordinates(2, self.dim, sparse), scalars, np.zeros(capacity))

    def _at(self, theta: NDArray[np.float64], X: Any, y: NDArray[np.float64], n: int, health: Any) -> Self:
        """A tracker like this unused one that stands at theta and holds these of n rows, with their residuals there."""
        header, arrays = self.snapshot()
        assert self.history is not None
        held, sparse = len(y), bool(sp.issparse(X))
        residual = X @ theta - y
        parts = {"start": X.indptr, "indices": X.indices, "values": X.data} if sparse else {"X": X}
        book = np.zeros(BOOK, dtype=np.int64)
        book[[HELD, SEEN, USED]] = held, n, X.nnz if sparse else 0
        header["sparse"] = sparse
        header["history"] |= {"open": True, "sparse": sparse, "book": book.tolist()}
        arrays |= {f"history.{name}": array for name, array in (parts | {"y": y}).items()}
        coords, scalars = np.stack([theta, X.T @ residual]), np.zeros(sag.SCALARS)
        scalars[lazy.P] = 1.0
        arrays |= {"state.coords": coords, "state.scalars": scalars, "state.residual": residual, "health": health}
        return self.from_snapshot(header, arrays)


class SAG(_TableTracker):
    """Stochastic average gradient over a growing table of residuals.

    A new row enters with its present residual, and the sum of all stored gradients is kept, so a step costs O(nnz).
    Parameters as for `GD`; the default step is `Normalised(1/16)`: larger ones are not stable for SAG.

    Examples
    --------
    >>> SAG(dim=2, seed=0).partial_fit(np.eye(2), [1.0, 2.0]).n
    2
    """

    _state_class: ClassVar[type[NamedTuple]] = SAGState
    _default_scale = 1 / 16


class SAGA(_TableTracker):
    """SAGA over a growing table of residuals: the recommended O(d) tracker. Good without a single knob.

    Parameters
    ----------
    dim : int
        Number of features.
    step_size : schedule
        `Normalised(1/3)`, a third of the largest stable step for the rows seen, needs no knowledge of mu.
    regularisation : schedule
        lambda_n per row; `ridge(total)` keeps n lambda_n constant, and ridge(1) is the default.
    steps : int
        Inner steps a row: more track closer, at a cost in proportion.
    history, seed, guard
        As for `GD`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 5))
    >>> tracker = SAGA(dim=5, seed=0).partial_fit(X, X @ np.arange(5.0))
    >>> tracker.tracking_error().relative < 0.01
    True
    """

    _state_class: ClassVar[type[NamedTuple]] = SAGAState
    _default_scale = 1 / 3
