"""OLS and RLS: the exact solutions, O(d^2) a row."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.errors import ConditioningWarning, SettingsError
from driftls.history import History, Reservoir
from driftls.kernels import exact as kernels
from driftls.kernels import track
from driftls.kernels.exact import ExactState
from driftls.schedules import Power, ridge
from driftls.trackers.base import Tracker

METHODS = ("auto", "sherman-morrison", "cholesky", "inverse")
LARGEST_DIM = 30_000
SINGULAR = 1e-12  # of a matrix with a diagonal of 1: rounding errors alone could have made it


class RLS(Tracker):
    """Regularised least squares, exactly: theta-tilde_n = (A_n + n lambda_n I)^-1 b_n.

    Parameters
    ----------
    dim : int
        Number of features.
    regularisation : schedule
        lambda_n per row. `ridge(total)` keeps n lambda_n constant; a number is a constant lambda_n.
    discount : float
        Each row counts `discount` times as much when the next one comes; 1 forgets nothing.
    method : {"auto", "sherman-morrison", "cholesky", "inverse"}
        "sherman-morrison" keeps the inverse, O(d^2) a row, probes it, re-factorises when rounding has grown, and
        leaves for "cholesky" with a `ConditioningWarning` while the matrix is too ill-conditioned. "cholesky" solves
        when theta is asked for. "inverse" inverts after every row, the paper's slow baseline. "auto" takes the first
        where n lambda_n is constant and nothing is discounted, else the second. With a discount,
        "sherman-morrison" is classic recursive least squares, whose ridge fades with the rows.
    history : History, optional
        `Window(capacity)` forgets rows exactly as they leave it. None keeps no rows: sums are enough.

    Examples
    --------
    >>> tracker = RLS(dim=2, regularisation=ridge(1.0))
    >>> tracker.partial_fit([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0]).theta
    array([0.5, 0.8])
    """

    _state_class: ClassVar[type[NamedTuple]] = ExactState
    _draws_rows = False

    def __init__(
        self,
        dim: int,
        *,
        regularisation: Any = None,
        discount: float = 1.0,
        method: str = "auto",
        history: History | None = None,
    ) -> None:
        regularisation = ridge(1.0) if regularisation is None else regularisation
        super().__init__(dim, regularisation=regularisation, steps=0, history=history, seed=0, guard=False)
        if self.dim > LARGEST_DIM:
            raise SettingsError(
                f"an exact tracker keeps {self.dim} x {self.dim} numbers, {16 * self.dim**2 / 2**30:.0f} GB. "
                "Use SAGA or Diagonal, which keep O(d)."
            )
        if method not in METHODS:
            raise SettingsError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
        self.method = method
        self.discount = check_discount(discount, self.regularisation, history)
        if isinstance(history, Reservoir):
            raise SettingsError("an exact tracker sums over all rows and needs no reservoir. Drop history=.")
        constant = isinstance(self.regularisation, Power) and self.regularisation.exponent in (0.0, 1.0)
        constant = constant and self.total_ridge(1) == self.total_ridge(2)
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
        self._told = 0
        if method == "inverse" and self.total_ridge(1) == 0.0:
            raise SettingsError(
                "A_n cannot be inverted in the first rounds without a ridge. "
                "Pass regularisation=ridge(total) with a small total, or method='cholesky'."
            )

    def total_ridge(self, n: int) -> float:
        """n lambda_n."""
        return n * self.regularisation(n)  # type: ignore[operator]

    def _allocate(self, sparse: bool) -> ExactState:
        scalars = np.zeros(kernels.SCALARS)
        scalars[kernels.ROUTE] = self._first_route
        scalars[kernels.SCALE] = 1.0
        scalars[kernels.DISCOUNT] = self.discount
        scalars[kernels.FADING] = self._first_route == kernels.SHERMAN_MORRISON and self.discount < 1.0
        scalars[kernels.NEXT_TRY] = np.inf if self._first_route == kernels.SHERMAN_MORRISON else self.dim
        start = self.total_ridge(1)
        scalars[kernels.RIDGE] = start
        kept = self._first_route != kernels.SOLVE
        inverse = np.eye(self.dim) / start if kept and start > 0.0 else np.zeros((self.dim if kept else 0,) * 2)
        return ExactState(np.zeros((4, self.dim)), scalars, np.zeros((self.dim, self.dim)), inverse)

    @property
    def route(self) -> str:
        """How theta is found at present: "sherman-morrison", "cholesky" or "inverse"."""
        route = self._first_route if self._state is None else int(self._state.scalars[kernels.ROUTE])
        return {kernels.SHERMAN_MORRISON: "sherman-morrison", kernels.INVERT: "inverse"}.get(route, "cholesky")

    @property
    def refactorisations(self) -> int:
        """How often the inverse was made afresh: after rounding errors, and once a window has replaced its rows."""
        return 0 if self._state is None else int(self._state.scalars[kernels.REFACTORISED])

    def update(self, x: Any, y: float) -> None:
        before = self._left
        super().update(x, y)
        self._tell(before)

    def partial_fit(self, X: Any, y: Any) -> Self:
        before = self._left
        super().partial_fit(X, y)
        self._tell(before)
        return self

    @property
    def _left(self) -> int:
        """How often the fast route was left."""
        return 0 if self._state is None else int(self._state.scalars[kernels.LEFT])

    def _tell(self, before: int) -> None:
        if self._left > max(before, self._told):
            self._told = self._left
            warnings.warn(
                f"within {len(self)} rows the matrix became too ill-conditioned for Sherman-Morrison; theta is solved "
                "for from the Gram matrix until it can be inverted again. A larger ridge avoids this.",
                ConditioningWarning,
                stacklevel=3,
            )

    @property
    def theta(self) -> NDArray[np.float64]:
        self._solve()
        return super().theta

    def predict(self, X: Any) -> Any:
        self._solve()
        return super().predict(X)

    def _solve(self) -> None:
        """On the slow route, theta from the Gram matrix; the least-norm solution where it is singular."""
        if self._state is None or self.route != "cholesky" or self._solved_at == len(self):
            return
        matrix, moment = self._sums()
        self._state.coords[kernels.THETA] = solve(matrix, moment)
        self._solved_at = len(self)

    def _sums(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """A + ridge I and b."""
        scalars = self._state.scalars
        matrix = scalars[kernels.SCALE] * self._state.gram
        matrix[np.diag_indices(self.dim)] += scalars[kernels.RIDGE]
        return matrix, scalars[kernels.SCALE] * self._state.coords[kernels.MOMENT]

    @property
    def target(self) -> Tracker:
        return self

    @classmethod
    def of_rows(cls, X: Any, y: NDArray[np.float64], total_ridge: float) -> RLS:
        """The exact solution for all these rows at once, by products of blocks."""
        tracker = RLS(X.shape[1], regularisation=ridge(total_ridge), method="cholesky")
        tracker._absorb(X, y, total_ridge)
        return tracker

    def _absorb(self, X: Any, y: NDArray[np.float64], total_ridge: float) -> None:
        """A += X'X and b += X'y, a slice at a time."""
        if self._state is None:
            self._start(False)
        state = self._state
        for first in range(0, X.shape[0], 8192):
            piece, targets = X[first : first + 8192], y[first : first + 8192]
            if sp.issparse(piece):
                piece = piece.astype(np.float64)
                state.gram[...] += (piece.T @ piece).toarray()
            else:
                piece = np.asarray(piece, dtype=np.float64)
                state.gram[...] += piece.T @ piece
            state.coords[kernels.MOMENT] += piece.T @ targets
        state.scalars[kernels.RIDGE] = total_ridge
        state.scalars[kernels.SEEN] += X.shape[0]
        self._book[track.SEEN] += X.shape[0]
        self._solved_at = -1

    def _set_sums(self, A: NDArray[np.float64], b: NDArray[np.float64], total_ridge: float, n: int) -> None:
        """Stand where somebody else's sums say."""
        if self._state is None:
            self._start(False)
        state = self._state
        state.gram[...], state.coords[kernels.MOMENT] = A, b
        state.scalars[kernels.RIDGE], state.scalars[kernels.SEEN] = total_ridge, n
        self._book[track.SEEN] = n
        self._solved_at = -1
        if state.inverse.size and not kernels.refactorise(state):
            state.scalars[kernels.ROUTE] = kernels.WAITING

    def _extra_settings(self) -> dict[str, Any]:
        return {"discount": self.discount, "method": self.method}

    @classmethod
    def _from_settings(cls, settings: dict[str, Any], history: History | None) -> Self:
        for name in ("steps", "guard", "step_size"):
            settings.pop(name)
        return cls(**settings, history=history)


class OLS(RLS):
    """Ordinary least squares, exactly: theta-hat_n = A_n^-1 b_n, and the least-norm solution while A_n is singular.

    It goes over to Sherman-Morrison by itself once A_n can be inverted. See `RLS` for `method` and `history`.

    Examples
    --------
    >>> OLS(dim=2).partial_fit([[1.0, 1.0]], [2.0]).theta
    array([1., 1.])
    """

    def __init__(
        self, dim: int, *, discount: float = 1.0, method: str = "auto", history: History | None = None
    ) -> None:
        if method == "inverse":
            raise SettingsError(
                "A_n cannot be inverted in the first rounds of OLS. Use RLS(method='inverse') with a small ridge."
            )
        super().__init__(dim, regularisation=0.0, discount=discount, method=method, history=history)

    @classmethod
    def _from_settings(cls, settings: dict[str, Any], history: History | None) -> Self:
        settings.pop("regularisation")
        return super()._from_settings(settings, history)


def solve(matrix: NDArray[np.float64], moment: NDArray[np.float64]) -> NDArray[np.float64]:
    """matrix^-1 moment; the least-norm solution where the (positive semi-definite) matrix is singular.

    The diagonal is scaled to 1 first, so that the units of a feature do not decide whether it counts.
    """
    import scipy.linalg  # which takes as long to import as NumPy, and few need it

    diagonal = np.diag(matrix)
    units = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    scaled, moment = units[:, None] * matrix * units, units * moment
    try:
        factor = scipy.linalg.cho_factor(scaled, lower=True)
        if np.diag(factor[0]).min() ** 2 > SINGULAR:
            return np.asarray(units * scipy.linalg.cho_solve(factor, moment))
    except np.linalg.LinAlgError:
        pass
    values, vectors = np.linalg.eigh(scaled)
    rank = int(np.searchsorted(values, SINGULAR * values[-1], side="right"))  # values ascend: the first are null
    found = units * (vectors[:, rank:] @ ((vectors[:, rank:].T @ moment) / values[rank:]))
    null = scipy.linalg.qr(units[:, None] * vectors[:, :rank], mode="economic")[0]
    return np.asarray(found - null @ (null.T @ found))


def check_discount(discount: float, regularisation: Any, history: History | None) -> float:
    """A discount in (0, 1], together with what it can be combined with."""
    if not (isinstance(discount, int | float | np.number) and 0.0 < discount <= 1.0):
        raise SettingsError(f"discount must lie in (0, 1], got {discount!r}. 1 forgets nothing.")
    if discount < 1.0:
        constant = isinstance(regularisation, Power) and (
            regularisation.scale == 0.0 or (regularisation.exponent == 1.0 and regularisation.offset == 0.0)
        )
        if not constant:
            raise SettingsError("with a discount the total ridge is constant: pass regularisation=ridge(total).")
        if history is not None and history.evicts:
            raise SettingsError("a discount and a history that drops rows both forget. Choose one of them.")
    return float(discount)
