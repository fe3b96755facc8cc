"""Shared by all tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def little(tmp_path_factory):
    """The page of `driftls reproduce` from as little work as possible; looked at in two places."""
    from test_reproduce import little_page

    return little_page(tmp_path_factory.mktemp("little"))
