"""Score tables: the arms of a pool side by side, so that a user's features are scored for all of them at once."""

from __future__ import annotations

import numpy as np

from driftls.kernels import table as kernels
from driftls.kernels.parts import Frame
from driftls.kernels.table import CENTRED, CROSSED, FEATURES, PAIRS
from driftls.widths import CentredWidth, DiagonalWidth, ExactWidth, NoWidth, Width

LARGEST = 1 << 20  # entries
PAYS_AFTER = 16  # rounds with one pool, for each of 256 features, until a table has paid for itself
LANES = 8


def kind_of(width: Width, sparse: bool, crossed: bool, *, own: bool = False) -> int:
    """Which table serves this width; 0 for none. `own`: the inverse is not the tracker's, where a table reads it."""
    if isinstance(width, DiagonalWidth | NoWidth):
        return CROSSED if crossed else FEATURES
    if isinstance(width, CentredWidth):
        return 0 if crossed else CENTRED
    return PAIRS if isinstance(width, ExactWidth) and sparse and not (crossed or own) else 0


class ScoreTable:
    """The table of one policy: made for a number of features and arms, filled for a pool, dropped when it changes."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._shape = (0, 0, 0)
        self._last = (0, 0, 0, 0)

    def fill(self, kind: int, features: int, arms: int, entries: int) -> bool:
        """Have the pool of the frame's slots in the table; False where it would be too large."""
        lanes = -(-arms // LANES) * LANES
        lines = features * (features + 1) // 2 if kind == PAIRS else features
        if kind == 0 or lines * lanes > LARGEST:
            return False
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
        return True

    def renew(self) -> None:
        """A model has changed, and the pool has not."""
        if self.filled:
            self.fill(*self._last)

    def drop(self) -> None:
        """The pool has changed: score arm by arm."""
        if self._frame["table"]:
            self._frame["table"] = 0

    @property
    def filled(self) -> bool:
        """Whether scores come from the table at present."""
        return bool(self._frame["table"])
