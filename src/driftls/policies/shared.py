"""One model shared by all arms: theta.x + kappa width(x) over any tracker and any width."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import DriftlsError, InputError, SettingsError
from driftls.features.crossed import CrossedArms, with_constants
from driftls.inputs import Rows, as_numbers
from driftls.kernels import choose as kernels
from driftls.policies.arm_index import plain_ids
from driftls.policies.arms import arm_rows, as_block, fits, is_items, is_user, look_at, one_arm, plain_rows, rounds_of
from driftls.policies.models import Model
from driftls.policies.policy import Policy
from driftls.state import refuse
from driftls.trackers import Tracker
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
            self._open(sparse)
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

    def _round(self, arms: Any, items: Any, ids: Any, *, arm: Any = None, one: bool = False) -> tuple[Any, int, Any]:
        names = None if ids is None else plain_ids(ids)
        if names is not None and hasattr(items, "__len__"):
            fits(names, len(items))
        if items is not None or self.features is not None or is_user(arms):
            arms = self._arms_of(arms, items)
        rows, count = arm_rows(as_block(arms) if one else arms, self.dim)
        return rows, count, names if names is None else fits(names, count)

    def _many(self, arms: Any, items: Any, ids: Any, rewards: Any, rounds: Any) -> tuple[Any, int, Any, Any]:
        if items is not None:
            features: Any = self.features
            if not hasattr(features, "rounds"):
                raise InputError("users and items need features: build the policy with features=Features(...).")
            arms = list(arms) if isinstance(arms, Iterator) else arms
            arms, rounds = features.rounds(arms, items), None if rewards is not None else len(arms)
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

    def _stage(self, rows: Any, count: int, names: Any, *, rounds: int = 0, whole: bool = False) -> None:
        models = self._models
        if models.stage.sparse is None:
            self._begin(rows, count, recurring=names is not None)
        if count > models.slots.size:
            models.room(count)
        if self._user:
            rows = self._inside(rows)
        rows = plain_rows(rows, models.dim) if whole else rows
        if not models.crossed.take(rows, models.stage, rounds or 1):
            models.stage.take(plain_rows(rows, models.dim), 0, None if rounds else count)

    def _offer(self, names: Any, count: int, *, rounds: int = 1, ask: bool = False) -> None:
        """Slots are those of a width that keeps something for arms that recur."""
        models, index = self._models, self._index
        if names is None:
            models.slots[:count] = -1
            return
        models.look_at(count)
        if ask:
            models.slots[:count] = [index.slot_of.get(name, -1) for name in names]
        else:
            models.slots[:count] = index.offer(names, self._open_slot, models.rounds + rounds - 1)
        kernels.open_arms(self.frame, int(ask), count)

    def _open_slot(self, name: Hashable) -> None:
        index, width, now = self._index, self._models[0].width, self._models.rounds
        if len(index) >= width.slots:
            for old in index.stale(now):
                width.drop(index.drop(old))
        if len(index) >= width.slots:  # none was free
            width.grow(2 * width.slots)
        index.open(name, now)

    def _learn(self, rows: Any, k: int, name: tuple[Hashable, ...], reward: float) -> None:
        models, first, arm, slot = self._models, not len(self._models), k, -1
        if first:
            self._begin(rows, 1, recurring=bool(name))
        try:
            rows = self._inside(rows) if self._user else rows
            if not models.crossed.take(rows, models.stage):
                models.stage.take(*one_arm(rows, k, models.dim), 1)
                k = 0
            if name and models.by_slot:
                models.slots[0] = self._index.slot_of.get(name[0], -1)
                kernels.open_arms(self.frame, 1, 1)  # none, if the arm comes with other features than it had
                slot = int(models.slots[0])
            models.learn(k, slot, 0, reward, arm)
        except DriftlsError:
            if first and not len(self.tracker):  # a refused row decides nothing: the next may be of the other kind
                models.clear()
                self._have_constants(0)
            raise

    # -- the model -----------------------------------------------------------------------------------------------

    def _parts(self, sparse: bool, arms: int, recurring: bool, user: int) -> tuple[Tracker, Width, str]:
        return self.tracker, self.width, self._reason

    def _start(self, sparse: bool, user: int = 0) -> None:
        """Start the tracker and its width; crosses that are kept sparse are measured as the user's features, so many."""
        tracker, models = self.tracker, self._models
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
            models.put(0, Model(tracker, models.width.open(tracker, models.draws, FIRST_SLOTS)))
        except BaseException:
            if unused:
                self._have_constants(0)
            raise

    # -- files ---------------------------------------------------------------------------------------------------

    def _restore(self, header: dict[str, Any], parts: dict[str, Any], functions: dict[str, Any]) -> None:
        super()._restore(header, parts, functions)
        if (units := self.units) is not None and units.block:
            self._user = units.period - 1
        refuse(self._with_constants(self.dim) != self.tracker.dim, "dim")

    def __repr__(self) -> str:
        kappa = f"sigmas={self.sigmas}" if self.sigmas else f"kappa={self.kappa}"
        return f"{type(self).__name__}({self.tracker!r}, {self.width!r}, {kappa}, epsilon={self.epsilon})"
