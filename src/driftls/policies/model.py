"""A model: a tracker, and what its width keeps."""

from __future__ import annotations

from typing import NamedTuple

from driftls.trackers import Tracker
from driftls.width_states import WidthState


class Model(NamedTuple):
    """A tracker and the state of its width."""

    tracker: Tracker
    width: WidthState
