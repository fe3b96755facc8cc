"""`make bench`: the figures of the trackers, of PEGE and of the bandits, one after the other.

    python -m benchmarks [--quick]

`--quick` is what `make bench` runs; without it the bandits take hours on two cores.
"""

from __future__ import annotations

import subprocess
import sys

for module, quick in (
    ("trackers", []),
    ("pege", ["--quick"]),
    ("bandits", ["--quick"]),
    ("logs", []),
    ("study", ["--quick"]),
):
    arguments = quick if "--quick" in sys.argv else []
    print(f"\n== python -m benchmarks.{module} {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", f"benchmarks.{module}", *arguments], check=True)
