"""gamma_n and lambda_n, evaluated inside a kernel."""

from __future__ import annotations

from typing import NamedTuple

from driftls.kernels.compile import kernel
from driftls.kernels.frames import Vector

POWER, TABLE, NORMALISED = 0, 1, 2
SMALLEST_NORM2 = 1e-150  # of a row that a step is divided by: for anything smaller the step could overflow


class Plan(NamedTuple):
    """The settings that a kernel reads: two schedules (kind, scale, offset, exponent), their tables, and knobs."""

    step_size: Vector
    step_table: Vector
    regularisation: Vector
    regularisation_table: Vector
    knobs: Vector


@kernel
def power(schedule: Vector, n: float) -> float:
    """scale / (offset + n)^exponent; the common exponents cost no call of pow"""
    exponent = schedule[3]
    if exponent == 0.0:
        return schedule[1]
    if exponent == 1.0:
        return schedule[1] / (schedule[2] + n)
    return schedule[1] / (schedule[2] + n) ** exponent


@kernel
def step_size(plan: Plan, n: int, lam: float, max_norm2: float) -> float:
    """gamma_n; a normalised one is scale / max ||x||^2, held at 1/(2 lam) so that shrinking never overshoots"""
    schedule = plan.step_size
    if schedule[0] == TABLE:
        return plan.step_table[n - 1]
    gamma = power(schedule, float(n))
    if schedule[0] == NORMALISED:
        gamma = gamma / max_norm2 if max_norm2 > SMALLEST_NORM2 else 0.0
        if gamma * lam > 0.5:
            gamma = 0.5 / lam
    return gamma


@kernel
def regularisation(plan: Plan, count: float) -> float:
    """lambda_n, per row"""
    if plan.regularisation[0] == TABLE:
        return plan.regularisation_table[int(count) - 1]
    return power(plan.regularisation, count)


@kernel
def total_ridge(plan: Plan, count: float) -> float:
    """n lambda_n; free of rounding where lambda_n = lambda/n makes it constant"""
    schedule = plan.regularisation
    if schedule[0] == POWER and schedule[2] == 0.0 and schedule[3] == 1.0:
        return schedule[1]
    return count * regularisation(plan, count)
