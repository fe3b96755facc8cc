"""What all readers of logs share, and what keeps half-written files out of sight."""

from __future__ import annotations

import glob
import os
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from driftls.errors import InputError, LogFormatError, SettingsError
from driftls.inputs import as_whole
from driftls.logs.events import Block, Event

__all__ = ["Counts", "EventLog", "Log"]

MOST_EXAMPLES = 10
PART = ".driftls-part"  # ends the names of what is still being written


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
        if on_error not in ("raise", "skip"):
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


@contextmanager
def whole(path: str | os.PathLike[str], *, folder: bool = False) -> Iterator[Path]:
    """Where to write a file or folder; it takes its name when the `with` block is done and all is on the disk.

    Until then it is called ``.<name>.<some letters>.<process>.driftls-part``. What a process that is no more left under
    such a name is removed; nothing else ever is.
    """
    target = Path(os.path.realpath(path))  # a link stays a link
    if not target.parent.is_dir():
        raise SettingsError(
            f"{target.parent}: expected a folder to write {target.name} into. Make it, or choose another."
        )
    if target.exists() and not (target.is_dir() if folder else target.is_file()):
        raise SettingsError(f"{target}: expected {'a folder' if folder else 'a file'} or a new name. Choose another.")
    for left in target.parent.glob(f".{glob.escape(target.name)}.*{PART}"):
        if _orphan(left.name.removesuffix(PART).rpartition(".")[2]):
            _remove(left)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.{os.getpid()}{PART}")
    try:
        yield part
        for written in (part, *part.rglob("*")):
            _sync(written)
        os.replace(part, target)
        _sync(target.parent)
    finally:
        _remove(part)


def _orphan(process: str) -> bool:
    """Whether there is no process of this number, where that can be asked."""
    try:
        if os.name == "posix" and process.isdecimal():
            os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    if os.name == "posix" or not path.is_dir():
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
