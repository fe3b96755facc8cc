"""One model an arm id: a user vector comes, and each arm's own model says what it thinks of the user."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import driftls.trackers
from driftls.draws import Seed
from driftls.errors import DimensionError, InputError, SettingsError
from driftls.history import Mapped
from driftls.kernels import policy
from driftls.kernels.frames import pack
from driftls.kernels.judge import PROBABILITY
from driftls.kernels.models import Mirror, Table
from driftls.kernels.rows import DenseRows, SparseRows, narrow
from driftls.policies.bandit import MIRROR_UP_TO, NO_MIRROR, single
from driftls.policies.inputs import CSR, checked_reward, id_header, id_of, part, plain_id, plain_ids, renamed, tell
from driftls.policies.models import FIRST_MODELS, Model, Models
from driftls.schedules import ridge
from driftls.trackers import RLS, SAGA, Tracker
from driftls.trackers.inputs import Block, fault
from driftls.widths import KINDS, DiagonalWidth, EnsembleWidth, ExactWidth, NoWidth, SampleWidth, Width, keep_spread

EXACT_UP_TO = 200  # features: two matrices a model, 640 kB
MIRROR_FROM = 16  # rounds that it takes, for each of 256 features, until a mirror has paid for itself
MIRRORED = (DiagonalWidth, NoWidth, ExactWidth)


class DisjointLinUCB(Models):
    """LinUCB with one model an arm id, made when the arm is first seen.

    Parameters
    ----------
    dim : int
        Number of features of a user.
    tracker : Tracker, optional
        An unused tracker, of which each arm gets a fresh copy.
    width : Width, optional
        Of each model; `DiagonalWidth()` for a tracker that is given. Without both, `reason` says what was taken: exact
        up to 200 features, else `SAGA` with diagonal widths; ridge 60.
    kappa, sigmas, epsilon
        As for `LinUCB`, three standard deviations by default; the noise is estimated over all arms together. Ridge and
        weight suit clicks, of which there are few: `python -m benchmarks.bandits defaults`.
    most_arms : int
        Beyond so many models the one that was not offered for longest is dropped.
    seed : int or Generator
        Of the policy's chance and of its trackers.

    Examples
    --------
    >>> policy = DisjointLinUCB(dim=2, seed=0)
    >>> user = np.array([1.0, 0.5])
    >>> k = policy.choose(user, ids=["sports", "politics"])
    >>> policy.learn(user, 1.0, arm=k, ids=["sports", "politics"])
    >>> len(policy)
    2
    """

    called: ClassVar[str] = "the user"

    def __init__(
        self,
        dim: int,
        *,
        tracker: Tracker | None = None,
        width: Width | None = None,
        kappa: float | None = None,
        sigmas: float = 3.0,
        epsilon: float = 0.0,
        most_arms: int = 10_000,
        seed: Seed = None,
    ) -> None:
        self._seeds = np.random.default_rng(seed)
        self.reason = "given: tracker and width were chosen by the caller"
        if tracker is None and width is None:
            exact = isinstance(dim, int | np.integer) and dim <= EXACT_UP_TO
            cost = "is affordable" if exact else "is too slow"
            self.reason = f"{'exact' if exact else 'fast'}: with {dim} features a {dim} x {dim} matrix an arm {cost}"
            tracker = RLS(dim, regularisation=ridge(60.0)) if exact else SAGA(dim, regularisation=ridge(60.0))
            width = ExactWidth() if exact else DiagonalWidth()
        tracker = SAGA(dim, regularisation=ridge(60.0)) if tracker is None else tracker
        width = DiagonalWidth() if width is None else width
        if tracker.dim != dim or len(tracker):
            raise SettingsError(f"tracker must be an unused one of dim={dim}, of which each arm gets a copy.")
        if isinstance(tracker, RLS) and (tracker.route == "cholesky" or tracker.total_ridge(1) == 0.0):
            raise SettingsError(
                "this RLS finds theta only when asked. Use method='sherman-morrison' or 'inverse', and a ridge."
            )
        if isinstance(tracker.history, Mapped):
            raise SettingsError("every arm has a history of its own, and a Mapped folder serves one. Use Growing().")
        if not (isinstance(most_arms, int | np.integer) and most_arms >= 1):
            raise SettingsError(f"most_arms must be a whole number of at least 1, got {most_arms!r}.")
        chance = self._seeds.spawn(1)[0]
        super().__init__(tracker, width, kappa=kappa, sigmas=sigmas, epsilon=epsilon, seed=chance)
        self.most_arms = int(most_arms)
        self._models: list[Model | None] = []
        self._table: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        self._slot_of: dict[Hashable, int] = {}
        self._sparse: bool | None = None
        self._alive: Any = None
        self._watched = isinstance(tracker, RLS)
        self._offered = np.zeros(FIRST_MODELS, dtype=np.int64)  # by slot: the round in which it was last
        self._pool_seen: tuple[list[Hashable], NDArray[np.int64]] = ([], np.zeros(0, dtype=np.int64))
        self._nothing = np.zeros(1)

    def choose(self, user: Any, *, ids: Any, key: Hashable = None) -> int:
        """The position in `ids` of the arm to show this user (a vector, or a sparse row).

        `key`, if given, keeps the choice until `learn(reward=..., key=key)`.
        """
        self._new_key(key)
        block = self._user(user)
        slots = self._pool(ids, block)
        chosen = self._asked(block, slots)
        self._offer(slots)
        self._rounds += 1
        if key is not None:
            self.remember(key, user, ids[chosen])
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
        if key is not None:
            waiting = self._waiting(key)
            user, name = waiting.x, waiting.name[0]
        else:
            if user is None or arm is None or ids is None:
                raise InputError("learn needs learn(user, reward, arm=k, ids=ids), or learn(reward=..., key=key).")
            if not isinstance(arm, int | np.integer) or not 0 <= arm < len(ids):
                raise InputError(f"arm {arm} is not among the {len(ids)} arms.")
            name = ids[arm]
        if reward is None:
            raise InputError("learn needs a reward.")
        self._known(name)
        value = checked_reward(reward)
        block = self._user(user)._replace(y=np.array([value]))
        self._learn_row(block, self._slot_of[plain_id(name)])
        if key is not None:
            self._settle_key(key)

    def scores(self, user: Any, *, ids: Any) -> NDArray[np.float64]:
        """What each arm's model gives this user: theta.x + kappa width(x). Arms never seen are refused."""
        if self._sampled:
            raise InputError("the scores of sampled models change with every choice. Use a width that is not sampled.")
        block, scalars = self._user(user), self._scalars.copy()
        slots = np.array([self._known_slot(name) for name in plain_ids(ids)], dtype=np.int64)
        cursor = self._draws.cursor.copy()
        try:
            self._asked(block, slots)
        finally:
            self._scalars[:], self._draws.cursor[:] = scalars, cursor
        return self._scores[: slots.size].copy()

    def widths(self, user: Any, *, ids: Any) -> NDArray[np.float64]:
        """How sure each arm's model is of this user, before kappa."""
        block, out = self._user(user), np.zeros(1)
        found, none = [], np.full(1, -1, dtype=np.int64)
        for name in plain_ids(ids):
            model = self._known(name)
            held = len(model.tracker) if model.tracker.history is None else len(model.tracker.history)
            policy.widths_of(model.width, block, none, model.tracker._alive[3], held, out)
            found.append(out[0])
        return np.array(found)

    def probabilities(self, user: Any, *, ids: Any) -> NDArray[np.float64]:
        """How likely each arm is to be chosen now."""
        return self._greedy_share(self.scores(user, ids=ids))

    @property
    def _sampled(self) -> bool:
        width = self.width
        return isinstance(width, SampleWidth) or (isinstance(width, EnsembleWidth) and width.sample)

    @property
    def probability(self) -> float:
        """How likely the last choice was; not known where models are sampled."""
        if self._sampled:
            raise InputError("the probability of a choice among sampled models is not known. Use a width, and epsilon.")
        return float(self._scalars[PROBABILITY])

    # -- kernels -------------------------------------------------------------------------------------------------

    def _asked(self, user: Block, slots: NDArray[np.int64]) -> int:
        count = slots.size
        for slot in slots.tolist():
            self._tracker_of(slot)
        self._ready(count)
        self._idle.slots[:count] = slots
        chosen = self._act(user, self._idle_words, policy.CHOOSE, 0, count)
        if chosen < 0:
            raise self._user_fault(-chosen)
        return chosen

    def _act(self, arms: Block, job: Any, task: int, first: int, last: int) -> int:
        words = self._mirrored if task == policy.PLAY else self._words
        if isinstance(arms, SparseRows):
            return int(self._entries.sparse(words, job, *arms[:4], self.dim, task, first, last))
        return int(self._entries.dense(words, job, arms[0], task, first, last))

    def _mirror_for(self, arms: Block, count: int, rounds: int) -> Mirror:
        pairs = isinstance(self.width, ExactWidth)
        if not isinstance(self.width, MIRRORED) or (pairs and not isinstance(arms, SparseRows)):
            return NO_MIRROR
        lines = self.dim * (self.dim + 1) // 2 if pairs else self.dim
        pays = rounds * 256 >= MIRROR_FROM * self.dim and lines * count <= MIRROR_UP_TO
        return self._mirror_of(self.dim, lines, count) if pays else NO_MIRROR

    def _row(self, job: Any, r: int, chosen: int) -> int:
        return int(job.first_arm[r])

    def _after(self, tracker: Tracker) -> None:
        tell(tracker)

    def _between(self) -> None:
        if isinstance(self.tracker, RLS):
            for model in self._models:
                if model is not None:
                    tell(model.tracker)

    def _ready(self, count: int) -> None:
        """Draws and scores for so many arms."""
        needed = (count + 1) * self._need
        if needed > self._draws.tape.size:
            self._draws.restore({**self._draws.header(), "tape": 2 * needed}, self._draws.unread())
        if count > self._idle.y.size:
            self._seat(2 * count)
        self._draws.ready(needed)
        alive = (self._scores, self._draws.tape, self._mirror, self._table)
        if self._alive is None or any(new is not old for new, old in zip(alive, self._alive)):
            self._alive = alive  # the words are addresses: the arrays must live
            table = Table(self._table)
            self._words, self._mirrored = (
                pack([table, *self._judge(), mirror]) for mirror in (NO_MIRROR, self._mirror)
            )

    # -- bookkeeping ---------------------------------------------------------------------------------------------

    def _pool(self, ids: Any, user: Block) -> NDArray[np.int64]:
        """The slots of the models of these arms, the new ones made."""
        names = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        if names and names == self._pool_seen[0]:  # as in the last round
            return self._pool_seen[1]
        names = plain_ids(names)
        if not names:
            raise InputError("the pool is empty: at least one arm is needed.")
        if len(names) > self.most_arms:
            raise InputError(f"{len(names)} arms, but most_arms={self.most_arms} models are kept. Raise most_arms.")
        slots = np.array([self._slot_of.get(name, -1) for name in names], dtype=np.int64)
        new = np.flatnonzero(slots < 0)
        if new.size:
            code = policy.first_fault(user, self.dim, 1)  # before a model is made
            if code:
                raise self._user_fault(code)
            self._sparse = isinstance(user, SparseRows)
            self._pool_seen = [], slots
            self._drop_oldest(len(self._slot_of) + new.size - self.most_arms, set(names))
            for k in new:
                slots[k] = self._new(names[k])
        self._pool_seen = names, slots
        return slots

    def _user(self, user: Any) -> Block:
        if self._sparse is not None and self.tracker._dtype == np.float64:
            block = self._as_it_is(user)
            if block is not None:
                return block
        user = single(user, "a user must be a vector")
        if user.shape[1] != self.dim:
            raise DimensionError(f"a user has {self.dim} features, got {user.shape[1]}.")
        sparse = bool(sp.issparse(user))
        return self._block(user, np.zeros(1), sparse if self._sparse is None else self._sparse)

    def _as_it_is(self, user: Any) -> Block | None:
        """A user of the kind that kernels take, if it is one."""
        if type(user) is np.ndarray and not self._sparse:
            fits = user.dtype == np.float64 and user.shape == (self.dim,) and user.flags.carray
            return DenseRows(user.reshape(1, -1), self._nothing) if fits else None
        if type(user) not in CSR or not self._sparse or user.shape != (1, self.dim) or user.indptr.size != 2:
            return None
        index, value = user.indices, user.data
        if not (value.dtype == np.float64 and value.flags.carray and index.flags.carray):
            return None
        if index.dtype == np.int64:
            wide, index = index, np.empty(index.size, dtype=np.int32)
            if not narrow(wide, index):
                return None
        elif index.dtype != np.int32:
            return None
        pointers = user.indptr.astype(np.int64)
        return SparseRows(pointers[:-1], pointers[1:], index, value, self._nothing)

    def _user_fault(self, code: int) -> Exception:
        return renamed(fault(code % 8, 0, 0, self.dim), "row 0", "the user")

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Header and arrays from which `from_snapshot` makes the same policy."""
        header, arrays = self._snapshot()
        header["prototype"], parts = self.tracker.snapshot()
        seeds: Any = self._seeds.bit_generator.seed_seq
        header |= {
            "entropy": np.array(seeds.entropy, dtype=object).tolist(),
            "spawn_key": [int(entry) for entry in seeds.spawn_key],
            "spawned": seeds.n_children_spawned,
            "sparse": self._sparse,
            "most_arms": self.most_arms,
            "models": [],
        }
        arrays |= {f"prototype.{name}": array for name, array in parts.items()}
        for number, (name, slot) in enumerate(self._slot_of.items()):
            model = self._models[slot]
            assert model is not None
            kept, parts = model.tracker.snapshot()
            offered = int(self._offered[slot])
            header["models"].append({"id": id_header(name), "slot": slot, "offered": offered, "tracker": kept})
            arrays |= {f"{number}.tracker.{key}": array for key, array in parts.items()}
            arrays |= {f"{number}.width.{key}": array for key, array in model.width._asdict().items()}
        return header, arrays

    @classmethod
    def from_snapshot(cls, header: dict[str, Any], arrays: dict[str, Any], **functions: Any) -> Self:
        """The policy that `snapshot` wrote down."""
        kind = getattr(driftls.trackers, header["prototype"]["class"])
        tracker = kind.from_snapshot(header["prototype"], part(arrays, "prototype."), **functions)
        settings = dict(header["width"])
        made = cls(tracker.dim, tracker=tracker, width=KINDS[settings.pop("kind")](**settings))
        made._restore_common(header, arrays)
        made.most_arms, made._sparse = header["most_arms"], header["sparse"]
        made._seeds = np.random.default_rng(
            np.random.SeedSequence(
                header["entropy"], spawn_key=tuple(header["spawn_key"]), n_children_spawned=header["spawned"]
            )
        )
        most = max((entry["slot"] for entry in header["models"]), default=-1)
        made._models = [None] * (most + 1)
        groups: dict[str, dict[str, Any]] = {}
        for name, array in arrays.items():
            number, _, rest = name.partition(".")
            groups.setdefault(number, {})[rest] = array
        for place, entry in enumerate(header["models"]):
            own = groups[str(place)]
            tracker = kind.from_snapshot(entry["tracker"], part(own, "tracker."), **functions)
            width = made.width.allocate(tracker, 0, made._draws)
            for key, array in part(own, "width.").items():
                getattr(width, key)[...] = array
            keep_spread(width)
            made._models[entry["slot"]] = Model(tracker, width)
            made._new_offer(entry["slot"], entry["offered"])
            made._slot_of[id_of(entry["id"])] = entry["slot"]
            made._entries = policy.disjoint_entries(tracker._state_class, width.__class__)
            made._repack(entry["slot"])
        made._draws.restore(header["draws"], arrays["unread"])
        return made

    def __repr__(self) -> str:
        return f"DisjointLinUCB({self.tracker!r}, {self.width!r}, epsilon={self.epsilon}), arms={len(self)}"
