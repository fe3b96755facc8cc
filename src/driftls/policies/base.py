"""What all policies share: arms come, one is chosen, later its reward is learned."""

from __future__ import annotations

import os
from collections.abc import Hashable
from typing import Any, NamedTuple, Self

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
from driftls.trackers import RLS, Tracker
from driftls.trackers.inputs import Block, as_block, fault
from driftls.widths import KINDS, Width

FIRST_SLOTS = 16


class Pending(NamedTuple):
    """A choice whose reward has not come yet."""

    x: Any
    slot: int


class Policy:
    """Scores theta.x + kappa width(x) over any tracker and any width.

    Parameters
    ----------
    tracker : Tracker
        Follows theta.
    width : Width
        How sure we are about an arm.
    kappa : float, optional
        Weight of the width. By default it is estimated: `sigmas` standard deviations of the noise.
    sigmas : float
        1 suits arms that change, 2 a fixed pool.
    epsilon : float
        With this probability any arm is shown, so that every arm of a log has a propensity of at least epsilon/K.
    forget_after : int
        A recurring arm that was not offered for so many rounds may be dropped.
    seed : int or Generator
        Of the policy's own chance; the tracker has its own.
    """

    def __init__(
        self,
        tracker: Tracker,
        width: Width,
        *,
        kappa: float | None = None,
        sigmas: float = 1.0,
        epsilon: float = 0.0,
        forget_after: int = 1000,
        seed: Seed = None,
    ) -> None:
        if kappa is not None and not (np.isfinite(kappa) and kappa >= 0.0):
            raise SettingsError(f"kappa must be a number of at least 0, or None to estimate it, got {kappa}.")
        if not 0.0 <= epsilon <= 1.0:
            raise SettingsError(f"epsilon must lie in [0, 1], got {epsilon}.")
        if not sigmas > 0.0:
            raise SettingsError(f"sigmas must be positive, got {sigmas}.")
        self.tracker, self.width = tracker, width
        self.forget_after = int(forget_after)
        self.dim = tracker.dim
        need = width.draws(self.dim) + 1
        self._need, self._draws, self._credit = need, Draws(seed, max(TAPE, 8 * need)), 0
        self._scalars = np.zeros(kernels.SCALARS)
        self._scalars[kernels.KAPPA] = 0.0 if kappa is None else kappa
        self._scalars[kernels.SIGMAS] = sigmas if kappa is None else 0.0
        self._scalars[kernels.EPSILON] = epsilon
        self._scores = np.zeros(FIRST_SLOTS)
        self._zeros = np.zeros(0)
        self._reward = np.zeros(1)
        self._no_slots = np.zeros(0, dtype=np.int64)
        self._width: Any = None
        self._slot_of: dict[Hashable, int] = {}
        self._offered = np.zeros(FIRST_SLOTS, dtype=np.int64)
        self._rounds = 0
        self._pending: dict[Hashable, Pending | None] = {}
        self._alive: Any = None

    # -- a round -------------------------------------------------------------------------------------------------

    def choose(self, arms: Any, *, ids: Any = None, key: Hashable = None) -> int:
        """The position of the arm to show, among `arms`: a (K, dim) array or sparse matrix.

        `ids` name arms that recur. `key`, if given, keeps the choice until `learn(reward=..., key=key)`.
        """
        block = self._arms(arms)
        count = len(block.y)
        slots = self._slots(ids, count)
        self._ready(count)
        if isinstance(block, DenseRows):
            chosen = self._entries.choose_dense(self._words, block.X, block.y, slots)
        else:
            chosen = self._entries.choose_sparse(self._words, *block, slots, self.dim)
        if chosen < 0:
            self._drop_new(slots)
            raise self._arm_fault(-chosen)
        self._rounds += 1
        self._credit -= 1
        if key is not None:
            if key in self._pending:
                raise InputError(f"key {key!r} was used before. Every choice needs a key of its own.")
            self._pending[key] = Pending(_row(arms, chosen), int(slots[chosen]))
        return int(chosen)

    def learn(
        self,
        arms: Any = None,
        reward: float | None = None,
        *,
        arm: int | None = None,
        ids: Any = None,
        key: Hashable = None,
    ) -> None:
        """Learn a reward: `learn(x, reward)`, `learn(arms, reward, arm=k, ids=ids)` or `learn(reward=..., key=key)`.

        It may come late and in any order. Nothing is changed if the reward or the arm cannot be used.
        """
        slot = -1
        if key is not None:
            waiting = self._pending.get(key)
            if waiting is None:
                state = "was learned already" if key in self._pending else "is not known: choose(..., key=key) first"
                raise InputError(f"key {key!r} {state}.")
            x, slot = waiting
        elif arm is not None:
            count = arms.shape[0] if hasattr(arms, "shape") else len(arms)
            if not 0 <= arm < count:
                raise InputError(f"arm {arm} is not among the {count} arms.")
            x = _row(arms, arm)
            if ids is not None and self.width.keeps_arms:
                slot = self._known_slot(ids[arm])
        else:
            x = arms
        if x is None or reward is None:
            raise InputError("learn needs an arm and a reward: learn(x, reward), or learn(reward=..., key=...).")
        self._learn(x, reward, slot)
        if key is not None:
            self._pending[key] = None

    def _learn(self, x: Any, reward: float, slot: int) -> None:
        block = self._arms(x.reshape(1, -1) if hasattr(x, "reshape") else np.asarray(x).reshape(1, -1))
        try:
            self._reward[0] = reward
        except (TypeError, ValueError):
            raise InputError(f"a reward must be a number, got {reward!r}.") from None
        block = block._replace(y=self._reward)
        tracker = self.tracker
        if tracker._credit <= 0 or isinstance(block, SparseRows):
            tracker._prepare(1, block, 0)
        self._ready(0)
        if isinstance(block, DenseRows):
            status = self._entries.learn_dense(self._words, block.X, block.y, slot)
        else:
            status = self._entries.learn_sparse(self._words, *block, slot, self.dim)
        if status:
            raise fault(status, int(tracker._book[track.FAULT_ROW]), len(tracker), self.dim)
        tracker._credit -= 1
        self._credit -= 1
        if isinstance(tracker, RLS):
            tracker._stay_ready()

    def probabilities(self, arms: Any, *, ids: Any = None) -> NDArray[np.float64]:
        """How likely each arm is to be chosen now; learns and draws nothing."""
        scores = self.scores(arms, ids=ids)
        epsilon = float(self._scalars[kernels.EPSILON])
        out = np.full(scores.size, epsilon / scores.size)
        out[int(np.argmax(scores))] += 1.0 - epsilon
        return out

    def scores(self, arms: Any, *, ids: Any = None) -> NDArray[np.float64]:
        """theta.x + kappa width(x) of each arm; learns nothing, and leaves the policy's chance where it was."""
        self._arms(arms)
        self._ready(0)
        cursor, tape, kept = self._draws.cursor.copy(), self._draws.tape.copy(), self._scalars.copy()
        generator = self._draws.generator.bit_generator.state
        try:
            self.choose(arms, ids=ids)
            self._rounds -= 1
            return self._scores[: arms.shape[0]].copy()
        finally:
            self._draws.generator.bit_generator.state = generator
            self._draws.tape[:], self._draws.cursor[:], self._scalars[:] = tape, cursor, kept

    @property
    def probability(self) -> float:
        """How likely the last choice was."""
        return float(self._scalars[kernels.PROBABILITY])

    @property
    def kappa(self) -> float:
        """The present weight of the width."""
        return float(kernels.weight(Judge(self._scalars, self._scores)))

    @property
    def epsilon(self) -> float:
        """The exploration floor."""
        return float(self._scalars[kernels.EPSILON])

    @property
    def theta(self) -> NDArray[np.float64]:
        """The tracker's estimate."""
        return self.tracker.theta

    def widths(self, arms: Any, *, ids: Any = None) -> NDArray[np.float64]:
        """The width of each arm, before kappa."""
        block = self._arms(arms)
        slots = self._slots(ids, len(block.y))
        self._ready(len(block.y))
        out = np.zeros(len(block.y))
        tracker = self.tracker
        held = len(tracker) if tracker.history is None else len(tracker.history)
        kernels.widths_of(self._width, block, slots, tracker._alive[3], held, out)
        return out

    # -- for a compiled loop over many rounds --------------------------------------------------------------------

    def _first_look(self, arms: Any, ids: Any) -> None:
        """See the first arms, as `choose` would."""
        self._arms(arms)

    def _open_slots(self, arms: Any, ids: Any, count: int) -> NDArray[np.int64]:
        """Slots of these arms, the new ones opened."""
        block = self._arms(arms)
        slots = self._slots(ids, count)
        self._ready(count)
        if (slots < -1).any():
            kernels.open_slots(self._width, block, slots)
        return slots

    def _room(self, wanted: int, arms: Block) -> int:
        """For how many rounds draws and rows are ready; at least one."""
        tracker = self.tracker
        longest = int((arms.stop - arms.start).max()) if isinstance(arms, SparseRows) else 0
        rounds = min(wanted, self._draws.tape.size // (2 * self._need))
        rounds = tracker._prepare_rounds(rounds, longest)
        self._draws.ready(2 * self._need * rounds)
        self._credit = 0
        self._ready(0)
        return rounds

    def _spent(self, rounds: int) -> None:
        """So many rounds were played."""
        self._rounds += rounds
        self.tracker._credit -= rounds
        self._credit = 0
        if isinstance(self.tracker, RLS):
            self.tracker._stay_ready()

    # -- bookkeeping ---------------------------------------------------------------------------------------------

    def _arms(self, arms: Any) -> Block:
        """Arms as rows of the tracker's kind; the first ones decide whether that is dense or sparse."""
        sparse = sp.issparse(arms)
        if not sparse:
            arms = np.asarray(arms)
        if arms.ndim != 2 or arms.shape[1] != self.dim:
            raise DimensionError(f"arms must be a (K, {self.dim}) matrix, got shape {arms.shape}.")
        if arms.shape[0] == 0:
            raise InputError("the pool is empty: at least one arm is needed.")
        if self._width is None:
            self._start(bool(sparse))
        if self._zeros.size != arms.shape[0]:
            self._zeros = np.zeros(arms.shape[0])
        tracker = self.tracker
        try:
            return as_block(arms, self._zeros, tracker._sparse, tracker._dtype)
        except (TypeError, ValueError):
            raise InputError(f"arms must be a matrix of numbers, got dtype {arms.dtype}.") from None

    def _start(self, sparse: bool) -> None:
        if self.tracker._state is None:
            self.tracker._start(sparse)
        self._width = self.width.allocate(self.tracker, FIRST_SLOTS, self._draws)
        self._entries = kernels.policy_entries(self.tracker._state_class, self._width.__class__)

    def _ready(self, count: int) -> None:
        """Draws, room for scores, and the addresses of everything, up to date."""
        if self._credit <= 0:
            self._credit = self._draws.ready(self._need) // self._need
        moved = count > self._scores.size
        if moved:
            self._scores = np.zeros(2 * count)
        if (
            moved
            or self._alive is None
            or self._alive[0] is not self.tracker._alive
            or self._alive[1] is not self._width
        ):
            judge = Judge(self._scalars, self._scores)
            chance = Chance(self._draws.tape, self._draws.cursor)
            self._alive = (self.tracker._alive, self._width, judge, chance)
            self._words = pack([*self.tracker._alive, self._width, judge, chance])

    def _slots(self, ids: Any, count: int) -> NDArray[np.int64]:
        """A slot for each arm where the width keeps arms; -1 for none, -2 - slot for one given out just now."""
        if ids is None or not self.width.keeps_arms:
            if self._no_slots.size != count:
                self._no_slots = np.full(count, -1, dtype=np.int64)
            return self._no_slots
        if len(ids) != count:
            raise DimensionError(f"{count} arms, but {len(ids)} ids.")
        slots = np.empty(count, dtype=np.int64)
        for k, name in enumerate(ids.tolist() if isinstance(ids, np.ndarray) else ids):
            slot = self._slot_of.get(name)
            slots[k] = -2 - self._new_slot(name) if slot is None else slot
            self._offered[slots[k] if slot is not None else -2 - slots[k]] = self._rounds
        return slots

    def _new_slot(self, name: Hashable) -> int:
        used = set(self._slot_of.values())
        if len(used) == self._offered.size:
            for old, slot in list(self._slot_of.items()):
                if self._rounds - self._offered[slot] > self.forget_after:
                    del self._slot_of[old]
                    self._width.live[slot] = 0
            used = set(self._slot_of.values())
            if len(used) == self._offered.size:
                self._more_slots(2 * self._offered.size)
        slot = next(slot for slot in range(self._offered.size) if slot not in used)
        self._slot_of[name] = slot
        return slot

    def _more_slots(self, slots: int) -> None:
        old, held = self._width, self._offered.size
        new = self.width.allocate(self.tracker, slots, self._draws)
        for name, before in old._asdict().items():
            after = getattr(new, name)
            if before.shape[:1] == (held,) and after.shape[:1] == (slots,):
                after[:held] = before
            else:
                new = new._replace(**{name: before})
        self._width = new
        self._offered = np.concatenate([self._offered, np.zeros(slots - held, dtype=np.int64)])

    def _drop_new(self, slots: NDArray[np.int64]) -> None:
        """A round that failed gives its new slots back."""
        new = {int(-2 - slot) for slot in slots if slot < -1}
        self._slot_of = {name: slot for name, slot in self._slot_of.items() if slot not in new}

    def _known_slot(self, name: Hashable) -> int:
        name = name.item() if isinstance(name, np.generic) else name
        if name not in self._slot_of:
            raise InputError(f"arm id {name!r} was never offered, or was dropped. Offer it in choose first.")
        return self._slot_of[name]

    def _arm_fault(self, code: int) -> Exception:
        error = fault(code % 8, code // 8 - 1, 0, self.dim)
        return type(error)(str(error).replace("row ", "arm ").replace("Nothing of the block was learned; ", ""))

    # -- files ---------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole policy to one file, atomically; `load` goes on as if it had never stopped."""
        tracker_header, tracker_arrays = self.tracker.snapshot()
        if any(waiting is not None for waiting in self._pending.values()):
            raise SettingsError(
                "choices with a key still wait for their reward. Learn them first, or choose without a key."
            )
        header = {
            "class": type(self).__name__,
            "tracker": tracker_header,
            "width": {"kind": type(self.width).__name__, **self.width.settings()},
            "draws": self._draws.header(),
            "started": self._width is not None,
            "rounds": self._rounds,
            "forget_after": self.forget_after,
            "slots": list(self._slot_of.items()),
            "keys": list(self._pending),
        }
        arrays = {f"tracker.{name}": array for name, array in tracker_arrays.items()}
        arrays |= {"scalars": self._scalars, "unread": self._draws.unread(), "offered": self._offered}
        if self._width is not None:
            own = {id(array) for array in self.tracker._state}
            arrays |= {f"width.{n}": a for n, a in self._width._asdict().items() if id(a) not in own}
        persistence.write(path, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Open a saved policy."""
        header, arrays = persistence.read(path)
        if header.get("class") != cls.__name__:
            raise FileFormatError(f"{path}: holds a {header.get('class')}, not a {cls.__name__}. Use its own load().")
        groups: dict[str, dict[str, Any]] = {"tracker": {}, "width": {}}
        for name, array in arrays.items():
            group, _, rest = name.partition(".")
            if group in groups:
                groups[group][rest] = array
        kind = getattr(driftls.trackers, header["tracker"]["class"])
        tracker = kind.from_snapshot(header["tracker"], groups["tracker"])
        settings = dict(header["width"])
        width = KINDS[settings.pop("kind")](**settings)
        policy = cls.__new__(cls)
        Policy.__init__(policy, tracker, width, forget_after=header["forget_after"])
        policy._restore(header, arrays, groups["width"])
        return policy

    def _restore(self, header: dict[str, Any], arrays: dict[str, Any], width: dict[str, Any]) -> None:
        self._scalars[:] = arrays["scalars"]
        self._rounds = header["rounds"]
        self._offered = arrays["offered"].copy()
        self._slot_of = dict(header["slots"])
        self._pending = dict.fromkeys(header["keys"])
        if header["started"]:
            self._width = self.width.allocate(self.tracker, self._offered.size, self._draws)
            for name, array in width.items():
                getattr(self._width, name)[...] = array
            self._entries = kernels.policy_entries(self.tracker._state_class, self._width.__class__)
        self._draws.restore(header["draws"], arrays["unread"])

    def __repr__(self) -> str:
        kappa = f"sigmas={self._scalars[kernels.SIGMAS]}" if self._scalars[kernels.SIGMAS] else f"kappa={self.kappa}"
        return f"{type(self).__name__}({self.tracker!r}, {self.width!r}, {kappa}, epsilon={self.epsilon})"


def _row(arms: Any, k: int) -> Any:
    return arms[[k]] if sp.issparse(arms) else np.array(arms[k])
