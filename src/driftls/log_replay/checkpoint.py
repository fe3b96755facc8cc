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

__all__ = ["Checkpoint", "identity"]

LINES = ("time", "shown", "reward", "user_index", "user_value", "propensity", "truth")
OF_CANDIDATES = ("users", "sizes", "arms", "arm_features")
STATE = ("seconds", "points", "traces", "waiting")


class Checkpoint:
    """A file that is written every so many lines of a replay, and from which the same replay goes on."""

    def __init__(self, path: Path, under_way: Replay, every: int) -> None:
        self.path, self.every, self._replay = path, every, under_way
        for player in under_way.players:
            if not hasattr(player.policy, "snapshot"):
                raise SettingsError(
                    f"{player.name}: a checkpoint needs a policy that can be saved. Leave checkpoint= out."
                )
        self.identity = identity(under_way)
        self._digest = _Digest()
        self._header: dict[str, Any] = {"lines": 0}
        self._arrays: dict[str, Any] = {}
        if path.exists():
            self._header, self._arrays = persistence.read(path)
            with persistence.reading(path):
                self._check()

    def _check(self) -> None:
        header = self._header
        if header.get("class") != "Replay":
            raise FileFormatError(f"holds a {header.get('class')}, not the checkpoint of a replay. Choose another.")
        kept = header.get("identity", {})
        for name, what in (("names", "other policies"), ("settings", "other settings"), ("features", "other features")):
            if kept.get(name) != self.identity[name]:
                raise self._refused(f"a replay with {what}")
        if kept.get("policies") != self.identity["policies"]:
            raise self._refused("a replay whose policies had other settings or seeds, or had learned something else")
        header["lines"] = int(header["lines"])
        if len(header["players"]) != len(kept["names"]):
            raise ValueError("not a state for each policy")

    def _refused(self, whose: str) -> SettingsError:
        return SettingsError(f"{self.path}: the checkpoint of {whose}. Delete it, or choose another path.")

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
            return
        under_way.step(piece)
        if under_way.done % self.every == 0:
            self._save()

    def ended(self) -> None:
        """The log has ended; with fewer lines than were replayed before, it was another one."""
        if self._replay.done < self._header["lines"]:
            raise self._refused("a replay of another log")

    def remove(self) -> None:
        """The replay is complete."""
        self.path.unlink(missing_ok=True)

    def _save(self) -> None:
        under_way = self._replay
        header: dict[str, Any] = {"class": "Replay", "lines": under_way.done, "log": self._digest.text()}
        header |= {"identity": self.identity, "players": []}
        arrays: dict[str, Any] = {}
        for number, player in enumerate(under_way.players):
            policy, parts = player.policy.snapshot()
            matches = dict(vars(player.matches))
            for name in ("rewards", "weights"):
                arrays[f"{number}.matches.{name}"] = np.concatenate([np.zeros(0), *matches.pop(name)])
            state = {name: getattr(player, name) for name in STATE}
            header["players"].append({**state, "matches": matches, "policy": policy})
            arrays |= {f"{number}.policy.{name}": array for name, array in parts.items()}
        persistence.write(self.path, header, arrays)

    def _resume(self) -> None:
        if self._digest.text() != self._header["log"]:
            raise self._refused("a replay of another log")
        for number, (player, kept) in enumerate(zip(self._replay.players, self._header["players"])):
            policy = player.policy  # the caller's own goes on as the one that was saved
            with persistence.reading(self.path):
                again = type(policy).from_snapshot(kept["policy"], persistence.group(self._arrays, f"{number}.policy."))
            if player.features is policy.features:  # with the names that it had learned by then
                player.features = again.features
            vars(policy).update(vars(again))
            for name in STATE:
                setattr(player, name, kept[name])
            player.waiting = [(int(line), float(reward)) for line, reward in kept["waiting"]]
            for name, value in kept["matches"].items():
                setattr(player.matches, name, value)
            for name in ("rewards", "weights"):
                setattr(player.matches, name, [self._arrays[f"{number}.matches.{name}"]])


def identity(under_way: Replay) -> dict[str, Any]:
    """What a checkpoint, or a run in a folder, belongs to: settings, features, and the policies as they came."""
    return {
        "names": [player.name for player in under_way.players],
        "settings": under_way.settings,
        "features": [player.features.to_header() for player in under_way.players],
        "policies": [_fingerprint(player.policy) for player in under_way.players],
    }


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


def _text(records: list[Any]) -> Any:
    return np.frombuffer("".join(map(repr, records)).encode("utf-8", "surrogatepass"), np.uint8)


class _Digest:
    """Of lines, however they are cut into blocks: one digest a column."""

    def __init__(self) -> None:
        self._columns = {name: hashlib.blake2b(digest_size=16) for name in (*LINES, *OF_CANDIDATES)}

    def add(self, block: Block) -> None:
        places, features = block.candidates, block.arm_features
        own = (np.diff(block.user_start), np.diff(block.truth_start), block.pool_ids[places])
        columns = [getattr(block, name) for name in LINES]
        columns += [*own, None if features is None else features[places]]
        if block.visitor is not None and block.items is not None:  # dicts, in place of the numbers of features
            items = [block.items[k] for k in block.pool_ids[places].tolist()]
            columns[LINES.index("user_index")], columns[-1] = _text(block.visitor.tolist()), _text(items)
        for digest, column in zip(self._columns.values(), columns):
            if column is not None:
                digest.update(np.ascontiguousarray(column).tobytes())

    def text(self) -> dict[str, str]:
        return {name: digest.hexdigest() for name, digest in self._columns.items()}
