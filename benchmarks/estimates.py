"""Off-policy estimates against known truths: bias, root mean squared error and coverage, by kind of log.

    python -m benchmarks.estimates [truth] [ridge] [--quick] [--logs N] [--lines N]

truth: N logs a kind, each estimated for a fixed policy that is deterministic and for one that is not. Clicks depend on
the user and the arm in a way that no linear model has. Kinds: `uniform`; `skewed`, by a policy that prefers other arms
than ours; `similar`, by one that prefers the same; both with propensities down to 0.01; `blind`, uniform and without
propensities; `rare`, uniform with few clicks; `linear`, skewed with clicks that the model can learn. The estimate that
`advise` recommends is marked, and its error compared with that of the best. ridge: the error of the model, for several
ridges, on seeds that `truth` does not use.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from driftls.estimates import NORMAL
from driftls.features import UserOnly
from driftls.logs import Block
from driftls.logs.log import Log
from driftls.offpolicy import estimate

RESULTS = Path(__file__).parent / "results"
ARMS, USER, FLOOR = 10, 6, 0.01
FIRST, TUNING = 10_000, 0  # seeds of the logs that are reported, and of those on which the ridge was chosen
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
    x = np.random.default_rng(99).standard_normal((2_000_000, USER - 1))
    parts = (x[i : i + 100_000] for i in range(0, len(x), 100_000))
    return float(np.mean([(policy.table(part) * rates(part, kind)).sum(axis=1).mean() for part in parts]))


def found_of(block: Block, policy: Softmax, **settings: Any) -> dict[str, tuple[float, float, float]]:
    """Every estimate, and two that we do not give: matched lines whatever the log, and the normal interval."""
    found = estimate(policy, Kept(block), features=UserOnly(USER), **settings)
    told = {name: (one.value, one.low, one.high) for name, one in found.estimates.items()}
    told["recommended"] = (found.leading.value, found.leading.low, found.leading.high)
    p = np.full(len(block), 1.0 / ARMS) if block.propensity is None else block.propensity
    pi = policy.block_probabilities(None, block).reshape(-1, ARMS)[np.arange(len(block)), block.shown]
    terms = pi / p * block.reward
    half = NORMAL * terms.std() / np.sqrt(len(terms))
    told["ips, normal"] = (terms.mean(), terms.mean() - half, terms.mean() + half)
    told["unweighted"] = ((pi * block.reward).sum() / pi.sum(), np.nan, np.nan)
    return told | {"name": found.advice.name}  # type: ignore[dict-item]


def truth(logs: int, lines: int) -> dict[str, Any]:
    results: dict[str, Any] = {"logs": logs, "lines": lines}
    for kind in KINDS:
        blocks = [made(kind, lines, FIRST + seed) for seed in range(logs)]
        for name, policy in POLICIES.items():
            value, all_of = value_of(policy, kind), [found_of(block, policy) for block in blocks]
            names = {one.pop("name") for one in all_of}
            rows = {}
            for estimator in all_of[0]:
                values, low, high = np.array([one[estimator] for one in all_of]).T
                rows[estimator] = {
                    "bias": float(values.mean() - value),
                    "error": float(values.std() / np.sqrt(logs)),
                    "rmse": float(np.sqrt(np.mean((values - value) ** 2))),
                    "coverage": float(np.mean((low <= value) & (value <= high))),
                    "width": float(np.mean(high - low)),
                }
            ours = {k: row["rmse"] for k, row in rows.items() if k not in ("ips, normal", "unweighted", "recommended")}
            ratio = rows["recommended"]["rmse"] / min(ours.values())
            results[f"{kind}, {name}"] = {"value": value, "names": sorted(names), "ratio": ratio, "rows": rows}
            head = f"{kind} log, {name} policy, {logs} logs of {lines:,} lines; truth {value:.4f}; recommended: "
            print(f"\n{head}{'/'.join(sorted(names))}, {ratio:.2f}x the best RMSE")
            print(f"  {'':<14}{'bias':>9}{'+-':>8}{'RMSE':>9}{'coverage':>10}{'width':>9}")
            for estimator, row in rows.items():
                mark = "*" if {estimator} == names else ""
                figures = f"{row['bias']:>+9.4f}{row['error']:>8.4f}{row['rmse']:>9.4f}"
                print(f"  {estimator + mark:<14}{figures}{row['coverage']:>10.1%}{row['width']:>9.4f}")
    return results


def ridge(logs: int, lines: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for kind in ("uniform", "skewed", "similar"):
        blocks = [made(kind, lines, TUNING + seed) for seed in range(logs)]
        for name, policy in POLICIES.items():
            value = value_of(policy, kind)
            for total in (1.0, 5.0, 20.0, 60.0, 200.0):
                all_of = [found_of(block, policy, ridge=total) for block in blocks]
                errors = {
                    k: float(np.sqrt(np.mean([(one[k][0] - value) ** 2 for one in all_of]))) for k in ("dm", "dr")
                }
                results[f"{kind}, {name}, {total:g}"] = errors
                print(f"{kind:<10}{name:<15}ridge {total:>5g}  RMSE of dm {errors['dm']:.4f}, dr {errors['dr']:.4f}")
    return results


PARTS = {"truth": truth, "ridge": ridge}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: truth")
    parser.add_argument("--quick", action="store_true", help="20 logs a kind instead of 200")
    parser.add_argument("--logs", type=int, default=None)
    parser.add_argument("--lines", type=int, default=3000)
    options = parser.parse_args()
    for name in options.parts or ["truth"]:
        result = PARTS[name](options.logs or (20 if options.quick else 200), options.lines)
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"estimates-{name}-{options.lines}{'-quick' if options.quick else ''}.json"
        file.write_text(json.dumps(result, indent=2))
        if name == "truth":
            worst = max((one["ratio"], what) for what, one in result.items() if isinstance(one, dict))
            print(f"\nThe recommended estimate has at most {worst[0]:.2f}x the best RMSE ({worst[1]}; aim 1.5x).")


if __name__ == "__main__":
    main()
