"""The running app, and colours to teach it."""

from __future__ import annotations

import zipfile

import pytest

from tests.drawn import COLOURS, write_pictures
from tests.serving import shared_server


@pytest.fixture(scope="session")
def server():
    return shared_server()


@pytest.fixture(scope="session")
def colours(tmp_path_factory):
    """Four images of each colour, in a folder a colour."""
    root = tmp_path_factory.mktemp("colours")
    write_pictures(root, dict.fromkeys(COLOURS, 4))
    return root


@pytest.fixture(scope="session")
def archive(colours, tmp_path_factory):
    """The same as a zip."""
    path = tmp_path_factory.mktemp("zip") / "colours.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for file in sorted(colours.rglob("*.png")):
            packed.write(file, f"colours/{file.parent.name}/{file.name}")
    return path
