"""The advanced settings of a run, and the link that carries them.

A link holds class names and settings, never an image:

    ?class=otter&class=seal&steps=80            for the tab that learns from labels
    ?word=otter&word=seal                       for the tab that needs none, so that each tab knows its own
    ?class=otter&model=ViT-B-32/openai          where it is not the model that the page opens with
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar
from urllib.parse import urlencode

import atlas_engine as atlas
from app import text
from app.limits import LIMITS

__all__ = [
    "ALL_PRESENT",
    "METHODS",
    "OBJECTIVES",
    "FewShotSettings",
    "UnlabelledSettings",
    "check_sentences",
    "few_shot_from_query",
    "model_mismatch",
    "read_templates",
    "show_templates",
    "to_query",
    "unlabelled_from_query",
]

METHODS, OBJECTIVES = tuple(text.teach.METHOD_NAMES), tuple(text.unlabelled.METHOD_NAMES)
"""The methods that the page offers with and without labels: those with a title. The first checks itself."""

ALL_PRESENT = "entropy+balanced"
"""The objective for images of which the visitor knows that they show every class."""

MAX_NAME_LENGTH = 100  # letters of a class name in a link
MODEL_NAME = re.compile(r"[\w.+@/-]{1,160}")
MIN_LR, MAX_LR = 1e-6, 10.0  # in a link

USUAL = atlas.effective_settings(METHODS[0])
"""What the form shows of the numbers; left as they are, they stand for the chosen method's own."""

QueryPairs = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class FewShotSettings:
    """How to learn from labels, each with the engine's own default."""

    CLASS_KEY: ClassVar[str] = "class"  # of a class name in a link

    method: str = METHODS[0]
    steps: int = USUAL.steps
    lr: float = USUAL.lr
    seed: int = 0
    templates: str = ""  # a set's name or lines with {}; empty for the model's own

    @property
    def config(self) -> atlas.FewShotConfig:
        """As the engine takes them; it refuses what is out of range, but would take a rate of 0."""
        if self.lr == 0:
            raise atlas.AtlasError(text.teach.NO_LEARNING)
        steps = None if self.steps == USUAL.steps else min(int(self.steps), LIMITS.steps)
        return atlas.FewShotConfig(steps=steps, lr=None if self.lr == USUAL.lr else float(self.lr))

    @property
    def checks_itself(self) -> bool:
        """Whether the method holds images out, and says what it found."""
        return self.method == METHODS[0]

    @property
    def method_name(self) -> str:
        """The method as the page calls it."""
        return text.teach.METHOD_NAMES.get(self.method, self.method)


@dataclass(frozen=True)
class UnlabelledSettings:
    """How to adapt to images without labels."""

    CLASS_KEY: ClassVar[str] = "word"

    objective: str = OBJECTIVES[0]
    seed: int = 0
    templates: str = ""

    @property
    def method(self) -> str:
        """The objective: what the recipe's `method` is compared with."""
        return self.objective

    @property
    def method_name(self) -> str:
        """The objective as the page calls it."""
        return text.unlabelled.METHOD_NAMES.get(self.objective, self.objective)


def to_query(
    classes: Iterable[str], settings: FewShotSettings | UnlabelledSettings, *, model: str = ""
) -> str:
    """The query of a link; settings that have their default are left out, and so is the page's own model.

    >>> to_query(["otter", "sea lion"], FewShotSettings(seed=3))
    '?class=otter&class=sea+lion&seed=3'
    """
    pairs = [(settings.CLASS_KEY, name) for name in classes]
    pairs += [
        (one.name, str(getattr(settings, one.name)))
        for one in fields(settings)
        if getattr(settings, one.name) != one.default
    ]
    return f"?{urlencode([*pairs, *([('model', model)] if model else [])])}"


def few_shot_from_query(pairs: QueryPairs) -> tuple[tuple[str, ...], FewShotSettings]:
    """Class names and settings from a link that anybody may have written; what makes no sense is dropped."""
    pairs = list(pairs)
    given, usual = dict(pairs), FewShotSettings()
    return _class_names(pairs, FewShotSettings.CLASS_KEY, most=LIMITS.rows), FewShotSettings(
        method=given["method"] if given.get("method") in METHODS else usual.method,
        steps=int(_number(given.get("steps"), usual.steps, low=0, high=LIMITS.steps)),
        lr=_number(given.get("lr"), usual.lr, low=MIN_LR, high=MAX_LR),
        seed=_seed(given),
        templates=_templates(given),
    )


def unlabelled_from_query(pairs: QueryPairs) -> tuple[tuple[str, ...], UnlabelledSettings]:
    """The same for images without labels."""
    pairs = list(pairs)
    given = dict(pairs)
    objective = given["objective"] if given.get("objective") in OBJECTIVES else OBJECTIVES[0]
    names = _class_names(pairs, UnlabelledSettings.CLASS_KEY, most=LIMITS.classes)
    return names, UnlabelledSettings(objective, _seed(given), _templates(given))


def read_templates(chosen: str | None) -> str:
    """The templates that a visitor chose or typed, as settings hold them."""
    return "" if chosen in (None, text.page.OWN_TEMPLATES) else str(chosen).strip()


def show_templates(settings: FewShotSettings | UnlabelledSettings) -> str:
    """The templates of these settings as the page shows them."""
    return settings.templates or text.page.OWN_TEMPLATES


def check_sentences(classes: Sequence[str], templates: Sequence[str] | str | None) -> None:
    """Refuse templates that are none, or that make more sentences of the classes than the page reads."""
    count = len(atlas.find_templates(templates)) if templates else 1
    if len(classes) * count > LIMITS.sentences:
        raise atlas.AtlasError(text.page.many_sentences(len(classes), count))


def model_mismatch(pairs: QueryPairs, model: str) -> str:
    """A sentence where the link was made with another model than `model`, which answers now; else ''."""
    made_with = dict(pairs).get("model", "")
    if not MODEL_NAME.fullmatch(made_with) or made_with == model:
        return ""
    return text.model.made_with(made_with, model)


def _class_names(pairs: QueryPairs, key: str, *, most: int) -> tuple[str, ...]:
    return tuple(value[:MAX_NAME_LENGTH] for name, value in pairs if name == key and value.strip())[:most]


def _seed(given: Mapping[str, str]) -> int:
    return int(_number(given.get("seed"), 0, low=0, high=2**31 - 1))


def _templates(given: Mapping[str, str]) -> str:
    chosen = given.get("templates", "").strip()
    try:
        return chosen if chosen and atlas.find_templates(chosen) else ""
    except atlas.AtlasError:
        return ""


def _number(given: str | None, default: float, *, low: float, high: float) -> float:
    try:
        value = float(given or "")
    except ValueError:
        return default
    return value if low <= value <= high else default
