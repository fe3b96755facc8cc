"""What is refused leaves no trace, whatever it comes through: growth, damaged matrices, files, other policies."""

from __future__ import annotations

import uuid
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from driftls import evaluate, persistence
from driftls.errors import CorruptFileError, DimensionError, DriftlsError, InputError, SettingsError
from driftls.features import Features, Rows
from driftls.fit import fit
from driftls.policies import DisjointLinUCB, LinUCB, SharedPolicy
from driftls.policies.registry import load, make
from driftls.testing.common import same_snapshot
from driftls.trackers import RAW, RLS, SAGA
from driftls.widths import CentredWidth, DiagonalWidth, ExactWidth, PhiWidth, SampleWidth

IDS = ["a", "b"]


def damaged():
    X = sp.csr_array(np.eye(4))
    X.indptr[1] = 3 * 10**8
    return X


@pytest.mark.parametrize("width", [ExactWidth, SampleWidth])
def test_growth_that_the_width_refuses_is_refused_as_a_whole(width):
    policy, arms = SharedPolicy(SAGA(50, seed=0, **RAW), width(), seed=0), sp.csr_array(np.eye(2, 50))
    policy.learn(arms, 1.0, arm=policy.choose(arms))
    before = policy.snapshot()
    with pytest.raises(SettingsError, match="40000 x 40000"):
        policy.grow(40_000)
    same_snapshot(before, policy.snapshot(), "growth")
    assert policy.dim == policy.tracker.dim == 50
    policy.choose(arms)


@pytest.mark.parametrize("frozen", [True, False])
def test_pointers_that_lead_out_of_a_matrix_are_refused_by_many_rounds(frozen):
    policy = LinUCB(4, seed=0)
    policy.learn(np.eye(4), 1.0, arm=policy.choose(np.eye(4)))
    asked = policy.freeze() if frozen else policy
    with pytest.raises(InputError):
        asked.play(damaged(), rounds=2)
    with pytest.raises(InputError):
        asked.choose_many(damaged(), rounds=2)


def test_pointers_that_lead_out_of_a_matrix_are_refused_by_evaluate_and_fit():
    with pytest.raises(InputError):
        evaluate(RLS(4), damaged(), np.ones(4))
    with pytest.raises(DriftlsError):
        fit(make("linucb-exact", 4), [0], read=lambda shard: [(damaged(), np.ones(4))])


def test_a_file_without_room_for_arms_that_recur_is_refused():
    policy = SharedPolicy(SAGA(3, seed=0, **RAW), PhiWidth(), seed=0)
    policy.learn(np.eye(3), 1.0, arm=policy.choose(np.eye(3)))
    header, arrays = policy.snapshot()
    header["models"] = [{**header["models"][0], "slots": 0}]
    arrays = {name: array for name, array in arrays.items() if not name.startswith("0.width.")}
    with pytest.raises(CorruptFileError):
        SharedPolicy.from_snapshot(header, arrays)


@pytest.mark.parametrize("width", [DiagonalWidth(), CentredWidth()])
def test_a_file_whose_models_never_started_is_refused(width):
    settings = RAW if isinstance(width, DiagonalWidth) else {}
    policy = DisjointLinUCB(3, tracker=SAGA(3, **settings), width=width, seed=0)
    policy.learn(np.ones(3), 1.0, arm=policy.choose(np.ones(3), ids=IDS), ids=IDS)
    header, arrays = policy.snapshot()
    header["sparse"] = None
    for model in header["models"]:
        model["tracker"] = {**model["tracker"], "sparse": None}
    with pytest.raises(CorruptFileError):
        DisjointLinUCB.from_snapshot(header, arrays)


@pytest.mark.parametrize("value", [np.nan, -1.0, np.inf])
def test_a_file_with_a_noise_that_cannot_be_is_refused(value):
    header, arrays = LinUCB(2, seed=0).snapshot()
    header["numbers"] = {**header["numbers"], "errors": value}
    with pytest.raises(CorruptFileError):
        LinUCB.from_snapshot(header, arrays)


def test_a_tracker_has_one_policy():
    tracker = SAGA(3, seed=0, **RAW)
    first, second = (SharedPolicy(tracker, DiagonalWidth(), seed=0) for _ in range(2))
    first.choose(np.eye(3))
    with pytest.raises(SettingsError, match="of its own"):
        second.choose(np.eye(3))
    first.choose(np.eye(3))


def test_a_tracker_whose_first_row_was_refused_is_free_again():
    tracker = SAGA(3, step_size=5.0, seed=0, **RAW)
    first, second = (SharedPolicy(tracker, DiagonalWidth(), seed=0) for _ in range(2))
    with pytest.raises(DriftlsError, match="step_size"):
        first.learn(np.ones(3), 1.0)
    second.choose(sp.csr_array(np.eye(3)))


def test_a_question_about_more_arms_than_before_draws_nothing():
    twins = [DisjointLinUCB(3, tracker=SAGA(3, **RAW), width=DiagonalWidth(), epsilon=0.5, seed=0) for _ in range(2)]
    names = [f"id{k}" for k in range(40)]
    for twin in twins:
        for k in range(0, 40, 10):
            twin.choose(np.ones(3), ids=names[k : k + 10])
        twin._models.draws.take(int(twin._models.draws.tape.size - twin._models.draws.cursor[0]) - 32)
    twins[0].scores(np.ones(3), ids=names)
    chosen = [[twin.choose(np.ones(3), ids=IDS) for _ in range(100)] for twin in twins]
    assert chosen[0] == chosen[1]


def test_a_refused_reward_leaves_the_vocabulary_as_it_was():
    policy = DisjointLinUCB(features=Features(), seed=0)
    policy.choose({"a": 1.0}, ids=IDS)
    before = policy.snapshot()
    for wrong in ({"arm": 9, "ids": IDS}, {"arm": 0, "ids": ["unknown", "b"]}):
        with pytest.raises(InputError):
            policy.learn({"new": 1.0}, 1.0, **wrong)
    with pytest.raises(InputError, match="remember"):
        policy.remember("key", {"new": 1.0})
    same_snapshot(before, policy.snapshot(), "a refused reward")
    shared = LinUCB(features=Features(), seed=0)
    before = shared.snapshot()
    for call in (
        lambda: shared.learn({"new": 1.0}, 1.0, items=[{"b": 1.0}], arm=3),
        lambda: shared.choose({"new": 1.0}, [{"b": 1.0}], allowed=[4]),
        lambda: shared.play(None, items=[{"b": 1.0}]),
        lambda: shared.play(5, items=[{"b": 1.0}]),
    ):
        with pytest.raises(InputError):
            call()
    same_snapshot(before, shared.snapshot(), "a refused round")


def test_a_warm_start_that_its_width_refuses_opens_no_arm():
    policy = DisjointLinUCB(3, seed=0)
    policy.choose(sp.csr_array(np.ones((1, 3))), ids=IDS)
    with pytest.raises(SettingsError, match="warm start"):
        policy.warm("c", lambda tracker: None, sparse=True, squares=np.ones(3), n=5, errors=1.0)
    assert policy.ids == IDS


def test_a_row_of_pandas_is_a_user_like_a_dict():
    pandas = pytest.importorskip("pandas")
    twins = [DisjointLinUCB(features=Features(dim=64), seed=0) for _ in range(2)]
    user = {"age": 31.0, "city": "Oslo"}
    for twin, one in zip(twins, (user, pandas.Series(user))):
        twin.learn(one, 1.0, arm=twin.choose(one, ids=IDS), ids=IDS)
    np.testing.assert_array_equal(twins[0].model("a").theta, twins[1].model("a").theta)


@pytest.mark.parametrize(
    "start", [np.zeros((2, 3), np.int64), np.array(0), np.array([0.0, 1.0]), np.array([[0, 1]]), None, 3]
)
@pytest.mark.parametrize("used", [True, False])
def test_rows_whose_pointers_are_no_vector_of_whole_numbers_are_refused(start, used):
    policy, arms = LinUCB(tracker=SAGA(12, seed=1), width=DiagonalWidth(), seed=0), sp.csr_array(np.eye(2, 12))
    if used:
        policy.learn(arms, 1.0, arm=policy.choose(arms))
    bad, before = Rows(np.zeros(1, np.int32), np.zeros(1), start, 12), policy.snapshot()
    calls = [
        policy.choose,
        policy.scores,
        lambda rows: policy.learn(rows, 1.0),
        lambda rows: policy.play(rows, [[1.0]]),
    ]
    for call in (*calls, lambda rows: policy.choose(rows, key="k"), lambda rows: policy.learn(rows, 1.0, arm=0)):
        with pytest.raises(InputError):
            call(bad)
        same_snapshot(before, policy.snapshot(), "damaged pointers")


def test_a_refused_question_leaves_the_counts_of_what_was_missing():
    features, items = Features(), [{"id": 1}, {"id": 2}]
    policy = LinUCB(features=features, seed=0)
    for _ in range(5):
        policy.learn({"city": "Oslo"}, 1.0, items=items, arm=policy.choose({"city": "Oslo"}, items))
    with pytest.raises(InputError, match="bad"):
        policy.scores({"town": "x", "bad": object()}, items)
    policy.choose({"city": "Oslo"}, items)
    assert features.missing == {"city": 0, "item.id": 0}


# -- made of dicts, and refused afterwards ---------------------------------------------------------------------------

ITEMS = [{"id": 1}, {"id": 2}]
AFTERWARDS = {
    "another number of ids": lambda p: p.choose({"new": 1}, [{"id": 77}, {"id": 78}], ids=[1]),
    "a cross beyond all numbers": lambda p: p.choose({"w": 1e70}, [{"id": 9, "v": 1e70}]),
    "such a cross, learned": lambda p: p.learn({"w": 1e70}, 1.0, items=[{"id": 9, "v": 1e70}], arm=0),
    "rewards of another shape": lambda p: p.play([{"z": 1}, {"z": 2}], np.zeros((5, 5)), items=[{"id": 5}]),
    "items that come once, and an arm too many": lambda p: p.choose(
        {"q": 1}, ({"id": k} for k in (91, 92)), allowed=[7]
    ),
    "a longer row that is not finite": lambda p: p.choose(sp.csr_array(([np.nan], [0], [0, 1]), shape=(1, 300))),
    "a table and another number of ids": lambda p: p.choose(
        {"t": 1}, pd.DataFrame({"id": [3, 4], "c": [1.0, None]}), ids=[1]
    ),
}


@pytest.mark.parametrize("call", AFTERWARDS.values(), ids=AFTERWARDS.keys())
@pytest.mark.parametrize("dim", [None, 64], ids=["vocabulary", "hashed"])
def test_a_call_that_is_refused_after_its_rows_were_made_leaves_features_as_they_were(dim, call):
    features = Features(dim, cross="all")
    policy = LinUCB(features=features, seed=0)
    policy.choose({"a": 1}, ITEMS)

    def told():
        return features.to_header(), features.missing, str(features), features.collisions, policy.dim

    before = told()
    with pytest.raises(DriftlsError):
        call(policy)
    assert told() == before
    policy.choose({"a": 2}, ITEMS)  # the items of the last good call, which are known and not counted again
    assert features.missing == {"a": 0, "item.id": 0}


def test_a_choice_after_a_question_about_the_same_items_is_counted():
    features = Features(1024)
    policy = LinUCB(features=features, seed=0)
    policy.choose({"city": "Oslo"}, [{"id": 1}])
    for n in range(20):
        items = [{"id": n, "brand": f"b{n}"}, {"id": n + 100}]
        policy.probabilities({"city": "Oslo"}, items)
        policy.choose({"city": "Oslo"}, items)
    assert features.missing == {"city": 0, "item.id": 0, "item.brand": 21}


def test_a_blank_cell_of_a_question_is_forgotten():
    policy = LinUCB(features=Features(), seed=0)
    policy.choose({"age": 31}, ITEMS)
    policy.scores({"age": None}, ITEMS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.choose({"age": np.float64(31)}, ITEMS)


@pytest.mark.parametrize("key", [uuid.UUID(int=3), b"x", 10**5000, object()], ids=["UUID", "bytes", "digits", "object"])
def test_a_key_that_no_file_could_keep_is_refused_at_once(key):
    policy = LinUCB(3, seed=0)
    with pytest.raises(InputError, match="id or key"):
        policy.choose(np.eye(3), key=key)
    policy.choose(np.eye(3), key=(np.int64(3), "a"))
    assert list(policy.freeze().keys.waiting) == [(3, "a")]


def test_a_frozen_policy_refuses_the_rows_that_a_live_one_does():
    policy = LinUCB(4, seed=0)
    policy.choose(sp.csr_array(np.eye(4)[:2]))
    bad = sp.csr_array((np.ones(4), np.array([1, 0, 1, 0]), np.arange(5)), shape=(4, 4))
    bad.indices[1] = 4
    for one in (policy, policy.freeze()):
        with pytest.raises(DimensionError):
            one.play(bad, rounds=2)
    good = sp.csr_array(np.eye(4))
    good.data = good.data.astype(">f8")
    np.testing.assert_array_equal(policy.freeze().play(good, rounds=2), policy.play(good, rounds=2))


def test_the_arm_that_is_refused_is_named_and_an_index_of_one_too_many_for_what_it_is():
    policy = LinUCB(4, seed=0)
    policy.learn((np.array([1]), np.ones(1)), 1.0)
    arms = [(np.array([0]), np.ones(1)), (np.array([2, 4]), np.ones(2))]
    with pytest.raises(DimensionError, match=r"arm 1: a sparse index must lie in 0 \.\.\. 3"):
        policy.learn(arms, 1.0, arm=1)


def test_a_sparse_matrix_that_is_a_dict_is_no_user():
    assert LinUCB(3, seed=0).choose(sp.dok_array(np.eye(3))) == LinUCB(3, seed=0).choose(sp.csr_array(np.eye(3)))


@pytest.mark.parametrize("regularisation", [["power", 1.0, 0.0, 2.0], ["power", 1.0, 5.0, 1.0]])
@pytest.mark.parametrize("disjoint", [False, True])
def test_a_file_whose_prior_is_not_that_of_its_models_is_refused(disjoint, regularisation, tmp_path):
    """Even with right checksums: over such a tracker the next look would read an inverse that is not there."""
    parts = {"tracker": RLS(3), "width": CentredWidth()} if disjoint else {}
    policy = DisjointLinUCB(3, seed=0, **parts) if disjoint else LinUCB(3, seed=0)
    policy.choose(np.eye(3)[:1], ids=["a"])
    header, arrays = policy.snapshot()
    header["tracker"]["settings"]["regularisation"] = regularisation
    persistence.write(tmp_path / "policy", header, arrays)
    with pytest.raises(CorruptFileError):
        load(tmp_path / "policy")


def test_ids_are_no_table():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InputError, match="ids must be a list"):
        DisjointLinUCB(2, seed=0).choose(np.ones(2), ids=pandas.DataFrame({"id": ["x", "y"]}))


def test_a_file_whose_waiting_choice_has_no_arm_is_refused():
    policy = DisjointLinUCB(2, seed=0)
    policy.choose(np.ones(2), ids=["a", "b"], key=1)
    header, arrays = policy.snapshot()
    header["keys"]["waiting"][0][1] = []
    with pytest.raises(CorruptFileError, match="waiting"):
        DisjointLinUCB.from_snapshot(header, arrays)
