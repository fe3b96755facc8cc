"""Policies: `choose` an arm, `learn` its reward, `play` many rounds."""

from driftls.policies.disjoint import DisjointLinUCB
from driftls.policies.linucb import LinUCB
from driftls.policies.policy import Policy
from driftls.policies.shared import SharedPolicy
from driftls.policies.simple import Greedy, LinTS, Random

__all__ = ["DisjointLinUCB", "Greedy", "LinTS", "LinUCB", "Policy", "Random", "SharedPolicy"]
