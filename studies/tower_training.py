"""The end of an image tower, trained above a front that pictures pass once. Knows nothing of files or tables.

    stage = Stage(engine, StageSettings(share=0.3))
    views = stage.shown(squares, seed=0)                                 # (V N …), plain ones first
    subject = stage.mixture(bank, Layout(partitions=20), text)           # or stage.low_rank(…)
    values = stage.learned(subject, views, labels, seed=0)
    answers(subject, values, stage.seen(test_squares))                   # (N C)

Whatever is compared on a stage learns there and nowhere else, from the same activations in batches of the
same size, by the project's one loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from atlas_engine import runtime
from atlas_engine.adapt.arithmetic.course import TaskSampler
from atlas_engine.adapt.few_shot import FewShotConfig, learn_few_shot
from atlas_engine.adapt.optimise import optimise
from atlas_engine.adapt.trainable import Trainable, TrainableCoefficients
from atlas_engine.adapt.trainable_part import FrozenSplit
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.blocks import BlockTable, block_table
from atlas_engine.compose.coefficients import Layout
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.config import Settings, setting
from atlas_engine.data.augment import Augment
from atlas_engine.data.folders import ClassFolder
from atlas_engine.engine import Atlas
from atlas_engine.errors import EvalError
from atlas_engine.heads.base import text_logits
from atlas_engine.objectives.multitask import TaskCrossEntropy
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
    views: int = setting(2, help="views of each picture: as it is, then random ones", low=1)
    steps: int = setting(40, help="optimiser steps", low=0)
    batch: int = setting(16, help="pictures a step", low=1)
    lr: float = setting(0.2, help="learning rate of the first step, for coefficients", low=0.0)

    def loop(self) -> FewShotConfig:
        """The same as the loop takes it."""
        return FewShotConfig(
            share=self.share, views=self.views, steps=self.steps, batch=self.batch, lr=self.lr
        )


class TowerTrainer:
    """An engine's tower cut in two: a frozen front, and an end that learns."""

    def __init__(self, engine: Atlas, settings: TowerTrainingSettings) -> None:
        self.engine, self.settings = engine, settings
        self._part = FrozenSplit(engine.backbone, share=settings.share)
        self._tower = self._part.tower
        self._theta0 = dict(self._tower.named_parameters())

    @property
    def blocks(self) -> BlockTable:
        """What learns."""
        return block_table(self._theta0.items())

    def seen(self, squares: Tensor) -> Tensor:
        """Squares (N 3 S S) as they are, as far as the cut: (N …)."""
        return self._part.activations(squares.float() / 255)

    def shown(self, squares: Tensor, *, seed: int) -> Tensor:
        """Views of squares (N 3 S S) as far as the cut, (V N …): as they are, then random ones."""
        draw, augment = runtime.generator(seed), Augment(jitter=0.0)
        more = [self._part.activations(augment(squares, draw)) for _ in range(self.settings.views - 1)]
        return torch.stack([self.seen(squares), *more])

    def zero_shot(self, activations: Tensor, text: Tensor) -> Tensor:
        """The base model's logits (N C) for pictures seen as far as the cut (N …)."""
        features = self._part.features(activations)
        return text_logits(features, text, logit_scale=self.engine.backbone.logit_scale).cpu()

    def donors(self, bank: TaskVectorBank) -> TaskVectorBank:
        """The part of the vectors that belongs to what learns, unpacked: small enough, and quicker."""
        return bank.over(self._theta0).stored_as("float32")

    def mixture(self, bank: TaskVectorBank, layout: Layout, text: Tensor) -> TrainableCoefficients:
        """The coefficients of a bank's vectors, from zero-shot on."""
        composer = Composer(self._theta0, self.donors(bank), layout)
        return TrainableCoefficients(
            ComposedEncoder(self._tower, composer),
            text,
            logit_scale=self.engine.backbone.logit_scale,
            start=composer.initial().unsqueeze(0),
        )

    def low_rank(self, chosen: LowRankPlan, text: Tensor, *, seed: int) -> TrainableLowRank:
        """Low-rank differences of the matrices that a plan names."""
        return TrainableLowRank(
            self._tower,
            chosen,
            text,
            logit_scale=self.engine.backbone.logit_scale,
            lr=self.settings.lr,
            seed=seed,
        )

    def learned(
        self, subject: Trainable, views: Tensor, labels: Tensor, *, seed: int
    ) -> Mapping[str, Tensor]:
        """What the subject has learned from the views (V N …) of pictures with these labels (N)."""
        config = self.settings.loop()
        return drain(learn_few_shot(subject, views, labels.unsqueeze(0), config=config, seeds=[seed])).values

    def learned_jointly(
        self, subject: Trainable, views: Tensor, labels: Tensor, *, sizes: tuple[int, ...], seed: int
    ) -> Mapping[str, Tensor]:
        """The same for several tasks at once, of so many classes each, numbered one task after the other."""
        ends = torch.tensor(sizes).cumsum(0)
        tasks = torch.bucketize(labels, ends, right=True)
        source = TaskSampler(views, labels, tasks, size=self.settings.batch)
        config = self.settings.loop()
        return drain(optimise(subject, TaskCrossEntropy(sizes), source, config=config, seeds=[seed])).values

    @property
    def facts(self) -> dict[str, Any]:
        """What a measurement here depends on, besides who learns what."""
        return {"model": self.engine.fingerprint, **self.settings.loop().as_dict()}


class StudyTask:
    """A training set on a stage, looked at once and not before something is to be learned from it."""

    def __init__(self, stage: TowerTrainer, drawn: TrainingSet, dataset: str) -> None:
        self.stage, self.drawn, self.dataset, self.digest = stage, drawn, dataset, drawn.digest

    @cached_property
    def text(self) -> Tensor:
        """The embeddings of the class names, (C D)."""
        return self.stage.engine.head(self.drawn.classes).clone()

    @cached_property
    def views(self) -> Tensor:
        """(V N …), of the training pictures in the order of shares."""
        return self.stage.shown(self.drawn.train.squares, seed=self.drawn.seed)

    @cached_property
    def test(self) -> Tensor:
        """(N …), of the pictures to measure on."""
        return self.stage.seen(self.drawn.test.squares)

    @cached_property
    def zero_shot(self) -> float:
        """The accuracy of the base model."""
        return share_correct(self.stage.zero_shot(self.test, self.text), self.drawn.test.labels)

    def accuracy(self, subject: Trainable, *, images: int | None = None) -> float:
        """The subject's, after it has learned from the first so many pictures; none is all."""
        labels = self.drawn.train.labels[:images]
        values = self.stage.learned(subject, self.views[:, :images], labels, seed=self.drawn.seed)
        return share_correct(predict_logits(subject, values, self.test), self.drawn.test.labels)


class StudyTasks:
    """Training sets of several folders on one stage, each drawn and looked at once, and kept."""

    def __init__(
        self, stage: TowerTrainer, folders: Mapping[str, ClassFolder], settings: TrainingSetSettings
    ) -> None:
        self.stage, self.folders, self.settings = stage, folders, settings
        self._known: dict[tuple[str, int], StudyTask] = {}

    def at(self, dataset: str, seed: int) -> StudyTask:
        """The training set that this seed draws from the folder of that name."""
        if (dataset, seed) not in self._known:
            shape = self.stage.engine.backbone.preprocessing
            drawn = draw_training_set(self.folders[dataset], shape, settings=self.settings, seed=seed)
            self._known[dataset, seed] = StudyTask(self.stage, drawn, dataset)
        return self._known[dataset, seed]


@torch.no_grad()
def predict_logits(subject: Trainable, values: Mapping[str, Tensor], activations: Tensor, *, run: int = 0) -> Tensor:
    """The logits (N C) of pictures seen as far as the cut (N …), by one of the runs."""
    logits_fn = subject.at(values).logits_fn(run)
    return torch.cat([logits_fn(part) for part in torch.split(activations, CHUNK)]).cpu()


def vectors_made_from(bank: TaskVectorBank, folder: ClassFolder) -> list[str]:
    """The vectors that were made from this folder, by its name."""
    pairs = zip(bank.tasks, bank.infos, strict=True)
    return [task for task, info in pairs if folder.name in (task, info.dataset)]


def without_own_vectors(bank: TaskVectorBank, folder: ClassFolder) -> TaskVectorBank:
    """The bank without what was made from this folder: that has seen its test pictures."""
    own = vectors_made_from(bank, folder)
    if len(own) == len(bank):
        raise EvalError(f"every vector of the bank was made from {folder.name}. Give a bank with others too.")
    return bank.without(own) if own else bank
