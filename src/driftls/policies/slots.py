"""Slots: where a width keeps what it knows of arms that recur, given out by id and taken back."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import InputError
from driftls.kernels import policy as kernels
from driftls.policies.inputs import plain_id, plain_ids, renamed
from driftls.policies.opinions import Opinions
from driftls.trackers.inputs import Block, fault

FIRST_SLOTS = 16


class Slots(Opinions):
    """A policy with one model, whose width may keep something for every arm with an id."""

    forget_after: int
    _no_slots: NDArray[np.int64]

    def _slots(self, ids: Any, block: Block) -> NDArray[np.int64]:
        """A slot for each arm where the width keeps arms; -1 for none, -2 - slot for one given out just now."""
        count = len(block.y)
        if ids is None or not self.width.keeps_arms:
            if self._no_slots.size != count:
                self._no_slots = np.full(count, -1, dtype=np.int64)
            return self._no_slots
        names = plain_ids(ids)
        slots = np.array([self._slot_of.get(name, -1) for name in names], dtype=np.int64)
        new = np.flatnonzero(slots < 0)
        if new.size:
            code = kernels.first_fault(block, self.dim, count)  # before anything is given out
            if code:
                raise self._arm_fault(code)
            self._offer(slots[slots >= 0])  # what is here now is not dropped for what is new
            for k in new:
                slots[k] = -2 - self._new_slot(names[k])
        return slots

    def _offer(self, slots: NDArray[np.int64]) -> None:
        """These arms were on offer in this round."""
        if slots is not self._no_slots:
            self._offered[slots] = self._rounds

    def _new_slot(self, name: Hashable) -> int:
        used = set(self._slot_of.values())
        if len(used) == self._offered.size:
            for old, slot in list(self._slot_of.items()):
                if self._rounds - self._offered[slot] > self.forget_after:
                    del self._slot_of[old]
                    self._width.live[slot] = 0
            used = set(self._slot_of.values())
            if len(used) == self._offered.size:
                self._more_slots(2 * self._offered.size)
        slot = next(slot for slot in range(self._offered.size) if slot not in used)
        self._slot_of[name] = slot
        self._offered[slot] = self._rounds
        return slot

    def _more_slots(self, slots: int) -> None:
        old, held = self._width, self._offered.size
        new = self.width.allocate(self.tracker, slots, self._draws)
        for name, before in old._asdict().items():
            after = getattr(new, name)
            if before.shape[:1] == (held,) and after.shape[:1] == (slots,):
                after[:held] = before
            else:
                new = new._replace(**{name: before})
        self._width = new
        self._offered = np.concatenate([self._offered, np.zeros(slots - held, dtype=np.int64)])

    def _known_slot(self, name: Hashable) -> int:
        name = plain_id(name)
        if name not in self._slot_of:
            raise InputError(f"arm id {name!r} was never offered, or was dropped. Offer it in choose first.")
        return self._slot_of[name]

    def _arm_fault(self, code: int) -> Exception:
        return renamed(fault(code % 8, code // 8 - 1, 0, self.dim), "row ", "arm ")
