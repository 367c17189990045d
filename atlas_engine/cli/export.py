"""`atlas export RECIPE -o DIR`: the adapted model for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from atlas_engine.cli.options import PATH, bank_option, command, json_flag, model_option
from atlas_engine.cli.output import emit, emit_json, say
from atlas_engine.files import human_nbytes
from atlas_engine.views.tables import table

__all__ = ["export"]


@command(
    "atlas export otters.atlas.safetensors -o otters",
    "atlas export otters.atlas.safetensors -o page --format html --int8",
)
@click.argument("recipe_file", metavar="RECIPE", help="a recipe file")
@click.option("-o", "--output", required=True, type=PATH, metavar="DIR", help="the new folder to write")
@click.option(
    "--format", "format_name", default="onnx", metavar="NAME",
    help="onnx (default), html, openclip or transformers",
)  # fmt: skip
@click.option("--int8", is_flag=True, help="weights in eight bits: less than half the size (onnx, html)")
@model_option
@bank_option("the recipe's bank (default: the model's own)")
@json_flag
def export(
    *,
    recipe_file: str,
    output: Path,
    format_name: str,
    int8: bool,
    model: str,
    bank: Path | None,
    as_json: bool,
) -> None:
    """Write a recipe's model as ONNX, a web page or other formats.

    onnx is one file that takes an image of any size and gives probabilities, for onnxruntime. html is one
    page that answers in the browser, from disk and without a server; it needs onnxruntime-web from npm.
    openclip has the image tower under open_clip's names. transformers is for CLIP ViTs.
    """
    from atlas_engine.engine import open as open_atlas
    from atlas_engine.exporting.formats import check_export, expected_nbytes, write_export
    from atlas_engine.recipe import Recipe

    check_export(output, format=format_name, int8=int8)
    recipe = Recipe.load(recipe_file)
    with open_atlas(model, bank=bank) as engine:
        classifier = engine.classifier(recipe)
        size = human_nbytes(expected_nbytes(classifier, format=format_name, int8=int8))
        say(f"writing about {size} to {output}.")
        written = write_export(classifier, output, format=format_name, int8=int8)
    if as_json:
        files = [{"name": name, "nbytes": nbytes} for name, nbytes in written.files]
        emit_json({"folder": str(written.folder), "format": format_name, "files": files})
        return
    emit(
        table([(name, human_nbytes(nbytes)) for name, nbytes in written.files], (str(written.folder), "size"))
    )
