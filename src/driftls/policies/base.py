"""What all policies share: arms come, one is chosen, later its reward is learned."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

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
from driftls.kernels.kept import EnsembleState
from driftls.kernels.policy import Judge
from driftls.kernels.rows import DenseRows, SparseRows
from driftls.kernels.widths import SampleState
from driftls.persistence import Saveable
from driftls.policies.inputs import (
    check_weights,
    checked_reward,
    id_header,
    id_of,
    part,
    plain_id,
    plain_ids,
    position,
    renamed,
    revive,
    row_of,
    tell,
)
from driftls.schedules import Tabulated
from driftls.trackers import RLS, Tracker
from driftls.trackers.inputs import Block, as_block, as_numbers, fault
from driftls.widths import KINDS, Width

FIRST_SLOTS = 16
SAMPLES = 2000
MOST_KEYS = 1_000_000
# What a choice cannot change, of the arrays of a width.
UNTOUCHED = {"gram", "factor", "inverse", "theta", "start", "squares"}


class Pending(NamedTuple):
    """A choice whose reward has not come yet: the features, and (or nothing) the arm's id."""

    x: Any
    name: tuple[Hashable, ...]


class Policy(Saveable):
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
        check_weights(kappa, sigmas, epsilon)
        if not isinstance(tracker, Tracker) or not isinstance(width, Width):
            raise SettingsError(f"a policy needs a tracker and a width, got {tracker!r} and {width!r}.")
        if not (isinstance(forget_after, int | np.integer) and forget_after >= 0):
            raise SettingsError(f"forget_after must be a whole number of rounds, got {forget_after!r}.")
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
        self._last: Any = None

    # -- a round -------------------------------------------------------------------------------------------------

    def choose(self, arms: Any, *, ids: Any = None, key: Hashable = None) -> int:
        """The position of the arm to show, among `arms`: a (K, dim) array or sparse matrix.

        `ids` name arms that recur. `key`, if given, keeps the choice until `learn(reward=..., key=key)`.
        """
        if key is not None and key in self._pending:
            raise InputError(f"key {key!r} was used before. Every choice needs a key of its own.")
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
        if isinstance(block, DenseRows):
            chosen = self._entries.choose_dense(self._words, block.X, block.y, slots)
        else:
            chosen = self._entries.choose_sparse(self._words, *block, slots, self.dim)
        if chosen < 0:
            raise self._arm_fault(-chosen)
        self._offer(slots)
        self._rounds += 1
        self._credit -= 1
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
        self._learn(x, reward, slot)
        if key is not None:
            self._settle_key(key)

    def _settle_key(self, key: Hashable) -> None:
        """A learned key is remembered, so that a repeated reward is noticed; the oldest of very many is let go."""
        del self._pending[key]
        self._pending[key] = None
        if len(self._pending) > MOST_KEYS:
            oldest = next((old for old, waiting in self._pending.items() if waiting is None), None)
            self._pending.pop(oldest, None)

    def _learn(self, x: Any, reward: float, slot: int) -> None:
        value = checked_reward(reward)
        x = x if sp.issparse(x) else as_numbers(x, "an arm must be a vector")
        if x.ndim == 2 and x.shape[0] != 1:
            raise InputError(f"{x.shape[0]} arms and one reward: say which of them it belongs to, with arm=.")
        block = self._arms(x.reshape(1, -1))
        self._reward[0] = value
        block = block._replace(y=self._reward)
        tracker = self.tracker
        if tracker._credit <= 0 or isinstance(block, SparseRows):
            tracker._prepare(1, block, 0)
        self._ready(0)
        # also where the row is refused: what is ready may be underestimated
        tracker._credit -= 1
        self._credit -= 1
        if isinstance(block, DenseRows):
            status = self._entries.learn_dense(self._words, block.X, block.y, slot)
        else:
            status = self._entries.learn_sparse(self._words, *block, slot, self.dim)
        if status:
            raise renamed(fault(status, 0, len(tracker), self.dim), "row 0", "the arm")
        tell(tracker)

    # -- what it thinks ------------------------------------------------------------------------------------------

    def probabilities(self, arms: Any, *, ids: Any = None) -> NDArray[np.float64]:
        """How likely each arm is to be chosen now; learns and draws nothing.

        For an ensemble exactly: the share of members that would choose each arm. For samples of the posterior there
        is no closed form: estimated from 2,000 samples of a fixed seed.
        """
        count = len(self._arms(arms, ids).y)
        if not self._samples:
            share = np.zeros(count)
            share[int(np.argmax(self.scores(arms, ids=ids)))] = 1.0
        else:
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
            self._credit = 0  # the draws that are ready are counted again

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

    def _room(self, wanted: int, arms: Block) -> int:
        """For how many rounds draws and rows are ready; at least one."""
        tracker = self.tracker
        longest = int((arms.stop - arms.start).max()) if isinstance(arms, SparseRows) else 0
        rounds = min(wanted, self._draws.tape.size // (2 * self._need))
        if isinstance(tracker, RLS) and (tracker.route == "cholesky" or tracker.total_ridge(1) == 0.0):
            rounds = 1  # theta has to be solved for after every row
        rounds = tracker._prepare_rounds(rounds, longest)
        self._draws.ready(2 * self._need * rounds)
        self._credit = 0
        self._ready(0)
        return rounds

    def _spent(self, rounds: int, slots: NDArray[np.int64]) -> None:
        """So many rounds were played with these arms."""
        self._rounds += rounds - 1
        self._offer(slots)
        self._rounds += 1
        self.tracker._credit -= rounds
        self._credit = 0
        tell(self.tracker)

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
        """Draws, room for scores, and the addresses of everything, up to date."""
        if isinstance(self.tracker, RLS):
            self.tracker._solve()  # on the slow route a kernel finds theta as it was left
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
        tracker, parts = self.tracker.snapshot()
        waiting = [(key, choice) for key, choice in self._pending.items() if choice is not None]
        header = {
            "class": type(self).__name__,
            "tracker": tracker,
            "width": {"kind": type(self.width).__name__, **self.width.settings()},
            "draws": self._draws.header(),
            "started": self._width is not None,
            "rounds": self._rounds,
            "forget_after": self.forget_after,
            "slots": [[id_header(name), slot] for name, slot in self._slot_of.items()],
            "learned": [id_header(key) for key, choice in self._pending.items() if choice is None],
            "waiting": [[id_header(key), [id_header(name) for name in choice.name]] for key, choice in waiting],
        }
        arrays = {f"tracker.{name}": array for name, array in parts.items()}
        arrays |= {"scalars": self._scalars, "unread": self._draws.unread(), "offered": self._offered}
        for number, (_, choice) in enumerate(waiting):
            x = choice.x
            parts = {"indices": x.indices, "values": x.data} if sp.issparse(x) else {"x": np.asarray(x)}
            arrays |= {f"waiting.{number}.{name}": array for name, array in parts.items()}
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
        self._scalars[:] = arrays["scalars"]
        self._rounds = header["rounds"]
        self._offered = arrays["offered"].copy()
        self._slot_of = {id_of(name): slot for name, slot in header["slots"]}
        self._pending = dict.fromkeys(id_of(key) for key in header["learned"])
        for number, (key, name) in enumerate(header["waiting"]):
            x: Any = part(arrays, f"waiting.{number}.")
            if "x" in x:
                x = x["x"].copy()
            else:
                places = x["indices"].copy(), np.array([0, x["indices"].size])
                x = sp.csr_array((x["values"].copy(), *places), shape=(1, self.dim))
            self._pending[id_of(key)] = Pending(x, tuple(id_of(entry) for entry in name))
        if header["started"]:
            self._width = self.width.allocate(self.tracker, self._offered.size, self._draws)
            for entry, array in part(arrays, "width.").items():
                getattr(self._width, entry)[...] = array
            self._entries = kernels.policy_entries(self.tracker._state_class, self._width.__class__)
        self._draws.restore(header["draws"], arrays["unread"])

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or a pickle for another process, is made of what a file would hold: never of addresses."""
        if isinstance(self.tracker.history, Mapped):
            raise SettingsError("a policy over a Mapped history cannot be copied: a folder has one owner. Use save().")
        header, arrays = self.snapshot()
        functions = {
            name: schedule.function
            for name in ("step_size", "regularisation")
            if isinstance(schedule := getattr(self.tracker, name), Tabulated)
        }
        return revive, (type(self), header, {name: np.array(array) for name, array in arrays.items()}, functions)

    def __repr__(self) -> str:
        kappa = f"sigmas={self._scalars[kernels.SIGMAS]}" if self._scalars[kernels.SIGMAS] else f"kappa={self.kappa}"
        return f"{type(self).__name__}({self.tracker!r}, {self.width!r}, {kappa}, epsilon={self.epsilon})"
