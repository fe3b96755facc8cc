"""Features: every kind, by the event and by the block, against plain loops; and what was saved goes on alike."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.errors import DimensionError, FileFormatError, InputError, NewerFileError, SettingsError
from driftls.features import FeatureMap, OuterProduct, UserArmCrosses, UserOnly, from_header
from driftls.logs import Block, Event, read, synthetic_day
from driftls.policies import DisjointLinUCB

DIM = 136
ALL = [
    lambda: OuterProduct(DIM, 3),
    lambda: UserOnly(DIM),
    lambda: UserOnly(DIM, constant=True),
    lambda: UserArmCrosses(DIM, articles=120),
    lambda: UserArmCrosses(DIM, articles=120, shared=True),
    lambda: UserArmCrosses(DIM, articles=120, shared=True, constant=True),
]
each = pytest.mark.parametrize("make", ALL, ids=lambda make: repr(make()))


@pytest.fixture(scope="module")
def block() -> Block:
    """A day with many pools, real values, and features of the articles."""
    made = Block.join(synthetic_day(lines=100, seed=3).blocks())
    rng = np.random.default_rng(0)
    values, features = rng.normal(size=len(made.user_value)), rng.normal(size=(len(made.pool_ids), 3))
    return replace(made, user_value=values, arm_features=features)


def dense(matrix: Any) -> NDArray[np.float64]:
    return matrix.toarray() if sp.issparse(matrix) else matrix


def naive(features: FeatureMap, event: Event, blocks: dict[int, int]) -> NDArray[np.float64]:
    """The arms of one event, entry by entry; `blocks` is filled as articles come."""
    user = [(int(i), float(v)) for i, v in zip(event.user_index, event.user_value)]
    if getattr(features, "constant", False):
        user.append((features.user_dim, 1.0))
    wide = features.user_dim + getattr(features, "constant", False)
    arms = np.zeros((len(event.arms), features.dim))
    for k, article in enumerate(event.arms.tolist()):
        for i, value in user:
            if isinstance(features, OuterProduct):
                assert event.arm_features is not None
                for j in range(3):
                    arms[k, 3 * i + j] = value * event.arm_features[k, j]
            elif isinstance(features, UserOnly):
                arms[k, i] = value
            elif isinstance(features, UserArmCrosses):
                first = blocks.setdefault(article, len(blocks)) + features.shared
                arms[k, wide * first + i] = value
                if features.shared:
                    arms[k, i] = value
    return arms


@each
def test_the_arms_of_an_event_are_what_plain_loops_make(make: Any, block: Block) -> None:
    features, blocks = make(), {}
    for event in block:
        expected = naive(features, event, blocks)
        assert expected.shape == (len(event.arms), features.dim)
        np.testing.assert_array_equal(dense(features.arms(event)), expected)


@each
def test_rows_of_a_block_are_those_of_its_events_to_the_bit(make: Any, block: Block) -> None:
    by_block, by_event = make(), make()
    rows, start = by_block.rows(block), block.truth_start
    assert rows.shape == (start[-1], by_block.dim)
    for i, event in enumerate(block):
        assert np.array_equal(dense(rows[start[i] : start[i + 1]]), dense(by_event.arms(event)))
    assert by_block.to_header() == by_event.to_header()


@each
def test_rows_do_not_depend_on_how_a_log_is_cut(make: Any, block: Block) -> None:
    events = list(block)
    pieces = [Block.from_events(events[a:b]) for a, b in ((0, 1), (1, 40), (40, 100))]
    one, many = make(), make()
    whole, parts = one.rows(block), [many.rows(piece) for piece in pieces]
    if sp.issparse(whole):  # a wide matrix, which nobody should write out
        assert (whole != sp.vstack(parts)).nnz == 0
    else:
        assert np.array_equal(whole, np.vstack(parts))


@each
def test_sparse_arms_have_sorted_indices_and_none_twice(make: Any, block: Block) -> None:
    rows = make().rows(block)
    if sp.issparse(rows):
        assert isinstance(rows, sp.csr_array)
        assert sp.csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape).has_canonical_format


@each
def test_what_was_saved_and_loaded_gives_the_same_arms(make: Any, block: Block) -> None:
    features = make()
    for event in list(block)[::-1][:5]:  # in another order than a fresh one will meet them
        features.arms(event)
    loaded = from_header(json.loads(json.dumps(features.to_header())))
    assert loaded == features
    for event in block:
        assert np.array_equal(dense(loaded.arms(event)), dense(features.arms(event)))


def test_blocks_of_articles_go_by_first_use_even_if_pools_are_numbered_otherwise(block: Block) -> None:
    pools = [block.pool_ids[a:b] for a, b in pairwise(block.pool_start)][::-1]
    swapped = replace(
        block,
        pool=(len(pools) - 1 - block.pool).astype(np.int32),
        pool_start=np.concatenate(([0], np.cumsum([len(pool) for pool in pools]))),
        pool_ids=np.concatenate(pools),
        arm_features=None,
    )
    assert len(pools) > 1
    assert list(swapped) == list(replace(block, arm_features=None))
    one, other = UserArmCrosses(DIM, articles=120), UserArmCrosses(DIM, articles=120)
    assert (one.rows(block) != other.rows(swapped)).nnz == 0
    assert one.to_header() == other.to_header()


def test_r6a_has_36_features(tmp_path: Path) -> None:
    line = (
        "1241160900 43 1 |user 2:0.100000 3:0.000000 4:0.200001 5:0.000009 6:0.699990 1:1.000000"
        " |42 2:0.000001 3:0.250000 4:0.250000 5:0.499999 6:0.000000 1:1.000000"
        " |43 2:0.123456 3:0.000044 4:0.876500 5:0.000000 6:0.000000 1:1.000000\n"
    )
    (tmp_path / "day").write_text(line)
    [event] = read(tmp_path / "day")
    user = np.array([1.0, 0.1, 0.0, 0.200001, 0.000009, 0.69999])
    assert event.arm_features is not None
    arms = OuterProduct(6, 6).arms(event)
    assert np.array_equal(arms, [np.outer(user, article).ravel() for article in event.arm_features])


def test_one_model_an_article_takes_the_visitor(block: Block) -> None:
    features = UserOnly(DIM, constant=True)
    users = features.users(block)
    policy = DisjointLinUCB(dim=features.dim, seed=0)
    for i, event in enumerate(list(block)[:20]):
        user = features.user(event)
        assert np.array_equal(user.toarray(), users[[i]].toarray())
        k = policy.choose(user, ids=event.arms)
        policy.learn(user, event.reward, arm=k, ids=event.arms)
    assert len(policy) == len(np.unique(np.concatenate([event.arms for event in list(block)[:20]])))


def test_numpy_numbers_are_kept_as_plain_ones() -> None:
    features = UserArmCrosses(np.int64(3), articles=np.int32(2))  # type: ignore[arg-type]
    assert from_header(json.loads(json.dumps(features.to_header()))) == features


def test_more_articles_than_declared_are_refused_and_nothing_is_changed(block: Block) -> None:
    event = block[0]
    features = UserArmCrosses(DIM, articles=len(event.arms))
    features.arms(event)
    before = features.to_header()
    other = replace(event, arms=np.append(event.arms[1:], 999))
    with pytest.raises(InputError, match=f"room for {len(event.arms)} articles, and id 999 is one more"):
        features.arms(other)
    assert features.to_header() == before
    features.arms(event)


def test_what_does_not_fit_is_refused(block: Block) -> None:
    event = block[int(np.argmax(np.diff(block.user_start)))]
    last = int(event.user_index[-1])
    with pytest.raises(DimensionError, match=f"has feature {last}, but user_dim={last}. Declare user_dim={last + 1}"):
        UserOnly(last).user(event)
    with pytest.raises(DimensionError, match="have 3 features, but arm_dim=2"):
        OuterProduct(DIM, 2).arms(event)
    with pytest.raises(InputError, match="needs logs with article features"):
        OuterProduct(DIM, 3).arms(replace(event, arm_features=None))
    with pytest.raises(SettingsError, match="articles must be a whole number of at least 1, got 0"):
        UserArmCrosses(DIM, articles=0)
    with pytest.raises(SettingsError, match=r"user_dim must be a whole number of at least 1, got 1\.5"):
        UserOnly(1.5)  # type: ignore[arg-type]
    with pytest.raises(FileFormatError, match="one of Features, OuterProduct, UserOnly, UserArmCrosses, got 'Lasso'"):
        from_header({"features": "Lasso", "version": 2})
    with pytest.raises(NewerFileError, match="version 3"):
        from_header({**UserOnly(3).to_header(), "version": 3})
