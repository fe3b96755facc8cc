"""Every policy of ours passes the checks that a user's own must pass."""

from __future__ import annotations

import pytest

from driftls import policies
from driftls.policies import LinUCB
from driftls.policies.policy import Policy
from driftls.testing import POLICY_CHECKS
from driftls.testing import policies as checks
from policy_cases import CASES, DIM


@pytest.mark.parametrize("check", POLICY_CHECKS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_policy(case, check):
    check(lambda: case())


EXPLORE = [checks.the_seed_decides, checks.resuming_equals_never_having_stopped, checks.play_equals_choose_and_learn]


@pytest.mark.parametrize("check", [*EXPLORE, checks.only_allowed_arms_are_chosen])
@pytest.mark.parametrize("name", ["LinUCB", "SAGA + phi", "LinTS", "one SAGA an arm"])
def test_with_an_exploration_floor(name, check):
    check(lambda: CASES[name](epsilon=0.3))


def test_the_list_names_every_policy_that_is_offered():
    offered = {kind for kind in vars(policies).values() if isinstance(kind, type) and issubclass(kind, Policy)}
    assert {type(case()) for case in CASES.values()} >= offered - {Policy}


class Forgetful(LinUCB):
    """A policy of a user that gets one thing wrong: a refused choice counts as a round."""

    def choose(self, arms, **more):
        self._models.rounds += 1
        return super().choose(arms, **more)


class Curious(LinUCB):
    """Another one, which draws a number when it is asked for scores."""

    def scores(self, arms, **more):
        self._models.draws.take(1)
        return super().scores(arms, **more)


@pytest.mark.parametrize(
    ("kind", "check"),
    [(Forgetful, checks.a_refused_call_changes_nothing), (Curious, checks.a_question_changes_nothing)],
)
def test_the_checks_notice(kind, check):
    with pytest.raises(AssertionError, match=r"changed|header"):
        check(lambda: kind(DIM, seed=0))
