"""OLS and RLS: the exact solutions, O(d^2) a row."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from driftls.compiling.parts import Part
from driftls.errors import ConditioningWarning, CorruptFileError, SettingsError
from driftls.kernels import exact as kernels
from driftls.schedules import ridge
from driftls.state import Shape, product
from driftls.trackers.base import Tracker
from driftls.trackers.machine import COMMON
from driftls.trackers.settings import RAW, Common
from driftls.trackers.sums import SummingTracker, gram_of, solve, total_is_constant
from driftls.units import Change

METHODS = ("auto", "sherman-morrison", "cholesky", "inverse")
LARGEST_DIM = 30_000
SMALLEST_PIVOT = 1e-8  # relative to the diagonal entry: below it, half of all digits are gone
NEVER = 1e300
MOST_DIGITS = 15  # that can be added to a diagonal of 1 for want of a pivot


class RLS(SummingTracker):
    """Regularised least squares, exactly: theta-tilde_n = (A_n + n lambda_n I)^-1 b_n.

    Parameters
    ----------
    discount : float
        Each row counts `discount` times as much when the next one comes; 1 forgets nothing.
    method : {"auto", "sherman-morrison", "cholesky", "inverse"}
        "sherman-morrison" keeps the inverse, O(d^2) a row, probes it, re-factorises when rounding has grown, and
        leaves for "cholesky" with a `ConditioningWarning` while the matrix is too ill-conditioned. "cholesky" solves
        when theta is asked for. "inverse" inverts after every row, the paper's slow baseline. "auto" takes the first
        where n lambda_n is constant and nothing is discounted, else the second. With a discount,
        "sherman-morrison" is classic recursive least squares, whose ridge fades with the rows.
    dim, **settings
        As for every `Tracker`: regularisation, history, scale, intercept. A `Window(capacity)` forgets rows exactly as they
        leave it; without a history no rows are kept: sums are enough.

    Examples
    --------
    >>> tracker = RLS(dim=2, regularisation=ridge(1.0), scale=False, intercept=False)
    >>> tracker.partial_fit([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0]).theta
    array([0.5, 0.8])
    """

    parts: ClassVar[dict[str, Part]] = {"enter": kernels.exact_enter, "forget": kernels.exact_forget}
    quantities = 1
    numbers = ("route", "scale", "ridge_now", "entered", "next_try", "refactorised", "forgotten", "left")
    watched = False  # it is the solution, which need not be ready after every row
    takes: ClassVar[tuple[str, ...]] = (*COMMON, "discount", "method")

    def __init__(self, dim: int, *, discount: float = 1.0, method: str = "auto", **settings: Unpack[Common]) -> None:
        super().__init__(dim, 0, discount, **settings)
        check_size(self.dim)
        if not isinstance(method, str) or method not in METHODS:
            raise SettingsError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
        self.method = method
        constant = total_is_constant(self.regularisation)
        if method == "sherman-morrison" and not constant:
            raise SettingsError(
                "sherman-morrison needs n lambda_n to be constant, or every row changes the whole diagonal. "
                "Pass regularisation=ridge(total), or method='cholesky'."
            )
        if method == "auto":
            method = "sherman-morrison" if constant and self.discount == 1.0 else "cholesky"
        self._first_route = {
            "cholesky": kernels.SOLVE,
            "inverse": kernels.INVERT,
            "sherman-morrison": kernels.SHERMAN_MORRISON if self.total_ridge(1) > 0.0 else kernels.WAITING,
        }[method]
        self._solved_at = -1
        if method == "inverse" and self.total_ridge(1) == 0.0:
            raise SettingsError(
                "A_n cannot be inverted in the first rounds without a ridge. "
                "Pass regularisation=ridge(total) with a small total, or method='cholesky'."
            )

    def total_ridge(self, n: int) -> float:
        """n lambda_n."""
        return n * self.regularisation(n)  # type: ignore[operator]

    @property
    def shapes(self) -> dict[str, Shape]:  # type: ignore[override]
        inverse = ("none" if self._first_route == kernels.SOLVE else "dim",) * 2
        return {**dict.fromkeys(("moment", "gain", "scratch"), ("dim",)), "gram": ("dim", "dim"), "inverse": inverse}

    def _begin(self) -> None:
        fading = self.discount < 1.0 and self.method == "sherman-morrison"
        self.frame.set(route=self._first_route, scale=1.0, discount=self.discount, fading=fading, next_try=NEVER)
        self.frame["ridge_now"] = total = self.total_ridge(1)
        if self._first_route == kernels.SHERMAN_MORRISON:
            np.fill_diagonal(self._state["inverse"], 1.0 / total)
        elif self._first_route == kernels.WAITING:
            self.frame["next_try"] = self.inner

    @property
    def route(self) -> str:
        """How theta is found at present: "sherman-morrison", "cholesky" or "inverse"."""
        route = self._first_route if self.sparse is None else self.frame["route"]
        return {kernels.SHERMAN_MORRISON: "sherman-morrison", kernels.INVERT: "inverse"}.get(route, "cholesky")

    @property
    def refactorisations(self) -> int:
        """How often the inverse was made afresh: after rounding errors, and once a window has replaced its rows."""
        return int(self.frame["refactorised"])

    def keep_ready(self) -> None:
        """From now on theta, and the inverse where there is one, are ready after every row: a policy needs them."""
        with self.lock:
            self.frame["eager"] = 1
            self._make_ready()

    def _make_ready(self) -> None:
        if self.frame["route"] == kernels.WAITING and self.frame["left"] and self.frame["ridge_now"] > 0.0:
            self.frame["route"] = kernels.INVERT  # Sherman-Morrison had to be given up: invert after every row
            self._invert()
        self.refresh()

    def attend(self) -> None:
        """Sums afresh, and the inverse: re-factorise, or leave the fast route until the matrix can be inverted."""
        frame, asked = self.frame, self.frame["asked"]
        frame["asked"] = 0
        if asked & kernels.SUM_UP:
            self._state["gram"][...], self._state["moment"][:] = self._held_sums()
        if asked & kernels.INVERSE:
            self._invert()
        elif asked & kernels.REPAIR:
            frame["refactorised"] += 1
            if not self._refactorise(or_leave=True):
                warnings.warn(
                    f"within {len(self)} rows the matrix became too ill-conditioned for Sherman-Morrison; theta is solved "
                    "for from the Gram matrix until it can be inverted again. A larger ridge avoids this.",
                    ConditioningWarning,
                    stacklevel=4,
                )
        elif asked & kernels.TRY:
            frame["next_try"] = frame["entered"] + self.inner  # O(d^3) every d rows is O(d^2) a row
            self._refactorise()
        if frame["eager"]:
            self._make_ready()

    def inverse(self) -> NDArray[np.float64]:
        """(A + ridge I)^-1, a copy."""
        with self.lock:
            return self._state["inverse"].copy()

    def explained(self) -> float:
        """b . theta: how much of the sum of squared rewards the model accounts for; of all, if a window's rows are typical."""
        with self.lock:
            share = len(self) / max(len(self.history), 1) if self.history.evicts else 1.0
            return float(share * self.frame["scale"] * product(self._state["moment"], self._state["coords"][0]))

    def inverse_entry(self, j: int) -> float:
        """Entry j of the diagonal of (A + ridge I)^-1."""
        with self.lock:
            return float(self._state["inverse"][j, j])

    def freedoms(self) -> NDArray[np.float64]:
        """Effective degrees of freedom of each feature that was seen, 1 - ridge M_jj, where M = (A + ridge I)^-1."""
        with self.lock:
            at = slice(None) if self.units is None else self.units.known
            free: NDArray[np.float64] = 1.0 - self.frame["ridge_now"] * np.diag(self._state["inverse"])[: self.dim][at]
            return np.clip(free, 0.0, 1.0)

    def set_ridge(self, schedule: Any, *, rewrite: bool = True) -> None:
        super().set_ridge(schedule)
        with self.lock:
            self.frame["ridge_now"] = self.total_ridge(1)
            if self._state.get("inverse", np.empty(0)).size and rewrite:
                self._invert()

    def _refactorise(self, *, or_leave: bool = False) -> bool:
        """inverse = A^-1 and theta = A^-1 b afresh, if A can be inverted without losing half of all digits."""
        frame = self.frame
        smallest = (frame["scale"] * np.diag(self._state["gram"]) + frame["ridge_now"]).min()
        if smallest > kernels.SMALLEST_ENTRY and self._invert(SMALLEST_PIVOT):
            # and again when A is better: what it lost now would otherwise stay
            after = 2.0 * frame["entered"] if frame["entered"] else NEVER
            frame.set(route=kernels.SHERMAN_MORRISON, next_try=after)
            return True
        if or_leave:
            frame.set(route=kernels.WAITING, left=frame["left"] + 1, next_try=frame["entered"] + self.inner)
        return False

    def _invert(self, least: float = 0.0) -> bool:
        """inverse = A^-1 and theta = A^-1 b, unless what is left of a feature given all others is below `least` of it."""
        frame, digits = self.frame, 0
        while not (grown := kernels.invert(frame, digits, 0)) and not least and digits < MOST_DIGITS:
            digits += 1
        frame["version"] += 1
        if least and not 0.0 < grown * least < 1.0:
            self._state["inverse"][...] = 0.0
            return False
        return True

    def refresh(self) -> None:
        """On the slow route, theta from the Gram matrix; the least-norm solution where it is singular."""
        if self.sparse is not None and self.route == "cholesky" and self._solved_at != len(self):
            self._state["coords"][0] = solve(*self.sums())
            self._solved_at = len(self)

    def change_units(self, change: Change) -> None:
        with self.lock:
            state, frame = self._state, self.frame
            if not frame["entered"] and frame["route"] == kernels.SHERMAN_MORRISON:  # no row yet: the ridge alone
                np.fill_diagonal(state["inverse"], 1.0 / frame["ridge_now"])
                frame["version"] += 1
                return
            for name in ("gram", "moment"):
                state[name] *= frame["scale"]
            change.sums(state["gram"], state["moment"])
            frame.set(scale=1.0, asked=0)
            self.history.change_units(change)
            self._solved_at = -1
            if frame["route"] == kernels.SHERMAN_MORRISON:
                self._refactorise(or_leave=True)
            elif frame["route"] == kernels.INVERT:
                self._invert()
            if frame["eager"]:
                self._make_ready()

    def grow(self, dim: int) -> None:
        with self.lock:
            check_size(dim)
            before, frame = self.dim, self.frame
            super().grow(dim)
            if self.sparse is None or not self._state["inverse"].size:
                return
            if frame["ridge_now"] > 0.0:
                np.fill_diagonal(self._state["inverse"][before:dim, before:dim], 1.0 / frame["ridge_now"])
            else:  # without a ridge, features that were never seen leave A singular
                frame.set(route=kernels.WAITING, next_try=frame["entered"] + self.inner)

    def sums(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """A + ridge I and b, of all rows."""
        with self.lock:
            matrix = self.frame["scale"] * self._state["gram"]
            matrix[np.diag_indices(self.inner)] += self.frame["ridge_now"]
            return matrix, self.frame["scale"] * self._state["moment"]

    def _restored(self) -> None:
        routes = (kernels.WAITING, kernels.SHERMAN_MORRISON, kernels.INVERT)
        if self.frame["route"] not in (routes if self._state["inverse"].size else (kernels.SOLVE,)):
            raise CorruptFileError(f"route {self.frame['route']} does not fit method={self.method!r}.")

    @property
    def target(self) -> Tracker:
        return self

    def add_rows(self, X: Any, y: NDArray[np.float64], total_ridge: float) -> None:
        """A += X'X and b += X'y, a slice at a time."""
        A, b = np.zeros((self.inner, self.inner)), np.zeros(self.inner)
        for first in range(0, X.shape[0], 8192):
            piece, targets = X[first : first + 8192].astype(np.float64), y[first : first + 8192]
            A += gram_of(piece)
            b += piece.T @ targets
        if self.sparse is not None:
            A, b = A + self._state["gram"], b + self._state["moment"]
        self.set_sums(A, b, total_ridge, len(self) + X.shape[0])

    def set_sums(self, A: NDArray[np.float64], b: NDArray[np.float64], total_ridge: float, n: int) -> None:
        """Stand where these sums over n rows say: A = sum x x' and b = sum y x."""
        with self.lock:
            self._stand_after(n, total_ridge)
            self._state["gram"][...], self._state["moment"][:] = A, b
            self.frame["entered"], self._solved_at = n, -1
            if self._state["inverse"].size and not self._refactorise():
                self.frame["route"] = kernels.WAITING


class OLS(RLS):
    """Ordinary least squares, exactly: theta-hat_n = A_n^-1 b_n, and the least-norm solution while A_n is singular.

    It goes over to Sherman-Morrison by itself once A_n can be inverted. See `RLS` for `method` and `history`.

    Examples
    --------
    >>> OLS(dim=2, intercept=False).partial_fit([[1.0, 1.0]], [2.0]).theta
    array([1., 1.])
    """

    takes = ("scale", "intercept", "discount", "method")

    def __init__(self, dim: int, *, method: str = "auto", scale: bool = False, **settings: Any) -> None:
        if isinstance(method, str) and method == "inverse":
            raise SettingsError(
                "A_n cannot be inverted in the first rounds of OLS. Use RLS(method='inverse') with a small ridge."
            )
        # without a ridge, units matter to the solution of least norm alone
        super().__init__(dim, regularisation=0.0, method=method, scale=scale, **settings)


def check_size(dim: int) -> None:
    """Refuse matrices that no memory holds."""
    if isinstance(dim, int) and dim > LARGEST_DIM:
        raise SettingsError(
            f"an exact tracker keeps {dim} x {dim} numbers, {16 * dim**2 / 2**30:.0f} GB. "
            "Use SAGA or Diagonal, which keep O(d)."
        )


def plain(dim: int, regularisation: Any) -> RLS:
    """RLS in the units of its rows, which may have a constant among them already: the target of other trackers."""
    return RLS(dim, regularisation=regularisation, method="cholesky", **RAW)


def of_rows(X: Any, y: NDArray[np.float64], total_ridge: float) -> RLS:
    """The exact solution for all these rows at once, by products of blocks."""
    tracker = plain(X.shape[1], ridge(total_ridge))
    tracker.add_rows(X, y, total_ridge)
    return tracker
