"""Which of these class names fits each image? A generator, so that answers appear as they come.

for progress in ask(engine, ["cat.jpg"], "cat, dog"):
    print(progress.seen, "of", progress.total)
print(progress.answers[0].ranking)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import atlas_engine as atlas
from app import text
from app.handlers.uploads import ReadBudget, UploadedImage, read_images
from app.limits import LIMITS
from app.session import StoppedEarlyError, StopSignal

__all__ = ["AskProgress", "ImageAnswer", "as_json", "ask", "check_class_names", "split_class_names"]


@dataclass(frozen=True)
class ImageAnswer:
    """One image and the class names with their probabilities, likeliest first."""

    path: str
    name: str
    ranking: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class AskProgress:
    """How far a question has come: what is answered, and why the rest was left out."""

    total: int
    classes: int
    answers: tuple[ImageAnswer, ...] = ()
    left_out: tuple[str, ...] = ()
    stopped: bool = False

    @property
    def seen(self) -> int:
        """Images that are answered or left out."""
        return len(self.answers) + len(self.left_out)

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self.stopped or self.seen == self.total


def ask(
    engine: atlas.Atlas, paths: Sequence[str], class_text: str, *, stop_signal: StopSignal | None = None
) -> Iterator[AskProgress]:
    """Answers for the images at `paths`, a few at a time; the first state comes before any work.

    Raises an AtlasError when the question cannot be asked. An image that cannot be read is left out with the
    engine's sentence, and the others are answered. Stopped, it keeps the answers so far.
    """
    names = split_class_names(class_text)
    _check_images(paths)
    check_class_names(names)
    progress, stop_signal = AskProgress(total=len(paths), classes=len(names)), stop_signal or StopSignal()
    yield progress
    budget = ReadBudget(stop_signal, urgent=True)
    for start in range(0, len(paths), LIMITS.images_per_step):
        if stop_signal.is_set:
            yield replace(progress, stopped=True)
            return
        batch = paths[start : start + LIMITS.images_per_step]
        try:
            progress = _answer(engine, progress, batch, names, budget)
        except StoppedEarlyError:
            yield replace(progress, stopped=True)
            return
        yield progress


def split_class_names(class_text: str) -> tuple[str, ...]:
    """The class names in a text, at commas, semicolons and line ends; blank ones are dropped.

    >>> split_class_names("otter, sea lion\\nwalrus,,")
    ('otter', 'sea lion', 'walrus')
    """
    parts = (atlas.tidy_name(part) for part in re.split(r"[,;\n]", class_text))
    return tuple(part for part in parts if part)


def check_class_names(names: Sequence[str]) -> None:
    """Refuse fewer than two class names, and more than the page takes."""
    if len(names) < 2:
        raise atlas.AtlasError(text.page.few_classes(len(names)))
    if len(names) > LIMITS.classes:
        raise atlas.AtlasError(text.page.many_classes(len(names)))


def as_json(progress: AskProgress) -> dict[str, object]:
    """A finished question as plain JSON: a row per image, and the sentences for those left out."""
    rows = [
        {
            "image": answer.name,
            "label": answer.ranking[0][0],
            "prob": answer.ranking[0][1],
            "top": [{"label": label, "prob": prob} for label, prob in answer.ranking],
        }
        for answer in progress.answers
    ]
    return {"rows": rows, "left_out": list(progress.left_out)}


def _check_images(paths: Sequence[str]) -> None:
    if not paths:
        raise atlas.AtlasError(text.ask.NO_IMAGES)
    if len(paths) > LIMITS.images:
        raise atlas.AtlasError(text.ask.many_images(len(paths)))


def _answer(
    engine: atlas.Atlas,
    progress: AskProgress,
    paths: Sequence[str],
    names: tuple[str, ...],
    budget: ReadBudget,
) -> AskProgress:
    images, refusals = read_images((UploadedImage(path) for path in paths), budget)
    answers: list[ImageAnswer] = []
    if images:
        rankings = engine.predict([one.image for one in images], names).top(len(names))
        answers = [
            ImageAnswer(one.path, one.image.name, tuple((guess.label, guess.prob) for guess in ranking))
            for one, ranking in zip(images, rankings, strict=True)
        ]
    return replace(progress, answers=(*progress.answers, *answers), left_out=(*progress.left_out, *refusals))
