"""One model an arm id: a user vector comes, and each arm's own model says what it thinks of the user."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import driftls.trackers
from driftls.draws import TAPE, Draws, Seed
from driftls.errors import DimensionError, InputError, SettingsError
from driftls.history import Mapped
from driftls.kernels import policy as kernels
from driftls.kernels.chance import Chance
from driftls.kernels.frames import pack
from driftls.kernels.policy import Judge
from driftls.kernels.rows import DenseRows, SparseRows
from driftls.persistence import Saveable
from driftls.policies.inputs import (
    check_weights,
    checked_reward,
    id_header,
    id_of,
    part,
    plain_id,
    plain_ids,
    renamed,
    revive,
    tell,
)
from driftls.schedules import Tabulated, ridge
from driftls.trackers import RLS, SAGA, Tracker
from driftls.trackers.inputs import Block, as_block, as_numbers, fault
from driftls.widths import KINDS, DiagonalWidth, EnsembleWidth, SampleWidth, Width


@dataclass
class Model:
    """One arm's tracker and width."""

    tracker: Tracker
    width: Any
    offered: int
    alive: Any = None


class DisjointLinUCB(Saveable):
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
        if isinstance(self.tracker, RLS) and self.tracker.route == "cholesky":
            raise SettingsError("this RLS finds theta only when asked. Use method='sherman-morrison' or 'inverse'.")
        if isinstance(self.tracker.history, Mapped):
            raise SettingsError("every arm has a history of its own, and a Mapped folder serves one. Use Growing().")
        check_weights(kappa, sigmas, epsilon)
        if not (isinstance(most_arms, int | np.integer) and most_arms >= 1):
            raise SettingsError(f"most_arms must be a whole number of at least 1, got {most_arms!r}.")
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
        names = plain_ids(ids)
        if not names:
            raise InputError("the pool is empty: at least one arm is needed.")
        if len(names) > self.most_arms:
            raise InputError(f"{len(names)} arms, but most_arms={self.most_arms} models are kept. Raise most_arms.")
        slots = np.array([self._slot_of.get(name, -1) for name in names], dtype=np.int64)
        new = np.flatnonzero(slots < 0)
        if new.size:
            code = kernels.first_fault(block, self.dim)  # before a model is made
            if code:
                raise self._user_fault(code)
            self._sparse = isinstance(block, SparseRows)
            self._drop_oldest(len(self._slot_of) + new.size - self.most_arms, set(names))
            for k in new:
                slots[k] = self._new(names[k])
        self._have_room(len(names))
        if isinstance(block, DenseRows):
            chosen = self._entries.each_dense(self._table, self._words, block.X, block.y, slots)
        else:
            chosen = self._entries.each_sparse(self._table, self._words, *block, slots, self.dim)
        if chosen < 0:
            raise self._user_fault(-chosen)
        for slot in slots:
            self._models[slot].offered = self._rounds
        self._rounds += 1
        return int(chosen)

    def learn(self, user: Any, reward: float, *, arm: int, ids: Any) -> None:
        """Learn the reward of the arm at position `arm` of `ids`; it may come late and in any order."""
        if not isinstance(arm, int | np.integer) or not 0 <= arm < len(ids):
            raise InputError(f"arm {arm} is not among the {len(ids)} arms.")
        model = self._known(ids[arm])
        value = checked_reward(reward)
        block = self._user(user)
        self._reward[0] = value
        block = block._replace(y=self._reward)
        tracker = model.tracker
        if tracker._credit <= 0 or isinstance(block, SparseRows):
            tracker._prepare(1, block, 0)
        slot = self._slot_of[plain_id(ids[arm])]
        if model.alive is not tracker._alive:
            self._repack(slot)
        self._draws.ready(self._need)
        tracker._credit -= 1  # also where the row is refused: what is ready may be underestimated
        if isinstance(block, DenseRows):
            status = self._entries.learn_dense(self._table[slot], block.X, block.y, -1)
        else:
            status = self._entries.learn_sparse(self._table[slot], *block, -1, self.dim)
        if status:
            raise renamed(fault(status, 0, len(tracker), self.dim), "row 0", "the user")
        tell(tracker)

    @property
    def probability(self) -> float:
        """How likely the last choice was; not known where models are sampled."""
        if isinstance(self.width, SampleWidth) or (isinstance(self.width, EnsembleWidth) and self.width.sample):
            raise InputError("the probability of a choice among sampled models is not known. Use a width, and epsilon.")
        return float(self._scalars[kernels.PROBABILITY])

    @property
    def kappa(self) -> float:
        """The present weight of the width."""
        return float(kernels.weight(Judge(self._scalars, self._scores)))

    @property
    def epsilon(self) -> float:
        """The exploration floor."""
        return float(self._scalars[kernels.EPSILON])

    def _user(self, user: Any) -> Block:
        sparse = bool(sp.issparse(user))
        user = user.reshape(1, -1) if sparse else as_numbers(user, "a user must be a vector").reshape(1, -1)
        if user.shape[1] != self.dim:
            raise DimensionError(f"a user has {self.dim} features, got {user.shape[1]}.")
        return as_block(user, np.zeros(1), sparse if self._sparse is None else self._sparse, self.tracker._dtype)

    def _user_fault(self, code: int) -> Exception:
        return renamed(fault(code % 8, 0, 0, self.dim), "row 0", "the user")

    def _known(self, name: Hashable) -> Model:
        slot = self._slot_of.get(plain_id(name))
        model = None if slot is None else self._models[slot]
        if model is None:
            raise InputError(f"arm id {name!r} was never offered, or was dropped. Offer it in choose first.")
        return model

    def _drop_oldest(self, count: int, present: set[Hashable]) -> None:
        """Drop so many models, those that were not offered for longest, and none that is on offer."""
        if count > 0:
            absent = [name for name in self._slot_of if name not in present]
            absent.sort(key=lambda name: self._models[self._slot_of[name]].offered)  # type: ignore[union-attr]
            for name in absent[:count]:
                self._models[self._slot_of.pop(name)] = None

    def _have_room(self, count: int) -> None:
        """Draws and scores for so many arms."""
        needed = (count + 1) * self._need
        moved = needed > self._draws.tape.size or count > self._scores.size
        if needed > self._draws.tape.size:
            before = self._draws
            self._draws = Draws(None, 2 * needed)
            self._draws.restore(before.header(), before.unread())
        if count > self._scores.size:
            self._scores = np.zeros(2 * count)
        if moved:
            for slot in self._slot_of.values():
                self._repack(slot)
        self._draws.ready(needed)

    def _new(self, name: Hashable) -> int:
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

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Header and arrays from which `from_snapshot` makes the same policy."""
        kept, parts = self.tracker.snapshot()
        seeds: Any = self._seeds.bit_generator.seed_seq
        header: dict[str, Any] = {
            "class": type(self).__name__,
            "prototype": kept,
            "width": {"kind": type(self.width).__name__, **self.width.settings()},
            "draws": self._draws.header(),
            "tape": self._draws.tape.size,
            "entropy": np.array(seeds.entropy, dtype=object).tolist(),
            "spawn_key": [int(entry) for entry in seeds.spawn_key],
            "spawned": seeds.n_children_spawned,
            "sparse": self._sparse,
            "rounds": self._rounds,
            "most_arms": self.most_arms,
            "models": [],
        }
        arrays: dict[str, Any] = {"scalars": self._scalars, "unread": self._draws.unread()}
        arrays |= {f"prototype.{name}": array for name, array in parts.items()}
        for number, (name, slot) in enumerate(self._slot_of.items()):
            model = self._models[slot]
            assert model is not None
            kept, parts = model.tracker.snapshot()
            header["models"].append({"id": id_header(name), "slot": slot, "offered": model.offered, "tracker": kept})
            arrays |= {f"{number}.tracker.{key}": array for key, array in parts.items()}
            arrays |= {f"{number}.width.{key}": array for key, array in model.width._asdict().items()}
        return header, arrays

    @classmethod
    def from_snapshot(cls, header: dict[str, Any], arrays: dict[str, Any], **functions: Any) -> Self:
        """The policy that `snapshot` wrote down."""
        kind = getattr(driftls.trackers, header["prototype"]["class"])
        tracker = kind.from_snapshot(header["prototype"], part(arrays, "prototype."), **functions)
        settings = dict(header["width"])
        policy = cls(tracker.dim, tracker=tracker, width=KINDS[settings.pop("kind")](**settings))
        policy.most_arms, policy._rounds, policy._sparse = header["most_arms"], header["rounds"], header["sparse"]
        policy._seeds = np.random.default_rng(
            np.random.SeedSequence(
                header["entropy"], spawn_key=tuple(header["spawn_key"]), n_children_spawned=header["spawned"]
            )
        )
        policy._draws = Draws(None, header["tape"])
        policy._scalars[:] = arrays["scalars"]
        most = max((entry["slot"] for entry in header["models"]), default=-1)
        policy._models = [None] * (most + 1)
        groups: dict[str, dict[str, Any]] = {}
        for name, array in arrays.items():
            number, _, rest = name.partition(".")
            groups.setdefault(number, {})[rest] = array
        for place, entry in enumerate(header["models"]):
            own = groups[str(place)]
            tracker = kind.from_snapshot(entry["tracker"], part(own, "tracker."), **functions)
            width = policy.width.allocate(tracker, 0, policy._draws)
            for key, array in part(own, "width.").items():
                getattr(width, key)[...] = array
            policy._models[entry["slot"]] = Model(tracker, width, entry["offered"])
            policy._slot_of[id_of(entry["id"])] = entry["slot"]
            policy._entries = kernels.policy_entries(tracker._state_class, width.__class__)
            policy._repack(entry["slot"])
        policy._draws.restore(header["draws"], arrays["unread"])
        return policy

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or a pickle for another process, is made of what a file would hold: never of addresses."""
        header, arrays = self.snapshot()
        functions = {
            name: schedule.function
            for name in ("step_size", "regularisation")
            if isinstance(schedule := getattr(self.tracker, name), Tabulated)
        }
        return revive, (type(self), header, {name: np.array(array) for name, array in arrays.items()}, functions)

    def __repr__(self) -> str:
        return f"DisjointLinUCB({self.tracker!r}, {self.width!r}, epsilon={self.epsilon}), arms={len(self)}"
