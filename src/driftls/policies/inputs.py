"""What a user of a policy passes, checked; and ids, in the form in which a file keeps them."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import Any

import numpy as np
import scipy.sparse as sp

from driftls.crossed import Crossed
from driftls.errors import ConditioningWarning, InputError, SettingsError
from driftls.kernels.rows import LARGEST
from driftls.trackers import RLS, Tracker

CSR = (sp.csr_array, sp.csr_matrix)


def check_weights(kappa: Any, sigmas: Any, epsilon: Any) -> None:
    """What every policy asks of these three."""
    number = int | float | np.number
    if kappa is not None and not (isinstance(kappa, number) and np.isfinite(kappa) and kappa >= 0.0):
        raise SettingsError(f"kappa must be a number of at least 0, or None to estimate it, got {kappa!r}.")
    if not (isinstance(epsilon, number) and 0.0 <= epsilon <= 1.0):
        raise SettingsError(f"epsilon must lie in [0, 1], got {epsilon!r}.")
    if not (isinstance(sigmas, number) and 0.0 < sigmas < np.inf):
        raise SettingsError(f"sigmas must be positive, got {sigmas!r}.")


def checked_reward(reward: Any) -> float:
    """A reward as a number that can be learned."""
    try:
        if isinstance(reward, str | bytes):  # which float would read
            raise TypeError
        value = float(reward)
    except (TypeError, ValueError):
        raise InputError(f"a reward must be a number, got {reward!r}.") from None
    if not abs(value) < LARGEST:
        raise InputError(f"a reward must be finite (and below 1e75), got {reward!r}. Nothing was learned.")
    return value


def tell(tracker: Tracker) -> None:
    """Warn, once, when an exact tracker goes over to an inversion each row."""
    if isinstance(tracker, RLS) and tracker._left > tracker._told:
        tracker._told = tracker._left
        warnings.warn(
            f"within {len(tracker)} rows the matrix became too ill-conditioned for Sherman-Morrison; it is inverted "
            "after every row from now on. A larger ridge avoids this.",
            ConditioningWarning,
            stacklevel=4,
        )


def renamed(error: Exception, old: str, new: str) -> Exception:
    """An error about a row of a block, in the words of a policy."""
    text = str(error).replace(old, new, 1).replace("Nothing of the block was learned; ", "Nothing was changed; ")
    return type(error)(text)


def plain_id(name: Hashable) -> Hashable:
    """An id that a file can keep, if it is a NumPy scalar."""
    return name.item() if isinstance(name, np.generic) else name


def plain_ids(ids: Any) -> list[Hashable]:
    """The ids of a pool, no two of them alike."""
    names = ids.tolist() if isinstance(ids, np.ndarray) else [plain_id(name) for name in ids]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"arm id {twice!r} stands for two arms of the pool. Ids must differ.")
    return names


def id_header(name: Hashable) -> Any:
    """What a file keeps of an id or a key."""
    if isinstance(name, tuple):
        return {"tuple": [id_header(entry) for entry in name]}
    if name is None or isinstance(name, str | int | float):
        return name
    raise SettingsError(f"a file keeps ids and keys that are text, numbers or tuples of them, not {name!r}.")


def id_of(kept: Any) -> Hashable:
    """The id that `id_header` wrote down."""
    return tuple(id_of(entry) for entry in kept["tuple"]) if isinstance(kept, dict) else kept


def part(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def revive(kind: Any, header: dict[str, Any], arrays: dict[str, Any], functions: dict[str, Any]) -> Any:
    """What `__reduce__` describes."""
    return kind.from_snapshot(header, arrays, **functions)


def position(arm: Any, arms: Any) -> int:
    if arms is None:
        raise InputError("learn needs the arms that arm= counts in: learn(arms, reward, arm=k).")
    count = arms.shape[0] if hasattr(arms, "shape") else len(arms)
    if not isinstance(arm, int | np.integer) or not 0 <= arm < count:
        raise InputError(f"arm {arm} is not among the {count} arms.")
    return int(arm)


def row_of(arms: Any, k: int) -> Any:
    if isinstance(arms, Crossed):
        return arms[[k]]
    return arms.tocsr()[[k]] if sp.issparse(arms) else np.array(arms[k])
