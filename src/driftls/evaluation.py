"""Progressive validation: how well a tracker predicts rows before it learns them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.errors import InputError, missing_extra
from driftls.inputs import as_numbers, as_whole, checked_csr

__all__ = ["Evaluation", "evaluate"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """Errors of predictions that were made before their rows were learned, and those of the mean so far.

    `points` are numbers of rows; `mse` and `baseline` the mean squared errors over all rows up to each; `recent`
    and `recent_baseline` the same over the rows since the point before, which shows drift.
    """

    points: list[int]
    mse: list[float]
    baseline: list[float]
    recent: list[float]
    recent_baseline: list[float]

    @property
    def rmse(self) -> float:
        """Root of the mean squared error over all rows."""
        return float(np.sqrt(self.mse[-1]))

    @property
    def r2(self) -> float:
        """1 - error / error of the running mean: 1 is perfect, 0 no better than the mean."""
        return _r2(self.mse[-1], self.baseline[-1])

    def __str__(self) -> str:
        """Rows, errors over all of them and over the last, each beside that of the running mean."""
        lines = [f"{'rows':>12}{'MSE':>13}{'of the mean':>13}{'recent MSE':>13}{'of the mean':>13}{'R2':>8}"]
        for n, *errors in zip(self.points, self.mse, self.baseline, self.recent, self.recent_baseline):
            cells = "".join(f"{error:>13.5g}" for error in errors)
            lines.append(f"{n:>12,}{cells}{_r2(*errors[:2]):>8.3f}")
        return "\n".join(lines)

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


def evaluate(tracker: Any, X: Any, y: Any = None, *, block: int = 1) -> Evaluation:
    """Predict each row, then learn it: the streaming counterpart of scikit-learn's `cross_val_score`.

    No row is predicted by what has learned it, and all of them are used for both. The tracker is changed as it learns.

    Parameters
    ----------
    tracker
        Whatever has `predict(X)` and `partial_fit(X, y)`: our trackers, and scikit-learn's regressors.
    X, y
        A matrix, dense or sparse, and a target for each row; or for X an iterable of blocks (X, y), and no y.
    block : int
        Rows that are predicted before they are learned: 1 is strict; more is faster, and as a model that is updated
        from time to time would do. Errors are noted after 1, 2, 5, 10, 20, ... rows, and at the end.

    Examples
    --------
    >>> import numpy as np
    >>> from driftls.trackers import RLS
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 3))
    >>> found = evaluate(RLS(dim=3), X, X @ [1.0, -2.0, 0.5] + 0.1 * rng.standard_normal(500))
    >>> found.r2 > 0.97, found.points[-1]
    (True, 500)
    """
    block = as_whole(block, "the rows of a block")
    rows, total = 0, 0.0  # so far, and the sum of their targets
    sums, noted = np.zeros(2), [(0, 0.0, 0.0)]  # squared errors of the tracker and of the mean; those at each point
    for X_block, targets in _blocks(X, y, block):
        predicted = _predicted(tracker, X_block, first=not rows)
        tracker.partial_fit(X_block, targets)
        # Row by row, so that points and the baseline do not depend on the block.
        count = rows + np.arange(len(targets))
        mean = (total + np.cumsum(targets) - targets) / np.maximum(count, 1.0)
        squares = sums + np.cumsum(np.stack([targets - predicted, targets - mean], axis=1) ** 2, axis=0)
        while (mark := _next(noted[-1][0])) <= rows + len(targets):
            noted.append((mark, *squares[mark - rows - 1]))
        rows, total, sums = rows + len(targets), total + float(targets.sum()), squares[-1]
    if not rows:
        raise InputError("there is no row to evaluate on.")
    if noted[-1][0] < rows:
        noted.append((rows, *sums))
    table = np.array(noted)
    all_rows, since = table[1:, 1:] / table[1:, :1], np.diff(table[:, 1:], axis=0) / np.diff(table[:, :1], axis=0)
    return Evaluation([point for point, *_ in noted[1:]], *np.hstack([all_rows, since]).T.tolist())


def _r2(error: float, baseline: float) -> float:
    return 1.0 - error / baseline if baseline > 0.0 else float("nan")


def _next(rows: int) -> int:
    """The next number of rows at which errors are noted."""
    scale = 10 ** len(str(rows)) // 10 if rows else 1
    return next(scale * k for k in (1, 2, 5, 10) if scale * k > rows)


def _predicted(tracker: Any, rows: Any, *, first: bool) -> Floats:
    try:
        return np.atleast_1d(np.asarray(tracker.predict(rows), np.float64))
    except (ValueError, AttributeError) as error:
        # scikit-learn's regressors predict nothing before their first rows; its NotFittedError is both of these.
        if not first or not (isinstance(error, ValueError) and isinstance(error, AttributeError)):
            raise
        return np.zeros(rows.shape[0])


def _blocks(X: Any, y: Any, block: int) -> Iterator[tuple[Any, Floats]]:
    """Pieces of at most `block` rows."""
    if y is None and (hasattr(X, "shape") or not isinstance(X, Iterable)):
        raise InputError("evaluate needs rows and targets: evaluate(tracker, X, y), or an iterable of blocks (X, y).")
    for number, pair in enumerate([(X, y)] if y is not None else X):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"block {number}: expected a pair (X, y), got {type(pair).__name__}.")
        rows = checked_csr(pair[0]) if sp.issparse(pair[0]) else as_numbers(pair[0], "X must be a matrix")
        targets = as_numbers(pair[1], "targets must be an array").astype(np.float64)
        if rows.ndim != 2 or targets.shape != (rows.shape[0],):
            shapes = f"{rows.shape} and {targets.shape}"
            raise InputError(f"expected rows (n, dim) and as many targets, got shapes {shapes}.")
        if not (finite := np.isfinite(targets)).all():
            raise InputError(f"target {finite.argmin()} is not finite. Leave such rows out.")
        for begin in range(0, len(targets), block):
            yield rows[begin : begin + block], targets[begin : begin + block]
