"""Crossed arms and the rows that they stand for; what policies make of them: policies/test_crossed_arms.py."""

from __future__ import annotations

import numpy as np
import pytest

from driftls.errors import DimensionError, InputError
from driftls.features import CrossedArms, Rows, UserArmCrosses
from driftls.logs import synthetic_day


@pytest.mark.parametrize("shared", [False, True])
def test_crossed_arms_are_the_rows_of_their_matrix(shared):
    row = np.array([[1.0, 0.0, 2.0]])
    arms = CrossedArms(row[0], [2, 0], count=3, shared=shared)
    expected = np.zeros((2, 3 * (3 + shared)))
    for k, block in enumerate([2, 0]):
        expected[k, 3 * (block + shared) : 3 * (block + shared) + 3] = row
        if shared:
            expected[k, :3] = row
    assert np.array_equal(arms.tocsr().toarray(), expected)
    assert arms.shape == expected.shape
    assert np.array_equal(arms[[1]].tocsr().toarray(), expected[[1]])


def test_the_crosses_of_a_log_are_the_rows_that_features_build():
    block = next(synthetic_day(lines=50, seed=2).blocks())
    features = UserArmCrosses(136, articles=120, shared=True)
    border = int(np.flatnonzero(np.diff(block.pool))[0]) + 1
    part = block.part(0, border)
    assert border > 1
    assert (features.crossed(part).tocsr() != features.rows(part)).nnz == 0
    assert (features.crossed(block[7]).tocsr() != features.arms(block[7])).nnz == 0
    with pytest.raises(InputError, match="several pools"):
        features.crossed(block)


def test_crossed_arms_that_cannot_be_are_refused():
    with pytest.raises(InputError, match=r"0 \.\.\. 2, got 1 \.\.\. 3"):
        CrossedArms([1.0], [1, 3], count=3)
    with pytest.raises(DimensionError, match="a block for each arm"):
        CrossedArms([1.0, 1.0], [[0]], count=3)
    with pytest.raises(InputError, match="one user"):
        CrossedArms(np.ones((2, 2)), [0], count=3)[[0, 1]]


@pytest.mark.parametrize(
    ("user", "blocks", "count"), [([1.0], [0.7], 2), ([1.0], [0], 2.5), ([1j], [0], 2), (["a"], [0], 2)]
)
def test_crossed_arms_of_other_than_numbers_are_refused(user, blocks, count):
    with pytest.raises(InputError):
        CrossedArms(user, blocks, count)


def test_crossed_arms_can_be_taken_one_by_one():
    arms = CrossedArms([1.0, 0.5], [2, 0], count=3)
    assert [one.blocks.tolist() for one in arms] == [[2], [0]]
    assert arms[1].shape == (1, 6)
    with pytest.raises(IndexError, match="2 arms"):
        arms[2]


USER = Rows(np.array([0, 1], np.int32), np.array([1.0, 0.5]), np.array([0, 2]), 2)


@pytest.mark.parametrize("shared", [2, 1000, 1.0, None, "yes", np.ones(2)])
def test_a_shared_block_is_there_or_not(shared):
    with pytest.raises(InputError, match="shared must be True or False"):
        CrossedArms(USER, [0], 1, shared)


@pytest.mark.parametrize(
    "damage",
    [
        *({"dim": dim} for dim in (2.0, None, 0, "2")),
        *({"start": start} for start in (None, 3, np.array(0), np.array([0.0, 2.0]), np.zeros((2, 1), int), [0, 3])),
        *({"values": values} for values in (None, np.array(1.0), np.ones((2, 1)), "ab")),
        *({"indices": indices} for indices in (None, np.array([0.0, 1.0]), np.zeros((2, 1), np.int32))),
    ],
)
def test_users_whose_arrays_do_not_fit_together_are_refused(damage):
    with pytest.raises(InputError):
        CrossedArms(USER._replace(**damage), [0, 2], 6)


def test_pointers_of_any_whole_type_serve():
    arms = CrossedArms(USER._replace(start=np.array([0, 2], np.uint64)), [0, 2], 6)
    assert np.array_equal(arms[1].tocsr().toarray(), CrossedArms(USER, [2], 6).tocsr().toarray())
