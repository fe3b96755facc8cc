"""What a policy is asked about the lines of a log: events to arms, by the features, and many lines at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import DimensionError, SettingsError
from driftls.features import FeatureMap, OuterProduct, UserArmCrosses, UserOnly
from driftls.logs.events import Block, Event

__all__ = ["arms_of", "features_for", "play", "runs_of"]


def features_for(name: str, policy: Any, features: FeatureMap | None, first: Block) -> FeatureMap:
    """The features that suit a policy and a log, or the reason why there are none."""
    own: Any = getattr(policy, "features", None)
    features = features or own
    disjoint = getattr(policy, "disjoint", False)
    if features is None:
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
    if disjoint != isinstance(features, UserOnly):
        raise SettingsError(f"{name}: UserOnly and DisjointLinUCB, with one model an article, belong together.")
    if features.grows and own is not features:
        raise SettingsError(f"{name}: a vocabulary that grows belongs to its policy: build it with features=.")
    if features.dim != policy.dim and not features.grows:
        raise DimensionError(f"{name}: the features have dim={features.dim}, but the policy has dim={policy.dim}.")
    return features


def arms_of(features: FeatureMap, event: Event) -> tuple[Any, dict[str, Any]]:
    """What a policy is asked about an event: arms, or a visitor and the arms' ids."""
    if isinstance(features, UserOnly):
        return features.user(event), {"ids": event.arms}
    if isinstance(features, UserArmCrosses):
        return features.crossed(event), {}
    return features.arms(event), {}  # no ids: an article has other features for every user


def runs_of(features: FeatureMap, block: Block) -> Iterator[tuple[int, int]]:
    """Lines from ... to that can be played at once: with one pool or, where arms are rows, pools of one size."""
    pool = block.pool
    if not isinstance(features, UserOnly | UserArmCrosses):
        pool = np.diff(block.pool_start)[pool]
    borders = (np.flatnonzero(np.diff(pool)) + 1).tolist()
    return zip([0, *borders], [*borders, len(block)])


def arms_of_run(features: FeatureMap, block: Block) -> Any:
    if isinstance(features, UserOnly):
        return features.users(block)
    return features.crossed(block) if isinstance(features, UserArmCrosses) else features.rows(block)


def ids_of_run(block: Block) -> NDArray[np.int64]:
    return block.pool_ids[block.pool_start[block.pool[0]] : block.pool_start[block.pool[0] + 1]]


def play(policy: Any, arms: Any, rewards: Any, shown: Any, ids: Any, rounds: int) -> NDArray[np.int64]:
    """Many lines at once: what is chosen on each, and learned where that is what was shown."""
    named = {"ids": ids} if policy.disjoint else {}
    return np.asarray(policy.play(arms, rewards, shown=shown, rounds=rounds, **named))
