"""Does it learn? What a tracker predicts before it learns a row, beside the mean and beside what its rows allow."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftls.compiling.parts import Frame
from driftls.errors import LearningWarning
from driftls.kernels import cg
from driftls.kernels.records import ROWS, TRACKER
from driftls.schedules import Normalised
from driftls.state import product, times

if TYPE_CHECKING:
    from driftls.trackers.machine import Machine

FIRST, FACTOR, NEVER = 1_000, 10, 2**53  # rows after which it is asked, and how many times as many until the next time
GOOD = 0.5  # of the variance of y: a smaller error is not looked into
LEARNED, MARGIN = 0.5, 0.25  # of what the rows allow, and of the variance of y: less is not worth a warning
FEWEST, SAMPLE, ROUNDS = 20, 2_000, 30  # rows that are held, rows of the probe, and its steps at most
ALIKE = 30.0  # sizes of features, largest over median, that a scheme in raw units copes with


class Health(NamedTuple):
    """Root mean squared error over recent rows, before each was learned, and that of predicting the mean of y."""

    error: float
    baseline: float
    verdict: str


def health(tracker: Machine) -> Health:
    """How it is now."""
    if not tracker.watched:
        return Health(float("nan"), float("nan"), "it is the exact solution")
    error2, baseline2, n = tracker.frame["progressive"], tracker.frame["baseline"], len(tracker)
    verdict = f"too early to tell: {n} rows, of {FIRST}" if n < FIRST else look(tracker, error2, baseline2)[0]
    return Health(float(np.sqrt(error2)), float(np.sqrt(baseline2)), verdict)


def check(tracker: Machine) -> None:
    """Warn, once, if a tracker does not learn what its rows allow; look again after ten times as many rows."""
    verdict, wrong = look(tracker, tracker.frame["progressive"], tracker.frame["baseline"])
    while tracker.next_check <= len(tracker):
        tracker.next_check *= FACTOR
    if wrong:
        tracker.next_check = NEVER
        warnings.warn(f"after {len(tracker)} rows of {tracker!r}: {verdict}.", LearningWarning, stacklevel=4)


def look(tracker: Machine, error2: float, baseline2: float) -> tuple[str, bool]:
    """The verdict on these mean squared errors, and whether it has to be told."""
    if not baseline2 > 0.0:  # all rewards that were watched are alike
        return "nothing to learn yet: no two rewards differ", False
    if error2 <= GOOD * baseline2:
        return "it learns", False
    history = tracker.history
    if len(history) < FEWEST:  # of which half could say nothing of the others
        if error2 <= 2.0 * baseline2:
            return (
                f"no better than predicting the mean, or little; of {len(history)} rows held nobody knows more",
                False,
            )
        raw = not (tracker.scale and tracker.intercept)
        remedy = "Build it with scale=True, intercept=True" if raw else "Use SAGA: features overlap"
        return f"worse than predicting the mean. {remedy}", True
    X, y = history.matrix(max(0, len(history) - SAMPLE), copy=False)
    share, sizes = possible(X, y)
    if share > 1.0 and not tracker.intercept and y.mean() ** 2 > MARGIN * y.var():
        told = "predicting the mean is better than any model without an intercept"
        return f"{told}. Build it with intercept=True, or add a constant feature", True
    gap = error2 / baseline2 - min(share, 1.0)
    if gap <= max(LEARNED * (1.0 - share), MARGIN) or (share > 1.0 - MARGIN and error2 < 2.0 * baseline2):
        return "it learns what its rows allow", False
    left = y - times(X, tracker.coefficients())  # type: ignore[attr-defined]
    if share > 1.0 - MARGIN and product(left, left) < (1.0 + MARGIN) * len(y) * y.var():
        return "it learns what its rows allow, which have outliers", False  # recent errors are measured by other rows
    lost = f"it has an error of {100 * error2 / baseline2:.0f}% of the variance of y, where its rows allow {100 * share:.0f}%"
    return f"{lost}: {cause(tracker, sizes)}", True


def possible(X: Any, y: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Squared error, over the variance of y, of a ridge solution of half of these rows on the others; sizes of features.

    With features in units of their size, and in O(nnz) a step, whatever the tracker's scheme is.
    """
    if isinstance(X, np.ndarray):  # half of it is copied, once: to ask for memory takes longer than to solve
        sizes = np.sqrt(np.einsum("ij,ij->j", X, X) / len(y))
        units = np.where(sizes > 0.0, sizes, 1.0)
        theta = solved(X[0::2] / units, y[0::2]) / units
    else:
        sizes = np.sqrt(X.multiply(X).sum(axis=0) / len(y))
        used = np.flatnonzero(sizes)
        X, units = X[:, used], sizes[used]
        X = type(X)((X.data / units[X.indices], X.indices, X.indptr), X.shape)
        theta = solved(X[0::2], y[0::2])
    left, around = y[1::2] - times(X[1::2], theta), y[1::2] - y[0::2].mean()
    total = product(around, around)
    return product(left, left) / total if total > 0.0 else 1.0, sizes


def solved(X: Any, y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares with a ridge of 1, nearly, by conjugate gradients."""
    rows, frame = Frame(ROWS), Frame(TRACKER)
    scratch: NDArray[np.float64] = np.zeros((5, X.shape[1]))
    rows["dim"] = X.shape[1]
    if isinstance(X, np.ndarray):
        rows["values"] = np.ascontiguousarray(X)
    else:
        start = X.indptr.astype(np.int64)
        rows.set(sparse=True, values=X.data, indices=X.indices.astype(np.int32), start=start[:-1], stop=start[1:])
    scratch[1] = times(X.T, y)
    frame.set(packed=rows, scratch=scratch, ridge=1.0)
    cg.trace(frame, ROUNDS, len(y))
    return np.asarray(scratch[0])


def cause(tracker: Machine, sizes: NDArray[np.float64]) -> str:
    """The likeliest reason for learning less than the rows allow, and what to do."""
    used = sizes[sizes > 0.0]
    largest, typical = int(np.argmax(sizes)), float(np.median(used)) if used.size else 0.0
    if not tracker.scale and sizes[largest] > ALIKE * typical:
        return (
            f"feature {largest} has a size of {sizes[largest]:.3g}, most others of {typical:.3g}, and steps must suit the "
            "largest. Build the tracker with scale=True, or scale the features"
        )
    if not tracker.draws_rows and not getattr(tracker, "newest", False):
        return "features overlap, which this scheme takes no account of. Use SAGA or CD"
    if not isinstance(tracker.step_size, Normalised):
        gamma = float(tracker.step_size(max(len(tracker), 1)))
        reach = gamma * product(used, used)
        if not 0.02 <= reach <= 0.5:
            kind = "small" if reach < 0.02 else "large"
            return f"a step of {gamma:.3g} is too {kind} for rows of this size. Use step_size=Normalised(1/3)"
    return f"{tracker.steps} steps a row are too few. Take more (steps={4 * tracker.steps}), SAGA, or CD where d^2 fits"
