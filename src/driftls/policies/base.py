"""One model shared by all arms: theta.x + kappa width(x) over any tracker and any width."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import driftls.trackers
from driftls.draws import Seed
from driftls.errors import DimensionError, InputError, SettingsError
from driftls.history import Mapped
from driftls.kernels import policy as kernels
from driftls.kernels.frames import pack
from driftls.kernels.kept import EnsembleState
from driftls.kernels.rows import DenseRows, SparseRows
from driftls.kernels.widths import SampleState
from driftls.policies.bandit import Bandit, Pending, single, solved
from driftls.policies.inputs import (
    checked_reward,
    id_header,
    id_of,
    part,
    plain_id,
    plain_ids,
    position,
    renamed,
    row_of,
)
from driftls.policies.ridge import better_ridge, next_look, set_ridge
from driftls.trackers import Tracker
from driftls.trackers.inputs import Block, as_block, as_numbers, fault
from driftls.widths import KINDS, Width

FIRST_SLOTS = 16
SAMPLES = 2000
# What a choice cannot change, of the arrays of a width.
UNTOUCHED = {"gram", "factor", "inverse", "theta", "start", "squares"}


class Policy(Bandit):
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

    # -- a round -------------------------------------------------------------------------------------------------

    def choose(self, arms: Any, *, ids: Any = None, key: Hashable = None) -> int:
        """The position of the arm to show, among `arms`: a (K, dim) array or sparse matrix.

        `ids` name arms that recur. `key`, if given, keeps the choice until `learn(reward=..., key=key)`.
        """
        self._new_key(key)
        chosen = self._choose(self._arms(arms, ids), ids)
        if self._samples:
            self._last = arms, chosen, len(self.tracker)
        if key is not None:
            named = ids is not None and self.width.keeps_arms
            self._pending[key] = Pending(row_of(arms, chosen), (plain_id(ids[chosen]),) if named else ())
        return chosen

    def _choose(self, block: Block, ids: Any) -> int:
        slots = self._slots(ids, block)
        self._ready(len(block.y))
        chosen = self._act(block, slots, self._idle_words, kernels.CHOOSE, 0, 1)
        if chosen < 0:
            raise self._arm_fault(-chosen)
        self._offer(slots)
        self._rounds += 1
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
        self._reward[0] = checked_reward(reward)
        block = self._arms(single(x, "an arm must be a vector"))
        self._learn_row(block._replace(y=self._reward), slot)
        if key is not None:
            self._settle_key(key)

    def _learn_row(self, row: Block, slot: int) -> None:
        tracker = self.tracker
        if tracker._credit <= 0 or isinstance(row, SparseRows):
            tracker._prepare(1, row, 0)
        self._ready(0)
        self._enter(tracker, row, slot)
        self._look_at_ridge()

    def _act(self, arms: Block, slots: NDArray[np.int64], job: Any, task: int, first: int, last: int) -> int:
        entry = self._entries.dense if isinstance(arms, DenseRows) else self._entries.sparse
        return int(entry(self._words, *arms, self.dim, slots, job, task, first, last))

    # -- what it thinks ------------------------------------------------------------------------------------------

    def probabilities(self, arms: Any, *, ids: Any = None) -> NDArray[np.float64]:
        """How likely each arm is to be chosen now; learns and draws nothing.

        For an ensemble exactly: the share of members that would choose each arm. For samples of the posterior there
        is no closed form: estimated from 2,000 samples of a fixed seed.
        """
        count = len(self._arms(arms, ids).y)
        if not self._samples:
            return self._greedy_share(self.scores(arms, ids=ids))
        self._usable(arms, ids)
        arms = arms if sp.issparse(arms) else np.asarray(arms, dtype=np.float64)
        if isinstance(self._width, EnsembleState):
            directions = self._width.theta.T
        else:
            z = np.random.default_rng(0).standard_normal((self.dim, SAMPLES))
            directions = np.linalg.solve(np.tril(self._width.factor).T, z)
        winners = np.argmax((arms @ self.theta)[:, None] + self.kappa * (arms @ directions), axis=0)
        share = np.bincount(winners, minlength=count) / winners.size
        return np.asarray(self.epsilon / count + (1.0 - self.epsilon) * share)

    def scores(self, arms: Any, *, ids: Any = None) -> NDArray[np.float64]:
        """theta.x + kappa width(x) of each arm; learns nothing, and leaves the policy's chance where it was."""
        block = self._arms(arms, ids)
        with self._unchanged():
            self._choose(block, ids)
            return self._scores[: len(block.y)].copy()

    def widths(self, arms: Any, *, ids: Any = None) -> NDArray[np.float64]:
        """The width of each arm, before kappa; changes nothing."""
        block = self._usable(arms, ids)
        tracker = self.tracker
        out = np.zeros(len(block.y))
        with self._unchanged():
            slots = self._slots(ids, block)
            held = len(tracker) if tracker.history is None else len(tracker.history)
            kernels.widths_of(self._width, block, slots, tracker._alive[3], held, out)
        return out

    def _usable(self, arms: Any, ids: Any) -> Block:
        """Arms as rows, every one of them looked at."""
        block = self._arms(arms, ids)
        code = kernels.first_fault(block, self.dim)
        if code:
            raise self._arm_fault(code)
        return block

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Whatever is chosen inside, the policy is afterwards what it was."""
        draws, width = self._draws, self._width
        shared = {id(array) for array in self.tracker._state}
        arrays = [a for name, a in width._asdict().items() if name not in UNTOUCHED and id(a) not in shared]
        arrays += [draws.tape, draws.cursor, self._scalars]
        kept = [array.copy() for array in arrays]
        generator = draws.generator.bit_generator.state
        names, offered, rounds = self._slot_of, self._offered, self._rounds
        self._slot_of, self._offered = dict(names), offered.copy()
        try:
            yield
        finally:
            for array, before in zip(arrays, kept):
                array[...] = before
            draws.generator.bit_generator.state = generator
            self._width, self._slot_of, self._offered, self._rounds = width, names, offered, rounds

    @property
    def _samples(self) -> bool:
        """Whether arms are scored with a random direction."""
        width = self._width
        return isinstance(width, SampleState) or (isinstance(width, EnsembleState) and bool(width.member[0] >= 0))

    @property
    def probability(self) -> float:
        """How likely the last choice was.

        A policy that samples finds it out when asked, so it has to be asked before anything more is learned.
        """
        if not self._samples:
            return float(self._scalars[kernels.PROBABILITY])
        if self._last is None or self._last[2] != len(self.tracker):
            raise InputError("what was learned since has changed the probability. Ask between choose and learn.")
        arms, chosen, _ = self._last
        return float(self.probabilities(arms)[chosen])

    @property
    def theta(self) -> NDArray[np.float64]:
        """The tracker's estimate."""
        return self.tracker.theta

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
        learned, look = self._scalars[kernels.LEARNED], self._scalars[kernels.LOOK]
        if 0.0 < look <= learned:
            lam = better_ridge(self.tracker, self._width, self._scalars[kernels.ERRORS] / learned)
            set_ridge(self.tracker, self._width, lam)
            self._scalars[kernels.LOOK] = next_look(learned)

    def _play(self, arms: Block, slots: NDArray[np.int64], job: Any, first: int, last: int) -> None:
        super()._play(arms, slots, job, first, last)
        self._rounds -= 1
        self._offer(slots)
        self._rounds += 1
        self.tracker._credit = 0  # what is left has to be counted again

    # -- bookkeeping ---------------------------------------------------------------------------------------------

    def _arms(self, arms: Any, ids: Any = None) -> Block:
        """Arms as rows of the tracker's kind; the first ones decide whether that is dense or sparse."""
        if not sp.issparse(arms):
            arms = as_numbers(arms, "arms must be a matrix")
        elif arms.dtype.kind not in "fiub":
            raise InputError(f"arms must be a matrix of real numbers, got a sparse matrix of {arms.dtype}.")
        if arms.ndim != 2 or arms.shape[1] != self.dim:
            raise DimensionError(f"arms must be a (K, {self.dim}) matrix, got shape {arms.shape}.")
        count = arms.shape[0]
        if count == 0:
            raise InputError("the pool is empty: at least one arm is needed.")
        if ids is not None and len(ids) != count:
            raise DimensionError(f"{count} arms, but {len(ids)} ids.")
        if self._width is None:
            sparse = bool(sp.issparse(arms))
            code = kernels.first_fault(as_block(arms, np.zeros(count), sparse, self.tracker._dtype), self.dim)
            if code:
                raise self._arm_fault(code)
            self._start(sparse, ids is not None)
        if self._zeros.size != count:
            self._zeros = np.zeros(count)
        return as_block(arms, self._zeros, self.tracker._sparse, self.tracker._dtype)

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
        self._entries = kernels.policy_entries(tracker._state_class, self._width.__class__)

    def _ready(self, count: int) -> None:
        solved(self.tracker)
        self._draws.ready(2 * self._need)
        moved = count > self._scores.size
        if moved:
            self._scores = np.zeros(2 * count)
        alive = self._alive
        if moved or alive is None or alive[0] is not self.tracker._alive or alive[1] is not self._width:
            parts = [*self.tracker._alive, self._width, *self._judge()]
            self._alive = (self.tracker._alive, self._width, parts)  # the words are addresses: the arrays must live
            self._words = pack(parts)

    def _slots(self, ids: Any, block: Block) -> NDArray[np.int64]:
        """A slot for each arm where the width keeps arms; -1 for none, -2 - slot for one given out just now."""
        count = len(block.y)
        if ids is None or not self.width.keeps_arms:
            if self._no_slots.size != count:
                self._no_slots = np.full(count, -1, dtype=np.int64)
            return self._no_slots
        names = plain_ids(ids)
        slots = np.array([self._slot_of.get(name, -1) for name in names], dtype=np.int64)
        new = np.flatnonzero(slots < 0)
        if new.size:
            code = kernels.first_fault(block, self.dim)  # before anything is given out
            if code:
                raise self._arm_fault(code)
            self._offer(slots[slots >= 0])  # what is here now is not dropped for what is new
            for k in new:
                slots[k] = -2 - self._new_slot(names[k])
        return slots

    def _offer(self, slots: NDArray[np.int64]) -> None:
        """These arms were on offer in this round."""
        if slots is not self._no_slots:
            self._offered[slots] = self._rounds

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
        self._offered[slot] = self._rounds
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

    def _known_slot(self, name: Hashable) -> int:
        name = plain_id(name)
        if name not in self._slot_of:
            raise InputError(f"arm id {name!r} was never offered, or was dropped. Offer it in choose first.")
        return self._slot_of[name]

    def _arm_fault(self, code: int) -> Exception:
        return renamed(fault(code % 8, code // 8 - 1, 0, self.dim), "row ", "arm ")

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
            self._entries = kernels.policy_entries(self.tracker._state_class, self._width.__class__)
        self._draws.restore(header["draws"], arrays["unread"])

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.tracker.history, Mapped):
            raise SettingsError("a policy over a Mapped history cannot be copied: a folder has one owner. Use save().")
        return super().__reduce__()

    def __repr__(self) -> str:
        kappa = f"sigmas={self._scalars[kernels.SIGMAS]}" if self._scalars[kernels.SIGMAS] else f"kappa={self.kappa}"
        return f"{type(self).__name__}({self.tracker!r}, {self.width!r}, {kappa}, epsilon={self.epsilon})"
