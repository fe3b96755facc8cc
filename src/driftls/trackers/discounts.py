"""AutoDiscount: how fast to forget, found from the data."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from driftls.draws import Seed
from driftls.errors import CorruptFileError, SettingsError
from driftls.history import History
from driftls.inputs import Rows, as_number, as_numbers, as_rows, as_whole, is_pair
from driftls.persistence import Saveable, checked, group
from driftls.trackers.base import TrackingError
from driftls.trackers.cd import CD
from driftls.trackers.diagonal import Diagonal
from driftls.trackers.health import Health
from driftls.trackers.settings import RAW
from driftls.units import Units

MEMORIES = (64, 16, 4)  # rows that are remembered, for each coefficient; and one tracker that forgets nothing
RECENT = 100  # rows over which the noise is measured
STEPS = 8  # twice those of CD: it has a solution to follow that moves
Positive = Annotated[float, Meta(ge=0.0, le=1e300)]


class AutoDiscount(Saveable):
    """Least squares that finds from the data how fast to forget: a stream that stays, drifts or jumps needs no setting.

    Trackers with several discounts follow the rows side by side. The prediction is their mean, weighted by how well each
    predicted rows before it learned them; a little weight is always given back to all of them, so that a rate that was
    wrong can become right. A row costs as much as one of `CD` for each discount.

    Parameters
    ----------
    dim : int
        Number of features.
    discounts : sequence of float, optional
        By default 1 and those that remember 64, 16 and 4 rows for each coefficient.
    **settings
        As for `CD`: steps, regularisation, scale, intercept.

    A policy cannot use it: what a policy scores with is one model, in compiled code. Read `discount` after a stream or a log
    of rewards, and give it to the policy's `RLS`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, tracker = rng.normal(size=(900, 2)), AutoDiscount(2)
    >>> tracker.partial_fit(X[:300], X[:300] @ [1.0, 2.0] + 0.1 * rng.normal(size=300)).discount
    1.0
    >>> tracker.partial_fit(X[300:], X[300:] @ [-2.0, 1.0] + 0.1 * rng.normal(size=600)).discount < 1.0
    True
    >>> tracker.theta.round(1)
    array([-2.,  1.])
    """

    draws_rows: ClassVar[bool] = False

    def __init__(self, dim: int, *, discounts: Any = None, **settings: Any) -> None:
        dim = as_whole(dim, "dim", 1)
        if wrong := settings.keys() & {"discount", "history", "seed"}:
            raise SettingsError(
                f"AutoDiscount has no setting {min(wrong)!r}: it has several discounts, keeps no rows and draws nothing."
            )
        if discounts is None:
            discounts = [1.0, *(1.0 - 1.0 / (rows * (dim + 1)) for rows in MEMORIES)]
        if not isinstance(discounts, list | tuple | np.ndarray) or len(discounts) < 2:
            raise SettingsError(f"discounts must be at least two numbers in (0, 1], got {discounts!r}.")
        self._stand([CD(dim, discount=discount, **{"steps": STEPS, **settings}) for discount in discounts])

    def _stand(self, trackers: list[CD], weights: list[float] | None = None, noise: float = 0.0) -> Self:
        self.trackers, self.dim, self.noise, self.lock = trackers, trackers[0].dim, noise, threading.RLock()
        self.weights = [1.0 / len(trackers)] * len(trackers) if weights is None else weights
        return self

    # -- learning ------------------------------------------------------------------------------------------------

    def update(self, x: Any, y: float) -> None:
        """Take one row: a dense vector, a sparse row, or (indices, values). Equal to `partial_fit` of a block of one."""
        with self.lock:
            y = as_number(y, "y")
            told = [tracker.predict(x) for tracker in self.trackers]
            for tracker in self.trackers:  # what one of them refuses the first one refuses
                tracker.update(x, y)
            self._weigh([one if isinstance(one, float) else float(one[0]) for one in told], y)

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Take a block of rows: an array or a sparse matrix. Equal, to the bit, to taking them one by one."""
        with self.lock:
            Diagonal(self.dim, **RAW).partial_fit(X, y)  # refuses what cannot be learned, before anything is changed
            rows: Any = as_rows(list(X) if is_pair(X) else X, self.dim)
            if isinstance(rows, Rows):
                rows = [(rows.indices[i:j], rows.values[i:j]) for i, j in pairwise(rows.start.tolist())]
            else:
                rows = np.ascontiguousarray(rows, dtype=np.float64)
            for row, target in zip(rows, as_numbers(y, "y must be a vector").tolist()):
                self.update(row, target)
        return self

    def _weigh(self, told: list[float], y: float) -> None:
        """w_k <- w_k (1 + e_k^2/(4 s^2))^(-5/2), s the noise; then a share of 1/(n + 10) of all is dealt out anew."""
        n, count = len(self), len(self.trackers)
        error, *errors = [(y - one) * (y - one) for one in (self._mean(told), *told)]  # pow() is no product, to the bit
        if self.noise > 0.0:
            least = 4.0 * self.noise + min(errors)
            kept = [w * (least / (4.0 * self.noise + e)) ** 2.5 for w, e in zip(self.weights, errors)]
            share, total = 1.0 / (n + 10.0), sum(kept)
            self.weights = [(1.0 - share) * w / total + share / count for w in kept]
        if n > 1:  # errors of a model that knew nothing soon leave
            self.noise += max(4.0 / (n + 2.0), 1.0 / RECENT) * (error - self.noise)

    # -- reading -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Rows seen."""
        return len(self.trackers[0])

    @property
    def n(self) -> int:
        """Rows seen."""
        return len(self)

    @property
    def discount(self) -> float:
        """That of the tracker with the largest weight."""
        with self.lock:
            return self.trackers[self.weights.index(max(self.weights))].discount

    def _mean(self, values: Any) -> Any:
        """Weighted, over the trackers."""
        return sum(w * value for w, value in zip(self.weights, values))

    @property
    def theta(self) -> NDArray[np.float64]:
        """The weighted mean of the trackers' estimates, a fresh array."""
        with self.lock:
            return np.asarray(self._mean(tracker.theta for tracker in self.trackers))

    @property
    def intercept_(self) -> float:
        """What is predicted where all features are 0."""
        with self.lock:
            return float(self._mean(tracker.intercept_ for tracker in self.trackers))

    def predict(self, X: Any) -> Any:
        """theta . x for a row (a number) or for each row of a block (a vector)."""
        with self.lock:
            return self._mean([tracker.predict(X) for tracker in self.trackers])

    def tracking_error(self) -> TrackingError:
        """How far theta is from the same mean of exact solutions, absolute and relative."""
        with self.lock:
            exact = self._mean(tracker.target.coefficients() for tracker in self.trackers)
            return TrackingError.between(self._mean(tracker.coefficients() for tracker in self.trackers), exact)

    @property
    def health(self) -> Health:
        """Whether it learns, by the tracker with the largest weight."""
        with self.lock:
            return self.trackers[self.weights.index(max(self.weights))].health

    @property
    def sparse(self) -> bool | None:
        """Whether rows are kept sparse; None before the first."""
        return self.trackers[0].sparse

    @property
    def units(self) -> Units | None:
        """What features are measured in: the same for all of its trackers."""
        return self.trackers[0].units

    @property
    def history(self) -> History:
        """Which holds no rows."""
        return self.trackers[0].history

    # -- files ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Header and arrays from which `from_snapshot` makes the same."""
        with self.lock:
            parts = [tracker.snapshot() for tracker in self.trackers]
            header = {"class": type(self).__name__, "trackers": [one for one, _ in parts]}
            arrays = {f"{k}.{name}": array for k, (_, each) in enumerate(parts) for name, array in each.items()}
            return header | {"weights": list(self.weights), "noise": self.noise}, arrays

    @classmethod
    def from_snapshot(cls, header: dict[str, Any], arrays: dict[str, Any], **functions: Any) -> Self:
        """What `snapshot` wrote down."""
        given = [header[name] for name in ("trackers", "weights", "noise")]
        parts, weights, noise = checked(given, tuple[list[dict[str, Any]], list[Positive], Positive])
        if not len(parts) == len(weights) > 1 or not sum(weights) > 0.0:
            raise CorruptFileError(f"{weights} are no weights of {len(parts)} trackers. Restore the file from a copy.")
        trackers = [CD.from_snapshot(one, group(arrays, f"{k}."), **functions) for k, one in enumerate(parts)]
        if len({(one.dim, one.sparse, len(one)) for one in trackers}) > 1:
            raise CorruptFileError("the trackers do not follow the same rows. Restore the file from a copy.")
        return cls.__new__(cls)._stand(trackers, weights, noise)

    def functions(self) -> dict[str, Any]:
        return self.trackers[0].functions()

    def fresh(self, seed: Seed = None) -> Self:
        """A new one with the same settings, that has seen nothing; it draws nothing, whatever the seed."""
        return type(self).__new__(type(self))._stand([tracker.fresh() for tracker in self.trackers])

    def __repr__(self) -> str:
        return f"AutoDiscount({self.dim}, discounts={[each.discount for each in self.trackers]}), n={len(self)}"
