"""One model shared by all arms: theta.x + kappa width(x) over any tracker and any width."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from driftls.draws import Seed
from driftls.errors import DriftlsError, InputError, SettingsError
from driftls.features import FeatureMap
from driftls.features.crossed import CrossedArms, with_constants
from driftls.history import Mapped
from driftls.inputs import Rows, as_numbers
from driftls.kernels import choose as kernels
from driftls.persistence import whole
from driftls.policies.arm_index import ArmIndex, plain_ids
from driftls.policies.arms import (
    arm_rows,
    as_block,
    check_parts,
    ids_of,
    is_items,
    is_user,
    look_at,
    one_arm,
    plain_rows,
    rounds_of,
)
from driftls.policies.files import grouped, joined, settings_of, tracker_of
from driftls.policies.models import Model
from driftls.policies.policy import Policy
from driftls.policies.tables import TABLE_FROM, CrossedStage
from driftls.state import refuse
from driftls.trackers import Tracker
from driftls.trackers.settings import whole_number
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

    _gives_constants = False  # to the blocks of crosses, so that one arm can be more popular than another

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
        check_parts(tracker, width)
        super().__init__(
            tracker.dim, width=width, kappa=kappa, sigmas=sigmas, epsilon=epsilon, seed=seed, features=features
        )
        self.tracker, self.lock = tracker, tracker.lock  # whoever uses the tracker by itself takes turns too
        self.forget_after = whole_number(forget_after, "forget_after", 0)
        self._index = ArmIndex()  # which id has which slot of a width that keeps something for each
        self._crossed = CrossedStage(self.frame, self._models.table)

    @property
    def theta(self) -> NDArray[np.float64]:
        """The present estimate; constants that the policy gave to blocks of crosses are in `tracker.theta` alone."""
        theta = self.tracker.theta
        return theta.reshape(-1, self._user + 1)[:, :-1].ravel()[: self.dim] if self._user else theta

    def warm(self, fill: Any, *, sparse: bool, squares: NDArray[np.float64], n: int, errors: float) -> None:
        """Start from n rows that were seen elsewhere: `fill(tracker)` puts the tracker there.

        squares: their sums of squares; errors: the sum of squared errors, from which kappa is estimated.
        """
        with self.lock:
            self._must_learn()
            if len(self._models):
                raise SettingsError("a warm start is for a policy that has seen nothing.")
            self._open_model(self._decide(sparse, False, False))
            self._models.warm(self._models[0], fill, squares, n, errors)

    # -- what a caller passes ------------------------------------------------------------------------------------

    def pool(self, items: Any) -> Any:
        """Items (or arms) that are looked at once, while they last: for `choose(user, pool)`, or `choose(pool)`."""
        with self.lock:
            if self.features is not None and hasattr(self.features, "pool"):
                return self.features.pool(items)
            rows, _ = arm_rows(items, self.dim)
            look_at(rows)
            return copy.deepcopy(rows)

    def _round(self, arms: Any, items: Any, ids: Any, *, learn: bool = False, arm: Any = None) -> tuple[Any, int, Any]:
        names = ids_of(ids, len(items)) if ids is not None and hasattr(items, "__len__") else None
        if items is not None or self.features is not None or is_user(arms):
            arms = self._arms_of(arms, items)
        rows, count = arm_rows(as_block(arms) if learn and arm is None else arms, self.dim)
        return rows, count, names if names is not None or ids is None else ids_of(ids, count)

    def _many(self, arms: Any, items: Any, ids: Any, rewards: Any, rounds: Any) -> tuple[Any, int, Any, Any]:
        if items is not None:
            features: Any = self.features
            if not hasattr(features, "rounds"):
                raise InputError("users and items need features: build the policy with features=Features(...).")
            arms = list(arms) if isinstance(arms, Iterator) else arms
            made = features.rounds(arms, items)
            rounds = None if rewards is not None else len(arms)
            arms = made
        rows, _ = arm_rows(self._arms_of(arms), self.dim, many=True)
        names = None if ids is None else plain_ids(ids)
        rewards = None if rewards is None else as_numbers(rewards, "rewards must be a matrix")
        rounds, count, still = rounds_of(rows, rewards, names, rounds)
        return rows, count, names, np.arange(rounds, dtype=np.int64) * (0 if still else count)

    def _arms_of(self, arms: Any, items: Any = None) -> Any:
        """Arms, made by the policy's features where they are those of a user and items."""
        if items is not None:
            return self._made(arms, items)
        if is_user(arms):
            raise InputError(
                "a user alone, but no items: choose(user, items), learn(user, reward, items=items, arm=k)."
            )
        if self.features is not None:
            return self._made({}, arms) if is_items(arms) else self._own(arms)
        return arms

    def _row(self, x: Any) -> Any:
        rows, count, _ = self._round(x, None, None, learn=True)
        if count != 1:
            raise InputError(f"a choice must be one row, got {count}.")
        return plain_rows(rows, self.dim)

    def _row_of(self, rows: Any, k: int) -> tuple[Any, int]:
        if self._user and isinstance(rows, CrossedArms) and not rows.row.indices.size:  # a 0 says in which block
            zero = Rows(np.zeros(1, np.int32), np.zeros(1), np.array([0, 1]), rows.row.dim)
            rows = CrossedArms(zero, rows.blocks, rows.count, rows.shared)
        return one_arm(rows, k, self.dim)

    def _inside(self, rows: Any) -> Any:
        """Rows as the model has them, where the policy gives each block of crosses a constant."""
        if isinstance(rows, CrossedArms) and rows.row.dim == self._user:
            return rows.with_constant()
        return with_constants(plain_rows(rows, self.dim), self._user)

    def _have_constants(self, user: int) -> None:
        """Before the first rows: users have so many features, and each block a constant behind them (0: none has)."""
        self._user = user
        dim = self._with_constants(self.dim)
        self.tracker.dim = dim
        self.tracker.unstart()
        self._models.grow(dim)

    # -- rows on their way to kernels ----------------------------------------------------------------------------

    def _take(self, rows: Any, count: int, names: Any) -> None:
        self._stage(rows, count, count, recurring=names is not None)
        if self._models.width.keeps_arms:
            self._give_slots(count, names)

    def _take_many(self, rows: Any, count: int, names: Any, first: Any) -> None:
        """Copy the rows of many rounds to the stage, and look at all of them before the first is played."""
        total = rows.shape[0]
        rows = self._stage(rows, count, total, recurring=names is not None)
        self._models.look_at(rows.row.shape[0] if self._crossed.on else total)
        if self.width.keeps_arms:
            self._give_slots(count, names)
        if self._crossed.on and first.size >= TABLE_FROM:
            self._crossed.fill(rows, self._models.stage)

    def _played(self, names: Any) -> None:
        if names is not None:
            self._index.note(names, self._models.rounds - 1)

    def _stage(self, rows: Any, arms: int, count: int, *, recurring: bool, whole: bool = False) -> Any:
        """Copy so many rows, of so many arms a round, to where kernels read them (whole: a row for each arm), and return them
        as they are there; the first ones decide what the model is.
        """
        models = self._models
        if models.stage.sparse is None:
            self._begin(rows, recurring)
        if arms > models.slots.size:
            models.room(arms)
        if self._user:
            rows = self._inside(rows)
        rows = plain_rows(rows, models.dim) if whole else rows
        if not self._crossed.take(rows, models.stage):
            models.stage.take(plain_rows(rows, models.dim), 0, count)
        return rows

    def _give_slots(self, count: int, names: list[Hashable] | None) -> None:
        """Write down the slots of the arms of a round, as the width has something in them; new ids get one."""
        models = self._models
        if names is None:
            models.slots[:count] = -1
            return
        models.look_at(count)
        new, slot_of = self._index.offer(names, self._open_slot, models.rounds), self._index.slot_of
        models.slots[:count] = [slot_of[name] for name in names]
        if new:
            fresh = np.isin(models.slots[:count], [slot_of[name] for name in new])
            models.slots[:count][fresh] = -2 - models.slots[:count][fresh]  # for the kernel to open
        kernels.open_arms(self.frame, 0, count)

    def _open_slot(self, name: Hashable) -> None:
        index, width, now = self._index, self._models[0].width, self._models.rounds
        if len(index) >= width.slots:
            for old in index.stale(now - self.forget_after):
                width.drop(index.drop(old))
        if len(index) >= width.slots:  # none was free
            width.grow(2 * width.slots)
        index.open(name, now)

    def _slot(self, name: Hashable, row: int) -> int:
        """The slot of an arm id, -1 where it has none, or comes with other features than it had."""
        slot = self._index.slot_of.get(name, -1)
        return slot if slot >= 0 and kernels.is_same(self.frame, row, slot) != 0.0 else -1

    def _question(self, arms: Any, items: Any, ids: Any, *, whole: bool = False) -> int:
        rows, count, names = self._round(arms, items, ids)
        self._stage(rows, count, count, recurring=names is not None, whole=whole)
        self._models.table.leave()  # which has rounded otherwise
        if self.width.keeps_arms:
            if names is not None:
                self._models.look_at(count)
            self._models.slots[:count] = -1 if names is None else [self._slot(name, k) for k, name in enumerate(names)]
        return count

    def _learn(self, rows: Any, k: int, name: tuple[Hashable, ...], reward: float) -> None:
        models, first, arm = self._models, not len(self._models), k
        if first:
            self._begin(rows, recurring=bool(name))
        try:
            rows = self._inside(rows) if self._user else rows
            if not self._crossed.take(rows, models.stage):
                models.stage.take(*one_arm(rows, k, models.dim), 1)
                k = 0
            slot = self._slot(name[0], k) if name and self.width.keeps_arms else -1
            models.learn(k, slot, 0, reward, arm)
        except DriftlsError:
            if first and not len(self.tracker):  # a refused row decides nothing: the next may be of the other kind
                self._have_constants(0)
                models.clear()
                self._crossed = CrossedStage(self.frame, models.table)
            raise

    # -- the model -----------------------------------------------------------------------------------------------

    def _begin(self, rows: Any, recurring: bool) -> None:
        """The first arms are here and are looked at: start the tracker, dense or sparse, and its width."""
        look_at(rows)
        sparse, crossed = not isinstance(rows, np.ndarray), isinstance(rows, CrossedArms)
        self._open_model(self._decide(sparse, recurring, crossed), rows.row.dim if crossed else 0)

    def _decide(self, sparse: bool, recurring: bool, crossed: bool) -> bool:
        """Choose tracker and width, where that is left to the policy, and whether rows are kept sparse."""
        return sparse

    def _open_model(self, sparse: bool, user: int = 0) -> None:
        """Start the tracker and its width; crosses that are kept sparse are measured as the user's features, so many."""
        tracker = self.tracker
        if tracker.held:
            raise SettingsError("this tracker is another policy's. Give each policy a tracker of its own.")
        unused = tracker.sparse is None
        if unused:
            if user and self._gives_constants and tracker.scale and tracker.intercept:
                self._have_constants(user)
            tracker.start(sparse)
            if user and sparse and tracker.units is not None:
                tracker.units.repeat(user + bool(self._user), bool(self._user))
        try:
            model = Model(tracker, self.width.open(tracker, self._models.draws, FIRST_SLOTS))
        except BaseException:
            if unused:
                self._have_constants(0)
            raise
        self._open_rows(model)

    def _open_rows(self, model: Model) -> None:
        """Take rows for this model from now on."""
        tracker, models = model.tracker, self._models
        tracker.held = True
        models.put(0, model)
        models.units = tracker.units
        if tracker.units is not None:
            tracker.units.follow(self.features)
        models.take_rows(bool(tracker.sparse))
        self._crossed.open(model.width)

    def _grow_models(self) -> None:
        if len(self._models):
            self._crossed.leave(self._models.stage)
            self._open_rows(Model(self.tracker, self._models[0].width.over_more(self._models.draws)))
        else:
            self._models.take_rows(None)

    # -- files ---------------------------------------------------------------------------------------------------

    def _snapshot_models(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        header["tracker"], parts = self.tracker.snapshot()
        header |= {"forget_after": self.forget_after, "ids": self._index.header(), "model": None}
        arrays |= joined({"tracker": parts})
        if len(self._models):
            width = self._models[0].width
            numbers, own = width.snapshot()
            header["model"] = {"slots": width.slots, "numbers": numbers}
            arrays |= joined({"width": own})

    @classmethod
    def from_snapshot(cls, header: dict[str, Any], arrays: dict[str, Any], **functions: Any) -> Self:
        """The policy that `snapshot` wrote down."""
        policy = cls.__new__(cls)
        tracker = tracker_of(header["tracker"], grouped(arrays)["tracker"], functions)
        SharedPolicy.__init__(policy, tracker, forget_after=header["forget_after"], **settings_of(header))
        policy._restore(header, arrays)
        return policy

    def _restore(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        model = header["model"]
        slots = 0 if model is None else whole(model, "slots")
        self._index.restore(header["ids"], slots)
        if model is not None:
            refuse(self.tracker.sparse is None or not self.width.keeps_arms <= slots <= 2**24, "model")
            width = self.width.opened(self.tracker, self._models.draws, slots)
            width.restore(model["numbers"], grouped(arrays)["width"])
            self._open_rows(Model(self.tracker, width))
            if (units := self.tracker.units) is not None and units.block:
                self._user, self.dim = units.period - 1, whole(header, "dim")
                refuse(self._with_constants(self.dim) != self.tracker.dim, "dim")
        self._restore_common(header, arrays)
        self._models.check_prior(self.tracker)

    def functions(self) -> dict[str, Any]:
        if isinstance(self.tracker.history, Mapped):
            raise SettingsError("a policy over a Mapped history cannot be copied: a folder has one owner. Use save().")
        return super().functions()

    def __repr__(self) -> str:
        kappa = f"sigmas={self.sigmas}" if self.sigmas else f"kappa={self.kappa}"
        return f"{type(self).__name__}({self.tracker!r}, {self.width!r}, {kappa}, epsilon={self.epsilon})"
