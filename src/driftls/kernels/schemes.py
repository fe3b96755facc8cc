"""Which leaf serves which scheme: a tracker is what it does when a row enters, when one leaves, and in a step.

A new scheme is one line in each table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from driftls.kernels.cd import CDState, cd_enter, cd_forget, cd_step
from driftls.kernels.compile import by_type, exactly, kernel, leaf
from driftls.kernels.diagonal import DiagonalState, diagonal_enter
from driftls.kernels.exact import ExactState, exact_enter, exact_forget
from driftls.kernels.gd import (
    AveragedGDState,
    GDState,
    averaged_gd_coordinate,
    averaged_gd_dot,
    averaged_gd_step,
    gd_dot,
    gd_step,
)
from driftls.kernels.lazy import coordinate as lazy_coordinate
from driftls.kernels.lazy import shrunk_coordinate
from driftls.kernels.rows import CLOSE, coords_prefetch, row_dot
from driftls.kernels.sag import (
    SAGAState,
    SAGState,
    lazy_dot,
    sag_step,
    saga_step,
    table_enter,
    table_forget,
    table_prefetch,
)
from driftls.kernels.svrg import (
    SVRGAverageState,
    SVRGState,
    svrg_average_enter,
    svrg_average_forget,
    svrg_average_step,
    svrg_enter,
    svrg_forget,
    svrg_step,
)

Table = dict[type, Callable[..., Any]]


@kernel
def enter_nothing(state: Any, rows: Any, i: int, m: int, ridge: float) -> None:
    """The scheme keeps nothing of a row beyond the history"""


@kernel
def forget_nothing(state: Any, rows: Any, i: int, m: int) -> None:
    """Nothing of a row that leaves is in the state"""


@kernel
def step_nothing(state: Any, rows: Any, i: int, m: int, gamma: float, lam: float) -> float:
    """All was done when the row entered"""
    return 0.0


@leaf
def prefetch_coords(state: Any, rows: Any, i: int, stage: int) -> None:
    """Of what a step on row i needs beyond the row"""
    if stage == CLOSE:
        coords_prefetch(rows, i, state.coords)


@leaf
def prefetch_nothing(state: Any, rows: Any, i: int, stage: int) -> None:
    """The scheme draws no rows, or follows its own order"""


@leaf
def plain_dot(state: Any, rows: Any, i: int) -> float:
    """theta . x_i, of a scheme whose coords begin with theta itself"""
    return row_dot(rows, i, state.coords, 0)


@exactly
def plain_coordinate(state: Any, j: int) -> float:
    """theta_j, of a scheme whose coords begin with theta itself"""
    return state.coords[0, j]


# A row has come: (state, rows, i, rows held, total ridge n lambda_n)
ENTER: Table = {
    GDState: enter_nothing,
    AveragedGDState: enter_nothing,
    SVRGState: svrg_enter,
    SVRGAverageState: svrg_average_enter,
    SAGState: table_enter,
    SAGAState: table_enter,
    CDState: cd_enter,
    DiagonalState: diagonal_enter,
    ExactState: exact_enter,
}
# A row is about to be overwritten: (state, rows, i, rows held)
FORGET: Table = {
    GDState: forget_nothing,
    AveragedGDState: forget_nothing,
    SVRGState: svrg_forget,
    SVRGAverageState: svrg_average_forget,
    SAGState: table_forget,
    SAGAState: table_forget,
    CDState: cd_forget,
    DiagonalState: forget_nothing,
    ExactState: exact_forget,
}
# One inner step on row i: (state, rows, i, rows held, gamma, lambda_n); returns the error that it saw
STEP: Table = {
    GDState: gd_step,
    AveragedGDState: averaged_gd_step,
    SVRGState: svrg_step,
    SVRGAverageState: svrg_average_step,
    SAGState: sag_step,
    SAGAState: saga_step,
    CDState: cd_step,
    DiagonalState: step_nothing,
    ExactState: step_nothing,
}
# theta . x_i: (state, rows, i)
DOT: Table = {
    GDState: gd_dot,
    AveragedGDState: averaged_gd_dot,
    SVRGState: lazy_dot,
    SVRGAverageState: plain_dot,
    SAGState: lazy_dot,
    SAGAState: lazy_dot,
    CDState: plain_dot,
    DiagonalState: plain_dot,
    ExactState: plain_dot,
}
# theta_j: (state, j)
COORDINATE: Table = {
    GDState: shrunk_coordinate,
    AveragedGDState: averaged_gd_coordinate,
    SVRGState: lazy_coordinate,
    SVRGAverageState: plain_coordinate,
    SAGState: lazy_coordinate,
    SAGAState: lazy_coordinate,
    CDState: plain_coordinate,
    DiagonalState: plain_coordinate,
    ExactState: plain_coordinate,
}

# A step on row i is some steps ahead: (state, rows, i, stage)
PREFETCH: Table = {
    **dict.fromkeys(ENTER, prefetch_nothing),
    GDState: prefetch_coords,
    AveragedGDState: prefetch_coords,
    SVRGState: prefetch_coords,
    SAGState: table_prefetch,
    SAGAState: table_prefetch,
}

enter = by_type(ENTER)
forget = by_type(FORGET)
step = by_type(STEP)
state_prefetch = by_type(PREFETCH)
dot = by_type(DOT)
coordinate = by_type(COORDINATE, exact=True)
