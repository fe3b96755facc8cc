"""`make figures`: all figures of docs/benchmarks.md, one after the other.

    python -m benchmarks [--quick]

`--quick` is what `make figures` runs; without it the bandits take hours on two cores.
"""

from __future__ import annotations

import subprocess
import sys

PARTS = {
    "trackers": [],
    "pege": ["--quick"],
    "bandits": ["--quick"],
    "logs": [],
    "replay": ["--quick"],
    "study": ["--quick"],
}
for module, quick in PARTS.items():
    arguments = quick if "--quick" in sys.argv else []
    print(f"\n== python -m benchmarks.{module} {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", f"benchmarks.{module}", *arguments], check=True)
