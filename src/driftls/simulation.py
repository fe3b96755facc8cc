"""Rounds of a simulated bandit: regret, reward, tracking error and times of any policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from driftls.environments import Block, Pool
from driftls.errors import DimensionError, SettingsError
from driftls.inputs import as_whole
from driftls.policies import SharedPolicy
from driftls.run import Run

__all__ = ["log_points", "simulate"]

CHUNK = 128


def log_points(rounds: int, count: int = 25) -> list[int]:
    """About `count` rounds up to the last, evenly spread on a logarithmic axis."""
    return sorted({round(x) for x in np.geomspace(min(10, rounds), rounds, count)})


def simulate(
    policy: Any,
    environment: Pool,
    rounds: int,
    *,
    name: str | None = None,
    seed: int = 0,
    points: Sequence[int] | None = None,
    tracking: bool = False,
    engine: str = "compiled",
    progress: Callable[[int], None] = lambda done: None,
) -> Run:
    """Play `rounds` rounds and tell what happened.

    Parameters
    ----------
    policy, environment
        Any policy with `choose` and `learn`; a pool of arms.
    name, seed, progress
        What the `Run` says about itself; a function that is called with the number of rounds done.
    points : list of int
        Rounds at which traces are taken; spread logarithmically by default.
    tracking : bool
        Trace the tracking error, absolute and relative (where theta = 0 scores 1), against the tracker's own target.
    engine : {"compiled", "python"}
        "python" calls `choose` and `learn` round by round and is the specification; "compiled" makes the same
        decisions in one loop.

    Examples
    --------
    >>> from driftls.environments import FixedArms
    >>> from driftls.policies import LinUCB
    >>> run = simulate(LinUCB(5, seed=1), FixedArms(5, 10, seed=1), 200)
    >>> run.last("regret") < 200
    True
    """
    if engine not in ("compiled", "python"):
        raise SettingsError(f"engine must be 'compiled' or 'python', got {engine!r}.")
    if getattr(policy, "disjoint", False):
        raise SettingsError(f"a {type(policy).__name__} takes users, but the environment offers arms. Use one model.")
    if not isinstance(policy, SharedPolicy) and engine == "compiled":
        raise SettingsError(f'a {type(policy).__name__} has no compiled loop: pass engine="python".')
    if not isinstance(environment, Pool):
        raise SettingsError(f"expected an environment such as FixedArms(dim, 100), got {environment!r}.")
    if policy.dim != environment.dim:
        raise DimensionError(f"the policy has dim={policy.dim}, but the environment has dim={environment.dim}.")
    rounds = as_whole(rounds, "rounds")
    points = sorted({*(log_points(rounds) if points is None else [as_whole(p, "a point") for p in points]), rounds})
    if points[-1] > rounds:
        raise SettingsError(f"points must lie in 1 ... {rounds}, got {points[0]} ... {points[-1]}.")
    play, parts = (_compiled, ("play",)) if engine == "compiled" else (_python, ("choose", "learn"))
    seconds = dict.fromkeys(parts, 0.0)
    traces: dict[str, list[float]] = {"regret": [], "reward": []}
    regret = reward = 0.0
    done = 0
    for point in points:
        while done < point:
            count = min(CHUNK, point - done)
            block, line = environment.block(done + 1, count), np.arange(count)
            chosen = play(policy, block, seconds)
            regret += float((block.means.max(axis=1) - block.means[line, chosen]).sum())
            reward += float(block.rewards[line, chosen].sum())
            done += count
            progress(done)
        traces["regret"].append(regret)
        traces["reward"].append(reward)
        if tracking:
            error = policy.tracker.tracking_error()
            traces.setdefault("tracking_error", []).append(error.absolute)
            traces.setdefault("relative_tracking_error", []).append(error.relative)
    return Run(
        policy=name or type(policy).__name__,
        problem=f"{type(environment).__name__}(dim={environment.dim}, arms={environment.arms})",
        seed=seed,
        rounds=rounds,
        points=points,
        traces=traces,
        seconds=seconds,
        settings={"policy": repr(policy), "engine": engine},
    )


def _python(policy: SharedPolicy, block: Block, seconds: dict[str, float]) -> NDArray[np.int64]:
    """The specification: choose and learn, round by round."""
    count, K = block.means.shape
    chosen = np.zeros(count, dtype=np.int64)
    for r in range(count):
        arms = block.arms[r * K : (r + 1) * K] if sp.issparse(block.arms) else block.arms[r]
        ids = None if block.ids is None else block.ids[r]
        before = perf_counter()
        k = chosen[r] = policy.choose(arms, ids=ids)
        between = perf_counter()
        policy.learn(arms, float(block.rewards[r, k]), arm=k, ids=ids)
        seconds["choose"] += between - before
        seconds["learn"] += perf_counter() - between
    return chosen


def _compiled(policy: SharedPolicy, block: Block, seconds: dict[str, float]) -> NDArray[np.int64]:
    """The same in one compiled loop for each pool; without ids, every round has arms of its own."""
    arms, ids, rewards = block.arms, block.ids, block.rewards
    before = perf_counter()
    if ids is None:
        rows = arms if sp.issparse(arms) else arms.reshape(rewards.size, -1)
        chosen = np.asarray(policy.play(rows, rewards))
    else:
        borders = np.flatnonzero((ids[1:] != ids[:-1]).any(axis=1)) + 1
        pools = pairwise([0, *borders.tolist(), len(ids)])
        chosen = np.concatenate([policy.play(arms[a], rewards[a:b], ids=ids[a]) for a, b in pools])
    seconds["play"] += perf_counter() - before
    return chosen
