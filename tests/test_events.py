"""Events and blocks hold the same facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftls.errors import InputError
from driftls.logs import Block, Event


@st.composite
def events(draw: Any, extras: bool) -> Event:
    arms = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True))
    index = sorted(draw(st.sets(st.integers(0, 20), max_size=5)))
    number = st.floats(-2, 2)
    return Event(
        time=draw(st.integers(0, 2**40)),
        arms=np.array(arms),
        shown=draw(st.integers(0, len(arms) - 1)),
        reward=draw(number),
        user_index=np.array(index, np.int32),
        user_value=np.array([draw(number) for _ in index], np.float64),
        propensity=draw(st.floats(0.01, 1)) if extras else None,
        arm_features=np.array([[i, i % 2] for i in arms], np.float64) if extras else None,
        truth=np.array([draw(number) for _ in arms]) if extras else None,
    )


def example(**changes: Any) -> Event:
    event = Event(5, np.array([3, 7]), 1, 1.0, np.array([0, 4], np.int32), np.array([1.0, 0.5]))
    return replace(event, **changes)


@settings(max_examples=60, deadline=None)
@given(st.booleans().flatmap(lambda extras: st.lists(events(extras), max_size=12)))
def test_events_survive_packing_and_unpacking(some: list[Event]) -> None:
    block = Block.from_events(some)
    assert len(block) == len(some)
    assert list(block) == some
    assert [block[i] for i in range(len(block))] == some
    assert Block.from_events(block) == block


@settings(max_examples=40, deadline=None)
@given(st.booleans().flatmap(lambda extras: st.lists(events(extras), max_size=12)), st.integers(1, 5))
def test_joining_pieces_gives_the_block_of_the_whole(some: list[Event], size: int) -> None:
    pieces = [Block.from_events(some[i : i + size]) for i in range(0, len(some), size)]
    assert Block.join(pieces) == Block.from_events(some)


def test_an_equal_pool_is_stored_once_and_an_equal_pool_with_other_features_is_another() -> None:
    same = Block.from_events([example(), example(arms=np.array([7, 3])), example()])
    assert same.pool.tolist() == [0, 1, 0]
    assert same.pool_start.tolist() == [0, 2, 4]
    one, two = example(arm_features=np.eye(2)), example(arm_features=2 * np.eye(2))
    assert Block.from_events([one, two, one]).pool.tolist() == [0, 1, 0]


def test_columns_have_the_types_that_kernels_expect() -> None:
    for block in (Block.from_events([example()]), Block.from_events([]), Block.join([])):
        for dtype, names in (
            (np.int64, ["time", "pool_start", "pool_ids", "user_start"]),
            (np.int32, ["pool", "shown", "user_index"]),
            (np.float64, ["reward", "user_value"]),
        ):
            assert all(getattr(block, name).dtype == dtype for name in names)


def test_an_event_names_the_arm_that_was_shown() -> None:
    assert example().arm == 7


def test_a_block_can_be_indexed_from_its_end_and_not_beyond() -> None:
    block = Block.from_events([example(time=1), example(time=2)])
    assert block[-1].time == 2
    for i in (2, -3):
        with pytest.raises(IndexError, match="block of 2 lines"):
            block[i]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (example(shown=2), r"event 1: expected `shown` to be a position among the arms, from 0, got shown = 2"),
        (example(shown=-1), r"`shown` to be a position"),
        (example(user_value=np.ones(3)), r"as many entries as there are user_index, got user_value"),
        (example(user_index=np.array([4, 4])), r"that increase, got user_index = array"),
        (example(user_index=np.array([4, 0])), r"increase"),
        (example(user_index=np.array([-1, 0])), r"at least 0"),
        (example(truth=np.ones(3)), r"as many entries as there are arms, got truth"),
        (example(arm_features=np.ones((1, 2))), r"as many entries as there are arms, got arm_features"),
        (example(reward=float("nan")), r"event 1: expected finite numbers, got reward = nan"),
        (example(propensity=0.5), r"`propensity` must be given everywhere or nowhere, got it in 1 of 2"),
    ],
)
def test_an_event_that_contradicts_itself_or_the_others_is_refused(wrong: Event, message: str) -> None:
    both = {"truth": np.ones(2), "arm_features": np.ones((2, 2))}
    right = example(**{name: value for name, value in both.items() if getattr(wrong, name) is not None})
    with pytest.raises(InputError, match=message):
        Block.from_events([right, wrong])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": np.ones(3)}, "2 entries of reward"),
        ({"pool": np.array([0, 1], np.int32)}, "pool to name rows"),
        ({"pool": np.array([0, -1], np.int32)}, "pool to name rows"),
        ({"shown": np.array([0, 2], np.int32)}, "shown to be positions"),
        ({"shown": np.array([0, -1], np.int32)}, "shown to be positions"),
        ({"pool_start": np.array([0, 3])}, "pool_start to go from 0"),
        ({"pool_start": np.array([1, 2])}, "pool_start to go from 0"),
        ({"user_start": np.array([0, 5, 4])}, "user_start to go from 0"),
        ({"user_start": np.array([0, 4])}, "user_start to go from 0"),
        ({"user_value": np.ones(3)}, "4 entries of user_value"),
        ({"user_index": np.array([0, 1, -1, 2], np.int32)}, "user indices of at least 0"),
        ({"propensity": np.ones(1)}, "2 entries of propensity"),
        ({"arm_features": np.ones((1, 2))}, "2 entries of arm_features"),
        ({"truth": np.ones(5)}, "a truth for each candidate"),
    ],
)
def test_columns_that_could_lead_a_kernel_astray_are_refused(changes: dict[str, Any], message: str) -> None:
    block = Block.from_events([example(), example()])
    with pytest.raises(InputError, match=message):
        replace(block, **changes)


def test_comparison_sees_every_column() -> None:
    block = Block.from_events([example(), example()])
    assert block == replace(block)
    assert block != replace(block, time=block.time + 1)
    assert block != replace(block, truth=np.ones(4))
    assert block != "a block"
    assert example() != "an event"
    with pytest.raises(TypeError):
        hash(block)
