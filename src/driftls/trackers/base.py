"""What all trackers share: they validate, learn by one kernel, answer, and go to files."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from driftls import schedules
from driftls.draws import TAPE, Seed
from driftls.errors import CorruptFileError, DimensionError, SettingsError
from driftls.history import History, from_header
from driftls.inputs import Rows, as_number, as_numbers, as_rows, fault, is_pair, is_sparse
from driftls.kernels import learn as kernels
from driftls.kernels.rows import NO_ROOM
from driftls.persistence import checked, expect, group, whole
from driftls.schedules import Tabulated
from driftls.state import refuse
from driftls.trackers.health import FIRST, Health, check, health
from driftls.trackers.machine import Machine

SCHEDULES = ("step_size", "regularisation")


class TrackingError(NamedTuple):
    """How far theta is from the exact solution; relative to its norm, where theta = 0 scores 1."""

    absolute: float
    relative: float

    @classmethod
    def between(cls, found: NDArray[np.float64], exact: NDArray[np.float64]) -> TrackingError:
        """How far what was found is from what is exact."""
        absolute, size = float(np.linalg.norm(found - exact)), float(np.linalg.norm(exact))
        return cls(absolute, absolute / size if size else (0.0 if absolute == 0.0 else float("inf")))


class Tracker(Machine):
    """Follows a least-squares solution while rows keep coming.

    Parameters
    ----------
    dim : int
        Number of features.
    step_size : schedule
        gamma_n.
    regularisation : schedule
        lambda_n per row; `ridge(total)` keeps n lambda_n constant. The default is ridge(1), and
        in a `DisjointLinUCB` one that is found from the data.
    steps : int
        Inner steps a row.
    history : History
        Where rows are kept.
    seed : int or Generator
        Of the draws.
    guard : bool
        Raise `DivergenceError` when a step is too large or the error runs away.
    scale, intercept : bool
        Measure features in units of their spread; learn an intercept. `**RAW` is neither.

    A subclass says which parts serve it (`parts`), how many quantities it keeps for each coordinate, the shapes of what
    else it keeps and the numbers of its record that a file must have (`quantities`, `shapes`, `numbers`), and has a target.
    Calls from several threads take turns; trackers of their own run in parallel.
    """

    @property
    @abstractmethod
    def target(self) -> Tracker:
        """The exact tracker of the objective that this one descends."""

    # -- learning ------------------------------------------------------------------------------------------------

    def update(self, x: Any, y: float) -> None:
        """Take one row: a dense vector, a sparse row, or (indices, values). Equal to `partial_fit` of a block of one."""
        with self.lock:
            if not (isinstance(y, float) and self._stage.take_row(x)):
                y = as_number(y, "y")
                self._take(self._one_row(x))
            self._stage.reward[0] = y
            self._learn(0, 1)

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Take a block of rows: an array or a sparse matrix. Equal, to the bit, to taking them one by one."""
        targets = as_numbers(y, "y must be a vector")
        with self.lock:
            rows: Any = as_rows(list(X) if is_pair(X) else X, self.dim)  # a tuple of rows is a matrix here
            if targets.ndim != 1 or rows.shape[0] != targets.size:
                raise DimensionError(
                    "X must be a matrix and y a vector with one entry a row, "
                    f"got shapes {tuple(rows.shape)}, {targets.shape}."
                )
            if targets.size:
                self._take(rows)
                with np.errstate(over="ignore"):
                    self._stage.y[: targets.size] = targets
                self._learn(0, targets.size)
        return self

    def _one_row(self, x: Any) -> Any:
        """One row, as a block of one."""
        if not is_pair(x) and not is_sparse(x):
            x = np.atleast_2d(as_numbers(x, "x must be a vector"))
        rows: Any = as_rows(x, self.dim, "x")
        if rows.shape[0] != 1:
            raise DimensionError(
                f"x must be one row of {self.dim} features, got {rows.shape[0]} rows. Use partial_fit for a block."
            )
        return rows

    def _take(self, rows: Any) -> None:
        """Copy rows to where the kernel reads them; the first ones decide whether rows are dense or sparse."""
        first = self._stage.sparse is None
        if first:
            self.start(not isinstance(rows, np.ndarray))
        try:
            self._stage.take(rows)
        except BaseException:
            if first:
                self.unstart()
            raise

    def _learn(self, first: int, last: int) -> None:
        """Take rows of the stage, making room and attending to the state where the kernel asks for it."""
        frame, block = self.frame, last - first > 1
        try:
            while status := kernels.learn.run(frame.address, first, last):
                first = frame["done"]
                if status == NO_ROOM:
                    self.make_room(self._stage.frame, first, last, block)
                    block = False
                elif status == kernels.LOOK:
                    self.look()
                elif status == kernels.ATTEND:
                    self.attend()
                    if first == last:
                        frame["checked"] = 0
                        break
                else:
                    row = f"after row {len(self)}" if status == kernels.DIVERGED else f"row {frame['fault_row']}"
                    raise fault(int(status), row, self.dim)
        except BaseException:
            frame["checked"] = 0
            if len(self) == 0 and not self.held:
                self.unstart()
            raise
        if self._seen[0] >= self.next_check:
            check(self)

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def theta(self) -> NDArray[np.float64]:
        """The present estimate of the coefficients, a fresh array; see `intercept_`."""
        with self.lock:
            theta = self.coefficients()
            return theta[: self.dim] if self.units is None else self.units.raw(theta)[0]

    @property
    def intercept_(self) -> float:
        """What is predicted where all features are 0."""
        with self.lock:
            return 0.0 if self.units is None else self.units.raw(self.coefficients())[1]

    def coefficients(self, at: Any = slice(None)) -> NDArray[np.float64]:
        """The present estimate in the tracker's own units, with the intercept's last: what `target` is held against.

        `at`: of these coordinates alone, `units.learned`.
        """
        with self.lock:
            if self.sparse is None:
                return np.zeros(self.inner)
            self.refresh()
            coords, b = self._state["coords"], self.frame["b"]
            theta: NDArray[np.float64] = self.frame["a"] * coords[0, at]
            if b:
                theta += b * coords[1, at]
            return theta

    def predict(self, X: Any) -> Any:
        """theta . x for a row (a number) or for each row of a block (a vector), in O(nnz) each."""
        with self.lock:
            if self._stage.take_row(X):
                self.refresh()
                self._foretell(1)
                return self._stage.reward[0]
            pairs = type(X) is list and bool(X) and all(map(is_pair, X))
            if not pairs and not is_pair(X) and not is_sparse(X):
                X = as_numbers(X, "X must be a matrix")
            one = type(X) is Rows and np.size(X.start) == 2  # as `Features.user` makes it
            single = one or is_pair(X) or getattr(X, "ndim", 2) == 1
            rows: Any = self._one_row(X) if single else as_rows(X, self.dim)
            if self._stage.sparse is None:
                return 0.0 if single else np.zeros(rows.shape[0])
            self.refresh()
            count = self._stage.take(rows)
            self._foretell(count)
            return self._stage.reward[0] if single else self._stage.y[:count].copy()

    def _foretell(self, count: int) -> None:
        """What is predicted of the first rows of the stage takes the place of their rewards."""
        if status := kernels.predict.run(self.frame.address, 0, count):
            raise fault(int(status), f"row {self.frame['fault_row']}", self.dim)

    def tracking_error(self) -> TrackingError:
        """||theta - target.theta||, absolute and relative to ||target.theta||."""
        with self.lock:
            return TrackingError.between(self.coefficients(), self.target.coefficients())

    @property
    def health(self) -> Health:
        """Whether it learns: its error on recent rows before it learned them, that of predicting the mean, a verdict."""
        with self.lock:
            return health(self)

    # -- files ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Header and arrays from which `from_snapshot` makes the same tracker."""
        with self.lock:
            self.refresh()
            kept = {name: schedules.to_header(value) for name, value in self._schedules().items()}
            header: dict[str, Any] = {"class": type(self).__name__, "settings": self.settings() | kept}
            header |= {"draws": self._draws.header(), "history": self.history.header(), "sparse": self.sparse}
            header |= {"ridge_given": self.ridge_given, "next_check": self.next_check}
            header["numbers"], state = self.kept.snapshot(rows=len(self.history))
            parts: dict[str, dict[str, Any]] = {"state": state, "history": self.history.saved_arrays()}
            if self.units is not None and self._owns_units:
                header["units"], parts["units"] = self.units.snapshot()
            arrays = {f"{part}.{name}": np.array(array) for part in parts for name, array in parts[part].items()}
            return header, {"unread": self._draws.unread(), **arrays}

    @classmethod
    def from_snapshot(cls, header: dict[str, Any], arrays: dict[str, Any], **functions: Any) -> Self:
        """The tracker that `snapshot` wrote down; schedules that were functions of n come from the caller."""
        settings, functions = dict(header["settings"]), dict(functions)
        for name in (name for name in SCHEDULES if name in settings):
            kept = settings[name]
            if kept is None and name not in functions:
                raise SettingsError(f"{name} was a function of n, which no file can hold: pass {name}= to load().")
            settings[name] = functions.pop(name) if kept is None else schedules.from_header(kept)
        if functions:
            raise SettingsError(f"load() takes no {', '.join(functions)}: it is kept in the file.")
        tracker = cls._made(settings, from_header(header["history"]))
        tracker._restore(header, arrays)
        return tracker

    @classmethod
    def _made(cls, settings: dict[str, Any], history: History) -> Self:
        """A new tracker of these settings."""
        tracker = cls.__new__(cls)
        taker: Any = next(
            kind for kind in cls.__mro__ if "takes" in vars(kind)
        )  # a class of a user's own may take others
        taker.__init__(tracker, **settings, history=None if history.kind == kernels.NOTHING else history)
        return tracker

    def _restore(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Stand where the snapshot was taken; a file may say anything, so all of it is looked at."""
        parts = {name: group(arrays, f"{name}.") for name in ("state", "history", "units")}
        self.ridge_given = bool(header["ridge_given"])
        self.next_check = max(whole(header, "next_check"), FIRST)
        self._draws.restore(header["draws"], expect(arrays, "unread", (None,), np.float64))
        if self._draws.tape.size < self._draws_per_row:
            raise CorruptFileError("fewer draws fit its tape than one row needs. Restore the file from a copy.")
        sparse: Any = checked(header["sparse"], bool | None)  # type: ignore[arg-type]
        if sparse is None:
            return
        # before anything of that size is made
        expect(arrays, "state.coords", (self.quantities, self.inner), np.float64)
        self.history.restore(self.inner, sparse, header["history"], parts["history"])
        self._wire(sparse)
        if self.units is not None and "units" in header:
            self.units.restore(header["units"], parts["units"])
        self._follow_history()
        numbers, state = self.kept.read(header["numbers"], parts["state"], rows=len(self.history))
        refuse(self.quantities == 1 and numbers["b"] != 0.0, "b")  # there is no g that it could multiply
        self.kept.fill(numbers, state)
        self._restored()

    def _restored(self) -> None:
        """The state was filled from a file."""

    def fresh(self, seed: Seed = None, tape: int = TAPE) -> Self:
        """A new tracker with the same settings, that has seen nothing, and has so many draws ready at a time."""
        tracker = self._made(self.settings(), from_header(self.history.header()))
        tracker._draws = self._tape(seed, tape)
        return tracker

    def settings(self) -> dict[str, Any]:
        """What the constructor takes, but for history and seed."""
        return {name: getattr(self, name) for name in ("dim", *self.takes)}

    def _schedules(self) -> dict[str, Any]:
        return {name: value for name, value in self.settings().items() if name in SCHEDULES}

    def functions(self) -> dict[str, Any]:
        return {name: value.function for name, value in self._schedules().items() if isinstance(value, Tabulated)}

    def __repr__(self) -> str:
        told = {name: value for name, value in self.settings().items() if name not in ("guard", "scale", "intercept")}
        told |= self.functions()
        settings = ", ".join(f"{name}={value!r}" for name, value in told.items())
        return f"{type(self).__name__}({settings}, history={self.history!r}), n={len(self)}"
