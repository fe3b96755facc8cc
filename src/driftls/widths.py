"""How sure are we about x: the width of a confidence interval around theta.x, in units of the noise.

| width | cost of an arm | cost of a row | right for |
|---|---|---|---|
| `ExactWidth` | O(d^2), sparse O(nnz^2); arms that recur mostly O(nnz) | O(d^2) | everything, where d^2 is affordable |
| `PhiWidth()` | O(nnz) | O(T nnz) an arm | arms that recur, where d^2 does not fit |
| `CentredWidth` | O(nnz) | O(nnz) | one model an arm, where a model has an intercept |
| `DiagonalWidth` | O(nnz) | O(nnz) | fresh arms, sparse crosses; wrong for a fixed pool |
| `SampleWidth` | O(nnz) and O(d^2) a round | O(d^2) | Thompson sampling, exactly |
| `NoWidth` | nothing | nothing | greedy |

A width is settings alone. Its `open` makes what it keeps up while a tracker learns: a `WidthState`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from driftls.draws import Draws
from driftls.errors import SettingsError
from driftls.kernels import sampling
from driftls.kernels.parts import Part
from driftls.state import Arrays, Shape, refuse, widened
from driftls.trackers import RLS, Tracker
from driftls.units import Change
from driftls.width_states import (
    NO_INVERSE,
    CentredState,
    DiagonalState,
    ExactState,
    PhiState,
    WidthState,
    constant_ridge,
    discount_of,
)

__all__ = ["CentredWidth", "DiagonalWidth", "ExactWidth", "NoWidth", "PhiWidth", "SampleWidth", "Width"]

LARGEST_DIM = 30_000  # of what is sampled from


class Width:
    """How wide the confidence interval of an arm is, or what is sampled in its place; settings alone."""

    state: ClassVar[type[WidthState]]  # what it keeps up; takes its settings
    keeps_arms: ClassVar[bool] = False  # something for each arm that recurs, in a slot
    samples: ClassVar[bool] = False  # scores are random
    lazy: ClassVar[bool] = False  # between two looks, a sparse row brings its own features up to date, and no others

    def own_sums(self, tracker: Tracker) -> bool:
        """Whether the width has sums of its own, and so has to see every row from the tracker's first on."""
        return True

    def open(self, tracker: Tracker, draws: Draws, slots: int = 0) -> WidthState:
        """The state that goes with a tracker that was started, with room for so many recurring arms."""
        if len(tracker) and self.own_sums(tracker):
            raise SettingsError(
                f"{type(self).__name__} has to see every row, but the tracker has learned {len(tracker)} rows "
                "before. Give the policy an unused tracker, or learn those rows through the policy."
            )
        return self.state(tracker, draws, slots, **self.settings())

    def reopen(
        self, tracker: Tracker, draws: Draws, slots: int, numbers: dict[str, float], arrays: dict[str, Any]
    ) -> WidthState:
        """The state that `snapshot` wrote down, for a tracker and draws that are where they were."""
        state = self.state(tracker, draws, slots, **self.settings())
        state.restore(numbers, arrays)
        return state

    def grow(self, state: WidthState, draws: Draws) -> WidthState:
        """The same state over the features that its tracker has by now; those that are new were never seen."""
        numbers, arrays = state.snapshot()
        grown = self.state(state.tracker, draws, state.slots, **self.settings())
        before, after = (one.dim - state.tracker.intercept for one in (state, grown))
        fresh = grown.snapshot()[1]
        grown.restore(numbers, {name: widened(array, fresh[name], before, after) for name, array in arrays.items()})
        return grown

    def draws(self, dim: int) -> int:
        """The most uniforms that a round can use."""
        return 0

    def settings(self) -> dict[str, Any]:
        """What a file keeps."""
        return {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.settings().items())})"


class NoWidth(Width):
    """No width at all: the policy is greedy."""

    state = WidthState

    def own_sums(self, tracker: Tracker) -> bool:
        return False


class ExactWidth(Width):
    """sqrt(x' (A + ridge I)^-1 x), from an inverse that is kept by Sherman-Morrison; an `RLS` tracker's own is used.

    Of arms that recur (with ids), most widths need not be found anew: the last one bounds it, and most bounds are too low
    for their arm to be the best. The choice is the same.
    """

    state = ExactState
    keeps_arms = True

    def own_sums(self, tracker: Tracker) -> bool:
        return not isinstance(tracker, RLS)

    def open(self, tracker: Tracker, draws: Draws, slots: int = 0) -> WidthState:
        if isinstance(tracker, RLS) and tracker.route == "cholesky":
            raise SettingsError(NO_INVERSE)
        return super().open(tracker, draws, slots)


class DiagonalWidth(Width):
    """sqrt(sum x_j^2/(ridge + s_j)), s_j the sum of squares so far: as if features never overlapped.

    Rows that left a `Window` go on counting; for a width that forgets give the tracker a discount.
    """

    state = DiagonalState


class CentredWidth(Width):
    """Diagonal width around the mean of a model's rows, with its intercept known exactly; for one model an arm.

    How often an arm was shown decides how sure we are of its mean reward, and each feature by itself how sure we are of
    what is special to a user: sqrt(1/(n + lambda0) + sum c_j (x_j - mean_j)^2). O(nnz) an arm and a row.
    """

    state = CentredState
    lazy = True


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

    state = PhiState
    keeps_arms = True

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


class SampleState(WidthState):
    """A Cholesky factor, and the direction that was sampled last."""

    parts: ClassVar[dict[str, Part]] = {
        **{"score": sampling.sampled_score, "width2": sampling.sample_width2},
        **{"enter": sampling.sample_enter, "begin": sampling.sample_begin},
    }
    shapes: ClassVar[dict[str, Shape]] = {"factor": ("dim", "dim"), "direction": ("dim",)}

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
        self._factorise(change.sums(self._sums(), np.zeros(self.dim))[0])

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
        refuse(not (np.diag(arrays["factor"]) > 0.0).all(), "factor")


class SampleWidth(Width):
    """One exact sample of N(0, (A + ridge I)^-1) a round, O(d^2), from a Cholesky factor kept by rank-one updates."""

    state = SampleState
    samples = True

    def draws(self, dim: int) -> int:
        return 2 * (dim + 1)  # a model may have an intercept


KINDS: dict[str, type[Width]] = {
    kind.__name__: kind for kind in (NoWidth, ExactWidth, DiagonalWidth, CentredWidth, PhiWidth, SampleWidth)
}
