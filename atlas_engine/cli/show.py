"""`atlas show RECIPE`: what a recipe is for, which vectors it mixes and how far each moves the model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from atlas_engine.cli.options import bank_option, command, figure_option, json_flag
from atlas_engine.cli.output import emit, emit_json, write_figure
from atlas_engine.config import assets_folder
from atlas_engine.errors import BankError
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from atlas_engine.bank import TaskVectorBank
    from atlas_engine.compose.contributions import Contributions
    from atlas_engine.recipe import Recipe

__all__ = ["show"]


@command(
    "atlas show otters.atlas.safetensors --figure otters.svg",
    "atlas show otters.atlas.safetensors --bank bank.safetensors --json",
)
@click.argument("recipe_file", metavar="RECIPE", help="a recipe file")
@bank_option("its bank, to see contributions (default: the model's own)")
@figure_option("also draw λ by layer, and contributions beside it in OUT-contributions.svg")
@json_flag
def show(*, recipe_file: str, bank: Path | None, figure: Path | None, as_json: bool) -> None:
    """Print a recipe.

    Neither the model nor the bank is needed to look at a recipe. A contribution is the length of λτ, how far
    a vector moves the model: it is shown where the recipe's bank is at hand.
    """
    from atlas_engine.recipe import Recipe

    recipe = Recipe.load(recipe_file)
    moved = _contributions(recipe, bank)
    if figure:
        _draw(figure, recipe, moved)
    facts, rows = _facts(recipe), _rows(recipe, moved)
    if as_json:
        more = {} if moved is None else {"contributions": moved.as_dict()}
        emit_json({**facts, "tasks": rows, **more})
    else:
        emit(table([(name, _short(value)) for name, value in facts.items()], ("recipe", recipe_file)))
        emit("")
        emit(table([tuple(row.values()) for row in rows], tuple(rows[0])))


def _contributions(recipe: Recipe, path: Path | None) -> Contributions | None:
    """How far each vector moves the model, by the bank given or the model's own; None without a bank."""
    from atlas_engine.bank import load_bank
    from atlas_engine.compose.contributions import contributions

    if path is None:
        bank = _own_bank(recipe)
        return None if bank is None else contributions(recipe.coefficients, bank)
    bank = load_bank(path, tasks=recipe.coefficients.tasks)
    recipe.check(model_fingerprint=recipe.model_fingerprint, bank_fingerprint=bank.fingerprint)
    return contributions(recipe.coefficients, bank)


def _own_bank(recipe: Recipe) -> TaskVectorBank | None:
    """The bank that ships for the recipe's model, if it holds the vectors that the recipe was made with."""
    from atlas_engine.bank import load_bank

    shipped = {path.stem: path for path in (assets_folder() / "bank").glob("*.safetensors")}
    if recipe.model not in shipped:  # a stranger wrote that name: it is compared, and never made a path
        return None
    try:
        bank = load_bank(shipped[recipe.model], tasks=recipe.coefficients.tasks)
    except BankError:
        return None
    return bank if bank.fingerprint == recipe.bank_fingerprint else None


def _draw(path: Path, recipe: Recipe, moved: Contributions | None) -> None:
    from atlas_engine.views.coefficients import heat_grid

    write_figure(path, heat_grid(recipe.coefficients))
    if moved is not None:
        write_figure(path.with_name(f"{path.stem}-contributions{path.suffix}"), heat_grid(moved))


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


def _rows(recipe: Recipe, moved: Contributions | None) -> list[dict[str, Any]]:
    """Per task: the mean of λ and of |λ|, the largest λ with its block, and what it moves; heaviest first."""
    coefficients = recipe.coefficients
    K = coefficients.layout.partitions
    shares = {} if moved is None else {one.task: one for one in moved.top()}
    rows = []
    for task, lam in zip(coefficients.tasks, coefficients.table.double().flatten(1), strict=True):  # (M·K)
        top = int(lam.abs().argmax())
        row = {"task": task, "mean": lam.mean().item(), "mean_size": lam.abs().mean().item()}
        row |= {"largest": lam[top].item(), "at_block": coefficients.blocks[top // K].name}
        if task in shares:
            row |= {"contribution": shares[task].length, "share": shares[task].share}
        rows.append(row)
    return sorted(rows, key=lambda row: (-row.get("contribution", 0.0), -row["mean_size"]))


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
