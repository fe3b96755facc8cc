"""Units of features: every model measures a feature in units of its own spread and has an intercept of its own.

So rescaling a feature, or the rewards by a positive affine map, changes no decision, and there is nothing to set. Over the
rows seen so far, N_j counts those in which feature j is not 0, S_j and F_j are its sums of squares and of values:

    dense rows:  m_j = F_j/n,  v_j = S_j/N_j - m_j^2 (1 - 2^-n),  x' = (x - m)/sqrt(v)
    sparse rows: the same where every row has had j, else m_j = 0; x' = 0 where a row lacks j

What a sparse row lacks stays 0. So a feature is centred as long as every row has it; before a row is learned that lacks it, a
look puts it back. In rows that `Features` make nothing is left out but what is missing, and that counts as the mean: there half
of the rows suffice. A cross of a number with a category is centred where that category is; what its mean takes away, the
category's own coefficient gives back, as the intercept does for others. CrossedArms have the units of the user's features. They
are centred where each block has a constant of its own, behind the user's features: then whatever all users have is measured
from its mean, and a constant of theirs is 0.

A policy may give features that turned out to matter smaller units, x' times a weight (policies/evidence.py).

A dense feature whose spread is below three millionths of its size counts as constant. m and v are frozen between two
*looks*, which come when n has grown by a quarter (by six tenths from 100 rows on), or when a value beyond three times its
feature's size makes the unit twice as large and n has grown by 5%; by six tenths for a feature seen less than ten times,
since of many rare ones some have always grown, and a look reads all rows. Until a feature was seen ten times, nothing is
foretold beyond the sizes it had: its unit may be a chance value near 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.compiling.parts import Frame
from driftls.kernels import units as kernels
from driftls.kernels.records import UNITS
from driftls.persistence import whole
from driftls.state import Shape, State, product, refuse

Vector = NDArray[np.float64]
GROWTH, LATER_GROWTH, LATER = 1.25, 1.6, 100.0  # of n until the next look, and from so many rows on
SOONEST = 1.05  # of n until a feature that has become larger can ask for one; one that is rare waits longer
ENOUGH = 0.05  # a change of units that is smaller, relative to them, is not worth rewriting what was learned
PER_LINE = 8  # numbers in a cache line: where rows are sparse, a feature's lie in one of its own
LARGEST = {"offset": 1e75, "reward_sum": 1e100, "reward_squares": 1e200}  # in a file; no reward is beyond 1e75
LOW = (1 << 32) - 1  # the half of a cross's key that is its second name
UNLIMITED = 1e300  # no square that is learned is so large
NUMBERS = ("n", "next_look", "soonest", "constant", "offset", "rewards", "reward_sum", "reward_squares")
ARRAYS = ("count", "squares", "unit", "limit", "sums", "means", "weight")
POOL = ("pool_count", "pool_squares", "pool_sums", "pool_jumped")


class Change(NamedTuple):
    """New units from old ones: x'_new = scale x'_old + shift, constant_new = constant_old ratio, y'_new = y'_old - offset.

    `scale`, `shift`, `least` and `grown` are those of the features that were seen; whatever was learned of the others is 0.
    """

    learned: Any  # these features, and the intercept behind them: their indices, or a slice
    scale: Vector
    shift: Vector
    least: Vector  # of scale, for coefficients
    grown: Vector  # sums of squares by this factor, by what was seen
    factors: Vector  # scale by feature, and that of the constant; 0 where a feature was not seen
    before: float  # the constant's old and new value
    after: float
    offset: float
    frame: Frame  # of the units
    partners: (
        Any  # by feature, the place of the one that takes what it shifts, or -1 for the intercept; None: it takes all
    )
    lost: Any  # features that are centred from now on, and that rows have missed: sums do not tell which

    @property
    def features(self) -> Any:
        """Those that were seen: their indices, or a slice."""
        return slice(0, self.scale.size) if isinstance(self.learned, slice) else self.learned[: self.scale.size]

    def rows(self, X: Vector) -> None:
        """Put standardised rows (with the constant last, where there is one) into the new units, in place."""
        dim = self.scale.size
        X[:, :dim] *= self.scale
        X[:, :dim] += self.shift
        X[:, dim:] = self.after

    def entries(self, values: Vector, indices: NDArray[Any]) -> None:
        """The same for the entries of sparse rows, which have every feature that is moved."""
        values *= self.factors[indices]
        if self.shift.any():
            shift = np.zeros(self.factors.size)
            shift[self.features] = self.shift
            values += shift[indices]

    def sums(self, A: Vector, b: Vector) -> None:
        """Put sum z z' and sum y z over such rows into the new units, in place.

        Rows that missed a feature would lie where it was 0, far from its mean: what is `lost` is learned anew.
        """
        factors, at = self.factors.copy(), np.arange(self.factors.size)[self.features]
        factors[at[self.lost]], moved = 0.0, np.where(self.lost, 0.0, self.shift)
        if self.partners is not None:
            dim = factors.size - 1
            b -= (self.offset / self.before) * A[:, dim]
            to = np.where(self.partners < 0, dim, at[self.partners])
            shift = np.where(self.partners < 0, moved / self.before, moved)
            T = sp.csr_array((shift, (at, to)), shape=A.shape) + sp.diags_array(factors)
            A[...], b[:] = T @ (T @ A).T, T @ b
            return
        turn = np.zeros((4, len(b)))
        turn[0] = factors[: len(b)]
        if len(b) == factors.size:  # there is an intercept, and features may be centred
            turn[1][self.features] = moved / self.before
            turn[3, 0] = self.offset / self.before
        kernels.move_sums.run(self.frame.address, 0, 0, A, b, turn)

    def squares(self, squares: Vector) -> None:
        """Sums of z_j^2 by feature into the new units, in place, where nothing tells of which rows they are."""
        squares[self.features] *= self.grown
        squares[self.factors.size - 1 :] *= self.factors[-1] ** 2

    def theta(self, theta: Vector) -> Vector:
        """The `learned` coefficients that predict the same; of a feature that was seen a few times, as if its unit had become
        three times as large at most: what was learned from values near 0 says little of large ones.
        """
        dim = self.scale.size
        out: Vector = theta / np.append(np.maximum(self.scale, self.least), np.ones(theta.size - dim))
        if theta.size > dim:
            moved = given_back(out[:dim], self.shift, self.partners)
            out[dim] = (theta[dim] * self.before - moved - self.offset) / self.after
        return out


def given_back(theta: Vector, means: Vector, partners: Any) -> float:
    """What these means take away, for the intercept; what partners are to take is given to them."""
    if partners is None:
        return product(theta, means)
    moved, own = theta * means, partners >= 0
    theta -= np.bincount(partners[own], moved[own], theta.size)
    return float(moved[~own].sum())


class Units:
    """Units of `dim` features, for dense or sparse rows, as seen so far."""

    def __init__(self, dim: int, *, sparse: bool, intercept: bool, scale: bool, constant: float = 1.0) -> None:
        self.dim, self.sparse, self.intercept, self.scale = dim, sparse, intercept, scale
        self.frame = Frame(UNITS)
        self._wants = self.frame.cell("asked")
        self.frame.set(dim=dim, next_look=1.0, constant=constant, intercept=intercept)
        self.frame["scales"] = scale
        self._crosses: Callable[[], NDArray[np.int64]] | None = None
        self.frame["every"] = PER_LINE if sparse else 1
        self.repeat(0)

    def repeat(self, period: int, constants: bool = False) -> None:
        """Nothing was seen yet: feature j is measured as j % period, if that is not 0: a user's; constants: the last is 1."""
        self.period, self.block = period, period if constants else 0
        self.frame["period"], self.frame["centred"] = period, self.intercept and (constants or not period)
        sizes, listed = {"dim": period or self.dim}, self.sparse and self.scale and not period
        own: dict[str, Shape] = {"known": ("dim", np.int64)} if listed else {}
        self.frame["known"], self.frame["partner"], self._block = 0, 0, np.empty((0, PER_LINE))
        kept: dict[str, Shape] = {
            **dict.fromkeys(ARRAYS, ("dim",)),
            **({"partner": ("dim", np.int64)} if listed else {}),
        }
        self._kept = State(self.frame, kept, sizes, NUMBERS, make=self._zeros)
        self._own = State(self.frame, own if self.sparse else dict.fromkeys(POOL, ("dim",)), sizes)
        self._sorted, self._factors = 0, np.zeros(self.dim + 1)
        self.arrays = self._kept.arrays
        self._unseen(0)

    def follow(self, features: Any) -> None:
        """Rows are made by these features, if any: what they lack is missing, and some may be crosses of others."""
        if features is not None:
            self._crosses = getattr(features, "crosses", None)
            self.frame["gaps"] = self._crosses is not None

    def _pair(self) -> None:
        """Crosses that are measured from 0 get partners: the category that is 1 wherever they can be."""
        if self._crosses is None or "known" not in self._own.arrays:
            return
        arrays, keys, at = self.arrays, np.full(self.dim, -1), self.known
        listed = self._crosses()[: self.dim]
        keys[: listed.size] = listed
        at = at[(keys[at] >= 0) & (arrays["means"][at] == 0.0)]
        count = arrays["count"]
        always = (count > 0.0) & (arrays["sums"] == count) & (arrays["squares"] == count)
        one, other = keys[at] >> 32, keys[at] & LOW
        category, both = np.where(always[other], other, one), always[one] & always[other]
        arrays["partner"][at] = np.where(both, 0, 1 + np.where(always[category], category, at))

    def _partners(self, at: Any) -> Any:
        """By feature, the place among these of what takes its mean, or -1 for the intercept; None: it takes all."""
        if self.block:
            places = np.arange(self.dim)
            return np.where(places % self.block == self.block - 1, -1, places + self.block - 1 - places % self.block)
        kept = self.arrays.get("partner")
        if kept is None or not self.intercept or not kept[at].any():  # without an intercept nothing is centred
            return None
        places = kept[at] - 1
        return np.where(places < 0, -1, places if isinstance(at, slice) else np.searchsorted(at, places))

    def _lost(self, at: Any, mean: Vector) -> NDArray[np.bool_]:
        """Features that get a mean although rows have missed them: whether they did, sums of rows do not know."""
        if not self.frame["gaps"] or isinstance(at, slice):
            return np.zeros(mean.size, np.bool_)
        arrays, partner = self.arrays, self.arrays["partner"][at]
        rows = np.where(partner > 0, arrays["count"][partner - 1], self.frame["n"])
        lost: NDArray[np.bool_] = (mean != 0.0) & (arrays["means"][at] == 0.0) & (arrays["count"][at] < rows)
        return lost

    def each(self, values: Any) -> Any:
        """What is kept of the features that have units, for all that are measured by them."""
        return np.resize(values, self.dim) if self.period else values

    def _zeros(self, name: str, shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
        """A new array; where rows are sparse, a column of those of all features."""
        if not self.sparse or name not in ARRAYS:
            return np.zeros(shape, kind)
        if len(self._block) != shape[0]:
            numbers = np.zeros((shape[0] + 1) * PER_LINE)
            skipped = -numbers.ctypes.data // 8 % PER_LINE
            self._block = numbers[skipped : skipped - PER_LINE].reshape(shape[0], PER_LINE)
        return self._block[:, ARRAYS.index(name)]

    def _unseen(self, first: int) -> None:
        """Features from this one on are new; where nothing is scaled, none is ever seen for the first time."""
        self.arrays["unit"][first:] = self.arrays["weight"][first:] = 1.0
        if not self.scale:
            self.arrays["limit"][first:], self.arrays["count"][first:] = UNLIMITED, 1.0

    def grow(self, dim: int) -> None:
        """Measure `dim` features from now on; those that are new were never seen."""
        if dim > self.dim:
            before, self.dim, self.frame["dim"] = self.dim, dim, dim
            self._factors = np.zeros(dim + 1)
            if not self.period:
                self._kept.widen(dim)
                self._own.widen(dim)
                self._unseen(before)

    @property
    def asked(self) -> bool:
        """Whether it is time for a look."""
        return self._wants[0] != 0  # type: ignore[no-any-return]

    @property
    def known(self) -> Any:
        """Features that were seen, ascending, where rows are sparse; else (and of crosses) a slice of all."""
        if "known" not in self._own.arrays:
            return slice(None)
        known, count = self._own.arrays["known"], self.frame["known_count"]
        if self._sorted < count:  # a pass in the order of memory is the fastest
            known[:count].sort()
            self._sorted = count
        return known[:count]

    @property
    def learned(self) -> Any:
        """The same with the intercept behind them: all coefficients that are not 0."""
        known = self.known
        if isinstance(known, slice):
            return slice(None)
        return np.append(known, self.dim) if self.intercept else known

    def look(
        self, constant: float | None = None, weights: Vector | None = None, *, force: bool = False
    ) -> Change | None:
        """New units from all that was seen; None where they are hardly others than the old ones (unless forced).

        weights: of the `known` features, by which their units are smaller from now on.
        """
        self._pair()
        frame, arrays, at = self.frame, self.arrays, self.known
        n, force = frame["n"], force or weights is not None or frame["asked"] == kernels.AT_ONCE
        if weights is not None:
            arrays["weight"][at] = weights
        frame.set(
            asked=0, soonest=SOONEST * n, next_look=max(n + 1.0, np.ceil((GROWTH if n < LATER else LATER_GROWTH) * n))
        )
        fresh = np.empty((6, self.period or (self.dim if isinstance(at, slice) else at.size)))
        frame["fresh"] = fresh
        moved = kernels.next_units(frame, 0, fresh.shape[1])
        frame["fresh"] = 0
        del frame.arrays["fresh"]  # which is as large as all that was seen
        unit, mean, scale, shift, least, grown = fresh
        if self.sparse:  # measured from 0 again: what was learned around the mean says nothing of what lies at 0
            least[(arrays["means"][at] != 0.0) & (mean == 0.0)] = 1.0
        offset = frame["reward_sum"] / frame["rewards"] if frame["rewards"] and self.intercept else frame["offset"]
        if abs(offset - frame["offset"]) <= 1e-12 * abs(offset):  # rewards that are all equal are no noise
            offset = frame["offset"]
        before = frame["constant"]
        after = before if constant is None else constant
        if n > 64.0 and not force and max(moved, abs(after / before - 1.0)) < ENOUGH:
            return None
        lost = self._lost(at, mean)
        arrays["unit"][at], arrays["means"][at] = unit, mean
        frame["centres"] = np.count_nonzero(mean)
        scale, shift, least, grown, lost = (self.each(values) for values in (scale, shift, least, grown, lost))
        self._factors[:-1][at], self._factors[-1] = scale, after / before
        offset_by = offset - frame["offset"]
        partners = self._partners(at)
        change = Change(
            self.learned, scale, shift, least, grown, self._factors, before, after, offset_by, frame, partners, lost
        )
        frame.set(constant=after, offset=offset)
        return change

    @property
    def reward_variation(self) -> float:
        """The sum of squares of the rewards around the offset from which they are learned; 0 while no two differ."""
        n, total, squares, offset = (self.frame[name] for name in ("rewards", "reward_sum", "reward_squares", "offset"))
        if not n or squares - total * total / n <= 1e-12 * squares:
            return 0.0
        return float(max(squares - 2.0 * offset * total + n * offset * offset, 0.0))

    @property
    def reward_size(self) -> float:
        """The mean square of the rewards, as they are learned; where all are equal, of what rounding leaves of them."""
        n, offset = self.frame["rewards"], self.frame["offset"]
        return max(self.reward_variation / n, (1e-8 * offset) ** 2) if n else 0.0

    def raw(self, theta: Vector) -> tuple[Vector, float]:
        """Coefficients and intercept in the caller's own units."""
        coefficients = theta[: self.dim] * self.each(self.arrays["unit"])
        constant = theta[self.dim] * self.frame["constant"] if theta.size > self.dim else 0.0
        moved = given_back(coefficients, self.each(self.arrays["means"]), self._partners(slice(None)))
        return coefficients, self.frame["offset"] + float(constant) - moved

    def copy(self) -> Units:
        """The same, for another tracker."""
        made = Units(self.dim, sparse=self.sparse, intercept=self.intercept, scale=self.scale)
        made.restore(*self.snapshot())
        return made

    def snapshot(self) -> tuple[dict[str, float], dict[str, Vector]]:
        """Numbers and arrays, for a file."""
        numbers, arrays = self._kept.snapshot()
        told = {"period": self.period, "constants": bool(self.block), "gaps": bool(self.frame["gaps"])}
        return numbers | told, arrays

    def restore(self, numbers: dict[str, Any], arrays: dict[str, Any]) -> None:
        """What `snapshot` wrote down."""
        period = whole(numbers, "period")
        refuse(period > (self.dim if self.sparse else 0), "period")
        self.repeat(period, bool(numbers.get("constants")))
        self.frame["gaps"] = bool(numbers.get("gaps"))
        refuse(self.block and (period < 2 or self.dim % period or not self.intercept), "constants")
        kept, found = self._kept.read(numbers, arrays)
        refuse(not (kept["constant"] > 0.0 and (found["unit"] > 0.0).all()), "unit")
        refuse(not (found["weight"] > 0.0).all(), "weight")
        refuse(not (found["count"] >= 0.0).all(), "count")
        for name, largest in LARGEST.items():
            refuse(abs(kept[name]) > largest, name)
        partner = found.get("partner", np.zeros(1, np.int64))
        refuse(not ((partner >= 0) & (partner <= self.dim)).all(), "partner")
        refuse((found["count"][partner[partner > 0] - 1] == 0.0).any(), "partner")  # never seen: it takes nothing
        self._kept.fill(kept, found)
        self.frame["centres"] = np.count_nonzero(found["means"])
        if "known" in self._own.arrays:
            known = np.flatnonzero(found["count"])
            self._own.arrays["known"][: known.size] = known
            self.frame["known_count"] = self._sorted = known.size
