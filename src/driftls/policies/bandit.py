"""What all policies over trackers share: kappa and epsilon, chance, keys, and the playing of many rounds."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.crossed import Crossed
from driftls.draws import TAPE, Draws, Seed
from driftls.errors import InputError
from driftls.kernels import judge
from driftls.kernels import policy as kernels
from driftls.kernels.chance import Chance
from driftls.kernels.frames import pack
from driftls.kernels.judge import Judge
from driftls.kernels.models import Mirror
from driftls.kernels.policy import Rounds
from driftls.kernels.rows import CrossRows, DenseRows, SparseRows
from driftls.persistence import Saveable
from driftls.policies.inputs import check_weights, id_header, id_of, part, plain_id, renamed, revive, tell
from driftls.schedules import Tabulated
from driftls.trackers import RLS, Tracker
from driftls.trackers.inputs import Block, as_block, as_numbers, fault
from driftls.widths import Width

if TYPE_CHECKING:
    from driftls.features import Features

MOST_KEYS = 1_000_000
FIRST_ARMS = 16
MIRROR_UP_TO = 1 << 20  # entries
LANES = 8  # arms that are swept at once: lines of a mirror are filled up to a multiple


NO_MIRROR = Mirror(
    np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0)
)


class Pending(NamedTuple):
    """A choice whose reward has not come yet: the features, and (or nothing) the arm's id."""

    x: Any
    name: tuple[Hashable, ...]


class Bandit(Saveable):
    """A tracker and a width, or a kind of them, with which arms are judged."""

    called: ClassVar[str] = "the arm"  # what a row is, in an error
    tracker: Tracker
    width: Width

    def __init__(
        self,
        tracker: Tracker,
        width: Width,
        *,
        kappa: float | None,
        sigmas: float,
        epsilon: float,
        seed: Seed,
    ) -> None:
        check_weights(kappa, sigmas, epsilon)
        self.tracker, self.width, self.dim = tracker, width, tracker.dim
        self._need = width.draws(self.dim) + 1
        self._draws = Draws(seed, max(TAPE, 8 * self._need))
        self._scalars = np.zeros(judge.SCALARS)
        self._scalars[judge.KAPPA] = 0.0 if kappa is None else kappa
        self._scalars[judge.SIGMAS] = sigmas if kappa is None else 0.0
        self._scalars[judge.EPSILON] = epsilon
        self._scalars[judge.DRAWS] = self._need
        self._mirror = NO_MIRROR
        self._watched = True  # whether anything has to be looked at after a row
        self._rounds = 0
        self._pending: dict[Hashable, Pending | None] = {}
        self.features: Features | None = None  # how arms are made of events, where they are; saved with the policy
        self._seat(FIRST_ARMS)

    def _seat(self, arms: int) -> None:
        """Room for the scores, slots and rewards of so many arms, in a call that is not about many rounds."""
        self._scores = np.zeros(arms + LANES)
        self._idle = new_rounds([0], [-1], np.zeros((1, 1)))._replace(
            slots=np.full(arms, -1, dtype=np.int64), y=np.zeros(arms)
        )
        self._idle_words = pack([self._idle])

    # -- what it thinks ------------------------------------------------------------------------------------------

    @property
    def kappa(self) -> float:
        """The present weight of the width."""
        return float(judge.weight(Judge(self._scalars, self._scores)))

    @property
    def epsilon(self) -> float:
        """The exploration floor."""
        return float(self._scalars[judge.EPSILON])

    @property
    def sigmas(self) -> float | None:
        """How many standard deviations of the noise kappa is, where it is estimated."""
        return float(self._scalars[judge.SIGMAS]) or None

    def _greedy_share(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """How likely each arm is to be chosen, if nothing but epsilon is random."""
        share = np.full(scores.size, self.epsilon / scores.size)
        share[int(np.argmax(scores))] += 1.0 - self.epsilon
        return share

    # -- keys ----------------------------------------------------------------------------------------------------

    def _new_key(self, key: Hashable) -> None:
        if key is not None and key in self._pending:
            raise InputError(f"key {key!r} was used before. Every choice needs a key of its own.")

    def remember(self, key: Hashable, x: Any, name: Hashable = None) -> None:
        """Keep a choice that was made elsewhere until its reward comes: `learn(reward=..., key=key)`."""
        self._new_key(key)
        x = x.tocsr() if isinstance(x, Crossed) else x
        self._pending[key] = Pending(single(x, "x must be a vector").copy(), () if name is None else (plain_id(name),))

    def _waiting(self, key: Hashable) -> Pending:
        waiting = self._pending.get(key)
        if waiting is None:
            state = "was learned already" if key in self._pending else "is not known: choose(..., key=key) first"
            raise InputError(f"key {key!r} {state}.")
        return waiting

    def _settle_key(self, key: Hashable) -> None:
        """A learned key is remembered, so that a repeated reward is noticed; the oldest of very many is let go."""
        del self._pending[key]
        self._pending[key] = None
        if len(self._pending) > MOST_KEYS:
            oldest = next((old for old, waiting in self._pending.items() if waiting is None), None)
            self._pending.pop(oldest, None)

    # -- kernels -------------------------------------------------------------------------------------------------

    @abstractmethod
    def _ready(self, count: int) -> None:
        """Draws, room for the scores of so many arms, and the addresses of everything, up to date."""

    @abstractmethod
    def _act(self, arms: Block, job: Any, task: int, first: int, last: int) -> int:
        """Call the compiled entry."""

    @abstractmethod
    def _tracker_of(self, slot: int) -> Tracker:
        """The tracker that learns the rewards of this arm; where its arrays are is known afterwards."""

    @abstractmethod
    def _mirror_for(self, arms: Block, count: int, rounds: int) -> Mirror:
        """A mirror for so many arms and rounds, or none where the models themselves are asked."""

    def _mirror_of(self, features: int, lines: int, arms: int) -> Mirror:
        """The present mirror, if it has the right size, or a new one."""
        width = -(-arms // LANES) * LANES
        old = self._mirror
        if old.theta.shape == (features, width) and len(old.spread) == lines:
            return old
        theta, spread = np.zeros((features, width)), np.zeros((lines, width))
        ring = np.zeros(width, dtype=np.int64)
        return Mirror(theta, spread, np.zeros(width), np.zeros(lines), ring, np.zeros(4))

    def _block(self, x: Any, y: NDArray[np.float64], sparse: bool) -> Block:
        """Rows of the kind and precision that the trackers keep."""
        if isinstance(x, Crossed):
            if sparse:
                return x.rows(y, self.tracker._dtype)
            x = x.tocsr()
        return as_block(x, y, sparse, self.tracker._dtype)

    def _judge(self) -> tuple[Judge, Chance]:
        return Judge(self._scalars, self._scores), Chance(self._draws.tape, self._draws.cursor)

    def _learn_row(self, row: Block, slot: int) -> None:
        """Learn one row with its reward."""
        tracker, idle = self._tracker_of(slot), self._idle
        self._ready(1)
        idle.y[0], idle.slots[0] = row.y[0], slot
        tracker._credit = 0  # what is left is not counted
        try:
            status = self._act(row, self._idle_words, kernels.LEARN, 0, 1)
            if status == kernels.NO_ROOM:
                tracker._prepare(1, row, 0)
                self._tracker_of(slot)
                self._ready(1)
                status = self._act(row, self._idle_words, kernels.LEARN, 0, 1)
        finally:
            idle.y[0], idle.slots[0], tracker._credit = 0.0, -1, 0
        if status:
            raise renamed(fault(status, 0, len(tracker), self.dim), "row 0", self.called)
        if self._watched:
            self._after(tracker)

    def _play(self, arms: Block, slots: NDArray[np.int64], job: Rounds, first: int, last: int) -> None:
        """Rounds first ... last - 1 with this pool, in a compiled loop that pauses where room has to be made."""
        words, begin = pack([job._replace(slots=slots, y=arms.y)]), first
        self._mirror = self._mirror_for(arms, slots.size, last - first)
        for slot in slots.tolist():
            self._tracker_of(slot)._credit = 0  # what is left is not counted
        while first < last:
            self._ready(slots.size)
            first = int(self._act(arms, words, kernels.PLAY, first, last))
            if job.clock[kernels.STATUS]:
                raise fault(int(job.clock[kernels.STATUS]), 0, len(self.tracker), self.dim)
            if job.clock[kernels.WAITING]:
                job.clock[kernels.WAITING], chosen, before = 0, int(job.chosen[first]), kernels.now()
                self._learn_row(one_row(arms, self._row(job, first, chosen)), int(slots[chosen]))
                job.clock[kernels.LEARNING] += kernels.now() - before
                first += 1
            self._between()
        self._rounds += last - begin - 1
        self._offer(slots)
        self._rounds += 1

    @abstractmethod
    def _offer(self, slots: NDArray[np.int64]) -> None:
        """These arms were on offer in this round."""

    def _row(self, job: Rounds, r: int, chosen: int) -> int:
        """Where in a block the chosen arm of round r lies."""
        return int(job.first_arm[r]) + chosen

    def _between(self) -> None:
        """A compiled loop has paused."""
        tell(self.tracker)

    def _after(self, tracker: Tracker) -> None:
        """A row was learned."""
        self._between()

    # -- files ---------------------------------------------------------------------------------------------------

    def _snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a file keeps of what is common to all."""
        waiting = [(key, choice) for key, choice in self._pending.items() if choice is not None]
        header = {
            "class": type(self).__name__,
            "width": {"kind": type(self.width).__name__, **self.width.settings()},
            "draws": self._draws.header(),
            "rounds": self._rounds,
            "features": None if self.features is None else self.features.to_header(),
            "learned": [id_header(key) for key, choice in self._pending.items() if choice is None],
            "waiting": [[id_header(key), [id_header(name) for name in choice.name]] for key, choice in waiting],
        }
        arrays = {"scalars": self._scalars, "unread": self._draws.unread()}
        for number, (_, choice) in enumerate(waiting):
            x = choice.x
            parts = {"indices": x.indices, "values": x.data} if sp.issparse(x) else {"x": np.asarray(x)}
            arrays |= {f"waiting.{number}.{name}": array for name, array in parts.items()}
        return header, arrays

    def _restore_common(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        self._scalars[:] = arrays["scalars"]
        self._rounds = header["rounds"]
        self.features = None
        if header.get("features") is not None:
            from driftls.features import from_header  # with the readers of logs, which most policies do without

            self.features = from_header(header["features"])
        self._pending = dict.fromkeys(id_of(key) for key in header["learned"])
        for number, (key, name) in enumerate(header["waiting"]):
            x: Any = part(arrays, f"waiting.{number}.")
            if "x" in x:
                x = x["x"].copy()
            else:
                places = x["indices"].copy(), np.array([0, x["indices"].size])
                x = sp.csr_array((x["values"].copy(), *places), shape=(1, self.dim))
            self._pending[id_of(key)] = Pending(x, tuple(id_of(entry) for entry in name))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or a pickle for another process, is made of what a file would hold: never of addresses."""
        header, arrays = self.snapshot()
        functions = {
            name: schedule.function
            for name in ("step_size", "regularisation")
            if isinstance(schedule := getattr(self.tracker, name), Tabulated)
        }
        return revive, (type(self), header, {name: np.array(array) for name, array in arrays.items()}, functions)


def new_rounds(first_arm: Any, shown: Any, rewards: NDArray[np.float64]) -> Rounds:
    """Rounds to be played; see `Rounds`."""
    first_arm, shown = (np.ascontiguousarray(column, dtype=np.int64) for column in (first_arm, shown))
    clock = np.zeros(kernels.CLOCK, dtype=np.int64)
    chosen, slots = np.zeros(shown.size, dtype=np.int64), np.zeros(0, dtype=np.int64)
    return Rounds(first_arm, shown, np.ascontiguousarray(rewards), chosen, clock, slots, np.zeros(0))


@contextmanager
def timed(job: Rounds, seconds: dict[str, float]) -> Iterator[None]:
    """Share the time of playing out between choosing and learning, by the processor's clock."""
    begin, ticks = time.perf_counter(), kernels.now()
    try:
        yield
    finally:
        elapsed, ticks = time.perf_counter() - begin, max(kernels.now() - ticks, 1)
        learning = elapsed * min(1.0, int(job.clock[kernels.LEARNING]) / ticks)
        seconds["learn"] += learning
        seconds["choose"] += elapsed - learning


def one_row(block: Block, i: int) -> Block:
    """Row i of a block, without a copy."""
    if isinstance(block, DenseRows):
        return DenseRows(block.X[i : i + 1], block.y[i : i + 1])
    if isinstance(block, CrossRows):
        line, k = divmod(i, block.shift.size)
        one = {name: getattr(block, name)[line : line + 1] for name in ("start", "stop")}
        return block._replace(shift=block.shift[k : k + 1], y=block.y[i : i + 1], **one)
    return SparseRows(block.start[i : i + 1], block.stop[i : i + 1], block.indices, block.values, block.y[i : i + 1])


def solved(tracker: Tracker) -> None:
    """On the slow route of an exact tracker a kernel finds theta as it was left: solve for it first."""
    if isinstance(tracker, RLS):
        tracker._solve()


def single(x: Any, expected: str) -> Any:
    """One row, as a vector or sparse row."""
    if isinstance(x, Crossed):
        if len(x) != 1:
            raise InputError(f"{len(x)} arms and one reward: say which of them it belongs to, with arm=.")
        return x
    x = x if sp.issparse(x) else as_numbers(x, expected)
    if x.ndim == 2 and x.shape[0] != 1:
        raise InputError(f"{x.shape[0]} arms and one reward: say which of them it belongs to, with arm=.")
    return x.reshape(1, -1)
