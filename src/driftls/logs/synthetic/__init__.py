"""A synthetic day of a news front page: the shape and the difficulty of Yahoo's R6B log, and a known truth."""

from driftls.logs.synthetic.day import SyntheticDay, synthetic_day

__all__ = ["SyntheticDay", "synthetic_day"]
