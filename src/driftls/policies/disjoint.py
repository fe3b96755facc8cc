"""One model an arm id: a user comes, and each arm's own model says what it expects of the user."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from driftls.draws import Seed, generator_of
from driftls.errors import DriftlsError, InputError, SettingsError
from driftls.features import FeatureMap
from driftls.features.columns import as_record
from driftls.history import Mapped
from driftls.inputs import as_rows, as_whole
from driftls.policies.arm_index import ArmIds, ArmIndex, item_ids, plain_id, plain_ids
from driftls.policies.arms import OPEN, OPEN_END, as_block, check_parts, first_dim, is_items, is_user, position_of
from driftls.policies.files import seeds_header, seeds_of
from driftls.policies.models import Model
from driftls.policies.policy import Policy
from driftls.schedules import ridge
from driftls.trackers import RLS, SAGA, Tracker
from driftls.units import Units
from driftls.widths import CentredWidth, DiagonalWidth, ExactWidth, NoWidth, Width

EXACT_UP_TO = 200  # features: two matrices a model, 640 kB
MOST_PRODUCTS = 2_000_000  # a choice: of exact widths for dense users, arms times features squared
FIRST_RIDGE = 4.0  # lambda, of features in units of their spread, before anything is known
TAPE = 256  # draws that a model has ready at a time


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
        widths for dense users and few arms, else centred ones; ridges from the data, one a feature, pooled over arms.
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

    disjoint: ClassVar[bool] = True
    _seeds: np.random.Generator

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
        dim = as_whole(dim, "dim", 1)
        self._auto = tracker is None and width is None
        if self._auto:
            self._reason = OPEN
        found = (RLS(dim) if dim <= EXACT_UP_TO else SAGA(dim)) if tracker is None else tracker
        check_parts(found, width or NoWidth())
        if found.dim != dim or len(found):
            raise SettingsError(f"tracker must be an unused one of dim={dim}, of which each arm gets a copy.")
        if isinstance(found.history, Mapped):
            raise SettingsError("every arm has a history of its own, and a Mapped folder serves one. Use Growing().")
        self._seeds = generator_of(seed)
        own = self._seeds.spawn(1)[0]
        if width is None:
            width = CentredWidth() if found.intercept else DiagonalWidth()
        super().__init__(found, width, kappa=kappa, sigmas=sigmas, epsilon=epsilon, seed=own, features=features)
        self._index = ArmIndex(as_whole(most_arms, "most_arms", 1))
        if kappa is None and (self._auto or not found.ridge_given):
            self._models.adapt(found, FIRST_RIDGE)

    def __len__(self) -> int:
        """How many arms have a model."""
        return len(self._index)

    @property
    def ids(self) -> list[Hashable]:
        """Arms that have a model, the one that was not offered for longest first."""
        return list(self._index.slot_of)

    def model(self, name: Hashable) -> Tracker:
        """A copy of the tracker of an arm id, with units of its own."""
        with self.lock:
            made = copy.deepcopy(self._models[self._known(name)].tracker)
            if self.units is not None:
                made.measure(self.units.copy(), own=True)
            return made

    def warm(
        self, name: Hashable, fill: Any, *, sparse: bool, squares: NDArray[np.float64], n: int, errors: float
    ) -> None:
        """Start the model of a new arm id from n rows that were seen elsewhere; see `SharedPolicy.warm`."""
        with self.lock:
            self._must_learn()
            name = plain_id(name)
            if name in self._index.slot_of:
                raise SettingsError(f"arm id {name!r} has a model already: a warm start is for a new one.")
            if self._models.stage.sparse is None:
                self._open(sparse)
            model = self._fresh_model()
            self._models.warm(model, fill, squares, n, errors)  # first: it may be refused
            self._models.table.leave()  # one of its arms may give way
            self._models.put(self._index.open(name), model)

    # -- what a caller passes ------------------------------------------------------------------------------------

    def pool(self, items: Any) -> ArmIds:
        """Ids (or items with an "id") that are looked at once, while they last: for `choose(user, pool)`."""
        return ArmIds(plain_ids(item_ids(items)))

    def _round(self, arms: Any, items: Any, ids: Any, *, arm: Any = None, one: bool = False) -> tuple[Any, int, Any]:
        names = self._names(ids, items)
        if arm is not None:  # one that has a model, before a vocabulary grows
            self._known(names[position_of(arm, len(names))])
        return self._known_user(arms), len(names), names

    def _many(self, arms: Any, items: Any, ids: Any, rewards: Any, rounds: Any) -> tuple[Any, int, Any, Any]:
        names = self._names(ids, items)
        if self.features is not None and is_items(arms):
            arms = self.features.table(arms)  # type: ignore[attr-defined]
        rows: Any = as_rows(self._own(arms), self.dim, "users")
        count = rows.shape[0]
        if rounds is not None and as_whole(rounds, "rounds", 0) != count:
            raise InputError(f"rounds must be the number of users, {count}, got {rounds!r}.")
        return rows, len(names), names, np.arange(count, dtype=np.int64)

    def _known_user(self, user: Any) -> Any:
        """A user as a row: a dict by the policy's features."""
        if type(user) is tuple or type(user) is np.ndarray:
            return user
        if is_user(user) or (self.features is not None and as_record(user) is not None):
            return self._made(user)
        return self._own(user)

    def _names(self, ids: Any, items: Any = None) -> list[Hashable]:
        if ids is None:
            ids = items if type(items) is ArmIds else item_ids(items)
        names, last = ids.tolist() if isinstance(ids, np.ndarray) else ids, self._models.table.pool
        if last is not None and isinstance(names, list) and len(names) == len(last):
            try:
                if names == last:
                    return last  # type: ignore[no-any-return]
            except ValueError:  # an array among the ids
                pass
        names = ids if type(ids) is ArmIds else plain_ids(ids)
        if not 0 < len(names) <= self._index.most:
            raise InputError(f"{len(names)} arms, but 1 ... most_arms={self._index.most} models are kept.")
        return names

    def _row_of(self, rows: Any, k: int) -> tuple[Any, int]:
        return self._row(rows), 0

    def _row(self, x: Any) -> Any:
        rows: Any = as_rows(as_block(self._known_user(x), "a user"), self.dim, "a user")
        if rows.shape[0] != 1:
            raise InputError(f"a user must be one row, got {rows.shape[0]}.")
        return rows

    # -- rows on their way to kernels ----------------------------------------------------------------------------

    def _stage(self, rows: Any, count: int, names: Any, *, rounds: int = 0, whole: bool = False) -> None:
        stage = self._models.stage
        if rounds or not stage.take_row(rows):
            rows = rows if rounds else self._row(rows)
            if stage.sparse is None:
                self._begin(rows, count)
            self._models.stage.take(rows)

    def _offer(self, names: Any, count: int, *, rounds: int = 1, ask: bool = False) -> None:
        """Slots are those of models."""
        models, table = self._models, self._models.table
        if ask or names is not table.pool:
            models.room(count)
            if ask:
                models.slots[:count] = [self._known(name) for name in names]
                return
            models.look_at(1)
            table.leave()
            models.slots[:count] = self._index.offer(names, self._open_model)
            table.leave(list(names), self.dim)
        if table.again(rounds):
            table.place_of = {name: k for k, name in enumerate(table.pool)}
            table.fill(models[int(models.slots[0])].width.table(), self.tracker.inner, count)

    def _learn(self, rows: Any, k: int, name: tuple[Hashable, ...], reward: float) -> None:
        slot = self._known(name[0])
        self._stage(rows, 1, name)
        self._models.learn(0, slot, self._models.table.place_of.get(name[0], -1), reward)

    def _known(self, name: Any) -> int:
        slot = self._index.slot_of.get(plain_id(name))
        if slot is None:
            raise InputError(f"arm id {name!r} was never offered, or was dropped. Offer it in choose first.")
        return slot

    def _open_model(self, name: Hashable) -> None:
        model = self._fresh_model()  # first: it may fail
        self._models.put(self._index.open(name), model)

    # -- models --------------------------------------------------------------------------------------------------

    def _start(self, sparse: bool, user: int = 0) -> None:
        tracker, models = self.tracker, self._models
        if tracker.scale or tracker.intercept:
            constant = 1.0 if models.strength is None else models.strength.constant
            models.units = Units(
                self.dim, sparse=sparse, scale=tracker.scale, intercept=tracker.intercept, constant=constant
            )
        models.take_rows(sparse)

    def _parts(self, sparse: bool, arms: int, recurring: bool, user: int) -> tuple[Tracker, Width, str]:
        """What is exact where that is affordable, and no worse than exact where it is not."""
        dim, grows = self.dim, self.features is not None and self.features.grows
        what, small = f"{dim} {'sparse' if sparse else 'dense'} features", dim <= EXACT_UP_TO and not grows
        if small and not sparse and arms * dim * dim <= MOST_PRODUCTS:
            reason = f"exact: {what} and {arms} arms, for which exact widths are affordable"
            return RLS(dim), ExactWidth(), reason
        if small:
            reason = f"fast: {what} and {arms} arms: exact models, with centred diagonal widths"
            return RLS(dim), CentredWidth(), reason
        what = OPEN_END if grows else f"{what}, too many for a matrix an arm"
        return SAGA(dim), CentredWidth(), f"fast: {what}: SAGA, with centred diagonal widths"

    def _fresh_model(self) -> Model:
        models, kept = self._models, seeds_header(self._seeds)
        tracker = self.tracker.fresh(self._seeds.spawn(1)[0], TAPE)
        if models.strength is not None:
            tracker.set_ridge(ridge(models.strength.ridge), rewrite=False)
        try:
            tracker.start(bool(models.stage.sparse), models.units)
            return Model(tracker, models.width.open(tracker, models.draws))
        except DriftlsError:  # a tracker and a width that do not go together: nothing was started
            self._seeds = seeds_of(kept)
            if not len(self._index):
                models.clear()
            raise

    # -- files ---------------------------------------------------------------------------------------------------

    def _restore(self, header: dict[str, Any], parts: dict[str, Any], functions: dict[str, Any]) -> None:
        if header["sparse"] is not None:
            self._start(bool(header["sparse"]))
        super()._restore(header, parts, functions)

    def __repr__(self) -> str:
        n = sum(len(model.tracker) for model in self._models.each())
        tracker = repr(self.tracker).removesuffix(f", n={len(self.tracker)}")
        return f"DisjointLinUCB({tracker}, {self.width!r}, epsilon={self.epsilon}), arms={len(self)}, n={n}"
