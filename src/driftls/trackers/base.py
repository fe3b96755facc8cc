"""What all trackers share: they validate, keep rows and draws ready, and call one kernel."""

from __future__ import annotations

import inspect
import threading
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from driftls import schedules
from driftls.draws import TAPE, Draws, Seed
from driftls.errors import CorruptFileError, DimensionError, SettingsError
from driftls.history import History, Mapped, from_header
from driftls.inputs import Stage, as_number, as_numbers, as_rows, fault, is_pair, is_sparse
from driftls.kernels import learn as kernels
from driftls.kernels.parts import Frame, Part
from driftls.kernels.records import TRACKER
from driftls.persistence import Saveable, checked, expect
from driftls.schedules import Normalised, Schedule, Tabulated, as_schedule
from driftls.units import Change, Units, widened

PREFETCH_FROM_BYTES = 1 << 19  # smaller histories sit in the cache
LOOKAHEAD, SPARSE_LOOKAHEAD = 2, 4  # steps; a sparse row is fetched in three stages
MOST_STEPS = 10_000_000  # a row: as many uniforms are drawn ahead
NUMBERS = ("max_norm2", "error2", "max_y2", "a", "b", "p", "q")  # of the record, which a file keeps for every tracker


# features as they are, and no intercept: what the paper's algorithms are printed for
RAW: dict[str, Any] = {"scale": False, "intercept": False}


class TrackingError(NamedTuple):
    """How far theta is from the exact solution; relative to its norm, where theta = 0 scores 1."""

    absolute: float
    relative: float


class Tracker(Saveable):
    """Follows a least-squares solution while rows keep coming.

    A subclass says which parts serve it (`parts`), which quantities it keeps for each coordinate and which numbers of
    its record a file must have (`quantities`, `numbers`), allocates what else it needs (`_allocate`), and has a target.

    Calls from several threads take turns; trackers of their own run in parallel.
    """

    parts: ClassVar[dict[str, Part]]  # enter, forget, descend
    quantities: ClassVar[int] = 2
    numbers: ClassVar[tuple[str, ...]] = ()
    interleaved: ClassVar[bool] = True  # for sparse rows, a coordinate's quantities are adjacent: one cache line
    draws_rows: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        *,
        step_size: Any = 0.0,
        regularisation: Any = 0.0,
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
        self.regularisation: Schedule = as_schedule(regularisation, "regularisation")
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

    def _extra_settings(self) -> dict[str, Any]:
        """Settings beyond the common ones, for a file and for repr."""
        return {}

    def attend(self) -> None:
        """A kernel asks for what it cannot do itself: sums made afresh from the rows held."""
        raise AssertionError(f"{type(self).__name__} has nothing to attend to")

    def refresh(self) -> None:
        """Have theta ready to be read."""

    # -- learning ------------------------------------------------------------------------------------------------

    def update(self, x: Any, y: float) -> None:
        """Take one row: a dense vector, a sparse row, or (indices, values). Equal to `partial_fit` of a block of one."""
        with self.lock:
            if not (type(y) is float and self._stage.sparse is not None and self._stage.take_row(x)):
                y = as_number(y, "y")
                self._take(self._one_row(x))
            self._stage.y[0] = y
            self._learn(0, 1)

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Take a block of rows: an array or a sparse matrix. Equal, to the bit, to taking them one by one."""
        targets = as_numbers(y, "y must be a vector")
        rows: Any = as_rows(list(X) if is_pair(X) else X, self.dim)  # a tuple of rows is a matrix here
        if targets.ndim != 1 or rows.shape[0] != targets.size:
            raise DimensionError(
                f"X must be a matrix and y a vector with one entry a row, got shapes {tuple(rows.shape)}, {targets.shape}."
            )
        with self.lock:
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
            while status := kernels.learn(frame.address, first, last):
                if status == kernels.NO_ROOM:
                    first = frame["done"]
                    self.make_room(self._stage.frame, first, last, block)
                    block = False
                elif status == kernels.LOOK:
                    first = frame["done"]
                    self.look()
                elif status == kernels.ATTEND:
                    first = frame["done"]
                    self.attend()
                    if first == last:
                        break
                else:
                    row = f"after row {len(self)}" if status == kernels.DIVERGED else f"row {frame['fault_row']}"
                    raise fault(int(status), row, self.dim)
        except BaseException:
            if len(self) == 0:
                self.unstart()
            raise
        finally:
            frame["checked"] = 0

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
            tape=self._draws.tape,
            tape_size=self._draws.tape.size,
            cursor=self._draws.cursor,
            steps=self.steps,
            draws=self.draws_rows,
            guard=self.guard,
            lookahead=SPARSE_LOOKAHEAD if sparse else LOOKAHEAD,
            a=1.0,
            p=1.0,
            **schedules.fields(self.step_size, "step"),
            **schedules.fields(self.regularisation, "ridge"),
        )
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

    def look(self, constant: float | None = None) -> None:
        """Take new units from what was seen, and rewrite what was learned in them."""
        assert self.units is not None
        change = self.units.look(constant)
        if change is not None:
            self.change_units(change)

    def settle(self) -> bool:
        """A policy has taken a look: come closer to the target, where that is cheap now; whether theta has moved."""
        return False

    def change_units(self, change: Change) -> None:
        """Rewrite the state, which is linear in the rows, and the rows held, in new units."""
        raise AssertionError(f"{type(self).__name__} cannot change its units")

    def grow(self, dim: int) -> None:
        """Take `dim` features from now on, as if there had been so many from the start: the new ones were always 0."""
        with self.lock:
            before, dim = self.dim, whole_number(dim, "dim", self.dim)
            if dim == before:
                return
            sparse, kept = self.sparse, {name: self.frame[name] for name in (*NUMBERS, *self.numbers)}
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
            if self._stage.sparse is not None and self._stage.take_row(X):
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
        out = self._out(count)
        if status := kernels.predict(self.frame.address, 0, count):
            raise fault(int(status), f"row {self.frame['fault_row']}", self.dim)
        return out[:count]

    def tracking_error(self) -> TrackingError:
        """||theta - target.theta||, absolute and relative to ||target.theta||."""
        with self.lock:
            exact = self.target.coefficients()
            absolute, size = float(np.linalg.norm(self.coefficients() - exact)), float(np.linalg.norm(exact))
        return TrackingError(absolute, absolute / size if size else (0.0 if absolute == 0.0 else float("inf")))

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
            header: dict[str, Any] = {
                "class": type(self).__name__,
                "settings": self._saved_settings(),
                "draws": self._draws.header(),
                "history": self.history.header(),
                "sparse": self.sparse,
                "numbers": {name: self.frame[name] for name in (*NUMBERS, *self.numbers)},
            }
            arrays: dict[str, Any] = {"unread": self._draws.unread()}
            if self.sparse is not None:
                arrays |= {f"state.{name}": np.array(array) for name, array in self._kept_state().items()}
                arrays |= {f"history.{name}": np.array(array) for name, array in self.history.saved_arrays().items()}
                if self.units is not None and self._owns_units:
                    header["units"], kept = self.units.snapshot()
                    arrays |= {f"units.{name}": array for name, array in kept.items()}
        return header, arrays

    def _kept_state(self) -> dict[str, NDArray[Any]]:
        """The state as a file keeps it: of a table with an entry a row, those of the rows held."""
        held = len(self.history)
        return {name: array[:held] if name == "residual" else array for name, array in self._state.items()}

    @classmethod
    def from_snapshot(cls, header: dict[str, Any], arrays: dict[str, Any], **functions: Any) -> Self:
        """The tracker that `snapshot` wrote down."""
        settings = dict(header["settings"])
        for name in ("step_size", "regularisation"):
            if name in settings:
                if settings[name] is None and name not in functions:
                    raise SettingsError(f"{name} was a function of n, which no file can hold: pass {name}= to load().")
                kept = settings[name]
                settings[name] = functions.pop(name) if kept is None else schedules.from_header(kept)
        if functions:
            raise SettingsError(f"load() takes no {', '.join(functions)}: it is kept in the file.")
        tracker = cls._from_settings(settings, from_header(header["history"]))
        tracker._restore(header, arrays)
        return tracker

    def _restore(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        self._draws.restore(header["draws"], expect(arrays, "unread", (None,), np.float64))
        if self._draws.tape.size < self._draws_per_row:
            raise CorruptFileError("fewer draws fit its tape than one row needs. Restore the file from a copy.")
        sparse: Any = checked(header["sparse"], bool | None)  # type: ignore[arg-type]
        if sparse is None:
            return
        expect(
            arrays, "state.coords", (self.quantities, self.inner), np.float64
        )  # before anything of that size is made
        own = {name.split(".", 1)[1]: array for name, array in arrays.items() if name.startswith("history.")}
        self.history.restore(self.inner, sparse, header["history"], own)
        self._wire(sparse)
        if self.units is not None and "units" in header:
            prefix = "units."
            kept = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
            self.units.restore(header["units"], kept)
        for name in (*NUMBERS, *self.numbers):
            value = checked(header["numbers"][name], float)
            if not np.isfinite(value):
                raise CorruptFileError(f"{name} must be a finite number, got {value}. Restore the file from a copy.")
            self.frame[name] = value
        if self.quantities == 1 and self.frame["b"] != 0.0:  # there is no g that it could multiply
            raise CorruptFileError("b must be 0 for this tracker. Restore the file from a copy.")
        self._follow_history()
        for name, array in self._kept_state().items():
            kept = expect(arrays, f"state.{name}", array.shape, array.dtype)
            if not np.isfinite(kept).all():
                raise CorruptFileError(f"`{name}` is not finite. Restore the file from a copy.")
            array[...] = kept
        self._restored()

    def _restored(self) -> None:
        """The state was filled from a file."""

    def fresh(self, seed: Seed = None, tape: int = TAPE) -> Self:
        """A new tracker with the same settings, that has seen nothing, and has so many draws ready at a time."""
        settings = self._saved_settings()
        settings |= {name: getattr(self, name) for name in ("step_size", "regularisation") if name in settings}
        tracker = self._from_settings(settings, from_header(self.history.header()))
        tracker._draws = self._tape(seed, tape)
        return tracker

    @classmethod
    def _from_settings(cls, settings: dict[str, Any], history: History) -> Self:
        settings |= {"history": None if history.kind == kernels.NOTHING else history}
        kind: Any = cls
        while not (kind.__module__.startswith("driftls.") or _takes(kind, settings)):
            kind = kind.__mro__[1]  # a constructor of a user's own: what it would have passed on is in the settings
        tracker = cls.__new__(cls)
        kind.__init__(tracker, **settings)
        return tracker

    def _saved_settings(self) -> dict[str, Any]:
        """What the constructor takes, in the form that a file keeps."""
        settings: dict[str, Any] = {"dim": self.dim, "steps": self.steps, "guard": self.guard}
        settings["step_size"] = schedules.to_header(self.step_size)
        settings["regularisation"] = schedules.to_header(self.regularisation)
        settings |= {"scale": self.scale, "intercept": self.intercept}
        return settings | self._extra_settings()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or a pickle for another process, is made of what a file would hold: never of addresses."""
        if isinstance(self.history, Mapped):
            raise SettingsError(
                "a tracker over a Mapped history cannot be copied: its folder has one owner. Use save()."
            )
        return _revive, (type(self), *self.snapshot(), self.functions())

    def functions(self) -> dict[str, Any]:
        """Schedules that are functions of n, which `load` has to be given again."""
        given = {"step_size": self.step_size, "regularisation": self.regularisation}
        return {name: schedule.function for name, schedule in given.items() if isinstance(schedule, Tabulated)}

    def __repr__(self) -> str:
        parts = [f"dim={self.dim}"]
        for name in ("step_size", "regularisation"):
            schedule = getattr(self, name)
            parts.append(f"{name}={schedule.function if isinstance(schedule, Tabulated) else schedule}")
        parts += [f"steps={self.steps}", *(f"{name}={value!r}" for name, value in self._extra_settings().items())]
        return f"{type(self).__name__}({', '.join(parts)}, history={self.history!r}), n={len(self)}"


def whole_number(value: Any, name: str, least: int, most: int = 2**31 - 2) -> int:
    """A setting that counts something."""
    if isinstance(value, bool) or not (isinstance(value, int | np.integer) and least <= value <= most):
        raise SettingsError(f"{name} must be a whole number of at least {least} and at most {most}, got {value!r}.")
    return int(value)


def flag(value: Any, name: str) -> bool:
    """A setting that is on or off."""
    if not isinstance(value, bool | np.bool_):
        raise SettingsError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def _takes(kind: Any, settings: dict[str, Any]) -> bool:
    try:
        inspect.signature(kind).bind(**settings)
    except TypeError:
        return False
    return True


def _revive(kind: type[Tracker], header: dict[str, Any], arrays: dict[str, Any], functions: dict[str, Any]) -> Tracker:
    return kind.from_snapshot(header, arrays, **functions)
