"""How much is forgotten at each strength of a negation: what a slider shows. Knows nothing of pages.

    for one in forgotten(engine, result.recipe, target, control):
        one.scale, one.target, one.control                   # 0.5, 0.21, 0.93

At 0 the model is zero-shot, at 1 it is what the recipe says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from atlas_engine.adapt.arithmetic.negation import CONTROL, TARGET
from atlas_engine.adapt.arithmetic.recipes import task_classes, task_columns
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.data.support import Support
from atlas_engine.engine import Atlas
from atlas_engine.errors import RecipeError, SupportError
from atlas_engine.predictions import predictions_from_logits
from atlas_engine.recipe import Recipe

__all__ = ["SCALES", "ForgettingPoint", "forgetting_curve", "scale_recipe"]

SCALES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class ForgettingPoint:
    """Shares of the target's and of the control's pictures that are named right at one strength."""

    scale: float
    target: float
    control: float


def forgetting_curve(
    engine: Atlas,
    recipe: Recipe,
    target: Support,
    control: Support,
    *,
    scales: Sequence[float] = SCALES,
    bank: TaskVectorBank | None = None,
) -> tuple[ForgettingPoint, ...]:
    """Both accuracies at each strength, on these pictures, of a recipe that `engine.negate` made."""
    if {TARGET, CONTROL} - set(task_classes(recipe)):
        raise RecipeError(
            f"this recipe ({recipe.method}) forgets nothing. Make one with `atlas adapt negate`."
        )
    found = []
    for scale in scales:
        weaker = scale_recipe(recipe, scale)
        shares = [_share(engine, weaker, *part, bank) for part in ((TARGET, target), (CONTROL, control))]
        found.append(ForgettingPoint(scale, *shares))
    return tuple(found)


def scale_recipe(recipe: Recipe, scale: float) -> Recipe:
    """The recipe with all its coefficients times `scale`: 0 is zero-shot, 1 the recipe itself."""
    return recipe.scaled(tasks=dict.fromkeys(recipe.coefficients.tasks, scale))


def _share(engine: Atlas, recipe: Recipe, task: str, support: Support, bank: TaskVectorBank | None) -> float:
    known = task_classes(recipe)[task]
    strange = [name for name in support.classes if name not in known]
    if strange:
        raise SupportError(
            f"'{strange[0]}' is no {task} class of this recipe. It has: {', '.join(known)}. Give those."
        )
    shape = engine.backbone.preprocessing
    squares = support.pixels(shape.size, resize=shape.resize, interpolation=shape.interpolation)
    columns = task_columns(recipe, task)
    logits = engine.logits(recipe, squares, bank=bank)[:, columns]
    truth = torch.tensor([known.index(support.classes[label]) for label in support.labels])
    return predictions_from_logits(tuple(picture.name for picture in support.images), known, logits).accuracy(
        truth
    )
