"""What all trackers share: they validate, keep rows and draws ready, and call one kernel."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls import schedules
from driftls.draws import TAPE, Draws, Seed
from driftls.errors import DimensionError, InputError, SettingsError
from driftls.history import History, Mapped, describe, from_header
from driftls.kernels import track
from driftls.kernels.frames import pack
from driftls.kernels.rows import CrossRows, DenseRows, SparseRows
from driftls.kernels.schedules import Plan
from driftls.kernels.track import Log
from driftls.persistence import Saveable
from driftls.schedules import Normalised, Schedule, Tabulated, as_schedule
from driftls.trackers.inputs import Block, as_block, as_features, checked, fault

PREFETCH_FROM_BYTES = 1 << 19  # smaller histories sit in the cache
LOOKAHEAD, SPARSE_LOOKAHEAD = 2, 4  # steps; a sparse row is fetched in three stages
SMALLEST_PIECE = 1024
TEXT: tuple[type, ...] = (str, bytes, np.str_, np.bytes_)
MOST = np.iinfo(np.int64).max


class TrackingError(NamedTuple):
    """How far theta is from the exact solution; relative to its norm, where theta = 0 scores 1."""

    absolute: float
    relative: float


class Tracker(Saveable):
    """Follows a least-squares solution while rows keep coming.

    A subclass names its state (`_state_class`, `_allocate`), its draws a row, and its target.
    """

    _state_class: ClassVar[type[NamedTuple]]
    _draws_rows: ClassVar[bool] = True

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
    ) -> None:
        if not (isinstance(dim, int | np.integer) and 1 <= dim < 2**31):
            raise SettingsError(f"dim must be a whole number of at least 1, got {dim!r}.")
        if not (isinstance(steps, int | np.integer) and steps >= 0):
            raise SettingsError(f"steps must be a whole number of at least 0, got {steps!r}.")
        self.dim = int(dim)
        self.step_size: Schedule = as_schedule(step_size, "step_size")
        self.regularisation: Schedule = as_schedule(regularisation, "regularisation")
        if isinstance(self.regularisation, Normalised):
            raise SettingsError("regularisation cannot be Normalised: pass a number, a Power or ridge(total).")
        self.steps = int(steps)
        self.guard = bool(guard)
        if history is not None and not (isinstance(history, History) and history.kind != track.NOTHING):
            raise SettingsError(f"history must be a Growing(), Reservoir(), Window() or Mapped(), got {history!r}.")
        self.history = history
        self._draws = self._tape(seed)
        self._book = np.zeros(track.BOOK, dtype=np.int64)
        self._health = np.zeros(track.HEALTH)
        self._state: Any = None  # made when the first row tells whether rows are dense or sparse
        self._sparse = False
        self._dtype: np.dtype[Any] = np.dtype(np.float64) if history is None else history.dtype
        self._target: Any = None
        self._credit = 0
        self._y = np.zeros(1)

    def _tape(self, seed: Seed, size: int = TAPE) -> Draws:
        return Draws(seed, max(size, self.steps + 1))  # at least what one row reads

    # -- what a subclass says ------------------------------------------------------------------------------------

    @abstractmethod
    def _allocate(self, sparse: bool) -> NamedTuple:
        """A new state."""

    @property
    @abstractmethod
    def target(self) -> Tracker:
        """The exact tracker of the objective that this one descends."""

    def _extra_settings(self) -> dict[str, Any]:
        """Settings beyond the common ones, for a file and for repr."""
        return {}

    # -- learning ------------------------------------------------------------------------------------------------

    def update(self, x: Any, y: float) -> None:
        """Take one row: a dense vector or a sparse row. Equal to `partial_fit` of a block of one."""
        state = self._state
        if state is not None and self._credit > 0 and type(x) is np.ndarray and self._usable(x):
            try:
                self._y[0] = y
            except (TypeError, ValueError):
                raise InputError(f"y must be a number, got {y!r}.") from None
            if type(y) in TEXT:  # which numpy would read as a number
                raise InputError(f"y must be a number, got {y!r}.")
            self._credit -= 1
            status = self._dense(self._words, x.reshape(1, -1), self._y, 0, 1)
            if status:
                raise fault(status, int(self._book[track.FAULT_ROW]), len(self), self.dim)
            return
        x = as_features(x)
        if sp.issparse(x):
            if x.ndim == 2 and 1 not in x.shape:
                raise DimensionError(f"x must be one row, got shape {x.shape}. Use partial_fit for a block.")
            x = x.reshape(1, -1)
        else:
            if x.ndim == 1:
                x = x.reshape(1, -1)
            elif x.shape[:1] != (1,):
                raise DimensionError(
                    f"x must be one row of {self.dim} features, got shape {x.shape}. Use partial_fit for a block."
                )
        self.partial_fit(x, [y])

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Take a block of rows: an array or a sparse matrix. Equal, to the bit, to taking them one by one."""
        block = self._checked(X, y)
        rows = len(block.y)
        if rows == 0:
            return self
        if self._state is None:
            self._start(isinstance(block, SparseRows))
        done = 0
        try:
            while done < rows:
                upto = min(rows, done + self._prepare(rows - done, block, done))
                done = self._advance(block, done, upto)
        except Exception:
            if len(self) == 0:
                self._unstart()
            raise
        return self

    def _advance(self, block: Block, first: int, last: int) -> int:
        if isinstance(block, DenseRows):
            status = self._dense(self._words, block.X, block.y, first, last)
        else:
            status = self._sparse_entry(self._words, *block, self.dim, first, last)
        self._credit -= int(self._book[track.DONE]) - first
        if status:
            raise fault(status, int(self._book[track.FAULT_ROW]), len(self), self.dim)
        return last

    def _checked(self, X: Any, y: Any) -> Block:
        X, targets = checked(X, y, self.dim)
        return as_block(X, targets, bool(sp.issparse(X)) if self._state is None else self._sparse, self._dtype)

    def _start(self, sparse: bool) -> None:
        """The first rows are here: dense or sparse, from now on."""
        if self.history is not None:
            self.history.open(self.dim, sparse)
        self._bind(sparse, self._allocate(sparse))

    def _unstart(self) -> None:
        """The first rows were refused: the next ones may be of the other kind."""
        self._state = None
        self._book = np.zeros(track.BOOK, dtype=np.int64)
        if self.history is not None:
            self.history.unopen()

    def _bind(self, sparse: bool, state: NamedTuple) -> None:
        history = self.history
        self._sparse = sparse
        self._dtype = np.dtype(np.float64) if history is None else history.dtype
        self._shape = (self.dim,)
        self._state = state
        if history is not None:
            self._book = history.book
            history.owner = weakref.ref(self)
        width = (16.0 if sparse else self.dim) * self._dtype.itemsize
        knobs = np.zeros(track.KNOBS)
        knobs[track.STEPS] = self.steps
        knobs[track.DRAWS] = self._draws_rows
        knobs[track.GUARD] = self.guard
        knobs[track.LOOKAHEAD] = SPARSE_LOOKAHEAD if sparse else LOOKAHEAD
        knobs[track.NORMALISE] = getattr(self, "newest", False)
        knobs[track.PREFETCH_FROM] = PREFETCH_FROM_BYTES / width
        empty = np.empty(0)
        self._plan = Plan(schedules.encode(self.step_size), empty, schedules.encode(self.regularisation), empty, knobs)
        self._dense, self._sparse_entry, self._read, *self._predict = track.entries(self._state_class)
        self._frame()

    def _frame(self) -> None:
        """Write the addresses of all arrays down again: one of them has moved."""
        rows: Any = None if self.history is None else self.history.rows
        if rows is None:
            y = np.empty(0)
            rows = DenseRows(np.empty((0, self.dim), dtype=self._dtype), y)
            if self._sparse:
                whole = np.empty(0, dtype=np.int64)
                rows = SparseRows(whole, whole, np.empty(0, dtype=np.int32), np.empty(0, dtype=self._dtype), y)
        log = Log(self._book, self._health, self._draws.tape, self._draws.cursor)
        self._alive = (self._state, self._plan, log, rows)  # the words are addresses: the arrays must live
        self._words = pack(self._alive)

    def _prepare(self, wanted: int, block: Block, first: int) -> int:
        """Have draws, room and schedule values ready; returns for how many rows of the block (at least one)."""
        rows = self._drawable(wanted)
        if self.history is not None and self.history.capacity:  # what is overwritten within a block needs no room
            rows = min(rows, max(self.history.capacity, SMALLEST_PIECE))
        if isinstance(block, CrossRows):  # one row
            nnz = int((1 + block.shared[0]) * (block.stop - block.start)[first // block.shift.size])
        else:
            nnz = int(block.stop[first + rows - 1] - block.start[first]) if isinstance(block, SparseRows) else 0
        return self._make_room(rows, nnz, wanted)  # the check looks at the schedules of all that is wanted

    def _drawable(self, wanted: int) -> int:
        """At most as many rows as the tape has draws for."""
        per_row = self._draws_per_row
        return min(wanted, self._draws.tape.size // per_row) if per_row else wanted

    def _make_room(self, rows: int, nnz: int, planned: int) -> int:
        per_row, history = self._draws_per_row, self.history
        ahead = self._tabulate(int(self._book[track.SEEN]) + planned)  # first: a function of n may fail
        if per_row:
            ahead = min(ahead, self._draws.ready(rows * per_row) // per_row)
        if history is not None:
            history.reserve(rows, nnz)
            if self._sparse:
                ahead = rows
            elif history.capacity is None:
                ahead = min(ahead, int(self._book[track.CAPACITY] - self._book[track.HELD]))
            self._grow(int(self._book[track.CAPACITY]))
        state, plan, _, held = self._alive
        if state is not self._state or plan is not self._plan or (history is not None and held is not history.rows):
            self._frame()
        self._credit = ahead
        return rows

    @property
    def _draws_per_row(self) -> int:
        placing = self.history is not None and self.history.kind == track.RESERVOIR
        return (self.steps if self._draws_rows else 0) + placing

    def _tabulate(self, n: int) -> int:
        """Tables of functions reach row n at least; returns for how many more rows they do."""
        ahead = MOST
        for schedule, name in ((self.step_size, "step_table"), (self.regularisation, "regularisation_table")):
            if isinstance(schedule, Tabulated):
                table = schedule.reach(n)
                if table is not getattr(self._plan, name):
                    self._plan = self._plan._replace(**{name: table})
                ahead = min(ahead, table.size - int(self._book[track.SEEN]))
        return ahead

    def _grow(self, length: int) -> None:
        """A table with an entry a row follows the history."""
        residual = getattr(self._state, "residual", None)
        if residual is not None and residual.size < length:
            grown = np.zeros(length)
            grown[: residual.size] = residual
            self._state = self._state._replace(residual=grown)

    # -- reading -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Rows seen: n."""
        return int(self._book[track.SEEN])

    @property
    def n(self) -> int:
        """Rows seen."""
        return len(self)

    @property
    def theta(self) -> NDArray[np.float64]:
        """The present estimate, a fresh array."""
        out = np.zeros(self.dim)
        if self._state is not None:
            self._read(self._state, out)
        return out

    def predict(self, X: Any) -> Any:
        """theta . x for a row (a number) or for each row of a block (a vector), in O(nnz) each."""
        if type(X) is np.ndarray and self._state is not None and self._usable(X):
            answer = np.empty(1)
            self._predict[0](self._words, X.reshape(1, -1), answer)
            return float(answer[0])
        X = as_features(X)
        single = X.ndim == 1
        if single:
            X = X.reshape(1, -1)
        X, out = checked(X, np.zeros(X.shape[0] if X.ndim else 0), self.dim)
        if self._state is not None:
            block, (dense, sparse) = as_block(X, out, self._sparse, self._dtype), self._predict
            if isinstance(block, DenseRows):
                status = dense(self._words, block.X, out)
            else:
                status = sparse(self._words, *block[:4], self.dim, out)
            if status:
                raise fault(status, 0, len(self), self.dim)
        return float(out[0]) if single else out

    def _usable(self, x: NDArray[Any]) -> bool:
        """Whether this row can be handed to a kernel as it is."""
        return x.dtype == self._dtype and x.shape == self._shape and x.flags.carray and not self._sparse

    def tracking_error(self) -> TrackingError:
        """||theta - target.theta||, absolute and relative to ||target.theta||."""
        exact = self.target.theta
        absolute, size = float(np.linalg.norm(self.theta - exact)), float(np.linalg.norm(exact))
        return TrackingError(absolute, absolute / size if size else (0.0 if absolute == 0.0 else float("inf")))

    def _set_ridge(self, total: float) -> None:
        """From now on n lambda_n = total."""
        self.regularisation = schedules.ridge(total)
        self._plan.regularisation[:] = schedules.encode(self.regularisation)

    def _let_go(self) -> None:
        """The history was closed: keep its counters, forget the addresses of its rows."""
        assert self.history is not None
        self._book, self._credit = self.history.book, 0
        self._frame()

    # -- files ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Header and arrays from which `from_snapshot` makes the same tracker."""
        header: dict[str, Any] = {
            "class": type(self).__name__,
            "settings": self._saved_settings(),
            "draws": self._draws.header(),
            "book": [int(entry) for entry in self._book],
            "history": None if self.history is None else self.history.header(),
            "sparse": None if self._state is None else self._sparse,
        }
        arrays: dict[str, Any] = {"health": self._health, "unread": self._draws.unread()}
        if self._state is not None:
            # (quantity, coordinate) tables are saved in this order of axes, whatever their order in memory
            arrays |= {f"state.{name}": array for name, array in self._state._asdict().items()}
        if self.history is not None:
            arrays |= {f"history.{name}": array for name, array in self.history.arrays().items()}
        return header, arrays

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
        history = None if header["history"] is None else from_header(header["history"])
        tracker = cls._from_settings(settings, history)
        tracker._restore(header, arrays)
        return tracker

    def fresh(self, seed: Seed = None, tape: int = TAPE) -> Self:
        """A new tracker with the same settings, that has seen nothing, and has so many draws ready at a time."""
        settings = self._saved_settings() | {"step_size": self.step_size, "regularisation": self.regularisation}
        history = None if self.history is None else from_header(self.history.header())
        tracker = self._from_settings(settings, history)
        tracker._draws = self._tape(seed, tape)
        return tracker

    @classmethod
    def _from_settings(cls, settings: dict[str, Any], history: History | None) -> Self:
        return cls(**settings, history=history)

    def _saved_settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"dim": self.dim, "steps": self.steps, "guard": self.guard}
        settings["step_size"] = schedules.to_header(self.step_size)
        settings["regularisation"] = schedules.to_header(self.regularisation)
        return settings | self._extra_settings()

    def _restore(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        parts = {
            group: {name.split(".", 1)[1]: array for name, array in arrays.items() if name.startswith(f"{group}.")}
            for group in ("state", "history")
        }
        self._draws.restore(header["draws"], arrays["unread"])
        self._health[:] = arrays["health"]
        if self.history is not None:
            self.history.restore(self.dim, header["history"], parts["history"])
        if header["sparse"] is None:
            return
        state = self._allocate(header["sparse"])
        for name, array in parts["state"].items():
            mine = getattr(state, name)
            if mine.shape == array.shape:
                mine[...] = array
            else:  # a table with an entry a row
                state = state._replace(**{name: array.copy()})
        self._bind(header["sparse"], state)
        if self.history is None:
            self._book[:] = header["book"]
        else:  # which has restored its own book
            self._grow(int(self._book[track.CAPACITY]))
            self._frame()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or a pickle for another process, is made of what a file would hold: never of addresses."""
        if isinstance(self.history, Mapped):
            raise SettingsError(
                "a tracker over a Mapped history cannot be copied: its folder has one owner. Use save()."
            )
        header, arrays = self.snapshot()
        functions = {
            name: schedule.function
            for name in ("step_size", "regularisation")
            if isinstance(schedule := getattr(self, name), Tabulated)
        }
        return _revive, (type(self), header, {name: np.array(array) for name, array in arrays.items()}, functions)

    def __repr__(self) -> str:
        parts = [f"dim={self.dim}"]
        for name in ("step_size", "regularisation"):
            schedule = getattr(self, name)
            parts.append(f"{name}={schedule.function if isinstance(schedule, Tabulated) else schedule}")
        parts += [f"steps={self.steps}", *(f"{name}={value!r}" for name, value in self._extra_settings().items())]
        return f"{type(self).__name__}({', '.join(parts)}, history={describe(self.history)}), n={len(self)}"


def _revive(kind: type[Tracker], header: dict[str, Any], arrays: dict[str, Any], functions: dict[str, Any]) -> Tracker:
    return kind.from_snapshot(header, arrays, **functions)
