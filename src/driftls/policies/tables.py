"""Score tables: the arms of a pool side by side, so that a user's features are scored for all of them at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls.kernels import table as kernels
from driftls.kernels.parts import Frame
from driftls.kernels.table import CENTRED, CROSSED, FEATURES, PAIRS

LARGEST = 1 << 20  # entries
TABLE_FROM = 8  # choices among the same arms in a row
LANES = 8


class ScoreTable:
    """The table of one policy: filled for a pool that has come often enough, dropped when another one comes."""

    def __init__(self, frame: Frame) -> None:
        self.pool: Any = None  # the arms of the last choices, as their owner tells them apart
        self._frame, self._rounds = frame, 0
        self._shape, self._last = (0, 0, 0), (0, 0, 0, 0)

    def leave(self, pool: Any = None) -> None:
        """The arms are those of another pool: score arm by arm."""
        self.pool, self._rounds = pool, 1
        self.drop()

    def again(self) -> bool:
        """The same pool again: whether it is time for a table."""
        self._rounds += 1
        return self._rounds == TABLE_FROM

    def fill(self, kind: int, features: int, arms: int, entries: int) -> None:
        """Have the pool of the frame's slots in the table of this kind (0: there is none), unless it would be too large."""
        lanes = -(-arms // LANES) * LANES
        lines = features * (features + 1) // 2 if kind == PAIRS else features
        if kind == 0 or lines * lanes > LARGEST:
            return
        frame = self._frame
        if self._shape != (kind, features, lanes):
            self._shape = (kind, features, lanes)
            work = max(entries, features) + 4
            frame.set(
                table_theta=np.zeros((features, lanes)),
                table_square=np.zeros((lines, lanes)),
                table_cross=np.zeros((lines if kind == CENTRED else 0, lanes)),
                table_rest=np.zeros(lanes),
                table_width2=np.zeros(lanes),
                table_stamps=np.zeros(lines),
                table_ring=np.zeros(lanes, dtype=np.int64),
                table_work=np.zeros(work),
                table_places=np.zeros(work, dtype=np.int64),
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
        frame["table"], self._last = kind, (kind, features, arms, entries)
        kernels.fill(frame, 0, arms)

    def renew(self) -> None:
        """A model has changed, and the pool has not."""
        if self.filled:
            self.fill(*self._last)

    def drop(self) -> None:
        """Score arm by arm."""
        if self.filled:
            self._frame["table"] = 0

    @property
    def filled(self) -> bool:
        """Whether scores come from the table at present."""
        return bool(self._frame["table"])
