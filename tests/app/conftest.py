"""The real engine and the real server, opened once."""

from __future__ import annotations

import pytest
from PIL import Image

import atlas_engine as atlas
from tests.serving import shared_server


@pytest.fixture(scope="session")
def engine():
    with atlas.open(cache=False) as opened:
        yield opened


@pytest.fixture(scope="session")
def server():
    return shared_server()


@pytest.fixture
def draw(tmp_path):
    """A picture of one colour, saved under a name."""

    def save(name, colour="red"):
        Image.new("RGB", (64, 48), colour).save(tmp_path / name)
        return str(tmp_path / name)

    return save
