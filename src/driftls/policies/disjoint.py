"""One model an arm id: a user comes, and each arm's own model says what it expects of the user."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from driftls.draws import Seed, generator_of
from driftls.errors import CorruptFileError, DriftlsError, InputError, SettingsError
from driftls.features import FeatureMap
from driftls.history import Mapped
from driftls.inputs import as_rows
from driftls.kernels import choose as kernels
from driftls.kernels.rows import first_fault
from driftls.persistence import whole
from driftls.policies.arm_index import ArmIds, ArmIndex, item_ids, plain_id, plain_ids
from driftls.policies.arms import (
    allowed_arms,
    as_block,
    first_dim,
    is_items,
    look_at,
    position_of,
    reward_of,
    rewards_of,
)
from driftls.policies.evidence import Strength, can_adapt
from driftls.policies.files import by_number, group, seeds_header, seeds_of, tracker_of, width_of
from driftls.policies.keys import row_of, waiting_of
from driftls.policies.model import Model
from driftls.policies.policy import Policy
from driftls.policies.tables import PAYS_AFTER, kind_of
from driftls.schedules import ridge
from driftls.stage import Stage
from driftls.trackers import RLS, SAGA, Tracker
from driftls.trackers.settings import whole_number
from driftls.units import Units
from driftls.widths import CentredWidth, DiagonalWidth, ExactWidth, Width

EXACT_UP_TO = 200  # features: two matrices a model, 640 kB
MOST_PRODUCTS = 2_000_000  # a choice: of exact widths for dense users, arms times features squared
FIRST_RIDGE = 4.0  # lambda, of features in units of their spread, before anything is known
TAPE = 256  # draws that a model has ready at a time
TABLE_FROM = 8  # choices among the same arms in a row


class DisjointLinUCB(Policy):
    """LinUCB with one model an arm id, made when the arm is first seen.

    Parameters
    ----------
    dim : int, optional
        Number of features of a user. Not needed where `features` tell.
    tracker : Tracker, optional
        An unused tracker, of which each arm gets a fresh copy.
    width : Width, optional
        Of each model; by default `CentredWidth()`, for a tracker without an intercept `DiagonalWidth()`. Without
        both, they are chosen at the first user, and `reason` says why: `RLS` up to 200 features, else `SAGA`; exact
        widths for dense users and few arms, else centred ones; ridges from the data, pooled over arms.
    kappa, sigmas, epsilon
        As for `LinUCB`, 1.5 standard deviations by default; the noise is estimated over all arms together.
    most_arms : int
        Beyond so many models the one that was not offered for longest is dropped.
    seed : int or Generator
        Of the policy's own randomness and of its trackers.
    features : FeatureMap, optional
        Makes rows of users that are dicts or events, such as `Features`. It is saved with the policy, which grows with a
        vocabulary.

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
        dim: int | None = None,
        *,
        tracker: Tracker | None = None,
        width: Width | None = None,
        kappa: float | None = None,
        sigmas: float = 1.5,
        epsilon: float = 0.0,
        most_arms: int = 10_000,
        seed: Seed = None,
        features: FeatureMap | None = None,
    ) -> None:
        if dim is None and features is not None:
            dim = first_dim(features) if tracker is None else tracker.dim
        dim = whole_number(dim, "dim", 1)
        self._auto = tracker is None and width is None
        if self._auto:
            self._reason = "open: tracker and width are chosen when the first user is here"
        tracker = (RLS(dim) if dim <= EXACT_UP_TO else SAGA(dim)) if tracker is None else tracker
        if tracker.dim != dim or len(tracker):
            raise SettingsError(f"tracker must be an unused one of dim={dim}, of which each arm gets a copy.")
        if isinstance(tracker.history, Mapped):
            raise SettingsError("every arm has a history of its own, and a Mapped folder serves one. Use Growing().")
        self._seeds = generator_of(seed)
        own = self._seeds.spawn(1)[0]
        if width is None:
            width = CentredWidth() if tracker.intercept else DiagonalWidth()
        super().__init__(dim, width=width, kappa=kappa, sigmas=sigmas, epsilon=epsilon, seed=own, features=features)
        self.tracker, self.most_arms = tracker, whole_number(most_arms, "most_arms", 1)
        if not (self._auto or tracker.ridge_given or kappa is not None) and can_adapt(tracker, width):
            self.strength = self._first = Strength(FIRST_RIDGE)
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

    def choose(
        self, user: Any, items: Any = None, *, ids: Any = None, key: Hashable = None, allowed: Any = None
    ) -> int:
        """The position in `ids` of the arm to show this user (a vector, a sparse row, (indices, values), or a dict).

        `items` are ids, a `pool` of them, or dicts with an "id"; what else these have is the same for every user. `key`, if
        given, keeps the choice until `learn(reward=..., key=key)`; `allowed` says which arms may be shown.
        """
        with self.lock:
            if key is not None:
                key = self.keys.new(key)
            names = self._names(ids, items)
            user = self._known_user(user)
            mask = None if allowed is None else allowed_arms(allowed, len(names))
            self._take_user(user, len(names))
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
        items: Any = None,
        ids: Any = None,
        key: Hashable = None,
    ) -> None:
        """Learn a reward: `learn(user, reward, arm=k, ids=ids)` or `learn(reward=..., key=key)`.

        It may come late and in any order. Nothing is changed if the reward or the user cannot be used.
        """
        with self.lock:
            self._must_learn()
            value = reward_of(reward)
            if key is not None:
                choice = self.keys.choice(key)
                user, name = row_of(choice, self.dim), choice.name[0]
                position = self._positions.get(name, -1)
            else:
                if user is None or arm is None or (ids is None and items is None):
                    raise InputError("learn needs learn(user, reward, arm=k, ids=ids), or learn(reward=..., key=key).")
                names = self._names(ids, items)
                position = position_of(arm, len(names))
                name = names[position]
                if names is not self._pool:
                    position = self._positions.get(name, -1)
            slot = self._known(name)
            self._take_user(user if key is not None else self._known_user(user), 1)
            self._stage.reward[0] = value
            self._learn_row(0, slot, position)
            if key is not None:
                self.keys.settle(key)

    def remember(self, key: Hashable, x: Any, name: Hashable) -> None:
        """Keep a choice that was made elsewhere until its reward comes: `learn(reward=..., key=key)`."""
        with self.lock:
            key, name, rows = self.keys.new(key), plain_id(name), self._one(self._known_user(x))
            look_at(rows, self.rows_called)
            self.keys.waiting[key] = waiting_of(rows, 0, (name,))

    def play(
        self,
        users: Any,
        rewards: Any = None,
        *,
        items: Any = None,
        ids: Any = None,
        shown: Any = None,
        rounds: int | None = None,
    ) -> NDArray[np.int64]:
        """Many users, one a round, in one compiled loop that decides as `choose` and `learn` would; returns the arms.

        rewards (rounds, K) of every arm, or (rounds,) of the arm at position `shown` (rounds,) in `ids`, which is
        learned where it is chosen; None: only choose.
        """
        with self.lock:
            names = self._names(ids, items)
            rows: Any = as_rows(self._known_users(users), self.dim, "users")
            count = rows.shape[0]
            if rounds is not None and whole_number(rounds, "rounds", 0) != count:
                raise InputError(f"rounds must be the number of users, {count}, got {rounds!r}.")
            if count == 0:
                return np.zeros(0, dtype=np.int64)
            rewards, shown = rewards_of(rewards, shown, count, len(names))
            look_at(rows, self.rows_called)
            if self.frozen:
                if rewards is not None:
                    self._must_learn()
                matrix = rows if isinstance(rows, np.ndarray) else rows.tocsr()
                return np.array([self.choose(matrix[[r]], ids=names) for r in range(count)], dtype=np.int64)
            self._start(not isinstance(rows, np.ndarray), len(names))
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
            self._must_learn()
            name = plain_id(name)
            if name in self._index.slot_of:
                raise SettingsError(f"arm id {name!r} has a model already: a warm start is for a new one.")
            self._start(sparse, 1)
            model = self._fresh_model()
            self._leave_pool()  # one of its arms may give way
            self._put_model(self._index.open(name), model)
            self._warm(model, fill, squares, n, errors)

    # -- questions -----------------------------------------------------------------------------------------------

    def scores(self, user: Any, items: Any = None, *, ids: Any = None) -> NDArray[np.float64]:
        """What each arm's model gives this user: theta.x + kappa width(x). Arms never seen are refused."""
        if self.width.samples:
            raise InputError("scores that are sampled change with every choice. Use a width that is not sampled.")
        with self.lock, self._asking() as who:
            count = who._question(user, ids, items)
            table, who.frame["table"] = who.frame["table"], 0
            try:
                who._chosen(count, only_scores=True)
                return who._scores[:count].copy()  # type: ignore[no-any-return]
            finally:
                who._question_over(table)

    def widths(self, user: Any, items: Any = None, *, ids: Any = None) -> NDArray[np.float64]:
        """How sure each arm's model is of this user, before kappa."""
        with self.lock:
            count = self._question(user, ids, items)
            try:
                if (code := kernels.widths(self.frame.address, 0, count)) < 0.0:
                    raise self._fault(int(-code))
                return np.sqrt(np.maximum(self._scores[:count], 0.0))
            finally:
                self._question_over(self.frame["table"])

    def probabilities(
        self, user: Any, items: Any = None, *, ids: Any = None, allowed: Any = None
    ) -> NDArray[np.float64]:
        """How likely each arm is to be chosen now."""
        return self._share(self.scores(user, items, ids=ids), allowed)

    def _question(self, user: Any, ids: Any, items: Any) -> int:
        names = self._names(ids, items)
        user = self._known_user(user)
        slots = [self._known(name) for name in names]
        self._take_user(user, len(names))
        self._room(len(names))
        self._slots[: len(names)] = slots
        return len(names)

    def _question_over(self, table: int) -> None:
        """The slots of the pool stand again where the table expects them."""
        self.frame["table"] = table
        if self._pool:
            self._slots[: len(self._pool)] = [self._index.slot_of[name] for name in self._pool]

    # -- users and models ----------------------------------------------------------------------------------------

    def pool(self, items: Any) -> ArmIds:
        """Ids (or items with an "id") that are looked at once, while they last: for `choose(user, pool)`."""
        return ArmIds(plain_ids(item_ids(items)))

    def _known_user(self, user: Any) -> Any:
        """A user as a row: a dict by the policy's features."""
        if type(user) is tuple or type(user) is np.ndarray:
            return user
        if isinstance(user, Mapping):
            return self._made(user)
        return self._fitting(user) if self._is_made(user) else user

    def _known_users(self, users: Any) -> Any:
        """Many of them."""
        if self.features is not None and is_items(users):
            users = self.features.table(users)  # type: ignore[attr-defined]
        return self._fitting(users) if self._is_made(users) else users

    def _names(self, ids: Any, items: Any = None) -> list[Hashable]:
        if ids is None:
            ids = items if type(items) is ArmIds else item_ids(items)
        names = ids.tolist() if isinstance(ids, np.ndarray) else ids
        if isinstance(names, list) and len(names) == len(self._pool):
            try:
                if names and names == self._pool:
                    return self._pool
            except ValueError:  # an array among the ids
                pass
        names = ids if type(ids) is ArmIds else plain_ids(ids)
        if not 0 < len(names) <= self.most_arms:
            raise InputError(f"{len(names)} arms, but 1 ... most_arms={self.most_arms} models are kept.")
        return names

    def _one(self, user: Any) -> Any:
        """One user, as a block of one row."""
        rows: Any = as_rows(as_block(user, "a user"), self.dim, "a user")
        if rows.shape[0] != 1:
            raise InputError(f"a user must be one row, got {rows.shape[0]}.")
        return rows

    def _take_user(self, user: Any, arms: int) -> None:
        """Copy a user to where kernels read it; the first one decides whether users are dense or sparse."""
        if self._stage.take_row(user):
            return
        rows = self._one(user)
        if self._stage.sparse is None:
            look_at(rows, self.rows_called)
            self._start(not isinstance(rows, np.ndarray), arms)
        self._stage.take(rows)

    def _start(self, sparse: bool, arms: int) -> None:
        """The first user is here: dense or sparse, from now on."""
        if self._stage.sparse is None:
            if self._auto:
                self._decide(sparse, arms)
            self._start_rows(sparse)

    def _decide(self, sparse: bool, arms: int) -> None:
        """Choose tracker and width: what is exact where that is affordable, and no worse than exact where it is not."""
        dim = self.dim
        small = dim <= EXACT_UP_TO and not (self.features is not None and self.features.grows)  # and stays so
        exact = not sparse and small and arms * dim * dim <= MOST_PRODUCTS
        self.tracker = RLS(dim) if small else SAGA(dim)
        self.width = ExactWidth() if exact else CentredWidth()
        kind = "sparse" if sparse else "dense"
        if exact:
            self._reason = f"exact: {dim} dense features and {arms} arms, for which exact widths are affordable"
        elif small:
            self._reason = f"fast: {dim} {kind} features and {arms} arms: exact models, with centred diagonal widths"
        else:
            self._reason = (
                f"fast: {dim} {kind} features, too many for a matrix an arm: SAGA, with centred diagonal widths"
            )
        self._auto = False
        if self.sigmas is not None and can_adapt(self.tracker, self.width):
            self.strength = self._first = Strength(FIRST_RIDGE)

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

    def _grow_models(self) -> None:
        if self._units is not None:
            self._units.grow(self.dim)
        self._leave_pool()
        if self._stage.sparse is None:
            self._stage = Stage(self.dim)
            return
        self._start_rows(self._stage.sparse)
        for slot, model in enumerate(self._models):
            if model is not None:
                model.tracker.grow(self.dim)
                self._put_model(slot, Model(model.tracker, self.width.grow(model.width, self._draws)))

    def _fresh_model(self) -> Model:
        kept = seeds_header(self._seeds)
        tracker = self.tracker.fresh(self._seeds.spawn(1)[0], TAPE)
        if self.strength is not None:
            tracker.set_ridge(ridge(self.strength.ridge), rewrite=False)
        try:
            tracker.start(bool(self._stage.sparse), self._units)
            return self._new_model(tracker, 0)
        except DriftlsError:  # a tracker and a width that do not go together: nothing was started
            self._seeds = seeds_of(kept)
            if not len(self._index):
                self._stage, self._units = Stage(self.dim), None
            raise

    @property
    def units(self) -> Units | None:
        return self._units

    def _start_rows(self, sparse: bool) -> None:
        """The first user is here: dense or sparse, from now on, and measured in units that all models share."""
        tracker = self.tracker
        self._stage = Stage(self.dim, constant=tracker.intercept)
        self._stage.start(sparse)
        if self._units is None and (tracker.scale or tracker.intercept):
            self._units = Units(self.dim, sparse=sparse, scale=tracker.scale, intercept=tracker.intercept)
            if self.strength is not None:
                self._units.frame["constant"] = self.strength.constant
        if self._units is not None:
            self._stage.measure(self._units.frame)
        self.frame["arms"] = self._stage.frame

    def _fill_table(self, count: int) -> None:
        own = self.width.own_sums(self.tracker)
        kind = kind_of(self.width, bool(self._stage.sparse), False, own=own)
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
                "reason": self._reason,
                "auto": self._auto,
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
        made._reason, made._auto = str(header["reason"]), bool(header["auto"])
        made._seeds = seeds_of(header["seeds"])
        if header["sparse"] is not None:
            made._start(bool(header["sparse"]), 1)
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
