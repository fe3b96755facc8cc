"""Studies: policies, knobs and seeds on simulated bandits, on all cores or on a cluster, with the same result."""

from driftls.study.plan import Plan
from driftls.study.stages import run_study

__all__ = ["Plan", "run_study"]
