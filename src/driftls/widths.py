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

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from driftls.draws import Draws
from driftls.errors import SettingsError
from driftls.kernels import bounds, centred, phi, sampling, score
from driftls.kernels.learn import NOTHING, WINDOW
from driftls.kernels.parts import Part
from driftls.schedules import ridge
from driftls.trackers import RAW, RLS, Tracker
from driftls.units import widened
from driftls.width_states import CentredState, DiagonalState, ExactState, PhiState, SampleState, WidthState

__all__ = ["CentredWidth", "DiagonalWidth", "ExactWidth", "NoWidth", "PhiWidth", "SampleWidth", "Width"]

LARGEST_DIM = 30_000
FIRST_PRODUCTS = 64  # arms
BLAS_FROM = 17  # features: for fewer a call of BLAS costs more than it saves
NO_INVERSE = (
    "this RLS keeps no inverse, so it has no widths. Use method='sherman-morrison' (or 'inverse', which is O(d^3) a "
    "row) with a ridge above 0."
)


class Width(ABC):
    """How wide the confidence interval of an arm is, or what is sampled in its place; settings alone."""

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
        state = self._state(tracker, slots)
        state.read(draws)
        return state

    def reopen(
        self, tracker: Tracker, draws: Draws, slots: int, numbers: dict[str, float], arrays: dict[str, Any]
    ) -> WidthState:
        """The state that `snapshot` wrote down, for a tracker and draws that are where they were."""
        state = self._state(tracker, slots)
        state.read(draws)
        state.restore(numbers, arrays)
        return state

    def grow(self, state: WidthState, draws: Draws) -> WidthState:
        """The same state over the features that its tracker has by now; those that are new were never seen."""
        numbers, arrays = state.snapshot()
        grown = self._state(state.tracker, state.slots)
        grown.read(draws)
        before, after = (one.dim - state.tracker.intercept for one in (state, grown))
        fresh = grown.snapshot()[1]
        grown.restore(numbers, {name: widened(array, fresh[name], before, after) for name, array in arrays.items()})
        return grown

    @abstractmethod
    def _state(self, tracker: Tracker, slots: int) -> WidthState:
        """A new state, or why there can be none for this tracker."""

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

    def own_sums(self, tracker: Tracker) -> bool:
        return False

    def _state(self, tracker: Tracker, slots: int) -> WidthState:
        return WidthState(tracker, {"score": score.none_score})


class ExactWidth(Width):
    """sqrt(x' (A + ridge I)^-1 x), from an inverse that is kept by Sherman-Morrison; an `RLS` tracker's own is used.

    Of arms that recur (with ids), most widths need not be found anew: the last one bounds it, and most bounds are too low
    for their arm to be the best. The choice is the same.
    """

    keeps_arms = True

    def own_sums(self, tracker: Tracker) -> bool:
        return not isinstance(tracker, RLS)

    def open(self, tracker: Tracker, draws: Draws, slots: int = 0) -> WidthState:
        if isinstance(tracker, RLS) and tracker.route == "cholesky":
            raise SettingsError(NO_INVERSE)
        return super().open(tracker, draws, slots)

    def _state(self, tracker: Tracker, slots: int) -> WidthState:
        parts: dict[str, Part] = {"score": bounds.bounded_score, "width2": bounds.bounded_width2}
        own = None
        if isinstance(tracker, RLS):
            if not tracker.frame.arrays["inverse"].size:
                raise SettingsError(NO_INVERSE)
            total = tracker.total_ridge(max(len(tracker), 1))
        else:
            parts["enter"] = score.exact_own_enter
            total, discount = constant_ridge(tracker), discount_of(tracker)
            # Sherman-Morrison would discount the ridge too, which no tracker but RLS does
            method = "sherman-morrison" if discount == 1.0 else "inverse"
            own = RLS(tracker.inner, regularisation=ridge(total), discount=discount, method=method, **RAW)
        recurring: dict[str, Any] = (
            {"lines": ("arms",), "by_slot": ("bounds", "stamps"), "slots": slots} if slots else {}
        )
        state = ExactState(tracker, parts, own=own, ridge=total, **recurring)
        if not tracker.sparse and tracker.inner >= BLAS_FROM:
            state.reserve(FIRST_PRODUCTS)
        return state


class DiagonalWidth(Width):
    """sqrt(sum x_j^2/(ridge + s_j)), s_j the sum of squares so far: as if features never overlapped.

    Rows that left a `Window` go on counting; for a width that forgets give the tracker a discount.
    """

    def _state(self, tracker: Tracker, slots: int) -> WidthState:
        state = DiagonalState(
            tracker,
            {"score": score.diagonal_score, "width2": score.diagonal_width2, "enter": score.diagonal_enter},
            arrays={"squares": np.zeros(tracker.inner)},
            scale=1.0,
            discount=discount_of(tracker),
            ridge=constant_ridge(tracker),
            spread=np.zeros(tracker.inner),
        )
        state.keep_spread()
        return state


class CentredWidth(Width):
    """Diagonal width around the mean of a model's rows, with its intercept known exactly; for one model an arm.

    How often an arm was shown decides how sure we are of its mean reward, and each feature by itself how sure we are of
    what is special to a user: sqrt(1/(n + lambda0) + sum c_j (x_j - mean_j)^2). O(nnz) an arm and a row.
    """

    lazy = True

    def _state(self, tracker: Tracker, slots: int) -> WidthState:
        if not tracker.intercept:
            raise SettingsError("CentredWidth needs a tracker with an intercept. Build it with intercept=True.")
        state = CentredState(
            tracker,
            {"score": centred.centred_score, "width2": centred.centred_width2, "enter": centred.centred_enter},
            arrays={name: np.zeros(tracker.inner) for name in ("squares", "sums", "share")},
            scale=1.0,
            discount=discount_of(tracker),
            ridge=constant_ridge(tracker),
        )
        state.sum_up()
        return state


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

    def _state(self, tracker: Tracker, slots: int) -> WidthState:
        if tracker.scale or tracker.intercept:
            raise SettingsError(
                "phi follows arms in raw units, and this tracker measures features in units that change on its way. "
                "Build it with scale=False, intercept=False."
            )
        if tracker.history.kind == NOTHING:
            raise SettingsError("phi draws rows of the tracker's history. Build the tracker with history=Growing().")
        if discount_of(tracker) < 1.0:
            raise SettingsError("phi cannot discount rows. Use ExactWidth() or DiagonalWidth().")
        printed, windowed = self.method == "printed", tracker.history.kind == WINDOW
        parts = {
            "score": phi.ucb_score,
            "width2": phi.phi_width2,
            "enter": phi.phi_enter,
            "open": phi.phi_open,
            "same": phi.same,
            "begin": phi.phi_begin,
        }
        return PhiState(
            tracker,
            parts,
            arrays={"squares": np.zeros(tracker.inner), "drawn": np.zeros(self.steps, dtype=np.int64)},
            lines=("phi", "arms"),
            by_slot=("P", "Q"),
            slots=slots,
            ridge=1.0 if printed else constant_ridge(tracker),
            step_scale=self.scale,
            steps=self.steps,
            printed=printed,
            windowed=windowed,
            scratch=np.zeros(tracker.inner),
        )


class SampleWidth(Width):
    """One exact sample of N(0, (A + ridge I)^-1) a round, O(d^2), from a Cholesky factor kept by rank-one updates."""

    samples = True

    def draws(self, dim: int) -> int:
        return 2 * dim

    def _state(self, tracker: Tracker, slots: int) -> WidthState:
        if discount_of(tracker) < 1.0:
            raise SettingsError("exact samples cannot discount rows. Use ExactWidth() and LinUCB.")
        total = constant_ridge(tracker)
        refuse_large(tracker)
        parts = {
            "score": sampling.sampled_score,
            "width2": sampling.sample_width2,
            "enter": sampling.sample_enter,
            "begin": sampling.sample_begin,
        }
        arrays = {"factor": np.eye(tracker.inner) * np.sqrt(total), "direction": np.zeros(tracker.inner)}
        return SampleState(tracker, parts, arrays=arrays, ridge=total, scratch=np.zeros(tracker.inner))


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


def refuse_large(tracker: Tracker) -> None:
    """d^2 numbers must be affordable."""
    if tracker.inner > LARGEST_DIM:
        raise SettingsError(
            f"this width keeps {tracker.inner} x {tracker.inner} numbers. Use PhiWidth() or DiagonalWidth()."
        )


KINDS: dict[str, type[Width]] = {
    kind.__name__: kind for kind in (NoWidth, ExactWidth, DiagonalWidth, CentredWidth, PhiWidth, SampleWidth)
}
