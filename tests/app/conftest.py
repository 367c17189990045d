"""The real engine and the real server, opened once; and a small engine with a bank, for all that learns."""

from __future__ import annotations

import zipfile

import pytest
from PIL import Image

import atlas_engine as atlas
from app.handlers.few_shot import FewShotRequest, adapt_few_shot
from app.handlers.settings import FewShotSettings
from app.handlers.uploads import ClassRow, UploadedImage
from tests.drawn import COLOURS, square
from tests.serving import shared_server
from tests.task_vectors import engine_with_task_vectors


@pytest.fixture(scope="session")
def engine():
    with atlas.open(cache=False) as opened:
        yield opened


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """A small real model with a bank of three task vectors."""
    return engine_with_task_vectors(tmp_path_factory.mktemp("bank"))


@pytest.fixture(scope="session")
def server():
    return shared_server()


@pytest.fixture(scope="session")
def squares(tmp_path_factory):
    """Files of noisy squares by class: 4 of each colour, in folders `teach/COLOUR`, and 2 in `try/COLOUR`."""
    root = tmp_path_factory.mktemp("squares")
    for use, seeds in (("teach", range(4)), ("try", range(10, 12))):
        for name, colour in COLOURS.items():
            folder = root / use / name
            folder.mkdir(parents=True)
            for seed in seeds:
                Image.fromarray(square(colour, seed=seed, side=48)).save(folder / f"{seed}.png")
    return root


@pytest.fixture(scope="session")
def few_shot_request(squares):
    """Three colours to learn, and two pictures of each to try it on."""
    rows = [
        ClassRow(name.replace("_", " "), tuple(map(str, sorted((squares / "teach" / name).iterdir()))))
        for name in COLOURS
    ]
    samples = [
        UploadedImage(str(path), name.replace("_", " "))
        for name in COLOURS
        for path in sorted((squares / "try" / name).iterdir())
    ]
    return FewShotRequest(tuple(rows), tuple(samples))


@pytest.fixture(scope="session")
def saved(small, few_shot_request):
    """What the small engine learns of the colours, with task vectors."""
    *_, last = adapt_few_shot(small, few_shot_request, FewShotSettings(method="atlas+text-probe", steps=6))
    return last.result


@pytest.fixture(scope="session")
def archive(squares, tmp_path_factory):
    """The pictures to learn from, as a zip with one folder per class."""
    path = tmp_path_factory.mktemp("zip") / "colours.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for file in sorted((squares / "teach").rglob("*.png")):
            packed.write(file, f"colours/{file.parent.name}/{file.name}")
    return path


@pytest.fixture
def draw(tmp_path):
    """A picture of one colour, saved under a name."""

    def save(name, colour="red"):
        Image.new("RGB", (64, 48), colour).save(tmp_path / name)
        return str(tmp_path / name)

    return save
