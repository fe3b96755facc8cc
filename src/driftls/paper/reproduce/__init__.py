"""The paper's experiments, one file each, and the page that they make."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from driftls.errors import SettingsError
from driftls.paper.reproduce import ctr, runtimes, scaling, section4, settings, theorem1, theorem2, tracking
from driftls.paper.reproduce.work import Options, Progress, do
from driftls.report import Page, how

__all__ = ["ALIASES", "EXPERIMENTS", "Options", "reproduce"]

# in the order of the page
EXPERIMENTS: dict[str, ModuleType] = {
    "run-times": runtimes,
    "ctr": ctr,
    "tracking": tracking,
    "settings": settings,
    "theorem-1": theorem1,
    "theorem-2": theorem2,
    "section-4": section4,
    "scaling": scaling,
}
ALIASES = {"figure-1": "run-times", "figure-2": "tracking"}  # the paper's two plots, in its order
LEAD = (
    "Every experiment and every claim of Korda, Prashanth and Munos, “Fast gradient descent for drifting least squares "
    "regression, with application to bandits”, done again, then with what we recommend. What holds, and by how much:"
)


def reproduce(
    options: Options,
    folder: Path,
    *,
    only: list[str] | None = None,
    jobs: int = 1,
    progress: Progress = lambda name, done, of: None,
) -> Page:
    """Measure what is not in the folder yet, and make the page of it."""
    names = [ALIASES.get(name, name) for name in only or EXPERIMENTS]
    for name in names:
        if name not in EXPERIMENTS:
            raise SettingsError(f"only must name experiments, got {name!r}. There are {', '.join(EXPERIMENTS)}.")
    chosen = {name: EXPERIMENTS[name] for name in EXPERIMENTS if name in names}
    data = do({name: each.pieces(options) for name, each in chosen.items()}, folder, jobs, progress)
    sections = [each.show(options, data[name]) for name, each in chosen.items()]
    told = how(seed=str(options.seed), days=", ".join(options.logs) or "synthetic")
    return Page("The paper, measured again", LEAD, sections, told)
