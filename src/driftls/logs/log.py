"""What all readers of logs share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from driftls.errors import InputError, LogFormatError, SettingsError
from driftls.inputs import as_whole
from driftls.logs.columns import Check, Part, faults, line_checks
from driftls.logs.events import Block, Event

__all__ = ["Counts", "EventLog", "Log"]

MOST_EXAMPLES = 10


@dataclass
class Counts:
    """What became of the lines: `lines` = `events` + `skipped` + `dropped_lines`."""

    lines: int = 0
    events: int = 0
    skipped: int = 0  # broken lines
    dropped_lines: int = 0  # R6A: the article shown has too few features
    dropped_candidates: int = 0  # R6A: candidates with too few features, line by line
    examples: list[str] = field(default_factory=list)  # messages of the first broken lines


class Log(ABC):
    """A log: iterate for events, or take `blocks`; see `driftls.logs.read`."""

    format: str

    def __init__(self, *, on_error: str = "raise", block: int = 32_768) -> None:
        if not isinstance(on_error, str) or on_error not in ("raise", "skip"):
            raise SettingsError(f"on_error must be 'raise' or 'skip', got {on_error!r}.")
        self.on_error, self.block = on_error, block
        self.counts = Counts()
        self.share: float | None = None  # of the input that has been read, where it is known

    def __iter__(self) -> Iterator[Event]:
        for block in self.blocks():
            yield from block

    def blocks(self, size: int | None = None) -> Iterator[Block]:
        """Read from the beginning, at most `size` lines a block; `counts` is complete at the end."""
        size = as_whole(self.block if size is None else size, "the lines of a block")
        self.counts = Counts()
        return self._blocks(size)

    @abstractmethod
    def _blocks(self, size: int) -> Iterator[Block]: ...

    def _sound(
        self, parts: dict[str, Part], checks: list[Check], told: Callable[[int, str, str], str]
    ) -> tuple[dict[str, Part], NDArray[np.bool_]]:
        """The columns without broken lines, and which lines are left; `told` says what is wrong with a line."""
        kept = np.ones(len(parts["time"].values), np.bool_)
        for line, expected, name in faults([*checks, *line_checks(parts)]):
            self._broken(told(line, expected, name))
            kept[line] = False
        self.counts.lines += len(kept)
        self.counts.events += int(kept.sum())
        return {name: part.only(kept) for name, part in parts.items()}, kept

    def _broken(self, message: str) -> None:
        """Raise, or count the line and go on"""
        if self.on_error == "raise":
            raise LogFormatError(f'{message} Pass on_error="skip" to skip and count bad lines.')
        self.counts.skipped += 1
        if len(self.counts.examples) < MOST_EXAMPLES:
            self.counts.examples.append(message)


class EventLog(Log):
    """Events that the caller made, packed as they are asked for."""

    format = "events"

    def __init__(self, events: Iterable[Event], *, block: int = 32_768) -> None:
        super().__init__(block=block)
        self._events, self._taken = events, False

    def _blocks(self, size: int) -> Iterator[Block]:
        events = iter(self._events)
        if self._taken and events is self._events:
            raise InputError("these events were an iterator, which can be read once. Pass a list, or make it anew.")
        self._taken = True
        while chunk := list(islice(events, size)):
            self.counts.lines += len(chunk)
            self.counts.events += len(chunk)
            yield Block.from_events(chunk)
