"""Off-policy estimates against known truths: error and coverage, by kind of log.

Each log is estimated for a fixed policy that is deterministic and for one that is not. Clicks depend on the user and the
arm in a way that no linear model has. Kinds: `uniform`; `skewed`, by a policy that prefers other arms than ours;
`similar`, by one that prefers the same; both with propensities down to 0.01; `blind`, uniform and without propensities;
`rare`, uniform with few clicks; `linear`, skewed with clicks that the model can learn.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks.measure import Mean, Options, Table, across, mean, tell
from driftls.features import UserOnly
from driftls.logs import Block
from driftls.logs.log import Log
from driftls.offpolicy import estimate

ARMS, USER, FLOOR, LINES = 10, 6, 0.01, 3000
FIRST, TUNING = 10_000, 0  # seeds of the logs that are reported, and of those on which the ridge was chosen
SHOWN = ("recommended", "ips", "snips", "dm", "dr", "replay")
OTHERS = ("recommended", "ips, normal", "unweighted")  # what is no estimate of its own, or none that we give
KINDS = ("uniform", "skewed", "similar", "blind", "rare", "linear")
FIXED = np.random.default_rng(12345)
TASTE, OTHER, NOISE = (FIXED.standard_normal((USER - 1, ARMS)) for _ in range(3))


class Kept(Log):
    """A block in memory."""

    format = "kept"

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.kept = block

    def _blocks(self, size: int) -> Any:
        yield self.kept


class Softmax:
    """A fixed policy that knows tastes roughly; with no temperature, deterministic."""

    dim, disjoint = USER, True

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature

    def table(self, x: Any) -> Any:
        scores = x @ (TASTE + 0.7 * NOISE)
        if self.temperature == 0.0:
            return np.eye(ARMS)[scores.argmax(axis=1)]
        return softmax(scores / self.temperature)

    def block_probabilities(self, features: Any, block: Block) -> Any:
        return self.table(block.user_value.reshape(-1, USER)[:, 1:]).ravel()


POLICIES = {"deterministic": Softmax(0.0), "stochastic": Softmax(1.0)}


def softmax(scores: Any) -> Any:
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def rates(x: Any, kind: str) -> Any:
    if kind == "linear":
        return np.clip(0.12 + 0.03 * x @ TASTE, 0.001, 0.9)
    odds = (-5.5 if kind == "rare" else -2.7) + 0.4 * x @ TASTE + 0.6 * np.sin(2.0 * x[:, :1])
    return 1.0 / (1.0 + np.exp(-odds))


def made(kind: str, lines: int, seed: int) -> Block:
    """A log of this kind."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((lines, USER - 1))
    p = np.full((lines, ARMS), 1.0 / ARMS)
    if kind in ("skewed", "similar", "linear"):
        p = FLOOR + (1.0 - FLOOR * ARMS) * softmax(1.5 * x @ (TASTE if kind == "similar" else OTHER))
    shown = (p.cumsum(axis=1) > rng.random((lines, 1)) * p.sum(axis=1, keepdims=True)).argmax(axis=1)
    line = np.arange(lines)
    return Block(
        time=line,
        pool=np.zeros(lines, np.int32),
        shown=shown.astype(np.int32),
        reward=(rng.random(lines) < rates(x, kind)[line, shown]).astype(np.float64),
        pool_start=np.array([0, ARMS]),
        pool_ids=np.arange(ARMS),
        user_start=USER * np.arange(lines + 1),
        user_index=np.tile(np.arange(USER, dtype=np.int32), lines),
        user_value=np.hstack([np.ones((lines, 1)), x]).ravel(),
        propensity=None if kind == "blind" else p[line, shown],
    )


def value_of(policy: Softmax, kind: str) -> float:
    x = np.random.default_rng(99).standard_normal((500_000, USER - 1))
    parts = (x[i : i + 100_000] for i in range(0, len(x), 100_000))
    return float(np.mean([(policy.table(part) * rates(part, kind)).sum(axis=1).mean() for part in parts]))


def found_of(block: Block, policy: Softmax, **settings: Any) -> dict[str, tuple[float, float, float]]:
    """Every estimate, and two that we do not give: matched lines whatever the log, and the normal interval."""
    found = estimate(policy, Kept(block), features=UserOnly(USER), **settings)
    told = {name: (one.value, one.low, one.high) for name, one in found.estimates.items()}
    told["recommended"] = (found.valid.value, found.valid.low, found.valid.high)
    p = np.full(len(block), 1.0 / ARMS) if block.propensity is None else block.propensity
    pi = policy.block_probabilities(None, block).reshape(-1, ARMS)[np.arange(len(block)), block.shown]
    terms = pi / p * block.reward
    half = 1.96 * terms.std() / np.sqrt(len(terms))
    told["ips, normal"] = (terms.mean(), terms.mean() - half, terms.mean() + half)
    told["unweighted"] = ((pi * block.reward).sum() / pi.sum(), np.nan, np.nan)
    return told | {"name": found.leading}  # type: ignore[dict-item]


def _case(kind: str, name: str, logs: int) -> list[Any]:
    """One row: what is recommended, how far it and the others are from the truth, how often its interval holds it."""
    policy = POLICIES[name]
    value = value_of(policy, kind)
    all_of = [found_of(made(kind, LINES, FIRST + seed), policy) for seed in range(logs)]
    names = {str(one.pop("name")) for one in all_of}
    errors, inside = {}, {}
    for estimator in all_of[0]:
        values, low, high = np.array([one[estimator] for one in all_of]).T
        errors[estimator] = values - value
        inside[estimator] = (low <= value) & (value <= high)
    rmse = {estimator: float(np.sqrt(np.mean(each**2))) for estimator, each in errors.items()}
    best = min(each for estimator, each in rmse.items() if estimator not in OTHERS)
    shown = [rmse[estimator] / best if estimator in rmse else None for estimator in SHOWN]
    share = 100.0 * float(inside["recommended"].mean())
    half = 196.0 * float(np.sqrt(max(share * (100.0 - share), 475.0) / logs)) / 100.0
    percent = mean(100.0 * errors["recommended"] / value)
    return [f"{kind}, {name}", "/".join(sorted(names)), percent, Mean(share, half), *shown]


def estimates(options: Options) -> Table:
    """Kinds of logs and policies side by side; with --tune, the error of the model for several ridges."""
    logs = options.count(200, 4)
    if options.tune:
        return _ridges(logs)
    tell(f"{len(KINDS) * len(POLICIES)} cases, {logs} logs each")
    rows = across(partial(_case, logs=logs), *zip(*product(KINDS, POLICIES)))
    return Table(rows, f"{logs} logs of {LINES:,} lines a case. From the fifth column on: RMSE over that of the best.")


def _ridges(logs: int) -> Table:
    """On seeds that are not reported: RMSE of the direct method and of the doubly robust one."""
    rows = []
    for kind, (name, policy) in product(("uniform", "skewed", "similar"), POLICIES.items()):
        tell(f"{kind}, {name}")
        value, blocks = value_of(policy, kind), [made(kind, LINES, TUNING + seed) for seed in range(logs)]
        for total in (1.0, 5.0, 20.0, 60.0, 200.0):
            all_of = [found_of(block, policy, ridge=total) for block in blocks]
            dm, dr = (float(np.sqrt(np.mean([(one[k][0] - value) ** 2 for one in all_of]))) for k in ("dm", "dr"))
            rows.append([f"{kind}, {name}", f"ridge {total:g}", f"dm {dm:.4f}", f"dr {dr:.4f}", *[None] * len(SHOWN)])
    return Table(rows)
