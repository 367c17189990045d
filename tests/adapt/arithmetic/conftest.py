"""What the tests of task arithmetic share: a small engine, random directions, and two sets of colours."""

from __future__ import annotations

import pytest

from atlas_engine.data.support import Support
from tests.drawn import write_pictures
from tests.engines import tiny_engine
from tests.tiny import tiny_bank


@pytest.fixture(scope="session")
def engine():
    return tiny_engine()


@pytest.fixture(scope="session")
def bank(engine):
    """Three random directions, long enough to change answers."""
    return tiny_bank(engine.backbone.visual, size=0.5)


@pytest.fixture(scope="session")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target") / "set"
    return Support.from_folder(write_pictures(folder, {"red": 8, "blue": 8}))


@pytest.fixture(scope="session")
def control(tmp_path_factory):
    folder = tmp_path_factory.mktemp("control") / "set"
    return Support.from_folder(write_pictures(folder, {"dark_green": 8, "grey": 8}))
