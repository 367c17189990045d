"""Which of these words fits each picture? A generator, so that answers appear as they come.

Knows nothing of Gradio and nothing of HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import atlas_engine as atlas
from app import text
from app.handlers.pictures import read_pictures
from app.limits import LIMITS
from app.state import StopSign

__all__ = ["Answer", "Asked", "answer_rows", "ask", "split_classes"]


@dataclass(frozen=True)
class Answer:
    """One picture and the class names that fit it, likeliest first."""

    path: str
    name: str
    guesses: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Asked:
    """How far a question has come: what is answered, and why the rest was left out."""

    total: int
    classes: int
    answers: tuple[Answer, ...] = ()
    left_out: tuple[str, ...] = ()
    stopped: bool = False

    @property
    def seen(self) -> int:
        """Pictures that are dealt with."""
        return len(self.answers) + len(self.left_out)

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self.stopped or self.seen == self.total


def ask(
    engine: atlas.Atlas, paths: Sequence[str], class_text: str, *, sign: StopSign | None = None
) -> Iterator[Asked]:
    """Answers for the pictures at `paths`, a few at a time; the first state comes before any work.

    Raises an AtlasError when the question cannot be asked. A picture that cannot be read is left out with the
    engine's sentence, and the others are answered. Stopped, it keeps the answers so far.
    """
    names = split_classes(class_text)
    _check(paths, names)
    asked, sign = Asked(total=len(paths), classes=len(names)), sign or StopSign()
    yield asked
    for start in range(0, len(paths), LIMITS.images_per_step):
        if sign.is_up:
            yield replace(asked, stopped=True)
            return
        asked = _answered(engine, asked, paths[start : start + LIMITS.images_per_step], names)
        yield asked


def split_classes(class_text: str) -> tuple[str, ...]:
    """The class names in a text, at commas, semicolons and line ends; blank ones are dropped.

    >>> split_classes("otter, sea lion\\nwalrus,,")
    ('otter', 'sea lion', 'walrus')
    """
    parts = (atlas.tidy_name(part) for part in re.split(r"[,;\n]", class_text))
    return tuple(part for part in parts if part)


def answer_rows(asked: Asked) -> dict[str, object]:
    """A finished question as plain JSON: a row a picture, and the sentences for those left out."""
    rows = [
        {
            "image": answer.name,
            "label": answer.guesses[0][0],
            "prob": answer.guesses[0][1],
            "top": [{"label": label, "prob": prob} for label, prob in answer.guesses],
        }
        for answer in asked.answers
    ]
    return {"rows": rows, "left_out": list(asked.left_out)}


def _check(paths: Sequence[str], names: Sequence[str]) -> None:
    if not paths:
        raise atlas.AtlasError(text.NO_IMAGES)
    if len(paths) > LIMITS.images:
        raise atlas.AtlasError(text.many_images(len(paths)))
    if len(names) < 2:
        raise atlas.AtlasError(text.few_classes(len(names)))
    if len(names) > LIMITS.classes:
        raise atlas.AtlasError(text.many_classes(len(names)))


def _answered(engine: atlas.Atlas, asked: Asked, paths: Sequence[str], names: tuple[str, ...]) -> Asked:
    found = list(read_pictures((path, path) for path in paths))
    pictures = [(path, picture) for path, picture in found if not isinstance(picture, str)]
    refusals = [refusal for _, refusal in found if isinstance(refusal, str)]
    answers: list[Answer] = []
    if pictures:
        tops = engine.predict([picture for _, picture in pictures], names).top(len(names))
        answers = [
            Answer(path, picture.name, tuple((guess.label, guess.prob) for guess in top))
            for (path, picture), top in zip(pictures, tops, strict=True)
        ]
    return replace(asked, answers=(*asked.answers, *answers), left_out=(*asked.left_out, *refusals))
