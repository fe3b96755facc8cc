"""One model an arm id: a user vector comes, and each arm's own model says what it thinks of the user."""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import driftls.trackers
from driftls import persistence
from driftls.draws import TAPE, Draws, Seed
from driftls.errors import DimensionError, FileFormatError, InputError, SettingsError
from driftls.kernels import policy as kernels
from driftls.kernels import track
from driftls.kernels.frames import pack
from driftls.kernels.policy import Judge
from driftls.kernels.rows import DenseRows, SparseRows
from driftls.kernels.widths import Chance
from driftls.schedules import ridge
from driftls.trackers import SAGA, Tracker
from driftls.trackers.inputs import Block, as_block, fault
from driftls.widths import KINDS, DiagonalWidth, Width


@dataclass
class Model:
    """One arm's tracker and width."""

    tracker: Tracker
    width: Any
    offered: int
    alive: Any = None


class DisjointLinUCB:
    """LinUCB with one model an arm id, made when the arm is first seen.

    Parameters
    ----------
    dim : int
        Number of features of a user.
    tracker : Tracker, optional
        An unused tracker, of which each arm gets a fresh copy; `SAGA` with ridge 3 by default.
    width : Width
        Of each model; `DiagonalWidth()` by default.
    kappa, sigmas, epsilon
        As for `LinUCB`; the noise is estimated over all arms together.
    most_arms : int
        Beyond so many models the one that was not offered for longest is dropped.
    seed : int or Generator
        Of the policy's chance and of its trackers.

    Examples
    --------
    >>> policy = DisjointLinUCB(dim=2, seed=0)
    >>> user = np.array([1.0, 0.5])
    >>> k = policy.choose(user, ids=["sports", "politics"])
    >>> policy.learn(user, 1.0, arm=k, ids=["sports", "politics"])
    >>> len(policy)
    2
    """

    def __init__(
        self,
        dim: int,
        *,
        tracker: Tracker | None = None,
        width: Width | None = None,
        kappa: float | None = None,
        sigmas: float = 1.0,
        epsilon: float = 0.0,
        most_arms: int = 10_000,
        seed: Seed = None,
    ) -> None:
        self._seeds = np.random.default_rng(seed)
        self.tracker = SAGA(dim, regularisation=ridge(3.0)) if tracker is None else tracker
        self.width = DiagonalWidth() if width is None else width
        if self.tracker.dim != dim or len(self.tracker):
            raise SettingsError(f"tracker must be an unused one of dim={dim}, of which each arm gets a copy.")
        if self.width.keeps_arms:
            raise SettingsError("a width that keeps arms makes no sense here: a model sees users, which do not recur.")
        if kappa is not None and not kappa >= 0.0:
            raise SettingsError(f"kappa must be at least 0, or None to estimate it, got {kappa}.")
        if not 0.0 <= epsilon <= 1.0 or not sigmas > 0.0 or most_arms < 1:
            raise SettingsError("epsilon must lie in [0, 1], sigmas be positive, and most_arms at least 1.")
        self.dim, self.most_arms = dim, int(most_arms)
        self._need = self.width.draws(dim) + 1
        self._draws = Draws(self._seeds.spawn(1)[0], max(TAPE, 8 * self._need))
        self._scalars = np.zeros(kernels.SCALARS)
        self._scalars[kernels.KAPPA] = 0.0 if kappa is None else kappa
        self._scalars[kernels.SIGMAS] = sigmas if kappa is None else 0.0
        self._scalars[kernels.EPSILON] = epsilon
        self._scores = np.zeros(64)
        self._models: list[Model | None] = []
        self._table: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        self._slot_of: dict[Hashable, int] = {}
        self._rounds = 0
        self._sparse: bool | None = None
        self._reward = np.zeros(1)

    def __len__(self) -> int:
        """Models kept now."""
        return len(self._slot_of)

    def model(self, name: Hashable) -> Tracker:
        """The tracker of one arm."""
        return self._known(name).tracker

    def choose(self, user: Any, *, ids: Any) -> int:
        """The position in `ids` of the arm to show this user (a vector, or a sparse row)."""
        block = self._user(user)
        count = len(ids)
        if count == 0:
            raise InputError("the pool is empty: at least one arm is needed.")
        slots = np.empty(count, dtype=np.int64)
        for k, name in enumerate(ids.tolist() if isinstance(ids, np.ndarray) else ids):
            slot = self._slot_of.get(name)
            if slot is None:
                slot = self._new(name, block)
            slots[k] = slot
            self._models[slot].offered = self._rounds  # type: ignore[union-attr]
        self._draws.ready((count + 1) * self._need)
        if count > self._scores.size:
            self._scores = np.zeros(2 * count)
            self._repack_all()
        if isinstance(block, DenseRows):
            chosen = self._entries.each_dense(self._table, self._words, block.X, block.y, slots)
        else:
            chosen = self._entries.each_sparse(self._table, self._words, *block, slots, self.dim)
        if chosen < 0:
            error = fault(-chosen % 8, 0, 0, self.dim)
            raise type(error)(str(error).replace("row 0", "user").replace("Nothing of the block was learned; ", ""))
        self._rounds += 1
        return int(chosen)

    def learn(self, user: Any, reward: float, *, arm: int, ids: Any) -> None:
        """Learn the reward of the arm at position `arm` of `ids`; it may come late and in any order."""
        if not 0 <= arm < len(ids):
            raise InputError(f"arm {arm} is not among the {len(ids)} arms.")
        model = self._known(ids[arm])
        try:
            self._reward[0] = reward
        except (TypeError, ValueError):
            raise InputError(f"a reward must be a number, got {reward!r}.") from None
        block = self._user(user)._replace(y=self._reward)
        tracker = model.tracker
        if tracker._credit <= 0 or isinstance(block, SparseRows):
            tracker._prepare(1, block, 0)
        slot = self._slot_of[_plain(ids[arm])]
        if model.alive is not tracker._alive:
            self._repack(slot)
        self._draws.ready(self._need)
        if isinstance(block, DenseRows):
            status = self._entries.learn_dense(self._table[slot], block.X, block.y, -1)
        else:
            status = self._entries.learn_sparse(self._table[slot], *block, -1, self.dim)
        if status:
            raise fault(status, int(tracker._book[track.FAULT_ROW]), len(tracker), self.dim)
        tracker._credit -= 1

    @property
    def probability(self) -> float:
        """How likely the last choice was."""
        return float(self._scalars[kernels.PROBABILITY])

    @property
    def kappa(self) -> float:
        """The present weight of the width."""
        return float(kernels.weight(Judge(self._scalars, self._scores)))

    def _user(self, user: Any) -> Block:
        sparse = bool(sp.issparse(user))
        user = user.reshape(1, -1) if sparse else np.asarray(user).reshape(1, -1)
        if user.shape[1] != self.dim:
            raise DimensionError(f"a user has {self.dim} features, got {user.shape[1]}.")
        if self._sparse is None:
            self._sparse = sparse
        dtype = np.dtype(np.float64) if self.tracker.history is None else self.tracker.history.dtype
        try:
            return as_block(user, np.zeros(1), self._sparse, dtype)
        except (TypeError, ValueError):
            raise InputError(f"a user must be a vector of numbers, got dtype {user.dtype}.") from None

    def _known(self, name: Hashable) -> Model:
        slot = self._slot_of.get(_plain(name))
        model = None if slot is None else self._models[slot]
        if model is None:
            raise InputError(f"arm id {name!r} was never offered, or was dropped. Offer it in choose first.")
        return model

    def _new(self, name: Hashable, block: Block) -> int:
        if len(self._slot_of) >= self.most_arms:
            oldest = min(self._slot_of, key=lambda old: self._models[self._slot_of[old]].offered)  # type: ignore[union-attr]
            self._models[self._slot_of.pop(oldest)] = None
        tracker = self.tracker.fresh(self._seeds.spawn(1)[0])
        tracker._start(bool(self._sparse))
        self._add(name, tracker, self.width.allocate(tracker, 0, self._draws))
        return self._slot_of[name]

    def _add(self, name: Hashable, tracker: Tracker, width: Any) -> None:
        slot = self._models.index(None) if None in self._models else len(self._models)
        if slot == len(self._models):
            self._models.append(None)
        self._models[slot] = Model(tracker, width, self._rounds)
        self._slot_of[name] = slot
        self._entries = kernels.policy_entries(tracker._state_class, width.__class__)
        self._repack(slot)

    def _repack(self, slot: int) -> None:
        """Write down where this model's arrays are now."""
        model = self._models[slot]
        assert model is not None
        judge, chance = Judge(self._scalars, self._scores), Chance(self._draws.tape, self._draws.cursor)
        self._words = pack([judge, chance])
        words = pack([*model.tracker._alive, model.width, judge, chance])
        if slot >= len(self._table):
            grown = np.zeros((max(64, 2 * slot), words.size), dtype=np.int64)
            if self._table.size:
                grown[: len(self._table)] = self._table
            self._table = grown
        self._table[slot] = words
        model.alive = model.tracker._alive

    def _repack_all(self) -> None:
        for slot in self._slot_of.values():
            self._repack(slot)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole policy to one file, atomically; `load` goes on as if it had never stopped."""
        proto = self.tracker.snapshot()
        header: dict[str, Any] = {
            "class": type(self).__name__,
            "prototype": proto[0],
            "width": {"kind": type(self.width).__name__, **self.width.settings()},
            "draws": self._draws.header(),
            "spawned": self._seeds.bit_generator.seed_seq.n_children_spawned,  # type: ignore[attr-defined]
            "entropy": str(self._seeds.bit_generator.seed_seq.entropy),  # type: ignore[attr-defined]
            "spawn_key": list(self._seeds.bit_generator.seed_seq.spawn_key),  # type: ignore[attr-defined]
            "sparse": self._sparse,
            "rounds": self._rounds,
            "most_arms": self.most_arms,
            "models": [],
        }
        arrays: dict[str, Any] = {"scalars": self._scalars, "unread": self._draws.unread()}
        arrays |= {f"prototype.{name}": array for name, array in proto[1].items()}
        for number, (name, slot) in enumerate(self._slot_of.items()):
            model = self._models[slot]
            assert model is not None
            kept, parts = model.tracker.snapshot()
            header["models"].append({"id": name, "slot": slot, "offered": model.offered, "tracker": kept})
            arrays |= {f"{number}.tracker.{key}": array for key, array in parts.items()}
            arrays |= {f"{number}.width.{key}": array for key, array in model.width._asdict().items()}
        persistence.write(path, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Open a saved policy."""
        header, arrays = persistence.read(path)
        if header.get("class") != cls.__name__:
            raise FileFormatError(f"{path}: holds a {header.get('class')}, not a {cls.__name__}. Use its own load().")

        def part(prefix: str) -> dict[str, Any]:
            return {key[len(prefix) :]: array for key, array in arrays.items() if key.startswith(prefix)}

        kind = getattr(driftls.trackers, header["prototype"]["class"])
        tracker = kind.from_snapshot(header["prototype"], part("prototype."))
        settings = dict(header["width"])
        policy = cls(tracker.dim, tracker=tracker, width=KINDS[settings.pop("kind")](**settings))
        policy.most_arms, policy._rounds, policy._sparse = header["most_arms"], header["rounds"], header["sparse"]
        sequence = np.random.SeedSequence(
            int(header["entropy"]), spawn_key=tuple(header["spawn_key"]), n_children_spawned=header["spawned"]
        )
        policy._seeds = np.random.default_rng(sequence)
        policy._scalars[:] = arrays["scalars"]
        most = max((entry["slot"] for entry in header["models"]), default=-1)
        policy._models = [None] * (most + 1)
        for number, entry in enumerate(header["models"]):
            tracker = kind.from_snapshot(entry["tracker"], part(f"{number}.tracker."))
            width = policy.width.allocate(tracker, 0, policy._draws)
            for key, array in part(f"{number}.width.").items():
                getattr(width, key)[...] = array
            policy._models[entry["slot"]] = Model(tracker, width, entry["offered"])
            policy._slot_of[entry["id"]] = entry["slot"]
            policy._entries = kernels.policy_entries(tracker._state_class, width.__class__)
            policy._repack(entry["slot"])
        policy._draws.restore(header["draws"], arrays["unread"])
        return policy


def _plain(name: Hashable) -> Hashable:
    return name.item() if isinstance(name, np.generic) else name
