"""What is kept of a record: it grows, goes to a file and comes back by one list."""

from __future__ import annotations

import numpy as np
import pytest

from driftls.compiling.parts import Frame
from driftls.errors import CorruptFileError
from driftls.kernels.records import TRACKER
from driftls.state import State

SHAPES = {"gram": ("dim", "dim"), "moment": ("dim",), "residual": ("rows",), "coords": ("two", "dim")}


def state(dim=3, rows=4):
    made = State(
        Frame(TRACKER),
        SHAPES,
        {"dim": dim, "rows": rows, "two": 2},
        ("scale", "route"),
        constant=True,
        columns=("coords",),
    )
    for array in made.arrays.values():
        array[...] = np.arange(1.0, array.size + 1.0).reshape(array.shape)
    made.frame.set(scale=0.5, route=2)
    return made


def at(frame, name):
    """Whether the record points to the array of that name."""
    return frame[name] == frame.arrays[name].__array_interface__["data"][0]


def test_more_features_go_between_what_was_there_and_the_constant():
    kept = state()
    before = {name: array.copy() for name, array in kept.arrays.items()}
    kept.widen(5)
    places = [0, 1, 4]
    np.testing.assert_array_equal(kept.arrays["gram"][np.ix_(places, places)], before["gram"])
    np.testing.assert_array_equal(kept.arrays["coords"][:, places], before["coords"])
    assert kept.arrays["gram"].sum() == before["gram"].sum()
    assert kept.arrays["coords"].flags.f_contiguous
    np.testing.assert_array_equal(kept.arrays["residual"], before["residual"])
    assert kept.frame.arrays["gram"] is kept.arrays["gram"]
    assert at(kept.frame, "gram")


def test_more_rows_leave_what_was_there_and_nothing_else_is_made_anew():
    kept = state()
    gram = kept.arrays["gram"]
    kept.lengthen(rows=9)
    np.testing.assert_array_equal(kept.arrays["residual"], [1, 2, 3, 4, 0, 0, 0, 0, 0])
    assert kept.arrays["gram"] is gram
    assert at(kept.frame, "residual")


def test_what_is_used_comes_back_from_a_file():
    one, two = state(rows=4), state(rows=8)
    numbers, arrays = one.snapshot(rows=2)
    assert arrays["residual"].tolist() == [1.0, 2.0]
    two.frame.set(scale=0.0, route=0)
    two.fill(*two.read(numbers, arrays, rows=2))
    assert (two.frame["scale"], two.frame["route"]) == (0.5, 2)
    np.testing.assert_array_equal(two.arrays["gram"], one.arrays["gram"])


@pytest.mark.parametrize("name", ["scale", "gram", "residual"])
@pytest.mark.parametrize("bad", [None, np.nan, np.inf, "1", np.zeros(7)], ids=str)
def test_what_a_file_cannot_hold_is_refused_and_changes_nothing(name, bad):
    kept = state()
    numbers, arrays = kept.snapshot()
    if name == "scale":
        numbers = {**numbers, name: bad}
    else:
        arrays = {**arrays, name: bad if isinstance(bad, np.ndarray) else np.full(3, np.nan)}
    with pytest.raises(CorruptFileError):
        kept.read(numbers, arrays)
    assert kept.frame["scale"] == 0.5
