"""What serves the kernels of a tracker: its record, and the settings, rows, draws, units and state behind it."""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from driftls import schedules
from driftls.compiling.parts import Frame, Part
from driftls.draws import TAPE, Draws, Seed
from driftls.errors import SettingsError
from driftls.history import History
from driftls.inputs import as_whole
from driftls.kernels import learn as kernels
from driftls.kernels.records import TRACKER
from driftls.persistence import Saveable
from driftls.schedules import Normalised, Schedule, Tabulated, as_schedule, ridge
from driftls.stage import Stage
from driftls.state import Shape, State, unbroken
from driftls.trackers.health import FIRST, NEVER, check
from driftls.trackers.settings import MOST_STEPS, flag
from driftls.units import Change, Units

PREFETCH_FROM_BYTES = 1 << 19  # smaller histories sit in the cache
COMMON = ("regularisation", "scale", "intercept")  # settings of every tracker
COORDINATES = ("u", "g", "extra")  # of the record
LOOKAHEAD = 4  # steps; a sparse row is fetched in three stages
# of the record, in every file
NUMBERS = (*("max_norm2", "error2", "max_y2", "a", "b", "p", "q"), *("watched", "progressive", "baseline", "mean_y"))


class Machine(Saveable):
    """The record of a tracker, and everything whose address is in it: stage, history, draws, units, state."""

    parts: ClassVar[dict[str, Part]]  # enter, forget, descend
    quantities: ClassVar[int] = 2
    shapes: ClassVar[dict[str, Shape]] = {}  # of arrays beyond the coordinates: of "dim" and "rows", as in `State`
    numbers: ClassVar[tuple[str, ...]] = ()
    interleaved: ClassVar[bool] = True  # for sparse rows, a coordinate's quantities are adjacent: one cache line
    draws_rows: ClassVar[bool] = True
    takes: ClassVar[tuple[str, ...]] = COMMON  # the settings, beside dim, history and seed: attributes of these names
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
        self.dim, self.steps = as_whole(dim, "dim", 1), as_whole(steps, "steps", 0, MOST_STEPS)
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
        self._target: Any = None
        self.next_check = FIRST if self.watched else NEVER  # rows after which to look whether it learns
        self._blank()

    def _blank(self) -> None:
        """No row is here yet: the first one tells whether rows are dense or sparse."""
        self.frame, self.held = Frame(TRACKER), False  # held: by a policy, which has its addresses
        self._stage = Stage(self.dim)
        self.units: Units | None = None
        self._keep(State(self.frame, {}, {}, (*NUMBERS, *self.numbers)))

    def _keep(self, kept: State) -> None:
        self.kept, self._state = kept, kept.arrays

    def _tape(self, seed: Seed, size: int = TAPE) -> Draws:
        return Draws(seed, max(size, self.steps + 1))  # at least what one row reads

    def _begin(self) -> None:
        """Write numbers of the record that do not begin at 0."""

    def attend(self) -> None:
        """A kernel asks for what it cannot do itself: sums made afresh from the rows held."""
        raise AssertionError(f"{type(self).__name__} has nothing to attend to")

    def refresh(self) -> None:
        """Have theta ready to be read."""

    def start(self, sparse: bool, units: Units | None = None) -> None:
        """The first rows are here: dense or sparse, from now on. `units` are those of a policy with a model an arm."""
        self.history.open(self.inner, sparse)
        try:
            self._wire(sparse, units)
        except BaseException:
            self.unstart()
            raise

    def unstart(self) -> None:
        """The first rows were refused: the next ones may be of the other kind."""
        self._blank()
        self.history.unopen()

    def _wire(self, sparse: bool, units: Units | None = None) -> None:
        """Make the state, and write all addresses and settings into the record."""
        self._stage.start(sparse)
        if self.scale or self.intercept:
            own = Units(self.dim, sparse=sparse, scale=self.scale, intercept=self.intercept)
            self.measure(own if units is None else units, own=units is None)
        interleaved, history = sparse and self.interleaved, self.history
        self.frame.set(
            **{name: part for name, part in self.parts.items() if part is not None},
            **{"sparse": sparse, "stride": self.quantities if interleaved else int(sparse)},
            **{"history": history.frame, "counts": history.counts, **self._draws.fields()},
            **{"steps": self.steps, "draws": self.draws_rows, "guard": self.guard, "watch": self.watched},
            **{"lookahead": LOOKAHEAD, "a": 1.0, "p": 1.0},
            **schedules.fields(self.step_size, "step"),
            **schedules.fields(self.regularisation, "ridge"),
        )
        shapes: dict[str, Shape] = {"coords": ("quantities", "dim"), **self.shapes}
        sizes = {"dim": self.inner, "quantities": self.quantities, "rows": int(history.frame["count"]), "none": 0}
        columns = ("coords",) if interleaved else ()
        self._keep(State(self.frame, shapes, sizes, self.kept.numbers, constant=self.intercept, columns=columns))
        self._point()
        self._seen = history.counts.cell("seen")
        self._begin()

    def _point(self) -> None:
        """Where rows come from, and the coordinates; a scheme without g reads b = 0 times u."""
        coords = self._state["coords"]
        self.frame.set(dim=self.inner, block=self._stage.frame, **{"g": coords[0], **dict(zip(COORDINATES, coords))})

    @property
    def inner(self) -> int:
        """Coordinates that are learned: the features, and the intercept."""
        return self.dim + self.intercept

    def measure(self, units: Units, *, own: bool = False) -> None:
        """Measure features by these units, which a policy with one model an arm has for all of them."""
        self.units, self._owns_units = units, own
        self._stage.measure(units.frame)

    def look(self) -> None:
        """Take new units from what was seen, and rewrite what was learned in them."""
        if self.units is not None:
            with unbroken():
                if (change := self.units.look()) is not None:
                    self.change_units(change)
                self.settle()

    def settle(self) -> bool:
        """A look was taken: come closer to the target, where that is cheap now; whether theta has moved."""
        return False

    @abstractmethod
    def change_units(self, change: Change) -> None:
        """Rewrite the state, which is linear in the rows, and the rows held, in new units; `settle` has to follow."""

    def grow(self, dim: int) -> None:
        """Take `dim` features from now on, as if there had been so many from the start: the new ones were always 0."""
        with self.lock:
            if self.held:
                raise SettingsError("this tracker is a policy's, which has to grow with it. Call policy.grow(dim).")
            before, dim = self.dim, as_whole(dim, "dim", self.dim)
            if dim == before:
                return
            self._try_room(dim + self.inner - before)
            sparse = self.sparse
            if sparse is not None:
                self.refresh()
                self.history.grow(before, dim)
            self.dim, self._stage, self._target = dim, Stage(dim), None
            if sparse is None:
                return
            self._stage.start(sparse)
            if self.units is not None:
                self.units.grow(dim)
                self.measure(self.units, own=self._owns_units)
            self.kept.widen(self.inner)
            self._point()

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
            nnz = (
                int((stop[first : first + kept] - start[first : first + kept]).sum()) + kept
            )  # perhaps with a constant
        history.reserve(kept, nnz)
        self._follow_history()
        if rows is not self._stage.frame and self._seen[0] >= self.next_check:  # a policy's do not come by `_learn`
            check(self)
        if self._draws_per_row:
            self._draws.ready(min(piece, max(1, self._draws.tape.size // self._draws_per_row)) * self._draws_per_row)

    def _follow_history(self) -> None:
        """Tables with an entry a row grow with the history; one that leaves the cache is read ahead."""
        length = int(self.history.frame["count"])
        if self.kept.sizes["rows"] < length:
            self.kept.lengthen(rows=length)
        size = self.history.frame.arrays["values"].nbytes if length else 0
        if self.draws_rows and size > PREFETCH_FROM_BYTES and not self.frame["ahead"]:
            self.frame["ahead"] = kernels.look_ahead

    @property
    def _draws_per_row(self) -> int:
        return (self.steps if self.draws_rows else 0) + (self.history.kind == kernels.RESERVOIR)

    def set_ridge(self, schedule: Schedule, *, rewrite: bool = True) -> None:
        """From now on lambda_n is another one: where a policy estimates it from the data.

        `rewrite=False` leaves what was found with the old one, where `change_units` follows and finds it anew.
        """
        with self.lock:
            self.regularisation = schedule
            self.frame.set(**schedules.fields(schedule, "ridge"))

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
