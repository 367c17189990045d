"""`atlas predict`: what a model, or a recipe, says of a few images."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from atlas_engine.cli.options import (
    bank_option,
    command,
    images_argument,
    json_flag,
    model_option,
    parse_words,
    positive,
    templates_option,
    writable,
)
from atlas_engine.cli.output import emit, emit_json
from atlas_engine.cli.progress import ProgressBar

__all__ = ["image_files", "predict"]


@command(
    'atlas predict cat.jpg --classes "cat,dog"',
    "atlas predict new/ --recipe mine.atlas.safetensors --json",
)
@images_argument
@click.option("--classes", type=parse_words, metavar="A,B", help="class names, separated by commas")
@click.option("--recipe", metavar="R", help="a recipe file: its classes, by the model it describes")
@templates_option
@model_option
@bank_option("the recipe's bank (default: the model's own)")
@click.option("--top", type=positive, default=3, metavar="K", help="classes to show an image (default 3)")
@click.option(
    "--save", "answers_file", metavar="OUT", type=writable,
    help="also write all probabilities to OUT, .csv or .json",
)  # fmt: skip
@click.option("--no-cache", is_flag=True, help="keep nothing on disk")
@json_flag
def predict(
    *,
    images: tuple[Path, ...],
    classes: tuple[str, ...] | None,
    recipe: str | None,
    templates: tuple[str, ...],
    model: str,
    bank: Path | None,
    top: int,
    answers_file: Path | None,
    no_cache: bool,
    as_json: bool,
) -> None:
    """Say which of your classes each image shows.

    The classes are those of --classes or of --recipe: give one of the two.
    """
    from atlas_engine.data.decode import read_image
    from atlas_engine.engine import open as open_atlas
    from atlas_engine.predictions_file import save_predictions
    from atlas_engine.recipe import Recipe

    if (classes is None) == (recipe is None):
        raise click.UsageError("give --classes or --recipe, one of the two.")
    if recipe is not None and templates:
        raise click.UsageError("a recipe has templates of its own. Leave --templates out, or give --classes.")
    files = image_files(images)
    with open_atlas(model, bank=bank, cache=not no_cache) as engine:
        with ProgressBar(len(files), "reading") as progress:
            read = []
            for file in files:
                read.append(read_image(file))
                progress.advance()
        if recipe is not None:
            predictions = engine.compare(read, Recipe.load(recipe)).adapted
        else:
            predictions = engine.predict(read, classes or (), templates=templates or None)
    if answers_file is not None:
        save_predictions(predictions, answers_file)
    emit_json(predictions.as_rows(top)) if as_json else emit(predictions.as_text(top))


def image_files(paths: Iterable[Path]) -> list[Path]:
    """Files as they are, and every image below a folder."""
    from atlas_engine.data.folders import read_images_in

    files: list[Path] = []
    for path in paths:
        below = [image.source for image in read_images_in(path).items] if path.is_dir() else [path]
        files += [source for source in below if isinstance(source, Path)]
    return files
