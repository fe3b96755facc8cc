"""Random calls of everything public: a small batch of what `make fuzz` runs for longer, and what it once found."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

import fuzz
from driftls.errors import DriftlsError
from driftls.policies import DisjointLinUCB
from driftls.sklearn import DriftingLeastSquares
from driftls.testing.common import same_snapshot
from driftls.trackers import SAGA
from driftls.widths import PhiWidth


@pytest.mark.parametrize(
    "rooms", [["trackers", "policies"], ["features", "events", "tables", "sklearn", "settings"]], ids=str
)
def test_a_batch_of_random_calls_finds_nothing(rooms):
    assert set(fuzz.ROOMS) == {"trackers", "policies", "features", "events", "tables", "sklearn", "settings"}
    count, found = fuzz.run(rooms, 1, 20)
    assert not found, "\n".join(found)
    assert min(count["taken"], count["refused"]) > 20


def test_a_first_fit_that_is_refused_leaves_the_estimator_unfitted():
    model = DriftingLeastSquares(random_state=0)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((3, 2), np.nan), np.ones(3))
    assert not hasattr(model, "tracker_")
    with pytest.raises(NotFittedError):
        model.predict(np.eye(2))


@pytest.mark.parametrize("sparse", [False, True])
def test_a_tracker_and_a_width_that_do_not_go_together_leave_no_trace(sparse):
    policy = DisjointLinUCB(3, tracker=SAGA(3, seed=0), width=PhiWidth(2), seed=0)
    before, user = policy.snapshot(), np.eye(3)[:1]
    with pytest.raises(DriftlsError):
        policy.choose(sp.csr_array(user) if sparse else user, ids=["a", "b"])
    same_snapshot(before, policy.snapshot(), "a policy that cannot be")


MALFORMED = """
import numpy as np
from driftls.sklearn import DriftingLeastSquares
from bad_rows import malformed
from driftls.testing.common import good_rows

fitted, refused = DriftingLeastSquares(random_state=0).fit(*good_rows(4)), 0
for name, matrix in malformed(4):
    for call in (
        lambda: fitted.predict(matrix),
        lambda: fitted.partial_fit(matrix, np.ones(6)),
        lambda: DriftingLeastSquares().fit(matrix, np.ones(6)),
    ):
        try:
            call()
        except (ValueError, TypeError):
            refused += 1
        else:
            assert "unsorted" in name or "repeated" in name, name  # which scikit-learn puts in order
print(refused)
"""


def test_matrices_that_contradict_themselves_do_not_end_the_process_by_way_of_scikit_learn():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", MALFORMED], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 300
