"""What all widths have in common: settings, and, for one tracker, a record for the kernels with the arrays behind it."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from driftls.compiling.parts import Frame, Part
from driftls.draws import Draws
from driftls.errors import SettingsError
from driftls.kernels import score
from driftls.kernels.records import WIDTH
from driftls.state import Arrays, Shape, State, refuse, widened
from driftls.trackers import RLS, Tracker
from driftls.trackers.exact import check_size
from driftls.units import Change


class Width:
    """How wide the confidence interval of an arm is, or what is sampled in its place; this one keeps nothing, and is 0.

    As it is made it is settings alone. `open` gives one that goes with a tracker, and keeps something up while that
    learns: a subclass says which parts serve it (score, width2, enter, open, same, begin), the shapes of its arrays (of
    those with something for each arm that recurs apart), and which numbers of the record a file must have. `_begin`
    refuses a tracker that it cannot go with, and writes what does not begin at 0.
    """

    parts: ClassVar[dict[str, Part]] = {"score": score.none_score}
    numbers: ClassVar[tuple[str, ...]] = ()
    signed: ClassVar[tuple[str, ...]] = ()  # those that may be below 0
    shapes: ClassVar[dict[str, Shape]] = {}
    by_slot: ClassVar[dict[str, Shape]] = {}  # where there is room for arms that recur
    columns: ClassVar[bool] = False  # for sparse rows, what all arms have of a feature is adjacent
    keeps_arms: ClassVar[bool] = False  # something for each arm that recurs, in a slot
    samples: ClassVar[bool] = False  # scores are random
    lazy: ClassVar[bool] = False  # between two looks, a sparse row brings its own features up to date, and no others
    adapts_over: ClassVar[tuple[type[Tracker], ...]] = ()  # with which trackers the ridge may be found from the data
    tables: ClassVar[tuple[int, int]] = (0, 0)  # the kind of score table that serves it, and for crossed arms; 0: none

    # -- settings ------------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """What a file keeps."""
        return {}

    def draws(self, dim: int) -> int:
        """The most uniforms that a round can use."""
        return 0

    def own_sums(self, tracker: Tracker) -> bool:
        """Whether the width has sums of its own, and so has to see every row from the tracker's first on."""
        return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.settings().items())})"

    # -- with a tracker ------------------------------------------------------------------------------------------

    def open(self, tracker: Tracker, draws: Draws, slots: int = 0, *, restored: bool = False) -> Self:
        """The same width for a tracker that was started, with room for so many recurring arms; restored: `restore` follows."""
        if len(tracker) and not restored and self.own_sums(tracker):
            raise SettingsError(
                f"{type(self).__name__} has to see every row, but the tracker has learned {len(tracker)} rows "
                "before. Give the policy an unused tracker, or learn those rows through the policy."
            )
        made = type(self)(**self.settings())
        made._start(tracker, draws, slots)
        return made

    def over_more(self, draws: Draws) -> Self:
        """The same over the features that its tracker has by now; those that are new were never seen."""
        numbers, arrays = self.snapshot()
        grown = self.open(self.tracker, draws, self.slots, restored=True)
        before, after = (one.dim - self.tracker.intercept for one in (self, grown))
        fresh = grown.snapshot()[1]
        grown.restore(numbers, {name: widened(array, fresh[name], before, after) for name, array in arrays.items()})
        return grown

    def _start(self, tracker: Tracker, draws: Draws, slots: int) -> None:
        self.tracker, self.dim, self.sparse = tracker, tracker.inner, bool(tracker.sparse)
        self.own: RLS | None = None  # sums that the tracker does not keep
        self.frame = Frame(WIDTH)
        self.frame.set(**self.parts, **draws.fields(), dim=self.dim, line=self.dim, stride=self.sparse, discount=1.0)
        self._begin()
        own = {**self.by_slot, **dict.fromkeys(("live", "sizes"), ("slots", np.int64))}
        arms = own if self.by_slot and slots else {}
        turned = tuple(name for name, shape in arms.items() if "dim" in shape and self.columns and self.sparse)
        sizes = {"dim": self.dim, "slots": slots, "steps": self.settings().get("steps", 0)}
        self._kept = State(self.frame, {**self.shapes, **arms}, sizes, self.numbers, columns=turned)
        self.arrays = self._kept.arrays
        if self.by_slot:
            self._line_up(slots)
        self._made()

    def _begin(self) -> None:
        """Numbers of the record that do not begin at 0, from the width's settings."""

    def _made(self) -> None:
        """All arrays are there, and 0: fill those that begin otherwise, or are found from others."""

    def read(self, draws: Draws) -> None:
        """Draw from this tape from now on."""
        self.frame.set(**draws.fields())

    def attend(self) -> None:
        """The part `enter` asks for what it cannot do itself."""
        if self.own is not None:
            self.own.attend()
            self.own.keep_ready()

    def set_ridge(self, total: float) -> None:
        """From now on the total ridge is another one."""
        raise SettingsError(f"the ridge of a {type(self).__name__} cannot change.")

    def stand_at(self, squares: NDArray[np.float64], n: int) -> None:
        """Stand after n rows with these sums of squares, which were seen elsewhere: a warm start."""
        if self.own_sums(self.tracker):
            raise SettingsError(f"{self!r} has to see every row, and a warm start shows none. Use DiagonalWidth().")

    def change_units(self, change: Change) -> None:
        """The tracker's features are measured in other units from now on."""
        if self.own is not None:
            self.own.change_units(change)

    def try_room(self, dim: int) -> None:
        """Whether it can be kept up over so many features: what can fail fails before anything is changed."""
        if self.own is not None or any(array.shape[-2:] == (self.dim, self.dim) for array in self.arrays.values()):
            check_size(dim)
        sizes = [[dim if size == self.dim else size for size in array.shape] for array in self.arrays.values()]
        _ = [np.empty(size) for size in sizes], np.empty((2, dim, dim) if self.own is not None else 0)

    @property
    def learned(self) -> Any:
        """Coordinates of which rows were learned, the intercept's last; those of others are as at the beginning."""
        return slice(None) if self.tracker.units is None else self.tracker.units.learned

    def reserve(self, arms: int) -> None:
        """So many arms will be scored at a time."""

    def put_aside(self) -> Any:
        """What scores of a question change."""

    def put_back(self, aside: Any) -> None:
        """The question was answered."""

    def table(self, *, crossed: bool = False) -> int:
        """The kind of score table that serves it; 0 for none."""
        return self.tables[crossed]

    # -- arms that recur -----------------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """For how many recurring arms there is room."""
        return int(self.frame["slots"])

    def grow(self, slots: int) -> None:
        """Have room for so many recurring arms; nothing is lost."""
        self._kept.lengthen(slots=slots)
        self._line_up(slots)

    def _line_up(self, slots: int) -> None:
        self.frame.set(slots=slots, **({"line": 1, "stride": slots} if self.sparse and self.columns else {}))

    def drop(self, slot: int) -> None:
        """An arm has gone, and its slot may be given to another one."""
        self.arrays["live"][slot] = 0

    # -- files ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, float], Arrays]:
        """Numbers and arrays from which `restore` makes the same again."""
        numbers, arrays = self._kept.snapshot()
        if self.own is not None:
            for kept, own in zip((numbers, arrays), self.own.kept.snapshot()):
                kept |= {f"own.{name}": value for name, value in own.items()}
        return numbers, arrays

    def restore(self, numbers: dict[str, float], arrays: Arrays) -> None:
        """Stand where `snapshot` did; a file may say anything, so all of it is looked at first."""
        states = [(self._kept, ""), *([] if self.own is None else [(self.own.kept, "own.")])]
        found = [state.read(numbers, arrays, prefix) for state, prefix in states]
        for name, value in (pair for kept, _ in found for pair in kept.items()):
            refuse(value < 0.0 and name not in self.signed, name)
        self._check(*found[0])
        for (state, _), kept in zip(states, found):
            state.fill(*kept)
        self._restored()

    def _check(self, numbers: dict[str, float], arrays: Arrays) -> None:
        """Refuse what would lead a kernel out of an array, or to divide by 0."""
        for name in ("ridge", "scale"):
            refuse(name in numbers and not numbers[name] > 0.0, name)
        for name in ("squares", "bounds", "stamps"):
            refuse(name in arrays and (arrays[name] < 0.0).any(), name)
        if "live" in arrays:
            sizes, live = arrays["sizes"], arrays["live"]
            refuse(((sizes < 0) | (sizes > self.dim) | ((live != 0) & (live != 1))).any(), "live")

    def _restored(self) -> None:
        """All was filled from elsewhere."""


def constant_ridge(tracker: Tracker) -> float:
    """n lambda_n of a tracker, where it is a positive constant; otherwise a width has no unit."""
    first, later = (n * tracker.regularisation(n) for n in (1, 1000))  # type: ignore[operator]
    if first <= 0.0 or abs(later - first) > 1e-9 * first:
        raise SettingsError(
            "this width needs a constant, positive total ridge: give the tracker regularisation=ridge(total). "
            "The paper's printed phi (PhiWidth(method='printed')) needs none."
        )
    return float(first)


def discount_of(tracker: Tracker) -> float:
    """By how much rows count less when the next one comes; 1 for a tracker that cannot forget in this way."""
    return float(getattr(tracker, "discount", 1.0))
