"""Ours against exact methods at their best and against other libraries: time, memory and reward, in one run."""

from driftls.bench.page import page, table
from driftls.bench.run import Options, Result, chosen, run, tune

__all__ = ["Options", "Result", "chosen", "page", "run", "table", "tune"]
