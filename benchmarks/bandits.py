"""What the fast bandits lose against exact ones, and what they cost: the figures of docs/benchmarks.md.

    python -m benchmarks.bandits [fixed] [defaults] [moving] [cost] [--quick] [--seeds N] [--jobs N]

prints tables and writes benchmarks/results/bandits-<part>.json (with --quick a small run, bandits-<part>-quick.json).
All policies of a seed meet the same arms, the same theta* and the same noise. Ratios are ratios of means over seeds;
their 95% intervals are paired by seed. Whatever is tuned is tuned on seeds from 10,000 on, and reported on the seeds
from 0 on. Times are medians over seeds, of the machine as it is: only ratios within one run mean anything, and the
load average is told.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from driftls import paper, ridge
from driftls.environments import FixedArms, FreshContexts, Jumps, Rotates
from driftls.features import UserFeatures
from driftls.history import Window
from driftls.logs import synthetic_day
from driftls.policies import DisjointLinUCB, EnsembleTS, FixedPool, Greedy, LinUCB
from driftls.policies.bandit import new_rounds
from driftls.run import interval
from driftls.simulate import simulate
from driftls.trackers import CD, GD, RLS, SAGA, Diagonal
from driftls.trackers.inputs import as_block
from driftls.widths import DiagonalWidth, ExactWidth, PhiWidth

RESULTS = Path(__file__).parent / "results"
TUNING = 10_000  # the first seed of those on which anything is tuned
SIGMA = 0.3
KAPPA = 2 * SIGMA


# -- helpers ---------------------------------------------------------------------------------------------------------


def ratio(values: Iterable[float], base: Iterable[float]) -> tuple[float, float]:
    """Mean over mean, and half its 95% interval from the pairs (delta method, Student's t)."""
    a, b = np.asarray(list(values), dtype=float), np.asarray(list(base), dtype=float)
    r = float(a.mean() / b.mean())
    if a.size < 2:
        return r, float("inf")
    spread = (a - r * b).std(ddof=1) / abs(b.mean()) / np.sqrt(a.size)
    return r, float(stats.t.ppf(0.975, a.size - 1) * spread)


def spread_over(work: Callable[..., Any], jobs: int, *arguments: Any) -> list[Any]:
    """work(*one) for each one of zip(arguments), in order, in so many processes."""
    if jobs == 1:
        return list(map(work, *arguments))
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(work, *arguments))


def columns(found: list[dict[str, Any]], part: str) -> dict[str, list[Any]]:
    """seed by policy -> policy by seed."""
    return {name: [one[name][part] for one in found] for name in found[0]}


def shown(pair: tuple[float, float], digits: int) -> str:
    return f"{pair[0]:,.{digits}f} ± {pair[1]:,.{digits}f}"


def settings(**more: Any) -> dict[str, Any]:
    return {**more, "load": os.getloadavg()[0], "cores": os.cpu_count()}


# -- fixed arms ------------------------------------------------------------------------------------------------------

DIM, ARMS, ROUNDS = 50, 100, 10_000
FIXED: dict[str, Callable[[int], Any]] = {
    "exact LinUCB": lambda s: LinUCB(tracker=RLS(DIM), width=ExactWidth(), kappa=KAPPA, seed=s),
    "CD + phi-CD": lambda s: LinUCB(tracker=CD(DIM), width=PhiWidth(method="cd"), kappa=KAPPA, seed=s),
    "SAGA (4) + phi": lambda s: LinUCB(tracker=SAGA(DIM, steps=4, seed=s), width=PhiWidth(), kappa=KAPPA, seed=s),
    "SAGA (4) + diagonal": lambda s: LinUCB(
        tracker=SAGA(DIM, steps=4, seed=s), width=DiagonalWidth(), kappa=KAPPA, seed=s
    ),
    "greedy": lambda s: Greedy(RLS(DIM), seed=s),
    "fLinUCB-GD as printed": lambda s: paper.flinucb_gd(DIM, kappa=KAPPA, seed=s),
}
ENSEMBLES = [20, 50, 100]
POINTS = [100, 300, 1000, 3000, 10_000]
NO_UNIT = ("greedy", "fLinUCB-GD as printed")  # no width, or none that an exact one of the same ridge stands beside


def fixed_pool(environment: FixedArms, rounds: int) -> dict[str, Any]:
    """Exact LinUCB in Gram space, from Python."""
    block = environment.block(1, rounds)
    policy = FixedPool(block.arms, kappa=KAPPA)
    means, noise = block.means[0], block.noise.tolist()
    pulls = np.zeros(rounds, dtype=np.int64)
    before = time.perf_counter()
    for n in range(rounds):
        k = policy.choose()
        policy.learn(means[k] + noise[n], arm=k)
        pulls[n] = k
    elapsed = time.perf_counter() - before
    return {"regret": float((means.max() - means[pulls]).sum()), "us": elapsed / rounds * 1e6, "width_error": [0.0]}


def ensemble(members: int, kappa: float, seed: int) -> EnsembleTS:
    return EnsembleTS(DIM, members=members, kappa=kappa, seed=seed)


def fixed_seed(seed: int, rounds: int, kappas: dict[int, float]) -> dict[str, dict[str, Any]]:
    """Every policy on one seed."""
    environment = FixedArms(DIM, ARMS, sigma=SIGMA, seed=seed)
    points = [point for point in POINTS if point <= rounds]
    policies = {name: make(seed) for name, make in FIXED.items()}
    policies |= {f"EnsembleTS ({M}), {kappa}": ensemble(M, kappa, seed) for M, kappa in kappas.items()}
    found = {}
    for name, policy in policies.items():
        run = simulate(policy, environment, rounds, points=points, width_error=name not in NO_UNIT)
        found[name] = {
            "regret": run.last("regret"),
            "us": sum(run.seconds.values()) / rounds * 1e6,
            "width_error": run.traces.get("width_error"),
        }
    found["FixedPool (exact)"] = fixed_pool(environment, rounds)
    return found


def ensemble_regret(seed: int, rounds: int, members: int, kappa: float) -> float:
    environment = FixedArms(DIM, ARMS, sigma=SIGMA, seed=seed)
    return simulate(ensemble(members, kappa, seed), environment, rounds, points=[rounds]).last("regret")


def tuned_ensembles(rounds: int, tuning: range, jobs: int) -> tuple[dict[int, float], dict[str, float]]:
    """The best kappa for each number of members, and the mean regrets that say so."""
    kappas = [0.2, 0.25, 0.3]
    grid = list(product(ENSEMBLES, kappas))
    tasks = [(seed, rounds, *setting) for setting in grid for seed in tuning]
    regrets = np.reshape(spread_over(ensemble_regret, jobs, *zip(*tasks)), (len(ENSEMBLES), len(kappas), -1)).mean(2)
    chosen = {M: kappas[int(row.argmin())] for M, row in zip(ENSEMBLES, regrets)}
    print(f"EnsembleTS on the seeds {tuning[0]:,} ... {tuning[-1]:,}: mean regret")
    means = {f"M = {M}, kappa = {kappa}": float(mean) for (M, kappa), mean in zip(grid, regrets.ravel())}
    for setting, mean in means.items():
        print(f"  {setting:24s}{mean:8.0f}")
    return chosen, means


def fixed(quick: bool, seeds: int | None, jobs: int) -> dict[str, Any]:
    """Fixed arms, where widths decide: regret against exact LinUCB, width errors, times."""
    rounds = 1000 if quick else ROUNDS
    count = seeds or (4 if quick else 200)
    chosen, tuned = tuned_ensembles(rounds, range(TUNING, TUNING + (3 if quick else 60)), jobs)
    found = spread_over(fixed_seed, jobs, range(count), [rounds] * count, [chosen] * count)
    regret, us, errors = (columns(found, part) for part in ("regret", "us", "width_error"))
    print(f"\nfixed arms, d = {DIM}, K = {ARMS}, {rounds:,} rounds, sigma = {SIGMA}, kappa = {KAPPA}, lambda = 1,")
    print(f"seeds 0 ... {count - 1}; width error: mean over arms and seeds, at the worst of {POINTS}, and at the end")
    print(f"{'':24s}{'regret':>15s}{'median':>8s}{'over exact':>16s}{'width error':>19s}{'us a round':>12s}")
    rows: dict[str, Any] = {}
    for name, values in regret.items():
        wrong = None if errors[name][0] is None else np.mean(errors[name], axis=0)
        rows[name] = {
            "regret": interval(values),
            "median": statistics.median(values),
            "ratio": ratio(values, regret["exact LinUCB"]),
            "width_error": None if wrong is None else [float(value) for value in wrong],
            "us": statistics.median(us[name]),
            "by_seed": values,
        }
        row = rows[name]
        width = "-" if wrong is None else f"{wrong.max():.3%}, {wrong[-1]:.3%}"
        over = shown(row["ratio"], 3)
        print(f"{name:24s}{shown(row['regret'], 0):>15s}{row['median']:>8.0f}{over:>16s}{width:>19s}{row['us']:>12.1f}")
    told = settings(dim=DIM, arms=ARMS, rounds=rounds, seeds=count, kappa=KAPPA, ensemble_kappas=chosen)
    return {"settings": told, "ensemble_tuning": tuned, "policies": rows}


# -- defaults --------------------------------------------------------------------------------------------------------

FRESH_DIM, FRESH_ARMS = 200, 20


def fresh_reward(seed: int, rounds: int, lam: float | None, kappa: float | None, fast: bool = False) -> float:
    """Expected reward in fresh contexts: lam None for the defaults."""
    policy = LinUCB(FRESH_DIM, seed=seed)
    if fast:
        policy = LinUCB(tracker=SAGA(FRESH_DIM, seed=seed), width=DiagonalWidth(), seed=seed)
    elif lam is not None:
        policy = exact(FRESH_DIM, lam, kappa)
    return pool_reward(policy, FreshContexts(FRESH_DIM, FRESH_ARMS, sigma=SIGMA, seed=seed), rounds)


def fixed_reward(seed: int, rounds: int, lam: float | None, kappa: float | None, fast: bool = False) -> float:
    """The same for fixed arms."""
    policy = LinUCB(DIM, seed=seed)
    if fast:
        policy = LinUCB(tracker=CD(DIM), width=PhiWidth(method="cd"), sigmas=2.0, seed=seed)
    elif lam is not None:
        policy = exact(DIM, lam, kappa)
    return pool_reward(policy, FixedArms(DIM, ARMS, sigma=SIGMA, seed=seed), rounds)


def exact(dim: int, lam: float, kappa: float | None) -> LinUCB:
    return LinUCB(tracker=RLS(dim, regularisation=ridge(lam)), width=ExactWidth(), kappa=kappa)


def pool_reward(policy: LinUCB, environment: Any, rounds: int) -> float:
    """The sum of the means of what was chosen: the reward without the noise, which is the same for all policies."""
    run = simulate(policy, environment, rounds, points=[rounds])
    return float(run.last("reward") - environment.noise(1, rounds).sum())


def article_reward(seed: int, lines: int, lam: float | None, kappa: float | None, fast: bool = False) -> float:
    """Expected clicks on an R6B-like day, one model an article.

    A day has 1.85 million lines. Here it is thinned to so many, evenly: all articles come and go as on the full day,
    and each line is a round. A click is a uniform number below the truth of the candidate that was chosen; the
    uniform belongs to the line, whatever is chosen.
    """
    policy = DisjointLinUCB(136, seed=seed)
    if fast:
        policy = DisjointLinUCB(136, tracker=SAGA(136, regularisation=ridge(60.0)), seed=seed)
    elif lam is not None:
        tracker = RLS(136, regularisation=ridge(lam))
        policy = DisjointLinUCB(136, tracker=tracker, width=ExactWidth(), kappa=kappa, seed=seed)
    return clicks(policy, seed, lines)


def clicks(policy: DisjointLinUCB, seed: int, lines: int) -> float:
    """The sum of the truths of what was chosen, in one compiled loop a pool."""
    luck = np.random.default_rng([seed, 77])
    features, total = UserFeatures(136), 0.0
    for block in synthetic_day(lines=lines, seed=seed).blocks(truth=True):
        users, at = features.users(block), block.truth_start
        rows = as_block(users, np.zeros(len(block)), True, np.dtype(float))
        uniforms = luck.random(len(block))
        borders = [0, *(np.flatnonzero(np.diff(block.pool)) + 1).tolist(), len(block)]
        for first, last in pairwise(borders):
            ids = block[first].arms.tolist()
            slots = policy._pool(ids, policy._user(users[[first]]))
            truth = block.truth[at[first] : at[last]].reshape(last - first, len(ids))
            rewards = (uniforms[first:last, None] < truth).astype(float)
            job = new_rounds(np.arange(first, last), np.full(last - first, -1), rewards)
            policy._play(rows, slots, job, 0, last - first)
            total += float(truth[np.arange(last - first), job.chosen].sum())
    return total


CASES: dict[str, dict[str, Any]] = {
    "fresh": {
        "title": f"fresh dense contexts, d = {FRESH_DIM}, K = {FRESH_ARMS}",
        "play": fresh_reward,
        "rounds": (10_000, 400),
        "lambda": [1.0, 3.0, 10.0, 30.0],
        "kappa": [0.03, 0.1, 0.3],
        "tuning": 5,
        "seeds": 30,
        "other": "SAGA + diagonal, lambda = 1",
    },
    "articles": {
        "title": "R6B-like day, one model an article, d = 136",
        "play": article_reward,
        "rounds": (20_000, 2000),
        "lambda": [10.0, 30.0, 100.0, 300.0],
        "kappa": [0.5, 1.0, 2.0],
        "tuning": 8,
        "seeds": 40,
        "other": "SAGA + diagonal, lambda = 60",
    },
    "fixed": {
        "title": f"fixed arms, d = {DIM}, K = {ARMS}",
        "play": fixed_reward,
        "rounds": (10_000, 400),
        "lambda": [0.3, 1.0, 3.0, 10.0],
        "kappa": [0.3, 0.45, 0.6],
        "tuning": 20,
        "seeds": 100,
        "other": "CD + phi-CD, lambda = 1",
    },
}


def defaults(quick: bool, seeds: int | None, jobs: int, only: list[str] | None = None) -> dict[str, Any]:
    """Policies without a knob against exact LinUCB whose lambda and kappa were tuned."""
    report = {}
    for name in only or CASES:
        case = CASES[name]
        rounds = case["rounds"][quick]
        count = seeds or (3 if quick else case["seeds"])
        tuning = range(TUNING, TUNING + (2 if quick else case["tuning"]))
        grid = list(product(case["lambda"], case["kappa"]))
        tasks = [(seed, rounds, lam, kappa) for lam, kappa in grid for seed in tuning]
        rewards = np.reshape(spread_over(case["play"], jobs, *zip(*tasks)), (len(grid), len(tuning)))
        lam, kappa = grid[int(rewards.mean(axis=1).argmax())]
        print(f"\n{case['title']}, {rounds:,} rounds; exact LinUCB on the seeds {tuning[0]:,} ... {tuning[-1]:,}:")
        for setting, row in zip(grid, rewards):
            print(f"  lambda {setting[0]:5.1f}  kappa {setting[1]:4.2f}  reward {row.mean():10.1f}")
        many = range(count)

        def rewarded(*setting: Any, many: range = many, rounds: int = rounds, play: Any = case["play"]) -> list[float]:
            return spread_over(play, jobs, many, *([value] * len(many) for value in (rounds, *setting)))

        tuned = rewarded(lam, kappa)
        rows = {"exact, tuned": tuned, "defaults": rewarded(None, None), case["other"]: rewarded(None, None, True)}
        print(f"tuned: lambda = {lam}, kappa = {kappa}. Seeds 0 ... {count - 1}: reward, and its change against tuned")
        table = {}
        for label, values in rows.items():
            share, half = ratio(values, tuned)
            table[label] = {"reward": interval(values), "change": [share - 1.0, half], "by_seed": values}
            change = f"{100 * (share - 1):+.2f} ± {100 * half:.2f}%"
            print(f"{label:36s}{shown(table[label]['reward'], 1):>22s}{change:>20s}")
        report[name] = {
            "settings": settings(rounds=rounds, seeds=count, tuning=list(tuning), tuned=[lam, kappa]),
            "grid": [[*setting, float(row.mean())] for setting, row in zip(grid, rewards)],
            "policies": table,
        }
    return report


# -- a theta* that moves ---------------------------------------------------------------------------------------------

DISCOUNT, MEMORY = 0.998, 500
MOVES = {"jumps every 2,500": Jumps(2500), "turns once in 10,000": Rotates(10_000)}
MOVING: dict[str, Callable[[int], Any]] = {
    "exact D-LinUCB": lambda s: LinUCB(
        tracker=RLS(DIM, discount=DISCOUNT, method="inverse"), width=ExactWidth(), kappa=KAPPA, seed=s
    ),
    "CD, discounted, + phi-CD": lambda s: LinUCB(
        tracker=CD(DIM, discount=DISCOUNT), width=PhiWidth(method="cd"), kappa=KAPPA, seed=s
    ),
    "no forgetting": lambda s: LinUCB(tracker=RLS(DIM), width=ExactWidth(), kappa=KAPPA, seed=s),
    "NLMS + diagonal": lambda s: LinUCB(
        tracker=GD(DIM, newest=True, regularisation=ridge(1.0)), width=DiagonalWidth(), kappa=KAPPA, seed=s
    ),
    "NLMS, greedy": lambda s: Greedy(GD(DIM, newest=True), seed=s),
    f"SAGA, window {MEMORY}, + phi": lambda s: LinUCB(
        tracker=SAGA(DIM, history=Window(MEMORY), seed=s), width=PhiWidth(steps=4), kappa=KAPPA, seed=s
    ),
}


def moving_seed(seed: int, rounds: int, moves: Any) -> dict[str, dict[str, float]]:
    environment = FixedArms(DIM, ARMS, sigma=SIGMA, moves=moves, seed=seed)
    found = {}
    for name, make in MOVING.items():
        run = simulate(make(seed), environment, rounds, points=[rounds])
        found[name] = {"regret": run.last("regret"), "us": sum(run.seconds.values()) / rounds * 1e6}
    return found


def moving(quick: bool, seeds: int | None, jobs: int) -> dict[str, Any]:
    """Regret against exact D-LinUCB while theta* moves."""
    rounds, count = (1000, seeds or 3) if quick else (ROUNDS, seeds or 100)
    report: dict[str, Any] = {"settings": settings(rounds=rounds, seeds=count, discount=DISCOUNT, window=MEMORY)}
    print(f"\nfixed arms, d = {DIM}, K = {ARMS}, {rounds:,} rounds, sigma = {SIGMA}, kappa = {KAPPA}, lambda = 1,")
    print(f"discount {DISCOUNT}, seeds 0 ... {count - 1}")
    for title, moves in MOVES.items():
        found = spread_over(moving_seed, jobs, range(count), [rounds] * count, [moves] * count)
        regret, us = columns(found, "regret"), columns(found, "us")
        print(f"theta* {title:24s}{'regret':>15s}{'over D-LinUCB':>16s}{'us a round':>12s}")
        report[title] = {}
        for name, values in regret.items():
            row = {
                "regret": interval(values),
                "ratio": ratio(values, regret["exact D-LinUCB"]),
                "us": statistics.median(us[name]),
                "by_seed": values,
            }
            report[title][name] = row
            print(f"  {name:29s}{shown(row['regret'], 0):>15s}{shown(row['ratio'], 3):>16s}{row['us']:>12.1f}")
    return report


# -- cost ------------------------------------------------------------------------------------------------------------

COST_ARMS = 20
COST: dict[str, Callable[[int], Any]] = {
    "Diagonal + diagonal": lambda d: LinUCB(tracker=Diagonal(d), width=DiagonalWidth(), kappa=SIGMA),
    "SAGA (8) + diagonal": lambda d: LinUCB(tracker=SAGA(d, seed=0), width=DiagonalWidth(), kappa=SIGMA),
    "SAGA (8) + phi (4), cold": lambda d: LinUCB(tracker=SAGA(d, seed=0), width=PhiWidth(steps=4), kappa=SIGMA),
    "CD (4) + diagonal": lambda d: LinUCB(tracker=CD(d), width=DiagonalWidth(), kappa=SIGMA),
    "exact": lambda d: LinUCB(tracker=RLS(d), width=ExactWidth(), kappa=SIGMA),
}
BLAS = "exact, NumPy with BLAS"


def numpy_rounds(arms: np.ndarray, noise: np.ndarray, state: list[np.ndarray]) -> float:
    """Sherman-Morrison with NumPy: the exact method as a careful user would write it. Seconds."""
    inverse, theta = state
    before = time.perf_counter()
    for X, xi in zip(arms, noise):
        k = int(np.argmax(X @ theta + SIGMA * np.sqrt(np.einsum("kd,kd->k", X @ inverse, X))))
        x = X[k]
        g = inverse @ x
        gain = 1.0 / (1.0 + x @ g)
        theta += g * ((xi - x @ theta) * gain)
        inverse -= np.outer(g * gain, g)
    return time.perf_counter() - before


def cost(quick: bool, seeds: int | None, jobs: int) -> dict[str, Any]:
    """Microseconds a round against d, with fresh dense arms: least of several repetitions, taken in turns."""
    dims = [64, 128, 256] if quick else [64, 128, 256, 512, 1024, 2048, 4096]
    repeats = seeds or (2 if quick else 5)
    us: dict[str, list[float]] = {name: [] for name in [*COST, BLAS]}
    for make in COST.values():  # compile
        simulate(make(dims[0]), FreshContexts(dims[0], COST_ARMS, seed=1), 20, points=[20])
    for d in dims:
        environment = FreshContexts(d, COST_ARMS, sigma=SIGMA, seed=0)
        policies = {name: make(d) for name, make in COST.items()}
        state = [np.eye(d), np.zeros(d)]
        quadratic = int(np.clip(1e9 / (COST_ARMS * d * d), 3, 200))
        found = dict.fromkeys(us, np.inf)
        for _ in range(repeats):
            for name, policy in policies.items():
                rounds = quadratic if name == "exact" else 200
                run = simulate(policy, environment, rounds, points=[rounds])
                found[name] = min(found[name], sum(run.seconds.values()) / rounds * 1e6)
            block = environment.block(1, quadratic)
            found[BLAS] = min(found[BLAS], numpy_rounds(block.arms, block.noise, state) / quadratic * 1e6)
        for name, value in found.items():
            us[name].append(value)
        del policies, state
    print(f"\nus a round, K = {COST_ARMS} fresh dense arms; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'d =':26s}" + "".join(f"{d:>10,}" for d in dims) + "   slope (all, from 512)")
    slopes = {}
    for name, row in us.items():
        late = [i for i, d in enumerate(dims) if d >= min(512, dims[-2])]
        slopes[name] = [slope(dims, row), slope([dims[i] for i in late], [row[i] for i in late])]
        print(f"{name:26s}" + "".join(f"{value:10.1f}" for value in row) + "   {:.2f} {:.2f}".format(*slopes[name]))
    crossings = {}
    for name in us:
        for base in ("exact", BLAS):
            if not name.startswith("exact"):
                crossings[f"{name} / {base}"] = crossing(dims, us[name], us[base])
    print("faster from d =", ", ".join(f"{pair}: {value}" for pair, value in crossings.items()))
    return {"settings": settings(dims=dims, arms=COST_ARMS, repeats=repeats), "us": us, "slopes": slopes,
            "crossings": crossings}  # fmt: skip


def slope(xs: list[int], ys: list[float]) -> float:
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def crossing(dims: list[int], fast: list[float], base: list[float]) -> str:
    """Where the fast one becomes the faster one, by interpolation between the measured d."""
    gap = np.log(np.array(base) / np.array(fast))
    if gap[0] > 0:
        return f"below {dims[0]}"
    above = np.flatnonzero(gap > 0)
    if not above.size:
        return f"above {dims[-1]}"
    i = int(above[0])
    return f"{dims[i - 1] * (dims[i] / dims[i - 1]) ** (-gap[i - 1] / (gap[i] - gap[i - 1])):.0f}"


# -- command ---------------------------------------------------------------------------------------------------------


def main() -> None:
    parts = {"fixed": fixed, "defaults": defaults, "moving": moving, "cost": cost}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"any of {', '.join(parts)}; all of them by default")
    parser.add_argument("--quick", action="store_true", help="few rounds, few seeds: does it run?")
    parser.add_argument("--seeds", type=int, help="number of seeds that are reported (cost: of repetitions)")
    parser.add_argument("--jobs", type=int, default=1, help="processes, for all but cost")
    parser.add_argument("--only", nargs="+", choices=list(CASES), help="cases of defaults")
    given = parser.parse_args()
    unknown = set(given.parts) - set(parts)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    RESULTS.mkdir(exist_ok=True)
    for name in given.parts or parts:
        started = time.perf_counter()
        more = {"only": given.only} if name == "defaults" else {}
        report = parts[name](given.quick, given.seeds, given.jobs, **more)
        taken = time.perf_counter() - started
        print(f"({name}: {taken:.0f} s, load {', '.join(f'{load:.1f}' for load in os.getloadavg())})\n", flush=True)
        tail = "".join(f"-{case}" for case in given.only or []) if name == "defaults" else ""
        (RESULTS / f"bandits-{name}{tail}{'-quick' * given.quick}.json").write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
