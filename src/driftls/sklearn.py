"""Trackers as a scikit-learn regressor: pipelines, grid searches and cross-validation take them as they are."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.errors import SettingsError, missing_extra
from driftls.inputs import as_whole, checked_csr
from driftls.schedules import ridge as total_ridge
from driftls.trackers import CD, GD, RAW, RLS, SAG, SAGA, SVRG, Diagonal, Tracker
from driftls.trackers.settings import flag

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise missing_extra("scikit-learn", "sklearn", "driftls.sklearn") from None

__all__ = ["DriftingLeastSquares"]

SOLVERS: dict[str, type[Tracker]] = {kind.__name__.lower(): kind for kind in (SAGA, SAG, SVRG, GD, CD, Diagonal, RLS)}
DRAWING = ("saga", "sag", "svrg", "gd")
STEPPING = (*DRAWING, "cd")


class DriftingLeastSquares(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Least squares on rows that keep coming: ||y - X theta||^2 + ridge ||theta||^2.

    `partial_fit` takes each row once, as a tracker does; `fit` starts anew and takes `passes` times as many steps a
    row, because there is no later row to make up for it. Scale the features (StandardScaler, or rows of norm 1) for
    "saga", "sag", "svrg" and "gd": a step size has to suit all of them.

    Parameters
    ----------
    solver : {"saga", "sag", "svrg", "gd", "cd", "diagonal", "rls"}
        The tracker, see `driftls.trackers`. "saga" costs O(nnz) a step; "cd" is closer and keeps d^2 numbers; "rls"
        is exact at O(d^2) a row; "diagonal" is cheapest, and right where features rarely overlap.
    ridge : float
        Total ridge, whatever the number of rows (`alpha` of sklearn.linear_model.Ridge). It applies to the intercept
        too, as the coefficient of a constant feature: where y lies far from 0, subtract its mean
        (TransformedTargetRegressor) or lower the ridge.
    passes : int
        `fit` takes so many times the tracker's own inner steps a row. A `partial_fit` that follows goes on at that pace.
    fit_intercept : bool
        Append a constant feature.
    random_state : int, RandomState or None
        Of the draws of "saga", "sag", "svrg" and "gd".

    Attributes
    ----------
    coef_, intercept_, n_features_in_, feature_names_in_
        As in scikit-learn.
    tracker_ : Tracker
        With the intercept as its last coefficient. Its `tracking_error()` tells how far the fit is from exact.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> model = DriftingLeastSquares(ridge=0.01, random_state=0).fit(X, X @ [1.0, -2.0] + 3.0)
    >>> model.coef_.round(2), round(model.intercept_, 2)
    (array([ 1., -2.]), 3.0)
    """

    tracker_: Tracker

    def __init__(
        self,
        solver: str = "saga",
        *,
        ridge: float = 1.0,
        passes: int = 8,
        fit_intercept: bool = True,
        random_state: Any = None,
    ) -> None:
        self.solver = solver
        self.ridge = ridge
        self.passes = passes
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Forget everything and learn these rows well."""
        passes = as_whole(self.passes, "passes")
        X, y = self._validated(X, y, first=True)
        self.tracker_ = self._tracker(X.shape[1], passes).partial_fit(X, y)
        return self

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn these rows too. Parameters that were changed since the first rows wait for the next `fit`."""
        first = not hasattr(self, "tracker_")
        X, y = self._validated(X, y, first=first)
        self.tracker_ = (self._tracker(X.shape[1], 1) if first else self.tracker_).partial_fit(X, y)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """X theta, and the intercept."""
        check_is_fitted(self, "tracker_")
        X = validate_data(self, checked_csr(X), accept_sparse="csr", dtype=np.float64, reset=False)
        theta, width = self.tracker_.theta, X.shape[1]
        return np.asarray(X @ theta[:width] + theta[width:].sum())

    @property
    def coef_(self) -> NDArray[np.float64]:
        """One coefficient a feature."""
        return self.tracker_.theta[: self.n_features_in_]

    @property
    def intercept_(self) -> float:
        """What is predicted for a row of zeros; 0 without an intercept."""
        return float(self.tracker_.theta[self.n_features_in_ :].sum())

    def _validated(self, X: Any, y: Any, *, first: bool) -> tuple[Any, NDArray[np.float64]]:
        """What a tracker takes: float64, sparse indices in order, the constant appended; the caller's X stays as is."""
        settings: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float64, "y_numeric": True, "reset": first}
        X, y = validate_data(self, checked_csr(X), y, **settings)
        constant = flag(self.fit_intercept, "fit_intercept") if first else self.tracker_.dim > X.shape[1]
        if sp.issparse(X) and not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        if constant:
            ones = np.ones((X.shape[0], 1))
            X = sp.hstack([X, ones], format="csr") if sp.issparse(X) else np.hstack([X, ones])
        return X, y

    def _tracker(self, dim: int, passes: int) -> Tracker:
        """A new tracker with these settings."""
        solver = self.solver
        if not isinstance(solver, str) or solver not in SOLVERS:
            raise SettingsError(f"solver must be one of {', '.join(SOLVERS)}, got {solver!r}.")
        if not (isinstance(self.ridge, int | float | np.number) and 0.0 <= self.ridge < np.inf):
            raise SettingsError(f"ridge must be a number of at least 0, got {self.ridge!r}.")
        # the ridge is scikit-learn's: of the features as they are
        settings: dict[str, Any] = {"regularisation": total_ridge(float(self.ridge)), **RAW}
        if solver in DRAWING:
            settings["seed"] = int(check_random_state(self.random_state).randint(2**31 - 1))
        tracker = SOLVERS[solver](dim, **settings)
        return SOLVERS[solver](dim, **settings | {"steps": passes * tracker.steps}) if solver in STEPPING else tracker

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
