"""How much a negation forgets at each strength, as the page's slider shows.

    for point in forgetting_curve(engine, result.recipe, target, control):
        point.scale, point.target, point.control             # 0.5, 0.21, 0.93

Strength 0 is zero-shot, 1 is the recipe's own λ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from atlas_engine.adapt.arithmetic.negation import CONTROL, TARGET
from atlas_engine.adapt.arithmetic.recipes import task_classes, task_columns
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.clip.backbone import Backbone
from atlas_engine.data.image_files import image_names
from atlas_engine.data.support import Support
from atlas_engine.errors import RecipeError, SupportError
from atlas_engine.predictions import predictions_from_logits
from atlas_engine.recipe import Recipe

__all__ = ["SCALES", "ForgettingPoint", "forgetting_curve", "scale_recipe"]

SCALES = (0.0, 0.25, 0.5, 0.75, 1.0)


class RecipeAnswers(Protocol):
    """Anything that gives the logits of a recipe's model, such as `atlas_engine.Atlas`."""

    backbone: Backbone

    def logits(self, recipe: Recipe, pixels: Tensor, *, bank: TaskVectorBank | None = None) -> Tensor:
        """Pixels (N 3 S S) uint8 to logits (N C)."""
        ...


@dataclass(frozen=True)
class ForgettingPoint:
    """Accuracy on the target and on the control at one strength."""

    scale: float
    target: float
    control: float


def forgetting_curve(
    engine: RecipeAnswers,
    recipe: Recipe,
    target: Support,
    control: Support,
    *,
    scales: Sequence[float] = SCALES,
    bank: TaskVectorBank | None = None,
) -> tuple[ForgettingPoint, ...]:
    """Accuracies on target and control at each strength of a recipe that `engine.negate` made."""
    if {TARGET, CONTROL} - set(task_classes(recipe)):
        raise RecipeError(
            f"this recipe ({recipe.method}) forgets nothing. Make one with `atlas adapt negate`."
        )
    points = []
    for scale in scales:
        scaled = scale_recipe(recipe, scale)
        points.append(
            ForgettingPoint(
                scale,
                _accuracy(engine, scaled, TARGET, target, bank),
                _accuracy(engine, scaled, CONTROL, control, bank),
            )
        )
    return tuple(points)


def scale_recipe(recipe: Recipe, scale: float) -> Recipe:
    """The recipe with all coefficients times `scale`: 0 is zero-shot, 1 the recipe itself."""
    return recipe.scaled(tasks=dict.fromkeys(recipe.coefficients.tasks, scale))


def _accuracy(
    engine: RecipeAnswers, recipe: Recipe, task: str, support: Support, bank: TaskVectorBank | None
) -> float:
    known = task_classes(recipe)[task]
    unknown = [name for name in support.classes if name not in known]
    if unknown:
        raise SupportError(
            f"'{unknown[0]}' is no {task} class of this recipe. It has: {', '.join(known)}. Give those."
        )
    spec = engine.backbone.preprocessing
    pixels = support.pixels(spec.size, resize=spec.resize, interpolation=spec.interpolation)
    columns = task_columns(recipe, task)
    logits = engine.logits(recipe, pixels, bank=bank)[:, columns]
    truth = torch.tensor([known.index(support.classes[label]) for label in support.labels])
    names = image_names(support.images)
    return predictions_from_logits(names, known, logits).accuracy(truth)
