"""Task vectors of the end of a large image tower, trained on activations that its frozen front computed once.

    vector = train_late_vector(engine, folder, name="flowers", settings=LateVectorSettings(), state=path)
    bank = train_bank(engine, {"flowers": folder, …}, Path("vectors"), settings=LateVectorSettings())

A tower such as CLIP's ViT-B/16 takes hours on two cores if all of it learns from new views at each step. Here
a few views of each image pass the front once; the end is fine-tuned on what comes out (`bank.train`), and
the blocks of the front get a difference of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from atlas_engine import runtime
from atlas_engine.adapt.trainable_part import FrozenSplit
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.bank_file import load_bank, save_bank
from atlas_engine.bank.edit import join_banks
from atlas_engine.bank.resume import remove_state
from atlas_engine.bank.train import FineTuneSettings, FineTuneStep, LabelledPixels, TrainingTask, fine_tune
from atlas_engine.bank.tunable import apply_difference
from atlas_engine.bank.vector import TaskVector, VectorInfo, fingerprint
from atlas_engine.config import Settings, setting
from atlas_engine.data.augment import Augment
from atlas_engine.data.folders import ClassFolder
from atlas_engine.engine import Atlas
from atlas_engine.errors import BankError
from atlas_engine.heads.base import class_prototypes
from studies.problems.training_sets import TrainingSet, TrainingSetSettings, draw_training_set

__all__ = ["LateVectorSettings", "train_bank", "train_late_vector"]

STORAGE = "int8"  # a vector of 86 million numbers is 86 MB

OnStep = Callable[[str, FineTuneStep], None]
"""Is called with a vector's name and the step that was done."""


@dataclass(frozen=True, kw_only=True)
class LateVectorSettings(Settings):
    """From which images a vector is made, how much of the tower learns, and how long."""

    vector_share: float = setting(
        0.5, help="share of the tower's weights, from its end, that a vector moves", low=0.0, high=1.0
    )
    vector_views: int = setting(2, help="views of each image: as it is, then random ones", low=1)
    vector_steps: int = setting(60, help="optimiser steps of a vector", low=1)
    vector_batch: int = setting(32, help="images a step of a vector", low=1)
    vector_lr: float = setting(5e-5, help="peak learning rate of a vector", low=0.0)
    vector_classes: int = setting(20, help="most classes that a vector is made from", low=2)
    vector_images: int = setting(600, help="most images that a vector is made from", low=2)

    def draws(self) -> TrainingSetSettings:
        """Which images are drawn from a folder; a quarter as many are measured on."""
        return TrainingSetSettings(
            seeds=1,
            max_classes=self.vector_classes,
            max_train=self.vector_images,
            max_test=max(2, self.vector_images // 4),
        )

    def tuning(self, *, images: int) -> FineTuneSettings:
        """How the end of the tower is fine-tuned."""
        return FineTuneSettings(
            steps=self.vector_steps,
            batch=min(self.vector_batch, images),
            lr=self.vector_lr,
            warm_up=self.vector_steps // 6,
        )


def train_bank(
    engine: Atlas,
    folders: Mapping[str, ClassFolder],
    work: Path,
    *,
    settings: LateVectorSettings,
    on_step: OnStep = lambda _name, _step: None,
) -> TaskVectorBank:
    """The vectors of all folders as one bank. Each has a file of its own in `work`, and is made once.

    A training that was stopped goes on where it was.
    """
    work.mkdir(parents=True, exist_ok=True)
    base = fingerprint(dict(engine.backbone.visual.named_parameters()))
    banks = []
    for given, folder in folders.items():
        name = given.replace("/", "-")
        path = work / f"{name}.safetensors"
        if not path.is_file():
            state = work / f"{name}.training"
            vector = train_late_vector(
                engine, folder, name=name, settings=settings, state=state, on_step=on_step
            )
            save_bank(TaskVectorBank.from_vectors([vector], storage=STORAGE), path)
            remove_state(state)
        bank = load_bank(path, device=engine.backbone.device)
        if bank.base != base:
            raise BankError(
                f"{path} was made for another model than {engine.backbone.name}. Give another folder to work "
                "in, or remove the file."
            )
        banks.append(bank)
    return join_banks(banks)


def train_late_vector(
    engine: Atlas,
    folder: ClassFolder,
    *,
    name: str,
    settings: LateVectorSettings,
    state: Path | None = None,
    on_step: OnStep = lambda _name, _step: None,
) -> TaskVector:
    """The vector of a folder, with its accuracies on images held out. With `state`, a training resumes."""
    visual = engine.backbone.visual
    drawn = draw_training_set(folder, engine.backbone.preprocessing, settings=settings.draws(), seed=0)
    split = FrozenSplit(engine.backbone, share=settings.vector_share)

    # every view through the frozen front, once
    train = _activations(split, drawn.train, views=settings.vector_views)
    test = _activations(split, drawn.test, views=1)
    features = split.features(train.pixels[:, 0].float())
    task = TrainingTask(
        head=_frozen_head(engine, drawn, features),
        logit_scale=engine.backbone.logit_scale,
        train=train,
        val=None,
        view=_pick_view,
    )

    # fine-tune the end, and measure before and after
    before = task.measure(split.tower, test)[0]
    steps = fine_tune(split.tower, task, settings=settings.tuning(images=len(train)), state=state)
    while True:
        try:
            on_step(name, next(steps))
        except StopIteration as end:
            tuned = end.value
            break
    after = task.measure(apply_difference(split.tower, tuned.kind, tuned.difference).features, test)[0]

    blocks = {
        block: tuned.difference[block].float().cpu() if block in tuned.difference else torch.zeros_like(base)
        for block, base in visual.named_parameters()
    }
    provenance = {
        "model": engine.backbone.name,
        "head": "class names" if engine.reads_class_names else "prototypes",
        "classes": str(len(drawn.classes)),
        "train_images": str(len(drawn.train)),
        "test_images": str(len(drawn.test)),
        "data_sha256": drawn.digest,
        **{key: str(value) for key, value in settings.as_dict().items()},
    }
    centroid = tuple(features.mean(dim=0).tolist())
    info = VectorInfo(folder.name, before, after, centroid, provenance, kind=tuned.kind)
    return TaskVector(name, blocks, fingerprint(dict(visual.named_parameters())), info)


def _activations(split: FrozenSplit, images: LabelledPixels, *, views: int) -> LabelledPixels:
    """The front's activations (N V …) of the images as they are, then of random views, in half precision."""
    draw, augment = runtime.generator(0), Augment(jitter=0.0)
    made = [split.activations(images.pixels.float() / 255)]
    made += [split.activations(augment(images.pixels, draw)) for _ in range(views - 1)]
    return LabelledPixels(torch.stack([view.half() for view in made], dim=1), images.labels)


def _pick_view(activations: Tensor, generator: torch.Generator | None) -> Tensor:
    """One view (B …) of each of (B V …): a random one with a generator, the first without."""
    count, views = activations.shape[:2]
    chosen = torch.zeros(count, dtype=torch.long)
    if generator is not None:
        chosen = torch.randint(views, (count,), generator=generator)
    return activations[torch.arange(count), chosen].float()


def _frozen_head(engine: Atlas, drawn: TrainingSet, features: Tensor) -> Tensor:
    """The embeddings of the class names, or prototypes of the training images, (C D)."""
    if engine.reads_class_names:
        return engine.head(drawn.classes).clone()
    return class_prototypes(features, drawn.train.labels.to(features.device), len(drawn.classes))
