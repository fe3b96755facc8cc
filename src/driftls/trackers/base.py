"""What all trackers share: they validate, keep rows and draws ready, and call one kernel."""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from driftls import schedules
from driftls.draws import TAPE, Draws, Seed
from driftls.errors import DimensionError, SettingsError
from driftls.history import History, Mapped, from_header
from driftls.inputs import as_number, as_numbers, as_rows, fault, is_pair, is_sparse
from driftls.kernels import learn as kernels
from driftls.kernels.parts import Frame, Part
from driftls.kernels.records import TRACKER
from driftls.persistence import Saveable
from driftls.schedules import Normalised, Schedule, Tabulated, as_schedule, ridge
from driftls.stage import Stage, view
from driftls.trackers import files
from driftls.trackers.health import Health, Watch
from driftls.trackers.settings import MOST_STEPS, flag, whole_number
from driftls.units import Change, Units, widened

PREFETCH_FROM_BYTES = 1 << 19  # smaller histories sit in the cache
LOOKAHEAD, SPARSE_LOOKAHEAD = 2, 4  # steps; a sparse row is fetched in three stages


class TrackingError(NamedTuple):
    """How far theta is from the exact solution; relative to its norm, where theta = 0 scores 1."""

    absolute: float
    relative: float


class Tracker(Saveable):
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

    A subclass says which parts serve it (`parts`), which quantities it keeps for each coordinate and which numbers of
    its record a file must have (`quantities`, `numbers`), allocates what else it needs (`_allocate`), and has a target.
    Calls from several threads take turns; trackers of their own run in parallel.
    """

    parts: ClassVar[dict[str, Part]]  # enter, forget, descend
    quantities: ClassVar[int] = 2
    numbers: ClassVar[tuple[str, ...]] = ()
    interleaved: ClassVar[bool] = True  # for sparse rows, a coordinate's quantities are adjacent: one cache line
    draws_rows: ClassVar[bool] = True
    own_settings: ClassVar[tuple[str, ...]] = ()  # attributes that its constructor takes beyond the common ones
    not_settings: ClassVar[tuple[str, ...]] = ()  # common ones that it does not take
    watched: ClassVar[bool] = True  # errors before learning are noted: theta is ready after every row

    def __init__(
        self,
        dim: int,
        *,
        step_size: Any = 0.0,
        regularisation: Any = None,
        steps: int = 1,
        history: History | None = None,
        seed: Seed = None,
        guard: bool = True,
        scale: bool = True,
        intercept: bool = True,
    ) -> None:
        self.scale, self.intercept = flag(scale, "scale"), flag(intercept, "intercept")
        self.dim, self.steps = whole_number(dim, "dim", 1), whole_number(steps, "steps", 0, MOST_STEPS)
        self.step_size: Schedule = as_schedule(step_size, "step_size")
        self.ridge_given = regularisation is not None  # else a policy may find it from the data
        self.regularisation: Schedule = as_schedule(
            regularisation if self.ridge_given else ridge(1.0), "regularisation"
        )
        if isinstance(self.regularisation, Normalised):
            raise SettingsError("regularisation cannot be Normalised: pass a number, a Power or ridge(total).")
        self.guard = flag(guard, "guard")
        if history is not None and not isinstance(history, History):
            raise SettingsError(f"history must be a Growing(), Reservoir(), Window() or Mapped(), got {history!r}.")
        self.history = History() if history is None else history
        self.lock = threading.RLock()
        self._draws = self._tape(seed)
        self.frame = Frame(TRACKER)
        self._stage = Stage(self.dim, constant=self.intercept)
        self.units: Units | None = None
        self._state: dict[str, NDArray[Any]] = {}  # made when the first row tells whether rows are dense or sparse
        self._target: Any = None
        self._watch = Watch()
        self.held = False  # by a policy, which has its addresses

    def _tape(self, seed: Seed, size: int = TAPE) -> Draws:
        return Draws(seed, max(size, self.steps + 1))  # at least what one row reads

    # -- what a subclass says ------------------------------------------------------------------------------------

    def _allocate(self) -> dict[str, NDArray[Any]]:
        """Arrays beyond the coordinates, by the name of their field."""
        return {}

    def _begin(self) -> None:
        """Write numbers of the record that do not begin at 0."""

    @property
    @abstractmethod
    def target(self) -> Tracker:
        """The exact tracker of the objective that this one descends."""

    def attend(self) -> None:
        """A kernel asks for what it cannot do itself: sums made afresh from the rows held."""
        raise AssertionError(f"{type(self).__name__} has nothing to attend to")

    def refresh(self) -> None:
        """Have theta ready to be read."""

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
                if status == kernels.NO_ROOM:
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
        if self._seen[0] >= self._watch.next:
            self._watch.check(self)

    def start(self, sparse: bool, units: Units | None = None) -> None:
        """The first rows are here: dense or sparse, from now on. `units` are those of a policy with a model an arm."""
        if self.history.dim:
            raise SettingsError("a history serves one tracker. Give each tracker a history of its own.")
        self.history.open(self.inner, sparse)
        try:
            self._wire(sparse, units)
        except BaseException:
            self.unstart()
            raise

    def unstart(self) -> None:
        """The first rows were refused: the next ones may be of the other kind."""
        self.held = False
        self._state, self.frame, self.units = {}, Frame(TRACKER), None
        self._stage = Stage(self.dim, constant=self.intercept)
        self.history.unopen()

    def _wire(self, sparse: bool, units: Units | None = None) -> None:
        """Allocate the state and write all addresses and settings into the record."""
        self._stage.start(sparse)
        if self.scale or self.intercept:
            own = Units(self.dim, sparse=sparse, scale=self.scale, intercept=self.intercept)
            self.measure(own if units is None else units, own=units is None)
        shape = (self.inner, self.quantities)
        coords = np.zeros(shape).T if sparse and self.interleaved else np.zeros(shape[::-1])
        self._state = {"coords": coords, **self._allocate()}
        self.frame.set(
            **{"g": coords[0], **dict(zip(("u", "g", "extra"), coords))},  # a scheme without g reads b = 0 times u
            **{name: array for name, array in self._state.items() if name != "coords"},
            **{name: part for name, part in self.parts.items() if part is not None},
            dim=self.inner,
            sparse=sparse,
            stride=(self.quantities if self.interleaved else 1) if sparse else 0,
            history=self.history.frame,
            counts=self.history.counts,
            block=self._stage.frame,
            **self._draws.fields(),
            steps=self.steps,
            draws=self.draws_rows,
            guard=self.guard,
            watch=self.watched,
            lookahead=SPARSE_LOOKAHEAD if sparse else LOOKAHEAD,
            a=1.0,
            p=1.0,
            **schedules.fields(self.step_size, "step"),
            **schedules.fields(self.regularisation, "ridge"),
        )
        self._seen = view(self.history.counts.fields["seen"])
        self._out(1)
        self._begin()

    @property
    def inner(self) -> int:
        """Coordinates that are learned: the features, and the intercept."""
        return self._stage.inner

    def measure(self, units: Units, *, own: bool = False) -> None:
        """Measure features by these units, which a policy with one model an arm has for all of them."""
        self.units, self._owns_units = units, own
        self._stage.measure(units.frame)

    def look(self) -> None:
        """Take new units from what was seen, and rewrite what was learned in them."""
        if self.units is not None and (change := self.units.look()) is not None:
            self.change_units(change)

    def settle(self) -> bool:
        """A policy has taken a look: come closer to the target, where that is cheap now; whether theta has moved."""
        return False

    @abstractmethod
    def change_units(self, change: Change) -> None:
        """Rewrite the state, which is linear in the rows, and the rows held, in new units."""

    def grow(self, dim: int) -> None:
        """Take `dim` features from now on, as if there had been so many from the start: the new ones were always 0."""
        with self.lock:
            if self.held:
                raise SettingsError("this tracker is a policy's, which has to grow with it. Call policy.grow(dim).")
            before, dim = self.dim, whole_number(dim, "dim", self.dim)
            if dim == before:
                return
            self._try_room(dim + self.inner - before)
            sparse, kept = self.sparse, {name: self.frame[name] for name in (*files.NUMBERS, *self.numbers)}
            if sparse is not None:
                self.refresh()
                self.history.grow(before, dim)
            self.dim, self._stage, self._target = dim, Stage(dim, constant=self.intercept), None
            if sparse is None:
                return
            state, units, own = self._state, self.units, self.units is not None and self._owns_units
            if units is not None:
                units.grow(dim)
            self.frame.arrays.pop("out", None)
            self._wire(sparse, units)
            self._owns_units = own
            for name, array in state.items():
                self._state[name] = array if name == "residual" else widened(array, self._state[name], before, dim)
            if "residual" in state:
                self.frame["residual"] = state["residual"]
            self.frame.set(**kept)

    def _try_room(self, dim: int) -> None:
        """Whether there is memory for so many coordinates: what can fail fails before anything is changed."""
        rows = [len(self.history.arrays["values"])] if self.history.arrays and not self.history.sparse else []
        shapes = [(count, dim) for count in (*rows, 16)] + [
            (dim, dim) for array in self._state.values() if array.shape == (self.inner, self.inner)
        ]
        try:
            _ = [np.empty(shape) for shape in shapes]
        except (MemoryError, ValueError):
            raise SettingsError(
                f"there is no memory for {dim} features. Hash them: Features(dim=...). Nothing was changed."
            ) from None

    def _out(self, count: int) -> NDArray[np.float64]:
        """Room for so many numbers that a kernel answers with."""
        out: Any = self.frame.arrays.get("out")
        if out is None or out.size < count:
            out = np.zeros(max(count, 64))
            self.frame["out"] = out
        return out  # type: ignore[no-any-return]

    def make_room(self, rows: Frame, first: int, last: int, whole: bool = False) -> None:
        """Have draws, schedule values and a place in the history ready for some of these rows, at least for the first.

        `whole` is for a block of which no row was taken yet: what can fail must do so for all of its rows, now.
        """
        history, frame, piece = self.history, self.frame, min(last - first, 1024)
        count = last - first if whole else piece
        for name, schedule in (("step", self.step_size), ("ridge", self.regularisation)):
            if isinstance(schedule, Tabulated):  # first: a function of n may fail
                table = schedule.reach(history.seen + count)
                frame.set(**{f"{name}_table": table, f"{name}_length": table.size})
        kept, nnz = piece if history.evicts else count, 0
        if rows["sparse"]:
            start, stop = rows.arrays["start"], rows.arrays["stop"]
            nnz = int((stop[first : first + kept] - start[first : first + kept]).sum())
        history.reserve(kept, nnz)
        self._follow_history()
        if rows is not self._stage.frame:  # those of a policy, which does not come by `_learn`
            self._watch.check(self)
        if self._draws_per_row:
            self._draws.ready(min(piece, max(1, self._draws.tape.size // self._draws_per_row)) * self._draws_per_row)

    def _follow_history(self) -> None:
        """Tables with an entry a row grow with the history; one that leaves the cache is read ahead."""
        length = int(self.history.frame["count"])
        residual = self._state.get("residual")
        if residual is not None and residual.size < length:
            self._state["residual"] = np.concatenate([residual, np.zeros(length - residual.size)])
            self.frame["residual"] = self._state["residual"]
        size = self.history.frame.arrays["values"].nbytes if length else 0
        if self.draws_rows and size > PREFETCH_FROM_BYTES and not self.frame["ahead"]:
            self.frame["ahead"] = kernels.look_ahead

    @property
    def _draws_per_row(self) -> int:
        return (self.steps if self.draws_rows else 0) + (self.history.kind == kernels.RESERVOIR)

    # -- reading -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Rows seen: n."""
        return self.history.seen if self._stage.sparse is not None else 0

    @property
    def n(self) -> int:
        """Rows seen."""
        return len(self)

    @property
    def sparse(self) -> bool | None:
        """Whether rows are kept sparse; None before the first."""
        return self._stage.sparse

    @property
    def theta(self) -> NDArray[np.float64]:
        """The present estimate of the coefficients, a fresh array; see `intercept_`."""
        with self.lock:
            theta = self.coefficients()
            return theta if self.units is None else self.units.raw(theta)[0]

    @property
    def intercept_(self) -> float:
        """What is predicted where all features are 0."""
        with self.lock:
            return 0.0 if self.units is None else self.units.raw(self.coefficients())[1]

    def coefficients(self) -> NDArray[np.float64]:
        """The present estimate in the tracker's own units, with the intercept's last: what `target` is held against."""
        with self.lock:
            if self.sparse is None:
                return np.zeros(self.inner)
            self.refresh()
            out = self._out(self.inner)
            kernels.read_theta(self.frame.address, 0, self.inner)
            return out[: self.inner].copy()

    def predict(self, X: Any) -> Any:
        """theta . x for a row (a number) or for each row of a block (a vector), in O(nnz) each."""
        with self.lock:
            if self._stage.take_row(X):
                self.refresh()
                return self._predicted(1).item(0)
            if not is_pair(X) and not is_sparse(X):
                X = as_numbers(X, "X must be a matrix")
            single = is_pair(X) or getattr(X, "ndim", 2) == 1
            rows: Any = self._one_row(X) if single else as_rows(X, self.dim)
            if self._stage.sparse is None:
                return 0.0 if single else np.zeros(rows.shape[0])
            self.refresh()
            found = self._predicted(self._stage.take(rows)).copy()
            return float(found[0]) if single else found

    def _predicted(self, count: int) -> NDArray[np.float64]:
        out: Any = self.frame.arrays["out"]
        if out.size < count:
            out = self._out(count)
        if status := kernels.predict.run(self.frame.address, 0, count):
            raise fault(int(status), f"row {self.frame['fault_row']}", self.dim)
        return out[:count]  # type: ignore[no-any-return]

    def tracking_error(self) -> TrackingError:
        """||theta - target.theta||, absolute and relative to ||target.theta||."""
        with self.lock:
            exact = self.target.coefficients()
            absolute, size = float(np.linalg.norm(self.coefficients() - exact)), float(np.linalg.norm(exact))
        return TrackingError(absolute, absolute / size if size else (0.0 if absolute == 0.0 else float("inf")))

    @property
    def health(self) -> Health:
        """Whether it learns: its error on recent rows before it learned them, that of predicting the mean, a verdict."""
        with self.lock:
            return self._watch.health(self)

    def set_ridge(self, schedule: Schedule, *, rewrite: bool = True) -> None:
        """From now on lambda_n is another one: where a policy estimates it from the data.

        `rewrite=False` leaves what was found with the old one, where `change_units` follows and finds it anew.
        """
        with self.lock:
            self.regularisation = schedule
            self.frame.set(**schedules.fields(schedule, "ridge"))

    # -- files ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Header and arrays from which `from_snapshot` makes the same tracker."""
        with self.lock:
            self.refresh()
            return files.snapshot(self)

    @classmethod
    def from_snapshot(cls, header: dict[str, Any], arrays: dict[str, Any], **functions: Any) -> Self:
        """The tracker that `snapshot` wrote down."""
        tracker = files.make(cls, files.settings_of(header, functions), from_header(header["history"]))
        files.restore(tracker, header, arrays)
        return tracker

    def _restore_numbers(self, numbers: dict[str, float]) -> None:
        """What a file keeps of the record."""
        self.frame.set(**numbers)

    def _restored(self) -> None:
        """The state was filled from a file."""

    def fresh(self, seed: Seed = None, tape: int = TAPE) -> Self:
        """A new tracker with the same settings, that has seen nothing, and has so many draws ready at a time."""
        tracker = files.make(type(self), self.settings(), from_header(self.history.header()))
        tracker._draws = self._tape(seed, tape)
        return tracker

    def settings(self) -> dict[str, Any]:
        """What the constructor takes, but for history and seed."""
        common = (*("dim", "steps", "guard", "step_size", "regularisation", "scale", "intercept"), *self.own_settings)
        return {name: getattr(self, name) for name in common if name not in self.not_settings}

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or a pickle for another process, is made of what a file would hold: never of addresses."""
        if isinstance(self.history, Mapped):
            raise SettingsError(
                "a tracker over a Mapped history cannot be copied: its folder has one owner. Use save()."
            )
        return files.revive, (type(self), *self.snapshot(), self.functions())

    def functions(self) -> dict[str, Any]:
        """Schedules that are functions of n, which `load` has to be given again."""
        given = {"step_size": self.step_size, "regularisation": self.regularisation}
        return {name: schedule.function for name, schedule in given.items() if isinstance(schedule, Tabulated)}

    def __repr__(self) -> str:
        parts = [f"dim={self.dim}"]
        for name in ("step_size", "regularisation", "steps", *self.own_settings):
            if name not in self.not_settings:
                value = getattr(self, name)
                parts.append(f"{name}={value.function if isinstance(value, Tabulated) else value!r}")
        return f"{type(self).__name__}({', '.join(parts)}, history={self.history!r}), n={len(self)}"
