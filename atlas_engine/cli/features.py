"""`atlas features`: image features of a folder of any size."""

from __future__ import annotations

from pathlib import Path

import click

from atlas_engine.cli.options import (
    PATH,
    Spread,
    command,
    json_flag,
    model_option,
    skip_unreadable_option,
    spread_options,
    writable,
)
from atlas_engine.cli.output import emit, emit_json
from atlas_engine.cli.progress import run_with_bar
from atlas_engine.errors import SupportError
from atlas_engine.files import human_nbytes

__all__ = ["features"]


@command(
    "atlas features photos -o photos.safetensors",
    "atlas features photos -o photos.safetensors --on processes:4 --skip-unreadable",
)
@click.argument("folder", type=PATH, metavar="DIR", help="JPEG, PNG or WEBP files, at any depth")
@click.option("-o", "--output", type=writable, required=True, metavar="FILE", help="features file to write")
@model_option
@skip_unreadable_option
@spread_options("parts of the folder")
@json_flag
def features(
    *, folder: Path, output: Path, model: str, skip_unreadable: bool, spread: Spread, as_json: bool
) -> None:
    """Write the features of every image of a folder.

    FILE has one tensor, `features` (N D) in float32, each row of length 1; beside it, a file that ends in
    .names.txt has the path of each image, a line each. The folder may be larger than memory. Given again, a
    command that was stopped goes on where it was.
    """
    from atlas_engine.data.folders import read_images_in
    from atlas_engine.engine import open as open_atlas
    from atlas_engine.executors import Ledger
    from atlas_engine.jobs.features import CHUNK, feature_tasks, names_file, write_features

    if not folder.is_dir():
        raise click.UsageError(f"{folder} is no folder. Give a folder of images.")
    images = [
        image.source.relative_to(folder).as_posix()
        for image in read_images_in(folder).items
        if isinstance(image.source, Path)
    ]
    if not images:
        raise SupportError(f"{folder} holds no JPEG, PNG or WEBP image. Give a folder that does.")
    ledger = Ledger(output.with_name(f"{output.name}.tasks"))
    with open_atlas(model) as engine, spread.open() as executor:
        tasks = feature_tasks(engine, model, folder, images, skip=skip_unreadable, threads=spread.threads)
        done = run_with_bar(tasks, -(-len(images) // CHUNK), "features", executor=executor, ledger=ledger)
        count = write_features(done, output, model=engine.backbone.name, fingerprint=engine.fingerprint)
    ledger.remove()
    facts = {
        "file": str(output),
        "names": str(names_file(output)),
        "images": count,
        "skipped": len(images) - count,
        "nbytes": output.stat().st_size,
    }
    if as_json:
        emit_json(facts)
    else:
        left_out = f", {len(images) - count} left out" if len(images) > count else ""
        emit(f"{output}: {count} images{left_out}, {human_nbytes(output.stat().st_size)}")
