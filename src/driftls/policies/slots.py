"""Arms that recur: which id has which slot of a width that keeps something for each of them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from driftls.errors import CorruptFileError
from driftls.kernels import choose as kernels
from driftls.kernels.parts import Frame
from driftls.policies.arm_index import ArmIndex
from driftls.widths import Width


class ArmSlots:
    """The slots of one width: opened for new ids, and taken back from ids that were not offered for a while.

    Parameters
    ----------
    frame : Frame
        Of the policy, with the rows of the arms and room for their slots.
    forget_after : int
        Rounds after which an id that was not offered may be forgotten.
    """

    def __init__(self, frame: Frame, forget_after: int) -> None:
        self.index = ArmIndex(most=2**31)
        self._frame, self._forget_after = frame, forget_after

    def find(self, names: list[Hashable]) -> list[int]:
        """The slot of each id, -1 for one that has none, or that comes with other features than it had."""
        slots = [self.index.slot_of.get(name, -1) for name in names]
        return [slot if slot >= 0 and self.same(k, slot) else -1 for k, slot in enumerate(slots)]

    def same(self, row: int, slot: int) -> bool:
        """Whether a row of the arms has the features for which the slot was opened."""
        return kernels.is_same(self._frame, row, slot) != 0.0

    def offer(self, names: list[Hashable], width: Width, round_number: int) -> None:
        """Write down the slots of the arms of a round, whose rows were looked at; new ids get one."""
        index, slots = self.index, self._frame.arrays["slots"]
        found = [index.slot_of.get(name, -1) for name in names]
        index.offer(names, round_number)  # first: what is here now is not dropped for what is new
        new = [k for k, slot in enumerate(found) if slot < 0]
        for k in new:
            found[k] = -2 - self._open(names[k], width, round_number)
        if new:
            index.offer(names, round_number)  # in the order of the pool, whichever of them were new
        slots[: len(found)] = found
        kernels.open_arms(self._frame, 0, len(found))

    def _open(self, name: Hashable, width: Width, round_number: int) -> int:
        if len(self.index) >= width.slots:
            for old in self.index.stale(round_number - self._forget_after):
                width.drop(self.index.drop(old))
        if len(self.index) >= width.slots:  # none was free
            width.grow(2 * width.slots)
        return self.index.open(name, round_number)

    def restore(self, header: list[Any], slots: int) -> None:
        """What `index.header` wrote down, for a width with so many slots."""
        self.index.restore(header)
        if max(self.index.slot_of.values(), default=-1) >= slots:
            raise CorruptFileError("an arm has a slot that its width does not have. Restore the file from a copy.")

    def none(self, count: int) -> None:
        """The arms of this round have no slots."""
        self._frame.arrays["slots"][:count] = np.int64(-1)
