"""Units of features: every model measures a feature in units of its own spread and has an intercept of its own.

So rescaling a feature, or the rewards by a positive affine map, changes no decision, and there is nothing to set. Over
the rows seen so far, N_j counts those in which feature j is not 0, S_j and F_j are its sums of squares and of values:

    dense rows:  m_j = F_j/n,  v_j = S_j/N_j - m_j^2 n/(n + 1),  x' = (x - m)/sqrt(v)
    sparse rows: m_j = 0,      v_j = S_j/N_j,                    x' = x/sqrt(v)

A dense feature whose spread is below a thousandth of its size counts as constant. m and v are frozen between two
*looks*, which come when n has grown by a quarter (by six tenths from 100 rows on), or when a value beyond three times its
feature's size makes the unit a quarter larger. Until a feature was seen ten times, nothing is foretold beyond the sizes it
had: its unit may be a chance value near 0. Crosses of a user's features with arms have the units of the user's features.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftls.kernels.parts import Frame
from driftls.kernels.records import UNITS
from driftls.kernels.units import FEW, JUMP
from driftls.persistence import whole
from driftls.state import State, refuse

Vector = NDArray[np.float64]
GROWTH, LATER_GROWTH, LATER = 1.25, 1.6, 100.0  # of n until the next look, and from so many rows on
SOONEST = 1.05  # of n until a feature that has become larger can ask for one
CONSTANT = 1e-6  # of the mean square: less spread is none
LEAP = 3.0  # of a unit at a look, up to which coefficients are taken along
ENOUGH = 0.05  # a change of units that is smaller, relative to them, is not worth rewriting what was learned
UNLIMITED = 1e300  # no square that is learned is so large
NUMBERS = ("n", "next_look", "soonest", "constant", "offset", "rewards", "reward_sum", "reward_squares")
ARRAYS = ("count", "squares", "sums", "means", "unit", "limit")
POOL = ("pool_count", "pool_squares", "pool_sums", "pool_jumped")


class Change(NamedTuple):
    """New units from old ones: x'_new = scale x'_old + shift, constant_new = constant_old ratio, y'_new = y'_old - offset."""

    scale: Vector
    shift: Vector
    least: Vector  # of scale, for coefficients
    before: float  # the constant's old and new value
    after: float
    offset: float

    def rows(self, X: Vector) -> Vector:
        """Standardised rows (with the constant last, where there is one), in the new units."""
        out = np.empty_like(X)
        dim = self.scale.size
        out[:, :dim] = X[:, :dim] * self.scale + self.shift
        out[:, dim:] = self.after
        return out

    def sums(self, A: Vector, b: Vector) -> tuple[Vector, Vector]:
        """sum z z' and sum y z over such rows, in the new units."""
        dim = self.scale.size
        if A.shape[0] == dim:  # no intercept: features are not centred
            return A * np.outer(self.scale, self.scale), b * self.scale
        if (self.scale == 1.0).all() and not self.shift.any():  # the intercept alone: no product of matrices
            ratio, A, b = self.after / self.before, A.copy(), b - (self.offset / self.before) * A[:, dim]
            A[dim] *= ratio
            A[:, dim] *= ratio
            b[dim] *= ratio
            return A, b
        T = np.zeros_like(A)
        T[np.arange(dim), np.arange(dim)] = self.scale
        T[:dim, dim] = self.shift / self.before
        T[dim, dim] = self.after / self.before
        return T @ A @ T.T, T @ (b - (self.offset / self.before) * A[:, dim])

    def theta(self, theta: Vector) -> Vector:
        """The coefficients that predict the same; of a feature that was seen a few times, as if its unit had become three
        times as large at most: what was learned from values near 0 says little of large ones.
        """
        dim = self.scale.size
        out: Vector = theta / np.append(np.maximum(self.scale, self.least), np.ones(theta.size - dim))
        if theta.size > dim:
            out[dim] = (theta[dim] * self.before - out[:dim] @ self.shift - self.offset) / self.after
        return out


class Units:
    """Units of `dim` features, for dense or sparse rows, as seen so far."""

    def __init__(self, dim: int, *, sparse: bool, intercept: bool, scale: bool, constant: float = 1.0) -> None:
        self.dim, self.sparse, self.intercept, self.scale = dim, sparse, intercept, scale
        self.frame = Frame(UNITS)
        self._asked: Any = memoryview(self.frame.fields["asked"])
        self.frame.set(dim=dim, next_look=1.0, constant=constant, intercept=intercept, centred=intercept and not sparse)
        self._pool = State(self.frame, {} if sparse else dict.fromkeys(POOL, ("dim",)), {"dim": dim})
        self.repeat(0)

    def repeat(self, period: int) -> None:
        """Nothing was seen yet: feature j is measured as feature j % period, if that is not 0: a user's, in any block."""
        self.period = self.frame["period"] = period
        self._kept = State(self.frame, dict.fromkeys(ARRAYS, ("dim",)), {"dim": period or self.dim}, NUMBERS)
        self.arrays = self._kept.arrays
        self._unseen(0)

    def each(self, values: Vector) -> Vector:
        """What is kept of the features that have units, for all that are measured by them."""
        return np.resize(values, self.dim) if self.period else values

    def _unseen(self, first: int) -> None:
        """Features from this one on are new; where nothing is scaled, none is ever seen for the first time."""
        self.arrays["unit"][first:] = 1.0
        if not self.scale:
            self.arrays["limit"][first:], self.arrays["count"][first:] = UNLIMITED, 1.0

    def grow(self, dim: int) -> None:
        """Measure `dim` features from now on; those that are new were never seen."""
        if dim > self.dim:
            before, self.dim, self.frame["dim"] = self.dim, dim, dim
            if not self.period:
                self._kept.widen(dim)
                self._pool.widen(dim)
                self._unseen(before)

    @property
    def asked(self) -> bool:
        """Whether it is time for a look."""
        return self._asked[0] != 0  # type: ignore[no-any-return]

    def look(self, constant: float | None = None, *, force: bool = False) -> Change | None:
        """New units from all that was seen; None where they are hardly others than the old ones (unless forced)."""
        frame, arrays = self.frame, self.arrays
        n, count = frame["n"], arrays["count"]
        frame.set(
            asked=0, soonest=SOONEST * n, next_look=max(n + 1.0, np.ceil((GROWTH if n < LATER else LATER_GROWTH) * n))
        )
        seen = (count > 0.0) & self.scale
        square = np.divide(arrays["squares"], count, out=np.ones(count.size), where=seen)
        mean, spread = arrays["means"].copy(), square.copy()
        if frame["centred"]:
            if n > 0.0:
                mean = arrays["sums"] / n if self.scale else mean
                spread = square - mean**2 * (n / (n + 1.0))
            spread = np.where(spread > CONSTANT * square, spread, square)
        unit = np.where(seen, 1.0 / np.sqrt(spread), arrays["unit"])
        if self.scale:
            arrays["limit"][seen] = np.maximum(arrays["limit"], JUMP * square)[seen]
        offset = frame["reward_sum"] / frame["rewards"] if frame["rewards"] and self.intercept else frame["offset"]
        before = frame["constant"]
        after = before if constant is None else constant
        scale, least = unit / arrays["unit"], np.where(count < FEW, 1.0 / LEAP, 0.0)
        shift = (arrays["means"] - mean) * unit
        each = self.each
        change = Change(each(scale), each(shift), each(least), before, after, offset - frame["offset"])
        moved = max(np.abs(scale - 1.0).max(), np.abs(shift).max(), abs(after / before - 1.0))
        if n > 64.0 and not force and moved < ENOUGH:
            return None
        arrays["unit"][:], arrays["means"][:] = unit, mean
        frame.set(constant=after, offset=offset)
        return change

    @property
    def reward_variation(self) -> float:
        """The sum of squares of the rewards around the offset from which they are learned; 0 while no two differ."""
        n, total, squares, offset = (self.frame[name] for name in ("rewards", "reward_sum", "reward_squares", "offset"))
        if not n or squares - total * total / n <= 1e-12 * squares:
            return 0.0
        return float(max(squares - 2.0 * offset * total + n * offset * offset, 0.0))

    def raw(self, theta: Vector) -> tuple[Vector, float]:
        """Coefficients and intercept in the caller's own units."""
        coefficients = theta[: self.dim] * self.each(self.arrays["unit"])
        constant = theta[self.dim] * self.frame["constant"] if theta.size > self.dim else 0.0
        return coefficients, float(self.frame["offset"] + constant - coefficients @ self.each(self.arrays["means"]))

    def snapshot(self) -> tuple[dict[str, float], dict[str, Vector]]:
        """Numbers and arrays, for a file."""
        numbers, arrays = self._kept.snapshot()
        return {**numbers, "period": self.period}, arrays

    def restore(self, numbers: dict[str, Any], arrays: dict[str, Any]) -> None:
        """What `snapshot` wrote down."""
        period = whole(numbers, "period")
        refuse(period > self.dim, "period")
        self.repeat(period)
        kept, found = self._kept.read(numbers, arrays)
        refuse(not (kept["constant"] > 0.0 and (found["unit"] > 0.0).all()), "unit")
        self._kept.fill(kept, found)
