"""`atlas show RECIPE`: what a recipe is for, which vectors it mixes and how far each moves the model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atlas_engine.cli.arguments import add_bank
from atlas_engine.cli.command import Command
from atlas_engine.cli.figure import add_figure_flag, write_figure
from atlas_engine.cli.output import add_json_flag, emit, emit_json
from atlas_engine.config import assets_folder
from atlas_engine.errors import BankError
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from atlas_engine.bank import TaskVectorBank
    from atlas_engine.compose.contributions import Contributions
    from atlas_engine.recipe import Recipe

__all__ = ["SHOW"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """A recipe's file, its bank, a figure, and `--json`."""
    parser.add_argument("recipe", metavar="RECIPE", help="a recipe file")
    add_bank(parser, "its bank, to see contributions (default: the model's own)")
    add_figure_flag(
        parser, about="also draw λ by layer, and contributions beside it in OUT-contributions.svg"
    )
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Print where the recipe comes from, and each task's coefficients and contribution in short."""
    from atlas_engine.recipe import Recipe

    recipe = Recipe.load(args.recipe)
    moved = _contributions(recipe, args.bank)
    if args.figure:
        _draw(args.figure, recipe, moved)
    rows = _rows(recipe, moved)
    if args.json:
        more = {} if moved is None else {"contributions": moved.as_dict()}
        emit_json({**_facts(recipe), "tasks": rows, **more})
        return 0
    emit(table([(name, _short(value)) for name, value in _facts(recipe).items()], ("recipe", args.recipe)))
    emit("")
    emit(table([tuple(row.values()) for row in rows], tuple(rows[0])))
    return 0


def _contributions(recipe: Recipe, path: Path | None) -> Contributions | None:
    """From the bank given, which must be the recipe's; else from the model's own, where that is the one."""
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
    of = recipe.coefficients
    K = of.layout.partitions
    shares = {} if moved is None else {one.task: one for one in moved.top()}
    rows = []
    for task, lam in zip(of.tasks, of.table.double().flatten(1), strict=True):  # (M·K)
        top = int(lam.abs().argmax())
        row = {"task": task, "mean": lam.mean().item(), "mean_size": lam.abs().mean().item()}
        row |= {"largest": lam[top].item(), "at_block": of.blocks[top // K].name}
        if task in shares:
            row |= {"contribution": shares[task].length, "share": shares[task].share}
        rows.append(row)
    return sorted(rows, key=lambda row: (-row.get("contribution", 0.0), -row["mean_size"]))


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


SHOW = Command(
    arguments,
    run,
    (
        "atlas show otters.atlas.safetensors --figure otters.svg",
        "atlas show otters.atlas.safetensors --bank bank.safetensors --json",
    ),
    about="Neither the model nor the bank is needed to look at a recipe. A contribution is the length of\n"
    "λτ, how far a vector moves the model: it is shown where the recipe's bank is at hand.",
)
