"""Recipes of task arithmetic: one set of coefficients for several tasks with classes of their own.

    recipe = arithmetic_recipe(run, "atlas", table, facts={"target_after": 0.1})
    task_classes(recipe)                                     # {"target": ("otter", "seal"), …}
    task_columns(recipe, "target")                           # the columns of recipe.classes that are its own

A recipe's classes are those of all tasks, each named once.
"""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from atlas_engine.adapt.arithmetic.training import ArithmeticRun
from atlas_engine.adapt.results import build_recipe
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.errors import RecipeError, unknown_name
from atlas_engine.recipe import Json, Recipe

__all__ = ["arithmetic_recipe", "task_classes", "task_columns"]

CLASSES = "classes of "  # key of a task's classes in the recipe's config


def arithmetic_recipe(
    run: ArithmeticRun, method: str, table: Float[Tensor, "T M"], *, facts: Mapping[str, Json]
) -> Recipe:
    """The recipe of λ, with the classes of every task and what was measured."""
    bank, config = run.context.bank, dict[str, Json](run.config.as_dict())
    for task in run.context.tasks:
        config[CLASSES + task.name] = list(task.classes)
    return build_recipe(
        run.context,
        Coefficients(table.detach().cpu(), Layout(), bank.tasks, bank.blocks),
        method=method,
        head="none",
        config={**config, **facts},
        seed=run.seed,
    )


def task_classes(recipe: Recipe) -> dict[str, tuple[str, ...]]:
    """The classes of each task that an arithmetic recipe was made for; empty for any other recipe."""
    return {
        name.removeprefix(CLASSES): tuple(map(str, classes))
        for name, classes in recipe.config.items()
        if name.startswith(CLASSES) and isinstance(classes, list)
    }


def task_columns(recipe: Recipe, task: str) -> list[int]:
    """The columns of the recipe's logits that are this task's classes, in the task's order."""
    known = task_classes(recipe)
    if task not in known:
        raise RecipeError(unknown_name("task of this recipe", task, known))
    unknown = [name for name in known[task] if name not in recipe.classes]
    if unknown:
        raise RecipeError(f"class '{unknown[0]}' of '{task}' is none of the recipe's. Make the recipe again.")
    return [recipe.classes.index(name) for name in known[task]]
