"""Shared by all tests."""

import fcntl
import os
import signal

import pytest


def pytest_configure():
    """Ctrl-C is heard, in this process and in those that tests start, however the suite was started.

    A shell without job control has what runs in the background (`nohup make test &`) ignore it, and so would every process
    that a test interrupts: what is ignored is inherited, what is handled is not. Workers of xdist come by here, too.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def little(tmp_path_factory):
    """The page of `driftls reproduce` from as little work as possible; looked at in two places."""
    from test_reproduce import little_page

    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder  # of all workers
    with (folder / "little.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # who comes second finds every job done
        return little_page(folder / "little")
