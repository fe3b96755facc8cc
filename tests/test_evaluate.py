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


def test_every_row_but_the_first_is_predicted_before_it_is_learned() -> None:
    X, y = rows()
    found = evaluate(plain(), X, y)
    errors, of_mean = by_hand(X, y)
    assert found.points == [2, 5, 10, 20, 50, 100, 137]
    assert found.mse == pytest.approx([np.mean(errors[1:n]) for n in found.points], rel=1e-9)
    assert found.baseline == pytest.approx([np.mean(of_mean[1:n]) for n in found.points], rel=1e-9)
    pieces = list(zip([1, *found.points], found.points))
    assert found.recent == pytest.approx([np.mean(errors[a:b]) for a, b in pieces], rel=1e-9)
    assert found.recent_baseline == pytest.approx([np.mean(of_mean[a:b]) for a, b in pieces], rel=1e-9)
    assert found.rmse == pytest.approx(np.sqrt(np.mean(errors[1:])))
    assert found.r2 == pytest.approx(1.0 - np.mean(errors[1:]) / np.mean(of_mean[1:]))


@pytest.mark.parametrize(("block", "points"), [(2, [5, 10, 20, 50, 100, 137]), (10, [20, 50, 100, 137]), (136, [137])])
def test_blocks_are_predicted_before_any_of_their_rows_is_learned(block: int, points: list[int]) -> None:
    X, y = rows()
    tracker, expected = plain(), 0.0
    for begin in range(0, len(y), block):
        part = slice(begin, begin + block)
        if begin:
            expected += float(((y[part] - X[part] @ tracker.theta) ** 2).sum())
        tracker.partial_fit(X[part], y[part])
    found = evaluate(plain(), X, y, block=block)
    assert found.mse[-1] == pytest.approx(expected / (len(y) - block), rel=1e-9)
    assert found.points == points
    assert found.baseline[-1] == pytest.approx(np.mean(by_hand(X, y)[1][block:]), rel=1e-9)


@pytest.mark.parametrize("block", [1, 7])
@pytest.mark.parametrize(("scale", "shift"), [(4.0, 0.0), (2.0**-20, 64.0), (1.0, 1000.0), (3.0, -7e5), (0.1, 1e7)])
def test_units_of_the_targets_and_where_they_begin_leave_r2_as_it_is(block: int, scale: float, shift: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 3))
    y = X @ [1.0, 2.0, 3.0] + 0.1 * rng.standard_normal(500)
    found, moved = evaluate(RLS(3), X, y, block=block), evaluate(RLS(3), X, scale * y + shift, block=block)
    assert found.r2 > 0.99
    assert moved.r2 == pytest.approx(found.r2, abs=1e-9)
    assert np.array(moved.mse) / np.array(moved.baseline) == pytest.approx(
        np.array(found.mse) / np.array(found.baseline), rel=1e-5
    )


def test_a_number_that_is_not_finite_is_named_by_its_row_of_x_before_anything_is_learned_of_it() -> None:
    X, y = rows()
    X[17, 2] = np.nan
    pieces = [(X[:10], y[:10]), (X[10:], y[10:])]
    for given, said in (
        ((X, y), "^row 17 of X"),
        ((sp.csr_array(X), y), "^row 17 of X"),
        ((pieces,), "^block 1, row 7"),
    ):
        with pytest.raises(InputError, match=said):
            evaluate(plain(), *given)
    y[20] = np.inf
    with pytest.raises(InputError, match=r"^block 0, target 1 is not finite"):
        evaluate(plain(), [(X[19:], y[19:])])


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
    model, expected = linear.SGDRegressor(random_state=0), 0.0  # which predicts nothing before its first rows
    model.partial_fit(X[:10], y[:10])
    for i in range(10, 800, 10):
        expected += float(((model.predict(X[i : i + 10]) - y[i : i + 10]) ** 2).sum())
        model.partial_fit(X[i : i + 10], y[i : i + 10])
    found = evaluate(linear.SGDRegressor(random_state=0), X, y, block=10)
    assert found.mse[-1] == pytest.approx(expected / 790, rel=1e-12)


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
        ((np.ones((0, 2)), np.ones(0)), "got no row"),
        (([],), "got no row"),
    ],
)
def test_what_cannot_be_evaluated_is_told(arguments: tuple[Any, ...], said: str) -> None:
    tracker = RLS(2, **RAW)
    with pytest.raises(InputError, match=said):
        evaluate(tracker, *arguments)
    assert len(tracker) == 0


@pytest.mark.parametrize(("block", "said"), [(1, "got 1 row. Give"), (9, r"got 9 rows, all in the first block of 20")])
def test_where_all_rows_come_before_anything_is_known_nothing_can_be_told(block: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        evaluate(RLS(2, **RAW), np.ones((block, 2)), np.ones(block), block=20 if block > 1 else 1)


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
    assert evaluate(RLS(2), numbers, [1.0, 2.0]).points == [2]
