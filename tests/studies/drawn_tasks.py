"""What the tests of the studies share: targets of coloured squares, and a bank of vectors of known worth."""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from atlas_engine.bank import TaskVector, TaskVectorBank
from atlas_engine.bank.vector import VectorInfo
from atlas_engine.data.folders import ClassFolder
from atlas_engine.runtime import drain
from atlas_engine.training import TrainSettings, train_vector
from studies.problems.few_shot import StudySettings
from tests.drawn import write_pictures
from tests.engines import tiny_engine

COUNTS = {"red": 12, "blue": 12, "dark_green": 12}
QUICK = StudySettings(shots=2, seeds=2, max_test=18, steps=6, batch=6)
TRAINING = TrainSettings(steps=15, batch=8, lr=1e-2, warm_up=2, measure_every=5, jitter=0.1)


@functools.cache
def colours(root: Path) -> ClassFolder:
    """The target that the bank's first vector was trained on."""
    return write_pictures(root / "colours", COUNTS)


@functools.cache
def three_vectors(root: Path) -> TaskVectorBank:
    """One vector trained on colours, one of small random numbers, one of zeros."""
    trained = drain(train_vector(tiny_engine(), colours(root), name="colours", settings=TRAINING))
    draw = torch.Generator().manual_seed(5)

    def like(name: str, size: float) -> TaskVector:
        blocks = {
            block: size * tau.std(correction=0) * torch.randn(tau.shape, generator=draw)
            for block, tau in trained.blocks.items()
        }
        centroid = torch.randn(len(trained.info.centroid), generator=draw).tolist()
        return TaskVector(name, blocks, trained.base, VectorInfo(centroid=tuple(centroid)))

    return TaskVectorBank.from_vectors([trained, like("noise", 0.1), like("zero", 0.0)])
