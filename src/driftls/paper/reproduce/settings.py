"""The paper's table of settings, and the settings as used."""

from __future__ import annotations

from typing import Any

from driftls.paper.reproduce.replays import DEFAULT, KAPPA, POLICIES
from driftls.paper.reproduce.work import Job, Options
from driftls.report import Section, Table
from driftls.schedules import Normalised, Power

PRINTED = {
    "fLinUCB-GD": "λₙ = 1/n^(1−α), α = 0.6; γₙ = 1/(100 + n)",
    "fLinUCB-SVRG": "λₙ = 1/n; γₙ = 0.0005",
    "fLinUCB-SAG": "λₙ = 1/n; γₙ = 0.005",
}
TEXT = (
    "What the paper prints, and what was used for click rates and run times, as the policies say it themselves. The "
    f"paper prints no κ (here {KAPPA} where it is not found in the data) and no ridge of LinUCB (here 1)."
)


def jobs(options: Options) -> list[Job]:
    """Nothing to measure."""
    return []


def show(options: Options, data: list[Any]) -> Section:
    """As printed, and as the objects of this library say it themselves."""
    rows = []
    for name, make in POLICIES.items():
        policy = make(0)
        tracker = policy.tracker
        used = "found in the data" if name == DEFAULT else f"λₙ = {_formula(tracker.regularisation)}"
        if name != DEFAULT and tracker.step_size != Power(0.0):
            used += f"; γₙ = {_formula(tracker.step_size)}"
        rows.append([name, PRINTED.get(name, "–"), used, type(tracker).__name__, type(policy.width).__name__])
    table = Table("settings", "Settings", ["policy", "printed", "as used", "tracker", "width"], rows)
    return Section("settings", "Table of settings", [TEXT], [table])


def _formula(schedule: Any) -> str:
    if isinstance(schedule, Normalised):
        return f"{schedule.scale:.2g}/max‖x‖²"
    if schedule.exponent == 0.0:
        return f"{schedule.scale:g}"
    below = f"({schedule.offset:g} + n)" if schedule.offset else "n"
    return f"{schedule.scale:g}/{below}" + (f"^{schedule.exponent:g}" if schedule.exponent != 1.0 else "")
