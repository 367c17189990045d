"""The real tasks, on the small model: what a worker of the tests carries out in the place of them."""

from __future__ import annotations

import os
import time

import atlas_engine.engine
from atlas_engine.engine import Atlas
from atlas_engine.jobs import features, imports, sessions, train
from studies import spread
from tests.engines import tiny_engine
from tests.executors.tasks import mark

REAL = {
    "train_one": train.train_one,
    "import_one": imports.import_one,
    "compute_features": features.compute_features,
    "measure_part": spread.measure_part,
}


def open_tiny(_model="", *, bank=None, cache=True):
    return Atlas(tiny_engine().backbone, bank_path=bank)


def train_one(**arguments):
    return carry_out("train_one", arguments)


def import_one(**arguments):
    return carry_out("import_one", arguments)


def compute_features(**arguments):
    return carry_out("compute_features", arguments)


def measure_part(**arguments):
    return carry_out("measure_part", arguments)


def carry_out(name, arguments):
    """The real task, where every model that is opened is the small one.

    In the folder of ATLAS_TEST_MARKS, where there is one, it says that it has begun, and takes a while.
    """
    atlas_engine.engine.open = open_tiny
    folder = os.environ.get("ATLAS_TEST_MARKS")
    if folder:
        mark(folder, "began")
        time.sleep(1)
    return REAL[name](**arguments)


def use(monkeypatch):
    """Have the small model in this process, and in the workers of what it starts."""
    sessions.open_session.cache_clear()
    monkeypatch.setattr("atlas_engine.engine.open", open_tiny)
    for module, name in {
        "atlas_engine.jobs.train": "train_one",
        "atlas_engine.jobs.imports": "import_one",
        "atlas_engine.jobs.features": "compute_features",
        "studies.spread": "measure_part",
    }.items():
        monkeypatch.setattr(f"{module}.{name}", globals()[name])
