"""The paper's experiments, one file each, and the page that they make."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import ModuleType

from driftls.errors import SettingsError
from driftls.paper.reproduce import ctr, runtimes, scaling, section4, theorem1, theorem2, tracking
from driftls.paper.reproduce.common import Options, do
from driftls.report import how
from driftls.report.model import Page

__all__ = ["ALIASES", "EXPERIMENTS", "Options", "reproduce"]

# in the order of the page
EXPERIMENTS: dict[str, ModuleType] = {
    "run-times": runtimes,
    "ctr": ctr,
    "tracking": tracking,
    "theorem-1": theorem1,
    "theorem-2": theorem2,
    "section-4": section4,
    "scaling": scaling,
}
ALIASES = {"figure-1": "run-times", "figure-2": "tracking"}  # the paper's two plots, in its order
LEAD = (
    "Korda, Prashanth and Munos wrote “Fast gradient descent for drifting least squares regression, with application "
    "to bandits”. Here each of its experiments and claims is measured again, beside what we recommend."
)
QUICK = (
    " This is the quick run, on short synthetic days and streams. It cannot say what real logs would (`--log` can), "
    "nor how long runs end and what many features cost (`driftls reproduce` and `--full` can)."
)


def reproduce(
    options: Options,
    folder: Path,
    *,
    only: list[str] | None = None,
    workers: int = -1,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Page:
    """Measure what is not in the folder yet, and make the page of it."""
    names = [ALIASES.get(name, name) for name in only or EXPERIMENTS]
    for name in names:
        if name not in EXPERIMENTS:
            raise SettingsError(f"only must name experiments, got {name!r}. There are {', '.join(EXPERIMENTS)}.")
    chosen = [(each, each.jobs(options)) for name, each in EXPERIMENTS.items() if name in names]
    results = iter(do([job for _, jobs in chosen for job in jobs], folder, workers, progress))
    sections = [each.show(options, list(islice(results, len(jobs)))) for each, jobs in chosen]
    told = how(seed=str(options.seed), days=", ".join(options.logs) or "synthetic")
    return Page("The paper, measured again", LEAD + (QUICK if options.size == 0 else ""), sections, told)
