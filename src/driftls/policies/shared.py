"""One model shared by all arms: theta.x + kappa width(x) over any tracker and any width."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import driftls.trackers
from driftls.draws import Seed
from driftls.errors import CorruptFileError, DimensionError, InputError, SettingsError
from driftls.features.crossed import CrossedArms
from driftls.history import Mapped
from driftls.inputs import Stage, as_rows
from driftls.kernels import choose as kernels
from driftls.kernels.parts import Frame
from driftls.kernels.records import ROWS
from driftls.kernels.rows import first_fault
from driftls.kernels.score import crossed_score
from driftls.policies.arm_index import ArmIndex, plain_id, plain_ids
from driftls.policies.keys import row_of, waiting_of
from driftls.persistence import whole
from driftls.policies.policy import Model, Policy, allowed_arms, group, position_of, reward_of
from driftls.policies.tables import ScoreTable, kind_of
from driftls.trackers import Tracker
from driftls.trackers.base import whole_number
from driftls.widths import KINDS, Width

FIRST_SLOTS = 16
TABLE_FROM = 8  # choices with the same blocks in a row


class SharedPolicy(Policy):
    """Chooses argmax theta.x + kappa width(x), with one theta for all arms.

    Parameters
    ----------
    tracker, width
        Any of `driftls.trackers` and `driftls.widths`.
    kappa : float, optional
        Weight of the width (the field says alpha). By default `sigmas` standard deviations of the noise, estimated.
    epsilon : float
        With this probability any arm is chosen: a floor under every arm's probability.
    forget_after : int
        Rounds after which an id that was not offered may be forgotten.
    seed : int or Generator
        Of the policy's own randomness.

    Examples
    --------
    >>> from driftls.trackers import SAGA
    >>> from driftls.widths import DiagonalWidth
    >>> policy = SharedPolicy(SAGA(3, seed=0), DiagonalWidth(), seed=0)
    >>> policy.learn(np.eye(3), 1.0, arm=policy.choose(np.eye(3)))
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
        super().__init__(tracker.dim, width=width, kappa=kappa, sigmas=sigmas, epsilon=epsilon, seed=seed)
        self.tracker, self.lock = tracker, tracker.lock  # whoever uses the tracker by itself takes turns too
        self.forget_after = whole_number(forget_after, "forget_after", 0)
        self._index = ArmIndex(most=2**31)
        self._table = ScoreTable(self.frame)
        self._blocks: tuple[Any, int] = (None, 0)

    @property
    def theta(self) -> NDArray[np.float64]:
        """The present estimate."""
        return self.tracker.theta

    # -- choosing and learning -----------------------------------------------------------------------------------

    def choose(self, arms: Any, *, ids: Any = None, key: Hashable = None, allowed: Any = None) -> int:
        """The position of the arm to show.

        Parameters
        ----------
        arms : (K, d) array, sparse matrix, or `CrossedArms`
            A row for each arm.
        ids : list, optional
            An id for each arm, where arms come again: some widths then keep something for each.
        key : optional
            Keeps the choice until `learn(reward=..., key=key)`.
        allowed : mask or positions, optional
            Which arms may be shown now.
        """
        with self.lock:
            if key is not None:
                key = self.keys.new(key)
            rows, count = self._rows(arms)
            names = self._names(ids, count)
            mask = None if allowed is None else allowed_arms(allowed, count)
            self._take(rows, count, recurring=names is not None)
            self._open(names, count)
            chosen = self._among(mask, count)
            self._rounds += 1
            if key is not None:
                name = () if names is None else (names[chosen],)
                self.keys.waiting[key] = waiting_of(self._plain(rows), chosen, name)
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
        """Learn a reward: `learn(arms, reward, arm=k)`, `learn(x, reward)` with one row, or `learn(reward=..., key=key)`.

        It may come late and in any order. Nothing is changed if the reward or the row cannot be used.
        """
        with self.lock:
            value = reward_of(reward)
            if key is not None:
                choice = self.keys.choice(key)
                rows, row, name = row_of(choice, self.dim), 0, choice.name
                count = 1
            else:
                if arms is None:
                    raise InputError("learn needs learn(arms, reward, arm=k), or learn(reward=..., key=key).")
                rows, count = self._rows(arms if arm is not None else self._single(arms))
                if arm is None and count != 1:
                    raise InputError(f"{count} arms and one reward: say which of them it belongs to, with arm=.")
                row = 0 if arm is None else position_of(arm, count)
                names = self._names(ids, count)
                name = () if names is None else (names[row],)
            self._take(rows, count, recurring=bool(name))
            self._stage.y[row] = value
            slot = self._index.slot_of.get(name[0], -1) if name else -1
            if slot >= 0 and not self._same(row, slot):
                slot = -1
            if not self._stage.frame["arms"]:
                self._table.drop()
            self._learn_row(row, slot, 0)
            if key is not None:
                self.keys.settle(key)

    def remember(self, key: Hashable, x: Any, name: Hashable = None) -> None:
        """Keep a choice that was made elsewhere until its reward comes: `learn(reward=..., key=key)`."""
        with self.lock:
            key = self.keys.new(key)
            rows, count = self._rows(self._single(x))
            if count != 1:
                raise InputError(f"a choice is one row, got {count}.")
            self.keys.waiting[key] = waiting_of(self._plain(rows), 0, () if name is None else (plain_id(name),))

    def play(
        self, arms: Any, rewards: Any = None, *, shown: Any = None, ids: Any = None, rounds: int | None = None
    ) -> NDArray[np.int64]:
        """Many rounds in one compiled loop, decision by decision equal to `choose` and `learn`; returns the choices.

        Parameters
        ----------
        arms : (rounds K, d) array or sparse matrix, or `CrossedArms`
            Round after round; or (K, d), the same arms in every round.
        rewards : (rounds, K), or (rounds,) with `shown`, or None
            Of every arm; or of the arm that a log showed, whose reward is learned where it is chosen. None: only choose.
        shown : (rounds,) array of int, optional
            Positions of the arms that the log showed; -1 for none of them.
        ids : list, optional
            The K ids of the pool.
        rounds : int, optional
            Where neither rewards nor ids tell.
        """
        with self.lock:
            rows, total = self._rows(arms, many=True)
            rounds = len(rewards) if rewards is not None else rounds
            crossed = isinstance(rows, CrossedArms)
            if crossed:
                count, users = len(rows.blocks), rows.row.shape[0]
                rounds = users if rounds is None else rounds
            else:
                given = len(ids) if ids is not None else np.shape(rewards)[1] if np.ndim(rewards) == 2 else None
                rounds = total // given if rounds is None and given else (1 if rounds is None else rounds)
                count = given or (total // rounds if rounds else 0)
            if rounds == 0:
                return np.zeros(0, dtype=np.int64)
            still = total == count and rounds > 1
            if not count or (not still and total != rounds * count):
                raise DimensionError(f"{rounds} rounds of {count} arms need {rounds * count} rows (or {count}), got {total}.")
            names = self._names(ids, count)
            self._take(rows, total, recurring=names is not None)
            crossed = crossed and bool(self._stage.frame["arms"])  # else they were written out
            features, lines = rows.row.shape[::-1] if crossed else (self.dim, total)
            if code := int(first_fault(self._stage.frame.address, features, lines)):
                self.frame["fault_row"] = code // 8 - 1
                raise self._fault(code % 8)
            self._open(names, count)
            if crossed and rounds >= TABLE_FROM:
                self._fill_table(rows, count)
            first = np.arange(rounds, dtype=np.int64) * (0 if still else count)
            chosen = self._play(count, rounds, rewards, shown, first)
            if names is not None:
                self._index.offer(names, self._rounds)
            return chosen  # type: ignore[no-any-return]

    def warm(self, fill: Any, *, sparse: bool, squares: NDArray[np.float64], n: int, errors: float) -> None:
        """Start from n rows that were seen elsewhere: `fill(tracker)` puts the tracker there.

        squares: their sums of squares; errors: the sum of squared errors, from which kappa is estimated.
        """
        with self.lock:
            if self._models:
                raise SettingsError("a warm start is for a policy that has seen nothing.")
            self._decide(sparse, False)
            self._open_model(sparse)
            self._warm(self._models[0], fill, squares, n, errors)  # type: ignore[arg-type]

    # -- questions -----------------------------------------------------------------------------------------------

    def scores(self, arms: Any, *, ids: Any = None) -> NDArray[np.float64]:
        """theta.x + kappa width(x) of each arm."""
        if self.width.samples:
            raise InputError("scores that are sampled change with every choice. Use a width that is not sampled.")
        with self.lock:
            who, count = self._question(arms, ids)
            cursor = who._draws.cursor.copy()
            who._chosen(count, only_scores=True)
            who._draws.cursor[:] = cursor
            return who._scores[:count].copy()

    def widths(self, arms: Any, *, ids: Any = None) -> NDArray[np.float64]:
        """How sure the policy is of each arm, before kappa."""
        with self.lock:
            who, count = self._question(arms, ids)
            if who._stage.frame["arms"]:
                who._stage.frame["arms"] = 0
                who._stage.take(who._plain(who._rows(arms)[0]))
            if (code := kernels.widths(who.frame.address, 0, count)) < 0.0:
                raise who._fault(int(-code))
            return np.sqrt(np.maximum(who._scores[:count], 0.0))

    def probabilities(self, arms: Any, *, ids: Any = None, allowed: Any = None) -> NDArray[np.float64]:
        """How likely each arm is to be chosen now."""
        if self.epsilon == 1.0:
            return self._share(np.zeros(self._rows(arms)[1]), allowed)
        return self._share(self.scores(arms, ids=ids), allowed)

    def _question(self, arms: Any, ids: Any) -> tuple[Any, int]:
        """Stage arms without giving out slots: unknown ids are scored as arms without one."""
        rows, count = self._rows(arms)
        names = self._names(ids, count)
        who = self._asked()
        who._take(rows, count, recurring=names is not None)
        who._slots[:count] = -1
        if names is not None and self.width.keeps_arms:
            for k, name in enumerate(names):
                slot = who._index.slot_of.get(name, -1)
                who._slots[k] = slot if slot >= 0 and who._same(k, slot) else -1
        return who, count

    # -- rows ----------------------------------------------------------------------------------------------------

    def _rows(self, arms: Any, *, many: bool = False) -> tuple[Any, int]:
        """Arms as rows, looked at but for their numbers."""
        if isinstance(arms, CrossedArms):
            if not many and arms.row.shape[0] != 1:
                raise InputError(f"a choice is for one user, got the arms of {arms.row.shape[0]}.")
            if arms.shape[1] != self.dim:
                raise DimensionError(f"arms must have {self.dim} features, got {arms.shape[1]}.")
            rows: Any = arms
        else:
            rows = as_rows(arms, self.dim, "arms")
        count = rows.shape[0]
        if count == 0 and not many:
            raise InputError("the pool is empty: at least one arm is needed.")
        return rows, count

    def _single(self, x: Any) -> Any:
        return np.reshape(x, (1, -1)) if not hasattr(x, "shape") or (len(x.shape) == 1 and not hasattr(x, "dim")) else x

    def _plain(self, rows: Any) -> Any:
        return as_rows(rows.tocsr(), self.dim) if isinstance(rows, CrossedArms) else rows

    def _names(self, ids: Any, count: int) -> list[Hashable] | None:
        if ids is None:
            return None
        names = plain_ids(ids)
        if len(names) != count:
            raise DimensionError(f"ids must have one id for each of {count} arms, got {len(names)}.")
        return names

    def _take(self, rows: Any, count: int, *, recurring: bool = False) -> None:
        """Copy arms to where kernels read them; the first ones decide what the model is."""
        if not self._models:
            self._begin(rows, recurring)
        self._room(count)
        crossed = isinstance(rows, CrossedArms) and bool(self._stage.sparse) and bool(self.frame["crossed_score"])
        if crossed:
            self._take_crossed(rows)
        else:
            if self._stage.frame["arms"]:
                self._stage.frame["arms"] = 0
            self._stage.take(self._plain(rows))

    def _take_crossed(self, arms: CrossedArms) -> None:
        stage, blocks = self._stage, arms.blocks
        width, lines = arms.row.shape[1], arms.row.shape[0]
        stage.lines(lines * blocks.size)  # a reward for each arm
        stage.take(as_rows(arms.row, width, "a user"))
        shifts = width * (blocks + arms.shared)
        stage.frame.set(shifts=shifts, arms=blocks.size, shared=arms.shared, features=width)
        single, need = self.frame.arrays["single"], 2 * stage.values.size
        if single.arrays["values"].size < need:
            single.set(values=np.zeros(need), indices=np.zeros(need, np.int32), room=need)
        same = self._blocks[0] is not None and np.array_equal(self._blocks[0], shifts)
        self._blocks = (shifts, self._blocks[1] + 1 if same else 1)
        if not same:
            self._table.drop()
        elif self._blocks[1] == TABLE_FROM:
            self._fill_table(arms, blocks.size)

    def _fill_table(self, arms: CrossedArms, count: int) -> None:
        if self._stage.frame["arms"]:
            kind = kind_of(self.width, True, True)
            self._table.fill(kind, arms.row.shape[1], count, self._stage.values.size)

    def _begin(self, rows: Any, recurring: bool) -> None:
        """The first arms are here and are looked at: start the tracker, dense or sparse, and its width."""
        plain, looked, sparse = self._plain(rows), Stage(self.dim), not isinstance(rows, np.ndarray)
        looked.start(sparse)
        looked.take(plain)
        if code := int(first_fault(looked.frame.address, self.dim, plain.shape[0])):
            self.frame["fault_row"] = code // 8 - 1
            raise self._fault(code % 8)
        self._decide(sparse, recurring)
        self._open_model(sparse)

    def _decide(self, sparse: bool, recurring: bool) -> None:
        """Choose tracker and width, where that is left to the policy."""

    def _adopt(self, tracker: Tracker, width: Width, sigmas: float) -> None:
        """From the first arms on, use these parts."""
        self.tracker, self.width, self.lock = tracker, width, tracker.lock
        self._need = width.draws(self.dim) + 1
        if self.frame["sigmas"]:
            self.frame["sigmas"] = sigmas

    def _open_model(self, sparse: bool) -> None:
        tracker = self.tracker
        unused = tracker.sparse is None
        if unused:
            tracker.start(sparse)
        try:
            model = self._new_model(tracker, FIRST_SLOTS)
        except BaseException:
            if unused:
                tracker.unstart()
            raise
        self._open_rows(model)

    def _open_rows(self, model: Model) -> None:
        """Take rows for this model from now on."""
        tracker = model.tracker
        self._put_model(0, model)
        self._stage.start(bool(tracker.sparse))
        self.frame["arms"] = self._stage.frame
        if tracker.sparse and kind_of(self.width, True, True) and tracker.frame["stride"]:
            single = Frame(ROWS)
            single.set(values=np.zeros(64), indices=np.zeros(64, np.int32), room=64, sparse=1, dim=self.dim, count=1)
            single.set(start=np.zeros(1, np.int64), stop=np.zeros(1, np.int64), y=np.zeros(1))
            self.frame.set(single=single, crossed_score=crossed_score)

    # -- slots ---------------------------------------------------------------------------------------------------

    def _open(self, names: list[Hashable] | None, count: int) -> None:
        """A slot for each arm of the stage that has an id, where the width keeps something for each."""
        slots = self._slots
        slots[:count] = -1
        if names is None or not self.width.keeps_arms:
            return
        index, model = self._index, self._models[0]
        assert model is not None
        slots[:count] = [index.slot_of.get(name, -1) for name in names]
        new = np.flatnonzero(slots[:count] < 0).tolist()
        if new:
            if code := int(first_fault(self._stage.frame.address, self.dim, count)):
                self.frame["fault_row"] = code // 8 - 1
                raise self._fault(code % 8)
            index.offer(names, self._rounds)  # what is here now is not dropped for what is new
            for k in new:
                if len(index) >= model.width.slots:
                    for old in index.stale(self._rounds - self.forget_after):
                        model.width.drop(index.drop(old))
                slots[k] = -2 - index.open(names[k], self._rounds)
                if -2 - slots[k] >= model.width.slots:
                    model.width.grow(2 * model.width.slots)
        if (code := kernels.open_arms(self.frame.address, 0, count)) < 0.0:
            raise self._fault(int(-code))
        index.offer(names, self._rounds)

    def _same(self, row: int, slot: int) -> bool:
        """Whether a row still has the features for which its slot was opened."""
        return kernels.is_same(self.frame.address, row, slot) != 0.0

    def _among(self, mask: Any, count: int) -> int:
        if mask is None:
            return self._chosen(count)
        self.frame["allowed"] = mask
        try:
            return self._chosen(count)
        finally:
            self.frame["allowed"] = 0

    # -- files ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Header and arrays from which `from_snapshot` makes the same policy."""
        with self.lock:
            header, arrays = self._common()
            header["tracker"], parts = self.tracker.snapshot()
            header |= {"forget_after": self.forget_after, "ids": self._index.header(), "model": None}
            arrays |= {f"tracker.{name}": array for name, array in parts.items()}
            if self._models:
                model = self._models[0]
                assert model is not None
                numbers, parts = model.width.snapshot()
                header["model"] = {"slots": model.width.slots, "numbers": numbers}
                arrays |= {f"width.{name}": np.array(array) for name, array in parts.items()}
        return header, arrays

    @classmethod
    def from_snapshot(cls, header: dict[str, Any], arrays: dict[str, Any], **functions: Any) -> Self:
        """The policy that `snapshot` wrote down."""
        policy = cls.__new__(cls)
        tracker = tracker_of(header["tracker"], group(arrays, "tracker."), functions)
        weights = {name: value for name, value in header["weights"].items() if value is not None}
        SharedPolicy.__init__(policy, tracker, width_of(header), forget_after=header["forget_after"], **weights)
        policy._restore(header, arrays)
        return policy

    def _restore(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        self._index.restore(header["ids"])
        model = header["model"]
        if model is not None:
            if self.tracker.sparse is None or not len(self._index) <= model["slots"] <= 2**24:
                raise CorruptFileError("the model of the policy does not fit its tracker. Restore the file from a copy.")
            kept = whole(model, "slots"), model["numbers"], group(arrays, "width.")
            self._open_rows(Model(self.tracker, self.width.reopen(self.tracker, self._draws, *kept)))
        self._restore_common(header, arrays)

    def functions(self) -> dict[str, Any]:
        if isinstance(self.tracker.history, Mapped):
            raise SettingsError("a policy over a Mapped history cannot be copied: a folder has one owner. Use save().")
        return self.tracker.functions()

    def __repr__(self) -> str:
        kappa = f"sigmas={self.sigmas}" if self.sigmas else f"kappa={self.kappa}"
        return f"{type(self).__name__}({self.tracker!r}, {self.width!r}, {kappa}, epsilon={self.epsilon})"


def tracker_of(header: dict[str, Any], arrays: dict[str, Any], functions: dict[str, Any]) -> Tracker:
    """The tracker that a policy's file names."""
    kind = getattr(driftls.trackers, str(header.get("class")), None)
    if not (isinstance(kind, type) and issubclass(kind, Tracker)):
        raise CorruptFileError(f"the file names an unknown tracker: {header.get('class')!r}.")
    return kind.from_snapshot(header, arrays, **functions)


def width_of(header: dict[str, Any]) -> Width:
    """The width that a policy's file names."""
    settings = dict(header["width"])
    kind = KINDS.get(str(settings.pop("kind")))
    if kind is None:
        raise CorruptFileError(f"the file names an unknown width: {header['width']!r}.")
    return kind(**settings)
