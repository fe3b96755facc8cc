"""Lines of a log as Yahoo's R6B writes them."""

from __future__ import annotations

import numpy as np

from driftls.errors import InputError
from driftls.logs.events import Block
from driftls.logs.parser import DIM, R6B
from driftls.logs.synthetic.users import aggregates

__all__ = ["r6b_text"]


def r6b_text(block: Block) -> bytes:
    """The lines of a block as R6B writes them, or an `InputError` where it has no way to."""
    n, starts = len(block), block.user_start[:-1]
    within = np.delete(np.diff(block.pool_ids), block.pool_start[1:-1] - 1)
    for wrong, what in (
        (~np.isin(block.reward, (0.0, 1.0)), "rewards of 0 or 1"),
        (block.user_value != 1.0, "features of value 1"),
        (block.user_index >= DIM[R6B], f"feature indices below {DIM[R6B]}"),
        (np.diff(block.user_start) == 0, "the constant in every line"),
        (within <= 0, "candidates in ascending order"),
        (np.append(block.user_index, 0)[starts] != 0, "the constant, index 0, in every line"),
    ):
        if np.any(wrong):
            raise InputError(f"R6B has only {what}; {np.count_nonzero(wrong)} are not so.")

    order = aggregates()["emission_order"]
    names = np.array(order + [i for i in range(1, DIM[R6B] + 1) if i not in order])
    rank = np.argsort(names - 1)
    row = np.repeat(np.arange(n), np.diff(block.user_start))
    ranks = np.sort(row * DIM[R6B] + rank[block.user_index]) - row * DIM[R6B]
    pools = [block.pool_ids[a:b].tolist() for a, b in zip(block.pool_start, block.pool_start[1:])]
    shown = block.pool_ids[block.pool_start[block.pool] + block.shown]

    # One token a feature, one before and one after the features of each line.
    tokens = np.empty(len(row) + 2 * n, object)
    head = starts + 2 * np.arange(n)
    tokens[head] = [b"%d id-%d %d |user" % x for x in zip(block.time.tolist(), shown.tolist(), block.reward.tolist())]
    tokens[np.arange(len(row)) + 2 * row + 1] = np.array([b" %d" % i for i in names.tolist()], object)[ranks]
    tails = ["".join(f" |id-{i}" for i in ids).encode() + b"\n" for ids in pools]
    tokens[block.user_start[1:] + 2 * np.arange(n) + 1] = np.array(tails, object)[block.pool]
    return b"".join(tokens.tolist())
