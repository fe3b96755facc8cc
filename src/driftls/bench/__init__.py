"""Ours against exact methods at their best and against other libraries: time, memory and reward, in one run."""

from driftls.bench.more import MORE, measure
from driftls.bench.page import page, table
from driftls.bench.run import Options, Result, chosen, run, tune

__all__ = ["MORE", "Options", "Result", "chosen", "measure", "page", "run", "table", "tune"]
