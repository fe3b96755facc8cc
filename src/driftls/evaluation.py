"""Progressive validation: how well a tracker predicts rows before it learns them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.errors import InputError, SettingsError, missing_extra

__all__ = ["Evaluation", "evaluate"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """Errors of predictions that were made before their rows were learned, and those of the mean so far.

    `points` are numbers of rows; `mse` and `baseline` the mean squared errors over all rows up to each; `recent`
    and `recent_baseline` the same over the rows since the point before, which shows drift.
    """

    rows: int
    points: list[int]
    mse: list[float]
    baseline: list[float]
    recent: list[float]
    recent_baseline: list[float]
    mae: float
    seconds: dict[str, float]

    @property
    def rmse(self) -> float:
        """Root of the mean squared error over all rows."""
        return float(np.sqrt(self.mse[-1]))

    @property
    def r2(self) -> float:
        """1 - error / error of the running mean: 1 is perfect, 0 no better than the mean."""
        return 1.0 - self.mse[-1] / self.baseline[-1] if self.baseline[-1] > 0.0 else float("nan")

    def table(self) -> str:
        """Rows, errors over all of them and over the last, each beside that of the running mean."""
        head = f"{'rows':>12}{'MSE':>13}{'of the mean':>13}{'recent MSE':>13}{'of the mean':>13}{'R2':>8}"
        lines = [head]
        for n, mse, base, recent, recent_base in zip(
            self.points, self.mse, self.baseline, self.recent, self.recent_baseline
        ):
            r2 = 1.0 - mse / base if base > 0.0 else float("nan")
            lines.append(f"{n:>12,}{mse:>13.5g}{base:>13.5g}{recent:>13.5g}{recent_base:>13.5g}{r2:>8.3f}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def plot(self, axes: Any = None) -> Any:
        """Draw the errors against the number of rows; returns the axes."""
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise missing_extra("matplotlib", "report", "Evaluation.plot") from error
        if axes is None:
            axes = plt.subplots()[1]
        axes.plot(self.points, self.baseline, color="0.6", label="mean so far")
        axes.plot(self.points, self.recent, lw=0.8, alpha=0.5, color="C0", label="tracker, recent rows")
        axes.plot(self.points, self.mse, color="C0", label="tracker, all rows")
        axes.set(xlabel="rows", ylabel="mean squared error", xscale="log")
        axes.set_ylim(bottom=0.0)
        axes.legend()
        return axes


def evaluate(tracker: Any, X: Any, y: Any = None, *, block: int = 1, points: Iterable[int] | None = None) -> Evaluation:
    """Predict each row, then learn it: the streaming counterpart of scikit-learn's `cross_val_score`.

    No row is predicted by what has learned it, and all of them are used for both. The tracker is changed as it learns.

    Parameters
    ----------
    tracker
        Whatever has `predict(X)` and `partial_fit(X, y)`: our trackers, and scikit-learn's regressors.
    X : array or sparse matrix, (n, dim); or an iterable of blocks (X, y)
        With an iterable, for streams that do not fit into memory, `y` is left out.
    y : array, (n,)
    block : int
        Rows that are predicted before they are learned: 1 is strict; more is faster, and as a model that is updated
        from time to time would do.
    points : iterable of int, optional
        Numbers of rows at which errors are noted; by default 1, 2, 5, 10, 20, ... and at the end.

    Returns
    -------
    Evaluation
        Its `table()`, `plot()`, `rmse` and `r2`.

    Examples
    --------
    >>> import numpy as np
    >>> from driftls.trackers import RLS
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 3))
    >>> found = evaluate(RLS(dim=3), X, X @ [1.0, -2.0, 0.5] + 0.1 * rng.standard_normal(500))
    >>> found.r2 > 0.97, found.rows
    (True, 500)
    """
    if block < 1:
        raise SettingsError(f"block must be at least 1 row, got {block}.")
    sums, seconds = _Sums(points), {"predict": 0.0, "learn": 0.0}
    for rows, targets in _blocks(X, y, block):
        before = time.perf_counter()
        predicted = _predicted(tracker, rows, sums.rows)
        between = time.perf_counter()
        tracker.partial_fit(rows, targets)
        seconds["learn"] += time.perf_counter() - between
        seconds["predict"] += between - before
        sums.add(predicted, targets)
    return sums.found(seconds)


def _predicted(tracker: Any, rows: Any, seen: int) -> Floats:
    try:
        return np.atleast_1d(np.asarray(tracker.predict(rows), np.float64))
    except (ValueError, AttributeError) as error:
        # scikit-learn's regressors predict nothing before their first rows; its NotFittedError is both of these.
        if seen or not (isinstance(error, ValueError) and isinstance(error, AttributeError)):
            raise
        return np.zeros(rows.shape[0])


def _blocks(X: Any, y: Any, block: int) -> Iterator[tuple[Any, Floats]]:
    """Pieces of at most `block` rows."""
    for rows, targets in _given(X, y):
        if not sp.issparse(rows):
            rows = np.asarray(rows)
        rows = rows.tocsr() if sp.issparse(rows) else rows
        values = np.asarray(targets, np.float64)
        if rows.ndim != 2 or values.shape != (rows.shape[0],):
            raise InputError(
                f"expected rows (n, dim) and as many targets, got shapes {rows.shape} and {values.shape}. "
                "Reshape a single row to (1, dim)."
            )
        if not np.isfinite(values).all():
            raise InputError(
                f"target {int(np.flatnonzero(~np.isfinite(values))[0])} is not finite. Leave such rows out."
            )
        for begin in range(0, len(values), block):
            yield rows[begin : begin + block], values[begin : begin + block]


def _given(X: Any, y: Any) -> Iterable[tuple[Any, Any]]:
    if y is not None:
        return [(X, y)]
    if hasattr(X, "shape") or not isinstance(X, Iterable):
        raise InputError("evaluate needs rows and targets: evaluate(tracker, X, y), or an iterable of blocks (X, y).")
    return _pairs(X)


def _pairs(blocks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    for number, pair in enumerate(blocks):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"block {number}: expected a pair (X, y), got {type(pair).__name__}.")
        yield pair[0], pair[1]


class _Sums:
    """Squared errors of the tracker and of the mean so far, and what was noted of them"""

    def __init__(self, points: Iterable[int] | None) -> None:
        self.rows, self.total, self.absolute = 0, 0.0, 0.0
        self.errors = np.zeros((2, 2))  # of the tracker and of the mean: over all rows, and since the last point
        self.since = 0
        self._points = None if points is None else sorted(points)
        self._noted: list[tuple[float, ...]] = []

    def add(self, predicted: Floats, targets: Floats) -> None:
        """One row after the other, so that points and the baseline do not depend on the block"""
        counts = self.rows + np.arange(len(targets))
        before = self.total + np.concatenate(([0.0], np.cumsum(targets)[:-1]))
        mean = np.divide(before, counts, out=np.zeros(len(targets)), where=counts > 0)
        squares = np.stack([(targets - predicted) ** 2, (targets - mean) ** 2])
        self.absolute += float(np.abs(targets - predicted).sum())
        self.total += float(targets.sum())
        at = 0
        while at < len(targets):
            upto = min(len(targets), at + max(1, self._next() - self.rows))
            self.errors += squares[:, at:upto].sum(axis=1)[:, None]
            self.rows, self.since, at = self.rows + upto - at, self.since + upto - at, upto
            if self.rows == self._mark:
                self.note()

    def _next(self) -> int:
        """The next number of rows at which errors are noted"""
        if self._points is not None:
            self._mark = next((point for point in self._points if point > self.rows), 1 << 62)
        else:
            scale = 10 ** len(str(self.rows)) // 10 if self.rows else 1
            self._mark = next(scale * k for k in (1, 2, 5, 10) if scale * k > self.rows)
        return self._mark

    def note(self) -> None:
        """Where things stand"""
        self._noted.append((self.rows, *(self.errors[:, 0] / self.rows), *(self.errors[:, 1] / self.since)))
        self.errors[:, 1], self.since = 0.0, 0

    def found(self, seconds: dict[str, float]) -> Evaluation:
        if not self.rows:
            raise InputError("there is no row to evaluate on.")
        if self.since:
            self.note()
        points, mse, baseline, recent, recent_baseline = (list(map(float, column)) for column in zip(*self._noted))
        return Evaluation(
            rows=self.rows,
            points=[int(point) for point in points],
            mse=mse,
            baseline=baseline,
            recent=recent,
            recent_baseline=recent_baseline,
            mae=self.absolute / self.rows,
            seconds=seconds,
        )
