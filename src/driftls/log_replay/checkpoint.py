"""The checkpoint of a replay: it belongs to lines, settings and policies, and is refused for any others."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from driftls import persistence
from driftls.errors import FileFormatError, SettingsError
from driftls.logs.events import Block

if TYPE_CHECKING:
    from driftls.log_replay.loop import Replay

__all__ = ["Checkpoint"]

BELONGS_TO = {
    "names": "other policies",
    "settings": "other settings",
    "features": "other features",
    "policies": "policies that had other settings or seeds, or had learned something else",
}


class Checkpoint:
    """A file that is written every so many lines of a replay, and from which the same replay goes on."""

    def __init__(self, path: Path, under_way: Replay, every: int) -> None:
        self.path, self.every, self._replay = path, every, under_way
        players = under_way.players
        for player in players:
            if not hasattr(player.policy, "snapshot"):
                raise SettingsError(
                    f"{player.name}: a checkpoint needs a policy that can be saved. Leave checkpoint= out."
                )
        self.identity = {
            "names": [player.name for player in players],
            "settings": under_way.settings,
            "features": [player.features.to_header() for player in players],
            "policies": [_fingerprint(player.policy) for player in players],
        }
        self._digest = _Digest()
        self._header: dict[str, Any] = {"lines": 0}
        if path.exists():
            self._header, self._arrays = persistence.read(path)
            with persistence.reading(path):
                self._check()

    def _check(self) -> None:
        header = self._header
        if header.get("class") != "Replay":
            raise FileFormatError(f"holds a {header.get('class')}, not the checkpoint of a replay. Choose another.")
        for name, whose in BELONGS_TO.items():
            if header["identity"].get(name) != self.identity[name]:
                raise self._refused(f"with {whose}")
        header["lines"] = int(header["lines"])
        if len(header["players"]) != len(self.identity["names"]):
            raise ValueError("not a state for each policy")

    def _refused(self, whose: str) -> SettingsError:
        return SettingsError(f"{self.path}: the checkpoint of a replay {whose}. Delete it, or choose another path.")

    def next_stop(self, done: int) -> int:
        """The number of lines at which a piece has to end."""
        goal: int = self._header["lines"]
        return goal if done < goal else done - done % self.every + self.every

    def step(self, piece: Block) -> None:
        """Replay a piece, or pass it if that was done before the interruption; write the file when it is time."""
        under_way, goal = self._replay, self._header["lines"]
        self._digest.add(piece)
        if under_way.done < goal:
            under_way.skip(piece)
            if under_way.done == goal:
                self._resume()
        else:
            under_way.step(piece)
            if under_way.done % self.every == 0:
                self._save()

    def ended(self) -> None:
        """The log has ended; with fewer lines than were replayed before, it was another one."""
        if self._replay.done < self._header["lines"]:
            raise self._refused("of another log")

    def _save(self) -> None:
        header: dict[str, Any] = {"class": "Replay", "lines": self._replay.done, "log": self._digest.text()}
        header |= {"identity": self.identity, "players": []}
        arrays: dict[str, Any] = {}
        for number, player in enumerate(self._replay.players):
            state, own = player.snapshot()
            header["players"].append(state)
            arrays |= {f"{number}.{name}": array for name, array in own.items()}
        persistence.write(self.path, header, arrays)

    def _resume(self) -> None:
        if self._digest.text() != self._header["log"]:
            raise self._refused("of another log")
        for number, (player, kept) in enumerate(zip(self._replay.players, self._header["players"])):
            with persistence.reading(self.path):
                player.resume(kept, persistence.group(self._arrays, f"{number}."))


def _fingerprint(policy: Any) -> str:
    """Of all that a file would keep of a policy."""
    header, arrays = policy.snapshot()
    if policy.disjoint:  # each arm gets a copy of the tracker, with a seed of its own: this one's is not used
        header = {**header, "tracker": {name: kept for name, kept in header["tracker"].items() if name != "draws"}}
    digest = hashlib.blake2b(json.dumps(header, sort_keys=True, default=str).encode(), digest_size=16)
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


class _Digest:
    """Of lines, however they are cut into blocks: one digest a column."""

    def __init__(self) -> None:
        self._columns: dict[str, Any] = {}

    def add(self, block: Block) -> None:
        parts = block.parts()
        columns = {
            f"{name} {k}": array
            for name, (values, lengths) in parts.items()
            for k, array in enumerate([values, *lengths])
        }
        if block.visitor is not None and block.items is not None:
            columns |= {"visitor": _text(block.visitor), "items": _text(block.items[k] for k in parts["arms"].values)}
        for name, column in columns.items():
            digest = self._columns.setdefault(name, hashlib.blake2b(digest_size=16))
            digest.update(np.ascontiguousarray(column).tobytes())

    def text(self) -> dict[str, str]:
        return {name: digest.hexdigest() for name, digest in self._columns.items()}


def _text(records: Any) -> Any:
    return np.frombuffer("".join(map(repr, records)).encode("utf-8", "surrogatepass"), np.uint8)
