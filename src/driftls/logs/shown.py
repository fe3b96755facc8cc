"""How a log's candidates were shown: uniformly, by propensities that fit what was shown, or neither."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from driftls.logs.events import Block, Floats, Ints, Numbers

__all__ = ["Logging", "Showing", "Uniformity"]

LEAST_EXPECTED = 5.0  # counts below are too small for the chi-square approximation
LEAST_SHOWN = 30  # times that an arm was shown, below which 1/p is not summed up to a normal variable
DOUBT = 1e-3  # p-values below speak against what is claimed


class Uniformity(msgspec.Struct, frozen=True):
    """A test; a small `p` speaks against it. None where too little was seen."""

    statistic: float | None
    degrees: float
    p: float | None


class Logging(msgspec.Struct, frozen=True, kw_only=True):
    """How the log's policy showed candidates, as far as the log tells.

    `kind` is "uniform"; "propensities", not uniform but known; "skewed", not uniform and not known; or "unknown", for
    too few lines. `reason` says why in words, `doubt` (or nothing) what speaks against the log's own propensities.
    `propensity_fit` compares the largest standardised sum of 1/p - 1 of an arm with that of so many normal variables.
    """

    kind: str
    reason: str
    doubt: str
    uniform_positions: Uniformity
    uniform_arms: Uniformity
    propensity_fit: Uniformity | None
    smallest_propensity: float | None


class Showing:
    """What was shown, counted block by block."""

    def __init__(self) -> None:
        self.numbers, self.positions, self.arms = Numbers(), _Cells(), _Cells()
        self.lines = self.with_propensity = 0
        self.smallest, self.off = np.inf, 0.0  # the smallest propensity; the largest |p K - 1|
        self.inverse, self.spread = np.zeros((2, 0))  # by arm: sums of 1/p and of 1/p^2 - 1/p where it was shown

    def add(self, block: Block) -> None:
        """Count the lines of a block."""
        if not len(block):
            return
        size, self.lines = np.diff(block.pool_start), self.lines + len(block)
        lines = np.bincount(block.pool, minlength=len(size))
        pool = np.repeat(np.arange(len(size)), size)
        position = np.arange(len(pool)) - block.pool_start[pool]
        self.positions.add(position, lines[pool], size[pool], block.shown)
        arm = self.numbers(block.pool_ids)
        shown = arm[block.pool_start[block.pool] + block.shown]
        self.arms.add(arm, lines[pool], size[pool], shown)
        if block.propensity is None:
            return
        p, room = block.propensity, len(self.arms.shown)
        self.with_propensity += len(block)
        self.smallest = min(self.smallest, float(p.min()))
        self.off = max(self.off, float(np.abs(p * size[block.pool] - 1.0).max()))
        self.inverse = _padded(self.inverse, room) + np.bincount(shown, 1.0 / p, room)
        self.spread = _padded(self.spread, room) + np.bincount(shown, (1.0 / p - 1.0) / p, room)

    def shown_arms(self) -> Ints:
        """The ids of the arms that were shown at least once."""
        return np.array(list(self.numbers.of), np.int64)[self.arms.shown > 0]

    def logging(self) -> Logging:
        """What can be said of it."""
        positions, arms = self.positions.test(), self.arms.test()
        known = self.with_propensity == self.lines > 0
        fit = self._fit() if known else None
        kind, reason = self._kind(positions, arms, known)
        doubt = ""
        if fit is not None and fit.p is not None and fit.p < DOUBT:
            doubt = f"the log's propensities do not fit how often arms were shown (p = {fit.p:.2g})"
        return Logging(
            kind=kind,
            reason=reason,
            doubt=doubt,
            uniform_positions=positions,
            uniform_arms=arms,
            propensity_fit=fit,
            smallest_propensity=self.smallest if known else None,
        )

    def _kind(self, positions: Uniformity, arms: Uniformity, known: bool) -> tuple[str, str]:
        if known and self.off < 1e-6:
            return "uniform", "its propensities are 1/K"
        if known:
            return "propensities", f"its propensities differ from 1/K, and go down to {self.smallest:.3g}"
        found = [test.p for test in (positions, arms) if test.p is not None]
        if not found:
            return "unknown", "it has no propensities, and too few lines to test whether it showed uniformly"
        if min(found) < DOUBT:
            return "skewed", f"it has no propensities, and did not show uniformly (p = {min(found):.2g})"
        return "uniform", f"nothing speaks against uniform showing (p = {min(found):.2g})"

    def _fit(self) -> Uniformity:
        """Whether 1/p, summed over the lines that show an arm, is about the number of lines that offer it.

        Each line that offers an arm adds 1/p if it shows it, else 0: 1 on average, with variance 1/p - 1, of which the
        spread is an unbiased estimate.
        """
        from scipy.special import ndtr

        enough = (self.arms.shown >= LEAST_SHOWN) & (self.spread > 0.0)
        if not enough.any():
            return Uniformity(None, 0.0, None)
        off = (self.inverse - self.arms.offered)[enough] / np.sqrt(self.spread[enough])
        largest, cells = float(np.abs(off).max()), int(enough.sum())
        return Uniformity(largest, float(cells), float(min(1.0, 2.0 * cells * ndtr(-largest))))


class _Cells:
    """How often each cell was shown and offered, and the sums of 1/K and 1/K^2 over the lines that offered it"""

    def __init__(self) -> None:
        self.shown, self.offered, self.expected, self.squares = np.zeros((4, 0))

    def add(self, cell: Ints, lines: Ints, size: Ints, shown: NDArray[Any]) -> None:
        """`lines` lines offered `cell` in a pool of `size`, entry by entry; then the cells shown"""
        room = max(len(self.shown), 1 + int(cell.max(initial=-1)))
        share = 1.0 / size
        self.shown = _padded(self.shown, room) + np.bincount(shown, minlength=room)
        self.offered = _padded(self.offered, room) + np.bincount(cell, lines, room)
        self.expected = _padded(self.expected, room) + np.bincount(cell, lines * share, room)
        self.squares = _padded(self.squares, room) + np.bincount(cell, lines * share**2, room)

    def test(self) -> Uniformity:
        """A chi-square test of uniform showing"""
        from scipy.special import chdtrc

        enough = self.expected >= LEAST_EXPECTED
        shown, expected, squares = self.shown[enough], self.expected[enough], self.squares[enough]
        # A cell's count has variance sum (1/K)(1 - 1/K): these are the means of the statistic's terms.
        degrees = float(np.sum(1.0 - squares / expected))
        if degrees <= 0:
            return Uniformity(None, 0.0, None)
        statistic = float(np.sum((shown - expected) ** 2 / expected))
        return Uniformity(statistic, degrees, float(chdtrc(degrees, statistic)))


def _padded(values: Floats, length: int) -> Floats:
    return np.concatenate([values, np.zeros(length - len(values))])
