"""Progressive validation, against a loop that does one row after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from driftls.errors import InputError, SettingsError
from driftls.evaluation import Evaluation, evaluate
from driftls.schedules import ridge
from driftls.trackers import RAW, RLS


def plain() -> RLS:
    """Ridge regression as it is written, in the units of the rows."""
    return RLS(4, regularisation=ridge(1.0), scale=False, intercept=False)


def rows(n: int = 137, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    X[:, 3] = 1.0
    return X, X @ np.array([1.0, -2.0, 0.5, 3.0]) + 0.3 * rng.standard_normal(n)


def by_hand(X: Any, y: Any) -> tuple[list[float], list[float]]:
    """Squared errors of ridge regression on all rows before, and of their mean."""
    errors, of_mean = [], []
    for n in range(len(y)):
        theta = np.linalg.solve(X[:n].T @ X[:n] + np.eye(4), X[:n].T @ y[:n])
        errors.append(float((y[n] - X[n] @ theta) ** 2))
        of_mean.append(float((y[n] - (np.mean(y[:n]) if n else 0.0)) ** 2))
    return errors, of_mean


def test_every_row_is_predicted_before_it_is_learned() -> None:
    X, y = rows()
    found = evaluate(plain(), X, y)
    errors, of_mean = by_hand(X, y)
    assert found.points == [1, 2, 5, 10, 20, 50, 100, 137]
    assert found.mse == pytest.approx([np.mean(errors[:n]) for n in found.points], rel=1e-9)
    assert found.baseline == pytest.approx([np.mean(of_mean[:n]) for n in found.points], rel=1e-9)
    pieces = list(zip([0, *found.points], found.points))
    assert found.recent == pytest.approx([np.mean(errors[a:b]) for a, b in pieces], rel=1e-9)
    assert found.recent_baseline == pytest.approx([np.mean(of_mean[a:b]) for a, b in pieces], rel=1e-9)
    assert found.rmse == pytest.approx(np.sqrt(np.mean(errors)))
    assert found.r2 == pytest.approx(1.0 - np.mean(errors) / np.mean(of_mean))


@pytest.mark.parametrize("block", [2, 10, 1000])
def test_blocks_are_predicted_before_any_of_their_rows_is_learned(block: int) -> None:
    X, y = rows()
    tracker, expected = plain(), 0.0
    for begin in range(0, len(y), block):
        part = slice(begin, begin + block)
        expected += float(((y[part] - X[part] @ tracker.theta) ** 2).sum())
        tracker.partial_fit(X[part], y[part])
    found = evaluate(plain(), X, y, block=block)
    assert found.mse[-1] == pytest.approx(expected / len(y), rel=1e-9)
    assert found.points == [1, 2, 5, 10, 20, 50, 100, 137]
    assert found.baseline == pytest.approx(evaluate(plain(), X, y).baseline, rel=1e-12)


def test_sparse_rows_and_streams_of_blocks_give_the_same() -> None:
    X, y = rows()
    whole = evaluate(plain(), X, y, block=20)
    stream = ((X[i : i + 60], y[i : i + 60]) for i in range(0, 137, 60))
    assert evaluate(plain(), stream, block=20).mse == pytest.approx(whole.mse, rel=1e-9)
    assert evaluate(plain(), sp.csc_array(X), y, block=20).mse == pytest.approx(whole.mse, rel=1e-9)


def test_a_drift_shows_in_the_recent_errors() -> None:
    X, y = rows(2000)
    y[1000:] = -y[1000:]
    found = evaluate(plain(), X, y)
    assert found.points[-2:] == [1000, 2000]
    assert found.recent[-1] > 10.0 * found.recent[-2]


def test_a_regressor_of_scikit_learn_is_evaluated_too() -> None:
    linear = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is an extra")
    X, y = rows(800)
    model, expected = linear.SGDRegressor(random_state=0), float((y[:10] ** 2).sum())
    model.partial_fit(X[:10], y[:10])
    for i in range(10, 800, 10):
        expected += float(((model.predict(X[i : i + 10]) - y[i : i + 10]) ** 2).sum())
        model.partial_fit(X[i : i + 10], y[i : i + 10])
    found = evaluate(linear.SGDRegressor(random_state=0), X, y, block=10)
    assert found.mse[-1] == pytest.approx(expected / 800, rel=1e-12)


def test_it_is_told_as_a_table_and_as_a_picture() -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is an extra")
    matplotlib.use("agg")
    X, y = rows()
    found = evaluate(plain(), X, y)
    lines = str(found).splitlines()
    assert lines[0].split()[:2] == ["rows", "MSE"]
    assert [int(line.split()[0]) for line in lines[1:]] == found.points
    assert [line.get_label() for line in found.plot().get_lines()] == [
        "mean so far",
        "tracker, recent rows",
        "tracker, all rows",
    ]


def test_targets_that_are_all_alike_have_no_r2() -> None:
    found = evaluate(RLS(1, **RAW), np.ones((4, 1)), np.zeros(4))
    assert isinstance(found, Evaluation)
    assert np.isnan(found.r2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((np.ones((3, 2)), np.ones(2)), "as many targets"),
        ((np.ones(3), np.ones(3)), "as many targets"),
        ((np.ones((3, 2)),), "needs rows and targets"),
        (([1, 2],), "block 0: expected a pair"),
        ((np.ones((2, 2)), np.array([1.0, np.nan])), "target 1 is not finite"),
        ((np.ones((0, 2)), np.ones(0)), "no row"),
        (([],), "no row"),
    ],
)
def test_what_cannot_be_evaluated_is_told(arguments: tuple[Any, ...], said: str) -> None:
    tracker = RLS(2, **RAW)
    with pytest.raises(InputError, match=said):
        evaluate(tracker, *arguments)
    assert len(tracker) == 0


def test_a_block_has_at_least_a_row() -> None:
    with pytest.raises(SettingsError, match="rows of a block must be a whole number"):
        evaluate(RLS(2, **RAW), np.ones((2, 2)), np.ones(2), block=0)


def test_tables_with_text_are_told_to_become_features():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"city": ["Oslo", "Rome"], "age": [31, 40]})
    for X in (table, table[["city"]], table.to_dict("records")):
        with pytest.raises(InputError, match=r"of real numbers, got .* Features\(dim=2\*\*18\) makes rows of"):
            evaluate(RLS(2), X, [1.0, 2.0])
    numbers = table.assign(city=[True, False])
    assert evaluate(RLS(2), numbers, [1.0, 2.0]).points == [1, 2]
