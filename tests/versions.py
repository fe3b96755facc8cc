"""Every check of `driftls.testing`, for the Python that runs this: `make versions`."""

from __future__ import annotations

import sys

import numba
import numpy
import scipy

from driftls.policies import DisjointLinUCB, LinUCB
from driftls.testing import POLICY_CHECKS, TRACKER_CHECKS
from driftls.trackers import CD, RAW, RLS, SAGA, Diagonal

DRAWING = {SAGA: {"seed": 0}}


def main() -> None:
    for kind in (SAGA, RLS, CD, Diagonal):
        for check in TRACKER_CHECKS:
            check(lambda kind=kind: kind(4, **DRAWING.get(kind, {}), **RAW))
    for policy in (LinUCB, DisjointLinUCB):
        for check in POLICY_CHECKS:
            check(lambda policy=policy: policy(4, seed=0))
    used = ", ".join(f"{one.__name__} {one.__version__}" for one in (numba, numpy, scipy))
    print(f"Python {sys.version.split()[0]}, {used}: all checks hold")


if __name__ == "__main__":
    main()
