"""What a width keeps up while a tracker learns: a record for the kernels, and the arrays that it refers to."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from driftls.draws import Draws
from driftls.errors import CorruptFileError, SettingsError
from driftls.kernels.parts import Frame, Part
from driftls.kernels.records import WIDTH
from driftls.persistence import checked, expect
from driftls.trackers import RLS, Tracker
from driftls.units import Change

Arrays = dict[str, NDArray[Any]]
OWN_ARRAYS = ("extra", "gram", "inverse")  # of a tracker of the width's own; no width reads its theta


class WidthState:
    """The state of a width, for one tracker.

    Parameters
    ----------
    tracker : Tracker
        That was started.
    parts : dict
        Score, width2, enter, open, same, begin: those that the width has.
    arrays : dict
        State, by the name of its field.
    lines, by_slot : tuple of str
        Names of state with d numbers, and with one number, for each arm that recurs.
    slots : int
        For how many arms there is room.
    own : Tracker, optional
        Sums that the tracker does not keep.
    **fields
        Settings, and room to work in.
    """

    numbers: ClassVar[tuple[str, ...]] = ()  # of the record, which a file keeps
    columns: ClassVar[bool] = False  # for sparse rows, what all arms have of a feature is adjacent

    def __init__(
        self,
        tracker: Tracker,
        parts: dict[str, Part],
        *,
        arrays: Arrays | None = None,
        lines: tuple[str, ...] = (),
        by_slot: tuple[str, ...] = (),
        slots: int = 0,
        own: Tracker | None = None,
        **fields: Any,
    ) -> None:
        self.tracker, self.own, self.dim, self.sparse = tracker, own, tracker.inner, bool(tracker.sparse)
        self.frame = Frame(WIDTH)
        self.arrays: Arrays = {} if arrays is None else arrays
        self._lines, self._by_slot = lines, by_slot
        stride = 1 if self.sparse else 0
        self.frame.set(**parts, **self.arrays, dim=self.dim, line=self.dim, stride=stride, discount=1.0)
        self.frame.set(**fields)
        if own is not None:
            own.start(self.sparse)
            self.frame["own"] = own.frame
        if lines:
            self.grow(slots)

    def read(self, draws: Draws) -> None:
        """Draw from this tape from now on."""
        self.frame.set(**draws.fields())

    def attend(self) -> None:
        """The part `enter` asks for what it cannot do itself."""
        if isinstance(self.own, RLS):
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
        old = {name: self.arrays.get(name) for name in (*self._lines, *self._by_slot, "live", "sizes")}
        columns = self.sparse and self.columns
        for name, before in old.items():
            if name in self._lines:
                array: NDArray[Any] = np.zeros((self.dim, slots)).T if columns else np.zeros((slots, self.dim))
            else:
                array = np.zeros(slots, dtype=np.int64 if name in ("live", "sizes") else np.float64)
            if before is not None:
                array[: len(before)] = before
            self.arrays[name] = array
        self.frame.set(**{name: self.arrays[name] for name in old}, slots=slots)
        if columns:
            self.frame.set(line=1, stride=slots)

    def drop(self, slot: int) -> None:
        """An arm has gone, and its slot may be given to another one."""
        self.arrays["live"][slot] = 0

    # -- files ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, float], Arrays]:
        """Numbers and arrays from which `restore` makes the same state."""
        numbers = {name: float(self.frame[name]) for name in self.numbers}
        arrays = {name: np.array(array, order="C") for name, array in self.arrays.items()}
        if self.own is not None:
            numbers |= {f"own.{name}": float(self.own.frame[name]) for name in self.own.numbers}
            arrays |= {f"own.{name}": array.copy() for name, array in self._own_arrays().items()}
        return numbers, arrays

    def restore(self, numbers: dict[str, float], arrays: Arrays) -> None:
        """Stand where `snapshot` did; a file may say anything, so all of it is looked at first."""
        own = {} if self.own is None else self._own_arrays()
        names = [*self.numbers, *(f"own.{name}" for name in (self.own.numbers if self.own is not None else ()))]
        kept = {name: number(numbers, name) for name in names}
        found = {name: finite(arrays, name, array) for name, array in self.arrays.items()}
        found_own = {name: finite(arrays, f"own.{name}", array) for name, array in own.items()}
        self._check(kept, found)
        for name, value in kept.items():
            frame = self.own.frame if self.own is not None and name.startswith("own.") else self.frame
            frame[name.removeprefix("own.")] = value
        for name, array in found.items():
            self.arrays[name][...] = array
        for name, array in found_own.items():
            own[name][...] = array
        self._restored()

    def _own_arrays(self) -> Arrays:
        assert self.own is not None
        return {name: self.own.frame.arrays[name] for name in OWN_ARRAYS if name in self.own.frame.arrays}

    def _check(self, numbers: dict[str, float], arrays: Arrays) -> None:
        """Refuse what would lead a kernel out of an array, or to divide by 0."""
        if "live" in arrays:
            sizes, live = arrays["sizes"], arrays["live"]
            refuse(((sizes < 0) | (sizes > self.dim) | ((live != 0) & (live != 1))).any(), "live")

    def _restored(self) -> None:
        """All was filled from a file."""


class ExactState(WidthState):
    """An exact inverse: the tracker's, or that of an RLS of its own; and bounds of the widths of arms that recur."""

    def set_ridge(self, total: float) -> None:
        """The inverse is the tracker's, which has made it anew."""
        if self.own is not None:
            super().set_ridge(total)
        self.frame["ridge"] = total

    def reserve(self, arms: int) -> None:
        """Room for the product of so many dense arms with the inverse, by BLAS."""
        if arms > self.frame["room"] and not self.sparse:
            self.frame.set(products=np.zeros((arms, self.dim)), room=arms, blas=dgemm())

    def _check(self, numbers: dict[str, float], arrays: Arrays) -> None:
        super()._check(numbers, arrays)
        if "bounds" in arrays:
            refuse((arrays["bounds"] < 0.0).any() or (arrays["stamps"] < 0.0).any(), "bounds")

    def snapshot(self) -> tuple[dict[str, float], Arrays]:
        """Bounds of another version of the inverse are worth nothing, and the version is not kept."""
        numbers, arrays = super().snapshot()
        keeper = self.tracker if self.own is None else self.own
        if "stamps" in arrays and self.frame["version"] != keeper.frame["version"]:
            arrays["stamps"][:] = 0.0
        return numbers, arrays

    def _restored(self) -> None:
        self.frame["version"] = (self.tracker if self.own is None else self.own).frame["version"]


class DiagonalState(WidthState):
    """Sums of squares, and what is found from them once a row."""

    numbers = ("scale", "ridge")

    def variances(self) -> NDArray[np.float64]:
        """The diagonal of (A + ridge I)^-1, as if A were diagonal."""
        return np.asarray(1.0 / (self.frame["ridge"] + self.frame["scale"] * self.arrays["squares"]))

    def keep_spread(self) -> None:
        """1/(ridge + s_j) afresh; where rows are discounted, kernels do not read it."""
        self.frame.arrays["spread"][:] = self.variances()

    def set_ridge(self, total: float) -> None:
        self.frame["ridge"] = total
        self.keep_spread()

    def change_units(self, change: Change) -> None:
        """In their new scale; of dense rows, whose mean moves too, afresh from the rows held, as a sample of all."""
        squares, history = self.arrays["squares"], self.tracker.history
        if len(history) and not self.sparse and self.frame["discount"] == 1.0:
            X, _ = history.matrix()
            squares[:] = np.einsum("ij,ij->j", X, X) * (history.seen / len(history))
        else:
            squares *= np.append(change.scale, change.after / change.before)[: self.dim] ** 2
        self.keep_spread()

    def _check(self, numbers: dict[str, float], arrays: Arrays) -> None:
        refuse(not (numbers["ridge"] > 0.0 and numbers["scale"] > 0.0), "ridge")
        refuse((arrays["squares"] < 0.0).any(), "squares")

    def _restored(self) -> None:
        self.keep_spread()


class CentredState(WidthState):
    """Number, sums and sums of squares of a model's rows, and the width that they leave where all features are 0."""

    numbers = ("scale", "ridge", "n")

    def set_ridge(self, total: float) -> None:
        self.frame["ridge"] = total
        self.sum_up()

    def stand_at(self, squares: NDArray[np.float64], n: int) -> None:
        raise SettingsError("a warm start is for widths in raw units. Use DiagonalWidth() or ExactWidth().")

    def _weigh(self) -> None:
        """lambda0 from the value of the constant."""
        units = self.tracker.units
        assert units is not None
        self.frame["prior"] = self.frame["ridge"] / units.frame["constant"] ** 2

    def snapshot(self) -> tuple[dict[str, float], Arrays]:
        numbers, arrays = super().snapshot()
        return numbers, arrays | {"rest": np.array([self.frame["rest"]])}

    def restore(self, numbers: dict[str, float], arrays: Arrays) -> None:
        rest = finite(arrays, "rest", np.zeros(1))
        super().restore(numbers, arrays)
        self.frame["rest"] = rest[0]

    def sum_up(self) -> None:
        """lambda0, and every feature's share in Q, afresh."""
        frame = self.frame
        self._weigh()
        if not frame["n"]:
            return
        sums = self.arrays["sums"]
        share = sums**2 * self.variances()
        share[-1] = 0.0
        self.arrays["share"][:] = share
        frame["rest"] = share.sum()

    def variances(self) -> NDArray[np.float64]:
        """The diagonal of A^-1, as the width has it."""
        frame, scale, total = self.frame, self.frame["scale"], self.frame["n"] + self.frame["prior"]
        left = scale * self.arrays["squares"] - (scale * self.arrays["sums"]) ** 2 / total
        spread = np.asarray(1.0 / (frame["ridge"] + np.maximum(left, 0.0)))
        means = scale * self.arrays["sums"][:-1] / total
        spread[-1] = (1.0 / total + means**2 @ spread[:-1]) * frame["prior"] / frame["ridge"]
        return spread

    def change_units(self, change: Change) -> None:
        """x_new = scale x + shift, in every row at once."""
        squares, sums, n = self.arrays["squares"], self.arrays["sums"], self.frame["n"] / self.frame["scale"]
        if not n:
            self.sum_up()
            return
        s, f = squares[:-1], sums[:-1]
        s[:] = change.scale**2 * s + 2.0 * change.scale * change.shift * f + n * change.shift**2
        f[:] = change.scale * f + n * change.shift
        self.sum_up()

    def _check(self, numbers: dict[str, float], arrays: Arrays) -> None:
        refuse(not (numbers["ridge"] > 0.0 and numbers["scale"] > 0.0), "ridge")
        refuse((arrays["squares"] < 0.0).any(), "squares")

    def _restored(self) -> None:
        self._weigh()


class PhiState(WidthState):
    """phi by gradient descent on rows that are drawn from the tracker's history."""

    numbers = ("last_step", "entered", "n", "clamped")
    columns = True

    def put_aside(self) -> Any:
        return self.arrays["drawn"].copy(), self.frame["clamped"]

    def put_back(self, aside: Any) -> None:
        self.arrays["drawn"][:], self.frame["clamped"] = aside

    def _check(self, numbers: dict[str, float], arrays: Arrays) -> None:
        super()._check(numbers, arrays)
        held, drawn, live = len(self.tracker.history), arrays["drawn"], arrays["live"] == 1
        refuse((drawn < 0).any() or (numbers["n"] > 0.0 and (drawn >= held).any()), "drawn")
        refuse((arrays["squares"] < 0.0).any(), "squares")
        refuse(not (arrays["P"][live] > 0.0).all(), "P")


class SampleState(WidthState):
    """A Cholesky factor, and the direction that was sampled last."""

    def _check(self, numbers: dict[str, float], arrays: Arrays) -> None:
        refuse(not (np.diag(arrays["factor"]) > 0.0).all(), "factor")


def number(numbers: dict[str, float], name: str) -> float:
    """A number of a file, finite and at least 0."""
    value = checked(numbers.get(name), float)
    refuse(not 0.0 <= value < np.inf, name)
    return value


def finite(arrays: Arrays, name: str, like: NDArray[Any]) -> NDArray[Any]:
    """An array of a file, of the shape and kind that is expected, and finite."""
    array: NDArray[Any] = expect(arrays, name, like.shape, like.dtype)
    refuse(not np.isfinite(array).all(), name)
    return array


def refuse(wrong: Any, name: str) -> None:
    """Say that a file cannot be right."""
    if wrong:
        raise CorruptFileError(f"`{name}` of the width is not what it can be. Restore the file from a copy.")


def dgemm() -> int:
    """The address of BLAS' product of matrices, as SciPy offers it to compiled code."""
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__["dgemm"]
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    return int(pointer_of(capsule, name_of(capsule)))
