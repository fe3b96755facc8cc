"""The lines of a log as codes of names: their visitors, and the candidates of their pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from driftls.features.columns import Space
from driftls.features.names import Coded

if TYPE_CHECKING:
    from driftls.logs.events import Block


def visitors(space: Space, block: Block) -> Coded:
    """The visitor of each line: a dict of a table, or features that are named by their numbers."""
    if block.visitor is not None:
        return space.coded(block.visitor.tolist())
    used, first, place = np.unique(block.user_index, return_index=True, return_inverse=True)
    code, names = np.empty(len(used), np.int64), used.tolist()
    for k in np.argsort(first).tolist():  # in the order in which lines name them
        code[k] = space[str(names[k])][None]
    return Coded(block.user_start, code[place], block.user_value)


def candidates(space: Space, block: Block) -> Coded:
    """The items of `pool_ids`: their ids, and their features where they have any."""
    if block.items is not None:
        return space.coded([block.items[k] for k in block.pool_ids.tolist()])
    items: list[Any] = [{"id": str(name)} for name in block.pool_ids.tolist()]
    if block.arm_features is not None:
        items = [one | dict(enumerate(cells)) for one, cells in zip(items, block.arm_features.tolist())]
    return space.coded(items)
