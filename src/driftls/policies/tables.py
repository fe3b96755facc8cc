"""Arms that share a user: score tables, in which they stand side by side, and crosses, staged as their user."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls.compiling.parts import Frame
from driftls.features.crossed import CrossedArms
from driftls.kernels import table as kernels
from driftls.kernels.records import ROWS
from driftls.kernels.score import crossed_score
from driftls.kernels.table import CENTRED, CROSSED, FEATURES, PAIRS
from driftls.stage import Stage
from driftls.state import zeros
from driftls.units import Units
from driftls.widths import Width

LARGEST = 1 << 20  # entries
TABLE_FROM, FEATURES_A_ROUND = 8, 16  # rounds with one pool until a table has paid for itself; more for many features
LANES = 8  # arms that are scored at once: lines of a table are filled up to a multiple


class ScoreTable:
    """The table of one policy: filled for a pool that has come often enough, dropped when another one comes."""

    def __init__(self, frame: Frame) -> None:
        self.pool: Any = None  # the arms of the last choices, as their owner tells them apart
        self.place_of: dict[Any, int] = {}  # of the arms that were last in the table, if they have ids
        self._frame, self._rounds, self._due = frame, 0, TABLE_FROM
        self._shape, self._arms = (0, 0, 0), 0

    def leave(self, pool: Any = None, features: int = 0) -> None:
        """The arms are those of another pool, for users with so many features: score arm by arm."""
        self.pool, self._rounds, self._frame["table"] = pool, 0, 0
        self._due = max(TABLE_FROM, features // FEATURES_A_ROUND)

    def again(self, rounds: int = 1) -> bool:
        """The same pool in so many rounds more: whether it is time for a table."""
        before = self._rounds
        self._rounds = before + rounds
        return before < self._due <= self._rounds

    def fill(self, kind: int, features: int, arms: int) -> None:
        """Have the pool of the frame's slots in the table of this kind (0: there is none), unless it would be too large."""
        lanes = -(-arms // LANES) * LANES
        lines = features * (features + 1) // 2 if kind == PAIRS else features
        if kind == 0 or lines * lanes > LARGEST:
            return
        frame = self._frame
        if self._shape != (kind, features, lanes):
            self._shape = (kind, features, lanes)
            frame.set(
                table_theta=zeros((features, lanes)),
                table_square=zeros((lines, lanes)),
                table_cross=zeros((lines if kind == CENTRED else 0, lanes)),
                table_rest=zeros((lanes,)),
                table_width2=zeros((lanes,)),
                table_stamps=np.zeros(lines),
                table_ring=np.zeros(lanes, dtype=np.int64),
                table_work=np.zeros(features),
                table_places=np.zeros(features, dtype=np.int64),
                table_lanes=lanes,
                table_lines=lines,
                table_features=features,
                table_score={
                    FEATURES: kernels.features_score,
                    PAIRS: kernels.pairs_score,
                    CROSSED: kernels.crossed_table_score,
                    CENTRED: kernels.centred_table_score,
                }[kind],
                table_learned=kernels.learned,
            )
        frame["table"], self._arms = kind, arms
        self.renew()

    def renew(self) -> None:
        """A model has changed, and the pool has not."""
        if self.filled:
            kernels.fill(self._frame, 0, self._arms)

    @property
    def filled(self) -> bool:
        """Whether scores come from the table at present."""
        return bool(self._frame["table"])


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
        tracker, self.on = width.tracker, False
        self._units = tracker.units
        self._kind = width.table(crossed=True) if tracker.sparse and tracker.frame["stride"] else 0
        if self._kind:
            self._single.set(sparse=1, dim=tracker.inner, count=1)
            self._single.set(start=np.zeros(1, np.int64), stop=np.zeros(1, np.int64), y=np.zeros(1))
            self._have_room(64)
            self._frame.set(single=self._single, crossed_score=crossed_score)

    def _have_room(self, entries: int) -> None:
        if self._room < entries:
            self._room = entries
            self._single.set(values=np.zeros(entries), indices=np.zeros(entries, np.int32), room=entries)

    def take(self, arms: Any, stage: Stage, rounds: int = 1) -> bool:
        """Whether these are crossed arms that need not be written out; then their users and blocks are on the stage."""
        units = self._units  # none, or those of such users
        if not (self._kind and isinstance(arms, CrossedArms) and (units is None or units.period == arms.row.dim)):
            if self.on:
                self.on, stage.frame["arms"] = False, 0
                self.table.leave()
            return False
        users, blocks, self.on = arms.row, arms.blocks, True
        count = len(users.start) - 1
        stage.lines(count * blocks.size)  # a reward for each arm
        stage.take(users, 0, count)
        self._have_room(2 * stage.values.size + 1)
        known, dim, shared = self.table.pool or (blocks, 0, False)
        if (dim, shared) != (users.dim, arms.shared) or not (known is blocks or np.array_equal(known, blocks)):
            self.table.leave((blocks, users.dim, arms.shared), users.dim)
            shifts = users.dim * (blocks + arms.shared)
            stage.frame.set(shifts=shifts, arms=blocks.size, shared=arms.shared, features=users.dim)
        if self.table.again(rounds):
            self.table.fill(self._kind, users.dim, blocks.size)
        return True
