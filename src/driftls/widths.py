"""How sure are we about x: the width of a confidence interval around theta.x, in units of the noise.

| width | cost of an arm | cost of a row | right for |
|---|---|---|---|
| `ExactWidth` | O(d^2), sparse O(nnz^2) | O(d^2) | everything, where d^2 is affordable |
| `PhiWidth(method="cd")` | O(d) | O(d) an arm | arms that recur, d^2 memory |
| `PhiWidth()` | O(d), sparse O(nnz) | O(d), sparse O(T nnz) an arm | arms that recur |
| `DiagonalWidth` | O(nnz) | O(nnz) | fresh arms, sparse crosses; wrong for a fixed pool |
| `EnsembleWidth` | O(M nnz) | O(M d) | any arms, d^2 memory |
| `NoWidth` | nothing | nothing | greedy |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from driftls.draws import Draws
from driftls.errors import SettingsError
from driftls.history import Window
from driftls.kernels import cd, phi
from driftls.kernels import widths as kernels
from driftls.kernels.kept import EnsembleState, PhiCDState
from driftls.kernels.phi import PhiState
from driftls.kernels.widths import DiagonalWidthState, OwnExactState, SampleState
from driftls.schedules import ridge
from driftls.trackers import CD, RLS, Tracker
from driftls.trackers.sgd import coordinates

__all__ = ["DiagonalWidth", "EnsembleWidth", "ExactWidth", "NoWidth", "PhiWidth", "SampleWidth", "Width"]


class Width(ABC):
    """A width belongs to one policy, which asks it for a state once its tracker has one."""

    keeps_arms: ClassVar[bool] = False

    def own_sums(self, tracker: Tracker) -> bool:
        """Whether the width has sums of its own, and so has to see every row from the tracker's first on."""
        return True

    @abstractmethod
    def allocate(self, tracker: Tracker, slots: int, draws: Draws) -> NamedTuple:
        """A new state for this tracker, with room for so many recurring arms."""

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

    def allocate(self, tracker: Tracker, slots: int, draws: Draws) -> NamedTuple:
        return kernels.NoWidth(np.zeros(1))


class ExactWidth(Width):
    """sqrt(x' (A + ridge I)^-1 x), from an inverse that is kept by Sherman-Morrison; an `RLS` tracker's own is used."""

    def own_sums(self, tracker: Tracker) -> bool:
        return not isinstance(tracker, RLS)

    def allocate(self, tracker: Tracker, slots: int, draws: Draws) -> NamedTuple:
        if isinstance(tracker, RLS):
            if tracker.route == "cholesky":
                raise SettingsError(
                    "this RLS keeps no inverse, so it has no widths. Use method='sherman-morrison' (or 'inverse', "
                    "which is O(d^3) a row) with a ridge above 0."
                )
            return tracker._state  # type: ignore[no-any-return]
        refuse_window(tracker)
        total, discount = ridge(constant_ridge(tracker)), discount_of(tracker)
        # Sherman-Morrison would discount the ridge too, which no tracker but RLS does
        method = "sherman-morrison" if discount == 1.0 else "inverse"
        return OwnExactState(*RLS(tracker.dim, regularisation=total, discount=discount, method=method)._allocate(False))


class DiagonalWidth(Width):
    """sqrt(sum x_j^2/(ridge + s_j)), s_j the sum of squares so far: as if features never overlapped."""

    def allocate(self, tracker: Tracker, slots: int, draws: Draws) -> NamedTuple:
        refuse_window(tracker)
        scalars = np.zeros(kernels.DIAGONAL_SCALARS)
        scalars[kernels.D_SCALE] = 1.0
        scalars[kernels.D_DISCOUNT] = discount_of(tracker)
        scalars[kernels.D_RIDGE] = constant_ridge(tracker)
        coords, spread = (coordinates(1, tracker.dim, tracker._sparse) for _ in range(2))
        state = DiagonalWidthState(coords, spread, scalars)
        keep_spread(state)
        return state


class PhiWidth(Width):
    """sqrt(x.phi) with phi tracking (A + ridge I)^-1 x, one phi for each arm that recurs.

    Parameters
    ----------
    steps : int
        T, steps an arm and row.
    method : {"gd", "cd", "printed"}
        "gd" keeps no matrix. While the rows are arms that recur, all phi are moved exactly, by Sherman-Morrison. An arm
        of which this cannot be said descends the regularised objective on drawn rows, as all do for sparse rows and
        over a `Window`. "cd" takes Gauss-Southwell steps with the A that a `CD` tracker keeps. "printed" is the
        paper's rule: no regulariser, start at 0, the tracker's gamma_n.
    scale : float
        The longest step of "gd" is scale / max ||x||^2.

    An arm without an id takes its T steps afresh in each round, from the diagonal's guess. An id that comes with other
    features starts afresh too.
    """

    keeps_arms = True

    def __init__(self, steps: int | None = None, *, method: str = "gd", scale: float = 0.3) -> None:
        if method not in ("gd", "cd", "printed"):
            raise SettingsError(f"method must be 'gd', 'cd' or 'printed', got {method!r}.")
        if steps is not None and not (isinstance(steps, int | np.integer) and steps >= 1):
            raise SettingsError(f"steps must be a whole number of at least 1, got {steps!r}.")
        if not 0.0 < scale < 2.0:
            raise SettingsError(f"scale must lie in (0, 2), got {scale!r}. A step of 2/||x||^2 or more diverges.")
        self.method, self.scale = method, float(scale)
        self.steps = (4 if method == "gd" else 1) if steps is None else int(steps)

    def own_sums(self, tracker: Tracker) -> bool:
        return not (self.method == "cd" and isinstance(tracker, CD))

    def draws(self, dim: int) -> int:
        return 0 if self.method == "cd" else 2 * self.steps

    def settings(self) -> dict[str, Any]:
        return {"steps": self.steps, "method": self.method, "scale": self.scale}

    def allocate(self, tracker: Tracker, slots: int, draws: Draws) -> NamedTuple:
        if self.method == "cd":
            solution, residual, X = np.zeros((3, slots, tracker.dim))
            live, sizes = np.zeros((2, slots), dtype=np.int64)
            own, steps, coords, scalars, gram = gram_fields(tracker, np.array([self.steps], dtype=np.int64))
            return PhiCDState(solution, residual, X, live, sizes, own, steps, coords, scalars, gram)
        if tracker.history is None:
            raise SettingsError("phi draws rows of the tracker's history. Build the tracker with history=Growing().")
        if discount_of(tracker) < 1.0:
            raise SettingsError("phi by gradient descent cannot discount rows. Use PhiWidth(method='cd').")
        scalars, sparse = np.zeros(phi.SCALARS), tracker._sparse
        scalars[phi.SCALE] = self.scale
        scalars[phi.STEPS] = self.steps
        scalars[phi.PRINTED] = self.method == "printed"
        scalars[phi.WINDOWED] = isinstance(tracker.history, Window)
        # O(d) an arm, which sparse rows are too cheap for; and no arm stands for the row that leaves a window
        scalars[phi.CARRIED] = not (sparse or scalars[phi.PRINTED] or scalars[phi.WINDOWED])
        scalars[phi.RIDGE] = 1.0 if self.method == "printed" else constant_ridge(tracker)
        U, X = (coordinates(slots, tracker.dim, sparse) for _ in range(2))
        P, Q, doubts = np.zeros((3, slots))
        live, sizes = np.zeros((2, slots), dtype=np.int64)
        squares, spare = (coordinates(count, tracker.dim, sparse) for count in (1, 2))
        picks = np.zeros(self.steps, dtype=np.int64)
        return PhiState(U, X, P, Q, live, sizes, doubts, np.zeros((slots, 3)), squares, spare, picks, scalars)


class EnsembleWidth(Width):
    """The spread of M copies that learn pure noise: their covariance is (A + ridge I)^-1.

    With `sample=True` one copy is drawn a round and its opinion added instead: Thompson sampling.
    """

    def __init__(self, members: int = 100, *, steps: int = 1, sample: bool = False) -> None:
        if not all(isinstance(count, int | np.integer) for count in (members, steps)) or members < 2 or steps < 1:
            raise SettingsError(f"at least 2 members and 1 step are needed, got {members!r} and {steps!r}.")
        self.members, self.steps, self.sample = int(members), int(steps), bool(sample)

    def draws(self, dim: int) -> int:
        return 2 * self.members + 1

    def settings(self) -> dict[str, Any]:
        return {"members": self.members, "steps": self.steps, "sample": self.sample}

    def allocate(self, tracker: Tracker, slots: int, draws: Draws) -> NamedTuple:
        own, steps, coords, scalars, gram = gram_fields(tracker, np.array([self.steps], dtype=np.int64))
        theta = np.zeros((self.members, tracker.dim))
        # each copy starts at a sample of the prior N(0, I/ridge)
        u = draws.take(2 * theta.size).reshape(2, *theta.shape)
        theta += np.sqrt(-2.0 * np.log(1.0 - u[0])) * np.cos(2.0 * np.pi * u[1]) / np.sqrt(constant_ridge(tracker))
        member = np.array([0 if self.sample else -1], dtype=np.int64)
        return EnsembleState(theta, np.zeros_like(theta), theta.copy(), member, own, steps, coords, scalars, gram)


class SampleWidth(Width):
    """One exact sample of N(0, (A + ridge I)^-1) a round, O(d^2), from a Cholesky factor kept by rank-one updates."""

    def draws(self, dim: int) -> int:
        return 2 * dim

    def allocate(self, tracker: Tracker, slots: int, draws: Draws) -> NamedTuple:
        refuse_window(tracker)
        if discount_of(tracker) < 1.0:
            raise SettingsError("exact samples cannot discount rows. Use EnsembleWidth(sample=True).")
        factor = np.eye(tracker.dim) * np.sqrt(constant_ridge(tracker))
        return SampleState(factor, np.zeros((2, tracker.dim)))


def constant_ridge(tracker: Tracker) -> float:
    """n lambda_n of a tracker, where it is a positive constant; otherwise a width has no unit."""
    first, later = (n * tracker.regularisation(n) for n in (1, 1000))  # type: ignore[operator]
    if first <= 0.0 or abs(later - first) > 1e-9 * first:
        raise SettingsError(
            "this width needs a constant, positive total ridge: give the tracker regularisation=ridge(total). "
            "The paper's printed phi (PhiWidth(method='printed')) needs none."
        )
    return float(first)


def keep_spread(width: Any) -> None:
    """The sums of a diagonal width were set from outside: what it keeps of them has to follow."""
    if isinstance(width, DiagonalWidthState):
        ridge, scale = width.scalars[kernels.D_RIDGE], width.scalars[kernels.D_SCALE]
        width.spread[...] = 1.0 / (ridge + scale * width.coords)


def discount_of(tracker: Tracker) -> float:
    """By how much rows count less when the next one comes; 1 for a tracker that cannot forget in this way."""
    return float(getattr(tracker, "discount", 1.0))


def refuse_window(tracker: Tracker) -> None:
    """Sums that only grow go on counting rows that the tracker has dropped."""
    if isinstance(tracker.history, Window):
        raise SettingsError(
            "this width cannot take back the rows that leave a Window. Use PhiWidth(), ExactWidth() over an RLS, "
            "or a tracker with a discount."
        )


def gram_fields(tracker: Tracker, steps: Any) -> tuple[Any, ...]:
    """own, steps and the CDState that holds A: the tracker's, or a new one that the width keeps up itself."""
    total = constant_ridge(tracker)
    refuse_window(tracker)
    if isinstance(tracker, CD):
        return (np.zeros(1, dtype=np.int64), steps, *tracker._state)
    if tracker.dim > 30_000:
        raise SettingsError(f"this width keeps A, {tracker.dim} x {tracker.dim}. Use PhiWidth() or DiagonalWidth().")
    state = CD(tracker.dim, regularisation=ridge(total), discount=discount_of(tracker))._allocate(False)
    state.scalars[cd.RIDGE] = total
    return (np.ones(1, dtype=np.int64), steps, *state)


KINDS: dict[str, type[Width]] = {
    kind.__name__: kind for kind in (NoWidth, ExactWidth, DiagonalWidth, PhiWidth, EnsembleWidth, SampleWidth)
}
