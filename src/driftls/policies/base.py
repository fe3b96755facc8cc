"""One model shared by all arms: theta.x + kappa width(x) over any tracker and any width."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import driftls.trackers
from driftls.crossed import Crossed
from driftls.draws import Seed
from driftls.errors import DimensionError, InputError, SettingsError
from driftls.history import Mapped
from driftls.kernels import policy as kernels
from driftls.kernels.frames import pack
from driftls.kernels.judge import ERRORS, LEARNED, LOOK, SIGMAS
from driftls.kernels.models import Mirror
from driftls.kernels.rows import LARGEST, CrossRows, DenseRows, narrow
from driftls.kernels.track import DIVERGED
from driftls.policies.bandit import MIRROR_UP_TO, NO_MIRROR, single, solved
from driftls.policies.inputs import (
    CSR,
    checked_reward,
    id_header,
    id_of,
    part,
    position,
    renamed,
    row_of,
)
from driftls.policies.ridge import better_ridge, next_look, set_ridge
from driftls.policies.slots import FIRST_SLOTS, Slots
from driftls.trackers import RLS, Tracker
from driftls.trackers.inputs import Block, as_numbers, fault
from driftls.widths import KINDS, DiagonalWidth, NoWidth, Width, keep_spread

MIRROR_FROM = 4  # rounds that it takes until a mirror of crosses has paid for itself
FLOAT, INT = np.dtype(np.float64), np.dtype(np.int32)


class Policy(Slots):
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
        if not isinstance(tracker, Tracker) or not isinstance(width, Width):
            raise SettingsError(f"a policy needs a tracker and a width, got {tracker!r} and {width!r}.")
        if not (isinstance(forget_after, int | np.integer) and forget_after >= 0):
            raise SettingsError(f"forget_after must be a whole number of rounds, got {forget_after!r}.")
        super().__init__(tracker, width, kappa=kappa, sigmas=sigmas, epsilon=epsilon, seed=seed)
        self.forget_after = int(forget_after)
        self._zeros = np.zeros(0)
        self._no_slots = np.zeros(0, dtype=np.int64)
        self._width: Any = None
        self._slot_of: dict[Hashable, int] = {}
        self._offered = np.zeros(FIRST_SLOTS, dtype=np.int64)
        self._alive: Any = None
        self._last: Any = None
        self._short: tuple[Any, ...] = ()  # the kinds of arms for which nothing has to be looked at twice
        self._pointers: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._indices: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._exact = isinstance(tracker, RLS)

    # -- a round -------------------------------------------------------------------------------------------------

    def choose(self, arms: Any, *, ids: Any = None, key: Hashable = None) -> int:
        """The position of the arm to show, among `arms`: a (K, dim) array, sparse matrix or `Crossed`.

        `ids` name arms that recur. `key`, if given, keeps the choice until `learn(reward=..., key=key)`.
        """
        if key is None and ids is None and (call := self._call(arms)):
            entry, rows = call
            chosen = entry(self._words, self._idle_words, *rows, kernels.CHOOSE, 0, arms.shape[0])
            if chosen >= 0:
                self._rounds += 1
                return chosen  # type: ignore[no-any-return]
        self._new_key(key)
        chosen = self._choose(self._arms(arms, ids), ids)
        if self._samples:
            self._last = arms, chosen, len(self.tracker)
        if key is not None:
            named = ids is not None and self.width.keeps_arms
            self.remember(key, row_of(arms, chosen), ids[chosen] if named else None)
        return chosen

    def _choose(self, block: Block, ids: Any) -> int:
        count = len(block.y)
        slots = self._slots(ids, block)
        self._ready(count)
        seat = self._idle.slots[:count]
        seat[:] = slots
        try:
            chosen = self._act(block, self._idle_words, kernels.CHOOSE, 0, count)
            slots[:] = seat  # the new ones were opened
        finally:
            seat[:] = -1
        if chosen < 0:
            raise self._arm_fault(-chosen)
        self._offer(slots)
        self._rounds += 1
        return chosen

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
        if key is None and ids is None and isinstance(reward, float) and self._learned(arms, reward, arm):
            return
        slot = -1
        if key is not None:
            waiting = self._waiting(key)
            x = waiting.x
            slot = self._slot_of.get(waiting.name[0], -1) if waiting.name else -1
        elif arm is not None:
            x = row_of(arms, position(arm, arms))
            if ids is not None and self.width.keeps_arms:
                slot = self._known_slot(ids[arm])
        else:
            x = arms
        if x is None or reward is None:
            raise InputError("learn needs an arm and a reward: learn(x, reward), or learn(reward=..., key=...).")
        value = checked_reward(reward)
        block = self._arms(single(x, "an arm must be a vector"))
        self._learn_row(block._replace(y=np.array([value])), slot)
        if key is not None:
            self._settle_key(key)

    def _call(self, arms: Any) -> Any:
        """The compiled entry and its arguments, if these arms are of the kind that can be handed on as they are.

        What the kernel cannot use it refuses, and the long way says why.
        """
        kind, alive = type(arms), self._alive
        if kind not in self._short or alive is None:
            return None
        if alive[0] is not self.tracker._alive or alive[1] is not self._width:
            return None
        if self._exact and self.tracker.route == "cholesky":  # type: ignore[attr-defined]
            return None
        shape = arms.shape
        if len(shape) != 2 or shape[1] != self.dim or not 0 < shape[0] <= self._idle.y.size:
            return None
        if kind is np.ndarray:
            usable = arms.dtype is FLOAT and arms.flags.carray
            return (self._entries.dense, (arms,)) if usable else None
        values, pointers, indices = arms.data, arms.indptr, self._narrowed(arms.indices)
        if indices is None or values.dtype is not FLOAT or not values.flags.carray or pointers.size != shape[0] + 1:
            return None
        if self._pointers.size != pointers.size:
            self._pointers = np.zeros(pointers.size, dtype=np.int64)
            self._places = self._pointers[:-1], self._pointers[1:]
        self._pointers[:] = pointers
        return self._entries.sparse, (*self._places, indices, values, self.dim)

    def _narrowed(self, indices: NDArray[Any]) -> NDArray[np.int32] | None:
        """Indices of 32 bits, which kernels read; SciPy's have 64 where it was given such pointers or indices."""
        if not indices.flags.carray:
            return None
        if indices.dtype is INT:
            return indices
        if indices.dtype != np.int64:
            return None
        if self._indices.size < indices.size:
            self._indices = np.zeros(2 * indices.size, dtype=np.int32)
        return self._indices if narrow(indices, self._indices) else None

    def _learned(self, arms: Any, reward: float, arm: int | None) -> bool:
        """Learn at once, where nothing has to be looked at; else say so, and change nothing."""
        if arm is None:
            if type(arms) is not np.ndarray or arms.ndim not in (1, 2):
                return False
            arms, arm = arms.reshape(1, -1) if arms.ndim == 1 else arms, 0
            if arms.shape[0] != 1:
                return False
        call = self._call(arms)
        if not call or type(arm) is not int or not 0 <= arm < arms.shape[0] or not abs(reward) < LARGEST:
            return False
        entry, rows = call
        self._idle.y[arm] = reward
        status = entry(self._words, self._idle_words, *rows, kernels.LEARN, arm, arm + 1)
        if status and status != DIVERGED:  # then nothing was changed
            return False
        self.tracker._credit = 0
        if status:
            raise renamed(fault(status, 0, len(self.tracker), self.dim), "row 0", self.called)
        if self._watched:
            self._between()
        return True

    def _tracker_of(self, slot: int) -> Tracker:
        return self.tracker

    def _mirror_for(self, arms: Block, count: int, rounds: int) -> Mirror:
        if not isinstance(arms, CrossRows) or not isinstance(self.width, DiagonalWidth | NoWidth):
            return NO_MIRROR
        features = int(arms.shared[1])
        pays = rounds >= MIRROR_FROM and features * count <= MIRROR_UP_TO
        return self._mirror_of(features, features, count) if pays else NO_MIRROR

    def _act(self, arms: Block, job: Any, task: int, first: int, last: int) -> int:
        entries, rest = self._entries, (task, first, last)
        if isinstance(arms, CrossRows):
            return int(entries.crossed(self._words, job, pack([arms]), arms.values, self.dim, *rest))  # type: ignore[misc]
        if isinstance(arms, DenseRows):
            return int(entries.dense(self._words, job, arms.X, *rest))
        return int(entries.sparse(self._words, job, *arms[:4], self.dim, *rest))

    # -- for a compiled loop over many rounds --------------------------------------------------------------------

    def _first_look(self, arms: Any, ids: Any) -> None:
        """See the first arms, as `choose` would."""
        self._arms(arms, ids)

    def _open_slots(self, arms: Any, ids: Any) -> NDArray[np.int64]:
        """Slots of these arms, the new ones opened."""
        block = self._arms(arms, ids)
        slots = self._slots(ids, block)
        self._ready(len(block.y))
        if slots is not self._no_slots:
            kernels.open_slots(self._width, block, slots)
        return slots

    def _between(self) -> None:
        super()._between()
        self._look_at_ridge()

    def _look_at_ridge(self) -> None:
        """Where lambda is estimated, and it is time to: move it."""
        learned, look = self._scalars[LEARNED], self._scalars[LOOK]
        if 0.0 < look <= learned:
            lam = better_ridge(self.tracker, self._width, self._scalars[ERRORS] / learned)
            set_ridge(self.tracker, self._width, lam)
            self._scalars[LOOK] = next_look(learned)

    # -- bookkeeping ---------------------------------------------------------------------------------------------

    def _arms(self, arms: Any, ids: Any = None) -> Block:
        """Arms as rows of the tracker's kind; the first ones decide whether that is dense or sparse."""
        crossed = isinstance(arms, Crossed)
        if crossed:
            if arms.users.shape[0] != 1:
                raise InputError(f"the arms of {arms.users.shape[0]} users: a choice is for one user.")
        elif not sp.issparse(arms):
            arms = as_numbers(arms, "arms must be a matrix")
        elif arms.dtype.kind not in "fiub":
            raise InputError(f"arms must be a matrix of real numbers, got a sparse matrix of {arms.dtype}.")
        if len(arms.shape) != 2 or arms.shape[1] != self.dim:
            raise DimensionError(f"arms must be a (K, {self.dim}) matrix, got shape {arms.shape}.")
        count = arms.shape[0]
        if count == 0:
            raise InputError("the pool is empty: at least one arm is needed.")
        if ids is not None and len(ids) != count:
            raise DimensionError(f"{count} arms, but {len(ids)} ids.")
        if self._width is None:
            sparse = crossed or bool(sp.issparse(arms))
            code = kernels.first_fault(self._block(arms, np.zeros(count), sparse), self.dim, count)
            if code:
                raise self._arm_fault(code)
            self._start(sparse, ids is not None)
        if self._zeros.size != count:
            self._zeros = np.zeros(count)
        return self._block(arms, self._zeros, self.tracker._sparse)

    def _start(self, sparse: bool, recurring: bool) -> None:
        """The first arms are here, with or without ids."""
        tracker = self.tracker
        if len(tracker) and self.width.own_sums(tracker):
            raise SettingsError(
                f"{type(self.width).__name__} has to see every row, but the tracker has learned {len(tracker)} rows "
                "before. Give the policy an unused tracker, or learn those rows through the policy."
            )
        unused = tracker._state is None
        if unused:
            tracker._start(sparse)
        try:
            self._width = self.width.allocate(tracker, FIRST_SLOTS, self._draws)
        except SettingsError:
            if unused:
                tracker._unstart()
            raise
        self._started()

    def _started(self) -> None:
        tracker = self.tracker
        self._entries = kernels.shared_entries(tracker._state_class, self._width.__class__)
        self._watched = isinstance(tracker, RLS) or bool(self._scalars[LOOK])
        slow = (isinstance(tracker, RLS) and tracker.route == "cholesky") or tracker._dtype != np.float64
        if not slow and not self._samples:
            self._short = CSR if tracker._sparse else (np.ndarray,)

    def _ready(self, count: int) -> None:
        solved(self.tracker)
        self._draws.ready(2 * self._need)
        if count > self._idle.y.size:
            self._seat(2 * count)
        here = self.tracker._alive, self._width, self._scores, self._mirror
        if self._alive is None or any(new is not old for new, old in zip(here, self._alive)):
            parts = [*self.tracker._alive, self._width, *self._judge(), self._mirror]
            self._alive = (*here, parts)  # the words are addresses: the arrays must live
            self._words = pack(parts)

    # -- files ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Header and arrays from which `from_snapshot` makes the same policy."""
        header, arrays = self._snapshot()
        header["tracker"], parts = self.tracker.snapshot()
        header |= {
            "started": self._width is not None,
            "forget_after": self.forget_after,
            "slots": [[id_header(name), slot] for name, slot in self._slot_of.items()],
        }
        arrays |= {f"tracker.{name}": array for name, array in parts.items()}
        arrays["offered"] = self._offered
        if self._width is not None:
            own = {id(array) for array in self.tracker._state}
            arrays |= {f"width.{n}": a for n, a in self._width._asdict().items() if id(a) not in own}
        return header, arrays

    @classmethod
    def from_snapshot(cls, header: dict[str, Any], arrays: dict[str, Any], **functions: Any) -> Self:
        """The policy that `snapshot` wrote down."""
        kind = getattr(driftls.trackers, header["tracker"]["class"])
        tracker = kind.from_snapshot(header["tracker"], part(arrays, "tracker."), **functions)
        settings = dict(header["width"])
        width = KINDS[settings.pop("kind")](**settings)
        policy = cls.__new__(cls)
        Policy.__init__(policy, tracker, width, forget_after=header["forget_after"])
        policy._restore(header, arrays)
        return policy

    def _restore(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        self._restore_common(header, arrays)
        self._offered = arrays["offered"].copy()
        self._slot_of = {id_of(name): slot for name, slot in header["slots"]}
        if header["started"]:
            self._width = self.width.allocate(self.tracker, self._offered.size, self._draws)
            for entry, array in part(arrays, "width.").items():
                getattr(self._width, entry)[...] = array
            keep_spread(self._width)
            self._started()
        self._draws.restore(header["draws"], arrays["unread"])

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.tracker.history, Mapped):
            raise SettingsError("a policy over a Mapped history cannot be copied: a folder has one owner. Use save().")
        return super().__reduce__()

    def __repr__(self) -> str:
        kappa = f"sigmas={self._scalars[SIGMAS]}" if self._scalars[SIGMAS] else f"kappa={self.kappa}"
        return f"{type(self).__name__}({self.tracker!r}, {self.width!r}, {kappa}, epsilon={self.epsilon})"
