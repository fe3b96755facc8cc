"""Shared by all tests."""

import fcntl
import os

import pytest


@pytest.fixture(scope="session")
def little(tmp_path_factory):
    """The page of `driftls reproduce` from as little work as possible; looked at in two places."""
    from test_reproduce import little_page

    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder  # of all workers
    with (folder / "little.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # who comes second finds every job done
        return little_page(folder / "little")
