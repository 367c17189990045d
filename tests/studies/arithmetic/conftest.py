"""A small engine with a bank of random vectors, two tasks that belong to two of them, and a control."""

from __future__ import annotations

import pytest

from atlas_engine.bank.bank_file import save_bank
from atlas_engine.engine import Atlas
from studies.problems.unseen import VectorTask
from tests.drawn import write_pictures
from tests.engines import tiny_engine
from tests.tiny import tiny_bank


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    path = tmp_path_factory.mktemp("bank") / "bank.safetensors"
    save_bank(tiny_bank(tiny_engine().backbone.visual, size=0.5), path)
    return Atlas(tiny_engine().backbone, bank_path=path)


@pytest.fixture(scope="session")
def tasks(tmp_path_factory):
    root = tmp_path_factory.mktemp("sets")
    colours = {"task0": {"red": 10, "blue": 10}, "task1": {"dark_green": 10, "grey": 10}}
    return {name: VectorTask(write_pictures(root / name, counts), name) for name, counts in colours.items()}


@pytest.fixture(scope="session")
def control(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("control") / "set", {"red": 10, "grey": 10})
