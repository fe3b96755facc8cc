"""What all policies share: one way each to choose, to learn, to play many rounds, to grow and to be kept."""

from __future__ import annotations

import copy
import threading
from abc import abstractmethod
from collections.abc import Hashable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from driftls.draws import Seed
from driftls.errors import InputError, SettingsError
from driftls.features import FeatureMap, resized
from driftls.features.crossed import CrossedArms
from driftls.history import Mapped
from driftls.inputs import LARGEST, Rows, as_whole, is_sparse, sparse_rows
from driftls.policies.arm_index import ArmIndex
from driftls.policies.arms import allowed_arms, check_parts, check_weights, look_at, position_of, reward_of, rewards_of
from driftls.policies.evidence import Strength
from driftls.policies.files import grouped, restore, settings_of, snapshot_of, tracker_of
from driftls.policies.keys import Keys, Waiting, one_row
from driftls.policies.models import Models
from driftls.policies.questions import Questions, Turn
from driftls.trackers import Tracker
from driftls.units import Units
from driftls.widths import Width


class Policy(Questions):
    """Chooses among arms by theta.x + kappa width(x), from one model or from one an arm.

    Calls from several threads take turns; different policies run in parallel.
    """

    _reason = "given: tracker and width were chosen by the caller"
    _auto = False  # whether tracker and width are chosen when the first arms are here
    _seeds: np.random.Generator | None = None  # of the trackers that the policy makes
    _user = 0  # how many features a user has, where the policy gives each block of crosses a constant behind them
    _maker: FeatureMap | None = None  # features that are not its own, whose rows it takes

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
        check_weights(kappa, sigmas, epsilon)
        self.tracker, self.dim = tracker, tracker.dim  # with one model an arm, every arm gets a copy of it
        # whoever uses the one tracker by itself takes turns, too
        self.lock = threading.RLock() if self.disjoint else tracker.lock
        self._models = Models(self.dim, width, seed, disjoint=self.disjoint)
        self.frame = self._models.frame
        self.frame.set(kappa=0.0 if kappa is None else kappa, sigmas=sigmas if kappa is None else 0.0, epsilon=epsilon)
        # which id has which slot: of its model, or in a width that keeps something for each
        self._index = ArmIndex(forget_after=forget_after)
        self.keys, self.features = Keys(), features  # features make arms of events or records, and are saved with it

    # -- settings ------------------------------------------------------------------------------------------------

    @property
    def width(self) -> Width:
        """How the width of an arm is found."""
        return self._models.width

    @property
    def kappa(self) -> float:
        """The present weight of the width."""
        sigmas = self.frame["sigmas"]
        return float(sigmas * (self._models.noise or 1.0) if sigmas else self.frame["kappa"])

    @property
    def strength(self) -> Strength | None:
        """That of the prior, where it is estimated from the data."""
        return self._models.strength

    @property
    def reason(self) -> str:
        """Why these parts were taken, and what was found from the data so far."""
        learned = self.frame["learned"]
        if self.strength is None or not learned:
            return self._reason
        found = f"ridge {self.strength.ridge:.3g}, noise {self._models.noise:.3g}"
        return f"{self._reason}; from {learned:,.0f} rewards: {found}"

    @property
    def epsilon(self) -> float:
        """The exploration floor."""
        return float(self.frame["epsilon"])

    @property
    def sigmas(self) -> float | None:
        """How many standard deviations of the noise kappa is, where it is estimated."""
        return float(self.frame["sigmas"]) or None

    @property
    def frozen(self) -> bool:
        """Whether it never learns: see `freeze`."""
        return self._models.frozen[0] != 0  # type: ignore[no-any-return]

    @property
    def units(self) -> Units | None:
        """How features are measured; None for raw units, and before the first arms."""
        return self._models.units

    @property
    def probability(self) -> float:
        """How likely the last choice was, given what was known; not known where scores are sampled."""
        if self.width.samples:
            raise InputError("the probability of a choice by sampling is not known. Use a width, and epsilon=.")
        return float(self.frame["probability"])

    # -- choosing and learning -----------------------------------------------------------------------------------

    def choose(
        self, arms: Any, items: Any = None, *, ids: Any = None, key: Hashable = None, allowed: Any = None
    ) -> int:
        """The position of the arm to show: `choose(arms)`, or by the policy's features `choose(user, items)`.

        Parameters
        ----------
        arms : (K, d) array, sparse matrix, list of (indices, values), or `CrossedArms`
            A row for each arm. With `items`, or with one model an arm, the user: a dict, or a row.
        items : list of dicts or ids, table, or `pool`, optional
            What can be shown.
        ids : list, optional
            An id for each arm. With one model an arm, these are the arms; else some widths keep something for arms
            that come again.
        key : optional
            Keeps the choice until `learn(reward=..., key=key)`.
        allowed : mask or positions, optional
            Which arms may be shown now.
        """
        with self.lock if self.features is None else Turn(self):
            if key is not None:
                key = self.keys.new(key)
            rows, count, names = self._round(arms, items, ids)
            mask = None if allowed is None else allowed_arms(allowed, count)
            self._stage(rows, count, names)
            if self._models.by_slot:
                self._offer(names, count)
            chosen = self._models.choose(count, mask)
            if key is not None:
                name = () if names is None else (names[chosen],)
                self.keys.waiting[key] = Waiting(one_row(*self._row_of(rows, chosen)), name)
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

        Of dicts, `learn(user, reward, items=items, arm=k)`; with one model an arm, `learn(user, reward, arm=k, ids=ids)`.
        It may come late and in any order. Nothing is changed if the reward or the row cannot be used.
        """
        with self.lock if self.features is None else Turn(self):
            if self.frozen:
                self._must_learn()
            value = reward if type(reward) is float and abs(reward) < LARGEST else reward_of(reward)
            if key is None:
                self._learn(*self._shown(arms, items, ids, arm), value)
                return
            choice, before = self.keys.choice(key), self.frame["learned"]
            try:
                self._learn(choice.row, 0, choice.name, value)
            finally:  # a row after which the error runs away was learned, too
                self.keys.settle(key, learned=self.frame["learned"] > before)

    def _shown(self, arms: Any, items: Any, ids: Any, arm: Any) -> tuple[Any, int, tuple[Hashable, ...]]:
        """The rows of a round, which of them was shown, and perhaps its id."""
        if arms is None or (self.disjoint and (arm is None or (ids is None and items is None))):
            example = "learn(user, reward, arm=k, ids=ids)" if self.disjoint else "learn(arms, reward, arm=k)"
            raise InputError(f"learn needs {example}, or learn(reward=..., key=key).")
        rows, count, names = self._round(arms, items, ids, arm=arm, one=arm is None)
        if arm is None and count != 1:
            raise InputError(f"{count} arms and one reward: say which of them it belongs to, with arm=.")
        k = 0 if arm is None else position_of(arm, count)
        return rows, k, () if names is None else (names[k],)

    def remember(self, key: Hashable, x: Any, name: Hashable = None) -> None:
        """Keep a choice that was made elsewhere until its reward comes: `learn(reward=..., key=key)`."""
        with self.lock:
            if name is None and self.disjoint:
                raise InputError("the id of the arm is missing: remember(key, user, name).")
            key = self.keys.new(key)
            rows, _, names = self._round(x, None, [name], one=True)
            row = one_row(*self._row_of(rows, 0))
            look_at(row, "the user" if self.disjoint else "arm")
            self.keys.waiting[key] = Waiting(row, () if name is None else tuple(names))

    def play(
        self,
        arms: Any,
        rewards: Any = None,
        *,
        items: Any = None,
        shown: Any = None,
        ids: Any = None,
        rounds: Any = None,
    ) -> NDArray[np.int64]:
        """Many rounds in one compiled loop, decision by decision equal to `choose` and `learn`; returns the choices.

        With a vocabulary that grows, new names of all rounds are numbered first, and choices may differ.

        Parameters
        ----------
        arms : (rounds K, d) array or sparse matrix, or `CrossedArms`
            Round after round; or (K, d), the same arms in every round. With `items`, or with one model an arm, the
            users, one a round: rows, a table or a list of dicts.
        rewards : (rounds, K), or (rounds,) with `shown`, or None
            Of every arm; or of the arm that a log showed, which is learned where it is chosen. None: only choose.
        shown : (rounds,) array of int, optional
            Positions of the arms that the log showed; -1 for none of them.
        ids : list, optional
            The K ids of the pool.
        rounds : int, optional
            Where neither rewards nor ids tell.
        """
        with self.lock if self.features is None else Turn(self):
            rows, count, names, first = self._many(arms, items, ids, rewards, rounds)
            if first.size == 0:
                return np.zeros(0, dtype=np.int64)
            rewards, shown = rewards_of(rewards, shown, first.size, count)
            if rewards is not None and self.frozen:
                self._must_learn()
            self._stage(rows, count, names, rounds=first.size)
            self._models.look_at(first.size if self._models.crossed.on else rows.shape[0])
            if self._models.by_slot:
                self._offer(names, count, rounds=first.size)
            return self._models.play(count, first.size, rewards, shown, first)

    def choose_many(self, arms: Any, items: Any = None, *, ids: Any = None, rounds: Any = None) -> NDArray[np.int64]:
        """The choices of many rounds (for one model an arm, or with items: of many users), as `choose` makes them."""
        return self.play(arms, items=items, ids=ids, rounds=rounds)

    # -- what differs between one model and one an arm -----------------------------------------------------------

    @abstractmethod
    def pool(self, items: Any) -> Any:
        """Items, arms or ids that are looked at once, while they last: for `choose(user, pool)`, or `choose(pool)`."""

    @abstractmethod
    def _round(self, arms: Any, items: Any, ids: Any, *, arm: Any = None, one: bool = False) -> tuple[Any, int, Any]:
        """What a caller passed for one round, looked at: rows, number of arms, ids or None.

        arm: this one has a reward; one: a row alone will do.
        """

    @abstractmethod
    def _many(self, arms: Any, items: Any, ids: Any, rewards: Any, rounds: Any) -> tuple[Any, int, Any, Any]:
        """The same for many rounds, and where the rows of each begin."""

    @abstractmethod
    def _row_of(self, rows: Any, k: int) -> tuple[Any, int]:
        """Rows, one of which is that of arm k, and its number among them."""

    @abstractmethod
    def _stage(self, rows: Any, count: int, names: Any, *, rounds: int = 0, whole: bool = False) -> None:
        """Copy the rows of a round, or of many, to where kernels read them; whole: a row for each arm."""

    @abstractmethod
    def _offer(self, names: Any, count: int, *, rounds: int = 1, ask: bool = False) -> None:
        """The arms of a round, or of many, get their slots; what is new is opened, unless this is a question."""

    @abstractmethod
    def _learn(self, rows: Any, k: int, name: tuple[Hashable, ...], reward: float) -> None:
        """The reward of arm k, and perhaps its id."""

    @abstractmethod
    def _parts(self, sparse: bool, arms: int, recurring: bool, user: int) -> tuple[Tracker, Width, str]:
        """Tracker and width for such arms, and why these."""

    @abstractmethod
    def _start(self, sparse: bool, user: int = 0) -> None:
        """Have a stage for such rows, and whatever all models share."""

    # -- the first arms --------------------------------------------------------------------------------------------

    def _begin(self, rows: Any, arms: int, *, recurring: bool = False) -> None:
        """The first arms are here: they are looked at, and decide."""
        look_at(rows, "the user" if self.disjoint else "arm")
        user = rows.row.dim if isinstance(rows, CrossedArms) else 0
        self._open(not isinstance(rows, np.ndarray), arms, recurring, user)

    def _open(self, sparse: bool, arms: int = 1, recurring: bool = False, user: int = 0) -> None:
        """Rows are dense or sparse from now on (crosses of users with so many features): start what takes them."""
        if self._auto:
            tracker, width, self._reason = self._parts(sparse, arms, recurring, user)
            tracker.lock = self.tracker.lock  # which other threads may be waiting for
            self.tracker, self._auto = tracker, False
            self._models.grow(self.dim, width)
            self._models.adapt(tracker)
        self._start(sparse, user)
        self.follow()

    def follow(self, features: FeatureMap | None = None) -> None:
        """Take rows that these features make, where the policy has none of its own: what they lack is missing, not 0."""
        with self.lock:
            self._maker = features or self._maker
            if self.units is not None:
                self.units.follow(self.features or self._maker)

    # -- users and items as people have them ---------------------------------------------------------------------

    def _made(self, user: Any, items: Any = None) -> Any:
        """The arms of a user and items, or the row of a user alone, by the policy's features."""
        features: Any = self.features
        if not hasattr(features, "user") or not hasattr(features, "pool"):
            raise InputError(f"dicts and items need features: {type(self).__name__}(features=Features(...)).")
        return self._fitting(features.user(user) if items is None else features.arms(user, items))

    def _own(self, rows: Any) -> Any:
        """Rows of a caller; those that a vocabulary that grows has made need not be as long as the policy's."""
        grows = self.features is not None and self.features.grows
        made = grows and is_sparse(rows) and rows.shape[1] != self.dim
        return self._fitting(sparse_rows(rows, "arms")) if made else rows

    def _fitting(self, rows: Rows) -> Rows:
        """Rows that the policy's features made, as long as its models; which grow with a vocabulary."""
        if self._asked is not None:
            rows = resized(rows, self._asked)
        elif rows.dim > self.dim:
            look_at(rows)  # which may be refused, and then nothing grows
            self.grow(max(rows.dim, 2 * self.dim))  # by a factor: what is copied stays in proportion
        return resized(rows, self.dim)

    def grow(self, dim: int) -> None:
        """Take `dim` features from now on, as if there had been so many from the start; nothing learned is lost."""
        with self.lock:
            dim = as_whole(dim, "dim", self.dim)
            if dim > self.dim:
                inner = self._with_constants(dim)
                for model in self._models.each():
                    model.width.try_room(inner + self.tracker.intercept)
                held, self.tracker.held = self.tracker.held, False
                try:
                    self.tracker.grow(inner)
                finally:
                    self.tracker.held = held
                self.dim = dim
                self.keys.grow(dim)
                self._models.grow(inner)

    def _with_constants(self, dim: int) -> int:
        """How many features the model has where arms have so many."""
        return -(-dim // self._user) * (self._user + 1) if self._user else dim

    def freeze(self) -> Self:
        """A copy that chooses and never learns: what is shown to users, or what a log is asked about."""
        frozen = copy.deepcopy(self)
        frozen._models.frozen[0] = 1
        return frozen

    def _must_learn(self) -> None:
        if self.frozen:
            raise SettingsError("this policy is frozen and never learns. Teach the one that it is a copy of.")

    # -- files ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Header and arrays from which `from_snapshot` makes the same policy."""
        with self.lock:
            return snapshot_of(self)

    @classmethod
    def from_snapshot(cls, header: dict[str, Any], arrays: dict[str, Any], **functions: Any) -> Self:
        """The policy that `snapshot` wrote down."""
        policy, parts = cls.__new__(cls), grouped(arrays)
        tracker = tracker_of(header["tracker"], parts["tracker"], functions)
        Policy.__init__(policy, tracker, **settings_of(header))
        policy._restore(header, parts, functions)
        return policy

    def _restore(self, header: dict[str, Any], parts: dict[str, Any], functions: dict[str, Any]) -> None:
        """Stand where the snapshot was taken."""
        restore(self, header, parts)
        self._models.restore(header, parts, self.tracker, functions)
        self.follow()

    def functions(self) -> dict[str, Any]:
        if isinstance(self.tracker.history, Mapped):
            raise SettingsError("a policy over a Mapped history cannot be copied: a folder has one owner. Use save().")
        return self.tracker.functions()
