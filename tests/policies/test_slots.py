"""Ids of arms that recur, and their slots."""

from __future__ import annotations

import json

import numpy as np
import pytest

from driftls.errors import CorruptFileError, DimensionError, InputError
from driftls.inputs import Rows
from driftls.policies import LinUCB, SharedPolicy
from driftls.policies.arm_index import ArmIndex, id_of, plain_id, plain_ids
from driftls.trackers import RAW, SAGA
from driftls.widths import PhiWidth


def policy(**settings):
    return LinUCB(tracker=SAGA(4, seed=0, **RAW), width=PhiWidth(), seed=1, **settings)


def slots(of):
    """Id and slot of each, as a file has them."""
    return {id_of(name): slot for name, slot, _ in of.snapshot()[0]["ids"]}


def test_the_id_that_was_not_offered_for_longest_gives_way():
    index = ArmIndex(most=3, forget_after=1)
    assert [index.open(name, n) for n, name in enumerate("abc")] == [0, 1, 2]
    index.note("ac", 3)
    assert index.open("d", 4) == 1
    assert list(index.slot_of) == ["a", "c", "d"]
    assert index.stale(5) == ["a", "c"]
    assert index.drop("c") == 2
    assert index.open("e", 5) == 2
    assert len(index) == 3


def test_an_index_comes_back_from_its_header():
    index, again = ArmIndex(most=10), ArmIndex(most=10)
    for n, name in enumerate(["a", 2, ("b", 3.5)]):
        index.open(name, n)
    index.drop(2)
    again.restore(index.header())
    assert again.header() == index.header()
    assert again.open("new", 9) == index.open("new", 9) == 1


@pytest.mark.parametrize("kept", [[["a", -1, 0]], [["a", 0, 0], ["b", 0, 0]], [["a", 2**40, 0]], [["a", "0", 0]]])
def test_slots_that_cannot_be_are_refused(kept):
    with pytest.raises(CorruptFileError):
        ArmIndex(most=10).restore(kept)


@pytest.mark.parametrize("name", ["a", "", 0, -1.5, True, None, ("a", (1, 2.0)), 10**30, float("inf")])
def test_ids_that_a_file_keeps(name):
    assert id_of(json.loads(json.dumps(plain_id(name)))) == name


@pytest.mark.parametrize("name", [float("nan"), [1], {}, np.arange(2), np.float64("nan")])
def test_ids_that_cannot_be_found_again_are_refused(name):
    with pytest.raises(InputError, match="an id or key must be"):
        plain_id(name)


@pytest.mark.parametrize("ids", [set("ab"), {"a": 1}, "ab", b"ab", 3, iter("ab"), frozenset("ab")])
def test_what_has_no_order_or_is_no_list_is_refused(ids):
    with pytest.raises(InputError, match="ids must be a list"):
        plain_ids(ids)


def test_ids_must_differ_and_must_fit_in_a_file(tmp_path):
    one = policy()
    with pytest.raises(InputError, match="arm id 'a' stands for two arms"):
        one.choose(np.eye(4)[:3], ids=["a", "b", "a"])
    one.choose(np.eye(4)[:3], ids=[("user", 1), 2.5, np.int64(3)])
    assert slots(one) == {("user", 1): 0, 2.5: 1, 3: 2}
    with pytest.raises(InputError, match="text, a number or a tuple"):
        one.choose(np.eye(4)[:1], ids=[frozenset("a")])
    one.save(tmp_path / "policy")


def test_ids_that_stay_away_are_forgotten_when_room_is_needed():
    one = policy(forget_after=20)
    rng = np.random.default_rng(0)
    for n in range(150):
        arms = rng.normal(size=(5, 4))
        ids = [n, n + 1, n + 2, n + 3, "stays"]
        one.learn(arms, 1.0, arm=one.choose(arms, ids=ids), ids=ids)
    assert len(slots(one)) <= 32
    assert {"stays", 149, 152} <= slots(one).keys()
    assert len(set(slots(one).values())) == len(slots(one))


def test_nothing_is_forgotten_that_may_come_back():
    one, arms = policy(), np.random.default_rng(0).normal(size=(200, 4))
    for first in range(0, 200, 5):
        one.choose(arms[first : first + 5], ids=list(range(first, first + 5)))
    assert len(slots(one)) == 200
    np.testing.assert_allclose(one.widths(arms, ids=list(range(200))), np.linalg.norm(arms, axis=1))


def test_an_id_with_other_features_starts_afresh():
    one, other = policy(), policy()
    first, second = np.eye(4)[:2], np.eye(4)[2:]
    for _ in range(5):
        one.choose(first, ids=["a", "b"])
    one.choose(second, ids=["a", "b"])
    other.choose(second, ids=["a", "b"])
    np.testing.assert_array_equal(one.widths(second, ids=["a", "b"]), other.widths(second, ids=["a", "b"]))


def test_a_file_cannot_name_a_slot_that_the_width_does_not_have():
    one = policy()
    one.choose(np.eye(4), ids=list("abcd"))
    header, arrays = one.snapshot()
    header["ids"][0][1] = 10_000
    with pytest.raises(CorruptFileError, match="slot"):
        LinUCB.from_snapshot(header, arrays)


def test_an_index_outside_is_refused_before_the_arms_of_an_id_are_compared():
    def rows(index):
        return Rows(np.array([0, index, 2, 3], np.int32), np.ones(4), np.array([0, 2, 4]), 50)

    policy = SharedPolicy(SAGA(50, seed=0, **RAW), PhiWidth(), seed=0)
    policy.learn(rows(1), 1.0, arm=policy.choose(rows(1), ids=["a", "b"]), ids=["a", "b"])
    with pytest.raises(DimensionError, match="must lie in 0"):
        policy.learn(rows(2**31 - 1), 1.0, arm=0, ids=["a", "b"])
