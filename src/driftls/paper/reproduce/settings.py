"""The paper's table of settings, and the settings as used."""

from __future__ import annotations

from typing import Any

from driftls.paper.reproduce.work import Job, Options
from driftls.policies.registry import POLICIES
from driftls.report import Section, Table
from driftls.schedules import Normalised, Power

PRINTED = {
    "flinucb-gd": "λₙ = 1/n^(1−α), α = 0.6; γₙ = 1/(100 + n)",
    "flinucb-svrg": "λₙ = 1/n; γₙ = 0.0005",
    "flinucb-sag": "λₙ = 1/n; γₙ = 0.005",
}
TEXT = (
    "What the paper prints, and what was used here, as the policies say it themselves. The paper prints no κ (1 for "
    "its own policies unless said otherwise, estimated from the data for ours) and no ridge of LinUCB (here 1)."
)


def jobs(options: Options) -> list[Job]:
    """Nothing to measure."""
    return []


def show(options: Options, data: list[Any]) -> Section:
    """As printed, and as the objects of this library say it themselves."""
    rows = []
    for name, make in POLICIES.items():
        policy = make(136, None, 0)
        tracker = policy.tracker
        used = f"λₙ = {_formula(tracker.regularisation)}"
        if tracker.step_size != Power(0.0):
            used += f"; γₙ = {_formula(tracker.step_size)}"
        rows.append([name, PRINTED.get(name, "–"), type(tracker).__name__, used, type(policy.width).__name__])
    table = Table("settings", "Settings", ["policy", "printed", "tracker", "as used", "width"], rows)
    return Section("settings", "Table of settings", [TEXT], [table])


def _formula(schedule: Any) -> str:
    if isinstance(schedule, Normalised):
        return f"{schedule.scale:.2g}/max‖x‖²"
    if schedule.exponent == 0.0:
        return f"{schedule.scale:g}"
    below = f"({schedule.offset:g} + n)" if schedule.offset else "n"
    return f"{schedule.scale:g}/{below}" + (f"^{schedule.exponent:g}" if schedule.exponent != 1.0 else "")
