"""What all policies share: exploration, models, keys, and one way each to choose, to learn and to play many rounds."""

from __future__ import annotations

import copy
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from driftls.draws import TAPE, Draws, Seed
from driftls.errors import CorruptFileError, DimensionError, InputError, SettingsError
from driftls.features import FeatureMap
from driftls.features import from_header as features_of
from driftls.inputs import Rows, fault, is_sparse, sparse_rows
from driftls.kernels import choose as kernels
from driftls.kernels.learn import ATTEND, LOOK, NO_ROOM
from driftls.kernels.parts import Frame
from driftls.kernels.records import POLICY
from driftls.persistence import Saveable, checked, expect, whole
from driftls.policies.arms import allowed_arms, check_weights
from driftls.policies.evidence import Strength, next_strength
from driftls.policies.files import group, revive
from driftls.policies.keys import Keys
from driftls.policies.model import Model
from driftls.policies.tables import ScoreTable
from driftls.schedules import ridge
from driftls.stage import Stage, view
from driftls.trackers import RLS, Tracker
from driftls.trackers.settings import whole_number
from driftls.units import Units
from driftls.widths import Width

FIRST_ARMS = 16
LANES = 8  # arms that are scored at once: lines of a table are filled up to a multiple
NUMBERS = ("errors", "learned", "probability")


class Policy(Saveable):
    """Chooses among arms by theta.x + kappa width(x), from one model or from one an arm.

    Calls from several threads take turns; different policies run in parallel.
    """

    rows_called: ClassVar[str] = "arm"  # what a row is, in an error
    disjoint: ClassVar[bool] = False
    _reason = "given: tracker and width were chosen by the caller"
    play: Callable[..., NDArray[np.int64]]
    tracker: Tracker  # the model's; with one model an arm, what every arm gets a copy of

    def __init__(
        self,
        dim: int,
        *,
        width: Width,
        kappa: float | None,
        sigmas: float,
        epsilon: float,
        seed: Seed,
        features: FeatureMap | None = None,
    ) -> None:
        check_weights(kappa, sigmas, epsilon)
        self.dim, self.width = dim, width
        self.lock = threading.RLock()
        self._need = width.draws(dim) + 1  # draws of one model in one round, and one for epsilon
        self._draws = Draws(seed, max(TAPE, 8 * self._need))
        self.frame = Frame(POLICY)
        self._position = view(self.frame.fields["position"])
        self.frame.set(
            kappa=0.0 if kappa is None else kappa,
            sigmas=sigmas if kappa is None else 0.0,
            epsilon=epsilon,
            disjoint=self.disjoint,
        )
        self._models: list[Model | None] = []
        self._table = ScoreTable(self.frame)
        self.strength: Strength | None = None  # of the prior, where it is estimated from the data
        self._first: Strength | None = None  # the guess with which that began
        self._stage = Stage(dim)
        self._rounds = 0
        self.keys = Keys()
        self.features = features  # how arms are made of events or records; saved with the policy
        self.frozen = False
        self._write_tape()
        self._make_slots(FIRST_ARMS)

    # -- settings ------------------------------------------------------------------------------------------------

    @property
    def kappa(self) -> float:
        """The present weight of the width."""
        frame = self.frame
        if not frame["sigmas"]:
            return float(frame["kappa"])
        return float(frame["sigmas"] * (np.sqrt(frame["errors"] / frame["learned"]) if frame["errors"] else 1.0))

    @property
    def reason(self) -> str:
        """Why these parts were taken, and what was found from the data so far."""
        if self.strength is None or not self.frame["learned"]:
            return self._reason
        noise = np.sqrt(self.frame["errors"] / self.frame["learned"])
        return f"{self._reason}; from {self.frame['learned']:,.0f} rewards: ridge {self.strength.ridge:.3g}, noise {noise:.3g}"

    @property
    def epsilon(self) -> float:
        """The exploration floor."""
        return float(self.frame["epsilon"])

    @property
    def sigmas(self) -> float | None:
        """How many standard deviations of the noise kappa is, where it is estimated."""
        return float(self.frame["sigmas"]) or None

    @property
    def probability(self) -> float:
        """How likely the last choice was, given what was known; not known where scores are sampled."""
        if self.width.samples:
            raise InputError("the probability of a choice by sampling is not known. Use a width, and epsilon=.")
        return float(self.frame["probability"])

    # -- memory that kernels use ---------------------------------------------------------------------------------

    def _write_tape(self) -> None:
        self.frame.set(**self._draws.fields())

    def _make_slots(self, arms: int) -> None:
        """Room for the scores and slots of so many arms."""
        self._scores, self._slots = np.zeros(arms + LANES), np.full(arms, -1, dtype=np.int64)
        self.frame.set(scores=self._scores, slots=self._slots, draws=(arms + 1 if self.disjoint else 2) * self._need)
        if not self.disjoint:  # where slots are those of arms, not of models
            self._stage.frame["slots"] = self._stage.scratch["slots"] = self._slots

    def _have_draws(self) -> None:
        """Draws for the next round; a kernel has asked for them."""
        draws = self.frame["draws"]
        if draws > self._draws.tape.size:
            self._draws.enlarge(2 * draws)
            self._write_tape()
            for model in self._models:
                if model is not None:
                    model.width.read(self._draws)
        self._draws.ready(draws)

    def _put_model(self, slot: int, model: Model | None) -> None:
        """The model of a slot; its addresses go where kernels look."""
        while len(self._models) <= slot:
            self._models.append(None)
        self._models[slot] = model
        old: Any = self.frame.arrays.get("trackers")
        if old is None or old.size <= slot:
            for name in ("trackers", "widths"):
                grown = np.zeros(max(16, 2 * slot + 2), dtype=np.int64)
                grown[: 0 if old is None else old.size] = self.frame.arrays.get(name, grown[:0])
                self.frame[name] = grown
        for name, frame in (("trackers", model and model.tracker.frame), ("widths", model and model.width.frame)):
            self.frame.arrays[name][slot] = frame.address if frame else 0
        if model is not None:
            model.width.reserve(1 if self.disjoint else self._slots.size)
            if isinstance(model.tracker, RLS):
                model.tracker.keep_ready()

    def _new_model(self, tracker: Tracker, slots: int) -> Model:
        return Model(tracker, self.width.open(tracker, self._draws, slots))

    def _room(self, arms: int) -> None:
        """Room for the scores of so many arms."""
        if arms > self._slots.size:
            self._make_slots(2 * arms)
            for model in self._models:
                if model is not None:
                    model.width.reserve(2 * arms)

    # -- users and items as people have them ---------------------------------------------------------------------

    def _made(self, user: Any, items: Any = None) -> Any:
        """The arms of a user and items, or the row of a user alone, by the policy's features."""
        features: Any = self.features
        if not hasattr(features, "user") or not hasattr(features, "pool"):
            raise InputError(f"dicts and items need features: {type(self).__name__}(features=Features(...)).")
        return self._fitting(features.user(user) if items is None else features.arms(user, items))

    def _fitting(self, rows: Any) -> Any:
        """Rows that the policy's features made, as long as its models; which grow with a vocabulary."""
        if rows.shape[1] > self.dim:
            self.grow(max(rows.shape[1], 2 * self.dim))  # by a factor: what is copied stays in proportion
        rows = rows if type(rows) is Rows else sparse_rows(rows, "arms")
        return rows if rows.dim == self.dim else rows._replace(dim=self.dim)

    def _is_made(self, rows: Any) -> bool:
        """Whether these are rows of a vocabulary that grows, which need not be as long as the policy's."""
        grows = self.features is not None and self.features.grows
        return grows and is_sparse(rows) and rows.shape[1] != self.dim

    def grow(self, dim: int) -> None:
        """Take `dim` features from now on, as if there had been so many from the start; nothing learned is lost."""
        with self.lock:
            dim, need = whole_number(dim, "dim", self.dim), self._need
            if dim > self.dim:
                held, self.tracker.held = self.tracker.held, False
                try:
                    self.tracker.grow(dim)
                finally:
                    self.tracker.held = held
                self.dim, self._need = dim, self.width.draws(dim) + 1
                self.frame["draws"] = self.frame["draws"] // need * self._need
                self.keys.grow(dim)
                self._grow_models()

    @abstractmethod
    def _grow_models(self) -> None:
        """There are more features: a larger stage, and larger models."""

    def freeze(self) -> Self:
        """A copy that chooses and never learns: what is shown to users, or what a log is asked about."""
        frozen = copy.deepcopy(self)
        frozen.frozen = True
        return frozen

    def _must_learn(self) -> None:
        if self.frozen:
            raise SettingsError(
                "this policy is frozen: it chooses and never learns. Teach the one that it is a copy of."
            )

    # -- calls of kernels ----------------------------------------------------------------------------------------

    def _chosen(self, count: int, *, allowed: Any = None, only_scores: bool = False) -> int:
        """The arm of the highest score among the rows of the stage, or among those that are allowed."""
        if self.frozen and not only_scores:
            return self._chosen_frozen(count, allowed)
        if allowed is not None:
            self.frame["allowed"] = allowed
        try:
            while (chosen := kernels.choose.run(self.frame.address, only_scores, count)) < 0.0:
                if chosen == -kernels.NO_DRAWS:
                    self._have_draws()
                else:
                    break
        finally:
            if allowed is not None:
                self.frame["allowed"] = 0
        if chosen < 0.0:
            raise self._fault(int(-chosen))
        if not only_scores and (units := self.units) is not None and units.asked:
            self._look_at_units()  # what was noted of these arms asks for other units of their features
        return int(chosen)

    def _chosen_frozen(self, count: int, allowed: Any) -> int:
        """The same by the scores alone: what a kernel notes of the arms that it chooses from would be learning."""
        self._chosen(count, only_scores=True)
        open_ = np.arange(count) if allowed is None else np.flatnonzero(allowed)
        best = chosen = int(open_[np.argmax(self._scores[open_])])
        if self.epsilon and (u := self._draws.take(1)[0]) < self.epsilon:
            chosen = int(open_[min(int(u / self.epsilon * open_.size), open_.size - 1)])
        self.frame["probability"] = self.epsilon / open_.size + (1.0 - self.epsilon if chosen == best else 0.0)
        return chosen

    def _learn_row(self, row: int, slot: int, position: int) -> None:
        """Learn one row of the stage with its reward; `position` is that of its arm in the pool, or -1."""
        self._position[0] = position
        while status := kernels.learn_row.run(self.frame.address, row, slot):
            if status == NO_ROOM:
                self._make_room(row)
            elif status == kernels.NO_DRAWS:
                self._have_draws()
            elif status == ATTEND:
                self._attend()
                break
            else:
                raise self._fault(int(status))
        if (units := self.units) is not None and units.asked:
            self._look_at_units()

    def _make_room(self, row: int) -> None:
        model = self._models[self.frame["model"]]
        assert model is not None
        single = self.frame.arrays["single"] if self._stage.frame["arms"] else None
        if single is None:
            model.tracker.make_room(self._stage.frame, row, row + 1)
        else:
            model.tracker.make_room(single, 0, 1)

    def _attend(self) -> None:
        """A kernel has learned a row and asks for what it cannot do itself."""
        model = self._models[self.frame["model"]]
        assert model is not None
        if self.frame["asked"] != 2:
            model.tracker.attend()
        if self.frame["asked"] >= 2:
            model.width.attend()
        self._models_changed()

    def _models_changed(self) -> None:
        """What a table of scores has of the models is no longer so."""
        self._table.drop()

    @property
    def units(self) -> Units | None:
        """How features are measured; None for raw units, and before the first arms."""
        return None

    def _look_at_units(self) -> None:
        """It is time for a look: other units, and, where it is estimated, another ridge; rewrite what was learned."""
        units, models = self.units, [model for model in self._models if model is not None]
        assert units is not None
        strength = self.strength
        if strength is not None and self._first is not None and self.frame["learned"] >= 4.0:
            sigma2 = self.frame["errors"] / self.frame["learned"] or 1.0
            strength = next_strength(models, strength, self._first, sigma2, both=self.disjoint)
        moved = strength is not None and strength != self.strength
        change = units.look(strength.constant if strength is not None else None, force=moved)
        if moved and strength is not None:
            self.strength = strength
            for model in models:
                model.tracker.set_ridge(ridge(strength.ridge), rewrite=False)
        if change is not None:
            for model in models:
                model.tracker.change_units(change)
                if moved and strength is not None:
                    model.width.set_ridge(strength.ridge)
                model.width.change_units(change)
        settled = [model.tracker.settle() for model in models]
        if change is not None or any(settled):
            self._models_changed()
        if self._first is not None:  # the noise, as the model of all rewards sees it
            left = units.reward_variation - sum(model.tracker.explained() for model in models)  # type: ignore[attr-defined]
            self.frame["errors"] = max(left, 0.0) if units.reward_variation else 0.0

    def _fault(self, status: int) -> Exception:
        row = f"{self.rows_called} {self.frame['fault_row']}" if self.rows_called == "arm" else self.rows_called
        return fault(status, row, self.dim)

    def _play(self, count: int, rounds: int, rewards: Any, shown: Any, first_arm: NDArray[np.int64]) -> Any:
        """Rounds over the rows of the stage, in one compiled loop that pauses where Python is needed."""
        frame, chosen = self.frame, np.zeros(rounds, dtype=np.int64)
        columns = 0 if rewards is None else rewards.size // rounds
        frame.set(count=count, chosen=chosen, first_arm=first_arm, columns=columns, resumed=0)
        frame["rewards"] = 0 if rewards is None else rewards
        frame["shown"] = 0 if shown is None else shown
        at = 0
        try:
            while at < rounds:
                at = int(kernels.play(frame.address, at, rounds))
                status = frame["status"]
                if status == kernels.NO_DRAWS:
                    self._have_draws()
                elif status == NO_ROOM:
                    self._make_room(frame["line"])
                elif status == ATTEND:
                    self._attend()
                elif status == LOOK and self.units is not None and self.units.asked:
                    self._look_at_units()
                elif status not in (0, LOOK):
                    raise self._fault(int(status))
        finally:
            self._rounds += at
            for name in ("rewards", "shown", "chosen", "first_arm"):
                frame[name] = 0
                frame.arrays.pop(name, None)
        return chosen

    def choose_many(
        self, arms: Any, items: Any = None, *, ids: Any = None, rounds: int | None = None
    ) -> NDArray[np.int64]:
        """The choices of many rounds (for one model an arm, or with items: of many users), as `choose` makes them."""
        return np.asarray(self.play(arms, items=items, ids=ids, rounds=rounds))

    # -- warm starts ---------------------------------------------------------------------------------------------

    def _warm(self, model: Model, fill: Any, squares: NDArray[np.float64], n: int, errors: float) -> None:
        """Let a model that has seen nothing stand where `fill(tracker)` puts it, after n rows seen elsewhere."""
        fill(model.tracker)
        model.width.stand_at(squares, n)
        if isinstance(model.tracker, RLS):
            model.tracker.keep_ready()
        self.frame.set(errors=self.frame["errors"] + errors, learned=self.frame["learned"] + n)

    # -- questions -----------------------------------------------------------------------------------------------

    @contextmanager
    def _asking(self) -> Iterator[Any]:
        """Who answers a question: this policy, whose draws are put back; or a copy, where it would have to change."""
        ready = self._models and self._draws.cursor[0] + self.frame["draws"] <= self._draws.tape.size
        who: Policy = self if ready else copy.deepcopy(self)
        widths = [model.width for model in who._models if model is not None] if self._need > 1 else []
        cursor, kept = int(who._draws.cursor[0]), [width.put_aside() for width in widths]
        try:
            yield who
        finally:
            who._draws.cursor[0] = cursor
            for width, aside in zip(widths, kept):
                width.put_back(aside)

    def _share(self, scores: NDArray[np.float64], allowed: Any = None) -> NDArray[np.float64]:
        """How likely each arm is to be chosen, if nothing but epsilon is random."""
        open_ = np.ones(scores.size, bool) if allowed is None else allowed_arms(allowed, scores.size) != 0
        share = np.where(open_, self.epsilon / open_.sum(), 0.0)
        share[int(np.argmax(np.where(open_, scores, -np.inf)))] += 1.0 - self.epsilon
        return share

    # -- files ---------------------------------------------------------------------------------------------------

    def _common(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a file keeps of what is common to all."""
        keys, rows = self.keys.snapshot()
        header = {
            "class": type(self).__name__,
            "dim": self.dim,
            "width": {"kind": type(self.width).__name__, **self.width.settings()},
            "weights": {"kappa": None if self.sigmas else self.kappa, "sigmas": self.sigmas, "epsilon": self.epsilon},
            "draws": self._draws.header(),
            "rounds": self._rounds,
            "numbers": {name: self.frame[name] for name in NUMBERS},
            "strength": None if self.strength is None else [*self.strength, *(self._first or self.strength)],
            "keys": keys,
            "features": None if self.features is None else self.features.to_header(),
            "frozen": self.frozen,
        }
        return header, {"unread": self._draws.unread(), **{f"keys.{name}": array for name, array in rows.items()}}

    def _restore_common(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        for name in NUMBERS:
            self.frame[name] = checked(header["numbers"][name], float)
        self._rounds = whole(header, "rounds")
        self.features = None if header["features"] is None else features_of(header["features"])
        self.frozen = bool(header.get("frozen", False))
        self.strength = self._first = None
        if header["strength"] is not None:
            numbers = checked(header["strength"], tuple[float, float, float, float])
            if not min(numbers) > 0.0:
                raise CorruptFileError(f"strengths of a prior must be positive, got {numbers}.")
            self.strength, self._first = Strength(*numbers[:2]), Strength(*numbers[2:])
        self.keys.restore(header["keys"], group(arrays, "keys."))
        for choice in self.keys.waiting.values():
            if choice.indices is None and len(choice.values) != self.dim:
                raise DimensionError(f"a waiting choice has {len(choice.values)} features, expected {self.dim}.")
        self._draws.restore(header["draws"], expect(arrays, "unread", (None,), np.float64))
        self._write_tape()
        for model in self._models:
            if model is not None:
                model.width.read(self._draws)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or a pickle for another process, is made of what a file would hold: never of addresses."""
        return revive, (type(self), *self.snapshot(), self.functions())

    @abstractmethod
    def functions(self) -> dict[str, Any]:
        """Schedules that are functions of n, which `load` has to be given again."""
