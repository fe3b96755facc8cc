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
    and `recent_baseline` the same over the rows since the point before, which shows drift. The first block (by default
    the first row) counts for neither: before it there is no mean, and nothing was learned.
    """

    points: list[int]
    mse: list[float]
    baseline: list[float]
    recent: list[float]
    recent_baseline: list[float]

    @property
    def rmse(self) -> float:
        """Root of the mean squared error over all rows that count."""
        return float(np.sqrt(self.mse[-1]))

    @property
    def r2(self) -> float:
        """1 - error / error of the running mean: 1 is perfect, 0 no better than the mean.

        Units of the targets and where they begin play no part in it, unless they do in the model.
        """
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

    No row is predicted by what has learned it. All rows are learned, and all are predicted but those of the first block
    (the first row, where they come one by one): before it no mean is known, and a model could only guess where the
    targets lie. Its errors are left out, of the tracker and of the mean alike. The tracker is changed as it learns.

    Parameters
    ----------
    tracker
        Whatever has `predict(X)` and `partial_fit(X, y)`: our trackers, and scikit-learn's regressors.
    X, y
        A matrix, dense or sparse, and a target for each row; or for X an iterable of blocks (X, y), and no y.
    block : int
        Rows that are predicted before they are learned: 1 is strict; more is faster, and as a model that is updated
        from time to time would do. Errors are noted after 2, 5, 10, 20, ... rows, and at the end.

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
    rows, total, origin, left_out = 0, 0.0, 0.0, 0  # so far, and the sum of their targets from the first one on
    sums, noted = np.zeros(2), list[tuple[int, float, float]]()  # squared errors of tracker and mean; at each point
    for X_block, targets in _blocks(X, y, block):
        if not rows:
            origin, left_out = float(targets[0]), len(targets)
            tracker.partial_fit(X_block, targets)
            rows, total = left_out, float((targets - origin).sum())
            noted.append((rows, 0.0, 0.0))
            continue
        predicted = np.atleast_1d(np.asarray(tracker.predict(X_block), np.float64))
        tracker.partial_fit(X_block, targets)
        # Row by row, so that points do not depend on the block. From the first target on: digits of a mean far from 0.
        above = targets - origin
        mean = (total + np.cumsum(above) - above) / (rows + np.arange(len(targets)))
        squares = sums + np.cumsum(np.stack([targets - predicted, above - mean], axis=1) ** 2, axis=0)
        while (mark := _next(noted[-1][0])) <= rows + len(targets):
            noted.append((mark, *squares[mark - rows - 1]))
        rows, total, sums = rows + len(targets), total + float(above.sum()), squares[-1]
    if rows == left_out:
        got = f"{rows} rows, all in the first block of {block}" if rows > 1 else f"{rows or 'no'} row"
        raise InputError(
            f"expected rows after the first block, before which nothing is known, got {got}. "
            "Give more rows, or a smaller block."
        )
    if noted[-1][0] < rows:
        noted.append((rows, *sums))
    table = np.array(noted)
    counted = table[1:, :1] - left_out
    all_rows, since = table[1:, 1:] / counted, np.diff(table[:, 1:], axis=0) / np.diff(table[:, :1], axis=0)
    return Evaluation([point for point, *_ in noted[1:]], *np.hstack([all_rows, since]).T.tolist())


def _r2(error: float, baseline: float) -> float:
    return 1.0 - error / baseline if baseline > 0.0 else float("nan")


def _next(rows: int) -> int:
    """The next number of rows at which errors are noted."""
    scale = 10 ** len(str(rows)) // 10 if rows else 1
    return next(scale * k for k in (1, 2, 5, 10) if scale * k > rows)


def _blocks(X: Any, y: Any, block: int) -> Iterator[tuple[Any, Floats]]:
    """Pieces of at most `block` rows."""
    if y is None and (hasattr(X, "shape") or not isinstance(X, Iterable)):
        raise InputError("evaluate needs rows and targets: evaluate(tracker, X, y), or an iterable of blocks (X, y).")
    for number, pair in enumerate([(X, y)] if y is not None else X):
        place = "" if y is not None else f"block {number}, "
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"block {number}: expected a pair (X, y), got {type(pair).__name__}.")
        rows: Any = checked_csr(pair[0]) if sp.issparse(pair[0]) else as_numbers(pair[0], "X must be a matrix")
        targets = as_numbers(pair[1], "targets must be an array").astype(np.float64)
        if rows.ndim != 2 or targets.shape != (rows.shape[0],):
            shapes = f"{rows.shape} and {targets.shape}"
            raise InputError(f"expected rows (n, dim) and as many targets, got shapes {shapes}.")
        if not (finite := np.isfinite(targets)).all():
            raise InputError(f"{place}target {finite.argmin()} is not finite. Leave such rows out.")
        bad = ~np.isfinite(rows.data if sp.issparse(rows) else rows)
        if bad.any():
            row = np.searchsorted(rows.indptr, bad.argmax(), "right") - 1 if sp.issparse(rows) else bad.any(1).argmax()
            raise InputError(f"{place}row {row} of X: every number must be finite, got one that is not. Leave it out.")
        for begin in range(0, len(targets), block):
            yield rows[begin : begin + block], targets[begin : begin + block]
