"""`atlas predict`: what a model, or a recipe, says of a few images. Knows nothing of how recipes are made."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.cli.arguments import add_bank, add_model, positive, word_list
from atlas_engine.cli.command import Command
from atlas_engine.cli.output import add_json_flag, emit, emit_json
from atlas_engine.cli.progress import Progress

if TYPE_CHECKING:
    from atlas_engine.data.image import Image
    from atlas_engine.engine import Atlas
    from atlas_engine.predictions import Predictions

__all__ = ["PREDICT", "image_files"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Images, class names, and which model."""
    parser.add_argument(
        "images", nargs="+", metavar="IMAGE", help="JPEG, PNG or WEBP files, or folders of them"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--classes", type=word_list, metavar="A,B", help="class names, separated by commas")
    what.add_argument("--recipe", metavar="R", help="a recipe file: its classes, by the model it describes")
    parser.add_argument("--templates", metavar="SET", help="a template set, or a sentence with {} in it")
    add_model(parser)
    add_bank(parser, "the recipe's bank (default: the model's own)")
    parser.add_argument(
        "--top", type=positive, default=3, metavar="K", help="classes to show an image (default 3)"
    )
    parser.add_argument("--no-cache", action="store_true", help="keep nothing on disk")
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Print a line an image, or JSON."""
    from atlas_engine.data.decode import read_image
    from atlas_engine.engine import open as open_atlas

    paths = image_files(args.images)
    with (
        open_atlas(args.model, bank=args.bank, cache=not args.no_cache) as engine,
        Progress(len(paths), "reading") as progress,
    ):
        pictures = []
        for path in paths:
            pictures.append(read_image(path))
            progress.advance()
        predictions = _answers(engine, pictures, args)
    emit_json(predictions.as_rows(args.top)) if args.json else emit(predictions.as_text(args.top))
    return 0


def _answers(engine: Atlas, pictures: list[Image], args: argparse.Namespace) -> Predictions:
    from atlas_engine.recipe import Recipe

    if args.recipe:
        return engine.compare(pictures, Recipe.load(args.recipe)).adapted
    return engine.predict(pictures, args.classes, templates=args.templates)


def image_files(names: list[str]) -> list[Path]:
    """Files as they are, and every picture below a folder."""
    from atlas_engine.data.folders import read_images_in

    files: list[Path] = []
    for name in names:
        path = Path(name)
        below = [photo.source for photo in read_images_in(path).items] if path.is_dir() else [path]
        files += [source for source in below if isinstance(source, Path)]
    return files


PREDICT = Command(
    arguments,
    run,
    examples=(
        'atlas predict cat.jpg --classes "cat,dog"',
        "atlas predict new/ --recipe mine.atlas.safetensors --json",
    ),
)
