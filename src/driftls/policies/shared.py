"""One model shared by all arms: theta.x + kappa width(x) over any tracker and any width."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from driftls.draws import Seed
from driftls.errors import CorruptFileError, DriftlsError, InputError, SettingsError
from driftls.features import FeatureMap
from driftls.features.crossed import CrossedArms
from driftls.history import Mapped
from driftls.inputs import Rows, as_numbers
from driftls.kernels import choose as kernels
from driftls.kernels.rows import first_fault
from driftls.persistence import whole
from driftls.policies.arm_index import plain_id, plain_ids
from driftls.policies.arms import (
    allowed_arms,
    arm_rows,
    as_block,
    ids_of,
    is_items,
    look_at,
    one_arm,
    plain_rows,
    position_of,
    reward_of,
    rewards_of,
    rounds_of,
)
from driftls.policies.crossed import TABLE_FROM, CrossedStage
from driftls.policies.files import group, tracker_of, width_of
from driftls.policies.keys import row_of, waiting_of
from driftls.policies.model import Model
from driftls.policies.policy import Policy
from driftls.policies.slots import ArmSlots
from driftls.stage import Stage
from driftls.trackers import Tracker
from driftls.trackers.settings import whole_number
from driftls.units import Units
from driftls.widths import Width

FIRST_SLOTS = 16


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
    features : FeatureMap, optional
        Makes arms of dicts, tables and events, such as `Features`: `choose(user, items)`. It is saved with the policy,
        which grows with a vocabulary.

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
        features: FeatureMap | None = None,
    ) -> None:
        if not isinstance(tracker, Tracker) or not isinstance(width, Width):
            raise SettingsError(f"a policy needs a tracker and a width, got {tracker!r} and {width!r}.")
        super().__init__(
            tracker.dim, width=width, kappa=kappa, sigmas=sigmas, epsilon=epsilon, seed=seed, features=features
        )
        self.tracker, self.lock = tracker, tracker.lock  # whoever uses the tracker by itself takes turns too
        self.forget_after = whole_number(forget_after, "forget_after", 0)
        self._arm_slots = ArmSlots(self.frame, self.forget_after)
        self._crossed = CrossedStage(self.frame)

    @property
    def theta(self) -> NDArray[np.float64]:
        """The present estimate."""
        return self.tracker.theta

    @property
    def units(self) -> Units | None:
        return self.tracker.units

    # -- choosing and learning -----------------------------------------------------------------------------------

    def choose(
        self, arms: Any, items: Any = None, *, ids: Any = None, key: Hashable = None, allowed: Any = None
    ) -> int:
        """The position of the arm to show: `choose(arms)`, or by the policy's features `choose(user, items)`.

        Parameters
        ----------
        arms : (K, d) array, sparse matrix, or `CrossedArms`
            A row for each arm; with `items`, the user, a dict.
        items : list of dicts or ids, table, or `pool`, optional
            What can be shown. Without a user: `choose(items)`.
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
            staged = type(arms) is Rows and items is None and self._take_plain(arms)
            rows, count = (arms, arms.shape[0]) if staged else self._arm_rows(arms, items)
            names = ids_of(ids, count)
            mask = None if allowed is None else allowed_arms(allowed, count)
            if not staged:
                self._take(rows, count, recurring=names is not None)
            self._offer(names, count)
            chosen = self._chosen(count, allowed=mask)
            self._rounds += 1
            if key is not None:
                name = () if names is None else (names[chosen],)
                self.keys.waiting[key] = waiting_of(*one_arm(rows, chosen, self.dim), name)
            return chosen

    def learn(
        self,
        arms: Any = None,
        reward: float | None = None,
        *,
        arm: int | None = None,
        items: Any = None,
        ids: Any = None,
        key: Hashable = None,
    ) -> None:
        """Learn a reward: `learn(arms, reward, arm=k)`, `learn(x, reward)` of one row, or `learn(reward=..., key=key)`.

        Of dicts, `learn(user, reward, items=items, arm=k)`. It may come late and in any order. Nothing is changed if the
        reward or the row cannot be used.
        """
        with self.lock:
            self._must_learn()
            value = reward_of(reward)
            if key is not None:
                choice = self.keys.choice(key)
                rows, k, name = row_of(choice, self.dim), 0, choice.name
            else:
                if arms is None:
                    raise InputError("learn needs learn(arms, reward, arm=k), or learn(reward=..., key=key).")
                if ids is None and items is None and type(arms) is Rows and self._learn_plain(arms, arm, value):
                    return
                rows, count = self._arm_rows(arms, items, single=arm is None)
                if arm is None and count != 1:
                    raise InputError(f"{count} arms and one reward: say which of them it belongs to, with arm=.")
                k = 0 if arm is None else position_of(arm, count)
                names = ids_of(ids, count)
                name = () if names is None else (names[k],)
            self._learn_one(rows, k, name, value)
            if key is not None:
                self.keys.settle(key)

    def _learn_plain(self, rows: Rows, arm: Any, value: float) -> bool:
        """One of some sparse arms in plain arrays, for a model that is there; False if they must be looked at."""
        if not self._models or self._crossed.on or type(arm) is not int or arm < 0:
            return False
        if not self._stage.take_one_of(rows, arm):
            return False
        self._stage.reward[0] = value
        self._learn_row(0, -1, 0)
        return True

    def _learn_one(self, rows: Any, k: int, name: tuple[Hashable, ...], value: float) -> None:
        """Row k, with its reward and perhaps the id of its arm."""
        first = not self._models
        if first:
            self._begin(rows, recurring=bool(name))
        try:
            row = self._take_arm(rows, k)
            self._stage.y[row] = value
            slot = -1
            if name and self.width.keeps_arms:
                slot = self._arm_slots.index.slot_of.get(name[0], -1)
                slot = slot if slot >= 0 and self._arm_slots.same(row, slot) else -1
            self._learn_row(row, slot, 0)
        except DriftlsError:
            if first and not len(self.tracker):  # a refused row decides nothing
                self._close()
            raise

    def remember(self, key: Hashable, x: Any, name: Hashable = None) -> None:
        """Keep a choice that was made elsewhere until its reward comes: `learn(reward=..., key=key)`."""
        with self.lock:
            key = self.keys.new(key)
            rows, count = self._arm_rows(x, single=True)
            if count != 1:
                raise InputError(f"a choice must be one row, got {count}.")
            rows, k = one_arm(rows, 0, self.dim)
            look_at(rows)
            self.keys.waiting[key] = waiting_of(rows, k, () if name is None else (plain_id(name),))

    def play(
        self,
        arms: Any,
        rewards: Any = None,
        *,
        items: Any = None,
        shown: Any = None,
        ids: Any = None,
        rounds: int | None = None,
    ) -> NDArray[np.int64]:
        """Many rounds in one compiled loop, decision by decision equal to `choose` and `learn`; returns the choices.

        Parameters
        ----------
        arms : (rounds K, d) array or sparse matrix, or `CrossedArms`
            Round after round; or (K, d), the same arms in every round. With `items`, the users, a table or list of dicts.
        rewards : (rounds, K), or (rounds,) with `shown`, or None
            Of every arm; or of the arm that a log showed, which is learned where it is chosen. None: only choose.
        shown : (rounds,) array of int, optional
            Positions of the arms that the log showed; -1 for none of them.
        ids : list, optional
            The K ids of the pool.
        rounds : int, optional
            Where neither rewards nor ids tell.
        """
        with self.lock:
            if items is not None:
                arms, rounds = self._made_rounds(arms, items), None if rewards is not None else len(arms)
            rows, total = self._arm_rows(arms, many=True)
            names = None if ids is None else plain_ids(ids)
            rewards = None if rewards is None else as_numbers(rewards, "rewards must be a matrix")
            rounds, count, still = rounds_of(rows, rewards, names, rounds)
            if rounds == 0:
                return np.zeros(0, dtype=np.int64)
            rewards, shown = rewards_of(rewards, shown, rounds, count)
            if self.frozen:
                if rewards is not None:
                    self._must_learn()
                return self._choices(rows, rounds, count, still, names)
            self._take(rows, total, recurring=names is not None)
            self._look_at_stage(
                *((rows.row.dim, rows.row.shape[0]) if self._crossed.on else (self._stage.inner, total))
            )
            self._offer(names, count)
            if self._crossed.on and rounds >= TABLE_FROM:
                self._crossed.fill(rows, self._stage)
            first = np.arange(rounds, dtype=np.int64) * (0 if still else count)
            chosen = self._play(count, rounds, rewards, shown, first)
            if names is not None:
                self._arm_slots.index.offer(names, self._rounds - 1)
            return chosen  # type: ignore[no-any-return]

    def warm(self, fill: Any, *, sparse: bool, squares: NDArray[np.float64], n: int, errors: float) -> None:
        """Start from n rows that were seen elsewhere: `fill(tracker)` puts the tracker there.

        squares: their sums of squares; errors: the sum of squared errors, from which kappa is estimated.
        """
        with self.lock:
            self._must_learn()
            if self._models:
                raise SettingsError("a warm start is for a policy that has seen nothing.")
            self._open_model(self._decide(sparse, False, False))
            self._warm(self._models[0], fill, squares, n, errors)  # type: ignore[arg-type]

    # -- questions -----------------------------------------------------------------------------------------------

    def scores(self, arms: Any, items: Any = None, *, ids: Any = None) -> NDArray[np.float64]:
        """theta.x + kappa width(x) of each arm."""
        if self.width.samples:
            raise InputError("scores that are sampled change with every choice. Use a width that is not sampled.")
        with self.lock, self._asking() as who:
            count = who._question(arms, items, ids)
            who._chosen(count, only_scores=True)
            return who._scores[:count].copy()  # type: ignore[no-any-return]

    def widths(self, arms: Any, items: Any = None, *, ids: Any = None) -> NDArray[np.float64]:
        """How sure the policy is of each arm, before kappa."""
        with self.lock, self._asking() as who:
            count = who._question(arms, items, ids, whole=True)
            if (code := kernels.widths(who.frame.address, 0, count)) < 0.0:
                raise who._fault(int(-code))
            return np.sqrt(np.maximum(who._scores[:count], 0.0))  # type: ignore[no-any-return]

    def probabilities(
        self, arms: Any, items: Any = None, *, ids: Any = None, allowed: Any = None
    ) -> NDArray[np.float64]:
        """How likely each arm is to be chosen now."""
        if self.epsilon < 1.0:
            return self._share(self.scores(arms, items, ids=ids), allowed)
        with self.lock:
            rows, count = self._arm_rows(arms, items)
            ids_of(ids, count)
            look_at(rows)
            return self._share(np.zeros(count), allowed)

    def _question(self, arms: Any, items: Any, ids: Any, *, whole: bool = False) -> int:
        """Stage arms without giving out slots: unknown ids are scored as arms without one. whole: a row for each."""
        rows, count = self._arm_rows(arms, items)
        names = ids_of(ids, count)
        self._take(plain_rows(rows, self.dim) if whole else rows, count, recurring=names is not None)
        if self.width.keeps_arms:
            if names is not None:
                self._look_at_stage(self._stage.inner, count)
            self._slots[:count] = -1 if names is None else self._arm_slots.find(names)
        return count

    # -- rows ---------------------------------------------------------------------------------------------------

    def pool(self, items: Any) -> Any:
        """Items (or arms) that are looked at once, while they last: for `choose(user, pool)`, or `choose(pool)`."""
        with self.lock:
            if self.features is not None and hasattr(self.features, "pool"):
                return self.features.pool(items)
            rows, _ = arm_rows(items, self._features_of(items))
            look_at(rows)
            return copy.deepcopy(rows)

    def _arm_rows(self, arms: Any, items: Any = None, *, many: bool = False, single: bool = False) -> tuple[Any, int]:
        """Arms as rows, and how many they are; those of a user and items are made by the policy's features."""
        if items is not None:
            arms = self._made(arms, items)
        elif isinstance(arms, dict):
            raise InputError(
                "a user alone, but no items: choose(user, items), learn(user, reward, items=items, arm=k)."
            )
        elif self.features is not None and is_items(arms):
            arms = self._made({}, arms)
        elif self._is_made(arms):
            arms = self._fitting(arms)
        return arm_rows(as_block(arms) if single else arms, self._features_of(arms), many=many)

    def _features_of(self, arms: Any) -> int:
        """How many features these arms should have."""
        return self.dim

    def _made_rounds(self, users: Any, items: Any) -> Any:
        """Every user with every item."""
        features: Any = self.features
        if not hasattr(features, "rounds"):
            raise InputError("users and items need features: build the policy with features=Features(...).")
        return self._fitting(features.rounds(users, items))

    def _choices(self, rows: Any, rounds: int, count: int, still: bool, names: Any) -> NDArray[np.int64]:
        """Many rounds of a frozen policy, one by one."""
        rows = plain_rows(rows, self.dim)
        rows = rows if isinstance(rows, np.ndarray) else rows.tocsr()
        first = [0 if still else r * count for r in range(rounds)]
        return np.array([self.choose(rows[at : at + count], ids=names) for at in first], dtype=np.int64)

    def _grow_models(self) -> None:
        if self._models:
            self._crossed.leave(self._stage)
            self._open_rows(Model(self.tracker, self.width.grow(self._models[0].width, self._draws)))  # type: ignore[union-attr]
        else:
            self._await_rows()

    def _take(self, rows: Any, count: int, *, recurring: bool = False) -> None:
        """Copy arms to where kernels read them; the first ones decide what the model is."""
        if not self._models:
            self._begin(rows, recurring)
        self._room(count)
        if isinstance(rows, CrossedArms) and self._crossed.can:
            self._crossed.take(rows, self._stage)
        else:
            self._crossed.leave(self._stage)
            self._stage.take(plain_rows(rows, self.dim))

    def _take_plain(self, rows: Rows) -> bool:
        """Sparse arms in plain arrays, for a model that is there, at once; False if they must be looked at."""
        if rows.dim != self.dim or not self._models or self._crossed.on or not self._stage.take_block(rows):
            return False
        # crossed arms that were only learned have lines, but no room for their scores
        return rows.shape[0] <= self._slots.size

    def _take_arm(self, rows: Any, k: int) -> int:
        """Copy the row of arm k to where kernels read it, and tell which row it is there."""
        if isinstance(rows, CrossedArms) and self._crossed.can:
            self._crossed.take(rows, self._stage)
            return k
        self._crossed.leave(self._stage)
        self._stage.take_one(*one_arm(rows, k, self.dim))
        return 0

    def _begin(self, rows: Any, recurring: bool) -> None:
        """The first arms are here and are looked at: start the tracker, dense or sparse, and its width."""
        look_at(rows)
        if rows.shape[1] > self.dim:
            self.grow(rows.shape[1])
        sparse = not isinstance(rows, np.ndarray)
        self._open_model(self._decide(sparse, recurring, isinstance(rows, CrossedArms)))

    def _decide(self, sparse: bool, recurring: bool, crossed: bool) -> bool:
        """Choose tracker and width, where that is left to the policy, and whether rows are kept sparse."""
        return sparse

    def _adopt(self, tracker: Tracker, width: Width, sigmas: float) -> None:
        """From the first arms on, use these parts."""
        tracker.lock = self.lock  # which other threads may be waiting for
        self.tracker, self.width = tracker, width
        self._need = width.draws(self.dim) + 1
        self.frame["draws"] = 2 * self._need
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
        tracker.held = True
        self._put_model(0, model)
        self._stage = Stage(self.dim, constant=tracker.intercept)
        self._stage.start(bool(tracker.sparse))
        if tracker.units is not None:
            self._stage.measure(tracker.units.frame)
        self._stage.frame["slots"] = self._stage.scratch["slots"] = self._slots
        self.frame["arms"] = self._stage.frame
        self._crossed.open(tracker, self.width)

    def _close(self) -> None:
        """The first row was refused: the next one may be of the other kind."""
        self._models.clear()
        self.tracker.unstart()
        self._crossed = CrossedStage(self.frame)
        self._await_rows()

    def _await_rows(self) -> None:
        self._stage = Stage(self.dim)
        self._stage.frame["slots"] = self._stage.scratch["slots"] = self._slots

    def _look_at_stage(self, features: int, count: int) -> None:
        """Refuse rows of the stage that no kernel should read."""
        if code := int(first_fault(self._stage.frame.address, features, count)):
            self.frame["fault_row"] = code // 8 - 1
            raise self._fault(code % 8)

    def _offer(self, names: list[Hashable] | None, count: int) -> None:
        """The slots of the arms of the stage, where the width keeps something for each arm that has an id."""
        if not self.width.keeps_arms:
            return
        if names is None:
            self._arm_slots.none(count)
            return
        self._look_at_stage(self._stage.inner, count)
        self._arm_slots.offer(names, self._models[0].width, self._rounds)  # type: ignore[union-attr]

    # -- files ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Header and arrays from which `from_snapshot` makes the same policy."""
        with self.lock:
            header, arrays = self._common()
            header["tracker"], parts = self.tracker.snapshot()
            header |= {"forget_after": self.forget_after, "ids": self._arm_slots.index.header(), "model": None}
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
        model = header["model"]
        self._arm_slots.restore(header["ids"], 0 if model is None else whole(model, "slots"))
        if model is not None:
            if self.tracker.sparse is None or not model["slots"] <= 2**24:
                raise CorruptFileError(
                    "the model of the policy does not fit its tracker. Restore the file from a copy."
                )
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
