"""The old place of `driftls.features.CrossedArms`."""

from driftls.features.crossed import CrossedArms as Crossed

__all__ = ["Crossed"]
