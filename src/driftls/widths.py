"""How sure are we about x: the width of a confidence interval around theta.x, in units of the noise.

| width | cost of an arm | cost of a row | right for |
|---|---|---|---|
| `ExactWidth` | O(d^2), sparse O(nnz^2); arms that recur mostly O(nnz) | O(d^2) | everything, where d^2 is affordable |
| `PhiWidth()` | O(nnz) | O(T nnz) an arm | arms that recur, where d^2 does not fit |
| `CentredWidth` | O(nnz) | O(nnz) | one model an arm, where a model has an intercept |
| `DiagonalWidth` | O(nnz) | O(nnz) | fresh arms, sparse crosses; wrong for a fixed pool |
| `SampleWidth` | O(nnz) and O(d^2) a round | O(d^2) | Thompson sampling, exactly |
| `NoWidth` | nothing | nothing | greedy |

As it is made a width is settings alone. Its `open` gives one that goes with a tracker, and follows what that learns.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from driftls.compiling.parts import Part
from driftls.draws import Draws
from driftls.errors import SettingsError
from driftls.kernels import bounds, centred, phi, sampling, score
from driftls.kernels.learn import NOTHING, WINDOW
from driftls.kernels.table import CENTRED, CROSSED, FEATURES, PAIRS
from driftls.schedules import ridge
from driftls.state import Arrays, Shape, product, refuse
from driftls.trackers import RAW, RLS, SAGA, Tracker
from driftls.units import Change
from driftls.width_base import Width, constant_ridge, discount_of

__all__ = ["CentredWidth", "DiagonalWidth", "ExactWidth", "NoWidth", "PhiWidth", "SampleWidth", "Width"]

FIRST_PRODUCTS = 64  # arms
BLAS_FROM = 17  # features: for fewer a call of BLAS costs more than it saves
LARGEST_DIM = 30_000  # of what is sampled from
NO_INVERSE = (
    "this RLS keeps no inverse, so it has no widths. Use method='sherman-morrison' (or 'inverse', which is O(d^3) a "
    "row) with a ridge above 0."
)


class NoWidth(Width):
    """No width at all: the policy is greedy."""

    tables = (FEATURES, CROSSED)

    def own_sums(self, tracker: Tracker) -> bool:
        return False


class ExactWidth(Width):
    """sqrt(x' (A + ridge I)^-1 x), from an inverse that is kept by Sherman-Morrison; an `RLS` tracker's own is used.

    Of arms that recur (with ids), most widths need not be found anew: the last one bounds it, and most bounds are too low
    for their arm to be the best. The choice is the same.
    """

    keeps_arms = True
    adapts_over = (RLS,)
    parts: ClassVar[dict[str, Part]] = {"score": bounds.bounded_score, "width2": bounds.bounded_width2}
    by_slot: ClassVar[dict[str, Shape]] = {"arms": ("slots", "dim"), "bounds": ("slots",), "stamps": ("slots",)}

    def table(self, *, crossed: bool = False) -> int:
        return PAIRS if self.sparse and self.own is None and not crossed else 0  # which reads the tracker's inverse

    def own_sums(self, tracker: Tracker) -> bool:
        return not isinstance(tracker, RLS)

    def open(self, tracker: Tracker, draws: Draws, slots: int = 0, *, restored: bool = False) -> Self:
        if isinstance(tracker, RLS) and tracker.route == "cholesky" and not restored:
            raise SettingsError(NO_INVERSE)
        return super().open(tracker, draws, slots, restored=restored)

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


class DiagonalWidth(Width):
    """sqrt(sum x_j^2/(ridge + s_j)), s_j the sum of squares so far: as if features never overlapped.

    Rows that left a `Window` go on counting; for a width that forgets give the tracker a discount.
    """

    parts: ClassVar[dict[str, Part]] = {
        **{"score": score.diagonal_score, "width2": score.diagonal_width2, "enter": score.diagonal_enter}
    }
    adapts_over = (SAGA,)
    tables = (FEATURES, CROSSED)
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
        squares, ridge = self.frame["scale"] * self.arrays["squares"][self.learned], self.frame["ridge"]
        self.frame.arrays["spread"][self.learned] = ridge / (ridge + squares)  # rounded as kernels round it

    def stand_at(self, squares: NDArray[np.float64], n: int) -> None:
        self.arrays["squares"][...] = squares
        self._restored()

    def set_ridge(self, total: float) -> None:
        self.frame["ridge"] = total
        self._restored()

    def change_units(self, change: Change) -> None:
        squares, history = self.arrays["squares"], self.tracker.history
        if len(history) and not self.sparse and self.frame["discount"] == 1.0:  # as a sample of all
            X, _ = history.matrix()
            squares[:] = np.einsum("ij,ij->j", X, X) * (history.seen / len(history))
        else:
            change.squares(squares)
        self._restored()


class CentredWidth(Width):
    """Diagonal width around the mean of a model's rows, with its intercept known exactly; for one model an arm.

    How often an arm was shown decides how sure we are of its mean reward, and each feature by itself how sure we are of
    what is special to a user: sqrt(1/(n + lambda0) + sum c_j (x_j - mean_j)^2). O(nnz) an arm and a row.
    """

    lazy = True
    adapts_over = (RLS, SAGA)
    tables = (CENTRED, 0)
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
        spread[-1] = (1.0 / total + product(means**2, spread[:-1])) * frame["prior"] / frame["ridge"]
        return spread

    def change_units(self, change: Change) -> None:
        """x_new = scale x + shift, in every row at once."""
        if n := self.frame["n"] / self.frame["scale"]:
            at, scale, shift = change.features, change.scale, change.shift
            s, f = self.arrays["squares"][at], self.arrays["sums"][at]
            self.arrays["squares"][at] = scale**2 * s + 2.0 * scale * shift * f + n * shift**2
            self.arrays["sums"][at] = scale * f + n * shift
        self._made()


class PhiWidth(Width):
    """sqrt(x.phi) with phi tracking (A + ridge I)^-1 x, one phi for each arm that recurs.

    Parameters
    ----------
    steps : int
        T, steps an arm and row.
    method : {"regularised", "printed"}
        "regularised" descends the regularised objective on drawn rows. "printed" is the paper's rule: no regulariser,
        start at 0, the tracker's gamma_n.
    scale : float
        The step of "regularised" is scale / max ||x||^2.

    A new arm starts at x/ridge. An arm without an id takes its T steps afresh in each round, from the diagonal's guess.
    An id that comes with other features starts afresh too.
    """

    keeps_arms = True
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

    def __init__(self, steps: int | None = None, *, method: str = "regularised", scale: float = 0.3) -> None:
        if not isinstance(method, str) or method not in ("regularised", "printed"):
            raise SettingsError(f"method must be 'regularised' or 'printed', got {method!r}.")
        if steps is not None and not (isinstance(steps, int | np.integer) and steps >= 1):
            raise SettingsError(f"steps must be a whole number of at least 1, got {steps!r}.")
        if not (isinstance(scale, int | float | np.number) and 0.0 < scale < 2.0):
            raise SettingsError(f"scale must lie in (0, 2), got {scale!r}. A step of 2/||x||^2 or more diverges.")
        self.method, self.scale = method, float(scale)
        self.steps = (1 if method == "printed" else 4) if steps is None else int(steps)

    def draws(self, dim: int) -> int:
        return 2 * self.steps

    def settings(self) -> dict[str, Any]:
        return {"steps": self.steps, "method": self.method, "scale": self.scale}

    def _begin(self) -> None:
        tracker, printed = self.tracker, self.method == "printed"
        if tracker.scale or tracker.intercept:
            raise SettingsError(
                "phi follows arms in raw units, and this tracker measures features in units that change on its way. "
                "Build it with scale=False, intercept=False."
            )
        if tracker.history.kind == NOTHING:
            raise SettingsError("phi draws rows of the tracker's history. Build the tracker with history=Growing().")
        if discount_of(tracker) < 1.0:
            raise SettingsError("phi cannot discount rows. Use ExactWidth() or DiagonalWidth().")
        self.frame.set(steps=self.steps, step_scale=self.scale, printed=printed)
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


class SampleWidth(Width):
    """One exact sample of N(0, (A + ridge I)^-1) a round, O(d^2), from a Cholesky factor kept by rank-one updates."""

    samples = True
    adapts_over = (RLS,)
    parts: ClassVar[dict[str, Part]] = {
        **{"score": sampling.sampled_score, "width2": sampling.sample_width2},
        **{"enter": sampling.sample_enter, "begin": sampling.sample_begin},
    }
    shapes: ClassVar[dict[str, Shape]] = {"factor": ("dim", "dim"), "direction": ("dim",)}

    def draws(self, dim: int) -> int:
        return 2 * (dim + 1)  # a model may have an intercept

    def _begin(self) -> None:
        if discount_of(self.tracker) < 1.0:
            raise SettingsError("exact samples cannot discount rows. Use ExactWidth() and LinUCB.")
        self.frame.set(ridge=constant_ridge(self.tracker), scratch=np.zeros(self.dim))
        if self.dim > LARGEST_DIM:
            raise SettingsError(f"this width keeps {self.dim} x {self.dim} numbers. Use PhiWidth() or DiagonalWidth().")

    def _made(self) -> None:
        np.fill_diagonal(self.arrays["factor"], np.sqrt(self.frame["ridge"]))

    def set_ridge(self, total: float) -> None:
        sums, self.frame["ridge"] = self._sums(), total
        self._factorise(sums)

    def change_units(self, change: Change) -> None:
        sums = self._sums()
        change.sums(sums, np.zeros(self.dim))
        self._factorise(sums)

    def _sums(self) -> NDArray[np.float64]:
        """A, the sum of x x' over all rows."""
        factor = self.arrays["factor"]
        return np.asarray(factor.T @ factor - self.frame["ridge"] * np.eye(self.dim))

    def _factorise(self, sums: NDArray[np.float64]) -> None:
        """The factor of A + ridge I afresh; rounding must not leave it a square below 0."""
        diagonal = np.maximum(np.diag(sums), 0.0)
        np.fill_diagonal(sums, diagonal * (1.0 + 4.0 * self.dim * np.finfo(float).eps) + self.frame["ridge"])
        self.arrays["factor"][...] = np.linalg.cholesky(sums).T

    def _check(self, numbers: dict[str, float], arrays: Arrays) -> None:
        factor = arrays["factor"]
        least = (1.0 - 1e-6) * self.frame["ridge"]  # of a diagonal that has the ridge
        refuse(not ((np.diag(factor) > 0.0).all() and (np.square(factor).sum(axis=0) >= least).all()), "factor")


KINDS: dict[str, type[Width]] = {
    kind.__name__: kind for kind in (NoWidth, ExactWidth, DiagonalWidth, CentredWidth, PhiWidth, SampleWidth)
}


def dgemm() -> int:
    """The address of BLAS' product of matrices, as SciPy offers it to compiled code."""
    from scipy.linalg import cython_blas

    capsule, object_ = cython_blas.__pyx_capi__["dgemm"], ctypes.py_object
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, object_)(("PyCapsule_GetName", ctypes.pythonapi))
    at = ctypes.PYFUNCTYPE(ctypes.c_void_p, object_, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    return int(at(capsule, name_of(capsule)))
