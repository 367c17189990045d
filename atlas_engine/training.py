"""A task vector from a folder of labelled images.

    work = train_vector(engine, read_folder("photos/pets"), name="pets", settings=TrainSettings(steps=120))
    for moment in work: ...                             # reading, measuring, training: `done` of `of`
    vector = drain(work)                                # or run what is left of it and take the vector

The folder is split in three, class by class (see `data.split`): the tower is tuned on the first part, the
second decides when to stop, and the accuracies before and after are measured on the third alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from atlas_engine import runtime
from atlas_engine.bank.train import (
    FineTuned,
    FineTuneSettings,
    FineTuneStep,
    LabelledPixels,
    TrainingTask,
    View,
    fine_tune,
)
from atlas_engine.bank.tunable import apply_difference
from atlas_engine.bank.vector import TaskVector, VectorInfo, fingerprint
from atlas_engine.clip.backbone import Preprocessing
from atlas_engine.clip.templates import find_templates
from atlas_engine.clip.text import check_class_names
from atlas_engine.config import setting, software_version
from atlas_engine.data.augment import Augment
from atlas_engine.data.folders import ClassFolder, LabelledFile, read_labelled_files
from atlas_engine.data.preprocess import to_pixels
from atlas_engine.data.split import Split, group_near_duplicates, require_two_groups, split_groups
from atlas_engine.engine import Atlas
from atlas_engine.errors import ConfigError, SupportError, unknown_name
from atlas_engine.heads.base import class_prototypes

__all__ = ["TrainSettings", "TrainingProgress", "Work", "check_name", "train_vector"]

CENTROID_IMAGES = 512  # enough for a mean
READ_AT_ONCE = 64
NAME_LENGTH = 64


@dataclass(frozen=True, kw_only=True)
class TrainSettings(FineTuneSettings):
    """How a vector is made from a folder: which images, their random views, and how the tower is tuned."""

    templates: str | None = setting(None, help="template set, or a sentence with {}; none is the model's own")
    max_per_class: int | None = setting(None, help="most images of a class, drawn by seed", low=2)
    val_share: float = setting(0.1, help="share of a class to stop by", low=0, high=0.4)
    test_share: float = setting(0.2, help="share of a class to measure on", low=0, high=0.5)
    max_val: int = setting(300, help="most images to stop by", low=1)
    alike: float = setting(
        2.0, help="images of a class that differ by less (of 255) are never split", low=0, high=255
    )
    smallest_crop: float = setting(0.5, help="side of the smallest random crop", low=0.1, high=1)
    flip: bool = setting(True, help="mirror at random; not for digits, signs or letters")
    jitter: float = setting(0.25, help="most that random colours change", low=0, high=1)


@dataclass(frozen=True)
class TrainingProgress:
    """How far one phase (`what`: reading, measuring or training) has come; `step` while training."""

    what: str
    done: int
    of: int
    step: FineTuneStep | None = None


Work = Generator[TrainingProgress, None, TaskVector]


def train_vector(
    engine: Atlas,
    folder: ClassFolder,
    *,
    name: str,
    settings: TrainSettings | None = None,
    class_names: Mapping[str, str] | None = None,
    state: Path | None = None,
) -> Work:
    """Progress, moment by moment, then the vector with its accuracies, centroid and provenance.

    `class_names` maps folder names to better class names ({"0": "the digit zero"}). With `state`, a training
    that was stopped resumes from that file, which stays: remove it once the vector is safe (`remove_state`).
    """
    chosen = settings or TrainSettings()
    check_name(name)
    classes = _class_names(folder, class_names or {})
    visual = engine.backbone.visual

    # read the images, split them, and make the frozen text head
    files = _sample_files(folder, chosen)
    data = yield from _read_data(engine, files, folder.classes, chosen)
    task, test = data.task(engine, classes, chosen.templates), data.subset(data.split.test)

    # measure the base, fine-tune, measure again
    yield TrainingProgress("measuring", 0, 2)
    before, centroid = task.measure(visual, test)[0], _centroid(task, visual)
    tuned = yield from _track(fine_tune(visual, task, settings=chosen, state=state))
    yield TrainingProgress("measuring", 1, 2)
    after = task.measure(apply_difference(visual, tuned.kind, tuned.difference).features, test)[0]

    provenance = _provenance(engine, data, chosen, tuned)
    info = VectorInfo(folder.name, before, after, centroid, provenance, kind=tuned.kind)
    blocks = {block: delta.float().cpu() for block, delta in tuned.difference.items()}
    return TaskVector(name, blocks, fingerprint(dict(visual.named_parameters())), info)


def check_name(name: str) -> None:
    """Raise unless `name` can be a vector's name and part of a file name."""
    if not name.strip() or len(name) > NAME_LENGTH or not name.isprintable() or set(name) & set("/\\:"):
        raise ConfigError(
            f"a vector cannot be called {name!r}. Give 1 to {NAME_LENGTH} letters, without slashes or colons."
        )


def _class_names(folder: ClassFolder, better: Mapping[str, str]) -> tuple[str, ...]:
    for name in better:
        if name not in folder.classes:
            raise SupportError(unknown_name(f"class folder of {folder.name}", name, folder.classes))
    pairs = zip(folder.classes, folder.display_names, strict=True)
    return check_class_names([better.get(name, pretty) for name, pretty in pairs], at_least=2)


# ---- the images


@dataclass(frozen=True, eq=False)
class _TrainingData:
    """The images of a folder in memory, split in three, and how they become the tower's input."""

    files: tuple[LabelledFile, ...]
    pixels: Tensor  # (N 3 S S) uint8
    split: Split
    view: View

    def subset(self, positions: Sequence[int]) -> LabelledPixels:
        labels = torch.tensor([self.files[index].label for index in positions], dtype=torch.long)
        return LabelledPixels(self.pixels[list(positions)], labels)

    def task(self, engine: Atlas, classes: Sequence[str], templates: str | None) -> TrainingTask:
        """The task under the class names, or under prototypes of its training part (`starting_head`)."""
        train, val = self.subset(self.split.train), self.subset(self.split.val)
        task = TrainingTask(
            head=torch.empty(0),
            logit_scale=engine.backbone.logit_scale,
            train=train,
            val=val if len(val) else None,
            view=self.view,
        )
        if engine.reads_class_names:
            return replace(task, head=engine.head(classes, templates=templates).clone())
        features = task.unit_features(engine.backbone.visual, train.pixels)
        labels = train.labels.to(features.device)
        return replace(task, head=class_prototypes(features, labels, len(classes)))


def _sample_files(folder: ClassFolder, settings: TrainSettings) -> tuple[LabelledFile, ...]:
    """At most `max_per_class` images of each class, drawn by seed; a class of one image is refused."""
    kept: list[LabelledFile] = []
    for label, (name, count) in enumerate(zip(folder.classes, folder.counts, strict=True)):
        require_two_groups(name, images=count)
        own = [item for item in folder.items if item.label == label]
        seed = settings.seed * 1_000_003 + label
        order = torch.randperm(count, generator=runtime.generator(seed))[: settings.max_per_class]
        kept += [own[index] for index in sorted(order.tolist())]
    return tuple(kept)


def _read_data(
    engine: Atlas, files: tuple[LabelledFile, ...], classes: Sequence[str], settings: TrainSettings
) -> Generator[TrainingProgress, None, _TrainingData]:
    pixels = yield from _read_pixels(files, engine.backbone.preprocessing)
    labels = [file.label for file in files]
    split = split_groups(
        labels,
        group_near_duplicates(pixels, labels, tracks=[file.track for file in files], alike=settings.alike),
        val_share=settings.val_share,
        test_share=settings.test_share,
        seed=settings.seed,
        names=classes,
    )
    kept_val = _evenly_spaced(len(split.val), settings.max_val)
    split = replace(split, val=tuple(split.val[index] for index in kept_val))
    return _TrainingData(files, pixels, split, _make_view(engine, settings))


def _read_pixels(
    files: Sequence[LabelledFile], shape: Preprocessing
) -> Generator[TrainingProgress, None, Tensor]:
    """The images of the files, cut to the tower's size, (N 3 S S) uint8."""
    pixels = torch.empty(len(files), 3, shape.size, shape.size, dtype=torch.uint8)
    for start in range(0, len(files), READ_AT_ONCE):
        yield TrainingProgress("reading", start, len(files))
        read, _ = read_labelled_files(files[start : start + READ_AT_ONCE], isolated=False)
        for index, (_, image) in enumerate(read, start):
            pixels[index] = to_pixels(
                image, shape.size, resize=shape.resize, interpolation=shape.interpolation
            )
    return pixels


def _make_view(engine: Atlas, settings: TrainSettings) -> View:
    augment = Augment(smallest=settings.smallest_crop, flip=settings.flip, jitter=settings.jitter)

    def view(pixels: Tensor, generator: torch.Generator | None) -> Tensor:
        images = pixels.float() / 255 if generator is None else augment(pixels, generator)
        return engine.backbone.as_input(images)

    return view


def _evenly_spaced(count: int, most: int) -> list[int]:
    """At most `most` of the positions 0 … count − 1, evenly spaced: classes keep their shares."""
    kept = min(count, most)
    return [index * count // kept for index in range(kept)]


# ---- training and provenance


def _centroid(task: TrainingTask, visual: nn.Module) -> tuple[float, ...]:
    """The mean feature of the training images under the base model, (D)."""
    some = task.train.pixels[_evenly_spaced(len(task.train), CENTROID_IMAGES)]
    return tuple(task.unit_features(visual, some).mean(dim=0).tolist())


def _track(steps: Generator[FineTuneStep, None, FineTuned]) -> Generator[TrainingProgress, None, FineTuned]:
    """The steps as moments; returns what the steps return."""
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            tuned: FineTuned = end.value
            return tuned
        yield TrainingProgress("training", step.index, step.of, step)


def _provenance(
    engine: Atlas, data: _TrainingData, settings: TrainSettings, tuned: FineTuned
) -> dict[str, str]:
    """How the vector was made, without date or place: the same training gives the same bytes."""
    split = data.split
    digest = hashlib.sha256()
    for file, pixels in zip(data.files, data.pixels, strict=True):
        digest.update(f"{file.name}\n".encode())
        digest.update(pixels.numpy().data)
    return {
        "model": engine.backbone.name,
        "templates": json.dumps(find_templates(settings.templates or engine.backbone.templates)),
        **({} if engine.reads_class_names else {"head": "prototypes"}),
        "classes": str(1 + max(file.label for file in data.files)),
        "images": str(len(data.files)),
        "train_images": str(len(split.train)),
        "val_images": str(len(split.val)),
        "test_images": str(len(split.test)),
        "steps": str(tuned.steps),
        "best_step": str(tuned.best_step),
        "val_accuracy": "" if tuned.val_accuracy is None else f"{tuned.val_accuracy:.4f}",
        "seed": str(settings.seed),
        "settings": json.dumps(settings.as_dict(), sort_keys=True),
        "data_sha256": digest.hexdigest(),
        "software": f"atlas-studio {software_version()}, torch {torch.__version__}",
    }
