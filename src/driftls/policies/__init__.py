"""Who chooses: `choose` an arm, `learn` its reward."""

from driftls.crossed import Crossed
from driftls.policies.base import Policy
from driftls.policies.disjoint import DisjointLinUCB
from driftls.policies.linucb import LinUCB
from driftls.policies.others import EnsembleTS, Greedy, LinTS, Random
from driftls.policies.pool import FixedPool

__all__ = [
    "Crossed",
    "DisjointLinUCB",
    "EnsembleTS",
    "FixedPool",
    "Greedy",
    "LinTS",
    "LinUCB",
    "Policy",
    "Random",
]
