"""The models of a policy, one for all arms or one an arm: what kernels read of them, and the compiled calls over them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftls.compiling.parts import Frame
from driftls.draws import TAPE, Draws, Seed
from driftls.inputs import fault
from driftls.kernels import choose as kernels
from driftls.kernels.learn import ATTEND, LOOK
from driftls.kernels.records import POLICY
from driftls.kernels.rows import NO_ROOM, first_fault
from driftls.persistence import checked, expect, whole
from driftls.policies.evidence import Strength, can_adapt, freedoms_of, next_strength, next_weights
from driftls.policies.files import grouped, joined, tracker_of
from driftls.policies.tables import LANES, CrossedStage, ScoreTable
from driftls.schedules import ridge
from driftls.stage import Stage
from driftls.state import refuse, unbroken, zeros
from driftls.trackers import RLS, Tracker
from driftls.units import Units
from driftls.widths import Width

FIRST_ARMS = 16
NUMBERS = ("errors", "learned", "probability", "frozen")
MOST_SLOTS = 1 << 24  # in a file


class Model(NamedTuple):
    """A tracker, and the width that goes with it."""

    tracker: Tracker
    width: Width


class Models:
    """The models of a policy by slot, the stage of its rows, its draws and scores; all that a kernel is given.

    Parameters
    ----------
    dim, width, seed
        Of the policy.
    disjoint : bool
        Whether every arm has a model; else slot 0 has the one of all.
    """

    def __init__(self, dim: int, width: Width, seed: Seed, *, disjoint: bool) -> None:
        self.dim, self.width, self.disjoint = dim, width, disjoint
        self.need = width.draws(dim) + 1  # draws of one model in one round, and one for epsilon
        self.by_slot = disjoint or width.keeps_arms  # whether arms have slots
        self.draws = Draws(seed, max(TAPE, 8 * self.need))
        self.frame = Frame(POLICY)
        self.frame["disjoint"] = disjoint
        self._address, self._position = self.frame.address, self.frame.cell("position")
        self.frozen = self.frame.cell("frozen")  # whether it never learns
        self._by_slot: dict[int, Model] = {}
        self.frame.set(trackers=np.zeros(FIRST_ARMS, np.int64), widths=np.zeros(FIRST_ARMS, np.int64))
        self.table = ScoreTable(self.frame)
        self.crossed = CrossedStage(self.frame, self.table)
        self.first: Strength | None = (
            None  # of the prior: the guess with which it is found from the data, if it is to be
        )
        self.strength: Strength | None = None  # what it is now, if tracker and width allow for that
        self.units: Units | None = None  # how features are measured; None for raw units, and before the first rows
        self.rounds, self.refilled = 0, False
        self.stage = Stage(dim)
        self.read_tape()
        self._make_slots(FIRST_ARMS)

    def __len__(self) -> int:
        return len(self._by_slot)

    def __getitem__(self, slot: int) -> Model:
        return self._by_slot[slot]

    def each(self) -> list[Model]:
        """All models that are there, by slot: sums over them do not depend on which came first."""
        return [self._by_slot[slot] for slot in sorted(self._by_slot)]

    @property
    def noise(self) -> float:
        """The standard deviation of the noise, as estimated; 0 before there was an error."""
        return float(np.sqrt(self.frame["errors"] / self.frame["learned"])) if self.frame["errors"] else 0.0

    def adapt(self, tracker: Tracker, ridge: float | None = None) -> None:
        """Models have such a tracker; from this guess on (or the one before) find the ridge from the data, if it can be."""
        self.first = self.first if ridge is None else Strength(ridge)
        self.strength = self.first if can_adapt(tracker, self.width) else None

    # -- memory that kernels use ---------------------------------------------------------------------------------

    def read_tape(self) -> None:
        """The tape of draws is another one."""
        self.frame.set(**self.draws.fields())
        for model in self.each():
            model.width.read(self.draws)

    def _make_slots(self, arms: int) -> None:
        """Room for the scores and slots of so many arms."""
        self.scores: NDArray[np.float64] = zeros((arms + LANES,))
        self.slots = np.full(arms, -1, dtype=np.int64)
        self.frame.set(scores=self.scores, slots=self.slots, draws=(arms + 1 if self.disjoint else 2) * self.need)
        if not self.disjoint:  # where slots are those of arms, not of models
            self.stage.give_slots(self.slots)

    def room(self, arms: int) -> None:
        """Have room for the scores of so many arms."""
        if arms > self.slots.size:
            self._make_slots(2 * arms)
            if not self.disjoint:
                self.stage.together(2 * arms)
            for model in self.each():
                model.width.reserve(2 * arms)

    def grow(self, dim: int, width: Width | None = None) -> None:
        """Rows have so many features from now on, and new models another width, if one is given."""
        self.dim, self.width = dim, self.width if width is None else width
        self.need, self.by_slot = self.width.draws(dim) + 1, self.disjoint or self.width.keeps_arms
        self._make_slots(self.slots.size)
        self.table.leave()
        if self.units is not None:
            self.units.grow(dim)
        self.take_rows(self.stage.sparse)
        for slot, (tracker, opened) in list(self._by_slot.items()):
            if self.disjoint:  # else the policy's own
                tracker.grow(dim)
            self.put(slot, Model(tracker, opened.over_more(self.draws)))

    def take_rows(self, sparse: bool | None) -> None:
        """Rows are dense, or sparse, from now on; None: the first ones will tell."""
        self.stage = Stage(self.dim, 1 if self.disjoint else self.slots.size)
        if sparse is not None:
            self.stage.start(sparse)
            if self.units is not None:
                self.stage.measure(self.units.frame)
            self.frame["arms"] = self.stage.frame
        if not self.disjoint:  # where slots are those of arms, not of models
            self.stage.give_slots(self.slots)

    def have_draws(self) -> None:
        """Draws for the next round; a kernel has asked for them."""
        draws = self.frame["draws"]
        if draws > self.draws.tape.size:
            self.draws.enlarge(2 * draws)
            self.read_tape()
        self.draws.ready(draws)
        self.refilled = True

    def put(self, slot: int, model: Model) -> None:
        """The model of a slot; its addresses go where kernels look."""
        self._by_slot[slot] = model
        for name, part in (("trackers", model.tracker), ("widths", model.width)):
            if self.frame.arrays[name].size <= slot:
                self.frame[name] = np.append(self.frame.arrays[name], np.zeros(slot + 2, np.int64))
            self.frame.arrays[name][slot] = part.frame.address
        model.width.reserve(1 if self.disjoint else self.slots.size)
        if isinstance(model.tracker, RLS):
            model.tracker.keep_ready()
        if not self.disjoint:  # rows are those of the one model
            model.tracker.held, self.units = True, model.tracker.units
            self.take_rows(bool(model.tracker.sparse))
            self.crossed.open(model.width)

    def clear(self) -> None:
        """There is no model any more, and rows of either kind may come."""
        self._by_slot.clear()
        self.units = None
        self.table.leave()
        self.take_rows(None)

    # -- calls of kernels ----------------------------------------------------------------------------------------

    def look_at(self, count: int) -> None:
        """Refuse rows of the stage that no kernel should read."""
        if code := int(first_fault(self.stage.frame, 0, count)):
            self.frame["fault_row"] = code // 8 - 1
            raise self.fault(code % 8)

    def choose(self, count: int, allowed: Any = None, *, ask: bool = False) -> int:
        """The arm to show among the rows of the stage, or among those that are allowed; ask: which has the highest score,
        and no more.
        """
        if allowed is not None:
            self.frame["allowed"] = allowed
        try:
            while (chosen := kernels.choose.run(self._address, int(ask), count)) < 0.0:
                self._serve(int(-chosen))
        finally:
            if allowed is not None:
                self.frame["allowed"] = 0
        if not ask:
            self.rounds += 1
            if self.units is not None and self.units.asked:
                self._look()  # what was noted of these arms asks for other units of their features
        return int(chosen)

    def widths(self, count: int) -> NDArray[np.float64]:
        """The widths of the rows of the stage."""
        if (code := kernels.widths(self.frame, 0, count)) < 0.0:
            raise self.fault(int(-code))
        return np.sqrt(np.maximum(self.scores[:count], 0.0))

    def learn(self, row: int, slot: int, position: int, reward: float, arm: int = 0) -> None:
        """Learn one row of the stage with its reward; `position` is that of its arm in the pool, or -1; `arm` for errors."""
        self.stage.reward[row] = reward
        self._position[0] = position
        while status := kernels.learn_row.run(self._address, row, slot):
            self._serve(int(status), row, arm)
            if status == ATTEND:
                break
        if self.units is not None and self.units.asked:
            self._look()

    def play(
        self, count: int, rounds: int, rewards: Any, shown: Any, first_arm: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Rounds over the rows of the stage, in one compiled loop that pauses where Python is needed."""
        frame, chosen = self.frame, np.zeros(rounds, dtype=np.int64)
        columns = 0 if rewards is None else rewards.size // rounds
        frame.set(count=count, chosen=chosen, first_arm=first_arm, columns=columns, resumed=0)
        frame["rewards"] = 0 if rewards is None else rewards
        frame["shown"] = 0 if shown is None else shown
        at = 0
        try:
            while at < rounds:
                at = int(kernels.play(frame, at, rounds))
                status = frame["status"]
                if status and not (status == LOOK and self.units is not None and not self.units.asked):
                    self._serve(status, frame["line"])
        finally:
            self.rounds += at
            for name in ("rewards", "shown", "chosen", "first_arm"):
                frame[name] = 0
                frame.arrays.pop(name, None)
        return chosen

    def fault(self, status: int) -> Exception:
        """The error behind a kernel's status."""
        return fault(status, "the user" if self.disjoint else f"arm {self.frame['fault_row']}", self.dim)

    # -- what kernels ask for ------------------------------------------------------------------------------------

    def _serve(self, status: int, row: int = 0, arm: int | None = None) -> None:
        """Do what a kernel has come back for, at this row of the stage; or raise what is wrong, with this arm's."""
        if status == kernels.NO_DRAWS:
            self.have_draws()
        elif status == NO_ROOM:
            self._make_room(row)
        elif status == ATTEND:
            self._attend()
        elif status == LOOK:
            self._look()
        else:
            self.frame["fault_row"] = self.frame["fault_row"] if arm is None else arm
            raise self.fault(status)

    def _make_room(self, row: int) -> None:
        tracker = self[self.frame["model"]].tracker
        if self.stage.frame["arms"]:  # a crossed arm, whose row was written out
            tracker.make_room(self.frame.arrays["single"], 0, 1)
        else:
            tracker.make_room(self.stage.frame, row, row + 1)

    def _attend(self) -> None:
        """A kernel has learned a row and asks for what it cannot do itself."""
        model = self[self.frame["model"]]
        if self.frame["asked"] != 2:
            model.tracker.attend()
        if self.frame["asked"] >= 2:
            model.width.attend()
        self.table.renew()

    @unbroken()
    def _look(self) -> None:
        """Take other units, and, where they are estimated, other ridges; rewrite what was learned."""
        units, models, strength, weights = self.units, self.each(), self.strength, None
        assert units is not None
        learned = [model for model in models if len(model.tracker)]
        if strength is not None and self.first is not None and self.frame["learned"] >= 4.0:
            sigma2 = self.frame["errors"] / self.frame["learned"] or 1.0
            free = freedoms_of(learned)
            strength = next_strength(learned, free, strength, self.first, sigma2, both=self.disjoint)
            if self.disjoint and learned:
                weights = next_weights(learned, free, len(models), units, strength.ridge, sigma2)
        moved = strength is not None and strength != self.strength
        change = units.look(strength.constant if strength is not None else None, weights, force=moved)
        if moved and strength is not None:
            self.strength = strength
            for model in models:
                model.tracker.set_ridge(ridge(strength.ridge), rewrite=False)
        if change is not None:
            for model in models:
                model.tracker.change_units(change)
                if moved and strength is not None:
                    model.width.set_ridge(strength.ridge)
                model.width.change_units(change)
        settled = [model.tracker.settle() for model in models]
        if change is not None or any(settled):
            self.table.renew()
        if self.strength is not None:  # the noise, as the model of all rewards sees it
            variation = units.reward_variation
            if any(model.tracker.history.dropped for model in learned):  # what is explained is of the rows held
                variation = sum(len(model.tracker) * model.tracker.history.mean_square() for model in learned)
            left = variation - sum(model.tracker.explained() for model in learned)  # type: ignore[attr-defined]
            self.frame["errors"] = max(left, 0.0) if variation else 0.0

    def warm(self, model: Model, fill: Any, squares: NDArray[np.float64], n: int, errors: float) -> None:
        """Let a model that has seen nothing stand where `fill(tracker)` puts it, after n rows seen elsewhere."""
        fill(model.tracker)
        model.width.stand_at(squares, n)
        if isinstance(model.tracker, RLS):
            model.tracker.keep_ready()
        self.frame.set(errors=self.frame["errors"] + errors, learned=self.frame["learned"] + n)

    # -- files ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Header and arrays of all models, and of what they share."""
        header: dict[str, Any] = {"draws": self.draws.header(), "rounds": self.rounds, "sparse": self.stage.sparse}
        header |= {"numbers": {name: self.frame[name] for name in NUMBERS}, "models": []}
        header |= {"first": self.first and list(self.first), "strength": self.strength and list(self.strength)}
        parts = {"draws": {"unread": self.draws.unread()}}
        if self.disjoint and self.units is not None:
            header["units"], parts["units"] = self.units.snapshot()
        for slot, (tracker, width) in sorted(self._by_slot.items()):
            numbers, parts[f"{slot}.width"] = width.snapshot()
            header["models"].append(kept := {"slot": slot, "slots": width.slots, "numbers": numbers})
            if self.disjoint:  # else it is the policy's
                kept["tracker"], parts[f"{slot}.tracker"] = tracker.snapshot()
        return header, joined(parts)

    def restore(
        self, header: dict[str, Any], parts: dict[str, Any], tracker: Tracker, functions: dict[str, Any]
    ) -> None:
        """What `snapshot` wrote down, for this tracker of the policy's."""
        for name in NUMBERS:
            self.frame[name] = checked(header["numbers"][name], float)
            refuse(not 0.0 <= self.frame[name] < np.inf, name)
        pair: Any = tuple[float, float] | None
        prior: list[Any] = [checked(header[name], pair) for name in ("first", "strength")]
        refuse(any(min(found) <= 0.0 for found in prior if found) or (prior[1] and not prior[0]), "strength")
        self.first, self.strength = (found and Strength(*found) for found in prior)
        self.rounds = whole(header, "rounds")
        self.draws.restore(header["draws"], expect(parts["draws"], "unread", (None,), np.float64))
        self.read_tape()
        if self.disjoint and self.units is not None:
            self.units.restore(header["units"], parts["units"])
        for kept in header["models"]:
            slot, slots, own, found = (
                whole(kept, "slot"),
                whole(kept, "slots"),
                grouped(parts[str(kept["slot"])]),
                tracker,
            )
            if self.disjoint:
                found = tracker_of(kept["tracker"], own["tracker"], functions)
                if self.units is not None:
                    found.measure(self.units)
            refuse(found.sparse is None or found.sparse != header["sparse"] or found.dim != self.dim, f"model {slot}")
            refuse(not (self.width.keeps_arms and not self.disjoint) <= slots <= MOST_SLOTS, "slots")
            width = self.width.open(found, self.draws, slots, restored=True)
            width.restore(kept["numbers"], own["width"])
            self.put(slot, Model(found, width))
        if self.strength is not None:  # which this tracker and width must be able to find
            refuse(not can_adapt(tracker, self.width), "regularisation")
            for model in self.each():
                refuse(model.tracker.regularisation != ridge(self.strength.ridge), "regularisation")
