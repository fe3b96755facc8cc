"""The synthetic day at full length: how fast it is made and read, and whether policies do on it what they should.

    python -m benchmarks.logs                # speed, and the rules on one day (about a minute)
    python -m benchmarks.logs --seeds 5      # the rules on five

The rules: 0.1-greedy on averages about doubles random's click rate, a learner that uses the visitor beats it, greed
loses. All under the log's own rule: a line counts only if the policy chose what was shown.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from driftls.kernels.compile import kernel
from driftls.logs import SyntheticDay, inspect, read, synthetic_day, write_parquet, yahoo
from driftls.logs.synthetic.text import r6b_text


@kernel
def averages(pool, start, rows, shown, reward, tape, epsilon, first, clicks, count):  # type: ignore[no-untyped-def]
    """Best average so far, or any with probability epsilon; returns matches and clicks"""
    matched, won = 0, 0.0
    for i in range(len(pool)):
        lo, hi = start[pool[i]], start[pool[i] + 1]
        choice, best = 0, -1.0
        for k in range(hi - lo):
            a = rows[lo + k]
            score = clicks[a] / count[a] if count[a] > 0 else first
            if score > best:
                choice, best = k, score
        if tape[i, 0] < epsilon:
            choice = int(tape[i, 1] * (hi - lo))
        if choice == shown[i]:
            a = rows[lo + choice]
            clicks[a] += reward[i]
            count[a] += 1
            matched += 1
            won += reward[i]
    return matched, won


@kernel
def linucb(pool, start, rows, shown, reward, user_start, index, kappa, theta, inverse, gain):  # type: ignore[no-untyped-def]
    """One exact LinUCB an article (Sherman-Morrison); returns matches and clicks"""
    matched, won = 0, 0.0
    for i in range(len(pool)):
        lo, hi = start[pool[i]], start[pool[i] + 1]
        u, v = user_start[i], user_start[i + 1]
        choice, best = 0, -np.inf
        for k in range(hi - lo):
            a = rows[lo + k]
            mean, width = 0.0, 0.0
            for p in range(u, v):
                mean += theta[a, index[p]]
                for q in range(u, v):
                    width += inverse[a, index[p], index[q]]
            score = mean + kappa * np.sqrt(max(width, 0.0))
            if score > best:
                choice, best = k, score
        if choice == shown[i]:
            a = rows[lo + choice]
            error, scale = reward[i], 1.0
            for r in range(len(gain)):
                gain[r] = 0.0
                for p in range(u, v):
                    gain[r] += inverse[a, r, index[p]]
            for p in range(u, v):
                error -= theta[a, index[p]]
                scale += gain[index[p]]
            for r in range(len(gain)):
                theta[a, r] += gain[r] * error / scale
                for q in range(len(gain)):
                    inverse[a, r, q] -= gain[r] * gain[q] / scale
            matched += 1
            won += reward[i]
    return matched, won


def rules(day: SyntheticDay) -> dict[str, float]:
    """The click rate of each policy on the day, times 10,000."""
    ids = day.articles.id
    n = len(ids)
    rng = np.random.default_rng(day.seed)
    blind = {"random": (1.0, 0.0), "0.1-greedy": (0.1, 1.0), "greedy": (0.0, 0.0)}
    memory: dict[str, Any] = {name: (np.zeros(n), np.zeros(n, np.int64)) for name in blind}
    memory["LinUCB"] = (np.zeros((n, 136)), np.tile(np.eye(136), (n, 1, 1)), np.zeros(136))
    total = {name: np.zeros(2) for name in memory}
    for b in day.blocks():
        log = b.pool, b.pool_start, np.searchsorted(ids, b.pool_ids), b.shown, b.reward
        tape = rng.random((len(b), 2))
        for name, (epsilon, first) in blind.items():
            total[name] += averages(*log, tape, epsilon, first, *memory[name])
        total["LinUCB"] += linucb(*log, b.user_start, b.user_index, 0.15, *memory["LinUCB"])
    return {name: 10_000 * won / matched for name, (matched, won) in total.items()}


def timed(action: Callable[[], Any], repeats: int = 3) -> float:
    """Processor time of the shortest of a few runs, in seconds: who else is on the machine matters little."""
    best = np.inf
    for _ in range(repeats):
        start = time.process_time()
        action()
        best = min(best, time.process_time() - start)
    return float(best)


def speed(lines: int) -> dict[str, float]:
    """Seconds that each stage of a day takes."""

    def inflate(path: Path) -> None:
        buffer = bytearray(yahoo.CHUNK)
        with yahoo._opened(str(path)) as stream:
            while stream.readinto(buffer):
                pass

    def drain(blocks: Any) -> None:
        for _ in blocks:
            pass

    day = synthetic_day(lines=lines, seed=1)
    drain(synthetic_day(lines=10).blocks(truth=True))  # compiles
    with tempfile.TemporaryDirectory() as folder:
        zipped, plain, parquet = Path(folder, "day.gz"), Path(folder, "day"), Path(folder, "day.parquet")
        day.write(zipped)
        day.write(plain)
        drain(read(zipped).blocks())  # compiles
        stages: dict[str, Callable[[], Any]] = {
            "synthetic day: arrays": lambda: drain(day.blocks()),
            "synthetic day: arrays and truth": lambda: drain(day.blocks(truth=True)),
            "synthetic day: arrays and text": lambda: drain(map(r6b_text, day.blocks())),
            "plain text to arrays": lambda: drain(read(plain).blocks()),
            "gz text to Parquet": lambda: write_parquet(read(zipped), parquet),
            "Parquet to arrays": lambda: drain(read(parquet).blocks()),
            "inspect, from gz text": lambda: inspect(read(zipped)),
        }
        seconds = {name: timed(stage) for name, stage in stages.items()}
        for module in dict.fromkeys((yahoo.GZIP, gzip)):  # the standard library's last
            yahoo.GZIP = module
            alone, parsed = timed(lambda: inflate(zipped)), timed(lambda: drain(read(zipped).blocks()))
            seconds |= {f"inflate alone, {module.__name__}": alone, f"gz text to arrays, {module.__name__}": parsed}
            print(f"{'gz text to arrays over inflate alone':40s} {parsed / alone:6.2f} ({module.__name__})")
        for path in (zipped, plain, parquet):
            print(f"{path.name:40s} {path.stat().st_size / 1e6:6.1f} MB")
        return seconds


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_850_000)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    for name, seconds in speed(options.lines).items():
        print(f"{name:40s} {seconds:6.2f} s")
    for seed in range(options.seeds):
        scores = rules(synthetic_day(lines=options.lines, seed=seed))
        print(f"seed {seed}:", ", ".join(f"{name} {score:.0f}" for name, score in scores.items()))


if __name__ == "__main__":
    main()
