"""What a caller passes as arms, as rows: looked at, and taken one by one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import scipy.sparse as sp

from driftls.errors import DimensionError, InputError
from driftls.features import FeatureMap
from driftls.features.crossed import CrossedArms
from driftls.inputs import Rows, Stage, as_numbers, as_rows, fault, is_pair, is_sparse
from driftls.kernels.rows import first_fault
from driftls.policies.arm_index import plain_ids
from driftls.trackers.base import whole_number

FIRST_NAMES = 64


def arm_rows(arms: Any, dim: int, *, many: bool = False) -> tuple[Any, int]:
    """Arms as rows and how many they are, looked at but for their numbers; many: of any number of rounds."""
    if isinstance(arms, CrossedArms):
        users, features = arms.row.shape
        if not many and users != 1:
            raise InputError(f"a choice is for one user, got the arms of {users}.")
        if features * (arms.count + arms.shared) != dim:
            raise DimensionError(f"arms must have {dim} features, got {arms.shape[1]}.")
        rows: Any = arms
        count = users * arms.blocks.size
    else:
        rows = as_rows(arms, dim, "arms")
        count = rows.shape[0]
    if count == 0 and not many:
        raise InputError("the pool is empty: at least one arm is needed.")
    return rows, count


def first_dim(features: FeatureMap) -> int:
    """How many features a policy begins with: for a vocabulary, some that are not there yet."""
    return max(features.dim, FIRST_NAMES) if features.grows else features.dim


def is_items(x: Any) -> bool:
    """Whether these are items for features to make arms of: dicts, a table, or a pool of them."""
    if type(x) in (np.ndarray, Rows, CrossedArms) or sp.issparse(x):
        return False
    from driftls.features import Pool, is_records

    return isinstance(x, Pool) or is_records(x)


def as_block(x: Any, called: str = "an arm") -> Any:
    """One row as a block of one."""
    if isinstance(x, CrossedArms) or is_pair(x) or is_sparse(x):
        return x
    return np.atleast_2d(as_numbers(x, f"{called} must be a vector"))


def plain_rows(rows: Any, dim: int) -> Any:
    """A row for each arm, also of crossed ones."""
    return as_rows(rows.tocsr(), dim) if isinstance(rows, CrossedArms) else rows


def one_arm(rows: Any, k: int, dim: int) -> tuple[Any, int]:
    """Rows, one of which is that of arm k, and its number among them."""
    return (plain_rows(rows[[k]], dim), 0) if isinstance(rows, CrossedArms) else (rows, k)


def ids_of(ids: Any, count: int) -> list[Hashable] | None:
    """An id for each of so many arms, or None."""
    if ids is None:
        return None
    names = plain_ids(ids)
    if len(names) != count:
        raise DimensionError(f"ids must have one id for each of {count} arms, got {len(names)}.")
    return names


def look_at(rows: Any, called: str = "arm") -> None:
    """Refuse rows of arms, or of users, that no kernel should read."""
    users = rows.row if isinstance(rows, CrossedArms) else rows
    count, dim = users.shape
    stage = Stage(dim)
    stage.start(not isinstance(users, np.ndarray))
    stage.take(as_rows(users, dim, "arms"))
    if code := int(first_fault(stage.frame.address, dim, count)):
        raise fault(code % 8, f"arm {code // 8 - 1}" if called == "arm" else called, dim)


def rounds_of(rows: Any, rewards: Any, names: Any, rounds: Any) -> tuple[int, int, bool]:
    """How many rounds there are, how many arms each has, and whether these are the same rows, from whatever tells."""
    total = rows.shape[0]
    if rewards is not None:
        if rewards.ndim not in (1, 2):
            raise DimensionError(f"rewards must be a matrix, or a vector with shown=, got shape {rewards.shape}.")
        rounds = len(rewards)
    elif rounds is not None:
        rounds = whole_number(rounds, "rounds", 0)
    if isinstance(rows, CrossedArms):
        count = rows.blocks.size
        rounds = rows.row.shape[0] if rounds is None else rounds
    else:
        count = (
            len(names) if names is not None else rewards.shape[1] if rewards is not None and rewards.ndim == 2 else 0
        )
        rounds = (total // count if count else 1) if rounds is None else rounds
        count = count or (total // rounds if rounds else 0)
    still = total == count and rounds > 1
    if rounds and (not count or not (still or total == rounds * count) or (names is not None and len(names) != count)):
        raise DimensionError(f"{rounds} rounds of {count} arms need {rounds * count} rows (or {count}), got {total}.")
    return rounds, count, still
