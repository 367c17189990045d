"""A task vector from a folder of labelled pictures. Knows nothing of flags or bank files.

    work = train_vector(engine, read_folder("photos/pets"), name="pets", settings=TrainSettings(steps=120))
    for moment in work: ...                             # reading, training, measuring: done, of
    vector = ended(work)                                # … or drain what is left of it

The folder is cut in three, class by class (see `data.split`): one part is learned from, one decides when to
stop, and the accuracies before and after are of the third, which nothing else has seen.
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
from atlas_engine.clip.text import check_class_names, find_templates
from atlas_engine.config import setting, software_version
from atlas_engine.data.augment import Augment
from atlas_engine.data.folders import ClassFolder, LabelledFile, read_labelled_files
from atlas_engine.data.preprocess import to_pixels
from atlas_engine.data.split import Split, near_duplicate_groups, require_two_groups, split_groups
from atlas_engine.engine import Atlas
from atlas_engine.errors import ConfigError, SupportError, unknown_name

__all__ = ["TrainSettings", "TrainingMoment", "Work", "check_name", "train_vector"]

CENTROID_IMAGES = 512  # enough for a mean
READ_AT_ONCE = 64
NAME_LENGTH = 64


@dataclass(frozen=True, kw_only=True)
class TrainSettings(FineTuneSettings):
    """How a vector is made from a folder: which pictures, how they are shown, and how the tower learns."""

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
class TrainingMoment:
    """How far one part of the work has come; `step` where that part is the training."""

    what: str
    done: int
    of: int
    step: FineTuneStep | None = None


Work = Generator[TrainingMoment, None, TaskVector]


def train_vector(
    engine: Atlas,
    folder: ClassFolder,
    *,
    name: str,
    settings: TrainSettings | None = None,
    class_names: Mapping[str, str] | None = None,
    state: Path | None = None,
) -> Work:
    """The work, a moment at a time, then the vector with its accuracies, centroid and provenance.

    `class_names` says folders' names in better words ({"0": "the digit zero"}). With `state`, a training that
    was stopped goes on from there; the file stays, to be removed once the vector is safe (`remove_state`).
    """
    chosen = settings or TrainSettings()
    check_name(name)
    classes = _classes(folder, class_names or {})
    items = _drawn(folder, chosen)
    course = yield from _course(engine, items, folder.classes, chosen)
    head = engine.head(classes, templates=chosen.templates).clone()
    lesson, test = course.lesson(head, engine.backbone.logit_scale), course.part(course.split.test)
    visual = engine.backbone.visual
    yield TrainingMoment("measuring", 0, 2)
    before, centroid = lesson.measure(visual, test)[0], _centroid(lesson, visual)
    found = yield from _training(fine_tune(visual, lesson, settings=chosen, state=state))
    yield TrainingMoment("measuring", 1, 2)
    after = lesson.measure(apply_difference(visual, found.kind, found.difference).features, test)[0]
    facts = _facts(engine, course, chosen, found)
    if found.kind == "linear":
        as_weights, _ = lesson.measure(apply_difference(visual, "standard", found.difference).features, test)
        facts["accuracy_as_weights"] = f"{as_weights:.4f}"
    info = VectorInfo(folder.name, before, after, centroid, facts)
    blocks = {block: delta.float().cpu() for block, delta in found.difference.items()}
    return TaskVector(name, blocks, fingerprint(dict(visual.named_parameters())), info)


def check_name(name: str) -> None:
    """Raise unless a vector can be called so, and its files after it."""
    if not name.strip() or len(name) > NAME_LENGTH or not name.isprintable() or set(name) & set("/\\:"):
        raise ConfigError(
            f"a vector cannot be called {name!r}. Give 1 to {NAME_LENGTH} letters, without slashes or colons."
        )


# ---- the pictures


@dataclass(frozen=True, eq=False)
class _Course:
    """The pictures in memory, cut in three, and how they are shown to the tower."""

    items: tuple[LabelledFile, ...]
    squares: Tensor  # (N 3 S S) uint8
    split: Split
    view: View

    def part(self, positions: Sequence[int]) -> LabelledPixels:
        labels = torch.tensor([self.items[index].label for index in positions], dtype=torch.long)
        return LabelledPixels(self.squares[list(positions)], labels)

    def lesson(self, head: Tensor, logit_scale: float) -> TrainingTask:
        train, val = self.part(self.split.train), self.part(self.split.val)
        return TrainingTask(
            head=head, logit_scale=logit_scale, train=train, val=val if len(val) else None, view=self.view
        )


def _course(
    engine: Atlas, items: tuple[LabelledFile, ...], classes: Sequence[str], settings: TrainSettings
) -> Generator[TrainingMoment, None, _Course]:
    squares = yield from _squares(items, engine.backbone.preprocessing)
    labels = [item.label for item in items]
    split = split_groups(
        labels,
        near_duplicate_groups(squares, labels, tracks=[item.track for item in items], alike=settings.alike),
        val_share=settings.val_share,
        test_share=settings.test_share,
        seed=settings.seed,
        names=classes,
    )
    some = _spread(len(split.val), settings.max_val)
    split = replace(split, val=tuple(split.val[index] for index in some))
    return _Course(items, squares, split, _view(engine, settings))


def _drawn(folder: ClassFolder, settings: TrainSettings) -> tuple[LabelledFile, ...]:
    """At most so many pictures of each class, drawn by seed; a class of one cannot be used."""
    kept: list[LabelledFile] = []
    for label, (name, count) in enumerate(zip(folder.classes, folder.counts, strict=True)):
        require_two_groups(name, pictures=count)
        own = [item for item in folder.items if item.label == label]
        seed = settings.seed * 1_000_003 + label
        order = torch.randperm(count, generator=runtime.generator(seed))[: settings.max_per_class]
        kept += [own[index] for index in sorted(order.tolist())]
    return tuple(kept)


def _squares(items: Sequence[LabelledFile], shape: Preprocessing) -> Generator[TrainingMoment, None, Tensor]:
    squares = torch.empty(len(items), 3, shape.size, shape.size, dtype=torch.uint8)
    for start in range(0, len(items), READ_AT_ONCE):
        yield TrainingMoment("reading", start, len(items))
        read, _ = read_labelled_files(items[start : start + READ_AT_ONCE], isolated=False)
        for offset, (_, picture) in enumerate(read):
            squares[start + offset] = to_pixels(
                picture, shape.size, resize=shape.resize, interpolation=shape.interpolation
            )
    return squares


def _view(engine: Atlas, settings: TrainSettings) -> View:
    augment = Augment(smallest=settings.smallest_crop, flip=settings.flip, jitter=settings.jitter)

    def view(pixels: Tensor, generator: torch.Generator | None) -> Tensor:
        images = pixels.float() / 255 if generator is None else augment(pixels, generator)
        return engine.backbone.as_input(images)

    return view


def _spread(count: int, most: int) -> list[int]:
    """At most `most` of the positions 0 … count − 1, evenly apart: classes keep their shares."""
    kept = min(count, most)
    return [index * count // kept for index in range(kept)]


# ---- names


def _classes(folder: ClassFolder, better: Mapping[str, str]) -> tuple[str, ...]:
    for name in better:
        if name not in folder.classes:
            raise SupportError(unknown_name(f"class folder of {folder.name}", name, folder.classes))
    pairs = zip(folder.classes, folder.pretty, strict=True)
    return check_class_names([better.get(name, pretty) for name, pretty in pairs], at_least=2)


# ---- learning and measuring


def _centroid(lesson: TrainingTask, visual: nn.Module) -> tuple[float, ...]:
    """The mean feature of the pictures learned from, under the base model."""
    some = lesson.train.pixels[_spread(len(lesson.train), CENTROID_IMAGES)]
    return tuple(lesson.units(visual, some).mean(dim=0).tolist())


def _training(steps: Generator[FineTuneStep, None, FineTuned]) -> Generator[TrainingMoment, None, FineTuned]:
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            found: FineTuned = end.value
            return found
        yield TrainingMoment("training", step.index, step.of, step)


def _facts(engine: Atlas, course: _Course, settings: TrainSettings, found: FineTuned) -> dict[str, str]:
    """Where the vector comes from. Nothing of when or where: the same training gives the same bytes."""
    split = course.split
    digest = hashlib.sha256()
    for item, square in zip(course.items, course.squares, strict=True):
        digest.update(f"{item.name}\n".encode())
        digest.update(square.numpy().data)
    return {
        "kind": found.kind,
        "model": engine.backbone.name,
        "templates": json.dumps(find_templates(settings.templates or engine.backbone.templates)),
        "classes": str(1 + max(item.label for item in course.items)),
        "images": str(len(course.items)),
        "train_images": str(len(split.train)),
        "val_images": str(len(split.val)),
        "test_images": str(len(split.test)),
        "steps": str(found.steps),
        "best_step": str(found.best_step),
        "val_accuracy": "" if found.val_accuracy is None else f"{found.val_accuracy:.4f}",
        "seed": str(settings.seed),
        "settings": json.dumps(settings.as_dict(), sort_keys=True),
        "data_sha256": digest.hexdigest(),
        "software": f"atlas-studio {software_version()}, torch {torch.__version__}",
    }
