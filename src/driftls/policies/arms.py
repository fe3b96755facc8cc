"""What a caller passes to a policy: arms as rows, ids, rewards, weights; looked at before anything is changed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.errors import DimensionError, InputError, SettingsError
from driftls.features import FeatureMap
from driftls.features.crossed import CrossedArms
from driftls.inputs import FLOAT, Rows, as_number, as_numbers, as_rows, as_whole, csr_rows, fault, is_pair, is_sparse
from driftls.kernels.rows import LARGEST, first_fault
from driftls.stage import Stage
from driftls.trackers import Tracker
from driftls.widths import Width

FIRST_NAMES = 64
# Which are no dicts; to ask them costs more than to look at their type
ROWS = (np.ndarray, sp.csr_array, sp.csr_matrix, Rows, CrossedArms)
OPEN = "open: tracker and width are chosen when the first arms are here"
OPEN_END = "a vocabulary that may grow without end"


def arm_rows(arms: Any, dim: int, *, many: bool = False) -> tuple[Any, int]:
    """Arms as rows and how many they are, looked at but for their numbers; many: of any number of rounds."""
    if type(arms) is np.ndarray and arms.dtype is FLOAT and arms.ndim == 2 and arms.shape[1] == dim and len(arms):
        return arms, len(arms)
    rows: Any = arms if type(arms) is Rows and arms.dim == dim else csr_rows(arms, dim)
    if rows is not None and type(rows.start) is np.ndarray and rows.start.ndim == 1:
        count = rows.start.size - 1  # whether its arrays fit together is for the stage to see
    elif isinstance(arms, CrossedArms):
        rows, (users, features) = arms, arms.row.shape
        count = users * arms.blocks.size
        if not many and users != 1:
            raise InputError(f"a choice is for one user, got the arms of {users}.")
        if features * (arms.count + arms.shared) != dim:
            raise DimensionError(f"arms must have {dim} features, got {arms.shape[1]}.")
    else:
        rows = as_rows(arms, dim, "arms")
        count = rows.shape[0]
    if not many and count < 1:
        raise InputError("the pool is empty: at least one arm is needed.")
    return rows, count


def first_dim(features: FeatureMap) -> int:
    """How many features a policy begins with: for a vocabulary, some that are not there yet."""
    return max(features.dim, FIRST_NAMES) if features.grows else features.dim


def is_items(x: Any) -> bool:
    """Whether these are items for features to make arms of: dicts, a table, or a pool of them."""
    if type(x) in ROWS or sp.issparse(x):
        return False
    from driftls.features import Pool, is_records

    return isinstance(x, Pool) or is_records(x)


def is_user(x: Any) -> bool:
    """Whether this is the dict of one user, or item; a sparse matrix may be a dict of its entries."""
    return type(x) is dict or (type(x) not in ROWS and isinstance(x, Mapping) and not sp.issparse(x))


def as_block(x: Any, called: str = "an arm") -> Any:
    """One row as a block of one."""
    if isinstance(x, CrossedArms) or is_pair(x) or is_sparse(x):
        return x
    return np.atleast_2d(as_numbers(x, f"{called} must be a vector"))


def plain_rows(rows: Any, dim: int) -> Any:
    """A row for each arm, also of crossed ones."""
    return as_rows(rows.rows(), dim) if isinstance(rows, CrossedArms) else rows


def one_arm(rows: Any, k: int, dim: int) -> tuple[Any, int]:
    """Rows, one of which is that of arm k, and its number among them."""
    return (plain_rows(rows[[k]], dim), 0) if isinstance(rows, CrossedArms) else (rows, k)


def fits(names: list[Hashable], count: int) -> list[Hashable]:
    """Ids, of which there is one for each arm."""
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
    if code := int(first_fault(stage.frame, 0, count)):
        raise fault(code % 8, f"arm {code // 8 - 1}" if called == "arm" else called, dim)


def rounds_of(rows: Any, rewards: Any, names: Any, rounds: Any) -> tuple[int, int, bool]:
    """How many rounds there are, how many arms each has, and whether these are the same rows, from whatever tells."""
    total, crossed = rows.shape[0], isinstance(rows, CrossedArms)
    if rewards is not None:
        if rewards.ndim not in (1, 2):
            raise DimensionError(f"rewards must be a matrix, or a vector with shown=, got shape {rewards.shape}.")
        rounds = len(rewards)
    elif rounds is not None:
        rounds = as_whole(rounds, "rounds", 0)
    if crossed:
        count = rows.blocks.size
    elif names is not None:
        count = len(names)
    elif rewards is not None and rewards.ndim == 2 and rewards.shape[1]:
        count = rewards.shape[1]
    else:
        count = total if rounds is None else total // max(rounds, 1)
    if rounds is None:
        rounds = rows.row.shape[0] if crossed else total // max(count, 1)
    still = total == count and rounds > 1
    if rounds and (not count or not (still or total == rounds * count) or (names is not None and len(names) != count)):
        raise DimensionError(f"{rounds} rounds of {count} arms need {rounds * count} rows (or {count}), got {total}.")
    return rounds, count, still


def check_weights(kappa: Any, sigmas: Any, epsilon: Any) -> None:
    """kappa and sigmas at least 0, epsilon a probability."""
    for name, value, most in (("kappa", kappa, 1e75), ("sigmas", sigmas, 1e75), ("epsilon", epsilon, 1.0)):
        good = isinstance(value, int | float | np.number) and not isinstance(value, bool) and 0.0 <= value <= most
        if not (good or (name == "kappa" and value is None)):
            raise SettingsError(f"{name} must lie in [0, {most:g}], got {value!r}.")


def check_parts(tracker: Any, width: Any) -> None:
    """A tracker that a kernel can learn with, and a width."""
    if not isinstance(tracker, Tracker) or not isinstance(width, Width):
        raise SettingsError(
            f"a policy needs a tracker and a width, got {tracker!r} and {width!r}. (An AutoDiscount predicts streams "
            "alone: give the discount that it finds to RLS.)"
        )


def reward_of(reward: Any) -> float:
    """A reward that can be learned."""
    if reward is None:
        raise InputError("learn needs a reward: learn(arms, reward, arm=k), or learn(reward=..., key=key).")
    return as_number(reward, "a reward")


def position_of(arm: Any, count: int) -> int:
    """The position of an arm among `count`."""
    if type(arm) is int and 0 <= arm < count:
        return arm
    if isinstance(arm, bool) or not isinstance(arm, int | np.integer) or not 0 <= arm < count:
        raise InputError(f"arm must be a whole number in 0 ... {count - 1}, got {arm!r}.")
    return int(arm)


def allowed_arms(allowed: Any, count: int) -> NDArray[np.int64]:
    """Which of the arms may be shown: a mask, or their positions."""
    given = as_numbers(allowed, "allowed must be a vector")
    if given.dtype == bool and given.shape != (count,):
        raise DimensionError(f"allowed must have an entry for each of {count} arms, got shape {given.shape}.")
    places = np.flatnonzero(given) if given.dtype == bool else given
    if not places.size:
        raise InputError("allowed leaves no arm: at least one must be allowed.")
    if places.ndim != 1 or places.dtype.kind not in "iu" or not 0 <= places.min() <= places.max() < count:
        raise InputError(f"allowed must be a mask, or positions in 0 ... {count - 1}, got {allowed!r}.")
    mask = np.zeros(count, dtype=np.int64)
    mask[places] = 1
    return mask


def rewards_of(rewards: Any, shown: Any, rounds: int, count: int) -> tuple[Any, Any]:
    """Rewards and shown positions of many rounds, looked at."""
    if rewards is None:
        if shown is not None:
            raise InputError("shown says which arm a reward belongs to, but there are no rewards. Pass rewards=.")
        return None, None
    array = np.ascontiguousarray(as_numbers(rewards, "rewards must be a matrix"), dtype=np.float64)
    expected = (rounds, count) if shown is None else (rounds,)
    if array.shape != expected and not (shown is None and count == 1 and array.shape == (rounds,)):
        raise DimensionError(f"rewards must have shape {expected}, got {array.shape}.")
    if not (np.abs(array) < LARGEST).all():
        raise InputError("rewards must be finite (and below 1e75), got one that is not. Nothing was learned.")
    if shown is None:
        return array, None
    places = as_numbers(shown, "shown must be a vector")
    if places.shape != (rounds,) or places.dtype.kind not in "iu":
        raise DimensionError(f"shown must be {rounds} whole numbers, one a round, got {places.dtype} {places.shape}.")
    if places.size and int(places.max()) >= count:
        raise InputError(f"shown must be positions below {count} (or -1 for no arm of the pool), got {places.max()}.")
    return array, np.ascontiguousarray(np.maximum(places, -1), dtype=np.int64)
