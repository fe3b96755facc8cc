"""How a policy weighs what it knows: kappa, and which of the scores wins."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from driftls.kernels.chance import Chance, uniform
from driftls.kernels.compile import kernel
from driftls.kernels.frames import Vector

# Judge.scalars: kappa is fixed, or (SIGMAS > 0) that many standard deviations of the noise, estimated as we go; DRAWS
# is the most that a round reads of the policy's tape; at LOOK learned rewards the caller wants to look at the ridge.
KAPPA, SIGMAS, EPSILON, ERRORS, LEARNED, PROBABILITY, DRAWS, LOOK = 0, 1, 2, 3, 4, 5, 6, 7
SCALARS = 8


class Judge(NamedTuple):
    """How a policy weighs what it knows; the scores of its last round."""

    scalars: Vector
    scores: Vector


@kernel
def weight(judge: Judge) -> float:
    """kappa; from the data: SIGMAS sqrt((1/n) sum e_t^2/(1 + w_t)), and SIGMAS itself while there was no error yet"""
    scalars = judge.scalars
    if scalars[SIGMAS] == 0.0:
        return scalars[KAPPA]
    if scalars[ERRORS] == 0.0:
        return scalars[SIGMAS]
    return scalars[SIGMAS] * np.sqrt(scalars[ERRORS] / scalars[LEARNED])


@kernel
def pick(judge: Judge, chance: Chance, count: int) -> int:
    """The arm with the highest score, the first of equals; with probability epsilon any arm"""
    best = int(np.argmax(judge.scores[:count]))
    epsilon = judge.scalars[EPSILON]
    chosen = best
    if epsilon > 0.0:
        u = uniform(chance)
        if u < epsilon:
            chosen = min(int(u / epsilon * count), count - 1)
    judge.scalars[PROBABILITY] = epsilon / count + (1.0 - epsilon if chosen == best else 0.0)
    return chosen
