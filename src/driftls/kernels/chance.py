"""The chance of a policy: uniform and normal numbers from a tape that was drawn in advance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from driftls.kernels.compile import kernel
from driftls.kernels.frames import Integers, Vector


class Chance(NamedTuple):
    """The policy's own tape of uniforms and (one entry) where to read it next."""

    tape: Vector
    cursor: Integers


@kernel
def uniform(chance: Chance) -> float:
    """The next number of the tape"""
    chance.cursor[0] += 1
    return chance.tape[chance.cursor[0] - 1]


@kernel
def normal(chance: Chance) -> float:
    """A standard normal number from two uniforms (Box and Muller)"""
    u = uniform(chance)
    return np.sqrt(-2.0 * np.log(1.0 - u)) * np.cos(2.0 * np.pi * uniform(chance))
