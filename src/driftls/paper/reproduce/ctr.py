"""The CTR score: LinUCB, its three variants, and what we recommend."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftls.paper.reproduce.replays import DIM, KAPPA, LINUCB, POLICIES, Arms, day_of, pieces_of
from driftls.paper.reproduce.show import colour, share, told
from driftls.paper.reproduce.work import Job, Options
from driftls.report import Claim, Dot, Dots, Finding, Item, Mark, Section, Table, plus_minus

TITLE = "Click rates"
VARIANTS = ("fLinUCB-GD", "fLinUCB-SVRG", "fLinUCB-SAG")
OURS = ("SAGA, one model an article", "our default")
TEXT = [
    "The paper prints no score, no κ, and not how a user and an article become a vector. Here: pairs of user feature "
    f"and article, hashed to d = {DIM}; κ = {KAPPA}, the standard deviation of a click, for all that have one. "
    "Our default, one model an article, is not tuned: it estimates κ and its ridge.",
    "On a synthetic day the click probability of every candidate is known. So every line is a round: the policy's own "
    "choice is rewarded, and its score is the mean probability of what it chose, without the noise of clicks. A replay "
    "of a log, which learns from one line in 35, would need 35 times as many lines. With `--log` it is a replay.",
    "The claim holds if the best variant's interval reaches 75% and lies above random choice, in part if it only "
    "reaches 75%. A loss is conclusive if the interval of every variant lies below 100%.",
]


def jobs(options: Options) -> list[Job]:
    """All policies on each day; a log is a day, and its seeds are those of the policies."""
    lines = options.pick(4_000, 8_000, 50_000) if not options.logs else 10**9
    seeds = options.seeds(20, 320, 320) if not options.logs else options.seeds(2, 5, 20)
    return [
        Job(score, {"lines": lines, "seed": seed, "day": day, "log": log})
        for seed in seeds
        for day, log in enumerate(options.logs or ("",), 2)
    ]


def score(lines: int, seed: int, day: int, log: str) -> dict[str, Any]:
    """Clicks a 10,000 rounds of every policy."""
    policies = {name: make(seed) for name, make in POLICIES.items()}
    clicks, rounds = (dict.fromkeys(policies, 0.0) for _ in range(2))
    luck = np.random.default_rng([seed, day])
    for piece in pieces_of(day_of(lines, seed, day, log), lines):
        arms, line = Arms(piece), np.arange(len(piece))
        if piece.truth is not None:
            truth = piece.truth.reshape(len(piece), -1)
            rewards = (luck.random(truth.shape) < truth).astype(np.float64)
        for name, policy in policies.items():
            if piece.truth is None:
                same = arms.play(policy, piece.reward, piece.shown) == piece.shown
                clicks[name], rounds[name] = clicks[name] + piece.reward[same].sum(), rounds[name] + same.sum()
            else:
                clicks[name] += truth[line, arms.play(policy, rewards)].sum()
                rounds[name] += len(piece)
    return {"rounds": rounds[LINUCB], **{name: 1e4 * clicks[name] / max(rounds[name], 1) for name in policies}}


def show(options: Options, data: list[dict[str, Any]]) -> Section:
    """Scores over LinUCB's, in a figure and a table."""
    scores = {policy: [one[policy] for one in data] for policy in POLICIES}
    shares = {policy: share(values, scores[LINUCB]) for policy, values in scores.items()}
    best, ours = (max(names, key=lambda policy: shares[policy][0]) for names in (VARIANTS, OURS))
    reaches, beats = sum(shares[best]) >= 75.0, share(scores[best], scores["random"])
    lost = all(sum(shares[policy]) < 100.0 for policy in VARIANTS)
    per = {policy: f"{plus_minus(*shares[policy])}%" for policy in POLICIES}
    claims = [
        Claim(
            "At their best, the SGD variants reach 75% of LinUCB's click rate.",
            f"{best}, the best of them, reaches {per[best]}; choosing at random reaches {per['random']}.",
            "fails" if not reaches else "holds" if beats[0] - beats[1] > 100.0 else "in part",
        ),
        Claim(
            "The loss may not be conclusive: LinUCB has not seen enough data.",
            f"{', '.join(f'{policy} {per[policy]}' for policy in VARIANTS)} of LinUCB's clicks.",
            "fails" if lost else "holds",
        ),
    ]
    level = "no more than" if beats[0] - beats[1] <= 100.0 else "more than"
    worth = [LINUCB, *VARIANTS, "random"]
    findings = [
        Finding(
            f"{best}, the best of the paper's variants, earns {per[best]} of LinUCB's clicks, {level} random choice.",
            _dots("clicks-lost", shares, worth),
        ),
        Finding(
            f"We would use one model an article: {ours} earns {per[ours]} of that LinUCB's clicks.",
            _dots("clicks-ours", shares, [LINUCB, *list(POLICIES)[6:]]),
        ),
    ]
    items = [_dots("ctr-share", shares, list(POLICIES)), _table(scores, shares, data)]
    return Section("ctr", TITLE, TEXT, items, "", claims, findings)


def _dots(name: str, shares: dict[str, tuple[float, float]], policies: list[str]) -> Dots:
    dots = [Dot(policy, *shares[policy], colour(policy)) for policy in policies]
    caption = "Mean over days with its 95% interval, paired by day. A policy that learns nothing is where random is."
    return Dots(name, "Click rate over LinUCB's", caption, "% of LinUCB's", dots, "", [Mark(75.0, "paper: 75%")])


def _table(scores: dict[str, Any], shares: dict[str, tuple[float, float]], data: list[dict[str, Any]]) -> Item:
    low, high = np.mean(scores["random"]), np.mean(scores[LINUCB])
    rows = [
        [policy, told(values), plus_minus(*shares[policy]), f"{100 * (np.mean(values) - low) / (high - low):.0f}"]
        for policy, values in scores.items()
    ]
    head = ["policy", "clicks a 10,000", "% of LinUCB's", "random 0, LinUCB 100"]
    note = f"{len(data)} days of {data[0]['rounds']:,} rounds that count. Mean ± half of the 95% interval."
    return Table("ctr", "Click rates", head, rows, note)
