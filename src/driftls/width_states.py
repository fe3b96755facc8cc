"""What a width keeps up while a tracker learns: a record for the kernels, and the arrays that it refers to."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from driftls.draws import Draws
from driftls.errors import SettingsError
from driftls.kernels import bounds, centred, phi, score
from driftls.kernels.learn import NOTHING, WINDOW
from driftls.kernels.parts import Frame, Part
from driftls.kernels.records import WIDTH
from driftls.schedules import ridge
from driftls.state import Arrays, Shape, State, refuse
from driftls.trackers import RAW, RLS, Tracker
from driftls.trackers.exact import check_size
from driftls.units import Change

FIRST_PRODUCTS = 64  # arms
BLAS_FROM = 17  # features: for fewer a call of BLAS costs more than it saves
NO_INVERSE = (
    "this RLS keeps no inverse, so it has no widths. Use method='sherman-morrison' (or 'inverse', which is O(d^3) a "
    "row) with a ridge above 0."
)


class WidthState:
    """The state of a width for one tracker that was started; this one keeps nothing, and all widths are 0.

    A subclass says which parts serve it (score, width2, enter, open, same, begin), the shapes of its arrays (of those
    with something for each arm that recurs apart), and which numbers of the record a file must have. `_begin` refuses a
    tracker that it cannot go with, and writes what does not begin at 0.
    """

    parts: ClassVar[dict[str, Part]] = {"score": score.none_score}
    numbers: ClassVar[tuple[str, ...]] = ()
    signed: ClassVar[tuple[str, ...]] = ()  # those that may be below 0
    shapes: ClassVar[dict[str, Shape]] = {}
    by_slot: ClassVar[dict[str, Shape]] = {}  # where there is room for arms that recur
    columns: ClassVar[bool] = False  # for sparse rows, what all arms have of a feature is adjacent

    def __init__(self, tracker: Tracker, draws: Draws, slots: int = 0, **settings: Any) -> None:
        self.tracker, self.dim, self.sparse = tracker, tracker.inner, bool(tracker.sparse)
        self.own: RLS | None = None  # sums that the tracker does not keep
        self.frame = Frame(WIDTH)
        self.frame.set(**self.parts, **draws.fields(), dim=self.dim, line=self.dim, stride=self.sparse, discount=1.0)
        self.settings = settings
        self._begin()
        own = {**self.by_slot, **dict.fromkeys(("live", "sizes"), ("slots", np.int64))}
        arms = own if self.by_slot and slots else {}
        turned = tuple(name for name, shape in arms.items() if "dim" in shape and self.columns and self.sparse)
        sizes = {"dim": self.dim, "slots": slots, "steps": settings.get("steps", 0)}
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
        if "squares" in self.arrays:
            self.arrays["squares"][...] = squares
            self._restored()
        if "entered" in self.numbers:
            self.frame.set(entered=n, n=n)

    def change_units(self, change: Change) -> None:
        """The tracker's features are measured in other units from now on."""
        if self.own is not None:
            self.own.change_units(change)

    def try_room(self, dim: int) -> None:
        """Whether there can be a state over so many features: what can fail fails before anything is changed."""
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
        """Numbers and arrays from which `restore` makes the same state."""
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


class ExactState(WidthState):
    """An exact inverse: the tracker's, or that of an RLS of its own; and bounds of the widths of arms that recur."""

    parts: ClassVar[dict[str, Part]] = {"score": bounds.bounded_score, "width2": bounds.bounded_width2}
    by_slot: ClassVar[dict[str, Shape]] = {"arms": ("slots", "dim"), "bounds": ("slots",), "stamps": ("slots",)}

    def _begin(self) -> None:
        tracker = self.tracker
        if isinstance(tracker, RLS):
            if not tracker.frame.arrays["inverse"].size:
                raise SettingsError(NO_INVERSE)
            self.keeper, total = tracker, tracker.total_ridge(max(len(tracker), 1))
        else:
            total, discount = constant_ridge(tracker), discount_of(tracker)
            # Sherman-Morrison would discount the ridge too, which no tracker but RLS does
            method = "sherman-morrison" if discount == 1.0 else "inverse"
            own = RLS(tracker.inner, regularisation=ridge(total), discount=discount, method=method, **RAW)
            own.start(self.sparse)
            self.keeper = self.own = own
            self.frame.set(own=own.frame, enter=score.exact_own_enter)
        self.frame["ridge"] = total
        if self.dim >= BLAS_FROM:
            self.reserve(FIRST_PRODUCTS)

    def set_ridge(self, total: float) -> None:
        """The inverse is the tracker's, which has made it anew."""
        if self.own is not None:
            super().set_ridge(total)
        self.frame["ridge"] = total

    def reserve(self, arms: int) -> None:
        """Room for the product of so many dense arms with the inverse, by BLAS."""
        if arms > self.frame["room"] and not self.sparse:
            self.frame.set(products=np.zeros((arms, self.dim)), room=arms, blas=dgemm())

    def snapshot(self) -> tuple[dict[str, float], Arrays]:
        """Bounds of another version of the inverse are worth nothing, and the version is not kept."""
        numbers, arrays = super().snapshot()
        if "stamps" in arrays and self.frame["version"] != self.keeper.frame["version"]:
            arrays["stamps"][:] = 0.0
        return numbers, arrays

    def _restored(self) -> None:
        self.frame["version"] = self.keeper.frame["version"]


class DiagonalState(WidthState):
    """Sums of squares, and what is found from them once a row."""

    parts: ClassVar[dict[str, Part]] = {
        **{"score": score.diagonal_score, "width2": score.diagonal_width2, "enter": score.diagonal_enter}
    }
    numbers = ("scale", "ridge")
    shapes: ClassVar[dict[str, Shape]] = {"squares": ("dim",)}

    def _begin(self) -> None:
        self.frame.set(scale=1.0, discount=discount_of(self.tracker), ridge=constant_ridge(self.tracker))
        self.frame["spread"] = np.ones(self.dim)

    def variances(self) -> NDArray[np.float64]:
        """The diagonal of (A + ridge I)^-1, as if A were diagonal, of all that was learned."""
        return np.asarray(1.0 / (self.frame["ridge"] + self.frame["scale"] * self.arrays["squares"][self.learned]))

    def _restored(self) -> None:
        """ridge/(ridge + s_j) afresh, 1 where nothing was learned; where rows are discounted, kernels do not read it."""
        self.frame.arrays["spread"][self.learned] = self.frame["ridge"] * self.variances()

    def set_ridge(self, total: float) -> None:
        self.frame["ridge"] = total
        self._restored()

    def change_units(self, change: Change) -> None:
        """In their new scale; of dense rows, whose mean moves too, afresh from the rows held, as a sample of all."""
        squares, history = self.arrays["squares"], self.tracker.history
        if len(history) and not self.sparse and self.frame["discount"] == 1.0:
            X, _ = history.matrix()
            squares[:] = np.einsum("ij,ij->j", X, X) * (history.seen / len(history))
        else:
            squares[change.learned] *= change.factors[: self.dim][change.learned] ** 2
        self._restored()


class CentredState(WidthState):
    """Number, sums and sums of squares of a model's rows, and the width that they leave where all features are 0."""

    parts: ClassVar[dict[str, Part]] = {
        **{"score": centred.centred_score, "width2": centred.centred_width2, "enter": centred.centred_enter}
    }
    numbers = ("scale", "ridge", "n", "rest")
    signed = ("rest",)
    shapes: ClassVar[dict[str, Shape]] = dict.fromkeys(("squares", "sums", "share"), ("dim",))

    def _begin(self) -> None:
        if not self.tracker.intercept:
            raise SettingsError("CentredWidth needs a tracker with an intercept. Build it with intercept=True.")
        self.frame.set(scale=1.0, discount=discount_of(self.tracker), ridge=constant_ridge(self.tracker))

    def set_ridge(self, total: float) -> None:
        self.frame["ridge"] = total
        self._made()

    def stand_at(self, squares: NDArray[np.float64], n: int) -> None:
        raise SettingsError("a warm start is for widths in raw units. Use DiagonalWidth() or ExactWidth().")

    def _restored(self) -> None:
        """lambda0 from the value of the constant."""
        units = self.tracker.units
        assert units is not None
        self.frame["prior"] = self.frame["ridge"] / units.frame["constant"] ** 2

    def _made(self) -> None:
        """lambda0, and every feature's share in Q, afresh."""
        self._restored()
        if self.frame["n"]:
            share = self.arrays["sums"][self.learned] ** 2 * self.variances()
            share[-1] = 0.0
            self.arrays["share"][self.learned] = share
            self.frame["rest"] = share.sum()

    def variances(self) -> NDArray[np.float64]:
        """The diagonal of A^-1, as the width has it, of all that was learned."""
        frame, scale, total = self.frame, self.frame["scale"], self.frame["n"] + self.frame["prior"]
        squares, sums = (scale * self.arrays[name][self.learned] for name in ("squares", "sums"))
        spread = np.asarray(1.0 / (frame["ridge"] + np.maximum(squares - sums**2 / total, 0.0)))
        means = sums[:-1] / total
        spread[-1] = (1.0 / total + means**2 @ spread[:-1]) * frame["prior"] / frame["ridge"]
        return spread

    def change_units(self, change: Change) -> None:
        """x_new = scale x + shift, in every row at once."""
        if n := self.frame["n"] / self.frame["scale"]:
            at, scale, shift = change.features, change.scale, change.shift
            s, f = self.arrays["squares"][at], self.arrays["sums"][at]
            self.arrays["squares"][at] = scale**2 * s + 2.0 * scale * shift * f + n * shift**2
            self.arrays["sums"][at] = scale * f + n * shift
        self._made()


class PhiState(WidthState):
    """phi by gradient descent on rows that are drawn from the tracker's history."""

    parts: ClassVar[dict[str, Part]] = {
        **{"score": phi.ucb_score, "width2": phi.phi_width2, "enter": phi.phi_enter},
        **{"open": phi.phi_open, "same": phi.same, "begin": phi.phi_begin},
    }
    numbers = ("last_step", "entered", "n", "clamped")
    shapes: ClassVar[dict[str, Shape]] = {"squares": ("dim",), "drawn": ("steps", np.int64)}
    by_slot: ClassVar[dict[str, Shape]] = {
        **dict.fromkeys(("phi", "arms"), ("slots", "dim")),
        **dict.fromkeys(("P", "Q"), ("slots",)),
    }
    columns = True

    def _begin(self) -> None:
        tracker, printed = self.tracker, self.settings["method"] == "printed"
        if tracker.scale or tracker.intercept:
            raise SettingsError(
                "phi follows arms in raw units, and this tracker measures features in units that change on its way. "
                "Build it with scale=False, intercept=False."
            )
        if tracker.history.kind == NOTHING:
            raise SettingsError("phi draws rows of the tracker's history. Build the tracker with history=Growing().")
        if discount_of(tracker) < 1.0:
            raise SettingsError("phi cannot discount rows. Use ExactWidth() or DiagonalWidth().")
        self.frame.set(steps=self.settings["steps"], step_scale=self.settings["scale"], printed=printed)
        self.frame.set(windowed=tracker.history.kind == WINDOW, scratch=np.zeros(self.dim))
        self.frame["ridge"] = 1.0 if printed else constant_ridge(tracker)

    def put_aside(self) -> Any:
        return self.arrays["drawn"].copy(), self.frame["clamped"]

    def put_back(self, aside: Any) -> None:
        self.arrays["drawn"][:], self.frame["clamped"] = aside

    def _check(self, numbers: dict[str, float], arrays: Arrays) -> None:
        super()._check(numbers, arrays)
        held, drawn = len(self.tracker.history), arrays["drawn"]
        refuse((drawn < 0).any() or (numbers["n"] > 0.0 and (drawn >= held).any()), "drawn")
        if "live" in arrays:
            refuse(not (arrays["P"][arrays["live"] == 1] > 0.0).all(), "P")


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


def dgemm() -> int:
    """The address of BLAS' product of matrices, as SciPy offers it to compiled code."""
    from scipy.linalg import cython_blas

    capsule, object_ = cython_blas.__pyx_capi__["dgemm"], ctypes.py_object
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, object_)(("PyCapsule_GetName", ctypes.pythonapi))
    at = ctypes.PYFUNCTYPE(ctypes.c_void_p, object_, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    return int(at(capsule, name_of(capsule)))
