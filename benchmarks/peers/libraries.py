"""The peers, each called in the way that its documentation asks for, and fed in its own format, which is made untimed.

A class imports its library in `begin`, and runs in the peer's own environment: nothing of driftls here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix

BLOCKS = 512  # articles that a day may have


class Peer:
    """Settings come as they are, by name."""

    begin: Any  # makes the model, each with settings of its own

    def __init__(self, problem: Any, seed: int, **settings: Any) -> None:
        self.problem, self.kind, self.seed = problem, problem.kind, seed
        self.rng = np.random.default_rng([0x9E, seed])
        self.slot_of: dict[int, int] = {}
        self.begin(**settings)

    def slots(self, given: Any) -> list[int]:
        """Numbers of the articles on offer, in the order in which they first came."""
        return [self.slot_of.setdefault(name, len(self.slot_of)) for name in given.ids.tolist()]

    def crosses(self, given: Any) -> Any:
        """User x article features as one sparse row an article."""
        index, value, dim = given.user.indices, given.user.data, self.problem.dim
        columns = np.concatenate([index + dim * slot for slot in self.slots(given)])
        start = np.arange(given.ids.size + 1) * index.size
        return csr_matrix((np.tile(value, given.ids.size), columns, start), shape=(given.ids.size, dim * BLOCKS))


# -- Vowpal Wabbit ---------------------------------------------------------------------------------------------------


class VowpalWabbit(Peer):
    """cb_explore_adf with one theta over arm features, or user x article pairs; text made untimed, parsed timed."""

    def begin(self, *, explore: str = "", rate: float = 0.5) -> None:
        vw = import_module("vowpalwabbit")
        bandit = f"--cb_explore_adf {explore}" if self.kind != "regression" else ""
        self.shared = self.kind in ("articles", "classes")
        pairs = "-q ua" if self.shared else ""
        options = f"{bandit} {pairs} -l {rate} -b 20 --quiet --random_seed {self.seed + 1}"
        self.vw = vw.Workspace(options)

    def prepare(self, given: Any) -> Any:
        if self.shared:
            x = given.user if self.kind == "articles" else csr_array(given.user[None])
            user = " ".join(f"f{j}:{v:.6g}" for j, v in zip(x.indices.tolist(), x.data.tolist()))
            return [f"shared |u {user}", *(f"|a {name}" for name in given.ids.tolist())]
        if isinstance(given.arms, np.ndarray):
            lines = ["|a " + " ".join(f"{j}:{v:.6g}" for j, v in enumerate(row)) for row in given.arms.tolist()]
        else:
            arms = given.arms
            pairs = [f"{j}:{v:.6g}" for j, v in zip(arms.indices.tolist(), arms.data.tolist())]
            lines = ["|a " + " ".join(pairs[a:b]) for a, b in zip(arms.indptr[:-1], arms.indptr[1:])]
        return lines[0] if self.kind == "regression" else lines

    def choose(self, lines: Any) -> Any:
        if self.kind == "regression":
            return self.vw.predict(lines)
        self.examples = self.vw.parse(lines)  # once for both phases: half the time of text given twice
        answer = self.vw.predict(self.examples)
        chances = np.cumsum(answer)
        k = int(min(np.searchsorted(chances, self.rng.random() * chances[-1]), chances.size - 1))
        self.chance = float(answer[k])
        return k

    def learn(self, lines: Any, k: int, reward: float) -> None:
        if self.kind == "regression":  # a row that was parsed without its label is not learned from
            self.vw.learn(f"{reward} {lines}")
            return
        self.examples[k + self.shared].set_label_string(f"0:{-reward}:{self.chance}")
        self.vw.learn(self.examples)
        self.vw.finish_example(self.examples)


class VowpalWabbitClasses(VowpalWabbit):
    """On real tables, where it has a grid of its own."""


# -- contextualbandits -----------------------------------------------------------------------------------------------


class ContextualBandits(Peer):
    """Its exact linear regression with upper bounds, one for all arms or one an article, held together by hand."""

    def begin(self, *, kappa: float = 0.3, ridge: float = 1.0) -> None:
        self.kappa, self.ridge = kappa, ridge
        self.models = [] if self.kind == "articles" else [self._model()]

    def _model(self) -> Any:
        kind = import_module("contextualbandits.linreg").LinearRegression
        return kind(lambda_=self.ridge, fit_intercept=False, method="sm", use_float=False)

    def prepare(self, given: Any) -> Any:
        if self.kind == "articles":
            slots = self.slots(given)
            self.models += [self._model() for _ in range(len(self.slot_of) - len(self.models))]
            return given.user.toarray(), slots
        if isinstance(given.arms, csr_array):
            return csr_matrix(given.arms)
        return given.arms

    def choose(self, arms: Any) -> Any:
        if self.kind == "articles":
            x, slots = arms
            return np.argmax([self.models[slot].predict_ucb(x, self.kappa)[0] for slot in slots])
        model = self.models[0]
        if self.kind == "regression":
            return model.predict(arms)[0] if model.is_fitted_ else 0.0
        if not model.is_fitted_:  # its first scores cannot be had for sparse arms
            return 0
        return np.argmax(model.predict_ucb(arms, self.kappa))

    def learn(self, arms: Any, k: int, reward: float) -> None:
        y = np.array([reward])
        if self.kind == "articles":
            self.models[arms[1][k]].partial_fit(arms[0], y)
        else:
            self.models[0].partial_fit(arms[k : k + 1], y)


# -- river -----------------------------------------------------------------------------------------------------------


class _River(Peer):
    """Arms as dictionaries, made untimed."""

    def prepare(self, given: Any) -> Any:
        if self.kind == "articles":
            pairs = list(zip(given.user.indices.tolist(), given.user.data.tolist()))
            return [{slot * self.problem.dim + j: v for j, v in pairs} for slot in self.slots(given)]
        if isinstance(given.arms, np.ndarray):
            return [dict(enumerate(row)) for row in given.arms.tolist()]
        arms = given.arms
        pairs = list(zip(arms.indices.tolist(), arms.data.tolist()))
        return [dict(pairs[a:b]) for a, b in zip(arms.indptr[:-1], arms.indptr[1:])]

    def learn(self, arms: Any, k: int, reward: float) -> None:
        self.model.learn_one(arms[k], reward)

    model: Any


class RiverSGD(_River):
    """LinearRegression by stochastic gradient descent, epsilon-greedy."""

    def begin(self, *, rate: float = 0.3, epsilon: float = 0.0) -> None:
        optim, linear = import_module("river.optim"), import_module("river.linear_model")
        self.model = linear.LinearRegression(optimizer=optim.SGD(rate), intercept_lr=0.0)
        self.epsilon, self.predict = epsilon, self.model.predict_one

    def choose(self, arms: Any) -> Any:
        if self.kind == "regression":
            return self.predict(arms[0])
        if self.epsilon and self.rng.random() < self.epsilon:
            return self.rng.integers(len(arms))
        scores = [self.predict(x) for x in arms]
        return scores.index(max(scores))


class RiverScaled(Peer):
    """As its documentation asks for: a scaler before a linear regression, one an arm, epsilon-greedy."""

    def begin(self, *, rate: float = 0.01, epsilon: float = 0.0) -> None:
        self.rate, self.epsilon = rate, epsilon
        self.models = [self._model() for _ in range(self.problem.arms or 1)]

    def _model(self) -> Any:
        linear, optim = import_module("river.linear_model"), import_module("river.optim")
        scaler = import_module("river.preprocessing").StandardScaler()
        return scaler | linear.LinearRegression(optimizer=optim.SGD(self.rate))

    def prepare(self, given: Any) -> Any:
        return dict(enumerate((given.arms[0] if self.kind == "regression" else given.user).tolist()))

    def choose(self, x: Any) -> Any:
        if self.epsilon and self.rng.random() < self.epsilon:
            return self.rng.integers(len(self.models))
        scores = [model.predict_one(x) for model in self.models]
        return scores[0] if self.kind == "regression" else scores.index(max(scores))

    def learn(self, x: Any, k: int, reward: float) -> None:
        self.models[k].learn_one(x, reward)


class RiverDisjoint(Peer):
    """LinUCBDisjoint; its rule is mean plus one standard deviation, so beta is what can be set."""

    def begin(self, *, beta: float = 1.0) -> None:
        self.policy = import_module("river.bandit").LinUCBDisjoint(beta=beta, seed=self.seed)

    def prepare(self, given: Any) -> Any:
        ids = given.ids.tolist()
        place = {name: k for k, name in enumerate(ids)}
        return ids, dict(zip(given.user.indices.tolist(), given.user.data.tolist())), place

    def choose(self, given: Any) -> Any:
        return given[2][self.policy.pull(given[0], context=given[1])]

    def learn(self, given: Any, k: int, reward: float) -> None:
        self.policy.update(given[0][k], given[1], reward)


# -- bayesianbandits -------------------------------------------------------------------------------------------------


class BayesianBandits(Peer):
    """Thompson sampling with a NormalRegressor: shared over arm features, or one an article."""

    def begin(self, *, alpha: float = 1.0, beta: float = 10.0) -> None:
        bb = import_module("bayesianbandits")
        self.bb, self.alpha, self.beta = bb, alpha, beta
        self.sparse = self.kind == "sparse"
        if self.kind == "regression":
            self.model = self._learner()
        elif self.kind != "articles":
            self.shown = _shown(bb)
            arms = [bb.Arm(k, learner=None) for k in range(self.problem.arms)]
            self.agent = bb.LipschitzContextualAgent(
                arms, bb.ThompsonSampling(), self.shown, self._learner(), random_seed=self.seed
            )
        else:
            self.all: dict[int, Any] = {}
            self.pool: list[int] = []

    def _learner(self) -> Any:
        return self.bb.NormalRegressor(alpha=self.alpha, beta=self.beta, sparse=self.sparse)

    def prepare(self, given: Any) -> Any:
        if self.kind == "articles":
            ids = given.ids.tolist()
            return given.user.toarray(), ids, {name: k for k, name in enumerate(ids)}
        return given.arms if isinstance(given.arms, np.ndarray) else given.arms.tocsc()

    def choose(self, given: Any) -> Any:
        if self.kind == "regression":
            return self.model.predict(given)[0]
        if self.kind == "articles":
            self._offer(given[1])
            return given[2][self.agent.pull(given[0])[0]]
        self.shown.arms = given
        return self.agent.pull(ONE)[0]

    def _offer(self, ids: list[int]) -> None:
        if self.pool == ids:
            return
        arms = [self.all.setdefault(name, self.bb.Arm(name, learner=self._learner())) for name in ids]
        self.agent = self.bb.ContextualAgent(arms, self.bb.ThompsonSampling(), random_seed=self.rng)
        self.pool = ids

    def learn(self, given: Any, k: int, reward: float) -> None:
        if self.kind == "regression":
            self.model.partial_fit(given, np.array([reward]))
        else:  # the arm that was pulled last
            self.agent.update(given[0] if self.kind == "articles" else ONE, np.array([reward]))


ONE = np.zeros((1, 1))  # a context without content: all is in the arms


def _shown(bb: Any) -> Any:
    class Shown(bb.ArmFeaturizer):  # type: ignore[misc]
        """Gives the learner the arms of this round."""

        arms: Any = None

        def transform(self, X: Any, *, action_tokens: Any) -> Any:
            return self.arms if len(action_tokens) == self.arms.shape[0] else self.arms[list(action_tokens)]

    return Shown()


# -- MABWiser --------------------------------------------------------------------------------------------------------


class MABWiser(Peer):
    """LinUCB, one model an arm."""

    def begin(self, *, kappa: float = 1.0, ridge: float = 60.0) -> None:
        self.policy = import_module("mabwiser.mab").LearningPolicy.LinUCB(alpha=kappa, l2_lambda=ridge)
        self.mab: Any = None
        self.pool: Any = None

    def prepare(self, given: Any) -> Any:
        ids = given.ids.tolist()
        return given.user.toarray(), ids, {name: k for k, name in enumerate(ids)}

    def choose(self, given: Any) -> Any:
        x, ids, place = given
        if self.mab is None:
            self.mab = import_module("mabwiser.mab").MAB(ids, self.policy, seed=self.seed)
        elif self.pool != ids:
            for name in set(ids) - set(self.mab.arms):
                self.mab.add_arm(name)
            for name in set(self.mab.arms) - set(ids):
                self.mab.remove_arm(name)
        first, self.pool = self.pool is None, ids
        return 0 if first else place[self.mab.predict(x)]  # it cannot be asked before it was fitted

    def learn(self, given: Any, k: int, reward: float) -> None:
        self.mab.partial_fit(np.array([given[1][k]]), np.array([reward]), given[0])


# -- scikit-learn ----------------------------------------------------------------------------------------------------


class ScikitLearn(Peer):
    """SGDRegressor, epsilon-greedy; user x article pairs as sparse rows."""

    def begin(self, *, rate: float = 0.3, epsilon: float = 0.0) -> None:
        kind = import_module("sklearn.linear_model").SGDRegressor
        self.model = kind(
            learning_rate="constant", eta0=rate, alpha=0.0, penalty=None, fit_intercept=False, random_state=self.seed
        )
        self.epsilon, self.fitted = epsilon, False

    def prepare(self, given: Any) -> Any:
        if self.kind == "articles":
            return self.crosses(given)
        return given.arms if isinstance(given.arms, np.ndarray) else csr_matrix(given.arms)

    def choose(self, arms: Any) -> Any:
        if self.kind == "regression":
            return self.model.predict(arms)[0] if self.fitted else 0.0
        if not self.fitted or (self.epsilon and self.rng.random() < self.epsilon):
            return self.rng.integers(arms.shape[0])
        return self.model.predict(arms).argmax()

    def learn(self, arms: Any, k: int, reward: float) -> None:
        self.model.partial_fit(arms[k : k + 1], [reward])
        self.fitted = True


PLAYERS = {
    each.__name__: each
    for each in (
        VowpalWabbit, VowpalWabbitClasses, ContextualBandits, RiverSGD, RiverScaled, RiverDisjoint,
        BayesianBandits, MABWiser, ScikitLearn,
    )
}  # fmt: skip
