"""What a policy is asked about the lines of a log: events to arms, by the features, and many lines at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import DimensionError, SettingsError
from driftls.features import Crosses, Features, OuterProduct, UserFeatures
from driftls.logs.events import Block, Event
from driftls.policies import DisjointLinUCB

__all__ = ["arms_of", "choices", "features_for", "play", "runs_of"]

NEVER = 1 << 40  # the position of no arm


def features_for(name: str, policy: Any, features: Features | None, first: Block) -> Features:
    """The features that suit a policy and a log, or the reason why there are none."""
    features = features or getattr(policy, "features", None)
    if features is None:
        if isinstance(policy, DisjointLinUCB):
            features = UserFeatures(policy.dim)
        elif first.arm_features is not None and policy.dim % first.arm_features.shape[1] == 0:
            arm_dim = first.arm_features.shape[1]
            features = OuterProduct(policy.dim // arm_dim, arm_dim)
        else:
            raise SettingsError(
                f"{name}: which features make an arm of a visitor and an article? Pass features=, for example "
                "Crosses(user_dim=136, articles=200), or use a DisjointLinUCB, which has one model an article."
            )
    if isinstance(policy, DisjointLinUCB) != isinstance(features, UserFeatures):
        raise SettingsError(f"{name}: UserFeatures and DisjointLinUCB, with one model an article, belong together.")
    if features.dim != policy.dim:
        raise DimensionError(f"{name}: the features have dim={features.dim}, but the policy has dim={policy.dim}.")
    return features


def arms_of(features: Features, event: Event) -> tuple[Any, dict[str, Any]]:
    """What a policy is asked about an event: arms, or a visitor and the arms' ids."""
    if isinstance(features, UserFeatures):
        return features.user(event), {"ids": event.arms}
    if isinstance(features, Crosses):
        return features.crossed(event), {}
    return features.arms(event), {}  # no ids: an article has other features for every user


def runs_of(features: Features, block: Block) -> Iterator[tuple[int, int]]:
    """Lines from ... to that can be played at once: with one pool or, where arms are rows, pools of one size."""
    pool = block.pool
    if not isinstance(features, UserFeatures | Crosses):
        pool = np.diff(block.pool_start)[pool]
    borders = (np.flatnonzero(np.diff(pool)) + 1).tolist()
    return zip([0, *borders], [*borders, len(block)])


def arms_of_run(features: Features, block: Block) -> Any:
    if isinstance(features, UserFeatures):
        return features.users(block)
    return features.crossed(block) if isinstance(features, Crosses) else features.rows(block)


def ids_of_run(block: Block) -> NDArray[np.int64]:
    return block.pool_ids[block.pool_start[block.pool[0]] : block.pool_start[block.pool[0] + 1]]


def choices(policy: Any, features: Features, block: Block) -> NDArray[np.int64]:
    """What a policy chooses on every line of a block, without learning any."""
    return np.concatenate(
        [
            play(policy, arms_of_run(features, part), None, None, ids_of_run(part), len(part))
            for part in (block.part(begin, end) for begin, end in runs_of(features, block))
        ]
    )


def play(policy: Any, arms: Any, rewards: Any, shown: Any, ids: Any, rounds: int) -> NDArray[np.int64]:
    """Rounds with one pool; without rewards nothing is learned."""
    disjoint = isinstance(policy, DisjointLinUCB)
    return np.asarray(policy.play(arms, rewards, shown=shown, ids=ids if disjoint else None, rounds=rounds))
