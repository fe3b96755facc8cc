"""What a policy is asked about the lines of a log, by the features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from driftls.errors import DimensionError, SettingsError
from driftls.features import FeatureMap, OuterProduct, UserArmCrosses, UserOnly
from driftls.logs.columns import Ints
from driftls.logs.events import Block

__all__ = ["asked", "features_for", "runs_of", "shown"]


def features_for(name: str, policy: Any, features: FeatureMap | None, first: Block) -> FeatureMap:
    """The features that suit a policy and a log, or the reason why there are none."""
    own: Any = getattr(policy, "features", None)
    features = features or own
    disjoint = getattr(policy, "disjoint", False)
    if features is None:
        if first.visitor is not None:
            advice = f"{type(policy).__name__}(features=Features(2**18))"
            raise SettingsError(f"{name}: visitors of a table are dicts, which need features to make rows: {advice}.")
        if disjoint:
            features = UserOnly(policy.dim)
        elif first.arm_features is not None and policy.dim % first.arm_features.shape[1] == 0:
            arm_dim = first.arm_features.shape[1]
            features = OuterProduct(policy.dim // arm_dim, arm_dim)
        else:
            raise SettingsError(
                f"{name}: which features make an arm of a visitor and an article? Pass features=, for example "
                "UserArmCrosses(user_dim=136, articles=200), or use a DisjointLinUCB, which has one model an article."
            )
    if not hasattr(features, "users") if disjoint else isinstance(features, UserOnly):
        raise SettingsError(
            f"{name}: its features do not suit it: a policy with one model an article (DisjointLinUCB) takes UserOnly or "
            f"Features, any other UserArmCrosses, OuterProduct or Features; these are {type(features).__name__}."
        )
    if features is own and (told := getattr(features, "strange", lambda block: "")(first)):
        advice = (
            "Train it on a log of the same kind, or make the log's rows with the policy's features: see docs/logs.md."
        )
        raise SettingsError(f"{name}: {told}. {advice}")
    if features.grows and own is not features:
        raise SettingsError(f"{name}: a vocabulary that grows belongs to its policy: build it with features=.")
    if features.dim != policy.dim and not features.grows:
        raise DimensionError(f"{name}: the features have dim={features.dim}, but the policy has dim={policy.dim}.")
    return features


def asked(features: Any, block: Block, *, disjoint: bool) -> tuple[Any, dict[str, Any]]:
    """What a policy is asked about one of `runs_of`: arms, or visitors and the ids of the arms."""
    if disjoint:
        begin, end = block.pool_start[block.pool[0] : block.pool[0] + 2]
        users = features.visitors(block) if isinstance(features, UserOnly) else features.users(block)
        return users, {"ids": ids_of(block, block.pool_ids[begin:end])}
    # no ids: an article has other features for every user
    return features.crossed(block) if isinstance(features, UserArmCrosses) else features.rows(block), {}


def ids_of(block: Block, numbers: Ints) -> Any:
    """Ids as a policy is to know them: those of a table, where a block has numbers for them."""
    return numbers if block.items is None else [block.items[k]["id"] for k in numbers.tolist()]


def shown(features: Any, block: Block, *, disjoint: bool) -> tuple[Any, Ints]:
    """Of each line the row of the arm that it shows (or of the visitor, for one model an arm), and the arm's id."""
    alone = block.alone()
    rows = features.users(block) if disjoint and hasattr(features, "users") else features.rows(alone)
    return rows, alone.pool_ids[alone.pool]


def runs_of(features: FeatureMap, block: Block, *, disjoint: bool) -> Iterator[tuple[int, int]]:
    """Lines from ... to that can be played at once: with one pool or, where arms are rows, pools of one size."""
    pool = block.pool
    if not disjoint and not isinstance(features, UserArmCrosses):
        pool = np.diff(block.pool_start)[pool]
    borders = (np.flatnonzero(np.diff(pool)) + 1).tolist()
    return zip([0, *borders], [*borders, len(block)])
