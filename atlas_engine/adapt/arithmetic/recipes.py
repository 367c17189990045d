"""Recipes and results of task arithmetic: one set of coefficients, several tasks with their own classes.

    recipe = recipe_of(course, "atlas", table, facts={"target_after": 0.1})
    task_classes(recipe)                                     # {"target": ("otter", "seal"), …}
    task_columns(recipe, "target")                           # where they are among recipe.classes

A recipe's classes are those of all tasks, each named once. Knows nothing of how coefficients came about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from atlas_engine.adapt.arithmetic.course import ArithmeticRun
from atlas_engine.adapt.arithmetic.tower import coefficients
from atlas_engine.adapt.optimise import LoopResult
from atlas_engine.errors import RecipeError, unknown_name
from atlas_engine.recipe import Json, Recipe
from atlas_engine.result import AdaptResult, Estimate, Outcome, Verdict

__all__ = ["recipe_of", "result_of", "task_classes", "task_columns"]

CLASSES = "classes of "


def recipe_of(course: ArithmeticRun, method: str, table: Tensor, *, facts: Mapping[str, Json]) -> Recipe:
    """The recipe of λ (T M), with the classes of every task and what was measured."""
    scene, config = course.scene, dict[str, Json](course.config.as_dict())
    for task in scene.tasks:
        config[CLASSES + task.name] = list(task.support.classes)
    return Recipe(
        coefficients(scene, table),
        model=scene.backbone.name,
        model_fingerprint=scene.model_fingerprint,
        bank_fingerprint=scene.bank.fingerprint,
        classes=scene.classes,
        method=method,
        config={**config, **facts, "head": "none"},
        seed=course.seed,
    )


def result_of(
    course: ArithmeticRun,
    recipe: Recipe,
    *,
    verdict: Verdict,
    estimates: Sequence[Estimate],
    ending: LoopResult | None,
) -> AdaptResult:
    """What a run of arithmetic hands over; `ending` is that of the learning, if there was any."""
    return AdaptResult(
        recipe=recipe,
        outcome=ending.outcome if ending else Outcome.finished,
        reason=ending.reason if ending else "there was nothing to learn step by step.",
        history=course.story.history,
        seconds=course.story.seconds(),
        verdict=verdict,
        estimates=tuple(estimates),
    )


def task_classes(recipe: Recipe) -> dict[str, tuple[str, ...]]:
    """The classes of each task that a recipe of arithmetic was made for; empty for any other recipe."""
    return {
        name.removeprefix(CLASSES): tuple(map(str, classes))
        for name, classes in recipe.config.items()
        if name.startswith(CLASSES) and isinstance(classes, list)
    }


def task_columns(recipe: Recipe, task: str) -> list[int]:
    """The columns of the recipe's logits that are this task's classes, in their order."""
    known = task_classes(recipe)
    if task not in known:
        raise RecipeError(unknown_name("task of this recipe", task, known))
    strange = [name for name in known[task] if name not in recipe.classes]
    if strange:
        raise RecipeError(f"class '{strange[0]}' of '{task}' is none of the recipe's. Make the recipe anew.")
    return [recipe.classes.index(name) for name in known[task]]
