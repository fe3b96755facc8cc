"""The paper's claims, as `driftls reproduce` measures them: what its report says, for the docs.

    python -m benchmarks paper [--quick | --long]

The standard run, the quick one, or (`--long`) the full one, each with its own folder of results: interrupted, the same
command goes on where it was.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.measure import Options, Table, tell
from driftls import report
from driftls.paper import reproduce as stage

NAMES = ("quick", "standard", "full")


def claims(options: Options) -> Table:
    """Claim, what was measured, verdict."""
    size = 0 if options.quick else 2 if options.long else 1
    folder, begin = Path(tempfile.gettempdir()) / f"driftls-paper-{NAMES[size]}", time.perf_counter()
    page = stage.reproduce(stage.Options(size, 0, ()), folder, progress=lambda done, of: tell(f"{done} of {of} jobs"))
    minutes = (time.perf_counter() - begin) / 60.0
    rows = [
        [claim.claim, claim.measured, report.MARKS[claim.verdict]] for part in page.sections for claim in part.claims
    ]
    found = " ".join(finding.text for part in page.sections for finding in part.findings)
    return Table(rows, f"The {NAMES[size]} run, {minutes:.0f} minutes on synthetic days. {found}")
