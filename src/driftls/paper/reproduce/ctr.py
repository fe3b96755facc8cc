"""The CTR score: LinUCB, its three variants, what we recommend, and what needs no widths."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls.paper.reproduce.replays import DIM, KAPPA, LINUCB, POLICIES, SAME_KERNELS, day_of, played
from driftls.paper.reproduce.work import Options, Piece
from driftls.report import Dot, Dots, Item, Mark, Section, Table, number, plus_minus
from driftls.run import interval

TITLE = "CTR score"
VARIANTS = ("fLinUCB-GD", "fLinUCB-SVRG", "fLinUCB-SAG")
OURS = ("SAGA, diagonal widths", "SAGA, one model an article", "our default, untuned")
TEXT = [
    "The paper reports that its variants reached 75% of LinUCB's CTR score under their best configurations, and "
    "believes that LinUCB had not seen enough data. It prints no score, no κ, and not how a visitor and an article "
    "become a vector.",
    f"Here: replay over the log, pairs hashed to d = {DIM}, κ = {KAPPA}, the standard deviation of a click, for all "
    "that have one. On a synthetic day the click rate of every candidate is known, so the true score over all lines "
    "stands beside the replay's, which counts some 3% of them. The variants start at θ = 0 with small steps, and their "
    "printed widths hardly differ between arms that do not recur: neither has gone far in one day.",
]


def pieces(options: Options) -> list[Piece]:
    """Each policy on each day and seed."""
    lines = options.pick(20_000, 100_000, 10**9 if options.logs else 1_850_000)  # of a log, all
    days = [(int(k), log) for k, log in enumerate(options.logs)] or [(2, ""), (4, "")][: options.pick(1, 2, 2)]
    return [
        Piece(
            f"replay: {SAME_KERNELS.get(policy, policy)}",
            score,
            {"policy": policy, "lines": lines, "seed": seed, "day": day, "log": log},
        )
        for policy in POLICIES
        for seed in options.seeds(5, 8, 20)
        for day, log in days
    ]


def score(policy: str, lines: int, seed: int, day: int, log: str) -> dict[str, Any]:
    """One replay: the score over the lines that count, and the true one where it is known."""
    run = played(
        policy, day_of(lines, seed, day, log), seed, metrics=[] if log else ["regret"], limit=lines, points=[lines]
    )
    value = run.settings["value"]
    told = {"ctr": run.last("ctr"), "true": None if value is None else 10_000 * value}
    return {"policy": policy, "lines": run.rounds, "evaluations": run.settings["evaluations"], **told}


def show(options: Options, data: list[dict[str, Any]]) -> Section:
    """Scores over LinUCB's, in a figure and a table."""
    kind = "ctr" if data[0]["true"] is None else "true"
    scores = {policy: np.array([one[kind] for one in data if one["policy"] == policy]) for policy in POLICIES}
    shares = {policy: _ratio(100.0 * values, scores[LINUCB]) for policy, values in scores.items()}
    best = max(VARIANTS, key=lambda policy: shares[policy][0])
    ours = max(OURS, key=lambda policy: shares[policy][0])
    found = (
        f"of LinUCB's score, where the paper has 75%: {best}, the best of its variants, reaches "
        f"{plus_minus(*shares[best])}%, {ours} {plus_minus(*shares[ours])}%, random {plus_minus(*shares['random'])}%."
    )
    return Section("ctr", TITLE, TEXT, [_figure(shares), _table(data, scores, shares)], found)


def _ratio(values: Any, base: Any) -> tuple[float, float]:
    """Mean over mean, and half of its 95% interval, paired by seed (delta method)."""
    ratio = float(values.mean() / base.mean())
    return ratio, interval(((values - ratio * base) / base.mean()).tolist())[1]


def _figure(shares: dict[str, tuple[float, float]]) -> Item:
    dots = [
        Dot(policy, share, half, 2 if policy in VARIANTS else 3 if policy in OURS else 1)
        for policy, (share, half) in shares.items()
    ]
    caption = "Mean over seeds and days, with its 95% interval, paired by seed."
    return Dots("ctr-share", "CTR over LinUCB's", caption, "% of LinUCB's CTR", dots, "", [Mark(75.0, "paper: 75%")])


def _table(data: list[dict[str, Any]], scores: dict[str, Any], shares: dict[str, tuple[float, float]]) -> Item:
    low, high = scores["random"].mean(), scores[LINUCB].mean()
    rows = []
    for policy, values in scores.items():
        replayed = plus_minus(*interval([one["ctr"] for one in data if one["policy"] == policy]))
        between = f"{100 * (values.mean() - low) / (high - low):.0f}"
        rows.append([policy, replayed, plus_minus(*interval(values.tolist())), plus_minus(*shares[policy]), between])
    head = ["policy", "CTR, replay", "CTR, true", "% of LinUCB's", "random 0, LinUCB 100"]
    counted = sum(one["evaluations"] for one in data) / sum(one["lines"] for one in data)
    note = (
        f"Clicks a 10,000 lines. Replay counts {number(100 * counted)}% of the lines. Without a truth, both are equal."
    )
    return Table("ctr", f"{data[0]['lines']:,} lines a day", head, rows, note)
