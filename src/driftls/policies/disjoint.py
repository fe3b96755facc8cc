"""One model an arm id: a user comes, and each arm's own model says what it expects of the user."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from driftls.draws import Seed, generator_of
from driftls.errors import CorruptFileError, InputError, SettingsError
from driftls.history import Mapped
from driftls.inputs import Stage, as_rows
from driftls.kernels import choose as kernels
from driftls.kernels.rows import first_fault
from driftls.persistence import whole
from driftls.policies.arm_index import ArmIndex, plain_id, plain_ids
from driftls.policies.arms import as_block, look_at
from driftls.policies.evidence import Strength, can_adapt
from driftls.policies.files import by_number, group, seeds_header, seeds_of, tracker_of, width_of
from driftls.policies.keys import row_of, waiting_of
from driftls.policies.model import Model
from driftls.policies.policy import Policy, allowed_arms, position_of, reward_of, rewards_of
from driftls.policies.tables import PAYS_AFTER, kind_of
from driftls.schedules import ridge
from driftls.trackers import RLS, SAGA, Tracker
from driftls.trackers.settings import whole_number
from driftls.units import Units
from driftls.widths import DiagonalWidth, ExactWidth, Width

EXACT_UP_TO = 200  # features: two matrices a model, 640 kB
TAPE = 256  # draws that a model has ready at a time
TABLE_FROM = 8  # choices among the same arms in a row


class DisjointLinUCB(Policy):
    """LinUCB with one model an arm id, made when the arm is first seen.

    Parameters
    ----------
    dim : int
        Number of features of a user.
    tracker : Tracker, optional
        An unused tracker, of which each arm gets a fresh copy.
    width : Width, optional
        Of each model; `DiagonalWidth()` for a tracker that is given. Without both, `reason` says what was taken: exact
        up to 200 features, else `SAGA` with diagonal widths; ridges from the data, pooled over arms.
    kappa, sigmas, epsilon
        As for `LinUCB`, 1.5 standard deviations by default; the noise is estimated over all arms together.
    most_arms : int
        Beyond so many models the one that was not offered for longest is dropped.
    seed : int or Generator
        Of the policy's own randomness and of its trackers.

    Examples
    --------
    >>> policy = DisjointLinUCB(dim=2, seed=0)
    >>> user = np.array([1.0, 0.5])
    >>> k = policy.choose(user, ids=["sports", "politics"])
    >>> policy.learn(user, 1.0, arm=k, ids=["sports", "politics"])
    >>> len(policy)
    2
    """

    rows_called: ClassVar[str] = "the user"
    disjoint: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        *,
        tracker: Tracker | None = None,
        width: Width | None = None,
        kappa: float | None = None,
        sigmas: float = 1.5,
        epsilon: float = 0.0,
        most_arms: int = 10_000,
        seed: Seed = None,
    ) -> None:
        dim = whole_number(dim, "dim", 1)
        self.reason = "given: tracker and width were chosen by the caller"
        auto = tracker is None and width is None
        if auto:
            exact = dim <= EXACT_UP_TO
            cost = "is affordable" if exact else "is too slow"
            self.reason = f"{'exact' if exact else 'fast'}: with {dim} features a {dim} x {dim} matrix an arm {cost}"
            tracker = RLS(dim) if exact else SAGA(dim)
            width = ExactWidth() if exact else DiagonalWidth()
        tracker = SAGA(dim) if tracker is None else tracker
        if tracker.dim != dim or len(tracker):
            raise SettingsError(f"tracker must be an unused one of dim={dim}, of which each arm gets a copy.")
        if isinstance(tracker.history, Mapped):
            raise SettingsError("every arm has a history of its own, and a Mapped folder serves one. Use Growing().")
        self._seeds = generator_of(seed)
        own = self._seeds.spawn(1)[0]
        width = DiagonalWidth() if width is None else width
        super().__init__(dim, width=width, kappa=kappa, sigmas=sigmas, epsilon=epsilon, seed=own)
        self.tracker, self.most_arms = tracker, whole_number(most_arms, "most_arms", 1)
        if auto and can_adapt(tracker, width):
            self.strength = self._first = Strength(1.0)
        self._index = ArmIndex(self.most_arms)
        self._units: Units | None = None
        self._pool: list[Hashable] = []
        self._positions: dict[Hashable, int] = {}
        self._repeats = 0

    def __len__(self) -> int:
        """How many arms have a model."""
        return len(self._index)

    @property
    def ids(self) -> list[Hashable]:
        """Arms that have a model, the one that was not offered for longest first."""
        return list(self._index.slot_of)

    def model(self, name: Hashable) -> Tracker:
        """A copy of the tracker of an arm id."""
        with self.lock:
            return copy.deepcopy(self._models[self._known(name)].tracker)  # type: ignore[union-attr]

    # -- choosing and learning -----------------------------------------------------------------------------------

    def choose(self, user: Any, *, ids: Any, key: Hashable = None, allowed: Any = None) -> int:
        """The position in `ids` of the arm to show this user (a vector, a sparse row, or (indices, values)).

        `key`, if given, keeps the choice until `learn(reward=..., key=key)`; `allowed` says which arms may be shown.
        """
        with self.lock:
            if key is not None:
                key = self.keys.new(key)
            names = self._names(ids)
            mask = None if allowed is None else allowed_arms(allowed, len(names))
            self._take_user(user)
            self._offer(names)
            chosen = self._chosen(len(names), allowed=mask)
            self._rounds += 1
            if key is not None:
                self.keys.waiting[key] = waiting_of(self._one(user), 0, (names[chosen],))
            return chosen

    def learn(
        self,
        user: Any = None,
        reward: float | None = None,
        *,
        arm: int | None = None,
        ids: Any = None,
        key: Hashable = None,
    ) -> None:
        """Learn a reward: `learn(user, reward, arm=k, ids=ids)` or `learn(reward=..., key=key)`.

        It may come late and in any order. Nothing is changed if the reward or the user cannot be used.
        """
        with self.lock:
            value = reward_of(reward)
            if key is not None:
                choice = self.keys.choice(key)
                user, name = row_of(choice, self.dim), choice.name[0]
                position = self._positions.get(name, -1)
            else:
                if user is None or arm is None or ids is None:
                    raise InputError("learn needs learn(user, reward, arm=k, ids=ids), or learn(reward=..., key=key).")
                names = self._names(ids)
                position = position_of(arm, len(names))
                name = names[position]
                if names is not self._pool:
                    position = self._positions.get(name, -1)
            slot = self._known(name)
            self._take_user(user)
            self._stage.y[0] = value
            self._learn_row(0, slot, position)
            if key is not None:
                self.keys.settle(key)

    def remember(self, key: Hashable, x: Any, name: Hashable) -> None:
        """Keep a choice that was made elsewhere until its reward comes: `learn(reward=..., key=key)`."""
        with self.lock:
            key, name, rows = self.keys.new(key), plain_id(name), self._one(x)
            look_at(rows, self.rows_called)
            self.keys.waiting[key] = waiting_of(rows, 0, (name,))

    def play(
        self, users: Any, rewards: Any = None, *, ids: Any, shown: Any = None, rounds: int | None = None
    ) -> NDArray[np.int64]:
        """Many users, one a round, in one compiled loop that decides as `choose` and `learn` would; returns the arms.

        rewards (rounds, K) of every arm, or (rounds,) of the arm at position `shown` (rounds,) in `ids`, which is
        learned where it is chosen; None: only choose.
        """
        with self.lock:
            names = self._names(ids)
            rows: Any = as_rows(users, self.dim, "users")
            count = rows.shape[0]
            if rounds not in (None, count):
                raise InputError(f"rounds must be the number of users, {count}, got {rounds!r}.")
            if count == 0:
                return np.zeros(0, dtype=np.int64)
            rewards, shown = rewards_of(rewards, shown, count, len(names))
            look_at(rows, self.rows_called)
            self._start(not isinstance(rows, np.ndarray))
            self._stage.take(rows)
            self._offer(names, looked_at=True)
            if not self._table.filled and count * 256 >= PAYS_AFTER * self.dim:
                self._fill_table(len(names))
            return self._play(len(names), count, rewards, shown, np.arange(count, dtype=np.int64))  # type: ignore[no-any-return]

    def warm(
        self, name: Hashable, fill: Any, *, sparse: bool, squares: NDArray[np.float64], n: int, errors: float
    ) -> None:
        """Start the model of a new arm id from n rows that were seen elsewhere; see `SharedPolicy.warm`."""
        with self.lock:
            name = plain_id(name)
            if name in self._index.slot_of:
                raise SettingsError(f"arm id {name!r} has a model already: a warm start is for a new one.")
            self._start(sparse)
            model = self._fresh_model()
            self._leave_pool()  # one of its arms may give way
            self._put_model(self._index.open(name), model)
            self._warm(model, fill, squares, n, errors)

    # -- questions -----------------------------------------------------------------------------------------------

    def scores(self, user: Any, *, ids: Any) -> NDArray[np.float64]:
        """What each arm's model gives this user: theta.x + kappa width(x). Arms never seen are refused."""
        if self.width.samples:
            raise InputError("scores that are sampled change with every choice. Use a width that is not sampled.")
        with self.lock, self._asking() as who:
            count = who._question(user, ids)
            table, who.frame["table"] = who.frame["table"], 0
            try:
                who._chosen(count, only_scores=True)
                return who._scores[:count].copy()  # type: ignore[no-any-return]
            finally:
                who._question_over(table)

    def widths(self, user: Any, *, ids: Any) -> NDArray[np.float64]:
        """How sure each arm's model is of this user, before kappa."""
        with self.lock:
            count = self._question(user, ids)
            try:
                if (code := kernels.widths(self.frame.address, 0, count)) < 0.0:
                    raise self._fault(int(-code))
                return np.sqrt(np.maximum(self._scores[:count], 0.0))
            finally:
                self._question_over(self.frame["table"])

    def probabilities(self, user: Any, *, ids: Any, allowed: Any = None) -> NDArray[np.float64]:
        """How likely each arm is to be chosen now."""
        return self._share(self.scores(user, ids=ids), allowed)

    def _question(self, user: Any, ids: Any) -> int:
        names = self._names(ids)
        slots = [self._known(name) for name in names]
        self._take_user(user)
        self._room(len(names))
        self._slots[: len(names)] = slots
        return len(names)

    def _question_over(self, table: int) -> None:
        """The slots of the pool stand again where the table expects them."""
        self.frame["table"] = table
        if self._pool:
            self._slots[: len(self._pool)] = [self._index.slot_of[name] for name in self._pool]

    # -- users and models ----------------------------------------------------------------------------------------

    def _names(self, ids: Any) -> list[Hashable]:
        names = ids.tolist() if isinstance(ids, np.ndarray) else ids
        if type(names) is list and len(names) == len(self._pool):
            try:
                if names and names == self._pool:
                    return self._pool
            except ValueError:  # an array among the ids
                pass
        names = plain_ids(ids)
        if not 0 < len(names) <= self.most_arms:
            raise InputError(f"{len(names)} arms, but 1 ... most_arms={self.most_arms} models are kept.")
        return names

    def _one(self, user: Any) -> Any:
        """One user, as a block of one row."""
        rows: Any = as_rows(as_block(user, "a user"), self.dim, "a user")
        if rows.shape[0] != 1:
            raise InputError(f"a user must be one row, got {rows.shape[0]}.")
        return rows

    def _take_user(self, user: Any) -> None:
        """Copy a user to where kernels read it; the first one decides whether users are dense or sparse."""
        if self._stage.sparse is not None and self._stage.take_row(user):
            return
        rows = self._one(user)
        if self._stage.sparse is None:
            look_at(rows, self.rows_called)
            self._start(not isinstance(rows, np.ndarray))
        self._stage.take(rows)

    def _start(self, sparse: bool) -> None:
        """The first user is here: dense or sparse, from now on."""
        if self._stage.sparse is None:
            self._start_rows(sparse)

    def _room(self, arms: int) -> None:
        if arms > self._slots.size:
            super()._room(arms)
            self._leave_pool()

    def _leave_pool(self) -> None:
        """The slots of the last arms are no longer where they were."""
        self._pool, self._positions, self._repeats = [], {}, 0
        self._table.drop()

    def _offer(self, names: list[Hashable], *, looked_at: bool = False) -> None:
        """The slots of the models of these arms, the new ones made, for a user of the stage."""
        if names is self._pool:
            self._repeats += 1
            if self._repeats == TABLE_FROM:
                self._fill_table(len(names))
            return
        if not looked_at and (code := int(first_fault(self._stage.frame.address, self._stage.inner, 1))):
            raise self._fault(code % 8)
        self._room(len(names))
        self._leave_pool()
        self._index.offer(names)
        for name in names:
            if name not in self._index.slot_of:
                model = self._fresh_model()  # first: it may fail
                self._put_model(self._index.open(name), model)
        self._index.offer(names)  # in the order of the pool, whichever of them were new
        self._slots[: len(names)] = [self._index.slot_of[name] for name in names]
        self._pool, self._positions = list(names), {name: k for k, name in enumerate(names)}

    def _fresh_model(self) -> Model:
        tracker = self.tracker.fresh(self._seeds.spawn(1)[0], TAPE)
        if self.strength is not None:
            tracker.set_ridge(ridge(self.strength.ridge), rewrite=False)
        tracker.start(bool(self._stage.sparse), self._units)
        return self._new_model(tracker, 0)

    @property
    def units(self) -> Units | None:
        return self._units

    def _start_rows(self, sparse: bool) -> None:
        """The first user is here: dense or sparse, from now on, and measured in units that all models share."""
        tracker = self.tracker
        self._stage = Stage(self.dim, constant=tracker.intercept)
        self._stage.start(sparse)
        if tracker.scale or tracker.intercept:
            self._units = Units(self.dim, sparse=sparse, scale=tracker.scale, intercept=tracker.intercept)
            self._stage.measure(self._units.frame)
            if self.strength is not None:
                self._units.frame["constant"] = self.strength.constant
        self.frame["arms"] = self._stage.frame

    def _fill_table(self, count: int) -> None:
        kind = kind_of(self.width, bool(self._stage.sparse), False)
        self._table.fill(kind, self._stage.inner, count, self._stage.values.size)

    def _models_changed(self) -> None:
        filled = self._table.filled
        super()._models_changed()
        if filled:
            self._fill_table(len(self._pool))

    def _known(self, name: Any) -> int:
        slot = self._index.slot_of.get(plain_id(name))
        if slot is None:
            raise InputError(f"arm id {name!r} was never offered, or was dropped. Offer it in choose first.")
        return slot

    # -- files ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Header and arrays from which `from_snapshot` makes the same policy."""
        with self.lock:
            header, arrays = self._common()
            header["tracker"], _ = self.tracker.snapshot()
            header |= {
                "seeds": seeds_header(self._seeds),
                "sparse": self._stage.sparse,
                "most_arms": self.most_arms,
                "reason": self.reason,
                "ids": self._index.header(),
                "models": [],
            }
            if self._units is not None:
                header["units"], kept = self._units.snapshot()
                arrays |= {f"units.{name}": array for name, array in kept.items()}
            for number, slot in enumerate(self._index.slot_of.values()):
                model = self._models[slot]
                assert model is not None
                state, parts = model.tracker.snapshot()
                numbers, own = model.width.snapshot()
                header["models"].append({"tracker": state, "numbers": numbers})
                arrays |= {f"{number}.tracker.{key}": array for key, array in parts.items()}
                arrays |= {f"{number}.width.{key}": np.array(array) for key, array in own.items()}
        return header, arrays

    @classmethod
    def from_snapshot(cls, header: dict[str, Any], arrays: dict[str, Any], **functions: Any) -> Self:
        """The policy that `snapshot` wrote down."""
        tracker = tracker_of(header["tracker"], {"unread": np.empty(0)}, dict(functions))
        weights = {name: value for name, value in header["weights"].items() if value is not None}
        weights |= {"width": width_of(header), "most_arms": whole(header, "most_arms")}
        made = cls(tracker.dim, tracker=tracker, **weights)
        made.reason = str(header["reason"])
        made._seeds = seeds_of(header["seeds"])
        if header["sparse"] is not None:
            made._start(bool(header["sparse"]))
            if made._units is not None:
                made._units.restore(header["units"], group(arrays, "units."))
        made._index.restore(header["ids"])
        if len(header["models"]) != len(made._index):
            raise CorruptFileError(f"{len(made._index)} arms, but {len(header['models'])} models.")
        groups = by_number(arrays)
        for number, (slot, entry) in enumerate(zip(made._index.slot_of.values(), header["models"])):
            own = groups.get(number, {})
            one = tracker_of(entry["tracker"], group(own, "tracker."), dict(functions))
            if made._units is not None and one.sparse is not None:
                one.measure(made._units)
            if one.sparse != header["sparse"] or one.dim != made.dim:
                raise CorruptFileError(f"model {number} does not fit the policy. Restore the file from a copy.")
            width = made.width.reopen(one, made._draws, 0, entry["numbers"], group(own, "width."))
            made._put_model(slot, Model(one, width))
        made._restore_common(header, arrays)
        return made

    def functions(self) -> dict[str, Any]:
        return self.tracker.functions()

    def __repr__(self) -> str:
        return f"DisjointLinUCB({self.tracker!r}, {self.width!r}, epsilon={self.epsilon}), arms={len(self)}"
