"""The stochastic schemes: GD, SVRG, SAG and SAGA. Each draws rows of its history, O(nnz) a step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from driftls.compiling.parts import Frame, Part
from driftls.errors import SettingsError
from driftls.history import ROWS_KEPT, Window
from driftls.inputs import as_whole
from driftls.kernels import cg, gd, sag, svrg
from driftls.kernels.learn import NOTHING, WINDOW
from driftls.kernels.records import ROWS
from driftls.schedules import Normalised
from driftls.state import Shape
from driftls.trackers.base import Tracker
from driftls.trackers.exact import RLS, of_rows, plain
from driftls.trackers.settings import MOST_STEPS, Drawing, flag
from driftls.trackers.sums import gram_of
from driftls.units import Change

SWEEPS = 8  # conjugate gradient steps at a look
SETTLE_FROM = 1.5  # of the rows that there were the last time: looks may come more often than n grows
STEPS = 8  # more steps track closer, at a cost in proportion
AVERAGING = {None: gd.LAST, "polyak": gd.POLYAK, "tail": gd.TAIL}


class StochasticTracker(Tracker):
    """A scheme that descends the mean squared error of its history's rows; its target is RLS over them."""

    takes: ClassVar[tuple[str, ...]] = ("step_size", "regularisation", "steps", "guard", "scale", "intercept")
    defaults: ClassVar[dict[str, Any]] = {"step_size": Normalised(1 / 3)}  # of settings that are not given, or None

    def __init__(self, dim: int, **settings: Unpack[Drawing]) -> None:
        given = {name: value for name, value in settings.items() if value is not None}
        chosen: dict[str, Any] = {"steps": STEPS, **self.defaults, **given}
        as_whole(chosen["steps"], "steps", 1, MOST_STEPS)
        if self.draws_rows:
            chosen.setdefault("history", Window(ROWS_KEPT))
        super().__init__(dim, **chosen)

    @property
    def target(self) -> Tracker:
        """RLS over the rows held, with the same regularisation; O(d^2) memory, brought up to date when asked for."""
        history, n = self.history, len(self)
        if history.kind == NOTHING:
            raise SettingsError(
                "this tracker keeps no rows, so its target cannot be found. Build it with history=Growing()."
            )
        if n == 0:
            return plain(self.inner, self.regularisation)
        with self.lock:
            held = len(history)
            total = held * self.regularisation(held if history.kind == WINDOW else n)  # type: ignore[operator]
            if self._target is None or history.dropped or len(self._target) > held:
                self._target = of_rows(*history.matrix(), total)
            else:
                self._target.add_rows(*history.matrix(len(self._target)), total)
            target: RLS = self._target
        return target

    def change_units(self, change: Change) -> None:
        """theta predicts the same as before; gradients are summed up afresh from the rows held."""
        theta = change.theta(self.coefficients(change.learned))
        self.frame["mean_y"] -= change.offset
        self.history.change_units(change)
        self._target = None
        self._move_to(theta, change)

    @abstractmethod
    def _move_to(self, theta: NDArray[np.float64], change: Change) -> None:
        """Stand at theta over the rows held, whose units have changed: the coefficients `change.learned`, others are 0."""

    def _largest_rows(self) -> None:
        """The largest row and y afresh, from the rows held: steps go by them."""
        X, y = self.history.matrix()
        if len(y):
            squares = X * X if isinstance(X, np.ndarray) else X.multiply(X)
            self.frame.set(max_norm2=float(squares.sum(axis=1).max()), max_y2=float(np.square(y).max()))
            self._resize_errors()

    def _resize_errors(self) -> None:
        """The largest y^2 was found anew: what is measured by it must neither vanish with an offset, nor be of larger ones."""
        if self.units is not None:
            largest = max(self.frame["max_y2"], self.units.reward_size)
            self.frame.set(max_y2=largest, error2=min(self.frame["error2"], largest))

    def _stand(self, theta: NDArray[np.float64], gradients: NDArray[np.float64]) -> None:
        """theta and g as they are from now on: what a large row that has left did to the last digits leaves with it."""
        self._state["coords"][:2] = theta, gradients
        self.frame.set(p=1.0, q=0.0, a=1.0, b=0.0, forgotten=0)


class GD(StochasticTracker):
    """Stochastic gradient descent on a row drawn from the past: fOLS-GD (regularisation 0) and fRLS-GD (lambda_n).

    Parameters
    ----------
    averaging : {"tail", "polyak", None}
        What is reported: an average that weighs late iterates more (t^3), the plain mean of all iterates, or the last
        iterate.
    newest : bool
        Step on the newest row instead of a drawn one, with gamma_n divided by the row's squared norm: normalised
        least mean squares (NLMS). Keeps no history, and follows a theta* that moves.
    dim, **settings
        As for every `Tracker`. The default step, `Normalised(1/2)`, is a constant one for the averaged iterate;
        `Power.theorem_one(mu)` is Theorem 1's.

    Examples
    --------
    >>> tracker = GD(dim=2, seed=0)
    >>> len(tracker.partial_fit(np.eye(2), [1.0, 2.0]))
    2
    """

    numbers = ("r", "weight", "taken")
    takes = (*StochasticTracker.takes, "averaging", "newest")

    def __init__(
        self, dim: int, *, averaging: str | None = "default", newest: bool = False, **settings: Unpack[Drawing]
    ) -> None:
        newest = flag(newest, "newest")
        if isinstance(averaging, str) and averaging == "default":
            averaging = None if newest else "tail"
        if not isinstance(averaging, str | None) or averaging not in AVERAGING:
            raise SettingsError(f"averaging must be 'tail', 'polyak' or None, got {averaging!r}.")
        self.averaging, self.newest = averaging, newest
        if newest and isinstance(settings.get("step_size"), Normalised):
            raise SettingsError("newest=True normalises each step by its row already: pass a number for step_size.")
        super().__init__(dim, **settings)

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        newest = {"step_size": 0.5, "regularisation": 0.0, "steps": 1, "seed": 0}
        return newest if self.newest else {"step_size": Normalised(0.5)}

    @property
    def parts(self) -> dict[str, Part]:  # type: ignore[override]
        return {"descend": gd.gd_descend if self.averaging is None else gd.averaged_gd_descend}

    @property
    def draws_rows(self) -> bool:  # type: ignore[override]
        return not self.newest

    def _begin(self) -> None:
        self.frame.set(averaging=AVERAGING[self.averaging], normalise=self.newest)

    def _move_to(self, theta: NDArray[np.float64], change: Change) -> None:
        frame, coords, at = self.frame, self._state["coords"], change.learned
        coords[0][at] = change.theta(frame["p"] * coords[0][at])
        if self.averaging is not None:  # the weighted sum of iterates is g + r u: theta is their mean
            coords[1][at] = frame["weight"] * theta
            frame["r"] = 0.0
        frame.set(p=1.0, a=0.0 if self.averaging is not None and frame["weight"] else 1.0)
        self._largest_rows()


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
    dim, **settings
        As for every `Tracker`; the default step is `Normalised(1/3)`.

    Examples
    --------
    >>> SVRG(dim=3, anchor="average", step_size=0.0005, steps=1).anchor
    'average'
    """

    quantities = 3
    numbers = ("since", "due", "forgotten", "taken")
    takes = (*StochasticTracker.takes, "anchor", "every")

    def __init__(
        self, dim: int, *, anchor: str = "refreshed", every: int | None = None, **settings: Unpack[Drawing]
    ) -> None:
        if not isinstance(anchor, str) or anchor not in ("refreshed", "average"):
            raise SettingsError(f"anchor must be 'refreshed' or 'average', got {anchor!r}.")
        if every is not None and (anchor == "average" or not isinstance(every, int | np.integer) or every < 1):
            raise SettingsError("every counts rows between refreshes: at least 1, and only with anchor='refreshed'.")
        self.anchor, self.every = anchor, every
        super().__init__(dim, **settings)

    @property
    def parts(self) -> dict[str, Part]:  # type: ignore[override]
        if self.anchor == "average":
            enter, forget, descend = svrg.svrg_average_enter, svrg.svrg_average_forget, svrg.svrg_average_descend
        else:
            enter, forget, descend = svrg.svrg_enter, svrg.svrg_forget, svrg.svrg_descend
        return {"enter": enter, "forget": forget, "descend": descend}

    @property
    def interleaved(self) -> bool:  # type: ignore[override]
        return self.anchor != "average"

    @property
    def shapes(self) -> dict[str, Shape]:  # type: ignore[override]
        return {"moment": ("dim",), "gram": ("dim", "dim")} if self.anchor == "average" else {}

    def _begin(self) -> None:
        if self.anchor != "average":  # the anchor 0 counts as refreshed before the first row
            due = 0 if self.every is None else self.every * self.steps
            self.frame.set(every=self.every or 0, since=self.steps, due=due)

    def attend(self) -> None:
        X, y = self.history.matrix()
        if self.anchor == "average":
            self._state["gram"][...], self._state["moment"][:] = gram_of(X), X.T @ y
            self.frame["forgotten"] = 0
        else:
            self._stand(self.coefficients(), X.T @ (X @ self._state["coords"][2] - y))

    def _move_to(self, theta: NDArray[np.float64], change: Change) -> None:
        coords, at, other = self._state["coords"], change.learned, 1 if self.anchor == "average" else 2
        self._largest_rows()
        coords[0][at], coords[other][at] = theta, change.theta(coords[other][at])
        if self.anchor != "average":
            self.frame.set(p=1.0, q=0.0, a=1.0, b=0.0)
        self.attend()


class _TableTracker(StochasticTracker):
    """SAG and SAGA: a table of residuals, one a row."""

    parts: ClassVar[dict[str, Part]] = {"enter": sag.table_enter, "forget": sag.table_forget}
    shapes: ClassVar[dict[str, Shape]] = {"residual": ("rows",)}
    numbers = ("forgotten", "settled", "accounted")
    _moved = False  # to where residuals and their gradients are yet to be found

    def attend(self) -> None:
        X, y = self.history.matrix()
        self._stand(self.coefficients(), X.T @ self._state["residual"][: len(y)])

    def _move_to(self, theta: NDArray[np.float64], change: Change) -> None:
        self._state["coords"][0][change.learned] = theta
        self.frame.set(a=1.0, b=0.0)
        self._moved = True

    def settle(self) -> bool:
        """A few conjugate gradient steps over the rows held, if there are enough new ones; residuals, if units changed."""
        with self.lock:
            enough = len(self) > 0 and len(self) >= SETTLE_FROM * self.frame["settled"]
            if enough or self._moved:
                self._polish(SWEEPS if enough else 0)
                self._moved = False
            if enough:
                self.frame["settled"] = len(self)
            return enough

    def _polish(self, sweeps: int) -> None:
        with self._scratch():
            total = cg.polish(self.frame, sweeps, len(self.history))
        self.frame["accounted"] = total / max(len(self.history), 1)
        self._resize_errors()

    @contextmanager
    def _scratch(self) -> Iterator[NDArray[np.float64]]:
        """Room for conjugate gradients in the features of the rows held, and the total ridge over them."""
        frame, history, held = self.frame, self.history, len(self.history)
        count = held if history.kind == WINDOW else len(self)
        frame.set(ridge=held * self.regularisation(max(count, 1)), packed=history.frame)  # type: ignore[operator]
        if self.sparse:
            packed = Frame(ROWS, history.frame.memory.copy())
            packed["indices"] = np.empty(history.counts["used"], np.int32)
            frame.set(packed=packed, **{name: np.zeros(self.inner, np.int32) for name in ("features", "places")})
            packed["dim"] = int(cg.pack(frame, len(self) > held, held))
        frame["scratch"] = scratch = np.empty((5, frame.arrays["packed"]["dim"]))
        try:
            yield scratch
        finally:
            for name in ("scratch", "packed", "features", "places"):
                frame[name] = 0
                frame.arrays.pop(name, None)

    def explained(self) -> float:
        """b . theta at the last look: how much of the rewards' sum of squares the model accounts for, over all rows."""
        return float(self.frame["accounted"] * len(self))

    def freedoms(self) -> NDArray[np.float64]:
        """Effective degrees of freedom of each feature that was seen, 1 - ridge M_jj, as 1 - ridge z_j (Mz)_j, z random signs.

        One of them may be far off; the sum of many, over features or models, is not.
        """
        assert self.units is not None
        known = self.units.known
        listed = not isinstance(known, slice)
        found = np.zeros(known.size if listed else self.dim)
        if not len(self):
            return found
        with self.lock, self._scratch() as scratch:
            size = scratch.shape[1]
            features = self.frame.arrays["features"][:size] if self.sparse else np.arange(size)
            at = np.searchsorted(known, features) if listed else features
            seen = np.isin(features, known) if listed else features < self.dim
            if not self.sparse:
                seen[: self.dim] &= self.units.arrays["count"] > 0.0
            scratch[1] = np.where(seen, np.random.default_rng(len(self)).integers(0, 2, size) * 2.0 - 1.0, 0.0)
            cg.trace(self.frame, 2 * SWEEPS, len(self.history))
            found[at[seen]] = 1.0 - self.frame["ridge"] * (scratch[0] * scratch[4])[seen]
        return found


class SAG(_TableTracker):
    """Stochastic average gradient over a growing table of residuals.

    A new row enters with its present residual, and the sum of all stored gradients is kept, so a step costs O(nnz).
    Parameters as for every `Tracker`; the default step is `Normalised(1/16)`: larger ones are not stable for SAG.

    Examples
    --------
    >>> len(SAG(dim=2, seed=0).partial_fit(np.eye(2), [1.0, 2.0]))
    2
    """

    parts: ClassVar[dict[str, Part]] = {**_TableTracker.parts, "descend": sag.sag_descend}
    defaults: ClassVar[dict[str, Any]] = {"step_size": Normalised(1 / 16)}


class SAGA(_TableTracker):
    """SAGA over a growing table of residuals: the recommended O(d) tracker. Good without a single knob.

    Parameters as for every `Tracker`. The default step, `Normalised(1/3)`, is a third of the largest stable one for the
    rows seen, and needs no knowledge of mu. More than 8 steps a row track closer, at a cost in proportion.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 5))
    >>> tracker = SAGA(dim=5, seed=0).partial_fit(X, X @ np.arange(5.0))
    >>> tracker.tracking_error().relative < 0.01
    True
    """

    parts: ClassVar[dict[str, Part]] = {**_TableTracker.parts, "descend": sag.saga_descend}
