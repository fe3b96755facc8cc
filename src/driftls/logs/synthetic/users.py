"""Users of a synthetic day: which features they have."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftls.logs.columns import Floats, Ints, as_starts

DIM = 136  # user features
PAIRS = ((13, 14), (21, 22))  # ids that always come together
EITHER = (11, 12)  # ids of which a user has at most one

# Columns of the tape of uniforms: one row a line.
TIME, SHOWN, CLICK, COUNT, RARE_COUNT, RARE = 0, 1, 2, 3, 4, 5
MOST_RARE = 12
ITEM = RARE + MOST_RARE


class Users(NamedTuple):
    """How users are drawn. An item is a feature, or two that go together, or two that exclude each other."""

    count_cdf: Floats  # of the number of common features besides the constant, 0 .. 27
    band: NDArray[np.int8]  # of click rates, by that number
    take: Floats  # (item, features still to come): probability that the item is taken
    items: list[tuple[int, ...]]  # their features' ids
    split: float  # share of the first of the two that exclude each other
    rare_count_cdf: Floats
    rare_cdf: Floats
    rare: Ints


@cache
def aggregates() -> dict[str, Any]:
    """The figures that the day imitates; see ``r6b_aggregates.json``."""
    text = resources.files("driftls.logs.synthetic").joinpath("r6b_aggregates.json").read_text()
    return dict(json.loads(text))


@cache
def user_kinds(anonymous: float, rare: float) -> Users:
    figures = aggregates()
    # The profile's number of common features besides the constant, 0 .. 27; never 0, which is no profile.
    histogram = figures["visitors_by_common_ids"]
    profile = np.array([0, *(histogram[str(k + 1)] for k in range(1, len(histogram)))], np.float64)
    profile /= profile.sum()
    support = {int(i): p for i, p in figures["support_given_profile"].items()}
    items = [*PAIRS, EITHER, *((i,) for i in support if i not in sum(PAIRS, EITHER))]
    size = np.array([2 if item in PAIRS else 1 for item in items])
    either = sum(support[i] for i in EITHER)
    wanted = np.array([either if item == EITHER else support[item[0]] for item in items])

    common = {1, *support}
    rare_ids = np.array([i for i in range(1, DIM + 1) if i not in common])
    rare_weight = 1.0 / (10.0 + np.arange(1, len(rare_ids) + 1))  # ours: the log's own supports are not known
    rare_weight = np.random.default_rng(0).permutation(rare_weight)
    poisson = rare ** np.arange(MOST_RARE + 1.0) / np.cumprod([1.0, *range(1, MOST_RARE + 1)])
    edges = [int(k) - 1 for k in figures["ctr_by_common_ids"]]
    return Users(
        count_cdf=_cdf(np.array([anonymous, *((1 - anonymous) * profile[1:])])),
        band=(np.searchsorted(edges, np.arange(len(profile)), side="right") - 1).astype(np.int8),
        take=_largest_entropy(profile, size, wanted),
        items=items,
        split=support[EITHER[0]] / either,
        rare_count_cdf=_cdf(poisson),
        rare_cdf=_cdf(rare_weight),
        rare=rare_ids - 1,
    )


def _cdf(weights: NDArray[Any]) -> Floats:
    """Distribution function, ending in exactly 1, so that no uniform falls beyond it"""
    sums = np.cumsum(weights)
    return np.asarray(sums / sums[-1])


def _largest_entropy(count: Floats, size: Ints, wanted: Floats) -> Floats:
    """take[i, k]: probability of item i when k features are still to come, such that P(item i) = wanted[i].

    Given the number of features, subsets have probability proportional to the product of their items' odds; the odds
    are fitted by proportional steps.
    """
    n, most = len(size), len(count)
    odds = wanted / (1 - wanted)
    while True:
        ways = np.zeros((n + 1, most))  # ways[i, k]: summed products of odds over the subsets of items i.. of size k
        ways[n, 0] = 1.0
        take = np.zeros((n, most))
        for i in range(n - 1, -1, -1):
            ways[i] = ways[i + 1]
            ways[i, size[i] :] += odds[i] * ways[i + 1, : most - size[i]]
            np.divide(odds[i] * ways[i + 1, : most - size[i]], ways[i, size[i] :], out=take[i, size[i] :],
                      where=ways[i, size[i] :] > 0)  # fmt: skip
        left, has = count, np.zeros(n)
        for i in range(n):
            taken = left * take[i]
            has[i] = taken.sum()
            left = left - taken
            left[: most - size[i]] += taken[size[i] :]
        if np.abs(has - wanted).max() < 1e-5:  # the aggregates are rounded to four places
            return take
        odds *= wanted / (1 - wanted) * (1 - has) / has
        odds /= np.exp(np.log(odds).mean())


def draw_users(users: Users, tape: Floats) -> tuple[Ints, NDArray[np.int32], NDArray[np.int8]]:
    """Features of one user a row of the tape, as CSR rows, and the band of each; items are gone through for all at once"""
    n = len(tape)
    has = np.zeros((n, DIM), np.bool_)
    has[:, 0] = True
    count = np.searchsorted(users.count_cdf, tape[:, COUNT], side="right")
    left = count.copy()
    for place, item in enumerate(users.items):
        u, share = tape[:, ITEM + place], users.take[place, left]
        taken = (left > 0) & (u < share)
        second = taken & (u >= users.split * share) if item == EITHER else taken
        has[:, item[0] - 1] |= taken & ~second if item == EITHER else taken
        has[:, item[-1] - 1] |= second
        left -= 2 * taken if item in PAIRS else taken
    extra = np.where(count > 0, np.searchsorted(users.rare_count_cdf, tape[:, RARE_COUNT], side="right"), 0)
    for k in range(extra.max(initial=0)):
        (rows,) = np.nonzero(extra > k)
        has[rows, users.rare[np.searchsorted(users.rare_cdf, tape[rows, RARE + k], side="right")]] = True
    return as_starts(has.sum(1)), np.nonzero(has)[1].astype(np.int32), users.band[count]
