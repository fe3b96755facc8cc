"""gamma_n and lambda_n: sequences that are fixed in advance.

Wherever a schedule is expected, a number (a constant) and any function of n are accepted too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import SettingsError
from driftls.kernels.learn import NORMALISED, POWER, TABLE

__all__ = ["Normalised", "Power", "Schedule", "Tabulated", "admissible_c", "as_schedule", "check_admissible", "ridge"]


def _number(value: Any) -> float:
    """A setting that is a number at least 0; NaN for what is none."""
    try:
        number = nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = nan
    return number if isfinite(number) and number >= 0.0 else nan


def admissible_c(mu: float) -> tuple[float, float]:
    """The open interval of c for which mu c/4 lies in (2/3, 1).   [Theorem 1]

    >>> [round(c, 2) for c in admissible_c(0.5)]
    [5.33, 8.0]
    """
    number = _number(mu)
    if not number > 0.0:
        raise SettingsError(f"mu must be positive and finite, got {mu!r}.")
    return 8.0 / (3.0 * number), 4.0 / number


def check_admissible(mu: float, c: float) -> None:
    """Raise a SettingsError that names the interval for c, unless Theorem 1 covers this mu and c."""
    low, high = admissible_c(mu)
    if not low < _number(c) < high:
        raise SettingsError(
            f"mu*c/4 is {float(mu) * _number(c) / 4.0:.4g}; Theorem 1 asks for 2/3 < mu*c/4 < 1. "
            f"With mu = {float(mu):g} choose c strictly between {low:.4g} and {high:.4g}."
        )


@dataclass(frozen=True)
class Power:
    """scale / (offset + n)^exponent, for n = 1, 2, ...

    It covers every sequence of the paper: c/(4(c+n)) is `Power(c/4, c, 1)`, 1/(100+n) is `Power(1, 100, 1)`,
    n^-(1-alpha) is `Power(1, 0, 1-alpha)`, and a constant v is `Power(v)`.

    >>> Power(1, 100, 1)(25)
    0.008
    """

    scale: float
    offset: float = 0.0
    exponent: float = 0.0

    def __post_init__(self) -> None:
        for name in ("scale", "offset", "exponent"):
            value = getattr(self, name)
            if isnan(number := _number(value)):
                raise SettingsError(
                    f"Power's {name} must be a finite number of at least 0, got {value!r}. "
                    "A sequence that should shrink has a positive exponent: it divides."
                )
            object.__setattr__(self, name, number)

    def __call__(self, n: float) -> float:
        try:
            return float(self.scale / (self.offset + n) ** self.exponent)
        except OverflowError:  # of the power: a step that is as good as 0
            return 0.0

    def __repr__(self) -> str:
        if self.offset == 0.0 and self.exponent in (0.0, 1.0):
            return f"ridge({self.scale!r})" if self.exponent else repr(self.scale)
        return f"Power({self.scale!r}, {self.offset!r}, {self.exponent!r})"

    @classmethod
    def theorem_one(cls, mu: float, c: float | None = None) -> Power:
        """Theorem 1's step c/(4(c+n)) from the strong convexity mu; c defaults to 3/mu, where mu c/4 is 3/4.

        >>> Power.theorem_one(mu=0.5)
        Power(1.5, 6.0, 1.0)
        """
        admissible_c(mu)
        c = 3.0 / float(mu) if c is None else c
        check_admissible(mu, c)
        return cls(float(c) / 4.0, c, 1.0)


@dataclass(frozen=True)
class Normalised:
    """A step of scale / max ||x||^2 over the rows seen so far: right for rows of any size, without a knob.

    It is held at 1/(2 lambda_n), so that the first, heavily regularised rounds do not overshoot.
    """

    scale: float

    def __post_init__(self) -> None:
        if not (isinstance(self.scale, int | float | np.number) and 0.0 < self.scale < 2.0):
            raise SettingsError(
                f"Normalised needs a scale in (0, 2), got {self.scale!r}. A step of 2/||x||^2 or more diverges."
            )


class Tabulated:
    """Any function of n, evaluated ahead of the kernels and kept in a table."""

    def __init__(self, function: Callable[[int], float], name: str = "schedule") -> None:
        self.function, self.name = function, name
        self.table: NDArray[np.float64] = np.empty(0)

    def __call__(self, n: float) -> float:
        return float(self.reach(int(n))[int(n) - 1])

    def reach(self, n: int) -> NDArray[np.float64]:
        """The values for 1 ... at least n."""
        known = self.table.size
        if n > known:
            upto = max(n, known + 1024, known + known // 8)  # by a factor: what is copied stays in proportion
            given = [self.function(k) for k in range(known + 1, upto + 1)]
            values = np.array([_number(value) for value in given])
            if (wrong := np.flatnonzero(np.isnan(values))).size:
                at = int(wrong[0])
                raise SettingsError(
                    f"{self.name} must give a finite number of at least 0 for every n from 1, got {given[at]!r} at "
                    f"n = {known + 1 + at}."
                )
            self.table = np.concatenate([self.table, values])
        return self.table


Schedule = Power | Normalised | Tabulated


def ridge(total: float) -> Power:
    """A constant total ridge: lambda_n = total/n, so that n lambda_n never changes.

    >>> ridge(3.0)(10)
    0.3
    """
    return Power(total, 0.0, 1.0)


def as_schedule(value: Any, name: str) -> Schedule:
    """A schedule from whatever the caller gave: a schedule, a number, or a function of n."""
    if isinstance(value, Power | Normalised | Tabulated):
        return value
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        return Power(float(value))
    if callable(value):
        return Tabulated(value, name)
    raise SettingsError(f"{name} must be a number, a Power or a function of n, got {value!r}.")


def fields(schedule: Schedule, name: str) -> dict[str, float]:
    """What a kernel reads of a schedule, as fields of a tracker's record."""
    kind, numbers = TABLE, [0.0, 0.0, 0.0]
    if isinstance(schedule, Power):
        kind, numbers = POWER, [schedule.scale, schedule.offset, schedule.exponent]
    elif isinstance(schedule, Normalised):
        kind, numbers[0] = NORMALISED, schedule.scale
    return {f"{name}_kind": kind, **dict(zip((f"{name}_{part}" for part in ("scale", "offset", "exponent")), numbers))}


def to_header(schedule: Schedule) -> list[Any] | None:
    """What a file keeps of a schedule: its kind and numbers; a function cannot be kept."""
    if isinstance(schedule, Power):
        return ["power", schedule.scale, schedule.offset, schedule.exponent]
    return ["normalised", schedule.scale] if isinstance(schedule, Normalised) else None


def from_header(kept: list[Any]) -> Schedule:
    """The schedule that `to_header` wrote down."""
    kind, *numbers = kept
    return Power(*numbers) if kind == "power" else Normalised(*numbers)
