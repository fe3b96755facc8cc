"""The policies that every check is run over."""

from __future__ import annotations

from driftls import paper
from driftls.history import Growing
from driftls.policies import DisjointLinUCB, Greedy, LinTS, LinUCB, Random, SharedPolicy
from driftls.trackers import CD, RAW, RLS, SAGA
from driftls.widths import CentredWidth, DiagonalWidth, ExactWidth, NoWidth, PhiWidth, SampleWidth

DIM = 6


def saga(seed=1):
    return SAGA(DIM, steps=2, history=Growing(), seed=seed, **RAW)


# By name: a maker that takes epsilon. Two that it makes are alike.
CASES = {
    "LinUCB": lambda **k: LinUCB(DIM, seed=1, **k),
    "RLS + exact": lambda **k: LinUCB(tracker=RLS(DIM, **RAW), width=ExactWidth(), seed=1, **k),
    "SAGA + exact": lambda **k: LinUCB(tracker=saga(), width=ExactWidth(), seed=1, **k),
    "CD + exact": lambda **k: LinUCB(tracker=CD(DIM, **RAW), width=ExactWidth(), seed=1, **k),
    "SAGA + phi": lambda **k: LinUCB(tracker=saga(), width=PhiWidth(2), seed=1, **k),
    "SAGA + diagonal": lambda **k: SharedPolicy(saga(), DiagonalWidth(), seed=1, **k),
    "fLinUCB-GD": lambda **k: SharedPolicy(
        paper.frls_gd(DIM, seed=1), PhiWidth(method="printed"), kappa=0.5, seed=1, **k
    ),
    "LinTS": lambda **k: LinTS(DIM, seed=1, **k),
    "Greedy": lambda **k: Greedy(RLS(DIM, **RAW), seed=1, **k),
    "Random": lambda **k: Random(DIM, seed=1),
    "one exact model an arm": lambda **k: DisjointLinUCB(DIM, seed=1, **k),
    "one SAGA an arm": lambda **k: DisjointLinUCB(DIM, tracker=saga(), width=DiagonalWidth(), seed=1, **k),
    "one SAGA an arm, centred": lambda **k: DisjointLinUCB(
        DIM, tracker=SAGA(DIM, steps=2, seed=1), width=CentredWidth(), seed=1, **k
    ),
    "one phi an arm": lambda **k: DisjointLinUCB(DIM, tracker=saga(), width=PhiWidth(2), seed=1, **k),
    "one sample an arm": lambda **k: DisjointLinUCB(DIM, tracker=RLS(DIM, **RAW), width=SampleWidth(), seed=1, **k),
    "one greedy model an arm": lambda **k: DisjointLinUCB(DIM, tracker=CD(DIM, **RAW), width=NoWidth(), seed=1, **k),
}
