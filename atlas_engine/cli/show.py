"""`atlas show RECIPE`: what a recipe is for, and which vectors it mixes. Knows nothing of models or banks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from atlas_engine.cli.command import Command
from atlas_engine.cli.output import add_json_flag, emit, emit_json
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from atlas_engine.recipe import Recipe

__all__ = ["SHOW"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """A recipe's file, and `--json`."""
    parser.add_argument("recipe", metavar="RECIPE", help="a recipe file")
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Print where the recipe comes from, and each task's coefficients in short."""
    from atlas_engine.recipe import Recipe

    recipe = Recipe.load(args.recipe)
    if args.json:
        emit_json(
            {**_facts(recipe), "tasks": [dict(zip(COLUMNS, row, strict=True)) for row in _rows(recipe)]}
        )
    else:
        emit(
            table([(name, _short(value)) for name, value in _facts(recipe).items()], ("recipe", args.recipe))
        )
        emit("")
        emit(table(_rows(recipe), COLUMNS))
    return 0


COLUMNS = ("task", "mean", "mean_size", "largest", "at_block")


def _facts(recipe: Recipe) -> dict[str, object]:
    return {
        "model": recipe.model,
        "method": recipe.method,
        "classes": list(recipe.classes),
        "layout": repr(recipe.coefficients.layout),
        "seed": recipe.seed,
        "config": dict(recipe.config),
        "model_fingerprint": recipe.model_fingerprint,
        "bank_fingerprint": recipe.bank_fingerprint,
        "versions": dict(recipe.versions),
    }


def _rows(recipe: Recipe) -> list[tuple[str, float, float, float, str]]:
    """Per task: the mean of λ and of |λ|, and the largest λ with its block; the heaviest task first."""
    of = recipe.coefficients
    K = of.layout.partitions
    rows = []
    for task, lam in zip(of.tasks, of.table.flatten(1), strict=True):  # (M·K)
        top = int(lam.abs().argmax())
        block = of.blocks[top // K].name
        rows.append((task, lam.mean().item(), lam.abs().mean().item(), lam[top].item(), block))
    return sorted(rows, key=lambda row: -row[2])


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


SHOW = Command(
    arguments,
    run,
    ("atlas show otters.atlas.safetensors", "atlas show otters.atlas.safetensors --json"),
    about="Neither the model nor the bank is needed to look at a recipe.",
)
