"""Crossed arms on their way to a kernel: a user's features once, and where each arm has them."""

from __future__ import annotations

import numpy as np

from driftls.features.crossed import CrossedArms
from driftls.inputs import as_rows
from driftls.kernels.parts import Frame
from driftls.kernels.records import ROWS
from driftls.kernels.score import crossed_score
from driftls.policies.tables import ScoreTable
from driftls.stage import Stage
from driftls.units import Units
from driftls.widths import Width


class CrossedStage:
    """What a policy needs for crossed arms, if its tracker and width `can` do without a row for each of them."""

    def __init__(self, frame: Frame, table: ScoreTable) -> None:
        self.table = table
        self.on = False  # whether the rows of the stage are those of users, not of arms
        self._frame, self._kind = frame, 0
        self._units: Units | None = None
        self._single, self._room = Frame(ROWS), 0  # the row of the arm that was chosen, written out

    def open(self, width: Width) -> None:
        """The width is known, and its tracker."""
        tracker = width.tracker
        self._units = tracker.units
        if tracker.sparse and tracker.frame["stride"]:
            self._kind = width.table(crossed=True)
        if self._kind:
            self._single.set(sparse=1, dim=tracker.inner, count=1)
            self._single.set(start=np.zeros(1, np.int64), stop=np.zeros(1, np.int64), y=np.zeros(1))
            self._have_room(64)
            self._frame.set(single=self._single, crossed_score=crossed_score)

    def can(self, arms: CrossedArms) -> bool:
        """Whether these arms need not be written out: they are in raw units, or in those of such users."""
        return self._kind != 0 and (self._units is None or self._units.period == arms.row.dim)

    def _have_room(self, entries: int) -> None:
        if self._room < entries:
            self._room = entries
            self._single.set(values=np.zeros(entries), indices=np.zeros(entries, np.int32), room=entries)

    def take(self, arms: CrossedArms, stage: Stage) -> None:
        """Stage the users of these arms, and where the arms' blocks begin."""
        users, blocks = arms.row, arms.blocks
        stage.lines(users.shape[0] * blocks.size)  # a reward for each arm
        if not stage.take_block(users):
            stage.take(as_rows(users, users.dim, "a user"))
        self._have_room(2 * stage.values.size)
        pool, self.on = (blocks.tobytes(), users.dim, arms.shared), True
        if pool == self.table.pool:
            if self.table.again():
                self.fill(arms, stage)
            return
        self.table.leave(pool)
        shifts = users.dim * (blocks + arms.shared)
        stage.frame.set(shifts=shifts, arms=blocks.size, shared=arms.shared, features=users.dim, behind=stage.constant)

    def fill(self, arms: CrossedArms, stage: Stage) -> None:
        """Have these arms in the table."""
        self.table.fill(self._kind, arms.row.dim, arms.blocks.size, stage.values.size)

    def leave(self, stage: Stage) -> None:
        """The rows that come now are those of arms."""
        self.on = False
        stage.frame.set(arms=0, behind=0)
        self.table.leave()
