"""Models: one tracker and width for each arm id, made when the arm is first seen, dropped when it stays away."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import InputError
from driftls.kernels import policy
from driftls.kernels.frames import pack
from driftls.policies.bandit import Bandit
from driftls.policies.inputs import plain_id
from driftls.trackers import Tracker

FIRST_MODELS = 64
TAPE = 2048  # draws that a model has ready: there may be thousands of models


@dataclass
class Model:
    """One arm's tracker and width."""

    tracker: Tracker
    width: Any
    alive: Any = None


class Models(Bandit):
    """A policy with one model an arm; `tracker` and `width` are what each model gets a copy of."""

    _seeds: np.random.Generator
    _models: list[Model | None]
    _slot_of: dict[Hashable, int]
    _table: NDArray[np.int64]  # a line has the addresses of a model
    _offered: NDArray[np.int64]  # by slot: the round in which it was last
    _sparse: bool | None

    def __len__(self) -> int:
        """Models kept now."""
        return len(self._slot_of)

    def model(self, name: Hashable) -> Tracker:
        """The tracker of one arm."""
        return self._known(name).tracker

    @property
    def trackers(self) -> dict[Hashable, Tracker]:
        """The trackers of all arms that have one now, by id."""
        return {name: self.model(name) for name in self._slot_of}

    def _offer(self, slots: NDArray[np.int64]) -> None:
        """These arms were on offer in this round."""
        self._offered[slots] = self._rounds

    def _tracker_of(self, slot: int) -> Tracker:
        model = self._models[slot]
        assert model is not None
        if model.alive is not model.tracker._alive:
            self._repack(slot)
        return model.tracker

    def _known_slot(self, name: Hashable) -> int:
        slot = self._slot_of.get(plain_id(name))
        if slot is None:
            raise InputError(f"arm id {name!r} was never offered, or was dropped. Offer it in choose first.")
        return slot

    def _known(self, name: Hashable) -> Model:
        model = self._models[self._known_slot(name)]
        assert model is not None
        return model

    def _drop_oldest(self, count: int, present: set[Hashable]) -> None:
        """Drop so many models, those that were not offered for longest, and none that is on offer."""
        if count > 0:
            absent = [name for name in self._slot_of if name not in present]
            absent.sort(key=lambda name: self._offered[self._slot_of[name]])
            for name in absent[:count]:
                self._models[self._slot_of.pop(name)] = None

    def _new(self, name: Hashable) -> int:
        tracker = self.tracker.fresh(self._seeds.spawn(1)[0], TAPE)
        tracker._start(bool(self._sparse))
        self._add(name, tracker, self.width.allocate(tracker, 0, self._draws))
        return self._slot_of[name]

    def _add(self, name: Hashable, tracker: Tracker, width: Any) -> None:
        slot = self._models.index(None) if None in self._models else len(self._models)
        if slot == len(self._models):
            self._models.append(None)
        self._models[slot] = Model(tracker, width)
        self._slot_of[name] = slot
        self._new_offer(slot, self._rounds)
        self._entries = policy.disjoint_entries(tracker._state_class, width.__class__)
        self._repack(slot)

    def _new_offer(self, slot: int, rounds: int) -> None:
        if slot >= self._offered.size:
            self._offered = np.concatenate([self._offered, np.zeros(slot + 1, dtype=np.int64)])
        self._offered[slot] = rounds

    def _repack(self, slot: int) -> None:
        """Write down where this model's arrays are now."""
        model = self._models[slot]
        assert model is not None
        words = pack([*model.tracker._alive, model.width])
        if slot >= len(self._table):
            grown = np.zeros((max(64, 2 * slot), words.size), dtype=np.int64)
            if self._table.size:
                grown[: len(self._table)] = self._table
            self._table = grown
        self._table[slot] = words
        model.alive = model.tracker._alive
