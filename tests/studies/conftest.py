"""What the tests of the studies share."""

from __future__ import annotations

import pytest

from tests.engines import tiny_engine
from tests.studies import drawn_tasks


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="session")
def tiny():
    return tiny_engine()


@pytest.fixture(scope="session")
def folder(root):
    return drawn_tasks.colours(root)


@pytest.fixture(scope="session")
def bank(root):
    return drawn_tasks.three_vectors(root)
