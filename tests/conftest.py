"""Shared by all tests."""

import pytest


@pytest.fixture(scope="session")
def little(tmp_path_factory):
    """The page of `driftls reproduce` from as little work as possible; looked at in two places."""
    from test_reproduce import little_page

    return little_page(tmp_path_factory.mktemp("little"))
