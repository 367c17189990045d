"""Train the end of an image tower on activations that its frozen front has computed once.

    trainer = TowerTrainer(engine, TowerTrainingSettings(share=0.3))
    views = trainer.activations_of_views(pixels, seed=0)                 # (V N …), the plain view first
    trainable = trainer.coefficients(bank, Layout(partitions=20), text)  # or trainer.low_rank(…)
    values = trainer.train(trainable, views, labels, seed=0)
    predict_logits(trainable, values, trainer.activations(test_pixels))  # (N C)

Whatever is compared here learns from the same activations, in batches of the same size, by the engine's own
loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from atlas_engine import runtime
from atlas_engine.adapt.optimise import optimise
from atlas_engine.adapt.samplers import LabelledSampler, TaskSampler
from atlas_engine.adapt.settings import FewShotRunSettings
from atlas_engine.adapt.trainable import Trainable, TrainableCoefficients
from atlas_engine.adapt.trainable_part import FrozenSplit
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.blocks import BlockTable, block_table
from atlas_engine.compose.coefficients import Layout
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.linearised import make_encoder
from atlas_engine.config import Settings, setting
from atlas_engine.data.augment import Augment
from atlas_engine.data.folders import ClassFolder
from atlas_engine.engine import Atlas
from atlas_engine.errors import EvalError
from atlas_engine.heads.base import text_logits
from atlas_engine.objectives.multitask import TaskCrossEntropy
from atlas_engine.objectives.supervised import CrossEntropy
from atlas_engine.runtime import drain
from studies.low_rank import LowRankPlan, TrainableLowRank
from studies.problems.few_shot import share_correct
from studies.problems.training_sets import TrainingSet, TrainingSetSettings, draw_training_set

__all__ = [
    "StudyTask",
    "StudyTasks",
    "TowerTrainer",
    "TowerTrainingSettings",
    "predict_logits",
    "vectors_made_from",
    "without_own_vectors",
]

CHUNK = 64


@dataclass(frozen=True, kw_only=True)
class TowerTrainingSettings(Settings):
    """How much of the tower learns, and how long."""

    share: float = setting(
        0.3, help="share of the tower's weights, from its end, that learns", low=0.0, high=1.0
    )
    views: int = setting(2, help="views of each image: as it is, then random ones", low=1)
    steps: int = setting(40, help="optimiser steps", low=0)
    batch: int = setting(16, help="images a step", low=1)
    lr: float = setting(0.2, help="learning rate of the first step, for coefficients", low=0.0)

    def loop(self) -> FewShotRunSettings:
        """The same as the engine's loop takes it."""
        return FewShotRunSettings(
            share=self.share, views=self.views, steps=self.steps, batch=self.batch, lr=self.lr
        )


class TowerTrainer:
    """An engine's tower split in two: a frozen front, and an end that learns."""

    def __init__(self, engine: Atlas, settings: TowerTrainingSettings) -> None:
        self.engine, self.settings = engine, settings
        self._split = FrozenSplit(engine.backbone, share=settings.share)
        self._tower = self._split.tower
        self._theta0 = dict(self._tower.named_parameters())

    @property
    def blocks(self) -> BlockTable:
        """The blocks that learn."""
        return block_table(self._theta0.items())

    @property
    def facts(self) -> dict[str, Any]:
        """What a measurement depends on here, besides the data and what is learned."""
        config = self.settings.loop().as_dict()
        del config["epochs"]  # never used here, and not in the keys of rows that were measured before
        return {"model": self.engine.fingerprint, **config}

    # ---- images

    def activations(self, pixels: Tensor) -> Tensor:
        """The front's activations (N …) of pixels (N 3 S S)."""
        return self._split.activations(pixels.float() / 255)

    def activations_of_views(self, pixels: Tensor, *, seed: int) -> Tensor:
        """The front's activations (V N …) of views of pixels (N 3 S S): as they are, then random ones."""
        draw, augment = runtime.generator(seed), Augment(jitter=0.0)
        random = [self._split.activations(augment(pixels, draw)) for _ in range(self.settings.views - 1)]
        return torch.stack([self.activations(pixels), *random])

    def zero_shot(self, activations: Tensor, text: Tensor) -> Tensor:
        """The base model's logits (N C) for activations (N …), under the text head (C D)."""
        features = self._split.features(activations)
        return text_logits(features, text, logit_scale=self.engine.backbone.logit_scale).cpu()

    # ---- what can learn

    def restrict(self, bank: TaskVectorBank) -> TaskVectorBank:
        """The part of a bank's vectors that lies in the end that learns, in float32."""
        return bank.select_blocks(self._theta0).stored_as("float32")

    def coefficients(self, bank: TaskVectorBank, layout: Layout, text: Tensor) -> TrainableCoefficients:
        """The coefficients of a bank's vectors, from zero on."""
        composer = Composer(self._theta0, self.restrict(bank), layout)
        return TrainableCoefficients(
            make_encoder(self._tower, composer),
            text,
            logit_scale=self.engine.backbone.logit_scale,
            start=composer.initial().unsqueeze(0),
        )

    def low_rank(self, plan: LowRankPlan, text: Tensor, *, seed: int) -> TrainableLowRank:
        """Low-rank differences of the matrices that a plan names."""
        return TrainableLowRank(
            self._tower,
            plan,
            text,
            logit_scale=self.engine.backbone.logit_scale,
            lr=self.settings.lr,
            seed=seed,
        )

    # ---- learning

    def train(
        self, trainable: Trainable, views: Tensor, labels: Tensor, *, seed: int
    ) -> Mapping[str, Tensor]:
        """The tensors learned from views (V N …) of images with labels (N)."""
        config = self.settings.loop()
        sampler = LabelledSampler(views, labels.unsqueeze(0), config.batch)
        return drain(optimise(trainable, CrossEntropy(), sampler, config=config, seeds=[seed])).values

    def train_jointly(
        self, trainable: Trainable, views: Tensor, labels: Tensor, *, sizes: tuple[int, ...], seed: int
    ) -> Mapping[str, Tensor]:
        """The same for several tasks at once: `sizes` are their numbers of classes, numbered task by task."""
        ends = torch.tensor(sizes).cumsum(0)
        tasks = torch.bucketize(labels, ends, right=True)
        source = TaskSampler(views, labels, tasks, size=self.settings.batch)
        config = self.settings.loop()
        return drain(optimise(trainable, TaskCrossEntropy(sizes), source, config=config, seeds=[seed])).values


class StudyTask:
    """A training set before a trainer; its activations are computed once, when they are first needed."""

    def __init__(self, trainer: TowerTrainer, drawn: TrainingSet, dataset: str) -> None:
        self.trainer, self.drawn, self.dataset, self.digest = trainer, drawn, dataset, drawn.digest

    @cached_property
    def text(self) -> Tensor:
        """The embeddings of the class names, (C D)."""
        return self.trainer.engine.head(self.drawn.classes).clone()

    @cached_property
    def views(self) -> Tensor:
        """Activations (V N …) of the training images, in the order of shares."""
        return self.trainer.activations_of_views(self.drawn.train.pixels, seed=self.drawn.seed)

    @cached_property
    def test(self) -> Tensor:
        """Activations (N …) of the test images."""
        return self.trainer.activations(self.drawn.test.pixels)

    @cached_property
    def zero_shot(self) -> float:
        """The accuracy of the base model."""
        return share_correct(self.trainer.zero_shot(self.test, self.text), self.drawn.test.labels)

    def accuracy(self, trainable: Trainable, *, images: int | None = None) -> float:
        """The test accuracy after learning from the first `images` training images (None: from all)."""
        labels = self.drawn.train.labels[:images]
        values = self.trainer.train(trainable, self.views[:, :images], labels, seed=self.drawn.seed)
        return share_correct(predict_logits(trainable, values, self.test), self.drawn.test.labels)


class StudyTasks:
    """The tasks of several folders and seeds before one trainer, each drawn once and kept."""

    def __init__(
        self, trainer: TowerTrainer, folders: Mapping[str, ClassFolder], settings: TrainingSetSettings
    ) -> None:
        self.trainer, self.folders, self.settings = trainer, folders, settings
        self._known: dict[tuple[str, int], StudyTask] = {}

    def draw(self, dataset: str, seed: int) -> StudyTask:
        """The task that this seed draws from the folder of that name."""
        if (dataset, seed) not in self._known:
            shape = self.trainer.engine.backbone.preprocessing
            drawn = draw_training_set(self.folders[dataset], shape, settings=self.settings, seed=seed)
            self._known[dataset, seed] = StudyTask(self.trainer, drawn, dataset)
        return self._known[dataset, seed]


@torch.no_grad()
def predict_logits(trainable: Trainable, values: Mapping[str, Tensor], activations: Tensor) -> Tensor:
    """The logits (N C) for activations (N …) at the learned values of a single run."""
    logits_fn = trainable.at(values).logits_fn(0)
    return torch.cat([logits_fn(part) for part in torch.split(activations, CHUNK)]).cpu()


def vectors_made_from(bank: TaskVectorBank, folder: ClassFolder) -> list[str]:
    """The names of the vectors that were made from this folder, recognised by its name."""
    pairs = zip(bank.tasks, bank.infos, strict=True)
    return [task for task, info in pairs if folder.name in (task, info.dataset)]


def without_own_vectors(bank: TaskVectorBank, folder: ClassFolder) -> TaskVectorBank:
    """The bank without the vectors made from this folder, which have seen its test images."""
    own = vectors_made_from(bank, folder)
    if len(own) == len(bank):
        raise EvalError(f"every vector of the bank was made from {folder.name}. Give a bank with others too.")
    return bank.without(own) if own else bank
